"""Every format gives the same table, unusual files give the same values, and errors name the line."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope import InputError
from isoscope._core.errors import FileFormatError, MissingValueError, NotFoundError, ShapeError
from isoscope._io import tables
from isoscope._io.tables import open_table, read_entries, read_table, split_cells

ROWS = {"text": ["a cat", "it's a dog", "naïve 猫"], "label": ["1", "0", "1"]}


@pytest.fixture
def files(tmp_path):
    """The same rows in every format."""
    pairs = list(zip(*ROWS.values(), strict=True))
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(ROWS), *pairs])
    tsv = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in pairs)
    (tmp_path / "t.tsv").write_text(tsv, encoding="utf-8")
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(tsv.encode()))
    (tmp_path / "crlf.txt").write_bytes(b"\xef\xbb\xbf" + tsv.replace("\n", "\r\n").encode())
    lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in pairs]
    (tmp_path / "t.jsonl").write_text("".join(lines), encoding="utf-8")
    pq.write_table(pa.table({**ROWS, "vector": [[1.0, 2.0]] * 3}), tmp_path / "t.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.tsv.gz", "crlf.txt", "t.jsonl", "t.parquet"])
def test_every_format_gives_the_same_table(name, files):
    found = read_table(files / name)
    assert found.columns == ROWS
    assert len(found) == 3


def test_quotes_enclose_commas_and_lines_in_csv_but_not_in_tsv(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\n"a, b\nc ""d""",1\ne,0\n', encoding="utf-8")
    found = read_table(tmp_path / "t.csv")
    assert found.columns["text"] == ['a, b\nc "d"', "e"]
    assert list(found.lines) == [2, 4]
    (tmp_path / "t.tsv").write_text('text\tlabel\n"a\t1\nb"\t0\n', encoding="utf-8")
    assert read_table(tmp_path / "t.tsv").columns["text"] == ['"a', 'b"']


def test_columns_without_names_are_numbered_and_extra_cells_can_be_ignored(tmp_path):
    (tmp_path / "t.tsv").write_text("a\t1\nb\t0\tmore\n", encoding="utf-8")
    found = read_table(tmp_path / "t.tsv", header=False, ragged=True)
    assert found.columns == {"0": ["a", "b"], "1": ["1", "0"]}
    with pytest.raises(InputError, match="line 2 has 3 columns, but the first line has 2"):
        read_table(tmp_path / "t.tsv", header=False)


def test_a_missing_json_field_is_none(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "label": 1}\n\n{"text": "b"}\n', encoding="utf-8")
    found = read_table(tmp_path / "t.jsonl")
    assert found.columns == {"text": ["a", "b"], "label": [1, None]}
    assert list(found.lines) == [1, 3]


