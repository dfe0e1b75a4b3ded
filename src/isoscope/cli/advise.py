"""What the command advise does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from isoscope._core.errors import InputError
from isoscope._report.advice_table import shown
from isoscope.advising.advise import Advice, advise
from isoscope.cli.audit import Watched, _need_folders, _say_written, _write_json, entries
from isoscope.cli.session import mute
from isoscope.stores.databases.address import shown as shown_name

_OUT = Path("-")
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


def give_advice(source: str, request: Request) -> None:
    """Try the repairs, show the table and the words, write what was asked for."""
    _need_folders(request.html, request.json)
    _need_place(request.output)
    given: dict[str, Any] = {**request.columns, "labels": _labels(request)}
    with Watched() as bar:
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
        _say_written(request.html)
    if request.json is not None:
        _write_json(advice.to_dict(), request.json)
    if request.output is not None:
        advice.save(request.output)
        _say_written(request.output)
    if request.json != _OUT:
        _show(advice, source, request.output)


def _labels(request: Request) -> Any:
    """The column with the labels, or the entries of a file."""
    for role in ("labels", "types"):
        if role in request.columns:
            raise InputError(
                f"--columns {role}= says nothing here: the advisor takes vectors=, ids= and text=, and --labels"
            )
    said = request.labels
    return entries(Path(said)) if said is not None and Path(said).is_file() else said


def _need_place(folder: Path | None) -> None:
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder for the repair")
    if folder is not None and not folder.absolute().parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder: make it first")


def _show(advice: Advice, source: str, saved: Path | None) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    try:
        console.print(shown(advice))
        if not advice.leaves_alone:
            print()
            if saved is None:
                print("Give -o DIR to keep the repair.")
            else:
                print(
                    f"Next: isoscope apply {saved} {shown_name(source)} -o repaired.parquet, and the queries likewise."
                )
    except BrokenPipeError:
        mute()
