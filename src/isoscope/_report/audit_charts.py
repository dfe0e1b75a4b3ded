"""The still charts of the page: spectrum, cosines, activations, barcode.

Each takes the pictures to draw and all pictures it stands beside, which share one scale, and gives a `CaptionedChart`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.html import tag
from isoscope._report.svg import (
    VIEWBOX_SIZE,
    Scale,
    draw_chart,
    draw_path,
    format_coordinate,
    histogram_path,
    label,
    line_path,
    render_legend,
)
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.pictures import Pictures

MAX_BARS = 150
"""Bars of the barcode that are drawn."""

_CURVE_POINTS = 160  # along a curve
_ACTIVATION_STEPS = 500  # steps of the activation diagram
_LEAST_SHARE = 1e-9  # below it a share is rounding


@dataclass(frozen=True)
class CaptionedChart:
    """A chart, and in a sentence what is to be seen in it."""

    chart: Markup
    caption: str
    key: Markup | None = None


def draw_spectrum(p: Pictures, among: Sequence[Pictures]) -> CaptionedChart:
    """Each direction's share by rank, both on logarithmic scales."""
    series = [s for q in among for s in (q.spectrum_raw, q.spectrum_centered, q.spectrum_null)]
    top = max(float(s.max()) for s in series)
    least = min((float(s[s > top * _LEAST_SHARE].min()) for s in series if (s > top * _LEAST_SHARE).any()), default=top)
    across = Scale(1, max(max(len(s) for s in series), 2), log=True)
    highest = 1.0 if top > 0.2 else top * 1.3
    # a flat line should look flat, so there are at least three halves of a decade
    up = Scale(min(max(least, top * 1e-6) * 0.8, highest / 30), highest, log=True)
    kinds = [
        ("raw", p.spectrum_raw, "as stored"),
        ("centred", p.spectrum_centered, "mean subtracted"),
        ("null", p.spectrum_null, "isotropic cloud"),
    ]
    inner, over = [], []
    for class_, shares, _ in kinds:
        ranks = _log_spaced_ranks(len(shares))
        ranks = ranks[shares[ranks - 1] > top * _LEAST_SHARE]
        inner.append(draw_path(line_path(ranks, shares[ranks - 1], across, up), f"line {class_}"))
        if len(shares) <= 12:
            over += [
                tag(
                    "circle",
                    cx=across.percent(rank),
                    cy=_y_percent(up, shares[rank - 1]),
                    r="3",
                    class_=f"dot {class_}",
                )
                for rank in ranks.tolist()
            ]
    raw, centred, null = (float(s[0]) for s in (p.spectrum_raw, p.spectrum_centered, p.spectrum_null))
    caption = (
        f"The first of {len(p.spectrum_raw):,} directions holds {format_number(raw, 'share')} of all "
        "squared lengths, and "
        f"{format_number(centred, 'share')} of the variance once the mean is subtracted; in an isotropic "
        "cloud it would hold "
        f"{format_number(null, 'share')}. The flatter the line, the rounder the cloud."
    )
    return CaptionedChart(
        draw_chart(
            "Spectrum",
            caption,
            across,
            up,
            inner,
            over=over,
            x_name="direction, by rank",
            y_name="share of the whole",
            y_written=lambda share: f"{100 * share:g}%",
        ),
        caption,
        render_legend(*((f"line {class_}", words) for class_, _, words in kinds)),
    )


def _log_spaced_ranks(length: int) -> np.ndarray:
    """Ranks to draw, evenly spaced on a logarithmic scale, the first and the last among them."""
    return np.unique(np.rint(np.geomspace(1, length, _CURVE_POINTS)).astype(int)) if length else np.zeros(0, int)


def draw_cosines(p: Pictures, among: Sequence[Pictures]) -> CaptionedChart:
    """The cosines of random pairs and of nearest neighbours, and those of random directions."""
    across = Scale(
        min(float(q.cosine_edges[0]) for q in among),
        max(float(q.cosine_edges[-1]) for q in among),
    )
    tallest = max(_chart_height(q) for q in among)
    up = Scale(0, tallest * 1.12)
    inner = [
        draw_path(histogram_path(p.cosine_edges, p.cosines, across, up, close=True), "area pairs"),
        draw_path(line_path(_bin_centers(p), p.cosine_null, across, up), "line null"),
    ]
    entries = [("area pairs", "random pairs"), ("line null", "random directions")]
    if p.nearest_cosines is not None:
        inner.append(
            draw_path(histogram_path(p.cosine_edges[::2], _halve_bins(p.nearest_cosines), across, up), "line nearest")
        )
        entries.append(("line nearest", "nearest neighbours"))
    mean = p.mean_cosine
    place = across.percent(mean)
    over = [
        tag("line", x1=place, x2=place, y1="0", y2="100%", class_="mean"),
        label(f"mean {format_number(mean)}", across, mean, up, up.high, class_="note aside", dy="11"),
    ]
    d = len(p.activation_mean)
    caption = (
        f"Two random vectors have a cosine of {format_number(mean)} on average; random directions in "
        f"{d:,} dimensions would "
        f"have 0 ± {format_number(1 / math.sqrt(d))}."
    )
    if p.mean_nearest_cosine is not None:
        caption += (
            f" Nearest neighbours have {format_number(p.mean_nearest_cosine)}: the further the two humps are apart, "
            "the more a cosine tells."
        )
    if max(_peak_densities(p)) > up.high:
        caption += " The highest peak is cut off."
    return CaptionedChart(
        draw_chart("Cosines", caption, across, up, inner, over=over, x_name="cosine", y_name="density"),
        caption,
        render_legend(*entries),
    )


