"""The command `threshold`."""

from __future__ import annotations

from typing import Annotated

import typer

from isoscope.cli.help import DECIDE, METHOD, command
from isoscope.cli.options import (
    TASK_ROLES,
    ColumnsOption,
    EngineOption,
    FoldsOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LabelsOption,
    LayerOption,
    MaxMemoryOption,
    Missing,
    MissingOption,
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
    check_overwriting,
    check_result_files,
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
    show,
    write_result,
)

commands = typer.Typer()


@command(
    commands,
    DECIDE,
    "isoscope threshold vectors.npy --pairs pairs.tsv --precision 0.95",
    "isoscope threshold corpus.npy --queries queries.npy --qrels qrels.tsv --f1",
    "isoscope threshold vectors.npy --false-matches 1e-3",
    notes="Exit codes: 0 a threshold was found; 1 no threshold reaches the goal, or there are too few examples; "
    "2 invalid input.",
)
def threshold(
    source: SourceArgument,
    pairs: PairsOption = None,
    queries: QueriesOption = None,
    qrels: QrelsOption = None,
    labels: LabelsOption = None,
    query_ids: QueryIdsOption = None,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    precision: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="SHARE",
            help="Required precision: the share of matches among the pairs above the threshold.",
            show_default="0.9",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="SHARE",
            help="Required recall: the share of all matches that are above the threshold.",
        ),
    ] = None,
    f1: Annotated[
        bool, typer.Option("--f1", rich_help_panel=METHOD, help="Find the threshold with the highest F1.")
    ] = False,
    match_from: Annotated[
        float | None,
        typer.Option(
            "--match-from",
            rich_help_panel=METHOD,
            metavar="GRADE",
            help="Lowest grade or relevance that counts as a match.",
            show_default="the higher of two grades; any relevance above 0",
        ),
    ] = None,
    false_matches: Annotated[
        float | None,
        typer.Option(
            "--false-matches",
            rich_help_panel=METHOD,
            metavar="RATE",
            help="Without judgments: the share of random pairs that may be above the threshold.",
            show_default="1e-4",
        ),
    ] = None,
    folds: FoldsOption = 5,
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
    """Find the cosine above which a pair counts as a match.

    Pass --pairs, or --queries and --qrels, or --labels, and a goal: --precision, --recall or --f1. Without judgments,
    the threshold is a cosine that only a small share of random pairs reaches (--false-matches).
    """
    from isoscope._report.threshold_text import render_threshold
    from isoscope.thresholding.threshold import threshold as find_threshold

    check_overwriting([html, json], [source, queries, pairs, qrels, labels, ids, query_ids])
    check_result_files(html, json)
    roles = parse_used_columns("threshold", columns, TASK_ROLES, ids=ids, labels=labels)
    with open_engine(engine, scheduler, workers) as running, InterruptibleProgressBar() as bar:
        found = find_threshold(
            source,
            pairs=pairs,
            queries=queries,
            qrels=qrels,
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
        found.notes[:] = map(cli_form, found.notes)
        show(render_threshold(found))
    if found.verdict != "cut":
        raise typer.Exit(FAIL_ON_REACHED)
