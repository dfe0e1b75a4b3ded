"""Charts: scales with round ticks, lines with bands, and renderers for SVG and matplotlib.

An SVG chart has no view box and is as wide as its column: positions are percentages, so text keeps its size on a phone.
Lines lie in an inner SVG of 1000 × 1000 units that is stretched over the frame; their strokes are not stretched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isoscope._report.html import join_markup, read_resources, tag

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isoscope._report.html import Markup

VIEWBOX_SIZE = 1000
"""Side length of the inner drawing."""


@dataclass(frozen=True)
class Scale:
    """A scale that maps values to positions between 0 and 1."""

    low: float
    high: float
    log: bool = False
    exponents: bool = False
    """Whether the values are exponents of 10; the ticks are then those of round powers."""

    def __call__(self, value: float) -> float:
        """Return the position of a value: 0 for `low`, 1 for `high`, and less or more for values outside the scale."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(each, 1e-300)) for each in (value, low, high))
        return (value - low) / (high - low) if high > low else 0.5

    def value_at(self, position: float) -> float:
        """Return the value at a position.

        >>> Scale(2, 4).value_at(0.5), Scale(1, 100, log=True).value_at(0.5)
        (3.0, 10.0)
        """
        if self.log:
            return float(self.low * (self.high / self.low) ** position)
        return self.low + position * (self.high - self.low)

    def percent(self, value: float) -> str:
        """Return the position as an SVG length, limited to the scale."""
        return format_percent(min(max(self(value), 0.0), 1.0))

    def percent_down(self, value: float) -> str:
        """Return the distance from the top of the frame as an SVG length, limited to the scale."""
        return format_percent(1 - min(max(self(value), 0.0), 1.0))

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values.

        >>> Scale(0, 1).ticks(5)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> Scale(0.04, 0.88).ticks(4)
        [0.2, 0.4, 0.6, 0.8]
        >>> Scale(0.003, 1, log=True).ticks()
        [0.01, 0.1, 1.0]
        >>> Scale(-3, 0, exponents=True).ticks()
        [-3.0, -2.0, -1.0, 0.0]
        """
        if not self.high > self.low:
            return [self.low]
        if self.exponents and self.low > -300 and self.high < 300:
            return [math.log10(power) for power in Scale(10**self.low, 10**self.high, log=True)._log_ticks(count)]
        return self._log_ticks(count) if self.log else self._linear_ticks(count)

    def _linear_ticks(self, count: int) -> list[float]:
        rough = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        if last <= first and count < 20:  # one tick does not show the scale
            return self._linear_ticks(2 * count)
        return [round(step * i, 12) + 0.0 for i in range(first, last + 1)]

    def _log_ticks(self, count: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        stride = max(1, round((last - first) / count))
        mantissas = (1,) if last - first > 2 else (1, 2, 5)
        candidates = (m * 10.0**power for power in range(first, last + 1, stride) for m in mantissas)
        ticks = [float(f"{value:.3g}") for value in candidates if self.low * 0.999 <= value <= self.high * 1.001]
        return ticks if len(ticks) > 1 else self._linear_ticks(count)


def fit_scale(values: Iterable[float], *, log: bool = False, margin: float = 0.0, zero: bool = False) -> Scale:
    """Return a scale that covers all finite values, with margins; `zero` makes it include 0, without a margin there.

    >>> scales = fit_scale([1, 2]), fit_scale([1, 2], zero=True, margin=0.5)
    >>> [(scale.low, scale.high) for scale in scales]
    [(1.0, 2.0), (0.0, 3.0)]
    """
    known = [each for each in values if math.isfinite(each) and (not log or each > 0)]
    if not known:
        return Scale(0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        return Scale(low / 1.15 ** bool(margin), high * 1.15 ** bool(margin), log=True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = margin * (high - low) or (abs(high) or 1.0) * 0.05 * bool(margin)
    return Scale(low - (0 if zero and low == 0 else room), high + (0 if zero and high == 0 else room))


# numbers


def format_coordinate(number: float) -> str:
    """Return a coordinate with at most one decimal: 12.5, 3, -0.1.

    >>> format_coordinate(12.50), format_coordinate(3.04), format_coordinate(-0.01)
    ('12.5', '3', '0')
    """
    text = f"{number:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def format_percent(share: float) -> str:
    """Return a share as an SVG length.

    >>> format_percent(0.125)
    '12.5%'
    """
    return f"{format_coordinate(100 * share)}%"


def format_tick(value: float, digits: int = 6) -> str:
    """Return the label of a tick, with a typographic minus sign.

    >>> format_tick(-0.5), format_tick(12000)
    ('−0.5', '12,000')
    """
    return f"{value:,.{digits}g}".replace("-", "−")


# marks

_MARK_SHAPES = {
    "ok": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z",
    "look": "M0 -5.5L5 0L0 5.5L-5 0Z",
    "bad": "M-5 -3L-3 -5L0 -2L3 -5L5 -3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
    "gain": "M0 -6L6 5H-6Z",
    "noise": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
    "loss": "M0 6L6 -5H-6Z",
    "as-is": "M0 -6L6 0L0 6L-6 0Z",
}
_OFFSCALE_SHAPE = "M-6 0L5 -6V6Z"
_RING = "M-10 0a10 10 0 1 0 20 0a10 10 0 1 0 -20 0Z"
_MATPLOTLIB_MARKERS = {"look": "D", "bad": "X", "gain": "^", "loss": "v", "as-is": "D"}
_MANY_POINTS = 16  # more marks than this are drawn smaller, so that they do not hide the line


def draw_mark(
    mark: str, x: str, y: str, *, style: str = "", title: str = "", small: bool = False, offscale: bool = False
) -> Markup:
    """Draw the mark for a verdict ("ok", "look", "bad", "gain", "noise", "loss", "as-is") or a plain point ("dot").

    Add "chosen" for a ring around the mark, or "hollow" for an unfilled mark. An `offscale` mark points to the left.
    """
    kind, _, modifier = mark.partition(" ")
    if kind == "dot":
        return tag("circle", _title(title), cx=x, cy=y, r="3.2", class_=f"{modifier or 'full'} {style}".strip())
    shape = tag(
        "path",
        d=_OFFSCALE_SHAPE if offscale else _MARK_SHAPES[kind],
        class_="mark beyond" if offscale or "hollow" in modifier else "mark",
        transform="scale(0.7)" if small else None,
    )
    ring = tag("path", d=_RING, class_="ring") if "chosen" in modifier else None
    class_ = f"at {kind} {style}".strip()
    return tag("svg", _title(title), ring, shape, x=x, y=y, overflow="visible", class_=class_)


def _title(text: str) -> Markup | None:
    return tag("title", text) if text else None


# lines


@dataclass(frozen=True)
class Line:
    """A line, a set of dots or a histogram; `low` and `high` add a band to it, or a whisker to each dot.

    A missing value (NaN) interrupts the line.
    """

    x: np.ndarray
    """Positions; for a histogram ("steps", "area"), its edges, one more than `y`."""
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: str = "hue-0"
    """A color ("hue-0", "depth-3", "raw", …) and any of "thick", "thin", "faint", "dashed", "dotted": CSS classes."""
    name: str = ""
    """The name in the legend; a line without a name is not listed there."""
    form: Literal["line", "dots", "steps", "area"] = "line"
    marks: Sequence[str] = ()
    """The mark of each point (see `draw_mark`), or "" for none; by default, dots and isolated points have one."""
    titles: Sequence[str] = ()
    """The tooltip of each mark."""

    def segments(self) -> list[slice]:
        """Return the segments between missing values."""
        x = self.x if len(self.x) == len(self.y) else self.x[1:]
        return finite_segments(x + self.y)

    def point_marks(self) -> Iterator[tuple[int, str, str]]:
        """Yield (index, mark, title) for every point that has a mark."""
        isolated = {part.start for part in self.segments() if part.stop - part.start == 1}
        for part in self.segments() if self.form in ("line", "dots") else ():
            for i in range(part.start, part.stop):
                mark = self.marks[i] if self.marks else ""
                if not mark and (self.form == "dots" or i in isolated):
                    mark = "dot hollow" if "dashed" in self.style else "dot"
                if mark:
                    yield i, mark, self.titles[i] if self.titles else ""

    @property
    def swatch(self) -> str:
        """The CSS classes that show the line in a legend."""
        return f"{'area' if self.form == 'area' else 'line'} {self.style}"


def finite_segments(values: np.ndarray) -> list[slice]:
    """Return the segments of finite values.

    >>> finite_segments(np.array([1, 2, np.nan, 3]))
    [slice(0, 2, None), slice(3, 4, None)]
    """
    edges = np.flatnonzero(np.diff(np.r_[False, np.isfinite(values), False]))
    return [slice(a, b) for a, b in edges.reshape(-1, 2).tolist()]


@dataclass(frozen=True)
class Label:
    """Text at a point of the chart, `offset` pixels below it."""

    text: str
    x: float
    y: float
    style: str = ""
    offset: float = 0.0


@dataclass(frozen=True)
class Chart:
    """Lines in a frame with ticks, for the page (`to_svg`) and for matplotlib (`to_matplotlib`)."""

    title: str
    description: str
    """A description of the chart for readers who cannot see it."""
    x: Scale
    y: Scale
    lines: Sequence[Line] = ()
    labels: Sequence[Label] = ()
    x_name: str = ""
    y_name: str = ""
    x_ticks: Sequence[tuple[float, str]] | None = None
    """Positions and texts of the ticks; by default round numbers."""
    integer_x: bool = False
    """Whether the default ticks are integers."""
    format_y: Callable[[float], str] | None = field(default=format_tick)
    """The text of the ticks at the side; None for no ticks."""
    size: str = ""
    """The CSS class of the frame: "small", "bars" or none."""

    def to_svg(self) -> Markup:
        """Return the chart as HTML, with axis names above and below."""
        frame = tag(
            "svg",
            self.draw_contents(),
            role="img",
            aria_label=f"{self.title}. {self.description}",
            class_=f"plot {self.size}".strip(),
        )
        return tag(
            "div",
            tag("p", self.y_name, class_="y-name", aria_hidden="true"),
            frame,
            tag("p", self.x_name, class_="x-name", aria_hidden="true"),
            class_="chart numbered" if self.format_y else "chart",
        )

    def draw_contents(self) -> Markup:
        """Return everything inside the frame: grid, ticks, lines, marks and labels."""
        drawing = tag(
            "svg",
            *(path for line in self.lines for path in self._draw_band(line)),
            *(path for line in self.lines for path in self._draw_line(line)),
            viewBox=f"0 0 {VIEWBOX_SIZE} {VIEWBOX_SIZE}",
            preserveAspectRatio="none",
            width="100%",
            height="100%",
        )
        foot = tag("line", x1="0", x2="100%", y1="100%", y2="100%", class_="foot")
        marks = [mark for line in self.lines for mark in self._draw_marks(line)]
        grid = tag("g", *self._draw_ticks(), aria_hidden="true")
        return join_markup(grid, drawing, foot, *marks, *map(self._draw_label, self.labels))

    def legend(self) -> Markup:
        """Return a legend with the name and style of each named line."""
        return render_legend(*((line.swatch, line.name) for line in self.lines if line.name))

    def find_x_ticks(self) -> list[tuple[float, str]]:
        """Return the positions and texts of the ticks below the frame."""
        if self.x_ticks is not None:
            return list(self.x_ticks)
        values = (value for value in self.x.ticks(6) if not self.integer_x or value == round(value))
        return [(value, format_tick(value)) for value in values]

    # SVG

    def _draw_ticks(self) -> Iterator[Markup]:
        for value in self.y.ticks(4) if self.format_y else ():
            y = self.y.percent_down(value)
            yield tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid")
            yield tag("text", self.format_y(value), x="-8", y=y, dy="0.32em", class_="tick side")  # type: ignore[misc]
        ticks = self.find_x_ticks()
        for i, (value, text) in enumerate(ticks):
            odd = " odd" if i % 2 and len(ticks) > 4 else ""
            yield tag("text", text, x=self.x.percent(value), y="100%", dy="19", class_=f"tick{odd}")

    def _draw_band(self, line: Line) -> Iterator[Markup]:
        if line.form != "line" or line.low is None or line.high is None:
            return
        for part in finite_segments(line.x + line.y + line.low + line.high):
            if part.stop - part.start > 1:
                x, low, high = line.x[part], line.low[part], line.high[part]
                path = self._path(np.r_[x, x[::-1]], np.r_[high, low[::-1]])
                yield tag("path", d=path + "Z", class_=f"band {line.style}")

    def _draw_line(self, line: Line) -> Iterator[Markup]:
        if line.form == "dots":
            return
        if line.form == "area":
            x = np.repeat(line.x, 2)[1:-1]
            bottom = np.zeros_like(line.y) if line.low is None else line.low
            top = line.y if line.high is None else line.high
            path = self._path(np.r_[x, x[::-1]], np.r_[np.repeat(top, 2), np.repeat(bottom, 2)[::-1]]) + "Z"
        elif line.form == "steps":
            path = self._path(np.repeat(line.x, 2), np.r_[0.0, np.repeat(line.y, 2), 0.0])
        else:
            path = "".join(
                self._path(line.x[part], line.y[part]) for part in line.segments() if part.stop - part.start > 1
            )
        if path:
            yield tag("path", _title(line.name), d=path, class_=line.swatch)

    def _path(self, x: np.ndarray, y: np.ndarray) -> str:
        """Return the path through the points; points far above or below are moved to just outside the frame."""
        points = []
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            down = min(max(1 - self.y(b), -1.0), 2.0)
            points.append(f"{format_coordinate(VIEWBOX_SIZE * self.x(a))} {format_coordinate(VIEWBOX_SIZE * down)}")
        return "M" + "L".join(points) if points else ""

    def _draw_marks(self, line: Line) -> Iterator[Markup]:
        small = len(line.y) > _MANY_POINTS
        connected = {
            i
            for part in line.segments()
            if line.form == "line" and part.stop - part.start > 1
            for i in range(part.start, part.stop)
        }
        for i, mark, title in line.point_marks():
            x, value = self.x.percent(line.x[i]), float(line.y[i])
            if i not in connected and line.low is not None and line.high is not None:
                low, high = float(line.low[i]), float(line.high[i])
                if math.isfinite(low + high):
                    ends = {"y1": self.y.percent_down(low), "y2": self.y.percent_down(high)}
                    yield tag("line", x1=x, x2=x, class_=f"whisker {line.style}", **ends)
            yield draw_mark(mark, x, self.y.percent_down(value), style=line.style, title=title, small=small)

    def _draw_label(self, label: Label) -> Markup:
        """Draw a label; near an edge of the frame it stays inside."""
        position = self.x(label.x)
        return tag(
            "text",
            label.text,
            x=self.x.percent(label.x),
            y=self.y.percent_down(label.y),
            dy=format_coordinate(label.offset),
            class_=f"note {label.style}".strip(),
            text_anchor="end" if position > 0.8 else "start" if position < 0.05 else None,
        )

    # matplotlib

    def to_matplotlib(self, ax: Axes, *, legend: bool = True) -> Axes:
        """Draw the chart on matplotlib axes."""
        for line in self.lines:
            _plot_line(ax, line)
        for label in self.labels:
            ax.annotate(
                escape_label(label.text),
                (label.x, label.y),
                (0, -label.offset),
                textcoords="offset points",
                ha="center",
                va="bottom" if label.offset < 0 else "top",
            )
        ax.set(xlabel=escape_label(self.x_name), ylabel=escape_label(self.y_name))
        for scale, name in ((self.x, "x"), (self.y, "y")):
            if scale.log:
                ax.set(**{f"{name}scale": "log"})
            if scale.high > scale.low:
                room = 0.03 * (scale.high - scale.low) if name == "x" and not scale.log and self._has_marks() else 0.0
                ax.set(**{f"{name}lim": (scale.low - room, scale.high + room)})
        if self.x_ticks is not None:
            ax.set_xticks([value for value, _ in self.x_ticks], [escape_label(text) for _, text in self.x_ticks])
        if self.format_y is None:
            ax.set_yticks([])
        if legend and ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False)
        return ax

    def _has_marks(self) -> bool:
        return any(True for line in self.lines for _ in line.point_marks())


def _plot_line(ax: Axes, line: Line) -> None:
    """Draw one line with matplotlib, with its band, whiskers and marks."""
    look = matplotlib_style(line.style)
    color, label = look["color"], escape_label(line.name) if line.name else None
    if line.form == "area":
        baseline = 0.0 if line.low is None else line.low
        top = line.y if line.high is None else line.high
        ax.stairs(top, line.x, baseline=baseline, fill=True, color=color, label=label)
        return
    if line.form == "steps":
        ax.stairs(line.y, line.x, label=label, **look)
        return
    if line.low is not None and line.high is not None:
        if line.form == "line":
            ax.fill_between(line.x, line.low, line.high, color=color, alpha=0.2, linewidth=0)
        else:
            ax.vlines(line.x, line.low, line.high, color=color, linewidth=1.5)
    if line.form == "dots":
        look |= {"linestyle": "none", "marker": "o", "markersize": 5}
    ax.plot(line.x, line.y, label=label, **look)
    for i, mark, _ in line.point_marks():
        kind = mark.split()[0]
        ax.plot(
            line.x[i : i + 1],
            line.y[i : i + 1],
            marker=_MATPLOTLIB_MARKERS.get(kind, "o"),
            color=palette().get(kind, color) if kind in ("look", "bad") else color,
            markersize=5,
            markerfacecolor="none" if "hollow" in mark else None,
            linestyle="none",
        )


def escape_label(name: str) -> str:
    """Return a name escaped for matplotlib, which hides names that begin with _ and renders $ as a formula."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


