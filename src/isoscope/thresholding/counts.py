"""Counts of predicted and true matches at each threshold, for judged pairs, judged queries and labeled rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import ParameterError, TooFewRowsError, plural
from isoscope._core.memory import tile_bytes
from isoscope.advising.graded_pairs import find_contradictions
from isoscope.advising.matching import shorten_name
from isoscope.advising.retrieval import prepare, similarity

if TYPE_CHECKING:
    from isoscope.advising.graded_pairs import GradedPairs
    from isoscope.advising.inference import Units
    from isoscope.advising.labels import Labels
    from isoscope.advising.retrieval import Retrieval

MAX_LABELED = 10_000
"""The largest number of labeled rows whose pairs are compared; a random sample of a larger number is used."""

_CUTS = 250  # the largest number of thresholds that are compared
_LEAST_RECALL_LOSS = 0.005  # below this quantile of the matches, only one threshold is compared, below all matches
_TILE = 64 * 2**20  # bytes of cosines in memory at a time
_MOST_GRADES = 12  # a message lists at most this many grades
_ROUNDING = 1e-6  # a cosine this close below a threshold counts as equal to it
_BINS = 60  # of the histograms for the chart


@dataclass(frozen=True)
class Counts:
    """How many pairs of each example are above each threshold, and how many of these are matches."""

    cuts: np.ndarray
    """The thresholds in ascending order; a pair counts as a predicted match if its cosine is at least the threshold."""
    predicted: np.ndarray
    """The number of predicted matches: an array of shape (examples, thresholds)."""
    matched: np.ndarray
    """The number of predicted matches that are matches, in the same shape."""
    positives: np.ndarray
    """The number of matches of each example."""
    pairs: np.ndarray
    """The number of pairs of each example."""
    units: Units
    """The dependence between the examples of the task."""
    members: np.ndarray
    """The position of each example in the task."""
    twice: bool = False
    """Whether each pair counts for both of its rows, so that sums over examples count it twice."""

    def __len__(self) -> int:
        return len(self.members)

    def of(self, chosen: np.ndarray) -> Counts:
        """Return the counts of some examples, given a mask or positions."""
        return replace(
            self,
            predicted=self.predicted[chosen],
            matched=self.matched[chosen],
            positives=self.positives[chosen],
            pairs=self.pairs[chosen],
            members=self.members[chosen],
        )

    def at_cut(self, index: int) -> Counts:
        """Return the counts at one threshold."""
        one = slice(index, index + 1)
        return replace(self, cuts=self.cuts[one], predicted=self.predicted[:, one], matched=self.matched[:, one])

    def join(self, others: Sequence[Counts]) -> Counts:
        """Return the counts of these and the other examples together, at the thresholds of this object."""
        arrays = ("predicted", "matched", "positives", "pairs", "members")
        together: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in (self, *others)]) for name in arrays
        }
        return replace(self, **together)

    @property
    def share(self) -> float:
        """The share of matches among all pairs."""
        return float(self.positives.sum() / self.pairs.sum())


class JudgedPairs(ABC):
    """Pairs that are known to be matches or not; each belongs to an example: a pair, a query or a row."""

    counts: Counts
    """The counts of all examples."""
    relative: Counts | None = None
    """The counts for relative thresholds: each is the negative of the allowed difference to a query's best result."""
    matches: np.ndarray
    """A histogram of the cosines of matches, over `edges`."""
    others: np.ndarray
    """The same for the pairs that are not matches."""
    edges: np.ndarray

    @abstractmethod
    def splits(self, folds: int, seed: int, *, relative: bool = False) -> Iterator[tuple[Counts, Counts]]:
        """Yield the counts of all folds but one, and of the held-out fold, for each fold."""

    @property
    def number_of_pairs(self) -> float:
        """The number of pairs."""
        return float(self.counts.pairs.sum()) / (2 if self.counts.twice else 1)

    @property
    def number_of_matches(self) -> float:
        """The number of matches."""
        return float(self.counts.positives.sum()) / (2 if self.counts.twice else 1)


class _IndependentExamples(JudgedPairs):
    """Judged pairs that each belong to exactly one example."""

    def splits(self, folds: int, seed: int, *, relative: bool = False) -> Iterator[tuple[Counts, Counts]]:
        """See `JudgedPairs`."""
        counts = self.relative if relative else self.counts
        assert counts is not None
        for part in counts.units.folds(folds, np.random.default_rng(seed)):
            if len(part):
                held_out = np.isin(np.arange(len(counts)), part)
                yield counts.of(~held_out), counts.of(held_out)


