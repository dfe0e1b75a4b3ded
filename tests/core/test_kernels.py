"""Compiled loops that no other test calls directly."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope._core.kernels import (
    add_cluster_distances,
    products_to_squared_distances,
    squared_distance,
)
from tests.conftest import DTYPES, tolerance


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [1, 3, 8, 67, 4096])
def test_squared_distance_is_the_sum_of_squared_differences(rng, d, dtype):
    a = (rng.standard_normal(d) + 1e4).astype(dtype)
    b = a + rng.standard_normal(d).astype(dtype)
    exact = ((a.astype(float) - b.astype(float)) ** 2).sum()
    assert squared_distance(a, b) == pytest.approx(exact, rel=tolerance(dtype))
    assert squared_distance(a, a) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_close_pair_is_computed_from_the_difference(rng, dtype):
    left = (rng.standard_normal((5, 6)) + 50).astype(dtype)
    right = np.concatenate([left[:2] + np.asarray(1e-3, dtype), rng.standard_normal((3, 6)).astype(dtype), left[4:]])
    exact = ((left[:, None].astype(float) - right[None].astype(float)) ** 2).sum(axis=2)
    tile = left @ right.T
    near = 8 * float(np.sqrt(np.finfo(dtype).eps))
    products_to_squared_distances(tile, left, right, (left**2).sum(axis=1), (right**2).sum(axis=1), near)
    np.testing.assert_allclose(tile, exact, rtol=tolerance(dtype))


def test_tile_adds_distances_to_clusters_of_rows_and_columns(rng):
    squared = rng.random((5, 7))
    rows, columns = np.array([0, 2, 5]), np.array([0, 1, 4, 7])
    by_row, by_column = np.ones((5, 3)), np.ones((2, 7))
    root = np.sqrt(squared)
    add_cluster_distances(squared, rows, columns, by_row, by_column)
    np.testing.assert_allclose(by_row, 1 + np.add.reduceat(root, columns[:-1], axis=1))
    np.testing.assert_allclose(by_column, 1 + np.add.reduceat(root, rows[:-1], axis=0))
