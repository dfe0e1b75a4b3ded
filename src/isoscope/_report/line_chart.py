"""A measurement along groups: lines where the groups have an order, a row of dots for each where they are names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.cards import VERDICT_LABELS
from isoscope._report.forest_chart import draw_mark
from isoscope._report.html import join_markup, tag
from isoscope._report.svg import Scale, draw_chart, label, line_path, render_legend
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup

_CORNERS = {
    "look": ((0, -5.5), (5, 0), (0, 5.5), (-5, 0)),
    "bad": (
        *((-5, -3), (-3, -5), (0, -2), (3, -5), (5, -3), (2, 0)),
        *((5, 3), (3, 5), (0, 2), (-3, 5), (-5, 3), (-2, 0)),
    ),
}  # a diamond and a cross; what is ok is a disc
_MANY_GROUPS = 16  # groups from which on a disc would hide the line
_MAX_NULL_DISTANCE = 2.5  # times the values' own range: a null that is further away would flatten them
_LETTER_SPACING = 0.075  # of the height


@dataclass(frozen=True)
class GroupCurve:
    """One line of a chart: numbers along the groups, with what is known of each."""

    name: str
    look: str
    """Classes of page.css and grouped.css: the colour, and whether it is dashed."""
    places: np.ndarray
    called: Sequence[str]
    """What each group is called when somebody points at it."""
    estimates: np.ndarray
    low: np.ndarray
    high: np.ndarray
    verdicts: Sequence[str]
    """Empty for what is not judged."""
    null: np.ndarray
    letter: str = ""

    @property
    def judged(self) -> bool:
        """Whether it is a finding, and no detail of one."""
        return any(self.verdicts)


@dataclass(frozen=True)
class Axis:
    """Where the groups stand."""

    scale: Scale
    name: str
    ticks: Sequence[tuple[float, str]] | None
    rows: Sequence[str] = ()
    """The groups' names, if they have no order."""


def draw_group_chart(
    title: str, told: str, courses: Sequence[GroupCurve], axis: Axis, form: str, *, powers: bool
) -> Markup:
    """A chart of courses with a key; `told` is what a person who cannot see it is told."""
    up = _vertical_scale(courses)
    write = _tick_formatter(form, powers)
    below = sorted(courses, key=lambda course: course.judged)  # what is judged is drawn last, on top
    shown = (_draw_rows if axis.rows else _draw_lines)(title, told, below, axis, up, write)
    return join_markup(
        _render_curve_legend(courses, dots=bool(axis.rows) or all(len(course.places) == 1 for course in courses)), shown
    )


def find_offscale_nulls(courses: Sequence[GroupCurve]) -> list[float]:
    """What clouds without structure have, where that is too far away to be drawn."""
    up = _vertical_scale(courses)
    every = np.concatenate([course.null[np.isfinite(course.null)] for course in courses] or [np.zeros(0)])
    return [float(each) for each in every if not up.low <= each <= up.high]


def _vertical_scale(courses: Sequence[GroupCurve]) -> Scale:
    """From 0 over all estimates, with as much of the intervals and of the null as leaves them legible."""
    values = np.concatenate([course.estimates[np.isfinite(course.estimates)] for course in courses])
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    span = (high - low) or 1.0
    ends = np.concatenate([each[np.isfinite(each)] for course in courses for each in (course.low, course.high)])
    if len(ends):
        low, high = max(min(low, float(ends.min())), low - span / 2), min(max(high, float(ends.max())), high + span / 2)
    nulls = np.concatenate([course.null[np.isfinite(course.null)] for course in courses])
    near = nulls[
        (nulls <= low + _MAX_NULL_DISTANCE * (high - low)) & (nulls >= high - _MAX_NULL_DISTANCE * (high - low))
    ]
    if len(near):
        low, high = min(low, float(near.min())), max(high, float(near.max()))
    margin = 0.06 * (high - low) or 0.05
    return Scale(low - margin if low < 0 else 0.0, high + margin if high > 0 else 0.0)


def _tick_formatter(form: str, powers: bool) -> Callable[[float], str]:
    """How a tick is written."""
    if powers:
        return lambda value: format_number(10**value, "power") if value > -300 else f"1e{value:.0f}".replace("-", "−")
    if form == "share":
        return lambda value: f"{100 * value:.4g}%".replace("-", "−")
    return lambda value: f"{value:,.6g}".replace("-", "−")


