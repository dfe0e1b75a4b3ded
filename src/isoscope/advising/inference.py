"""Scores per example, simultaneous intervals, the choice of a repair, and the nested estimate of its gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln
from scipy.stats import norm, t

if TYPE_CHECKING:
    from isoscope._core.types import GainVerdict


@dataclass(frozen=True)
class ExampleScores:
    """The scores of one candidate on all examples, for one measure."""

    values: np.ndarray
    """One per example; their mean is the score."""
    repeats: np.ndarray | None = None
    """The score in each repetition, if the measure repeats a random procedure, such as k-means."""


def spearman(a: np.ndarray, b: np.ndarray) -> ExampleScores:
    """Return pseudo-values of Spearman's correlation between `a` and `b`; tied values get their mean rank.

    >>> values = spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])).values
    >>> round(float(values.mean()), 3)
    0.8
    """
    m = len(a)
    by_a, by_b = _RankedValues(a), _RankedValues(b)
    x, y = by_a.ranks - by_a.ranks.mean(), by_b.ranks - by_b.ranks.mean()
    xx, yy, xy = float(x @ x), float(y @ y), float(x @ y)
    if not xx * yy > 0:
        return ExampleScores(np.zeros(m))
    value = xy / np.sqrt(xx * yy)
    # one more example of this kind raises the rank of all examples above it
    of_xy = x * y + by_a.sums_above(y) + by_b.sums_above(x)
    of_xx, of_yy = x * x + 2 * by_a.sums_above(x), y * y + 2 * by_b.sums_above(y)
    slope = of_xy / np.sqrt(xx * yy) - value / 2 * (of_xx / xx + of_yy / yy)
    return ExampleScores(value + m * slope)


class _RankedValues:
    """Values in ascending order, with their mid-ranks."""

    def __init__(self, values: np.ndarray):
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self.starts = np.flatnonzero(first)
        self.tie = np.empty(len(values), np.int64)  # each example's position among the distinct values
        self.tie[self.order] = np.cumsum(first) - 1
        counts = np.diff(np.append(self.starts, len(values)))
        self.ranks = (np.cumsum(counts) - counts / 2)[self.tie]

    def sums_above(self, of: np.ndarray) -> np.ndarray:
        """Return, per example, the sum of `of` over examples with larger values, plus half the sum over equal ones."""
        tied = np.add.reduceat(of[self.order], self.starts)
        return np.asarray((tied.sum() - np.cumsum(tied) + tied / 2)[self.tie])


def v_measure(clusterings: np.ndarray, labels: np.ndarray) -> ExampleScores:
    """Return the chance-adjusted V-measure of the labels and each clustering, averaged over the clusterings.

    `clusterings` has shape (c, m), one row per clustering. Clusters of similar size share more information with any
    labels by chance alone, which would favor repairs that make the sizes more similar. Therefore, the information
    expected by chance is subtracted; V is then the adjusted mutual information.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    each = [_adjusted_v_measure(codes, labels) for codes in clusterings]
    return ExampleScores(np.mean(each, axis=0), np.mean(each, axis=1))


