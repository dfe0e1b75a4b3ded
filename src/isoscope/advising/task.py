"""The parts of the advisor's tasks: settings, examples, and the rows they use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from isoscope._core.arrays import check_integer, to_numpy
from isoscope._core.errors import MissingValueError, ParameterError, TooFewRowsError, plural
from isoscope._core.memory import limit_sample_size
from isoscope._core.missing import check_missing, check_zeros, note_dropped_rows
from isoscope._core.random import check_seed
from isoscope.auditing.measure import MIN_SAMPLE
from isoscope.engines.engine import LocalEngine, Tally
from isoscope.sketching.sketch import Sketch
from isoscope.stores.sampling import Sampler
from isoscope.stores.store import check_finite_rows

if TYPE_CHECKING:
    from isoscope._core.types import Metric, Missing, Zeros
    from isoscope._io.progress import Progress
    from isoscope.advising.inference import ExampleScores, Units
    from isoscope.engines.engine import Engine
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Batch, Store
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

    def share_work(self, repairs: Sequence[Repair]) -> None:  # noqa: B027 (most tasks share nothing)
        """Compute the results that the scores of several repairs share; all repairs are fitted to the whole source."""

    @abstractmethod
    def score(self, repair: Repair, round: Round) -> dict[str, ExampleScores]:
        """Return the scores of a repair, fitted to the round's rows, on the round's examples for each measure."""

    def _note_links(self) -> None:
        if self.units.links is not None:
            self.notes.append(
                f"Chains of shared rows link most {PLURALS[self.example]}, so only {PLURALS[self.example]} that share "
                "a row directly are treated as dependent."
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
        fewer = ", or fewer folds" if examples >= 8 else ""
        raise TooFewRowsError(
            f"{plural(examples, example)} {'is' if examples == 1 else 'are'} too few for {folds} folds: need at least "
            f"{4 * folds}{fewer}"
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


class RowsTally(Tally):
    """A tally that collects the needed rows (numbers in ascending order), a random sample, and the sketch of all."""

    def __init__(self, needed: np.ndarray, size: int, seed: int, store: Store):
        self.needed, self.name, self.drops_rows = needed, store.name, store.drops_rows
        self.sampler = Sampler(size, seed)
        self.found: list[tuple[np.ndarray, np.ndarray]] = []
        self.sketch, self.dropped = Sketch(), 0

    def watch(self, batch: Batch) -> None:
        """Pass the next batch to the sampler."""
        self.sampler.offer(batch)

    def summarize(self, item: Batch) -> tuple[np.ndarray, np.ndarray, Sketch, int]:
        """Return the numbers and vectors of the needed rows of a batch, its sketch, and how many rows were dropped."""
        vectors = to_numpy(item.vectors)
        low, high = np.searchsorted(self.needed, (item.start, item.start + len(vectors)))
        wanted, complete = self.needed[low:high] - item.start, vectors
        if not self.drops_rows:
            check_finite_rows(vectors, self.name, item.start)
        elif not (finite := np.isfinite(vectors).all(axis=1)).all():
            complete, wanted = vectors[finite], wanted[finite[wanted]]
        sketch = Sketch.of(complete, first=item.start)
        return item.start + wanted, vectors[wanted].copy(), sketch, len(vectors) - len(complete)

    def add(self, part: tuple[np.ndarray, np.ndarray, Sketch, int]) -> None:
        """Add the rows and the sums of the next batch."""
        numbers, vectors, sketch, dropped = part
        self.found.append((numbers, vectors))
        self.sketch, self.dropped = self.sketch + sketch, self.dropped + dropped

    def partial_result(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], Sample, Sketch, int]:
        """Return the rows, the sample and the sums so far."""
        return self.found, self.sampler.sample(), self.sketch, self.dropped

    def join(self, gathered: tuple[list[tuple[np.ndarray, np.ndarray]], Sample, Sketch, int]) -> None:
        """Add the partial result of later rows."""
        found, sample, sketch, dropped = gathered
        self.found += found
        self.sampler.join(sample)
        self.sketch, self.dropped = self.sketch + sketch, self.dropped + dropped

    def share(self, first: int, rows: int) -> np.ndarray:
        """Return the numbers of the needed rows among these rows."""
        low, high = np.searchsorted(self.needed, (first, first + rows))
        return self.needed[low:high]

    def narrow(self, share: np.ndarray) -> None:
        """Search only for the needed rows of a share."""
        self.needed = share

    def expect(self, rows: int) -> None:
        """Set the total number of rows, so that rows that cannot be in the sample are skipped."""
        self.sampler.expect(rows)

    def fell_short(self) -> bool:
        """Return whether the sample may lack rows that it should contain."""
        return self.sampler.fell_short() and self.sketch.n > self.sampler.pool_size


def read_rows(
    store: Store,
    needed: np.ndarray,
    size: int,
    seed: int,
    progress: Progress,
    engine: Engine | None = None,
) -> Rows:
    """Return the rows with these numbers and a uniform random sample of `size` rows, in one pass over the store."""
    size = limit_sample_size(size, store.dim, 2 * store.dtype.itemsize)  # the rows, and their repaired copies
    tally = (engine or LocalEngine()).tally(RowsTally(np.unique(needed), size, seed, store), store, progress)
    if not tally.sketch.n:
        raise MissingValueError(f"all rows of {store.name} are incomplete or all zeros: need at least one usable row")
    sample = tally.sampler.sample()
    others = ~np.isin(sample.rows, needed)
    joined = np.concatenate([*(vectors for _, vectors in tally.found), sample.vectors[others]])
    order = np.concatenate([*(numbers for numbers, _ in tally.found), sample.rows[others]])
    if joined.dtype not in (np.float32, np.float64):
        joined = joined.astype(np.float32)
    back = np.argsort(order)
    sampled = np.isin(order[back], sample.rows)
    sketch = tally.sketch
    return Rows(np.ascontiguousarray(joined[back]), order[back], sketch.n, sketch, sampled, tally.dropped)


def note_rows(task: Task) -> None:
    """Add notes about rows that were dropped, rows of zeros, and a sample."""
    corpus = task.corpus
    if corpus.dropped:
        task.notes.append(note_dropped_rows(corpus.dropped, corpus.total + corpus.dropped))
    if corpus.sketch.zeros:
        task.notes.append(note_kept_zeros(corpus.sketch.zeros, "row", task.metric))


def note_kept_zeros(count: int, noun: str, metric: Metric) -> str:
    """Return a note about rows or queries of zeros that take part in a task.

    >>> note_kept_zeros(1, "row", "cosine")
    '1 row of zeros is included, and its cosine counts as 0; to drop it, pass zeros="drop" (CLI: --zeros drop).'
    """
    verb, owner, them = ("is", "its", "it") if count == 1 else ("are", "their", "them")
    cosine = f", and {owner} cosine counts as 0" if metric == "cosine" else ""
    return (
        f"{plural(count, noun)} of zeros {verb} included{cosine}; to drop {them}, pass "
        'zeros="drop" (CLI: --zeros drop).'
    )


def note_sample(task: Task) -> None:
    """Add a note if the task is scored on a sample of the rows."""
    if len(task.corpus) < task.corpus.total:
        task.notes.append(f"Scored on a random sample of {len(task.corpus):,} of {task.corpus.total:,} rows.")
