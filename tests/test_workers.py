"""The number of test processes that make test starts."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools import workers

PLENTY = 64e9


@pytest.mark.parametrize(
    ("load", "cores", "expected"), [(0, 2, 2), (2, 2, 2), (4, 2, 3), (6, 2, 4), (12, 2, 6), (99, 2, 6), (12, 16, 2)]
)
def test_more_processes_if_other_programs_wait(load, cores, expected):
    assert workers.count_workers(load, cores, PLENTY) == expected


@pytest.mark.parametrize(("memory", "expected"), [(0, 2), (5e9, 2), (10e9, 3), (13e9, 4), (PLENTY, 6)])
def test_free_memory_limits_the_processes(memory, expected):
    assert workers.count_workers(99, 2, memory) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="make test needs Linux or macOS")
def test_it_prints_a_number_for_this_machine():
    assert workers.free_memory() > 10**6
    done = subprocess.run([sys.executable, workers.__file__], capture_output=True, text=True, check=True)
    assert 2 <= int(done.stdout) <= 6


def test_make_uses_it():
    makefile = Path(workers.__file__).parents[1] / "Makefile"
    assert "WORKERS = $(shell $(PYTHON) tools/workers.py" in makefile.read_text(encoding="utf-8")
