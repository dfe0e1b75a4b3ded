"""Charts of the advice: gains with intervals, and score against isotropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import spearmanr

from isoscope._report.audit_charts import CaptionedChart
from isoscope._report.html import join_markup, tag
from isoscope._report.narrate import format_signed
from isoscope._report.svg import Scale, draw_chart
from isoscope._report.terminal import GAIN_MARKS
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.advising.advise import Advice, Trial


GAIN_LABELS = {
    "gain": "significant gain",
    "noise": "no significant difference",
    "loss": "significant loss",
}

_SHAPES = {
    "gain": "M0 -6L6 5H-6Z",
    "noise": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
    "loss": "M0 6L6 -5H-6Z",
    "as-is": "M0 -6L6 0L0 6L-6 0Z",
}
_RING = "M-10 0a10 10 0 1 0 20 0a10 10 0 1 0 -20 0Z"
_OFFSCALE_SHAPE = "M-6 0L5 -6V6Z"
_LEAST_SPAN = 0.02  # of a scale on which all gains are the same
_MIN_CANDIDATES_TO_TRIM = 8  # candidates of which some may be left out of the scale
_MAX_STRETCH = 3  # times that a scale would be longer with them


def draw_forest_plot(advice: Advice, measure: str) -> CaptionedChart:
    """Every candidate's gain over leaving the vectors alone, the simplest first."""
    scale = _gain_scale(advice, measure)
    lines = [_draw_row(advice, i, measure, scale) for i in range(len(advice.trials))]
    words = advice.measures[measure]
    caption = _describe_verdicts(advice, measure)
    if any(trial[measure].gain < scale.low for trial in advice.trials):
        caption += " A hollow mark lies beyond the left edge."
    label = f"Gains by {words} over the vectors as they are. {caption} The table has all numbers."
    drawing = tag("div", *lines, _draw_axis(scale), role="img", aria_label=label, class_="forest")
    name = tag("p", f"gain in {words}: left is worse, right is better", class_="x-name", aria_hidden="true")
    return CaptionedChart(join_markup(drawing, name), caption)


def draw_mark(
    kind: str, x: str, y: str, *, chosen: bool = False, shape: str | None = None, beyond: bool = False, title: str = ""
) -> Markup:
    """The sign of a verdict, or of the vectors as they are; a ring around what is chosen, hollow what is off scale."""
    return tag(
        "svg",
        tag("title", title) if title else None,
        tag("path", d=_RING, class_="ring") if chosen else None,
        tag("path", d=shape or _SHAPES[kind], class_="mark beyond" if beyond else "mark"),
        x=x,
        y=y,
        overflow="visible",
        class_=kind,
    )


def mark_kind(advice: Advice, i: int, measure: str) -> str:
    """How a candidate is marked."""
    return advice.trials[i][measure].verdict if i else "as-is"


def render_mark_legend(advice: Advice) -> Markup:
    """What the marks of the figures mean."""
    words = {"as-is": "as it is"} | GAIN_LABELS
    entries = [(kind, False, said) for kind, said in words.items()] + [("noise", True, "chosen")]
    signs = (
        tag("li", tag("svg", draw_mark(kind, "50%", "50%", chosen=chosen), class_="sign", aria_hidden="true"), said)
        for kind, chosen, said in entries
    )
    interval = tag("svg", tag("path", d="M1 9H21", class_="whisker"), class_="sign noise", aria_hidden="true")
    return tag("ul", *signs, tag("li", interval, f"{100 * advice.settings.confidence:g}% interval"), class_="key")


def choose_lower_limit(values: Sequence[float], highest: float) -> float:
    """Where a scale begins: at the least value, unless a few that are far off would squeeze all others together.

    >>> choose_lower_limit([-20, -2, -2, -1, -1, 0, 0, 1], 1)
    -2
    >>> choose_lower_limit([-7, -2, -2, -1, -1, 0, 0, 1], 1)
    -7
    """
    least = min(values)
    if len(values) < _MIN_CANDIDATES_TO_TRIM:
        return least
    first, third = np.quantile(values, [0.25, 0.75])
    near = min(value for value in values if value >= first - 1.5 * (third - first))
    return near if highest > near and highest - least > _MAX_STRETCH * (highest - near) else least


def _gain_scale(advice: Advice, measure: str) -> Scale:
    """From the least to the greatest end of an interval; losses that are far off are not shown at their place."""
    scores = [trial[measure] for trial in advice.trials if math.isfinite(trial[measure].low + trial[measure].high)]
    high = max([0.0, *(score.high for score in scores)])
    low = min(0.0, choose_lower_limit([score.low for score in scores] or [0.0], high))
    margin = 0.05 * (high - low) or _LEAST_SPAN / 2
    return Scale(low - margin, high + margin)


