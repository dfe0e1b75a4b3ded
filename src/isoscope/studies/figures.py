"""Figures of studies: panels of lines and scatter plots."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.cloud import (
    CategoricalColoring,
    ContinuousColoring,
    draw_points,
    points_by_class,
    render_color_legend,
)
from isoscope._report.html import Markup, join_markup, tag
from isoscope._report.svg import Scale, draw_chart, line_path, render_legend
from isoscope.auditing.finding import format_number
from isoscope.studies.formatting import figure_name
from isoscope.studies.study import Panel, Scatter

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.studies.study import Figure, Series


MAX_POINTS = 800
"""Drawn of a cloud: more make a file heavy and a picture no clearer."""

_SIDE, _SCATTER_GAP, _LINE_HEIGHT = 200, 24, 22  # of a picture in a file; between pictures; for a line of words
_MAX_WIDTH, _LETTER = 960, 8.2  # of a file; of a letter of a title, about
_MAX_LEGEND_GROUPS = 15
_MARGIN = 8  # inside a picture, so that no dot is cut
_AZIMUTH, _ELEVATION = math.radians(35), math.radians(25)  # how a cloud of three directions is seen from aside


def render_scatter(cloud: Scatter) -> Markup:
    """A cloud in a page: a picture for each colouring and view, with what the colours are."""
    thin = _subsample(cloud)
    parts = []
    for way in _make_colorings(thin):
        views = [
            tag(
                "svg",
                *drawn,
                viewBox=f"0 0 {_SIDE} {_SIDE}",
                role="img",
                aria_label=f"{cloud.title}, {words}, coloured by {way.title}",
            )
            for words, drawn in _draw_views(thin, way)
        ]
        parts.append(
            tag(
                "div",
                tag("p", f"by {way.title}{_format_group_count(way)}", class_="hint"),
                tag("div", *views, class_="views"),
                None if _format_group_count(way) else render_color_legend(way),
            )
        )
    return tag("div", *parts, class_="cloud-views")


def draw_scatters(clouds: Sequence[Scatter], top: float) -> tuple[list[Markup], float, float]:
    """Clouds in a file, as many beside each other as there is room for; how wide and how far down it is.

    Each has a row for each view and a column for each colouring.
    """
    parts: list[Markup] = []
    columns = max(len(each.colors) for each in clouds)
    wide = max(
        columns * (_SIDE + _SCATTER_GAP), math.ceil(_LETTER * max(len(each.title) for each in clouds)) + _SCATTER_GAP
    )
    beside = max(1, min(len(clouds), _MAX_WIDTH // wide))
    for start in range(0, len(clouds), beside):
        row = [
            _draw_scatter(cloud, 16 + place * wide, top) for place, cloud in enumerate(clouds[start : start + beside])
        ]
        parts += [each for own, _ in row for each in own]
        top = max(end for _, end in row) + 16
    return parts, 16 + beside * wide + 8, top


def _draw_scatter(cloud: Scatter, left: float, top: float) -> tuple[list[Markup], float]:
    """A cloud in a file with its title, views and keys, and how far down it goes."""
    thin = _subsample(cloud)
    parts = [tag("text", cloud.title, x=left, y=top + 16, class_="title")]
    top += 26
    lowest = top
    for i, way in enumerate(_make_colorings(thin)):
        x, y = left + i * (_SIDE + _SCATTER_GAP), top
        parts.append(tag("text", f"by {way.title}{_format_group_count(way)}", x=x, y=y + 14))
        y += _LINE_HEIGHT
        for words, drawn in _draw_views(thin, way):
            frame = tag("rect", width=_SIDE, height=_SIDE, class_="frame")
            parts.append(tag("svg", frame, tag("title", words), *drawn, x=x, y=y, width=_SIDE, height=_SIDE))
            y += _SIDE + 10
        if not _format_group_count(way):
            key, y = _draw_scatter_legend(way, x, y)
            parts += key
        lowest = max(lowest, y)
    return parts, lowest


def _format_group_count(way: CategoricalColoring | ContinuousColoring) -> str:
    """Of more groups than anyone tells apart by a key, their number in its place."""
    return (
        f" ({len(way.names)} of them)"
        if isinstance(way, CategoricalColoring) and len(way.names) > _MAX_LEGEND_GROUPS
        else ""
    )


def _make_colorings(cloud: Scatter) -> list[CategoricalColoring | ContinuousColoring]:
    """The colourings as the audit's pages have them: names with a look of their own, or a scale."""
    found: list[CategoricalColoring | ContinuousColoring] = []
    for title, values in cloud.colors.items() if cloud.points else ():
        if all(isinstance(each, int | float) for each in values):
            known = np.asarray([each if math.isfinite(each) else 0.0 for each in values], np.float64)
            found.append(ContinuousColoring(title, title, known))
        else:
            names, codes = np.unique([str(each) for each in values], return_inverse=True)
            found.append(CategoricalColoring(title, title, names.tolist(), codes, "others"))
    return found