def _adjusted_v_measure(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    chance = expected_information(np.bincount(codes), np.bincount(labels))
    both, of_clusters, of_labels = (_entropy(each) for each in (codes * (labels.max() + 1) + labels, codes, labels))
    # V = (I − E)/(mean entropy − E), and I = H(clusters) + H(labels) − H(both)
    above, below = of_clusters + of_labels - both, (of_clusters + of_labels) / 2
    shared, most = float(above.mean()) - chance, float(below.mean()) - chance
    if most <= 1e-12:
        return np.ones(len(labels))  # one class and one cluster agree perfectly
    value = shared / most
    return np.asarray(value + ((above - above.mean()) - value * (below - below.mean())) / most)


def _entropy(codes: np.ndarray) -> np.ndarray:
    """Return pseudo-values of the entropy of codes: −ln(share of the example's code)."""
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return np.asarray(-np.log(counts / len(codes))[inverse])


_TAIL = 50.0  # terms with a probability below exp(−50) are left out of the expected information


def expected_information(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mutual information that two partitions with parts of these sizes share by chance, in nats.

    This equals scikit-learn's `expected_mutual_information` to 1e-12. Parts of equal size are computed once.

    >>> round(expected_information(np.array([2, 2]), np.array([3, 1])), 4)
    0.2158
    """
    n = int(a.sum())
    (a, times_a), (b, times_b) = (np.unique(sizes[sizes > 0], return_counts=True) for sizes in (a, b))
    a, b = (each.ravel() for each in np.meshgrid(a, b, indexing="ij"))
    mean = a * b / n
    # Bernstein's bounds for the hypergeometric number of rows that two parts share
    low = np.maximum(np.maximum(1, a + b - n), np.floor(mean - np.sqrt(2 * _TAIL * mean)).astype(np.int64))
    slack = _TAIL / 3 + np.sqrt((_TAIL / 3) ** 2 + 2 * _TAIL * mean)
    high = np.minimum(np.minimum(a, b), np.ceil(mean + slack).astype(np.int64))
    terms = np.maximum(high - low + 1, 0)
    ends = np.cumsum(terms)
    shared = np.arange(ends[-1]) - np.repeat(ends - terms - low, terms)
    log = _log_factorials(n)
    fixed = log[a] + log[b] + log[n - a] + log[n - b] - log[n]
    alone_a, alone_b = np.repeat(a, terms) - shared, np.repeat(b, terms) - shared
    chance = np.repeat(fixed, terms) - log[shared] - log[alone_a] - log[alone_b] - log[n - alone_a - alone_b - shared]
    weight = np.repeat(np.outer(times_a, times_b).ravel(), terms)
    information = shared / n * (np.log(shared) - np.repeat(np.log(mean), terms))
    return float(np.sum(weight * information * np.exp(chance)))


@lru_cache(maxsize=4)
def _log_factorials(n: int) -> np.ndarray:
    return np.asarray(gammaln(np.arange(1.0, n + 2)))


TOLERANCE = 0.1
"""A simpler repair is preferred if its gain is smaller than the best one's by at most this share."""
SPLITS = 20
"""The minimum number of nested selections; K-fold partitions are repeated until it is reached."""
STABLE_SHARE = 0.8
"""Advice is reported as unstable if a smaller share of the nested selections agrees with it."""

_ROUNDING = 1e-10  # scores that differ by at most this much count as equal
_DRAWS = 10_000  # random draws of the largest studentized difference
_MIN_UNITS = 20  # fewer connected components are too few to estimate a variance


class Units:
    """The dependence between examples that share rows.

    Examples that share a row, directly or through others, form one unit. If one unit contains more examples than a
    fold, or there are fewer than 20 units, two examples count as dependent only if they share a row themselves.
    """

    def __init__(self, shares: csr_array, folds: int):
        """`shares` has shape (examples, rows) and is nonzero where an example uses a row."""
        m, n = shares.shape
        at = shares.nonzero()
        edges = csr_array((np.ones(len(at[0])), (at[0], m + at[1])), shape=(m + n, m + n))
        component = connected_components(edges, directed=False)[1][:m]
        self.of = np.unique(component, return_inverse=True)[1]
        self.links: csr_array | None = None
        sizes = np.bincount(self.of)
        if len(sizes) < m and (sizes.max() > m / folds or len(sizes) < _MIN_UNITS):
            ones = csr_array((np.ones(len(at[0])), at), shape=(m, n))
            self.links = csr_array(ones @ ones.T)
            self.links.data[:] = 1.0
            self.of = np.arange(m)

    def __len__(self) -> int:
        return int(self.of.max()) + 1

    def effective_count(self, examples: np.ndarray) -> float:
        """Return the effective number of independent units; it is lower if a few units contain most of the examples."""
        if self.links is not None:
            return len(examples) ** 2 / float(self.links[examples][:, examples].sum())
        sizes = np.unique(self.of[examples], return_counts=True)[1]
        return float(sizes.sum()) ** 2 / float((sizes.astype(float) ** 2).sum())

    def covariance(self, residuals: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """Return the covariance of the columns' means, given their residuals on some examples."""
        m = len(residuals)
        _, units = np.unique(self.of[examples], return_inverse=True)
        count = int(units.max()) + 1
        member = csr_array((np.ones(m), (units, np.arange(m))), shape=(count, m))
        sums = member @ residuals
        found = np.asarray(sums.T @ sums) * (count / max(count - 1, 1)) / m**2
        if self.links is not None:
            linked = (residuals * (self.links[examples][:, examples] @ residuals)).sum(axis=0) / m**2 * (m / (m - 1))
            own = np.diag(found)
            wider = np.sqrt(
                np.maximum(linked, own) / np.where(own > 0, own, 1.0)
            )  # no smaller than for independent examples
            found = found * wider[:, None] * wider
        return found

    def folds(self, count: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Split the examples into folds of about the same size, and keep each unit in one fold."""
        sizes = np.bincount(self.of)
        order = rng.permutation(len(sizes))
        order = order[np.argsort(-sizes[order], kind="stable")]
        load, home = np.zeros(count, np.int64), np.empty(len(sizes), np.int64)
        for unit in order:  # the largest first, each to the fold with the fewest examples
            home[unit] = load.argmin()
            load[home[unit]] += sizes[unit]
        return [np.flatnonzero(home[self.of] == fold) for fold in range(count)]


@dataclass(frozen=True)
class Scores:
    """The scores of all candidates on all examples; the first candidate leaves the vectors unchanged."""

    values: dict[str, np.ndarray]
    """For each measure: an array of shape (examples, candidates)."""
    repeats: dict[str, np.ndarray]
    """For each measure that repeats a random procedure: an array of shape (repetitions, candidates)."""
    units: Units
    variance_factors: dict[str, float] = field(default_factory=dict)
    """For each measure: its largest possible variance, relative to that of independent units (1 by default)."""

    def __len__(self) -> int:
        return len(self.units.of)


@dataclass(frozen=True)
class Gains:
    """Each candidate's gain over the unchanged vectors on one measure, with simultaneous intervals."""

    scores: np.ndarray
    gains: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def verdict(self, i: int) -> GainVerdict:
        """Return "gain" or "loss" if the gain or loss is significant, else "noise"."""
        return "gain" if self.low[i] > _ROUNDING else "loss" if self.high[i] < -_ROUNDING else "noise"


@dataclass(frozen=True)
class Choice:
    """The candidate selected on a set of examples."""

    measure: str
    """The measure that decided."""
    chosen: int
    """The chosen candidate; 0 leaves the vectors unchanged."""
    best: int
    """The candidate with the largest significant gain; 0 if none has one."""
    gains: dict[str, Gains]
    """The gains on each measure that took part in the decision."""


@dataclass(frozen=True)
class Promise:
    """The expected gain from following the advice, estimated on examples that were not used to choose it."""

    gain: float
    choices: dict[int, int]
    """How often each candidate was chosen by the nested selections."""

    def share(self, chosen: int) -> float:
        """Return the share of the nested selections that chose this candidate."""
        return self.choices.get(chosen, 0) / sum(self.choices.values())


def decide(scores: Scores, confidence: float, measure: str | None, folds: int, seed: int) -> tuple[Choice, Promise]:
    """Return the candidate selected on all examples, and the nested estimate of its gain.

    A repair is recommended only if at least half of the nested selections recommend one. Otherwise, the gain is not
    confirmed: the choice is to leave the vectors unchanged, and only `best` names the candidate.
    """
    choice = choose_candidate(scores, confidence, measure)
    promise = estimate_nested_gain(scores, choice, confidence, measure, folds, seed)
    return replace(choice, chosen=0) if promise.share(0) > 0.5 else choice, promise


def choose_candidate(
    scores: Scores, confidence: float, measure: str | None = None, examples: np.ndarray | None = None
) -> Choice:
    """Return the simplest candidate whose gain is significant and within a tenth of the best significant gain.

    If a measure is requested, it decides alone. Otherwise, candidates with a significant loss on any measure are
    excluded, and the first measure on which a remaining candidate has a significant gain decides.
    """
    gains = compare_candidates(scores, confidence, [measure] if measure is not None else list(scores.values), examples)
    count = len(next(iter(gains.values())).gains)
    eligible = [i for i in range(count) if not any(of.verdict(i) == "loss" for of in gains.values())]
    for name, of in gains.items():
        significant = [i for i in eligible if of.verdict(i) == "gain"]
        if significant:
            best = max(significant, key=lambda i: of.gains[i])
            # candidates are in order of simplicity
            chosen = next(i for i in significant if of.gains[i] >= (1 - TOLERANCE) * of.gains[best])
            return Choice(name, chosen, best, gains)
    return Choice(next(iter(gains)), 0, 0, gains)


def compare_candidates(
    scores: Scores, confidence: float, measures: Sequence[str], examples: np.ndarray | None = None
) -> dict[str, Gains]:
    """Return every candidate's gain on each measure, with simultaneous confidence intervals."""
    chosen = np.arange(len(scores)) if examples is None else examples
    values = [scores.values[measure][chosen] for measure in measures]
    differences = np.hstack([of - of[:, :1] for of in values])
    gains = differences.mean(axis=0)
    scale = np.repeat([np.sqrt(scores.variance_factors.get(measure, 1.0)) for measure in measures], values[0].shape[1])
    covariance = scores.units.covariance((differences - gains) * scale, chosen)
    freedom = np.full(len(gains), max(scores.units.effective_count(chosen) - 1, 1.0))
    covariance, freedom = _add_repeats(covariance, freedom, scores, measures)
    error = np.sqrt(np.diag(covariance))
    error[error <= _ROUNDING] = 0.0
    margin = critical_values(covariance, freedom, confidence) * error
    width = values[0].shape[1]
    found = {}
    for i, measure in enumerate(measures):
        part = slice(i * width, (i + 1) * width)
        own = gains[part]
        found[measure] = Gains(values[i].mean(axis=0), own, own - margin[part], own + margin[part])
    return found


def _add_repeats(
    covariance: np.ndarray, freedom: np.ndarray, scores: Scores, measures: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Add the variance of random procedures to that of the examples (with Satterthwaite's degrees of freedom)."""
    extra, least = np.zeros(len(freedom)), np.full(len(freedom), np.inf)
    width = len(freedom) // len(measures)
    for i, measure in enumerate(measures):
        repeats = scores.repeats.get(measure)
        if repeats is not None and len(repeats) > 1:
            part = slice(i * width, (i + 1) * width)
            extra[part] = (repeats - repeats[:, :1]).var(axis=0, ddof=1) / len(repeats)
            least[part] = len(repeats) - 1
    own = np.diag(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        joint = (own + extra) ** 2 / (own**2 / freedom + extra**2 / least)
    return covariance + np.diag(extra), np.where(extra > 0, joint, freedom)


def critical_values(covariance: np.ndarray, freedom: np.ndarray, confidence: float) -> np.ndarray:
    """Return the half-widths of simultaneous confidence intervals, in standard errors.

    The quantile of the maximum of correlated normal variables is converted to that of Student's t, with the degrees of
    freedom of each difference.
    """
    error = np.sqrt(np.diag(covariance))
    alive = error > _ROUNDING
    if not alive.any():
        return np.zeros(len(error))
    correlation = covariance[np.ix_(alive, alive)] / np.outer(error[alive], error[alive])
    values, vectors = np.linalg.eigh(correlation)
    draws = _normal_draws(len(values)) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    quantile = float(np.quantile(np.abs(draws).max(axis=1), confidence))
    return np.asarray(-t.ppf(norm.sf(quantile), np.maximum(freedom, 1.0)))


@lru_cache(maxsize=4)
def _normal_draws(width: int) -> np.ndarray:
    """Return normal draws from a fixed seed, so that intervals depend only on the data."""
    return np.random.default_rng(0).standard_normal((_DRAWS, width))


def estimate_nested_gain(
    scores: Scores, choice: Choice, confidence: float, measure: str | None, folds: int, seed: int
) -> Promise:
    """Return the gain of the whole selection procedure on held-out folds, averaged over repeated partitions.

    The gain uses the measure that decided on all examples. Leaving the vectors unchanged has a gain of 0.
    """
    values = scores.values[choice.measure]
    rng = np.random.default_rng(seed)
    total, counts = 0.0, Counter[int]()
    partitions = -(-SPLITS // folds)
    for _ in range(partitions):
        parts = [part for part in scores.units.folds(folds, rng) if len(part)]
        for part in parts:
            others = np.setdiff1d(np.arange(len(scores)), part)
            chosen = choose_candidate(scores, confidence, measure, others).chosen
            counts[chosen] += 1
            total += float((values[part, chosen] - values[part, 0]).sum())
    return Promise(total / (partitions * len(scores)), dict(counts))
