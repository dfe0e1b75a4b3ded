"""Lines and their numbers do not depend on the size of the blocks."""

import gzip
import os
import tracemalloc

import numpy as np
import pytest

from isoscope import InputError
from isoscope._io import lines
from isoscope.errors import FileFormatError
from isoscope.stores.open import open_store


@pytest.fixture(params=[1, 2, 3, 7, 64, 2**20])
def block(request, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", request.param)


TEXT = b"one\n\ntwo words\r\n\n\nthree\nfour, without an end"
EXPECTED = [(1, b"one"), (3, b"two words"), (6, b"three"), (7, b"four, without an end")]
QUOTED = b'a,"b\n""c"""\n\nd,e\n"x","y\nz\n\nw",v\n'
RECORDS = [(1, b'a,"b\n""c"""'), (4, b"d,e"), (5, b'"x","y\nz\n\nw",v')]


def numbered(path, **more):
    return [pair for found in lines.read_lines(path, **more) for pair in zip(found.numbers, found.lines, strict=True)]


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("packed", [False, True])
def test_lines_and_their_numbers(tmp_path, packed):
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    for text, quoted, expected in ((TEXT, False, EXPECTED), (QUOTED, True, RECORDS), (b"\n\n", False, [])):
        path.write_bytes(gzip.compress(text) if packed else text)
        assert numbered(path, quoted=quoted) == expected


@pytest.mark.usefixtures("block")
def test_progress_increases_to_one(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT)
    shares = [found.share for found in lines.read_lines(tmp_path / "a.txt")]
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.usefixtures("block")
def test_batches_do_not_depend_on_blocks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,a,b\n" + "".join(f'"t\n{i}",{i},{i}.5\n' for i in range(20)))
    store = open_store(path)
    for rows in (1, 3, 20, 21):
        found = list(store.batches(["text"], rows=rows))
        assert [len(batch.vectors) for batch in found] == [min(rows, 20 - start) for start in range(0, 20, rows)]
        assert np.concatenate([batch.vectors for batch in found])[:, 1].tolist() == [i + 0.5 for i in range(20)]
        assert [text for batch in found for text in batch.columns["text"]] == [f"t\n{i}" for i in range(20)]
    assert store.take([19, 3])[:, 0].tolist() == [19, 3]


@pytest.mark.usefixtures("block")
def test_unclosed_quote_raises(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'a,b\n1,2\n3,"4\n5,6\n')
    with pytest.raises(InputError, match=r"a\.csv, line 3: a quoted cell is never closed"):
        list(lines.read_lines(tmp_path / "a.csv", quoted=True))


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(
    ("text", "records"),
    [
        (b'a,b\n"x, y",5" disk\n1,6" disk\n', [(1, b"a,b"), (2, b'"x, y",5" disk'), (3, b'1,6" disk')]),
        (b'a,b\ns; "t,1\nu,2\n', [(1, b"a,b"), (2, b's; "t,1'), (3, b"u,2")]),
        (b'a;b\ns, "t;1\n"u\nv";2\n', [(1, b"a;b"), (2, b's, "t;1'), (3, b'"u\nv";2')]),
        (b'"a\nb";c\n1;"x"\n', [(1, b'"a\nb";c'), (3, b'1;"x"')]),
        (b'a,b\n"x\n""y""\nz" ,1\n', [(1, b"a,b"), (2, b'"x\n""y""\nz" ,1')]),
        (b'a,b\n"x\ny","u\nv"\n', [(1, b"a,b"), (2, b'"x\ny","u\nv"')]),
    ],
)
def test_a_quote_opens_a_cell_only_at_its_start(text, records, tmp_path):
    (tmp_path / "a.csv").write_bytes(text)
    assert numbered(tmp_path / "a.csv", quoted=True) == records


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("later", [b'"Nice,3,4', b'he said "no",3,4', b'"fine",3,4'])
def test_rows_are_not_merged_by_an_unclosed_quote(later, tmp_path):
    (tmp_path / "a.csv").write_bytes(b'text,a,b\nfirst,0,0\n"Wow,1,2\n' + later + b"\nlast,5,6\n")
    with pytest.raises(
        FileFormatError, match=r"a\.csv, line 3: a cell opens with a double quote, .* on line 4, is followed by"
    ):
        numbered(tmp_path / "a.csv", quoted=True)


def test_an_unclosed_quote_in_a_long_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST_LINE", 2**22)
    (tmp_path / "a.csv").write_bytes(b'a,b\n"Wow,2\n' + b"3,4\n" * 2**21)
    with pytest.raises(FileFormatError, match=r"a\.csv, line 2: a quoted cell is never closed within 4 MB"):
        numbered(tmp_path / "a.csv", quoted=True)


@pytest.mark.parametrize(
    ("record", "delimiter"),
    [
        ("a,b", ","),
        ("a;b", ";"),
        ("a;b,c", ","),
        ("a", ","),
        ("0,5;0,3;-1,5e-3", ";"),
        ("0,5;x;7", ";"),
        ("a, b;0,5", ","),
        ('"a, b";c', ";"),
        ('"a; b",c', ","),
        ('5" disk;1', ";"),
    ],
)
def test_the_delimiter_of_a_csv_file(record, delimiter):
    assert lines.choose_delimiter(record) == delimiter


def test_an_endless_line_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST_LINE", 2**22)
    (tmp_path / "a.jsonl").write_bytes(b"[" + b"1," * 2**23)
    with pytest.raises(InputError, match=r"line 1 is longer than 4 MB: need shorter lines of text"):
        list(lines.read_lines(tmp_path / "a.jsonl"))


def test_long_text_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "a.txt"
    line = "word" + " 0.12345" * 50 + "\n"
    path.write_text(line * 60_000)  # 24 MB
    tracemalloc.start()
    store = open_store(path)
    rows = sum(len(chunk) for chunk in store.chunks(rows=1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (rows, len(store)) == (60_000, 60_000)
    assert peak < 20 * 2**20


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_an_abandoned_pass_closes_its_file(tmp_path):
    (tmp_path / "a.txt").write_text("w 1 2\n" * 100)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        chunks = open_store(tmp_path / "a.txt").chunks(rows=1)
        next(chunks)
        chunks.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [5, 2**20])
def test_cr_ends_lines_in_a_file_without_lf(size, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", size)
    (tmp_path / "a.csv").write_bytes(b"a,b\r1,2\r\r3,4")
    assert numbered(tmp_path / "a.csv", quoted=True) == [(1, b"a,b"), (2, b"1,2"), (4, b"3,4")]
