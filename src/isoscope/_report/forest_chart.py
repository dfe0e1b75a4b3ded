"""Charts for advice: the gains with their intervals, and the scores plotted against isotropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import spearmanr

from isoscope._report.html import join_markup, tag
from isoscope._report.narrate import format_confidence, format_signed, join_words
from isoscope._report.svg import Chart, Line, Scale, draw_mark, format_tick
from isoscope._report.svg_file import render_image, render_svg_file
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

_LEAST_SPAN = 0.02  # length of the scale if all gains are equal
_MIN_CANDIDATES_TO_TRIM = 8  # with fewer, the scale includes outliers
_MAX_STRETCH = 3  # outliers may make the scale this many times longer


def draw_forest_plot(advice: Advice, measure: str) -> tuple[Markup, str]:
    """Return a chart of the gain of every candidate, from the simplest to the most complex, and its caption."""
    scale = _gain_scale(advice, measure)
    lines = [_draw_row(advice, i, measure, scale) for i in range(len(advice.trials))]
    words = advice.measures[measure]
    caption = _describe_verdicts(advice, measure)
    if any(trial[measure].gain < scale.low for trial in advice.trials):
        caption += " A hollow mark is beyond the left edge."
    label = f"Gains by {words} over the original vectors. {caption} The table has all numbers."
    drawing = tag("div", *lines, _draw_axis(scale), role="img", aria_label=label, class_="forest")
    name = tag("p", f"gain in {words}: left is worse, right is better", class_="x-name", aria_hidden="true")
    return join_markup(drawing, name), caption


_TRACK, _ROW, _TOP, _LETTER = 340, 26, 40, 7.2  # pixels: the track, a row, the title, a letter of a name


def render_forest_image(advice: Advice, measure: str) -> Markup:
    """Return the gain of every candidate with its interval as an image for a notebook."""
    scale = _gain_scale(advice, measure)
    names = [trial.name + (" (chosen)" if i == advice.chosen else "") for i, trial in enumerate(advice.trials)]
    left = 32 + round(_LETTER * max(map(len, names)))
    words = advice.measures[measure]
    title = f"Gain in {words}"
    parts = [tag("text", title, x=16, y=24, class_="title")]
    bottom = _TOP + _ROW * len(names)
    for i, name in enumerate(names):
        y = _TOP + _ROW * i
        drawn = [*_draw_grid(scale), *_draw_gain(advice, i, measure, scale)]
        parts.append(tag("text", name, x=16, y=y + _ROW / 2, dy="0.35em"))
        parts.append(tag("svg", *drawn, x=left, y=y, width=_TRACK, height=_ROW, overflow="visible"))
        if i:
            gain = f"{GAIN_MARKS[mark_kind(advice, i, measure)]} {_format_gain(advice, i, measure)}"
            parts.append(tag("text", gain, x=left + _TRACK + 16, y=y + _ROW / 2, dy="0.35em"))
    parts.append(tag("svg", *_draw_ticks(scale), x=left, y=bottom, width=_TRACK, height=_ROW, overflow="visible"))
    parts.append(tag("text", "left is worse, right is better", x=left + _TRACK / 2, y=bottom + 36, class_="tick"))
    file = render_svg_file(title, left + _TRACK + 90, bottom + 48, *parts, dark=False)
    return render_image(file, f"{title} over the original vectors. {_describe_verdicts(advice, measure)}")


def mark_kind(advice: Advice, i: int, measure: str) -> str:
    """Return the mark of a candidate: its verdict, or "as-is" for the original vectors."""
    return advice.trials[i][measure].verdict if i else "as-is"


def render_mark_legend(advice: Advice, *, interval: bool = True) -> Markup:
    """Return a legend of the marks, with or without an entry for the interval."""
    names = {"as-is": "as it is"} | GAIN_LABELS | {"noise chosen": "chosen"}
    entries = (
        tag("li", tag("svg", draw_mark(mark, "50%", "50%"), class_="sign", aria_hidden="true"), name)
        for mark, name in names.items()
    )
    whisker = tag("svg", tag("path", d="M1 9H21", class_="whisker"), class_="sign noise", aria_hidden="true")
    words = f"{format_confidence(advice.settings.confidence)} interval"
    return tag("ul", *entries, tag("li", whisker, words) if interval else None, class_="key")


def choose_lower_limit(values: Sequence[float], highest: float) -> float:
    """Return the lower limit of a scale: the smallest value, unless outliers would squeeze the others together.

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
    """Return a scale that covers all intervals except those of very large losses."""
    scores = [trial[measure] for trial in advice.trials if math.isfinite(trial[measure].low + trial[measure].high)]
    high = max([0.0, *(score.high for score in scores)])
    low = min(0.0, choose_lower_limit([score.low for score in scores] or [0.0], high))
    margin = 0.05 * (high - low) or _LEAST_SPAN / 2
    return Scale(low - margin, high + margin)


