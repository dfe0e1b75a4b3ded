"""Render the answer of `isoscope same` as text for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isoscope._report.same_words import RELATION_NAMES, describe_reasons, same_headline
from isoscope._report.terminal import Paragraph, to_plain_text
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope.comparing.sameness import Sameness

ANSWER_STYLES = {"same": "green", "undecided": "yellow"}
_WIDTH = 80
_LISTED = 20  # ids


def render_same_text(result: Sameness) -> str:
    """Return the answer as plain text."""
    return to_plain_text(render_same(result), _WIDTH)


def render_same(result: Sameness) -> Group:
    """Return the answer for rich's console: the headline, the reasons and the tests."""
    parts: list[RenderableType] = [
        Paragraph(same_headline(result), f"bold {ANSWER_STYLES.get(result.answer, 'red')}"),
        *([Paragraph(reasons)] if (reasons := describe_reasons(result)) else []),
        Text(),
        Text(f"{result.old}  {result.n_old:,} × {result.d_old}", "dim"),
    ]
    if result.new:
        parts.append(Text(f"{result.new}  {result.n_new:,} × {result.d_new}", "dim"))
    if result.fits:
        parts += [Text(), _render_fits(result)]
    if result.tests:
        parts += [Text(), _render_tests(result)]
    if result.changed:
        shown = ", ".join(str(each) for each in result.changed[:_LISTED])
        more = (
            f" and {result.n_changed - _LISTED:,} more (--json lists up to 1,000)" if result.n_changed > _LISTED else ""
        )
        what = "Rows of the second space" if result.answer == "mixed" else "Rows that moved"
        parts += [Text(), Paragraph(f"{what}: {shown}{more}")]
    if result.notes:
        parts += [Text(), *(Paragraph(note, "dim") for note in result.notes)]
    return Group(*parts)


def _render_fits(result: Sameness) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("explained by")
    table.add_column("of the rows", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("median\nresidual", justify="right")
    for fit in result.fits:
        decided = fit.relation == result.decided_by
        interval = f"{format_number(fit.low, 'share')} … {format_number(fit.high, 'share')}"
        table.add_row(
            Text(("→ " if decided else "  ") + RELATION_NAMES[fit.relation], "bold" if decided else ""),
            format_number(fit.kept, "share"),
            Text(interval, "dim"),
            format_number(fit.residual, "power"),
        )
    return table


def _render_tests(result: Sameness) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("test")
    table.add_column("value", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("p", justify="right")
    for test in result.tests:
        decided = test.name == result.decided_by
        table.add_row(
            Text(("→ " if decided else "  ") + test.title, "bold" if decided else ""),
            format_number(test.value, "power"),
            format_number(test.limit, "power"),
            "–" if test.p_value is None else format_number(test.p_value, "power"),
        )
    return table
