"""The parts of the advisor's tasks: settings, examples, and the rows they use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from isoscope._core.arrays import check_integer, to_numpy, unit_rows
from isoscope._core.errors import NotFoundError, ParameterError, TooFewRowsError, plural
from isoscope._core.memory import limit_sample_size
from isoscope._core.missing import check_missing, check_zeros
from isoscope._core.random import check_seed
from isoscope.auditing.measure import MIN_SAMPLE
from isoscope.sketching.sketch import Sketch
from isoscope.stores.sampling import Sampler
from isoscope.stores.store import check_finite_rows

if TYPE_CHECKING:
    from isoscope._core.types import Metric, Missing, Zeros
    from isoscope._io.progress import Progress
    from isoscope.advising.inference import ExampleScores, Units
    from isoscope.stores.store import Store
    from isoscope.transforms.repair import Repair

NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class AdviceSettings:
    """The options of `advise` that affect its results."""

    metric: Metric = "cosine"
    folds: int = 5
    sample: int = 20_000
    seed: int = 0
    missing: Missing = "error"
    zeros: Zeros = "keep"
    new_rows: bool = False
    """Whether repairs are scored on rows that they were not fitted to."""
    confidence: float = 0.95
    layer: int | None = None
    """The layer that was selected, if the source contains several."""

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise ParameterError(f'metric is {self.metric!r}: need "cosine" or "euclidean"')
        if not 2 <= check_integer(self.folds, "folds") <= 50:
            raise ParameterError(f"folds is {self.folds}: need a number from 2 to 50")
        if check_integer(self.sample, "sample") < MIN_SAMPLE:
            raise ParameterError(f"sample is {self.sample}: need at least {MIN_SAMPLE} rows")
        object.__setattr__(self, "seed", check_seed(self.seed))
        check_missing(self.missing)
        check_zeros(self.zeros)


@dataclass(frozen=True)
class Round:
    """One round of fitting: the rows that every candidate is fitted to, and the examples that it is scored on."""

    fit_rows: np.ndarray | None
    """Positions among the rows in memory; None means the whole source, as in production."""
    examples: np.ndarray


class Task(ABC):
    """A task: examples of what the vectors are used for."""

    measures: ClassVar[dict[str, str]]
    """The identifier of each measure, and its name in a sentence; if several could decide, the first one does."""
    example: ClassVar[str]
    """What an example is: a pair, a query or a row."""
    variance_factors: ClassVar[dict[str, float]] = {}
    """For each measure: its largest possible variance, relative to that of independent units."""

    corpus: Rows
    """The rows in memory, which repairs are fitted to."""
    rows: Rows
    """The rows that examples refer to; fewer than the corpus if equal rows count once."""
    metric: Metric
    units: Units
    """The dependence between examples."""
    rounds: list[Round]
    """One round on the whole source, or several that hold rows out (`new_rows`)."""

    def __init__(self, rows: Rows, metric: Metric):
        self.corpus, self.rows, self.metric = rows, rows, metric
        self.notes: list[str] = []
        """Notes for the reader on how the task was scored."""

    def __len__(self) -> int:
        return len(self.units.of)

    @abstractmethod
    def score(self, repair: Repair, round: Round) -> dict[str, ExampleScores]:
        """Return the scores of a repair, fitted to the round's rows, on the round's examples for each measure."""

    def _note_links(self) -> None:
        if self.units.links is not None:
            self.notes.append(
                f"Most {PLURALS[self.example]} are connected through shared rows, so two of them count as dependent "
                "only if they share a row directly."
            )


PLURALS = {"pair": "pairs", "query": "queries", "row": "rows"}


def row_identity(X: np.ndarray) -> np.ndarray:
    """Return a number for each row that is the same for equal rows; −0 equals 0."""
    X = np.ascontiguousarray(X + 0.0)
    as_bytes = X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    return np.asarray(np.unique(as_bytes, return_inverse=True)[1])


def check_folds(folds: int, examples: int, example: str) -> None:
    """Raise an error if there are too few examples for this number of folds."""
    if examples < 4 * folds:
        raise TooFewRowsError(
            f"{plural(examples, example)} {'is' if examples == 1 else 'are'} too few for {folds} folds: need at least "
            f"{4 * folds}, or fewer folds"
        )


def check_fit_rows(fit_rows: np.ndarray, total: int) -> None:
    """Raise an error if fewer than half of the rows remain for fitting after rows are held out."""
    if 2 * len(fit_rows) < total:
        raise TooFewRowsError(
            "with new_rows (CLI: --new-rows), each repair must be fitted to at least half of the rows, but holding out "
            f"the examples of one fold leaves only {len(fit_rows):,} of {total:,}: use more folds, or a source with "
            "more rows"
        )


@dataclass(frozen=True)
class Rows:
    """Rows in memory, in source order, and the sums over all rows of the source."""

    vectors: np.ndarray
    numbers: np.ndarray
    """Each row's number in the source."""
    total: int
    """The number of rows in the source, without those that were dropped."""
    sketch: Sketch
    """The sketch of all rows of the source."""
    sampled: np.ndarray
    """Whether each row belongs to the uniform random sample; the others are included because the task uses them."""
    dropped: int = 0
    """The number of rows that were dropped because a value is missing, or because they are rows of zeros."""

    def __len__(self) -> int:
        return len(self.numbers)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Return the positions in memory of the rows with these numbers."""
        return np.searchsorted(self.numbers, numbers)

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Return whether the rows with these numbers are in memory; rows that were dropped are not."""
        return np.isin(numbers, self.numbers)

    def at(self, positions: np.ndarray) -> Rows:
        """Return the rows at the given positions."""
        return replace(
            self,
            vectors=self.vectors[positions],
            numbers=self.numbers[positions],
            sampled=self.sampled[positions],
        )