def _draw_row(advice: Advice, i: int, measure: str, scale: Scale) -> Markup:
    trial, chosen = advice.trials[i], i == advice.chosen
    kind = mark_kind(advice, i, measure)
    return tag(
        "div",
        tag("span", render_trial_name(trial, chosen), class_="name"),
        tag("span", tag("svg", *_draw_grid(scale), *_draw_gain(advice, i, measure, scale)), class_="track"),
        tag("span", format_score(trial[measure].value), class_="score"),
        tag("span", f"{GAIN_MARKS[kind]} {_format_gain(advice, i, measure)}" if i else "", class_=f"gained {kind}"),
        class_="trial chosen" if chosen else "trial",
    )


def _format_gain(advice: Advice, i: int, measure: str) -> str:
    return format_signed(advice.trials[i][measure].gain)


def _draw_gain(advice: Advice, i: int, measure: str, scale: Scale) -> list[Markup]:
    """Return the zero line, and the interval and the mark of a candidate's gain."""
    score, kind = advice.trials[i][measure], mark_kind(advice, i, measure)
    zero = scale.percent(0.0)
    drawn = [tag("line", x1=zero, x2=zero, y1="0", y2="100%", class_="zero")]
    beyond = score.gain < scale.low
    if i and math.isfinite(score.low + score.high) and score.high > scale.low:
        ends = {"x1": scale.percent(score.low), "x2": scale.percent(score.high)}
        drawn.append(tag("line", y1="50%", y2="50%", class_=f"whisker {kind}", **ends))
    if math.isfinite(score.gain):
        mark = f"{kind} chosen" if i == advice.chosen else kind
        drawn.append(draw_mark(mark, scale.percent(score.gain), "50%", offscale=beyond))
    return drawn


def render_trial_name(trial: Trial, chosen: bool) -> Markup:
    """Return a candidate's name, with a note if it is the chosen one."""
    return join_markup(tag("bdi", trial.name), join_markup(" ", tag("small", "chosen")) if chosen else None)


def format_score(value: float) -> str:
    """Return a score with the same number of decimals as its gain.

    >>> format_score(0.5), format_score(-0.1234), format_score(-0.0001)
    ('0.500', '−0.123', '0.000')
    """
    return f"{value:z.3f}".replace("-", "−")


def _draw_grid(scale: Scale) -> list[Markup]:
    return [
        tag("line", x1=scale.percent(value), x2=scale.percent(value), y1="0", y2="100%", class_="grid")
        for value in scale.ticks(6)
        if value
    ]


def _draw_axis(scale: Scale) -> Markup:
    return tag("div", tag("span", tag("svg", *_draw_ticks(scale)), class_="track"), class_="trial scale")


def _draw_ticks(scale: Scale) -> list[Markup]:
    return [
        tag(
            "text",
            f"{value:+.6g}".replace("-", "−") if value else "0",
            x=scale.percent(value),
            y="15",
            class_="tick",
        )
        for value in scale.ticks(6)
    ]


def _describe_verdicts(advice: Advice, measure: str) -> str:
    """Return a sentence with the number of candidates for each verdict."""
    verdicts = [trial[measure].verdict for trial in advice.trials[1:]]
    if not verdicts:
        return "No repair was tried."
    kinds = [
        ("gain", "gains significantly", "gain significantly"),
        ("loss", "loses significantly", "lose significantly"),
        ("noise", "makes no significant difference", "make no significant difference"),
    ]
    present = [(verdicts.count(kind), one, many) for kind, one, many in kinds if kind in verdicts]
    if len(verdicts) == 1:
        return f"The only repair {present[0][1]}."
    if len(present) == 1:
        return f"All {len(verdicts)} repairs {present[0][2]}."
    return f"Of {len(verdicts)} repairs, {join_words([f'{n} {one if n == 1 else many}' for n, one, many in present])}."


