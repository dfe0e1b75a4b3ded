"""Draw the figures of studies: panels with lines, and scatter plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.cloud import (
    CategoricalColoring,
    ContinuousColoring,
    draw_dot,
    draw_points,
    points_by_class,
    render_color_legend,
)
from isoscope._report.html import join_markup, tag
from isoscope._report.line_chart import MARGIN, arm_color
from isoscope._report.svg import Chart, Line, fit_scale, format_tick, render_legend
from isoscope._report.svg_file import (
    GAP,
    LEFT,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    TOP,
    draw_legend,
    draw_panel,
    legend_width,
    render_svg_file,
)
from isoscope.auditing.finding import format_number
from isoscope.studies.formatting import figure_name
from isoscope.studies.study import Panel, Scatter

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.studies.study import Figure, Series


MAX_POINTS = 800
"""The maximum number of points to draw; more would enlarge the file without making the picture clearer."""

_SIDE, _SCATTER_GAP, _LINE_HEIGHT = 200, 24, 22  # side of a picture in a file, gap between pictures, text line height
_MAX_WIDTH, _LETTER = 960, 8.2  # width of a file, approximate width of a letter in a title
_MAX_LEGEND_GROUPS = 15
_MARGIN = 8  # margin inside a picture, so that no dot is clipped
_AZIMUTH, _ELEVATION = math.radians(35), math.radians(25)  # direction of view of a 3-D picture


def render_scatter(cloud: Scatter) -> Markup:
    """Return a scatter plot for a page, with a picture and a legend for each coloring and view."""
    thin = _subsample(cloud)
    parts = []
    for way in _make_colorings(thin):
        views = [
            tag(
                "svg",
                *drawn,
                viewBox=f"0 0 {_SIDE} {_SIDE}",
                role="img",
                aria_label=f"{cloud.title}, {words}, colored by {way.title}",
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
    """Return scatter plots for a file, with their total width and the position of their lower edge.

    Each scatter plot has a row for each view and a column for each coloring. As many as fit are placed side by side.
    """
    parts: list[Markup] = []
    columns = max(len(each.colors) for each in clouds)
    wide = max(
        columns * (_SIDE + _SCATTER_GAP), math.ceil(_LETTER * max(len(each.title) for each in clouds)) + _SCATTER_GAP
    )
    per_row = max(1, min(len(clouds), _MAX_WIDTH // wide))
    for start in range(0, len(clouds), per_row):
        row = [
            _draw_scatter(cloud, 16 + place * wide, top) for place, cloud in enumerate(clouds[start : start + per_row])
        ]
        parts += [each for own, _ in row for each in own]
        top = max(end for _, end in row) + 16
    return parts, 16 + per_row * wide + 8, top


def _draw_scatter(cloud: Scatter, left: float, top: float) -> tuple[list[Markup], float]:
    """Return a scatter plot for a file, with title, views and legends, and the position of its lower edge."""
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
    """Return the number of groups as text if there are too many groups for a legend."""
    return (
        f" ({len(way.names)} groups)"
        if isinstance(way, CategoricalColoring) and len(way.names) > _MAX_LEGEND_GROUPS
        else ""
    )


def _make_colorings(cloud: Scatter) -> list[CategoricalColoring | ContinuousColoring]:
    """Return the colorings: a continuous scale if all values are numbers, else a color for each group."""
    colorings: list[CategoricalColoring | ContinuousColoring] = []
    for title, values in cloud.colors.items() if cloud.points else ():
        if all(isinstance(each, int | float) for each in values):
            known = np.asarray([each if math.isfinite(each) else 0.0 for each in values], np.float64)
            colorings.append(ContinuousColoring(title, title, known))
        else:
            names, codes = np.unique([str(each) for each in values], return_inverse=True)
            colorings.append(CategoricalColoring(title, title, names.tolist(), codes, "others"))
    return colorings


def _draw_views(cloud: Scatter, way: CategoricalColoring | ContinuousColoring) -> list[tuple[str, list[Markup]]]:
    """Draw the points in two dimensions and, if they have a third dimension, also in 3-D with axes."""
    points = np.asarray(cloud.points, np.float64).reshape(len(cloud.points), -1)
    flat = [("in two dimensions", draw_points(*_scale_to_picture(points[:, :2]), way))]
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
    return [*flat, ("in three dimensions", [*lines, *draw_points(across[:-4], down[:-4], way), *names])]


def _project_oblique(points: np.ndarray) -> np.ndarray:
    """Project 3-D points onto a plane, viewed obliquely from above; the third axis points up."""
    x, y, z = points.T
    right = x * math.cos(_AZIMUTH) - y * math.sin(_AZIMUTH)
    away = x * math.sin(_AZIMUTH) + y * math.cos(_AZIMUTH)
    return np.stack([right, z * math.cos(_ELEVATION) + away * math.sin(_ELEVATION)], axis=1)


def _scale_to_picture(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of points in a picture, with the same scale in both directions."""
    low, high = flat.min(axis=0), flat.max(axis=0)
    scale = (_SIDE - 2 * _MARGIN) / (float((high - low).max()) or 1.0)
    places = (flat - (low + high) / 2) * scale
    return _SIDE / 2 + places[:, 0], _SIDE / 2 - places[:, 1]


def _subsample(cloud: Scatter) -> Scatter:
    known = [i for i, point in enumerate(cloud.points) if all(map(math.isfinite, point))]
    kept = known[:: max(1, math.ceil(len(known) / MAX_POINTS))]
    colors = {name: [values[i] for i in kept] for name, values in cloud.colors.items()}
    return Scatter(cloud.title, [cloud.points[i] for i in kept], colors)


