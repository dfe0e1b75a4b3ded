"""What a worker frees is kept while it works: Dask has it given back, and the system takes its time to zero it anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from isoscope.engines.allocating import _glibc, retain_freed_memory

SCRIPT = """
import resource, numpy as np
from contextlib import nullcontext
from isoscope.engines.allocating import retain_freed_memory

def faults(around):
    with around:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(100):
            np.ones(2**18)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(nullcontext()), end=" ")
with retain_freed_memory():
    print(faults(nullcontext()), end=" ")
print(faults(nullcontext()))
"""


@pytest.mark.skipif(_glibc() is None, reason="no GNU C library, which this is about")
def test_arrays_that_come_again_are_not_asked_of_the_system_again():
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    before, kept, after = map(int, told.split())
    assert kept < before / 10
    assert after > before / 2  # and then it is as it was


def test_where_nothing_is_trimmed_nothing_is_done(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    with retain_freed_memory(), retain_freed_memory():
        pass
