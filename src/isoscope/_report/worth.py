"""What a cosine is worth in a space: a table at round cosines, and a field in which to type one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._report.html import json_script, tag
from isoscope._report.svg import format_coordinate
from isoscope.auditing.finding import format_number, format_percentage

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.audit import Audit


def render_similarity(audits: Sequence[Audit]) -> Markup:
    """The section; several spaces have a pair of columns each."""
    return tag(
        "section",
        tag("h2", "What a cosine is worth here", id="worth-title"),
        *(tag("p", _render_summary(audit, len(audits) > 1)) for audit in audits),
        tag(
            "form",
            tag("label", "Try a cosine: ", for_="cosine"),
            tag(
                "input",
                id="cosine",
                type="number",
                min="-1",
                max="1",
                step="0.01",
                inputmode="decimal",
                placeholder="0.80",
            ),
            tag("output", for_="cosine", aria_live="polite"),
            class_="try live",
        ),
        tag("div", _render_table(audits), class_="scroll", tabindex="0", role="region", aria_labelledby="worth-title"),
        json_script("similarity", [_encode_similarity(audit) for audit in audits]),
        id="worth",
        aria_labelledby="worth-title",
    )


def _render_summary(audit: Audit, named: bool) -> Markup:
    similarity = audit.similarity
    middle, rare = (float(np.interp(share, similarity.shares, similarity.pairs)) for share in (0.5, 0.99))
    words = (
        f"half of all random pairs have a cosine above {format_number(middle)}, and only 1 in 100 is above "
        f"{format_number(rare)}"
    )
    if len(similarity.nearest):
        typical = float(np.interp(0.5, similarity.shares, similarity.nearest))
        words += f"; a typical vector's nearest neighbour is at {format_number(typical)}"
    start = ["In ", tag("bdi", audit.source), " ", words] if named else [words[:1].upper() + words[1:]]
    return tag("span", *start, ".")


def _render_table(audits: Sequence[Audit]) -> Markup:
    columns: list[tuple[str, list[float]]] = []
    tables = [audit.similarity.table() for audit in audits]
    for i, rows in enumerate(tables):
        space = f"{chr(ord('A') + i)}: " if len(audits) > 1 else ""
        columns.append((f"{space}above this share of random pairs", [pairs for _, pairs, _ in rows]))
        if rows[0][2] is not None:
            columns.append((f"{space}above this share of nearest neighbours", [near or 0.0 for _, _, near in rows]))
    told = [[format_percentage(values[i]) for _, values in columns] for i in range(len(tables[0]))]
    shown = [i for i, row in enumerate(told) if i == 0 or row != told[i - 1]]
    head = tag("tr", tag("th", "cosine", scope="col"), *(tag("th", name, scope="col") for name, _ in columns))
    body = (
        tag("tr", tag("th", f"{tables[0][i][0]:.2f}", scope="row"), *(_render_cell(values[i]) for _, values in columns))
        for i in shown
    )
    return tag("table", tag("thead", head), tag("tbody", *body), class_="worth")


def _render_cell(per_cent: float) -> Markup:
    bar = tag(
        "svg", tag("rect", width=f"{format_coordinate(per_cent)}%", height="100%"), class_="share", aria_hidden="true"
    )
    return tag("td", tag("span", format_percentage(per_cent)), bar)


def _encode_similarity(audit: Audit) -> dict[str, Any]:
    similarity = audit.similarity
    held = {name: [round(float(value), 7) for value in values] for name, values in similarity.to_dict().items()}
    return {"name": audit.source, **held}
