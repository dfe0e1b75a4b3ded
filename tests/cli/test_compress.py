"""compress: the verdict, the table and the settings, the files, the exit codes, and one line for every error."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope import Quantizer, load_transform
from isoscope.cli.main import main

N, D = 400, 16


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A corpus with queries, judgments, pairs and labels."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((N, D)) * np.linspace(2, 0.4, D)).astype(np.float32)
    _write("corpus.parquet", X, [f"d{i}" for i in range(N)], topic=[f"t{int(x > 0)}" for x in X[:, 0]])
    of = rng.integers(N, size=80)
    _write("queries.parquet", X[of] + 0.3 * rng.standard_normal((80, D)), [f"q{i}" for i in range(80)])
    (tmp_path / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{row}\t1\n" for i, row in enumerate(of)), encoding="utf-8"
    )
    a, b = rng.integers(0, N, (2, 200))
    grades = -np.linalg.norm(X[a] - X[b], axis=1)
    lines = [f"d{i}\td{j}\t{grade:.4f}\n" for i, j, grade in zip(a, b, grades, strict=True)]
    (tmp_path / "pairs.tsv").write_text("id1\tid2\tscore\n" + "".join(lines), encoding="utf-8")
    return tmp_path


def _write(path: str, X: np.ndarray, ids: list[str], **columns: list[str]) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.astype(np.float32).ravel()), X.shape[1])
    pq.write_table(pa.table({"embedding": lists, "id": ids, **columns}), path)


TASKS = {
    "nothing": ([], "recall@10"),
    "queries": (["--queries", "queries.parquet", "--qrels", "qrels.tsv"], "ndcg@10"),
    "pairs": (["--pairs", "pairs.tsv"], "spearman"),
    "labels": (["--labels", "topic", "--measure", "knn"], "knn"),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_gives_a_verdict_and_files(task, folder, capsys):
    arguments, measure = TASKS[task]
    options = ["--keep", "0.8", "--precision", "float16,int8", "-o", "out", "--html", "page.html", "--json", "r.json"]
    assert main(["compress", "corpus.parquet", *arguments, *options]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].startswith("Store ")
    assert all(len(line) <= 80 for line in printed.splitlines())
    for name in ("pgvector", "Qdrant", "LanceDB", "faiss"):
        assert name in printed
    content = json.loads((folder / "r.json").read_text(encoding="utf-8"))
    assert (content["schema"], content["task"]["measure"]) == ("isoscope.compress/1", measure)
    quantizer = load_transform("out")
    assert isinstance(quantizer, Quantizer)
    assert quantizer.code_size == content["bytes"] < content["original_bytes"] == 4 * D
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_saved_quantizer_is_applied(folder, capsys):
    assert main(["compress", "corpus.parquet", "--keep", "0.8", "-o", "out"]) == 0
    assert main(["apply", "out", "corpus.parquet", "-o", "decoded.npy"]) == 0
    decoded = np.load("decoded.npy")
    assert decoded.shape == (N, D)


def test_exit_code_is_1_if_nothing_is_recommended(folder, capsys):
    assert main(["compress", "corpus.parquet", "--precision", "bit", "-o", "out", "--json", "-"]) == 1
    out, errors = capsys.readouterr()
    assert json.loads(out)["choice"] is None
    assert "out was not written" in errors
    assert not (folder / "out").exists()


def test_rescore_and_dimensions_are_passed_on(folder, capsys):
    options = ["--rescore", "--keep", "0.5", "--dimensions", "8,4", "--precision", "bit", "--json", "-"]
    assert main(["compress", "corpus.parquet", *options]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["settings"]["rescore"] is True
    assert content["settings"]["dimensions"] == [8, 4]
    assert content["bytes"] <= 2


def test_one_byte_is_singular(folder, capsys):
    options = ["--rescore", "--keep", "0.3", "--dimensions", "8,4", "--precision", "bit", "--json", "-"]
    assert main(["compress", "corpus.parquet", *options]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["bytes"] == 1
    assert content["paragraph"].startswith("Store 1 byte per vector instead of 64 (")


def test_errors_about_the_folder_name_the_quantizer(folder, capsys):
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("mine", encoding="utf-8")
    for path, words in [("mine", "mine exists and is not a saved quantizer"), ("qrels.tsv", "for the quantizer")]:
        assert main(["compress", "corpus.parquet", "-o", path]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--keep", "1.1"], "keep is 1.1"),
        (["--keep", "0"], "keep is 0"),
        (["--dimensions", "17"], "17"),
        (["--dimensions", "a"], "--dimensions a"),
        (["--precision", "int3"], "int3"),
        (["--measure", "knn"], "recall@10"),
        (["--columns", "types=topic"], "labels=, ids= and text="),
        (["--queries", "queries.parquet"], "qrels"),
        (["--sample", "10"], "sample is 10"),
        (["-o", "corpus.parquet"], "corpus.parquet is a file"),
        (["-o", "nowhere/out"], "nowhere"),
        (["--html", "nowhere/page.html"], "nowhere"),
        (["--json", "corpus.parquet"], "corpus.parquet"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, words, folder, capsys):
    before = {path.name for path in folder.iterdir()}
    assert main(["compress", "corpus.parquet", *arguments]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert len(errors.strip().splitlines()) == 1
    assert words in errors
    assert {path.name for path in folder.iterdir()} == before


def test_settings_are_not_cut_at_the_width_of_the_terminal(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["compress", "corpus.parquet", "--precision", "float16", "--json", "c.json"]) == 0
    out = capsys.readouterr().out
    lines = [line for setting in json.loads((folder / "c.json").read_text())["databases"] for line in setting["lines"]]
    assert max(map(len, lines)) > 60
    for line in lines:
        assert line in out
