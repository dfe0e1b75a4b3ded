"""How audit, similarity and convert are typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isoscope._core.errors import InputError
from isoscope.cli.options import (
    Columns,
    EngineKind,
    MaxMemory,
    Metric,
    NeighborMetric,
    Nonfinite,
    NonfiniteRows,
    SampleRows,
    Scheduler,
    Seed,
    VectorsOnly,
    Workers,
    check_overwriting,
    open_engine,
    parse_columns,
    parse_target,
)
from isoscope.cli.session import FAIL_ON_REACHED

commands = typer.Typer()


class FailOn(StrEnum):
    """What --fail-on takes."""

    look = "look"
    bad = "bad"
    worse = "worse"


@commands.command()
def audit(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE…",
            help="A file, a folder or glob of shards, - for .npy on stdin, or a database: postgresql://…?table=NAME, "
            "qdrant:…#NAME, lancedb:…#NAME, chroma:…#NAME; several to compare.",
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Audit each group of rows apart: layer, label, …")
    ] = None,
    columns: Columns = None,
    labels: Annotated[Path | None, typer.Option(help="A label for each row: .npy, or a text file of lines.")] = None,
    types: Annotated[Path | None, typer.Option(help="What each row is a token of; likewise.")] = None,
    text: Annotated[Path | None, typer.Option(help="What to show for each row; likewise.")] = None,
    frequency: Annotated[Path | None, typer.Option(help="How often each row occurs; likewise.")] = None,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Queries to be answered from SOURCE.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the findings for machines; - for standard output.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="An earlier --json: say what has changed.")] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option(help="Exit with 1 if a finding is so bad; or worse than in the baseline.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Two sources, side by side: as SOURCE SOURCE.")
    ] = None,
    metric: NeighborMetric = Metric.cosine,
    sample: SampleRows = 20_000,
    seed: Seed = 0,
    nonfinite: NonfiniteRows = Nonfinite.error,
    engine: EngineKind = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    max_memory: MaxMemory = None,
) -> None:
    """Measure a space and say what is wrong with it, what that means, and what to try."""
    from isoscope.cli.audit import Request, audit_groups, audit_one, audit_several

    if (not sources) == (compare is None):
        raise InputError("give a SOURCE, or several to compare, or --compare A B")
    sources = list(compare) if compare else list(sources or ())
    if fail_on is FailOn.worse and baseline is None:
        raise InputError("--fail-on worse needs a --baseline to be worse than")
    if (len(sources) > 1 or by) and (baseline or queries):
        what = "--by goes" if by else "several sources go"
        raise InputError(f"{what} without --baseline and --queries: audit each source on its own for those")
    given = {"labels": labels, "types": types, "text": text, "frequency": frequency}
    inputs = [*sources, queries, *(str(each) for each in (*given.values(), baseline) if each)]
    check_overwriting([html, json], inputs)
    options = {"metric": metric.value, "sample": sample, "seed": seed, "nonfinite": nonfinite.value}
    verdicts: set[str]
    with open_engine(engine, scheduler, workers) as running:
        request = Request(
            columns=parse_columns(columns),
            given=given,
            by=by,
            queries=queries,
            html=html,
            json=json,
            baseline=baseline,
            options={**options, "engine": running},
        )
        if by is not None:
            verdicts = {each.verdict for each in audit_groups(sources, request)}
        elif len(sources) > 1:
            verdicts = {each.verdict for each in audit_several(sources, request)}
        else:
            done, directions = audit_one(sources[0], request)
            verdicts = {done.verdict, *directions}
    if fail_on is not None and verdicts & {FailOn.look: {"look", "bad"}}.get(fail_on, {fail_on.value}):
        raise typer.Exit(FAIL_ON_REACHED)


@commands.command(context_settings={"ignore_unknown_options": True})  # -0.5 is a cosine
def similarity(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")],
    cosines: Annotated[list[float], typer.Argument(metavar="COSINE…", help="One or several, from -1 to 1.")],
    columns: Columns = None,
    sample: SampleRows = 20_000,
    seed: Seed = 0,
    nonfinite: NonfiniteRows = Nonfinite.error,
    engine: EngineKind = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    max_memory: MaxMemory = None,
) -> None:
    """Say what percentile a cosine is in this corpus: is 0.8 high here?"""
    from isoscope.auditing.measure import Settings
    from isoscope.cli.audit import print_similarity

    settings = Settings(sample=sample, seed=seed, nonfinite=nonfinite.value)
    with open_engine(engine, scheduler, workers) as running:
        print_similarity(source, cosines, parse_columns(columns), settings, running)


@commands.command()
def sketch(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Keep the sums, for Sketch.load."),
    ] = None,
    columns: Columns = None,
    nonfinite: NonfiniteRows = Nonfinite.error,
    engine: EngineKind = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    max_memory: MaxMemory = None,
) -> None:
    """Sum up a source in one pass, and show what its moments say: the exact part of an audit, in seconds."""
    from isoscope.cli.audit import sketch_source

    check_overwriting([output], [source])
    with open_engine(engine, scheduler, workers) as running:
        sketch_source(source, output, parse_columns(columns), nonfinite.value, running)


@commands.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A .npy, .safetensors or .parquet file, or the address of a database."),
    ],
    columns: Columns = None,
    vectors_only: VectorsOnly = False,
    restart: Annotated[bool, typer.Option("--restart", help="Remove what was written to the database before.")] = False,
    max_memory: MaxMemory = None,
) -> None:
    """Copy vectors from any source to .npy, .safetensors, or Parquet or a database (both keep the other columns)."""
    from isoscope.cli.audit import convert as copy

    where = parse_target(target)
    check_overwriting([where], [source])
    copy(source, where, parse_columns(columns), vectors_only=vectors_only, restart=restart)
