"""The section that translates a cosine into percentiles of random pairs and of nearest neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._report.html import json_script, render_scrollable, render_table_head, section, tag
from isoscope._report.narrate import capitalize
from isoscope._report.svg import format_coordinate
from isoscope.auditing.finding import format_number, format_percentage

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.auditing.audit import Audit


def render_similarity(audits: Sequence[Audit]) -> Section:
    """Return the section with an input field for a cosine; if there are several spaces, each has two columns."""
    return section(
        "worth",
        "What a cosine means here",
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
        render_scrollable(_render_table(audits), label="Table of cosines"),
        json_script("similarity", [_encode_similarity(audit) for audit in audits]),
    )


def _render_summary(audit: Audit, named: bool) -> Markup:
    similarity = audit.similarity
    middle, rare = (float(np.interp(share, similarity.shares, similarity.pairs)) for share in (0.5, 0.99))
    words = (
        f"half of all random pairs have a cosine above {format_number(middle)}, and only 1 in 100 has one above "
        f"{format_number(rare)}"
    )
    if len(similarity.nearest):
        typical = float(np.interp(0.5, similarity.shares, similarity.nearest))
        words += f"; for a typical vector, the cosine with its nearest neighbor is {format_number(typical)}"
    start = ["In ", tag("bdi", audit.source), ", ", words] if named else [capitalize(words)]
    return tag("span", *start, ".")


def _render_table(audits: Sequence[Audit]) -> Markup:
    columns: list[tuple[str, list[float]]] = []
    tables = [audit.similarity.table() for audit in audits]
    for letter, rows in zip(LETTERS, tables, strict=False):
        space = f"{letter}: " if len(audits) > 1 else ""
        columns.append((f"{space}random pairs below it", [pairs for _, pairs, _ in rows]))
        if rows[0][2] is not None:
            columns.append((f"{space}nearest neighbors below it", [near or 0.0 for _, _, near in rows]))
    texts = [[format_percentage(values[i]) for _, values in columns] for i in range(len(tables[0]))]
    distinct = [i for i, row in enumerate(texts) if i == 0 or row != texts[i - 1]]
    body = (
        tag("tr", tag("th", f"{tables[0][i][0]:.2f}", scope="row"), *(_render_cell(values[i]) for _, values in columns))
        for i in distinct
    )
    head = render_table_head("cosine", *(name for name, _ in columns))
    return tag("table", head, tag("tbody", *body), class_="worth")


def _render_cell(per_cent: float) -> Markup:
    bar = tag(
        "svg", tag("rect", width=f"{format_coordinate(per_cent)}%", height="100%"), class_="share", aria_hidden="true"
    )
    return tag("td", tag("span", format_percentage(per_cent)), bar)


def _encode_similarity(audit: Audit) -> dict[str, Any]:
    similarity = audit.similarity
    numbers = {name: [round(float(value), 10) for value in values] for name, values in similarity.to_dict().items()}
    return {"name": audit.source, **numbers}
