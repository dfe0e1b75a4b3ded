"""The Dask engine: a store's rows tallied by the workers of a cluster."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar

import isoscope
from isoscope._core.errors import InputError, MissingExtra
from isoscope._core.memory import check_memory, current_limit, memory_limit
from isoscope._core.threads import single_threaded
from isoscope._io.progress import ignore_progress
from isoscope.engines.allocating import retain_freed_memory
from isoscope.engines.engine import tally_batches
from isoscope.stores.columns import ColumnError
from isoscope.stores.shards import SPAN_BYTES, spans

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.engines.engine import TallyT
    from isoscope.stores.shards import Span
    from isoscope.stores.store import Store


_TERMINATION_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def dask_setup(worker: Any) -> None:
    """Have a worker pass Ctrl-C over, which a terminal sends to it too: it would print where it was.

    Dask calls this in each process that it is told to load this module in.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Signals that end the process wait until this is done: a cluster that starts cannot be ended in order."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, frame: came.append(number)) for number in _TERMINATION_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came[:1]:
            os.kill(os.getpid(), number)


T = TypeVar("T")
R = TypeVar("R")

_BRANCHES = 8  # what so many workers gathered is joined in one task
_SPANS, _MIN_SPAN_BYTES = (
    32,
    16 * 2**20,
)  # so many at least, if they hold as many bytes: for workers to be done together
_TIMEOUT = 10.0  # seconds until a scheduler that does not answer is given up
_WORKER_TIMEOUT = 60.0  # seconds that a cluster may be without any: one that was killed is started again
_POLL = 0.02
_SILENT = logging.CRITICAL  # what goes wrong over there is raised here, in a line


@contextmanager
def open_cluster(address: Any, workers: int | None = None) -> Iterator[DaskEngine]:
    """A cluster, itself or by its scheduler's address; or this process's client; or one that ends with the context."""
    distributed = _import_distributed()
    if address is not None:
        if workers is not None:
            raise InputError(f"workers is {workers} and the scheduler {address} has its own: give one of the two")
        with _connect(distributed, address) as client:
            yield DaskEngine(client)
        return
    client = _current_client(distributed) if workers is None else None
    if client is not None:
        yield DaskEngine(client)
        return
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}: need 1 at least")
    own: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": _SILENT, "processes": bool(workers)}
    if workers:
        own |= {"n_workers": workers, "threads_per_worker": 1, "preload": __name__}
    with ExitStack() as stack:
        with defer_signals():
            cluster = stack.enter_context(distributed.LocalCluster(**own))
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        yield DaskEngine(client)