def _draw_scatter_legend(
    way: CategoricalColoring | ContinuousColoring, x: float, y: float
) -> tuple[list[Markup], float]:
    """Return the legend below a column of charts, and the position of the legend's lower edge."""
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
        own = CategoricalColoring("", "", [name], np.zeros(1, int), "", shared_slots=np.array([slot]))
        mark = [
            join_markup(
                *(
                    tag("path", d=f"M{x + 6} {y + 5}{draw_dot(look)}", class_=f"dots key {look}")
                    for look, some in points_by_class(own)
                    if len(some)
                )
            )
        ]
        parts += [*mark, tag("text", f"{name} ({int((slots == slot).sum())})", x=x + 18, y=y + 10)]
        y += 17
    return parts, y + 6


def render_figure(figure: Figure) -> Markup:
    """Return a figure for a page: title, caption, legend and panels."""
    names = series_names(figure)
    only_scatters = all(isinstance(panel, Scatter) for panel in figure.panels)
    panels = [tag("figure", tag("h4", tag("bdi", each.title)), render_panel(each, names)) for each in figure.panels]
    return tag(
        "div",
        tag("h3", f"{figure.title}{f' ({figure.where})' if figure.where else ''}"),
        tag("p", figure.caption, class_="hint"),
        render_legend(*((line.swatch, line.name) for line in _named_lines(figure))) if names else None,
        tag("div", *panels, class_="figures clouds" if only_scatters else "figures trios"),
        class_="study-figure",
        id=f"figure-{figure_name(figure.key)}",
    )


def render_panel(panel: Panel | Scatter, names: Sequence[str]) -> Markup:
    """Return a chart, or a scatter plot for each coloring; the position of a series in `names` determines its color."""
    return render_scatter(panel) if isinstance(panel, Scatter) else build_chart(panel, names).to_svg()


def render_svg(figure: Figure, title: str) -> str:
    """Return a figure as an SVG file: a legend, panels in two columns, then scatter plots."""
    names, panels = series_names(figure), [each for each in figure.panels if isinstance(each, Panel)]
    columns = max(1, min(2, len(panels)))
    width = columns * (LEFT + PANEL_WIDTH + 24) + 8
    parts, top = [tag("text", title, x=16, y=26, class_="title")], 44
    if names:
        per_row = max(1, int(width // legend_width(names)))
        parts.append(draw_legend(_named_lines(figure), per_row, top))
        top += 20 * math.ceil(len(names) / per_row) + 8
    for i, panel in enumerate(panels):
        x = 8 + (i % columns) * (LEFT + PANEL_WIDTH + 24)
        y = top + (i // columns) * (TOP + PANEL_HEIGHT + GAP)
        parts.append(draw_panel(build_chart(panel, names), x + LEFT, y + TOP))
    height: float = top + math.ceil(len(panels) / columns) * (TOP + PANEL_HEIGHT + GAP)
    scatters = [each for each in figure.panels if isinstance(each, Scatter)]
    if scatters:
        more, across, height = draw_scatters(scatters, height)
        parts, width = parts + more, max(width, math.ceil(across)) if panels else math.ceil(across)
    return render_svg_file(title, width, height, *parts)


def series_names(figure: Figure) -> list[str]:
    """Return the distinct names of the series in all panels."""
    panels = (panel for panel in figure.panels if isinstance(panel, Panel))
    return list(dict.fromkeys(series.name for panel in panels for series in panel.series))


def build_chart(panel: Panel, names: Sequence[str]) -> Chart:
    """Convert a panel to a chart."""
    heights = (y for each in panel.series for part in (each.y, each.low or (), each.high or ()) for y in part)
    across = fit_scale((x for each in panel.series for x in each.x), log=panel.log_x)
    return Chart(
        panel.title,
        _describe_panel(panel),
        across,
        fit_scale(heights, log=panel.log_y, margin=MARGIN, zero=panel.zero),
        [_build_line(series, names) for series in panel.series],
        x_name=panel.x_name,
        y_name=panel.y_name,
        x_ticks=[(value, _format_tick(value)) for value in across.ticks(5)],
        format_y=_format_tick,
        size="small",
    )


def _build_line(series: Series, names: Sequence[str]) -> Line:
    """Convert a series to a line, without points that are NaN or infinite."""
    x, y = np.asarray(series.x, np.float64), np.asarray(series.y, np.float64)
    known = np.isfinite(x) & np.isfinite(y)
    low, high = (None if each is None else np.asarray(each, np.float64)[known] for each in (series.low, series.high))
    titles = [f"{series.name}: {format_number(a)}, {format_number(b)}" for a, b in zip(x[known], y[known], strict=True)]
    return Line(
        x[known],
        y[known],
        low,
        high,
        f"{arm_color(names.index(series.name))} {'dashed' if series.dashed else 'thick'}",
        series.name,
        "dots" if series.dots else "line",
        titles=titles,
    )


def _named_lines(figure: Figure) -> list[Line]:
    """Return one line for each distinct series name, for the legend."""
    names = series_names(figure)
    panels = [panel for panel in figure.panels if isinstance(panel, Panel)]
    return [
        next(_build_line(each, names) for panel in panels for each in panel.series if each.name == name)
        for name in names
    ]


def _format_tick(value: float) -> str:
    return format_tick(value, 7 if 1e4 <= abs(value) < 1e7 else 4)


def _describe_panel(panel: Panel) -> str:
    """Return a description of each series, for readers who cannot see the chart."""
    parts = []
    for series in panel.series:
        known = [y for y in series.y if math.isfinite(y)]
        if known and series.dots:
            low, high = format_number(min(known)), format_number(max(known))
            parts.append(f"{series.name}: {len(known)} dots from {low} to {high}.")
        elif known:
            parts.append(f"{series.name}: from {format_number(known[0])} to {format_number(known[-1])}.")
    return " ".join(parts)
