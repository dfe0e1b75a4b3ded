"""Arrays in files: only the requested rows are read, and a file that changes ends with one clear error."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isoscope import InputError, open_store
from isoscope.stores import in_memory
from isoscope.stores.in_memory import FileArray


@pytest.fixture
def truth():
    return np.random.default_rng(3).integers(-99, 99, (5000, 7)).astype(np.float32)


def write_array(array, path, offset, order):
    path.write_bytes(b"x" * offset + array.tobytes(order))
    return FileArray(path, array.dtype, array.shape, offset, order == "F")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("offset", [0, 128, 4095, 70_000])
@pytest.mark.parametrize("rows", [slice(None), slice(3, 9), slice(4990, 9000), slice(7, 7), slice(-2, None)])
def test_slices_equal_array_slices(truth, tmp_path, order, offset, rows):
    np.testing.assert_array_equal(write_array(truth, tmp_path / "a", offset, order)[rows], truth[rows])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("window", [1, 500, 4 * 2**20])
@pytest.mark.parametrize("gap", [0, 100, 2**14])
def test_scattered_rows_equal_array_rows_for_any_window(truth, tmp_path, order, window, gap, monkeypatch):
    monkeypatch.setattr(in_memory, "_WINDOW_BYTES", window)
    monkeypatch.setattr(in_memory, "_GAP_BYTES", gap)
    array = write_array(truth, tmp_path / "a", 200, order)
    for rows in ([], [0], [4999], [0, 1, 2, 17, 18, 2500, 4998, 4999], range(0, 5000, 3)):
        rows = np.asarray(rows, np.int64)
        np.testing.assert_array_equal(array[rows], truth[rows])


def write(path, rows):
    """Write vectors in the format that the file extension indicates."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, rows)
    elif path.suffix == ".fvecs":
        np.insert(rows, 0, np.int32(rows.shape[1]).view(np.float32), axis=1).tofile(path)
    elif path.suffix == ".arrow":
        write_arrow(path, rows)
    else:
        pytest.importorskip("safetensors.numpy").save_file({"v": rows}, path)


def write_arrow(path, rows):
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    table = pa.table({"embedding": lists, "text": [f"text {i}" for i in range(len(rows))]})
    opened = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
    with opened(str(path), table.schema) as writer:
        writer.write_table(table)  # as a single record batch


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say what is mapped")
@pytest.mark.parametrize("ending", [".npy", ".safetensors", ".fvecs", ".npz"])
def test_no_row_is_mapped(tmp_path, ending):
    path = tmp_path / f"wide{ending}"
    write(path, np.ones((5_000, 64), np.float32))
    store = open_store(path)
    for chunk in store.chunks(1000):
        assert len(chunk) == 1000
        assert str(path) not in Path("/proc/self/maps").read_text()


READER = """
import os, sys
from isoscope import InputError
from isoscope.stores.open import open_store

path, way = sys.argv[1:]
store = open_store(path)
roles = [*store.columns]
batches = store.batches(roles, rows=500)
held = next(batches)
before = held.vectors.sum(), [len(str(values.tolist())) for values in held.columns.values()]
os.truncate(path, os.path.getsize(path) // 3)
assert before == (held.vectors.sum(), [len(str(values.tolist())) for values in held.columns.values()])
try:
    store.take([9_000]) if way == "take" else store.column(roles[0]) if way == "column" else list(batches)
except InputError as error:
    print(error)
else:
    print("read")
"""


@pytest.mark.parametrize("name", ["a.npy", "f.npy", "a.npz", "a.safetensors", "a.fvecs", "a.arrow", "stream.arrow"])
@pytest.mark.parametrize("way", ["batches", "take", "column"])
def test_a_file_that_is_truncated_while_it_is_read_ends_with_one_error(name, way, tmp_path):
    if way == "column" and not name.endswith(".arrow"):
        pytest.skip("the file has no columns")
    path = tmp_path / name
    rows = np.random.default_rng(0).standard_normal((10_000, 64)).astype(np.float32)
    write(path, np.asfortranarray(rows) if name == "f.npy" else rows)
    done = subprocess.run([sys.executable, "-c", READER, str(path), way], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # a process that is ended by SIGBUS has the code -7
    assert name in done.stdout
    assert re.search("truncated|changed", done.stdout)
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_shortened_file_raises(truth, tmp_path, order):
    array = write_array(truth, tmp_path / "a", 0, order)
    (tmp_path / "a").write_bytes(b"short")
    with pytest.raises(InputError, match="was truncated while it was being read"):
        array[10:20]
    with pytest.raises(InputError, match="was truncated"):
        array[np.asarray([4000])]


@pytest.mark.parametrize("how", ["another in its place", "written over", "longer"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_stops_if_the_file_is_replaced(truth, tmp_path, how, order):
    np.save(tmp_path / "a.npy", np.asarray(truth, order=order))
    np.save(tmp_path / "b.npy", np.asarray(-truth, order=order))
    batches = open_store(tmp_path / "a.npy").batches(rows=300)
    np.testing.assert_array_equal(next(batches).vectors, truth[:300])
    if how == "another in its place":
        (tmp_path / "b.npy").replace(tmp_path / "a.npy")
    elif how == "written over":
        (tmp_path / "a.npy").write_bytes((tmp_path / "b.npy").read_bytes())
    else:
        with (tmp_path / "a.npy").open("ab") as file:
            file.write(b"more")
    with pytest.raises(InputError, match="changed while it was being read"):
        next(batches)
