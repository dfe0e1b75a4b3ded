"""Render the shape of a model's layers during training as a self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import isoscope
from isoscope._core.errors import plural
from isoscope._report.html import (
    document,
    join_markup,
    render_definition_list,
    render_heading,
    render_main,
    render_notebook_table,
    render_scrollable,
    render_table_head,
    section,
    tag,
)
from isoscope._report.line_chart import (
    arm_lines,
    build_step_chart,
    layer_lines,
    render_arm_legend,
    render_layer_legend,
)
from isoscope._report.narrate import (
    MEASUREMENT_LABELS,
    format_last_layer,
    format_layer_name,
    measure_change,
    training_headline,
    training_paragraph,
)
from isoscope._report.svg_file import render_chart_image
from isoscope.auditing.finding import format_number
from isoscope.training.history import LATE_SHARE, Runs
from isoscope.training.layer_metrics import find_collapses

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope._report.svg import Line
    from isoscope.training.history import History
    from isoscope.training.layer_metrics import Collapse

_ANISOTROPY = [name for name in MEASUREMENT_LABELS if name.startswith("anisotropy")]
_OTHERS = [name for name in MEASUREMENT_LABELS if name not in _ANISOTROPY]
_SIDE_BY_SIDE = ("anisotropy_1_centered", "isoscore_unbiased", "mean_cosine")
_CAPTIONS = {
    "isoscore_unbiased": (
        "0 means that all variance lies along one direction; 1 means equal variance along all directions. Corrected "
        "for the number of rows in the probe."
    ),
    "isoscore": "The published formula. It is too low if the probe has fewer rows than dimensions.",
    "mean_cosine": "The mean over all pairs. Near 1, all states point in the same direction.",
    "two_nn": "The number of directions in which neighbors spread.",
    "silhouette": "1 means that the classes are far apart; 0 means that they overlap.",
}


def render_training_page(
    runs: History | Sequence[History] | Mapping[str, History | Sequence[History]],
    facts: Mapping[str, object] | None = None,
) -> str:
    """Return a tracker's measurements as a self-contained HTML document with a summary and charts by step.

    Parameters
    ----------
    runs : History, sequence of History, or mapping of str to either
        One run, the runs of several seeds, or the arms of an experiment by name.
    facts : mapping, optional
        Facts about the training to show: model, task, regularizer, weight, seeds, score.

    Examples
    --------
    >>> place = {"epoch": 0.0, "order": 0, "layer": "layer_6", "rows": 64, "dimensions": 384}
    >>> from isoscope import History
    >>> history = History()
    >>> history.append([place | {"step": step, "anisotropy_1": 0.2 + step} for step in (0, 1)])
    >>> render_training_page(history, {"model": "all-MiniLM-L6-v2"})[:15]
    '<!doctype html>'
    """
    every, details = Runs(runs), dict(facts or {})
    about = " on ".join(str(details[name]) for name in ("model", "task") if name in details)
    return document(
        f"Training of {about}" if about else "Training",
        isoscope.__version__,
        tag("a", "Skip to the profile", href="#profile", class_="skip"),
        _render_heading(every, about),
        render_main(*render_charts(every), render_numbers(every), render_notes(every, details)),
        styles=["page.css", "advice.css", "training.css"],
    )


# heading


def _render_heading(runs: Runs, about: str) -> Markup:
    return render_heading(
        "the shape of the layers during training",
        about,
        _format_size(runs),
        training_headline(runs),
        render_collapse_warning(runs),
        tag("p", training_paragraph(runs), class_="reasons"),
    )


def _format_size(runs: Runs) -> str:
    steps = sorted({step for history in runs.all for step in history.steps})
    parts = [
        plural(len(runs.layers), "layer"),
        f"steps {steps[0]:,} to {steps[-1]:,}, measured {len(steps):,} time{'' if len(steps) == 1 else 's'}",
    ]
    if runs.alone is None:
        parts.insert(0, f"{plural(len(runs.arms), 'arm')}, {plural(len(runs.all), 'run')}")
    return " · ".join(parts)


def render_collapse_warning(runs: Runs) -> Markup | None:
    """Return a warning about layers that collapsed; None if there are none."""
    groups: dict[tuple[str, int], list[Collapse]] = {}
    for arm, histories in runs.arms.items():
        for i, history in enumerate(histories, 1):
            where = ", ".join(filter(None, [arm, f"run {i}" if len(histories) > 1 else ""]))
            for each in find_collapses(history):
                groups.setdefault((where, each.step), []).append(each)
    if not groups:
        return None
    count = sum(map(len, groups.values()))
    lead = tag("strong", "A layer has collapsed. " if count == 1 else "Layers have collapsed. ")
    advice = "Try a lower learning rate, a longer warm-up, or a regularizer that spreads the states."
    lines = [tag("li", _describe_collapse(where, collapses)) for (where, _), collapses in groups.items()]
    return tag("div", tag("p", lead, advice), tag("ul", *lines), role="note", class_="caution bad")


def _describe_collapse(where: str, collapses: Sequence[Collapse]) -> str:
    """Describe the layers that collapsed at one step, with the reason for the deepest one."""
    last = collapses[-1]
    names, reason = format_layer_name(last.layer), last.reason
    if len(collapses) > 1:
        reason = f"in {names}, {reason}"
        names = f"{len(collapses)} layers, from {format_layer_name(collapses[0].layer)} to {names}"
    return f"{where + ': ' if where else ''}{names}, by step {last.step:,}: {reason}."


# charts


def render_charts(runs: Runs) -> list[Section | None]:
    layer = format_last_layer(runs.layers[-1])
    if runs.alone is not None:
        legend: Markup | None = render_layer_legend(runs.layers)
        lead = "There is one line per layer. Deeper layers have lighter lines, and the line of the last layer is thick."
    else:
        legend = render_arm_legend(runs)
        lead = f"The charts show {layer}. Thin lines show single runs, and thick lines show their mean."

    def lines(measurement: str) -> list[Line]:
        if runs.alone is not None:
            return layer_lines(runs, next(iter(runs.arms)), measurement)
        return arm_lines(runs, runs.layers[-1], measurement)

    constant = _describe_constant_layers(runs)
    return [
        section(
            "profile",
            "Anisotropy by step",
            tag(
                "p",
                "These charts show the share of the variance along each of the three leading directions. "
                f"{lead}{constant}",
                class_="hint",
            ),
            legend,
            tag("h3", "Raw: the mean is not subtracted"),
            _render_chart_grid(_ANISOTROPY[:3], lines),
            tag("h3", "Centered: the mean is subtracted"),
            _render_chart_grid(_ANISOTROPY[3:], lines),
        ),
        section("shape", "Other measurements", legend, _render_chart_grid(_OTHERS, lines, "h3")),
        None if runs.alone is not None else _render_layers(runs),
    ]


def _render_chart_grid(measurements: Sequence[str], lines: Callable[[str], list[Line]], heading: str = "h4") -> Markup:
    figures = []
    for name in measurements:
        chart = build_step_chart(MEASUREMENT_LABELS[name], lines(name))
        if chart is not None:
            caption = tag("figcaption", _CAPTIONS[name]) if name in _CAPTIONS else None
            figures.append(tag("figure", tag(heading, MEASUREMENT_LABELS[name]), chart.to_svg(), caption))
    return tag("div", *figures, class_="figures trios")


def _describe_constant_layers(runs: Runs) -> str:
    """Return a note on layers that have no centered line because their states are all equal."""
    arm = next(iter(runs.arms))
    constant = [
        layer for layer in runs.layers if not np.isfinite(runs.mean(arm, layer, "anisotropy_1_centered").values).any()
    ]
    if not constant or runs.alone is None:
        return ""
    names = ", ".join(map(format_layer_name, constant))
    which = "this layer" if len(constant) == 1 else "these layers"
    return f" The states of {names} are all equal, so there is no centered line for {which}."


def _render_layers(runs: Runs) -> Section:
    """Return the charts of all layers; the arms appear side by side on a common scale."""
    parts: list[Markup | None] = []
    for measurement in _SIDE_BY_SIDE:
        arms = {arm: layer_lines(runs, arm, measurement) for arm in runs.arms}
        every = [line for lines in arms.values() for line in lines]
        figures = []
        for arm, lines in arms.items():
            chart = build_step_chart(f"{MEASUREMENT_LABELS[measurement]} {arm}".strip(), lines, every)
            if chart is not None:
                figures.append(tag("figure", tag("h4", tag("bdi", arm)) if arm else None, chart.to_svg()))
        if figures:
            parts += [tag("h3", MEASUREMENT_LABELS[measurement]), tag("div", *figures, class_="figures trios")]
    lead = tag("p", "Each line shows the mean of one layer over the runs of an arm.", class_="hint")
    return section("layers", "Layer by layer", lead, render_layer_legend(runs.layers), *parts)


# numbers


def render_numbers(runs: Runs) -> Section:
    table = _render_layer_table(runs) if runs.alone is not None else _render_arm_table(runs)
    lead = (
        "The table shows each measurement at the start and at the end of training."
        if runs.alone is not None
        else f"The table shows {format_last_layer(runs.layers[-1])}. Each value is the mean over the last "
        f"{100 * LATE_SHARE:g}% of training, ± the standard deviation over the runs."
    )
    return section(
        "numbers",
        "All numbers",
        tag("p", lead, class_="hint"),
        render_scrollable(table, labeled_by="numbers-title"),
    )


def _render_layer_table(runs: Runs) -> Markup:
    rows = []
    for layer in reversed(runs.layers):
        cells = (tag("td", change) for change in _format_changes(runs, layer, list(MEASUREMENT_LABELS)))
        rows.append(tag("tr", tag("th", format_layer_name(layer), scope="row"), *cells))
    return tag(
        "table", render_table_head("layer", *MEASUREMENT_LABELS.values()), tag("tbody", *rows), class_="trials by-layer"
    )


def _format_changes(runs: Runs, layer: str, measurements: Sequence[str]) -> list[str]:
    """Return the first and the last value of each measurement of a layer, for the only arm."""
    arm = next(iter(runs.arms))
    changes = [measure_change(runs.mean(arm, layer, name)) for name in measurements]
    return [f"{format_number(m.before)} → {format_number(m.after)}" if m.is_known else "–" for m in changes]


def _render_arm_table(runs: Runs) -> Markup:
    layer = runs.layers[-1]
    rows = []
    for arm in runs.arms:
        cells = [_render_mean_cell(runs.late(arm, layer, name)) for name in MEASUREMENT_LABELS]
        rows.append(tag("tr", tag("th", tag("bdi", arm or "all runs"), scope="row"), *cells))
    return tag("table", render_table_head("arm", *MEASUREMENT_LABELS.values()), tag("tbody", *rows), class_="trials")


def _render_mean_cell(values: np.ndarray) -> Markup:
    known = values[np.isfinite(values)]
    if not len(known):
        return tag("td", "–")
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    return tag(
        "td",
        format_number(float(np.mean(known))),
        join_markup(" ", tag("small", f"± {format_number(spread)}")) if spread == spread else None,
    )


def render_notes(runs: Runs, facts: Mapping[str, object]) -> Section:
    row = next(each for each in runs.all[0] if each["layer"] == runs.layers[-1])
    rows: list[tuple[object, object]] = [(str(name).capitalize(), value) for name, value in facts.items()]
    rows += [
        (
            "Probe",
            f"{row['rows']:,} rows with {row['dimensions']:,} dimensions in the last layer. The examples are the same "
            "at every step.",
        ),
        (
            "Anisotropy",
            "σ²ₖ/Σσ², the share of the k-th direction (Razzhigaev et al., 2024). For the raw share, the mean "
            "is not subtracted; the centered share is computed from the covariance.",
        ),
        (
            "IsoScore",
            "The plug-in score is the published one (Rudman et al., 2022). The unbiased score uses unbiased estimates "
            "of the traces (Himeno and Yamada, 2014; Chun et al., 2026), so it does not depend on the number of rows "
            "in the probe. It assumes independent rows; tokens are compared only with tokens of other texts.",
        ),
        (
            "Collapse",
            "A layer has collapsed if its states become equal. Unless there is evidence of learning, it has also "
            "collapsed if one minus the mean cosine falls below 0.1% of its first value, or if fewer than 2 effective "
            "dimensions remain and the unbiased IsoScore falls below 10% of its first value. With labels, evidence "
            "is a correlation of the leading direction with the labels of at least 0.3, or a silhouette of at least "
            "0.25. Without labels, it is a loss below 90% of its first value. With grades, or with neither labels nor "
            "a loss, a low number of dimensions alone raises no alarm.",
        ),
    ]
    return section("notes", "How this was measured", render_definition_list(*rows))


# notebooks


def render_history_notebook(history: History) -> str:
    """Return the course of the last layer as charts, and the change of every layer as a table, for a notebook."""
    columns = [MEASUREMENT_LABELS[name] for name in _SIDE_BY_SIDE]
    if not len(history):
        return render_notebook_table(["No step has been measured yet."], ("layer", *columns), ())
    runs = Runs(history)
    images = []
    for name in _SIDE_BY_SIDE:
        chart = build_step_chart(MEASUREMENT_LABELS[name], layer_lines(runs, "", name))
        if chart is not None:
            images.append(render_chart_image(chart))
    rows = [(format_layer_name(layer), *_format_changes(runs, layer, _SIDE_BY_SIDE)) for layer in reversed(runs.layers)]
    lead = [tag("strong", training_headline(runs)), f"{_format_size(runs)}."]
    return render_notebook_table(lead, ("layer", *columns), rows, images=images)
