"""The session of one command: exit codes, interruptions, the progress bar and printed output."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import signal
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TextIO

from isoscope._core.errors import DataWarning, ParameterError, was_dropped
from isoscope._core.printable import REMOVED, escape_controls, find_secrets, to_printable
from isoscope._io.progress import Progress, ProgressBar

if TYPE_CHECKING:
    from isoscope._render import Result
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Store

FAIL_ON_REACHED, BAD_INPUT, INTERNAL, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: the --fail-on threshold was reached; the input is invalid; a bug in isoscope; Ctrl-C."""

STDOUT = Path("-")
"""The path that means standard output."""
STDOUT_NAME = "standard output"
"""The name of standard output in error messages."""

interrupted = Event()
"""Set if a signal asks the command to end."""

command_arguments: list[str] = []
"""The arguments of the running command."""

written_files: list[str] = []
"""The files that the running command has written or replaced."""

progress_listeners: list[Progress] = []
"""Functions that are called with the progress of the running command, in addition to its progress bar."""


class Interruption(Exception):
    """An interruption by Ctrl-C, with a message that states what the command has finished."""


_MIN_ADDRESS_SPACE = 400 * 10**6  # bytes; at least numpy, numba and pyarrow are loaded
KMEANS_ADDRESS_SPACE = 1_100 * 10**6
"""The address space in bytes that scikit-learn's k-means needs; with less, it can loop forever instead of failing."""
_CLI = r"(?:CLI|on the command line): "
_TWO_FORMS = re.compile(
    rf'\b\w+=(?:"[^"]*"|\w+)? \({_CLI}(?P<value>--[^()]+)\)'  # missing="drop" (CLI: --missing drop)
    rf"|\b(?P<name>\w+) \({_CLI}(?P<option>--[\w-]+)\)"  # match_from (CLI: --match-from)
    rf"|\((?:[^();]*=[^();]*; )?{_CLI}(?P<other>[^()]+)\)"  # (ids=; CLI: --ids)
    r"| \(in Python[^()]*\)"
)
"""An option in Python, and its form on the command line."""
_MIN_SECRET = 4  # shorter texts would also be removed from ordinary words

_ASCII = str.maketrans(
    {
        **{"✓": "+", "✗": "x", "×": "x", "·": ".", "•": "*", "…": "...", "→": "->", "←": "<-", "−": "-", "±": "+-"},
        **{"–": "-", "—": "-", "≤": "<=", "≥": ">=", "≈": "~", "≠": "!=", "√": "sqrt", "∞": "inf", "σ": "sigma"},
        **{"‖": "||", "█": "#", "━": "-", "─": "-", "│": "|", "▲": "^", "▼": "v", "ᵀ": "T"},
        **{"‘": "'", "’": "'", "“": '"', "”": '"'},
    }
)
"""ASCII for the symbols in the output, if the encoding of the terminal does not contain them."""


def _encode_as_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace a character that an encoding lacks: symbols and digits by ASCII, letters by escapes.

    Tables stay aligned: an arrow at the start of a line becomes one character, and another mark of two characters also
    replaces the space after it.
    """
    assert isinstance(error, UnicodeEncodeError)
    mark, after = error.object[error.start], error.object[error.start + 1 : error.start + 2]
    before = error.object[error.object.rfind("\n", 0, error.start) + 1 : error.start]
    if mark == "→" and after == " " and not before.strip():
        return ">", error.start + 1
    text = mark.translate(_ASCII)
    text = "".join(str(unicodedata.digit(each, each)) for each in text)  # anisotropy₁
    plain = text.encode("ascii", "backslashreplace").decode()
    is_wide = len(plain) == 2 and after == " "
    return plain, error.start + 1 + is_wide


codecs.register_error("isoscope-ascii", _encode_as_ascii)


@contextmanager
def _name_stdout() -> Iterator[None]:
    """Set the file name in errors that writing to standard output raises."""
    try:
        yield
    except OSError as error:
        error.filename = STDOUT_NAME
        raise


class _EscapedOutput:
    """Standard output with control characters escaped; `terminal` is the stream behind it, which rich may style."""

    buffer = None  # typer would write UTF-8 to it if the encoding is ASCII

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        with _name_stdout():
            return self.terminal.write(escape_controls(text))

    def flush(self) -> None:
        """Flush the stream."""
        with _name_stdout():
            self.terminal.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


@contextmanager
def print_safely() -> Iterator[None]:
    """Escape control characters on standard output, and replace the characters that its encoding lacks."""
    if sys.stdout is None:  # it was closed before the command started
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    stdout, streams = sys.stdout, [each for each in (sys.stdout, sys.stderr) if hasattr(each, "reconfigure")]
    before = [each.errors for each in streams]
    for each in streams:
        each.reconfigure(errors="isoscope-ascii")
    sys.stdout = _EscapedOutput(stdout)
    try:
        yield
    finally:
        sys.stdout = stdout
        for each, errors in zip(streams, before, strict=True):
            each.reconfigure(errors=errors)


@contextmanager
def handle_signals(handler: Callable[[int, Any], None] | None = None) -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, SIGTERM and SIGHUP, or call `handler`; restore the previous ones on exit."""
    interrupted.clear()
    previous: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        before = signal.getsignal(number)
        is_nohup = number == getattr(signal, "SIGHUP", None) and before == signal.SIG_IGN
        if number in previous or before is None or is_nohup:  # None: a handler that Python cannot restore
            continue
        with suppress(ValueError):  # outside the main thread
            signal.signal(number, handler or _interrupt)
            previous[number] = before
    hook, sys.unraisablehook = sys.unraisablehook, _report_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, before in previous.items():
            signal.signal(number, before)


