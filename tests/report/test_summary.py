"""The three sentences and the next command for each kind of result."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from isoscope._io.json import RESULT_SCHEMAS, read_schema
from isoscope._report.summary import _SUMMARIES, summarize
from isoscope.cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 8)).astype(np.float32)
    np.save("good.npy", X)
    np.save("cone.npy", X + 4)
    return tmp_path


def result(capsys, *words):
    capsys.readouterr()
    assert main([*words, "--json", "-"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def test_every_kind_of_result_has_a_summary():
    names = [name for names in RESULT_SCHEMAS.values() for name in names]
    assert set(_SUMMARIES) == {read_schema(name)["title"] for name in names}


def test_an_audit_with_a_bad_finding_leads_to_advise(folder, capsys):
    summary = summarize(result(capsys, "audit", "cone.npy"), {"sources": ["cone.npy"], "queries": "q.npy"})
    assert summary.next == "isoscope advise cone.npy --queries q.npy"
    assert "share one direction" in summary.found
    assert "200 rows" in summary.basis
    assert "task" in summary.limits


def test_changes_since_the_baseline_are_part_of_the_answer(folder, capsys):
    assert main(["audit", "good.npy", "--json", "old.json"]) == 0
    content = result(capsys, "audit", "cone.npy", "--baseline", "old.json")
    worse = [change["name"] for change in content["changes"] if change["direction"] == "worse"]
    found = summarize(content, {"sources": ["cone.npy"]}).found
    assert worse
    assert all(name in found for name in worse)


def test_different_spaces_lead_to_an_audit_of_both(folder, capsys):
    content = result(capsys, "same", "good.npy", "cone.npy", "--pair", "rows")
    summary = summarize(content, {"sources": ["good.npy", "cone.npy"]})
    assert content["answer"] == "shifted"
    assert summary.next == "isoscope audit good.npy cone.npy"
    assert "200" in summary.limits


def test_the_next_command_has_no_secret_and_is_quoted():
    content = {"schema": "isoscope.similarity/1", "of": {"source": "docs"}, "notes": []}
    content["cosines"] = [{"sentence": "0.8 is above 99% of the pairs in docs"}]
    address = "postgresql://me:hunter22@host/db?table=my docs"
    command = summarize(content, {"source": address}).next
    assert "hunter22" not in command
    assert shlex.split(command)[2].startswith("postgresql://me@host/db?table=my")
    assert summarize(content, {"source": "-x.npy"}).next == "isoscope threshold ./-x.npy"
