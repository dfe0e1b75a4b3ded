"""Parquet and Arrow: lists of any type, read in pieces; errors name the row."""

import re
import tracemalloc
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from isoscope import InputError
from isoscope.errors import FileFormatError, MissingValueError
from isoscope.stores.open import open_store


def parquet(tmp_path, columns, **more):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, **more)
    return path


def read(path, **asked):
    return np.concatenate(list(open_store(path, **asked).chunks()))


@pytest.mark.parametrize("kind", ["halffloat", "float", "double", "int8", "int64"])
@pytest.mark.parametrize("size", [-1, 3])
def test_every_number_type(kind, size, tmp_path):
    vectors = pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float64(), size)).cast(
        pa.list_(getattr(pa, {"halffloat": "float16", "float": "float32", "double": "float64"}.get(kind, kind))(), size)
    )
    found = read(parquet(tmp_path, {"v": vectors}))
    assert found.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.dtype == vectors.type.value_type.to_pandas_dtype()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2], [3.0, 4], [5.0]], "column v has 1 number in row 2: need 2, as in the first row"),
        ([[1.0, 2], None, [3.0, 4]], "column v is null in row 1: fill it in, or drop"),
        ([None, [1.0, 2]], "column v is null in row 0"),
        ([[1.0, 2], [3.0, 4], [5.0, None]], "column v has a null inside the vector of row 2"),
        ([[], []], "column v is null or empty in all rows: need at least one vector"),
        ([[], [1.0, 2]], "column v has an empty list in row 0: fill it in, or drop"),
    ],
)
def test_invalid_row_is_reported(rows, message, tmp_path):
    path = parquet(tmp_path, {"v": pa.array(rows, pa.list_(pa.float32()))}, row_group_size=2)
    with pytest.raises(InputError, match=rf"a\.parquet.*{message}"):
        read(path)


def test_an_empty_list_is_a_missing_vector(tmp_path):
    path = parquet(tmp_path, {"v": [[], [1.0, 2], None, [3.0, 4], []]})
    assert np.nan_to_num(read(path, missing="drop")).tolist() == [[0, 0], [1, 2], [0, 0], [3, 4], [0, 0]]


@pytest.mark.parametrize("values", [["1", "2"], [True, False], [b"1", b"2"], [{"a": 1}, None]], ids=str)
def test_a_numbered_column_that_is_not_numeric_is_an_error(values, tmp_path):
    columns = {"e0": [1.0, 2.0], "e1": pa.array(values), "e2": [3.0, 4.0]}
    why = rf"column e1 belongs to the dimensions e0, e2 by its name, but its type is {columns['e1'].type}"
    with pytest.raises(FileFormatError, match=re.escape(why)):
        open_store(parquet(tmp_path, columns))


def test_decimal_columns_are_dimensions(tmp_path):
    decimals = pa.array([Decimal("1.5"), Decimal("-2.25")], pa.decimal128(9, 2))
    found = read(parquet(tmp_path, {"e0": pa.array([1, 2], pa.float32()), " e1": decimals}))
    assert (found.tolist(), found.dtype) == ([[1, 1.5], [2, -2.25]], np.float64)


def test_a_numbered_column_of_nulls_is_a_dimension(tmp_path):
    path = parquet(tmp_path, {"e0": [1.0, 2.0], "e1": pa.nulls(2), "e2": [3.0, 4.0]})
    assert open_store(path).dim == 3
    with pytest.raises(MissingValueError, match="column e1 is null in row 0"):
        read(path)


def test_words_in_an_unnamed_column_are_not_a_dimension(tmp_path):
    numbers = {"1": [1.0, 2.0], "2": [3.0, 4.0]}
    for words in (pa.array(["the", "of"]), pa.array(["the", "of"]).dictionary_encode()):
        assert read(parquet(tmp_path, {"0": words, **numbers})).tolist() == [[1, 3], [2, 4]]
    with pytest.raises(FileFormatError, match="column 0 belongs to the dimensions 1, 2 by its name"):
        open_store(parquet(tmp_path, {"0": ["", "5.5"], **numbers}))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)], ids=str)
