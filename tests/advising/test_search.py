"""Exact search agrees with all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope._core import pairs, threads
from isoscope.advising.retrieval import prepare, similarity, top_k
from tests.conftest import rotation

METRICS = ["cosine", "euclidean"]


def all_pairs(A, B, metric):
    A, B = A.astype(np.float64), B.astype(np.float64)
    if metric == "cosine":
        return (A @ B.T) / np.linalg.norm(A, axis=1)[:, None] / np.linalg.norm(B, axis=1)
    return -np.linalg.norm(A[:, None] - B[None], axis=2)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("itself", [False, True])
def test_search_agrees_with_all_pairs(rng, metric, itself, monkeypatch):
    monkeypatch.setattr(pairs, "_BLOCK", 7)
    B = rng.standard_normal((40, 6))
    A = B if itself else rng.standard_normal((15, 6))
    near = all_pairs(A, B, metric)
    if itself:
        np.fill_diagonal(near, -np.inf)
    found = top_k(prepare(A, metric), prepare(B, metric), 5, metric, exclude_self=itself)
    np.testing.assert_array_equal(found, np.argsort(-near, axis=1)[:, :5])


@pytest.mark.parametrize("metric", METRICS)
def test_rotation_does_not_matter(rng, metric):
    A, B, turn = rng.standard_normal((15, 6)), rng.standard_normal((40, 6)), rotation(6, rng)
    found = [top_k(prepare(X, metric), prepare(Y, metric), 5, metric) for X, Y in ((A, B), (A @ turn, B @ turn))]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("metric", METRICS)
def test_duplicates_have_maximal_similarity(rng, metric):
    B = np.repeat(rng.standard_normal((10, 6)), 3, axis=0)
    found = top_k(prepare(B, metric), prepare(B, metric), 2, metric, exclude_self=True)
    twins = [sorted({3 * (i // 3), 3 * (i // 3) + 1, 3 * (i // 3) + 2} - {i}) for i in range(30)]
    assert [sorted(row) for row in found.tolist()] == twins


def test_k_above_the_row_count_returns_all_rows(rng):
    X = rng.standard_normal((4, 3))
    assert top_k(X, X, 9, "euclidean").shape == (4, 4)
    assert top_k(X, X, 9, "euclidean", exclude_self=True).shape == (4, 3)


@pytest.mark.parametrize("metric", METRICS)
def test_similarity_equals_the_diagonal_of_all_pairs(rng, metric):
    A, B = rng.standard_normal((2, 20, 5))
    np.testing.assert_allclose(
        similarity(prepare(A, metric), prepare(B, metric), metric), np.diag(all_pairs(A, B, metric)), atol=1e-12
    )


def test_a_zero_vector_has_similarity_zero():
    A = prepare(np.asarray([[0.0, 0.0], [3.0, 4.0]]), "cosine")
    assert A.tolist() == [[0, 0], [0.6, 0.8]]
    assert similarity(A[:1], A[1:], "cosine") == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_precision_is_kept_and_half_becomes_single(dtype):
    assert prepare(np.ones((2, 3), dtype), "cosine").dtype == (np.float64 if dtype == np.float64 else np.float32)


def test_translation_does_not_matter_for_distances(rng):
    X = rng.standard_normal((200, 8)).astype(np.float32) + np.float32(3000)
    near = all_pairs(X, X, "euclidean")
    np.fill_diagonal(near, -np.inf)
    found = top_k(X, X, 5, "euclidean", exclude_self=True)
    agree = np.mean([len(set(a) & set(b)) for a, b in zip(found, np.argsort(-near, axis=1)[:, :5], strict=True)]) / 5
    assert agree > 0.99


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_scale_does_not_matter_for_distances(rng):
    X = rng.standard_normal((40, 6)).astype(np.float32)
    np.testing.assert_array_equal(
        top_k(X, X, 5, "euclidean", exclude_self=True),
        top_k(X * np.float32(2.0**100), X * np.float32(2.0**100), 5, "euclidean", exclude_self=True),
    )


@pytest.mark.parametrize("itself", [False, True])
def test_ties_are_ordered_by_index(rng, monkeypatch, itself):
    monkeypatch.setattr(pairs, "_BLOCK", 7)
    found = top_k(np.ones((40, 3)), np.ones((40, 3)), 4, "cosine", exclude_self=itself)
    expected = [[j for j in range(6) if j != i or not itself][:4] for i in range(40)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", METRICS)
def test_threads_do_not_change_the_result(rng, monkeypatch, metric):
    X = prepare(rng.standard_normal((300, 8)).astype(np.float32).round(1), metric)
    monkeypatch.setattr(pairs, "_BLOCK", 33)
    found = []
    for workers in (1, 4):
        monkeypatch.setattr(threads, "thread_count", lambda workers=workers: workers)
        monkeypatch.setattr(pairs, "thread_count", lambda workers=workers: workers)
        found.append([top_k(X, X, 9, metric, exclude_self=True), top_k(X[:50], X, 20, metric)])
    for alone, together in zip(*found, strict=True):
        np.testing.assert_array_equal(alone, together)
