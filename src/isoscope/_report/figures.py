"""Figures with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from isoscope._core.errors import InputError, MissingExtra
from isoscope._io.files import atomic_replace
from isoscope._report.audit_charts import MAX_BARS
from isoscope._report.narrate import MEASUREMENT_LABELS, has_numeric_groups
from isoscope._report.profile import format_layer_name
from isoscope.auditing.findings.frequency import KINDS
from isoscope.training.history import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from isoscope._report.pictures import Pictures
    from isoscope.auditing.grouped import GroupedAudit
    from isoscope.training.history import History


_BLUE, _ORANGE, _GRAY, _PALE = "#2a56b0", "#b4500b", "#6b6861", "#bccdf0"
GROUP_COLORS = ("#3357be", "#d67d12", "#27a48f", "#a61a68", "#8e6202", "#a664fd", "#611327")
"""Colours that can be told apart."""

_MARKERS = ("o", "s", "^")
_MAX_GROUPS = len(GROUP_COLORS) * len(_MARKERS)


def draw_spectrum(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """Each direction's share by rank: as stored, with the mean subtracted, and of an isotropic cloud."""
    ax = _ensure_axes(ax)
    for shares, name, color, style in (
        (pictures.spectrum_raw, "as stored", _BLUE, "-"),
        (pictures.spectrum_centered, "mean subtracted", _ORANGE, "-"),
        (pictures.spectrum_null, "isotropic cloud", _GRAY, "--"),
    ):
        ranks = np.flatnonzero(shares > 1e-6 * max(float(shares.max(initial=0)), 1e-300))
        ax.plot(ranks + 1, shares[ranks], style, color=color, label=name)
    ax.set(xscale="log", yscale="log", xlabel="direction, by rank", ylabel="share of the whole")
    ax.legend(frameon=False)
    return ax


