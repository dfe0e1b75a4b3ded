"""One run of the command: what was typed, whether it was interrupted, with what code it ends."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from isoscope._core.errors import DataWarning

FAIL_ON_REACHED, BAD_INPUT, INTERNAL, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: the gate of --fail-on is shut; the input is bad; isoscope is; Ctrl-C."""


class Interruption(Exception):
    """Ctrl-C, with a word on what it left."""


interrupted = Event()
"""Whether Ctrl-C or its like has come."""

command_arguments: list[str] = []
"""The command's words, as they were typed."""


def mute_stdout() -> None:
    """Write no more to a standard output that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at the end


@contextmanager
def report_warnings() -> Iterator[None]:
    """Say what isoscope warns of when the bar is gone, and nothing of what other libraries do."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        try:
            yield
        finally:
            words = dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, DataWarning))
            for each in words:
                print(f"isoscope: {each}", file=sys.stderr)
