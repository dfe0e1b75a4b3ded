"""Options that several commands share, and checks of their values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoscope._core.errors import OutputError, ParameterError
from isoscope._io.files import check_regular
from isoscope.cli.session import STDOUT

if TYPE_CHECKING:
    from isoscope.engines.engine import Engine
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Store

Metric = StrEnum("Metric", ["cosine", "euclidean"])
Missing = StrEnum("Missing", ["error", "drop"])
Zeros = StrEnum("Zeros", ["keep", "drop"])
EngineName = StrEnum("EngineName", ["local", "dask"])

_ROLES = ("vectors", "labels", "types", "text", "ids", "frequency", "groups")


def _apply_memory_limit(context: typer.Context, size: str | None) -> str | None:
    """Apply the memory limit until the command ends."""
    if size is not None:
        from isoscope._core.memory import memory_limit

        context.with_resource(memory_limit(size))
    return size


def check_output_name(output: Any) -> Any:
    """Reject standard output and an empty name as the output of an option or argument other than --json."""
    if output == "":
        raise OutputError("the name of the output is empty: pass a file, a folder or a database")
    if output in ("-", STDOUT):
        raise OutputError("the output is -, but only --json writes to standard output: pass a file or folder name")
    return output


def _print_schema(context: typer.Context, is_requested: bool) -> None:
    """Print the JSON schema of the command's result and end the command."""
    if is_requested:
        from isoscope._io.json import RESULT_SCHEMAS, format_json, read_schema

        print(format_json(read_schema(*RESULT_SCHEMAS[str(context.info_name)])), end="")
        raise typer.Exit


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Vectors: a file, folder, glob, remote address or database; see isoscope audit --help."
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="ROLE=NAME",
        help="Column to use for a role, such as labels=topic; separate several with commas. Roles: vectors, labels, "
        "types, text, ids, frequency, groups (rows that depend on each other, such as the tokens of a document).",
    ),
]
SampleOption = Annotated[
    int,
    typer.Option(
        "--sample", metavar="ROWS", help="Maximum number of rows to compare pairwise; larger sources are sampled."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="NUMBER", help="Random seed for sampling and k-means.")]
MetricOption = Annotated[Metric, typer.Option("--metric", help="Metric for nearest neighbors.")]
MissingOption = Annotated[
    Missing,
    typer.Option(
        "--missing",
        help="Stop at rows with a missing value (null, NaN, infinity or an empty cell), or drop and count them.",
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        "--layer", metavar="NUMBER", help="Layer to read, if SOURCE has hidden states of several; -1 is the last one."
    ),
]
IdsOption = Annotated[
    str | None,
    typer.Option("--ids", metavar="COLUMN", help="Column with the ids of the rows, or a file with one id per row."),
]
PairsOption = Annotated[
    Path | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="File with pairs of rows and their similarity grades: .tsv, .csv, .jsonl or .parquet.",
    ),
]
QueriesOption = Annotated[
    str | None, typer.Option("--queries", metavar="SOURCE", help="Query vectors to search SOURCE with.")
]
QrelsOption = Annotated[
    Path | None,
    typer.Option(
        "--qrels", metavar="FILE", help="File with the relevant documents of each query, in TREC or BEIR format."
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option("--labels", metavar="COLUMN", help="Column with class labels, or a file with one label per row."),
]
QueryIdsOption = Annotated[
    str | None,
    typer.Option(
        "--query-ids", metavar="COLUMN", help="Column with the ids of the queries, or a file with one id per query."
    ),
]
ZerosOption = Annotated[
    Zeros, typer.Option("--zeros", help="Keep rows of zeros, which are often failed embeddings, or drop them.")
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=check_output_name, help="Write the report as HTML to this file."),
]
NoTextOption = Annotated[
    bool, typer.Option("--no-text", help="Leave the texts of rows out of all output, so that you can share it.")
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON to this file; - means standard output."),
]
SchemaOption = Annotated[
    bool,
    typer.Option(
        "--schema",
        callback=_print_schema,
        is_eager=True,
        help="Print the JSON schema of --json, which describes every field, and exit.",
    ),
]
OutputOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        callback=check_output_name,
        help="Write to a .npy, .safetensors, .parquet or .arrow file, a folder, or a database.",
    ),
]
RunFolderOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        callback=check_output_name,
        help="Folder for the results; rerun the same command to resume.",
    ),
]
VectorsOnlyOption = Annotated[bool, typer.Option("--vectors-only", help="Write only the vectors and no other columns.")]
RestartOption = Annotated[
    bool, typer.Option("--restart", help="Discard the output of an earlier or interrupted run and start over.")
]
MaxMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        callback=_apply_memory_limit,
        help="Memory limit, such as 2GB or 500MB; the file cache of the operating system is not counted.",
    ),
]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine", help="Where to compute: in threads of this process, or on a Dask cluster.", show_default="local"
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Address of a Dask scheduler, such as tcp://host:8786."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", metavar="NUMBER", help="Start this many Dask worker processes on this machine."),
]


@contextmanager
def open_engine(kind: EngineName | None, scheduler: str | None, workers: int | None) -> Iterator[Engine]:
    """Open the engine of a command; --scheduler and --workers imply Dask."""
    from isoscope._core.threads import thread_count
    from isoscope.engines.engine import open_engine as open_named_engine

    if kind is EngineName.local and (scheduler or workers):
        raise ParameterError("--engine local does not accept --scheduler or --workers: omit them, or use --engine dask")
    if scheduler is not None and "://" not in scheduler:
        scheduler = f"tcp://{scheduler}"
    uses_dask = kind is EngineName.dask or scheduler is not None or workers is not None
    if uses_dask and scheduler is None and workers is None:
        workers = thread_count()
    with open_named_engine(scheduler or "dask" if uses_dask else "local", workers) as engine:
        yield engine


