"""Matplotlib figures: the charts of the pages, and point clouds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from isoscope._core.errors import MissingExtra, ParameterError
from isoscope._io.files import atomic_replace
from isoscope._report import audit_charts
from isoscope._report.line_chart import (
    MAX_NAMED_LAYERS,
    GroupAxis,
    GroupCurve,
    arm_lines,
    build_group_chart,
    build_step_chart,
    layer_lines,
)
from isoscope._report.narrate import MEASUREMENT_LABELS, format_layer_name, has_numeric_groups
from isoscope._report.svg import Scale, escape_label, palette
from isoscope.auditing.findings.frequency import KINDS
from isoscope.training.history import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from isoscope._report.pictures import Pictures
    from isoscope._report.svg import Line
    from isoscope.auditing.grouped import GroupedAudit
    from isoscope.training.history import History

_HUES = 7
_MARKERS = ("o", "s", "^")
_MAX_GROUPS = _HUES * len(_MARKERS)
_FORMATS = ("png", "svg", "pdf")
_NO_MATPLOTLIB = "matplotlib is not installed: pip install 'isoscope[plot]'"


def draw_spectrum(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """Draw each direction's share of the variance by rank: raw, centered, and for isotropic data."""
    return audit_charts.spectrum_chart(pictures, [pictures]).to_matplotlib(_ensure_axes(ax))


def draw_cosines(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """Draw the cosines of random pairs, of nearest neighbors, and of random directions."""
    return audit_charts.cosine_chart(pictures, [pictures]).to_matplotlib(_ensure_axes(ax))


def draw_activations(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """Draw each coordinate's mean with a band of one standard deviation; the largest are numbered."""
    return audit_charts.activation_chart(pictures, [pictures]).to_matplotlib(_ensure_axes(ax))


def draw_barcode(pictures: Pictures, ax: Axes | None = None) -> Axes:
    """Draw the distances at which the components of a sample merge, longest first; bars that stand out are colored."""
    return audit_charts.barcode_chart(pictures, [pictures]).to_matplotlib(_ensure_axes(ax))


def draw_points(pictures: Pictures, ax: Axes | None = None, color: str = "labels") -> Axes:
    """Draw the rows along the two leading principal components, or along three if `ax` is 3-D."""
    available = {
        "labels": pictures.labels,
        "clusters": pictures.clusters,
        "kinds": pictures.kinds,
        "frequency": pictures.frequency,
        "lengths": pictures.lengths,
    }
    if available.get(color) is None:
        names = ", ".join(f'"{name}"' for name, values in available.items() if values is not None)
        raise ParameterError(f"color is {color!r}, which is not available for this audit: choose from {names}")
    ax = _ensure_axes(ax)
    three = ax.name == "3d"
    along = [pictures.points[:, i] for i in range(3 if three else 2)]
    group_names = {"labels": pictures.label_names, "clusters": None, "kinds": list(KINDS)}
    if color in group_names:
        _scatter_groups(ax, along, cast("np.ndarray", available[color]), group_names[color])
    else:
        values = np.asarray(available[color])
        norm: Any = "log" if color == "frequency" and values.min() > 0 else None
        points = cast("Any", ax).scatter(*along, c=values, s=8, cmap="viridis", norm=norm)
        label = {"frequency": "frequency", "lengths": "length"}[color]
        ax.figure.colorbar(points, ax=ax, pad=0.12 if three else 0.02, label=label)
    shares = [f"component {i + 1} ({100 * share:.1f}%)" for i, share in enumerate(pictures.explained_variance)]
    ax.set(xlabel=shares[0], ylabel=shares[1])
    if three:
        cast("Any", ax).set_zlabel(shares[2])
    else:
        ax.set_aspect("equal", adjustable="datalim")
    return ax


def _scatter_groups(ax: Axes, along: list[np.ndarray], codes: np.ndarray, names: list[str] | None) -> None:
    """Draw each group with its own color and marker, the most frequent group first; draw the other points in gray."""
    present, counts = np.unique(codes[codes >= 0], return_counts=True)
    largest = present[np.argsort(-counts, kind="stable")][:_MAX_GROUPS]
    rest = ~np.isin(codes, largest)
    if rest.any():
        cast("Any", ax).scatter(*(a[rest] for a in along), s=8, color=palette()["other"], alpha=0.5, label="others")
    for slot, code in enumerate(largest.tolist()):
        name = names[code] if names is not None else f"cluster {slot + 1}"
        look = {"color": palette()[f"hue-{slot % _HUES}"], "marker": _MARKERS[slot % len(_MARKERS)]}
        members = codes == code
        cast("Any", ax).scatter(*(a[members] for a in along), s=8, label=escape_label(name), **look)
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.02, 0.5))


