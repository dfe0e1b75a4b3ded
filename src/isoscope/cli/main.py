"""The entry point of the `isoscope` command, which runs a subcommand and prints each error as one line.

This module and the command modules import nothing heavy at the top, so that `isoscope --help` is fast.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any

import typer

from isoscope.cli import advise, audit, compress, demo, embed, finetune, mcp, repair, same, stores, study, threshold
from isoscope.cli.help import HelpfulGroup, write_examples
from isoscope.cli.invoke import describe_error, run_command
from isoscope.cli.session import (
    begin_command,
    check_address_space,
    handle_signals,
    mute_stdout,
    print_message,
    print_note,
    print_safely,
    report_warnings,
)

_EXAMPLES = write_examples(
    "isoscope demo", "isoscope audit vectors.npy --html report.html", "isoscope advise vectors.parquet --labels topic"
)
_EPILOG = f"""\
{_EXAMPLES}

Exit codes:
  0    success
  1    the answer is negative or undecided (threshold, same, compress), or the
       --fail-on threshold was reached (audit)
  2    invalid input
  3    a bug in isoscope
  130  interrupted"""

app = typer.Typer(
    name="isoscope",
    cls=HelpfulGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
for _module in (demo, audit, stores, advise, threshold, compress, same, repair, embed, finetune, study, mcp):
    app.add_typer(_module.commands)


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
    begin_command(arguments)
    with handle_signals(), print_safely():
        try:
            with report_warnings():
                return run_command(_parser(), arguments)
        except BrokenPipeError:
            mute_stdout()
            return 0
        except (Exception, KeyboardInterrupt) as error:
            message, code = describe_error(error, _parser(), arguments)
            return _fail(message, code, debug)


@cache
def _parser() -> Any:
    """Return the parser of all commands; building it takes longer than most commands need to reject their input."""
    return typer.main.get_command(app)


def _fail(message: str, code: int, debug: bool) -> int:
    """Print an error message, and also the traceback if `debug` is set; return the exit code."""
    if debug:
        import traceback

        print_note(traceback.format_exc())
    print_message(message)
    return code
