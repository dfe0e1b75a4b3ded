"""How fit, apply, fix and advise are typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from isoscope.cli.options import (
    Columns,
    EngineKind,
    MaxMemory,
    Metric,
    NeighborMetric,
    Restart,
    Scheduler,
    Seed,
    Source,
    Target,
    VectorsOnly,
    Workers,
    check_overwriting,
    open_engine,
    parse_columns,
    parse_target,
)

commands = typer.Typer()


class Missing(StrEnum):
    """What --missing takes."""

    error = "raise"
    drop = "drop"


_MethodName = Annotated[
    str,
    typer.Argument(
        metavar="METHOD", help="center, standardize, all-but-the-top, whiten, cluster-center or cluster-null."
    ),
]
_Components = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Directions taken out, or auto (all-but-the-top, cluster-null); kept (whiten)."
    ),
]
_Clusters = Annotated[str | None, typer.Option(metavar="NUMBER", help="How many, or auto (cluster-*).")]
_Clusterer = Annotated[str | None, typer.Option(metavar="NAME", help="kmeans or gmm (cluster-*).")]
_Axes = Annotated[str | None, typer.Option("--method", metavar="NAME", help="zca or pca (whiten).")]
_Shrinkage = Annotated[str | None, typer.Option(metavar="SHARE", help="auto, none, or from 0 to 1 (whiten).")]
_FitSample = Annotated[int | None, typer.Option("--sample", metavar="ROWS", help="Rows to learn from (cluster-*).")]
_FitSeed = Annotated[int | None, typer.Option("--seed", help="Of the sample and the clusters (cluster-*).")]


@commands.command()
def fit(
    method: _MethodName,
    source: Source,
    folder: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to save the repair in.")],
    columns: Columns = None,
    components: _Components = None,
    clusters: _Clusters = None,
    clusterer: _Clusterer = None,
    axes: _Axes = None,
    shrinkage: _Shrinkage = None,
    sample: _FitSample = None,
    seed: _FitSeed = None,
    engine: EngineKind = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    max_memory: MaxMemory = None,
) -> None:
    """Learn a repair from a corpus and save it; apply it to corpus and queries alike."""
    from isoscope.cli.repair import Method
    from isoscope.cli.repair import fit as learn

    options: dict[str, Any] = {"components": components, "clusters": clusters, "clusterer": clusterer, "method": axes}
    options |= {"shrinkage": shrinkage, "sample": sample, "seed": seed}
    with open_engine(engine, scheduler, workers) as running:
        learn(Method(method, options), source, folder, parse_columns(columns), running)


@commands.command()
def apply(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What fit saved.")],
    source: Source,
    output: Target,
    columns: Columns = None,
    vectors_only: VectorsOnly = False,
    restart: Restart = False,
    engine: EngineKind = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    max_memory: MaxMemory = None,
) -> None:
    """Write the repaired vectors of a source; Parquet and databases keep a table's other columns.

    An interrupted run leaves a file as it was, and is gone on with by the same command. In a database only the rows
    that lack are written; a table of PostgreSQL that exists gets another column.
    """
    from isoscope.cli.repair import apply as write

    target = parse_target(output)
    check_overwriting([target], [source])
    with open_engine(engine, scheduler, workers) as running:
        write(
            folder, source, target, parse_columns(columns), vectors_only=vectors_only, restart=restart, engine=running
        )


@commands.command()
def fix(
    method: _MethodName,
    source: Source,
    output: Target,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the repair, as fit does.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page: before and after.")] = None,
    columns: Columns = None,
    vectors_only: VectorsOnly = False,
    restart: Restart = False,
    components: _Components = None,
    clusters: _Clusters = None,
    clusterer: _Clusterer = None,
    axes: _Axes = None,
    shrinkage: _Shrinkage = None,
    sample: _FitSample = None,
    seed: _FitSeed = None,
    engine: EngineKind = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    max_memory: MaxMemory = None,
) -> None:
    """Fit a repair to a source, apply it, and show the audits before and after side by side."""
    from isoscope.cli.repair import Method
    from isoscope.cli.repair import fix as repair

    options: dict[str, Any] = {"components": components, "clusters": clusters, "clusterer": clusterer, "method": axes}
    options |= {"shrinkage": shrinkage, "sample": sample, "seed": seed}
    target = parse_target(output)
    check_overwriting([target, html], [source])
    with open_engine(engine, scheduler, workers) as running:
        repair(
            Method(method, options),
            source,
            target,
            parse_columns(columns),
            saved=save,
            html=html,
            vectors_only=vectors_only,
            restart=restart,
            engine=running,
        )


@commands.command()
def advise(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The corpus, as for audit.")],
    pairs: Annotated[Path | None, typer.Option(help="Graded pairs of rows: .tsv, .csv, .jsonl or .parquet.")] = None,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Queries that search SOURCE.")] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Relevant documents of each query, in TREC or BEIR format.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of class labels, or a file with one label per row.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="Let one measure decide: probe, knn or v_measure; ndcg@10 or recall@100."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Save the prescribed, fitted repair.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the evidence as an HTML page.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the advice as JSON; - for standard output.")] = None,
    columns: Columns = None,
    metric: NeighborMetric = Metric.cosine,
    folds: Annotated[int, typer.Option(help="Folds of the nested selection that estimates the gain.")] = 5,
    sample: Annotated[int, typer.Option(metavar="ROWS", help="Rows of SOURCE to keep in memory.")] = 20_000,
    seed: Seed = 0,
    missing: Annotated[Missing, typer.Option(help="Refuse judgments of unknown rows, or drop them.")] = Missing.error,
    new_rows: Annotated[
        bool,
        typer.Option(
            "--new-rows", help="Score repairs on rows they were not fitted to, as for rows that arrive later."
        ),
    ] = False,
    max_memory: MaxMemory = None,
) -> None:
    """Test every repair on your own task, and prescribe the simplest that helps significantly, or none.

    Give --pairs, or --queries and --qrels, or --labels; without any, the evidence is weak.
    """
    from isoscope.cli.advise import Request, run_advise

    check_overwriting([html, json], [source, queries, *(str(each) for each in (pairs, qrels, labels) if each)])
    options = {"metric": metric.value, "folds": folds, "sample": sample, "seed": seed, "missing": missing.value}
    options["new_rows"] = new_rows
    run_advise(
        source,
        Request(
            parse_columns(columns), pairs, queries, qrels, labels, output, html, json, {**options, "measure": measure}
        ),
    )
