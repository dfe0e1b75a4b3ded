"""The arm keys and results of models fine-tuned with I-STAR, with CosReg or without a regularizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope.studies.aggregation import group_by

if TYPE_CHECKING:
    from isoscope.studies.study import Results, Setting


@dataclass(frozen=True)
class Penalty:
    """A regularizer with its weight."""

    regularizer: str
    weight: float = 0.0

    @property
    def name(self) -> str:
        """The name in tables and figures."""
        if self.regularizer == "none":
            return "none"
        return f"{'λ' if self.regularizer == 'istar' else 'CosReg'} {self.weight:g}".replace("-", "−")


NONE = Penalty("none")
MIN_MATTHEWS = 0.05
"""A model with a lower Matthews correlation counts as collapsed: it learned nothing."""


def penalties(setting: Setting) -> list[Penalty]:
    """Return the penalties of a run: none, CosReg, and I-STAR from the smallest λ to the largest."""
    cosine = [Penalty("cosreg", each) for each in setting["cosreg"]]
    return [NONE, *cosine, *(Penalty("istar", each) for each in sorted(set(setting["lambdas"])))]


def training_key(task: str, model: str, seed: int, penalty: Penalty) -> str:
    """Return the key of a fine-tuning arm."""
    return (
        f"training/{task}/{model}/seed-{seed}/{penalty.regularizer}{f'={penalty.weight:g}' if penalty.weight else ''}"
    )


def pretrained_key(task: str, model: str) -> str:
    """Return the key of the arm that measures a model before training."""
    return f"before/{task}/{model}"


@dataclass(frozen=True)
class TrainedModel:
    """A fine-tuned model with its result."""

    task: str
    model: str
    seed: int
    penalty: Penalty
    result: Mapping[str, Any]

    @property
    def task_and_model(self) -> str:
        """The names of the task and the model."""
        return f"{self.task}, {self.model}"

    @property
    def score(self) -> float:
        """The score on the dev set at the end of training."""
        return float(self.result["score"])

    @property
    def has_collapsed(self) -> bool:
        """Whether the model learned nothing; a model with the same answer for every row has Matthews correlation 0."""
        return float(self.result.get("scores", {}).get("matthews", 1.0)) < MIN_MATTHEWS

    @property
    def isotropy(self) -> float:
        """The IsoScore* of the text states, averaged over the layers."""
        return self.mean("isoscore_star")

    @property
    def silhouette(self) -> float:
        """The silhouette of the classes in the last layer."""
        return float(self.result["layers"][-1]["silhouette"])

    def mean(self, name: str) -> float:
        """Return the mean of a measurement over the layers."""
        return fmean(float(each[name]) for each in self.result["layers"])


def collect_trained(setting: Setting, results: Results) -> list[TrainedModel]:
    """Return the models of the finished arms, sorted by task and pretrained model."""
    return [
        TrainedModel(task, model.name, seed, penalty, results[key])
        for task in setting["tasks"]
        for model in setting.models
        for penalty in penalties(setting)
        for seed in setting["seeds"]
        if (key := training_key(task, model.name, seed, penalty)) in results
    ]


def group_by_task_and_model(runs: Iterable[TrainedModel]) -> dict[str, list[TrainedModel]]:
    """Group the fine-tuned models by task and pretrained model."""
    return group_by(runs, lambda each: each.task_and_model)


def select_istar(runs: Iterable[TrainedModel]) -> list[TrainedModel]:
    """Return the models trained with I-STAR or without a regularizer (λ = 0)."""
    return [each for each in runs if each.penalty.regularizer in ("istar", "none")]


def select_learned(runs: Iterable[TrainedModel]) -> list[TrainedModel]:
    """Return the models that did not collapse; averages, correlations and verdicts use only these models."""
    return [each for each in runs if not each.has_collapsed]


def averages(runs: list[TrainedModel], what: Callable[[TrainedModel], float]) -> dict[str, list[float]]:
    """Return the mean over tasks and models for each penalty and seed.

    A seed is included if all its arms are finished. Within a seed, a penalty is included if none of its models
    collapsed.
    """
    spaces, arms = len(group_by_task_and_model(runs)), len({each.penalty for each in runs})
    means: dict[str, list[float]] = {}
    for own in group_by(runs, lambda each: each.seed).values():
        if len(own) == spaces * arms:
            for name, arm in group_by(select_learned(own), lambda each: each.penalty.name).items():
                if len(arm) == spaces:
                    means.setdefault(name, []).append(fmean(map(what, arm)))
    return means