class DaskEngine:
    """The workers behind a `dask.distributed.Client`."""

    def __init__(self, client: Any):
        if client.asynchronous:
            raise InputError("the client is asynchronous: need one that waits, Client(address)")
        if client.status != "running":
            raise InputError(f"the client is {client.status}: need one that is connected, Client(address)")
        self.client = client
        _check_versions(client)

    def tally(
        self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "reading"
    ) -> TallyT:
        """See `Engine`."""
        size = len(store) * store.dim * store.dtype.itemsize
        cut = spans(store, min(max(size // _SPANS, _MIN_SPAN_BYTES), SPAN_BYTES))
        parts = [(span, tally.share(span.first, len(span))) for span in cut]
        empty = _serialize(tally)
        tally.expect(len(store))
        try:
            tally.join(self._run_tally(tally, parts, progress, stage))
            if tally.fell_short():
                tally = pickle.loads(empty)
                tally.join(self._run_tally(tally, parts, progress, stage))
        except ColumnError as error:
            store.column(error.role)  # a worker knows its own rows alone: this tells of all
            raise
        return tally

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """See `Engine`."""
        shared = self._submit(_identity, _serialize((work, current_limit())))
        futures = [self._submit(_run_item, shared, _serialize(item)) for item in items]
        try:
            for future in futures:
                yield self._wait_for(future)
                future.release()
        finally:
            _release_futures([shared, *futures])

    def _run_tally(self, tally: TallyT, parts: Sequence[tuple[Span, Any]], progress: Progress, stage: str) -> Any:
        """What the workers gather of all parts."""
        empty = self._submit(_identity, _serialize((tally, current_limit())))
        leaves = {self._submit(_tally_span, empty, _serialize(part), share): len(part) for part, share in parts}
        level = list(leaves)
        joins = []
        while len(level) > 1:
            groups = [level[i : i + _BRANCHES] for i in range(0, len(level), _BRANCHES)]
            level = [self._submit(_merge_parts, empty, group, priority=1) for group in groups]
            joins += level
        try:
            self._watch(leaves, level[0], progress, stage)
            return self._wait_for(level[0])
        finally:
            _release_futures([empty, *leaves, *joins])

    def _submit(self, work: Callable[..., Any], *given: Any, priority: int = 0) -> Any:
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**40}):
            return self.client.submit(work, *given, pure=False, priority=priority)

    def _watch(self, leaves: dict[Any, int], root: Any, progress: Progress, stage: str) -> None:
        """Tell how many rows are done until all are; what is done, but the root, is held from here no longer."""
        rows = sum(leaves.values())
        waiting = _import_distributed().as_completed(leaves, loop=self.client.loop)
        done, seen = 0, time.monotonic()
        while not waiting.is_empty():
            found = waiting.next_batch(block=False)
            for future in found:
                if future.status != "finished":
                    self._result(future)
                done += leaves[future]
                progress(stage, done, done / rows)
                if future is not root:
                    future.release()
            if found:
                seen = time.monotonic()
                continue
            time.sleep(_POLL)
            if time.monotonic() - seen > _TIMEOUT:
                self._check_workers()
                seen = time.monotonic()

    def _wait_for(self, future: Any) -> Any:
        """What a task gives, for as long as there is somebody to do it."""
        while True:
            try:
                return self._result(future, _TIMEOUT)
            except TimeoutError:
                if future.done():  # it is the task's own
                    raise
                self._check_workers()

    def _check_workers(self) -> None:
        """Refuse to wait for nobody."""
        try:
            self.client.wait_for_workers(1, timeout=_WORKER_TIMEOUT)
        except TimeoutError as error:
            raise InputError(
                f"the cluster has had no worker for {_WORKER_TIMEOUT:.0f} seconds: look at the workers' logs, and run "
                "the same again"
            ) from error
        except OSError as error:
            raise _connection_lost_error(error) from error

    def _result(self, future: Any, timeout: float | None = None) -> Any:
        distributed = _import_distributed()
        try:
            return future.result(timeout)
        except InputError:
            raise
        except distributed.KilledWorker as error:
            raise InputError(
                f"workers died {error.allowed_failures + 1} times over the same rows: mostly for want of memory; give "
                "them more, or fewer threads, and look at their logs"
            ) from error
        except (distributed.CancelledError, distributed.comm.CommClosedError, OSError) as error:
            if isinstance(error, OSError) and self.client.status == "running":
                raise
            raise _connection_lost_error(error) from error


def _serialize(given: Any) -> bytes:
    """As it is sent: functions and classes of a script too, which no worker could import."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(given))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(
            f"this cannot be sent to the workers ({error}): leave the engine, or have it made of what can be pickled"
        ) from error


def _release_futures(futures: Iterable[Any]) -> None:
    """What nobody wants any longer the scheduler forgets, done or not."""
    for future in futures:
        future.release()


def _connection_lost_error(error: BaseException) -> InputError:
    return InputError(f"the connection to the scheduler was lost ({type(error).__name__}): run the same again")


# what a worker does


def _identity(held: bytes) -> bytes:
    return held


def _tally_span(empty: bytes, span: bytes, share: Any) -> Any:
    """What the rows of a span give."""
    tally, limit = pickle.loads(empty)
    tally.narrow(share)
    part = _deserialize(span)
    with _worker_context(limit):
        check_memory(part.dim)
        return tally_batches(tally, part.numbered_batches(tally.columns)).partial_result()


def _merge_parts(empty: bytes, parts: list[Any]) -> Any:
    """What several parts gave, in their order."""
    tally, _ = pickle.loads(empty)
    for part in parts:
        tally.join(part)
    return tally.partial_result()


def _run_item(work: bytes, item: bytes) -> Any:
    done, limit = pickle.loads(work)
    given = _deserialize(item)
    with _worker_context(limit):
        return done(given)


@contextmanager
def _worker_context(limit: int | None) -> Iterator[None]:
    """As it was asked for: in one thread, and in as much memory as the asking process may take."""
    with single_threaded(), retain_freed_memory(), nullcontext() if limit is None else memory_limit(limit):
        yield


def _deserialize(held: bytes) -> Any:
    """What was sent, with the files of its stores opened here."""
    try:
        return pickle.loads(held)
    except (InputError, OSError) as error:
        from distributed import get_worker

        raise InputError(f"{error} (worker {get_worker().address}: all workers must see the same files)") from error


# how it is reached


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra('engine="dask" needs Dask\'s distributed: pip install "isoscope[dask]"') from error
    return distributed


def _current_client(distributed: Any) -> Any:
    """The client that this process uses already, if there is one."""
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _connect(distributed: Any, address: Any) -> Any:
    try:
        client = distributed.Client(address, timeout=_TIMEOUT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address}: look whether it runs and whether this machine may reach it"
        ) from error
    return client


def _check_versions(client: Any) -> None:
    """Refuse workers that would read differently what is sent to them, or none at all."""
    try:
        client.wait_for_workers(1, timeout=_TIMEOUT)
    except TimeoutError as error:
        raise InputError(f"the scheduler at {client.scheduler.address} has no workers: start some") from error
    found = client.get_versions(packages=["isoscope"])
    here = {**found["client"]["packages"], "isoscope": isoscope.__version__}
    for worker, about in found["workers"].items():
        there = about["packages"]
        for package in ("python", "distributed", "isoscope"):
            mine, theirs = (_version(package, held.get(package)) for held in (here, there))
            if mine != theirs:
                what = f"has {package} {theirs}" if theirs else f"has no {package}"
                raise InputError(
                    f"worker {worker} {what}, and here it is {mine}: install the same on all workers and here"
                )


def _version(package: str, version: str | None) -> str | None:
    """What must be the same: of Python the first two numbers."""
    return ".".join(version.split(".")[:2]) if version and package == "python" else version
