"""Near-duplicates: planted pairs are found, ordinary data have none, and the numbers are those of the pairs."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope._core.pairs import nearest_neighbors
from isoscope.auditing.measure import count_lid_neighbors
from isoscope.auditing.near_duplicates import CLOSE_SHARE, near_duplicates, typical_distance

KINDS = ["gaussian", "power", "cone", "clusters"]


def cloud(kind, n, d, seed):
    rng = np.random.default_rng([seed, n, d])
    X = rng.standard_normal((n, d))
    if kind == "power":
        return X * np.arange(1, d + 1) ** -0.75
    if kind == "cone":
        return X + 2
    return X + 6 * rng.standard_normal((20, d))[rng.integers(20, size=n)] if kind == "clusters" else X


def search(X):
    n, d = X.shape
    distances, indices = nearest_neighbors(X, count_lid_neighbors(n))
    return near_duplicates(np.arange(n), distances, indices, typical=typical_distance(X, 0), n=n, d=d)


def planted(X, noise, seed=1):
    """X with a fifth of its rows replaced by noisy copies of another fifth, and the pairs."""
    rng = np.random.default_rng(seed)
    at, k = rng.permutation(len(X)), len(X) // 5
    sources, copies = at[:k], at[k : 2 * k]
    direction = rng.standard_normal((k, X.shape[1]))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    X = X.copy()
    X[copies] = X[sources] + noise * np.linalg.norm(X[sources], axis=1, keepdims=True) * direction
    return X, np.sort(np.column_stack([sources, copies]), axis=1)


# planted pairs


@pytest.mark.parametrize("noise", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("kind", KINDS)
def test_only_noisy_copies_are_found(kind, noise):
    X, pairs = planted(cloud(kind, 400, 32, 0), noise)
    found = search(X)
    assert {tuple(pair) for pair in found.pairs.tolist()} == {tuple(pair) for pair in pairs.tolist()}
    assert (found.rows, found.neighbors) == (160, 160)
    gaps = np.linalg.norm(X[found.pairs[:, 0]] - X[found.pairs[:, 1]], axis=1)
    np.testing.assert_allclose(found.distances, gaps / typical_distance(X, 0), rtol=1e-6)
    assert (np.diff(found.distances) >= 0).all()


def test_scale_and_translation_do_not_matter():
    X, _ = planted(cloud("gaussian", 300, 16, 0), 1e-3)
    found = search(X)
    for other in (1e-6 * X, 1e6 * X, X + 5):
        np.testing.assert_array_equal(np.unique(search(other).pairs, axis=0), np.unique(found.pairs, axis=0))


@pytest.mark.parametrize("copies", [4, 12, 60])
def test_groups_of_noisy_copies_that_fill_the_neighbor_list_are_found(copies):
    X = cloud("gaussian", 400, 32, 0)
    X[:copies] = X[0] + 1e-4 * X[:copies]
    found = search(X)
    assert found.rows == copies
    assert len(found.pairs) >= copies * min(copies - 1, count_lid_neighbors(400)) / 2


def test_exact_copies_do_not_count():
    X = cloud("gaussian", 300, 16, 0)
    X[:60] = X[60:120]
    assert (search(X).rows, len(search(X).pairs)) == (0, 0)


def test_the_distance_must_be_a_small_share_of_the_typical_one():
    X = cloud("gaussian", 400, 64, 0)
    for factor, expected in [(0.98, 2), (1.02, 0)]:
        Y = X.copy()
        Y[1] = Y[0]
        Y[1, 0] += factor * CLOSE_SHARE * typical_distance(X, 0)
        assert search(Y).rows == expected
    assert CLOSE_SHARE == 0.03


# ordinary data


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_data_have_near_duplicates_in_at_most_5_percent(kind):
    # low dimensions bring rows near each other by chance; of 150 clouds 7.5 may be false alarms, plus 3 deviations
    alarms = sum(search(cloud(kind, 150, d, seed)).rows > 0 for d in (2, 3, 16) for seed in range(50))
    assert alarms <= 15


def test_points_on_a_thin_curve_are_not_near_duplicates():
    rng = np.random.default_rng(0)
    line = rng.uniform(size=(600, 1)) @ rng.standard_normal((1, 20))
    assert search(line).rows / 600 < 0.01


# thresholds


def table(rows, inner, outer):
    """Distances of some rows to 10 neighbors: five at `inner`, the others at `outer`."""
    return np.repeat([[inner] * 5 + [outer] * 5], rows, axis=0), np.tile(np.arange(10), (rows, 1))


@pytest.mark.parametrize(("factor", "expected"), [(0.99, True), (1.01, False)])
def test_false_discovery_rate_is_at_most_one_in_twenty(factor, expected):
    distances, indices = table(100, 0.9, 1.0)
    wanted = factor * 0.05 / 100  # of 100 rows the smallest chance passes below this
    distances[7, 0] = (1 - (1 - wanted) ** (1 / 9)) ** (1 / 4)
    found = near_duplicates(np.arange(100) + 100, distances, indices, typical=10.0, n=1000, d=4)
    assert (len(found.pairs) == 1) is expected


@pytest.mark.parametrize(("inner", "expected"), [(0.0099, True), (0.0101, False)])
def test_very_close_neighbors_are_not_used_for_density(inner, expected):
    distances, indices = table(100, 0.9, 1.0)
    distances[7] = [0.001, *[inner] * 4, *[10 * inner] * 5]  # spread as if it had a third of a dimension
    found = near_duplicates(np.arange(100) + 100, distances, indices, typical=1.0, n=1000, d=8)
    assert (len(found.pairs) > 0) is expected
