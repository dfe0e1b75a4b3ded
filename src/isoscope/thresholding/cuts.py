"""The choice of a threshold with a guarantee, its scores on held-out examples, and the number of examples it needs.

The guarantee follows Angelopoulos et al. (2021), "Learn then test": thresholds are tested in a fixed order that does
not depend on the matches, and the tests stop at the first one that fails. Bounds of shares are those of Korn and
Graubard (1998): exact binomial bounds with the effective number of pairs, which is lower than their number if pairs
depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import beta, norm, t

if TYPE_CHECKING:
    from isoscope.thresholding.counts import Counts, JudgedPairs

Measure = Literal["precision", "recall", "f1"]
"""What a threshold is chosen for."""
CutVerdict = Literal["cut", "no cut", "undecided"]
"""The verdict: a threshold ("cut"), no threshold ("no cut"), or too few examples to decide."""

STARTS = 4
"""The number of thresholds at which tests for precision start."""
LEAST_RECALL = 0.05
"""The smallest useful recall: a threshold with a lower recall does not show that a goal is reachable."""
MOST_MORE = 1_000
"""If more than this many times as many examples would be needed, their number is not stated."""

_START_RATIO = 4  # the number of predicted matches grows by this factor from start to start
_PRIOR_ERRORS = 2.0  # the weight of the prior design effect, in units with an error
_ENOUGH_ERRORS = 10  # units with an error, to estimate the correlation within units
_POWER = 0.8  # with the stated number of examples, the guarantee is reached in 80% of samples


class Share(NamedTuple):
    """A share with its confidence interval."""

    value: float
    low: float
    high: float


class Shares(NamedTuple):
    """Shares at all thresholds, with their bounds, and the number of independent pairs with the same accuracy."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    effective: np.ndarray
    number: np.ndarray
    """The number of pairs that each share refers to."""

    def at(self, i: int) -> Share:
        """Return the share at one threshold."""
        return Share(float(self.values[i]), float(self.low[i]), float(self.high[i]))


@dataclass(frozen=True)
class Goal:
    """What is requested of a threshold, and the error rate of the guarantee."""

    measure: Measure
    level: float
    """The smallest precision or recall; not used for F1."""
    alpha: float = 0.05

    @property
    def test_alpha(self) -> float:
        """The level of the tests: somewhat below `alpha`, because the effective number of pairs is estimated."""
        return 0.8 * self.alpha


@dataclass(frozen=True)
class Choice:
    """The threshold chosen on some examples: its index, or None with the reason."""

    index: int | None
    verdict: CutVerdict
    needed: int | None = None
    """If undecided: the number of examples that would be enough, or None if that is more than 1,000 times as many."""
    best: int | None = None
    """The index of the threshold that comes closest to the goal."""


def measure_shares(
    numerator: np.ndarray, denominator: np.ndarray, counts: Counts, alpha: float, *, sides: int = 2
) -> Shares:
    """Return the shares Σ numerator / Σ denominator of each column, with bounds at the level 1 − alpha.

    With `sides` 1, each bound alone holds at this level.
    """
    m = len(counts)
    top, bottom = numerator.sum(axis=0), denominator.sum(axis=0)
    known = bottom > 0
    values = np.divide(top, bottom, out=np.full(len(top), np.nan), where=known)
    share = np.where(known, values, 0.0)
    number = bottom / (2 if counts.twice else 1)
    residuals = numerator - share * denominator
    variance = np.diag(counts.units.covariance(residuals, counts.members)) * (4 if counts.twice else 1)
    variance = variance / np.where(known, bottom / m, 1.0) ** 2
    independent = share * (1 - share) / np.where(known, number, 1.0)
    observed = np.divide(variance, independent, out=np.ones(len(top)), where=independent > 1e-15)
    units = _effective_units(denominator, counts)
    # the design effect if all pairs of a unit had the same outcome
    largest = np.maximum(number / np.maximum(_effective_units(denominator, counts, linked=False), 1e-9), 1.0)
    rare = np.where(share >= 0.5, denominator - numerator, numerator)
    events = (_sum_units(rare, counts) > 1e-9).sum(axis=0) / (2 if counts.twice else 1)
    prior = 1 + _correlation(observed, largest, events) * (largest - 1)
    effect = (events * np.maximum(observed, 1.0) + _PRIOR_ERRORS * prior) / (events + _PRIOR_ERRORS)
    tail = alpha / sides
    freedom = np.maximum(units - 1, 1.0)
    effective = number / effect * (norm.ppf(tail) / t.ppf(tail, freedom)) ** 2
    effective = np.where(known, np.maximum(effective, 1e-9), 0.0)
    low, high = binomial_bounds(share * effective, effective, tail)
    return Shares(values, np.where(known, low, 0.0), np.where(known, high, 1.0), effective, number)


