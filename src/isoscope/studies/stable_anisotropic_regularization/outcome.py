"""Figures 1 to 3 and 5 to 7 of the paper "Stable anisotropic regularization", from the fine-tuned models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING

from isoscope.studies.aggregation import group_by
from isoscope.studies.formatting import format_number
from isoscope.studies.stable_anisotropic_regularization.training_runs import (
    NONE,
    Penalty,
    averages,
    collect_trained,
    group_by_task_and_model,
    pretrained_key,
    select_istar,
)
from isoscope.studies.study import Figure, Panel, Series, Value

if TYPE_CHECKING:
    from isoscope.studies.stable_anisotropic_regularization.training_runs import TrainedModel
    from isoscope.studies.study import Results, Setting


def finetuning_figures(setting: Setting, results: Results) -> list[Figure]:
    """Return figures 1 to 3 and 5 to 7, and a figure of the isotropy of each layer."""
    runs = collect_trained(setting, results)
    if not runs:
        return []
    spaces = group_by_task_and_model(select_istar(runs))
    figures = [
        Figure(
            "5",
            "Isotropy and score",
            "Each dot is a fine-tuned model: one seed, with one λ or without a regularizer. Collapsed models are "
            "included.",
            [
                Panel(space, _score_series(own), "IsoScore*, mean of the layers", "score")
                for space, own in spaces.items()
            ],
            where="Figure 5",
        ),
        Figure(
            "6",
            "Average score against λ",
            "The line is the mean over the tasks and seeds of the models that trained successfully. The band is one "
            "standard deviation over the seeds. Dashed lines show training without a regularizer and with CosReg.",
            [_average_panel(model, own) for model, own in group_by(runs, lambda each: each.model).items()],
            where="Figure 6",
        ),
        Figure(
            "7",
            "Intrinsic dimension of each layer",
            "The figure shows TwoNN of the dev set's text states (mean over the seeds). The dashed line shows "
            "training without a regularizer.",
            _layer_panels(spaces, "two_nn", "TwoNN"),
            where="Figure 7",
        ),
        Figure(
            "layers",
            "Isotropy of each layer",
            "The figure shows IsoScore* of the dev set's text states (mean over the seeds). The dashed line shows "
            "training without a regularizer.",
            _layer_panels(spaces, "isoscore_star", "IsoScore*"),
        ),
    ]
    return [_activation_figure(setting, results, runs), *figures]


def _sort_arms(runs: Iterable[TrainedModel]) -> list[tuple[Penalty, list[TrainedModel]]]:
    """Return the arms sorted by λ, with the unregularized arm last, so that each λ has its own color."""
    ordered = sorted(runs, key=lambda each: (each.penalty == NONE, each.penalty.weight))
    return [(penalty, list(own)) for penalty, own in groupby(ordered, lambda each: each.penalty)]


def _score_series(runs: list[TrainedModel]) -> list[Series]:
    return [
        Series(penalty.name, [each.isotropy for each in own], [each.score for each in own], dots=True)
        for penalty, own in _sort_arms(runs)
    ]


def _average_panel(model: str, runs: list[TrainedModel]) -> Panel:
    mean = {name: Value.of(each) for name, each in averages(runs, lambda run: run.score).items()}
    weights = sorted({each.penalty.weight for each in runs if each.penalty.regularizer == "istar"})
    weights = [each for each in weights if Penalty("istar", each).name in mean]
    values = [mean[Penalty("istar", each).name] for each in weights]
    ends = [weights[0], weights[-1]] if weights else [0.0, 1.0]
    others = [name for name in mean if not name.startswith("λ")]
    flat = [Series(name, ends, [mean[name].mean] * 2, dashed=True) for name in others]
    return Panel(model, [Series.over_seeds("I-STAR", weights, values), *flat], "λ", "score")


def _layer_panels(spaces: Mapping[str, list[TrainedModel]], name: str, words: str) -> list[Panel]:
    panels = []
    for space, runs in spaces.items():
        lines = []
        for penalty, own in _sort_arms(runs):
            layers = [[float(layer[name]) for layer in each.result["layers"]] for each in own]
            means = [fmean(each) for each in zip(*layers, strict=True)]
            lines.append(Series(penalty.name, range(1, len(means) + 1), means, dashed=penalty == NONE))
        panels.append(Panel(space, lines, "layer", words))
    return panels


def _activation_figure(setting: Setting, results: Results, runs: list[TrainedModel]) -> Figure:
    """Return a figure of the mean state for the first task and model, before training and for each arm's first seed."""
    first = [each for each in runs if each.task_and_model == runs[0].task_and_model]
    by_arm = {each.penalty.name: each.result for each in reversed(first)}
    before = pretrained_key(first[0].task, first[0].model)
    states = ({"before training": results[before]} if before in results else {}) | dict(reversed(by_arm.items()))
    panels = []
    for name, result in states.items():
        cosine = format_number(float(result["layers"][-1]["mean_cosine"]), 3)
        state = result["mean_state"]
        panels.append(
            Panel(
                f"{name}: mean cosine {cosine}", [Series("mean state", range(len(state)), state)], "dimension", "mean"
            )
        )
    return Figure(
        "1",
        f"Activation diagrams, {first[0].task_and_model}",
        "Each panel shows the coordinates of the last layer's mean text state on the dev set, for the first seed.",
        panels,
        where="Figures 1 to 3",
    )
