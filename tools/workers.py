"""Print how many test processes `make test` starts.

Two on an idle machine. Where other programs wait for a processor, each further process gets its share of the time, so
there are more of them, as far as the free memory allows.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FEWEST, MOST = 2, 6
MEMORY = 3 * 10**9
"""Bytes of memory for each test process: about 1.5 GB, and twice that for some tests."""


def count_workers(load: float, cores: int, memory: float) -> int:
    """Return the number of test processes for a load average, a number of cores and bytes of free memory.

    >>> [count_workers(load, cores=2, memory=64e9) for load in (0.5, 2, 4, 6, 12, 50)]
    [2, 2, 3, 4, 6, 6]
    >>> count_workers(12, cores=2, memory=10e9)
    3
    """
    waiting = max(load - cores, 0)  # programs that wait for a core
    return max(FEWEST, min(FEWEST + int(waiting / 2), MOST, int(memory / MEMORY)))


def free_memory() -> float:
    """Return the bytes of memory that can be used; half of all memory if the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists() and (found := re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())):
        return 1024.0 * int(found[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


if __name__ == "__main__":
    print(count_workers(os.getloadavg()[0], os.cpu_count() or 1, free_memory()))
