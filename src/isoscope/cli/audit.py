"""The commands `audit` and `similarity`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoscope._core.errors import ParameterError
from isoscope.cli.help import INPUT, MEASURE, METHOD, OUTPUT, command
from isoscope.cli.options import (
    ColumnsOption,
    EngineOption,
    FrequencyOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LabelsOption,
    LayerOption,
    MaxMemoryOption,
    Metric,
    MetricOption,
    Missing,
    MissingOption,
    NoTextOption,
    QueriesOption,
    SampleOption,
    SchedulerOption,
    SchemaOption,
    SeedOption,
    TextOption,
    TypesOption,
    WorkersOption,
    Zeros,
    ZerosOption,
    check_output_name,
    check_overwriting,
    check_result_files,
    check_table_file,
    open_engine,
    open_source,
    parse_columns,
    parse_policy,
    resolve_roles,
)
from isoscope.cli.session import (
    FAIL_ON_REACHED,
    STDOUT,
    InterruptibleProgressBar,
    print_message,
    report_written,
    show,
    write_json_output,
)

if TYPE_CHECKING:
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import Agreement, Change, HeldOutComparison
    from isoscope.auditing.grouped import GroupedAudit
    from isoscope.auditing.similarity import Similarity
    from isoscope.stores.store import Store

commands = typer.Typer()

FailOn = StrEnum("FailOn", ["look", "bad", "worse"])


@command(
    commands,
    MEASURE,
    "isoscope audit vectors.npy --html report.html",
    "isoscope audit vectors.parquet --labels topic --json audit.json",
    "isoscope audit vectors.parquet --baseline audit.json --fail-on worse",
    "isoscope audit old.npy new.npy --html compare.html",
    notes="Exit codes: 0 success; 1 the --fail-on threshold was reached; 2 invalid input.",
)
def audit(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE…",
            help="Vectors to audit: a file, a folder or glob of shards, - for .npy on standard input, a remote address "
            "(https://…, s3://…, gs://…, hf://datasets/…), or a database (postgresql://…?table=NAME, qdrant:…#NAME, "
            "lancedb:…#NAME, chroma:…#NAME, milvus:FILE.db#NAME, duckdb:FILE?query=…). Pass several sources to "
            "compare them.",
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=INPUT,
            metavar="COLUMN",
            help="Audit the rows separately for each value of this column, such as layer or label.",
        ),
    ] = None,
    layer: LayerOption = None,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    text: TextOption = None,
    types: TypesOption = None,
    frequency: FrequencyOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    labels: LabelsOption = None,
    queries: QueriesOption = None,
    metric: MetricOption = Metric.cosine,
    html: HtmlOption = None,
    json: JsonOption = None,
    schema: SchemaOption = False,
    no_text: NoTextOption = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            metavar="FILE",
            callback=check_output_name,
            help="Write a table with one line per row (nearest row, duplicates, hubs, outliers, …) to this .parquet, "
            ".arrow or .csv file, and list the worst rows.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            metavar="NUMBER",
            help="List this many of the worst rows of each kind.",
            show_default="5 with --rows, otherwise none",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel="Checks",
            metavar="FILE",
            help="Report changes since an earlier audit that was written with --json.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            rich_help_panel="Checks",
            metavar="VERDICT",
            help="Exit with code 1 if a finding has this verdict: bad; look (look or bad); worse (worse than in "
            "--baseline). Findings on labels, types or frequencies count only if you named the column.",
        ),
    ] = None,
    sample: SampleOption = 20_000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Measure the shape of an embedding space and list its problems.

    Each finding says what it means for search and classification, and what to try.
    """
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.audit import audit as run_audit
    from isoscope.auditing.row_table import check_rows_output
    from isoscope.stores.open import open_store

    if fail_on is FailOn.worse and baseline is None:
        raise ParameterError("--fail-on worse needs --baseline to compare with")
    if (len(sources) > 1 or by) and (baseline or queries):
        conflict = "--by" if by else "several sources"
        raise ParameterError(f"{conflict} cannot be combined with --baseline or --queries: audit one source at a time")
    wants_rows = rows is not None or top is not None
    if wants_rows and (by or len(sources) > 1):
        option, conflict = "--rows" if rows is not None else "--top", "--by" if by else "several sources"
        raise ParameterError(
            f"{option} cannot be combined with {conflict}: audit one source and one group at a time (for layers: pass "
            "--layer)"
        )
    if rows is not None:
        check_rows_output(rows)
    named = {"labels": labels, "types": types, "text": text, "frequency": frequency, "ids": ids}
    check_overwriting([html, json, rows], [*sources, queries, *named.values(), baseline])
    check_result_files(html, json)
    check_table_file(rows)
    roles = resolve_roles(parse_columns(columns), named)
    policy = parse_policy(missing, zeros)
    earlier = None if baseline is None else Audit.from_json(baseline)
    stores = [open_store(source, by=by, layer=layer, **roles, **policy) for source in sources]
    if by is None:
        by = _choose_layers(stores, can_group=baseline is None and queries is None and not wants_rows)
    options: dict[str, Any] = {"metric": metric.value, "sample": sample, "seed": seed, **policy}
    options |= {"queries": queries, "rows": wants_rows} if by is None else {"by": by}
    options |= {} if top is None else {"top": top}
    results, guessed = [], []
    with open_engine(engine, scheduler, workers) as running:
        for store in stores:
            with InterruptibleProgressBar() as bar:
                results.append(run_audit(store, progress=bar, engine=running, **options))
            if labels is not None and by is None and (why := results[-1].skipped.get("labels")):
                print_message(f"{store.name}: --labels {labels} is not used: {why}")
            guessed.append({role: store.columns[role] for role in store.guessed & store.columns.keys()})
    if no_text:
        results = [result.without_texts() for result in results]
    changes: list[Change] = []
    if by is not None:
        _report_groups(results, html, json)
    elif len(results) > 1:
        _report_several(results, html, json)
    else:
        _write_rows(results[0], rows)
        changes = _report_one(results[0], earlier, html, json)
    if fail_on is not None and _is_reached(fail_on, results, changes, guessed):
        raise typer.Exit(FAIL_ON_REACHED)


