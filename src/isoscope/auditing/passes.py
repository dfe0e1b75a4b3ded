"""The two passes over a store: sums and a sample; then the partition function and the neighbours of some queries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.arrays import TILE_BYTES, blocks, to_numpy, unit_rows
from isoscope._core.errors import InputError
from isoscope._core.memory import tile_bytes
from isoscope.auditing.type_cosines import TypeCosines, TypeUnits
from isoscope.engines.engine import Tally
from isoscope.metrics.partition import LogSum
from isoscope.sketching.sketch import Sketch
from isoscope.stores.sampling import Sample, Sampler
from isoscope.stores.store import Batch

if TYPE_CHECKING:
    from isoscope._core.pairs import NeighborSearch
    from isoscope._io.progress import Progress
    from isoscope.auditing.settings import Settings
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

JACKKNIFE_GROUPS = 16
"""Groups of rows that are left out in turn, to see how sure the partition function is."""

_TYPE_BYTES = 512 * 2**20  # what the sums of all types may take before they are given up


@dataclass(frozen=True)
class FirstPass:
    """What one look at every row gives."""

    sketch: Sketch
    sample: Sample
    types: TypeCosines | None
    """How alike rows of one type and of different types are: of all rows, or of the sample if there are too many."""
    n_dropped_types: int
    """How many types had been met when their sums became too many to keep; 0 if they were kept."""


_PartialResult = tuple[Sketch, Sample | None, Any, TypeCosines | None, int]


class FirstPassTally(Tally):
    """The first pass over one cloud: its sums and a sample; `others` are looked at along with it."""

    def __init__(
        self,
        settings: Settings,
        size: int = 0,
        columns: Iterable[str] = (),
        others: Sequence[FirstPassTally] = (),
        blocks: int | None = None,
    ):
        self.settings, self.others, self.columns, self.blocks = settings, others, list(columns), blocks
        self.sampler = Sampler(size or settings.sample, settings.seed)
        self.total = Sketch()
        self.types: TypeUnits | None = None
        self.settled: TypeCosines | None = None
        self.given_up = 0

    def watch(self, batch: Batch) -> None:
        """See the next batch: keep some rows, and add to what is kept of each type.

        If that becomes too much, the cloud with most types gives them up.
        """
        self.sampler.offer(batch)
        if self.given_up or "types" not in batch.columns:
            return
        self.types = self.types or TypeUnits(batch.vectors.shape[1])
        self.types.add(batch.vectors, batch.columns["types"])
        self._limit_types()

    def _limit_types(self) -> None:
        looks = [self, *(other for other in self.others if other is not self)]
        while sum(look.type_bytes for look in looks) > tile_bytes(_TYPE_BYTES):
            max(looks, key=lambda look: look.type_bytes).drop_types()

    @property
    def type_bytes(self) -> int:
        """What the sums of types take; they grow by doubling."""
        return 16 * len(self.types) * self.types.sums.shape[1] if self.types else 0

    def drop_types(self) -> None:
        """Keep no sums of types."""
        assert self.types is not None
        self.given_up, self.types = len(self.types), None

    def summarize(self, item: Batch) -> Sketch:
        """The sums of one batch, by any thread."""
        return Sketch.of(
            item.vectors,
            groups=item.columns.get("groups"),
            nonfinite=self.settings.nonfinite,
            first=item.start,
            blocks=self.blocks,
        )

    def add(self, part: Sketch) -> None:
        """Add the sums of the next batch."""
        self.total = self.total + part

    def partial_result(self) -> _PartialResult:
        """Sums, sample and types so far."""
        sample = self.sampler.sample() if self.sampler.pool else None
        types = None if self.types is None else self.types.partial_result()
        return self.total, sample, types, self.settled, self.given_up

    def join(self, gathered: _PartialResult) -> None:
        """Add those of later rows; types that were too many there are too many."""
        total, sample, types, settled, given_up = gathered
        self.add(total)
        if sample is not None:
            self.sampler.join(sample)
        self.settled = self.settled or settled
        self.given_up = max(self.given_up, given_up)
        if self.given_up:
            self.types = None
        elif types is not None:
            self.types = self.types or TypeUnits(types[1].shape[1])
            self.types.join(types)
            self._limit_types()

    def expect(self, rows: int) -> None:
        """Keep no row that surely is not among the sample."""
        self.sampler.expect(rows)

    def fell_short(self) -> bool:
        """Whether the sample may lack rows."""
        return self.sampler.fell_short() and self.total.n > self.sampler.held

    def finish(self) -> None:
        """Keep of the sums of types what they say."""
        if self.types is not None:
            self.settled, self.types = self.types.cosines(), None

    def seen(self, name: str) -> FirstPass:
        """What the cloud of this name gave."""
        if not self.total.n:
            raise InputError(f"{name} has no finite row: need vectors of numbers")
        self.finish()
        sample = self.sampler.sample()
        if self.given_up:
            self.settled = TypeCosines.of(sample.vectors, sample.columns["types"])
        return FirstPass(self.total, sample, self.settled, self.given_up)


def first_pass(
    engine: Engine,
    store: Store,
    settings: Settings,
    progress: Progress,
    stage: str,
    *,
    columns: Iterable[str] = (),
    size: int = 0,
) -> FirstPass:
    """Sum up all rows and choose a sample of them, as large as the settings say unless a `size` is given."""
    return engine.tally(FirstPassTally(settings, size, columns), store, progress, stage).seen(store.name)


class Axes(NamedTuple):
    """Principal directions: d eigenvalues, largest first; eigenvectors as columns, of all that are not 0 at least."""

    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Axes:
        """Of a symmetric matrix with no negative eigenvalue but by rounding."""
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values[::-1], 0), vectors[:, ::-1])


def principal_axes(sketch: Sketch, sample: Sample, *, centred: bool) -> Axes:
    """Principal directions of the cloud: of its scatter, or of XᵀX.

    Fewer rows than dimensions, all of them in the sample, have no more directions than rows: the small Gram matrix
    tells them, and the values are filled up with zeros.
    """
    if len(sample) < sketch.n or sketch.n >= sketch.d:
        moment = sketch.scatter if centred else sketch.scatter + sketch.n * np.outer(sketch.mean, sketch.mean)
        return Axes.of(moment)
    rows = sample.vectors.astype(np.float64) - (sketch.mean if centred else 0.0)
    small = Axes.of(rows @ rows.T)
    seen = small.values > small.values[0] * sketch.d * np.finfo(np.float64).eps
    vectors = rows.T @ (small.vectors[:, seen] / np.sqrt(small.values[seen]))
    return Axes(np.concatenate([small.values[seen], np.zeros(sketch.d - int(seen.sum()))]), vectors)


def second_pass(
    engine: Engine, tally: Tally, store: Store, sample: Sample, n: int, progress: Progress, stage: str
) -> None:
    """Show all rows to a tally: from memory if the sample holds them all, numbered as they are held there."""
    if len(sample) < n:
        gathered = engine.tally(tally, store, progress, stage)
        assert gathered is tally
        return
    tally.add_batches(sample_batches(sample, progress, stage))


def sample_batches(sample: Sample, progress: Progress, stage: str) -> Iterator[Batch]:
    """The rows of a sample, as if they were a store."""
    rows = max(1, TILE_BYTES // (8 * sample.vectors.shape[1]))
    for part in blocks(len(sample), rows):
        yield Batch(part.start, sample.vectors[part], {}, part.stop / len(sample))
        progress(stage, part.stop, part.stop / len(sample))


class PartitionTally(Tally):
    """log Σ exp(c·x) for c and −c over the eigenvectors of XᵀX, summed up chunk by chunk, for each group of rows.

    Of the rows as they are, and of the same rows scaled to a root-mean-square length of 1.
    """

    def __init__(self, sketch: Sketch, raw: Axes):
        least = raw.values[0] * sketch.d * np.finfo(np.float64).eps if sketch.n < sketch.d else -1.0
        self.reached = raw.values > least
        self.directions = raw.vectors[:, : int(self.reached.sum())]
        self.unit = math.sqrt(float(raw.values.sum()) / sketch.n)
        self.tile = max(JACKKNIFE_GROUPS, TILE_BYTES // (128 * sketch.d))
        shape = (JACKKNIFE_GROUPS, 4 * self.directions.shape[1])
        self.counts, self.total = np.zeros(JACKKNIFE_GROUPS), LogSum(np.full(shape, -np.inf), np.zeros(shape))

    def summarize(self, item: Batch) -> tuple[np.ndarray, list[LogSum]]:
        """The sums of one batch, by any thread."""
        first, chunk = item.start, _finite(to_numpy(item.vectors))
        kinds = self.directions.astype(chunk.dtype)
        parts = []
        counts = np.zeros(JACKKNIFE_GROUPS)
        for tile in blocks(len(chunk), self.tile):
            projected = chunk[tile] @ kinds
            scaled = projected / chunk.dtype.type(self.unit)
            projected = np.concatenate([projected, -projected, scaled, -scaled], axis=1)
            largest, rest = (
                np.full((JACKKNIFE_GROUPS, projected.shape[1]), -np.inf),
                np.zeros((JACKKNIFE_GROUPS, projected.shape[1])),
            )
            for g in range(JACKKNIFE_GROUPS):
                terms = projected[(g - first - tile.start) % JACKKNIFE_GROUPS :: JACKKNIFE_GROUPS]
                if len(terms):
                    largest[g] = terms.max(axis=0)
                    np.exp(terms - largest[g].astype(terms.dtype), out=terms)
                    rest[g] = terms.sum(axis=0, dtype=np.float64)
                    counts[g] += len(terms)
            parts.append(LogSum(largest, rest))
        return counts, parts

    def add(self, part: tuple[np.ndarray, list[LogSum]]) -> None:
        """Add the sums of the next batch."""
        self.counts += part[0]
        for more in part[1]:
            self.total = self.total.plus(np, more)

    def partial_result(self) -> tuple[np.ndarray, list[LogSum]]:
        """The sums so far."""
        return self.counts, [self.total]

    def join(self, gathered: tuple[np.ndarray, list[LogSum]]) -> None:
        """Add those of later rows."""
        self.add(gathered)

    def log_partitions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return log Z of the rows as they are and of the scaled rows, each (GROUPS, directions).

        A direction that no row reaches, if there is one, is last: its terms are e⁰.
        """
        with np.errstate(divide="ignore"):
            both = np.split(self.total.largest + np.log(self.total.rest), 2, axis=1)
            if not self.reached.all():
                both = [np.column_stack([logs, np.log(self.counts)]) for logs in both]
        return both[0], both[1]


