"""Many files as one."""

import json
from pathlib import Path

import numpy as np
import pytest

from isoscope import InputError
from isoscope.stores.open import open_store
from isoscope.stores.shards import natural_sort_key
from tests.stores.conftest import FORMATS, Cloud, write_jsonl


def test_shards_are_sorted_by_the_numbers_in_their_names():
    names = ["shard-10", "shard-2", "shard-1", "a", "10", "2", "2b"]
    ordered = [p.name for p in sorted(map(Path, names), key=natural_sort_key)]
    assert ordered == ["2", "2b", "10", "a", "shard-1", "shard-2", "shard-10"]


def folder_of(tmp_path, **arrays):
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_a_glob_and_a_folder_are_the_same(written, truth):
    folder = written(next(f for f in FORMATS if f.name == "shards"))
    for source in (folder, str(folder), f"{folder}/", f"{folder}/*.npz", f"{folder}/shard-?*.npz"):
        np.testing.assert_array_equal(np.concatenate(list(open_store(source).chunks())), truth.vectors)
    np.testing.assert_array_equal(next(open_store(f"{folder}/shard-0*").chunks()), truth.vectors[:84])


def test_shards_of_mixed_precision_use_the_higher_precision(tmp_path):
    store = open_store(folder_of(tmp_path, a=np.eye(2, dtype="f4"), b=np.eye(2, dtype="f8")))
    assert store.dtype == np.float64
    assert {chunk.dtype for chunk in store.chunks()} == {np.dtype(np.float64)}
    assert store.take([0, 3]).dtype == np.float64


def test_shards_of_different_dimensions_are_both_named(tmp_path):
    with pytest.raises(InputError, match=r"a\.npy has 2 dimensions but .*b\.npy has 3: need vectors of equal length"):
        open_store(folder_of(tmp_path, a=np.eye(2), b=np.eye(3)))


def test_columns_must_be_in_all_shards(tmp_path, truth):
    write_jsonl(Cloud(truth.vectors[:5], truth.labels[:5], truth.words[:5]), tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text(json.dumps({"embedding": [1.5] * 16, "text": "x"}) + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl has label for labels, but .*b\.jsonl has no column"):
        open_store(tmp_path)
    with pytest.raises(InputError, match=r"b\.jsonl has no column label for labels: the columns are text"):
        open_store(tmp_path, labels="label")


def test_ids_missing_in_one_shard_are_ignored_unless_requested(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"v": [1, 2], "id": 5}\n')
    (tmp_path / "b.jsonl").write_text('{"v": [3, 4]}\n')
    store = open_store(tmp_path)
    assert (store.ids, len(store)) == (None, 2)
    with pytest.raises(InputError, match=r"b\.jsonl has no column id for ids"):
        open_store(tmp_path, ids="id")


def test_invalid_shard_is_named(tmp_path):
    folder_of(tmp_path, a=np.eye(2), labels=np.arange(2))
    with pytest.raises(InputError, match=r"labels\.npy has shape \(2,\)"):
        open_store(tmp_path)


def test_folders_without_vectors(tmp_path):
    with pytest.raises(InputError, match=r"is a folder without vectors: need files with one of the extensions \.npy"):
        open_store(tmp_path)
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / ".hidden.npy").write_text("x")
    (tmp_path / "_SUCCESS.npy").write_text("x")
    (tmp_path / "data").mkdir()
    with pytest.raises(InputError, match=r"is a folder without vectors.*; did you mean .*data\?"):
        open_store(tmp_path)


def test_folder_with_two_formats_raises(tmp_path):
    folder_of(tmp_path, a=np.eye(2))
    np.savez(tmp_path / "b.npz", np.eye(2))
    with pytest.raises(
        InputError, match=r'several formats, \.npy, \.npz: choose one with a glob, such as ".*/\*\.npy"'
    ):
        open_store(tmp_path)
    assert len(open_store(tmp_path / "*.np*")) == 4


def test_missing_label_in_shard_is_reported_by_row_in_store(tmp_path):
    for name, label in (("a", "1"), ("b", "null")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"v": [1, 2], "label": {label}}}\n' * 3)
    with pytest.raises(InputError, match="label is empty in 3 of 6 rows, first in row 3"):
        _ = open_store(tmp_path).labels
