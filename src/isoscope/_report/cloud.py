"""The cloud of points: a still projection, and what the page's script needs to draw one that turns."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._report.coloring import find_colorings, points_by_class
from isoscope._report.coloring import render_legend as legend_of
from isoscope._report.html import join_markup, json_script, tag
from isoscope._report.svg import format_coordinate
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.coloring import CategoricalColoring, ContinuousColoring
    from isoscope._report.html import Markup
    from isoscope._report.pictures import Pictures

_WIDTH, _HEIGHT = 1000, 620


def render_point_cloud(p: Pictures, identity: str, name: str, total: int) -> tuple[Markup, str]:
    """The figure's content, and its caption."""
    caption = format_caption(p, total)
    ways = find_colorings(p)
    choices = [(way.key, way.title) for way in ways]
    body = render_interactive_cloud(
        identity,
        f"Points of {name}. {caption}",
        choices,
        three=len(_axis_names(p)) == 3,
        still=_draw_static_cloud(p, ways[0], caption),
        legend=legend_of(ways[0]),
    )
    return join_markup(body, json_script(identity, encode_cloud(p, ways))), caption


def render_interactive_cloud(
    identity: str,
    words: str,
    choices: Sequence[tuple[str, str]],
    *,
    three: bool,
    still: Markup | None = None,
    legend: Markup | None = None,
    later: bool = False,
) -> Markup:
    """The cloud that turns, with all that steers it: `choices` are keys and titles of what it can be coloured by.

    `words` say what it shows; `still` and its `legend` are for print and where no script runs. The points are in the
    JSON of this identity, or are given `later`.
    """
    controls = tag(
        "div",
        render_button_group("Colour by", "colour", choices),
        render_button_group("View", "view", [("3", "3-D"), ("2", "2-D")]) if three else None,
        tag(
            "div",
            *(
                tag("button", sign, type="button", data_zoom=how, aria_label=words, title=words)
                for how, sign, words in (
                    ("in", "+", "Zoom in"),
                    ("out", "−", "Zoom out"),
                    ("reset", "Reset", "Reset the view"),
                )
            ),
            role="group",
            aria_label="Zoom",
            class_="choice",
        ),
        tag("button", "Turn freely", type="button", data_hold=True, aria_pressed="false", class_="for-touch"),
        class_="controls live",
    )
    stage = tag(
        "div",
        tag(
            "canvas",
            tabindex="0",
            role="application",
            aria_label=words,
            aria_describedby=f"{identity}-keys",
            class_="live",
        ),
        still,
        tag("div", class_="tip live", hidden=True),
        class_="stage",
    )
    keys = tag(
        "p",
        tag("span", "Drag to turn, hold Ctrl and scroll to zoom, point at a dot to read it. ", class_="for-mouse"),
        tag(
            "span",
            "Swipe sideways to turn, pinch to zoom, tap a dot to read it; “Turn freely” turns "
            "up and down in place of scrolling. ",
            class_="for-touch",
        ),
        "Keys: arrows turn, + and − zoom, 0 resets, N and P step through the points.",
        id=f"{identity}-keys",
        class_="hint live",
    )
    return tag(
        "div",
        controls,
        stage,
        legend,
        tag("ul", class_="legend live"),
        keys,
        tag("p", class_="spoken live", aria_live="polite"),
        data_cloud=None if later else identity,
        class_="cloud",
    )


def format_caption(p: Pictures, total: int) -> str:
    """How many points are drawn, along what."""
    drawn = len(p.points)
    count = f"All {total:,} vectors are drawn" if drawn >= total else f"{drawn:,} of {total:,} vectors are drawn"
    directions = min(3, len(p.activation_mean))
    shares = [format_number(float(share), "share") for share in p.explained_variance[:directions]]
    together = format_number(min(float(p.explained_variance.sum()), 1.0), "share")
    return (
        f"{count}, along the first {'three' if directions == 3 else 'two'} principal directions, which hold "
        f"{', '.join(shares[:-1])} and {shares[-1]} of the variance, together {together}. "
        "What lies close here need not lie close in the whole space."
    )


def render_button_group(name: str, kind: str, options: Sequence[tuple[str, str]]) -> Markup:
    """Buttons of which one is pressed, the first to begin with: (value, words)."""
    buttons = (
        tag("button", words, type="button", aria_pressed="false" if i else "true", **{f"data_{kind}": value})
        for i, (value, words) in enumerate(options)
    )
    return tag("div", tag("span", name, aria_hidden="true"), *buttons, role="group", aria_label=name, class_="choice")


def _draw_static_cloud(p: Pictures, way: CategoricalColoring | ContinuousColoring, caption: str) -> Markup:
    """The first two directions, for print and where no script runs."""
    x, y = p.points[:, 0], -p.points[:, 1]
    wide, high = float(np.ptp(x)) if len(x) else 0.0, float(np.ptp(y)) if len(y) else 0.0
    scale = min((_WIDTH - 40) / max(wide, 1e-300), (_HEIGHT - 40) / max(high, 1e-300))
    scale = scale if np.isfinite(scale) and max(wide, high) > 0 else 0.0
    middle = [(float(v.max()) + float(v.min())) / 2 if len(v) else 0.0 for v in (x, y)]
    across, down = _WIDTH / 2 + scale * (x - middle[0]), _HEIGHT / 2 + scale * (y - middle[1])
    return tag(
        "svg",
        *draw_points(across, down, way),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"The points along two directions. {caption}",
        class_="still",
    )


def draw_points(
    across: np.ndarray, down: np.ndarray, way: CategoricalColoring | ContinuousColoring | None
) -> list[Markup]:
    """Points at places of a drawing, in their colours; of no colouring they are all alike."""
    paths = []
    for class_, members in points_by_class(way) if way is not None else [("other disc", np.arange(len(across)))]:
        d = "".join(
            f"M{format_coordinate(a)} {format_coordinate(b)}h0"
            for a, b in zip(across[members], down[members], strict=True)
        )
        if d:
            paths.append(tag("path", d=d, class_=f"dots {class_}"))
            if "ring" in class_:
                paths.append(tag("path", d=d, class_="dots hole"))
    return paths


def _axis_names(p: Pictures) -> list[str]:
    """Names of the directions in which there is anything to see."""
    return [
        f"direction {i + 1}: {format_number(share, 'share')}"
        for i, share in enumerate(p.explained_variance.tolist())
        if share > 1e-9
    ]


def encode_cloud(p: Pictures, ways: Sequence[CategoricalColoring | ContinuousColoring]) -> dict[str, Any]:
    """Everything the script needs; coordinates are 16-bit numbers, of which the greatest is 32767."""
    greatest = float(np.abs(p.points).max(initial=0)) or 1.0
    coordinates = np.rint(p.points / greatest * 32767).astype("<i2")
    return {
        "points": b64encode(coordinates.tobytes()).decode("ascii"),
        "rows": p.rows.tolist(),
        "text": p.text,
        "axes": _axis_names(p),
        "colourings": [way.held() for way in ways],
    }
