"""Options that several commands have, and what is refused whatever the command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isoscope._core.errors import InputError

if TYPE_CHECKING:
    from isoscope.engines.engine import Engine
    from isoscope.stores.databases.address import Address


class Metric(StrEnum):
    """What --metric takes."""

    cosine = "cosine"
    euclidean = "euclidean"


class Nonfinite(StrEnum):
    """What --nonfinite takes."""

    error = "raise"
    drop = "drop"


class EngineName(StrEnum):
    """What --engine takes."""

    local = "local"
    dask = "dask"


def _apply_memory_limit(command: typer.Context, size: str | None) -> str | None:
    """Have the limit in force until the command is done."""
    if size is not None:
        from isoscope._core.memory import memory_limit

        command.with_resource(memory_limit(size))
    return size


_ROLES = ("vectors", "labels", "types", "text", "ids", "frequency", "groups")
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="ROLE=NAME",
        help="Which column of the source is what: vectors=, labels=, types=, text=, ids=, frequency= or groups= "
        "(rows that are not independent, such as the tokens of one document); several with commas.",
    ),
]
SampleRows = Annotated[
    int, typer.Option("--sample", metavar="ROWS", help="Rows up to which all pairs are looked at; above, a sample.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of the sample and of K-means.")]
NeighborMetric = Annotated[Metric, typer.Option("--metric", help="How neighbours are sought.")]
NonfiniteRows = Annotated[
    Nonfinite, typer.Option("--nonfinite", help="Refuse rows with NaN or infinity, or drop them.")
]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")]
Target = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="A .npy, .safetensors or .parquet file; a folder; or a database's address.",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        callback=_apply_memory_limit,
        help="Memory to get by with, 2GB or 500MB, the system's cache of files aside.",
    ),
]
VectorsOnly = Annotated[bool, typer.Option("--vectors-only", help="Leave all other columns behind.")]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Throw away what an interrupted run left, or an earlier one wrote to the database."),
]
EngineKind = Annotated[
    EngineName | None, typer.Option("--engine", help="Threads of this process, or a Dask cluster (here, by processes).")
]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Of a Dask cluster: tcp://host:8786.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="NUMBER", help="Processes of --engine dask, if it has no scheduler.")
]


@contextmanager
def open_engine(kind: EngineName | None, scheduler: str | None, workers: int | None) -> Iterator[Engine]:
    """The engine that was typed, for as long as a command runs; a scheduler or workers are Dask's."""
    from isoscope._core.threads import thread_count
    from isoscope.engines.engine import open_engine as engine_for

    if kind is EngineName.local and (scheduler or workers):
        raise InputError("--engine local has no scheduler and no workers: leave it, or give --engine dask")
    if scheduler is not None and "://" not in scheduler:
        scheduler = f"tcp://{scheduler}"
    dask = kind is EngineName.dask or scheduler is not None or workers is not None
    if dask and scheduler is None and workers is None:
        workers = thread_count()
    with engine_for(scheduler or "dask" if dask else "local", workers) as running:
        yield running


def parse_columns(pairs: list[str] | None) -> dict[str, str]:
    """ROLE=NAME pairs as a mapping."""
    roles: dict[str, str] = {}
    for pair in ",".join(pairs or []).split(",") if pairs else []:
        role, equals, name = pair.partition("=")
        if role not in _ROLES or not equals or not name:
            listed = f"{', '.join(_ROLES[:-1])} or {_ROLES[-1]}"
            raise InputError(f"--columns {pair!r}: need ROLE=NAME with the role {listed}")
        roles[role] = name
    return roles


def parse_target(text: str) -> Path | Address:
    """Where to write: a file, or a place in a database."""
    from isoscope.stores.databases.address import parse_address

    return parse_address(text) or Path(text)


def check_overwriting(outputs: Sequence[Path | Address | None], inputs: list[str | None]) -> None:
    """Refuse to write over what is read, or twice to one file."""
    taken = {os.path.realpath(each): each for each in inputs if each and os.path.isfile(each)}
    for output in outputs:
        if not isinstance(output, Path) or str(output) == "-":
            continue
        real = os.path.realpath(output)
        if real in taken:
            raise InputError(f"{output} is read or written already, as {taken[real]}: give another file to write to")
        if os.path.isfile(real) or not os.path.exists(real):
            taken[real] = str(output)
