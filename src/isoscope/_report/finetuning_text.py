"""Render a fine-tuning run for the terminal and for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from isoscope._core.errors import plural
from isoscope._report.html import join_markup, render_notebook_table, tag
from isoscope._report.narrate import describe_term, finetuning_headline
from isoscope._report.terminal import Paragraph, to_plain_text
from isoscope.finetuning.result import Spread

if TYPE_CHECKING:
    from isoscope.finetuning.result import FineTuning

_SHAPE_NAMES = {
    "anisotropy_1": "anisotropy₁",
    "anisotropy_1_centered": "anisotropy₁, centered",
    "isoscore_unbiased": "IsoScore, unbiased",
    "mean_cosine": "mean cosine",
    "silhouette": "silhouette of the classes",
}


_COLUMNS = ("at the start", "at the end", "mean of the last 30%")


def render_finetuning_text(result: FineTuning) -> str:
    """Return the settings, the verdict on the task, the scores and the shape of the last layer as plain text."""
    return to_plain_text(render_finetuning(result))


def render_finetuning_notebook(result: FineTuning) -> str:
    """Return the verdict on the task, the scores and the shape of the last layer as a table for a notebook."""
    name = Path(result.settings.model).name or result.settings.model
    about = f" {result.settings.task}; regularizer {result.settings.arm}; {plural(len(result.seeds), 'seed')}."
    lead = [
        join_markup(tag("strong", tag("bdi", name)), " on", about),
        tag("strong", finetuning_headline(result)),
    ]
    notes = [*describe_term(result), *result.notes]
    return render_notebook_table(lead, ("", *_COLUMNS), _list_rows(result), notes=notes, align="right")


def render_finetuning(result: FineTuning) -> Group:
    """Return the settings, and a table of the scores and the shape of the last layer."""
    settings = result.settings
    name = Path(settings.model).name or settings.model
    seeds = "seed" if len(result.seeds) == 1 else "seeds"
    heading = Text.assemble(
        (f"{name} on {settings.task}", "bold"),
        f"  regularizer {settings.arm}; {seeds} {', '.join(str(each.seed) for each in result.seeds)}; "
        f"{plural(settings.steps, 'step')}",
    )
    note = Text("± is the standard deviation over the seeds" if len(result.seeds) > 1 else "", "dim")
    verdict = Paragraph(finetuning_headline(result), "bold" if all(result.learned) else "bold red")
    notes = [*describe_term(result), *result.notes]
    paragraphs = (Paragraph(each, "dim") for each in notes)
    return Group(verdict, Text(), heading, Text(), _render_table(result), note, *paragraphs)


def _break_heading(heading: str) -> str:
    """Return a heading in two lines, so that the table fits a narrow terminal."""
    words = heading.split(" ")
    return "\n".join([" ".join(words[:2]), " ".join(words[2:])])


def _render_table(result: FineTuning) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for heading in _COLUMNS:
        table.add_column(_break_heading(heading), justify="right", no_wrap=True)
    rows = _list_rows(result)
    for i, row in enumerate(rows):
        if i == len(result.scores):
            table.add_row(f"{result.layers[-1].replace('_', ' ')}:", style="dim")
        table.add_row(*row, style="" if i else "bold")
    return table


def _list_rows(result: FineTuning) -> list[tuple[str, str, str, str]]:
    """Return the scores, then the shape of the last layer: name, at the start, at the end, and mean of the last 30%."""
    start, final, late = _initial_values(result), result.final, result.late
    rows = [(score, "", str(final[score]), str(late[score])) for score in result.scores]
    for measurement, title in _SHAPE_NAMES.items():
        key = f"{result.layers[-1]}/{measurement}"
        if final[key].mean == final[key].mean:  # the silhouette of grades is NaN
            rows.append((title, str(start[key]), str(final[key]), str(late[key])))
    return rows


def _initial_values(result: FineTuning) -> dict[str, Spread]:
    """Return the shape of each layer before the first step."""
    rows = [row for seed in result.seeds for row in seed.layers if row["step"] == 0]
    keys = [(layer, name) for layer in result.layers for name in _SHAPE_NAMES]
    return {f"{layer}/{name}": Spread.of(row[name] for row in rows if row["layer"] == layer) for layer, name in keys}
