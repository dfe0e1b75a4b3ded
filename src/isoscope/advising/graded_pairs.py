"""The graded-pairs task: rank pairs of rows by similarity, and compare the ranking with human grades."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata

from isoscope._core.errors import ParameterError, TooFewRowsError, plural, was_dropped
from isoscope.advising.inference import Units, spearman
from isoscope.advising.judgments import read_pairs
from isoscope.advising.matching import Side, check_numbering, count_unknown, find_rows, shorten_name
from isoscope.advising.retrieval import prepare, similarity
from isoscope.advising.task import (
    Round,
    Task,
    check_fit_rows,
    check_folds,
    note_rows,
    read_rows,
    row_identity,
)

if TYPE_CHECKING:
    from isoscope._core.types import Metric
    from isoscope._io.progress import Progress
    from isoscope.advising.inference import ExampleScores
    from isoscope.advising.task import AdviceSettings, Rows
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store
    from isoscope.transforms.repair import Repair


class GradedPairs(Task):
    """Spearman's correlation between the similarities of pairs and their grades.

    Pairs that share a row, or that contain equal rows, depend on one another and form one unit. With `new_rows`,
    repairs are fitted without the rows of the pairs they are scored on.
    """

    measures: ClassVar = {"spearman": "Spearman's correlation"}
    example: ClassVar = "pair"

    def __init__(
        self,
        rows: Rows,
        first: np.ndarray,
        second: np.ndarray,
        grades: np.ndarray,
        metric: Metric,
        folds: int,
        seed: int,
        *,
        new_rows: bool = False,
        names: Sequence[tuple[str, str]] = (),
    ):
        super().__init__(rows, metric)
        check_folds(folds, len(grades), "pair")
        self.names = names
        """The names of both rows of each pair, as they were passed; empty if unknown."""
        self.first, self.second, self.grades = first, second, grades
        used, sides = np.unique([first, second], return_inverse=True)
        identity = row_identity(rows.vectors[used])[sides.reshape(2, -1)]
        pair = np.tile(np.arange(len(grades)), 2)
        shares = csr_array((np.ones(len(pair)), (pair, identity.ravel())), shape=(len(grades), len(used)))
        self.units = Units(shares, folds)
        self._note_links()
        self.rounds = [Round(None, np.arange(len(grades)))]
        if new_rows:
            self.rounds = [self._hold_out(part) for part in self.units.folds(folds, np.random.default_rng(seed))]

    def _hold_out(self, pairs: np.ndarray) -> Round:
        """Return a round that scores these pairs and fits on the rows that are not in any of them."""
        held_out = np.union1d(self.first[pairs], self.second[pairs])
        fit_rows = np.setdiff1d(np.arange(len(self.rows)), held_out)
        check_fit_rows(fit_rows, len(self.rows))
        return Round(fit_rows, pairs)

    def score(self, repair: Repair, round: Round) -> dict[str, ExampleScores]:
        """Return Spearman's correlation over the pairs of a round."""
        pairs = round.examples
        used, sides = np.unique([self.first[pairs], self.second[pairs]], return_inverse=True)
        repaired = prepare(repair.transform(self.rows.vectors[used]), self.metric)
        first, second = (repaired[side] for side in sides.reshape(2, -1))
        return {"spearman": spearman(similarity(first, second, self.metric), self.grades[pairs])}


def pairs_task(
    store: Store, pairs: Any, settings: AdviceSettings, progress: Progress, engine: Engine | None = None
) -> GradedPairs:
    """Return the task of ranking graded pairs of the store's rows."""
    named = read_pairs(pairs, settings.missing)
    names = [*named.first, *named.second]
    match = find_rows(store, names, "the pairs")
    unknown = count_unknown(names, match, "the pairs", store, settings.missing)
    m = len(named)
    known = ~(match.unknown[:m] | match.unknown[m:])
    first, second, scores = match.rows[:m][known], match.rows[m:][known], named.scores[known]
    _check_pairs(scores)
    ranks = rankdata(scores)
    grades = (ranks - ranks.mean()) / ranks.std()
    notes = check_numbering((Side(store, match, first), Side(store, match, second)), grades, "the pairs", settings.seed)
    pair_names = list(compress(zip(named.first, named.second, strict=True), known))
    notes += _check_repeated_pairs(first, second, scores, pair_names)
    if own := int((first == second).sum()):
        verb, owner = ("compares", "its") if own == 1 else ("compare", "their")
        notes.append(f"{plural(own, 'pair')} {verb} a row with itself, so {owner} cosine is always 1.")
    rows = read_rows(store, np.concatenate([first, second]), settings.sample, settings.seed, progress, engine)
    complete = rows.contains(first) & rows.contains(second)
    first, second, scores = first[complete], second[complete], scores[complete]
    _check_pairs(scores)
    sides = rows.places(first), rows.places(second)
    task = GradedPairs(
        rows,
        *sides,
        scores,
        settings.metric,
        settings.folds,
        settings.seed,
        new_rows=settings.new_rows,
        names=list(compress(pair_names, complete)),
    )
    task.notes += notes
    note_rows(task)
    if unknown:
        task.notes.append(was_dropped(m - int(known.sum()), "pair", "with unknown rows") + ".")
    if named.dropped:
        task.notes.append(was_dropped(named.dropped, "pair", "with a missing value") + ".")
    if not complete.all():
        task.notes.append(was_dropped(int((~complete).sum()), "pair", "with a dropped row") + ".")
    return task


def find_contradictions(first: np.ndarray, second: np.ndarray, judged: np.ndarray) -> list[tuple[int, int]]:
    """Return the positions of two different judgments for each pair that has some; the order of the rows is ignored.

    >>> find_contradictions(np.array([1, 7, 2]), np.array([2, 8, 1]), np.array([1.0, 1.0, 0.0]))
    [(0, 2)]
    """
    low, high = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((high, low))
    begins = np.concatenate([[True], (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)])
    earliest = order[np.flatnonzero(begins)]
    pair = np.cumsum(begins) - 1
    differs = np.flatnonzero(judged[order] != judged[earliest[pair]])
    which, at = np.unique(pair[differs], return_index=True)
    return sorted((int(earliest[one]), int(order[differs[other]])) for one, other in zip(which, at, strict=True))


def _check_repeated_pairs(
    first: np.ndarray, second: np.ndarray, scores: np.ndarray, names: Sequence[tuple[str, str]]
) -> list[str]:
    """Raise an error if one of two scores contradicts the other; return a note about pairs with several grades."""
    found = find_contradictions(first, second, scores)
    if not found:
        return []
    one, other = found[0]
    if len(np.unique(scores)) == 2:
        a, b = map(shorten_name, names[one])
        count = f" ({len(found):,} pairs have both scores)" if len(found) > 1 else ""
        raise ParameterError(
            f"the pairs contain two scores, {scores[one]:g} and {scores[other]:g}, for the rows {a!r} and {b!r}{count}"
            ": keep one score for each pair"
        )
    verb = "has" if len(found) == 1 else "have"
    return [f"{plural(len(found), 'pair')} {verb} several different scores; each score counts as an example."]


def _check_pairs(scores: np.ndarray) -> None:
    if len(scores) < 20 or scores.min() == scores.max():
        raise TooFewRowsError(
            f"{plural(len(scores), 'pair')} with known rows remain: need at least 20, with at least two distinct scores"
        )
