"""Options that several commands share, and checks of their values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoscope._core.errors import NotFoundError, OutputError, ParameterError
from isoscope._io.files import check_regular, check_result, is_own_table
from isoscope.cli.help import INPUT, LIMITS, METHOD, OUTPUT, TASK_DATA
from isoscope.cli.session import STDOUT

if TYPE_CHECKING:
    from isoscope.engines.engine import Engine
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Store

Metric = StrEnum("Metric", ["cosine", "euclidean"])
Missing = StrEnum("Missing", ["error", "drop"])
Zeros = StrEnum("Zeros", ["keep", "drop"])
EngineName = StrEnum("EngineName", ["local", "dask"])

_ENTRY_FILES = (".npy", ".txt")
"""The extensions of files with one entry per row; the name of a column rarely ends with them."""
_ROLES = ("vectors", "labels", "types", "text", "ids", "frequency", "groups")
TASK_ROLES = ("vectors", "labels", "ids", "text")
"""The roles of columns that a command with a task reads."""


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
        metavar="SOURCE",
        help="Vectors: a file, folder, glob, remote address or database; see isoscope audit --help for all forms.",
    ),
]
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model folder, or the name of a model on the Hugging Face Hub.")
]

# input

ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="ROLE=NAME",
        rich_help_panel=INPUT,
        help="Columns to use, such as labels=topic,ids=key. Roles: vectors, labels, types, text, ids, frequency, and "
        "groups (rows that depend on each other, such as the tokens of one document).",
    ),
]
IdsOption = Annotated[
    str | None,
    typer.Option(
        "--ids",
        metavar="COLUMN",
        rich_help_panel=INPUT,
        help="Column with the ids of the rows, or a file with one id per line.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        rich_help_panel=INPUT,
        help="Column with the texts of the rows, or a file with one text per line.",
    ),
]
TypesOption = Annotated[
    str | None,
    typer.Option(
        "--types",
        metavar="COLUMN",
        rich_help_panel=INPUT,
        help="Column with the word types of the rows, or a file with one word per line.",
    ),
]
FrequencyOption = Annotated[
    str | None,
    typer.Option(
        "--frequency",
        metavar="COLUMN",
        rich_help_panel=INPUT,
        help="Column with the frequencies of the rows, or a file with one number per line.",
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        "--layer",
        metavar="NUMBER",
        rich_help_panel=INPUT,
        help="Layer to read if SOURCE contains the hidden states of several; -1 is the last one.",
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        "--missing",
        metavar="ACTION",
        rich_help_panel=INPUT,
        help="What to do with a missing value (null, NaN, infinity or an empty cell) in a row, label or judgment: "
        "error stops; drop leaves the row or judgment out and counts it.",
    ),
]
ZerosOption = Annotated[
    Zeros,
    typer.Option(
        "--zeros",
        metavar="ACTION",
        rich_help_panel=INPUT,
        help="What to do with rows of zeros, which are often failed embeddings: keep or drop.",
    ),
]

# task data

PairsOption = Annotated[
    Path | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        rich_help_panel=TASK_DATA,
        help="Pairs of rows with a similarity grade: a .tsv, .csv, .jsonl or .parquet file.",
    ),
]
QueriesOption = Annotated[
    str | None,
    typer.Option(
        "--queries",
        metavar="SOURCE",
        rich_help_panel=TASK_DATA,
        help="Query vectors, in any form that SOURCE accepts; SOURCE is the corpus that they search.",
    ),
]
QrelsOption = Annotated[
    Path | None,
    typer.Option(
        "--qrels",
        metavar="FILE",
        rich_help_panel=TASK_DATA,
        help="Relevant documents of each query: a file in TREC or BEIR format.",
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="COLUMN",
        rich_help_panel=TASK_DATA,
        help="Column with the class labels of the rows, or a file with one label per line.",
    ),
]
QueryIdsOption = Annotated[
    str | None,
    typer.Option(
        "--query-ids",
        metavar="COLUMN",
        rich_help_panel=TASK_DATA,
        help="Column with the ids of the queries, or a file with one id per line.",
    ),
]

# method

MetricOption = Annotated[
    Metric,
    typer.Option(
        "--metric", metavar="NAME", rich_help_panel=METHOD, help="Metric for nearest neighbors: cosine or euclidean."
    ),
]
MeasureOption = Annotated[
    str | None,
    typer.Option(
        "--measure",
        metavar="NAME",
        rich_help_panel=METHOD,
        help="Measure on which the recommendation is based: probe, knn or v_measure for labels; ndcg@10 or "
        "recall@100 for queries.",
    ),
]
FoldsOption = Annotated[
    int,
    typer.Option(
        "--folds", metavar="NUMBER", rich_help_panel=METHOD, help="Number of folds for scores on held-out examples."
    ),
]

# output

_HTML = typer.Option(
    "--html",
    metavar="FILE",
    rich_help_panel=OUTPUT,
    callback=check_output_name,
    help="Write the report as one HTML file.",
)
HtmlOption = Annotated[Path | None, _HTML]
RequiredHtmlOption = Annotated[Path, _HTML]
NoTextOption = Annotated[
    bool,
    typer.Option(
        "--no-text",
        rich_help_panel=OUTPUT,
        help="Leave the texts of rows out of all output, so that you can share it.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Write the result as JSON to this file; - means standard output.",
    ),
]
SchemaOption = Annotated[
    bool,
    typer.Option(
        "--schema",
        rich_help_panel=OUTPUT,
        callback=_print_schema,
        is_eager=True,
        help="Print the JSON schema of --json, which describes every field, and exit.",
    ),
]


def _declare_output(metavar: str, text: str) -> Any:
    """Return the option -o of a command; its value is where the main result is written."""
    return typer.Option(
        "--output", "-o", metavar=metavar, rich_help_panel=OUTPUT, callback=check_output_name, help=f"Write {text}"
    )


_VECTORS_OUTPUT = "to this .npy, .safetensors, .parquet or .arrow file, folder or database."
OutputOption = Annotated[str, _declare_output("OUT", f"the vectors {_VECTORS_OUTPUT}")]
EmbeddingsOption = Annotated[
    str,
    _declare_output("OUT", "the vectors to this .parquet or .arrow file, or to a folder (a name without extension)."),
]
SketchOption = Annotated[Path | None, _declare_output("FILE", "the sketch to this file; Sketch.load reads it.")]
CanaryOption = Annotated[Path, _declare_output("FILE", "the canary to this file.")]
RepairFolderOption = Annotated[Path, _declare_output("DIR", "the repair to this folder.")]
AdvisedFolderOption = Annotated[Path | None, _declare_output("DIR", "the recommended repair to this folder.")]
QuantizerFolderOption = Annotated[Path | None, _declare_output("DIR", "the recommended quantizer to this folder.")]
RunFolderOption = Annotated[
    Path, _declare_output("DIR", "the results to this folder; rerun the same command to resume.")
]
VectorsOnlyOption = Annotated[
    bool,
    typer.Option("--vectors-only", rich_help_panel=OUTPUT, help="Write only the vectors and no other columns."),
]
RestartOption = Annotated[
    bool,
    typer.Option(
        "--restart",
        rich_help_panel=OUTPUT,
        help="Discard the output of an earlier or interrupted run and start over.",
    ),
]

# sampling and limits

_SAMPLE_HELP = "Maximum number of rows to keep in memory; a larger source is sampled at random."
_SEED_HELP = "Random seed; the same seed gives the same result."
SampleOption = Annotated[int, typer.Option("--sample", metavar="ROWS", rich_help_panel=LIMITS, help=_SAMPLE_HELP)]
SeedOption = Annotated[int, typer.Option("--seed", metavar="NUMBER", rich_help_panel=LIMITS, help=_SEED_HELP)]
FitSampleOption = Annotated[
    int | None,
    typer.Option("--sample", metavar="ROWS", rich_help_panel=LIMITS, help=_SAMPLE_HELP, show_default="50000"),
]
FitSeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="NUMBER", rich_help_panel=LIMITS, help=_SEED_HELP, show_default="0"),
]
MaxMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        rich_help_panel=LIMITS,
        callback=_apply_memory_limit,
        help="Memory limit, such as 2GB or 500MB; the file cache of the operating system is not counted.",
    ),
]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=LIMITS,
        help="Where to compute: local means threads of this process, dask a Dask cluster.",
        show_default="local",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        rich_help_panel=LIMITS,
        help="Address of a Dask scheduler, such as tcp://host:8786.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="NUMBER",
        rich_help_panel=LIMITS,
        help="Start this many Dask worker processes on this machine.",
    ),
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


def parse_used_columns(
    command: str, columns: list[str] | None, used: Sequence[str], **named: str | None
) -> dict[str, Any]:
    """Return the columns by role for a command that reads only the roles in `used`."""
    roles = resolve_roles(parse_columns(columns), named)
    for role in roles.keys() - set(used):
        accepted = [f"{each}=" for each in used]
        raise ParameterError(
            f"{command} does not use --columns {role}=: it takes {', '.join(accepted[:-1])} and {accepted[-1]}"
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

    roles = resolve_roles(parse_columns(columns), {"ids": ids})
    store = open_store(source, **roles, layer=layer, **parse_policy(missing, zeros))
    if one_space and layer is None and len(layers := list_layers(store)) > 1:
        raise ParameterError(
            f"{store.name} contains {len(layers)} layers, which are different spaces: choose one with --layer, such as "
            f"--layer {layers[-1]}"
        )
    return store


def resolve_roles(roles: dict[str, Any], named: dict[str, str | None]) -> dict[str, Any]:
    """Return the columns by role, with those of options such as --ids: names of columns, or entries of files."""
    for role, value in named.items():
        if value is not None:
            if role in roles:
                raise ParameterError(f"--{role} and --columns {role}= are both set: pass only one of them")
            roles = {**roles, role: resolve_entries(value)}
    return roles


def resolve_entries(value: str) -> Any:
    """Return the entries of a file with one entry per row, or the name of a column as it is."""
    from isoscope._io.files import expand_user
    from isoscope._io.tables import read_entries

    path = expand_user(value)
    if path.suffix in _ENTRY_FILES and not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise NotFoundError(f"{value} {what}: pass the name of a column, or a file with one entry per line")
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


def is_existing_file(target: Path | Address) -> bool:
    """Return whether the target is a file that the command replaces."""
    return isinstance(target, Path) and target.is_file()


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


def check_result_files(*paths: Path | None) -> None:
    """Check the output files for pages, JSON results and sketches, before the command does any work.

    An existing file is replaced only if it is empty or isoscope wrote it as one of these.
    """
    check_output_folders(*paths)
    for path in paths:
        if path is not None and path != STDOUT:
            check_result(path)


def check_table_file(path: Path | None) -> None:
    """Check the output file of a table of rows or a canary; an existing file is replaced only if it is one of these."""
    check_output_folders(path)
    if path is not None and path.is_file() and not is_own_table(path):
        raise OutputError(f"{path} exists and is not a result of isoscope: choose another file, or remove it")


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
