"""The charts of an audit: spectrum, cosines, activations and barcode.

Each function takes the chart data of one space, and that of all spaces shown next to it, which share one scale. The
caption of a chart also serves as its description.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.svg import Chart, Label, Line, Scale, format_tick
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.pictures import Pictures

MAX_BARS = 150
"""The largest number of bars that are drawn."""

_CURVE_POINTS = 160  # points along a curve
_FEW_POINTS = 12  # a spectrum with at most this many points has a mark at each
_ACTIVATION_STEPS = 500  # steps of the activation diagram
_LEAST_SHARE = 1e-9  # a smaller share is a rounding error
_FEW_BARS = 40  # with at most this many, bars are thick


def spectrum_chart(p: Pictures, among: Sequence[Pictures]) -> Chart:
    """Return a chart of each direction's share of the variance by rank, with both axes logarithmic."""
    series = [s for q in among for s in (q.spectrum_raw, q.spectrum_centered, q.spectrum_null)]
    top = max(float(s.max()) for s in series)
    least = min((float(s[s > top * _LEAST_SHARE].min()) for s in series if (s > top * _LEAST_SHARE).any()), default=top)
    highest = 1.0 if top > 0.2 else top * 1.3
    lines = []
    for style, shares, name in (
        ("raw", p.spectrum_raw, "as stored"),
        ("centered", p.spectrum_centered, "mean subtracted"),
        ("null", p.spectrum_null, "isotropic data"),
    ):
        ranks = _log_spaced_ranks(len(shares))
        ranks = ranks[shares[ranks - 1] > top * _LEAST_SHARE]
        marks = ["dot"] * len(ranks) if len(shares) <= _FEW_POINTS else []
        lines.append(Line(ranks, shares[ranks - 1], style=style, name=name, marks=marks))
    raw, centered, null = (
        format_number(float(s[0]), "share") for s in (p.spectrum_raw, p.spectrum_centered, p.spectrum_null)
    )
    return Chart(
        "Spectrum",
        f"The first of {len(p.spectrum_raw):,} directions accounts for {raw} of all squared lengths. After the mean is "
        f"subtracted, the leading principal component accounts for {centered} of the variance; in isotropic data, it "
        f"would be {null}. The flatter the line, the more evenly the vectors use all directions.",
        Scale(1, max(max(len(s) for s in series), 2), log=True),
        # a flat line should look flat, so the scale spans at least one and a half decades
        Scale(min(max(least, top * 1e-6) * 0.8, highest / 30), highest, log=True),
        lines,
        x_name="direction, by rank",
        y_name="share of the total",
        format_y=lambda share: f"{100 * share:g}%",
    )


def _log_spaced_ranks(length: int) -> np.ndarray:
    """Return ranks that are evenly spaced on a logarithmic scale, including the first and the last."""
    return np.unique(np.rint(np.geomspace(1, length, _CURVE_POINTS)).astype(int)) if length else np.zeros(0, int)


def cosine_chart(p: Pictures, among: Sequence[Pictures]) -> Chart:
    """Return a chart of the cosines of random pairs, of nearest neighbors and of random directions."""
    edges = p.cosine_edges
    top = 1.12 * max(_chart_height(q) for q in among)
    mean, d = p.mean_cosine, len(p.activation_mean)
    lines = [
        Line(edges, p.cosines, style="pairs", name="random pairs", form="area"),
        Line((edges[1:] + edges[:-1]) / 2, p.cosine_null, style="null", name="random directions"),
        Line(np.array([mean, mean]), np.array([0.0, top]), style="mean", name="mean of pairs"),
    ]
    caption = (
        f"Two random vectors have a cosine of {format_number(mean)} on average; random directions in {d:,} dimensions "
        f"would have 0 ± {format_number(1 / math.sqrt(d))}."
    )
    if p.nearest_cosines is not None:
        lines.append(
            Line(edges[::2], _merge_bins(p.nearest_cosines), style="nearest", name="nearest neighbors", form="steps")
        )
    if p.mean_nearest_cosine is not None:
        caption += (
            f" For nearest neighbors, the mean is {format_number(p.mean_nearest_cosine)}. The further apart these "
            "means are, the better a cosine tells related vectors from unrelated ones."
        )
    if max(_peak_densities(p)) > top:
        caption += " The highest peak is truncated."
    return Chart(
        "Cosines",
        caption,
        Scale(min(float(q.cosine_edges[0]) for q in among), max(float(q.cosine_edges[-1]) for q in among)),
        Scale(0, top),
        lines,
        [Label(f"mean {format_number(mean)}", mean, top, "aside", 11)],
        x_name="cosine",
        y_name="density",
        format_y=None,
    )


def _chart_height(p: Pictures) -> float:
    """Return the height of the chart; it is limited so that a single spike does not flatten the rest."""
    positive = p.cosines[p.cosines > 0]
    usual = float(np.quantile(positive, 0.95)) if len(positive) else 1.0
    return min(max(_peak_densities(p)), 3 * usual)