def read_rows(
    store: Store, needed: np.ndarray, size: int, seed: int, progress: Progress, stage: str = "reading"
) -> Rows:
    """Return the rows with these numbers and a uniform random sample of `size` rows, in one pass over the store."""
    needed = np.unique(needed)
    size = limit_sample_size(size, store.dim, 2 * store.dtype.itemsize)  # the rows, and their repaired copies
    sampler = Sampler(size, seed)
    kept, numbers, total, dropped = [], [], Sketch(), 0
    for batch in store.batches():
        vectors = to_numpy(batch.vectors)
        if not store.drops_rows:
            check_finite_rows(vectors, store.name, batch.start)
        complete = np.flatnonzero(np.isfinite(vectors).all(axis=1))
        wanted = complete[np.isin(batch.start + complete, needed)]
        kept.append(vectors[wanted].copy())
        numbers.append(batch.start + wanted)
        sampler.offer(batch)
        whole = len(complete) == len(vectors)
        total = total + Sketch.of(vectors if whole else vectors[complete], first=batch.start)
        dropped += len(vectors) - len(complete)
        progress(stage, batch.start + len(vectors), batch.share)
    sample = sampler.sample()
    others = ~np.isin(sample.rows, needed)
    kept.append(sample.vectors[others])
    numbers.append(sample.rows[others])
    joined, order = np.concatenate(kept), np.concatenate(numbers)
    if joined.dtype not in (np.float32, np.float64):
        joined = joined.astype(np.float32)
    back = np.argsort(order)
    sampled = np.isin(order[back], sample.rows)
    return Rows(np.ascontiguousarray(joined[back]), order[back], total.n, total, sampled, dropped)


class Match(NamedTuple):
    """The rows that judgments refer to."""

    rows: np.ndarray
    """The row number for each name; −1 if it is unknown."""
    by: Literal["ids", "texts", "row numbers"]
    """What the names were compared with."""

    @property
    def unknown(self) -> np.ndarray:
        """Whether each name is unknown."""
        return self.rows < 0

    @property
    def may_count_from_1(self) -> bool:
        """Whether the names are row numbers that could count from 0 or from 1."""
        return self.by == "row numbers" and len(self.rows) > 0 and int(self.rows.min()) > 0


