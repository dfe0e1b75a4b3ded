"""The command `isoscope`: what is typed is checked in modules of their own, the work is done elsewhere.

Only what the help needs is imported at the top, so that `isoscope --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from isoscope._core.errors import InputError
from isoscope.cli import audit_commands, model_commands, repair_commands, study_commands
from isoscope.cli.session import (
    BAD_INPUT,
    INTERNAL,
    INTERRUPTED,
    Interruption,
    command_arguments,
    interrupted,
    mute_stdout,
    report_warnings,
)

app = typer.Typer(
    name="isoscope",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="The shape of an embedding space: what it is, what it means for your task, what to try.",
    epilog="Exit codes: 0 all is well, 1 the gate of --fail-on is shut, 2 the input cannot be used.",
)
for each in (audit_commands, repair_commands, model_commands, study_commands):
    app.add_typer(each.commands)


def _print_version(asked: bool) -> None:
    if asked:
        from isoscope import __version__

        typer.echo(f"isoscope {__version__}")
        raise typer.Exit


@app.callback()
def _isoscope(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where something fails.")] = False,
) -> None:
    """The shape of an embedding space: what it is, what it means for your task, what to try."""


@app.command()
def demo(
    html: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("isoscope-demo.html"),
) -> None:
    """Audit real vectors that come with isoscope: WordNet glosses in a hidden layer of a sentence encoder."""
    from isoscope.cli.demo import run_demo

    run_demo(html)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; bad input is one line on standard error and exit code 2, a traceback comes with --debug alone."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    if debug:
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    interrupted.clear()
    command_arguments[:] = arguments
    for terminating in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        with suppress(ValueError):  # not in the main thread
            signal.signal(terminating, _handle_signal)
    try:
        with report_warnings():
            return _run(arguments)
    except InputError as error:
        return _fail(str(error), BAD_INPUT, debug)
    except Interruption as stop:
        return _fail(f"interrupted; {stop}", INTERRUPTED, debug)
    except KeyboardInterrupt:
        return _fail("interrupted; files that were being written are as they were", INTERRUPTED, debug)
    except BrokenPipeError:
        mute_stdout()
        return 0
    except OSError as error:
        words = _format_memory_error(error) if error.errno == errno.ENOMEM else _format_os_error(error)
        return _fail(words, BAD_INPUT, debug)
    except MemoryError as error:
        return _fail(_format_memory_error(error), BAD_INPUT, debug)
    except Exception as error:
        if any(each in str(error) for each in _DISK_FULL_MESSAGES):
            return _fail(_format_os_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), BAD_INPUT, debug)
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(f"this should not have happened ({words}); run it with --debug and report it", INTERNAL, debug)


_DISK_FULL_MESSAGES = ("No space left on device", "PytorchStreamWriter failed writing file")
"""What libraries that write a model's weights say of a full disk, in errors of their own."""


def _handle_signal(number: int, frame: object) -> None:
    """Be ended as by Ctrl-C: what is being written is cleared away."""
    interrupted.set()  # a library that was called back just then may swallow the exception: it is raised again later
    raise KeyboardInterrupt


def _run(arguments: list[str]) -> int:
    try:
        outcome: Any = app(args=arguments, standalone_mode=False)
        code = int(outcome or 0)
    except typer.Exit as done:
        code = done.exit_code
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
        if code == 1:  # what typer and rich make of a pipe that nobody reads
            mute_stdout()
            code = 0
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # of typer's parser
            raise InputError(error.format_message().replace("\n", " ") + " See isoscope --help.") from error
        raise
    if code == INTERRUPTED:  # typer makes this of Ctrl-C
        raise KeyboardInterrupt
    return code


def _format_memory_error(error: BaseException) -> str:
    return f"out of memory ({error}): give what there is with --max-memory, as in --max-memory 2GB"


def _format_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    words = f"{where}{error.strerror or error}"
    if error.errno == errno.ENOSPC:
        words += "; the old file, if there was one, is as it was: make room and run it again"
    return "; ".join([words, *getattr(error, "__notes__", [])])


def _fail(words: str, code: int, debug: bool) -> int:
    from isoscope.stores.databases.address import redact_passwords

    if debug:
        import traceback

        print(redact_passwords(traceback.format_exc()), file=sys.stderr)
    print("isoscope: " + redact_passwords(" ".join(words.split())), file=sys.stderr)
    return code
