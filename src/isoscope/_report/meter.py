"""The small scale beside a finding: where ok, look and bad lie, where the value is, what chance gives."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from isoscope._report.html import tag
from isoscope._report.svg import Scale, format_coordinate
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.finding import Finding

_MARGIN = 0.14
_MIN_LABEL_WIDTH = 0.13  # of the width, which a name in a region needs


def draw_meter(finding: Finding) -> Markup | None:
    """The scale of a finding that is judged by numbers; None if it is for information."""
    ends = [*finding.judged.ok, *finding.judged.bearable]
    if not any(map(math.isfinite, ends)) or math.isnan(finding.value):
        return None
    scale = _choose_scale(finding, ends)
    regions = [
        tag(
            "g",
            tag(
                "rect",
                x=_format_percent(left),
                width=_format_percent(right - left),
                y="11",
                height="10",
                class_=f"region {verdict}",
            ),
            tag("text", verdict, x=_format_percent((left + right) / 2), y="35", class_="name")
            if right - left > _MIN_LABEL_WIDTH
            else None,
        )
        for left, right, verdict in _regions(finding, scale)
    ]
    marks = []
    if finding.judged.null is not None and math.isfinite(finding.judged.null):
        place = _x_percent(scale, finding.judged.null)
        marks.append(
            tag("svg", tag("path", d="M0 9L4.5 1H-4.5Z"), x=place, y="0", overflow="visible", class_="null-mark")
        )
    place = _x_percent(scale, finding.value)
    marks.append(tag("line", x1=place, x2=place, y1="7", y2="25", class_="halo"))
    if finding.low is not None and finding.high is not None:
        sides = {"x1": _x_percent(scale, finding.low), "x2": _x_percent(scale, finding.high)}
        marks.append(tag("line", y1="16", y2="16", class_="interval", **sides))
    marks.append(tag("line", x1=place, x2=place, y1="6", y2="26", class_="value"))
    return tag("svg", *regions, *marks, role="img", aria_label=_describe_meter(finding), class_="meter")


def _describe_meter(finding: Finding) -> str:
    words = f"{finding.shown} on a scale that is {finding.range}"
    if finding.judged.null is not None and math.isfinite(finding.judged.null):
        words += f"; a cloud without structure has {format_number(finding.judged.null, finding.form)}"
    return words


def _choose_scale(finding: Finding, ends: list[float]) -> Scale:
    """From a little before the first to a little after the last of what is to be seen."""
    marks = [*ends, finding.value, finding.low, finding.high, finding.judged.null]
    seen = [mark for mark in marks if mark is not None and math.isfinite(mark)]
    if finding.form == "power":
        least = max(min(mark for mark in (*seen, 1.0) if mark > 0), 1e-12)
        return Scale(least / 10, max(1.0, *seen), log=True)
    low, high = min(seen), max(seen)
    margin = _MARGIN * ((high - low) or abs(high) or 1.0)
    first, last = low - margin, high + margin
    if low >= 0:
        first = max(first, 0.0)
    if finding.form == "share":
        last = min(last, 1.0)
    return Scale(first, last)


def _regions(finding: Finding, scale: Scale) -> list[tuple[float, float, str]]:
    """(left, right, verdict) from left to right, as shares of the width."""
    cuts = {0.0, 1.0}
    for end in (*finding.judged.ok, *finding.judged.bearable):
        if math.isfinite(end):
            cuts.add(min(max(scale(end), 0.0), 1.0))
    places = sorted(cuts)
    found: list[tuple[float, float, str]] = []
    for left, right in pairwise(places):
        if right - left < 1e-6:
            continue
        verdict = finding.judged.verdict(_value_at(scale, (left + right) / 2))
        if found and found[-1][2] == verdict:
            found[-1] = (found[-1][0], right, verdict)
        else:
            found.append((left, right, verdict))
    return found


def _value_at(scale: Scale, place: float) -> float:
    if scale.log:
        return float(scale.low * (scale.high / scale.low) ** place)
    return scale.low + place * (scale.high - scale.low)


def _x_percent(scale: Scale, value: float) -> str:
    return _format_percent(min(max(scale(value), 0.0), 1.0))


def _format_percent(share: float) -> str:
    return f"{format_coordinate(100 * share)}%"
