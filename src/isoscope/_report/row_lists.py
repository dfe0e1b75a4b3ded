"""Render the lists of the worst rows of an audit, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from isoscope._report.html import join_markup, render_scrollable, render_table_head, section, tag

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.worst_rows import RowList, WorstRows

FINDING_LISTS = {
    "near_duplicates": ("near_duplicates",),
    "duplicates": ("near_duplicates",),
    "hubness": ("hubs", "anti_hubs"),
    "broken_rows": ("zero_rows",),
    "labels": ("label_conflicts",),
}
"""The lists that show the rows behind a finding."""

_MIN_CELL_WIDTH, _MAX_CELL_WIDTH = 9, 22  # characters of a cell in the terminal, except texts

TITLE = "Rows to check"
_MEASURED_LISTS = {"outlier_score": ("outliers",), "k_occurrence": ("hubs", "anti_hubs")}
_MEASUREMENT_NAMES = {"outlier_score": "Outlier scores", "k_occurrence": "Hubs and anti-hubs"}


def render_worst_rows(audit: Audit) -> Section | None:
    """Return the lists of the worst rows as a section of the page; None if the audit has none."""
    worst = audit.worst
    if worst is None:
        return None
    return section(
        "rows",
        TITLE,
        tag("p", worst.note, class_="hint"),
        *(_render_list(each) for each in worst.nonempty),
        tag("p", describe_empty(worst), class_="hint"),
        *(tag("p", note, class_="hint") for note in describe_unmeasured(worst)),
    )


def render_list_links(audit: Audit, finding: str) -> Markup | None:
    """Return links from a finding to the lists of its rows; None if there are none."""
    found = [] if audit.worst is None else audit.worst.nonempty
    links = [
        join_markup(" ", tag("a", f"{each.title} ({each.count:,})", href=f"#rows-{each.name}"))
        for each in found
        if each.name in FINDING_LISTS.get(finding, ())
    ]
    return tag("p", "See the rows:", *links, class_="hint") if links else None


def describe_empty(worst: WorstRows) -> str | None:
    """Return a sentence about the kinds of rows that were measured but not found; None if there are none."""
    unmeasured = {kind for name in worst.notes for kind in _MEASURED_LISTS.get(name, ())}
    empty = [each.title.lower() for each in worst.lists if not each.count and each.name not in unmeasured]
    return f"Not found: {', '.join(empty)}." if empty else None


def describe_unmeasured(worst: WorstRows) -> list[str]:
    """Return a sentence about each measurement that could not be made."""
    return [f"{_MEASUREMENT_NAMES.get(name, name)} were not measured: {why}." for name, why in worst.notes.items()]


def _render_list(rows: RowList) -> Markup:
    names = _id_names(rows.entries)
    has_text = any("text" in entry for entry in rows.entries)
    body = []
    for entry in rows.entries:
        pair = [entry, entry["other"]] if "other" in entry else [entry]
        cells = [tag("td", *_lines([each[name] for each in pair])) for name in names]
        cells += [tag("td", format_value(name, entry[name])) for name in rows.values]
        if has_text:
            cells.append(tag("td", *_lines([each.get("text", "") for each in pair]), class_="text"))
        body.append(tag("tr", *cells))
    head = render_table_head(*names, *rows.values.values(), *(["text"] if has_text else []))
    title = f"{rows.title}: {rows.count:,}" + (f", the worst {len(rows.entries):,}" if _is_cut(rows) else "")
    return tag(
        "div",
        tag("h3", title, id=f"rows-{rows.name}"),
        tag("p", rows.meaning),
        render_scrollable(tag("table", head, tag("tbody", *body), class_="rows"), labeled_by=f"rows-{rows.name}"),
        class_="row-list",
    )


def _lines(values: Sequence[object]) -> list[Markup]:
    return [tag("div", tag("bdi", value)) for value in values]


def _is_cut(rows: RowList) -> bool:
    return rows.count > len(rows.entries)


def _id_names(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the columns that identify a row: its number, and its id if there are ids."""
    return ["row", *(["id"] if any("id" in entry for entry in entries) else [])]


def format_value(name: str, value: Any) -> str:
    """Return a number of an entry as text.

    >>> format_value("cosine", 0.99996), format_value("k_occurrence", 1234), format_value("p", 1.2e-7)
    ('0.99996', '1,234', '1.2e−7')
    >>> format_value("is_zero", True), format_value("label", "a")
    ('yes', 'a')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if "label" in name else f"{value:,}"
    if isinstance(value, float):
        if name == "p":
            return f"{value:.2g}".replace("e-0", "e-").replace("-", "−")
        if name == "share":
            return f"{value:.0%}"
        digits = 5 if "cosine" in name and value > 0.999 else 3
        return f"{value:.{digits}f}".replace("-", "−") if "label" not in name else f"{value:g}"
    return "–" if value is None else str(value)


# terminal


def render_worst_text(worst: WorstRows) -> Group:
    """Return the lists of the worst rows for rich's console."""
    parts: list[RenderableType] = [Text(TITLE, "bold"), Text(worst.note, "dim")]
    for rows in worst.nonempty:
        more = f", the worst {len(rows.entries):,}" if _is_cut(rows) else ""
        parts += [Text(), Text.assemble((rows.title, "bold"), f"  {rows.count:,}{more}"), Text(rows.meaning, "dim")]
        parts.append(Padding(_terminal_table(rows), (0, 0, 0, 2)))
    if (empty := describe_empty(worst)) is not None:
        parts += [Text(), Text(empty, "dim")]
    parts += [Text(note, "dim") for note in describe_unmeasured(worst)]
    return Group(*parts)


def _terminal_table(rows: RowList) -> Table:
    name = _id_names(rows.entries)[-1]
    has_text = any("text" in entry for entry in rows.entries)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, expand=has_text)
    table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=_MAX_CELL_WIDTH)
    for key, title in rows.values.items():
        cells = [format_value(key, entry[key]) for entry in rows.entries]
        width = min(max(_MIN_CELL_WIDTH, *map(len, cells)), _MAX_CELL_WIDTH)
        side = "left" if isinstance(rows.entries[0][key], str) else "right"
        table.add_column(title, justify=side, width=width, overflow="ellipsis")  # type: ignore[arg-type]
    if has_text:
        table.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1, vertical="bottom")
    for entry in rows.entries:
        numbers = [Text(format_value(key, entry[key])) for key in rows.values]
        _add_line(table, entry, name, numbers, has_text)
        if "other" in entry:
            _add_line(table, entry["other"], name, [Text()] * len(numbers), has_text)
    return table


def _add_line(table: Table, entry: dict[str, Any], name: str, numbers: list[Text], has_text: bool) -> None:
    text = [Text(str(entry.get("text", "")))] if has_text else []
    table.add_row(Text(str(entry.get(name, ""))), *numbers, *text)
