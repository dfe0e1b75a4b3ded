"""The session of one command: exit codes, interruptions, the progress bar and printed output."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import DataWarning, plural
from isoscope._io.progress import ProgressBar

if TYPE_CHECKING:
    from isoscope.stores.store import Store

FAIL_ON_REACHED, BAD_INPUT, INTERNAL, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: the --fail-on threshold was reached; the input is invalid; a bug in isoscope; Ctrl-C."""

STDOUT = Path("-")
"""The path that means standard output."""

interrupted = Event()
"""Set if a signal asks the command to end."""

command_arguments: list[str] = []
"""The arguments of the running command."""


class Interruption(Exception):
    """An interruption by Ctrl-C, with a message that states what the command has finished."""


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, SIGTERM and SIGHUP; restore the previous handlers on exit."""
    interrupted.clear()
    previous: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        with suppress(ValueError):  # outside the main thread
            handler = signal.signal(number, _interrupt)
            previous.setdefault(number, signal.SIG_DFL if handler is None else handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    interrupted.set()  # remains set if a library swallows the exception
    raise KeyboardInterrupt


class InterruptibleProgressBar(ProgressBar):
    """A progress bar that ends the command if a library suppressed the KeyboardInterrupt."""

    def __call__(self, stage: str, done: int, share: float, note: str = "") -> None:
        """Show the progress of a stage, or raise KeyboardInterrupt."""
        if interrupted.is_set():
            raise KeyboardInterrupt
        super().__call__(stage, done, share, note)


def resume_command() -> str:
    """Return the running command as a shell command line."""
    return shlex.join(["isoscope", *command_arguments])


@contextmanager
def report_warnings() -> Iterator[None]:
    """Print each of isoscope's own warnings once at the end, and hide those of other libraries."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        try:
            yield
        finally:
            for message in dict.fromkeys(
                str(each.message) for each in caught if issubclass(each.category, DataWarning)
            ):
                print_message(message)


def print_message(message: str) -> None:
    """Print a line to standard error."""
    print(f"isoscope: {message}", file=sys.stderr)


def report_written(path: Path) -> None:
    """Print to standard error that a file was written."""
    print(f"written: {path}", file=sys.stderr)


def report_dropped(store: Store, written: int) -> None:
    """Print to standard error how many rows of a store were dropped."""
    if store.drops_rows and (dropped := len(store) - written):
        print_message(f"{plural(dropped, 'row')} of {store.name} were dropped")


def write_json_output(content: dict[str, Any], path: Path) -> None:
    """Write a result as JSON to a file or to standard output."""
    from isoscope._io.json import format_json, write_json

    if path == STDOUT:
        sys.stdout.write(format_json(content))
    else:
        write_json(content, path)
        report_written(path)


def show(renderable: Any, *, width: int | None = None) -> None:
    """Print rich renderables to standard output; a closed pipe ends the output but not the command."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process

    try:
        PipeConsole(highlight=False, markup=False, width=width).print(renderable)  # names may contain brackets
    except BrokenPipeError:
        mute_stdout()


def mute_stdout() -> None:
    """Discard further output, because standard output was closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports the error again at exit
