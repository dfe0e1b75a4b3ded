"""NumPy files: read in parts, never unpickled, rejected with a reason."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from isoscope import InputError
from isoscope.errors import FileFormatError
from isoscope.stores.open import open_store


def saved(path, array):
    np.save(path, array, allow_pickle=True)
    return path


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i4", "i8", "u8"])
def test_numbers_keep_their_dtype(dtype, tmp_path):
    array = np.arange(12).reshape(4, 3).astype(dtype)
    store = open_store(saved(tmp_path / "a.npy", array))
    assert store.dtype == array.dtype
    np.testing.assert_array_equal(next(store.chunks()), array)


def test_extended_precision_becomes_float64(tmp_path):
    store = open_store(saved(tmp_path / "a.npy", np.eye(3, dtype=np.longdouble)))
    assert store.dtype == np.float64 == next(store.chunks()).dtype


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1, "a"]], object), "is a pickled array, which isoscope never loads"),
        (np.arange(5.0), r"has shape \(5,\): need shape \(n, d\)"),
        (np.zeros((2, 3, 4)), r"has shape \(2, 3, 4\): need shape \(n, d\).*reshape\(-1, d\)"),
        (np.array(3.0), r"has shape \(\)"),
        (np.zeros((0, 4)), "has no rows"),
        (np.zeros((4, 0)), "has no columns"),
        (np.eye(3, dtype=bool), "contains booleans"),
        (np.eye(3, dtype=complex), "contains complex numbers"),
        (np.array([["a", "b"]]), "contains values of dtype <U1"),
        (np.zeros((2, 2), [("a", "f4")]), r"contains values of dtype \[\('a'"),
    ],
)
def test_arrays_that_are_not_vectors_raise(array, message, tmp_path):
    with pytest.raises(InputError, match=rf"a\.npy {message}"):
        open_store(saved(tmp_path / "a.npy", array))


def test_pickled_data_is_never_executed(tmp_path, monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("unpickled")

    monkeypatch.setattr("pickle.load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    objects = np.array([["x", None]], object)
    with pytest.raises(InputError, match="pickled"):
        open_store(saved(tmp_path / "a.npy", objects))
    np.savez(tmp_path / "a.npz", vectors=np.eye(2), label=np.array(["x", None], object))
    assert open_store(tmp_path / "a.npz").labels is None
    with pytest.raises(InputError, match=r"a\.npz: label is a pickled array"):
        open_store(tmp_path / "a.npz", labels="label")


def test_one_array_of_an_npz_is_chosen(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, p=np.eye(3), q=np.ones((3, 2)), kind=np.array(["a", "b", "c"]), loose=np.arange(5))
    with pytest.raises(InputError, match=r'several columns of vectors: p, q; choose one with vectors="p"'):
        open_store(path)
    store = open_store(path, vectors="q", types="kind")
    assert (store.dim, store.types.tolist()) == (2, ["a", "b", "c"])
    with pytest.raises(InputError, match="has no column loose for labels: the columns are kind"):
        open_store(path, vectors="q", labels="loose")
    np.savez(path, labels=np.arange(5))
    with pytest.raises(InputError, match="contains no vectors; its columns are labels"):
        open_store(path)


def test_flipped_bit_in_compressed_array_is_detected(tmp_path, truth):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, truth.vectors)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"is a damaged or truncated \.npz file"):
        open_store(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "x")
    with pytest.raises(InputError, match="contains no vectors"):
        open_store(path)


def test_shrunken_file_is_detected(tmp_path):
    store = open_store(saved(tmp_path / "a.npy", np.eye(100)))
    saved(tmp_path / "a.npy", np.eye(50))
    with pytest.raises(InputError, match="was truncated while it was being read"):
        next(store.chunks())


def test_large_file_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "large.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.float32, (200_000, 256))  # 200 MB, of which few are on the disk
    mapped[123_456] = 7
    del mapped
    tracemalloc.start()
    store = open_store(path)
    found = [batch.start for batch in store.batches(rows=500) if batch.vectors.any()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [123_000]
    assert store.take([123_456]).sum() == 7 * 256
    assert peak < 2**22


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archive_is_read_in_bounded_memory(save, tmp_path):
    save(tmp_path / "a.npz", np.zeros((100_000, 64), np.float32))  # 25 MB
    tracemalloc.start()
    rows = sum(len(chunk) for chunk in open_store(tmp_path / "a.npz").chunks(rows=500))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 100_000
    assert peak < 6 * 2**20


def npy_with_header(header, body=b"\0" * 64):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 4)}", r"declares the shape \(-4, 4\)"),
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (-4, -4)}", r"declares the shape \(-4, -4\)"),
        ("[" * 9000, "is not a complete .npy file"),
        ("-" * 9000 + "1", "is not a complete .npy file"),
    ],
)
def test_impossible_headers_raise(header, message, tmp_path):
    (tmp_path / "a.npy").write_bytes(npy_with_header(header))
    with pytest.raises(FileFormatError, match=rf"a\.npy .*{message}") as caught:
        open_store(tmp_path / "a.npy")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_archive_with_an_impossible_array_raises(tmp_path):
    for name, header in (("x", "(9999999999999, 4)"), ("label", "(9999999999999,)")):
        with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
            about = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {header}}}"
            archive.writestr(f"{name}.npy", npy_with_header(about))
    with pytest.raises(
        FileFormatError, match=r"a\.npz is a damaged .*array x has fewer values than its shape \(9999999999999, 4\)"
    ):
        open_store(tmp_path / "a.npz")
