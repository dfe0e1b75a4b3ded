"""Exact nearest rows and similarities, by cosine or by Euclidean distance."""

from __future__ import annotations

import numpy as np

from isoscope._core.arrays import blocks, unit_rows
from isoscope._core.memory import tile_bytes

_TILE = 64 * 2**20  # bytes of similarities in memory at a time


def prepare(X: np.ndarray, metric: str) -> np.ndarray:
    """Return X ready to be compared: rows of unit length for cosine (zero rows stay zero)."""
    X = X if X.dtype.itemsize >= 4 else X.astype(np.float32)
    return np.asarray(unit_rows(np, X, X.dtype)) if metric == "cosine" else X


def similarity(A: np.ndarray, B: np.ndarray, metric: str) -> np.ndarray:
    """Return the similarity of each row of A to the same row of B; both come from `prepare`."""
    if metric == "cosine":
        return np.asarray(np.einsum("ij,ij->i", A, B, dtype=np.float64))
    return np.asarray(-np.linalg.norm(A.astype(np.float64) - B, axis=1))


def top_k(queries: np.ndarray, corpus: np.ndarray, k: int, metric: str, *, exclude_self: bool = False) -> np.ndarray:
    """Return the k rows of the corpus most similar to each query, best first; both come from `prepare`.

    With `exclude_self` the queries are the corpus, and no row is among its own results.
    """
    k = min(k, len(corpus) - exclude_self)
    found = np.empty((len(queries), k), np.int64)
    half_squares = None
    if metric == "euclidean":
        # −‖q − c‖² = 2q·c − ‖c‖² − ‖q‖², and the last term is the same for the whole corpus. Centering and scaling
        # first keeps the digits when the vectors lie far from the origin or are very large.
        mean, unit = corpus.mean(axis=0, dtype=np.float64), float(np.abs(corpus).max()) or 1.0
        queries, corpus = (((X - mean) / unit).astype(corpus.dtype) for X in (queries, corpus))
        half_squares = np.einsum("ij,ij->i", corpus, corpus) / 2
    for part in blocks(len(queries), max(1, tile_bytes(_TILE) // (corpus.itemsize * len(corpus)))):
        scores = queries[part] @ corpus.T
        if half_squares is not None:
            scores -= half_squares
        if exclude_self:
            scores[np.arange(len(scores)), np.arange(part.start, part.start + len(scores))] = -np.inf
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        found[part] = np.take_along_axis(best, order, axis=1)
    return found
