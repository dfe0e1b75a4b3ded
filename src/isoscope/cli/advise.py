"""What the command advise does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from isoscope._core.errors import InputError
from isoscope._io.tables import read_entries
from isoscope._report.terminal import render_advice
from isoscope.advising.advise import Advice, advise
from isoscope.cli.audit import (
    InterruptibleProgressBar,
    _check_output_folders,
    _report_written,
    _write_json,
)
from isoscope.cli.session import mute_stdout
from isoscope.stores.databases.address import redact_source_name as shown_name

_STDOUT = Path("-")
_WIDTH = 120  # where the output is no terminal


@dataclass(frozen=True)
class Request:
    """What was asked of `isoscope advise`."""

    columns: dict[str, str]
    pairs: Path | None
    queries: str | None
    qrels: Path | None
    labels: str | None
    output: Path | None
    html: Path | None
    json: Path | None
    options: dict[str, Any]


def run_advise(source: str, request: Request) -> None:
    """Try the repairs, show the table and the words, write what was asked for."""
    _check_output_folders(request.html, request.json)
    _check_repair_folder(request.output)
    given: dict[str, Any] = {**request.columns, "labels": _read_labels(request)}
    with InterruptibleProgressBar() as bar:
        advice = advise(
            source,
            pairs=request.pairs,
            queries=request.queries,
            qrels=request.qrels,
            progress=bar,
            **given,
            **request.options,
        )
    if request.html is not None:
        advice.to_html(request.html)
        _report_written(request.html)
    if request.json is not None:
        _write_json(advice.to_dict(), request.json)
    if request.output is not None:
        advice.save(request.output)
        _report_written(request.output)
    if request.json != _STDOUT:
        _print_advice(advice, source, request.output)


def _read_labels(request: Request) -> Any:
    """The column with the labels, or the entries of a file."""
    for role in ("labels", "types"):
        if role in request.columns:
            raise InputError(
                f"--columns {role}= says nothing here: the advisor takes vectors=, ids= and text=, and --labels"
            )
    said = request.labels
    return read_entries(Path(said)) if said is not None and Path(said).is_file() else said


def _check_repair_folder(folder: Path | None) -> None:
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder for the repair")
    if folder is not None and not folder.absolute().parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder: make it first")


def _print_advice(advice: Advice, source: str, saved: Path | None) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    try:
        console.print(render_advice(advice))
        if not advice.leaves_vectors_unchanged:
            print()
            if saved is None:
                print("Give -o DIR to keep the repair.")
            else:
                print(
                    f"Next: isoscope apply {saved} {shown_name(source)} -o repaired.parquet, and the queries likewise."
                )
    except BrokenPipeError:
        mute_stdout()