def _finite(chunk: np.ndarray) -> np.ndarray:
    """The finite rows of a chunk."""
    finite = np.isfinite(chunk).all(axis=1)
    return chunk if finite.all() else chunk[finite]


class RowScaling:
    """Rows as the chosen metric sees them: unit vectors for "cosine", scaled by a power of two for "euclidean"."""

    def __init__(self, metric: str, sketch: Sketch):
        self.metric = metric
        exponent = int(np.frexp(sketch.greatest_norm or 1.0)[1])
        self.unit = 1.0 if metric == "cosine" or -40 < exponent < 40 else 2.0**exponent
        self.centre = sketch.unit_sum / sketch.n if metric == "cosine" else sketch.mean / self.unit

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The rows where the metric sees them; a zero row stays zero."""
        return np.asarray(unit_rows(np, rows, rows.dtype) if self.metric == "cosine" else rows / self.unit, rows.dtype)

    def usable(self, rows: np.ndarray) -> np.ndarray:
        """Which rows can be neighbours: finite ones, and for "cosine" not zero."""
        finite = np.isfinite(rows).all(axis=1)
        return np.asarray(finite & rows.any(axis=1) if self.metric == "cosine" else finite)


class NeighborTally(Tally):
    """Some searches, to each of which all rows are offered."""

    def __init__(self, searches: Sequence[NeighborSearch], placed: RowScaling):
        self.searches, self.placed = searches, placed

    def summarize(self, item: Batch) -> tuple[int, np.ndarray, np.ndarray]:
        """The rows of a batch where the metric sees them, and which of them can be neighbours."""
        rows = to_numpy(item.vectors)
        usable = self.placed.usable(rows)
        return item.start, self.placed(rows if usable.all() else np.where(usable[:, None], rows, 0)), usable

    def add(self, part: tuple[int, np.ndarray, np.ndarray]) -> None:
        """Offer them to each search, which has threads of its own."""
        first, rows, usable = part
        for search in self.searches:
            search.offer(rows, first, usable)

    def partial_result(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The nearest so far, for each search."""
        return [(search.distances, search.indices) for search in self.searches]

    def join(self, gathered: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Take the nearest of both."""
        for search, found in zip(self.searches, gathered, strict=True):
            search.join(*found)
