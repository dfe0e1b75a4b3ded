"""Which repair, if any, the evidence is enough for.

A candidate is compared with leaving the vectors alone, on the same examples, drawn again 2,000 times. Its interval is
as wide as the largest of all candidates' studentised differences asks for (Westfall and Young's max-t), so that all
intervals hold at once: having tried many is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from isoscope.advising.trying import Tried

_ROUNDING = 1e-10  # scores that differ by no more are the same


@dataclass(frozen=True)
class Gains:
    """Each candidate's gain over leaving the vectors alone, by one measure, with intervals that hold all at once."""

    scores: np.ndarray
    gains: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def verdict(self, i: int) -> str:
        """Whether a candidate gains, loses, or cannot be told from leaving the vectors alone."""
        return "gain" if self.low[i] > _ROUNDING else "loss" if self.high[i] < -_ROUNDING else "noise"


@dataclass(frozen=True)
class Decision:
    """What to do, and what says so."""

    measure: str
    """The one that decided."""
    choice: int
    """The candidate to use, by its place; 0 is to do nothing."""
    best: int
    """The one with the highest score, of those that are fit to be chosen."""
    gains: dict[str, Gains]
    """By measure."""
    near_best: np.ndarray
    """Whether each candidate is fit to be chosen and cannot be told from the best of those."""
    blind_gain: float
    """What the best of the other folds gains on a fold, on average: no example judges what it helped to choose."""


def decide(tried: Tried, confidence: float, measure: str | None = None) -> Decision:
    """The simplest candidate that surely gains and is not surely worse than another; nothing if none surely gains.

    A measure that was asked for decides alone. Otherwise each has a say: one that surely loses by any is out of the
    question, the first measure by which another surely gains decides, and the intervals are as much wider as it takes
    for those of all measures to hold at once (Bonferroni).
    """
    level = confidence if measure is not None else 1 - (1 - confidence) / len(tried.scores)
    gains = {name: gains_of(tried, name, level) for name in tried.scores}
    heard = [] if measure is not None else list(gains.values())
    count = len(next(iter(tried.scores.values())))
    fit = [i for i in range(count) if not any(of.verdict(i) == "loss" for of in heard)]
    decisions = [_by(name, tried, gains, fit, level) for name in ([measure] if measure is not None else gains)]
    return next((decision for decision in decisions if decision.choice), decisions[0])


def _by(measure: str, tried: Tried, gains: dict[str, Gains], fit: list[int], confidence: float) -> Decision:
    """What one measure says of the candidates that are fit to be chosen."""
    scores = tried.scores[measure]
    near = np.zeros(len(scores), bool)
    near[fit] = not_beaten(scores[fit], tried.resampled[measure][:, fit], confidence, tried.freedom)
    sure = [i for i in fit if gains[measure].verdict(i) == "gain"]
    # candidates stand in the order of their simplicity
    choice = next((i for i in sure if near[i]), max(sure, key=lambda i: scores[i]) if sure else 0)
    best = max(fit, key=lambda i: scores[i])
    return Decision(measure, choice, best, gains, near, blind_gain(tried, measure, fit))


def gains_of(tried: Tried, measure: str, confidence: float) -> Gains:
    """Every candidate's gain by a measure."""
    scores, drawn = tried.scores[measure], tried.resampled[measure]
    differences = drawn - drawn[:, :1]
    gains = scores - scores[0]
    margin = critical(differences[:, 1:], confidence, tried.freedom) * spread(differences)
    return Gains(scores, gains, gains - margin, gains + margin)


def critical(differences: np.ndarray, confidence: float, freedom: int) -> float:
    """How many deviations wide an interval must be for all of some differences to be in theirs at once.

    Deviations of few examples are themselves uncertain, and it is wider by as much as Student's t is beside the normal.
    """
    if not differences.shape[1]:
        return 0.0
    deviation = spread(differences)
    away = np.abs(differences - differences.mean(axis=0)) / np.where(deviation > 0, deviation, np.inf)
    normal = float(np.quantile(away.max(axis=1), confidence))
    return float(max(normal, -t.ppf(norm.sf(normal), freedom)))


def spread(differences: np.ndarray) -> np.ndarray:
    """The deviation of each column; 0 where it is only rounding."""
    deviation = differences.std(axis=0, ddof=1)
    return np.asarray(np.where(deviation > _ROUNDING, deviation, 0.0))


def not_beaten(scores: np.ndarray, drawn: np.ndarray, confidence: float, freedom: int) -> np.ndarray:
    """Whether no other candidate is surely better than each, all pairs of candidates taken at once."""
    m = len(scores)
    better, worse = np.nonzero(~np.eye(m, dtype=bool))
    differences = drawn[:, better] - drawn[:, worse]
    sure = scores[better] - scores[worse] > critical(differences, confidence, freedom) * spread(differences) + _ROUNDING
    beaten = np.zeros(m, bool)
    beaten[worse[sure]] = True
    return ~beaten


def blind_gain(tried: Tried, measure: str, fit: list[int]) -> float:
    """The mean gain on each fold of the candidate, of those fit to be chosen, that is best on all the others."""
    by_fold, sizes = tried.by_fold[measure], tried.sizes
    found = 0.0
    for fold, values in enumerate(by_fold):
        others = np.delete(by_fold, fold, axis=0)
        chosen = fit[int((np.delete(sizes, fold) @ others)[fit].argmax())]
        found += sizes[fold] * (values[chosen] - values[0])
    return float(found / sizes.sum())
