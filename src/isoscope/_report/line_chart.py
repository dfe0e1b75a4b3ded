"""A measurement along groups: lines where the groups have an order, a row of dots for each where they are names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.cards import WORDS
from isoscope._report.forest_chart import mark
from isoscope._report.html import joined, tag
from isoscope._report.svg import Scale, chart, key, label, line
from isoscope.auditing.finding import written

if TYPE_CHECKING:
    from isoscope._report.html import Markup

_CORNERS = {
    "look": ((0, -5.5), (5, 0), (0, 5.5), (-5, 0)),
    "bad": (
        *((-5, -3), (-3, -5), (0, -2), (3, -5), (5, -3), (2, 0)),
        *((5, 3), (3, 5), (0, 2), (-3, 5), (-5, 3), (-2, 0)),
    ),
}  # a diamond and a cross; what is ok is a disc
_CROWDED = 16  # groups from which on a disc would hide the line
_REACH = 2.5  # times the values' own range: a null that is further away would flatten them
_LETTERS_APART = 0.075  # of the height


@dataclass(frozen=True)
class Course:
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


def course_chart(title: str, told: str, courses: Sequence[Course], axis: Axis, form: str, *, powers: bool) -> Markup:
    """A chart of courses with a key; `told` is what a person who cannot see it is told."""
    up = _height(courses)
    write = _writer(form, powers)
    below = sorted(courses, key=lambda course: course.judged)  # what is judged is drawn last, on top
    shown = (_rows if axis.rows else _lines)(title, told, below, axis, up, write)
    return joined(_key(courses, dots=bool(axis.rows) or all(len(course.places) == 1 for course in courses)), shown)


def nulls_outside(courses: Sequence[Course]) -> list[float]:
    """What clouds without structure have, where that is too far away to be drawn."""
    up = _height(courses)
    every = np.concatenate([course.null[np.isfinite(course.null)] for course in courses] or [np.zeros(0)])
    return [float(each) for each in every if not up.low <= each <= up.high]


def _height(courses: Sequence[Course]) -> Scale:
    """From 0 over all estimates, with as much of the intervals and of the null as leaves them legible."""
    values = np.concatenate([course.estimates[np.isfinite(course.estimates)] for course in courses])
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    span = (high - low) or 1.0
    ends = np.concatenate([each[np.isfinite(each)] for course in courses for each in (course.low, course.high)])
    if len(ends):
        low, high = max(min(low, float(ends.min())), low - span / 2), min(max(high, float(ends.max())), high + span / 2)
    nulls = np.concatenate([course.null[np.isfinite(course.null)] for course in courses])
    near = nulls[(nulls <= low + _REACH * (high - low)) & (nulls >= high - _REACH * (high - low))]
    if len(near):
        low, high = min(low, float(near.min())), max(high, float(near.max()))
    margin = 0.06 * (high - low) or 0.05
    return Scale(low - margin if low < 0 else 0.0, high + margin if high > 0 else 0.0)


def _writer(form: str, powers: bool) -> Callable[[float], str]:
    """How a tick is written."""
    if powers:
        return lambda value: written(10**value, "power") if value > -300 else f"1e{value:.0f}".replace("-", "−")
    if form == "share":
        return lambda value: f"{100 * value:.4g}%".replace("-", "−")
    return lambda value: f"{value:,.6g}".replace("-", "−")


def _key(courses: Sequence[Course], *, dots: bool) -> Markup:
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
        return key(*((f"line course {look}", name) for name, look in kinds.items()))
    spots = (tag("circle", cx="6", cy="6", r="3.2", class_=_spot(look)) for look in kinds.values())
    signs = (tag("svg", spot, viewBox="0 0 12 12", class_="spot-sign", aria_hidden="true") for spot in spots)
    return tag("ul", *(tag("li", one, name) for one, name in zip(signs, kinds, strict=True)), class_="key")


def _spot(look: str) -> str:
    return f"{'hollow' if 'dashed' in look else 'full'} {look}"


def _within(values: np.ndarray, up: Scale) -> np.ndarray:
    return np.asarray(np.isfinite(values) & (values >= up.low) & (values <= up.high))


# groups with an order


def _lines(
    title: str, told: str, courses: Sequence[Course], axis: Axis, up: Scale, write: Callable[[float], str]
) -> Markup:
    under, inner, over = [], [], []
    for course in courses:
        for part in _pieces(np.where(_within(course.null, up), course.null, np.nan)):
            x = course.places[part]
            x = x if len(x) > 1 else np.array([axis.scale.low, axis.scale.high])
            y = np.broadcast_to(course.null[part], x.shape)
            under.append(tag("path", d=line(x, y, axis.scale, up), class_="line null thin"))
        for part in _pieces(course.estimates):
            x = course.places[part]
            if len(x) > 1:
                under += _band(course, part, axis.scale, up)
                path = line(x, course.estimates[part], axis.scale, up)
                inner.append(tag("path", d=path, class_=f"line course {course.look}"))
            else:
                over += _whisker(course, part.start, axis.scale, up)
        over += _marks(course, axis.scale, up, write)
    return chart(
        title,
        told,
        axis.scale,
        up,
        [*under, *inner],
        over=[*over, *_letters(courses, axis.scale, up)],
        x_name=axis.name,
        y_name="",
        kind="small",
        whole=True,
        y_written=write,
        x_ticks=axis.ticks,
    )


def _pieces(values: np.ndarray) -> list[slice]:
    """The parts between numbers that could not be had."""
    edges = np.flatnonzero(np.diff(np.r_[False, np.isfinite(values), False]))
    return [slice(a, b) for a, b in edges.reshape(-1, 2).tolist()]


def _band(course: Course, part: slice, across: Scale, up: Scale) -> list[Markup]:
    x, low, high = course.places[part], course.low[part], course.high[part]
    bands = []
    for known in _pieces(low + high):
        if known.stop - known.start > 1:
            there, back = x[known], x[known][::-1]
            d = line(np.r_[there, back], np.r_[high[known], low[known][::-1]], across, up)
            bands.append(tag("path", d=d + "Z", class_=f"band {course.look}"))
    return bands


def _whisker(course: Course, i: int, across: Scale, up: Scale) -> list[Markup]:
    low, high = float(course.low[i]), float(course.high[i])
    if not math.isfinite(low + high):
        return []
    x = across.per_cent(course.places[i])
    return [tag("line", x1=x, x2=x, y1=_top(up, low), y2=_top(up, high), class_=f"whisker {course.look}")]


def _marks(course: Course, across: Scale, up: Scale, write: Callable[[float], str]) -> list[Markup]:
    """The verdict of each group; what is not judged has a ring where no line goes through it."""
    size = 0.7 if len(course.places) > _CROWDED else 1.0
    lonely = {part.start for part in _pieces(course.estimates) if part.stop - part.start == 1}
    known = np.flatnonzero(np.isfinite(course.estimates)).tolist()
    return [
        _mark(course, i, across.per_cent(course.places[i]), _top(up, float(course.estimates[i])), size, write)
        for i in known
        if course.judged or i in lonely
    ]


def _mark(course: Course, i: int, x: str, y: str, size: float, write: Callable[[float], str]) -> Markup:
    low, high = float(course.low[i]), float(course.high[i])
    span = f" ({write(_short(low))} … {write(_short(high))})" if math.isfinite(low + high) else ""
    said = f"{course.called[i]}: {write(_short(float(course.estimates[i])))}{span}"
    if course.judged:
        return sign(course.verdicts[i], x, y, course.look, size, f"{said}, {WORDS[course.verdicts[i]]}")
    return tag("circle", tag("title", said), cx=x, cy=y, r="3", class_=f"hollow {course.look}")


def sign(verdict: str, x: str, y: str, look: str = "", size: float = 1.0, title: str = "") -> Markup:
    """The mark of a verdict."""
    return mark(f"at {verdict} {look}".strip(), x, y, shape=_shape(verdict, size), title=title)


def _shape(verdict: str, size: float) -> str:
    if verdict in _CORNERS:
        return "M" + "L".join(f"{a * size:g} {b * size:g}" for a, b in _CORNERS[verdict]) + "Z"
    r = 3 * size
    return f"M{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0Z"


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _letters(courses: Sequence[Course], across: Scale, up: Scale) -> list[Markup]:
    """Each audit's letter at the end of its line, none on top of another."""
    ends = []
    for course in courses:
        known = np.flatnonzero(np.isfinite(course.estimates))
        if course.letter and course.judged and len(known):
            ends.append((up(float(course.estimates[known[-1]])), float(course.places[known[-1]]), course))
    ends.sort(key=lambda end: end[:2])
    heights = [height for height, _, _ in ends]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + _LETTERS_APART)
    above = 1.0 + _LETTERS_APART
    for i in reversed(range(len(heights))):
        above = heights[i] = min(heights[i], above - _LETTERS_APART)
    return [
        label(course.letter, across, x, up, _at(up, height), class_=f"note letter {course.look}", dy="4")
        for height, (_, x, course) in zip(heights, ends, strict=True)
    ]