def _is_reached(
    fail_on: FailOn, results: Sequence[Audit | GroupedAudit], changes: list[Change], guessed: list[dict[str, str]]
) -> bool:
    """Return whether a finding reaches the --fail-on threshold; findings on columns that were guessed do not count.

    `guessed` contains the guessed columns of each source, by role.
    """
    from isoscope.auditing.findings import FINDING_ROLES
    from isoscope.auditing.grouped import GroupedAudit

    ignored: dict[str, str] = {}
    for result, columns in zip(results, guessed, strict=True):
        audits = result.groups.values() if isinstance(result, GroupedAudit) else [result]
        judged = [(finding.name, finding.verdict) for audit in audits for finding in audit.findings]
        for name, verdict in [*judged, *((change.name, change.direction) for change in changes)]:
            if verdict in {FailOn.look: {"look", "bad"}}.get(fail_on, {fail_on.value}):
                role = FINDING_ROLES.get(name)
                if role not in columns:
                    return True
                ignored[role] = columns[role]
    if ignored:
        names = ",".join(f"{role}={column}" for role, column in sorted(ignored.items()))
        print_message(
            f"--fail-on ignores findings on columns that were detected by their names: to include them, pass --columns "
            f"{names}"
        )
    return False


def _choose_layers(stores: list[Store], *, can_group: bool) -> str | None:
    """Return "layer" if the sources are hidden states of several layers, which are different spaces; else None."""
    from isoscope.stores.selection import list_layers

    layers = [len(list_layers(store)) for store in stores]
    if max(layers) <= 1:
        return None
    name, most = stores[layers.index(max(layers))].name, max(layers)
    if not can_group or min(layers) == 0:
        raise ParameterError(
            f"{name} contains {most} layers, which are different spaces: choose one with --layer, such as --layer -1"
        )
    print_message(f"{name} contains {most} layers: auditing each layer (--by layer)")
    return "layer"


def _report_one(result: Audit, baseline: Audit | None, html: Path | None, json: Path | None) -> list[Change]:
    """Write and show an audit; return its changes since the baseline."""
    from isoscope._report.terminal import render_audit
    from isoscope.auditing.compare import compare_findings

    changes = [] if baseline is None else compare_findings(baseline, result)
    if html is not None:
        result.to_html(html, baseline=baseline)
        report_written(html)
    if json is not None:
        content = result.to_dict()
        if baseline is not None:
            content["changes"] = [change.to_dict() for change in changes]
        write_json_output(content, json)
    if json != STDOUT:
        show(render_audit(result, baseline))
    return changes