def _draw_row(advice: Advice, i: int, measure: str, scale: Scale) -> Markup:
    trial, chosen = advice.trials[i], i == advice.chosen
    score, kind = trial[measure], mark_kind(advice, i, measure)
    zero = scale.percent(0.0)
    drawn = [tag("line", x1=zero, x2=zero, y1="0", y2="100%", class_="zero")]
    beyond = score.gain < scale.low
    if i and math.isfinite(score.low + score.high) and score.high > scale.low:
        ends = {"x1": scale.percent(score.low), "x2": scale.percent(score.high)}
        drawn.append(tag("line", y1="50%", y2="50%", class_=f"whisker {kind}", **ends))
    if math.isfinite(score.gain):
        shape = _OFFSCALE_SHAPE if beyond else None
        drawn.append(draw_mark(kind, scale.percent(score.gain), "50%", chosen=chosen, shape=shape, beyond=beyond))
    return tag(
        "div",
        tag("span", render_trial_name(trial, chosen), class_="name"),
        tag("span", tag("svg", *_draw_grid(scale), *drawn), class_="track"),
        tag("span", format_score(score.value), class_="score"),
        tag("span", f"{GAIN_MARKS[kind]} {format_signed(score.gain)}" if i else "", class_=f"gained {kind}"),
        class_="trial chosen" if chosen else "trial",
    )


def render_trial_name(trial: Trial, chosen: bool) -> Markup:
    """A candidate's name; of the chosen one it is said."""
    return join_markup(tag("bdi", trial.name), join_markup(" ", tag("small", "chosen")) if chosen else None)


def format_score(value: float) -> str:
    """A score, with as many digits as its gain has.

    >>> format_score(0.5), format_score(-0.1234)
    ('0.500', '−0.123')
    """
    return f"{value:.3f}".replace("-", "−")


def _draw_grid(scale: Scale) -> list[Markup]:
    return [
        tag("line", x1=scale.percent(value), x2=scale.percent(value), y1="0", y2="100%", class_="grid")
        for value in scale.ticks(6)
        if value
    ]


def _draw_axis(scale: Scale) -> Markup:
    ticks = [
        tag(
            "text",
            f"{value:+.6g}".replace("-", "−") if value else "0",
            x=scale.percent(value),
            y="15",
            class_="tick",
        )
        for value in scale.ticks(6)
    ]
    return tag("div", tag("span", tag("svg", *ticks), class_="track"), class_="trial scale")


def _describe_verdicts(advice: Advice, measure: str) -> str:
    """How many candidates have which verdict, in words."""
    verdicts = [trial[measure].verdict for trial in advice.trials[1:]]
    if not verdicts:
        return "No repair was tried."
    kinds = [
        ("gain", "gains significantly", "gain significantly"),
        ("loss", "loses significantly", "lose significantly"),
        ("noise", "makes no significant difference", "make no significant difference"),
    ]
    told = [(verdicts.count(kind), one, many) for kind, one, many in kinds if kind in verdicts]
    if len(verdicts) == 1:
        return f"The one repair {told[0][1]}."
    if len(told) == 1:
        return f"All {len(verdicts)} repairs {told[0][2]}."
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in told]
    return f"Of {len(verdicts)} repairs {', '.join(parts[:-1])} and {parts[-1]}."


_MIN_CORRELATION = 0.5  # a rank correlation from which on a tendency is called one
_MIN_CANDIDATES = 5  # candidates of which a tendency is said
_WIDTH, _HEIGHT = 220, 240  # of the plot on a small phone, where labels are the closest
_LETTER_WIDTH, _LINE_HEIGHT = 8, 15  # of a label, in pixels
_MAX_OVERHANG = 12  # pixels that a label may reach beyond the plot


def draw_isotropy_scatter(advice: Advice) -> CaptionedChart | None:
    """IsoScore of each candidate's space, and its score by the measure that decides."""
    measure = advice.measure
    seen = [
        i
        for i, trial in enumerate(advice.trials)
        if math.isfinite(trial.shape.get("isoscore", math.nan)) and math.isfinite(trial[measure].value)
    ]
    if len(seen) < 2:
        return None
    even = [advice.trials[i].shape["isoscore"] for i in seen]
    scores = [advice.trials[i][measure].value for i in seen]
    across = Scale(min(0.0, *even), max(*even, 0.05) * 1.06)
    lowest, highest = choose_lower_limit(scores, max(scores)), max(scores)
    margin = 0.12 * (highest - lowest) or 0.01
    up = Scale(lowest - margin, highest + margin)
    places = {i: (across(x), 1 - max(up(y), 0.0)) for i, x, y in zip(seen, even, scores, strict=True)}
    named_last = sorted(seen, key=lambda i: i in (0, advice.chosen))  # so that no other lies on them
    marks = [_draw_candidate(advice, i, places[i], up) for i in named_last]
    most = seen[int(np.argmax(even))]
    caption = _format_caption(advice, [advice.trials[i] for i in seen], advice.trials[most])
    if min(scores) < up.low:
        caption += " A hollow mark lies below the foot."
    drawing = draw_chart(
        "Evenness against the task",
        caption,
        across,
        up,
        [],
        over=marks + _draw_labels(_choose_labels(advice, places, most), places),
        x_name="IsoScore: the further right, the more even the space",
        y_name=advice.measures[measure],
        y_written=lambda value: f"{value:.6g}".replace("-", "−"),
    )
    return CaptionedChart(drawing, caption)


