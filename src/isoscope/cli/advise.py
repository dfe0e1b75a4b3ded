"""The command `advise`."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope.cli.help import DECIDE, METHOD, command
from isoscope.cli.options import (
    TASK_ROLES,
    AdvisedFolderOption,
    ColumnsOption,
    FoldsOption,
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
    QueriesOption,
    QueryIdsOption,
    SampleOption,
    SchemaOption,
    SeedOption,
    SourceArgument,
    Zeros,
    ZerosOption,
    check_overwriting,
    check_repair_folder,
    check_result_files,
    parse_policy,
    parse_used_columns,
    resolve_entries,
)
from isoscope.cli.session import (
    KMEANS_ADDRESS_SPACE,
    STDOUT,
    InterruptibleProgressBar,
    check_address_space,
    cli_form,
    command_arguments,
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
    "isoscope advise vectors.parquet --labels topic",
    "isoscope advise corpus.npy --queries queries.npy --qrels qrels.tsv -o repair",
    "isoscope advise vectors.npy --pairs pairs.tsv --html advice.html",
)
def advise(
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
    measure: MeasureOption = None,
    metric: MetricOption = Metric.cosine,
    folds: FoldsOption = 5,
    new_rows: Annotated[
        bool,
        typer.Option(
            "--new-rows",
            rich_help_panel=METHOD,
            help="Score each repair on held-out rows, to estimate its effect on rows added later.",
        ),
    ] = False,
    output: AdvisedFolderOption = None,
    html: HtmlOption = None,
    json: JsonOption = None,
    schema: SchemaOption = False,
    sample: SampleOption = 20_000,
    seed: SeedOption = 0,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Test every repair on your task and recommend one or none.

    The recommendation is the simplest repair that improves the task significantly. Give --pairs, or --queries and
    --qrels, or --labels; without any of them the evidence is weak.
    """
    from isoscope._report.narrate import is_label_free
    from isoscope._report.terminal import render_advice
    from isoscope.advising.advise import advise as run_advise

    check_address_space(KMEANS_ADDRESS_SPACE)
    check_overwriting([html, json], [source, queries, pairs, qrels, labels, ids, query_ids], folders=[output])
    check_result_files(html, json)
    check_repair_folder(output)
    roles = parse_used_columns("advise", columns, TASK_ROLES, ids=ids, labels=labels)
    with InterruptibleProgressBar() as bar:
        advice = run_advise(
            source,
            pairs=pairs,
            queries=queries,
            qrels=qrels,
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
    advice.notes[:] = map(cli_form, advice.notes)
    show(render_advice(advice))
    print("\nNext:")
    searched = None if queries is None else _name_source(queries)
    task = {"--pairs": pairs, "--queries": searched, "--qrels": qrels, "--labels": labels, "--query-ids": query_ids}
    same_rows = {"--columns": ",".join(columns or []), "--ids": ids, "--layer": layer}
    policies = {"--missing": missing.value, "--zeros": zeros.value}
    policy = {name: value for name, value in policies.items() if value == "drop"}
    repeated = remove_secrets(resume_command(), command_arguments)
    if is_label_free(advice):
        for inputs in (["--pairs", "PAIRS"], ["--queries", "QUERIES", "--qrels", "QRELS"], ["--labels", "LABELS"]):
            print(f"  {repeated} {' '.join(inputs)}")
    elif advice.leaves_vectors_unchanged:
        words = _repeat_options({**task, **same_rows, **policy})
        print(f"  {_join_command('threshold', _name_source(source), *words)}")
    elif output is None:
        print(f"  {repeated} -o repair")
    else:
        print(_apply_command(output, source, "repaired", _repeat_options({**same_rows, **policy})))
        if queries is not None:
            options = _repeat_options({"--ids": query_ids, "--layer": layer, **policy})
            print(_apply_command(output, queries, "repaired-queries", options))


def _repeat_options(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() if value not in (None, "") for word in (name, str(value))]


def _apply_command(repair: Path, source: str, target: str, options: list[str]) -> str:
    """Return the command that applies a repair; `target` is the name of a new file without its extension."""
    suffixes = itertools.chain([""], (f"-{i}" for i in itertools.count(2)))
    free = next(name for suffix in suffixes if not Path(name := f"{target}{suffix}.parquet").exists())
    return f"  {_join_command('apply', _name_file(str(repair)), _name_source(source), '-o', free, *options)}"


def _join_command(*words: str) -> str:
    """Return a command line of isoscope, quoted for the shell."""
    return shlex.join(["isoscope", *words])


def _name_file(name: str) -> str:
    return f"./{name}" if name.startswith("-") else name


def _name_source(source: str) -> str:
    """Return a source for a command line; passwords are masked."""
    from isoscope.stores.databases.address import redact_source_name

    return _name_file(redact_source_name(source))
