"""The cloud of points: a still projection, and what the page's script needs to draw one that turns."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np

from isoscope.report.drawing.axes import short
from isoscope.report.drawing.markup import Markup, data, joined, tag
from isoscope.report.finding import written
from isoscope.report.pictures import Pictures
from isoscope.report.token_kinds import KINDS

NAMES = 20
"""Groups that have a colour and a shape of their own; the rest are "others"."""
HUES = 7
"""Colours of groups in page.css; after each round of them the shape changes."""
SHADES = 6
"""Colours of a continuous scale in page.css."""

_SHAPES = ("disc", "square", "ring")
_WIDTH, _HEIGHT = 1000, 620


@dataclass(frozen=True)
class Groups:
    """A colouring by names: each name has a slot, −1 for those without a colour of their own."""

    key: str
    title: str
    names: list[str]
    codes: np.ndarray
    rest: str

    @property
    def slots(self) -> np.ndarray:
        """The names' slots: the most frequent name has the first."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        slots = np.full(len(self.names), -1)
        order = np.argsort(-counts, kind="stable")[:NAMES]
        slots[order] = np.arange(len(order))
        return slots

    @property
    def point_slots(self) -> np.ndarray:
        """Each point's slot."""
        return np.asarray(np.append(self.slots, -1)[self.codes])

    def held(self) -> dict[str, Any]:
        """As the script reads it."""
        return {
            "key": self.key,
            "title": self.title,
            "names": self.names,
            "codes": self.codes.tolist(),
            "slots": self.slots.tolist(),
            "rest": self.rest,
        }


@dataclass(frozen=True)
class Measure:
    """A colouring by a number, between its 2nd and its 98th percentile."""

    key: str
    title: str
    values: np.ndarray
    log: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """Where the scale begins and ends."""
        low, high = np.quantile(self.values, [0.02, 0.98])
        return float(f"{low:.4g}"), float(f"{high:.4g}")

    @property
    def shades(self) -> np.ndarray:
        """Each point's shade, from 0."""
        low, high = self.ends
        values = self.values.astype(np.float64)
        if self.log:
            low, high, values = np.log(max(low, 1e-300)), np.log(max(high, 1e-300)), np.log(np.maximum(values, 1e-300))
        places = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
        return np.asarray(np.clip((places * SHADES).astype(int), 0, SHADES - 1))

    def held(self) -> dict[str, Any]:
        """As the script reads it."""
        low, high = self.ends
        values = [float(f"{value:.5g}") for value in self.values.tolist()]
        return {"key": self.key, "title": self.title, "values": values, "low": low, "high": high, "log": self.log}


def colourings(p: Pictures) -> list[Groups | Measure]:
    """What the points can be coloured by."""
    found: list[Groups | Measure] = []
    if p.labels is not None and len(p.label_names):
        others = len(p.label_names) - NAMES
        found.append(Groups("labels", "Label", p.label_names, p.labels, f"{others:,} other labels"))
    if p.clusters is not None:
        found.append(_clusters(p.clusters))
    if p.kinds is not None:
        found.append(Groups("kinds", "Kind of token", list(KINDS), p.kinds, "others"))
    if p.frequency is not None:
        found.append(Measure("frequency", "Frequency", p.frequency, log=True))
    found.append(Measure("lengths", "Length", p.lengths))
    found.append(Measure("rows", "Row number", p.rows))  # word vectors come by frequency, and data by date
    return found


def _clusters(codes: np.ndarray) -> Groups:
    """Clusters numbered by size, the largest first."""
    counts = np.bincount(codes[codes >= 0])
    place = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
    names = [f"cluster {i + 1}" for i in range(len(counts))]
    return Groups("clusters", "Cluster", names, np.append(place, -1)[codes], "not clustered")


def cloud(p: Pictures, identity: str, name: str, total: int) -> tuple[Markup, str]:
    """The figure's content, and its caption."""
    caption = _caption(p, total)
    ways = colourings(p)
    controls = tag(
        "div",
        _choice("Colour by", "colour", [(way.key, way.title) for way in ways]),
        _choice("View", "view", [("3", "3-D"), ("2", "2-D")]) if len(_axes(p)) == 3 else None,
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
            aria_label=f"Points of {name}. {caption}",
            aria_describedby=f"{identity}-keys",
            class_="live",
        ),
        _still(p, ways[0], caption),
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
    body = tag(
        "div",
        controls,
        stage,
        _legend(ways[0]),
        tag("ul", class_="legend live"),
        keys,
        tag("p", class_="spoken live", aria_live="polite"),
        data_cloud=identity,
        class_="cloud",
    )
    return joined(body, data(identity, _held(p, ways))), caption


