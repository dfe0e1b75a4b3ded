"""Limit the memory use of a process by planning how much its threads, samples and batches may use.

A limit covers the memory of the process itself, but not files in the system's cache. The plan is made before any
row is read, from the dimension d and the number of threads:

- the interpreter, its libraries and the compiled loops take 160 MB;
- d×d matrices of float64 take 8d² bytes each: 10 for the sums and the principal axes, 5 more per thread, and 4 more
  for each further group of rows that is measured separately;
- the tiles of each thread take 16 MB;
- the rest is divided among the parts whose size is adjustable. The sample gets half; a sampled row counts as 6 copies,
  plus 4 KB for its neighbors and clusters. Batches of rows get a quarter: two per thread and two more, each in two
  copies, and one for each further group. The sums of types and the tiles of pairs get an eighth each.

If memory is short, the number of threads falls first, until they take at most a third of the memory beyond the
libraries. Then the sample and the batches shrink. The minimum is one thread and a sample of 1,000 rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from isoscope._core.errors import ParameterError, warn_data
from isoscope._core.threads import set_max_threads, thread_count

_LIBRARY_BYTES = 160 * 10**6
_MATRICES, _MATRICES_PER_THREAD, _MATRICES_PER_GROUP = 10, 5, 4
_THREAD_BYTES = 16 * 2**20
_SAMPLE_COPIES, _NEIGHBOR_BYTES = 6, 4096
_MIN_SAMPLE, _MIN_ADJUSTABLE_BYTES, _MIN_TILE_BYTES = 1000, 32 * 2**20, 2**18
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass
class _Limit:
    """A limit in bytes, with the largest dimension and the largest number of groups requested so far."""

    size: int
    dim: int = 1
    groups: int = 1
    workers: int = 1

    def fixed_bytes(self, workers: int) -> int:
        """Return the number of bytes that cannot be reduced for this number of threads."""
        matrices = _MATRICES + _MATRICES_PER_THREAD * workers + _MATRICES_PER_GROUP * (self.groups - 1)
        return _LIBRARY_BYTES + 8 * self.dim**2 * matrices + _THREAD_BYTES * workers

    @property
    def rest(self) -> int:
        """The bytes that the sample, the batches, the types and the tiles share."""
        return self.size - self.fixed_bytes(self.workers)

    def plan_for(self, dim: int, groups: int) -> None:
        """Check that the limit suffices for vectors of this dimension, and set the number of threads."""
        wider = replace(self, dim=max(self.dim, dim), groups=max(self.groups, groups))
        least = wider.fixed_bytes(1) + max(
            _MIN_ADJUSTABLE_BYTES, 2 * _MIN_SAMPLE * wider.groups * _row_bytes(wider.dim, 4)
        )
        if self.size < least:
            in_groups = f" in {wider.groups} groups" if wider.groups > 1 else ""
            raise ParameterError(
                f"a memory limit of {format_size(self.size)} is too small for d = {wider.dim}{in_groups}: need at "
                f"least {format_size(least, round_up=True)}"
            )
        self.dim, self.groups = wider.dim, wider.groups
        each = self.fixed_bytes(2) - self.fixed_bytes(1)
        set_max_threads(1 + min((self.size - least) // each, (self.size - _LIBRARY_BYTES) // (3 * each)))
        self.workers = thread_count()


_active_limits: list[_Limit] = []  # the last one is in force


@contextmanager
def memory_limit(size: str | int) -> Iterator[None]:
    """Limit the memory use of this process by using smaller batches, smaller samples and fewer threads.

    The limit covers the memory of the process itself; files in the system's cache do not count. It is planned, not
    enforced: it does not include your own arrays, nor columns that are read completely, such as the column that defines
    the groups. Within nested limits, the innermost applies.

    Parameters
    ----------
    size : str or int
        "2GB", "500MB", "1.5GiB", or a number of bytes.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> np.save("cone.npy", np.random.default_rng(0).standard_normal((2_000, 64)).astype(np.float32) + 1)
    >>> with isoscope.memory_limit("500MB"):
    ...     audit = isoscope.audit("cone.npy")
    >>> audit["mean_cosine"].shown
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
            with suppress(ParameterError):  # the next computation reports a limit that is too small
                _active_limits[-1].plan_for(1, 1)


def current_limit() -> int | None:
    """Return the current limit in bytes, or None if there is none."""
    return _active_limits[-1].size if _active_limits else None


def parse_size(size: str | int, what: str = "memory limit") -> int:
    """Return the number of bytes in a size such as "2GB", "1.5GiB" or 2000000000; `what` names it in errors."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?I?)B?\s*", str(size).upper())
    if isinstance(size, bool) or not match or match[2] not in _UNITS:
        raise ParameterError(f"the {what} is {size!r}: need a size such as 2GB, 500MB or 1.5GiB, or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2]])


def check_memory(dim: int, groups: int = 1) -> None:
    """Raise an error if the current memory limit is too small for vectors of this dimension."""
    if _active_limits:
        _active_limits[-1].plan_for(dim, groups)


def batch_bytes(usual: int) -> int:
    """Return the maximum size of a batch of rows in bytes: `usual`, or less if memory is limited."""
    if not _active_limits:
        return usual
    limit = _active_limits[-1]
    batches = 2 * (2 * limit.workers + 2) + limit.groups - 1  # each further group collects rows for a batch of its own
    return max(_MIN_TILE_BYTES, min(usual, limit.rest // (4 * batches)))


def tile_bytes(usual: int) -> int:
    """Return the maximum size of temporary tiles in bytes: `usual`, but at most an eighth of the adjustable memory."""
    return usual if not _active_limits else max(_MIN_TILE_BYTES, min(usual, _active_limits[-1].rest // 8))


def fitting_rows(dim: int, itemsize: int = 4, groups: int = 1) -> int | None:
    """Return the number of rows per group that fit in memory together with their neighbors; None without a limit."""
    if not _active_limits:
        return None
    check_memory(dim, groups)
    return _active_limits[-1].rest // (2 * groups * _row_bytes(dim, itemsize))


def limit_sample_size(requested: int, dim: int, itemsize: int = 4, groups: int = 1) -> int:
    """Return the number of sample rows per group that fit in memory; warn if it is less than requested."""
    rows = fitting_rows(dim, itemsize, groups)
    if rows is None:
        return requested
    if rows < requested:
        warn_data(
            f"the memory limit of {format_size(_active_limits[-1].size)} reduces the sample from {requested:,} to "
            f"{rows:,} rows"
        )
    return min(requested, rows)


def _row_bytes(dim: int, itemsize: int) -> int:
    return _SAMPLE_COPIES * dim * itemsize + _NEIGHBOR_BYTES


def format_size(size: int, *, round_up: bool = False) -> str:
    """Return a size as text, such as 1.5GB."""
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    value = size / unit
    digits = 0 if unit == 10**6 else 1
    if round_up:
        value = -(-size * 10**digits // unit) / 10**digits
    return f"{value:.{digits}f}{name}"