_MIN_CORRELATION = 0.5  # rank correlation above which the caption mentions a trend
_MIN_CANDIDATES = 5  # fewer candidates show no trend


def build_isotropy_scatter(advice: Advice) -> Chart | None:
    """Return a chart of each candidate's deciding score against its IsoScore; None for fewer than two candidates."""
    measure = advice.measure
    measured = [
        i
        for i, trial in enumerate(advice.trials)
        if math.isfinite(trial.shape.get("isoscore", math.nan)) and math.isfinite(trial[measure].value)
    ]
    if len(measured) < 2:
        return None
    isoscores = [advice.trials[i].shape["isoscore"] for i in measured]
    scores = [advice.trials[i][measure].value for i in measured]
    lowest, highest = choose_lower_limit(scores, max(scores)), max(scores)
    margin = 0.12 * (highest - lowest) or 0.01
    up = Scale(lowest - margin, highest + margin)
    most = measured[int(np.argmax(isoscores))]
    caption = _describe_scatter(advice, [advice.trials[i] for i in measured], advice.trials[most])
    if min(scores) < up.low:
        caption += " A hollow mark is below the lower edge."
    on_top = sorted(measured, key=lambda i: i in (0, advice.chosen))
    return Chart(
        "Isotropy and the task",
        caption,
        Scale(min(0.0, *isoscores), max(*isoscores, 0.05) * 1.06),
        up,
        [
            Line(
                np.array([advice.trials[i].shape["isoscore"] for i in on_top]),
                np.array([advice.trials[i][measure].value for i in on_top]),
                style="",
                form="dots",
                marks=[_scatter_mark(advice, i, up) for i in on_top],
                titles=[_describe_candidate(advice, i) for i in on_top],
            )
        ],
        x_name="IsoScore (higher is more isotropic)",
        y_name=advice.measures[measure],
        format_y=format_tick,
    )


def _scatter_mark(advice: Advice, i: int, up: Scale) -> str:
    words = [mark_kind(advice, i, advice.measure)]
    words += ["chosen"] * (i == advice.chosen) + ["hollow"] * (advice.trials[i][advice.measure].value < up.low)
    return " ".join(words)


def _describe_candidate(advice: Advice, i: int) -> str:
    trial = advice.trials[i]
    score = format_score(trial[advice.measure].value)
    isoscore = format_number(trial.shape["isoscore"])
    return f"{trial.name}: IsoScore {isoscore}, {advice.measures[advice.measure]} {score}"


def _describe_scatter(advice: Advice, trials: Sequence[Trial], most: Trial) -> str:
    isoscores = np.array([trial.shape["isoscore"] for trial in trials])
    scores = np.array([trial[advice.measure].value for trial in trials])
    sentences = ["Each mark is one candidate."]
    if np.ptp(scores) == 0:
        sentences.append("All candidates score the same.")
    elif len(trials) >= _MIN_CANDIDATES and np.ptp(isoscores) > 0:
        rank = float(spearmanr(isoscores, scores).statistic)
        tendency = f"more isotropic spaces mostly score {'higher' if rank > 0 else 'lower'}"
        if abs(rank) < _MIN_CORRELATION:
            tendency = "isotropy says little about the score"
        sentences.append(f"Here {tendency} (rank correlation {format_number(rank)}).")
    first, score = advice.trials[0], format_score(most[advice.measure].value)
    if most is first:
        sentences.append(
            f"The original vectors are the most isotropic and score {score}: no repair made them more isotropic."
        )
        return " ".join(sentences)
    words = (
        f"The most isotropic candidate, {most.name}, scores {score} (IsoScore {format_number(most.shape['isoscore'])})"
    )
    if first in trials:
        before = format_score(first[advice.measure].value)
        words += f"; the original vectors score {before} (IsoScore {format_number(first.shape['isoscore'])})"
    return " ".join([*sentences, f"{words}."])