def _draw_views(cloud: Scatter, way: CategoricalColoring | ContinuousColoring) -> list[tuple[str, list[Markup]]]:
    """The dots along two directions; and where there is a third, seen from aside with the directions drawn."""
    points = np.asarray(cloud.points, np.float64).reshape(len(cloud.points), -1)
    flat = [("along two directions", draw_points(*_scale_to_picture(points[:, :2]), way))]
    if points.shape[1] < 3:
        return flat
    axes = np.vstack([np.zeros(3), np.eye(3) * np.abs(points).max(initial=1e-9) * 0.6])
    across, down = _scale_to_picture(_project_oblique(np.vstack([points - points.mean(axis=0), axes])))
    lines = [
        tag("path", d=f"M{across[-4]:.0f} {down[-4]:.0f}L{across[i]:.0f} {down[i]:.0f}", class_="axis")
        for i in (-3, -2, -1)
    ]
    names = [
        tag("text", f"{i + 1}", x=f"{across[i - 3]:.0f}", y=f"{down[i - 3]:.0f}", class_="axis-name") for i in range(3)
    ]
    return [*flat, ("along three directions", [*lines, *draw_points(across[:-4], down[:-4], way), *names])]


def _project_oblique(points: np.ndarray) -> np.ndarray:
    """Three directions as they look to an eye that stands to the side and above: the third goes up."""
    x, y, z = points.T
    right = x * math.cos(_AZIMUTH) - y * math.sin(_AZIMUTH)
    away = x * math.sin(_AZIMUTH) + y * math.cos(_AZIMUTH)
    return np.stack([right, z * math.cos(_ELEVATION) + away * math.sin(_ELEVATION)], axis=1)


