"""Neighbors from shared products equal those that are found in each repaired space."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope import AllButTheTop, Center, Chain, ClusterCenter, ClusterNull, Standardize, Whiten, open_store
from isoscope.advising import labels as labels_module
from isoscope.advising.candidates import build_candidates
from isoscope.advising.labels import Labels
from isoscope.advising.retrieval import prepare, top_k
from isoscope.advising.shared_neighbors import find_shared_neighbors
from isoscope.advising.trials import try_candidates
from tests.advising.conftest import rows_of, silent, topics

SHARING = [
    Chain(),
    Center(),
    AllButTheTop(1),
    AllButTheTop(3),
    ClusterCenter(3, random_state=0),
    ClusterNull(2, 2, random_state=0),
    Standardize(),
    Chain([Standardize(), AllButTheTop(2)]),
    Whiten(),
    Whiten("pca", 9),
    Whiten("pca", 4),
]


def cloud(rng, dtype):
    """Return 700 rows (two blocks of products) with clusters, a mean, and coordinates of different scales."""
    X, _ = topics(rng, 700, 24, 5, 0.6)
    return ((X + 0.7) * np.linspace(0.5, 2, 24)).astype(dtype)


def find_neighbors(repair, X, metric):
    Z = prepare(repair.transform(X), metric)
    return top_k(Z, Z, 10, metric, exclude_self=True)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("dtype", "least"), [(np.float64, 1.0), (np.float32, 0.999)])
def test_neighbors_equal_those_of_each_repaired_space(rng, metric, dtype, least):
    X = cloud(rng, dtype)
    repairs = [repair.fit(X) for repair in SHARING]
    found = find_shared_neighbors(X, X.mean(axis=0, dtype=np.float64), repairs, 10, metric)
    assert sorted(found) == list(range(len(repairs)))
    for i, near in found.items():
        assert (near == find_neighbors(repairs[i], X, metric)).mean() >= least, repairs[i]


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_scale_does_not_matter(rng, scale):
    X = (cloud(rng, np.float64) * scale).astype(np.float32)
    repairs = [repair.fit(X.astype(np.float64)) for repair in SHARING[:4]]
    found = find_shared_neighbors(X, X.mean(axis=0, dtype=np.float64), repairs, 10, "cosine")
    assert len(found) == 4
    for i, near in found.items():
        assert (near == find_neighbors(repairs[i], X, "cosine")).mean() >= 0.999


def test_rows_of_zeros_stay_zero(rng):
    X = cloud(rng, np.float64)
    X[[3, 650]] = 0
    repairs = [repair.fit(X) for repair in SHARING]
    found = find_shared_neighbors(X, X.mean(axis=0), repairs, 10, "cosine")
    assert len(found) == len(repairs)
    for i, near in found.items():
        expected = find_neighbors(repairs[i], X, "cosine")
        np.testing.assert_array_equal(np.delete(near, [3, 650], axis=0), np.delete(expected, [3, 650], axis=0))
    assert find_shared_neighbors(X, X.mean(axis=0), repairs, 10, "euclidean") == {}


def test_repairs_that_would_lose_digits_do_not_share(rng):
    X = cloud(rng, np.float64)
    X -= X.mean(axis=0)
    X[:, 5] *= 1000
    repairs = [Chain().fit(X), Center().fit(X), AllButTheTop(1).fit(X)]
    assert sorted(find_shared_neighbors(X, X.mean(axis=0), repairs, 10, "cosine")) == [0, 1]


@pytest.mark.parametrize(
    "repairs",
    [
        [Chain()],
        [Chain(), ClusterNull(4, 3, random_state=0)],  # subtracts 16 directions of 24
        [Whiten(), Whiten(shrinkage=0.5)],
        [Standardize(), Chain([Standardize(), Whiten()])],
    ],
)
def test_repairs_without_common_products_do_not_share(rng, repairs):
    X = cloud(rng, np.float64)
    assert find_shared_neighbors(X, X.mean(axis=0), [repair.fit(X) for repair in repairs], 10, "cosine") == {}


def test_trials_use_the_shared_neighbors(rng, monkeypatch):
    X, of = topics(rng, 120, noise=0.8)
    task = Labels(rows_of(X), of, "cosine", 4, 0)
    candidates = build_candidates(8, 120, 0, [Center(), Whiten(), AllButTheTop(1)])
    searched = []

    def count(*arguments, **options):
        searched.append(arguments)
        return top_k(*arguments, **options)

    monkeypatch.setattr(labels_module, "top_k", count)
    try_candidates(task, open_store(X), candidates, 0, silent)
    assert len(searched) == 1  # only Whiten has no partner