def draw_series(grouped: GroupedAudit, finding: str, ax: Axes | None = None) -> Axes:
    """Draw one finding across the groups, with its interval, its verdicts and the value for random data.

    Ordered groups are connected by a line.
    """
    series = grouped.series(finding)
    if not np.isfinite(series.estimates).any():
        raise ParameterError(
            f"{finding} could not be measured in any of the {len(grouped)} groups: choose another finding"
        )
    numbers, count = has_numeric_groups(grouped), len(series.names)
    positions = np.asarray(series.values, dtype=float) if numbers else np.arange(float(count))
    ticks = None if numbers else [(float(i), name) for i, name in enumerate(series.names.tolist())]
    axis = GroupAxis(Scale(float(positions.min()), float(positions.max())), grouped.by, ticks)
    curve = GroupCurve(
        grouped.source,
        "hue-0",
        positions,
        series.names.tolist(),
        series.estimates,
        series.low,
        series.high,
        series.verdicts.tolist(),
        series.null,
    )
    title = next(group[finding].title for group in grouped.groups.values() if finding in group)
    ax = build_group_chart(title, "", [curve], axis, joined=grouped.ordered).to_matplotlib(_ensure_axes(ax))
    ax.set_ylabel(title)
    if not grouped.ordered:
        ax.tick_params(axis="x", labelrotation=45)
    return ax


def _ensure_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtra(_NO_MATPLOTLIB) from error
    axes: Axes = plt.figure(figsize=(6.4, 4.2), layout="constrained").add_subplot()
    return axes


# training


def draw_profile(runs: History | Sequence[History] | Mapping[str, History | Sequence[History]]) -> Figure:
    """Draw anisotropy_1 to anisotropy_3 by training step, raw above and centered below.

    A single run has a line for each layer, colored by depth. For several runs, only the last layer is shown, with a
    faint line for each run and a thick line for the mean of each arm.
    """
    try:
        from matplotlib import figure as figures
    except ImportError as error:
        raise MissingExtra(_NO_MATPLOTLIB) from error
    every = Runs(runs)
    figure = figures.Figure(figsize=(9.6, 5.2), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    for row, ending in enumerate(("", "_centered")):
        for column in range(3):
            name = f"anisotropy_{column + 1}{ending}"
            chart = build_step_chart(MEASUREMENT_LABELS[name], _profile_lines(every, name))
            ax = panels[row, column]
            if chart is not None:
                chart.to_matplotlib(ax, legend=False)
            ax.set_title(MEASUREMENT_LABELS[name], fontsize="medium")
            ax.set_xlabel("step" if row else "")
            ax.grid(alpha=0.25)
    handles, names = panels[0, 0].get_legend_handles_labels()
    if every.alone is not None and len(every.layers) > MAX_NAMED_LAYERS:
        _add_depth_bar(figure, panels, every.layers)
    elif any(name.strip() for name in names):
        figure.legend(handles, names, loc="outside right center", frameon=False, fontsize="small")
    return figure


def save_profile(
    runs: History | Sequence[History] | Mapping[str, History | Sequence[History]], path: str | os.PathLike[str]
) -> None:
    """Save the figure of `draw_profile` as PNG, SVG or PDF, depending on the file extension."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in _FORMATS:
        raise ParameterError(f"path is {os.fspath(path)!r}: need a file name that ends in .png, .svg or .pdf")
    figure = draw_profile(runs)
    with atomic_replace(path) as temporary:
        figure.savefig(temporary, format=form, dpi=160)


def _profile_lines(runs: Runs, measurement: str) -> list[Line]:
    if runs.alone is not None:
        return layer_lines(runs, next(iter(runs.arms)), measurement)
    return arm_lines(runs, runs.layers[-1], measurement)


def _add_depth_bar(figure: Figure, panels: np.ndarray, layers: Sequence[str]) -> None:
    """Add a color bar from the first layer to the last."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("depth", [palette()[f"shade-{i}"] for i in range(6)])
    bar = figure.colorbar(ScalarMappable(cmap=shades), ax=panels, ticks=[0, 1], aspect=40)
    bar.ax.set_yticklabels([format_layer_name(layers[0]), format_layer_name(layers[-1])])