def _render_curve_legend(courses: Sequence[GroupCurve], *, dots: bool) -> Markup:
    """What the lines or dots are, if there are several kinds of them."""
    kinds: dict[str, str] = {}
    for course in courses:
        look = course.look
        if course.letter:  # the colour is the store's
            look = " ".join(["plain", *(each for each in look.split() if not each.startswith("hue"))])
        kinds.setdefault(course.name, look)
    if len(kinds) == 1:
        return tag("div")
    if not dots:
        return render_legend(*((f"line course {look}", name) for name, look in kinds.items()))
    spots = (tag("circle", cx="6", cy="6", r="3.2", class_=_dot_class(look)) for look in kinds.values())
    signs = (tag("svg", spot, viewBox="0 0 12 12", class_="spot-sign", aria_hidden="true") for spot in spots)
    return tag("ul", *(tag("li", one, name) for one, name in zip(signs, kinds, strict=True)), class_="key")


def _dot_class(look: str) -> str:
    return f"{'hollow' if 'dashed' in look else 'full'} {look}"


def _on_scale_mask(values: np.ndarray, up: Scale) -> np.ndarray:
    return np.asarray(np.isfinite(values) & (values >= up.low) & (values <= up.high))


# groups with an order


def _draw_lines(
    title: str, told: str, courses: Sequence[GroupCurve], axis: Axis, up: Scale, write: Callable[[float], str]
) -> Markup:
    under, inner, over = [], [], []
    for course in courses:
        for part in _finite_segments(np.where(_on_scale_mask(course.null, up), course.null, np.nan)):
            x = course.places[part]
            x = x if len(x) > 1 else np.array([axis.scale.low, axis.scale.high])
            y = np.broadcast_to(course.null[part], x.shape)
            under.append(tag("path", d=line_path(x, y, axis.scale, up), class_="line null thin"))
        for part in _finite_segments(course.estimates):
            x = course.places[part]
            if len(x) > 1:
                under += _draw_band(course, part, axis.scale, up)
                path = line_path(x, course.estimates[part], axis.scale, up)
                inner.append(tag("path", d=path, class_=f"line course {course.look}"))
            else:
                over += _draw_whisker(course, part.start, axis.scale, up)
        over += _draw_marks(course, axis.scale, up, write)
    return draw_chart(
        title,
        told,
        axis.scale,
        up,
        [*under, *inner],
        over=[*over, *_draw_letters(courses, axis.scale, up)],
        x_name=axis.name,
        y_name="",
        kind="small",
        whole=True,
        y_written=write,
        x_ticks=axis.ticks,
    )


def _finite_segments(values: np.ndarray) -> list[slice]:
    """The parts between numbers that could not be had."""
    edges = np.flatnonzero(np.diff(np.r_[False, np.isfinite(values), False]))
    return [slice(a, b) for a, b in edges.reshape(-1, 2).tolist()]


def _draw_band(course: GroupCurve, part: slice, across: Scale, up: Scale) -> list[Markup]:
    x, low, high = course.places[part], course.low[part], course.high[part]
    bands = []
    for known in _finite_segments(low + high):
        if known.stop - known.start > 1:
            there, back = x[known], x[known][::-1]
            d = line_path(np.r_[there, back], np.r_[high[known], low[known][::-1]], across, up)
            bands.append(tag("path", d=d + "Z", class_=f"band {course.look}"))
    return bands


def _draw_whisker(course: GroupCurve, i: int, across: Scale, up: Scale) -> list[Markup]:
    low, high = float(course.low[i]), float(course.high[i])
    if not math.isfinite(low + high):
        return []
    x = across.percent(course.places[i])
    return [tag("line", x1=x, x2=x, y1=_y_percent(up, low), y2=_y_percent(up, high), class_=f"whisker {course.look}")]


def _draw_marks(course: GroupCurve, across: Scale, up: Scale, write: Callable[[float], str]) -> list[Markup]:
    """The verdict of each group; what is not judged has a ring where no line goes through it."""
    size = 0.7 if len(course.places) > _MANY_GROUPS else 1.0
    lonely = {part.start for part in _finite_segments(course.estimates) if part.stop - part.start == 1}
    known = np.flatnonzero(np.isfinite(course.estimates)).tolist()
    return [
        _draw_mark(course, i, across.percent(course.places[i]), _y_percent(up, float(course.estimates[i])), size, write)
        for i in known
        if course.judged or i in lonely
    ]