def _peak_densities(p: Pictures) -> list[float]:
    densities = [p.cosines, p.cosine_null] + ([] if p.nearest_cosines is None else [_merge_bins(p.nearest_cosines)])
    return [float(np.nanmax(density, initial=0.0)) for density in densities]


def _merge_bins(density: np.ndarray) -> np.ndarray:
    """Return a density with bins of twice the width; neighbors need wider bins because there are fewer of them."""
    return np.asarray(density.reshape(-1, 2).mean(axis=1))


def activation_chart(p: Pictures, among: Sequence[Pictures]) -> Chart:
    """Return a chart of each coordinate's mean with a band of one standard deviation; the largest are numbered."""
    d = len(p.activation_mean)
    lowest = min(float((q.activation_mean - q.activation_spread).min()) for q in among)
    highest = max(float((q.activation_mean + q.activation_spread).max()) for q in among)
    margin = 0.12 * max(highest - lowest, 1e-300)
    x, y = Scale(-0.5, d - 0.5), Scale(min(lowest, 0.0) - margin, max(highest, 0.0) + margin)
    starts = np.unique(np.linspace(0, d, min(d, _ACTIVATION_STEPS) + 1).astype(int))
    edges, starts = starts - 0.5, starts[:-1]
    upper = np.maximum.reduceat(p.activation_mean + p.activation_spread, starts)
    lower = np.minimum.reduceat(p.activation_mean - p.activation_spread, starts)
    greatest = np.maximum.reduceat(p.activation_mean, starts)
    least = np.minimum.reduceat(p.activation_mean, starts)
    mean = np.where(greatest >= -least, greatest, least)
    caption = f"The mean of each of {d:,} coordinates, with a band of one standard deviation."
    if p.rogue_dimensions:
        numbers = ", ".join(str(index) for index in p.rogue_dimensions)
        caption += f" The largest are {numbers}: the more they stand out, the more they dominate every cosine."
    return Chart(
        "Activations",
        caption,
        x,
        y,
        [
            Line(edges, mean, lower, upper, "spread", "± one standard deviation", form="area"),
            Line(edges, mean, style="means", name="mean", form="area"),
        ],
        _label_coordinates(p, x),
        x_name="coordinate",
        y_name="activation",
        integer_x=True,
        format_y=lambda value: format_tick(value, 4),
    )


def _label_coordinates(p: Pictures, across: Scale) -> list[Label]:
    """Return number labels for the largest coordinates; omit a label that would overlap that of a larger coordinate."""
    taken: list[tuple[float, bool]] = []
    labels = []
    for index in p.rogue_dimensions:
        mean, spread = float(p.activation_mean[index]), float(p.activation_spread[index])
        above, position = mean >= 0, across(index)
        if any(side == above and abs(position - other) < 0.09 for other, side in taken):
            continue
        taken.append((position, above))
        labels.append(Label(str(index), index, mean + spread if above else mean - spread, "name", -4 if above else 12))
    return labels


def barcode_chart(p: Pictures, among: Sequence[Pictures]) -> Chart:
    """Return a chart of the distances at which the components of a sample merge, longest first."""
    drawn = min(len(p.bars), MAX_BARS)
    longest = max((float(q.bars[0]) for q in among if len(q.bars)), default=1.0) or 1.0
    kept = min(p.n_significant_bars, drawn)
    few = drawn <= _FEW_BARS
    which = (
        f"The chart shows the {drawn:,} longest of {len(p.bars):,} bars"
        if drawn < len(p.bars)
        else f"All {drawn:,} bars are shown"
    )
    count = {0: "none stands", 1: "1 stands"}.get(p.n_significant_bars, f"{p.n_significant_bars:,} stand")
    return Chart(
        "Barcode",
        f"As the {p.bar_rows:,} rows of a sample are joined at ever greater distances, each bar ends where two "
        f"components merge. {which}; {count} out from noise. Bars that are much longer than the others indicate "
        "separate components.",
        Scale(0, longest * 1.04),
        Scale(0, max(drawn, 1)),
        [
            _bars(p.bars[kept:drawn], drawn - kept, f"gray pale {'wide' if few else 'thin'}", "noise"),
            _bars(p.bars[:kept], drawn, "centered wide" if few else "centered", "stands out"),
        ],
        x_name="distance",
        y_name="components, longest first",
        format_y=None,
        size="bars",
    )


def _bars(lengths: np.ndarray, top: int, style: str, name: str) -> Line:
    """Return horizontal bars, from `top` downward, as a line with gaps."""
    x, y = np.full((len(lengths), 3), np.nan), np.full((len(lengths), 3), np.nan)
    x[:, 0], x[:, 1] = 0.0, lengths
    y[:, 0] = y[:, 1] = top - np.arange(len(lengths)) - 0.25
    return Line(x.ravel(), y.ravel(), style=style, name=name)
