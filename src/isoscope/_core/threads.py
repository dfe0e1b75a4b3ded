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
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


class _Limit:
    """How many callers hold BLAS to one thread now, how many threads it has when none does, how many we may have."""

    lock = Lock()
    holders = 0
    threads = 1
    most: int | None = None
    leave = Event()
    holder: Thread | None = None


def threads() -> int:
    """How many threads BLAS may use here: OMP_NUM_THREADS, threadpoolctl and cluster schedulers all speak to it."""
    with _Limit.lock:
        own = _Limit.threads if _Limit.holders else _blas_threads()
    return own if _Limit.most is None else min(own, _Limit.most)


def at_most(workers: int | None) -> None:
    """Have our own threads be no more than this; None lets them be as many as BLAS has."""
    _Limit.most = workers


def _blas_threads() -> int:
    return max((int(library.num_threads) for library in _blas().lib_controllers), default=1)


@contextmanager
def single_blas() -> Iterator[None]:
    """BLAS on one thread, while our own threads each work on a tile; the last of several callers lets it go.

    A thread of its own holds the limit: threadpoolctl lets only the thread that set it change it again, and the last
    caller need not be the first.
    """
    with _Limit.lock:
        if not _Limit.holders:
            _Limit.threads = _blas_threads()
            _Limit.leave, ready = Event(), Event()
            _Limit.holder = Thread(target=_hold, args=(ready, _Limit.leave), name="isoscope-blas", daemon=True)
            _Limit.holder.start()
            ready.wait()
        _Limit.holders += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.holders -= 1
            if not _Limit.holders and _Limit.holder:
                _Limit.leave.set()
                _Limit.holder.join()


def _hold(ready: Event, leave: Event) -> None:
    try:
        with _blas().limit(limits=1):
            ready.set()
            leave.wait()
    finally:
        ready.set()


def _limit_this_thread() -> None:
    """For BLAS libraries whose limit belongs to each thread; where it belongs to the process it is held already."""
    _blas().limit(limits=1)


_Alone = local()


@contextmanager
def alone() -> Iterator[None]:
    """What this thread does inside is done by it alone: others like it run beside it, one for each core."""
    before = getattr(_Alone, "is_so", False)
    _Alone.is_so = True
    try:
        with single_blas():
            yield
    finally:
        _Alone.is_so = before


def in_threads(work: Callable[[T], R], items: Iterable[T], expected: int) -> Generator[R, None, None]:
    """`work` on each item by a pool of threads; the results come in the items' order, few are held at a time."""
    workers = threads()
    if workers == 1 or expected < 2 or getattr(_Alone, "is_so", False):
        yield from map(work, items)
        return
    items = iter(items)
    with single_blas(), ThreadPoolExecutor(workers, initializer=_limit_this_thread) as pool:
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
