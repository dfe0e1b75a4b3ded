"""The HTML page and the Markdown summary of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isoscope
from isoscope._io.files import atomic_replace
from isoscope._report.html import (
    document,
    join_markup,
    render_date,
    render_definition_list,
    render_main,
    render_notebook_table,
    render_scrollable,
    section,
    tag,
)
from isoscope.studies.figures import render_figure, render_svg
from isoscope.studies.formatting import (
    OBSERVATIONS,
    figure_name,
    format_claim_counts,
    format_number,
    format_published,
    format_run_time,
    write_powers,
)
from isoscope.studies.study import Holds
from isoscope.studies.verdicts import RULE

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.studies.study import Outcome, Row, Study, Table, Value, Verdict


def write_summary(study: Study, outcome: Outcome, facts: Mapping[str, Any], folder: Path) -> None:
    """Write ``summary.md`` and its figures in ``figures/``; remove the figures of earlier runs."""
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    names = {each.key: f"{figure_name(each.key)}.svg" for each in outcome.figures}
    for each in outcome.figures:
        with atomic_replace(figures / names[each.key]) as path:
            path.write_text(render_svg(each, each.title), encoding="utf-8")
    for path in figures.glob("*.svg"):
        if path.name not in names.values():
            path.unlink()
    with atomic_replace(folder / "summary.md") as path:
        path.write_text(render_summary(study, outcome, facts), encoding="utf-8")


def render_summary(study: Study, outcome: Outcome, facts: Mapping[str, Any]) -> str:
    """Return a Markdown summary of the run: claims, tables, figures and notes."""
    paper = study.published.paper
    parts = [
        f"# {paper.title}",
        f"{paper.authors}, {paper.venue} {paper.year}. `isoscope study run {study.name}`",
        f"**{format_claim_counts(outcome.verdicts)}** {study.about}",
        render_claims(outcome.verdicts),
        *([f"## {OBSERVATIONS}", render_claims(outcome.observations)] if outcome.observations else []),
        *(["## Figures"] if outcome.figures else []),
        *(f"![{each.title}](figures/{figure_name(each.key)}.svg)\n\n{each.caption}" for each in outcome.figures),
        "## Published numbers and ours",
        *(part for each in outcome.tables for part in _render_numbers(each)),
        "## How this was run",
        "\n".join(f"- {each}" for each in [*_format_facts(facts), RULE, *outcome.notes]),
    ]
    return "\n\n".join(parts) + "\n"


def render_claims(verdicts: Sequence[Verdict]) -> str:
    """Return a Markdown table of claims with the published evidence, our evidence, the verdict and its reason."""
    return _render_markdown_table(
        ("claim", "published", "ours", "holds?"),
        [
            (
                f"{each.claim.words} ({each.claim.where})",
                each.published,
                each.ours,
                _format_verdict(each.holds.value, each.why),
            )
            for each in verdicts
        ],
    )


def _format_verdict(holds: str, why: str) -> str:
    return f"**{holds}**{f': {why}' if why else ''}"


def _render_numbers(table: Table) -> list[str]:
    rows = []
    for row in table.rows:
        rows.append(
            (row.name, *(_format_value(row.ours.get(each), table.choose_digits(row, each)) for each in table.columns))
        )
        if row.published:
            cells = (
                format_published(row.published.get(each), row.ours.get(each), table.choose_digits(row, each))
                for each in table.columns
            )
            rows.append(
                (f"*published{f', {row.of}' if row.of else ''}*", *(f"*{each}*" if each else "" for each in cells))
            )
    title = f"### {table.title}{f' ({table.where})' if table.where else ''}"
    return [
        title,
        *([table.note] if table.note else []),
        _render_markdown_table((table.row_name, *table.columns), rows),
    ]


def _format_value(value: Value | None, digits: int) -> str:
    if value is None:
        return "–"
    return format_number(value.mean, digits) + (
        f" ± {format_number(value.std, digits)}" if value.std == value.std else ""
    )


def _format_facts(facts: Mapping[str, Any]) -> list[str]:
    settings = ", ".join(f"{name} {value}" for name, value in facts["parameters"].items())
    return [
        f"models: {', '.join(facts['models'])}",
        f"data: {', '.join(facts['data'])}",
        f"parameters{' (quick run)' if facts['quick'] else ''}: {settings}",
        f"duration: {format_run_time(facts)}; hardware: {facts['hardware']}",
        f"versions: {', '.join(f'{name} {value}' for name, value in facts['versions'].items())}",
    ]


def _render_markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


_LONG_TABLE = 8  # a table with more rows is folded
_BADGES = {Holds.yes: "ok", Holds.partly: "look", Holds.no: "bad", Holds.undecided: "", Holds.untested: ""}


def render_study_page(study: Study, outcome: Outcome, facts: Mapping[str, Any]) -> str:
    """Return the HTML page of a run."""
    paper = study.published.paper
    page = document(
        f"{paper.title}: replication",
        isoscope.__version__,
        tag("a", "Skip to the claims", href="#claims", class_="skip"),
        tag(
            "header",
            tag("p", f"isoscope study {study.name}", class_="brand"),
            tag("p", paper.title, class_="source"),
            tag("p", f"{paper.authors}, {paper.venue} {paper.year} · ", render_date(), class_="size"),
            tag("h1", format_claim_counts(outcome.verdicts)),
            tag("p", study.about, class_="reasons"),
        ),
        render_main(
            _render_claims("claims", "What the paper claims, and whether it holds here", outcome.verdicts),
            _render_claims("observations", OBSERVATIONS, outcome.observations) if outcome.observations else None,
            section("figures", "Figures", *(render_figure(each) for each in outcome.figures))
            if outcome.figures
            else None,
            section("numbers", "Published numbers and ours", *(_render_table(each) for each in outcome.tables)),
            _render_notes(outcome, facts),
        ),
        styles=["page.css", "advice.css", "training.css", "study.css"],
        scripts=["page.js"],
    )
    return write_powers(page)


def _render_claims(name: str, title: str, verdicts: Sequence[Verdict]) -> Section:
    head = ("claim", "published", "ours", "holds?")
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
        tag("tbody", *map(_render_claim, verdicts)),
        class_="trials claims",
    )
    return section(name, title, render_scrollable(table, labeled_by=f"{name}-title"))


def _render_claim(verdict: Verdict) -> Markup:
    badge = tag("span", verdict.holds.value, class_=f"badge {_BADGES[verdict.holds]}".strip())
    return tag(
        "tr",
        tag("th", verdict.claim.words, " ", tag("small", verdict.claim.where), scope="row"),
        tag("td", verdict.published, data_label="published"),
        tag("td", verdict.ours, data_label="ours"),
        tag("td", badge, tag("p", verdict.why, class_="hint") if verdict.why else None),
    )


def _render_table(table: Table) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in (table.row_name, *table.columns))))
    rows = [each for row in table.rows for each in _render_rows(row, table)]
    name = f"table-{figure_name(table.key)}"
    body = tag("table", head, tag("tbody", *rows), class_="trials")
    return tag(
        "div",
        tag("h3", f"{table.title}{f' ({table.where})' if table.where else ''}", id=f"{name}-title"),
        tag("p", table.note, class_="hint") if table.note else None,
        _fold(render_scrollable(body, labeled_by=f"{name}-title"), len(rows)),
        class_="study-figure",
    )


def _fold(table: Markup, rows: int) -> Markup:
    """Return a long table behind a line that unfolds it; printing unfolds it, too."""
    if rows <= _LONG_TABLE:
        return table
    return tag("details", tag("summary", f"Show all {rows} rows"), table, class_="more")


def _render_rows(row: Row, table: Table) -> list[Markup]:
    """Return the row of our numbers, and the row of published numbers with the differences in parentheses."""
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", row.name), scope="row"),
            *(_render_value(row.ours.get(each), table.choose_digits(row, each)) for each in table.columns),
            class_="ours",
        )
    ]
    if row.published:
        cells = [
            tag("td", format_published(row.published.get(each), row.ours.get(each), table.choose_digits(row, each)))
            for each in table.columns
        ]
        name = f"published{f', {row.of}' if row.of else ''}"
        rows.append(tag("tr", tag("th", name, scope="row"), *cells, class_="theirs"))
    return rows


def _render_value(value: Value | None, digits: int) -> Markup:
    if value is None:
        return tag("td", "–")
    spread = f" ± {format_number(value.std, digits)}" if value.std == value.std else ""
    title = None
    if spread:
        low, high = value.interval
        title = (
            f"95% interval over {len(value.seeds)} seeds: {format_number(low, digits)} to {format_number(high, digits)}"
        )
    return tag("td", format_number(value.mean, digits), tag("small", spread) if spread else None, title=title)


def _render_notes(outcome: Outcome, facts: Mapping[str, Any]) -> Section:
    rows: list[tuple[object, object]] = [
        ("Models", ", ".join(facts["models"])),
        ("Data", ", ".join(facts["data"])),
        ("Version", "quick (smaller than in the paper)" if facts["quick"] else "full"),
        *(("Parameter", f"{name} {value}") for name, value in facts["parameters"].items()),
        ("Duration", f"{format_run_time(facts)}, {facts['hardware']}"),
        ("Versions", ", ".join(f"{name} {value}" for name, value in facts["versions"].items())),
        ("±", "standard deviation over the seeds; hover over a cell to see the 95% interval of its mean"),
        ("Verdicts", RULE),
        *(("Note", note) for note in outcome.notes),
    ]
    return section("notes", "How this was run, and differences from the paper", render_definition_list(*rows))


# notebooks


def render_study_notebook(study: Study, outcome: Outcome, folder: Path) -> str:
    """Return the claims of the paper with their verdicts as a table for a notebook."""
    lead = [
        join_markup(tag("strong", study.published.paper.title), f" ({study.name})"),
        tag("strong", format_claim_counts(outcome.verdicts)),
    ]
    rows = [(each.claim.words, each.published, each.ours, each.holds.value) for each in outcome.verdicts]
    notes = [f"All tables and figures are in {folder / 'page.html'}."]
    return render_notebook_table(lead, ("claim", "published", "ours", "holds?"), rows, notes=notes, wrap=True)
