"""A run of a study as Markdown with SVG figures: what is kept in documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._io.files import atomic_replace
from isoscope.studies.figures import render_svg
from isoscope.studies.verdicts import RULE
from isoscope.studies.words import (
    OBSERVATIONS,
    figure_name,
    format_claim_counts,
    format_number,
    format_published,
    format_run_time,
)

if TYPE_CHECKING:
    from isoscope.studies.outcome import Outcome, Table, Value, Verdict
    from isoscope.studies.study import Study


def write_summary(study: Study, outcome: Outcome, told: Mapping[str, Any], folder: Path) -> None:
    """Write ``summary.md`` and the figures beside it, in ``figures/``; those of a wider start before go."""
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
        path.write_text(render_summary(study, outcome, told), encoding="utf-8")


def render_summary(study: Study, outcome: Outcome, told: Mapping[str, Any]) -> str:
    """The run as Markdown: claims, tables, figures, what differs."""
    paper = study.published.paper
    parts = [
        f"# {paper.title}",
        f"{paper.authors}, {paper.venue} {paper.year}. `isoscope study run {study.name}`",
        f"**{format_claim_counts(outcome.verdicts)}** {study.about}",
        render_claims(outcome.verdicts),
        *([f"## {OBSERVATIONS}", render_claims(outcome.observations)] if outcome.observations else []),
        "## Published and ours",
        *(part for each in outcome.tables for part in _render_table(each)),
        *(["## Figures"] if outcome.figures else []),
        *(f"![{each.title}](figures/{figure_name(each.key)}.svg)\n\n{each.caption}" for each in outcome.figures),
        "## How this was run",
        "\n".join(f"- {each}" for each in [*_format_facts(told), RULE, *outcome.notes]),
    ]
    return "\n\n".join(parts) + "\n"


def render_claims(verdicts: Sequence[Verdict]) -> str:
    """Return claims with the published evidence, ours, the verdict and its reason as a Markdown table."""
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


def _render_table(table: Table) -> list[str]:
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


def _format_facts(told: Mapping[str, Any]) -> list[str]:
    settings = ", ".join(f"{name} {value}" for name, value in told["parameters"].items())
    return [
        f"models: {', '.join(told['models'])}",
        f"data: {', '.join(told['data'])}",
        f"{'quick; ' if told['quick'] else ''}{settings}",
        f"{format_run_time(told)}; {told['hardware']}",
        f"with {', '.join(f'{name} {value}' for name, value in told['versions'].items())}",
    ]


def _render_markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])
