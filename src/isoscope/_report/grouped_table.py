"""An audit by groups on a terminal and in a notebook: a row for each group, a column for each headline number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isoscope._report.html import tag
from isoscope._report.terminal import COLORS, MARKS, to_plain_text

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouped import GroupedAudit

HEADLINES = {
    "mean_cosine": "mean cosine",
    "isoscore": "IsoScore",
    "anisotropy": "first share",
    "intrinsic_dimension": "local dim.",
    "clusters": "clusters",
    "labels": "labels",
    "inter_type": "S_inter",
    "intra_type": "S_intra",
    "frequency": "freq.",
}
"""What a table shows of each group, under names so short that a terminal of 80 columns holds them."""

_WIDTH = 140


def render_text(grouped: GroupedAudit) -> str:
    """The table as plain text."""
    return to_plain_text(render_grouped_audit(grouped), _WIDTH)


def render_grouped_audit(grouped: GroupedAudit) -> Group:
    """The table for rich's console."""
    headlines = _find_headlines([grouped])
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(Text(grouped.by), overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    for name in headlines:
        table.add_column(HEADLINES[name].replace(" ", "\n"), justify="right", no_wrap=True)
    for name, audit in grouped.groups.items():
        table.add_row(Text(name), f"{audit.n:,}", *(_render_cell(audit.get(headline)) for headline in headlines))
    return Group(_render_headline(grouped), Text(), table, *_render_notes(grouped))


def render_side_by_side(many: Sequence[GroupedAudit]) -> Group:
    """Several audits by groups: a table for each headline number, with a row for each group and a column for each."""
    names = list(dict.fromkeys(name for grouped in many for name in grouped.groups))
    parts: list[RenderableType] = [
        line for grouped in many for line in (_render_headline(grouped), *_render_notes(grouped))
    ]
    for headline in _find_headlines(many):
        table = Table(
            title=HEADLINES[headline], title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
        )
        table.add_column(Text(many[0].by), overflow="fold")
        for grouped in many:
            table.add_column(Text(grouped.source), justify="right", overflow="fold")
        for name in names:
            audits = (grouped.groups.get(name) for grouped in many)
            table.add_row(
                Text(name), *(_render_cell(None if audit is None else audit.get(headline)) for audit in audits)
            )
        parts += [Text(), table]
    return Group(*parts)


def render_notebook_table(grouped: GroupedAudit) -> str:
    """The table for a notebook: no script, no ids, its own colours."""
    cell = "padding:.25em .9em .25em 0;text-align:right;background:none;white-space:nowrap;"
    edge = "border:0;border-top:1px solid rgba(128,128,128,.35);font-variant-numeric:tabular-nums"
    headlines = _find_headlines([grouped])
    heads = (grouped.by, "rows", *(HEADLINES[name] for name in headlines))
    head = tag("tr", *(tag("th", name, scope="col", style=cell + "border:0;font-weight:600") for name in heads))
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", name), scope="row", style=cell + edge),
            tag("td", f"{audit.n:,}", style=cell + edge),
            *(tag("td", _format_cell(audit.get(headline)), style=cell + edge) for headline in headlines),
            style="background:none",
        )
        for name, audit in grouped.groups.items()
    ]
    table = tag(
        "table",
        tag("thead", head),
        tag("tbody", *rows),
        style="border-collapse:collapse;border:0;color:inherit;margin:.5em 0",
    )
    notes = [tag("p", str(note), style="margin:.3em 0;opacity:.8") for note in _render_notes(grouped)]
    lead = tag("p", tag("strong", tag("bdi", grouped.source)), f", by {grouped.by}", style="margin:.3em 0")
    return tag("div", lead, tag("div", table, style="overflow-x:auto"), *notes, style="color:inherit")


def _find_headlines(many: Sequence[GroupedAudit]) -> list[str]:
    """The headline numbers that some group has."""
    audits = [audit for grouped in many for audit in grouped.groups.values()]
    return [name for name in HEADLINES if any(name in audit for audit in audits)]


def _render_headline(grouped: GroupedAudit) -> Text:
    number = f"{len(grouped)} groups" if len(grouped) != 1 else "1 group"
    sizes = {audit.d for audit in grouped.groups.values()}
    rows = sum(audit.n for audit in grouped.groups.values())
    about = f" by {grouped.by}: {number}, {rows:,} × {', '.join(map(str, sizes))}, "
    return Text.assemble(
        (grouped.source, "bold"), about, (f"the worst is {grouped.verdict}", f"bold {COLORS[grouped.verdict]}")
    )


def _render_notes(grouped: GroupedAudit) -> list[Text]:
    notes = [f"not measured: {grouped.by} {name}, {why}" for name, why in grouped.skipped.items()]
    if grouped.left_out:
        notes.append(f"{grouped.left_out:,} rows are in no group of these")
    if any(audit.n > grouped.settings.sample for audit in grouped.groups.values()):
        notes.append(f"what takes pairs of rows rests on a sample of {grouped.settings.sample:,} rows in a group")
    return [Text(note, "dim") for note in notes]


def _render_cell(finding: Finding | None) -> Text:
    if finding is None:
        return Text("–")
    return Text.assemble(finding.shown, ("\u00a0" + MARKS[finding.verdict], COLORS[finding.verdict]))


def _format_cell(finding: Finding | None) -> str | Markup:
    return "–" if finding is None else f"{finding.shown} {MARKS[finding.verdict]}"
