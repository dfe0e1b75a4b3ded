"""same and canary: the answer first, the exit code, the files, and one line for every error."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope.cli.main import main
from tests.comparing.spaces import topics

X = topics(300)


def write(name, rows, first=0, **columns):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel()), rows.shape[1])
    ids = [f"d{first + i}" for i in range(len(rows))]
    pq.write_table(pa.table({"vector": lists, "id": ids, **columns}), name)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("old.parquet", X)
    write("equal.parquet", X.astype(np.float16))
    write("turned.parquet", X[:, ::-1])
    write("a.parquet", X[:150])
    write("b.parquet", X[150:], 150)
    write("narrow.parquet", X[:, :8])
    return tmp_path


@pytest.mark.parametrize(
    ("new", "code", "words"),
    [
        ("equal.parquet", 0, "are the same space"),
        ("turned.parquet", 1, "is a rotation of old.parquet"),
        ("narrow.parquet", 1, "is not the same space"),
    ],
)
def test_answer_comes_first_and_sets_the_exit_code(new, code, words, capsys):
    assert main(["same", "old.parquet", new]) == code
    assert words in capsys.readouterr().out.split("\n\n")[0]


def test_files_are_written(folder, capsys):
    assert main(["same", "a.parquet", "b.parquet", "--html", "page.html", "--json", "same.json"]) == 0
    content = json.loads((folder / "same.json").read_text(encoding="utf-8"))
    assert (content["answer"], content["evidence"]) == ("same", "rows")
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    capsys.readouterr()
    assert main(["same", "a.parquet", "b.parquet", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "isoscope.same/1"


def test_output_fits_into_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["same", "a.parquet", "b.parquet"])
    main(["same", "old.parquet", "turned.parquet"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_sketch_files(capsys):
    assert main(["sketch", "a.parquet", "-o", "a.sketch"]) == 0
    assert main(["same", "a.sketch", "b.parquet"]) == 0
    write("reversed.parquet", X[150:, ::-1], 150)
    assert main(["same", "a.sketch", "reversed.parquet"]) == 1


def test_within(capsys):
    rows = topics(600, d=96)
    rows[:60] = topics(600, d=96, model=1)[:60]
    write("mixed.parquet", rows)
    assert main(["same", "--within", "mixed.parquet"]) == 1
    out = capsys.readouterr().out
    assert "two spaces" in out
    assert "d0, d1, d2" in out
    assert "d18, d19 and 40 more" in " ".join(out.split())
    assert main(["same", "--within", "old.parquet"]) == 0


def test_canary(folder, capsys):
    texts = [f"text {i}" for i in range(300)]
    write("texts.parquet", X, text=texts)
    assert main(["canary", "texts.parquet", "-o", "canary.parquet", "--rows", "80"]) == 0
    assert main(["same", "canary.parquet", "texts.parquet"]) == 0
    (folder / "some.txt").write_text("\n".join(texts[:70]), encoding="utf-8")
    assert main(["canary", "texts.parquet", "some.txt", "-o", "some.parquet"]) == 0
    assert pq.read_metadata("some.parquet").num_rows == 70
    write("next.parquet", X[:, ::-1], text=texts)
    assert main(["canary", "next.parquet", "canary.parquet", "-o", "new.parquet"]) == 0
    capsys.readouterr()
    assert main(["same", "canary.parquet", "new.parquet"]) == 1
    assert "rotation" in capsys.readouterr().out


def test_ids_can_be_files(folder, capsys):
    np.save("old.npy", X)
    np.save("new.npy", X[::-1])
    Path("old.txt").write_text("".join(f"d{i}\n" for i in range(len(X))))
    Path("new.txt").write_text("".join(f"d{i}\n" for i in reversed(range(len(X)))))
    assert main(["same", "old.npy", "new.npy", "--ids", "old.txt", "--new-ids", "new.txt"]) == 0
    assert "300" in capsys.readouterr().out
    assert main(["same", "old.parquet", "new.npy", "--new-ids", "new.txt"]) == 0
    assert main(["canary", "old.npy", "-o", "canary.parquet", "--ids", "old.txt"]) == 0
    assert main(["same", "canary.parquet", "new.npy", "--new-ids", "new.txt", "--missing", "drop"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["same", "old.parquet"], "pass OLD and NEW"),
        (["same", "old.parquet", "a.parquet", "--ids", __file__], "--new-ids"),
        (["same", "--within", "old.parquet", "--new-ids", "id"], "new_ids"),
        (["same", "--within", "old.parquet", "a.parquet"], "one source"),
        (["same", "old.parquet", "a.parquet"], "not in"),
        (["same", "old.parquet", "nothing.parquet"], "does not exist"),
        (["same", "old.parquet", "a.parquet", "--html", "old.parquet"], "input"),
        (["same", "old.parquet", "a.parquet", "--columns", "labels=x"], "labels="),
        (["same", "old.parquet", "a.parquet", "--ids", "id", "--columns", "ids=id"], "only one"),
        (["same", "old.parquet", "a.parquet", "--tolerance", "2"], "tolerance"),
        (["canary", "old.parquet", "-o", "old.parquet"], "input"),
        (["canary", "nothing.parquet", "-o", "c.parquet"], "does not exist"),
        (["canary", "old.parquet", "-o", "c.parquet", "--columns", "labels=x"], "labels="),
        (["canary", "old.parquet", "-o", "c.parquet", "--rows", "3"], "at least 48"),
    ],
)
def test_bad_input_is_one_line(arguments, words, folder, capsys):
    before = sorted(folder.iterdir())
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error
    assert sorted(folder.iterdir()) == before


def test_audit_of_two_sources_compares_the_spaces(folder, capsys):
    assert main(["audit", "old.parquet", "turned.parquet", "--json", "c.json", "--html", "c.html"]) == 0
    assert "CKA 1.000" in " ".join(capsys.readouterr().out.split())
    (spaces,) = json.loads((folder / "c.json").read_text(encoding="utf-8"))["correspondence"]
    values = {each["name"]: each["value"] for each in spaces}
    assert values == pytest.approx({"cka": 1, "procrustes": 0, "mutual_knn": 1}, abs=1e-6)
    assert all(each["low"] <= each["value"] <= each["high"] for each in spaces)
    assert "CKA" in (folder / "c.html").read_text(encoding="utf-8")


def test_a_baseline_says_what_it_cannot_show(capsys):
    main(["audit", "old.parquet", "--json", "base.json"])
    assert main(["audit", "turned.parquet", "--baseline", "base.json", "--fail-on", "worse"]) == 0
    assert "isoscope same OLD NEW" in " ".join(capsys.readouterr().out.split())
