"""The overlap of nearest neighbors by cosine, inner product and Euclidean distance."""

from __future__ import annotations

import numpy as np

from isoscope._core.arrays import blocks, tiles

METRICS = ("cosine", "inner_product", "euclidean")

_BLOCK = 64  # queries whose products with all rows are in memory at the same time


def list_overlaps(rows: np.ndarray, asked: np.ndarray, k: int) -> dict[tuple[str, str], np.ndarray]:
    """Return, for each pair of metrics and each query row, the share of the k nearest rows found by both metrics.

    One matrix product ranks the rows by all three metrics: x·y by inner product, x·y/‖y‖ by cosine, x·y − ‖y‖²/2 by
    Euclidean distance.

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
    unit = float(max(rows.max(), -rows.min()))  # squares neither overflow nor underflow

    def scaled(part: slice | np.ndarray) -> np.ndarray:
        return np.asarray(rows[part], np.float64) / unit

    lengths = np.concatenate([np.linalg.norm(scaled(part), axis=1) for part in tiles(rows)])
    pairs = [(a, b) for i, a in enumerate(METRICS) for b in METRICS[i + 1 :]]
    shares: dict[tuple[str, str], list[np.ndarray]] = {pair: [] for pair in pairs}
    for part in blocks(len(asked), _BLOCK):
        own = asked[part]
        queries = scaled(own)
        products = np.concatenate([queries @ scaled(part).T for part in tiles(rows)], axis=1)
        scores = {"cosine": products / lengths, "inner_product": products, "euclidean": products - lengths**2 / 2}
        lists = {}
        for metric, score in scores.items():
            score[np.arange(len(own)), own] = -np.inf
            lists[metric] = np.argpartition(-score, k - 1, axis=1)[:, :k]
        for a, b in pairs:
            shares[a, b].append((lists[a][:, :, None] == lists[b][:, None, :]).sum(axis=(1, 2)) / k)
    return {pair: np.concatenate(each) for pair, each in shares.items()}