class GradedExamples(_IndependentExamples):
    """Graded pairs; those with at least the grade `match_from` are matches."""

    def __init__(self, task: GradedPairs, match_from: float | None, recall: float | None):
        is_match = find_matches(task.grades, match_from)
        _check_repeated_pairs(task, is_match)
        used, sides = np.unique([task.first, task.second], return_inverse=True)
        unit = prepare(task.rows.vectors[used], "cosine")
        first, second = (unit[side] for side in sides.reshape(2, -1))
        cosines = similarity(first, second, "cosine")
        cuts = make_cuts(cosines[is_match], recall)
        above = (cosines[:, None] >= cuts - _ROUNDING).astype(np.float64)
        ones = np.ones(len(cosines))
        self.counts = Counts(
            cuts, above, above * is_match[:, None], 1.0 * is_match, ones, task.units, np.arange(len(cosines))
        )
        self.edges = _make_edges(cosines.min(), cosines.max())
        self.matches, self.others = (np.histogram(cosines[each], self.edges)[0] for each in (is_match, ~is_match))


class QueryExamples(_IndependentExamples):
    """Queries with all documents; documents without a judgment are not matches.

    If the corpus is larger than the sample, each sampled document that is relevant to no query counts as several.
    """

    def __init__(self, task: Retrieval, match_from: float | None, recall: float | None):
        documents, queries = prepare(task.rows.vectors, "cosine"), prepare(task.queries, "cosine")
        least = -np.inf if match_from is None else match_from
        relevant = [np.asarray([row for row, grade in of.items() if grade >= least], np.int64) for of in task.relevant]
        if not sum(map(len, relevant)):
            grades = sorted({grade for of in task.relevant for grade in of.values()})
            raise ParameterError(f"no judgment has at least the grade {match_from:g}: the grades are {_list(grades)}")
        if all(len(of) == task.rows.total for of in relevant):
            raise ParameterError("every document is relevant for every query: need documents that are not relevant")
        judged = np.unique(np.concatenate([list(of) for of in task.relevant])).astype(np.int64)
        weights = np.ones(len(documents))
        if task.rows.total > len(documents):
            weights[:] = (task.rows.total - len(judged)) / (len(documents) - len(judged))
            weights[judged] = 1
        found = [documents[rows] @ query for rows, query in zip(relevant, queries, strict=True)]
        best = np.empty(len(queries))
        lowest, highest = np.inf, -np.inf
        for part in blocks(len(queries), max(1, tile_bytes(_TILE) // (8 * len(documents)))):
            tile = queries[part] @ documents.T
            best[part] = tile.max(axis=1)
            lowest, highest = min(lowest, float(tile.min())), max(highest, float(tile.max()))
        cosines = np.concatenate(found)
        cuts = make_cuts(cosines, recall)
        gaps = np.concatenate([one - top for one, top in zip(found, best, strict=True)])
        gap_cuts = make_cuts(np.minimum(gaps, 0), recall, top=0.0)
        self.edges = _make_edges(lowest, highest)
        everything = np.zeros(len(self.edges) - 1)
        predicted, within = np.empty((len(queries), len(cuts))), np.empty((len(queries), len(gap_cuts)))
        for part in blocks(len(queries), max(1, tile_bytes(_TILE) // (8 * len(documents)))):
            tile = queries[part] @ documents.T
            everything += np.histogram(tile, self.edges, weights=np.broadcast_to(weights, tile.shape))[0]
            predicted[part] = count_above(tile, cuts, weights)
            within[part] = count_above(tile - best[part, None], gap_cuts, weights)
        matched, matched_within = np.empty_like(predicted), np.empty_like(within)
        for i, (of, top) in enumerate(zip(found, best, strict=True)):
            matched[i] = (of[:, None] >= cuts - _ROUNDING).sum(axis=0)
            matched_within[i] = (of[:, None] - top >= gap_cuts - _ROUNDING).sum(axis=0)
        positives = np.asarray([float(len(of)) for of in relevant])
        pairs = np.full(len(queries), weights.sum())
        members = np.arange(len(queries))
        self.counts = Counts(cuts, predicted, matched, positives, pairs, task.units, members)
        if task.rows.total == len(documents):
            self.relative = Counts(gap_cuts, within, matched_within, positives, pairs, task.units, members)
        self.matches = np.histogram(cosines, self.edges)[0]
        self.others = np.maximum(everything - self.matches, 0)


class LabeledExamples(JudgedPairs):
    """Pairs of labeled rows; those with equal labels are matches.

    A held-out pair has both rows in the held-out fold, so that no row of it took part in the choice of the threshold.
    """

    def __init__(self, task: Labels, folds: int, recall: float | None, seed: int):
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(len(task.labels))[:MAX_LABELED])
        unit, labels = prepare(task.rows.vectors[chosen], "cosine"), task.labels[chosen]
        self.units = task.units
        self.members = chosen
        self.fold_of = np.empty(len(chosen), np.int64)
        self.fold_of[rng.permutation(len(chosen))] = np.arange(len(chosen)) % folds
        self.folds = folds
        if np.bincount(labels).max() < 2:
            raise TooFewRowsError(
                "no two rows have the same label: need at least 1 pair; pass labels that several rows share"
            )
        pilot = np.sort(rng.permutation(len(chosen))[:2_000])
        cosines = unit[pilot] @ unit[pilot].T
        upper = np.triu(labels[pilot][:, None] == labels[pilot], 1)
        if not upper.any():
            raise TooFewRowsError(
                f"no two of {len(pilot):,} random rows have the same label: need at least 1 pair; pass labels that "
                "more rows share"
            )
        cuts = make_cuts(cosines[upper], recall)
        self.edges = _make_edges(float(cosines.min()), 1.0)
        everything = np.triu(np.ones(cosines.shape, bool), 1)
        self.matches = np.histogram(cosines[upper], self.edges)[0]
        self.others = np.histogram(cosines[everything & ~upper], self.edges)[0]
        n, width = len(chosen), len(cuts) + 1
        predicted, matched = (np.zeros((n, folds, len(cuts)), np.float32) for _ in range(2))
        for part in blocks(n, max(1, tile_bytes(_TILE) // (16 * n))):
            tile = unit[part] @ unit.T
            at = np.arange(part.start, part.stop)
            tile[at - part.start, at] = -2.0  # a row is no pair with itself
            same = labels[part, None] == labels
            same[at - part.start, at] = False
            bins = find_bins(tile, cuts)
            bins += (np.arange(len(tile))[:, None] * folds + self.fold_of) * width
            shape = (len(tile), folds, width)
            predicted[part] = _count_from(np.bincount(bins.ravel(), minlength=np.prod(shape)).reshape(shape))
            matched[part] = _count_from(np.bincount(bins[same], minlength=np.prod(shape)).reshape(shape))
        in_fold = np.bincount(self.fold_of, minlength=folds)
        per_fold = np.zeros((folds, int(labels.max()) + 1))
        np.add.at(per_fold, (self.fold_of, labels), 1)
        self.pairs = np.tile(in_fold, (n, 1)).astype(np.float64)
        self.positives = per_fold[:, labels].T.copy()
        own = np.arange(n)
        self.pairs[own, self.fold_of] -= 1
        self.positives[own, self.fold_of] -= 1
        self.cuts, self.predicted, self.matched = cuts, predicted, matched
        self.counts = self._count(np.ones(n, bool), np.arange(folds))

    def _count(self, rows: np.ndarray, folds: np.ndarray) -> Counts:
        """Return the counts of some rows, each paired with the other rows in some folds."""
        return Counts(
            self.cuts,
            self.predicted[rows][:, folds].sum(axis=1, dtype=np.float64),
            self.matched[rows][:, folds].sum(axis=1, dtype=np.float64),
            self.positives[rows][:, folds].sum(axis=1),
            self.pairs[rows][:, folds].sum(axis=1),
            self.units,
            self.members[rows],
            twice=True,
        )

    def splits(self, folds: int, seed: int, *, relative: bool = False) -> Iterator[tuple[Counts, Counts]]:
        """See `JudgedPairs`."""
        for fold in range(self.folds):
            own = self.fold_of == fold
            yield self._count(~own, np.delete(np.arange(self.folds), fold)), self._count(own, np.asarray([fold]))


def find_matches(grades: np.ndarray, match_from: float | None) -> np.ndarray:
    """Return which grades are matches: the higher of two grades, or those from `match_from` on.

    >>> find_matches(np.array([0.0, 1.0, 1.0]), None), find_matches(np.array([1.0, 2.5, 4.0]), 2.5)
    (array([False,  True,  True]), array([False,  True,  True]))
    """
    distinct = np.unique(grades)
    if match_from is None:
        if len(distinct) > 2:
            raise ParameterError(
                f"the pairs have {plural(len(distinct), 'distinct grade')} ({_list(distinct.tolist())}): pass the "
                "lowest grade of a match as match_from (CLI: --match-from)"
            )
        return np.asarray(grades == distinct[-1])
    is_match = grades >= match_from
    if is_match.all() or not is_match.any():
        which = "every pair is a match" if is_match.all() else "no pair is a match"
        raise ParameterError(f"with match_from {match_from:g}, {which}: the grades are {_list(distinct.tolist())}")
    return np.asarray(is_match)


def _check_repeated_pairs(task: GradedPairs, is_match: np.ndarray) -> None:
    """Raise an error if a pair is judged both as a match and as no match."""
    for one, other in find_contradictions(task.first, task.second, is_match):
        match, no_match = (one, other) if is_match[one] else (other, one)
        a, b = map(shorten_name, task.names[one])
        raise ParameterError(
            f"the rows {a!r} and {b!r} are judged both as a match (score {task.grades[match]:g}) and as no match "
            f"(score {task.grades[no_match]:g}): keep one score for each pair, such as the mean"
        )


def _list(grades: list[float]) -> str:
    """Return grades as text; a long list is shortened to its first and last grades."""
    if len(grades) > _MOST_GRADES:
        half = _MOST_GRADES // 2
        grades_text = [f"{grade:g}" for grade in grades[:half]] + ["…"] + [f"{grade:g}" for grade in grades[-half:]]
        return ", ".join(grades_text)
    return ", ".join(f"{grade:g}" for grade in grades)


def make_cuts(cosines: np.ndarray, recall: float | None, top: float = 1.0) -> np.ndarray:
    """Return round thresholds at equal steps over the cosines of matches, in ascending order.

    Only the range depends on the data, so that thresholds are the same for all folds. The first one is below all
    matches.

    >>> make_cuts(np.array([0.31, 0.62, 0.9]), None)[[0, 1, -1]]
    array([0.305, 0.31 , 0.9  ])
    """
    lost = _LEAST_RECALL_LOSS if recall is None else min(_LEAST_RECALL_LOSS, (1 - recall) / 4)
    low, high = float(np.quantile(cosines, lost)), min(float(cosines.max()), top)
    span = max(high - low, 1e-6)
    power = 10.0 ** np.floor(np.log10(span / _CUTS))
    step = next(power * times for times in (1, 2, 5, 10) if span / (power * times) <= _CUTS)
    first, last = int(np.floor(low / step)) - 1, int(np.ceil(high / step - 1e-9))
    cuts = np.round(np.arange(first, last + 1) * step, 12)
    lowest = np.floor(float(cosines.min()) / step) * step
    return np.asarray(np.concatenate([[np.round(lowest, 12)], cuts]) if lowest < cuts[0] else cuts)


def find_bins(tile: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the number of thresholds that each value reaches; steps between thresholds are equal, except the first."""
    first = 1 if len(cuts) > 2 and not np.isclose(cuts[1] - cuts[0], cuts[2] - cuts[1]) else 0
    step = (cuts[-1] - cuts[first]) / max(len(cuts) - 1 - first, 1)
    if step <= 0:
        return np.asarray(tile >= cuts[0] - _ROUNDING, np.int64)
    bins = np.asarray(np.floor((tile - (cuts[first] - _ROUNDING)) / step), np.int64)
    np.clip(bins, -1, len(cuts) - 1 - first, out=bins)
    bins += 1 + first
    if first:
        bins[(bins == 1) & (tile < cuts[0] - _ROUNDING)] = 0
    return bins


def count_above(tile: np.ndarray, cuts: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the weighted number of values in each row of `tile` that are at least each threshold."""
    m, width = len(tile), len(cuts) + 1
    bins = (find_bins(tile, cuts) + np.arange(m)[:, None] * width).ravel()
    spread = None if weights is None else np.broadcast_to(weights, tile.shape).ravel()
    return _count_from(np.bincount(bins, weights=spread, minlength=m * width).reshape(m, width))


def _count_from(binned: np.ndarray) -> np.ndarray:
    """Return how many values reach each threshold, given how many reach exactly 0, 1, 2, … thresholds."""
    return np.asarray(binned[..., :0:-1].cumsum(axis=-1)[..., ::-1], np.float64)


def _make_edges(low: float, high: float) -> np.ndarray:
    """Return the edges of the histograms, slightly beyond the lowest and highest cosine."""
    room = max(1e-6, 1e-4 * (high - low))
    return np.linspace(low - room, high + room, _BINS + 1)
