"""A mapped store equals a store of the function's results."""

import numpy as np
import pytest

import isoscope
from isoscope import InputError
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store
from tests.stores.conftest import FORMATS, D, N

each_format = pytest.mark.parametrize("form", FORMATS, ids=repr)


def half(rows):
    return rows[:, : D // 2] * 2


@each_format
def test_vectors_are_transformed_and_columns_stay(form, written, truth):
    store = open_store(written(form))
    found = store.mapped(half, D // 2)
    assert (len(found), found.dim, found.dtype, found.name) == (N, D // 2, store.dtype, store.name)
    np.testing.assert_array_equal(np.concatenate(list(found.chunks(70))), half(truth.vectors))
    np.testing.assert_array_equal(found.take([5, 1, 5]), half(truth.vectors[[5, 1, 5]]))
    assert found.columns == store.columns
    assert found.guessed == store.guessed
    for role in store.columns:
        np.testing.assert_array_equal(found.column(role), store.column(role))
        np.testing.assert_array_equal(found.column(role, [7, 3]), store.column(role, [7, 3]))
    batches = list(found.batches([*store.columns], rows=300, start=250))
    np.testing.assert_array_equal(np.concatenate([b.vectors for b in batches]), half(truth.vectors[250:]))


@pytest.mark.parametrize("ending", ["npy", "safetensors", "parquet"])
def test_a_mapped_store_is_written_and_audited_like_any_other(ending, tmp_path, truth):
    store = open_store(truth.vectors, labels=truth.labels, ids=truth.words)
    repair = isoscope.Whiten("pca", 4).fit(store)
    repaired = store.mapped(repair.transform, 4, name="white")
    assert write_store(repaired, tmp_path / f"a.{ending}") == N
    again = open_store(tmp_path / f"a.{ending}")
    np.testing.assert_array_equal(again.take(range(N)), repair.transform(truth.vectors))
    if ending == "parquet":
        assert again.ids.tolist() == truth.words
    found = isoscope.audit(repaired)
    assert (found.source, found.d, found["isoscore"].value) == ("white", 4, pytest.approx(1, abs=0.01))
    assert found.columns == {"labels": "labels"}


@pytest.mark.parametrize(("dtype", "expected"), [("f2", "f2"), ("f4", "f4"), ("f8", "f8"), ("u1", "f4"), ("i4", "f4")])
def test_precision_is_preserved_and_integers_become_float32(dtype, expected):
    rows = np.arange(12).reshape(6, 2).astype(dtype)
    repair = isoscope.Center().fit(rows.astype("f8"))
    found = open_store(rows).mapped(repair.transform, 2)
    assert found.dtype == found.take([0]).dtype == next(iter(found)).dtype == np.dtype(expected)
    np.testing.assert_array_equal(found.take(range(6)), rows - 1.0 * rows.mean(axis=0))
    assert open_store(rows).mapped(repair.transform, 2, dtype="f8").take([0]).dtype == np.float64


def test_passed_values_and_hidden_columns_are_kept(truth):
    store = open_store(truth.vectors, labels=truth.labels, text=truth.words)
    found = store.without("labels").mapped(half, D // 2)
    assert list(found.columns) == ["text"]
    assert found.column("text", [3]).tolist() == ["naïve"]
    assert found.with_column("types", truth.labels).types.tolist() == truth.labels.tolist()


def test_a_function_with_a_wrong_result_shape_is_reported(truth):
    found = open_store(truth.vectors).mapped(half, D)
    with pytest.raises(
        InputError, match=rf"returned shape \(1000, {D // 2}\) for input of shape \(1000, {D}\): need \(1000, {D}\)"
    ):
        list(found)
