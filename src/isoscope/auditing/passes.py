"""The three passes over a store: sums and a sample; the partition function; the neighbours of some queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from isoscope.arrays import TILE_BYTES, blocks, host, unit_rows
from isoscope.auditing.settings import Settings
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


@dataclass(frozen=True)
class FirstPass:
    """What one look at every row gives."""

    sketch: Sketch
    sample: Sample
    types_given_up: int
    """How many types had been met when their sums became too many to keep; 0 if they were kept."""


def first_pass(
    store: Store, settings: Settings, progress: Progress, name: str, *, columns: Iterable[str] = (), size: int = 0
) -> FirstPass:
    """Sum up all rows and choose a sample of them, as large as the settings say unless a `size` is given."""
    sampler = Sampler(size or settings.sample, settings.seed)
    given_up = 0

    def watched() -> Iterator[Batch]:
        for batch in store.batches(list(columns)):
            sampler.offer(batch)
            progress(name, batch.start + len(batch.vectors), batch.share)
            yield batch

    def summed(batch: Batch) -> Sketch:
        types = None if given_up else batch.columns.get("types")
        return Sketch.of(batch.vectors, types, nonfinite=settings.nonfinite, first=batch.start)

    total = Sketch()
    for part in in_threads(summed, watched(), 2):
        if given_up:
            part = replace(part, types=None)
        total = total + part
        if total.types and len(total.types.names) * total.d * 16 > _TYPE_BYTES:
            given_up = len(total.types.names)
            total = replace(total, types=None)
    if not total.n:
        raise InputError(f"{store.name} has no finite row: need vectors of numbers")
    return FirstPass(total, sampler.sample(), given_up)


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

    def held() -> Iterator[tuple[int, np.ndarray]]:
        rows = max(1, TILE_BYTES // (8 * sample.vectors.shape[1]))
        for part in blocks(len(sample), rows):
            yield part.start, sample.vectors[part]
            progress(name, part.stop, part.stop / len(sample))

    return held if len(sample) == n else read


def partition(sketch: Sketch, raw: Axes, rows: Rows) -> np.ndarray:
    """log Σ exp(c·x) for c and −c over the eigenvectors of XᵀX, (GROUPS, directions), for each group of rows.

    A direction that no row reaches, if there is one, stands last: its terms are all e⁰.
    """
    least = raw.values[0] * sketch.d * np.finfo(np.float64).eps if sketch.n < sketch.d else -1.0
    reached = raw.values > least
    directions = raw.vectors[:, : int(reached.sum())]

    def summed(item: tuple[int, np.ndarray]) -> tuple[np.ndarray, list[LogSum]]:
        first, chunk = item
        chunk = _finite(host(chunk))[0]
        kinds = directions.astype(chunk.dtype)
        parts = []
        counts = np.zeros(GROUPS)
        for tile in blocks(len(chunk), max(GROUPS, TILE_BYTES // (64 * sketch.d))):
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

    shape = (GROUPS, 2 * directions.shape[1])
    counts, total = np.zeros(GROUPS), LogSum(np.full(shape, -np.inf), np.zeros(shape))
    for more_counts, parts in in_threads(summed, rows(), 2):
        counts += more_counts
        for more in parts:
            total = total.plus(np, more)
    with np.errstate(divide="ignore"):
        logs = total.largest + np.log(total.rest)
        return np.asarray(logs if reached.all() else np.column_stack([logs, np.log(counts)]))


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
        chunk = host(chunk)
        usable = placed.usable(chunk)
        if not usable.all():
            chunk = np.where(usable[:, None], chunk, 0)
        chunk = placed(chunk)
        for search in searches:
            search.offer(chunk, first, usable)
