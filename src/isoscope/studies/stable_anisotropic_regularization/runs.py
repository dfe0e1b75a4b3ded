"""Models that were fine-tuned with I-STAR, CosReg or nothing: what they are called, and what was found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isoscope.studies.study import Results, Setting


@dataclass(frozen=True)
class Penalty:
    """A regulariser with its weight: an arm."""

    regularizer: str
    weight: float = 0.0

    @property
    def name(self) -> str:
        """What it is called in tables and figures."""
        if self.regularizer == "none":
            return "none"
        return f"{'λ' if self.regularizer == 'istar' else 'CosReg'} {self.weight:g}".replace("-", "−")


NONE = Penalty("none")
MIN_MATTHEWS = 0.05
"""Matthews' correlation below which a model has collapsed: it learned nothing."""


def penalties(setting: Setting) -> list[Penalty]:
    """Nothing, CosReg, and I-STAR from the smallest λ to the largest."""
    cosine = [Penalty("cosreg", each) for each in setting["cosreg"]]
    return [NONE, *cosine, *(Penalty("istar", each) for each in sorted(set(setting["lambdas"])))]


def training_key(task: str, model: str, seed: int, penalty: Penalty) -> str:
    """The key of an arm that trains."""
    return (
        f"training/{task}/{model}/seed-{seed}/{penalty.regularizer}{f'={penalty.weight:g}' if penalty.weight else ''}"
    )


def pretrained_key(task: str, model: str) -> str:
    """The key of an arm that looks at a model as it comes."""
    return f"before/{task}/{model}"


@dataclass(frozen=True)
class TrainedModel:
    """A model that was fine-tuned, and what was found in it."""

    task: str
    model: str
    seed: int
    penalty: Penalty
    result: Mapping[str, Any]

    @property
    def task_and_model(self) -> str:
        """The task and the model."""
        return f"{self.task}, {self.model}"

    @property
    def score(self) -> float:
        """On the dev set, at the end."""
        return float(self.result["score"])

    @property
    def has_collapsed(self) -> bool:
        """Whether it learned nothing: a model that gives one answer to every row has a Matthews correlation of 0."""
        return float(self.result.get("scores", {}).get("matthews", 1.0)) < MIN_MATTHEWS

    @property
    def isotropy(self) -> float:
        """IsoScore* of the texts' states, the mean of the layers."""
        return self.mean("isoscore_star")

    @property
    def silhouette(self) -> float:
        """Of the classes, in the last layer."""
        return float(self.result["layers"][-1]["silhouette"])

    def mean(self, name: str) -> float:
        """The mean over the layers of what was measured of each."""
        return fmean(float(each[name]) for each in self.result["layers"])


def collect_trained(setting: Setting, results: Results) -> list[TrainedModel]:
    """The arms that are done, space by space."""
    return [
        TrainedModel(task, model.name, seed, penalty, results[key])
        for task in setting["tasks"]
        for model in setting.models
        for penalty in penalties(setting)
        for seed in setting["seeds"]
        if (key := training_key(task, model.name, seed, penalty)) in results
    ]


def group_by(runs: Iterable[TrainedModel], what: Callable[[TrainedModel], Any]) -> dict[Any, list[TrainedModel]]:
    """Runs by something that some of them share."""
    found: dict[Any, list[TrainedModel]] = {}
    for each in runs:
        found.setdefault(what(each), []).append(each)
    return found


def group_by_task_and_model(runs: Iterable[TrainedModel]) -> dict[str, list[TrainedModel]]:
    """Runs by task and model."""
    return group_by(runs, lambda each: each.task_and_model)


def select_istar(runs: Iterable[TrainedModel]) -> list[TrainedModel]:
    """Those with I-STAR, and without any regulariser, which is λ = 0."""
    return [each for each in runs if each.penalty.regularizer in ("istar", "none")]


def select_learned(runs: Iterable[TrainedModel]) -> list[TrainedModel]:
    """Return the models that did not collapse: only these enter averages, correlations and verdicts."""
    return [each for each in runs if not each.has_collapsed]


def averages(runs: list[TrainedModel], what: Callable[[TrainedModel], float]) -> dict[str, list[float]]:
    """Return for each arm its mean over tasks and models, seed by seed.

    A seed counts if every arm of it is done, and for an arm if its models learned in every task and model.
    """
    spaces, arms = len(group_by_task_and_model(runs)), len({each.penalty for each in runs})
    found: dict[str, list[float]] = {}
    for own in group_by(runs, lambda each: each.seed).values():
        if len(own) == spaces * arms:
            for name, arm in group_by(select_learned(own), lambda each: each.penalty.name).items():
                if len(arm) == spaces:
                    found.setdefault(name, []).append(fmean(map(what, arm)))
    return found
