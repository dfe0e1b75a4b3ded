"""Engines that read and tally the rows of a store, in threads of this process or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from isoscope._core.arrays import to_numpy
from isoscope._core.errors import MissingValueError, ParameterError
from isoscope._core.missing import DROP_HINT, check_missing
from isoscope._core.threads import map_in_threads
from isoscope._io.progress import ignore_progress, show_progress
from isoscope.sketching.sketch import Sketch, sketch_chunks
from isoscope.stores.open import open_store
from isoscope.stores.sampling import Sampler

if TYPE_CHECKING:
    from isoscope._core.types import Missing
    from isoscope._io.progress import Progress
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Batch, Store

T = TypeVar("T")
R = TypeVar("R")
TallyT = TypeVar("TallyT", bound="Tally")


class Tally:
    """A quantity that is accumulated over rows and can be merged with the same quantity for other rows.

    A new tally has no rows. `summarize` runs in any thread; `add` runs in the order of the rows. If several processes
    read, each starts from a copy, and their partial results are joined in the order of the rows.
    """

    columns: Sequence[str] = ()
    """The columns to read in addition to the vectors."""

    def items(self, batches: Iterable[Batch]) -> Iterator[Any]:
        """Yield the items to summarize, given batches in row order; by default, yield the batches themselves."""
        for batch in batches:
            self.watch(batch)
            yield batch

    def watch(self, batch: Batch) -> None:
        """Inspect the next batch, in order, before any thread summarizes it."""

    def finish(self) -> None:
        """Release memory that is no longer needed after the last row."""

    def summarize(self, item: Any) -> Any:
        """Return the contribution of one item; any thread may call this method."""
        raise NotImplementedError

    def add(self, part: Any) -> None:
        """Add the contribution of the next item."""
        raise NotImplementedError

    def add_batches(self: TallyT, batches: Iterable[Batch]) -> TallyT:
        """Add batches in row order, and return the tally."""
        for part in map_in_threads(self.summarize, self.items(batches), 2):
            self.add(part)
        return self

    def partial_result(self) -> Any:
        """Return the contribution of all rows added so far, in a form that other processes can join."""
        raise NotImplementedError

    def join(self, gathered: Any) -> None:
        """Add the partial result of later rows."""
        raise NotImplementedError

    def share(self, first: int, rows: int) -> Any:
        """Return the information that a process needs to read only these rows; the process passes it to `narrow`."""
        return None

    def narrow(self, share: Any) -> None:
        """Restrict the tally to the rows of a `share`."""

    def expect(self, rows: int) -> None:
        """Use the total number of rows to keep less data in each partial result."""

    def fell_short(self) -> bool:
        """Return whether the partial results kept too little data, so the pass must be repeated without `expect`."""
        return False


class CombinedTally(Tally):
    """A tally that combines several tallies of the same rows."""

    def __init__(self, *tallies: Tally):
        self.tallies = tallies

    def summarize(self, item: Batch) -> list[Any]:
        """Return the contribution of a batch to each tally."""
        return [tally.summarize(item) for tally in self.tallies]

    def add(self, part: list[Any]) -> None:
        """Add a batch's contributions, one for each tally."""
        for tally, own in zip(self.tallies, part, strict=True):
            tally.add(own)

    def partial_result(self) -> list[Any]:
        """Return the partial result of each tally."""
        return [tally.partial_result() for tally in self.tallies]

    def join(self, gathered: list[Any]) -> None:
        """Join the partial results of later rows, one for each tally."""
        for tally, own in zip(self.tallies, gathered, strict=True):
            tally.join(own)


class SketchTally(Tally):
    """A tally that sketches all rows; `types` adds sums for each type, and `groups` adds sums for blocks of groups."""

    def __init__(self, missing: Missing = "error", *, types: bool = False, groups: bool = False):
        self.missing = missing
        self.columns = [role for role, wanted in (("types", types), ("groups", groups)) if wanted]
        self.total = Sketch()

    def summarize(self, item: Batch) -> Sketch:
        """Return the sketch of a batch."""
        columns = item.columns
        return Sketch.of(
            item.vectors,
            columns.get("types"),
            groups=columns.get("groups"),
            missing=self.missing,
            first=item.start,
        )

    def add(self, part: Sketch) -> None:
        """Add the sketch of the next batch."""
        self.total = self.total + part

    def partial_result(self) -> Sketch:
        """Return the sketch of the rows added so far."""
        return self.total

    def join(self, gathered: Sketch) -> None:
        """Add the sketch of later rows."""
        self.add(gathered)


