"""The overlap of nearest neighbors by cosine, inner product and Euclidean distance."""

from __future__ import annotations

import numpy as np

from isoscope._core.array_kernels import pair_kernels
from isoscope._core.arrays import blocks
from isoscope._core.pairs import scale_to_safe_range
from isoscope._core.threads import map_in_threads, run_all

METRICS = ("cosine", "inner_product", "euclidean")

_QUERIES = 128  # queries per thread, whose products with all rows are in memory at the same time
_ROWS = 1024  # rows per thread that are converted to float64 at the same time


def list_overlaps(rows: np.ndarray, asked: np.ndarray, k: int) -> dict[tuple[str, str], np.ndarray]:
    """Return, for each pair of metrics and each query row, the share of the k nearest rows found by both metrics.

    One matrix product ranks the rows by all three metrics: x·y by inner product, x·y/‖y‖ by cosine, x·y − ‖y‖²/2 by
    Euclidean distance. It is computed from centered rows in their own precision, so that a large common mean costs no
    digits; the rest is computed in float64.

    Parameters
    ----------
    rows : (n, d) array
        Nonzero rows.
    asked : (q,) integers
        Positions of the query rows; a row is not in its own list.
    k : int
        The length of each list; less than n.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.asarray([[1.0, 0.0], [0.9, 0.1], [9.0, 9.0]])
    >>> {pair: share.tolist() for pair, share in list_overlaps(X, np.asarray([0]), 1).items()}
    {('cosine', 'inner_product'): [0.0], ('cosine', 'euclidean'): [1.0], ('inner_product', 'euclidean'): [0.0]}
    """
    kernels = pair_kernels(len(rows))
    rows = scale_to_safe_range(rows)[0]
    mean = rows.mean(axis=0, dtype=np.float64)
    rows = rows - mean.astype(rows.dtype)
    mean = mean.astype(rows.dtype).astype(np.float64)
    squares, along = np.empty(len(rows)), np.empty(len(rows))
    shared = np.zeros((len(asked), 3))

    def describe(part: slice) -> None:
        wide = rows[part].astype(np.float64)
        squares[part], along[part] = np.einsum("ij,ij->i", wide, wide), wide @ mean

    def compare(part: slice) -> None:
        own = asked[part]
        products = rows[own] @ rows.T
        kernels.count_shared_neighbors(
            products, own, k, along[own] + mean @ mean, along, squares / 2, inverse_lengths, shared[part]
        )

    run_all(map_in_threads(describe, blocks(len(rows), _ROWS), len(rows) // _ROWS))
    inverse_lengths = 1 / np.sqrt(np.maximum(squares + 2 * along + mean @ mean, np.finfo(np.float64).tiny))
    run_all(map_in_threads(compare, blocks(len(asked), _QUERIES), len(asked) // _QUERIES))
    pairs = [(a, b) for i, a in enumerate(METRICS) for b in METRICS[i + 1 :]]
    return {pair: shared[:, at] / k for at, pair in enumerate(pairs)}
