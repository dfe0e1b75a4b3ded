"""Embeddings optimised for a linear classifier, all at once, and scored after every update.

The vectors themselves are the parameters, not the model that made them: one for each text, and a linear head over an
item's vector or over the two vectors of a pair, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

if TYPE_CHECKING:
    from isoscope.studies.reading.classified import ClassifiedTexts

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
