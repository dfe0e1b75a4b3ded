"""Counts of the cosines of all pairs, compared with cosines computed one by one in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from isoscope._core.cosine_histogram import GRID, CosineCounter
from isoscope._core.pairs import nearest_neighbors


def histogram(units):
    """Return the histogram that a search for neighbors fills."""
    counter = CosineCounter()
    nearest_neighbors(units, 1, cosines=counter)
    return counter.histogram()


def unit_vectors(rng, n, spread, dtype=np.float64):
    X = rng.standard_normal((n, 24)) * spread + 1
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)


def exact_cosines(units):
    return 1 - pdist(units.astype(np.float64), "sqeuclidean") / 2


@pytest.mark.parametrize("n", [2, 3, 95, 97, 639, 640, 641, 1400])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_pair_is_counted_once_in_its_bin(rng, n, dtype):
    units = unit_vectors(rng, n, 1, dtype)
    found = histogram(units)
    expected, _ = np.histogram(exact_cosines(units), found.edges)
    assert found.counts.sum() == n * (n - 1) // 2
    moved = np.abs(np.cumsum(found.counts) - np.cumsum(expected)).max()
    assert moved <= (1 if dtype == np.float64 else 1 + 1e-4 * n**2)  # rounding moves a pair across an edge


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [1, 0.03, 0.003, 1e-3])
def test_quantiles_are_exact_to_four_digits_in_narrow_spaces(rng, spread, dtype):
    units = unit_vectors(rng, 1200, spread, dtype)
    cosines = exact_cosines(units)
    for share in (0.01, 0.1, 0.4974, 0.5444, 0.9, 0.99):
        found = histogram(units).quantiles(np.asarray([share]))[0]
        assert (cosines < found).mean() == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairs_below_the_cosines_of_the_grid_are_counted_exactly(rng, dtype):
    units = unit_vectors(rng, 700, 0.6, dtype)
    cosines = exact_cosines(units)
    expected = (cosines[None] < GRID[:, None]).mean(axis=1)
    rounding = 0 if dtype == np.float64 else 8 * np.finfo(dtype).eps  # it may move a pair across a cosine of the grid
    at_most = (np.abs(cosines[None] - GRID[:, None]) < rounding).mean(axis=1)
    assert at_most.max() * len(cosines) < 30
    assert (np.abs(histogram(units).grid_shares - expected) <= at_most + 1e-12).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_cosines_are_not_below_each_other(dtype):
    units = np.repeat(np.eye(60, dtype=dtype), 3, axis=0)  # cosines 0 and 1 only
    shares = dict(zip(GRID.tolist(), histogram(units).grid_shares.tolist(), strict=True))
    orthogonal = 1 - 60 * 3 / (180 * 179 / 2)
    assert shares[0.0] == shares[-1.0] == 0
    assert shares[0.01] == shares[0.99] == shares[1.0] == pytest.approx(orthogonal)


def test_parallel_and_opposite_vectors_are_in_the_last_and_first_bin(rng):
    ray = rng.standard_normal(7).astype(np.float32)
    units = np.outer(np.where(np.arange(90) < 30, 1, -1), ray / np.linalg.norm(ray)).astype(np.float32)
    found = histogram(units).counts
    assert found[-1] == 30 * 29 // 2 + 60 * 59 // 2
    assert found[:8].sum() == 30 * 60  # within rounding of −1
    assert found[8:-1].sum() == 0
