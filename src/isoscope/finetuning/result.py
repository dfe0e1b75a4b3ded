"""Scores and results of fine-tuning."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace

if TYPE_CHECKING:
    from isoscope.finetuning.settings import Settings


CLASS_MEASURES = ("accuracy", "f1", "matthews")
"""What is computed of a task with classes."""
GRADE_MEASURES = ("pearson", "spearman")
"""What is computed of a task with grades."""


def score_classes(predicted: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Accuracy, F1 and Matthews' correlation of predicted class numbers.

    F1 is that of class 1 where there are two classes, as in GLUE, and the mean over classes where there are more. It
    is 0 where nothing was predicted of a class, and Matthews' correlation is 0 where one class was predicted always.

    Parameters
    ----------
    predicted, labels : ndarray of shape (n,)
        Class numbers from 0.
    classes : int
        How many classes the task has.

    >>> score_classes(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]), 2)["accuracy"]
    0.75
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    averaged = {"average": "binary"} if classes == 2 else {"average": "macro", "labels": range(classes)}
    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "f1": float(f1_score(labels, predicted, zero_division=0, **averaged)),
        "matthews": float(matthews_corrcoef(labels, predicted)),
    }


def score_grades(predicted: np.ndarray, grades: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation of predicted grades; 0 where all predictions are the same.

    >>> score_grades(np.array([0.1, 0.2, 0.4]), np.array([1.0, 2.0, 3.0]))["spearman"]
    1.0
    """
    from scipy.stats import ConstantInputWarning, pearsonr, spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        found = {"pearson": pearsonr(predicted, grades)[0], "spearman": spearmanr(predicted, grades)[0]}
    return {name: 0.0 if np.isnan(value) else float(value) for name, value in found.items()}


