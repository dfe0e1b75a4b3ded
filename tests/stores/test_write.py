"""Writing stores: round trips, and atomic files."""

import os
import tracemalloc

import numpy as np
import pytest

from isoscope import InputError
from isoscope._core.errors import OutputError
from isoscope.stores import write
from isoscope.stores.columns import INVERSE_RANK
from isoscope.stores.open import open_store
from isoscope.stores.store import Batch
from isoscope.stores.write import write_store
from tests.stores.conftest import FORMATS, D, N

TABLES = ["parquet", "arrow"]
ENDINGS = ["npy", "safetensors", *TABLES]
each_ending = pytest.mark.parametrize("ending", ENDINGS)


FLAT = {"a.npy", "fortran.npy", "a.parquet", "a.csv", "shards"}


@pytest.mark.parametrize(
    ("form", "ending"), [(f, e) for f in FORMATS for e in ENDINGS if e in TABLES or f.name in FLAT], ids=str
)
def test_every_store_can_be_written_and_read_back(form, ending, written, tmp_path, truth):
    store = open_store(written(form))
    path = tmp_path / f"out.{ending}"
    assert write_store(store, path) == N
    again = open_store(path)
    assert (again.dtype, len(again)) == (store.dtype, N)
    np.testing.assert_array_equal(np.concatenate(list(again.chunks())), truth.vectors)
    assert os.listdir(tmp_path) == [path.name]
    if ending in TABLES:
        assert again.columns == {role: role if name == INVERSE_RANK else name for role, name in store.columns.items()}
        assert again.guessed == store.guessed
        for role in store.columns:
            np.testing.assert_array_equal(again.column(role), store.column(role))
        write_store(store, path, columns=False)
    assert not open_store(path).columns


@each_ending
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i4", "i8", ">f4"])
def test_dtype_is_kept(dtype, ending, tmp_path):
    array = np.arange(12).reshape(4, 3).astype(dtype)
    write_store(array, tmp_path / f"a.{ending}")
    again = open_store(tmp_path / f"a.{ending}")
    assert again.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(next(again.chunks()), array)


def test_other_programs_can_read_written_files(tmp_path, truth):
    for ending in ENDINGS:
        write_store(truth.vectors, tmp_path / f"a.{ending}")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), truth.vectors)
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(load_file(tmp_path / "a.safetensors")["embeddings"], truth.vectors)
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), D)
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy(zero_copy_only=False)), truth.vectors)


def batches(truth, broken=None, sizes=(300, 1, 699)):
    start = 0
    for i, size in enumerate(sizes):
        if i == 1 and broken is not None:
            raise broken
        part = slice(start, start + size)
        yield Batch(start, truth.vectors[part], {"labels": truth.labels[part]}, 0.5)
        start += size


@each_ending
def test_batches_of_any_size_are_written(ending, tmp_path, truth):
    path = tmp_path / f"a.{ending}"
    for source in (batches(truth), list(batches(truth))):
        assert write_store(source, path) == N
        np.testing.assert_array_equal(np.concatenate(list(open_store(path).chunks())), truth.vectors)
    if ending in TABLES:
        np.testing.assert_array_equal(open_store(path).labels, truth.labels)