def _chart_height(p: Pictures) -> float:
    """The height to draw: a spike, as copies or few dimensions make, does not flatten the rest."""
    some = p.cosines[p.cosines > 0]
    usual = float(np.quantile(some, 0.95)) if len(some) else 1.0
    return min(max(_peak_densities(p)), 3 * usual)


def _peak_densities(p: Pictures) -> list[float]:
    drawn = [p.cosines, p.cosine_null] + ([] if p.nearest_cosines is None else [_halve_bins(p.nearest_cosines)])
    return [float(np.nanmax(density, initial=0.0)) for density in drawn]


def _halve_bins(density: np.ndarray) -> np.ndarray:
    """In bins of twice the width, for there are far fewer neighbours than pairs."""
    return np.asarray(density.reshape(-1, 2).mean(axis=1))


def _bin_centers(p: Pictures) -> np.ndarray:
    return np.asarray((p.cosine_edges[1:] + p.cosine_edges[:-1]) / 2)


def draw_activations(p: Pictures, among: Sequence[Pictures]) -> CaptionedChart:
    """Each coordinate's mean, and one deviation to either side."""
    d = len(p.activation_mean)
    lowest = min(float((q.activation_mean - q.activation_spread).min()) for q in among)
    highest = max(float((q.activation_mean + q.activation_spread).max()) for q in among)
    margin = 0.12 * max(highest - lowest, 1e-300)
    up = Scale(min(lowest, 0.0) - margin, max(highest, 0.0) + margin)
    across = Scale(-0.5, d - 0.5)
    starts = np.unique(np.linspace(0, d, min(d, _ACTIVATION_STEPS) + 1).astype(int))
    edges, starts = starts - 0.5, starts[:-1]
    upper = np.maximum.reduceat(p.activation_mean + p.activation_spread, starts)
    lower = np.minimum.reduceat(p.activation_mean - p.activation_spread, starts)
    greatest = np.maximum.reduceat(p.activation_mean, starts)
    least = np.minimum.reduceat(p.activation_mean, starts)
    mean = np.where(greatest >= -least, greatest, least)
    x = np.repeat(edges, 2)[1:-1]
    band = line_path(
        np.concatenate([x, x[::-1]]), np.concatenate([np.repeat(upper, 2), np.repeat(lower, 2)[::-1]]), across, up
    )
    inner = [
        draw_path(band + "Z", "area spread"),
        draw_path(histogram_path(edges, mean, across, up, close=True), "area means"),
    ]
    named = ", ".join(str(index) for index in p.rogue_dimensions)
    caption = f"The mean of each of {d:,} coordinates, and the band of one deviation around it."
    if p.rogue_dimensions:
        caption += f" The largest are number {named}: the more they stick out, the more they alone decide every cosine."
    return CaptionedChart(
        draw_chart(
            "Activations",
            caption,
            across,
            up,
            inner,
            over=_label_coordinates(p, across, up),
            whole=True,
            x_name="coordinate",
            y_name="activation",
            y_written=lambda value: f"{value:,.4g}".replace("-", "−"),
        ),
        caption,
        render_legend(("area means", "mean"), ("area spread", "± one deviation")),
    )


def _label_coordinates(p: Pictures, across: Scale, up: Scale) -> list[Markup]:
    """Numbers at the tips of what sticks out, the largest first, none on top of another."""
    taken: list[tuple[float, bool]] = []
    labels = []
    for index in p.rogue_dimensions:
        mean, spread = float(p.activation_mean[index]), float(p.activation_spread[index])
        above, place = mean >= 0, across(index)
        if any(side == above and abs(place - other) < 0.09 for other, side in taken):
            continue
        taken.append((place, above))
        tip = mean + spread if above else mean - spread
        labels.append(label(str(index), across, index, up, tip, class_="note name", dy="-4" if above else "12"))
    return labels


def draw_barcode(p: Pictures, among: Sequence[Pictures]) -> CaptionedChart:
    """The distances at which the cloud grows together, longest first."""
    drawn = min(len(p.bars), MAX_BARS)
    longest = max((float(q.bars[0]) for q in among if len(q.bars)), default=1.0) or 1.0
    across, up = Scale(0, longest * 1.04), Scale(0, max(drawn, 1))
    kept = min(p.n_significant_bars, drawn)

    def bars(start: int, stop: int) -> str:
        return "".join(
            f"M0 {format_coordinate(VIEWBOX_SIZE * (i + 0.25) / drawn)}"
            f"H{format_coordinate(VIEWBOX_SIZE * across(float(p.bars[i])))}"
            for i in range(start, stop)
        )

    weight = "few" if drawn <= 40 else "many"
    inner = [draw_path(bars(kept, drawn), f"bar rest {weight}"), draw_path(bars(0, kept), f"bar kept {weight}")]
    which = f"the {drawn:,} longest of {len(p.bars):,} bars" if drawn < len(p.bars) else f"all {drawn:,} bars"
    stand = (
        "none stands"
        if p.n_significant_bars == 0
        else "1 stands"
        if p.n_significant_bars == 1
        else f"{p.n_significant_bars:,} stand"
    )
    caption = (
        f"Join the {p.bar_rows:,} rows of a sample at ever greater distances: each bar ends where two pieces become "
        f"one. Drawn are {which}; {stand} out from noise. Long bars apart from the rest are separate pieces."
    )
    return CaptionedChart(
        draw_chart(
            "Barcode", caption, across, up, inner, x_name="distance", y_name="pieces, longest first", kind="bars"
        ),
        caption,
        render_legend(("bar kept few", "stands out"), ("bar rest few", "noise")),
    )


def _y_percent(up: Scale, value: float) -> str:
    return f"{format_coordinate(100 * (1 - min(max(up(value), 0.0), 1.0)))}%"