WRONG = {
    "no.tsv": (None, "no.tsv does not exist: pass a .csv"),
    "empty.tsv": (b"", "empty.tsv is empty"),
    "header.tsv": (b"text\tlabel\n", "header.tsv has no rows"),
    "short.tsv": (b"text\tlabel\na\t1\nb\n", "short.tsv, line 3 has 1 column, but the first line has 2"),
    "twice.tsv": (b"text\ttext\na\t1\n", "two columns named 'text'"),
    "latin.tsv": (b"text\tlabel\n\xe9\t1\n", "latin.tsv, line 2 is not valid UTF-8"),
    "open.csv": (b'text,label\n"a,1\n', "line 2: a quoted cell is never closed"),
    "bad.jsonl": (b'{"a": 1}\n{"a"\n', "bad.jsonl, line 2 is not JSON"),
    "list.jsonl": (b"[1]\n", "line 1 is a JSON list: need an object"),
    "bad.parquet": (b"text", "bad.parquet cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_line(name, tmp_path):
    content, words = WRONG[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        read_table(tmp_path / name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_folders_and_unknown_columns_are_rejected(tmp_path, files):
    with pytest.raises(InputError, match=r"is a folder: pass a \.csv"):
        read_table(tmp_path)
    with pytest.raises(InputError, match="has no column topic for the labels: its columns are text, label"):
        read_table(files / "t.csv").column("topic", "labels")


LONG = "x" * 200_000
TEXT, LABEL = "text", "label"
ODD = {  # the file, and its columns or its error
    "bom.csv": ("\ufefftext,label\na,1\n", {TEXT: ["a"], LABEL: ["1"]}),
    "crlf.csv": ("text,label\r\na,1\r\n\r\nb,2", {TEXT: ["a", "b"], LABEL: ["1", "2"]}),
    "cr.csv": ("text,label\na\rb,1\n", {TEXT: ["a\rb"], LABEL: ["1"]}),
    "zip.csv.gz": ("text,label\na,1\n", {TEXT: ["a"], LABEL: ["1"]}),
    "long.csv": (f"text,label\n{LONG},1\n", {TEXT: [LONG], LABEL: ["1"]}),
    "long_quoted.csv": (f'text,label\n"{LONG},\n",1\n', {TEXT: [LONG + ",\n"], LABEL: ["1"]}),
    "zeros.csv": ("text,label\na,007\n", {TEXT: ["a"], LABEL: ["007"]}),
    "digits.csv": (f"text,label\na,{'1' * 5000}\n", {TEXT: ["a"], LABEL: ["1" * 5000]}),
    "missing.csv": ('text,label\na,\n"",1\n,\n', {TEXT: ["a", None, None], LABEL: [None, "1", None]}),
    "missing.tsv": ("text\tlabel\na\t\n\t1\n", {TEXT: ["a", None], LABEL: [None, "1"]}),
    "blank.csv": ("  \ntext,label\na,1\n  \nb,2\n", {TEXT: ["a", "b"], LABEL: ["1", "2"]}),
    "inch.csv": ('text,label\n5" disk,1\n6" disk,2\n', {TEXT: ['5" disk', '6" disk'], LABEL: ["1", "2"]}),
    "middle.csv": ('text,label\nsay "hi" now,1\n', {TEXT: ['say "hi" now'], LABEL: ["1"]}),
    "after.csv": ('text,label\n"a"b,1\n', {TEXT: ["ab"], LABEL: ["1"]}),
    "spaces.csv": ('text,label\na, "1, 2"\n', {TEXT: ["a"], LABEL: ["1, 2"]}),
    "semicolons.csv": ("text;label\na;1\n", {TEXT: ["a"], LABEL: ["1"]}),
    "unnamed.csv": ("text,label,,\na,1,,\n", {TEXT: ["a"], LABEL: ["1"], "": [None]}),
    "nul.csv": ("text,label\na\0b,1\n", {TEXT: ["a\0b"], LABEL: ["1"]}),
    "marks.csv": ("text,label\na\u2028b\x85,1\n", {TEXT: ["a\u2028b\x85"], LABEL: ["1"]}),
    "quotes.tsv": ('text\tlabel\n"a\t1\n', {TEXT: ['"a'], LABEL: ["1"]}),
    "mixed.jsonl": ('{"text": "a", "label": 1}\n{"label": "x"}\n', {TEXT: ["a", None], LABEL: [1, "x"]}),
    "null.jsonl": ('{"text": null}\n \n{"text": "b"}\n', {TEXT: [None, "b"]}),
    "late.jsonl": ('{"text": "a"}\n' * 1500 + '{"z": 1}\n', {TEXT: ["a"] * 1500 + [None], "z": [None] * 1500 + [1]}),
    "ragged.csv": ("text,label\na,1,2\n", FileFormatError("line 2 has 3 columns, but the first line has 2")),
    "open.csv": ('text,label\na,1\n"b,2\n', FileFormatError("line 3: a quoted cell is never closed")),
    "utf16.csv": ("text,label\na,1\n".encode("utf-16"), FileFormatError("line 1 is not valid UTF-8")),
    "deep.jsonl": ("[" * 100_000, FileFormatError("line 1 .*JSON")),
    "digits.jsonl": ('{"n": ' + "1" * 5000 + "}\n", FileFormatError("line 1 contains an integer with too many digits")),
    "broken.csv.gz": (b"\x1f\x8bno gzip", FileFormatError("damaged or truncated gzip")),
    "not.csv.gz": (b"text", FileFormatError("is not a gzip file")),
    "empty.csv": (" \n\n", MissingValueError("is empty")),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("block_bytes", [5, 2**21])
def test_unusual_files_are_read_or_rejected(name, block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("isoscope._io.lines._BLOCK_BYTES", block_bytes if len(ODD[name][0]) < 10_000 else 2**21)
    content, expected = ODD[name]
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name == "zip.csv.gz" else data)
    if isinstance(expected, dict):
        assert read_table(tmp_path / name).columns == expected
    else:
        with pytest.raises(type(expected), match=str(expected)):
            read_table(tmp_path / name)


def test_batches_give_the_requested_columns_with_row_offsets(files, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 2)
    for name, unit in (("t.jsonl", "line"), ("t.parquet", "row")):
        batches = list(open_table(files / name).batches(["label"]))
        assert [batch.columns for batch in batches] == [{"label": ["1", "0"]}, {"label": ["1"]}]
        assert batches[1].where(0) == f"{files / name}, {unit} 3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a, b, score\nx, y, 0.5\n", {"a": ["x"], "b": ["y"], "score": ["0.5"]}),
        ("x;y;0,5\nz;w;1,25\n", {"0": ["x", "z"], "1": ["y", "w"], "2": ["0.5", "1.25"]}),
        ('x; y; 0,5\nz; "w "; 1,25\n', {"0": ["x", "z"], "1": ["y", "w "], "2": ["0.5", "1.25"]}),
        ("x , , 1\nz, y,2\n", {"0": ["x", "z"], "1": [None, "y"], "2": ["1", "2"]}),
        ("x,y ,1\nz, w,2\n", {"0": ["x", "z"], "1": ["y ", " w"], "2": ["1", "2"]}),
        ('x,"1;0,5",1\n', {"0": ["x"], "1": ["1;0,5"], "2": ["1"]}),
    ],
)
def test_a_csv_table_of_ids_and_numbers_may_have_spaces_and_decimal_commas(text, expected, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv", header=None, spaces=True).columns == expected


def test_a_first_line_without_numbers_is_a_header(tmp_path):
    (tmp_path / "t.tsv").write_text("a\tb\n1\t2\n")
    assert read_table(tmp_path / "t.tsv", header=None).columns == {"a": ["1"], "b": ["2"]}
    (tmp_path / "t.tsv").write_text("a 0\nb c\t1\n")
    assert read_table(tmp_path / "t.tsv", header=None, spaces=True).columns == {"0": ["a", "b c"], "1": ["0", "1"]}


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("", [""]),
        (",", ["", ""]),
        ('"",""', ["", ""]),
        ('"a""b",c', ['a"b', "c"]),
        ('""""', ['"']),
        ('a"b,c"d', ['a"b', 'c"d']),
        ('"a,b', ["a,b"]),
        ('"a" "b",c', ['a "b"', "c"]),
    ],
)
def test_cells_of_a_line(line, cells):
    assert split_cells(line, ",") == cells


def test_one_entry_per_row(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\n\r\nb\n")
    assert read_entries(tmp_path / "a.txt").tolist() == ["a", None, "b"]
    np.save(tmp_path / "a.npy", np.arange(3))
    assert read_entries(tmp_path / "a.npy").tolist() == [0, 1, 2]
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    with pytest.raises(ShapeError, match=r"shape \(3, 2\)"):
        read_entries(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"not a plain \.npy array"):
        read_entries(tmp_path / "a.npy")
    with pytest.raises(NotFoundError, match="cannot be read"):
        read_entries(tmp_path / "none.txt")
