"""What the commands study list, show and run do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from isoscope.cli.audit import _report_written, show
from isoscope.cli.finetune import MessageProgressBar, parse_seeds
from isoscope.cli.session import Interruption, command_arguments
from isoscope.studies.formatting import format_claim_counts, format_number, format_run_time
from isoscope.studies.run import StudyRun
from isoscope.studies.run import run_study as run_it
from isoscope.studies.study import STUDIES, Holds, Number, Published, format_value, study

_STYLES = {
    Holds.yes: "green",
    Holds.partly: "yellow",
    Holds.no: "red",
    Holds.undecided: "blue",
    Holds.untested: "dim",
}
_LIST_WIDTH = 18  # of a list of values in the table of parameters
_HEADING_WIDTH = 10  # of a word in a heading, as far as the cells below it need no more


@dataclass(frozen=True)
class Request:
    """What was asked of `isoscope study run`."""

    name: str
    output: Path
    models: list[str] | None
    data: Path | None
    quick: bool
    only: tuple[str, ...]
    given: dict[str, str]


def list_studies() -> None:
    """Name the studies with their papers."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name in STUDIES:
        paper = study(name).published.paper
        table.add_row(Text(name, "bold"), f"{paper.authors} ({paper.year}): {paper.title}")
    more = "isoscope study show NAME tells more; isoscope study run NAME -o OUT runs it"
    show(Group(table, Text(), Text(more, "dim")))


def show_study(name: str) -> None:
    """Tell what a study is."""
    found = study(name)
    paper = found.published.paper
    parts: list[RenderableType] = [
        Text.assemble((paper.title, "bold"), f"\n{paper.authors}, {paper.venue} {paper.year}"),
        Text(),
        Text(found.about),
        Text(),
        Text("Claims", "bold"),
        _render_claims(found.published),
        Text(),
        Text("Models", "bold"),
        Padding(f"{', '.join(found.models)}; quick: {', '.join(found.quick_models)}", (0, 0, 0, 2)),
        Text(),
        Text("Parameters, --set NAME=VALUE", "bold"),
        _render_parameters(name),
    ]
    for key in found.published.tables:
        parts += [
            Text(),
            Text(f"Published: {found.published.titles[key]}", "bold"),
            _render_published_table(found.published, key),
        ]
    show(Group(*parts))


def _render_claims(published: Published) -> Table:
    rows = [(each.key, f"{each.words} ({each.where})") for each in published.claims]
    return _make_table(("",), rows, ("",))


def _render_parameters(name: str) -> Table:
    rows = [
        (key, _wrap_at_commas(format_value(each.full)), _wrap_at_commas(format_value(each.quick)), each.words)
        for key, each in study(name).parameters.items()
    ]
    return _make_table(("", "in full", "quick"), rows, ("",))


def _make_table(
    kept: Sequence[str], rows: Sequence[Sequence[str]], wrapped: Sequence[str] = (), justify: JustifyMethod = "left"
) -> Table:
    """A table that cuts no cell short on a narrow terminal: in `kept` columns headings are wrapped, and no cell is."""
    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim", show_header=any((*kept, *wrapped)))
    for i, heading in enumerate(kept):
        words = [min(len(word), _HEADING_WIDTH) for word in heading.split()]
        cells = [len(line) for row in rows for line in row[i].split("\n")]
        table.add_column(heading, overflow="fold", width=max([*words, *cells]), justify=justify if i else "left")
    for heading in wrapped:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _wrap_at_commas(listed: str) -> str:
    """A list in lines that end at its commas."""
    lines = [""]
    for word in re.findall(r"[^,]*,?", listed):
        if len(lines[-1]) + len(word) > _LIST_WIDTH and lines[-1]:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _render_published_table(published: Published, key: str) -> Table:
    columns = published.columns(key)
    rows = [
        (row, *(_format_published(published.number(key, row, column)) for column in columns))
        for row in published.rows(key)
    ]
    return _make_table(("", *columns), rows, justify="right")


def _format_published(found: Number | None) -> str:
    if found is None:
        return ""
    return f"{found.value:,.10g}" + ("" if found.uncertainty is None else f" ± {found.uncertainty:g}")


def run_study(request: Request) -> None:
    """Run a study, show its verdicts, say what was written."""
    given: dict[str, object] = dict(request.given)
    if "seeds" in given and "seeds" in study(request.name).parameters:
        given["seeds"] = parse_seeds(request.given["seeds"])
    try:
        with MessageProgressBar() as bar:

            def tell(stage: str, done: int, share: float, note: str = "") -> None:
                bar.show(f"{stage}  {note}", share)

            run = run_it(
                request.name,
                output=request.output,
                models=request.models,
                data=request.data,
                quick=request.quick,
                only=request.only,
                progress=tell,
                **given,
            )
    except KeyboardInterrupt as stop:
        kept = len(list((request.output / "arms").glob("*.json")))
        words = f"{kept} finished {'arm is' if kept == 1 else 'arms are'} kept in {request.output}"
        raise Interruption(f"{words}; go on with: {shlex.join(['isoscope', *command_arguments])}") from stop
    show(render_run(run))
    for name in ("results.json", "page.html", "summary.md"):
        _report_written(request.output / name)


def render_run(run: StudyRun) -> Group:
    """A run for rich's console: which claims hold, then the tables."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("claim", "published", "ours", "holds?"):
        table.add_column(heading, overflow="fold")
    for each in run.outcome.verdicts:
        table.add_row(each.claim.words, each.published, each.ours, Text(each.holds.value, _STYLES[each.holds]))
    parts: list[RenderableType] = [
        Text(run.study.published.paper.title, "bold"),
        Text(f"{format_claim_counts(run.outcome.verdicts)} {format_run_time(run.facts)}."),
        Text(),
        table,
    ]
    for drawn in run.outcome.tables:
        numbers = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        numbers.add_column(drawn.row_name, overflow="fold")
        for column in drawn.columns:
            numbers.add_column(column, justify="right", overflow="fold")
        for row in drawn.rows:
            ours = (row.ours.get(column) for column in drawn.columns)
            numbers.add_row(
                row.name, *("" if value is None else format_number(value.mean, drawn.digits) for value in ours)
            )
            if row.published:
                theirs = (row.published.get(column) for column in drawn.columns)
                cells = ("" if value is None else format_number(value.value, drawn.digits) for value in theirs)
                numbers.add_row(f"  published{f', {row.of}' if row.of else ''}", *cells, style="dim")
        parts += [Text(), Text(drawn.title, "bold"), numbers]
    return Group(*parts)
