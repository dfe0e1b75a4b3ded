"""The three passes over a store: sums and a sample; the partition function; the neighbours of some queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from isoscope.arrays import TILE_BYTES, blocks, host, unit_rows
from isoscope.auditing.settings import Settings
from isoscope.auditing.type_cosines import TypeCosines, TypeUnits
from isoscope.errors import InputError
from isoscope.metrics.partition import LogSum
from isoscope.pairs import NearestSoFar
from isoscope.sketching import Sketch
from isoscope.stores import Batch, Store
from isoscope.stores.sampling import Sample, Sampler
from isoscope.threads import in_threads

Progress = Callable[[str, int, float], None]
"""Told, now and then: what is being done, how many rows it has seen, which share of all that is (0…1)."""

Rows = Callable[[], Iterable[tuple[int, np.ndarray]]]
"""The rows of a cloud in chunks, each with the number of its first row; may be asked for again."""

GROUPS = 16
"""Groups of rows that are left out in turn, to see how sure the partition function is."""

_TYPE_BYTES = 512 * 2**20  # what the sums of all types may take before they are given up


def silent(stage: str, rows: int, share: float) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class FirstPass:
    """What one look at every row gives."""

    sketch: Sketch
    sample: Sample
    types: TypeCosines | None
    """How alike rows of one type and of different types are: of all rows, or of the sample if there are too many."""
    types_given_up: int
    """How many types had been met when their sums became too many to keep; 0 if they were kept."""


class FirstLook:
    """The first pass over one cloud, a batch at a time: its sums and a sample; `others` are looked at along with it."""

    def __init__(self, settings: Settings, size: int = 0, others: Sequence[FirstLook] = ()):
        self.settings, self.others = settings, others
        self.sampler = Sampler(size or settings.sample, settings.seed)
        self.total = Sketch()
        self.types: TypeUnits | None = None
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
        looks = [self, *(other for other in self.others if other is not self)]
        while sum(look.type_bytes for look in looks) > _TYPE_BYTES:
            max(looks, key=lambda look: look.type_bytes).give_types_up()

    @property
    def type_bytes(self) -> int:
        """What the sums of types take; they grow by doubling."""
        return 16 * len(self.types) * self.types.sums.shape[1] if self.types else 0

    def give_types_up(self) -> None:
        """Keep no sums of types."""
        assert self.types is not None
        self.given_up, self.types = len(self.types), None

    def summed(self, batch: Batch) -> Sketch:
        """The sums of one batch, by any thread."""
        return Sketch.of(batch.vectors, nonfinite=self.settings.nonfinite, first=batch.start)

    def add(self, part: Sketch) -> None:
        """Add the sums of the next batch."""
        self.total = self.total + part

    def seen(self, name: str) -> FirstPass:
        """What the cloud of this name gave; its sums of types are not kept any longer."""
        if not self.total.n:
            raise InputError(f"{name} has no finite row: need vectors of numbers")
        sample, types = self.sampler.sample(), None
        if self.types is not None:
            types = self.types.cosines()
        elif self.given_up:
            types = TypeCosines.of(sample.vectors, sample.columns["types"])
        self.types = None
        return FirstPass(self.total, sample, types, self.given_up)


def first_pass(
    store: Store, settings: Settings, progress: Progress, name: str, *, columns: Iterable[str] = (), size: int = 0
) -> FirstPass:
    """Sum up all rows and choose a sample of them, as large as the settings say unless a `size` is given."""
    look = FirstLook(settings, size)

    def watched() -> Iterator[Batch]:
        for batch in store.batches(list(columns)):
            look.watch(batch)
            progress(name, batch.start + len(batch.vectors), batch.share)
            yield batch

    for part in in_threads(look.summed, watched(), 2):
        look.add(part)
    return look.seen(store.name)


class Axes(NamedTuple):
    """Principal directions: d eigenvalues, largest first; eigenvectors as columns, of all that are not 0 at least."""

    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Axes:
        """Of a symmetric matrix with no negative eigenvalue but by rounding."""
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values[::-1], 0), vectors[:, ::-1])


def axes_of(sketch: Sketch, sample: Sample, *, centred: bool) -> Axes:
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


def rows_of(store: Store, sample: Sample, n: int, progress: Progress, name: str) -> Rows:
    """All rows: from memory if the sample holds them all, else from the store."""

    def read() -> Iterator[tuple[int, np.ndarray]]:
        for batch in store.batches():
            yield batch.start, batch.vectors
            progress(name, batch.start + len(batch.vectors), batch.share)

    return held_rows(sample, progress, name) if len(sample) == n else read


def held_rows(sample: Sample, progress: Progress, name: str) -> Rows:
    """The rows of a sample."""

    def held() -> Iterator[tuple[int, np.ndarray]]:
        rows = max(1, TILE_BYTES // (8 * sample.vectors.shape[1]))
        for part in blocks(len(sample), rows):
            yield part.start, sample.vectors[part]
            progress(name, part.stop, part.stop / len(sample))

    return held


class PartitionSums:
    """log Σ exp(c·x) for c and −c over the eigenvectors of XᵀX, summed up chunk by chunk, for each group of rows."""

    def __init__(self, sketch: Sketch, raw: Axes):
        least = raw.values[0] * sketch.d * np.finfo(np.float64).eps if sketch.n < sketch.d else -1.0
        self.reached = raw.values > least
        self.directions = raw.vectors[:, : int(self.reached.sum())]
        self.tile = max(GROUPS, TILE_BYTES // (64 * sketch.d))
        shape = (GROUPS, 2 * self.directions.shape[1])
        self.counts, self.total = np.zeros(GROUPS), LogSum(np.full(shape, -np.inf), np.zeros(shape))

    def summed(self, item: tuple[int, np.ndarray]) -> tuple[np.ndarray, list[LogSum]]:
        """The sums of one chunk, by any thread; it comes with the number of its first row."""
        first, chunk = item
        chunk = _finite(host(chunk))[0]
        kinds = self.directions.astype(chunk.dtype)
        parts = []
        counts = np.zeros(GROUPS)
        for tile in blocks(len(chunk), self.tile):
            projected = chunk[tile] @ kinds
            projected = np.concatenate([projected, -projected], axis=1)
            largest, rest = np.full((GROUPS, projected.shape[1]), -np.inf), np.zeros((GROUPS, projected.shape[1]))
            for g in range(GROUPS):
                terms = projected[(g - first - tile.start) % GROUPS :: GROUPS]
                if len(terms):
                    largest[g] = terms.max(axis=0)
                    np.exp(terms - largest[g].astype(terms.dtype), out=terms)
                    rest[g] = terms.sum(axis=0, dtype=np.float64)
                    counts[g] += len(terms)
            parts.append(LogSum(largest, rest))
        return counts, parts

    def add(self, found: tuple[np.ndarray, list[LogSum]]) -> None:
        """Add the sums of the next chunk."""
        self.counts += found[0]
        for more in found[1]:
            self.total = self.total.plus(np, more)

    def logs(self) -> np.ndarray:
        """(GROUPS, directions); a direction that no row reaches, if there is one, stands last: its terms are e⁰."""
        with np.errstate(divide="ignore"):
            logs = self.total.largest + np.log(self.total.rest)
            return np.asarray(logs if self.reached.all() else np.column_stack([logs, np.log(self.counts)]))


def partition(sketch: Sketch, raw: Axes, rows: Rows) -> np.ndarray:
    """log Z of each direction for each of some groups of rows; see `PartitionSums`."""
    sums = PartitionSums(sketch, raw)
    for found in in_threads(sums.summed, rows(), 2):
        sums.add(found)
    return sums.logs()


def _finite(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The finite rows of a chunk, and which they are."""
    finite = np.isfinite(chunk).all(axis=1)
    return (chunk if finite.all() else chunk[finite]), finite


class Placed:
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


def neighbors(searches: list[NearestSoFar], placed: Placed, rows: Rows) -> None:
    """Offer all rows to each of some searches."""
    for first, chunk in rows():
        offer(searches, placed, first, chunk)


def offer(searches: list[NearestSoFar], placed: Placed, first: int, chunk: np.ndarray) -> None:
    """Offer some rows, numbered from `first`, to each of some searches."""
    chunk = host(chunk)
    usable = placed.usable(chunk)
    if not usable.all():
        chunk = np.where(usable[:, None], chunk, 0)
    chunk = placed(chunk)
    for search in searches:
        search.offer(chunk, first, usable)
