"""Engines read the rows of a store and add them up: the tally protocol, and threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads
from isoscope._io.progress import ignore_progress

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.stores.store import Batch, Store


class Tally:
    """Something that is known of the rows seen so far; what others gathered of other rows can be joined to it.

    It begins with no rows. An engine has items summed up apart, by any thread, and adds them in order. Where several
    processes read, each begins with a copy, and what they `gathered` is joined in the order of the rows.
    """

    columns: Sequence[str] = ()
    """What is read beside the vectors."""

    def items(self, batches: Iterable[Batch]) -> Iterator[Any]:
        """What is to be summed up, of batches that come in order."""
        for batch in batches:
            self.watch(batch)
            yield batch

    def watch(self, batch: Batch) -> None:
        """See the next batch, in order, before it is summed up."""

    def finish(self) -> None:
        """Be told that all rows are in: what is not needed any longer may go."""

    def summarize(self, item: Any) -> Any:
        """What an item adds; by any thread."""
        raise NotImplementedError

    def add(self, part: Any) -> None:
        """Add what the next item gave."""
        raise NotImplementedError

    def partial_result(self) -> Any:
        """What the rows gave, without what it began with: this goes from process to process."""
        raise NotImplementedError

    def join(self, gathered: Any) -> None:
        """Add what was gathered of rows behind these."""
        raise NotImplementedError

    def share(self, first: int, rows: int) -> Any:
        """What a process that reads these rows alone must be told of them; it goes to `narrow` there."""
        return None

    def narrow(self, share: Any) -> None:
        """See only the rows of a `share` from now on."""

    def expect(self, rows: int) -> None:
        """Be told how many rows there are in all, so that less has to be gathered of each part."""

    def fell_short(self) -> bool:
        """Whether, for all that was expected, too little was gathered, so that it must be done without."""
        return False


class CombinedTally(Tally):
    """Several tallies of the same rows."""

    def __init__(self, *tallies: Tally):
        self.tallies = tallies

    def summarize(self, item: Batch) -> list[Any]:
        """What a batch adds to each."""
        return [tally.summarize(item) for tally in self.tallies]

    def add(self, part: list[Any]) -> None:
        """Add it to each."""
        for tally, own in zip(self.tallies, part, strict=True):
            tally.add(own)

    def partial_result(self) -> list[Any]:
        """What each gathered."""
        return [tally.partial_result() for tally in self.tallies]

    def join(self, gathered: list[Any]) -> None:
        """Join to each what its like gathered."""
        for tally, own in zip(self.tallies, gathered, strict=True):
            tally.join(own)


T = TypeVar("T")
R = TypeVar("R")
TallyT = TypeVar("TallyT", bound=Tally)


class Engine(Protocol):
    """Reads the rows of stores, and does work that has no order."""

    def tally(
        self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "reading"
    ) -> TallyT:
        """The tally of all rows of a store, from that of none."""

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """`work` on each item; the results come in the items' order."""


class LocalEngine:
    """Threads of this process, each with a batch of rows at a time."""

    def tally(
        self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "reading"
    ) -> TallyT:
        """See `Engine`."""

        def watched() -> Iterator[Batch]:
            for batch in store.batches(tally.columns):
                yield batch
                progress(stage, batch.start + len(batch.vectors), batch.share)

        return tally_batches(tally, watched())

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """See `Engine`."""
        items = list(items)
        return map_in_threads(work, items, len(items))


def tally_batches(tally: TallyT, batches: Iterable[Batch]) -> TallyT:
    """A tally, with rows that come in order added to it."""
    for part in map_in_threads(tally.summarize, tally.items(batches), 2):
        tally.add(part)
    return tally


@contextmanager
def open_engine(engine: Any, workers: int | None = None) -> Iterator[Engine]:
    """The engine that is meant by "local", "dask", a scheduler's address, a client or cluster of Dask's, or an engine.

    "dask" is the client that is in use in this process, if there is one; else Dask's threads in this process, or that
    many `workers`, each a process, which end with the context.
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
        raise InputError(
            f'engine is {engine!r}: need "local", "dask", the address of a Dask scheduler or a dask.distributed.Client'
        )
