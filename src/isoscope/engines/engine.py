"""Which engine tallies the rows, and the one that is there on every machine: threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads
from isoscope.engines.tally import Tally

if TYPE_CHECKING:
    from isoscope.stores.store import Batch, Store

T = TypeVar("T")
R = TypeVar("R")
TallyT = TypeVar("TallyT", bound=Tally)

Progress = Callable[[str, int, float], None]
"""Told, now and then: what is being done, how many rows it has seen, which share of all that is (0…1)."""


def ignore_progress(stage: str, rows: int, share: float) -> None:
    """Show nothing."""


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
