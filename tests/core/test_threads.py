"""A pool of threads that does the work, with BLAS on one thread."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from isoscope._core.threads import map_in_threads, single_threaded_blas, thread_count
from tests.blas import StandIn


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(workers):
    with threadpool_limits(workers):
        assert list(map_in_threads(lambda i: i * i, range(50), 50)) == [i * i for i in range(50)]


def test_few_results_are_queued_at_a_time():
    drawn = []
    with threadpool_limits(2):
        results = map_in_threads(drawn.append, iter(range(1000)), 1000)
        next(results)
        assert len(drawn) <= 5
        results.close()
        assert thread_count() == 2


def test_error_in_a_thread_is_raised_and_blas_threads_are_restored():
    def work(i):
        if i == 7:
            raise ZeroDivisionError("seven")

    with threadpool_limits(3):
        with pytest.raises(ZeroDivisionError, match="seven"):
            list(map_in_threads(work, range(20), 20))
        assert thread_count() == 3


def test_blas_threads_are_restored_with_two_concurrent_callers():
    with threadpool_limits(3):
        first, second = single_threaded_blas(), single_threaded_blas()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert thread_count() == 3


def test_last_of_two_threads_restores_blas_threads():
    """threadpoolctl lets only the thread that set a limit remove it, but the last caller may be another thread."""
    before = thread_count()
    inside, leave = threading.Event(), threading.Event()

    def second():
        with single_threaded_blas():
            inside.set()
            leave.wait()

    with single_threaded_blas():
        other = threading.Thread(target=second)
        other.start()
        inside.wait()
    leave.set()
    other.join()
    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert thread_count() == before == max(pools)
    with single_threaded_blas():
        assert min(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas") == 1


def test_in_the_tests_blas_has_one_thread_and_isoscope_those_of_the_environment():
    """Libraries that are imported later, such as faiss, may bring a BLAS that keeps its own threads."""
    pools = [pool for pool in threadpool_info() if pool["internal_api"] in ("openblas", "mkl")]
    real = [pool["num_threads"] for pool in pools if "numpy" in pool["filepath"] or "scipy" in pool["filepath"]]
    assert set(real) <= {1}
    assert thread_count() == StandIn.threads
    if sys.platform == "linux" and (chosen := os.environ.get("OPENBLAS_NUM_THREADS")):
        assert thread_count() == min(int(chosen), len(os.sched_getaffinity(0)))
