"""The command `compress`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import ParameterError
from isoscope.cli.help import DECIDE, METHOD, command
from isoscope.cli.options import (
    TASK_ROLES,
    ColumnsOption,
    EngineOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LabelsOption,
    LayerOption,
    MaxMemoryOption,
    MeasureOption,
    Metric,
    MetricOption,
    Missing,
    MissingOption,
    PairsOption,
    QrelsOption,
    QuantizerFolderOption,
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
    check_repair_folder,
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
    command_arguments,
    print_message,
    remove_secrets,
    report_written,
    resume_command,
    show,
    write_result,
)

commands = typer.Typer()


@command(
    commands,
    DECIDE,
    "isoscope compress corpus.npy --queries queries.npy --qrels qrels.tsv",
    "isoscope compress vectors.npy --keep 0.95 --precision int8,bit -o quantizer",
    notes="Exit codes: 0 a smaller form keeps the share; 1 no smaller form was shown to keep it; 2 invalid input.",
)
def compress(
    source: SourceArgument,
    queries: QueriesOption = None,
    qrels: QrelsOption = None,
    pairs: PairsOption = None,
    labels: LabelsOption = None,
    query_ids: QueryIdsOption = None,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    keep: Annotated[
        float,
        typer.Option(
            rich_help_panel=METHOD, metavar="SHARE", help="Share of the score to keep, above 0 and at most 1."
        ),
    ] = 0.99,
    measure: MeasureOption = None,
    metric: MetricOption = Metric.cosine,
    precision: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="NAMES",
            help="Number formats to try, separated by commas: float32, float16, int8, int4, bit, and pq for product "
            "quantization.",
            show_default="all",
        ),
    ] = None,
    dimensions: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="NUMBERS",
            help="Numbers of dimensions to try, separated by commas, such as 256,128.",
        ),
    ] = None,
    rescore: Annotated[
        bool,
        typer.Option(
            "--rescore",
            rich_help_panel=METHOD,
            help="Assume that the original vectors stay stored for rescoring, and recommend the smallest index.",
        ),
    ] = False,
    output: QuantizerFolderOption = None,
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
    """Find out how small the vectors can be stored.

    Recommend the smallest way to store the vectors that keeps a share of the score, and print the settings for
    pgvector, Qdrant, LanceDB and faiss. The score is recall@10 against exact search, or that of a task: give --queries
    and --qrels, or --pairs, or --labels.
    """
    from isoscope._report.compression_text import render_compression
    from isoscope.compressing.compress import compress as run_compress

    check_overwriting([html, json], [source, queries, pairs, qrels, labels, ids, query_ids], folders=[output])
    check_result_files(html, json)
    check_repair_folder(output, "quantizer")
    roles = parse_used_columns("compress", columns, TASK_ROLES, ids=ids, labels=labels)
    with InterruptibleProgressBar() as bar, open_engine(engine, scheduler, workers) as running:
        result = run_compress(
            source,
            pairs=pairs,
            queries=queries,
            qrels=qrels,
            query_ids=None if query_ids is None else resolve_entries(query_ids),
            keep=keep,
            measure=measure,
            precisions=None if precision is None else [name for name in precision.split(",") if name],
            dimensions=None if dimensions is None else _parse_dimensions(dimensions),
            rescore=rescore,
            layer=layer,
            metric=cast(Any, metric.value),
            sample=sample,
            seed=seed,
            **parse_policy(missing, zeros),
            engine=running,
            progress=bar,
            **roles,
        )
    write_result(result, html, json)
    if output is not None and result.chosen is not None:
        replaced = output.is_dir() and any(output.iterdir())
        result.save(output)
        report_written(output, replaced=replaced)
    if json != STDOUT:
        result.notes[:] = map(cli_form, result.notes)
        show(render_compression(result))
        if result.chosen is not None and output is None:
            print(f"\nNext:\n  {remove_secrets(resume_command(), command_arguments)} -o quantizer")
    if result.chosen is None:
        if output is not None:
            print_message(f"{output} was not written: no smaller candidate was recommended")
        raise typer.Exit(FAIL_ON_REACHED)


def _parse_dimensions(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ParameterError(f"--dimensions {text}: need integers separated by commas, such as 256,128") from None
