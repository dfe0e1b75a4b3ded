"""The lists of the worst rows: their order, their ids and texts, and their JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

import isoscope
from isoscope.auditing.worst_rows import WorstRows

NAMES = ["near_duplicates", "hubs", "anti_hubs", "outliers", "zero_rows"]


def star(n=300, d=40, seed=0):
    """Rows around a center, which is the nearest row of most of them; and copies, an outlier and zero rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 2
    X[0] = X.mean(axis=0)
    X[5] = X[6]
    X[7] = X[8] + 1e-5
    X[9] = X[10] + 1e-6
    X[20] = 5 * rng.standard_normal(d)
    X[21] = X[22] = 0
    return X


@pytest.fixture(scope="module")
def audit():
    texts = [f"text\n{i} " + "long " * 60 for i in range(300)]
    return isoscope.audit(star(), text=texts, ids=[f"id{i}" for i in range(300)], rows=True, top=3)


def test_each_kind_is_listed_worst_first(audit):
    worst, frame = audit.worst, audit.rows.to_pandas()
    assert [each.name for each in worst.lists] == NAMES
    pairs = [(entry["row"], entry["other"]["row"]) for entry in worst["near_duplicates"].entries]
    assert pairs == [(5, 6), (9, 10), (7, 8)]
    assert worst["near_duplicates"].count == 3
    assert [entry["group_size"] for entry in worst["near_duplicates"].entries] == [2, 2, 2]
    assert worst["hubs"].entries[0]["row"] == 0
    assert worst["hubs"].entries[0]["k_occurrence"] == frame.k_occurrence.max()
    assert [entry["row"] for entry in worst["outliers"].entries] == [20]
    assert [entry["row"] for entry in worst["zero_rows"].entries] == [21, 22]
    for name, flag in (("hubs", "is_hub"), ("anti_hubs", "is_anti_hub"), ("outliers", "is_outlier")):
        assert worst[name].count == frame[flag].sum()
        assert len(worst[name].entries) == min(3, worst[name].count)
    cosines = [entry["nearest_cosine"] for entry in worst["anti_hubs"].entries]
    assert cosines == sorted(cosines)


def test_entries_have_ids_and_short_texts(audit):
    entry = audit.worst["near_duplicates"].entries[0]
    assert (entry["id"], entry["other"]["id"]) == ("id5", "id6")
    assert entry["text"].startswith("text 5 long long")
    assert len(entry["text"]) == 200
    assert entry["cosine"] == pytest.approx(1)


def test_euclidean_lists_have_distances():
    worst = isoscope.audit(star(), rows=True, metric="euclidean").worst
    assert worst["near_duplicates"].entries[1]["distance"] == pytest.approx(np.sqrt(40) * 1e-6, rel=0.02)
    assert "nearest_distance" in worst["anti_hubs"].entries[0]
    assert "text" not in worst["hubs"].entries[0]


def test_json_keeps_the_lists(audit, tmp_path):
    path = tmp_path / "audit.json"
    audit.to_json(path)
    again = isoscope.Audit.from_json(path)
    assert again.worst == WorstRows.from_dict(json.loads(json.dumps(audit.worst.to_dict())))
    assert again.worst.to_dict() == audit.worst.to_dict()
    assert again.rows is None
    content = json.loads(path.read_text())
    del content["worst_rows"]
    path.write_text(json.dumps(content))
    assert isoscope.Audit.from_json(path).worst is None


@pytest.mark.parametrize("spoiled", [{}, {"top": "3"}, {"lists": [{"name": "hubs"}]}, []])
def test_damaged_lists_are_refused(audit, tmp_path, spoiled):
    content = audit.to_dict()
    content["worst_rows"] = {**content["worst_rows"], **spoiled} if spoiled else spoiled
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(content))
    with pytest.raises(isoscope.errors.FileFormatError, match="not a complete audit"):
        isoscope.Audit.from_json(path)


def test_unknown_lists_raise_key_errors(audit):
    with pytest.raises(KeyError, match="anti_hubs"):
        audit.worst["hub"]
    assert repr(audit.worst).startswith("WorstRows(near_duplicates: 3, hubs: ")
    assert audit.worst.note == "Nearest neighbors were computed among all 298 rows."
