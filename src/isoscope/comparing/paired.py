"""Compare vectors of the same rows before and after a change, and find the transformation between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from isoscope._core.errors import InputError
from isoscope.auditing.nulls import wilson_interval

Relation = Literal["same", "rescaled", "shifted", "rotated"]
RELATIONS: tuple[Relation, ...] = ("same", "rescaled", "shifted", "rotated")
"""The transformations that are tried, simplest first."""

KEPT_SHARE = 0.99
"""The share of the pairs that a transformation must explain."""
KEPT_DISTANCES = 0.95
"""The same for a rotation, which is detected by distances."""
KEPT_LOW = 0.75
"""The smallest lower end of the interval of that share; with fewer pairs, the answer is undecided."""

_BETTER = 4.0  # a more complex transformation is preferred if its residual is this many times smaller
_MATCHINGS = 4  # random pairings of rows, for distances
_NORMAL_DEVIATION = 1.4826  # the standard deviation of normal values, relative to their median absolute deviation


@dataclass(frozen=True)
class Fit:
    """How well one transformation explains the pairs."""

    relation: Relation
    kept: float
    """The share of held-out pairs that it explains within the tolerance."""
    low: float
    high: float
    pairs: int
    """The number of held-out pairs, or of held-out pairs of rows for distances."""
    residual: float
    """The median residual, relative to the spread of the new vectors."""
    needed: int
    """The number of matched rows that an answer requires."""

    @property
    def fits(self) -> bool:
        """Whether the transformation explains nearly all pairs."""
        return self.kept >= (KEPT_DISTANCES if self.relation == "rotated" else KEPT_SHARE)

    @property
    def is_decided(self) -> bool:
        """Whether there are enough pairs to conclude that the transformation fits."""
        return self.low >= KEPT_LOW


@dataclass(frozen=True)
class PairedComparison:
    """The fits of all transformations, and the parameters of the one that fits."""

    fits: tuple[Fit, ...]
    chosen: Fit | None
    scale: float
    shift: float
    """The length of the shift, relative to the spread of the new vectors."""
    angle: float | None
    """The mean angle between a vector and its image in degrees, about the means; only for a rotation."""
    fitted: float | None
    """The held-out residual of a fitted rotation; None with fewer fitted rows than dimensions."""
    cosines: tuple[float, float, float]
    """The 1st, 50th and 99th percentile of the paired cosines."""
    rounding: float
    """The rounding error of integer codes, relative to the spread; 0 for other vectors."""
    tolerance: float
    changed: np.ndarray
    """The positions of the pairs that differ by more than the tolerance, if at least half of the pairs do not."""


def compare_pairs(
    old: np.ndarray, new: np.ndarray, *, tolerance: float, seed: int, rounding: float = 0.0
) -> PairedComparison:
    """Find the simplest transformation that maps the old vectors to the new ones.

    Scale and shift are fitted robustly to one half of the pairs and checked on the other half. A rotation is detected
    by distances, which it keeps; no fit is needed, so fewer pairs than dimensions suffice. `rounding` is the rounding
    error of integer codes, relative to the spread.
    """
    X, Y = old.astype(np.float64), new.astype(np.float64)
    spread = _spread(Y)
    if not spread > 0 or not _spread(X) > 0:
        raise InputError("all vectors of the matched rows are equal: need vectors that differ")
    limit = max(tolerance, 2 * rounding)
    order = np.random.default_rng(seed).permutation(len(X))
    fit, held = order[: len(X) // 2], order[len(X) // 2 :]
    factor = _length_ratio(X[fit], Y[fit])
    scale = _distance_ratio(X[fit], Y[fit])
    shift = np.median(Y[fit] - scale * X[fit], axis=0)
    residuals = {
        "same": np.linalg.norm(Y - X, axis=1) / spread,
        "rescaled": np.linalg.norm(Y[held] - factor * X[held], axis=1) / spread,
        "shifted": np.linalg.norm(Y[held] - scale * X[held] - shift, axis=1) / spread,
    }
    fits = [_judge_rows(relation, residuals[relation], limit) for relation in ("same", "rescaled", "shifted")]
    fits.append(_judge_distances(X[held], Y[held], scale, limit, spread))
    chosen = _choose(fits, limit)
    relation = None if chosen is None else chosen.relation
    changed = np.zeros(0, np.int64)
    if fits[0].kept >= 0.5:
        changed = np.flatnonzero(residuals["same"] > limit)
    return PairedComparison(
        fits=tuple(fits),
        chosen=chosen,
        scale=1.0 if relation == "same" else factor if relation == "rescaled" else scale,
        shift=float(np.linalg.norm(shift)) / spread if relation == "shifted" else 0.0,
        angle=_mean_angle(X, Y) if relation == "rotated" else None,
        fitted=_fit_rotation(X[fit], Y[fit], X[held], Y[held]) if relation == "rotated" else None,
        cosines=_cosine_percentiles(X, Y),
        rounding=rounding,
        tolerance=limit,
        changed=changed,
    )


def are_codes(vectors: np.ndarray) -> bool:
    """Return whether all numbers are integers, as in a quantized copy; a store may read them as real numbers."""
    return vectors.dtype.kind in "iu" or bool((vectors == np.round(vectors)).all())


def rounding_error(vectors: np.ndarray) -> float:
    """Return the rounding error of integer codes with steps of 1, relative to their spread; 0 for other vectors."""
    if not are_codes(vectors):
        return 0.0
    spread = _spread(vectors.astype(np.float64))
    return math.sqrt(vectors.shape[1] / 12) / spread if spread > 0 else 0.0


def _spread(rows: np.ndarray) -> float:
    """Return the median distance of the rows from their median; one broken row with a huge vector does not change it.

    If at least half of the rows are equal, it is the root-mean-square distance.
    """
    distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    typical = float(np.median(distances))
    return typical if typical > 0 else math.sqrt(float(np.mean(distances**2)))


def _length_ratio(X: np.ndarray, Y: np.ndarray) -> float:
    lengths, others = np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1)
    usable = lengths > 0
    return float(np.median(others[usable] / lengths[usable])) if usable.any() else 1.0


def _pair_distances(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of random pairs of rows in both spaces; each matching pairs every row once.

    The rows are given in random order. If their number is odd, the last one is left out.
    """
    half = len(X) // 2
    firsts = [np.arange(half)] * _MATCHINGS
    seconds = [half + (np.arange(half) + step) % max(half, 1) for step in range(_MATCHINGS)]
    a, b = np.concatenate(firsts), np.concatenate(seconds)
    return np.linalg.norm(X[a] - X[b], axis=1), np.linalg.norm(Y[a] - Y[b], axis=1)