def test_null_is_reported_by_its_row_in_the_file(kind, tmp_path):
    rows = [[float(i), 1.0] for i in range(1000)]
    rows[777] = None
    try:
        path = parquet(tmp_path, {"v": pa.array(rows, kind)}, row_group_size=100)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"pyarrow {pa.__version__} cannot write such a file: {error}")
    with pytest.raises(InputError, match="column v is null in row 777"):
        list(open_store(path).chunks(rows=30))
    with pytest.raises(InputError, match="column v is null in row 777"):
        open_store(path).take([3, 770, 771, 777])


def test_tables_without_vectors_or_rows(tmp_path):
    with pytest.raises(InputError, match=r"contains no vectors; its columns are text, when: need a column"):
        read(parquet(tmp_path, {"text": ["a"], "when": pa.array([1], pa.timestamp("s"))}))
    with pytest.raises(InputError, match="has no rows"):
        read(parquet(tmp_path, {"v": pa.array([], pa.list_(pa.float32()))}))
    with pytest.raises(InputError, match="several columns of vectors: first, second"):
        read(parquet(tmp_path, {"first": [[1.0]], "second": [[2.0]]}))
    with pytest.raises(InputError, match="column text does not contain vectors; choose from v"):
        read(parquet(tmp_path, {"v": [[1.0]], "text": ["a"]}), vectors="text")


def test_lists_of_floats_take_precedence_over_lists_of_token_numbers(tmp_path):
    path = parquet(tmp_path, {"input_ids": [[1, 2, 3], [4, 5]], "state": [[0.5, 1.0], [1.5, 2.0]]})
    assert read(path).tolist() == [[0.5, 1.0], [1.5, 2.0]]


def test_one_column_per_dimension_and_null_in_one(tmp_path):
    columns = {"id": [7, 8], "a": pa.array([1.0, 2.0], pa.float32()), "b": [3.0, 4.0], "label": ["x", "y"]}
    store = open_store(parquet(tmp_path, columns))
    assert (store.dim, store.dtype, store.labels.tolist()) == (2, np.float64, ["x", "y"])
    assert store.take([1]).tolist() == [[2.0, 4.0]]
    with pytest.raises(InputError, match="column b is null in row 1: fix it, or drop"):
        read(parquet(tmp_path, {**columns, "b": [3.0, None]}))


def test_columns_of_many_types(tmp_path):
    v = pa.array([[1.0], [2.0], [3.0]])
    kinds = pa.array(["a", "b", "a"]).dictionary_encode()
    path = parquet(
        tmp_path, {"v": v, "label": kinds, "when": pa.array([0, 1, 2], pa.date32()), "flag": [True, False, True]}
    )
    assert open_store(path).labels.tolist() == ["a", "b", "a"]
    assert open_store(path, labels="flag").labels.tolist() == [1, 0, 1]
    assert open_store(path, labels="when").labels.tolist() == ["1970-01-01", "1970-01-02", "1970-01-03"]
    with pytest.raises(
        InputError, match="column v holds the vectors, so it cannot be used for labels; choose from label, when, flag"
    ):
        open_store(path, labels="v")


def test_missing_labels_are_counted_over_the_entire_file(tmp_path):
    labels = [None if i in (150, 250, 299) else i % 3 for i in range(300)]
    path = parquet(tmp_path, {"v": [[1.0, 2.0]] * 300, "label": labels}, row_group_size=100)
    store = open_store(path)
    for read_labels in (
        lambda: store.labels,
        lambda: list(store.batches(["labels"], rows=20)),
        lambda: store.column("labels", [150]),
    ):
        with pytest.raises(InputError, match=r"a\.parquet: label is empty in 3 of 300 rows, first in row 150"):
            read_labels()
    assert sum(len(c) for c in store.chunks()) == 300
    assert store.column("labels", [0, 1]).tolist() == [0, 1]


def test_missing_text_is_empty(tmp_path):
    store = open_store(parquet(tmp_path, {"v": [[1.0], [2.0]], "text": ["a", None]}))
    assert store.text.tolist() == ["a", ""]


