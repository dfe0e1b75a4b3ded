"""Scales, round ticks and the frame of a chart.

A chart is an SVG without a view box, as wide as its column: places are per cent, so text keeps its size on a phone.
Curves are drawn in an inner SVG of 1000 × 1000 units that is stretched over the frame, with strokes that are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.html import join_markup, tag

if TYPE_CHECKING:
    from isoscope._report.html import Markup

VIEWBOX_SIZE = 1000
"""Length of a side of the inner drawing."""


@dataclass(frozen=True)
class Scale:
    """From values to places between 0 and 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies; ends are not kept."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(each, 1e-300)) for each in (value, low, high))
        return (value - low) / (high - low) if high > low else 0.5

    def percent(self, value: float) -> str:
        """The place as an SVG length, kept within the scale."""
        return f"{format_coordinate(100 * min(max(self(value), 0.0), 1.0))}%"

    def ticks(self, count: int = 5) -> list[float]:
        """About so many round values.

        >>> Scale(0, 1).ticks(5)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> Scale(0.003, 1, log=True).ticks()
        [0.01, 0.1, 1.0]
        """
        if not self.high > self.low:
            return [self.low]
        return self._log_ticks(count) if self.log else self._linear_ticks(count)

    def _linear_ticks(self, count: int) -> list[float]:
        rough = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(step * i, 12) + 0.0 for i in range(first, last + 1)]

    def _log_ticks(self, count: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        leaps = max(1, round((last - first) / count))
        mantissas = (1,) if last - first > 2 else (1, 2, 5)
        every = (m * 10.0**power for power in range(first, last + 1, leaps) for m in mantissas)
        found = [float(f"{value:.3g}") for value in every if self.low * 0.999 <= value <= self.high * 1.001]
        return found if len(found) > 1 else self._linear_ticks(count)


def format_coordinate(number: float) -> str:
    """A coordinate without needless digits: 12.5, 3, -0.1.

    >>> format_coordinate(12.50), format_coordinate(3.04), format_coordinate(-0.01)
    ('12.5', '3', '0')
    """
    text = f"{number:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def line_path(x: Iterable[float], y: Iterable[float], across: Scale, up: Scale) -> str:
    """The path through points, in units of the inner drawing."""
    places = [_format_point(a, b, across, up) for a, b in zip(x, y, strict=True)]
    return "M" + "L".join(places) if places else ""


def histogram_path(edges: np.ndarray, heights: np.ndarray, across: Scale, up: Scale, *, close: bool = False) -> str:
    """The outline of a histogram; closed along the foot if it is to be filled."""
    x = np.repeat(edges, 2)
    y = np.concatenate([[0.0], np.repeat(heights, 2), [0.0]])
    return line_path(x, y, across, up) + ("Z" if close else "")


def _format_point(x: float, y: float, across: Scale, up: Scale) -> str:
    # far outside is as good as outside, and shorter
    height = min(max(1 - up(y), -1.0), 2.0)
    return f"{format_coordinate(VIEWBOX_SIZE * across(x))} {format_coordinate(VIEWBOX_SIZE * height)}"


def draw_path(path: str, class_: str) -> Markup:
    """A line or an area of the inner drawing."""
    return tag("path", d=path, class_=class_)


def draw_chart(
    title: str,
    description: str,
    across: Scale,
    up: Scale,
    inner: Sequence[Markup],
    *,
    over: Sequence[Markup] = (),
    x_name: str,
    y_name: str,
    kind: str = "",
    whole: bool = False,
    y_written: Callable[[float], str] | None = None,
    x_ticks: Sequence[tuple[float, str]] | None = None,
) -> Markup:
    """A framed drawing with ticks; `over` is laid on it in per cent. No `y_written`, no numbers at the side.

    `whole` ticks are whole numbers; `x_ticks` are places with what is written there.
    """
    marks: list[Markup] = []
    for value in up.ticks(4) if y_written else []:
        place = _flip_percent(up.percent(value))
        marks.append(tag("line", x1="0", x2="100%", y1=place, y2=place, class_="grid"))
        marks.append(tag("text", y_written(value), x="-8", y=place, dy="0.32em", class_="tick side"))  # type: ignore[misc]
    if x_ticks is None:
        places = [value for value in across.ticks(6) if not whole or value == round(value)]
        x_ticks = [(value, f"{value:,.6g}".replace("-", "−")) for value in places]
    for i, (value, words) in enumerate(x_ticks):
        place = across.percent(value)
        marks.append(tag("line", x1=place, x2=place, y1="100%", y2="100%", class_="notch"))
        marks.append(
            tag(
                "text",
                words,
                x=place,
                y="100%",
                dy="19",
                class_="tick" + (" odd" if i % 2 and len(x_ticks) > 4 else ""),
            )
        )
    drawing = tag(
        "svg",
        *inner,
        viewBox=f"0 0 {VIEWBOX_SIZE} {VIEWBOX_SIZE}",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
    )
    frame = tag("line", x1="0", x2="100%", y1="100%", y2="100%", class_="foot")
    return tag(
        "div",
        tag("p", y_name, class_="y-name", aria_hidden="true"),
        tag(
            "svg",
            tag("g", *marks, aria_hidden="true"),
            drawing,
            frame,
            join_markup(*over),
            role="img",
            aria_label=f"{title}. {description}",
            class_=f"plot {kind}".strip(),
        ),
        tag("p", x_name, class_="x-name", aria_hidden="true"),
        class_="chart" + (" numbered" if y_written else ""),
    )


def _flip_percent(per_cent: str) -> str:
    """The place from the top of what is a place from the foot."""
    return f"{format_coordinate(100 - float(per_cent[:-1]))}%"


def label(text: str, across: Scale, x: float, up: Scale, y: float, *, class_: str, dy: str = "0") -> Markup:
    """Text at a value's place; near the right edge it ends there rather than starts."""
    side = "end" if across(x) > 0.8 else "start" if across(x) < 0.05 else None
    return tag(
        "text", text, x=across.percent(x), y=_flip_percent(up.percent(y)), dy=dy, class_=class_, text_anchor=side
    )


def render_legend(*entries: tuple[str, str]) -> Markup:
    """What the lines of a chart are: (class, words)."""
    return tag("ul", *(render_legend_entry(class_, words) for class_, words in entries), class_="key")


def render_legend_entry(class_: str, words: str) -> Markup:
    """One entry of a key."""
    drawn = tag("path", d="M1 6H21", class_=class_)
    return tag("li", tag("svg", drawn, viewBox="0 0 22 12", class_="swatch", aria_hidden="true"), words)