def find_rows(store: Store, names: Sequence[str], what: str) -> Match:
    """Return the rows that names refer to: ids, texts or, if all names fit and the store has no ids, row numbers."""
    found = [_look_up(store, role, names, what) for role in _NAMED_BY if role in store.columns]
    best = min(found, key=lambda match: int(match.unknown.sum()), default=None)
    if best is not None and ("ids" in store.columns or not best.unknown.any()):
        return best
    numbers = [_parse_row_number(name) for name in names]
    if all(0 <= number < len(store) for number in numbers):
        return Match(np.asarray(numbers, np.int64), "row numbers")
    if min(numbers) == 1 and max(numbers) == len(store):
        raise NotFoundError(
            f"{what} refer to rows by numbers from 1 to {len(store):,}, but {store.name} has no ids, and its rows are "
            f"numbered from 0 to {len(store) - 1:,}: pass the ids ({_IDS_HINT})"
        )
    if best is not None and not best.unknown.all():
        return best
    odd = next(name for name, number in zip(names, numbers, strict=True) if not 0 <= number < len(store))
    raise NotFoundError(
        f"{what} refer to {_shorten(odd)!r}, but {store.name} has no ids, and its rows are numbered from 0 to "
        f"{len(store) - 1:,}: pass the ids ({_IDS_HINT})"
    )


_NAMED_BY: dict[str, Literal["ids", "texts"]] = {"ids": "ids", "text": "texts"}
_IDS_HINT = "ids=, query_ids=; CLI: --ids, --query-ids with a column or a file"


def _look_up(store: Store, role: str, names: Sequence[str], what: str) -> Match:
    """Return the rows whose id or text is each name; of rows with equal texts, the first."""
    values = store.column(role)
    assert values is not None
    known = {str(value): row for row, value in zip(range(len(values) - 1, -1, -1), values[::-1], strict=True)}
    if role == "ids" and len(known) < len(values):
        counts = Counter(map(str, values))
        shared = next((name for name in names if counts[name] > 1), None)
        if shared is not None:
            raise ParameterError(
                f"{what} refer to the id {_shorten(shared)!r}, which {counts[shared]:,} rows of {store.name} share: "
                "need unique ids"
            )
    return Match(np.fromiter((known.get(name, -1) for name in names), np.int64, len(names)), _NAMED_BY[role])


def _parse_row_number(name: str) -> int:
    is_number = name.isascii() and name.isdigit() and len(name) < 19  # Python refuses to convert thousands of digits
    return int(name) if is_number and (name == "0" or name[0] != "0") else -1


