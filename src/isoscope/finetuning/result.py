"""The scores and results of fine-tuning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import ParameterError, plural
from isoscope._io.json import jsonable
from isoscope._render import Displayed, render
from isoscope.training.layer_metrics import EVIDENCE

if TYPE_CHECKING:
    from isoscope.finetuning.settings import Settings


CLASS_MEASURES = ("accuracy", "f1", "matthews")
"""Scores of a classification task."""
GRADE_MEASURES = ("pearson", "spearman")
"""Scores of a regression task."""


def score_classes(predicted: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Return the accuracy, F1 and Matthews correlation of predicted class numbers.

    With two classes, F1 is that of class 1, as in GLUE; with more, it is the mean over classes. It is 0 for a class
    that is never predicted. Matthews correlation is 0 if all predictions are the same.

    Parameters
    ----------
    predicted, labels : ndarray of shape (n,)
        Class numbers from 0.
    classes : int
        The number of classes.

    >>> score_classes(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]), 2)["accuracy"]
    0.75
    """
    counts = np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)
    total, right = int(counts.sum()), np.diagonal(counts)
    actual, guessed = counts.sum(axis=1), counts.sum(axis=0)
    f1 = 2 * right / np.maximum(actual + guessed, 1)
    spread = math.sqrt((total**2 - int(actual @ actual)) * (total**2 - int(guessed @ guessed)))
    return {
        "accuracy": int(right.sum()) / total,
        "f1": float(f1[1] if classes == 2 else f1.mean()),
        "matthews": (int(right.sum()) * total - int(actual @ guessed)) / spread if spread else 0.0,
    }


def score_grades(predicted: np.ndarray, grades: np.ndarray) -> dict[str, float]:
    """Return the Pearson and Spearman correlations of predicted and true grades; 0 if all predictions are equal.

    >>> score_grades(np.array([0.1, 0.2, 0.4]), np.array([1.0, 2.0, 3.0]))["spearman"]
    1.0
    """
    from scipy.stats import ConstantInputWarning, pearsonr, spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        found = {"pearson": pearsonr(predicted, grades)[0], "spearman": spearmanr(predicted, grades)[0]}
    return {name: 0.0 if np.isnan(value) else float(value) for name, value in found.items()}


def score_logits(logits: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Return the scores of logits, which have one column per class, or a single column of grades if `classes` is 0.

    >>> score_logits(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 1]), 2)
    {'accuracy': 1.0, 'f1': 1.0, 'matthews': 1.0}
    """
    if not np.isfinite(logits).all():
        rows = int((~np.isfinite(logits)).any(axis=1).sum())
        raise ParameterError(
            f"the model's outputs contain NaN or infinity for {rows} of {len(logits)} rows of the dev set: training "
            "has diverged; try a lower learning rate or a smaller regularizer weight"
        )
    if not classes:
        return score_grades(logits[:, 0].astype(np.float64), labels)
    return score_classes(logits.argmax(axis=1), labels, classes)


def score_constant_prediction(labels: np.ndarray, classes: int) -> dict[str, float]:
    """Return the best scores of a model that always predicts the same class or grade: the baseline of a task.

    >>> score_constant_prediction(np.array([0, 0, 0, 1]), 2)["accuracy"]
    0.75
    """
    if not classes:
        return dict.fromkeys(GRADE_MEASURES, 0.0)
    found = [score_classes(np.full(len(labels), each), labels, classes) for each in np.unique(labels)]
    return {name: max(scores[name] for scores in found) for name in CLASS_MEASURES}


def has_learned(scores: Mapping[str, float], baseline: Mapping[str, float], measure: str, rows: int) -> bool:
    """Return whether the scores on `rows` rows are above the baseline and above the 95th percentile of chance.

    Chance is judged by the Matthews correlation or, for grades, by Spearman's: without any relation between predictions
    and labels, both are about 0, with a standard deviation of at most 1/√rows.

    >>> baseline = {"accuracy": 0.51, "matthews": 0.0}
    >>> has_learned({"accuracy": 0.53, "matthews": 0.06}, baseline, "accuracy", rows=100)
    False
    """
    relation = scores["matthews" if "matthews" in scores else "spearman"]
    return scores[measure] > baseline[measure] and relation > _CHANCE_DEVIATIONS / math.sqrt(rows)


_CHANCE_DEVIATIONS = 1.645  # a normal variable exceeds so many standard deviations in 5 of 100 cases

SCHEMA = "isoscope.finetuning/1"
LATE_SHARE = 0.3
"""The final share of a run's steps over which the values in `late` are averaged."""


