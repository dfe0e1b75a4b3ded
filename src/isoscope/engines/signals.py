"""Ctrl-C is for the process that asked: its workers end with it, and say nothing of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

_TERMINATION_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def dask_setup(worker: Any) -> None:
    """Have a worker pass Ctrl-C over, which a terminal sends to it too: it would print where it was.

    Dask calls this in each process that it is told to load this module in.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Signals that end the process wait until this is done: a cluster that starts cannot be ended in order."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, frame: came.append(number)) for number in _TERMINATION_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came[:1]:
            os.kill(os.getpid(), number)
