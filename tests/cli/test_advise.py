"""advise: the table and the advice, the files, and one line for every error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope import Chain, load_transform
from isoscope.cli.main import main

N, D = 300, 12


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A corpus with one dominant noise coordinate, with queries, pairs and labels."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((N, D - 1))
    X = np.hstack([meaning, 30 * rng.standard_normal((N, 1))]).astype(np.float32)
    topic = [f"t{k}" for k in np.abs(meaning[:, :3]).argmax(axis=1)]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
    pq.write_table(pa.table({"embedding": lists, "id": [f"d{i}" for i in range(N)], "topic": topic}), "corpus.parquet")
    rows = np.arange(60)
    near = X[rows] + np.hstack([0.05 * rng.standard_normal((60, D - 1)), 30 * rng.standard_normal((60, 1))])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(near.astype(np.float32).ravel()), D)
    pq.write_table(pa.table({"embedding": lists, "id": [f"q{i}" for i in rows]}), "queries.parquet")
    (tmp_path / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{i}\t1\n" for i in rows), encoding="utf-8"
    )
    a, b = rng.integers(0, N, (2, 400))
    alike = -np.linalg.norm(meaning[a] - meaning[b], axis=1)
    lines = [f"d{i}\td{j}\t{score:.4f}\n" for i, j, score in zip(a, b, alike, strict=True)]
    (tmp_path / "pairs.tsv").write_text("id1\tid2\tscore\n" + "".join(lines), encoding="utf-8")
    return tmp_path


TASKS = {
    "pairs": (["--pairs", "pairs.tsv"], "spearman"),
    "queries": (["--queries", "queries.parquet", "--qrels", "qrels.tsv"], "ndcg@10"),
    "labels": (["--labels", "topic", "--measure", "knn"], "knn"),
    "nothing": ([], "stability"),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_prints_a_table_and_writes_its_files(task, folder, capsys):
    words, measure = TASKS[task]
    outputs = ["-o", "repair", "--html", "page.html", "--json", "advice.json"]
    assert main(["advise", "corpus.parquet", *words, *outputs]) == 0
    captured = capsys.readouterr()
    found = json.loads((folder / "advice.json").read_text(encoding="utf-8"))
    assert found["schema"] == "isoscope.advice/2"
    assert found["task"]["measure"] == measure
    said = " ".join(captured.out.split())
    assert said.startswith(found["headline"])
    assert found["paragraph"].removeprefix(found["headline"]).strip() in said
    assert "Next: isoscope " in said
    assert all(part in said for trial in found["trials"] for part in trial["name"].split(" → "))
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    repair = load_transform("repair")
    assert repair.n_features_in_ == D
    if task in ("pairs", "queries"):
        assert found["choice"] != "as it is"
        assert "Next:\n  isoscope apply repair corpus.parquet" in captured.out
    if found["choice"] == "as it is":
        assert isinstance(repair, Chain)
        assert not repair.steps_
    if task == "nothing":
        assert "evidence is weak" in " ".join(captured.out.split())
        command = f"isoscope advise corpus.parquet {' '.join(outputs)}"
        assert captured.out.endswith(
            f"Next:\n  {command} --pairs PAIRS\n  {command} --queries QUERIES --qrels QRELS\n"
            f"  {command} --labels LABELS\n"
        )


def test_json_is_the_only_standard_output(folder, capsys):
    assert main(["advise", "corpus.parquet", "--pairs", "pairs.tsv", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["choice"] != "as it is"


def test_labels_can_come_from_a_file(folder, capsys):
    topics = pq.read_table("corpus.parquet")["topic"].to_pylist()
    (folder / "labels.txt").write_text("\n".join(topics), encoding="utf-8")
    trials = []
    for labels in ("labels.txt", "topic"):
        assert main(["advise", "corpus.parquet", "--labels", labels, "--json", "-"]) == 0
        trials.append(json.loads(capsys.readouterr().out)["trials"])
    assert trials[0] == trials[1]


WRONG = {
    "two tasks": (["--pairs", "pairs.tsv", "--labels", "topic"], "pass only one task"),
    "queries alone": (["--queries", "queries.parquet"], "qrels"),
    "no such column": (["--labels", "theme"], "theme"),
    "no such measure": (["--labels", "topic", "--measure", "f1"], "probe, knn, v_measure"),
    "no such pairs": (["--pairs", "pears.tsv"], "pears.tsv"),
    "one score": (["--pairs", "flat.tsv"], "score, 3"),
    "unknown documents": (["--queries", "queries.parquet", "--qrels", "other.tsv"], "nobody"),
    "other dimensions": (["--queries", "wide.npy", "--qrels", "qrels.tsv"], "5 dimensions"),
    "one fold": (["--pairs", "pairs.tsv", "--folds", "1"], "folds is 1"),
    "columns of another role": (["--columns", "types=topic"], "labels=, ids= and text="),
    "a file for a folder": (["--pairs", "pairs.tsv", "-o", "pairs.tsv"], "pairs.tsv is a file"),
    "a page in no folder": (["--pairs", "pairs.tsv", "--html", "no/page.html"], "is not a folder"),
    "a page over the pairs": (["--pairs", "pairs.tsv", "--html", "pairs.tsv"], "is already an input or output"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_prints_one_line_and_writes_nothing(case, folder, capsys):
    (folder / "flat.tsv").write_text("".join(f"d{i}\td{i + 1}\t3\n" for i in range(50)), encoding="utf-8")
    (folder / "other.tsv").write_text("q1 0 nobody 1\nq2 0 d2 1\n", encoding="utf-8")
    np.save(folder / "wide.npy", np.ones((60, 5), np.float32))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    words, message = WRONG[case]
    assert main(["advise", "corpus.parquet", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_judgments_of_unknown_rows_can_be_dropped(folder, capsys):
    with open(folder / "qrels.tsv", "a", encoding="utf-8") as file:
        file.write("q1\tnobody\t1\nnobody\td3\t1\n")
    command = ["advise", "corpus.parquet", "--queries", "queries.parquet", "--qrels", "qrels.tsv"]
    assert main(command) == 2
    assert main([*command, "--missing", "drop"]) == 0
    assert "Judgments that refer to 2 unknown queries or documents were dropped" in " ".join(
        capsys.readouterr().out.split()
    )


def test_messages_about_judgments_name_the_format(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32))
    Path("words.txt").write_text("is this a judgment no\nx\n")
    assert main(["advise", "x.npy", "--queries", "x.npy", "--qrels", "words.txt"]) == 2
    assert "need four columns (TREC" in capsys.readouterr().err
    Path("one.tsv").write_text("".join(f"k{i}\tk{i}\t1\n" for i in range(59)) + "k59\t995\t1\n")
    Path("ids.txt").write_text("".join(f"k{i}\n" for i in range(60)))
    ids = ["--ids", "ids.txt", "--query-ids", "ids.txt"]
    assert main(["advise", "x.npy", "--queries", "x.npy", "--qrels", "one.tsv", *ids]) == 2
    err = capsys.readouterr().err
    assert "refer to 1 row that x.npy does not contain (compared with its ids): '995'" in err
    assert err.endswith("drop these judgments with --missing drop\n")
    assert main(["threshold", "x.npy", "--pairs", "x.npy"]) == 2
    assert "x.npy is a .npy file: need a .tsv, .csv, .jsonl or .parquet file" in capsys.readouterr().err


def test_next_command_has_no_default_options(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32))
    Path("labels.txt").write_text("".join(f"{i % 2}\n" for i in range(60)))
    assert main(["advise", "x.npy", "--labels", "labels.txt", "--missing", "drop", "-o", "repair"]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert "--missing drop" in command
    assert "--zeros" not in command
