"""No command overwrites what it reads, nor adds a file to a source."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import isoscope
from isoscope.cli.main import main
from isoscope.stores.open import reads_file


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write sources of every kind and links to them; return a function that reads all of them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((60, 4)) + 1).astype(np.float32)
    Path("shards").mkdir()
    for name, rows in (("a", X[:30]), ("b", X[30:])):
        np.save(f"shards/{name}.npy", rows)
    Path("lines").mkdir()
    text = "".join(f"w{i} " + " ".join(map(str, row)) + "\n" for i, row in enumerate(X.tolist()))
    Path("lines/one.txt").write_text(text)
    Path("lines/two.txt").write_text(text)
    Path("words.vec").write_text(text)
    Path("texts.txt").write_text("w1 w2\nw3 w4\n")
    np.save("rows.npy", X)
    np.save("queries.npy", X[:9])
    np.save("labels.npy", np.arange(60) % 2)
    Path("labels.txt").write_text("".join(f"{i % 2}\n" for i in range(60)))
    Path("pairs.tsv").write_text("a\tb\tscore\n" + "".join(f"{i}\t{i + 1}\t{i % 5}\n" for i in range(50)))
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(9)))
    Path("own.csv").write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(40)))
    Path("model").mkdir()
    Path("model/config.json").write_text("{}")
    isoscope.Center().fit(X).save("repair")
    isoscope.audit(X).to_json("baseline.json")
    isoscope.write_store(X, "lancedb:library#docs")
    Path("symlink.npy").symlink_to("shards/a.npy")
    Path("folder-link").symlink_to("shards")
    os.link("rows.npy", "hard.npy")
    os.link("shards/b.npy", "hard-b.npy")

    def read():
        return {path: path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}

    return read


COMBINATIONS = [
    "audit rows.npy --html rows.npy",
    "audit rows.npy --json rows.npy",
    "audit rows.npy --json hard.npy",
    "audit rows.npy --json ./model/../rows.npy",
    "audit shards --html shards/a.npy",
    "audit shards --json shards/b.npy",
    "audit shards --json folder-link/b.npy",
    "audit folder-link --json shards/b.npy",
    "audit shards --json symlink.npy",
    "audit shards --json hard-b.npy",
    "audit shards/*.npy --html shards/a.npy",
    "audit sh*/a.npy --html symlink.npy",
    "audit **/*.npy --html shards/a.npy",
    "audit lines --html lines/one.txt",
    "audit lines --json lines/new.json",
    "audit rows.npy shards --json shards/a.npy",
    "audit rows.npy --queries shards --json shards/a.npy",
    "audit rows.npy --queries queries.npy --html queries.npy",
    "audit rows.npy --labels labels.npy --html labels.npy",
    "audit rows.npy --labels labels.txt --json labels.txt",
    "audit rows.npy --text labels.txt --html labels.txt",
    "audit rows.npy --baseline baseline.json --json baseline.json",
    "audit rows.npy --baseline baseline.json --html baseline.json",
    "audit lancedb:library#docs --json library/docs.lance/x.json",
    "audit rows.npy --html new.html --json new.html",
    "sketch rows.npy -o rows.npy",
    "sketch shards -o shards/a.npy",
    "sketch shards -o shards/new.safetensors",
    "sketch shards/* -o shards/sums",
    "convert rows.npy rows.npy",
    "convert rows.npy hard.npy",
    "convert shards shards/a.npy",
    "convert shards shards/new.parquet",
    "convert shards symlink.npy",
    "convert shards/*.npy shards/a.npy",
    "convert shards/*.npy shards/new.npy",
    "convert lancedb:library#docs library/new.npy",
    "fix center shards -o new.npy --html shards/a.npy",
    "fix center shards -o shards/a.npy",
    "fix center rows.npy -o new.npy --html rows.npy",
    "fix center rows.npy -o new.npy --html new.npy",
    "fix center rows.npy -o new.npy --save repair --html repair/config.json",
    "fix center rows.npy -o repair/model.safetensors --save repair",
    "fit center rows.npy -o shards",
    "apply repair shards -o shards/a.npy",
    "apply repair shards -o shards/new.npy",
    "apply repair shards -o shards",
    "apply repair shards/*.npy -o shards/new.npy",
    "apply repair rows.npy -o repair/model.safetensors",
    "advise shards --labels labels.txt --html shards/a.npy",
    "advise shards --labels labels.txt --json shards/b.npy",
    "advise rows.npy --labels labels.txt --json labels.txt",
    "advise rows.npy --pairs pairs.tsv --html pairs.tsv",
    "advise rows.npy --queries shards --qrels qrels.tsv --json shards/a.npy",
    "advise rows.npy --queries queries.npy --qrels qrels.tsv --json qrels.tsv",
    "advise rows.npy --labels labels.txt -o shards",
    "advise rows.npy --labels labels.txt -o repair --html repair/config.json",
    "embed words.vec texts.txt -o texts.txt",
    "embed words.vec texts.txt -o lines",
    "finetune model --train own.csv -o run --json own.csv",
    "finetune model own.csv -o run --json own.csv",
    "finetune model --train own.csv --dev labels.txt -o run --json labels.txt",
    "finetune model --train own.csv -o run --json model/config.json",
    "finetune model cola --data lines -o run --json lines/one.txt",
]


@pytest.mark.parametrize("command", COMBINATIONS)
def test_inputs_are_not_overwritten(command, files, capsys):
    before = files()
    assert main(command.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("isoscope: ")
    assert err.count("\n") == 1
    assert files() == before


ALLOWED = [
    ("audit shards --html shards/report.html --json shards/report.json", {"shards/report.html", "shards/report.json"}),
    ("audit shards/*.npy --json shards/report.json", {"shards/report.json"}),
    ("audit lines --html lines/report.html", {"lines/report.html"}),
    ("audit rows.npy --json baseline.json", {"baseline.json"}),
    ("convert shards library/../joined.npy", {"joined.npy"}),
    ("apply repair shards/a.npy -o shards/c.npy", {"shards/c.npy"}),
]


@pytest.mark.parametrize(("command", "written"), ALLOWED)
def test_other_files_are_written_and_replaced(command, written, files, capsys):
    before = files()
    for _ in range(2):
        assert main(command.split()) == 0, capsys.readouterr().err
    after = files()
    assert {str(path) for path in after if after[path] != before.get(path)} == written
    assert before.keys() <= after.keys()


OTHERS = [
    "notes.txt",
    "own.csv",
    "texts.txt",
    "words.vec",
    "page.html",
    "config.json",
    "weights.safetensors",
    "queries.npy",
]


@pytest.mark.parametrize("command", ["audit rows.npy --html", "audit rows.npy --json", "sketch rows.npy -o"])
def test_results_replace_no_files_of_others(command, files, capsys):
    Path("notes.txt").write_text('isoscope wrote "schema": once')
    Path("page.html").write_text('<!doctype html><meta name="generator" content="Hugo 1">')
    Path("config.json").write_text('{"schema": "other/1", "isoscope.sketch": 1}')
    save_file({"w": np.ones(3)}, "weights.safetensors")
    before = files()
    for name in OTHERS:
        assert main([*command.split(), name]) == 2
        assert f"{name} exists and is not a result of isoscope" in capsys.readouterr().err
    assert files() == before


@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        *(("audit rows.npy --rows", suffix) for suffix in ("parquet", "csv", "arrow")),
        ("canary rows.parquet -o", "parquet"),
    ],
)
def test_tables_replace_no_files_of_others(command, suffix, files, tmp_path, capsys):
    numbers = np.random.default_rng(0).standard_normal((60, 4)).tolist()
    table = pa.table({"id": [f"row {i}" for i in range(60)], "vector": numbers})
    pq.write_table(table, "rows.parquet")
    own, other = f"own-table.{suffix}", f"other.{suffix}"
    Path(other).write_bytes({"parquet": Path("rows.parquet").read_bytes()}.get(suffix, b"row,text\n1,norm\n"))
    kept = Path(other).read_bytes()
    assert main([*command.split(), other]) == 2
    assert f"{other} exists and is not a result of isoscope" in capsys.readouterr().err
    assert Path(other).read_bytes() == kept
    Path(own).touch()
    for _ in range(2):
        assert main([*command.split(), own]) in (0, 1)
        assert Path(own).stat().st_size


def test_own_and_empty_results_are_replaced(files):
    Path("empty").touch()
    assert main(["sketch", "rows.npy", "-o", "empty"]) == 0
    for _ in range(2):
        assert main(["sketch", "rows.npy", "-o", "rows.sketch"]) == 0
        assert main(["fix", "center", "rows.npy", "-o", "new.npy", "--html", "rows.html"]) == 0
        assert main(["similarity", "rows.npy", "0.5", "--json", "sorted.json"]) == 0
        result = json.loads(Path("sorted.json").read_text())
        Path("sorted.json").write_text(json.dumps(result, sort_keys=True, separators=(",", ":")))


@pytest.mark.parametrize(
    ("source", "path", "expected"),
    [
        ("data/*.npy", "data/x.npy", True),
        ("data/*.npy", "data/x.parquet", False),
        ("data/*.npy", "data/out/x.npy", False),
        ("data/**/*.npy", "data/out/x.npy", True),
        ("data/**/*.npy", "data/x.npy", True),
        ("~nobody-knows/x.npy", "x.npy", False),
        ("postgresql://host/db?table=t", "db", False),
        ("qdrant:data/q#docs", "data/q/collection/docs", True),
        ("qdrant:data/q#docs", "data/qq", False),
        ("qdrant:http://host#docs", "host", False),
        ("chroma:", "x", False),
    ],
)
def test_files_that_a_source_would_read(source, path, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reads_file(source, Path(path)) is expected


def test_two_reports_of_one_audit(files, capsys):
    assert main(["audit", "rows.npy", "--html", "a.html", "--json", "a.json"]) == 0
    assert json.loads(Path("a.json").read_text())["schema"] == "isoscope.audit/1"
