"""How much memory a process may take, and how that is shared out between what it does.

A limit is of what the process holds as its own, beyond the files that the system keeps in its cache. What is held at a
time is estimated before any row is read, for vectors of d dimensions on w threads:

- the interpreter, its libraries and the compiled loops: 160 MB;
- d×d matrices of float64, 8d² bytes each: 10 for the sums, the axes and what it takes to find them, 5 more for each
  thread, 4 more for each group of rows that is measured apart;
- the tiles that each thread works on: 16 MB;
- and what can be made smaller, which shares the rest: the sample, with the copies that its neighbours and clusters are
  found in (half of the rest; 6 copies and 4 KB for each row), batches of rows on their way (a quarter; two for each
  thread and two more, each in two copies, and one for each further group), the sums of types and the tiles of pairs
  (an eighth each).

Threads are given up first if they would take more than a third of what is left beside the libraries, then rows of the
sample and of the batches. The least that does has one thread and a sample of 1,000 rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from isoscope._core.errors import InputError, warn_data
from isoscope._core.threads import set_max_threads, thread_count

_LIBRARY_BYTES = 160 * 10**6
_MATRICES, _MATRICES_PER_THREAD, _MATRICES_PER_GROUP = 10, 5, 4
_THREAD_BYTES = 16 * 2**20
_SAMPLE_COPIES, _NEIGHBOR_BYTES = 6, 4096
_MIN_SAMPLE, _MIN_ADJUSTABLE_BYTES, _MIN_TILE_BYTES = 1000, 32 * 2**20, 2**18
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass
class _Limit:
    """A limit, and the widest vectors and the most clouds at a time that were met under it."""

    size: int
    dim: int = 1
    clouds: int = 1
    workers: int = 1

    def fixed_bytes(self, workers: int) -> int:
        """What cannot be made smaller, on so many threads."""
        matrices = _MATRICES + _MATRICES_PER_THREAD * workers + _MATRICES_PER_GROUP * (self.clouds - 1)
        return _LIBRARY_BYTES + 8 * self.dim**2 * matrices + _THREAD_BYTES * workers

    @property
    def rest(self) -> int:
        """What the sample, the batches, the types and the tiles share."""
        return self.size - self.fixed_bytes(self.workers)

    def plan_for(self, dim: int, clouds: int) -> None:
        """See that vectors so wide can be worked on, and by how many threads."""
        wider = replace(self, dim=max(self.dim, dim), clouds=max(self.clouds, clouds))
        least = wider.fixed_bytes(1) + max(
            _MIN_ADJUSTABLE_BYTES, 2 * _MIN_SAMPLE * wider.clouds * _row_bytes(wider.dim, 4)
        )
        if self.size < least:
            apart = f", {wider.clouds} groups apart" if wider.clouds > 1 else ""
            raise InputError(
                f"a memory of {_format_size(self.size)} is too small for d = {wider.dim}{apart}: need "
                f"{_format_size(least, up=True)} at least"
            )
        self.dim, self.clouds = wider.dim, wider.clouds
        each = self.fixed_bytes(2) - self.fixed_bytes(1)
        set_max_threads(1 + min((self.size - least) // each, (self.size - _LIBRARY_BYTES) // (3 * each)))
        self.workers = thread_count()


_active_limits: list[_Limit] = []  # the last is in force


@contextmanager
def memory_limit(size: str | int) -> Iterator[None]:
    """Have everything in this process work in so much memory, with smaller batches, samples and fewer threads.

    The limit is of what the process holds as its own; files that the system keeps in its cache do not count. It is kept
    by planning, and not enforced: arrays that you hold come on top, and so do columns that are read whole, as the one
    that rows are grouped by. Inside another limit this one counts.

    Parameters
    ----------
    size : str or int
        "2GB", "500MB", "1.5GiB", or a number of bytes.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> np.save("cone.npy", np.random.default_rng(0).standard_normal((2_000, 64)).astype(np.float32) + 1)
    >>> with isoscope.memory_limit("500MB"):
    ...     found = isoscope.audit("cone.npy")
    >>> found["mean_cosine"].shown
    '0.500'
    """
    limit = _Limit(parse_size(size))
    _active_limits.append(limit)
    try:
        yield
    finally:
        _active_limits.remove(limit)
        set_max_threads(None)
        if _active_limits:
            _active_limits[-1].plan_for(1, 1)


def current_limit() -> int | None:
    """The limit in force, in bytes; None without one."""
    return _active_limits[-1].size if _active_limits else None


def parse_size(said: str | int) -> int:
    """The bytes that are meant by "2GB", "1.5GiB" or a number."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?I?)B?\s*", str(said).upper())
    if isinstance(said, bool) or not found or found[2] not in _UNITS:
        raise InputError(f"a memory of {said!r}: need a size such as 2GB, 500MB or 1.5GiB, or a number of bytes")
    return int(float(found[1]) * _UNITS[found[2]])


def check_memory(dim: int, clouds: int = 1) -> None:
    """Refuse vectors that are too wide for the limit, if there is one, before any is read."""
    if _active_limits:
        _active_limits[-1].plan_for(dim, clouds)


def batch_bytes(usual: int) -> int:
    """How large a batch of rows may be."""
    if not _active_limits:
        return usual
    limit = _active_limits[-1]
    held = 2 * (2 * limit.workers + 2) + limit.clouds - 1  # a group's rows wait until they fill a batch
    return max(_MIN_TILE_BYTES, min(usual, limit.rest // (4 * held)))


def tile_bytes(usual: int) -> int:
    """How much may be held at once of what is made and used up on the way: an eighth of what can be shared."""
    return usual if not _active_limits else max(_MIN_TILE_BYTES, min(usual, _active_limits[-1].rest // 8))


def limit_sample_size(asked: int, dim: int, itemsize: int = 4, clouds: int = 1) -> int:
    """How many rows a sample may have, of each of some clouds; fewer than were asked for are told."""
    if not _active_limits:
        return asked
    check_memory(dim, clouds)
    rows = _active_limits[-1].rest // (2 * clouds * _row_bytes(dim, itemsize))
    if rows < asked:
        warn_data(
            f"{_format_size(_active_limits[-1].size)} of memory hold a sample of {rows:,} rows, not of "
            f"{asked:,}: so many are taken"
        )
    return min(asked, rows)


def _row_bytes(dim: int, itemsize: int) -> int:
    return _SAMPLE_COPIES * dim * itemsize + _NEIGHBOR_BYTES


def _format_size(size: int, *, up: bool = False) -> str:
    """A size in words, rounded up where it is the least that does."""
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    value = size / unit
    digits = 0 if unit == 10**6 else 1
    if up:
        value = -(-size * 10**digits // unit) / 10**digits
    return f"{value:.{digits}f}{name}"
