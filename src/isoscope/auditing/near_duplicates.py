"""Rows that nearly repeat another row: closer than the data's own neighborhoods explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CLOSE_SHARE = 0.03
"""Near-duplicates are closer than this share of the typical distance between two rows."""
DENSE_SHARE = 0.01
"""Within this share of the typical distance, neighbors may all be near-duplicates and say nothing of the density."""
FALSE_DISCOVERY_RATE = 0.05
"""The share of the reported rows that chance may contribute (Benjamini and Hochberg, 1995)."""

_DENSITY_NEIGHBORS = 10  # neighbors that show the density next to a row; all neighbors are tried as well
_PAIRED_ROWS = 4_000  # rows whose distances give the typical one


@dataclass(frozen=True)
class NearDuplicates:
    """The pairs of near-duplicates that some rows belong to."""

    asked: int
    """How many rows looked for neighbors."""
    rows: int
    """How many of them have a near-duplicate."""
    pairs: np.ndarray
    """(p, 2): the row numbers of each different pair, closest pair first."""
    distances: np.ndarray
    """(p,): their distances, as shares of the typical distance."""
    neighbors: int
    """The near-duplicates of each asking row, summed over these rows."""


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
    """Return the near-duplicates among the nearest neighbors of some rows; exact copies (distance 0) do not count.

    Where the density is smooth, the k−1 rows inside the k-th distance r_k of a row lie within r of it with probability
    (r/r_k)^m each, m being the local dimension. A pair counts if this makes its distance too small for chance at a
    false discovery rate of 5% over all asking rows, and if it is below 3% of the typical distance.

    Parameters
    ----------
    asked : (q,) integers
        The numbers of the rows that look for neighbors.
    distances, indices : (q, k) arrays
        The distances and row numbers of their nearest rows, nearest first.
    typical : float
        The typical distance between two rows.
    n, d : int
        The number of rows that were searched, and of their dimensions.

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
    chances = _p_values(distances, typical, n, d)
    chances[(distances <= 0) | (distances > CLOSE_SHARE * typical)] = 1.0
    best = np.sort(chances.min(axis=1))
    allowed = FALSE_DISCOVERY_RATE * np.arange(1, len(best) + 1) / len(best)
    near = chances <= allowed[best <= allowed].max(initial=-1.0)
    row, place = np.nonzero(near)
    both = np.sort(np.column_stack([asked[row], indices[row, place]]), axis=1)
    pairs, first = np.unique(both, axis=0, return_index=True)
    shares = distances[row, place][first] / max(typical, 1e-300)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], shares))
    with_one = np.isin(asked, pairs)
    return NearDuplicates(len(asked), int(with_one.sum()), pairs[order], shares[order], len(row))


def _p_values(distances: np.ndarray, typical: float, n: int, d: int) -> np.ndarray:
    """Return for each distance how likely a row would have a neighbor so near by chance.

    The density is read off the ten nearest neighbors, which a small cluster has too, and off all of them, which
    outnumber a group of near-duplicates. A row whose neighbors are all very near has no density to compare with: all n
    rows are then taken to lie within half of the typical distance.
    """
    k = distances.shape[1]
    scales = [_DENSITY_NEIGHBORS, k] if k >= 2 * _DENSITY_NEIGHBORS else [k]
    chances = np.ones(distances.shape)
    unknown = np.ones(len(distances), bool)
    middle = float(d)
    for scale in scales:
        inner, outer = distances[:, scale // 2 - 1], distances[:, scale - 1]
        known = inner > DENSE_SHARE * typical
        with np.errstate(divide="ignore", invalid="ignore"):
            dimension = np.minimum((1 / np.arange(scale // 2, scale)).sum() / np.log(outer / inner), d)
        middle = float(np.median(dimension[known])) if known.any() else float(d)
        dimension = np.minimum(dimension[known], middle)
        likely = _probability_within(distances[known] / outer[known, None], dimension[:, None], scale - 1)
        chances[known] = np.minimum(chances[known], len(scales) * likely)
        unknown &= ~known
    chances[unknown] = _probability_within(2 * distances[unknown] / max(typical, 1e-300), middle, n - 1)
    return chances


def _probability_within(ratios: np.ndarray, dimension: np.ndarray | float, rows: int) -> np.ndarray:
    """Return the chance that one of some rows, spread evenly over a ball, is within a share of its radius."""
    share = np.minimum(np.minimum(ratios, 1.0) ** dimension, 1 - 1e-16)
    return np.asarray(-np.expm1(rows * np.log1p(-share)))