def _write_rows(result: Audit, path: Path | None) -> None:
    """Write the row table of an audit."""
    if path is not None:
        assert result.rows is not None
        result.rows.write(path)
        report_written(path)


def _report_several(results: list[Audit], html: Path | None, json: Path | None) -> None:
    """Write and show audits of several sources side by side."""
    from dataclasses import asdict

    from isoscope.auditing.compare import compare_spaces, neighbor_agreements

    agreements = [compare_spaces(results[0], other) for other in results[1:]]
    if json is not None:
        shared = neighbor_agreements(results)
        agreement = shared[0] if len(shared) == 1 else shared
        spaces = [[asdict(each) for each in one] for one in agreements]
        write_json_output(_comparison_dict(results, agreement=agreement, correspondence=spaces), json)
    show_comparison(results, html, printed=json != STDOUT, agreements=agreements)


def show_comparison(
    results: list[Audit],
    html: Path | None,
    *,
    printed: bool = True,
    held_out: HeldOutComparison | None = None,
    agreements: Sequence[Sequence[Agreement]] = (),
) -> None:
    """Write audits side by side to a page and show them on the terminal.

    `agreements` compares the first space with each of the others.
    """
    from isoscope._io.files import atomic_replace
    from isoscope._report.terminal import render_side_by_side
    from isoscope.auditing.compare import neighbor_agreements

    shared = neighbor_agreements(results)
    if html is not None:
        from isoscope._report.audit_page import render_page

        with atomic_replace(html) as temporary:
            agreement = shared[0] if len(shared) == 1 else None
            spaces = agreements[0] if len(agreements) == 1 else ()
            page = render_page(results, agreement=agreement, held_out=held_out, spaces=spaces)
            temporary.write_text(page, encoding="utf-8")
        report_written(html)
    if printed:
        show(render_side_by_side(results, shared, held_out, agreements))


def _report_groups(results: list[GroupedAudit], html: Path | None, json: Path | None) -> None:
    """Write and show the grouped audits of one source, or of several side by side."""
    from isoscope._report.terminal import render_grouped_audit, render_grouped_side_by_side
    from isoscope.auditing.grouped import write_page

    if json is not None:
        write_json_output(results[0].to_dict() if len(results) == 1 else _comparison_dict(results), json)
    if html is not None:
        write_page(results, html)
        report_written(html)
    if json != STDOUT:
        show(render_grouped_audit(results[0]) if len(results) == 1 else render_grouped_side_by_side(results))


def _comparison_dict(results: list[Any], **more: Any) -> dict[str, Any]:
    return {"schema": "isoscope.comparison/1", "audits": [each.to_dict() for each in results], **more}


