"""The command `advise`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import OutputError, ParameterError
from isoscope.cli.options import (
    ColumnsOption,
    HtmlOption,
    JsonOption,
    MaxMemoryOption,
    Metric,
    MetricOption,
    SeedOption,
    SourceArgument,
    check_output_folders,
    check_overwriting,
    check_parent,
    parse_columns,
)
from isoscope.cli.session import STDOUT, InterruptibleProgressBar, report_written, show, write_json_output

commands = typer.Typer()

Missing = StrEnum("Missing", {"error": "raise", "drop": "drop"})

_WIDTH = 120  # columns if standard output is not a terminal


@commands.command()
def advise(
    source: SourceArgument,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File with pairs of rows and their similarity grades: .tsv, .csv, .jsonl or .parquet."
        ),
    ] = None,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Query vectors to search SOURCE with.")] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the relevant documents of each query, in TREC or BEIR format."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with class labels, or a file with one label per row.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Measure used to choose the repair: probe, knn or v_measure for labels; ndcg@10 or recall@100 for "
            "queries.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Save the recommended repair in this folder.")
    ] = None,
    html: HtmlOption = None,
    json: JsonOption = None,
    columns: ColumnsOption = None,
    metric: MetricOption = Metric.cosine,
    folds: Annotated[
        int, typer.Option(metavar="NUMBER", help="Number of cross-validation folds used to estimate the gain.")
    ] = 5,
    sample: Annotated[
        int, typer.Option(metavar="ROWS", help="Number of rows to sample from SOURCE and keep in memory.")
    ] = 20_000,
    seed: SeedOption = 0,
    missing: Annotated[
        Missing,
        typer.Option(help="Whether to raise an error for judgments that refer to unknown rows, or to drop them."),
    ] = Missing.error,
    new_rows: Annotated[
        bool,
        typer.Option(
            "--new-rows", help="Score each repair on held-out rows, to estimate its effect on rows added later."
        ),
    ] = False,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Test every repair on your own task and recommend one, or none.

    The recommendation is the simplest repair that improves the task significantly. Give --pairs, or --queries and
    --qrels, or --labels; without any of them the evidence is weak.
    """
    from isoscope._io.tables import read_entries
    from isoscope._report.terminal import render_advice
    from isoscope.advising.advise import advise as run_advise
    from isoscope.stores.databases.address import redact_source_name

    check_overwriting([html, json], [source, queries, pairs, qrels, labels], folders=[output])
    check_output_folders(html, json)
    _check_repair_folder(output)
    roles: dict[str, Any] = dict(parse_columns(columns))
    for role in roles.keys() - {"vectors", "ids", "text"}:
        raise ParameterError(
            f"advise does not use --columns {role}=: it takes vectors=, ids= and text=; use --labels for class labels"
        )
    given_labels: Any = labels
    if labels is not None and Path(labels).is_file():
        given_labels = read_entries(Path(labels))
    with InterruptibleProgressBar() as bar:
        advice = run_advise(
            source,
            pairs=pairs,
            queries=queries,
            qrels=qrels,
            labels=given_labels,
            measure=measure,
            metric=cast(Any, metric.value),
            folds=folds,
            sample=sample,
            seed=seed,
            missing=missing.value,
            new_rows=new_rows,
            progress=bar,
            **roles,
        )
    if html is not None:
        advice.to_html(html)
        report_written(html)
    if json is not None:
        write_json_output(advice.to_dict(), json)
    if output is not None:
        advice.save(output)
        report_written(output)
    if json == STDOUT:
        return
    show(render_advice(advice), width=None if sys.stdout.isatty() else _WIDTH)
    if not advice.leaves_vectors_unchanged:
        if output is None:
            print("\nTo save the repair, add -o DIR.")
        else:
            print(f"\nNext: isoscope apply {output} {redact_source_name(source)} -o repaired.parquet")
            print("Apply it to the queries too.")


def _check_repair_folder(folder: Path | None) -> None:
    from isoscope.transforms.persistence import check_save_folder

    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file: choose a folder for the repair")
        check_parent(folder)
        check_save_folder(folder)
