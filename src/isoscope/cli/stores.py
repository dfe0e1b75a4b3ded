"""The commands `convert` and `sketch`."""

from __future__ import annotations

from typing import Annotated

import typer

from isoscope._core.errors import MissingValueError, plural
from isoscope._core.missing import drop_policy
from isoscope.cli.help import FILES, MEASURE, command
from isoscope.cli.options import (
    ColumnsOption,
    EngineOption,
    IdsOption,
    LayerOption,
    MaxMemoryOption,
    Missing,
    MissingOption,
    RestartOption,
    SchedulerOption,
    SketchOption,
    SourceArgument,
    VectorsOnlyOption,
    WorkersOption,
    Zeros,
    ZerosOption,
    check_output_folders,
    check_output_name,
    check_overwriting,
    check_result_files,
    is_existing_file,
    open_engine,
    open_source,
    parse_columns,
    parse_policy,
    parse_target,
)
from isoscope.cli.session import InterruptibleProgressBar, report_dropped, report_written, show

commands = typer.Typer()


@command(
    commands,
    FILES,
    "isoscope convert vectors.npy vectors.parquet",
    "isoscope convert vectors.parquet vectors.npy --vectors-only",
)
def convert(
    source: SourceArgument,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            callback=check_output_name,
            help="A .npy, .safetensors, .parquet or .arrow file, or the address of a database.",
        ),
    ],
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    vectors_only: VectorsOnlyOption = False,
    restart: RestartOption = False,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Copy vectors to another file format or a database.

    Parquet files and databases keep the other columns.
    """
    from isoscope.stores.write import write_store

    destination = parse_target(target)
    check_overwriting([destination], [source, ids])
    check_output_folders(destination)
    with InterruptibleProgressBar() as bar:
        store = open_source(source, columns, ids=ids, layer=layer, missing=missing, zeros=zeros, one_space=False)
        replaced = is_existing_file(destination)
        rows = write_store(store, destination, columns=not vectors_only, restart=restart, progress=bar)
    report_dropped(store, rows)
    print(f"{destination}: {plural(rows, 'vector')}{', replaced' if replaced else ''}")


@command(commands, MEASURE, "isoscope sketch vectors.npy", "isoscope sketch vectors.npy -o vectors.sketch")
def sketch(
    source: SourceArgument,
    columns: ColumnsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    output: SketchOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Summarize a space in one pass over its rows, for large sources.

    A sketch contains the exact part of an audit: IsoScore, anisotropy, mean cosine and effective rank. Saved sketches
    can be added in Python, and isoscope same compares them.
    """
    from isoscope._report.terminal import render_moments
    from isoscope.engines.engine import SketchTally

    check_overwriting([output], [source])
    check_result_files(output)
    roles = parse_columns(columns)
    policy = parse_policy(missing, zeros)
    tally = SketchTally(drop_policy(**policy), types="types" in roles, groups="groups" in roles)
    with open_engine(engine, scheduler, workers) as running, InterruptibleProgressBar() as bar:
        store = open_source(source, columns, layer=layer, missing=missing, zeros=zeros)
        total = running.tally(tally, store, bar, "summing up").total
    if not total.n:
        raise MissingValueError(f"{store.name} has no finite rows: need at least one row without NaN or infinity")
    if output is not None:
        total.save(output)
        report_written(output)
    show(render_moments(total, store.name))
