"""The command `audit` on hidden states of several layers, as `isoscope embed` writes them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope._report.terminal import render_grouped_audit, to_plain_text
from isoscope.cli.main import main

TEXTS = 40


def write_states(path, rng, layers, *, tokens=1):
    n = TEXTS * tokens * len(layers)
    X = rng.standard_normal((n, 12)).astype(np.float32)
    texts = np.tile(np.repeat(np.arange(TEXTS), tokens), len(layers))
    columns = {
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 12),
        "layer": np.repeat(layers, TEXTS * tokens),
        "document": texts,
        "text": [f"text {i}" for i in texts],
        "label": texts % 3,
    }
    if tokens > 1:
        columns["token"] = [f"t{i}" for i in rng.integers(0, 30, n)]
    pq.write_table(pa.table(columns), path)
    return path


def test_layers_are_audited_separately_by_default(tmp_path, rng, capsys):
    path = write_states(tmp_path / "states.parquet", rng, [0, 6, 11, 12])
    assert main(["audit", str(path), "--json", str(tmp_path / "a.json")]) == 0
    assert "contains 4 layers: auditing each layer" in capsys.readouterr().err
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["schema"] == "isoscope.grouped-audit/1"
    assert [group["value"] for group in content["groups"]] == [0, 6, 11, 12]
    with pytest.warns(isoscope.DataWarning, match="4 layers"):
        isoscope.audit(path)


def test_one_layer_is_audited_as_one_space(tmp_path, rng, capsys):
    path = write_states(tmp_path / "states.parquet", rng, [12])
    assert main(["audit", str(path), "--json", str(tmp_path / "a.json")]) == 0
    assert "layers" not in capsys.readouterr().err
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "isoscope.audit/1"


def test_layers_cannot_be_compared_with_queries(tmp_path, rng, capsys):
    path = write_states(tmp_path / "states.parquet", rng, [0, 1])
    np.save(tmp_path / "queries.npy", rng.standard_normal((9, 12)))
    assert main(["audit", str(path), "--queries", str(tmp_path / "queries.npy")]) == 2
    assert "contains 2 layers" in capsys.readouterr().err


def test_labels_of_texts_are_not_judged_on_tokens(tmp_path, rng):
    path = write_states(tmp_path / "states.parquet", rng, [0, 1], tokens=5)
    found = isoscope.audit(path, by="layer")
    for audit in found.groups.values():
        assert "labels" not in audit
        assert "rows are tokens" in audit.skipped["labels"]


@pytest.mark.parametrize("width", [50, 80, 140])
def test_every_column_is_readable_at_every_width(rng, width):
    X = rng.standard_normal((400, 8))
    options = {"labels": rng.integers(0, 3, 400), "types": rng.integers(0, 40, 400), "frequency": rng.random(400)}
    found = isoscope.audit(X, by=np.repeat([0, 11], 200), **options)
    text = to_plain_text(render_grouped_audit(found), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    rows = [line for line in text.splitlines() if line.startswith("11 ")]
    assert rows
    assert len(rows) == sum(line.startswith("0 ") for line in text.splitlines())
    for name in ("mean_cosine", "isoscore", "labels", "inter_type"):
        assert any(found["11"][name].shown in row for row in rows)
