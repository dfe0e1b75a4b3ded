"""Optimize embeddings for a linear classifier, and compute scores, objectives and their correlations."""

from __future__ import annotations

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
from isoscope.studies.datasets.classified import GLUE
from isoscope.studies.study import Value
from isoscope.studies.verdicts import correlation

if TYPE_CHECKING:
    from isoscope.studies.datasets.classified import ClassifiedTexts
    from isoscope.studies.study import Number, Published


RunResults = Mapping[tuple[str, str], Sequence[dict[str, Any]]]
"""The results of all seeds, by task and model."""

CORRELATION_SYMBOLS = {"Pearson r": "r", "Spearman ρ": "ρ"}
"""The names of the correlations, and their symbols in the published columns."""

_TASK_COLUMNS = {"Pearson r": "r", "Spearman ρ": "ρ below"}
_FIRST_MODEL = "all-MiniLM-L6-v2"


def score_correlation(seeds: Sequence[dict[str, Any]], *, ranks: bool) -> Value:
    """Return the correlation of IsoScore and silhouette during a run, aggregated over its seeds."""
    return Value.of([correlation(run["isoscore"], run["silhouette"], ranks=ranks) for run in seeds])


def published_correlations(published: Published, task: str, model: str) -> tuple[dict[str, Number], str]:
    """Return the published correlations for a task, and the name of their model if it differs from ours."""
    if task in GLUE:
        whose = model if f"{model} r" in published.columns("glue") else _FIRST_MODEL
        columns = {name: f"{whose} {symbol}" for name, symbol in CORRELATION_SYMBOLS.items()}
        numbers = published.numbers("glue", task, columns)
    else:
        whose = _FIRST_MODEL if task in ("polarity", "snli") else "word2vec"
        numbers = published.numbers("correlations", task, _TASK_COLUMNS)
    return numbers, "" if whose == model else whose


def series_at_moments(run: dict[str, Any], name: str) -> list[float]:
    """Return the values of a score or an objective at the updates where the objectives are measured."""
    if name not in ("silhouette", "IsoScore"):
        return list(run[name])
    scores = dict(zip(run["updates"], run[name.lower()], strict=True))
    known = sorted(scores)
    places = np.searchsorted(known, run["moments"]).clip(max=len(known) - 1)  # the first at or after the update
    return [scores[known[place]] for place in places]


def has_several_models(runs: RunResults, task: str) -> bool:
    """Return whether a task was run with more than one model."""
    return sum(each == task for each, _ in runs) > 1


OBJECTIVES = ("O_I", "cos", "O_S", "O_C", "O_T")
"""The paper's objectives: O_I as a sum and as a cosine, O_S, O_C, O_T."""


@dataclass(frozen=True)
class OptimizationSettings:
    """The length of the optimization, the frequency of measurements, and other settings."""

    updates: int
    every: int
    """The number of updates between two measurements of the scores."""
    moments: int
    """The number of updates at which the objectives are measured."""
    sample: int
    """The maximum number of items to score; a new sample is drawn for each measurement."""
    bias: bool
    seed: int


def optimize(
    vectors: np.ndarray, data: ClassifiedTexts, recipe: OptimizationSettings, tell: Callable[[float, str], None]
) -> dict[str, Any]:
    """Optimize vectors and a linear head with Adam; return the scores and objectives during the optimization."""
    import torch
    from torch.nn import functional

    several = data.targets.ndim == 2
    embeddings = torch.nn.Parameter(torch.tensor(np.asarray(vectors, np.float32)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        head = torch.nn.Linear(data.items.shape[1] * vectors.shape[1], len(data.classes), bias=recipe.bias)
    optimizer = torch.optim.Adam([embeddings, *head.parameters()])
    numbers = torch.tensor(data.items)
    targets = torch.tensor(data.targets, dtype=torch.float32 if several else torch.int64)
    plain = data.items.shape[1] == 1 and np.array_equal(data.items[:, 0], np.arange(len(vectors)))
    current = embeddings.detach().numpy()  # a view, so that scoring copies nothing
    labels = silhouette_labels(data.targets)
    rng = np.random.default_rng(recipe.seed)

    def logits() -> Any:
        rows = embeddings if plain else functional.embedding(numbers, embeddings).flatten(1)
        return head(rows)

    found: dict[str, Any] = {"updates": [], "silhouette": [], "isoscore": [], "moments": []}
    found |= {name: [] for name in (*OBJECTIVES, "within", "loss", "accuracy")}
    moments = set(np.unique(np.linspace(1, recipe.updates, min(recipe.moments, recipe.updates)).round().astype(int)))
    for update in range(1, recipe.updates + 1):
        optimizer.zero_grad()
        scores = logits()
        if several:
            loss = functional.binary_cross_entropy_with_logits(scores, targets)
        else:
            loss = functional.cross_entropy(scores, targets)
        loss.backward()
        optimizer.step()
        if update % recipe.every == 0 or update == recipe.updates:
            rows, some = _sample_scored(current, data.items, recipe.sample, rng)
            found["updates"].append(update)
            found["silhouette"].append(
                _round_digits(silhouette(_concatenate_pairs(current, data.items[some]), labels[some]))
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
            for name, value in _compute_objectives(current, data.items, labels, weights):
                found[name].append(value)
    trained = embeddings.numel() + sum(each.numel() for each in head.parameters())
    return found | {"items": len(data.items), "parameters": trained, "labels": len(np.unique(labels))}


def silhouette_labels(targets: np.ndarray) -> np.ndarray:
    """Return each item's cluster for the silhouette: its class, or its set of classes if items can have several."""
    return targets if targets.ndim == 1 else np.unique(targets, axis=0, return_inverse=True)[1].reshape(-1)


def _sample_scored(
    vectors: np.ndarray, items: np.ndarray, sample: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | slice]:
    """Return the distinct single vectors for IsoScore, and the indices of the items for the silhouette."""
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
    """Yield the objectives by name; O_I uses the single vectors, like IsoScore, and the others use the items."""
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
    """Round a number to nine significant digits, which suffices for float32 and keeps the arms' files small."""
    return float(f"{float(value):.9g}")
