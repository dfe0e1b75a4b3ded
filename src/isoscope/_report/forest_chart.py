"""The gains of all candidates by one measure: a line for each, a mark at the gain, a whisker for its interval.

Names and numbers are text beside the drawing, not in it: they wrap on a phone, and a long name meets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.advice_table import MARKS
from isoscope._report.audit_charts import CaptionedChart
from isoscope._report.html import join_markup, tag
from isoscope._report.narrate import format_signed
from isoscope._report.svg import Scale

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
        tag("span", f"{MARKS[kind]} {format_signed(score.gain)}" if i else "", class_=f"gained {kind}"),
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
