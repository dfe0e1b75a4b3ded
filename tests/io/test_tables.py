"""Tables of text: one table in every format is the same table; what is wrong has its line."""

from __future__ import annotations

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope import InputError
from isoscope._io.tables import read_table

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
def test_one_table_in_every_format(name, files):
    found = read_table(files / name)
    assert found.columns == ROWS
    assert len(found) == 3


def test_quotes_hold_commas_and_lines_in_csv_and_are_text_in_tsv(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\n"a, b\nc ""d""",1\ne,0\n', encoding="utf-8")
    found = read_table(tmp_path / "t.csv")
    assert found.columns["text"] == ['a, b\nc "d"', "e"]
    assert list(found.lines) == [2, 4]
    (tmp_path / "t.tsv").write_text('text\tlabel\n"a\t1\nb"\t0\n', encoding="utf-8")
    assert read_table(tmp_path / "t.tsv").columns["text"] == ['"a', 'b"']


def test_columns_without_names_have_numbers_and_more_cells_may_be_left_out(tmp_path):
    (tmp_path / "t.tsv").write_text("a\t1\nb\t0\tmore\n", encoding="utf-8")
    found = read_table(tmp_path / "t.tsv", header=False, ragged=True)
    assert found.columns == {"0": ["a", "b"], "1": ["1", "0"]}
    with pytest.raises(InputError, match="line 2 has 3 columns, the first line has 2"):
        read_table(tmp_path / "t.tsv", header=False)


def test_a_field_that_a_json_line_lacks_is_none(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "label": 1}\n\n{"text": "b"}\n', encoding="utf-8")
    found = read_table(tmp_path / "t.jsonl")
    assert found.columns == {"text": ["a", "b"], "label": [1, None]}
    assert list(found.lines) == [1, 3]


WRONG = {
    "no.tsv": (None, "no.tsv does not exist: name a .csv"),
    "empty.tsv": (b"", "empty.tsv is empty"),
    "header.tsv": (b"text\tlabel\n", "header.tsv has no rows"),
    "short.tsv": (b"text\tlabel\na\t1\nb\n", "short.tsv, line 3 has 1 column, the first line has 2"),
    "twice.tsv": (b"text\ttext\na\t1\n", "two columns named 'text'"),
    "latin.tsv": (b"text\tlabel\n\xe9\t1\n", "latin.tsv, line 2 is not text in UTF-8"),
    "open.csv": (b'text,label\n"a,1\n', "line 2: a quoted cell begins and does not end"),
    "bad.jsonl": (b'{"a": 1}\n{"a"\n', "bad.jsonl, line 2 is not JSON"),
    "list.jsonl": (b"[1]\n", "line 1 is a JSON list: need an object"),
    "bad.parquet": (b"text", "bad.parquet cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line(name, tmp_path):
    content, words = WRONG[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        read_table(tmp_path / name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_is_no_table_and_a_column_that_is_not_there_is_named(tmp_path, files):
    with pytest.raises(InputError, match=r"is a folder: name a \.csv"):
        read_table(tmp_path)
    with pytest.raises(InputError, match="has no column topic for the labels: its columns are text, label"):
        read_table(files / "t.csv").column("topic", "labels")