def _report_unraisable(unraisable: Any) -> None:
    """Report an exception that Python cannot raise; an interruption is remembered in `interrupted`."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _interrupt(number: int, frame: object) -> None:
    interrupted.set()  # remains set if a library swallows the exception
    raise KeyboardInterrupt


class InterruptibleProgressBar(ProgressBar):
    """A progress bar that ends the command if a library suppressed the KeyboardInterrupt."""

    def __call__(self, stage: str, done: int, share: float, note: str = "") -> None:
        """Show the progress of a stage, or raise KeyboardInterrupt."""
        if interrupted.is_set():
            raise KeyboardInterrupt
        for listen in progress_listeners:
            listen(stage, done, share, note)
        super().__call__(stage, done, share, note)


def check_address_space(least: int = _MIN_ADDRESS_SPACE) -> None:
    """Raise an error if the address space is too small for the libraries, which would crash in different ways."""
    limit = address_space()
    if limit is not None and limit < least:
        raise ParameterError(
            f"the address space is limited to {limit / 1e6:.0f} MB (ulimit -v), but the libraries of isoscope need at "
            f"least {least / 1e6:.0f} MB: raise that limit; to limit memory, use --max-memory"
        )


def address_space() -> int | None:
    """Return the limit of the address space in bytes, or None if it is unlimited."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


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
                cli_form(str(each.message)) for each in caught if issubclass(each.category, DataWarning)
            ):
                print_message(message)


def print_message(message: str) -> None:
    """Print a message as one line to standard error."""
    print_note(f"isoscope: {' '.join(message.split())}")


def report_written(path: Path | Address, *, replaced: bool = False, detail: str = "") -> None:
    """Print to standard error that a file was written, or that it replaced an earlier one."""
    written_files.append(str(path))
    print_note(f"{'replaced' if replaced else 'written'}: {path}{detail}")


def begin_command(arguments: Sequence[str]) -> None:
    """Set the arguments of the command that starts now, which has not written any file yet."""
    command_arguments[:] = arguments
    written_files.clear()


def describe_interruption() -> str:
    """Return the message for an interruption, with the files that the command had already written."""
    if not written_files:
        return "interrupted; existing files are unchanged"
    complete = "is" if len(written_files) == 1 else "are"
    return f"interrupted; {' and '.join(written_files)} {complete} complete; other existing files are unchanged"


def cli_form(message: str) -> str:
    """Return a message with only the command-line form of its options, without the Python form.

    >>> cli_form('drop such rows with missing="drop" (CLI: --missing drop)')
    'drop such rows with --missing drop'
    >>> cli_form("so raise sample (CLI: --sample)")
    'so raise --sample'
    >>> cli_form("pass the ids (ids=; CLI: --ids with a column or a file)")
    'pass the ids (--ids with a column or a file)'
    """

    def replace(match: re.Match[str]) -> str:
        value, name, option, other = match.group("value", "name", "option", "other")
        if value is not None:
            return value
        if option is not None:
            return option if option == f"--{name.replace('_', '-')}" else f"{name} ({option})"
        return "" if other is None else f"({other})"

    return _TWO_FORMS.sub(replace, message)


def print_note(text: str) -> None:
    """Print a text to standard error without control characters and without the secrets in the command's arguments."""
    print(to_printable(remove_secrets(text, command_arguments)), file=sys.stderr)


def remove_secrets(text: str, arguments: Iterable[str]) -> str:
    """Return a text without the passwords and keys that these command-line arguments contain."""
    for secret in (each for argument in arguments for each in find_secrets(argument)):
        if len(secret) >= _MIN_SECRET:
            text = text.replace(secret, REMOVED)
    return text


def report_dropped(store: Store, written: int) -> None:
    """Print to standard error how many rows of a store were dropped."""
    if store.drops_rows and (dropped := len(store) - written):
        print_message(was_dropped(dropped, "row", f"of {store.name}"))


def write_result(result: Result, html: Path | None, json: Path | None) -> None:
    """Write a result as HTML and as JSON, where these are requested."""
    if html is not None:
        result.to_html(html)
        report_written(html)
    if json is not None:
        write_json_output(result.to_dict(), json)


def write_json_output(content: dict[str, Any], path: Path) -> None:
    """Write a result as JSON to a file or to standard output."""
    from isoscope._io.json import format_json, write_json

    if path == STDOUT:
        sys.stdout.write(format_json(content, ascii_only=not _encodes_unicode(sys.stdout)))
    else:
        write_json(content, path)
        report_written(path)


def show(renderable: Any, *, width: int | None = None) -> None:
    """Print rich renderables to standard output; a closed pipe ends the output but not the command."""
    from rich.console import Console

    from isoscope._report.terminal import EscapedControls

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process

    out = getattr(sys.stdout, "terminal", None)
    try:
        with _name_stdout():
            console = PipeConsole(file=out, highlight=False, markup=False, width=width)
            with console.capture() as printed:
                console.print(EscapedControls(renderable), crop=False)  # long lines of code must stay complete
            text = printed.get()
            if not console.is_terminal:
                text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
            if not _encodes(console.file, "…"):
                text = text.replace(" … ", "...")  # as wide as before, so that tables stay aligned
            console.file.write(text)
            console.file.flush()
    except BrokenPipeError:
        mute_stdout()


def _encodes(stream: Any, text: str) -> bool:
    """Return whether the encoding of a stream contains a text."""
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _encodes_unicode(stream: Any) -> bool:
    """Return whether the encoding of a stream contains all characters."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-").startswith(("utf", "cp65001"))


def mute_stdout() -> None:
    """Discard further output, because standard output was closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports the error again at exit