# colors

_COLOR_NAMES = {
    "nearest": "centered",
    "pairs": "fill",
    "spread": "fill",
    "means": "raw",
    "mean": "ink",
    "gray": "quiet",
}
_DEPTHS, _SHADES = 16, 6


@cache
def palette() -> dict[str, str]:
    """Return the colors of the light theme by name, including the layer colors (`depth-0` to `depth-15`)."""
    light = read_resources("colors.css").split("@media")[0]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    shades = np.array([[int(colors[f"shade-{i}"][k : k + 2], 16) for k in (1, 3, 5)] for i in range(_SHADES)])
    for i in range(_DEPTHS):
        position = i / (_DEPTHS - 1) * (_SHADES - 1)
        channels = (round(float(np.interp(position, range(_SHADES), shade))) for shade in shades.T)
        colors[f"depth-{i}"] = "#" + "".join(f"{channel:02x}" for channel in channels)
    return colors


def matplotlib_style(style: str) -> dict[str, Any]:
    """Return a style as keyword arguments for matplotlib's `plot`.

    >>> matplotlib_style("hue-0 dashed")
    {'color': '#3357be', 'linewidth': 1.2, 'linestyle': '--'}
    """
    words = style.split()
    names = [_COLOR_NAMES.get(word, word) for word in words]
    look: dict[str, Any] = {
        "color": next((palette()[name] for name in names if name in palette()), palette()["raw"]),
        "linewidth": next((width for word, width in _LINE_WIDTHS.items() if word in words), 1.6),
        "linestyle": ":" if {"dotted", "mean"} & set(words) else "--" if {"dashed", "null"} & set(words) else "-",
    }
    return look | ({"alpha": 0.45} if {"faint", "pale"} & set(words) else {})


_LINE_WIDTHS = {
    "wide": 3.0,
    "thick": 2.2,
    "thin": 1.0,
    "faint": 0.7,
    "dashed": 1.2,
    "dotted": 1.0,
    "null": 1.2,
    "mean": 1.0,
}


# legends


def render_legend(*entries: tuple[str, str]) -> Markup:
    """Return a legend of lines, given their CSS classes and names."""
    return tag("ul", *(render_legend_entry(class_, name) for class_, name in entries), class_="key")


def render_legend_entry(class_: str, name: str) -> Markup:
    """Return one entry of a legend."""
    sample = tag("path", d="M1 6H21", class_=class_)
    return tag("li", tag("svg", sample, viewBox="0 0 22 12", class_="swatch", aria_hidden="true"), name)
