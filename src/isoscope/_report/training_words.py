"""What happened to the layers while they trained, in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isoscope._report.profile import format_layer_name
from isoscope.auditing.finding import format_number
from isoscope.training.collapse import effective_dimensions

if TYPE_CHECKING:
    from isoscope.training.runs import Runs, StepSeries

MEASUREMENT_LABELS = {
    **{f"anisotropy_{k}": f"anisotropy_{k}" for k in (1, 2, 3)},
    **{f"anisotropy_{k}_centred": f"anisotropy_{k}, centred" for k in (1, 2, 3)},
    "isoscore_unbiased": "IsoScore, unbiased",
    "isoscore": "IsoScore, plug-in",
    "mean_cosine": "mean cosine",
    "two_nn": "TwoNN dimension",
    "silhouette": "silhouette of the classes",
}
"""The measurements in the words of the page, in its order."""

_MIN_RELATIVE_CHANGE = 0.03  # of the larger end: less is no change to speak of
_MIN_CHANGE = 0.005  # nor is this, however small the ends are


class LineChange(NamedTuple):
    """From the first number that could be had to the last."""

    before: float
    after: float

    @property
    def verb(self) -> str:
        """Rose, fell or stayed."""
        if not self.is_known or abs(self.after - self.before) <= max(
            _MIN_RELATIVE_CHANGE * max(abs(self.after), abs(self.before)), _MIN_CHANGE
        ):
            return "stayed"
        return "rose" if self.after > self.before else "fell"

    @property
    def is_known(self) -> bool:
        """Whether there is a number at all."""
        return math.isfinite(self.before) and math.isfinite(self.after)

    def __str__(self) -> str:
        if self.verb == "stayed":
            return f"stayed at {format_number(self.after)}"
        return f"{self.verb} from {format_number(self.before)} to {format_number(self.after)}"


def measure_change(line: StepSeries) -> LineChange:
    """How a line went, from its first number to its last."""
    known = line.values[np.isfinite(line.values)]
    return LineChange(float(known[0]), float(known[-1])) if len(known) else LineChange(math.nan, math.nan)


def headline(runs: Runs) -> str:
    """What happened, in one sentence."""
    layer = runs.layers[-1]
    if len(runs.arms) == 1:
        arm = next(iter(runs.arms))
        moved = measure_change(runs.mean(arm, layer, "anisotropy_1"))
        if not moved.is_known and not len(runs.mean(arm, layer, "anisotropy_1").steps):
            return "The runs were measured at no step in common."
        if not moved.is_known:
            return f"anisotropy_1 of {format_last_layer(layer)} could not be measured: its states are zero, or too few."
        return f"anisotropy_1 of {format_last_layer(layer)} {moved}."
    ends = {arm: float(np.mean(runs.late(arm, layer, "anisotropy_1"))) for arm in runs.arms}
    ends = {arm: value for arm, value in ends.items() if math.isfinite(value)}
    if len(ends) < 2:
        return f"anisotropy_1 of {format_last_layer(layer)} could not be measured in most arms."
    low, high = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return (
        f"anisotropy_1 of {format_last_layer(layer)} ends between {format_number(ends[low])} ({low}) and "
        f"{format_number(ends[high])} ({high})."
    )


def paragraph(runs: Runs) -> str:
    """More of the last layer: how it went, or where each arm ends."""
    if len(runs.arms) == 1:
        return _describe_arm(runs, next(iter(runs.arms)))
    sentences = []
    layer, d = runs.layers[-1], _count_dimensions(runs)
    for name, words in (
        ("anisotropy_1_centred", "Centred, it ends at"),
        ("isoscore_unbiased", f"Of {d:,} dimensions the states fill"),
        ("silhouette", "The silhouette of the classes ends at"),
    ):
        ends = {arm: float(np.mean(runs.late(arm, layer, name))) for arm in runs.arms}
        if name == "isoscore_unbiased":
            ends = {arm: effective_dimensions(max(score, 0.0), d) for arm, score in ends.items()}
        known = [f"{format_number(value)} ({arm})" for arm, value in ends.items() if math.isfinite(value)]
        if known:
            sentences.append(f"{words} {', '.join(known)}.")
    return " ".join(sentences)


def _describe_arm(runs: Runs, arm: str) -> str:
    layer = runs.layers[-1]
    moves = {name: measure_change(runs.mean(arm, layer, name)) for name in MEASUREMENT_LABELS}
    score, d = moves["isoscore_unbiased"], _count_dimensions(runs)
    dimensions = LineChange(*(effective_dimensions(max(each, 0.0), d) for each in score))
    told = [
        (moves["anisotropy_1_centred"], "with the mean taken out, it", ""),
        (dimensions, "its effective dimensions", f" of {d:,}"),
        (moves["mean_cosine"], "its mean cosine", ""),
        (moves["silhouette"], "the silhouette of the classes", ""),
    ]
    parts = [f"{words} {moved}{rest}" for moved, words, rest in told if moved.is_known]
    return _capitalize("; ".join(parts)) + "." if parts else ""


def _count_dimensions(runs: Runs) -> int:
    """How many the states of the last layer have."""
    return next(int(row["dimensions"]) for row in runs.all[0] if row["layer"] == runs.layers[-1])


def format_last_layer(layer: str) -> str:
    """The last layer by its name.

    >>> format_last_layer("layer_6")
    'layer 6, the last,'
    """
    return f"{format_layer_name(layer)}, the last,"


def _capitalize(words: str) -> str:
    return words[:1].upper() + words[1:]