def parse_policy(missing: Missing, zeros: Zeros) -> dict[str, Any]:
    """Return the arguments of `open_store` for --missing and --zeros."""
    return {"missing": missing.value, "zeros": zeros.value}


def parse_columns(pairs: list[str] | None) -> dict[str, Any]:
    """Parse ROLE=NAME pairs and return the columns by role."""
    columns: dict[str, str] = {}
    for pair in ",".join(pairs or []).split(",") if pairs else []:
        role, equals, name = pair.partition("=")
        if role not in _ROLES or not equals or not name:
            roles = f"{', '.join(_ROLES[:-1])} or {_ROLES[-1]}"
            raise ParameterError(f"--columns {pair!r}: need ROLE=NAME, where ROLE is {roles}")
        if role in columns:
            raise ParameterError(f"--columns sets {role} to both {columns[role]} and {name}: pass each role once")
        columns[role] = name
    return columns


def parse_task_columns(command: str, columns: list[str] | None, ids: str | None) -> dict[str, Any]:
    """Return the columns by role for a command that takes a task, whose labels have an option of their own."""
    roles = resolve_ids(parse_columns(columns), ids)
    for role in roles.keys() - {"vectors", "ids", "text"}:
        raise ParameterError(
            f"{command} does not use --columns {role}=: it takes vectors=, ids= and text=; use --labels for "
            "class labels"
        )
    return roles


def open_source(
    source: str,
    columns: list[str] | None,
    *,
    ids: str | None = None,
    layer: int | None = None,
    missing: Missing = Missing.error,
    zeros: Zeros = Zeros.keep,
    one_space: bool = True,
) -> Store:
    """Open the source of a command, given its options.

    Hidden states of several layers are different spaces, so a command that measures or changes one space needs --layer.
    """
    from isoscope.stores.open import open_store
    from isoscope.stores.selection import list_layers

    roles = resolve_ids(parse_columns(columns), ids)
    store = open_store(source, **roles, layer=layer, **parse_policy(missing, zeros))
    if one_space and layer is None and len(layers := list_layers(store)) > 1:
        raise ParameterError(
            f"{store.name} contains {len(layers)} layers, which are different spaces: choose one with --layer, such as "
            f"--layer {layers[-1]}"
        )
    return store


def resolve_ids(roles: dict[str, Any], ids: str | None, option: str = "--ids") -> dict[str, Any]:
    """Return the columns by role, with the ids of --ids: the name of a column, or the lines of a file."""
    if ids is None:
        return roles
    if "ids" in roles:
        raise ParameterError(f"{option} and --columns ids= are both set: pass only one of them")
    return {**roles, "ids": resolve_entries(ids)}


def resolve_entries(value: str) -> Any:
    """Return the entries of a file with one entry per row, or the name of a column as it is."""
    from isoscope._io.files import expand_user
    from isoscope._io.tables import read_entries

    path = expand_user(value)
    return read_entries(path) if path.is_file() else value


def parse_target(text: str) -> Path | Address:
    """Parse the output target: the address of a database, or a path."""
    from isoscope.stores.databases.address import parse_target as parse

    return parse(text)


def parse_seeds(text: str) -> int | list[int]:
    """Parse a number of seeds, such as `3`, or a list of seeds, such as `0,1,7`."""
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ParameterError(f"--seeds {text}: need a number of seeds, such as 3, or a list, such as 0,1,2") from None
    return numbers[0] if "," not in text and numbers else numbers


def check_overwriting(
    outputs: Sequence[Path | Address | None],
    inputs: Sequence[str | Path | None],
    *,
    folders: Sequence[str | Path | None] = (),
) -> None:
    """Reject an output that is an input or would be read as part of it, and two outputs to the same file.

    Parameters
    ----------
    outputs : sequence
        The files to write.
    inputs : sequence
        Files and sources of vectors.
    folders : sequence
        Folders that nothing may be written into, such as models and repairs.
    """
    from isoscope.stores.open import reads_file

    used = [each for each in inputs if each]
    closed = [os.path.realpath(folder) for folder in folders if folder and os.path.isdir(folder)]
    for output in outputs:
        if not isinstance(output, Path) or output == STDOUT:
            continue
        for each in used:
            if reads_file(each, output):
                is_used = output.exists() or each in outputs
                what = (
                    "is already an input or output of this command" if is_used else "would be read as part of the input"
                )
                raise OutputError(f"{output} {what} ({each}): choose another output file")
        for folder in closed:
            if Path(os.path.realpath(output)).is_relative_to(folder):
                raise OutputError(f"{output} is inside {folder}, which this command uses: write to another folder")
        used.append(output)


def check_output_folders(*paths: Path | Address | None) -> None:
    """Reject an output file whose folder does not exist or is read-only, before the command does any work."""
    for path in paths:
        if not isinstance(path, Path) or path == STDOUT:
            continue
        if path.is_dir():
            raise OutputError(f"{path} is a folder: choose a file to write to")
        check_parent(path)
        if not os.access(path.absolute().parent, os.W_OK):
            raise OutputError(f"{path} cannot be written: its folder is read-only")


def check_parent(path: Path) -> None:
    """Reject an output whose parent folder does not exist, and a pipe, a device or a socket."""
    check_output_name(path)
    check_regular(path)
    if not path.absolute().parent.is_dir():
        raise OutputError(f"{path.parent} is not a folder: create it first")


def check_repair_folder(folder: Path | None, kind: str = "repair") -> None:
    """Reject a folder in which a repair or quantizer cannot be saved, before the command does any work."""
    from isoscope.transforms.persistence import check_save_folder

    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file: choose a folder for the {kind}")
        check_parent(folder)
        check_save_folder(folder, kind)
