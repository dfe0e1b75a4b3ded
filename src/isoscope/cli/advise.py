"""The command `advise`."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope.cli.options import (
    ColumnsOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LabelsOption,
    LayerOption,
    MaxMemoryOption,
    Metric,
    MetricOption,
    Missing,
    PairsOption,
    QrelsOption,
    QueriesOption,
    QueryIdsOption,
    SchemaOption,
    SeedOption,
    SourceArgument,
    Zeros,
    ZerosOption,
    check_output_folders,
    check_overwriting,
    check_repair_folder,
    parse_policy,
    parse_task_columns,
    resolve_entries,
)
from isoscope.cli.session import (
    KMEANS_ADDRESS_SPACE,
    STDOUT,
    InterruptibleProgressBar,
    check_address_space,
    report_written,
    show,
    write_result,
)

commands = typer.Typer()

_WIDTH = 120  # columns if standard output is not a terminal


@commands.command()
def advise(
    source: SourceArgument,
    pairs: PairsOption = None,
    queries: QueriesOption = None,
    qrels: QrelsOption = None,
    labels: LabelsOption = None,
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
    schema: SchemaOption = False,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    query_ids: QueryIdsOption = None,
    layer: LayerOption = None,
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
        typer.Option(
            help="Stop at rows, labels and judgments with a missing value and at judgments of unknown rows, or drop "
            "and count them."
        ),
    ] = Missing.error,
    zeros: ZerosOption = Zeros.keep,
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
    from isoscope._report.terminal import render_advice
    from isoscope.advising.advise import advise as run_advise

    check_address_space(KMEANS_ADDRESS_SPACE)
    check_overwriting([html, json], [source, queries, pairs, qrels, labels, ids, query_ids], folders=[output])
    check_output_folders(html, json)
    check_repair_folder(output)
    roles = parse_task_columns("advise", columns, ids)
    with InterruptibleProgressBar() as bar:
        advice = run_advise(
            source,
            pairs=pairs,
            queries=queries,
            qrels=qrels,
            labels=None if labels is None else resolve_entries(labels),
            query_ids=None if query_ids is None else resolve_entries(query_ids),
            layer=layer,
            measure=measure,
            metric=cast(Any, metric.value),
            folds=folds,
            sample=sample,
            seed=seed,
            **parse_policy(missing, zeros),
            new_rows=new_rows,
            progress=bar,
            **roles,
        )
    write_result(advice, html, json)
    if output is not None:
        advice.save(output)
        report_written(output)
    if json == STDOUT:
        return
    show(render_advice(advice), width=None if sys.stdout.isatty() else _WIDTH)
    if advice.leaves_vectors_unchanged:
        return
    if output is None:
        print("\nTo save the repair, add -o DIR.")
        return
    policy = {"--missing": missing.value, "--zeros": zeros.value} if "drop" in (missing, zeros) else {}
    options = _repeat_options({"--columns": ",".join(columns or []), "--ids": ids, "--layer": layer, **policy})
    print("\nNext:")
    print(_apply_command(output, source, "repaired", options))
    if queries is not None:
        options = _repeat_options({"--ids": query_ids, "--layer": layer, **policy})
        print(_apply_command(output, queries, "repaired-queries", options))


def _repeat_options(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() if value not in (None, "") for word in (name, str(value))]


def _apply_command(repair: Path, source: str, target: str, options: list[str]) -> str:
    """Return the command that applies a repair, quoted for the shell; passwords in the source are masked.

    `target` is the name of the output without its extension; the name of a new file is chosen.
    """
    from isoscope.stores.databases.address import redact_source_name

    suffixes = itertools.chain([""], (f"-{i}" for i in itertools.count(2)))
    free = next(name for suffix in suffixes if not Path(name := f"{target}{suffix}.parquet").exists())
    paths = [f"./{name}" if name.startswith("-") else name for name in (str(repair), redact_source_name(source))]
    return "  " + shlex.join(["isoscope", "apply", *paths, "-o", free, *options])