class SampleTally(Tally):
    """A tally that draws a random sample of complete rows; `name` is the store's name for messages."""

    def __init__(self, size: int, seed: int, name: str, missing: Missing = "error", columns: Sequence[str] = ()):
        self.sampler, self.name, self.missing, self.columns = Sampler(size, seed), name, missing, columns

    def summarize(self, item: Batch) -> Batch:
        """Return the batch; unless missing values are dropped, check that its vectors are finite."""
        if self.missing == "drop":
            return item
        finite = np.isfinite(to_numpy(item.vectors)).all(axis=1)
        if not finite.all():
            first = item.start + int(np.argmin(finite))
            raise MissingValueError(
                f"{self.name} contains NaN or infinity, first in row {first}: fix these rows, or {DROP_HINT}"
            )
        return item

    def add(self, part: Batch) -> None:
        """Offer the next batch to the sampler."""
        self.sampler.offer(part)

    def partial_result(self) -> Sample:
        """Return the rows sampled so far."""
        return self.sampler.sample()

    def join(self, gathered: Sample) -> None:
        """Merge the sample of later rows."""
        self.sampler.join(gathered)

    def expect(self, rows: int) -> None:
        """Set the total number of rows, so that rows that cannot be in the sample are skipped."""
        self.sampler.expect(rows)

    def fell_short(self) -> bool:
        """Return whether the sample may be incomplete."""
        return self.sampler.fell_short()


class Engine(Protocol):
    """An object that reads the rows of stores and runs independent tasks."""

    def tally(
        self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "reading"
    ) -> TallyT:
        """Add all rows of a store to an empty tally, and return it."""

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield `work(item)` for each item, in the order of the items."""


class LocalEngine:
    """An engine that uses threads of this process, each with one batch of rows at a time."""

    def tally(
        self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "reading"
    ) -> TallyT:
        """See `Engine`."""

        def report_each() -> Iterator[Batch]:
            for batch in store.batches(tally.columns):
                yield batch
                progress(stage, batch.start + len(batch.vectors), batch.share)

        return tally.add_batches(report_each())

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """See `Engine`."""
        items = list(items)
        return map_in_threads(work, items, len(items))


@contextmanager
def open_engine(engine: Any, workers: int | None = None) -> Iterator[Engine]:
    """Open the engine for "local", "dask", a scheduler's address, a Dask client or cluster, or an engine itself.

    "dask" uses this process's current Dask client. Without a client, it starts Dask threads in this process, or
    `workers` processes, which stop when the context ends.
    """
    if engine == "local":
        yield LocalEngine()
    elif engine == "dask" or (isinstance(engine, str) and "://" in engine) or hasattr(engine, "get_client"):
        from isoscope.engines.dask import open_cluster

        with open_cluster(None if engine == "dask" else engine, workers) as running:
            yield running
    elif hasattr(engine, "tally"):
        yield engine
    elif hasattr(engine, "scheduler_info"):
        from isoscope.engines.dask import DaskEngine

        yield DaskEngine(engine)
    else:
        raise ParameterError(
            f'engine is {engine!r}: need "local", "dask", the address of a Dask scheduler or a dask.distributed.Client'
        )


def sketch(
    source: Any,
    *,
    types: Any = None,
    groups: Any = None,
    missing: Missing = "error",
    progress: bool | Progress | None = None,
    engine: Any = "local",
) -> Sketch:
    """Return the `Sketch` of a dataset of any size, computed in one pass on all cores.

    Parameters
    ----------
    source : (n, d) array, store, path, or iterable
        An array (a memory-mapped one is read in parts); a store, or a path that `open_store` opens; or an iterable of
        chunks: (m, d) arrays, pairs (array, types), or triples (array, types or None, groups).
    types : (n,) labels, optional
        The type of each row of an array; needed for S_inter, S_intra and the label objectives.
    groups : (n,) labels, optional
        The group of each row of an array, for rows that are not independent, such as the tokens of one text. The
        unbiased IsoScore then compares only rows of different groups; see `isoscope.isoscore`.
    missing : {"error", "drop"}
        Whether to raise an error for rows with a missing value, NaN or infinity, or to drop and count them.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt, for work of more than a second;
        or a function that is called with the stage, the number of rows read and the share of the work done (0 to 1;
        always 0 for an iterable).
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        The engine that reads a store or a path: threads of this process ("local"), the current Dask client or Dask's
        threads ("dask"), or a Dask cluster.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((10_000, 64))
    >>> s = isoscope.sketch(X[i : i + 1000] for i in range(0, 10_000, 1000))
    >>> s.n, round(s.isoscore(), 3), round(s.mean_cosine(), 3)
    (10000, 0.993, 0.0)
    """
    check_missing(missing)
    if not isinstance(source, str | os.PathLike) and not hasattr(source, "batches") and engine == "local":
        with show_progress(progress) as report:
            return sketch_chunks(source, types, groups, missing, report)
    store = open_store(source, types=types, groups=groups)
    store = store.dropping(missing=missing) if missing == "drop" else store
    missing = "drop" if store.drops_rows else "error"
    tally = SketchTally(missing, types=types is not None, groups=groups is not None)
    with show_progress(progress) as report, open_engine(engine) as running:
        total = running.tally(tally, store, report, "summing up").total
    if not total.n:
        raise MissingValueError(f"{store.name} has no finite rows: need at least one row without NaN or infinity")
    return total
