"""The advice of an audit names only existing commands, asks to confirm with `isoscope advise`, and is consistent."""

from __future__ import annotations

import re

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope

REPAIR = re.compile(r"cent(er|re|ring)|whiten|standardi|remov|scal(e|ing)|re-rank", re.IGNORECASE)
METHODS = {"center", "standardize", "all-but-the-top", "whiten", "cluster-center", "cluster-null"}
FOUR = np.arange(400) % 4


def spaces():
    rng = np.random.default_rng(0)
    ball = rng.standard_normal((400, 32)) / np.sqrt(32)
    yield "isotropic", ball, {}
    yield "common mean", ball + 0.5, {}
    yield "clusters", ball + 1.5 * np.eye(32)[FOUR], {}
    yield "labeled clusters", ball + 1.5 * np.eye(32)[FOUR], {"labels": FOUR}
    yield "labels that are not the clusters", ball + 1.5 * np.eye(32)[FOUR], {"labels": rng.permutation(FOUR)}
    yield "hubs", rng.standard_normal((400, 200)), {"metric": "euclidean"}
    yield "long", rng.standard_normal((400, 32)) * np.arange(1, 33) ** -1.5, {}


@pytest.fixture(scope="module")
def audits():
    with threadpool_limits(1):
        return {name: isoscope.audit(X, **options) for name, X, options in spaces()}


def test_a_repair_is_suggested_only_if_advise_confirms_it(audits):
    seen = 0
    for name, found in audits.items():
        for finding in found.findings:
            if finding.verdict == "ok" or finding.advice.startswith(("Leave", "Do not")):
                continue
            if REPAIR.search(finding.advice):
                assert re.search("`isoscope advise.*` confirms it", finding.advice), (name, finding.name)
                seen += 1
    assert seen >= 4


def test_advice_names_only_repairs_that_exist(audits):
    named = [
        method
        for found in audits.values()
        for finding in found.findings
        for method in re.findall(r"isoscope fix ([\w-]+)", finding.advice)
    ]
    assert set(named) >= {"center", "cluster-center"}
    assert set(named) <= METHODS
    assert not any("local scaling" in f.advice for found in audits.values() for f in found.findings)


def test_clusters_that_equal_the_labels_are_kept(audits):
    found = audits["labeled clusters"]
    assert found["label_conflict"].verdict == "look"
    assert found["clusters"].details["labels_in_clusters"] > 0.95
    assert found["clusters"].advice.startswith("Leave the clusters")
    assert "cluster-center" not in found["clusters"].advice
    other = audits["labels that are not the clusters"]["clusters"]
    assert other.details["labels_in_clusters"] < 0.05
    assert "cluster-center" in other.advice
    assert "cluster-center" in audits["clusters"]["clusters"].advice


@pytest.mark.parametrize(("noise", "left"), [(0.55, True), (0.9, False)])
def test_clusters_with_a_tenth_of_label_information_are_kept(noise, left):
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(400) < noise, rng.permutation(FOUR), FOUR)
    X = rng.standard_normal((400, 32)) / np.sqrt(32) + 1.5 * np.eye(32)[FOUR]
    found = isoscope.audit(X, labels=labels)["clusters"]
    assert (found.details["labels_in_clusters"] >= 0.1) == left
    assert found.advice.startswith("Leave the clusters") == left


def test_no_repair_is_suggested_that_would_remove_the_labels(audits):
    """The leading components separate the labels, so no finding may suggest removing them."""
    found = audits["labeled clusters"]
    assert found["label_conflict"].verdict == "look"
    assert found["anisotropy"].verdict != "ok"
    for finding in found.findings:
        assert not re.search("isoscope fix (all-but-the-top|whiten|cluster-)", finding.advice), finding.name
    suggested = [finding.name for finding in audits["long"].findings if "fix all-but-the-top" in finding.advice]
    assert suggested