def _scale_to_picture(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in a picture, both directions by one measure."""
    low, high = flat.min(axis=0), flat.max(axis=0)
    scale = (_SIDE - 2 * _MARGIN) / (float((high - low).max()) or 1.0)
    places = (flat - (low + high) / 2) * scale
    return _SIDE / 2 + places[:, 0], _SIDE / 2 - places[:, 1]


def _subsample(cloud: Scatter) -> Scatter:
    known = [i for i, point in enumerate(cloud.points) if all(map(math.isfinite, point))]
    kept = known[:: max(1, math.ceil(len(known) / MAX_POINTS))]
    colours = {name: [values[i] for i in kept] for name, values in cloud.colors.items()}
    return Scatter(cloud.title, [cloud.points[i] for i in kept], colours)


def _draw_scatter_legend(
    way: CategoricalColoring | ContinuousColoring, x: float, y: float
) -> tuple[list[Markup], float]:
    """What the colours are, below a column of a file."""
    if isinstance(way, ContinuousColoring):
        low, high = way.ends
        steps = [tag("rect", x=x + 20 * i, y=y, width=20, height=10, class_=f"shade-{i}") for i in range(6)]
        return [
            *steps,
            tag("text", f"{format_number(low)} to {format_number(high)}", x=x + 128, y=y + 10),
        ], y + _LINE_HEIGHT
    slots = way.point_slots
    parts = []
    for slot in sorted(set(slots.tolist()), key=lambda each: (each < 0, each)):
        name = way.rest if slot < 0 else way.names[int(np.flatnonzero(way.slots == slot)[0])]
        own = CategoricalColoring("", "", [name], np.zeros(1, int), "", given=np.array([slot]))
        mark = [
            join_markup(
                *(
                    tag("path", d=f"M{x + 6} {y + 5}h0", class_=f"dots key {look}")
                    for look, some in points_by_class(own)
                    if len(some)
                )
            )
        ]
        parts += [*mark, tag("text", f"{name} ({int((slots == slot).sum())})", x=x + 18, y=y + 10)]
        y += 17
    return parts, y + 6


_HUES = 7
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # not even when it is escaped
_WIDE, _HIGH, _LEFT, _TOP, _GAP = 400, 240, 64, 44, 70  # of a panel in a file, in pixels

_STYLE = """
:root { --ink: #1d1c1a; --quiet: #5d5a54; --grid: #ece8e0; --paper: #fbfaf7; --hue-0: #3357be; --hue-1: #d67d12;
  --hue-2: #27a48f; --hue-3: #a61a68; --hue-4: #8e6202; --hue-5: #a664fd; --hue-6: #611327; --other: #85817a;
  --shade-0: #440d54; --shade-1: #443a83; --shade-2: #31688e; --shade-3: #21908c; --shade-4: #35a366;
  --shade-5: #7f9e13; }
@media (prefers-color-scheme: dark) { :root { --ink: #ecebe7; --quiet: #a9a69f; --grid: #292c30; --paper: #131416;
  --hue-0: #48b0f5; --hue-1: #e74c15; --hue-2: #a3fce9; --hue-3: #9d658c; --hue-4: #f5e515; --hue-5: #7076f2;
  --hue-6: #fe9a93; --shade-0: #7d6bc4; --shade-1: #5b83c9; --shade-2: #2fa3b0; --shade-3: #3dbc83; --shade-4: #8fd744;
  --shade-5: #fde725; } }
text { font: 12px system-ui, sans-serif; fill: var(--quiet); }
text.title { font-size: 14px; font-weight: 600; fill: var(--ink); }
.tick { text-anchor: middle; } .tick.side { text-anchor: end; }
.grid { stroke: var(--grid); } .foot { stroke: var(--quiet); }
.hue-0 { --own: var(--hue-0); } .hue-1 { --own: var(--hue-1); } .hue-2 { --own: var(--hue-2); }
.hue-3 { --own: var(--hue-3); } .hue-4 { --own: var(--hue-4); } .hue-5 { --own: var(--hue-5); }
.hue-6 { --own: var(--hue-6); } .other { --own: var(--other); }
.shade-0 { --own: var(--shade-0); } .shade-1 { --own: var(--shade-1); } .shade-2 { --own: var(--shade-2); }
.shade-3 { --own: var(--shade-3); } .shade-4 { --own: var(--shade-4); } .shade-5 { --own: var(--shade-5); }
path.line { fill: none; stroke: var(--own); stroke-width: 2; vector-effect: non-scaling-stroke; }
path.line.dashed { stroke-dasharray: 5 4; stroke-width: 1.4; }
path.band { fill: var(--own); fill-opacity: 0.16; } circle { fill: var(--own); }
.dots { fill: none; stroke: var(--own); stroke-width: 3; stroke-linecap: round; stroke-opacity: 0.8; }
.dots.square { stroke-linecap: square; stroke-width: 2.6; } .dots.ring { stroke-width: 4; }
.dots.hole { stroke: var(--paper); stroke-width: 1.8; } .dots.key { stroke-width: 9; stroke-opacity: 1; }
.frame { fill: none; stroke: var(--grid); } .axis { fill: none; stroke: var(--quiet); stroke-opacity: 0.7; }
rect.shade-0, rect.shade-1, rect.shade-2, rect.shade-3, rect.shade-4, rect.shade-5 { fill: var(--own); }
"""


def render_figure(drawn: Figure) -> Markup:
    """A figure as a part of a page: its key, its panels, its caption."""
    names = series_names(drawn)
    looks = ((f"line arm {hue_class(i)}{_dash_class(each)}", each.name) for i, each in enumerate(_unique_series(drawn)))
    guide = render_legend(*looks)
    panels = [tag("figure", tag("h4", tag("bdi", each.title)), render_panel(each, names)) for each in drawn.panels]
    return tag(
        "div",
        tag("h3", f"{drawn.title}{f' ({drawn.where})' if drawn.where else ''}"),
        tag("p", drawn.caption, class_="hint"),
        guide if names else None,
        tag("div", *panels, class_="figures clouds" if _has_only_scatters(drawn) else "figures trios"),
        class_="study-figure",
        id=f"figure-{figure_name(drawn.key)}",
    )


def render_panel(panel: Panel | Scatter, names: Sequence[str]) -> Markup:
    """One pair of axes, or a cloud in each of its colourings."""
    if isinstance(panel, Scatter):
        return render_scatter(panel)
    across, up, inner, over = _draw_panel_parts(panel, names)
    return draw_chart(
        panel.title,
        _describe_panel(panel),
        across,
        up,
        inner,
        over=over,
        x_name=panel.x_name,
        y_name=panel.y_name,
        kind="small",
        y_written=_format_tick,
        x_ticks=[(value, _format_tick(value)) for value in across.ticks(5)],
    )


def render_svg(drawn: Figure, title: str) -> str:
    """A figure as an SVG file: panels in two columns, a key below each row's title."""
    names, panels = series_names(drawn), [each for each in drawn.panels if isinstance(each, Panel)]
    columns = max(1, min(2, len(panels)))
    wide = columns * (_LEFT + _WIDE + 24) + 8
    parts, top = [tag("text", title, x=16, y=26, class_="title")], 44
    if names:
        each_row = max(1, int(wide // _legend_width(names)))
        parts.append(_draw_legend(_unique_series(drawn), names, each_row, top))
        top += 20 * math.ceil(len(names) / each_row) + 8
    for i, panel in enumerate(panels):
        x, y = 8 + (i % columns) * (_LEFT + _WIDE + 24), top + (i // columns) * (_TOP + _HIGH + _GAP)
        parts.append(_draw_panel(panel, names, x + _LEFT, y + _TOP))
    high: float = top + math.ceil(len(panels) / columns) * (_TOP + _HIGH + _GAP)
    clouds = [each for each in drawn.panels if isinstance(each, Scatter)]
    if clouds:
        more, across, high = draw_scatters(clouds, high)
        parts, wide = parts + more, max(wide, math.ceil(across)) if panels else math.ceil(across)
    drawing = tag(
        "svg",
        tag("title", title),
        tag("style", Markup(_STYLE)),
        tag("rect", width="100%", height="100%", style="fill: var(--paper)"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=wide,
        height=high,
        viewBox=f"0 0 {wide} {high}",
        role="img",
    )
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _NOT_XML.sub("\ufffd", drawing)


def series_names(drawn: Figure) -> list[str]:
    """The series of all panels, each once: its place is its colour."""
    return [each.name for each in _unique_series(drawn)]


def hue_class(place: int) -> str:
    """The class that gives a series its colour."""
    return f"hue-{place}" if place < _HUES else "other"


def _has_only_scatters(drawn: Figure) -> bool:
    return all(isinstance(each, Scatter) for each in drawn.panels)


def _unique_series(drawn: Figure) -> list[Series]:
    found: dict[str, Series] = {}
    for panel in drawn.panels:
        for each in panel.series if isinstance(panel, Panel) else ():
            found.setdefault(each.name, each)
    return list(found.values())


def _dash_class(series: Series) -> str:
    return " dashed" if series.dashed else ""


def _draw_panel_parts(panel: Panel, names: Sequence[str]) -> tuple[Scale, Scale, list[Markup], list[Markup]]:
    """A panel's scales, its lines in the inner drawing, its dots over it."""
    across = _make_scale((x for each in panel.series for x in each.x), log=panel.log_x)
    heights = (y for each in panel.series for part in (each.y, each.low or (), each.high or ()) for y in part)
    up = _make_scale(heights, log=panel.log_y, margin=0.06, zero=panel.zero)
    inner, over = [], []
    for each in panel.series:
        look = hue_class(names.index(each.name))
        known = [
            i for i, (x, y) in enumerate(zip(each.x, each.y, strict=True)) if math.isfinite(x) and math.isfinite(y)
        ]
        if each.dots or len(known) == 1:
            over += [
                tag(
                    "circle",
                    tag("title", f"{each.name}: {format_number(each.x[i])}, {format_number(each.y[i])}"),
                    cx=across.percent(each.x[i]),
                    cy=f"{100 * (1 - up(each.y[i])):.1f}%",
                    r="3.2",
                    class_=f"arm {look}",
                )
                for i in known
            ]
            continue
        if each.low is not None and each.high is not None:
            banded = [i for i in known if math.isfinite(each.low[i]) and math.isfinite(each.high[i])]
            there = [(each.x[i], each.high[i]) for i in banded] + [(each.x[i], each.low[i]) for i in reversed(banded)]
            path = line_path((x for x, _ in there), (y for _, y in there), across, up) + "Z"
            inner += [tag("path", d=path, class_=f"band {look}")] if there else []
        path = line_path((each.x[i] for i in known), (each.y[i] for i in known), across, up)
        inner.append(tag("path", tag("title", each.name), d=path, class_=f"line arm whole {look}{_dash_class(each)}"))
    return across, up, inner, over


def _make_scale(values: Iterable[float], *, log: bool, margin: float = 0.0, zero: bool = False) -> Scale:
    known = [each for each in values if math.isfinite(each) and (not log or each > 0)]
    if not known:
        return Scale(0.0, 1.0)
    low, high = min(known), max(known)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if log:
        return Scale(low / 1.15 ** bool(margin), high * 1.15 ** bool(margin), log=True)
    room = margin * (high - low) or (abs(high) or 1.0) * 0.05 * bool(margin)
    return Scale(low - (0 if zero and low == 0 else room), high + (0 if zero and high == 0 else room))


def _format_tick(value: float) -> str:
    return (f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:,.4g}").replace("-", "−")


def _describe_panel(panel: Panel) -> str:
    """The chart for those who cannot see it."""
    parts = []
    for each in panel.series:
        known = [y for y in each.y if math.isfinite(y)]
        if known and each.dots:
            parts.append(
                f"{each.name}: {len(known)} dots from {format_number(min(known))} to {format_number(max(known))}."
            )
        elif known:
            parts.append(f"{each.name}: from {format_number(known[0])} to {format_number(known[-1])}.")
    return " ".join(parts)


# files


def _draw_panel(panel: Panel, names: Sequence[str], x: float, y: float) -> Markup:
    title = tag("text", panel.title, x=x - _LEFT + 8, y=y - 24, class_="title")
    across, up, inner, over = _draw_panel_parts(panel, names)
    marks = []
    for value in up.ticks(4):
        place = f"{100 * (1 - up(value)):.1f}%"
        marks.append(tag("line", x1="0", x2="100%", y1=place, y2=place, class_="grid"))
        marks.append(tag("text", _format_tick(value), x="-8", y=place, dy="0.32em", class_="tick side"))
    for value in across.ticks(5):
        marks.append(tag("text", _format_tick(value), x=across.percent(value), y="100%", dy="18", class_="tick"))
    drawing = tag("svg", *inner, viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%")
    foot = tag("line", x1="0", x2="100%", y1="100%", y2="100%", class_="foot")
    return join_markup(
        title,
        tag("text", panel.y_name, x=x - _LEFT + 8, y=y - 8),
        tag("svg", *marks, drawing, foot, *over, x=x, y=y, width=_WIDE, height=_HIGH, style="overflow: visible"),
        tag("text", panel.x_name, x=x + _WIDE / 2, y=y + _HIGH + 38, class_="tick"),
    )


def _legend_width(names: Sequence[str]) -> int:
    """For a mark and the longest name, by about 7 pixels a letter."""
    return max(210, 48 + 7 * max(map(len, names)))


def _draw_legend(series: Sequence[Series], names: Sequence[str], each_row: int, top: float) -> Markup:
    parts = []
    for i, each in enumerate(series):
        x, y = 16 + _legend_width(names) * (i % each_row), top + 20 * (i // each_row)
        if each.dots:
            parts.append(tag("circle", cx=x + 12, cy=y, r=4, class_=hue_class(i)))
        else:
            parts.append(tag("path", d=f"M{x} {y}h24", class_=f"line {hue_class(i)}{_dash_class(each)}"))
        parts.append(tag("text", each.name, x=x + 32, y=y, dy="0.35em"))
    return join_markup(*parts)
