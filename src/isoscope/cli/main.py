"""The entry point of the `isoscope` command, which runs a subcommand and prints each error as one line.

This module and the command modules import nothing heavy at the top, so that `isoscope --help` is fast.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from functools import cache
from typing import Annotated, Any

import typer

from isoscope._core.errors import InputError, ParameterError
from isoscope.cli import advise, audit, compress, demo, embed, finetune, repair, same, stores, study, threshold
from isoscope.cli.session import (
    BAD_INPUT,
    INTERNAL,
    INTERRUPTED,
    STDOUT_NAME,
    Interruption,
    address_space,
    check_address_space,
    command_arguments,
    handle_signals,
    interrupted,
    mute_stdout,
    print_message,
    print_note,
    print_safely,
    report_warnings,
)

app = typer.Typer(
    name="isoscope",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 success; 1 the --fail-on threshold was reached, or the answer is negative (threshold: no "
    "cut; same: not the same; compress: nothing smaller) or undecided; 2 bad input; 130 interrupted.",
)
for _module in (demo, audit, stores, repair, advise, threshold, same, compress, embed, finetune, study):
    app.add_typer(_module.commands)

_DISK_FULL_MESSAGES = ("No space left on device", "PytorchStreamWriter failed writing file")
"""The messages by which libraries report a full disk in errors other than OSError."""
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""The form in which libraries written in Rust, such as safetensors, report errors of the operating system."""
_OUT_OF_MEMORY_MESSAGES = (
    "failed to map segment",
    "Cannot allocate memory",
    "can't start new thread",
    "Failed to launch worker thread",
    "libllvmlite",
    "bad_alloc",
    "error return without exception set",  # of Python, when a C function lacked memory
)
"""The messages by which libraries report that the address space is too small."""
_LONGEST_REASON = 120  # characters; llvmlite guesses at other causes in three sentences


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from isoscope import __version__

        typer.echo(f"isoscope {__version__}")
        raise typer.Exit


@app.callback()
def _isoscope(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback if the command fails.")] = False,
) -> None:
    """Measure the shape of an embedding space, find its problems and repair them."""
    check_address_space()


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; print an error as one line, and also a traceback if --debug is set."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    if debug:
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    command_arguments[:] = arguments
    with handle_signals(), print_safely():
        try:
            with report_warnings():
                return _run(arguments)
        except BrokenPipeError:
            mute_stdout()
            return 0
        except (Exception, KeyboardInterrupt) as error:
            message, code = _describe(error)
            return _fail(message, code, debug)


@cache
def _parser() -> Any:
    """Return the parser of all commands; building it takes longer than most commands need to reject their input."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> int:
    """Run the command with these arguments; return its exit code."""
    try:
        result: Any = _parser()(args=arguments, prog_name="isoscope", standalone_mode=False)
        code = int(result or 0)
    except typer.Exit as done:
        code = done.exit_code
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
        if code == 1:  # typer and rich exit with 1 if the pipe was closed
            mute_stdout()
            code = 0
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # an error from typer's parser
            raise ParameterError(f"{error.format_message()} See isoscope --help.") from error
        raise
    if code == INTERRUPTED:  # typer's exit code for Ctrl-C
        raise KeyboardInterrupt
    return code


def _describe(error: BaseException) -> tuple[str, int]:
    """Return the message and the exit code for an error."""
    if isinstance(error, Interruption):
        return f"interrupted; {error}", INTERRUPTED
    if isinstance(error, KeyboardInterrupt) or interrupted.is_set():  # a library may raise another error instead
        return "interrupted; existing files are unchanged", INTERRUPTED
    if _is_out_of_memory(error):
        return _describe_lack_of_memory(error), BAD_INPUT
    if isinstance(error, InputError):
        return str(error), BAD_INPUT
    if isinstance(error, OSError):
        return _describe_os_error(error), BAD_INPUT
    if match := _OS_ERROR.search(str(error)):
        number = int(match[1])
        return _describe_os_error(OSError(number, os.strerror(number))), BAD_INPUT
    if any(message in str(error) for message in _DISK_FULL_MESSAGES):
        return _describe_os_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), BAD_INPUT
    first_line = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"this is a bug in isoscope ({first_line}); please report it with the output of --debug", INTERNAL


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return address_space() is not None and any(message in str(error) for message in _OUT_OF_MEMORY_MESSAGES)


def _describe_lack_of_memory(error: BaseException) -> str:
    limit, reason = address_space(), f" ({error})" if 0 < len(str(error)) <= _LONGEST_REASON else ""
    if limit is not None:
        return (
            f"out of memory{reason}, because the address space is limited to {limit / 1e6:.0f} MB (ulimit -v): raise "
            "that limit, or use one thread (OMP_NUM_THREADS=1)"
        )
    return f"out of memory{reason}: set a limit below the free memory, such as --max-memory 2GB"


def _describe_os_error(error: OSError) -> str:
    message = f"{error.filename}: " if error.filename else ""
    message += str(error.strerror or error)
    if error.errno == errno.ENOSPC and error.filename != STDOUT_NAME:
        message += "; existing files are unchanged: free some space and rerun the command"
    return "; ".join([message, *getattr(error, "__notes__", [])])


def _fail(message: str, code: int, debug: bool) -> int:
    """Print an error message, and also the traceback if `debug` is set; return the exit code."""
    if debug:
        import traceback

        print_note(traceback.format_exc())
    print_message(message)
    return code
