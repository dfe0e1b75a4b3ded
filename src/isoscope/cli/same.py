"""The commands `same` and `canary`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import NotFoundError, ParameterError
from isoscope.cli.options import (
    ColumnsOption,
    EngineOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LayerOption,
    MaxMemoryOption,
    Missing,
    SchedulerOption,
    SchemaOption,
    SeedOption,
    WorkersOption,
    Zeros,
    ZerosOption,
    check_output_folders,
    check_output_name,
    check_overwriting,
    open_engine,
    parse_columns,
    parse_policy,
    resolve_entries,
    resolve_ids,
)
from isoscope.cli.session import (
    FAIL_ON_REACHED,
    STDOUT,
    InterruptibleProgressBar,
    report_written,
    show,
    write_result,
)

commands = typer.Typer()

Pair = StrEnum("Pair", ["auto", "ids", "text", "rows", "none"])


@commands.command()
def same(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="OLD NEW",
            help="Vectors before and after a change: two sources, saved sketches or canary files. One source with "
            "--within.",
        ),
    ],
    within: Annotated[
        bool,
        typer.Option(
            "--within",
            help="Look for rows of another space inside one source, such as a mixed index. Lists at most 1,000 ids.",
        ),
    ] = False,
    pair: Annotated[
        Pair, typer.Option(help="How rows are matched: by id, by text, by row number, or not at all.")
    ] = Pair.auto,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="How far a vector may move and still count as the same, relative to the spread of the vectors.",
        ),
    ] = 0.05,
    html: HtmlOption = None,
    json: JsonOption = None,
    schema: SchemaOption = False,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    new_ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the ids of NEW, or a file with one id per row.",
            show_default="the column of --ids",
        ),
    ] = None,
    layer: LayerOption = None,
    sample: Annotated[
        int,
        typer.Option(
            metavar="ROWS",
            help="Maximum number of matched rows to compare, or of rows to examine with --within. Of unmatched rows, "
            "at most 1,000 on each side are compared.",
        ),
    ] = 20_000,
    seed: SeedOption = 0,
    missing: Annotated[
        Missing,
        typer.Option(
            help="Stop at rows with a missing value, at repeated ids and at ids that only one side has, or leave them "
            "out and count them."
        ),
    ] = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Decide whether two sets of vectors come from the same space.

    Rows with the same id or text are matched and compared directly; unmatched rows are compared by two-sample tests.
    The answer is same, rescaled, shifted, rotated, different or undecided; with --within, it is same, mixed or
    undecided. Exit code 1 means that the answer is not "same".
    """
    from isoscope._report.same_terminal import render_same
    from isoscope.comparing.same import same as run_same

    wanted = 1 if within else 2
    if len(sources) != wanted:
        raise ParameterError(
            f"{len(sources)} sources were passed: need {'one source with --within' if within else 'OLD and NEW'}"
        )
    check_overwriting([html, json], [*sources, ids, new_ids])
    check_output_folders(html, json)
    roles = resolve_ids(parse_columns(columns), ids)
    for role in roles.keys() - {"vectors", "ids", "text", "groups"}:
        raise ParameterError(f"same does not use --columns {role}=: it takes vectors=, ids=, text= and groups=")
    with open_engine(engine, scheduler, workers) as running, InterruptibleProgressBar() as bar:
        result = run_same(
            sources[0],
            None if within else sources[1],
            within=within,
            pair=cast(Any, pair.value),
            tolerance=tolerance,
            new_ids=None if new_ids is None else resolve_entries(new_ids),
            layer=layer,
            sample=sample,
            seed=seed,
            **parse_policy(missing, zeros),
            progress=bar,
            engine=running,
            **cast(Any, roles),
        )
    write_result(result, html, json)
    if json != STDOUT:
        show(render_same(result))
    if not result:
        raise typer.Exit(FAIL_ON_REACHED)


@commands.command()
def canary(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL-OR-SOURCE",
            help="A model to embed TEXTS with (a folder, or a name on the Hugging Face Hub), or vectors with their "
            "texts or ids.",
        ),
    ],
    texts: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXTS",
            help="The texts to keep: a text, CSV, JSON Lines or Parquet file, or the canary of the last deployment. "
            "By default, random rows of the source.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", callback=check_output_name, help="The canary file to write."),
    ] = Path("canary.parquet"),
    rows: Annotated[
        int, typer.Option(metavar="NUMBER", help="Number of random rows to keep if TEXTS is not passed.")
    ] = 300,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    seed: SeedOption = 0,
    missing: Annotated[
        Missing, typer.Option(help="Stop at incomplete rows and unknown texts, or leave them out.")
    ] = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Keep the vectors of fixed texts for a later comparison.

    After the next deployment, embed the same texts again (isoscope canary NEW-MODEL canary.parquet -o new.parquet) and
    compare the two files (isoscope same canary.parquet new.parquet).
    """
    from isoscope.comparing.canary import canary as write_canary

    if source == str(output) or texts == str(output):
        raise ParameterError(f"{output} is an input of this command: choose another output file")
    check_overwriting([output], [texts, ids])
    check_output_folders(output)
    roles = resolve_ids(parse_columns(columns), ids)
    for role in roles.keys() - {"vectors", "ids", "text"}:
        raise ParameterError(f"canary does not use --columns {role}=: it takes vectors=, ids= and text=")
    options: dict[str, Any] = {"rows": rows, "seed": seed, **parse_policy(missing, zeros)}
    if _is_model(source):
        if texts is None:
            raise ParameterError(f"{source} is a model: pass a file of texts to embed as well")
        from isoscope.embedding.embed import embed

        named = {role: name for role, name in roles.items() if role != "vectors"}
        with InterruptibleProgressBar() as bar:
            store = embed(source, texts, layers=layer, progress=bar, **named)
        options["rows"] = max(len(store), 1)
        written = write_canary(store, output, **options)
    else:
        entries = None if texts is None else _read_texts(texts, roles.get("text"))
        written = write_canary(source, output, texts=entries, layer=layer, **roles, **options)
    report_written(written)


def _is_model(source: str) -> bool:
    """Return whether a source is a model: a folder with a configuration, or a name that is not a path."""
    from isoscope._io.files import expand_user
    from isoscope.stores.databases.address import is_address

    path = expand_user(source)
    if path.is_dir():
        return any((path / name).exists() for name in ("config.json", "modules.json"))
    if path.exists() or is_address(source) or any(mark in source for mark in "*?["):
        return False
    if path.suffix or source.count("/") > 1 or os.sep == source[:1]:
        raise NotFoundError(f"{source} does not exist: check the spelling")
    return True


def _read_texts(path: str, column: str | None) -> list[str]:
    """Return the ids or texts in a file: of its column id or text, or its lines."""
    from isoscope._io.tables import open_table, read_entries

    if Path(path).suffix.lower() in (".parquet", ".pq", ".csv", ".tsv", ".jsonl", ".ndjson"):
        table = open_table(path)
        name = column or next((each for each in ("id", "text") if each in table.names), None)
        if name is None:
            raise NotFoundError(f"{path} has no column id or text: name it with --columns text=NAME")
        return [value for batch in table.batches([name]) for value in batch.text(name, "texts")]
    return [str(each) for each in read_entries(Path(path))]
