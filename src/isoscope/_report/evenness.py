"""Isotropy against the task: whether a more even space is a better one here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import spearmanr

from isoscope._report.audit_charts import Drawn
from isoscope._report.forest_chart import kind_of, least_shown, mark, scored
from isoscope._report.html import tag
from isoscope._report.svg import Scale, chart
from isoscope.auditing.finding import written

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.advising.advise import Advice, Trial

_PLAIN = 0.5  # a rank correlation from which on a tendency is called one
_FEWEST = 5  # candidates of which a tendency is said
_WIDTH, _HEIGHT = 220, 240  # of the plot on a small phone, where labels are the closest
_LETTER, _LINE = 8, 15  # of a label, in pixels
_BEYOND = 12  # pixels that a label may reach beyond the plot


def evenness(advice: Advice) -> Drawn | None:
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
    lowest, highest = least_shown(scores, max(scores)), max(scores)
    margin = 0.12 * (highest - lowest) or 0.01
    up = Scale(lowest - margin, highest + margin)
    places = {i: (across(x), 1 - max(up(y), 0.0)) for i, x, y in zip(seen, even, scores, strict=True)}
    named_last = sorted(seen, key=lambda i: i in (0, advice.chosen))  # so that no other lies on them
    marks = [_mark(advice, i, places[i], up) for i in named_last]
    most = seen[int(np.argmax(even))]
    caption = _caption(advice, [advice.trials[i] for i in seen], advice.trials[most])
    if min(scores) < up.low:
        caption += " A hollow mark lies below the foot."
    drawing = chart(
        "Evenness against the task",
        caption,
        across,
        up,
        [],
        over=marks + _labels(_names(advice, places, most), places),
        x_name="IsoScore: the further right, the more even the space",
        y_name=advice.measures[measure],
        y_written=lambda value: f"{value:.6g}".replace("-", "−"),
    )
    return Drawn(drawing, caption)


def _mark(advice: Advice, i: int, place: tuple[float, float], up: Scale) -> Markup:
    trial, words = advice.trials[i], advice.measures[advice.measure]
    told = f"IsoScore {written(trial.shape['isoscore'])}, {words} {scored(trial[advice.measure].value)}"
    kind, chosen = kind_of(advice, i, advice.measure), i == advice.chosen
    beyond = trial[advice.measure].value < up.low
    return mark(kind, *_lengths(place), chosen=chosen, beyond=beyond, title=f"{trial.name}: {told}")


def _caption(advice: Advice, trials: Sequence[Trial], most: Trial) -> str:
    even = np.array([trial.shape["isoscore"] for trial in trials])
    scores = np.array([trial[advice.measure].value for trial in trials])
    words = "Each mark is one candidate."
    if np.ptp(scores) == 0:
        words += " All score the same."
    elif len(trials) >= _FEWEST and np.ptp(even) > 0:
        rank = float(spearmanr(even, scores).statistic)
        if abs(rank) < _PLAIN:
            words += " Evenness says little about the score here:"
        else:
            words += f" Here more even spaces mostly score {'higher' if rank > 0 else 'lower'}:"
        words += f" the ranks of the two correlate by {written(rank)}."
    words += f" The most even, {most.name}, scores {scored(most[advice.measure].value)}"
    first = advice.trials[0]
    if most is first:
        return f"{words}: no repair made the space more even."
    words += f" at an IsoScore of {written(most.shape['isoscore'])}"
    if first in trials:
        words += f"; as it is, {scored(first[advice.measure].value)} at {written(first.shape['isoscore'])}"
    return f"{words}."


# labels


def _names(advice: Advice, places: dict[int, tuple[float, float]], most: int) -> dict[int, str]:
    """Which marks are named; one may have two names."""
    named: dict[int, list[str]] = {}
    for i, name in ((0, "as it is"), (advice.chosen, "chosen"), (most, "most even")):
        if i in places and len(named.get(i, [])) < 2:
            named.setdefault(i, []).append(name)
    return {i: ", ".join(names) for i, names in named.items()}


def _labels(names: dict[int, str], places: dict[int, tuple[float, float]]) -> list[Markup]:
    """Names beside their marks, on the side where the fewest other marks and names are."""
    marks = [(x * _WIDTH, y * _HEIGHT) for x, y in places.values()]
    taken: list[tuple[float, float, float, float]] = []
    drawn = []
    for i, name in names.items():
        x, y = places[i][0] * _WIDTH, places[i][1] * _HEIGHT
        width = _LETTER * len(name)
        sides = [
            ("start", 14, 4, (x + 14, y - _LINE / 2)),
            ("end", -14, 4, (x - 14 - width, y - _LINE / 2)),
            ("middle", 0, -15, (x - width / 2, y - 15 - 0.8 * _LINE)),
            ("middle", 0, 24, (x - width / 2, y + 24 - 0.8 * _LINE)),
            ("start", -5, -15, (x - 5, y - 15 - 0.8 * _LINE)),
            ("start", -5, 24, (x - 5, y + 24 - 0.8 * _LINE)),
            ("end", 5, -15, (x + 5 - width, y - 15 - 0.8 * _LINE)),
            ("end", 5, 24, (x + 5 - width, y + 24 - 0.8 * _LINE)),
        ]
        boxes = [(left, top, left + width, top + _LINE) for _, _, _, (left, top) in sides]
        costs = [_cost(box, [each for each in marks if each != (x, y)], taken) for box in boxes]
        best = costs.index(min(costs))
        anchor, dx, dy, _ = sides[best]
        taken.append(boxes[best])
        across, down = _lengths(places[i])
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
    outside = left < 0 or right > _WIDTH + _BEYOND or top < -_LINE or foot > _HEIGHT
    return hidden + 10 * overlaps + 100 * outside


def _lengths(place: tuple[float, float]) -> tuple[str, str]:
    """A place as SVG lengths."""
    return f"{100 * place[0]:.1f}%", f"{100 * place[1]:.1f}%"
