"""The two passes over a store: first sums and a sample, then the partition function and nearest neighbors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.arrays import TILE_BYTES, blocks, tiles, to_numpy, unit_rows
from isoscope._core.errors import MissingValueError
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
    from isoscope.auditing.measure import Settings
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

JACKKNIFE_GROUPS = 16
"""The number of row groups that are left out in turn, for the interval of the partition function."""

_CACHED_BYTES = 2**19  # the size of some rows as float64, so that temporary arrays of these rows stay in the cache
_TYPE_BYTES = 512 * 2**20  # memory for the sums of all token types


@dataclass(frozen=True)
class FirstPass:
    """The result of the first pass."""

    sketch: Sketch
    sample: Sample
    types: TypeCosines | None
    """The mean cosines within and across types: of all rows, or of the sample if there are too many types."""
    n_dropped_types: int
    """The number of types seen when their sums exceeded the memory limit; 0 if they fit."""


_PartialResult = tuple[Sketch, Sample | None, Any, TypeCosines | None, int]


class FirstPassTally(Tally):
    """A tally of sums and a sample; `others` are the tallies that share its memory limit for types."""

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
        """Pass the next batch to the sampler, and add it to the sums per type.

        If the sums per type exceed the memory limit, the tally with the most types drops its sums.
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
        """The memory used by the sums per type, in bytes; it grows by doubling."""
        return 16 * len(self.types) * self.types.sums.shape[1] if self.types else 0

    def drop_types(self) -> None:
        """Drop the sums per type."""
        assert self.types is not None
        self.given_up, self.types = len(self.types), None

    def summarize(self, item: Batch) -> Sketch:
        """Return the sums of one batch; this method can run in any thread."""
        return Sketch.of(
            item.vectors,
            groups=item.columns.get("groups"),
            missing=self.settings.drop,
            first=item.start,
            blocks=self.blocks,
        )

    def add(self, part: Sketch) -> None:
        """Add the sums of the next batch."""
        self.total = self.total + part

    def partial_result(self) -> _PartialResult:
        """Return the sums, sample and types so far."""
        sample = self.sampler.sample() if self.sampler.pool else None
        types = None if self.types is None else self.types.partial_result()
        return self.total, sample, types, self.settled, self.given_up

    def join(self, gathered: _PartialResult) -> None:
        """Add the partial result of later rows; types that were dropped there are dropped here too."""
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
        """Set the expected number of rows, so that the sampler can discard rows that cannot be in the sample."""
        self.sampler.expect(rows)

    def fell_short(self) -> bool:
        """Return whether the sample may lack rows that it should contain."""
        return self.sampler.fell_short() and self.total.n > self.sampler.pool_size

    def finish(self) -> None:
        """Reduce the sums per type to mean cosines."""
        if self.types is not None:
            self.settled, self.types = self.types.cosines(), None

    def result(self, name: str) -> FirstPass:
        """Return the sums, the sample and the types; `name` is the name of the data in error messages."""
        if not self.total.n and self.settings.zeros == "drop":
            raise MissingValueError(f"all rows of {name} are incomplete or all zeros: need at least one usable row")
        if not self.total.n:
            raise MissingValueError(f"{name} has no finite rows: need at least one row without NaN or infinity")
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
    """Return the sums of all rows and a random sample; `size` overrides the sample size in the settings."""
    return engine.tally(FirstPassTally(settings, size, columns), store, progress, stage).result(store.name)


class Axes(NamedTuple):
    """Principal axes: d eigenvalues, largest first, and the eigenvectors of the nonzero eigenvalues as columns."""

    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Axes:
        """Return the axes of a positive semidefinite matrix."""
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values[::-1], 0), vectors[:, ::-1])


def principal_axes(sketch: Sketch, sample: Sample, *, centered: bool) -> Axes:
    """Return the principal axes of the scatter matrix about the mean, or of XᵀX.

    If there are fewer rows than dimensions and all of them are in the sample, the axes are computed from the smaller
    Gram matrix of the rows. The remaining eigenvalues are 0.
    """
    if len(sample) < sketch.n or sketch.n >= sketch.d:
        moment = sketch.scatter if centered else sketch.scatter + sketch.n * np.outer(sketch.mean, sketch.mean)
        return Axes.of(moment)
    rows = sample.vectors.astype(np.float64) - (sketch.mean if centered else 0.0)
    small = Axes.of(rows @ rows.T)
    seen = small.values > small.values[0] * sketch.d * np.finfo(np.float64).eps
    vectors = rows.T @ (small.vectors[:, seen] / np.sqrt(small.values[seen]))
    return Axes(np.concatenate([small.values[seen], np.zeros(sketch.d - int(seen.sum()))]), vectors)