def _draw_candidate(advice: Advice, i: int, place: tuple[float, float], up: Scale) -> Markup:
    trial, words = advice.trials[i], advice.measures[advice.measure]
    told = f"IsoScore {format_number(trial.shape['isoscore'])}, {words} {format_score(trial[advice.measure].value)}"
    kind, chosen = mark_kind(advice, i, advice.measure), i == advice.chosen
    beyond = trial[advice.measure].value < up.low
    return draw_mark(kind, *_format_position(place), chosen=chosen, beyond=beyond, title=f"{trial.name}: {told}")


def _format_caption(advice: Advice, trials: Sequence[Trial], most: Trial) -> str:
    even = np.array([trial.shape["isoscore"] for trial in trials])
    scores = np.array([trial[advice.measure].value for trial in trials])
    words = "Each mark is one candidate."
    if np.ptp(scores) == 0:
        words += " All score the same."
    elif len(trials) >= _MIN_CANDIDATES and np.ptp(even) > 0:
        rank = float(spearmanr(even, scores).statistic)
        if abs(rank) < _MIN_CORRELATION:
            words += " Evenness says little about the score here:"
        else:
            words += f" Here more even spaces mostly score {'higher' if rank > 0 else 'lower'}:"
        words += f" the ranks of the two correlate by {format_number(rank)}."
    words += f" The most even, {most.name}, scores {format_score(most[advice.measure].value)}"
    first = advice.trials[0]
    if most is first:
        return f"{words}: no repair made the space more even."
    words += f" at an IsoScore of {format_number(most.shape['isoscore'])}"
    if first in trials:
        words += f"; as it is, {format_score(first[advice.measure].value)} at {format_number(first.shape['isoscore'])}"
    return f"{words}."


# labels


def _choose_labels(advice: Advice, places: dict[int, tuple[float, float]], most: int) -> dict[int, str]:
    """Which marks are named; one may have two names."""
    named: dict[int, list[str]] = {}
    for i, name in ((0, "as it is"), (advice.chosen, "chosen"), (most, "most even")):
        if i in places and len(named.get(i, [])) < 2:
            named.setdefault(i, []).append(name)
    return {i: ", ".join(names) for i, names in named.items()}


def _draw_labels(names: dict[int, str], places: dict[int, tuple[float, float]]) -> list[Markup]:
    """Names beside their marks, on the side where the fewest other marks and names are."""
    marks = [(x * _WIDTH, y * _HEIGHT) for x, y in places.values()]
    taken: list[tuple[float, float, float, float]] = []
    drawn = []
    for i, name in names.items():
        x, y = places[i][0] * _WIDTH, places[i][1] * _HEIGHT
        width = _LETTER_WIDTH * len(name)
        sides = [
            ("start", 14, 4, (x + 14, y - _LINE_HEIGHT / 2)),
            ("end", -14, 4, (x - 14 - width, y - _LINE_HEIGHT / 2)),
            ("middle", 0, -15, (x - width / 2, y - 15 - 0.8 * _LINE_HEIGHT)),
            ("middle", 0, 24, (x - width / 2, y + 24 - 0.8 * _LINE_HEIGHT)),
            ("start", -5, -15, (x - 5, y - 15 - 0.8 * _LINE_HEIGHT)),
            ("start", -5, 24, (x - 5, y + 24 - 0.8 * _LINE_HEIGHT)),
            ("end", 5, -15, (x + 5 - width, y - 15 - 0.8 * _LINE_HEIGHT)),
            ("end", 5, 24, (x + 5 - width, y + 24 - 0.8 * _LINE_HEIGHT)),
        ]
        boxes = [(left, top, left + width, top + _LINE_HEIGHT) for _, _, _, (left, top) in sides]
        costs = [_cost(box, [each for each in marks if each != (x, y)], taken) for box in boxes]
        best = costs.index(min(costs))
        anchor, dx, dy, _ = sides[best]
        taken.append(boxes[best])
        across, down = _format_position(places[i])
        drawn.append(tag("text", name, x=across, y=down, dx=dx, dy=dy, text_anchor=anchor, class_="spot"))
    return drawn


def _cost(
    box: tuple[float, float, float, float],
    marks: Sequence[tuple[float, float]],
    taken: Sequence[tuple[float, float, float, float]],
) -> int:
    """How much a label would hide there; to leave the plot costs the most."""
    left, top, right, foot = box
    hidden = sum(left - 6 < x < right + 6 and top - 6 < y < foot + 6 for x, y in marks)
    overlaps = sum(left < r and right > a and top < f and foot > t for a, t, r, f in taken)
    outside = left < 0 or right > _WIDTH + _MAX_OVERHANG or top < -_LINE_HEIGHT or foot > _HEIGHT
    return hidden + 10 * overlaps + 100 * outside


def _format_position(place: tuple[float, float]) -> tuple[str, str]:
    """A place as SVG lengths."""
    return f"{100 * place[0]:.1f}%", f"{100 * place[1]:.1f}%"
