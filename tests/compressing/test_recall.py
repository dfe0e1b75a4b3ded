"""Recall: equal to the recall of decoded vectors by brute force; ties, duplicates, the whole source."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope._io.progress import ignore_progress
from isoscope.compressing.candidates import Candidate
from isoscope.compressing.confirmation import SearchTally, confirm
from isoscope.compressing.recall import NeighborRecall, count_queries, expected_hits
from isoscope.engines.engine import LocalEngine
from isoscope.errors import TooFewRowsError
from isoscope.stores.open import open_store

PREPROCESS = [None, "center", "rotate", "whiten"]


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_normal((400, 16)) * np.linspace(2, 0.3, 16) + 0.4).astype(np.float32)


def brute_recall(task: NeighborRecall, quantizer: isoscope.Quantizer, depth: int = 10) -> np.ndarray:
    """The recall of decoded vectors, in float64 and with sorted lists."""
    rows, queries = np.vstack([task.corpus.rows, task.queries]).astype(np.float64), task.queries.astype(np.float64)
    decoded = quantizer.transform(rows)
    asked = quantizer.transform(queries) if quantizer.compares_bits else queries

    def nearest(a: np.ndarray, b: np.ndarray, k: int) -> np.ndarray:
        if task.metric == "cosine":
            similarity = a @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T
        else:
            similarity = -((a[:, None] - b[None]) ** 2).sum(axis=2)
        similarity[np.arange(len(a)), len(b) - len(a) + np.arange(len(a))] = -np.inf
        return np.argsort(-similarity, axis=1)[:, :k]

    exact, found = nearest(queries, rows, 10), nearest(asked, decoded, depth)
    return np.array([len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]) / 10


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("preprocess", PREPROCESS)
@pytest.mark.parametrize(("reduction", "width"), [("first", None), ("first", 9), ("pca", 9)])
def test_recall_is_that_of_decoded_vectors(reduction, width, preprocess, metric, X):
    task = NeighborRecall(X, np.arange(len(X)), metric, 0)
    quantizer = isoscope.Quantizer(
        "int4", n_components=width, reduction=reduction, preprocess=preprocess, metric=metric
    ).fit_geometry(task.corpus)
    found = task.open_search(quantizer).recall([10], 0, len(task))[0]
    expected = brute_recall(task, quantizer)
    assert 0.2 < expected.mean() < 1
    np.testing.assert_allclose(found.mean(), expected.mean(), atol=0.005)  # rounding may swap rows that are as near
    assert (np.abs(found - expected) < 1e-9).mean() > 0.95


@pytest.mark.parametrize("preprocess", PREPROCESS)
def test_recall_of_bits_is_that_of_hamming_distance(preprocess, X):
    task = NeighborRecall(X, np.arange(len(X)), "cosine", 0)
    quantizer = isoscope.Quantizer("bit", preprocess=preprocess).fit_geometry(task.corpus)
    few, many = task.open_search(quantizer).recall([10, 40], 0, len(task))
    assert (many >= few - 1e-9).all()
    # ties are broken at random here and in expectation there: 80 queries, so the means differ by less than 0.05
    assert abs(few.mean() - brute_recall(task, quantizer).mean()) < 0.05


def test_exact_codes_have_recall_one(X):
    task = NeighborRecall(X, np.arange(len(X)), "cosine", 0)
    quantizer = isoscope.Quantizer("float32", preprocess="rotate").fit_geometry(task.corpus)
    assert task.open_search(quantizer).recall([10], 0, len(task)).mean() > 0.999


def test_equal_rows_stand_for_each_other(rng):
    X = np.repeat(rng.standard_normal((40, 8)).astype(np.float32), 20, axis=0)
    task = NeighborRecall(X, np.arange(len(X)), "cosine", 0)
    quantizer = isoscope.Quantizer("int8").fit_geometry(task.corpus)
    assert task.open_search(quantizer).recall([10], 0, len(task)).min() > 1 - 1e-9
    assert len(task.units) <= 40


def test_quantizers_do_not_learn_from_queries(X):
    task = NeighborRecall(X, np.arange(len(X)), "euclidean", 3)
    assert len(task) == 80
    assert len(task.corpus.rows) == 320
    assert not (task.queries[:, None] == task.corpus.rows[None]).all(axis=2).any()


def test_tied_rows_count_with_their_probability():
    similarity = np.array([[3.0, 2.0, 2.0, 2.0, 1.0]])
    own, near = np.zeros(2, int), np.array([0, 1])
    assert expected_hits(similarity, own, near, 2).tolist() == [1 + 1 / 3]
    assert expected_hits(similarity, own, near, 4).tolist() == [2]


def test_few_rows_are_rejected():
    with pytest.raises(TooFewRowsError, match="99"):
        NeighborRecall(np.ones((99, 4), np.float32), np.arange(99), "cosine", 0)
    assert count_queries(100) == 20


# the whole source


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_recall_on_the_whole_source_is_that_on_all_rows(metric, X):
    """If the sample is the source, both searches see the same rows."""
    task = NeighborRecall(X, np.arange(len(X)), metric, 0)
    quantizers = [
        isoscope.Quantizer("int4", preprocess=preprocess, metric=metric).fit_geometry(task.corpus)
        for preprocess in PREPROCESS
    ]
    candidates = [Candidate(str(i), quantizer, 8) for i, quantizer in enumerate(quantizers)]
    found = confirm(task, candidates, quantizers, open_store(X), LocalEngine(), ignore_progress)
    for quantizer, recall in zip(quantizers, found, strict=True):
        expected = task.open_search(quantizer).recall([10], 0, len(task))[0]
        assert (np.abs(recall - expected) < 1e-9).mean() > 0.95


def test_parts_of_a_source_are_joined(X):
    task = NeighborRecall(X, np.arange(len(X)), "cosine", 0)
    quantizer = isoscope.Quantizer("int4").fit_geometry(task.corpus)
    candidates = [Candidate("a", quantizer, 8), Candidate("b", quantizer, 8, oversampling=4)]
    tallies = [SearchTally(task, candidates, [quantizer, quantizer]) for _ in range(3)]
    batches = list(open_store(X).batches(rows=70))
    tallies[0].add_batches(batches)
    tallies[1].add_batches(batches[:3])
    tallies[2].add_batches(batches[3:])
    tallies[1].join(tallies[2].partial_result())
    for a, b in zip(tallies[0].recalls(), tallies[1].recalls(), strict=True):
        assert np.array_equal(a, b)
