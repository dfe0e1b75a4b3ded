"""Find near-duplicates: rows that are closer to another row than the local density explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isoscope.auditing.nulls import discovery_threshold

CLOSE_SHARE = 0.03
"""Near-duplicates are closer than this share of the typical distance between two rows."""
DENSE_SHARE = 0.01
"""Neighbors within this share of the typical distance may all be near-duplicates; the density estimate ignores them."""
FALSE_DISCOVERY_RATE = 0.05
"""The expected share of false positives among the reported rows (Benjamini and Hochberg, 1995)."""

_DENSITY_NEIGHBORS = 10  # neighbors for the first estimate of the density near a row; the second uses all neighbors
_PAIRED_ROWS = 4_000  # rows from which the typical distance is estimated


@dataclass(frozen=True)
class NearDuplicates:
    """The near-duplicates among the query rows."""

    asked: int
    """The number of query rows."""
    rows: int
    """The number of query rows with a near-duplicate."""
    pairs: np.ndarray
    """The row numbers of each pair, closest pair first, with shape (p, 2)."""
    distances: np.ndarray
    """The distances of the pairs, as shares of the typical distance, with shape (p,)."""
    neighbors: int
    """The number of near-duplicates, summed over the query rows."""


def typical_distance(rows: np.ndarray, seed: int) -> float:
    """Return the median distance between two random rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(typical_distance(np.eye(8), seed=0), 3)
    1.414
    """
    order = np.random.default_rng(seed).permutation(len(rows))[:_PAIRED_ROWS]
    gaps = rows[order].astype(np.float64) - np.roll(rows[order], 1, axis=0)
    return float(np.median(np.linalg.norm(gaps, axis=1)))


def near_duplicates(
    asked: np.ndarray, distances: np.ndarray, indices: np.ndarray, *, typical: float, n: int, d: int
) -> NearDuplicates:
    """Find the near-duplicates of rows among their nearest neighbors; exact copies (distance 0) do not count.

    The null model is a smooth density. Let r_k be the distance from a row to its k-th neighbor, and m the local
    dimension. Each of the k−1 nearer neighbors then lies within a distance r with probability (r/r_k)^m. A pair counts
    if its distance is significantly small under this model, at a false discovery rate of 5% over all query rows, and
    below 3% of the typical distance.

    Parameters
    ----------
    asked : (q,) integers
        The row numbers of the queries.
    distances, indices : (q, k) arrays
        The distances and row numbers of the nearest rows to each query, nearest first.
    typical : float
        The typical distance between two rows.
    n, d : int
        The number of searched rows, and the number of dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope._core.pairs import nearest_neighbors
    >>> X = np.random.default_rng(0).standard_normal((200, 8))
    >>> X[7] = X[3] + 1e-4
    >>> found = near_duplicates(np.arange(200), *nearest_neighbors(X, 20), typical=typical_distance(X, 0), n=200, d=8)
    >>> found.rows, found.pairs.tolist()
    (2, [[3, 7]])
    """
    chances = pair_p_values(distances, typical, n, d)
    near = chances <= discovery_threshold(chances.min(axis=1), FALSE_DISCOVERY_RATE)
    row, place = np.nonzero(near)
    both = np.sort(np.column_stack([asked[row], indices[row, place]]), axis=1)
    pairs, first = np.unique(both, axis=0, return_index=True)
    shares = distances[row, place][first] / max(typical, 1e-300)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], shares))
    with_one = np.isin(asked, pairs)
    return NearDuplicates(len(asked), int(with_one.sum()), pairs[order], shares[order], len(row))


def pair_p_values(distances: np.ndarray, typical: float, n: int, d: int) -> np.ndarray:
    """Return the p-value of each pair of a row and a neighbor; 1 for exact copies and for distant pairs."""
    close = (distances > 0) & (distances <= CLOSE_SHARE * typical)
    some = np.asarray(close.any(axis=1))
    chances = np.ones(distances.shape)
    if some.any():
        chances[some] = np.where(close[some], _p_values(distances, some, typical, n, d), 1.0)
    return chances


def _p_values(distances: np.ndarray, asked: np.ndarray, typical: float, n: int, d: int) -> np.ndarray:
    """Return, for each distance of the `asked` rows, the probability that a row has a neighbor this close by chance.

    The density is estimated twice: from the ten nearest neighbors, which works inside small clusters, and from all
    neighbors, which outnumber a group of near-duplicates. If all neighbors of a row are very near, the density is
    unknown; all n rows are then assumed to lie within half of the typical distance.
    """
    k = distances.shape[1]
    scales = [_DENSITY_NEIGHBORS, k] if k >= 2 * _DENSITY_NEIGHBORS else [k]
    own = distances[asked]
    chances = np.ones(own.shape)
    unknown = np.ones(len(own), bool)
    middle = float(d)
    for scale in scales:
        inner, outer = distances[:, scale // 2 - 1], distances[:, scale - 1]
        known = inner > DENSE_SHARE * typical
        with np.errstate(divide="ignore", invalid="ignore"):
            dimension = np.minimum((1 / np.arange(scale // 2, scale)).sum() / np.log(outer / inner), d)
        middle = float(np.median(dimension[known])) if known.any() else float(d)
        dimension, outer, known = np.minimum(dimension[asked], middle), outer[asked], known[asked]
        likely = _probability_within(own[known] / outer[known, None], dimension[known, None], scale - 1)
        chances[known] = np.minimum(chances[known], len(scales) * likely)
        unknown &= ~known
    chances[unknown] = _probability_within(2 * own[unknown] / max(typical, 1e-300), middle, n - 1)
    return chances


def _probability_within(ratios: np.ndarray, dimension: np.ndarray | float, rows: int) -> np.ndarray:
    """Return the probability that at least one of several uniform points in a ball is this close to the center."""
    share = np.minimum(np.minimum(ratios, 1.0) ** dimension, 1 - 1e-16)
    return np.asarray(-np.expm1(rows * np.log1p(-share)))