def second_pass(
    engine: Engine, tally: Tally, store: Store, sample: Sample, n: int, progress: Progress, stage: str
) -> None:
    """Add all rows to a tally; if the sample contains all rows, use the sample instead of reading the store again."""
    if len(sample) < n:
        gathered = engine.tally(tally, store, progress, stage)
        assert gathered is tally
        return
    tally.add_batches(sample_batches(sample, progress, stage))


def sample_batches(sample: Sample, progress: Progress, stage: str) -> Iterator[Batch]:
    """Yield the rows of a sample in batches."""
    rows = max(1, TILE_BYTES // (8 * sample.vectors.shape[1]))
    for part in blocks(len(sample), rows):
        yield Batch(part.start, sample.vectors[part], {}, part.stop / len(sample))
        progress(stage, part.stop, part.stop / len(sample))


class PartitionTally(Tally):
    """A tally of log Σ exp(c·x) for each eigenvector c of XᵀX and its opposite, per jackknife group of rows.

    The sums are computed for the rows as they are, and for the rows scaled to a root-mean-square length of 1.
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
        """Return the sums of one batch; this method can run in any thread."""
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
        """Return the sums so far."""
        return self.counts, [self.total]

    def join(self, gathered: tuple[np.ndarray, list[LogSum]]) -> None:
        """Add the sums of later rows."""
        self.add(gathered)

    def log_partitions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return log Z of the original rows and of the scaled rows, each with shape (groups, directions).

        If some direction is orthogonal to all rows, the last column belongs to it: its terms are e⁰.
        """
        with np.errstate(divide="ignore"):
            both = np.split(self.total.largest + np.log(self.total.rest), 2, axis=1)
            if not self.reached.all():
                both = [np.column_stack([logs, np.log(self.counts)]) for logs in both]
        return both[0], both[1]


def _finite(chunk: np.ndarray) -> np.ndarray:
    """Return the finite rows."""
    finite = np.isfinite(chunk).all(axis=1)
    return chunk if finite.all() else chunk[finite]


class RowScaling:
    """The scaling of rows for a metric: to unit length for "cosine", by a power of two for "euclidean"."""

    def __init__(self, metric: str, sketch: Sketch):
        self.metric = metric
        exponent = int(np.frexp(sketch.greatest_norm or 1.0)[1])
        self.unit = 1.0 if metric == "cosine" or -40 < exponent < 40 else 2.0**exponent
        self.center = sketch.unit_sum / sketch.n if metric == "cosine" else sketch.mean / self.unit

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the scaled rows; a zero row stays zero."""
        scaled = np.empty(rows.shape, rows.dtype)
        for part in tiles(rows, nbytes=_CACHED_BYTES):
            scaled[part] = unit_rows(np, rows[part], rows.dtype) if self.metric == "cosine" else rows[part] / self.unit
        return scaled

    def usable(self, rows: np.ndarray) -> np.ndarray:
        """Return a mask of the rows that can be neighbors: they are finite and, for "cosine", nonzero."""
        finite = np.isfinite(rows).all(axis=1)
        return np.asarray(finite & rows.any(axis=1) if self.metric == "cosine" else finite)


class NeighborTally(Tally):
    """A tally that runs nearest-neighbor searches over all rows."""

    def __init__(self, searches: Sequence[NeighborSearch], placed: RowScaling):
        self.searches, self.placed = searches, placed

    def summarize(self, item: Batch) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the scaled rows of a batch, and a mask of those that can be neighbors."""
        rows = to_numpy(item.vectors)
        usable = self.placed.usable(rows)
        return item.start, self.placed(rows if usable.all() else np.where(usable[:, None], rows, 0)), usable

    def add(self, part: tuple[int, np.ndarray, np.ndarray]) -> None:
        """Pass the rows to each search, which uses its own threads."""
        first, rows, usable = part
        for search in self.searches:
            search.offer(rows, first, usable)

    def partial_result(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the nearest rows so far, for each search."""
        return [search.partial_result() for search in self.searches]

    def join(self, gathered: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Merge the nearest rows that were found among later rows."""
        for search, found in zip(self.searches, gathered, strict=True):
            search.join(*found)
