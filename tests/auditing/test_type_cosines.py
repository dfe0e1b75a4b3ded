"""Mean cosines within and across token types, from running sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

import isoscope
from isoscope import InputError
from isoscope.auditing.type_cosines import TypeCosines, TypeUnits
from tests.conftest import tolerance


def texts(values):
    found = np.empty(len(values), object)
    found[:] = values
    return found


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_type_cosines_equal_the_public_metrics(rng, dtype):
    X = (8 * rng.standard_normal((400, 6)) + 3).astype(dtype)
    types = rng.integers(0, 60, 400)
    found = TypeCosines.of(X, types)
    X = X.astype(np.float64)
    assert found.inter == pytest.approx(float(isoscope.inter_similarity(X, types)), rel=tolerance("float32"))
    assert found.intra == pytest.approx(float(isoscope.intra_similarity(X, types)), rel=tolerance("float32"))
    names, counts = np.unique(types, return_counts=True)
    np.testing.assert_array_equal(found.names, names)
    np.testing.assert_array_equal(found.counts, counts)
    assert found.rows == 400
    assert found.each.mean() == pytest.approx(found.intra, rel=tolerance("float64"))


def test_batches_and_name_types_do_not_matter(rng):
    X, types = rng.standard_normal((300, 5)), rng.integers(0, 40, 300)
    whole = TypeCosines.of(X, types)
    parts = TypeUnits(5)
    for start in range(0, 300, 7):
        parts.add(X[start : start + 7], texts([f"t{kind:02d}" for kind in types[start : start + 7]]))
    found = parts.cosines()
    assert (found.inter, found.intra) == (whole.inter, whole.intra)
    np.testing.assert_array_equal(found.counts, whole.counts)
    assert found.names[0] == "t00"


def test_extreme_lengths_do_not_matter(rng):
    X, types = rng.standard_normal((200, 4)), rng.integers(0, 20, 200)
    far = X * 10.0 ** rng.integers(-150, 150, 200)[:, None]
    assert TypeCosines.of(far, types).inter == pytest.approx(TypeCosines.of(X, types).inter, rel=1e-9)


def test_nonfinite_rows_are_skipped_and_zero_rows_have_no_direction(rng):
    X, types = rng.standard_normal((50, 4)), np.arange(50) % 5
    X[7], X[9, 2], types[7] = np.nan, np.inf, 99
    kept = np.delete(np.arange(50), [7, 9])
    found, alone = TypeCosines.of(X, types), TypeCosines.of(X[kept], types[kept])
    assert found.inter == alone.inter
    assert found.rows == 48
    assert 99 not in found.names
    X[kept[0]] = 0
    assert TypeCosines.of(X, types).counts[0] == found.counts[0]


def test_missing_comparisons_are_nan():
    assert math.isnan(TypeCosines.of(np.eye(4), np.zeros(4, np.int64)).inter)
    assert math.isnan(TypeCosines.of(np.eye(4), np.arange(4)).intra)


def test_types_of_mixed_dtype_raise_an_error():
    sums = TypeUnits(2)
    sums.add(np.eye(2), np.asarray([1, 2]))
    sums.add(np.eye(2), texts(["a", "b"]))
    with pytest.raises(InputError, match="both text and numbers"):
        sums.cosines()
