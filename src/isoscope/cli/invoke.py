"""Run one command, and describe an error as one line and an exit code."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from typing import Any

import typer

from isoscope._core.errors import InputError, ParameterError
from isoscope.cli.session import (
    BAD_INPUT,
    INTERNAL,
    INTERRUPTED,
    STDOUT_NAME,
    Interruption,
    address_space,
    cli_form,
    describe_interruption,
    interrupted,
    mute_stdout,
)
from isoscope.cli.usage import describe_usage_error, name_option

_DISK_FULL_MESSAGES = ("No space left on device", "PytorchStreamWriter failed writing file")
"""Messages of libraries that report a full disk with an error other than OSError."""
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
"""Messages of libraries that report an address space that is too small."""
_LONGEST_REASON = 120  # characters; llvmlite guesses at other causes in three sentences


def run_command(parser: Any, arguments: Sequence[str]) -> int:
    """Run the command with these arguments; return its exit code.

    `parser` is the parser of all commands.
    """
    try:
        result: Any = parser(args=list(arguments), prog_name="isoscope", standalone_mode=False)
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
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # an error from typer's parser
            raise ParameterError(describe_usage_error(error, parser, arguments)) from error
        raise
    if code == INTERRUPTED:  # typer's exit code for Ctrl-C
        raise KeyboardInterrupt
    return code


def describe_error(error: BaseException, parser: Any = None, arguments: Sequence[str] = ()) -> tuple[str, int]:
    """Return the message and the exit code for an error.

    With the parser of all commands and the arguments of the command line, the message names options instead of the
    parameters of functions.
    """
    if isinstance(error, Interruption):
        return f"interrupted; {error}", INTERRUPTED
    if isinstance(error, KeyboardInterrupt) or interrupted.is_set():  # a library may raise another error instead
        return describe_interruption(), INTERRUPTED
    if _is_out_of_memory(error):
        return _describe_lack_of_memory(error), BAD_INPUT
    if isinstance(error, InputError):
        message = cli_form(str(error))
        return message if parser is None else name_option(message, parser, arguments), BAD_INPUT
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
