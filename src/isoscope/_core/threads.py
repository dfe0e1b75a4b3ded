"""Work on tiles by a pool of ordinary threads, each with BLAS on one thread of its own.

BLAS calls and our kernels release the GIL, so this uses all cores without a barrier after each product, and without a
threading layer of numba's, some of which end the process when two threads or a fork meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice
from threading import Event, Lock, Thread, local
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@cache
def _blas_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


class _BlasLimit:
    """How many callers hold BLAS to one thread now, how many threads it has when none does, how many we may have."""

    lock = Lock()
    holders = 0
    threads = 1
    most: int | None = None
    release_event = Event()
    holder: Thread | None = None


def thread_count() -> int:
    """How many threads BLAS may use here: OMP_NUM_THREADS, threadpoolctl and cluster schedulers all speak to it."""
    with _BlasLimit.lock:
        own = _BlasLimit.threads if _BlasLimit.holders else _blas_threads()
    return own if _BlasLimit.most is None else min(own, _BlasLimit.most)


def set_max_threads(workers: int | None) -> None:
    """Have our own threads be no more than this; None lets them be as many as BLAS has."""
    _BlasLimit.most = workers


def _blas_threads() -> int:
    return max((int(library.num_threads) for library in _blas_controller().lib_controllers), default=1)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """BLAS on one thread, while our own threads each work on a tile; the last of several callers lets it go.

    A thread of its own holds the limit: threadpoolctl lets only the thread that set it change it again, and the last
    caller need not be the first.
    """
    with _BlasLimit.lock:
        if not _BlasLimit.holders:
            _BlasLimit.threads = _blas_threads()
            _BlasLimit.release_event, ready = Event(), Event()
            _BlasLimit.holder = Thread(
                target=_hold_blas_limit, args=(ready, _BlasLimit.release_event), name="isoscope-blas", daemon=True
            )
            _BlasLimit.holder.start()
            ready.wait()
        _BlasLimit.holders += 1
    try:
        yield
    finally:
        with _BlasLimit.lock:
            _BlasLimit.holders -= 1
            if not _BlasLimit.holders and _BlasLimit.holder:
                _BlasLimit.release_event.set()
                _BlasLimit.holder.join()


def _hold_blas_limit(ready: Event, leave: Event) -> None:
    try:
        with _blas_controller().limit(limits=1):
            ready.set()
            leave.wait()
    finally:
        ready.set()


def _limit_this_thread() -> None:
    """For BLAS libraries whose limit belongs to each thread; where it belongs to the process it is held already."""
    _blas_controller().limit(limits=1)


_thread_state = local()


@contextmanager
def single_threaded() -> Iterator[None]:
    """What this thread does inside is done by it alone: others like it run beside it, one for each core."""
    before = getattr(_thread_state, "is_so", False)
    _thread_state.is_so = True
    try:
        with single_threaded_blas():
            yield
    finally:
        _thread_state.is_so = before


def map_in_threads(work: Callable[[T], R], items: Iterable[T], expected: int) -> Generator[R, None, None]:
    """`work` on each item by a pool of threads; the results come in the items' order, few are held at a time."""
    workers = thread_count()
    if workers == 1 or expected < 2 or getattr(_thread_state, "is_so", False):
        yield from map(work, items)
        return
    items = iter(items)
    with single_threaded_blas(), ThreadPoolExecutor(workers, initializer=_limit_this_thread) as pool:
        waiting = [pool.submit(work, item) for item in islice(items, 2 * workers)]
        while waiting:
            done = waiting.pop(0).result()
            for item in islice(items, 1):
                waiting.append(pool.submit(work, item))
            yield done


def run_all(results: Iterable[Any]) -> None:
    """Have work done whose results are kept elsewhere."""
    for _ in results:
        pass
