"""The profile of a training as a matplotlib figure, for papers: anisotropy against the step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError, MissingExtra
from isoscope._io.files import atomic_replace
from isoscope._report.figures import GROUP_COLORS, escape_label
from isoscope._report.profile import format_layer_name
from isoscope._report.training_words import MEASUREMENT_LABELS
from isoscope.training.runs import Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isoscope.training.history import History

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
