"""Rows of Arrow files are copied from the file, for every type, and equal what Arrow itself reads."""

import decimal
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from isoscope.errors import FileFormatError
from isoscope.stores.arrow import IpcPieces
from isoscope.stores.ipc_slices import is_sliceable

N = 100


def nulled(values, every=7):
    return [None if i % every == 0 else value for i, value in enumerate(values)]


COLUMNS = {
    "int": pa.array(range(N)),
    "int_null": pa.array(nulled(range(N)), pa.int16()),
    "half": pa.array(np.arange(N, dtype=np.float16)),
    "bool": pa.array([i % 3 == 0 for i in range(N)]),
    "bool_null": pa.array(nulled([i % 3 == 0 for i in range(N)])),
    "text": pa.array(["é" * (i % 5) for i in range(N)]),
    "text_null": pa.array(nulled([f"text {i}" for i in range(N)])),
    "large_text": pa.array([f"text {i}" for i in range(N)], pa.large_string()),
    "bytes": pa.array([bytes([i]) * (i % 4) for i in range(N)]),
    "four_bytes": pa.array([bytes([i]) * 4 for i in range(N)], pa.binary(4)),
    "date": pa.array([date(2020, 1, 1 + i % 28) for i in range(N)]),
    "decimal": pa.array([decimal.Decimal(i) for i in range(N)], pa.decimal128(10, 2)),
    "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3.0 * N)), 3),
    "vector_null": pa.array(nulled([[i, i + 0.5, None] for i in range(N)]), pa.list_(pa.float64(), 3)),
    "list": pa.array(nulled([list(range(i % 6)) for i in range(N)])),
    "large_list": pa.array([[float(i)] * 3 for i in range(N)], pa.large_list(pa.float32())),
    "lists": pa.array([[["a"] * (i % 3), []] for i in range(N)]),
    "category": pa.array(nulled(["a", "b", "long category"] * 40)[:N]).dictionary_encode(),
    "null": pa.nulls(N),
    "all_null": pa.nulls(N, pa.string()),
    "empty": pa.array([""] * N),
}


@pytest.fixture(params=["file", "stream"])
def pieces(request, tmp_path):
    table = pa.table(COLUMNS).combine_chunks()
    opened = pa.ipc.new_stream if request.param == "stream" else pa.ipc.new_file
    with opened(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=41)
    return IpcPieces(tmp_path / "a.arrow")


def parts(pieces):
    ends = np.cumsum(pieces.lengths)
    return [
        (piece, int(end) - length, int(end))
        for piece, (length, end) in enumerate(zip(pieces.lengths, ends, strict=True))
    ]


@pytest.mark.parametrize("rows", [1, 7, 8, 100])
def test_slices_of_every_type(pieces, rows):
    assert pieces.can_slice(list(COLUMNS))
    for name, expected in COLUMNS.items():
        found = [batch.column(0) for piece, *_ in parts(pieces) for batch in pieces.read(piece, [name], rows)]
        assert [value for part in found for value in part.to_pylist()] == expected.to_pylist()
        assert {part.type for part in found} == {expected.type}
        assert max(map(len, found)) == min(rows, 41)


@pytest.mark.parametrize("gap", [0, 3, 16])
def test_scattered_rows_of_every_type(pieces, gap, monkeypatch):
    monkeypatch.setattr("isoscope.stores.ipc_slices._GAP_ROWS", gap)
    for indices in ([0], [99], [3, 4, 5, 20, 40, 41, 60, 90], range(0, 100, 9), range(N)):
        chosen = np.asarray(indices, np.int64)
        for name, expected in COLUMNS.items():
            rows, values = [], []
            for piece, start, end in parts(pieces):
                own = chosen[(chosen >= start) & (chosen < end)] - start
                for batch, at in pieces.pick(piece, [name], own):
                    rows += (at + start).tolist()
                    values += batch.column(0).to_pylist()
            assert rows == chosen.tolist()
            assert values == expected.take(pa.array(chosen)).to_pylist()


def test_types_without_slices_are_read_as_a_whole(tmp_path):
    table = pa.table({"embedding": [[1.0, 2.0]] * 3, "about": [{"a": 1}] * 3})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    pieces = IpcPieces(tmp_path / "a.arrow")
    assert not is_sliceable(table.schema.field("about").type)
    assert (pieces.can_slice(["embedding"]), pieces.can_slice(["embedding", "about"])) == (True, False)
    batches = list(pieces.read(0, ["embedding", "about"], 2))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert batches[1].to_pylist() == [{"embedding": [1.0, 2.0], "about": {"a": 1}}]


def test_a_file_that_was_written_again_is_noticed(pieces, tmp_path):
    content = (tmp_path / "a.arrow").read_bytes()
    reading = pieces.read(0, ["vector"], 5)
    next(reading)
    (tmp_path / "a.arrow").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.arrow changed while it was being read"):
        next(reading)
