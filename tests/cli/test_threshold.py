"""threshold: the verdict, the files, exit codes, and one line for every error; similarity with queries and models."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope.cli.main import main

N, D = 600, 24


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A corpus of 30 topics, with queries, judgments, graded pairs and labels."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centers, topic = rng.standard_normal((30, D)), rng.integers(0, 30, N)
    X = (centers[topic] + 0.4 * rng.standard_normal((N, D))).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
    names = {"id": [f"d{i}" for i in range(N)], "topic": topic}
    pq.write_table(pa.table({"embedding": lists, **names}), "corpus.parquet")
    of = rng.integers(0, 30, 100)
    Q = (centers[of] + 0.5 * rng.standard_normal((100, D))).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(Q.ravel()), D)
    pq.write_table(pa.table({"embedding": lists, "id": [f"q{i}" for i in range(100)]}), "queries.parquet")
    lines = [f"q{i}\td{row}\t1\n" for i, each in enumerate(of) for row in np.flatnonzero(topic == each)]
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8")
    a, b = rng.permutation(N).reshape(2, -1)
    same = rng.permutation(N)[:150]  # half of the pairs are of one topic
    a = np.concatenate([a, same])
    b = np.concatenate([b, [rng.choice(np.flatnonzero((topic == topic[i]) & (np.arange(N) != i))) for i in same]])
    grades = 2 * (topic[a] == topic[b]) + (rng.random(len(a)) < 0.5)
    lines = [f"d{i}\td{j}\t{grade}\n" for i, j, grade in zip(a, b, grades, strict=True)]
    (tmp_path / "pairs.tsv").write_text("id1\tid2\tscore\n" + "".join(lines), encoding="utf-8")
    np.save("noise.npy", rng.standard_normal((N, D)).astype(np.float32))
    (tmp_path / "labels.txt").write_text("\n".join(map(str, rng.integers(0, 5, N))), encoding="utf-8")
    return tmp_path


TASKS = {
    "pairs": ["--pairs", "pairs.tsv", "--match-from", "2", "--recall", "0.8"],
    "queries": ["--queries", "queries.parquet", "--qrels", "qrels.tsv", "--precision", "0.8"],
    "labels": ["--labels", "topic", "--f1"],
    "random pairs": ["--false-matches", "1e-3"],
    "random results": ["--queries", "queries.parquet", "--false-matches", "1e-2"],
}


@pytest.mark.parametrize("kind", TASKS)
def test_every_kind_prints_the_verdict_first_and_writes_its_files(kind, folder, capsys):
    assert main(["threshold", "corpus.parquet", *TASKS[kind], "--html", "page.html", "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    assert found["schema"] == "isoscope.threshold/1"
    assert found["population"]["kind"] == kind
    assert found["verdict"] == "cut"
    assert " ".join(out.split()).split("corpus.parquet", 1)[1].find(" ".join(found["headline"].split())) < 40
    assert max(map(len, out.splitlines())) <= 80
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_command_on_the_page_gives_the_same_cut(folder, capsys):
    import html
    import re
    import shlex

    words = ["--queries", "queries.parquet", "--qrels", "qrels.tsv", "--precision", "0.8", "--seed", "3"]
    main(["threshold", "corpus.parquet", *words, "--html", "page.html", "--json", "found.json"])
    page = (folder / "page.html").read_text(encoding="utf-8")
    line = next(each for each in re.findall(r"<code>(.*?)</code>", page, re.S) if each.startswith("isoscope threshold"))
    command = shlex.split(html.unescape(line))
    assert main([*command[1:-2], "--json", "again.json"]) == 0
    cuts = [json.loads((folder / name).read_text(encoding="utf-8"))["cut"] for name in ("found.json", "again.json")]
    assert cuts[0] == cuts[1]


def test_no_cut_exits_with_1_and_json_goes_to_standard_output(folder, capsys):
    assert main(["threshold", "noise.npy", "--labels", "labels.txt", "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "no cut"
    assert found["cut"] is None


ERRORS = {
    "grades": (["corpus.parquet", "--pairs", "pairs.tsv"], "distinct grades (0, 1, 2, 3)"),
    "goals": (["corpus.parquet", "--labels", "topic", "--precision", "0.9", "--f1"], "pass only one goal"),
    "no judgments": (["corpus.parquet", "--recall", "0.9"], "recall needs judgments"),
    "rate": (["corpus.parquet", "--labels", "topic", "--false-matches", "1e-3"], "needs no judgments"),
    "too low a rate": (["corpus.parquet", "--false-matches", "1e-9"], "need about 316,229 rows"),
    "qrels alone": (["corpus.parquet", "--qrels", "qrels.tsv"], "queries and qrels must be passed together"),
    "two kinds": (["corpus.parquet", "--labels", "topic", "--pairs", "pairs.tsv"], "pass only one task"),
    "columns": (["corpus.parquet", "--columns", "types=topic"], "labels=, ids= and text="),
    "output": (["corpus.parquet", "--html", "corpus.parquet"], "choose another output file"),
    "no column": (["corpus.parquet", "--labels", "nosuch"], "nosuch"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_one_line_and_writes_nothing(name, folder, capsys):
    words, message = ERRORS[name]
    assert main(["threshold", *words, *([] if "--html" in words else ["--html", "page.html"])]) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert len(captured.err.strip().splitlines()) == 1
    assert message in captured.err
    assert not (folder / "page.html").exists()


# similarity


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def read(name):
    return np.stack(pq.read_table(name)["embedding"].to_numpy(zero_copy_only=False)).astype(np.float64)


@pytest.mark.parametrize("sample", [20_000, 300])
def test_similarity_ranks_a_cosine_among_queries_and_rows(sample, folder, capsys):
    assert main(["similarity", "corpus.parquet", "0.3", "--queries", "queries.parquet", "--sample", str(sample)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    cosines = unit(read("queries.parquet")) @ unit(read("corpus.parquet")).T
    shares = [float(word.rstrip("%")) for word in out.split() if word.endswith("%")]
    assert shares[0] == pytest.approx(100 * (cosines < 0.3).mean(), abs=0.06 if sample > N else 1.5)
    assert shares[1] == pytest.approx(100 * (cosines.max(axis=1) < 0.3).mean(), abs=0.06)
    assert "pairs of a query in queries.parquet and a row in corpus.parquet" in out


def test_similarity_answers_for_a_model_without_data(capsys):
    assert main(["similarity", "--model", "all-MiniLM-L6-v2", "0.7", "-0.5"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("0.7 is above more than 99.9")
    assert "\n-0.5 is above 0%" in out
    assert "WordNet glosses" in " ".join(out.split())


SIMILARITY_ERRORS = {
    "unknown model": (["--model", "nosuch", "0.7"], "nosuch is not in the registry"),
    "reduced copy": (["--model", "bge-small-en-v1.5", "0.7"], "only for a copy with fp16 weights"),
    "model and source": (["--model", "gte-small", "corpus.parquet", "0.7"], "omit SOURCE with --model"),
    "model and queries": (["--model", "gte-small", "0.7", "--queries", "queries.parquet"], "--queries was passed"),
    "model and sample": (["--model", "gte-small", "0.7", "--sample", "20000"], "--sample was passed"),
    "model and engine": (["--model", "gte-small", "0.7", "--workers", "2"], "--workers was passed"),
    "model and memory": (["--max-memory", "2GB", "--model", "gte-small", "0.7"], "--max-memory was passed"),
    "no cosine": (["corpus.parquet"], "at least one cosine"),
    "order": (["0.5", "corpus.parquet"], "pass SOURCE first"),
    "unknown option": (["corpus.parquet", "0.5", "--quries", "queries.parquet"], "similarity has no option --quries"),
    "other organization": (["--model", "someone/gte-small", "0.7"], "contains thenlper/gte-small"),
    "empty name": (["--model", "", "0.7"], "the name of the model is empty"),
    "dimensions": (["corpus.parquet", "0.5", "--queries", "small.npy"], "the queries have 3 dimensions"),
}


@pytest.mark.parametrize("name", SIMILARITY_ERRORS)
def test_every_error_of_similarity_is_one_line(name, folder, capsys):
    np.save("small.npy", np.ones((10, 3), np.float32))
    words, message = SIMILARITY_ERRORS[name]
    assert main(["similarity", *words]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.strip().splitlines()) == 1
    assert message in captured.err


def test_a_model_folder_of_another_revision_is_refused(folder, capsys):
    model = folder / "gte-small"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"other")
    assert main(["similarity", "--model", str(model), "0.7"]) == 2
    assert "another revision of gte-small" in capsys.readouterr().err