def test_only_the_requested_columns_are_read(tmp_path, monkeypatch):
    path = parquet(tmp_path, {"v": [[1.0], [2.0]], "label": [0, 1], "text": ["a", "b"]})
    asked = []
    real = pq.ParquetFile.iter_batches

    def spy(self, *args, columns=None, **more):
        asked.append(columns)
        return real(self, *args, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    store = open_store(path)
    list(store.chunks())
    assert store.labels.tolist() == [0, 1]
    list(store.batches(["text"]))
    assert asked[-3:] == [["v"], ["label"], ["v", "text"]]


def test_large_table_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "large.parquet"
    kind = pa.list_(pa.float32(), 64)
    with pq.ParquetWriter(path, pa.schema([("v", kind)]), use_dictionary=False, compression=None) as writer:
        for seed in range(8):
            numbers = np.random.default_rng(seed).random(20_000 * 64, np.float32)
            writer.write_table(pa.table({"v": pa.FixedSizeListArray.from_arrays(numbers, 64)}))  # 5 MB each
    tracemalloc.start()
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for chunk in open_store(path).chunks(rows=1000):
        rows += len(chunk)
        most = max(most, pa.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 160_000
    assert most < 16 * 2**20
    assert peak < 8 * 2**20


@pytest.mark.parametrize("place", [5, 20_000])
def test_corrupt_page_is_reported(place, tmp_path, truth):
    path = parquet(tmp_path, {"v": list(truth.vectors)}, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[place : place + 100] = b"\xff" * 100
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [None, "lz4"])
def test_uncompressed_values_are_read_in_place(packed, tmp_path):
    """One record batch of all rows: it need not fit into memory."""
    vectors = np.random.default_rng(0).standard_normal((20_000, 64)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 64)
    kinds = pa.array(["a", "b"] * 10_000).dictionary_encode()
    table = pa.table({"v": lists, "empty": [""] * 20_000, "kind": kinds, "few": [None, 1] * 10_000})
    feather.write_feather(table, tmp_path / "a.feather", compression=packed or "uncompressed", chunksize=20_000)
    store = open_store(tmp_path / "a.feather", labels="kind")
    before = pa.total_allocated_bytes()
    batch = next(store.batches(["labels"], rows=1000))
    assert (pa.total_allocated_bytes() - before >= vectors.nbytes) == (packed is not None)
    np.testing.assert_array_equal(batch.vectors, vectors[:1000])
    assert batch.columns["labels"][:3].tolist() == ["a", "b", "a"]


def test_file_that_cannot_be_memory_mapped_is_read(tmp_path, monkeypatch):
    def refuse(path):
        raise OSError("Memory mapping file failed: Cannot allocate memory")

    vectors = np.arange(12.0).reshape(4, 3)
    table = pa.table({"v": vectors.tolist(), "n": [1, 2, 3, 4]})
    feather.write_feather(table, tmp_path / "a.feather", compression="uncompressed")
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    monkeypatch.setattr(pa, "memory_map", refuse)
    for name in ("a.feather", "b.arrow"):
        store = open_store(tmp_path / name)
        np.testing.assert_array_equal(np.concatenate(list(store.chunks(3))), vectors)
        np.testing.assert_array_equal(store.take([3, 0]), vectors[[3, 0]])


def test_a_memory_error_does_not_blame_the_file(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise pa.ArrowMemoryError("malloc of size 1024 failed")

    pq.write_table(pa.table({"v": [[1.0, 2.0]]}), tmp_path / "a.parquet")
    store = open_store(tmp_path / "a.parquet")
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", full)
    with pytest.raises(MemoryError, match=r"a\.parquet: malloc of size 1024 failed"):
        next(store.chunks())


@pytest.mark.parametrize("stream", [False, True])
def test_a_damaged_length_of_a_compressed_column_is_no_lack_of_memory(stream, tmp_path):
    path = tmp_path / "a.arrow"
    vectors = np.zeros((1000, 8), np.float32)
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)})
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opened(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    length = vectors.nbytes.to_bytes(8, "little")
    assert data.count(length) >= 1
    at = data.rindex(length + b"\x28\xb5\x2f\xfd")  # the frame of zstd follows the length
    path.write_bytes(data[:at] + (2**60 + 2**20).to_bytes(8, "little") + data[at + 8 :])
    with pytest.raises(FileFormatError, match=r"a\.arrow cannot be read: it declares 1,152,921,504,607,895,552 bytes"):
        read(path)


def test_an_allocation_that_the_machine_could_not_make_is_damage(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise pa.ArrowMemoryError(f"malloc of size {2**50} failed")

    pq.write_table(pa.table({"v": [[1.0, 2.0]]}), tmp_path / "a.parquet")
    store = open_store(tmp_path / "a.parquet")
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", full)
    with pytest.raises(FileFormatError, match=r"a\.parquet cannot be read: it declares 1,125,899,906,842,624 bytes"):
        next(store.chunks())
