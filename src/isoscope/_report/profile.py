"""A measurement by training step: a line for each layer, coloured by its depth, or for each arm of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isoscope._report.html import tag
from isoscope._report.svg import Scale, draw_chart, line_path, render_legend, render_legend_entry
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.training.history import Runs, StepSeries

DEPTH_COLORS = 16
"""Colours from the first layer to the last."""

_ARM_COLORS = 7  # colours for arms
_MAX_NAMED_LAYERS = 8  # layers that each have a place in the key


class Stroke(NamedTuple):
    """A line to draw, how, and what it is."""

    line: StepSeries
    class_: str
    name: str


def layer_strokes(runs: Runs, arm: str, measurement: str) -> list[Stroke]:
    """The mean of an arm for each layer, the last on top."""
    layers = runs.layers
    return [
        Stroke(runs.mean(arm, layer, measurement), _depth_class(i, len(layers)), format_layer_name(layer))
        for i, layer in enumerate(layers)
    ]


def arm_strokes(runs: Runs, layer: str, measurement: str) -> list[Stroke]:
    """One layer in all arms: a thin line for each seed, and a thick one for their mean."""
    thin, thick = [], []
    for i, arm in enumerate(runs.arms):
        seeds = runs.seeds(arm, layer, measurement)
        if len(seeds) > 1:
            thin += [Stroke(seed, f"{_hue_class(i)} seed", arm) for seed in seeds]
        thick.append(Stroke(runs.mean(arm, layer, measurement), f"{_hue_class(i)} whole", arm))
    return thin + thick


def draw_profile(title: str, strokes: Sequence[Stroke], among: Iterable[Stroke] | None = None) -> Markup | None:
    """A small chart of lines by step, on the scale of all that it stands among; None if no number is there."""
    every = list(among or strokes)
    values = np.concatenate([stroke.line.values for stroke in every])
    values = values[np.isfinite(values)]
    if not len(values) or not any(np.isfinite(stroke.line.values).any() for stroke in strokes):
        return None
    steps = np.concatenate([stroke.line.steps for stroke in every])
    across = Scale(float(steps.min()), float(steps.max()))
    up = _vertical_scale(values)
    inner, over = [], []
    for stroke in strokes:
        for x, y in _finite_segments(stroke.line):
            if len(x) > 1:
                path = line_path(x.tolist(), y.tolist(), across, up)
                inner.append(tag("path", tag("title", stroke.name), d=path, class_=f"line {stroke.class_}"))
            else:
                down = f"{100 * (1 - up(float(y[0]))):.1f}%"
                over.append(tag("circle", cx=across.percent(x[0]), cy=down, r="3", class_=stroke.class_))
    return draw_chart(
        title,
        _describe_strokes(strokes),
        across,
        up,
        inner,
        over=over,
        x_name="step",
        y_name="",
        kind="small",
        whole=True,
        y_written=lambda value: f"{value:.6g}".replace("-", "−"),
    )


def _vertical_scale(values: np.ndarray) -> Scale:
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (max(high, 0) - min(low, 0)) or 0.05
    return Scale(low - margin if low < 0 else 0.0, high + margin if high > 0 else 0.0)


def _finite_segments(drawn: StepSeries) -> list[tuple[np.ndarray, np.ndarray]]:
    """The parts of a line between numbers that could not be had."""
    known = np.isfinite(drawn.values)
    edges = np.flatnonzero(np.diff(np.r_[False, known, False]))
    return [(drawn.steps[a:b], drawn.values[a:b]) for a, b in edges.reshape(-1, 2)]


def _describe_strokes(strokes: Sequence[Stroke]) -> str:
    """The chart for those who cannot see it: where its main lines begin and end."""
    main = [stroke for stroke in strokes if "last" in stroke.class_ or "whole" in stroke.class_]
    parts = []
    for stroke in main:
        known = stroke.line.values[np.isfinite(stroke.line.values)]
        if len(known):
            name = f"{stroke.name}: " if stroke.name else ""
            parts.append(
                f"{name}{format_number(float(known[0]))} at the start, {format_number(float(known[-1]))} at the end."
            )
    return " ".join(parts)


# what the colours are


def render_layer_legend(layers: Sequence[str]) -> Markup:
    """The layers and their colours: each by name if they are few, else from the first to the last."""
    last = (f"line {_depth_class(len(layers) - 1, len(layers))}", f"{format_layer_name(layers[-1])}, the last")
    if len(layers) <= _MAX_NAMED_LAYERS:
        return render_legend(
            *((f"line {_depth_class(i, len(layers))}", format_layer_name(each)) for i, each in enumerate(layers[:-1])),
            last,
        )
    cells = [
        tag("rect", x=i, width=1, height=1, class_=_depth_class(i, len(layers)).split()[1]) for i in range(len(layers))
    ]
    ramp = tag(
        "svg",
        *cells,
        viewBox=f"0 0 {len(layers)} 1",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        class_="ramp",
        aria_hidden="true",
    )
    span = tag("li", ramp, f"{format_layer_name(layers[0])} to {format_layer_name(layers[-2])}")
    return tag("ul", span, render_legend_entry(*last), class_="key")


def render_arm_legend(runs: Runs) -> Markup | None:
    """The arms and their colours."""
    if list(runs.arms) == [""]:
        return None
    return render_legend(*((f"line {_hue_class(i)} whole", arm) for i, arm in enumerate(runs.arms)))


def format_layer_name(layer: str) -> str:
    """A layer's name for people.

    >>> format_layer_name("layer_3"), format_layer_name("encoder.layer.3")
    ('layer 3', 'encoder.layer.3')
    """
    head, _, number = layer.partition("_")
    return f"layer {number}" if head == "layer" and number.isdecimal() else layer


def _depth_class(place: int, layers: int) -> str:
    shade = round(place / max(layers - 1, 1) * (DEPTH_COLORS - 1)) if layers > 1 else DEPTH_COLORS - 1
    return f"depth depth-{shade}" + (" last" if place == layers - 1 else "")


def _hue_class(place: int) -> str:
    return f"arm hue-{place}" if place < _ARM_COLORS else "arm other"
