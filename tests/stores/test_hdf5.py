"""HDF5 files, of ann-benchmarks and others."""

import sys

import numpy as np
import pytest

from isoscope import InputError
from isoscope.errors import FileFormatError
from isoscope.stores.open import open_store

h5py = pytest.importorskip("h5py")


def file_of(path, **datasets):
    with h5py.File(path, "w") as file:
        for name, value in datasets.items():
            file[name.replace("__", "/")] = value
    return path


def test_dataset_can_be_chosen_by_name(tmp_path):
    path = file_of(tmp_path / "a.h5", group__p=np.eye(3), q=np.ones((3, 2)), kind=np.arange(3), other=np.arange(4))
    with pytest.raises(InputError, match=r'columns of vectors: group/p, q; choose one with vectors="group/p"'):
        open_store(path)
    store = open_store(path, vectors="group/p", types="kind")
    assert (store.dim, store.types.tolist()) == (3, [0, 1, 2])
    with pytest.raises(InputError, match="has no column other for types: the columns are kind"):
        open_store(path, vectors="q", types="other")


def test_strings_of_fixed_and_variable_length(tmp_path):
    path = file_of(tmp_path / "a.h5", v=np.eye(2), label=np.array([b"a", b"\xc3\xa9"]), text=["x", "yy"])
    assert open_store(path).labels.tolist() == ["a", "é"]
    assert open_store(path).column("text", [1, 0, 1]).tolist() == ["yy", "x", "yy"]


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"v": np.zeros(3)}, "contains no vectors; its columns are v"),
        ({"v": np.zeros((0, 3))}, "v has no rows"),
        ({"v": np.zeros((2, 2), complex)}, "contains no vectors"),
        ({}, "contains no vectors: need a column"),
    ],
)
def test_files_without_vectors(datasets, message, tmp_path):
    with pytest.raises(InputError, match=rf"a\.h5.*{message}"):
        open_store(file_of(tmp_path / "a.h5", **datasets))


def test_the_file_is_closed_between_batches(tmp_path):
    path = file_of(tmp_path / "a.h5", v=np.eye(4))
    chunks = open_store(path).chunks(rows=1)
    next(chunks)
    file_of(path, v=2 * np.eye(4))  # could not be opened for writing otherwise
    assert next(chunks).tolist() == [[0, 2, 0, 0]]


def test_missing_library_error_shows_install_command(tmp_path, monkeypatch):
    path = file_of(tmp_path / "a.h5", v=np.eye(2))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"a\.h5 is an HDF5 file, which needs h5py: pip install 'isoscope\[hdf5\]'"):
        open_store(path)


def external(path, name, shape, values):
    values.tofile(path.with_suffix(".raw"))
    with h5py.File(path, "a") as file:
        file.create_dataset(
            name, shape, values.dtype, external=[(str(path.with_suffix(".raw")), 0, h5py.h5f.UNLIMITED)]
        )


def virtual(path, name, shape, values):
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout(shape, values.dtype)
        layout[:] = h5py.VirtualSource(path.with_name("missing.h5"), "v", shape)
        file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize(("store_elsewhere", "kind"), [(external, "external storage"), (virtual, "virtual dataset")])
def test_datasets_in_other_files_are_rejected(store_elsewhere, kind, tmp_path):
    path = tmp_path / "a.h5"
    store_elsewhere(path, "group/v", (3, 2), np.ones((3, 2)))
    with pytest.raises(FileFormatError, match=rf"a\.h5: group/v .*{kind}.*other files"):
        open_store(path)
    path = file_of(tmp_path / "b.h5", v=np.eye(3))
    store_elsewhere(path, "kind", (3,), np.arange(3))
    assert open_store(path).dim == 3
    with pytest.raises(FileFormatError, match=rf"b\.h5: kind .*{kind}"):
        open_store(path, labels="kind")


def test_a_dataset_that_moves_to_another_file_is_rejected(tmp_path):
    path = file_of(tmp_path / "a.h5", v=np.eye(3))
    store = open_store(path)
    path.unlink()
    virtual(path, "v", (3, 3), np.eye(3))
    with pytest.raises(FileFormatError, match="virtual dataset"):
        store.take([0])
