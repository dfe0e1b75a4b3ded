"""BLAS on one thread in the test processes, while isoscope still starts as many threads as the environment allows.

The tests multiply small matrices. Two threads of OpenBLAS then mostly wait for each other in busy loops, which take up
to ten times the processor time of the products, and more on a busy machine. isoscope reads its number of threads from
BLAS, so a stand-in that threadpoolctl treats as one more BLAS library keeps that number: the threads of isoscope, and
tests that set limits, behave as if BLAS had this many threads.
"""

from __future__ import annotations

import os
from typing import ClassVar

import threadpoolctl

from isoscope._core import threads


class StandIn(threadpoolctl.LibController):
    """Holds a number of threads, and reports and changes it like a BLAS library."""

    user_api = "blas"
    internal_api = "stand_in"
    filename_prefixes = ("_multiarray_umath",)  # a library that is always loaded: NumPy
    threads: ClassVar[int] = 1

    def get_num_threads(self) -> int:
        return StandIn.threads

    def set_num_threads(self, num_threads: int) -> None:
        StandIn.threads = num_threads

    def get_version(self) -> str | None:
        return None


def limit_blas() -> None:
    """Limit BLAS to one thread in this process; `thread_count()` remains what it was."""
    import scipy.linalg  # noqa: F401  # has a BLAS of its own, which must be loaded to be limited

    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")  # commands that tests start wait 2^16 cycles instead of 2^26
    if StandIn in threadpoolctl._ALL_CONTROLLERS:
        return
    count = threads.thread_count()
    threadpoolctl.register(StandIn)
    threads._blas_controller.cache_clear()
    if any(isinstance(library, StandIn) for library in threads._blas_controller().lib_controllers):
        threadpoolctl.threadpool_limits(1, user_api="blas")
        StandIn.threads = count
    assert threads.thread_count() == count