def _correlation(observed: np.ndarray, largest: np.ndarray, events: np.ndarray) -> float:
    """Return the largest correlation within units at thresholds with enough errors to estimate it; 1 if there are none.

    A threshold without errors shows nothing about their correlation, so the correlation at other thresholds is used.
    """
    clear = (events >= _ENOUGH_ERRORS) & (largest > 1 + 1e-9)
    if not clear.any():
        return 1.0
    return float(np.clip(((observed - 1) / np.maximum(largest - 1, 1e-9))[clear].max(), 0.0, 1.0))


def binomial_bounds(successes: np.ndarray, trials: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the Clopper–Pearson bounds of a share, for numbers that need not be integers."""
    failures = np.maximum(trials - successes, 0)
    with np.errstate(invalid="ignore"):
        low = np.where(successes > 1e-12, beta.ppf(tail, np.maximum(successes, 1e-12), failures + 1), 0.0)
        high = np.where(failures > 1e-12, beta.ppf(1 - tail, successes + 1, np.maximum(failures, 1e-12)), 1.0)
    return low, high


def _sum_units(values: np.ndarray, counts: Counts) -> np.ndarray:
    """Return the sums of the values over the examples of each unit."""
    _, unit = np.unique(counts.units.of[counts.members], return_inverse=True)
    m = len(values)
    return np.asarray(csr_array((np.ones(m), (unit, np.arange(m))), shape=(int(unit.max()) + 1, m)) @ values)


def _effective_units(denominator: np.ndarray, counts: Counts, *, linked: bool = True) -> np.ndarray:
    """Return Kish's effective number of independent units, weighted by the pairs of each unit."""
    links = counts.units.links
    if links is None or not linked:
        squares = (_sum_units(denominator, counts) ** 2).sum(axis=0)
    else:
        squares = (denominator * (links[counts.members][:, counts.members] @ denominator)).sum(axis=0)
    total = denominator.sum(axis=0) ** 2
    return np.asarray(np.divide(total, squares, out=np.zeros(len(total)), where=squares > 0))


def precision(counts: Counts, alpha: float, *, sides: int = 2) -> Shares:
    """Return the precision at each threshold: the share of matches among the predicted matches."""
    return measure_shares(counts.matched, counts.predicted, counts, alpha, sides=sides)


def recall(counts: Counts, alpha: float, *, sides: int = 2) -> Shares:
    """Return the recall at each threshold: the share of the matches that are predicted."""
    all_matches = np.broadcast_to(counts.positives[:, None], counts.matched.shape)
    return measure_shares(counts.matched, all_matches, counts, alpha, sides=sides)


def f1(counts: Counts, alpha: float, *, sides: int = 2) -> Shares:
    """Return F1 at each threshold: the harmonic mean of precision and recall."""
    return measure_shares(2 * counts.matched, counts.predicted + counts.positives[:, None], counts, alpha, sides=sides)


MEASURES = {"precision": precision, "recall": recall, "f1": f1}
"""The function of each measure."""


def choose_cut(counts: Counts, goal: Goal) -> Choice:
    """Return the threshold for a goal.

    For precision, it is the lowest threshold that is proven to reach the goal, so that recall is as high as possible;
    for recall, the highest such threshold; for F1, the threshold with the highest value.
    """
    if goal.measure == "precision":
        return _choose_for_precision(counts, goal)
    if goal.measure == "recall":
        return _choose_for_recall(counts, goal)
    best = int(np.nanargmax(np.nan_to_num(f1(counts, goal.alpha).values)))
    return Choice(best, "cut", best=best)


def _choose_for_recall(counts: Counts, goal: Goal) -> Choice:
    found = recall(counts, goal.test_alpha, sides=1)
    failed = np.flatnonzero(found.low < goal.level)
    index = (failed[0] if len(failed) else len(counts.cuts)) - 1  # the lowest threshold is tested first
    if index >= 0:
        return Choice(int(index), "cut", best=int(index))
    needed = _perfect_trials(goal.level, goal.test_alpha) / max(float(found.effective[0]), 1e-9)
    return Choice(None, "undecided", _more_examples(counts, needed), 0)


def _choose_for_precision(counts: Counts, goal: Goal) -> Choice:
    number = counts.predicted.sum(axis=0) / (2 if counts.twice else 1)
    starts = _starts(number, goal)
    if not starts:
        return _judge_no_cut(counts, goal, starts)
    found = precision(counts, goal.test_alpha / STARTS, sides=1)
    passed = found.low >= goal.level
    lowest = None
    for start in starts:
        index = start
        while index >= 0 and passed[index]:
            lowest = index if lowest is None else min(lowest, index)
            index -= 1
    if lowest is not None:
        return Choice(lowest, "cut", best=lowest)
    return _judge_no_cut(counts, goal, starts)


def _perfect_trials(level: float, alpha: float) -> float:
    """Return the number of independent pairs without an error that prove a share of at least `level`."""
    return math.log(alpha) / math.log(level)


def _starts(number: np.ndarray, goal: Goal) -> list[int]:
    """Return the thresholds at which the tests for precision start.

    Each has a few times as many predicted matches as the one before.
    """
    starts: list[int] = []
    least = _perfect_trials(goal.level, goal.test_alpha / STARTS)
    while len(starts) < STARTS and (enough := np.flatnonzero(number >= least)).size:
        if int(enough[-1]) not in starts:
            starts.append(int(enough[-1]))
        least *= _START_RATIO
    return starts


def _judge_no_cut(counts: Counts, goal: Goal, starts: list[int]) -> Choice:
    """Return why no threshold is proven to reach a precision: no useful one does, or there are too few examples."""
    found = precision(counts, goal.alpha, sides=1)
    useful = counts.matched.sum(axis=0) >= LEAST_RECALL * counts.positives.sum()
    useful[0] = True
    values = np.where(useful, np.nan_to_num(found.values), 0.0)
    tested = useful & (np.arange(len(values)) <= (starts[0] if starts else -1))
    if tested.any() and (found.high[useful] < goal.level).all():
        return Choice(None, "no cut", best=int(np.argmax(values)))
    reach = norm.isf(goal.test_alpha / STARTS) + norm.ppf(_POWER)
    least = _perfect_trials(goal.level, goal.test_alpha / STARTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        trials = reach**2 * goal.level * (1 - goal.level) / (values - goal.level) ** 2
        times = np.where(useful, np.maximum(trials / found.effective, least / found.number), np.inf)
    reaches = useful & (values > goal.level) & np.isfinite(times)
    best = int(np.flatnonzero(reaches)[np.argmin(times[reaches])]) if reaches.any() else int(np.argmax(values))
    return Choice(None, "undecided", _more_examples(counts, float(times[best])), best)


def _more_examples(counts: Counts, times: float) -> int | None:
    """Return the number of examples that would be enough: at least 1.5 times as many, rounded up to two digits."""
    if not math.isfinite(times) or times > MOST_MORE:
        return None
    return round_up(max(times, 1.5) * len(counts))


def round_up(number: float) -> int:
    """Return a number rounded up to two significant digits.

    >>> round_up(1234.0), round_up(87.2)
    (1300, 88)
    """
    power: int = 10 ** max(math.floor(math.log10(number)) - 1, 0)
    return math.ceil(number / power) * power


def confirm(choice: Choice, held_out: HeldOut, counts: Counts) -> Choice:
    """Return the choice; it becomes undecided if a threshold is found for fewer than two held-out folds."""
    found = sum(cut is not None for cut in held_out.cuts)
    if choice.index is None or found >= 2:
        return choice
    return Choice(None, "undecided", _more_examples(counts, 1.5), choice.index)


def bound_best(counts: Counts, goal: Goal, choice: Choice) -> Share | None:
    """Return the goal's measure at the threshold that comes closest.

    If there are too few examples to decide, the bounds are those of the tests, which are corrected for the number
    of starts.
    """
    if choice.best is None:
        return None
    undecided = goal.measure == "precision" and choice.verdict == "undecided"
    return MEASURES[goal.measure](counts, 2 * goal.test_alpha / STARTS if undecided else goal.alpha).at(choice.best)


class HeldOut(NamedTuple):
    """The scores of a threshold on examples that took no part in its choice."""

    scores: dict[str, Share]
    """Precision, recall and F1."""
    cuts: list[float | None]
    """The threshold that was chosen without each fold."""
    lift: Share
    """The precision minus the share of matches among all pairs."""


def evaluate(pairs: JudgedPairs, goal: Goal, folds: int, seed: int, *, relative: bool = False) -> HeldOut:
    """Return the scores of the whole procedure on held-out folds, pooled over folds with a threshold."""
    parts, chosen = [], []
    for fit, held_out in pairs.splits(folds, seed, relative=relative):
        index = choose_cut(fit, goal).index
        chosen.append(None if index is None else float(fit.cuts[index]))
        if index is not None:
            parts.append(held_out.at_cut(index))
    if not parts:
        return HeldOut({}, chosen, Share(0.0, 0.0, 0.0))
    pooled = parts[0].join(parts[1:])
    scores = {name: function(pooled, goal.alpha).at(0) for name, function in MEASURES.items()}
    return HeldOut(scores, chosen, _lift(pooled, goal.alpha))


def _lift(counts: Counts, alpha: float) -> Share:
    """Return by how much the precision exceeds the share of matches, with a normal interval over units."""
    predicted, pairs = float(counts.predicted.sum()), float(counts.pairs.sum())
    if not predicted:
        return Share(0.0, 0.0, 0.0)
    own, all_pairs = float(counts.matched.sum()) / predicted, float(counts.positives.sum()) / pairs
    residuals = (counts.matched[:, 0] - own * counts.predicted[:, 0]) / predicted
    residuals -= (counts.positives - all_pairs * counts.pairs) / pairs
    m = len(counts)
    variance = float(counts.units.covariance(m * residuals[:, None], counts.members)[0, 0])
    error = math.sqrt(variance * (4 if counts.twice else 1))
    freedom = max(counts.units.effective_count(counts.members) - 1, 1.0)
    margin = float(t.isf(alpha / 2, freedom)) * error
    return Share(own - all_pairs, own - all_pairs - margin, own - all_pairs + margin)


def locate_cut(counts: Counts, goal: Goal, chosen: int | None) -> tuple[float | None, float | None]:
    """Return the confidence interval of the threshold: None for an end that the examples do not bound.

    For precision and recall, it contains the thresholds at which the goal is neither exceeded nor missed significantly.
    For F1, it contains the thresholds whose F1 is not significantly lower than that of the best threshold.
    """
    cuts = counts.cuts
    if goal.measure == "f1":
        assert chosen is not None
        same = _not_worse(counts, goal.alpha, chosen)
        return float(cuts[same[0]]), float(cuts[same[-1]])
    found = MEASURES[goal.measure](counts, goal.alpha)
    if goal.measure == "recall":
        safe, possible = np.flatnonzero(found.low < goal.level), np.flatnonzero(found.high >= goal.level)
        low = (int(safe[0]) if len(safe) else len(cuts)) - 1
        return (float(cuts[low]) if low >= 0 else None), (float(cuts[possible[-1]]) if len(possible) else None)
    possible, safe = np.flatnonzero(found.high >= goal.level), np.flatnonzero(found.low >= goal.level)
    low_end = float(cuts[possible[0]]) if len(possible) else None
    high_end = float(cuts[safe[0]]) if len(safe) else None
    if chosen is not None:
        at = float(cuts[chosen])
        low_end, high_end = min(at, at if low_end is None else low_end), max(at, at if high_end is None else high_end)
    return low_end, high_end


def _not_worse(counts: Counts, alpha: float, best: int) -> np.ndarray:
    """Return the thresholds around the best one whose F1 is not significantly lower."""
    bottom = counts.predicted + counts.positives[:, None]
    total = bottom.sum(axis=0)
    values = 2 * counts.matched.sum(axis=0) / total
    linear = (2 * counts.matched - values * bottom) / total
    differences = linear[:, [best]] - linear
    m = len(counts)
    variance = np.diag(counts.units.covariance(m * differences, counts.members)) * (4 if counts.twice else 1)
    freedom = max(counts.units.effective_count(counts.members) - 1, 1.0)
    margin = float(t.isf(alpha / 2, freedom)) * np.sqrt(variance)
    within = values[best] - values <= margin
    outside = np.flatnonzero(~within)
    low = int(outside[outside < best].max(initial=-1)) + 1
    high = int(outside[outside > best].min(initial=len(values))) - 1
    return np.arange(low, high + 1)