def _caption(p: Pictures, total: int) -> str:
    drawn = len(p.points)
    count = f"All {total:,} vectors are drawn" if drawn >= total else f"{drawn:,} of {total:,} vectors are drawn"
    directions = min(3, len(p.activation_mean))
    shares = [written(float(share), "share") for share in p.explained[:directions]]
    together = written(min(float(p.explained.sum()), 1.0), "share")
    return (
        f"{count}, along the first {'three' if directions == 3 else 'two'} principal directions, which hold "
        f"{', '.join(shares[:-1])} and {shares[-1]} of the variance, together {together}. "
        "What lies close here need not lie close in the whole space."
    )


def _choice(name: str, kind: str, options: list[tuple[str, str]]) -> Markup:
    buttons = (
        tag("button", words, type="button", aria_pressed="false" if i else "true", **{f"data_{kind}": value})
        for i, (value, words) in enumerate(options)
    )
    return tag("div", tag("span", name, aria_hidden="true"), *buttons, role="group", aria_label=name, class_="choice")


def _still(p: Pictures, way: Groups | Measure, caption: str) -> Markup:
    """The first two directions, for print and where no script runs."""
    x, y = p.points[:, 0], -p.points[:, 1]
    wide, high = float(np.ptp(x)) if len(x) else 0.0, float(np.ptp(y)) if len(y) else 0.0
    scale = min((_WIDTH - 40) / max(wide, 1e-300), (_HEIGHT - 40) / max(high, 1e-300))
    scale = scale if np.isfinite(scale) and max(wide, high) > 0 else 0.0
    middle = [(float(v.max()) + float(v.min())) / 2 if len(v) else 0.0 for v in (x, y)]
    across, down = _WIDTH / 2 + scale * (x - middle[0]), _HEIGHT / 2 + scale * (y - middle[1])
    paths = []
    for class_, members in _classes(way):
        d = "".join(f"M{short(a)} {short(b)}h0" for a, b in zip(across[members], down[members], strict=True))
        if d:
            paths.append(tag("path", d=d, class_=f"dots {class_}"))
            if "ring" in class_:
                paths.append(tag("path", d=d, class_="dots hole"))
    return tag(
        "svg",
        *paths,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"The points along two directions. {caption}",
        class_="still",
    )


def _classes(way: Groups | Measure) -> list[tuple[str, np.ndarray]]:
    """The points of each colour, those that should be on top last."""
    if isinstance(way, Measure):
        return [(f"shade-{i}", np.flatnonzero(way.shades == i)) for i in range(SHADES)]
    slots = way.point_slots
    return [(_look(slot), np.flatnonzero(slots == slot)) for slot in range(-1, int(slots.max(initial=-1)) + 1)]


def _look(slot: int) -> str:
    """The colour and the shape of a slot, as classes of page.css."""
    return "other disc" if slot < 0 else f"hue-{slot % HUES} {_SHAPES[slot // HUES]}"


def _legend(way: Groups | Measure) -> Markup:
    """What the colours of the still projection are."""
    if isinstance(way, Measure):
        low, high = way.ends
        steps = (tag("rect", x=str(20 * i), width="20", height="10", class_=f"shade-{i}") for i in range(SHADES))
        ramp = tag("svg", *steps, viewBox=f"0 0 {20 * SHADES} 10", class_="ramp", aria_hidden="true")
        ends = f"{way.title.lower()} from {written(low)} ", f" to {written(high)}"
        return tag("p", ends[0], ramp, ends[1], class_="legend still")
    slots = way.point_slots
    entries = []
    for slot in [*range(int(way.slots.max(initial=-1)) + 1), -1]:
        count = int((slots == slot).sum())
        if count:
            name = way.rest if slot < 0 else way.names[int(np.flatnonzero(way.slots == slot)[0])]
            entries.append(tag("li", _swatch(slot), tag("bdi", name), " ", tag("small", f"{count:,}")))
    return tag("ul", *entries, class_="legend still")


def _swatch(slot: int) -> Markup:
    look = _look(slot)
    hole = tag("path", d="M6 6h0", class_="dots hole") if "ring" in look else None
    return tag("svg", tag("path", d="M6 6h0", class_=f"dots {look}"), hole, viewBox="0 0 12 12", aria_hidden="true")


def _axes(p: Pictures) -> list[str]:
    """Names of the directions in which there is anything to see."""
    return [
        f"direction {i + 1}: {written(share, 'share')}" for i, share in enumerate(p.explained.tolist()) if share > 1e-9
    ]


def _held(p: Pictures, ways: list[Groups | Measure]) -> dict[str, Any]:
    """Everything the script needs; coordinates are 16-bit numbers, of which the greatest is 32767."""
    greatest = float(np.abs(p.points).max(initial=0)) or 1.0
    coordinates = np.rint(p.points / greatest * 32767).astype("<i2")
    return {
        "points": b64encode(coordinates.tobytes()).decode("ascii"),
        "rows": p.rows.tolist(),
        "text": p.text,
        "axes": _axes(p),
        "colourings": [way.held() for way in ways],
    }