def _distance_ratio(X: np.ndarray, Y: np.ndarray) -> float:
    before, after = _pair_distances(X, Y)
    usable = before > 0
    return float(np.median(after[usable] / before[usable])) if usable.any() else 1.0


def _judge_rows(relation: Relation, residuals: np.ndarray, limit: float) -> Fit:
    pairs = len(residuals)
    kept = float((residuals <= limit).mean()) if pairs else 0.0
    low, high = wilson_interval(kept, max(pairs, 1))
    factor = 1 if relation == "same" else 2
    residual = float(np.median(residuals)) if pairs else math.inf
    return Fit(relation, kept, low, high, pairs, residual, factor * _enough_pairs())


def _judge_distances(X: np.ndarray, Y: np.ndarray, scale: float, limit: float, spread: float) -> Fit:
    """Judge a rotation by the share of distances that it keeps, relative to how much distances vary."""
    before, after = _pair_distances(X, Y)
    pairs = len(X) // 2
    if not pairs:
        return Fit("rotated", 0.0, 0.0, 1.0, 0, math.inf, 4 * _enough_pairs())
    deviation = _NORMAL_DEVIATION * float(np.median(np.abs(after - np.median(after)))) or float(np.std(after))
    errors = np.abs(after - scale * before)
    allowed = limit * deviation if deviation > 1e-9 * spread else limit * spread
    kept = math.sqrt(float((errors <= allowed).mean()))  # both rows of a pair must be unchanged
    low, high = wilson_interval(kept, pairs)
    residual = float(np.median(errors)) / max(deviation, 1e-12 * spread)
    return Fit("rotated", kept, low, high, pairs, residual, 4 * _enough_pairs())


def _enough_pairs(z: float = 1.959964) -> int:
    """Return the number of pairs for which the interval of a share of 1 starts at `KEPT_LOW` or above."""
    return math.ceil(KEPT_LOW * z * z / (1 - KEPT_LOW))


ENOUGH_PAIRS = 4 * _enough_pairs()
"""The number of matched rows that is enough for any answer that holds for all of them; a rotation needs the most."""


def _choose(fits: list[Fit], limit: float) -> Fit | None:
    """Return the simplest fit, unless a more complex one has a much smaller residual.

    Distances decide only if nothing else fits. If they are kept but the vectors hardly rotated, as after coarse
    rounding or clipping, the closest of the other transformations is the answer.
    """
    exact = [fit for fit in fits if fit.fits and fit.relation != "rotated"]
    if exact:
        least = min(fit.residual for fit in exact)
        floor = 1e-5  # a residual below this is rounding of single precision
        return next(fit for fit in exact if fit.residual <= max(_BETTER * least, floor))
    *direct, rotation = fits
    if not rotation.fits:
        return None
    closest = min(direct, key=lambda fit: fit.residual)
    return replace(rotation, relation=closest.relation) if closest.residual <= 2 * limit else rotation


def _mean_angle(X: np.ndarray, Y: np.ndarray) -> float:
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    usable = lengths > 0
    cosines = np.einsum("ij,ij->i", X[usable], Y[usable]) / lengths[usable]
    return float(np.degrees(np.arccos(np.clip(cosines, -1, 1))).mean())


def _fit_rotation(X: np.ndarray, Y: np.ndarray, held_x: np.ndarray, held_y: np.ndarray) -> float | None:
    """Return the median held-out residual of the orthogonal Procrustes fit, relative to the spread."""
    if len(X) < X.shape[1]:
        return None
    mean_x, mean_y = X.mean(axis=0), Y.mean(axis=0)
    left, values, right = np.linalg.svd((X - mean_x).T @ (Y - mean_y), full_matrices=False)
    scale = float(values.sum()) / float(np.sum((X - mean_x) ** 2))
    predicted = scale * (held_x - mean_x) @ (left @ right) + mean_y
    return float(np.median(np.linalg.norm(held_y - predicted, axis=1))) / _spread(Y)


def _cosine_percentiles(X: np.ndarray, Y: np.ndarray) -> tuple[float, float, float]:
    lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    usable = lengths > 0
    if not usable.any():
        return math.nan, math.nan, math.nan
    cosines = np.einsum("ij,ij->i", X[usable], Y[usable]) / lengths[usable]
    low, middle, high = np.quantile(cosines, [0.01, 0.5, 0.99])
    return float(low), float(middle), float(high)
