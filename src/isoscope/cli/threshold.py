"""The command `threshold`."""

from __future__ import annotations

from typing import Annotated

import typer

from isoscope.cli.options import (
    ColumnsOption,
    EngineOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LabelsOption,
    LayerOption,
    MaxMemoryOption,
    Missing,
    PairsOption,
    QrelsOption,
    QueriesOption,
    QueryIdsOption,
    SampleOption,
    SchedulerOption,
    SchemaOption,
    SeedOption,
    SourceArgument,
    WorkersOption,
    Zeros,
    ZerosOption,
    check_output_folders,
    check_overwriting,
    open_engine,
    parse_policy,
    parse_task_columns,
    resolve_entries,
)
from isoscope.cli.session import (
    FAIL_ON_REACHED,
    STDOUT,
    InterruptibleProgressBar,
    show,
    write_result,
)

commands = typer.Typer()


@commands.command(epilog="Exit code 1: no cut reaches the goal, or there are too few examples to decide.")
def threshold(
    source: SourceArgument,
    pairs: PairsOption = None,
    queries: QueriesOption = None,
    qrels: QrelsOption = None,
    labels: LabelsOption = None,
    precision: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Required precision: the share of matches among the pairs above the cut.",
            show_default="0.9",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Required recall: the share of all matches that are above the cut."),
    ] = None,
    f1: Annotated[bool, typer.Option("--f1", help="Find the cut with the highest F1.")] = False,
    match_from: Annotated[
        float | None,
        typer.Option(
            "--match-from",
            metavar="GRADE",
            help="Lowest grade or relevance of a match (default: the higher of two grades; any relevance above 0).",
        ),
    ] = None,
    false_matches: Annotated[
        float | None,
        typer.Option(
            "--false-matches",
            metavar="RATE",
            help="Without judgments: share of random pairs above the cut.",
            show_default="1e-4",
        ),
    ] = None,
    html: HtmlOption = None,
    json: JsonOption = None,
    schema: SchemaOption = False,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    query_ids: QueryIdsOption = None,
    layer: LayerOption = None,
    folds: Annotated[
        int, typer.Option(metavar="NUMBER", help="Number of folds; each is scored with a cut chosen on the others.")
    ] = 5,
    sample: SampleOption = 20_000,
    seed: SeedOption = 0,
    missing: Annotated[
        Missing,
        typer.Option(
            help="Stop at rows, labels and judgments with a missing value and at judgments of unknown rows, or drop "
            "and count them."
        ),
    ] = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Find the cosine that means a match.

    The cut is a threshold on the cosine: pairs with at least this cosine count as matches. Give --pairs, or --queries
    and --qrels, or --labels, and a precision, a recall or --f1. Without judgments, the cut is the cosine that few
    random pairs reach.
    """
    from isoscope._report.threshold_text import render_threshold
    from isoscope.thresholding.threshold import threshold as find_threshold

    check_overwriting([html, json], [source, queries, pairs, qrels, labels, ids, query_ids])
    check_output_folders(html, json)
    roles = parse_task_columns("threshold", columns, ids)
    with open_engine(engine, scheduler, workers) as running, InterruptibleProgressBar() as bar:
        found = find_threshold(
            source,
            pairs=pairs,
            queries=queries,
            qrels=qrels,
            labels=None if labels is None else resolve_entries(labels),
            precision=precision,
            recall=recall,
            f1=f1,
            match_from=match_from,
            false_matches=false_matches,
            query_ids=None if query_ids is None else resolve_entries(query_ids),
            layer=layer,
            folds=folds,
            sample=sample,
            seed=seed,
            **parse_policy(missing, zeros),
            progress=bar,
            engine=running,
            **roles,
        )
    write_result(found, html, json)
    if json != STDOUT:
        show(render_threshold(found))
    if found.verdict != "cut":
        raise typer.Exit(FAIL_ON_REACHED)