def _draw_mark(course: GroupCurve, i: int, x: str, y: str, size: float, write: Callable[[float], str]) -> Markup:
    low, high = float(course.low[i]), float(course.high[i])
    span = (
        f" ({write(_round_to_three_digits(low))} … {write(_round_to_three_digits(high))})"
        if math.isfinite(low + high)
        else ""
    )
    said = f"{course.called[i]}: {write(_round_to_three_digits(float(course.estimates[i])))}{span}"
    if course.judged:
        return draw_verdict_mark(
            course.verdicts[i], x, y, course.look, size, f"{said}, {VERDICT_LABELS[course.verdicts[i]]}"
        )
    return tag("circle", tag("title", said), cx=x, cy=y, r="3", class_=f"hollow {course.look}")


def draw_verdict_mark(verdict: str, x: str, y: str, look: str = "", size: float = 1.0, title: str = "") -> Markup:
    """The mark of a verdict."""
    return draw_mark(f"at {verdict} {look}".strip(), x, y, shape=_mark_path(verdict, size), title=title)


def _mark_path(verdict: str, size: float) -> str:
    if verdict in _CORNERS:
        return "M" + "L".join(f"{a * size:g} {b * size:g}" for a, b in _CORNERS[verdict]) + "Z"
    r = 3 * size
    return f"M{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0Z"


def _round_to_three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def _draw_letters(courses: Sequence[GroupCurve], across: Scale, up: Scale) -> list[Markup]:
    """Each audit's letter at the end of its line, none on top of another."""
    ends = []
    for course in courses:
        known = np.flatnonzero(np.isfinite(course.estimates))
        if course.letter and course.judged and len(known):
            ends.append((up(float(course.estimates[known[-1]])), float(course.places[known[-1]]), course))
    ends.sort(key=lambda end: end[:2])
    heights = [height for height, _, _ in ends]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + _LETTER_SPACING)
    above = 1.0 + _LETTER_SPACING
    for i in reversed(range(len(heights))):
        above = heights[i] = min(heights[i], above - _LETTER_SPACING)
    return [
        label(course.letter, across, x, up, _value_at(up, height), class_=f"note letter {course.look}", dy="4")
        for height, (_, x, course) in zip(heights, ends, strict=True)
    ]


def _value_at(up: Scale, place: float) -> float:
    """The value at a place, which is the opposite of `up(value)`."""
    return up.low + place * (up.high - up.low)


def _y_percent(up: Scale, value: float) -> str:
    return f"{100 * (1 - min(max(up(value), 0.0), 1.0)):.1f}%"


# groups that are names


def _draw_rows(
    title: str, told: str, courses: Sequence[GroupCurve], axis: Axis, up: Scale, write: Callable[[float], str]
) -> Markup:
    ticks = up.ticks(3)
    grid = [tag("line", x1=up.percent(tick), x2=up.percent(tick), y1="0", y2="100%", class_="grid") for tick in ticks]
    rows = []
    letters = sorted({course.letter for course in courses})
    for place, name in enumerate(axis.rows):
        drawn = list(grid)
        for course in courses:
            y = f"{100 * (letters.index(course.letter) + 1) / (len(letters) + 1):.0f}%"
            for i in np.flatnonzero((course.places == place) & np.isfinite(course.estimates)).tolist():
                if _on_scale_mask(course.null, up)[i]:
                    x = up.percent(course.null[i])
                    drawn.append(tag("line", x1=x, x2=x, y1="15%", y2="85%", class_="null thin"))
                if math.isfinite(course.low[i] + course.high[i]):
                    ends = {"x1": up.percent(course.low[i]), "x2": up.percent(course.high[i])}
                    drawn.append(tag("line", y1=y, y2=y, class_=f"whisker {course.look}", **ends))
                drawn.append(_draw_mark(course, i, up.percent(course.estimates[i]), y, 1.0, write))
        track = tag("span", tag("svg", *drawn), class_="track")
        rows.append(tag("div", tag("span", tag("bdi", name), class_="name", title=name), track, class_="spot-row"))
    written_ticks = (tag("text", write(tick), x=up.percent(tick), y="14", class_="tick") for tick in ticks)
    foot = tag("div", tag("span", tag("svg", *written_ticks), class_="track"), class_="spot-row scale")
    return tag("div", *rows, foot, role="img", aria_label=f"{title}. {told}", class_="spots")
