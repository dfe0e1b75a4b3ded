"""Measurements of the arms: optimized objectives and their correlations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.metrics.clusters import silhouette
from isoscope.metrics.objectives import (
    classifier_objective,
    isotropy_objective,
    silhouette_objective,
    triplet_objective,
)
from isoscope.metrics.spectra import isoscore
from isoscope.studies.reading.classified import GLUE
from isoscope.studies.study import Value

if TYPE_CHECKING:
    from isoscope.studies.reading.classified import ClassifiedTexts
    from isoscope.studies.study import Number, Published


RunResults = Mapping[tuple[str, str], Sequence[dict[str, Any]]]
"""What the seeds gave, for each task and model."""

CORRELATION_SYMBOLS = {"Pearson r": "r", "Spearman ρ": "ρ"}
"""The correlations as they are shown, and as the published columns have them."""

_TASK_COLUMNS = {"Pearson r": "r", "Spearman ρ": "ρ below"}
_FIRST_MODEL = "all-MiniLM-L6-v2"


def pearson(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's r; NaN of fewer than three pairs, and where a series does not change."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, a, b)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's ρ; NaN of fewer than three pairs, and where a series does not change."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, a, b)


def _correlation(kind: Callable[..., Any], a: Sequence[float], b: Sequence[float]) -> float:
    x, y = np.asarray(a, float), np.asarray(b, float)
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(kind(x, y)[0])


def score_correlation(kind: Callable[..., float], seeds: Sequence[dict[str, Any]]) -> Value:
    """A correlation of the two scores along a run, over its seeds."""
    return Value.of([kind(run["isoscore"], run["silhouette"]) for run in seeds])


def published_correlations(published: Published, task: str, model: str) -> tuple[dict[str, Number], str]:
    """The published correlations of a task, and whose they are if not of our model."""
    if task in GLUE:
        whose = model if f"{model} r" in published.columns("glue") else _FIRST_MODEL
        found = {name: published.number("glue", task, f"{whose} {sign}") for name, sign in CORRELATION_SYMBOLS.items()}
    else:
        whose = _FIRST_MODEL if task in ("polarity", "snli") else "word2vec"
        found = {name: published.number("correlations", task, _TASK_COLUMNS[name]) for name in CORRELATION_SYMBOLS}
    return {name: each for name, each in found.items() if each is not None}, "" if whose == model else whose


def series_at_moments(run: dict[str, Any], name: str) -> list[float]:
    """A score or an objective at the moments at which there are objectives."""
    if name not in ("silhouette", "IsoScore"):
        return list(run[name])
    scores = dict(zip(run["updates"], run[name.lower()], strict=True))
    known = sorted(scores)
    places = np.searchsorted(known, run["moments"]).clip(max=len(known) - 1)  # the first at or after the moment
    return [scores[known[place]] for place in places]


def has_several_models(runs: RunResults, task: str) -> bool:
    """Whether a task was run with more than one model."""
    return sum(each == task for each, _ in runs) > 1


OBJECTIVES = ("O_I", "cos", "O_S", "O_C", "O_T")
"""The paper's objectives: O_I as a sum and as a cosine, O_S, O_C, O_T."""


@dataclass(frozen=True)
class OptimizationSettings:
    """How long and how closely: scores at every so many updates, objectives at so many moments."""

    updates: int
    every: int
    moments: int
    sample: int
    """Of more items than this the scores are taken on so many, drawn anew for each update."""
    bias: bool
    seed: int