def score_logits(logits: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """The scores of what a model's head gives: a column for each class, or one of grades where `classes` is 0.

    >>> score_logits(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 1]), 2)
    {'accuracy': 1.0, 'f1': 1.0, 'matthews': 1.0}
    """
    if not np.isfinite(logits).all():
        rows = int((~np.isfinite(logits)).any(axis=1).sum())
        raise InputError(
            f"the model's outputs are not finite for {rows} of {len(logits)} rows of the dev set: training has "
            "diverged; try a lower learning rate or a smaller weight of the regulariser"
        )
    if not classes:
        return score_grades(logits[:, 0].astype(np.float64), labels)
    return score_classes(logits.argmax(axis=1), labels, classes)


SCHEMA = "isoscope.finetuning/1"
LATE_SHARE = 0.3
"""The share of a run, at its end, over which the late numbers are means."""


@dataclass(frozen=True)
class Spread:
    """A number over the seeds: its mean and its sample standard deviation, NaN for a single seed."""

    mean: float
    std: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of these values; one that is NaN makes the mean so."""
        found = tuple(values)
        known = len(found) > 1 and not any(map(math.isnan, found))
        return cls(fmean(found), stdev(found) if known else math.nan, found)

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.std) else f"{self.mean:.3f} ± {self.std:.3f}"


@dataclass(frozen=True)
class SeedOutcome:
    """What one seed gave.

    `final` and `late` go by name: the scores, ``loss`` (of the task alone, on the dev set), and ``layer_6/isoscore``
    and the like for what was measured of layer 6.
    """

    seed: int
    steps: int
    """Steps that were made: fewer than planned if the space collapsed and that was to stop it."""
    seconds: float
    """Of training since it was last taken up."""
    resumed_at: int
    """The step at which it was last taken up; 0 if it ran through."""
    scores: list[dict[str, float]]
    """On the dev set, by step."""
    losses: list[dict[str, float]]
    """In training, regulariser included, by step: means since the one before."""
    layers: list[dict[str, Any]]
    """What the tracker measured, by step and layer."""
    collapses: list[str] = field(default_factory=list)
    """Layers that collapsed, in words."""
    term_counts: dict[str, int] = field(default_factory=dict)
    """How many clouds the regulariser met, and how many of them were too small for it."""

    @property
    def final(self) -> dict[str, float]:
        """The numbers at the end."""
        return self._means(since=None)

    @property
    def late(self) -> dict[str, float]:
        """Means over what was measured in the last 30% of the steps."""
        return self._means(since=(1 - LATE_SHARE) * self.steps)

    def _means(self, since: float | None) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for row in _late_rows(self.scores, since):
            for name, value in row.items():
                if name != "step":
                    found.setdefault(name, []).append(value)
        for row in _late_rows(self.layers, since):
            for name, value in row.items():
                if name not in _INDEX_COLUMNS:
                    found.setdefault(f"{row['layer']}/{name}", []).append(_float_or_nan(value))
        return {name: fmean(values) for name, values in found.items()}

    def to_dict(self) -> dict[str, Any]:
        """The outcome for a file: NaN is null."""
        told = {
            "seed": self.seed,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "resumed_at": self.resumed_at,
            "regularizer": self.term_counts,
            "collapses": self.collapses,
            "final": self.final,
            "late": self.late,
            "scores": self.scores,
            "losses": self.losses,
            "layers": self.layers,
        }
        return {name: nan_to_null(value) for name, value in told.items()}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> SeedOutcome:
        """What `to_dict` gave."""
        scores, losses, layers = ([_null_to_nan(row) for row in told[name]] for name in ("scores", "losses", "layers"))
        place = (told["seed"], told["steps"], told["seconds"], told["resumed_at"])
        return cls(*place, scores, losses, layers, list(told["collapses"]), dict(told["regularizer"]))


@dataclass(frozen=True)
class FineTuning:
    """What `finetune` gave.

    Attributes
    ----------
    settings : Settings
        Everything that decided it but for the seeds.
    seeds : tuple of SeedOutcome
        What each seed gave: its final numbers, its means over the last 30%, its series.
    folder : Path
        Where it is kept.
    notes : tuple of str
        What is worth knowing of the data and the model: rows left out, texts cut, a padding token that was set.

    Examples
    --------
    >>> import isoscope
    >>> [name for name in ("final", "late", "scores") if hasattr(isoscope.FineTuning, name)]
    ['final', 'late', 'scores']
    """

    settings: Settings
    seeds: tuple[SeedOutcome, ...]
    folder: Path
    notes: tuple[str, ...]
    versions: dict[str, str]

    @property
    def final(self) -> dict[str, Spread]:
        """Each number at the end, over the seeds: the scores, and the shape of layers as ``layer_6/isoscore``."""
        return _spreads(seed.final for seed in self.seeds)

    @property
    def late(self) -> dict[str, Spread]:
        """Each number's mean over the last 30% of the measured steps, over the seeds."""
        return _spreads(seed.late for seed in self.seeds)

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the scores, the one that counts first."""
        names = [name for name in self.seeds[0].final if "/" not in name and name != "loss"]
        return tuple(sorted(names, key=lambda name: name != self.settings.measure))

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that were measured, from the embeddings up."""
        return tuple(dict.fromkeys(str(row["layer"]) for row in self.seeds[0].layers))

    def to_dict(self) -> dict[str, Any]:
        """Everything, for a file: what ``metrics.json`` holds."""
        told = {
            "schema": SCHEMA,
            "settings": self.settings.to_dict(),
            "arm": self.settings.arm,
            "measure": self.settings.measure,
            "seeds": [seed.seed for seed in self.seeds],
            "notes": list(self.notes),
            "versions": self.versions,
            "final": {name: _spread_to_dict(spread) for name, spread in self.final.items()},
            "late": {name: _spread_to_dict(spread) for name, spread in self.late.items()},
            "runs": [seed.to_dict() for seed in self.seeds],
        }
        return {name: nan_to_null(value) for name, value in told.items()}


_INDEX_COLUMNS = ("step", "epoch", "order", "layer", "rows", "dimensions")
"""The columns of a history that say where it was measured and not what."""


def write_json(told: Mapping[str, Any], path: Path) -> None:
    """Write a file of JSON, whole or not at all."""
    with atomic_replace(path) as temporary:
        temporary.write_text(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def nan_to_null(value: Any) -> Any:
    """What JSON can hold: null for NaN."""
    if isinstance(value, Mapping):
        return {name: nan_to_null(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_null(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _null_to_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in row.items()}


def _float_or_nan(value: Any) -> float:
    return math.nan if value is None else float(value)


def _late_rows(rows: list[dict[str, Any]], since: float | None) -> list[dict[str, Any]]:
    """Those after a step, or those of the last one."""
    last = max((row["step"] for row in rows), default=0)
    found = [row for row in rows if since is not None and row["step"] > since]
    return found or [row for row in rows if row["step"] == last]


def _spreads(seeds: Iterable[dict[str, float]]) -> dict[str, Spread]:
    found = list(seeds)
    return {name: Spread.of(each.get(name, math.nan) for each in found) for name in found[0]}


def _spread_to_dict(spread: Spread) -> dict[str, Any]:
    return {"mean": spread.mean, "std": spread.std, "values": list(spread.values)}
