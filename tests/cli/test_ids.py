"""Ids travel through every command: the same judgments give the same scores wherever the vectors are stored."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope._report.terminal import render_advice, to_plain_text
from isoscope.cli.main import main

N, M, D = 200, 40, 12


def write_parquet(path, X, **columns):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.astype(np.float32).ravel()), D)
    pq.write_table(pa.table({"embedding": lists, **columns}), path)


@pytest.fixture
def search(tmp_path, monkeypatch, rng):
    """Write a corpus and queries whose ids count from 1, with one dominant coordinate."""
    monkeypatch.chdir(tmp_path)
    meaning = rng.standard_normal((N, D - 1))
    queries = meaning[: M * 2 : 2] + 0.1 * rng.standard_normal((M, D - 1))
    for name, X in {"corpus": meaning, "queries": queries}.items():
        X = np.hstack([X, 30 * rng.standard_normal((len(X), 1))])
        np.save(f"{name}.npy", X.astype(np.float32))
        write_parquet(f"{name}.parquet", X, nr=np.arange(len(X)) + 1)
        Path(f"{name} ids.txt").write_text("".join(f"{i + 1}\n" for i in range(len(X))))
    lines = [f"{i + 1}\t{2 * i + 1}\t1\n" for i in range(M)]
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return tmp_path


def score(capsys, *words):
    """Return the nDCG@10 of the unchanged vectors."""
    assert main(["advise", *words, "--qrels", "qrels.tsv", "--json", "-"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)["trials"][0]["scores"]["ndcg@10"]["value"]


def test_ids_from_columns_files_and_other_formats_agree(search, capsys):
    right = score(capsys, "corpus.parquet", "--ids", "nr", "--queries", "queries.parquet", "--query-ids", "nr")
    assert right > 0.2
    by_file = ["--ids", "corpus ids.txt", "--queries", "queries.npy", "--query-ids", "queries ids.txt"]
    assert score(capsys, "corpus.npy", *by_file) == right
    assert main(["convert", "corpus.npy", "lancedb:library#docs", "--ids", "corpus ids.txt"]) == 0
    assert main(["convert", "corpus.parquet", "copy.arrow", "--ids", "nr"]) == 0
    assert main(["fit", "center", "corpus.npy", "-o", "nothing"]) == 0
    assert main(["apply", "nothing", "corpus.npy", "-o", "applied.parquet", "--ids", "corpus ids.txt"]) == 0
    capsys.readouterr()
    queries = ["--queries", "queries.parquet", "--query-ids", "nr"]
    assert score(capsys, "lancedb:library#docs", *queries) == right
    assert score(capsys, "copy.arrow", "--ids", "nr", *queries) == right
    assert isoscope.open_store("applied.parquet").ids.tolist() == [str(i + 1) for i in range(N)]


def test_ids_that_count_from_1_are_not_taken_for_row_numbers(search, capsys):
    assert main(["advise", "corpus.npy", "--queries", "queries.npy", "--qrels", "qrels.tsv"]) == 2
    error = capsys.readouterr().err
    assert "numbers from 1 to 40, but queries.npy has no ids, and its rows are numbered from 0 to 39" in error
    assert "--query-ids" in error
    assert "missing" not in error
    words = ["corpus.npy", "--queries", "queries.npy", "--query-ids", "queries ids.txt", "--qrels", "qrels.tsv"]
    assert main(["advise", *words]) == 2
    assert "counting from 1 instead of 0 fits the vectors better" in capsys.readouterr().err


def test_wrong_ids_are_one_line(search, capsys):
    words = ["advise", "corpus.parquet", "--queries", "queries.parquet", "--qrels", "qrels.tsv"]
    assert main([*words, "--ids", "none"]) == 2
    assert "none" in capsys.readouterr().err
    assert main([*words, "--ids", "queries ids.txt"]) == 2
    assert "queries ids.txt has 40 entries but corpus.parquet has 200 rows" in capsys.readouterr().err
    assert main([*words, "--ids", "nr", "--columns", "ids=nr"]) == 2
    assert "--ids and --columns ids= are both set" in capsys.readouterr().err


def test_printed_commands_can_be_run(search, capsys):
    Path("my corpus").mkdir()
    Path("corpus.parquet").rename("my corpus/c's.parquet")
    source = "my corpus/c's.parquet"
    words = ["--ids", "nr", "--queries", "queries.parquet", "--query-ids", "nr", "--qrels", "qrels.tsv"]
    assert main(["advise", source, *words, "-o", "a repair"]) == 0
    printed = capsys.readouterr().out.partition("Next:\n")[2].strip().splitlines()
    assert len(printed) == 2
    for line in printed:
        command, *rest = shlex.split(line)
        assert command == "isoscope"
        assert main(rest) == 0
    capsys.readouterr()
    assert score(capsys, "repaired.parquet", "--ids", "nr", "--queries", "repaired-queries.parquet", *words[4:6]) > 0.8


def test_printed_commands_repeat_the_policy_and_choose_new_names(search, capsys):
    X = np.load("corpus.npy")
    X[150] = np.nan
    np.save("-a.npy", X)
    Path("repaired.parquet").write_text("mine")
    words = ["--queries", "queries.parquet", "--query-ids", "nr", "--qrels", "qrels.tsv", "--missing", "drop"]
    assert main(["advise", "--ids", "corpus ids.txt", *words, "-o", "./-r", "--", "-a.npy"]) == 0
    printed = capsys.readouterr().out.partition("Next:\n")[2].strip().splitlines()
    assert "./-a.npy -o repaired-2.parquet" in printed[0]
    assert [main(shlex.split(line)[1:]) for line in printed] == [0, 0]
    assert Path("repaired.parquet").read_text() == "mine"
    assert len(isoscope.open_store("repaired-2.parquet")) == N - 1


def test_missing_labels_in_a_file(search, capsys):
    lines = [f"{'abc'[i % 3]}\n" for i in range(N)]
    lines[4] = "\n"
    Path("labels.txt").write_text("".join(lines))
    assert main(["advise", "corpus.npy", "--labels", "labels.txt"]) == 2
    assert "labels is empty in 1 of 200 rows, first in row 4" in capsys.readouterr().err
    assert main(["advise", "corpus.npy", "--labels", "labels.txt", "--missing", "drop"]) == 0
    assert "1 of 200 rows was dropped" in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_every_score_is_readable_at_every_width(search, width):
    labels = [f"topic {i % 3}" for i in range(N)]
    advice = isoscope.advise("corpus.npy", labels=labels)
    text = to_plain_text(render_advice(advice), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for trial in advice.trials:
        for measure in advice.measures:
            assert f"{trial[measure].value:.3f}".replace("-", "−") in text
    verdict, table = text.index(advice.paragraph.split()[0]), text.index("→ ")
    assert verdict < table
