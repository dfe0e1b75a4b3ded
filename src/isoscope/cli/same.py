"""The commands `same` and `canary`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import NotFoundError, ParameterError, plural
from isoscope.cli.help import DECIDE, INPUT, METHOD, command
from isoscope.cli.options import (
    CanaryOption,
    ColumnsOption,
    EngineOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LayerOption,
    MaxMemoryOption,
    Missing,
    MissingOption,
    SampleOption,
    SchedulerOption,
    SchemaOption,
    SeedOption,
    WorkersOption,
    Zeros,
    ZerosOption,
    check_overwriting,
    check_result_files,
    check_table_file,
    open_engine,
    parse_policy,
    parse_used_columns,
    resolve_entries,
)
from isoscope.cli.session import (
    FAIL_ON_REACHED,
    STDOUT,
    InterruptibleProgressBar,
    cli_form,
    report_written,
    show,
    write_result,
)

commands = typer.Typer()

Pair = StrEnum("Pair", ["auto", "ids", "text", "rows", "none"])


@command(
    commands,
    DECIDE,
    "isoscope same old.npy new.npy",
    "isoscope same old.parquet new.parquet --pair ids --ids id",
    "isoscope same index.npy --within",
    notes="Exit codes: 0 the answer is same; 1 any other answer; 2 invalid input.",
)
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
            rich_help_panel=METHOD,
            help="Look for rows of another space inside one source, such as a mixed index. Lists at most 1,000 ids.",
        ),
    ] = False,
    pair: Annotated[
        Pair,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="BY",
            help="How to match rows: ids, text, rows (by row number), none (do not match), or auto.",
        ),
    ] = Pair.auto,
    tolerance: Annotated[
        float,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="SHARE",
            help="How far a vector may move and still count as the same, relative to the spread of the vectors.",
        ),
    ] = 0.05,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    new_ids: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=INPUT,
            metavar="COLUMN",
            help="Column with the ids of NEW, or a file with one id per row.",
            show_default="the column of --ids",
        ),
    ] = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    html: HtmlOption = None,
    json: JsonOption = None,
    schema: SchemaOption = False,
    sample: SampleOption = 20_000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Decide whether two sets of vectors are from the same space.

    Rows with the same id or text are matched and compared directly; unmatched rows are compared by two-sample tests.
    The answer is same, rescaled, shifted, rotated, different or undecided; with --within, it is same, mixed or
    undecided. Exit code 1 means that the answer is not "same".
    """
    from isoscope._report.same_terminal import render_same
    from isoscope.comparing.same import same as run_same

    if len(sources) != (1 if within else 2):
        need = "pass one source with --within" if within else "pass OLD and NEW, or one source with --within"
        raise ParameterError(
            f"{plural(len(sources), 'source')} {'was' if len(sources) == 1 else 'were'} passed: {need}"
        )
    check_overwriting([html, json], [*sources, ids, new_ids])
    check_result_files(html, json)
    roles = parse_used_columns("same", columns, ("vectors", "ids", "text", "groups"), ids=ids)
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
        result.notes[:] = map(cli_form, result.notes)
        show(render_same(result))
    if not result:
        raise typer.Exit(FAIL_ON_REACHED)


@command(
    commands,
    DECIDE,
    "isoscope canary vectors.parquet --rows 500 -o canary.parquet",
    "isoscope canary ./my-model texts.txt",
)
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
    rows: Annotated[
        int,
        typer.Option(
            rich_help_panel=METHOD, metavar="NUMBER", help="Number of random rows to keep if TEXTS is not passed."
        ),
    ] = 300,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    output: CanaryOption = Path("canary.parquet"),
    seed: SeedOption = 0,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Save the vectors of fixed texts, to detect a changed model.

    After the next deployment, embed the same texts again (isoscope canary NEW-MODEL canary.parquet -o new.parquet) and
    compare the two files (isoscope same canary.parquet new.parquet).
    """
    from isoscope.comparing.canary import canary as write_canary

    if source == str(output) or texts == str(output):
        raise ParameterError(f"{output} is an input of this command: choose another output file")
    check_overwriting([output], [texts, ids])
    check_table_file(output)
    roles = parse_used_columns("canary", columns, ("vectors", "ids", "text"), ids=ids)
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
