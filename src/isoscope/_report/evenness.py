"""Isotropy against the task: whether a more even space is a better one here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import spearmanr

from isoscope._report.audit_charts import CaptionedChart
from isoscope._report.forest_chart import choose_lower_limit, draw_mark, format_score, mark_kind
from isoscope._report.html import tag
from isoscope._report.svg import Scale, draw_chart
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.advising.advise import Advice, Trial

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
