"""The advice on a terminal: the verdict, then a table of all candidates with scores and intervals."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from isoscope._report.narrate import format_interval, format_signed

if TYPE_CHECKING:
    from isoscope.advising.advise import Advice, Trial

_WIDTH = 120
MARKS = {"gain": "▲", "noise": "·", "loss": "▼"}
COLORS = {"gain": "green", "noise": "dim", "loss": "red"}
SHAPE_NAMES = {"isoscore": "IsoScore", "mean_cosine": "mean cosine", "silhouette": "silhouette"}


def render_text(advice: Advice) -> str:
    """Return the advice as plain text."""
    out = io.StringIO()
    Console(file=out, width=_WIDTH, color_system=None, highlight=False).print(render_advice(advice))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def render_advice(advice: Advice) -> Group:
    """Return the advice for rich's console: the verdict, then the table."""
    parts: list[RenderableType] = [
        Text.assemble((advice.source, "bold"), f"  {advice.n:,} × {advice.d}, by {advice.settings.metric}"),
        Text(),
        Text(advice.paragraph),
        Text(),
        _render_table(advice),
        Text(
            f"{MARKS['gain']} significant gain, {MARKS['loss']} significant loss, {MARKS['noise']} neither",
            "dim",
        ),
    ]
    parts += [Text(note, "dim") for note in advice.notes]
    parts += [Text(f"not tried: {name}: {reason}", "dim") for name, reason in advice.left_out.items()]
    return Group(*parts)


def _render_table(advice: Advice) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column(_stack_words(advice.measures[advice.measure]), justify="right", no_wrap=True)
    table.add_column(f"gain, {100 * advice.settings.confidence:g}%", no_wrap=True)
    others = [name for name in advice.measures if name != advice.measure]
    for name in others:
        table.add_column(_stack_words(advice.measures[name]), justify="right", no_wrap=True)
    shapes = [name for name in SHAPE_NAMES if name in advice.trials[0].shape]
    if "silhouette" in shapes:  # three measures leave room for two shapes
        shapes.remove("mean_cosine")
    for name in shapes:
        table.add_column(_stack_words(SHAPE_NAMES[name]), justify="right", style="dim", no_wrap=True)
    for i, trial in enumerate(advice.trials):
        chosen = i == advice.chosen
        cells = [
            Text(("→ " if chosen else "  ") + trial.name, "bold" if chosen else ""),
            Text(f"{trial[advice.measure].value:.3f}", "bold" if chosen else ""),
            _render_gain(trial, advice.measure) if i else Text(""),
        ]
        cells += [_render_score(trial, name, first=not i) for name in others]
        cells += [Text(_format_shape(trial.shape.get(name))) for name in shapes]
        table.add_row(*cells)
    return table


def _format_shape(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _stack_words(words: str) -> str:
    """Return a heading with one word on each line."""
    return words.replace(" ", "\n")


def _render_gain(trial: Trial, measure: str) -> Text:
    score = trial[measure]
    color = COLORS[score.verdict]
    return Text.assemble(
        (f"{MARKS[score.verdict]} {format_signed(score.gain):>6} ", color), (format_interval(score), "dim")
    )


def _render_score(trial: Trial, measure: str, *, first: bool) -> Text:
    score = trial[measure]
    mark = " " if first else MARKS[score.verdict]
    return Text.assemble(f"{score.value:.3f} ", (mark, COLORS[score.verdict]))