@dataclass(frozen=True)
class Spread:
    """The mean and sample standard deviation over seeds; with a single seed, the deviation is NaN."""

    mean: float
    std: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of values; the mean is NaN if any value is NaN."""
        found = tuple(values)
        known = len(found) > 1 and not any(map(math.isnan, found))
        return cls(fmean(found), stdev(found) if known else math.nan, found)

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.std) else f"{self.mean:.3f} ± {self.std:.3f}"


@dataclass(frozen=True)
class SeedOutcome:
    """The outcome of one seed.

    `final` and `late` map names to values: the scores, ``loss`` (of the task alone, on the dev set), and
    measurements of layers such as ``layer_6/isoscore``.
    """

    seed: int
    steps: int
    """The number of steps; fewer than planned if a collapse stopped the run."""
    seconds: float
    """Training time since the last start or resumption."""
    resumed_at: int
    """The step at which the run was last resumed; 0 if never."""
    scores: list[dict[str, float]]
    """Scores on the dev set, by step."""
    losses: list[dict[str, float]]
    """The mean training loss since the previous entry, including the regularizer, by step."""
    layers: list[dict[str, Any]]
    """Measurements of the tracker, by step and layer."""
    collapses: list[str] = field(default_factory=list)
    """A sentence for each layer that collapsed."""
    term_counts: dict[str, int] = field(default_factory=dict)
    """The number of sets of vectors that the regularizer has seen, the number that it skipped as too small, the number
    of rows, and the number of rows that got a gradient from the regularizer."""
    terms: list[dict[str, float]] = field(default_factory=list)
    """The term of the regularizer, the share of rows with a gradient since the previous entry, and the norm of the
    gradient of the term relative to that of the loss, by step."""

    @property
    def gradient_share(self) -> float:
        """The share of rows that got a gradient from the regularizer; NaN without a regularizer."""
        rows = self.term_counts.get("rows", 0)
        return self.term_counts["rows_with_gradient"] / rows if rows else math.nan

    @property
    def gradient_ratio(self) -> float:
        """The median over training of the gradient of the term relative to that of the loss; NaN if it is unknown."""
        ratios = [row["gradient_ratio"] for row in self.terms if "gradient_ratio" in row]
        return median(ratios) if ratios else math.nan

    @property
    def final(self) -> dict[str, float]:
        """The values at the end of the run."""
        return self._means(since=None)

    @property
    def late(self) -> dict[str, float]:
        """The means over the last 30% of the steps."""
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
        """Return the outcome as a dict for JSON, with None for NaN."""
        content = {
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
            "terms": self.terms,
            "layers": self.layers,
        }
        return dict(jsonable(content))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SeedOutcome:
        """Create an outcome from a dict returned by `to_dict`."""
        scores, losses, layers, terms = (
            [_null_to_nan(row) for row in content.get(name, [])] for name in ("scores", "losses", "layers", "terms")
        )
        place = (content["seed"], content["steps"], content["seconds"], content["resumed_at"])
        return cls(*place, scores, losses, layers, list(content["collapses"]), dict(content["regularizer"]), terms)


@dataclass(frozen=True, repr=False)
class FineTuning(Displayed):
    """The result of `finetune`.

    Attributes
    ----------
    settings : Settings
        All settings that determine the result, except the seeds.
    seeds : tuple of SeedOutcome
        The outcome of each seed: final values, means over the last 30% of steps, and series by step.
    folder : Path
        The folder of the run.
    notes : tuple of str
        Notes on the data and the model: unused rows, truncated texts, an added padding token.
    baseline : dict
        The scores of the best constant prediction, such as the most common class.

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
    baseline: dict[str, float]

    def __repr__(self) -> str:
        settings = self.settings
        score = f"{settings.measure} {self.final[settings.measure]}"
        seeds = plural(len(self.seeds), "seed")
        return f"FineTuning({settings.task}: {score}, regularizer {settings.arm}, {seeds} of {settings.steps:,} steps)"

    def __str__(self) -> str:
        return str(render("FineTuning", "text", self))

    @property
    def learned(self) -> tuple[bool, ...]:
        """Whether each seed's final scores are above the baseline and above chance."""
        settings = self.settings
        return tuple(has_learned(seed.final, self.baseline, settings.measure, settings.dev_rows) for seed in self.seeds)

    @property
    def final(self) -> dict[str, Spread]:
        """The final scores and measurements, such as ``layer_6/isoscore``: mean and standard deviation over seeds."""
        return _spreads(seed.final for seed in self.seeds)

    @property
    def late(self) -> dict[str, Spread]:
        """The values averaged over the last 30% of the steps: mean and standard deviation over seeds."""
        return _spreads(seed.late for seed in self.seeds)

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the scores, with the main score first."""
        names = [name for name in self.seeds[0].final if "/" not in name and name != "loss"]
        return tuple(sorted(names, key=lambda name: name != self.settings.measure))

    @property
    def gradient_share(self) -> Spread:
        """The share of rows that got a gradient from the regularizer; NaN without a regularizer."""
        return Spread.of(seed.gradient_share for seed in self.seeds)

    @property
    def gradient_ratio(self) -> Spread:
        """The gradient of the term relative to that of the loss: the median of each seed, NaN if unknown."""
        return Spread.of(seed.gradient_ratio for seed in self.seeds)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the measured layers, from first to last."""
        return tuple(dict.fromkeys(str(row["layer"]) for row in self.seeds[0].layers))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict for JSON: the content of ``metrics.json``."""
        content = {
            "schema": SCHEMA,
            "settings": self.settings.to_dict(),
            "arm": self.settings.arm,
            "measure": self.settings.measure,
            "seeds": [seed.seed for seed in self.seeds],
            "notes": list(self.notes),
            "versions": self.versions,
            "final": {name: _spread_to_dict(spread) for name, spread in self.final.items()},
            "late": {name: _spread_to_dict(spread) for name, spread in self.late.items()},
            "baseline": self.baseline,
            "learned": list(self.learned),
            "gradient_share": _spread_to_dict(self.gradient_share),
            "gradient_ratio": _spread_to_dict(self.gradient_ratio),
            "runs": [seed.to_dict() for seed in self.seeds],
        }
        return dict(jsonable(content))


_INDEX_COLUMNS = ("step", "epoch", "order", "layer", "rows", "dimensions", *EVIDENCE)
"""The columns of a history that are not measurements."""


def _null_to_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in row.items()}


def _float_or_nan(value: Any) -> float:
    return math.nan if value is None else float(value)


def _late_rows(rows: list[dict[str, Any]], since: float | None) -> list[dict[str, Any]]:
    """Return the rows after a step, or the rows of the last step if there are none."""
    last = max((row["step"] for row in rows), default=0)
    found = [row for row in rows if since is not None and row["step"] > since]
    return found or [row for row in rows if row["step"] == last]


def _spreads(seeds: Iterable[dict[str, float]]) -> dict[str, Spread]:
    found = list(seeds)
    return {name: Spread.of(each.get(name, math.nan) for each in found) for name in found[0]}


def _spread_to_dict(spread: Spread) -> dict[str, Any]:
    return {"mean": spread.mean, "std": spread.std, "values": list(spread.values)}
