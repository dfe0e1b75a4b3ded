"""Comparing audits: changes, comparability, and the agreement of neighbors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope.auditing.audit import Audit
from isoscope.auditing.compare import (
    Change,
    compare_findings,
    compare_spaces,
    describe_comparison,
    describe_setting_differences,
    neighbor_agreement,
)
from isoscope.auditing.finding import Finding, Range
from tests.conftest import rotation

RANGE = Range.lower_is_better(0.1, 0.5, "s")


def finding(value, low=None, high=None, name="x"):
    return Finding(name, name.title(), value, low, high, RANGE, "m", "a", 10)


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


# changes


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        (finding(0.0), finding(0.3), "worse"),
        (finding(0.3), finding(0.6), "worse"),
        (finding(0.6), finding(0.0), "better"),
        (finding(0.2, 0.15, 0.25), finding(0.3, 0.26, 0.34), "moved"),
        (finding(0.3, 0.26, 0.34), finding(0.2, 0.15, 0.25), "moved"),
        (finding(0.2, 0.15, 0.26), finding(0.3, 0.26, 0.34), "same"),
        (finding(0.2), finding(0.2), "same"),
        (finding(0.2), finding(0.2000001), "moved"),
        (finding(0.2, 0.1, 0.3), finding(0.25), "moved"),
        (None, finding(0.2), "new"),
        (finding(0.2), None, "gone"),
    ],
)
def test_a_change_has_a_direction(before, after, direction):
    change = Change("x", "X", before, after)
    assert change.direction == direction
    same_verdict = ", with the same verdict" * (change.trend not in (direction, "same"))
    assert str(change).endswith(f"{change.trend}{same_verdict}")
    held = change.to_dict()
    assert held["direction"] == direction
    assert held["before"] == (None if before is None else {"value": before.value, "verdict": before.verdict})


def test_change_that_rounding_hides_is_neither_better_nor_worse():
    before, after = finding(0.2), finding(0.2000001)
    assert before.shown == after.shown
    assert Change("x", "X", before, after).trend == "same"
    assert Change("x", "X", before, finding(0.21)).trend == "worse"


def judged(value, reach, judged):
    return Finding("x", "X", value, value - reach, value + reach, judged, "m", "a", 10)


@pytest.mark.parametrize(
    ("range_", "trend"),
    [
        (Range.higher_is_better(0.0, -1.0, "labels"), "worse"),
        (Range.lower_is_better(0.1, 0.5, "shares"), "better"),
        (Range((-1.0, 1.0), (-2.0, 2.0), "a middle"), "moved"),
        (Range((-np.inf, np.inf), (-np.inf, np.inf), "for information"), "moved"),
    ],
)
def test_significant_drop_within_a_verdict_uses_the_range_direction(range_, trend):
    before, after, near = judged(0.063, 0.006, range_), judged(0.012, 0.006, range_), judged(0.055, 0.006, range_)
    opposite = {"worse": "better", "better": "worse", "moved": "moved"}[trend]
    assert before.verdict == after.verdict == "ok"
    assert Change("x", "X", before, after).trend == trend
    assert Change("x", "X", after, before).trend == opposite
    assert Change("x", "X", before, near).trend == "same"  # the intervals meet
    assert Change("x", "X", before, after).direction == "moved"  # --fail-on worse asks for another verdict


def test_reversed_change_is_the_opposite():
    a, b = finding(0.0), finding(0.3)
    assert Change("x", "X", a, b).direction == "worse"
    assert Change("x", "X", b, a).direction == "better"


def test_changes_cover_all_findings_in_order_of_the_second_audit(rng):
    X = rng.standard_normal((150, 8))
    plain, labeled = isoscope.audit(X), isoscope.audit(X + 1, labels=np.arange(150) % 2)
    found = compare_findings(plain, labeled)
    assert [change.name for change in found][: len(labeled.findings)] == [f.name for f in labeled.findings]
    by_name = {change.name: change for change in found}
    assert set(by_name) == {f.name for f in [*plain.findings, *labeled.findings]}
    assert by_name["mean_cosine"].direction == "worse"
    assert by_name["labels"].direction == "new"
    assert by_name["duplicates"].direction == "same"
    assert {c.direction for c in compare_findings(plain, plain)} == {"same"}
    assert next(c for c in compare_findings(labeled, plain) if c.name == "labels").direction == "gone"


# settings


def test_setting_differences_are_described(rng):
    X = rng.standard_normal((120, 8))
    a = isoscope.audit(X)
    assert describe_setting_differences(a, isoscope.audit(X[:100] + 1, seed=5)) == []
    other = isoscope.audit(X[:, :6], metric="euclidean", sample=500)
    found = describe_setting_differences(a, other)
    assert found[:2] == ["8 dimensions before, 6 after", "metric was cosine, is euclidean"]
    assert "sample was 20,000, is 500" in found[2]


def test_both_sample_sizes_have_the_same_format(rng):
    a = isoscope.audit(rng.standard_normal((20, 4)))
    b = Audit(**{**vars(a), "settings": replace(a.settings, sample=1000)})
    assert describe_setting_differences(b, a) == ["sample was 1,000, is 20,000"]


# agreement of neighbors


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("sample", [100, 1000])
def test_space_agrees_with_its_rotated_or_scaled_copy(rng, metric, sample):
    X = rng.standard_normal((240, 8)) + 0.5
    a = isoscope.audit(X, metric=metric, sample=sample)
    for same in (X, X @ rotation(8, rng), 3 * X):
        b = isoscope.audit(same, metric=metric, sample=sample)
        assert neighbor_agreement(a, b) == neighbor_agreement(b, a) == 1


def test_unrelated_spaces_agree_by_chance(rng):
    a, b = (isoscope.audit(rng.standard_normal((400, d))) for d in (8, 12))
    # 10 of 399 by chance; 4000 draws
    assert neighbor_agreement(a, b) == pytest.approx(10 / 399, abs=0.012)


def test_space_with_noise_agrees_partially(rng):
    X = rng.standard_normal((300, 8))
    a, b, c = (isoscope.audit(X + s * rng.standard_normal(X.shape)) for s in (0, 0.1, 0.5))
    assert 0.95 > neighbor_agreement(a, b) > neighbor_agreement(a, c) > 0.1


def test_zero_rows_are_excluded_from_neighbor_agreement(rng):
    X = rng.standard_normal((100, 8))
    Y = X.copy()
    Y[7] = 0
    a, b = isoscope.audit(X), isoscope.audit(Y)
    assert 0.95 < neighbor_agreement(a, b) < 1  # the lists that held row 7 differ in one entry


def test_spaces_with_different_rows_have_no_agreement(rng, tmp_path):
    X = rng.standard_normal((120, 8))
    a = isoscope.audit(X)
    assert neighbor_agreement(a, isoscope.audit(X[:119])) is None
    assert neighbor_agreement(a, isoscope.audit(np.insert(X, 3, np.nan, axis=0), missing="drop")) is None
    a.to_json(tmp_path / "a.json")
    assert neighbor_agreement(a, Audit.from_json(tmp_path / "a.json")) is None
    assert neighbor_agreement(isoscope.audit(X, sample=100), isoscope.audit(X, sample=100, seed=1)) is None


def test_change_of_the_verdict_alone_states_both_ranges():
    judged = Range((-math.inf, 0.1), (-math.inf, math.inf), "")
    before = Finding("clusters", "Cluster structure", 0.187, None, None, judged, "", "", 10)
    free = Range((-math.inf, math.inf), (-math.inf, math.inf), "")
    after = replace(before, judged=free, value=0.1871, details={"range": "ok: as high in random data"})
    change = Change("clusters", before.title, before, after)
    assert (change.trend, before.shown, after.shown) == ("better", "0.187", "0.187")
    assert str(change) == (
        "Cluster structure: 0.187 (look) → 0.187 (ok), better (the value is the same; before: ok below 0.100; after: "
        "ok: as high in random data)"
    )
    assert not Change("clusters", "", before, replace(after, value=0.05)).reason


@pytest.mark.parametrize(("rows", "measured"), [(5, False), (11, False), (12, True)])
def test_neighbors_are_compared_only_if_a_list_leaves_rows_out(rows, measured, rng):
    X = rng.standard_normal((rows, 8))
    a, b = isoscope.audit(X), isoscope.audit(X - X.mean(axis=0))
    assert (neighbor_agreement(a, b) is not None) == measured


@pytest.mark.parametrize(
    ("share", "text"), [(0.002, "0.02"), (0.44, "4.4"), (0.999, "9.99"), (0.0, "0.0"), (1.0, "10.0")]
)
def test_headline_of_two_spaces_rounds_only_exact_shares_to_none_or_all(share, text):
    found = isoscope.audit(np.random.default_rng(0).standard_normal((40, 6)))
    assert f"on average, {text} of the top 10 results agree" in describe_comparison([found, found], share)


def test_agreement_of_unrelated_spaces_lies_inside_its_interval():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        a, b = (isoscope.audit(rng.standard_normal((300, 16))) for _ in range(2))
        for each in compare_spaces(a, b):
            assert each.low <= each.value <= each.high
            assert "-" not in str(each).removeprefix(each.title)
