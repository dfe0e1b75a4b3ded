"""Which rows of a corpus are most alike to a query, and how alike two rows are, by cosine or by distance."""

from __future__ import annotations

import numpy as np

from isoscope.arrays import blocks, unit_rows
from isoscope.memory import tile_bytes

_TILE = 64 * 2**20  # bytes of similarities held at a time


def ready(X: np.ndarray, metric: str) -> np.ndarray:
    """Vectors as they are compared: of length 1 for cosines (0 stays 0)."""
    X = X if X.dtype.itemsize >= 4 else X.astype(np.float32)
    return np.asarray(unit_rows(np, X, X.dtype)) if metric == "cosine" else X


def likeness(A: np.ndarray, B: np.ndarray, metric: str) -> np.ndarray:
    """How alike each row of A is to the row of B beside it; both are `ready`."""
    if metric == "cosine":
        return np.asarray(np.einsum("ij,ij->i", A, B, dtype=np.float64))
    return np.asarray(-np.linalg.norm(A.astype(np.float64) - B, axis=1))


def most_alike(queries: np.ndarray, corpus: np.ndarray, k: int, metric: str, *, itself: bool = False) -> np.ndarray:
    """The k rows of the corpus most alike to each query, the most alike first; both are `ready`.

    With `itself` the queries are the corpus, and no row is among its own.
    """
    k = min(k, len(corpus) - itself)
    found = np.empty((len(queries), k), np.int64)
    lengths = None
    if metric == "euclidean":
        # −‖q − c‖² = 2q·c − ‖c‖² − ‖q‖², whose last term is the same for all of the corpus; centred and scaled first,
        # so that neither where the cloud is nor how large costs digits
        mean, unit = corpus.mean(axis=0, dtype=np.float64), float(np.abs(corpus).max()) or 1.0
        queries, corpus = (((X - mean) / unit).astype(corpus.dtype) for X in (queries, corpus))
        lengths = np.einsum("ij,ij->i", corpus, corpus) / 2
    for part in blocks(len(queries), max(1, tile_bytes(_TILE) // (corpus.itemsize * len(corpus)))):
        alike = queries[part] @ corpus.T
        if lengths is not None:
            alike -= lengths
        if itself:
            alike[np.arange(len(alike)), np.arange(part.start, part.start + len(alike))] = -np.inf
        best = np.argpartition(-alike, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(alike, best, axis=1), axis=1, kind="stable")
        found[part] = np.take_along_axis(best, order, axis=1)
    return found
