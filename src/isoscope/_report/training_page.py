"""The shape of a model's layers while it trained, as one HTML page that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import isoscope
from isoscope._report.html import document, join_markup, render_definition_list, section, tag
from isoscope._report.narrate import (
    MEASUREMENT_LABELS,
    format_last_layer,
    measure_change,
    training_headline,
    training_paragraph,
)
from isoscope._report.profile import (
    arm_strokes,
    draw_profile,
    format_layer_name,
    layer_strokes,
    render_arm_legend,
    render_layer_legend,
)
from isoscope.auditing.finding import format_number
from isoscope.training.history import LATE_SHARE, Runs
from isoscope.training.layer_metrics import find_collapses

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.profile import Stroke
    from isoscope.training.history import History
    from isoscope.training.layer_metrics import Collapse

_ANISOTROPY = [name for name in MEASUREMENT_LABELS if name.startswith("anisotropy")]
_OTHERS = [name for name in MEASUREMENT_LABELS if name not in _ANISOTROPY]
_SIDE_BY_SIDE = ("anisotropy_1_centred", "isoscore_unbiased", "mean_cosine")
_CAPTIONS = {
    "isoscore_unbiased": "0 is a line, 1 a ball; corrected for the size of the probe.",
    "isoscore": "As published: reads low if the probe has fewer rows than dimensions.",
    "mean_cosine": "Of all pairs: near 1 all states point one way.",
    "two_nn": "Along how many directions neighbours spread.",
    "silhouette": "1: the classes are far apart; 0: they overlap.",
}


def render_training_page(
    runs: History | Sequence[History] | Mapping[str, History | Sequence[History]],
    facts: Mapping[str, object] | None = None,
) -> str:
    """What a tracker kept, as a self-contained document: what happened in words, then each measurement by step.

    Parameters
    ----------
    runs : History, sequence of History, or mapping of str to either
        One training; one with several seeds; or the arms of an experiment by name.
    facts : mapping, optional
        What is to be said of the training: model, task, regulariser, weight, seeds, score.

    Examples
    --------
    >>> place = {"epoch": 0.0, "order": 0, "layer": "layer_6", "rows": 64, "dimensions": 384}
    >>> history = History()
    >>> history.append([place | {"step": step, "anisotropy_1": 0.2 + step} for step in (0, 1)])
    >>> render_training_page(history, {"model": "all-MiniLM-L6-v2"})[:15]
    '<!doctype html>'
    """
    drawn, said = Runs(runs), dict(facts or {})
    about = " on ".join(str(said[name]) for name in ("model", "task") if name in said)
    return document(
        f"Training of {about}" if about else "Training",
        isoscope.__version__,
        tag("a", "Skip to the profile", href="#profile", class_="skip"),
        _render_heading(drawn, about),
        tag("main", *_render_charts(drawn), _render_numbers(drawn), _render_notes(drawn, said)),
        styles=["page.css", "advice.css", "training.css"],
    )


# what is said first


def _render_heading(runs: Runs, about: str) -> Markup:
    return tag(
        "header",
        tag("p", "isoscope: the shape of the layers while they train", class_="brand"),
        tag("p", tag("bdi", about), class_="source") if about else None,
        tag("p", _format_size(runs), class_="size"),
        tag("h1", training_headline(runs)),
        _render_collapse_warning(runs),
        tag("p", training_paragraph(runs), class_="reasons"),
    )


def _format_size(runs: Runs) -> str:
    steps = sorted({step for history in runs.all for step in history.steps})
    parts = [
        f"{_pluralize(len(runs.layers), 'layer')}",
        f"steps {steps[0]:,} to {steps[-1]:,}, measured {_pluralize(len(steps), 'time')}",
    ]
    if runs.alone is None:
        parts.insert(0, f"{_pluralize(len(runs.arms), 'arm')}, {_pluralize(len(runs.all), 'run')}")
    return " · ".join(parts)


def _pluralize(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _render_collapse_warning(runs: Runs) -> Markup | None:
    """Which layers collapsed, if any."""
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
    advice = "Try a lower learning rate, a longer warm-up, or a regulariser that keeps the space open."
    lines = [tag("li", _describe_collapse(where, found)) for (where, _), found in groups.items()]
    return tag("div", tag("p", lead, advice), tag("ul", *lines), role="note", class_="caution bad")


def _describe_collapse(where: str, found: Sequence[Collapse]) -> str:
    """The layers that collapsed at one step, and why the deepest did."""
    last = found[-1]
    names, reason = format_layer_name(last.layer), last.reason
    if len(found) > 1:
        names = f"{len(found)} layers, from {format_layer_name(found[0].layer)} to {names}"
        reason = f"of the last, {reason.removeprefix('its ')}"
    return f"{where + ': ' if where else ''}{names}, by step {last.step:,}: {reason}."


# pictures


def _render_charts(runs: Runs) -> list[Markup | None]:
    if runs.alone is not None:
        arm = next(iter(runs.arms))

        def strokes(measurement: str) -> list[Stroke]:
            return layer_strokes(runs, arm, measurement)

        guide: Markup | None = render_layer_legend(runs.layers)
        lead = "A line for each layer, the deeper the lighter, the last one thick."
    else:

        def strokes(measurement: str) -> list[Stroke]:
            return arm_strokes(runs, runs.layers[-1], measurement)

        guide = render_arm_legend(runs)
        lead = (
            f"Of {format_last_layer(runs.layers[-1]).rstrip(',')}: a thin line for each run, a thick one for "
            "their mean."
        )
    flat = _describe_constant_layers(runs)
    return [
        section(
            "profile",
            "Anisotropy by step",
            tag("p", f"The share of all variance along each of the three strongest axes. {lead}{flat}", class_="hint"),
            guide,
            tag("h3", "Raw: the mean counts as an axis"),
            _render_chart_grid(_ANISOTROPY[:3], strokes),
            tag("h3", "Centred: the mean is taken out"),
            _render_chart_grid(_ANISOTROPY[3:], strokes),
        ),
        section("shape", "Evenness, direction, dimension, classes", guide, _render_chart_grid(_OTHERS, strokes, "h3")),
        None if runs.alone is not None else _render_layers(runs),
    ]


def _render_chart_grid(
    measurements: Sequence[str], strokes: Callable[[str], list[Stroke]], heading: str = "h4"
) -> Markup:
    figures = []
    for name in measurements:
        drawn = draw_profile(MEASUREMENT_LABELS[name], strokes(name))
        if drawn is not None:
            caption = tag("figcaption", _CAPTIONS[name]) if name in _CAPTIONS else None
            figures.append(tag("figure", tag(heading, MEASUREMENT_LABELS[name]), drawn, caption))
    return tag("div", *figures, class_="figures trios")


def _describe_constant_layers(runs: Runs) -> str:
    """Layers of which nothing can be drawn once the mean is out."""
    arm = next(iter(runs.arms))
    none = [each for each in runs.layers if not np.isfinite(runs.mean(arm, each, "anisotropy_1_centred").values).any()]
    if not none or runs.alone is None:
        return ""
    names = ", ".join(map(format_layer_name, none))
    one = len(none) == 1
    return f" The states of {names} are all equal: {'it has' if one else 'they have'} no centred line."


def _render_layers(runs: Runs) -> Markup:
    """Every layer, arm beside arm on one scale."""
    parts: list[Markup | None] = []
    for measurement in _SIDE_BY_SIDE:
        strokes = {arm: layer_strokes(runs, arm, measurement) for arm in runs.arms}
        every = [stroke for each in strokes.values() for stroke in each]
        figures = []
        for arm, each in strokes.items():
            drawn = draw_profile(f"{MEASUREMENT_LABELS[measurement]} {arm}".strip(), each, every)
            if drawn is not None:
                figures.append(tag("figure", tag("h4", tag("bdi", arm)) if arm else None, drawn))
        if figures:
            parts += [tag("h3", MEASUREMENT_LABELS[measurement]), tag("div", *figures, class_="figures trios")]
    lead = tag("p", "The mean over the runs of an arm, a line for each layer.", class_="hint")
    return section("layers", "Layer by layer", lead, render_layer_legend(runs.layers), *parts)


# numbers


def _render_numbers(runs: Runs) -> Markup:
    table = _render_layer_table(runs) if runs.alone is not None else _render_arm_table(runs)
    lead = (
        "Each measurement at the start and at the end."
        if runs.alone is not None
        else f"Of {format_last_layer(runs.layers[-1]).rstrip(',')}: the mean over the last "
        f"{100 * LATE_SHARE:g}% of training, ± the "
        "standard deviation over runs."
    )
    return section(
        "numbers",
        "All numbers",
        tag("p", lead, class_="hint"),
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_labelledby="numbers-title"),
    )


def _render_table_head(first: str) -> Markup:
    return tag(
        "thead",
        tag(
            "tr", tag("th", first, scope="col"), *(tag("th", each, scope="col") for each in MEASUREMENT_LABELS.values())
        ),
    )


def _render_layer_table(runs: Runs) -> Markup:
    arm = next(iter(runs.arms))
    rows = []
    for layer in reversed(runs.layers):
        moves = [measure_change(runs.mean(arm, layer, name)) for name in MEASUREMENT_LABELS]
        cells = (
            tag("td", f"{format_number(m.before)} → {format_number(m.after)}" if m.is_known else "–") for m in moves
        )
        rows.append(tag("tr", tag("th", format_layer_name(layer), scope="row"), *cells))
    return tag("table", _render_table_head("layer"), tag("tbody", *rows), class_="trials by-layer")


def _render_arm_table(runs: Runs) -> Markup:
    layer = runs.layers[-1]
    rows = []
    for arm in runs.arms:
        cells = [_render_mean_cell(runs.late(arm, layer, name)) for name in MEASUREMENT_LABELS]
        rows.append(tag("tr", tag("th", tag("bdi", arm or "all runs"), scope="row"), *cells))
    return tag("table", _render_table_head("arm"), tag("tbody", *rows), class_="trials")


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


def _render_notes(runs: Runs, said: Mapping[str, object]) -> Markup:
    history = runs.all[0]
    row = next(each for each in history if each["layer"] == runs.layers[-1])
    rows: list[tuple[object, object]] = [(str(name).capitalize(), value) for name, value in said.items()]
    rows += [
        ("Probe", f"{row['rows']:,} rows of {row['dimensions']:,} dimensions in the last layer, the same each time"),
        (
            "Anisotropy",
            "σ²ₖ/Σσ², the share of the k-th strongest axis (Razzhigaev et al., 2024). Raw counts the mean as an axis, "
            "centred gives the shares of the covariance.",
        ),
        (
            "IsoScore",
            "The plug-in is the published one (Rudman et al., 2022). The unbiased one replaces its traces by unbiased "
            "estimates (Himeno and Yamada, 2014; Chun et al., 2026), so that it does not depend on how many rows the "
            "probe has. It assumes independent rows; tokens are compared with those of other texts alone.",
        ),
        (
            "Collapse",
            "A layer has collapsed if its states became equal, if one minus the mean cosine fell under a hundredth of "
            "what it was, or if fewer than 2 effective dimensions are left and the unbiased IsoScore fell under a "
            "tenth; not if it tells the classes apart (silhouette from 0.25 on).",
        ),
    ]
    return section("notes", "How this was measured", render_definition_list(*rows))