def draw_cosines(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """The cosines of random pairs, of nearest neighbours, and of random directions."""
    ax = _ensure_axes(ax)
    edges = pictures.cosine_edges
    middles = (edges[1:] + edges[:-1]) / 2
    ax.stairs(pictures.cosines, edges, fill=True, color=_PALE, label="random pairs")
    ax.plot(middles, pictures.cosine_null, "--", color=_GRAY, label="random directions")
    if pictures.nearest_cosines is not None:
        ax.stairs(pictures.nearest_cosines, edges, color=_ORANGE, label="nearest neighbours")
    ax.axvline(pictures.mean_cosine, color=_BLUE, linestyle=":", label="mean of pairs")
    ax.set(xlabel="cosine", ylabel="density")
    ax.legend(frameon=False)
    return ax


def draw_activations(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """Each coordinate's mean and the band of one deviation around it; those that stick out are numbered."""
    ax = _ensure_axes(ax)
    mean, spread = pictures.activation_mean, pictures.activation_spread
    edges = np.arange(len(mean) + 1) - 0.5
    ax.stairs(mean + spread, edges, baseline=mean - spread, fill=True, color=_PALE, label="± one deviation")
    ax.stairs(mean, edges, fill=True, facecolor=_BLUE, edgecolor=_BLUE, linewidth=0.7, label="mean")
    for index in pictures.rogue_dimensions:
        up = mean[index] >= 0
        tip = mean[index] + spread[index] if up else mean[index] - spread[index]
        ax.annotate(
            str(index),
            (index, tip),
            (0, 3 if up else -3),
            textcoords="offset points",
            ha="center",
            va="bottom" if up else "top",
        )
    ax.set(xlabel="coordinate", ylabel="activation")
    least, most = float((mean - spread).min()), float((mean + spread).max())
    margin = 0.12 * max(most - least, 1e-300)
    ax.set_ylim(min(least, 0) - margin, max(most, 0) + margin)
    ax.legend(frameon=False)
    return ax


def draw_points(pictures: Pictures, ax: Axes | None = None, color: str = "labels") -> Axes:
    """The rows along the first two principal directions, or three if `ax` is 3-D."""
    there = {
        "labels": pictures.labels,
        "clusters": pictures.clusters,
        "kinds": pictures.kinds,
        "frequency": pictures.frequency,
        "lengths": pictures.lengths,
    }
    if there.get(color) is None:
        can = ", ".join(f'"{name}"' for name, values in there.items() if values is not None)
        raise InputError(f"color is {color!r}: this audit has {can}")
    ax = _ensure_axes(ax)
    three = ax.name == "3d"
    along = [pictures.points[:, i] for i in range(3 if three else 2)]
    names = {"labels": pictures.label_names, "clusters": None, "kinds": list(KINDS)}
    if color in names:
        _scatter_groups(ax, along, cast("np.ndarray", there[color]), names[color])
    else:
        values = np.asarray(there[color])
        norm: Any = "log" if color == "frequency" and values.min() > 0 else None
        drawn = cast("Any", ax).scatter(*along, c=values, s=8, cmap="viridis", norm=norm)
        ax.figure.colorbar(
            drawn, ax=ax, pad=0.12 if three else 0.02, label={"frequency": "frequency", "lengths": "length"}[color]
        )
    shares = [f"direction {i + 1} ({100 * share:.1f}%)" for i, share in enumerate(pictures.explained_variance)]
    ax.set(xlabel=shares[0], ylabel=shares[1])
    if three:
        cast("Any", ax).set_zlabel(shares[2])
    else:
        ax.set_aspect("equal", adjustable="datalim")
    return ax


def _scatter_groups(ax: Axes, along: list[np.ndarray], codes: np.ndarray, names: list[str] | None) -> None:
    """Points of each group in its own colour and marker, the most frequent first; the rest in grey."""
    found, counts = np.unique(codes[codes >= 0], return_counts=True)
    shown = found[np.argsort(-counts, kind="stable")][:_MAX_GROUPS]
    rest = ~np.isin(codes, shown)
    if rest.any():
        cast("Any", ax).scatter(*(a[rest] for a in along), s=8, color=_GRAY, alpha=0.5, label="others")
    for slot, code in enumerate(shown.tolist()):
        name = names[code] if names is not None else f"cluster {slot + 1}"
        look = {"color": GROUP_COLORS[slot % len(GROUP_COLORS)], "marker": _MARKERS[slot // len(GROUP_COLORS)]}
        mine = codes == code
        cast("Any", ax).scatter(*(a[mine] for a in along), s=8, label=escape_label(name), **look)
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.02, 0.5))


def draw_barcode(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """The distances at which the cloud grows together, longest first, those that stand out highlighted."""
    ax = _ensure_axes(ax)
    bars = pictures.bars[:MAX_BARS]
    kept = min(pictures.n_significant_bars, len(bars))
    for start, stop, color, name in ((0, kept, _ORANGE, "stands out"), (kept, len(bars), _GRAY, "noise")):
        if stop > start:
            ax.hlines(np.arange(start, stop) + 1, 0, bars[start:stop], color=color, label=name)
            ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
    ax.set(xlabel="distance", ylabel=f"bar, the {len(bars):,} longest of {len(pictures.bars):,}")
    ax.set_ylim(len(bars) + 1, 0)
    ax.set_xlim(left=0)
    return ax


def draw_series(grouped: GroupedAudit, finding: str, ax: Axes | None = None) -> Axes:
    """One finding along the groups with its interval, and what a cloud without structure has.

    Groups with an order are joined by a line; names stand one after the other.
    """
    series = grouped.series(finding)
    if not np.isfinite(series.estimates).any():
        raise InputError(f"no {grouped.by} has {finding}: it could not be measured in any of {len(grouped)} groups")
    ax = _ensure_axes(ax)
    numbers = has_numeric_groups(grouped)
    places = np.asarray(series.values, dtype=float) if numbers else np.arange(float(len(series.names)))
    title = next(group[finding].title for group in grouped.groups.values() if finding in group)
    if grouped.ordered:
        ax.fill_between(places, series.low, series.high, color=_PALE, linewidth=0)
        ax.plot(places, series.estimates, "o-", color=_BLUE, markersize=4, label=escape_label(grouped.source))
    else:
        reach = np.nan_to_num(np.abs([series.estimates - series.low, series.high - series.estimates]))
        ax.errorbar(places, series.estimates, reach, fmt="o", color=_BLUE, label=escape_label(grouped.source))
    if np.isfinite(series.null).any():
        ax.plot(places, series.null, "--", color=_GRAY, linewidth=1, label="without structure")
    if not numbers:
        turn: Any = {} if grouped.ordered else {"rotation": 45, "ha": "right"}
        ax.set_xticks(places, [escape_label(name) for name in series.names.tolist()], **turn)
    ax.set(xlabel=escape_label(grouped.by), ylabel=title)
    ax.legend(frameon=False)
    return ax


def escape_label(name: str) -> str:
    """A name as it is: bare, one that begins with _ would be left out of a legend, one with $ be set as a formula."""
    return " " + name.replace("$", r"\$")


def _ensure_axes(ax: Axes | None) -> Axes:
    """The axes to draw on: those given, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise InputError("matplotlib is not installed: pip install 'isoscope[plot]'") from error
    made: Axes = plt.figure(figsize=(6.4, 4.2), layout="constrained").add_subplot()
    return made


_FORMATS = ("png", "svg", "pdf")
_LIGHTEST = 0.9  # of the colours: the last are too pale for paper
_MAX_NAMED_LAYERS = 8  # layers that each have a place in the legend


def draw_profile(runs: History | Sequence[History] | Mapping[str, History | Sequence[History]]) -> Figure:
    """anisotropy_1 to _3 by step, raw above and centred below.

    One training has a line for each layer, coloured by depth. Of several the last layer is drawn: a thin line for each
    run, a thick one for the mean of an arm.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra('matplotlib is not installed: pip install "isoscope[plot]"') from error
    drawn = Runs(runs)
    figure = Figure(figsize=(9.6, 5.2), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    for down, ending in enumerate(("", "_centred")):
        for place in range(3):
            name = f"anisotropy_{place + 1}{ending}"
            ax = panels[down, place]
            if drawn.alone is not None:
                _draw_layers(ax, drawn, name, colormaps["viridis"])
            else:
                _draw_arms(ax, drawn, name)
            ax.set_title(MEASUREMENT_LABELS[name], fontsize="medium")
            ax.set_ylim(bottom=0)
            ax.grid(alpha=0.25)
            if down:
                ax.set_xlabel("step")
    handles, names = panels[0, 0].get_legend_handles_labels()
    if drawn.alone is not None and len(names) > _MAX_NAMED_LAYERS:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        last = len(names) - 1
        bar = figure.colorbar(
            ScalarMappable(Normalize(0, last / _LIGHTEST), "viridis"), ax=panels, ticks=[0, last], aspect=40
        )
        bar.ax.set_ylim(0, last)
        bar.ax.set_yticklabels([names[0], names[-1]])
    elif any(name.strip() for name in names):
        figure.legend(handles, names, loc="outside right center", frameon=False, fontsize="small")
    return figure


def save_profile(
    runs: History | Sequence[History] | Mapping[str, History | Sequence[History]], path: str | os.PathLike[str]
) -> None:
    """Save the figure as png, svg or pdf, by the name of the file."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in _FORMATS:
        raise InputError(f"path is {os.fspath(path)!r}: need a name that ends in .png, .svg or .pdf")
    figure = draw_profile(runs)
    with atomic_replace(path) as temporary:
        figure.savefig(temporary, format=form, dpi=160)


def _draw_layers(ax: Any, runs: Runs, name: str, colours: Any) -> None:
    arm, layers = next(iter(runs.arms)), runs.layers
    for i, layer in enumerate(layers):
        steps, values = runs.mean(arm, layer, name)
        colour = colours(i / max(len(layers) - 1, 1) * _LIGHTEST)
        ax.plot(
            steps, values, color=colour, linewidth=2.2 if i == len(layers) - 1 else 1, label=format_layer_name(layer)
        )


def _draw_arms(ax: Any, runs: Runs, name: str) -> None:
    for i, arm in enumerate(runs.arms):
        colour = GROUP_COLORS[i % len(GROUP_COLORS)]
        seeds = runs.seeds(arm, runs.layers[-1], name)
        for steps, values in seeds if len(seeds) > 1 else ():
            ax.plot(steps, values, color=colour, linewidth=0.7, alpha=0.45)
        steps, values = runs.mean(arm, runs.layers[-1], name)
        ax.plot(steps, values, color=colour, linewidth=2.2, label=escape_label(arm))
