"""Audits by groups: results, requests, JSON and text."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import GroupedAudit, InputError
from isoscope._report import terminal
from isoscope.auditing.grouped import SCHEMA


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    layer = np.repeat([0, 6, 12], 200)
    X = rng.standard_normal((600, 8)) + layer[:, None] / 6
    words = [f"w{i}" for i in rng.integers(0, 40, 600)]
    return pa.table(
        {
            "embedding": list(X.astype(np.float32)),
            "layer": layer.astype(np.int32),
            "token": words,
            "label": np.arange(600) % 2,
            "document": np.arange(600),
            "source": [f"part {i % 30}" for i in range(600)],
        }
    )


@pytest.fixture(scope="module")
def found(table):
    return isoscope.audit(table, by="layer")


# results


def test_each_group_equals_the_audit_of_its_rows(found, table):
    for value in (0, 6, 12):
        part = table.filter(pa.compute.equal(table["layer"], value))
        alone, group = isoscope.audit(part), found[value]
        assert group.source == f"table, layer {value}"
        assert group.to_dict()["findings"] == alone.to_dict()["findings"]
        assert group.columns == alone.columns == {"labels": "label", "types": "token", "text": "document"}


def test_groups_are_named_and_ordered(found):
    assert list(found) == ["0", "6", "12"]
    assert found.values == {"0": 0, "6": 6, "12": 12}
    assert (found.ordered, found.left_out, found.skipped, len(found)) == (True, 0, {}, 3)
    assert found["6"] is found[6] is found[6.0]
    with pytest.raises(KeyError, match="layer 7: not found; choose from 0, 6, 12"):
        found[7]
    assert found.verdict == "bad" == found[12].verdict
    assert found[0]["mean_cosine"].verdict == "ok"
    assert repr(found) == "GroupedAudit(table by layer: 3 groups; 3 bad)"


def test_series_of_a_finding(found):
    series = found.series("mean_cosine")
    np.testing.assert_array_equal(series.values, [0, 6, 12])
    np.testing.assert_array_equal(series.estimates, [audit["mean_cosine"].value for audit in found.groups.values()])
    assert (series.low < series.estimates).all()
    assert (series.estimates < series.high).all()
    assert series.verdicts.tolist() == [audit["mean_cosine"].verdict for audit in found.groups.values()]
    assert (np.diff(series.estimates) > 0).all()
    nothing = found.series("queries")
    assert np.isnan(nothing.estimates).all()
    assert nothing.verdicts.tolist() == ["", "", ""]
    with pytest.raises(KeyError, match="mean_cosin is not a finding: choose from mean_cosine"):
        found.series("mean_cosin")


def test_series_of_a_detail(found, tmp_path):
    found.to_json(tmp_path / "g.json")
    for each in (found, GroupedAudit.from_json(tmp_path / "g.json")):  # JSON's keys are strings
        first = each.detail("anisotropy", "centered", 0)
        np.testing.assert_allclose(first, [a["anisotropy"].details["centered"][0] for a in each.groups.values()])
        assert np.isfinite(each.detail("clusters", "silhouettes", 2)).all()
        assert np.isnan(each.detail("anisotropy", "centered", 99)).all()
        assert np.isnan(each.detail("anisotropy", "nothing", 1)).all()
        assert np.isnan(each.detail("queries", "k")).all()


def test_by_accepts_every_column_type(table):
    assert list(isoscope.audit(table, by="labels")) == list(isoscope.audit(table, by="label")) == ["0", "1"]
    assert isoscope.audit(table, by="document").ordered
    assert len(isoscope.audit(table, by="document")) == 8
    named = isoscope.audit(table, by="source")
    assert not named.ordered
    assert list(named)[:3] == ["part 0", "part 1", "part 2"]
    assert named.values["part 2"] == "part 2"
    assert len(named) == 24
    assert named.left_out == 120
    assert " ".join(str(named).split()).count("120 rows") == 1
    assert named.skipped == {
        "6 others": "120 rows in 6 smaller groups are skipped: only the 24 largest groups are measured"
    }
    given = isoscope.audit(np.asarray(table["embedding"].to_pylist()), by=np.arange(600) // 300)
    assert given.by == "groups"
    assert given.groups["1"].source == "array, groups 1"


def test_shards_by_layer_form_one_store(table, tmp_path):
    for i in range(3):
        pq.write_table(table.slice(200 * i, 200), tmp_path / f"layer-{i:02d}-00000.parquet")
    found = isoscope.audit(tmp_path, by="layer")
    np.testing.assert_array_equal(
        found.series("isoscore").estimates, isoscope.audit(table, by="layer").series("isoscore").estimates
    )


# errors


def test_small_groups_are_skipped_and_only_small_groups_raise_an_error(table):
    X = np.random.default_rng(0).standard_normal((100, 4))
    codes = np.zeros(100, np.int64)
    codes[:2] = 1
    found = isoscope.audit(X, by=codes)
    assert list(found) == ["0"]
    assert found.left_out == 2
    assert "2 vectors with 4 dimensions: an audit needs at least 4" in found.skipped["1"]
    with pytest.raises(KeyError, match="an audit needs at least 4"):
        found["1"]
    with pytest.raises(InputError, match=r"none of the 20 groups can be measured: array, groups 0 has .*at least 4"):
        isoscope.audit(X[:20], by=np.arange(20))
    with pytest.raises(InputError, match="none of the 24 largest of 100 groups can be measured: array, groups id 0"):
        isoscope.audit(X, by=[f"id {i}" for i in range(100)])


def test_a_column_that_cannot_be_grouped_raises_an_error(table):
    with pytest.raises(InputError, match="no column depth for by: the columns are layer, token, label"):
        isoscope.audit(table, by="depth")
    with pytest.raises(InputError, match="queries= and by= cannot be combined"):
        isoscope.audit(table, by="layer", queries=np.eye(8))
    with pytest.raises(InputError, match="by has 3 entries but table has 600 rows"):
        isoscope.audit(table, by=[1, 2, 3])
    with pytest.raises(InputError, match="by is empty in 1 of 600 rows, first in row 5"):
        isoscope.audit(table, by=[None if i == 5 else "a" for i in range(600)])


def test_an_unusable_guessed_column_is_ignored_and_reported(table):
    broken = table.append_column("count", pa.array([-1] * 600))
    found = isoscope.audit(broken, by="layer")
    assert all("contains -1 in row 0" in audit.skipped["frequency"] for audit in found.groups.values())
    with pytest.raises(InputError, match="contains -1 in row 0"):
        isoscope.audit(broken, by="layer", frequency="count")


# JSON and text


def test_json_round_trip(found, tmp_path):
    path = tmp_path / "grouped.json"
    found.to_json(path)
    held = json.loads(path.read_text())
    assert held["schema"] == SCHEMA == "isoscope.grouped-audit/1"
    assert [(group["name"], group["value"]) for group in held["groups"]] == [("0", 0), ("6", 6), ("12", 12)]
    assert held["groups"][0]["audit"] == json.loads(json.dumps(found[0].to_dict()))
    again = GroupedAudit.from_json(path)
    assert again.to_dict() == held
    assert str(again) == str(found)
    assert again[6].verdict == found[6].verdict


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ('{"schema": "isoscope.audit/1"}', "has schema 'isoscope.audit/1': need 'isoscope.grouped-audit/1'"),
        ('{"schema": "isoscope.grouped-audit/1"}', "complete grouped audit"),
        ('{"schema": "isoscope.grouped-audit/1", "source": "x", "by": "y", "groups": [{}]}', "complete grouped audit"),
    ],
)
def test_damaged_json_raises_an_error(tmp_path, text, complaint):
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        GroupedAudit.from_json(path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"by": None}, "by is None: need str"),
        ({"ordered": 1}, "ordered is 1: need bool"),
        ({"skipped": {"a": []}}, r"skipped.a is \[\]: need str"),
        ({"isoscope": []}, "isoscope is"),
        ({"left_out": "x"}, "left_out is 'x'"),
    ],
)
def test_wrong_types_in_json_raise_an_error(found, tmp_path, change, complaint):
    path = tmp_path / "g.json"
    path.write_text(json.dumps(found.to_dict() | change))
    with pytest.raises(InputError, match=complaint):
        GroupedAudit.from_json(path)


@pytest.mark.parametrize(("name", "value"), [("value", [1]), ("value", "x"), ("name", ["a"]), ("audit", None)])
def test_damaged_groups_in_json_raise_an_error(found, tmp_path, name, value):
    content = json.loads(json.dumps(found.to_dict()))
    content["groups"][1][name] = value
    (tmp_path / "g.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"g\.json is not a complete (grouped )?audit"):
        GroupedAudit.from_json(tmp_path / "g.json")


def test_an_unknown_finding_in_json_raises_an_error(found, tmp_path):
    text = json.dumps(found.to_dict()).replace('"mean_cosine"', '"other_cosine"', 1)
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(InputError, match="other_cosine is not a finding of this version"):
        GroupedAudit.from_json(tmp_path / "g.json")


def test_the_text_has_a_row_per_group_and_lists_skipped_groups(found):
    lines = str(found).splitlines()
    assert lines[0] == "Layer 12 is the worst of 3 layers: every cosine is high, for unrelated rows too."
    assert re.search(r"Mean cosine rises from \S+ in layer 0 to 0\.\d+ in layer 12\.", " ".join(lines))
    assert any(line.startswith("table by layer: 3 groups, 600 × 8, worst verdict: bad") for line in lines)
    assert [line.split()[0] for line in lines[-4:-1]] == ["0", "6", "12"]
    assert lines[-1].split() == ["✗", "bad,", "!", "worth", "a", "look,", "✓", "ok"]
    assert found[6]["mean_cosine"].shown in str(found)
    skipping = isoscope.audit(np.random.default_rng(0).standard_normal((103, 4)), by=np.arange(103) // 100, sample=100)
    assert "not measured: 1 (array, groups 1 has 3 vectors" in " ".join(str(skipping).split())
    assert "left out: 3 rows in total, including those of the groups that were not measured" in str(skipping)


def test_the_notebook_table_escapes_names():
    X = np.random.default_rng(0).standard_normal((60, 4))
    html = isoscope.audit(X, by=["<b>", "x"] * 30)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_several_audits_side_by_side(found, table):
    other = isoscope.audit(table.slice(0, 400), by="layer")
    text = terminal.to_plain_text(terminal.render_grouped_side_by_side([found, other]))
    assert text.count("mean cosine") == 1
    row = next(line for line in text.splitlines() if line.startswith("12"))
    assert row.split()[-1] == "–"  # the second has no such layer
    assert math.isfinite(found.series("isoscore").estimates[0])


def test_layers_of_a_model_are_never_merged():
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(30), 12)
    made = pa.table({"embedding": list(rng.standard_normal((360, 4))), "layer": number, "year": number})
    assert list(isoscope.audit(made, by="layer").groups) == [str(layer) for layer in range(30)]
    assert len(isoscope.audit(made, by="year").groups) == 8
