"""Clouds of a study's figures: along two principal directions, and along three seen from aside, in each colouring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.cloud import draw_points
from isoscope._report.coloring import CategoricalColoring, ContinuousColoring, points_by_class, render_legend
from isoscope._report.html import join_markup, tag
from isoscope.auditing.finding import format_number
from isoscope.studies.outcome import Scatter

if TYPE_CHECKING:
    from isoscope._report.html import Markup

MAX_POINTS = 800
"""Drawn of a cloud: more make a file heavy and a picture no clearer."""

_SIDE, _GAP, _LINE_HEIGHT = 200, 24, 22  # of a picture in a file; between pictures; for a line of words
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
                None if _format_group_count(way) else render_legend(way),
            )
        )
    return tag("div", *parts, class_="cloud-views")


def draw_scatters(clouds: Sequence[Scatter], top: float) -> tuple[list[Markup], float, float]:
    """Clouds in a file, as many beside each other as there is room for; how wide and how far down it is.

    Each has a row for each view and a column for each colouring.
    """
    parts: list[Markup] = []
    columns = max(len(each.colors) for each in clouds)
    wide = max(columns * (_SIDE + _GAP), math.ceil(_LETTER * max(len(each.title) for each in clouds)) + _GAP)
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
        x, y = left + i * (_SIDE + _GAP), top
        parts.append(tag("text", f"by {way.title}{_format_group_count(way)}", x=x, y=y + 14))
        y += _LINE_HEIGHT
        for words, drawn in _draw_views(thin, way):
            frame = tag("rect", width=_SIDE, height=_SIDE, class_="frame")
            parts.append(tag("svg", frame, tag("title", words), *drawn, x=x, y=y, width=_SIDE, height=_SIDE))
            y += _SIDE + 10
        if not _format_group_count(way):
            key, y = _draw_legend(way, x, y)
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


def _draw_legend(way: CategoricalColoring | ContinuousColoring, x: float, y: float) -> tuple[list[Markup], float]:
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