def _at(up: Scale, place: float) -> float:
    """The value at a place, which is the opposite of `up(value)`."""
    return up.low + place * (up.high - up.low)


def _top(up: Scale, value: float) -> str:
    return f"{100 * (1 - min(max(up(value), 0.0), 1.0)):.1f}%"


# groups that are names


def _rows(
    title: str, told: str, courses: Sequence[Course], axis: Axis, up: Scale, write: Callable[[float], str]
) -> Markup:
    ticks = up.ticks(3)
    grid = [tag("line", x1=up.per_cent(tick), x2=up.per_cent(tick), y1="0", y2="100%", class_="grid") for tick in ticks]
    rows = []
    letters = sorted({course.letter for course in courses})
    for place, name in enumerate(axis.rows):
        drawn = list(grid)
        for course in courses:
            y = f"{100 * (letters.index(course.letter) + 1) / (len(letters) + 1):.0f}%"
            for i in np.flatnonzero((course.places == place) & np.isfinite(course.estimates)).tolist():
                if _within(course.null, up)[i]:
                    x = up.per_cent(course.null[i])
                    drawn.append(tag("line", x1=x, x2=x, y1="15%", y2="85%", class_="null thin"))
                if math.isfinite(course.low[i] + course.high[i]):
                    ends = {"x1": up.per_cent(course.low[i]), "x2": up.per_cent(course.high[i])}
                    drawn.append(tag("line", y1=y, y2=y, class_=f"whisker {course.look}", **ends))
                drawn.append(_mark(course, i, up.per_cent(course.estimates[i]), y, 1.0, write))
        track = tag("span", tag("svg", *drawn), class_="track")
        rows.append(tag("div", tag("span", tag("bdi", name), class_="name", title=name), track, class_="spot-row"))
    written_ticks = (tag("text", write(tick), x=up.per_cent(tick), y="14", class_="tick") for tick in ticks)
    foot = tag("div", tag("span", tag("svg", *written_ticks), class_="track"), class_="spot-row scale")
    return tag("div", *rows, foot, role="img", aria_label=f"{title}. {told}", class_="spots")
