"""The Dask engine, in which the workers of a cluster tally the rows of a store."""

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
from isoscope._core.errors import InputError, MissingExtra, ParameterError
from isoscope._core.memory import check_memory, current_limit, memory_limit
from isoscope._core.threads import single_threaded
from isoscope._io.progress import ignore_progress
from isoscope.stores.columns import ColumnError
from isoscope.stores.shards import SPAN_BYTES, spans

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.engines.engine import TallyT
    from isoscope.stores.shards import Span
    from isoscope.stores.store import Store


_TERMINATION_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def dask_setup(worker: Any) -> None:
    """Make a worker ignore Ctrl-C, which a terminal also sends to workers; otherwise the worker prints a traceback.

    Dask calls this function in each worker that preloads this module.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Delay signals that end the process until the `with` block ends; a cluster cannot shut down while it starts."""
    if current_thread() is not main_thread():
        yield
        return
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, frame: received.append(number)) for number in _TERMINATION_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received[:1]:
            os.kill(os.getpid(), number)


T = TypeVar("T")
R = TypeVar("R")

_BRANCHES = 8  # number of partial results that one task joins
_SPANS = 32  # at least this many spans, so that all workers finish at about the same time …
_MIN_SPAN_BYTES = 16 * 2**20  # … unless a span would be smaller than this
_TIMEOUT = 10.0  # seconds to wait for a scheduler's answer
_WORKER_TIMEOUT = 60.0  # seconds that a cluster may be without workers: Dask restarts a killed worker
_POLL = 0.02  # seconds between two checks for finished tasks
_SILENT = logging.CRITICAL  # errors of workers are raised here, so their logs would repeat them
_ENVIRONMENT = {
    # By default, Dask makes glibc return freed memory immediately, but a pass over vectors reuses the same sizes.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 256 * 2**20,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 * 2**20,
}


@contextmanager
def open_cluster(address: Any, workers: int | None = None) -> Iterator[DaskEngine]:
    """Open the engine for a cluster or the address of a scheduler.

    Without an address, use this process's Dask client, or start a cluster that is closed with the context.
    """
    distributed = _import_distributed()
    if address is not None:
        if workers is not None:
            raise ParameterError(
                f"workers is {workers}, but the scheduler {address} has its own workers: pass either workers or a "
                "scheduler"
            )
        with _connect(distributed, address) as client:
            yield DaskEngine(client)
        return
    client = _current_client(distributed) if workers is None else None
    if client is not None:
        yield DaskEngine(client)
        return
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is {workers}: need at least 1")
    own: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": _SILENT, "processes": bool(workers)}
    if workers:
        own |= {"n_workers": workers, "threads_per_worker": 1, "preload": __name__}
    from dask import config as dask_config

    with ExitStack() as stack:
        with defer_signals(), dask_config.set(_ENVIRONMENT):
            cluster = stack.enter_context(distributed.LocalCluster(**own))
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        yield DaskEngine(client)