@command(
    commands,
    MEASURE,
    "isoscope similarity vectors.npy 0.7 0.8",
    "isoscope similarity 0.7 --model sentence-transformers/all-MiniLM-L6-v2",
    context_settings={"ignore_unknown_options": True},  # -0.5 is a cosine, not an option
)
def similarity(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[SOURCE] COSINE…",
            help="Vectors (a file, folder, glob or database), then one or more cosines from -1 to 1. With --model, "
            "only the cosines.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="NAME",
            help="Answer without data: use the cosines of this model on 1,750 short English texts. Pass a name or a "
            "model folder.",
        ),
    ] = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    json: JsonOption = None,
    schema: SchemaOption = False,
    sample: SampleOption = 20_000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Show which share of random pairs has a lower cosine.

    The pairs are pairs of rows, or, with --queries, pairs of a query and a row. With --model, the answer comes from a
    table of known sentence encoders and needs no vectors.
    """
    from isoscope.auditing.measure import Settings, measure_cosines, measure_query_cosines
    from isoscope.auditing.similarity import Similarity

    if model is not None:
        _check_model_alone(context)
        _report_known_model(model, [_parse_cosine(each, before="omit SOURCE with --model") for each in arguments], json)
        return
    source, *rest = arguments
    if not rest:
        raise ParameterError(
            f"{source} is the only argument: pass a source and at least one cosine, or --model NAME and cosines"
        )
    cosines = [_parse_cosine(each, before="pass SOURCE first, then the cosines") for each in rest]
    check_overwriting([json], [source, queries])
    check_result_files(json)
    settings = Settings(sample=sample, seed=seed, **parse_policy(missing, zeros))
    with open_engine(engine, scheduler, workers) as running, InterruptibleProgressBar() as bar:
        store = open_source(source, columns, layer=layer, missing=missing, zeros=zeros)
        options: dict[str, Any] = {"settings": settings.limit_sample(store), "progress": bar, "engine": running}
        of = {"source": store.name}
        if queries is None:
            pairs, nearest = f"pairs in {store.name}", "rows, even the nearest neighbor has a lower cosine"
            percentiles = Similarity.of(*measure_cosines(store, **options))
        else:
            asked = open_source(queries, None, missing=missing, zeros=zeros)
            of["queries"] = asked.name
            pairs = f"pairs of a query in {asked.name} and a row in {store.name}"
            nearest = "queries, even the nearest row has a lower cosine"
            percentiles = Similarity.of(*measure_query_cosines(store, asked, **options))
    _report_cosines(cosines, percentiles, of, pairs, nearest, json)


def _check_model_alone(context: typer.Context) -> None:
    """Reject options that concern vectors if --model answers without them."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in ("arguments", "model", "json") and source is not None and source.name == "COMMANDLINE":
            raise ParameterError(
                f"--model needs no vectors, but {parameter.opts[0]} was passed: omit it, or omit --model"
            )


def _parse_cosine(text: str, before: str = "") -> float:
    try:
        cosine = float(text)
    except ValueError:
        if text.startswith("--"):
            raise ParameterError(f"similarity has no option {text}: see isoscope similarity --help") from None
        hint = f"; {before}" if before else ""
        raise ParameterError(f"the cosine is {text!r}: need a number from -1 to 1{hint}") from None
    if not -1 <= cosine <= 1:
        raise ParameterError(f"the cosine is {cosine}: need a number from -1 to 1")
    return cosine


def _describe_cosine(cosine: float, percentiles: Similarity, pairs: str, nearest: str) -> str:
    line = f"{cosine:g} is above {_spell_percentage(percentiles.percentile(cosine))} of the {pairs}"
    lower = percentiles.nearest_percentile(cosine)
    return line if lower is None else f"{line}; for {_spell_percentage(lower)} of the {nearest}"


def _spell_percentage(value: float) -> str:
    """Return a percentage for a sentence, such as "more than 99.99%"."""
    from isoscope.auditing.finding import format_percentage

    return format_percentage(value).replace("> ", "more than ").replace("< ", "less than ")


def _report_cosines(
    cosines: Sequence[float],
    percentiles: Similarity,
    of: dict[str, str],
    pairs: str,
    nearest: str,
    json: Path | None,
    *notes: str,
) -> None:
    """Write and show how cosines rank among pairs; `of` contains the names of the source, the queries or the model."""
    from isoscope import __version__

    sentences = [_describe_cosine(cosine, percentiles, pairs, nearest) for cosine in cosines]
    if json is not None:
        ranks = [
            {
                "cosine": cosine,
                "percentile": percentiles.percentile(cosine),
                "nearest_percentile": percentiles.nearest_percentile(cosine),
                "sentence": sentence,
            }
            for cosine, sentence in zip(cosines, sentences, strict=True)
        ]
        content = {"schema": "isoscope.similarity/1", "isoscope": __version__, "of": of, "cosines": ranks}
        write_json_output({**content, "notes": list(notes)}, json)
    if json != STDOUT:
        from rich.console import Group

        from isoscope._report.terminal import Paragraph

        show(Group(*map(Paragraph, [*sentences, *notes])))


def _report_known_model(model: str, cosines: Sequence[float], json: Path | None) -> None:
    """Write and show how cosines rank among the pairs of a model in the registry."""
    from isoscope.thresholding.registry import find_model

    entry = find_model(model)
    pairs, nearest = f"pairs of texts with {entry.name}", "texts, even the nearest neighbor has a lower cosine"
    note = f"{entry.name}: a typical cosine of two random texts is {entry.floor:.2f}. {entry.about}."
    check_result_files(json)
    _report_cosines(cosines, entry.similarity, {"model": entry.name}, pairs, nearest, json, note)
