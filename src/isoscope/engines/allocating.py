"""Memory that a worker gives back after each array and asks for again costs more than the arithmetic: it is kept.

Dask starts its workers with MALLOC_TRIM_THRESHOLD_=65536, so that glibc hands free memory back to the system at once;
it then no longer learns which sizes come again either, and every array over 128 KB is mapped, zeroed by the system page
by page, and unmapped. A pass over vectors makes thousands of arrays of a few sizes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_TRIM_BYTES, _MMAP_BYTES = (
    256 * 2**20,
    32 * 2**20,
)  # bytes: what a worker may keep for later; the largest that glibc lets it keep
_DEFAULT_MMAP_BYTES = 128 * 2**10
_lock, _active_contexts = Lock(), [0]


@contextmanager
def retain_freed_memory() -> Iterator[None]:
    """While this is open, in any thread, what is freed is kept for the next array; then it is given back."""
    libc, trim = _glibc(), os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    if libc is None or not trim.isdigit():
        yield
        return
    with _lock:
        _active_contexts[0] += 1
        if _active_contexts[0] == 1:
            libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
            libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    try:
        yield
    finally:
        with _lock:
            _active_contexts[0] -= 1
            if not _active_contexts[0]:
                libc.mallopt(_M_TRIM_THRESHOLD, int(trim))
                libc.mallopt(_M_MMAP_THRESHOLD, _DEFAULT_MMAP_BYTES)
                libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    """The C library, if it is GNU's."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