class DaskEngine:
    """An engine that uses the workers of a `dask.distributed.Client`."""

    def __init__(self, client: Any):
        if client.asynchronous:
            raise ParameterError("the client is asynchronous: pass a synchronous client, such as Client(address)")
        if client.status != "running":
            raise ParameterError(f"the client is {client.status}: pass a connected client, such as Client(address)")
        self.client = client
        _check_versions(client)

    def tally(
        self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "reading"
    ) -> TallyT:
        """See `Engine`."""
        size = len(store) * store.dim * store.dtype.itemsize
        span_bytes = min(max(size // _SPANS, _MIN_SPAN_BYTES), SPAN_BYTES)
        parts = [(span, tally.share(span.first, len(span))) for span in spans(store, span_bytes)]
        empty = _serialize(tally)
        tally.expect(len(store))
        try:
            tally.join(self._run_tally(tally, parts, progress, stage))
            if tally.fell_short():
                tally = pickle.loads(empty)
                tally.join(self._run_tally(tally, parts, progress, stage))
        except ColumnError as error:
            store.column(error.role)  # a worker knows only its own rows; this error counts all rows
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
        """Run a tally on all parts, and return their joined partial result."""
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
        """Report progress until all leaf tasks are done; release each finished leaf task unless it is the root."""
        rows = sum(leaves.values())
        waiting = _import_distributed().as_completed(leaves, loop=self.client.loop)
        done, last_result = 0, time.monotonic()
        while not waiting.is_empty():
            finished = waiting.next_batch(block=False)
            for future in finished:
                if future.status != "finished":
                    self._result(future)
                done += leaves[future]
                progress(stage, done, done / rows)
                if future is not root:
                    future.release()
            if finished:
                last_result = time.monotonic()
                continue
            time.sleep(_POLL)
            if time.monotonic() - last_result > _TIMEOUT:
                self._check_workers()
                last_result = time.monotonic()

    def _wait_for(self, future: Any) -> Any:
        """Return the result of a task; raise an error if no worker is left to run it."""
        while True:
            try:
                return self._result(future, _TIMEOUT)
            except TimeoutError:
                if future.done():  # the task itself raised it
                    raise
                self._check_workers()

    def _check_workers(self) -> None:
        """Raise an error if the cluster gets no workers before the timeout."""
        try:
            self.client.wait_for_workers(1, timeout=_WORKER_TIMEOUT)
        except TimeoutError as error:
            raise InputError(
                f"the cluster has had no worker for {_WORKER_TIMEOUT:.0f} seconds: check the workers' logs, then rerun"
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
                f"workers died {error.allowed_failures + 1} times on the same rows, most often because memory ran out: "
                "allow them more memory or fewer threads, and check their logs"
            ) from error
        except (distributed.CancelledError, distributed.comm.CommClosedError, OSError) as error:
            if isinstance(error, OSError) and self.client.status == "running":
                raise
            raise _connection_lost_error(error) from error


def _serialize(given: Any) -> bytes:
    """Pickle an object together with the functions and classes of a script, which workers could not import."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(given))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(
            f'the source or the function cannot be sent to the workers ({error}): use engine="local", or pass only '
            "objects that can be pickled"
        ) from error


def _release_futures(futures: Iterable[Any]) -> None:
    """Tell the scheduler to forget these tasks, finished or not."""
    for future in futures:
        future.release()


def _connection_lost_error(error: BaseException) -> InputError:
    return InputError(f"the connection to the scheduler was lost ({type(error).__name__}): rerun the same command")


# functions that workers run


def _identity(data: bytes) -> bytes:
    return data


def _tally_span(empty: bytes, span: bytes, share: Any) -> Any:
    """Return the partial result of the rows of a span."""
    tally, limit = pickle.loads(empty)
    tally.narrow(share)
    part = _deserialize(span)
    with _worker_context(limit):
        check_memory(part.dim)
        return tally.add_batches(part.numbered_batches(tally.columns)).partial_result()


def _merge_parts(empty: bytes, parts: list[Any]) -> Any:
    """Join partial results in the order of their rows."""
    tally, _ = pickle.loads(empty)
    for part in parts:
        tally.join(part)
    return tally.partial_result()


def _run_item(work: bytes, item: bytes) -> Any:
    function, limit = pickle.loads(work)
    argument = _deserialize(item)
    with _worker_context(limit):
        return function(argument)


@contextmanager
def _worker_context(limit: int | None) -> Iterator[None]:
    """Limit a task to one thread and to the memory limit of the process that submitted it."""
    with single_threaded(), nullcontext() if limit is None else memory_limit(limit):
        yield


def _deserialize(data: bytes) -> Any:
    """Unpickle an object; stores open their files on this worker."""
    try:
        return pickle.loads(data)
    except (InputError, OSError) as error:
        from distributed import get_worker

        raise InputError(
            f"{error} (worker {get_worker().address}: all workers need access to the same files)"
        ) from error


# connecting


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra('Dask\'s distributed is not installed: pip install "isoscope[dask]"') from error
    return distributed


def _current_client(distributed: Any) -> Any:
    """Return the Dask client of this process, or None."""
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _connect(distributed: Any, address: Any) -> Any:
    try:
        client = distributed.Client(address, timeout=_TIMEOUT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address}: check that it is running and that this machine can reach it"
        ) from error
    return client


def _check_versions(client: Any) -> None:
    """Raise an error if there are no workers, or if the package versions of a worker and this process differ."""
    try:
        client.wait_for_workers(1, timeout=_TIMEOUT)
    except TimeoutError as error:
        raise InputError(f"the scheduler at {client.scheduler.address} has no workers: start at least one") from error
    versions = client.get_versions(packages=["isoscope"])
    here = {**versions["client"]["packages"], "isoscope": isoscope.__version__}
    for worker, about in versions["workers"].items():
        there = about["packages"]
        for package in ("python", "distributed", "isoscope"):
            mine, theirs = (_version(package, side.get(package)) for side in (here, there))
            if mine != theirs:
                what = f"has {package} {theirs}" if theirs else f"has no {package}"
                raise InputError(
                    f"worker {worker} {what}, but this process has {mine}: install the same version everywhere"
                )


def _version(package: str, version: str | None) -> str | None:
    """Return the part of a version that must match: major and minor for Python, the full version for packages."""
    return ".".join(version.split(".")[:2]) if version and package == "python" else version