def optimize(
    vectors: np.ndarray, data: ClassifiedTexts, recipe: OptimizationSettings, tell: Callable[[float, str], None]
) -> dict[str, Any]:
    """Optimise the vectors and a head by Adam with torch's defaults; the scores after each update, and the theory."""
    import torch
    from torch.nn import functional

    several = data.targets.ndim == 2
    embeddings = torch.nn.Parameter(torch.tensor(np.asarray(vectors, np.float32)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        head = torch.nn.Linear(data.items.shape[1] * vectors.shape[1], len(data.classes), bias=recipe.bias)
    optimiser = torch.optim.Adam([embeddings, *head.parameters()])
    numbers = torch.tensor(data.items)
    targets = torch.tensor(data.targets, dtype=torch.float32 if several else torch.int64)
    plain = data.items.shape[1] == 1 and np.array_equal(data.items[:, 0], np.arange(len(vectors)))
    held = embeddings.detach().numpy()  # the same memory: nothing is copied for the scores
    labels = silhouette_labels(data.targets)
    rng = np.random.default_rng(recipe.seed)

    def logits() -> Any:
        rows = embeddings if plain else functional.embedding(numbers, embeddings).flatten(1)
        return head(rows)

    found: dict[str, Any] = {"updates": [], "silhouette": [], "isoscore": [], "moments": []}
    found |= {name: [] for name in (*OBJECTIVES, "within", "loss", "accuracy")}
    moments = set(np.unique(np.linspace(1, recipe.updates, min(recipe.moments, recipe.updates)).round().astype(int)))
    for update in range(1, recipe.updates + 1):
        optimiser.zero_grad()
        given = logits()
        if several:
            loss = functional.binary_cross_entropy_with_logits(given, targets)
        else:
            loss = functional.cross_entropy(given, targets)
        loss.backward()
        optimiser.step()
        if update % recipe.every == 0 or update == recipe.updates:
            rows, some = _sample_scored(held, data.items, recipe.sample, rng)
            found["updates"].append(update)
            found["silhouette"].append(
                _round_digits(silhouette(_concatenate_pairs(held, data.items[some]), labels[some]))
            )
            found["isoscore"].append(_round_digits(isoscore(rows)))
            tell(update / recipe.updates, f"silhouette {found['silhouette'][-1]:.3f}")
        if update in moments:
            found["moments"].append(update)
            with torch.no_grad():
                right = (logits() > 0) == (targets > 0) if several else logits().argmax(1) == targets
            found["loss"].append(_round_digits(loss.detach()))
            found["accuracy"].append(_round_digits(right.float().mean()))
            weights = None if several else head.weight.detach().numpy()
            for name, value in _compute_objectives(held, data.items, labels, weights):
                found[name].append(value)
    trained = embeddings.numel() + sum(each.numel() for each in head.parameters())
    return found | {"items": len(data.items), "parameters": trained, "labels": len(np.unique(labels))}


def silhouette_labels(targets: np.ndarray) -> np.ndarray:
    """An item's label for the silhouette: its class; of several classes, which ones they are."""
    return targets if targets.ndim == 1 else np.unique(targets, axis=0, return_inverse=True)[1].reshape(-1)


def _sample_scored(
    vectors: np.ndarray, items: np.ndarray, sample: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | slice]:
    """The vectors that IsoScore sees, unpaired and each once, and the items that the silhouette sees."""
    if len(items) <= sample:
        return vectors, slice(None)
    some = np.sort(rng.choice(len(items), sample, replace=False))
    return vectors[np.unique(items[some])], some


def _concatenate_pairs(vectors: np.ndarray, items: np.ndarray) -> np.ndarray:
    if items.shape[1] == 1 and len(items) == len(vectors) and np.array_equal(items[:, 0], np.arange(len(vectors))):
        return vectors
    side_by_side: np.ndarray = vectors[items].reshape(len(items), -1)
    return side_by_side


def _compute_objectives(
    vectors: np.ndarray, items: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> Iterator[tuple[str, float]]:
    """The objectives: O_I on the unpaired vectors as IsoScore is, the others on what is classified."""
    rows = _concatenate_pairs(vectors, items).astype(np.float64)
    silhouettes = float(silhouette_objective(rows, labels))
    spread = float(isotropy_objective(rows))
    yield "O_I", _round_digits(isotropy_objective(vectors.astype(np.float64)))
    yield "cos", _round_digits(isotropy_objective(vectors, cosine=True))
    yield "O_S", _round_digits(silhouettes)
    yield (
        "O_C",
        float("nan")
        if weights is None
        else _round_digits(classifier_objective(rows, labels, weights[np.unique(labels)])),
    )
    yield "O_T", _round_digits(triplet_objective(rows, labels))
    yield "within", _round_digits((spread - silhouettes) / (2 * spread))


def _round_digits(value: Any) -> float:
    """Nine digits: what float32 holds, and a file a third as long."""
    return float(f"{float(value):.9g}")
