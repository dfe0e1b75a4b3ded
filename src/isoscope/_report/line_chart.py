"""Line charts: a finding across the groups of an audit, and a measurement by training step.

Ordered groups are points on a line. Groups without an order have one row each, with a dot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from isoscope._report.cards import VERDICT_LABELS
from isoscope._report.html import join_markup, tag
from isoscope._report.narrate import format_layer_name
from isoscope._report.svg import (
    Chart,
    Label,
    Line,
    Scale,
    draw_mark,
    fit_scale,
    format_tick,
    render_legend,
    render_legend_entry,
)
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.training.history import Runs

MARGIN = 0.06
"""Share of the height that stays empty above and below the lines."""

_MAX_REFERENCE_DISTANCE = 2.5  # relative to the range of the values; a farther reference would flatten them
_OUTLIER_SHARE = 0.2  # the largest share of the values that may lie outside the chart
_OUTLIER_FACTOR = 4  # they do if the chart would otherwise be this many times as high
_MIN_SCALE_VALUES = 5  # with fewer values, none is an outlier
_LETTER_SPACING = 0.075  # share of the height


# groups


@dataclass(frozen=True)
class GroupCurve:
    """One measurement across the groups, with the interval, verdict and reference value for each group."""

    name: str
    style: str
    """CSS classes: the color, and whether the line is dashed."""
    positions: np.ndarray
    group_names: Sequence[str]
    estimates: np.ndarray
    low: np.ndarray
    high: np.ndarray
    verdicts: Sequence[str]
    """Empty strings for a measurement without verdicts."""
    null: np.ndarray
    """The values for random data of the same size."""
    letter: str = ""
    """The letter of the store, if there are several."""

    @property
    def is_judged(self) -> bool:
        """Whether the measurement has verdicts."""
        return any(self.verdicts)

    def to_line(self, format_value: Callable[[float], str]) -> Line:
        """Return the measurement as a line with a mark for each verdict."""
        titles = [self._describe_point(i, format_value) for i in range(len(self.estimates))]
        return Line(
            self.positions,
            self.estimates,
            self.low,
            self.high,
            self.style,
            self.name,
            marks=self.verdicts,
            titles=titles,
        )

    def _describe_point(self, i: int, format_value: Callable[[float], str]) -> str:
        value, low, high = (float(f"{each[i]:.3g}") for each in (self.estimates, self.low, self.high))
        interval = f" ({format_value(low)} … {format_value(high)})" if math.isfinite(low + high) else ""
        verdict = f", {VERDICT_LABELS[self.verdicts[i]]}" if self.verdicts[i] else ""
        return f"{self.group_names[i]}: {format_value(value)}{interval}{verdict}"


@dataclass(frozen=True)
class GroupAxis:
    """The axis that shows the groups."""

    scale: Scale
    name: str
    ticks: Sequence[tuple[float, str]] | None
    row_names: Sequence[str] = ()
    """The names of the groups, if they have no order."""


def render_group_chart(
    title: str, description: str, curves: Sequence[GroupCurve], axis: GroupAxis, form: str, *, powers: bool
) -> Markup:
    """Return a legend and a chart of the curves: lines, or one row per group if the groups have no order.

    `form` is the number format of the finding; if `powers` is set, the numbers are exponents of 10.
    """
    format_value = tick_formatter(form, powers)
    dots = bool(axis.row_names) or all(len(curve.positions) == 1 for curve in curves)
    if axis.row_names:
        chart = _draw_rows(title, description, _judged_last(curves), axis, format_value, powers=powers)
    else:
        chart = build_group_chart(title, description, curves, axis, format_value, powers=powers).to_svg()
    return join_markup(_render_curve_legend(curves, dots=dots), chart)


def build_group_chart(
    title: str,
    description: str,
    curves: Sequence[GroupCurve],
    axis: GroupAxis,
    format_value: Callable[[float], str] = format_tick,
    *,
    joined: bool = True,
    powers: bool = False,
) -> Chart:
    """Return a chart of curves across groups with bands and references, as lines or as unconnected dots."""
    up = replace(_vertical_scale(curves), exponents=powers)
    ordered = _judged_last(curves)
    references = [_reference_line(curve, axis.scale, up) for curve in ordered]
    form: Literal["line", "dots"] = "line" if joined else "dots"
    lines = [part for curve in ordered for part in _split_outliers(replace(curve.to_line(format_value), form=form), up)]
    return Chart(
        title,
        description,
        axis.scale,
        up,
        [*references, *lines],
        [*_place_letters(curves, up), *_label_outliers(curves, up, format_value)],
        x_name=axis.name,
        x_ticks=axis.ticks,
        integer_x=True,
        format_y=format_value,
        size="small",
    )


def find_offscale_nulls(curves: Sequence[GroupCurve]) -> list[float]:
    """Return the values for random data that lie outside the chart."""
    up = _vertical_scale(curves)
    return [float(each) for curve in curves for each in curve.null if math.isfinite(each) and not _is_on(up, each)]


def find_offscale_values(curves: Sequence[GroupCurve]) -> list[tuple[str, float]]:
    """Return the names and values of the points that lie outside the chart, so that they do not flatten the rest."""
    up = _vertical_scale(curves)
    return [
        (name, float(value))
        for curve in curves
        for name, value in zip(curve.group_names, curve.estimates, strict=True)
        if math.isfinite(value) and not _is_on(up, value)
    ]


def _split_outliers(line: Line, up: Scale) -> list[Line]:
    """Return a line without marks outside the chart, and these marks as dots at its edge."""
    far = np.isfinite(line.y) & ~((line.y >= up.low) & (line.y <= up.high))
    if not far.any():
        return [line]
    joined = np.zeros(len(far), bool)
    for part in line.segments():
        joined[part] = line.form == "line" and part.stop - part.start > 1
    marks = ["" if out else mark for out, mark in zip(far, line.marks or [""] * len(far), strict=True)]
    kept = replace(line, y=np.where(far & ~joined, math.nan, line.y), marks=marks)
    edge = np.where(far, np.clip(line.y, up.low, up.high), math.nan)
    dots = replace(line, y=edge, low=None, high=None, name="", form="dots", marks=line.marks)
    return [kept, dots]


def _label_outliers(curves: Sequence[GroupCurve], up: Scale, format_value: Callable[[float], str]) -> list[Label]:
    return [
        Label(
            _format_outlier(float(value), up, format_value),
            float(x),
            float(np.clip(value, up.low, up.high)),
            "aside",
            4,
        )
        for curve in curves
        for x, value in zip(curve.positions, curve.estimates, strict=True)
        if math.isfinite(value) and not _is_on(up, value)
    ]


def _format_outlier(value: float, up: Scale, format_value: Callable[[float], str]) -> str:
    return f"{'↑' if value > up.high else '↓'} {format_value(float(f'{value:.3g}'))}"


def _judged_last(curves: Sequence[GroupCurve]) -> list[GroupCurve]:
    """Return the curves in drawing order; curves with verdicts come last, so that they are on top."""
    return sorted(curves, key=lambda curve: curve.is_judged)


def _is_on(scale: Scale, value: float) -> bool:
    return scale.low <= value <= scale.high


def _vertical_scale(curves: Sequence[GroupCurve]) -> Scale:
    """Return a scale that includes 0, the estimates except outliers, and intervals and references that are near."""
    values, nulls = (
        np.concatenate([each[np.isfinite(each)] for each in arrays])
        for arrays in ([curve.estimates for curve in curves], [curve.null for curve in curves])
    )
    values = _drop_outliers(values)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    span = (high - low) or 1.0
    ends = np.concatenate([each[np.isfinite(each)] for curve in curves for each in (curve.low, curve.high)])
    if len(ends):
        low, high = max(min(low, float(ends.min())), low - span / 2), min(max(high, float(ends.max())), high + span / 2)
    reach = _MAX_REFERENCE_DISTANCE * (high - low)
    near = nulls[(nulls <= low + reach) & (nulls >= high - reach)]
    return fit_scale([low, high, *near.tolist()], zero=True, margin=MARGIN)


def _drop_outliers(values: np.ndarray) -> np.ndarray:
    """Return the values without the few outliers that would stretch the value axis to a multiple of its length."""
    if len(values) < _MIN_SCALE_VALUES:
        return values
    ordered = values[np.argsort(np.abs(values - np.median(values)), kind="stable")]
    whole = _span_with_zero(ordered)
    for far in range(1, int(_OUTLIER_SHARE * len(values)) + 1):
        rest = _span_with_zero(ordered[:-far])
        if 0 < _OUTLIER_FACTOR * rest < whole:
            return ordered[:-far]
    return values


def _span_with_zero(values: np.ndarray) -> float:
    return max(float(values.max()), 0.0) - min(float(values.min()), 0.0)


def _reference_line(curve: GroupCurve, across: Scale, up: Scale) -> Line:
    """Return the values for random data as a dotted line; for a single group, it spans the chart."""
    values = np.where((curve.null >= up.low) & (curve.null <= up.high), curve.null, np.nan)
    positions = curve.positions
    if np.isfinite(values).sum() == 1:
        values = np.repeat(values[np.isfinite(values)], 2)
        positions = np.array([across.low, across.high]) if across.high > across.low else np.array([0.0, 1.0])
    return Line(positions, values, style="null dotted", name="random data")


def tick_formatter(form: str, powers: bool) -> Callable[[float], str]:
    """Return the function that formats the numbers of an axis: shares, powers of 10, or plain numbers."""
    if powers:
        return lambda value: format_number(10**value, "power") if value > -300 else f"1e{value:.0f}".replace("-", "−")
    if form == "share":
        return lambda value: f"{100 * value:.4g}%".replace("-", "−")
    return format_tick


def _render_curve_legend(curves: Sequence[GroupCurve], *, dots: bool) -> Markup:
    """Return a legend of the curves if there are several kinds; it is uncolored if colors distinguish the stores."""
    styles: dict[str, str] = {}
    for curve in curves:
        style = curve.style
        if curve.letter:
            style = " ".join(["plain", *(word for word in style.split() if not word.startswith("hue"))])
        styles.setdefault(curve.name, style)
    if len(styles) == 1:
        return tag("div")
    if not dots:
        return render_legend(*((f"line {style}", name) for name, style in styles.items()))
    entries = []
    for name, style in styles.items():
        dot = draw_mark("dot hollow" if "dashed" in style else "dot", "6", "6", style=style)
        entries.append(tag("li", tag("svg", dot, viewBox="0 0 12 12", class_="spot-sign", aria_hidden="true"), name))
    return tag("ul", *entries, class_="key")


def _place_letters(curves: Sequence[GroupCurve], up: Scale) -> list[Label]:
    """Return the letter of each store at the end of its line; letters that would overlap are moved apart."""
    ends = []
    for curve in curves:
        known = np.flatnonzero(np.isfinite(curve.estimates))
        if curve.letter and curve.is_judged and len(known):
            ends.append((up(float(curve.estimates[known[-1]])), float(curve.positions[known[-1]]), curve))
    ends.sort(key=lambda end: end[:2])
    heights = [height for height, _, _ in ends]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + _LETTER_SPACING)
    above = 1.0 + _LETTER_SPACING
    for i in reversed(range(len(heights))):
        above = heights[i] = min(heights[i], above - _LETTER_SPACING)
    return [
        Label(curve.letter, x, up.value_at(height), f"letter {curve.style}", 4)
        for height, (_, x, curve) in zip(heights, ends, strict=True)
    ]


# groups without an order


def _draw_rows(
    title: str,
    description: str,
    curves: Sequence[GroupCurve],
    axis: GroupAxis,
    format_value: Callable[[float], str],
    *,
    powers: bool,
) -> Markup:
    scale = replace(_vertical_scale(curves), exponents=powers)
    ticks = scale.ticks(3)
    grid = [_draw_vertical(scale.percent(tick), "0", "100%", "grid") for tick in ticks]
    letters = sorted({curve.letter for curve in curves})
    lines = [(curve, curve.to_line(format_value)) for curve in curves]
    rows = []
    for position, name in enumerate(axis.row_names):
        drawn = list(grid)
        for curve, line in lines:
            y = f"{100 * (letters.index(curve.letter) + 1) / (len(letters) + 1):.0f}%"
            for i, mark, text in replace(line, form="dots").point_marks():
                if curve.positions[i] != position:
                    continue
                if _is_on(scale, curve.null[i]):
                    drawn.append(_draw_vertical(scale.percent(curve.null[i]), "15%", "85%", "null"))
                value = float(curve.estimates[i])
                if not _is_on(scale, value):
                    edge = float(np.clip(value, scale.low, scale.high))
                    words = f"{format_value(float(f'{value:.3g}'))} {'→' if value > scale.high else '←'}"
                    at = {"x": scale.percent(edge), "y": y, "dy": "0.35em"}
                    anchor = "end" if value > scale.high else None
                    drawn.append(tag("text", words, text_anchor=anchor, class_="note aside", **at))
                    drawn.append(draw_mark(mark, scale.percent(edge), y, style=curve.style, title=text))
                    continue
                if math.isfinite(curve.low[i] + curve.high[i]):
                    ends = {"x1": scale.percent(curve.low[i]), "x2": scale.percent(curve.high[i])}
                    drawn.append(tag("line", y1=y, y2=y, class_=f"whisker {curve.style}", **ends))
                drawn.append(draw_mark(mark, scale.percent(curve.estimates[i]), y, style=curve.style, title=text))
        track = tag("span", tag("svg", *drawn), class_="track")
        rows.append(tag("div", tag("span", tag("bdi", name), class_="name", title=name), track, class_="spot-row"))
    texts = (tag("text", format_value(tick), x=scale.percent(tick), y="14", class_="tick") for tick in ticks)
    foot = tag("div", tag("span", tag("svg", *texts), class_="track"), class_="spot-row scale")
    return tag("div", *rows, foot, role="img", aria_label=f"{title}. {description}", class_="spots")


def _draw_vertical(x: str, top: str, bottom: str, class_: str) -> Markup:
    return tag("line", x1=x, x2=x, y1=top, y2=bottom, class_=class_)


# training steps

DEPTH_COLORS = 16
"""Number of colors from the first layer to the last."""

MAX_NAMED_LAYERS = 8
"""The largest number of layers that the legend lists individually."""

_ARM_COLORS = 7


def layer_lines(runs: Runs, arm: str, measurement: str) -> list[Line]:
    """Return the mean of an arm as a line for each layer, from first to last; the last line is thick."""
    layers = runs.layers
    return [
        Line(*runs.mean(arm, layer, measurement), style=_depth_style(i, len(layers)), name=format_layer_name(layer))
        for i, layer in enumerate(layers)
    ]


def arm_lines(runs: Runs, layer: str, measurement: str) -> list[Line]:
    """Return the lines of one layer for all arms: a faint line for each seed and a thick line for their mean."""
    seeds, means = [], []
    for i, arm in enumerate(runs.arms):
        series = runs.seeds(arm, layer, measurement)
        if len(series) > 1:
            seeds += [Line(*each, style=f"{arm_color(i)} faint") for each in series]
        means.append(Line(*runs.mean(arm, layer, measurement), style=f"{arm_color(i)} thick", name=arm))
    return seeds + means


def build_step_chart(title: str, lines: Sequence[Line], scale_lines: Sequence[Line] | None = None) -> Chart | None:
    """Return a small chart by training step, on a scale that fits `scale_lines`; None if all values are missing."""
    every = scale_lines or lines
    values = np.concatenate([line.y for line in every])
    if not any(np.isfinite(line.y).any() for line in lines):
        return None
    steps = np.concatenate([line.x for line in every])
    return Chart(
        title,
        _describe_ends(lines),
        Scale(float(steps.min()), float(steps.max())),
        fit_scale(values.tolist(), zero=True, margin=MARGIN),
        lines,
        x_name="step",
        integer_x=True,
        size="small",
    )


def _describe_ends(lines: Sequence[Line]) -> str:
    """Return a description of where the main lines begin and end."""
    parts = []
    for line in lines:
        known = line.y[np.isfinite(line.y)]
        if "thick" in line.style and len(known):
            name = f"{line.name}: " if line.name else ""
            first, last = (format_number(float(value)) for value in (known[0], known[-1]))
            parts.append(f"{name}{first} at the start, {last} at the end.")
    return " ".join(parts)


def render_layer_legend(layers: Sequence[str]) -> Markup:
    """Return a legend of the layer colors: every layer, or only the first and the last if there are many."""
    count = len(layers)
    last = (f"line {_depth_style(count - 1, count)}", f"{format_layer_name(layers[-1])}, the last")
    if count <= MAX_NAMED_LAYERS:
        others = ((f"line {_depth_style(i, count)}", format_layer_name(each)) for i, each in enumerate(layers[:-1]))
        return render_legend(*others, last)
    cells = [tag("rect", x=i, width=1, height=1, class_=depth_color(i, count)) for i in range(count)]
    ramp = tag(
        "svg",
        *cells,
        viewBox=f"0 0 {count} 1",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        class_="ramp",
        aria_hidden="true",
    )
    span = tag("li", ramp, f"{format_layer_name(layers[0])} to {format_layer_name(layers[-2])}")
    return tag("ul", span, render_legend_entry(*last), class_="key")


def render_arm_legend(runs: Runs) -> Markup | None:
    """Return a legend of the arm colors; None if the only arm has no name."""
    if list(runs.arms) == [""]:
        return None
    return render_legend(*((f"line {arm_color(i)} thick", arm) for i, arm in enumerate(runs.arms)))


def depth_color(place: int, layers: int) -> str:
    """Return the color class of a layer, by its position in the model."""
    shade = round(place / max(layers - 1, 1) * (DEPTH_COLORS - 1)) if layers > 1 else DEPTH_COLORS - 1
    return f"depth-{shade}"


def _depth_style(place: int, layers: int) -> str:
    return f"{depth_color(place, layers)} {'thick' if place == layers - 1 else 'thin'}"


def arm_color(place: int) -> str:
    """Return the color class of an arm or a series, by its position.

    >>> arm_color(0), arm_color(7)
    ('hue-0', 'other')
    """
    return f"hue-{place}" if place < _ARM_COLORS else "other"
