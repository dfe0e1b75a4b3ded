"""Memory-mapped arrays: only the requested rows are mapped."""

from pathlib import Path

import numpy as np
import pytest

from isoscope import InputError, open_store
from isoscope.stores import in_memory
from isoscope.stores.in_memory import MappedArray


@pytest.fixture
def truth():
    return np.random.default_rng(3).integers(-99, 99, (5000, 7)).astype(np.float32)


def written(array, path, offset, order):
    path.write_bytes(b"x" * offset + array.tobytes(order))
    return MappedArray(path, array.dtype, array.shape, offset, order == "F")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("offset", [0, 128, 4095, 70_000])
@pytest.mark.parametrize("rows", [slice(None), slice(3, 9), slice(4990, 9000), slice(7, 7), slice(-2, None)])
def test_slices_equal_array_slices(truth, tmp_path, order, offset, rows):
    np.testing.assert_array_equal(written(truth, tmp_path / "a", offset, order)[rows], truth[rows])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("window", [1, 500, 64 * 2**20])
def test_scattered_rows_equal_array_rows_for_any_window(truth, tmp_path, order, window, monkeypatch):
    monkeypatch.setattr(in_memory, "_WINDOW_BYTES", window)
    mapped = written(truth, tmp_path / "a", 200, order)
    for rows in ([], [0], [4999], [0, 1, 2, 17, 18, 2500, 4998, 4999], range(0, 5000, 3)):
        rows = np.asarray(rows, np.int64)
        np.testing.assert_array_equal(mapped[rows], truth[rows])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say what is mapped")
@pytest.mark.parametrize("ending", [".npy", ".safetensors", ".fvecs", ".npz"])
def test_at_most_one_batch_is_mapped(tmp_path, ending):
    path, rows = tmp_path / f"wide{ending}", np.ones((50_000, 64), np.float32)
    if ending == ".npy":
        np.save(path, rows)
    elif ending == ".npz":
        np.savez(path, rows)
    elif ending == ".fvecs":
        np.insert(rows, 0, np.int32(64).view(np.float32), axis=1).tofile(path)
    else:
        pytest.importorskip("safetensors.numpy").save_file({"v": rows}, path)
    store = open_store(path)
    for chunk in store.chunks(1000):
        assert len(chunk) == 1000
        assert mapped_bytes(path) < 3 * 1000 * 65 * 4 + 2 * 2**16  # the last one may be held beside the next
    del chunk
    store.take(np.arange(0, 50_000, 777))
    assert mapped_bytes(path) == 0


def mapped_bytes(path):
    places = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    return sum(int(end, 16) - int(start, 16) for start, end in (place.split("-") for place in places))


@pytest.mark.parametrize("order", ["C", "F"])
def test_shortened_file_raises(truth, tmp_path, order):
    mapped = written(truth, tmp_path / "a", 0, order)
    (tmp_path / "a").write_bytes(b"short")
    with pytest.raises(InputError, match="was truncated after it was opened: open it again"):
        mapped[10:20]
    with pytest.raises(InputError, match="was truncated"):
        mapped[np.asarray([4000])]


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
    with pytest.raises(InputError, match="changed after it was opened: open it again"):
        next(batches)
