"""Charts and clouds as SVG files, and as images for notebooks that show no widgets."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isoscope._report.cloud import draw_small_cloud
from isoscope._report.html import Markup, join_markup, read_resources, tag
from isoscope._report.svg import draw_mark

if TYPE_CHECKING:
    from isoscope._report.pictures import PointCloud
    from isoscope._report.svg import Chart, Line

PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 400, 240, 64, 44, 70
"""Pixels of a panel: its frame, the margins at its left and top, and the gap below it."""

_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # not allowed in XML, not even escaped
_DARK = re.compile(r"@media screen and \(prefers-color-scheme: dark\) \{\s*:root \{[^}]*\}\s*\}")
_COMMENT = re.compile(r"/\*.*?\*/\s*|\n+\s*", re.S)
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: var(--quiet); }
text.title { font-size: 14px; font-weight: 600; fill: var(--ink); }
path.line, path.line.thick { stroke-width: 2; } path.line.dashed { stroke-width: 1.4; }
.dots { stroke-width: 3; stroke-opacity: 0.8; } .dots.square { stroke-width: 2.6; } .dots.ring { stroke-width: 4; }
.dots.hole { stroke: var(--paper); stroke-width: 1.8; } .dots.key { stroke-width: 9; stroke-opacity: 1; }
.gain { --own: var(--ok); } .loss { --own: var(--bad); } .noise, .as-is { --own: var(--quiet); }
.as-is .mark { fill: var(--paper); stroke: var(--ink); stroke-width: 1.8; }
.ring { fill: none; stroke: var(--accent); stroke-width: 2; }
.frame { fill: none; stroke: var(--grid); } .axis { fill: none; stroke: var(--quiet); stroke-opacity: 0.7; }
.zero { stroke: var(--ink); stroke-width: 1.2; }
"""


def render_svg_file(title: str, width: float, height: float, *parts: Markup, dark: bool = True) -> str:
    """Return a drawing as the text of an SVG file; without `dark`, it has light colors on every screen."""
    style = read_resources("colors.css", "chart.css") + _STYLE
    if not dark:
        style = _COMMENT.sub("\n", _DARK.sub("", style))
    drawing = tag(
        "svg",
        tag("title", title),
        tag("style", Markup(style)),
        tag("rect", width="100%", height="100%", style="fill: var(--paper)"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
    )
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _NOT_XML.sub("\ufffd", drawing)


def draw_panel(chart: Chart, x: float, y: float, room: float = 0) -> Markup:
    """Draw a chart with its title and the names of its axes; its frame begins at this position.

    `room` is the height to leave free below the title, for a legend.
    """
    size = {"x": x, "y": y, "width": PANEL_WIDTH, "height": PANEL_HEIGHT}
    return join_markup(
        tag("text", chart.title, x=x - LEFT + 8, y=y - room - 24, class_="title"),
        tag("text", chart.y_name, x=x - LEFT + 8, y=y - 8),
        tag("svg", chart.draw_contents(), style="overflow: visible", **size),
        tag("text", chart.x_name, x=x + PANEL_WIDTH / 2, y=y + PANEL_HEIGHT + 38, class_="tick"),
    )


def legend_width(names: Sequence[str]) -> int:
    """Return the width of a legend entry: the mark and the longest name, at about 7 pixels per letter."""
    return max(210, 48 + 7 * max(map(len, names)))


def draw_legend(lines: Sequence[Line], per_row: int, top: float) -> Markup:
    """Draw the legend of these lines, which have names."""
    parts = []
    width = legend_width([line.name for line in lines])
    for i, line in enumerate(lines):
        x, y = 16 + width * (i % per_row), top + 20 * (i // per_row)
        if line.form == "dots":
            parts.append(draw_mark("dot", str(x + 12), str(y), style=line.style))
        else:
            parts.append(tag("path", d=f"M{x} {y}h24", class_=line.swatch))
        parts.append(tag("text", line.name, x=x + 32, y=y, dy="0.35em"))
    return join_markup(*parts)


# images in notebooks


def render_chart_image(chart: Chart) -> Markup:
    """Return a chart as an image for a notebook."""
    lines = list({line.name: line for line in chart.lines if line.name}.values())
    room = 20 * len(lines)
    panel = draw_panel(chart, LEFT, TOP + room, room)
    legend = [draw_legend(lines, 1, TOP - 6)] if lines else []
    size = LEFT + PANEL_WIDTH + 24, TOP + room + PANEL_HEIGHT + GAP - 20
    file = render_svg_file(chart.title, *size, panel, *legend, dark=False)
    return render_image(file, f"{chart.title}. {chart.description}")


def render_cloud_image(cloud: PointCloud, name: str) -> Markup:
    """Return the points along two principal components as an image for a notebook."""
    drawing = Markup(draw_small_cloud(cloud).replace("<svg ", '<svg x="8" y="40" width="472" height="293" ', 1))
    title = tag("text", f"Points of {name}", x=16, y=24, class_="title")
    file = render_svg_file(f"Points of {name}", 488, 342, title, drawing, dark=False)
    return render_image(file, f"Points of {name} along two principal components")


def render_image(file: str, words: str) -> Markup:
    """Return the text of an SVG file as an image for a notebook; `words` describe it."""
    source = "data:image/svg+xml;base64," + b64encode(file.encode("utf-8", "replace")).decode("ascii")
    return tag("img", src=source, alt=words, style="max-width:100%;height:auto;margin:.4em .8em .4em 0")
