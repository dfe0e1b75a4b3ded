"""Process tiles in a pool of ordinary threads, while BLAS runs on one thread in each of them.

BLAS calls and our kernels release the GIL, so this uses all cores without a barrier after each product. It also avoids
the threading layers of numba, some of which abort the process on concurrent use or after a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
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
    """The state of the limit that restricts BLAS to one thread."""

    lock = Lock()
    holders = 0  # callers that need the limit now
    threads = 1  # threads of BLAS without the limit
    max_workers: int | None = None  # the largest number of our own threads
    release_event = Event()
    holder: Thread | None = None


def thread_count() -> int:
    """Return the number of threads to use: at most that of BLAS, which OMP_NUM_THREADS or threadpoolctl sets."""
    with _BlasLimit.lock:
        own = _BlasLimit.threads if _BlasLimit.holders else _blas_threads()
    return own if _BlasLimit.max_workers is None else min(own, _BlasLimit.max_workers)


def set_max_threads(workers: int | None) -> None:
    """Set the maximum number of threads that isoscope starts; None removes the limit."""
    _BlasLimit.max_workers = workers


def _blas_threads() -> int:
    return max((int(library.num_threads) for library in _blas_controller().lib_controllers), default=1)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread while isoscope's threads work; the last of several callers removes the limit.

    A separate thread sets and removes the limit: threadpoolctl requires the same thread for both, and the last caller
    need not be the first.
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


@contextmanager
def single_threaded_product() -> Iterator[None]:
    """Limit BLAS to one thread for a product of less than a millisecond, unless another thread is changing the limit.

    Waking the other threads of BLAS takes as long as such a product. This is faster than `single_threaded_blas`, which
    starts a thread, but other users of that limit wait until the product is finished.
    """
    if not _BlasLimit.lock.acquire(blocking=False):
        yield
        return
    try:
        with nullcontext() if _BlasLimit.holders else _blas_controller().limit(limits=1):
            yield
    finally:
        _BlasLimit.lock.release()


def _hold_blas_limit(ready: Event, release: Event) -> None:
    try:
        with _blas_controller().limit(limits=1):
            ready.set()
            release.wait()
    finally:
        ready.set()


def _limit_this_thread() -> None:
    """Limit BLAS in this thread, for libraries that set the limit per thread instead of per process."""
    _blas_controller().limit(limits=1)


_thread_state = local()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Prevent this thread from starting further threads, because the caller already runs one thread per core."""
    before = getattr(_thread_state, "is_single", False)
    _thread_state.is_single = True
    try:
        with single_threaded_blas():
            yield
    finally:
        _thread_state.is_single = before


def map_in_threads(work: Callable[[T], R], items: Iterable[T], expected: int) -> Generator[R, None, None]:
    """Yield `work(item)` for each item, computed in a pool of threads; the results keep the order of the items.

    At most two items per thread are in progress at a time. With fewer than two `expected` items, no thread is started.
    """
    workers = thread_count()
    if workers == 1 or expected < 2 or getattr(_thread_state, "is_single", False):
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
    """Consume an iterator whose results are stored elsewhere."""
    for _ in results:
        pass


def run_together(*tasks: Callable[[], Any]) -> tuple[Any, ...]:
    """Run functions in a pool of threads, and return their results in the order of the functions."""
    return tuple(map_in_threads(lambda task: task(), tasks, len(tasks)))
