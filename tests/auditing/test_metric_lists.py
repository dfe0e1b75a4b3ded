"""Top-k lists of three metrics from one product equal those of separate searches."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances

from isoscope.auditing.metric_lists import list_overlaps


def brute(X, k):
    """Each row's k nearest by each metric, from whole tables of distances."""
    tables = {
        "cosine": pairwise_distances(X, metric="cosine"),
        "inner_product": -X @ X.T,
        "euclidean": pairwise_distances(X),
    }
    for table in tables.values():
        np.fill_diagonal(table, np.inf)
    return {name: [set(row) for row in np.argsort(table, axis=1)[:, :k].tolist()] for name, table in tables.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1, 1e-30, 1e15])
def test_overlaps_match_brute_force(dtype, scale, rng):
    X = rng.standard_normal((150, 6)) + 0.7
    lists = brute(X, 10)
    asked = rng.permutation(150)[:100]
    for (a, b), shares in list_overlaps((scale * X).astype(dtype), asked, 10).items():
        expected = [len(lists[a][row] & lists[b][row]) / 10 for row in asked]
        np.testing.assert_allclose(shares, expected)


def test_rows_of_equal_length_have_identical_neighbor_lists(rng):
    X = rng.standard_normal((300, 12))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    assert {share for shares in list_overlaps(X, np.arange(300), 10).values() for share in shares.tolist()} == {1.0}


@pytest.mark.parametrize("shift", [30, 300])
def test_a_large_mean_does_not_change_float32_lists(shift, rng):
    X = (rng.standard_normal((400, 24)) + shift).astype("float32")
    lists = brute(X.astype("float64"), 10)
    for (a, b), shares in list_overlaps(X, np.arange(400), 10).items():
        expected = [len(lists[a][row] & lists[b][row]) / 10 for row in range(400)]
        assert np.abs(shares - expected).mean() < 0.001
