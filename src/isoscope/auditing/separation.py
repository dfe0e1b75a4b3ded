"""Find the direction along which rows fall into two parts with a gap between them.

The gap is the distance from the 99th percentile of the lower part to the 1st percentile of the upper one, relative to
the distance of their means. It is 1 for two points and about 0 for rows without a gap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_COMPONENTS, _POWER_STEPS = 48, 3  # leading principal components in which a gap is searched
_ROWS_PER_COMPONENT = 8
_STARTS, _PURSUIT_STEPS, _CUT_STEPS = 48, 12, 8
_FOLDS = 5
_RIDGE = 0.02  # penalty of the separating direction, relative to the mean variance
_TRIMMED = 0.01  # the share of the rows on each side that a gap ignores


class Separation(NamedTuple):
    """Two parts of a set of rows, and the gap between them."""

    gap: float
    """The gap on the rows that the parts were found with."""
    smaller: np.ndarray
    """Whether each row belongs to the smaller part."""


def separate_rows(rows: np.ndarray, least: int, rng: np.random.Generator) -> Separation:
    """Return the two parts with the largest gap that was found; each has at least `least` rows.

    The directions start from the fixed points of skewness and kurtosis, which two separate parts make extreme, and from
    the principal components. Then they follow the difference of the means of their two parts.
    """
    scores = _whitened_components(rows, rng)
    n, r = scores.shape
    directions = _unit_columns(rng.standard_normal((r, _STARTS)))
    by_kurtosis = np.arange(_STARTS) < _STARTS // 2
    for _ in range(_PURSUIT_STEPS):
        projected = scores @ directions
        squares = projected * projected
        powers = np.where(by_kurtosis, squares * projected, squares)  # NumPy's ** 3 is many times slower
        directions = _unit_columns(scores.T @ powers / n - np.where(by_kurtosis, 3 * directions, 0))
    directions = np.concatenate([directions, np.eye(r)[:, : _STARTS // 3]], axis=1)
    best, parts = -np.inf, np.zeros(n, bool)
    for _ in range(_CUT_STEPS):
        gaps, above = _cut(scores @ directions, least)
        at = int(np.argmax(gaps))
        if gaps[at] > best:
            best, parts = float(gaps[at]), above[:, at].copy()
        share = above.astype(np.float64)
        counts = share.sum(axis=0)
        means = [scores.T @ part / np.maximum(size, 1) for part, size in ((share, counts), (1 - share, n - counts))]
        directions = _unit_columns(means[0] - means[1])  # a part is empty if all scores are equal
    return Separation(best, parts if 2 * parts.sum() <= n else ~parts)


def held_out_gap(rows: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> float:
    """Return the mean gap between two parts over folds; the direction for each fold is fitted to the other folds."""
    folds = np.zeros(len(rows), np.int64)
    for part in (parts, ~parts):
        at = rng.permutation(np.flatnonzero(part))
        folds[at] = np.arange(len(at)) % _FOLDS
    gaps = []
    for fold in range(_FOLDS):
        fitted = folds != fold
        direction, _ = separating_direction(rows[fitted], parts[fitted])
        scores, side = rows[~fitted] @ direction, parts[~fitted]
        high, low = scores[side], scores[~side]
        distance = float(high.mean() - low.mean())
        gap = float(np.quantile(high, _TRIMMED) - np.quantile(low, 1 - _TRIMMED))
        gaps.append(gap / distance if distance > 0 else 0.0)
    return float(np.mean(gaps))


def separating_direction(rows: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the direction that separates two parts best, and the score halfway between them.

    This is a linear discriminant with a ridge penalty; both parts count the same.
    """
    weights = np.where(parts, 0.5 / parts.sum(), 0.5 / (~parts).sum())
    center = weights @ rows
    X = (rows - center).astype(np.float64)
    penalty = _RIDGE * 2 * float(np.mean(np.einsum("ij,ij->i", X, X))) / X.shape[1]
    difference = X.T @ (weights * np.where(parts, 1.0, -1.0))
    X *= np.sqrt(weights)[:, None]
    moment = X.T @ X  # a product of a matrix with itself takes half of the time
    moment[np.diag_indices_from(moment)] += max(penalty, 1e-12)
    direction = np.linalg.solve(moment, difference)
    scores = rows @ direction
    low, high = np.quantile(scores[~parts], 1 - _TRIMMED), np.quantile(scores[parts], _TRIMMED)
    return direction, float(low + high) / 2


def _whitened_components(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the scores of the rows on the leading principal components, with variance 1; by subspace iteration."""
    X = rows - rows.mean(axis=0)
    n, d = X.shape
    r = min(_COMPONENTS, n // _ROWS_PER_COMPONENT, d)
    basis = rng.standard_normal((d, min(r + 16, d))).astype(X.dtype)
    for _ in range(_POWER_STEPS):
        basis = np.linalg.qr(X.T @ (X @ basis))[0]
    left, values, _ = np.linalg.svd((X @ basis).astype(np.float64), full_matrices=False)
    kept = values[:r] > 1e-6 * max(float(values[0]), 1e-30)
    return np.asarray(left[:, :r][:, kept] * np.sqrt(n))


def _unit_columns(columns: np.ndarray) -> np.ndarray:
    return np.asarray(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-12))


def _cut(scores: np.ndarray, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest gap of each column of scores, and whether each row is above it."""
    n, columns = scores.shape[0], np.arange(scores.shape[1])
    ordered = np.sort(scores, axis=0)
    sums = np.cumsum(ordered, axis=0)
    below = np.arange(least, n - least + 1)  # the number of rows below the cut
    low = below - 1 - (_TRIMMED * below).astype(np.int64)
    high = below + (_TRIMMED * (n - below)).astype(np.int64)
    beneath = sums[below - 1]
    distance = (sums[-1] - beneath) / (n - below)[:, None] - beneath / below[:, None]
    gaps = (ordered[high] - ordered[low]) / np.maximum(distance, 1e-12)
    at = np.argmax(gaps, axis=0)
    middle = (ordered[low[at], columns] + ordered[high[at], columns]) / 2
    return gaps[at, columns], scores > middle