@each_ending
@pytest.mark.parametrize("broken", [RuntimeError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interruption_leaves_the_old_file_and_no_temporary_file(ending, broken, tmp_path, truth):
    path = tmp_path / f"a.{ending}"
    with pytest.raises(type(broken)):
        write_store(batches(truth, broken), path)
    assert os.listdir(tmp_path) == []
    path.write_bytes(b"old")
    with pytest.raises(type(broken)):
        write_store(batches(truth, broken), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")
@each_ending
def test_a_full_disk_raises_oserror(ending, tmp_path, truth, monkeypatch):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"old")
    real = write.atomic_replace

    class Full:
        def __init__(self, path):
            self._block = real(path)

        def __enter__(self):
            temporary = self._block.__enter__()
            temporary.unlink()
            temporary.symlink_to("/dev/full")
            return temporary

        def __exit__(self, *error):
            return self._block.__exit__(*error)

    monkeypatch.setattr(write, "atomic_replace", Full)
    with pytest.raises(OSError, match="No space left on device"):
        write_store(truth.vectors, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_a_store_can_be_written_over_itself(tmp_path, truth):
    path = tmp_path / "a.npy"
    np.save(path, truth.vectors)
    assert write_store(open_store(path), path) == N
    np.testing.assert_array_equal(np.load(path), truth.vectors)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.csv", r"a\.csv .* extension: need \.npy, \.safetensors, \.parquet or \.arrow"),
        ("plain", "extension"),
        ("no/a.npy", "no is not a folder"),
        ("folder.npy", "is a folder: pass the name of a file"),
    ],
)
def test_unwritable_names_are_rejected(name, message, tmp_path, truth):
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(OutputError, match=message):
        write_store(truth.vectors, tmp_path / name)


@each_ending
def test_unwritable_sources_are_rejected(ending, tmp_path, truth):
    path = tmp_path / f"a.{ending}"
    good = Batch(0, truth.vectors[:2], {}, 0.5)
    for source, message in (
        (iter([]), "the source has no rows"),
        (iter([truth.vectors]), "ndarray: need a store"),
        ([good, good._replace(vectors=np.ones((2, 3), "f4"))], r"shape \(2, 3\)"),
        ([good, good._replace(vectors=truth.vectors.astype("f8"))], "float64, but the first batch has float32"),
    ):
        with pytest.raises(InputError, match=message):
            write_store(source, path)
    assert os.listdir(tmp_path) == []


def test_changing_columns_are_rejected(tmp_path, truth):
    first = Batch(0, truth.vectors[:2], {"labels": np.array([1, 2])}, 0.5)
    for columns, message in (({}, "need the same"), ({"labels": np.array(["a", "b"], object)}, "different type")):
        with pytest.raises(InputError, match=message):
            write_store([first, first._replace(columns=columns)], tmp_path / "a.parquet")


def test_a_column_named_like_the_vectors_keeps_its_values(tmp_path, truth):
    import pandas as pd

    target = tmp_path / "a.parquet"
    frame = pd.DataFrame({"v": list(truth.vectors[:3]), "embedding": ["a", "b", "c"]})
    write_store(open_store(frame, labels="embedding"), target)
    assert open_store(target, labels="embedding").labels.tolist() == ["a", "b", "c"]
    (tmp_path / "a.jsonl").write_text('{"v": [1, 2], "embedding": "a"}\n')
    write_store(open_store(tmp_path / "a.jsonl", labels="embedding"), target)
    assert open_store(target).labels.tolist() == ["a"]


def test_guessed_ids_with_missing_values_are_omitted(tmp_path):
    source, target = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    source.write_text('{"v": [1, 2], "id": 5, "label": 1}\n{"v": [3, 4], "id": null, "label": 2}\n')
    assert write_store(open_store(source), target) == 2
    assert dict(open_store(target).columns) == {"labels": "label"}
    with pytest.raises(InputError, match="id is empty in 1 of 2 rows, first in row 1"):
        write_store(open_store(source, ids="id"), target)
    with pytest.raises(InputError, match="id is empty"):
        _ = open_store(source).ids


@each_ending
def test_a_long_store_is_written_in_bounded_memory(ending, tmp_path):
    chunk = np.random.default_rng(0).random((5000, 64), np.float32)  # 1.2 MB
    tracemalloc.start()
    rows = write_store((Batch(5000 * i, chunk, {}, 0.0) for i in range(20)), tmp_path / f"a.{ending}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == len(open_store(tmp_path / f"a.{ending}")) == 100_000
    assert peak < 6 * 2**20


def test_array_rows_can_be_put_in_any_order(tmp_path, truth):
    given = list(batches(truth))
    target = write.open_target(tmp_path / "a.npy", ".npy", given[0], None)
    for batch in given[::-1]:
        target.write_at(batch.start, batch.vectors)
    target.rows = N
    target.finish()
    target.close()
    write_store(truth.vectors, tmp_path / "plain.npy")
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "plain.npy").read_bytes()


def test_parquet_has_one_row_group_per_batch(tmp_path, truth):
    import pyarrow.parquet as pq

    write_store(batches(truth), tmp_path / "a.parquet")
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups == 3


def test_progress_is_reported(tmp_path, truth):
    seen = []
    write_store(batches(truth), tmp_path / "a.npy", progress=lambda *now: seen.append(now))
    assert seen == [("writing", 300, 0.5), ("writing", 301, 0.5), ("writing", N, 0.5)]
