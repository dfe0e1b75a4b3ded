"""A run of a study as Markdown with SVG figures: what is kept in documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._io.files import replacing
from isoscope.studies.figures import svg_file
from isoscope.studies.verdicts import RULE
from isoscope.studies.words import OBSERVATIONS, counted, figure_name, number, theirs, took

if TYPE_CHECKING:
    from isoscope.studies.outcome import Outcome, Table, Value, Verdict
    from isoscope.studies.study import Study


def write_summary(study: Study, outcome: Outcome, told: Mapping[str, Any], folder: Path) -> None:
    """Write ``summary.md`` and the figures beside it, in ``figures/``; those of a wider start before go."""
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    names = {each.key: f"{figure_name(each.key)}.svg" for each in outcome.figures}
    for each in outcome.figures:
        with replacing(figures / names[each.key]) as path:
            path.write_text(svg_file(each, each.title), encoding="utf-8")
    for path in figures.glob("*.svg"):
        if path.name not in names.values():
            path.unlink()
    with replacing(folder / "summary.md") as path:
        path.write_text(summary(study, outcome, told), encoding="utf-8")


def summary(study: Study, outcome: Outcome, told: Mapping[str, Any]) -> str:
    """The run as Markdown: claims, tables, figures, what differs."""
    paper = study.published.paper
    parts = [
        f"# {paper.title}",
        f"{paper.authors}, {paper.venue} {paper.year}. `isoscope study run {study.name}`",
        f"**{counted(outcome.verdicts)}** {study.about}",
        claims_table(outcome.verdicts),
        *([f"## {OBSERVATIONS}", claims_table(outcome.observations)] if outcome.observations else []),
        "## Published and ours",
        *(part for each in outcome.tables for part in _numbers(each)),
        *(["## Figures"] if outcome.figures else []),
        *(f"![{each.title}](figures/{figure_name(each.key)}.svg)\n\n{each.caption}" for each in outcome.figures),
        "## How this was run",
        "\n".join(f"- {each}" for each in [*_facts(told), RULE, *outcome.notes]),
    ]
    return "\n\n".join(parts) + "\n"


def claims_table(verdicts: Sequence[Verdict]) -> str:
    """Return claims with the published evidence, ours, the verdict and its reason as a Markdown table."""
    return _table(
        ("claim", "published", "ours", "holds?"),
        [
            (f"{each.claim.words} ({each.claim.where})", each.published, each.ours, _held(each.holds.value, each.why))
            for each in verdicts
        ],
    )


def _held(holds: str, why: str) -> str:
    return f"**{holds}**{f': {why}' if why else ''}"


def _numbers(table: Table) -> list[str]:
    rows = []
    for row in table.rows:
        rows.append((row.name, *(_ours(row.ours.get(each), table.digits_of(row, each)) for each in table.columns)))
        if row.published:
            cells = (
                theirs(row.published.get(each), row.ours.get(each), table.digits_of(row, each))
                for each in table.columns
            )
            rows.append(
                (f"*published{f', {row.of}' if row.of else ''}*", *(f"*{each}*" if each else "" for each in cells))
            )
    title = f"### {table.title}{f' ({table.where})' if table.where else ''}"
    return [title, *([table.note] if table.note else []), _table((table.row_name, *table.columns), rows)]


def _ours(value: Value | None, digits: int) -> str:
    if value is None:
        return "–"
    return number(value.mean, digits) + (f" ± {number(value.std, digits)}" if value.std == value.std else "")


def _facts(told: Mapping[str, Any]) -> list[str]:
    settings = ", ".join(f"{name} {value}" for name, value in told["parameters"].items())
    return [
        f"models: {', '.join(told['models'])}",
        f"data: {', '.join(told['data'])}",
        f"{'quick; ' if told['quick'] else ''}{settings}",
        f"{took(told)}; {told['hardware']}",
        f"with {', '.join(f'{name} {value}' for name, value in told['versions'].items())}",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])
