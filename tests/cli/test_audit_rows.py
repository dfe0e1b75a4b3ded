"""`isoscope audit --rows` and `--top`: the table, the lists, and outputs that are rejected before any work."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope.cli.main import main


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8)) + 1
    X[3], X[50] = X[4], 0
    texts = [f"text {i}" for i in range(300)]
    texts[3] = "\x1b[2Jcleared <b>bold</b>"
    path = tmp_path / "vectors.parquet"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 8)
    pq.write_table(pa.table({"embedding": vectors, "id": [f"d{i}" for i in range(300)], "text": texts}), path)
    return path


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_rows_writes_the_table_and_lists_the_worst_rows(source, tmp_path, capsys, ending):
    out = tmp_path / f"rows.{ending}"
    assert main(["audit", str(source), "--rows", str(out)]) == 0
    printed = capsys.readouterr()
    assert f"written: {out}" in printed.err
    assert out.stat().st_size > 1000
    assert "Rows to check" in printed.out
    assert "d3" in printed.out
    assert "\x1b[2J" not in printed.out
    assert "\\x1b[2Jcleared" in printed.out
    if ending == "parquet":
        table = pq.read_table(out)
        assert table["id"].to_pylist()[:2] == ["d0", "d1"]
        assert table["nearest_id"].to_pylist()[3] == "d4"


def test_top_sets_the_length_of_the_lists_and_needs_no_file(source, tmp_path, capsys):
    lengths = []
    for top in (["--top", "2"], ["--top", "20"]):
        page, saved = tmp_path / "page.html", tmp_path / "audit.json"
        assert main(["audit", str(source), *top, "--html", str(page), "--json", str(saved)]) == 0
        lists = {each["name"]: each for each in json.loads(saved.read_text())["worst_rows"]["lists"]}
        lengths.append(len(lists["anti_hubs"]["entries"]))
        assert f"--top {top[1]}" in page.read_text()
    assert lengths == [min(2, lists["anti_hubs"]["count"]), min(20, lists["anti_hubs"]["count"])]
    assert lists["anti_hubs"]["count"] > 2
    capsys.readouterr()
    assert main(["audit", str(source)]) == 0
    assert "Rows that cause" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "rows.xlsx"], ".parquet, .arrow or .csv"),
        (["--rows", "-"], "only --json writes to standard output"),
        (["--rows", "nowhere/rows.csv"], "nowhere is not a folder"),
        (["--rows", "vectors.parquet"], "already an input or output"),
        (["--rows", "a.csv", "--json", "a.csv"], "already an input or output"),
        (["--rows", "rows.csv", "--by", "id"], "--rows cannot be combined with --by"),
        (["vectors.parquet", "--rows", "rows.csv"], "--rows cannot be combined with several sources"),
        (["--top", "3", "--by", "id"], "--top cannot be combined with --by"),
        (["--top", "0"], "top is 0: need at least 1"),
    ],
)
def test_bad_options_are_refused_in_one_line(source, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "vectors.parquet", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["vectors.parquet"]


def test_layers_need_a_choice(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(400 * 8)), 8)
    columns = {"embedding": vectors, "layer": [0, 1] * 200, "document": np.arange(400) // 2}
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(columns), "states.parquet")
    assert main(["audit", "states.parquet", "--rows", "rows.csv"]) == 2
    assert "--layer" in capsys.readouterr().err
    assert main(["audit", "states.parquet", "--rows", "rows.csv", "--layer", "1"]) == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 201