def _shorten(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "…"


class Side(NamedTuple):
    """One side of judged pairs of rows: the query or the document, or one row of a graded pair."""

    store: Store
    match: Match
    rows: np.ndarray
    """The row of each judged pair."""


_CLEAR = 2.0  # standard errors; if counting from 1 is right, the difference is below 0


def check_numbering(sides: tuple[Side, Side], grades: np.ndarray, what: str, seed: int) -> list[str]:
    """Return notes about names that are row numbers; raise an error if they may count from 1 instead of 0.

    Names that include a 0 count from 0. Otherwise the vectors decide: grades must agree with the similarities of rows
    clearly better if the names count from 0 than if they count from 1.
    """
    notes = [
        f"{side.store.name} has no ids, so {what} refer to its rows by number, from 0 to {len(side.store) - 1:,}."
        for side in {id(side.store): side for side in sides}.values()
        if side.match.by == "row numbers"
    ]
    shifts = [(0, 1) if side.match.may_count_from_1 else (0,) for side in sides]
    same_store = sides[0].store is sides[1].store
    others = [each for each in product(*shifts) if any(each) and (not same_store or each[0] == each[1])]
    some = np.random.default_rng(seed).permutation(len(grades))[:1_000]
    differences = {shift: _mean_difference(sides, grades, some, shift) for shift in others}
    if differences:
        shift = min(differences, key=lambda each: differences[each][0])
        mean, error = differences[shift]
        if not mean > _CLEAR * error:
            side = sides[0] if shift[0] else sides[1]
            numbers = f"numbers from {side.match.rows.min():,} to {side.match.rows.max():,}"
            guess = "fits the vectors better" if mean < -_CLEAR * error else "is possible as well"
            raise NotFoundError(
                f"{what} refer to rows of {side.store.name} by {numbers}, and counting from 1 instead of 0 {guess}: "
                f"pass the ids ({_IDS_HINT})"
            )
    return notes


def _mean_difference(
    sides: tuple[Side, Side], grades: np.ndarray, some: np.ndarray, shift: tuple[int, ...]
) -> tuple[float, float]:
    """Return how much better counting from 0 agrees with the grades than a shifted count, and the standard error."""
    better = grades[some] * (_cosines(sides, some, (0, 0)) - _cosines(sides, some, shift))
    return float(better.mean()), float(better.std()) / max(len(better) - 1, 1) ** 0.5


def _cosines(sides: tuple[Side, Side], some: np.ndarray, shift: tuple[int, ...]) -> np.ndarray:
    """Return the cosine of each pair of rows, after subtracting the shift from their numbers.

    Coordinates are standardized, so that a shared direction or one large coordinate does not hide the others.
    """
    first, second = (
        np.nan_to_num(side.store.take(side.rows[some] - by).astype(np.float64), posinf=0, neginf=0)
        for side, by in zip(sides, shift, strict=True)
    )
    both = np.concatenate([first, second])
    mean, spread = both.mean(axis=0), both.std(axis=0)
    spread[spread == 0] = 1
    first, second = (unit_rows(np, (X - mean) / spread, np.dtype(np.float64)) for X in (first, second))
    return np.asarray(np.einsum("ij,ij->i", first, second))


def check_known(names: Sequence[str], match: Match, what: str, store: Store) -> None:
    """Raise an error if names are unknown; the message states how many, and the first of them."""
    if not match.unknown.any():
        return
    missing = list(dict.fromkeys(name for name, gone in zip(names, match.unknown, strict=True) if gone))
    advice = 'drop these judgments with missing="drop" (CLI: --missing drop)'
    if match.unknown.mean() > 0.5:
        advice = f"pass the ids ({_IDS_HINT})"
    raise NotFoundError(
        f"{what} refer to {plural(len(missing), 'row')} that {store.name} does not contain (compared with its "
        f"{match.by}), such as {_shorten(missing[0])!r}: {advice}"
    )


def count_unknown(names: list[str], match: Match, what: str, store: Store, settings: AdviceSettings) -> int:
    """Return the number of unknown names; raise an error if they must not be dropped or if no name is known."""
    if settings.missing == "error" or match.unknown.all():
        check_known(names, match, what, store)
    return len({name for name, no in zip(names, match.unknown, strict=True) if no})


def note_rows(task: Task) -> None:
    """Add notes about rows that were dropped, rows of zeros, and a sample."""
    corpus = task.corpus
    if corpus.dropped:
        everything = corpus.total + corpus.dropped
        task.notes.append(f"{corpus.dropped:,} of {everything:,} rows were dropped: they are incomplete or all zeros.")
    if corpus.sketch.zeros:
        has = "is" if corpus.sketch.zeros == 1 else "are"
        task.notes.append(
            f'{plural(corpus.sketch.zeros, "row")} of zeros {has} included; pass zeros="drop" (CLI: --zeros drop) to '
            "leave them out."
        )


def note_sample(task: Task) -> None:
    """Add a note if the task is scored on a sample of the rows."""
    if len(task.corpus) < task.corpus.total:
        task.notes.append(f"Scored on a random sample of {len(task.corpus):,} of {task.corpus.total:,} rows.")
