"""Whether a sample falls into clusters, and whether its labels do."""

from __future__ import annotations

from typing import Any

import numpy as np

from isoscope.auditing.passes import Axes
from isoscope.auditing.settings import Settings
from isoscope.metrics.clusters import ClusterChoice, choose_clusters, silhouette
from isoscope.stores.sampling import Sample

CLUSTERS = range(2, 16)

_NULL_ROWS = 2_000
_MOST_LABELS = 500  # the silhouette holds a number for each row and label


def cluster_rows(vectors: np.ndarray, axes: Axes, seed: int, skipped: dict[str, str]) -> ClusterChoice | None:
    """The clusters of some rows, or why there are none; a long cloud is not taken for several."""
    numbers = [k for k in CLUSTERS if k < len(vectors)]
    if len({row.tobytes() for row in vectors}) <= numbers[-1]:
        skipped["clusters"] = "too few different rows for clusters"
        return None
    found = choose_clusters(vectors, numbers, seed=seed, restarts=2)
    if found.n_clusters > 1:
        null = _elongated(found.n_clusters, axes, min(len(vectors), _NULL_ROWS), seed)
        if found.silhouettes[found.n_clusters] < null.silhouettes[found.n_clusters] + 4 * null.errors[found.n_clusters]:
            return found._replace(n_clusters=1, labels=np.zeros_like(found.labels))
    return found


def _elongated(k: int, axes: Axes, rows: int, seed: int) -> ClusterChoice:
    """What k clusters of a Gaussian cloud with this spectrum score: any long cloud can be cut into halves."""
    noise = np.random.default_rng(seed).standard_normal((rows, int((axes.values > 0).sum())))
    cloud = noise * np.sqrt(axes.values[: noise.shape[1]] / max(axes.values[0], 1e-300))
    return choose_clusters(cloud.astype(np.float32), [k], least=-1.0, seed=seed, restarts=2)


def label_scores(
    sample: Sample, usable: np.ndarray, settings: Settings, skipped: dict[str, str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Each row's silhouette under its label, and under labels dealt out at random."""
    if "labels" not in sample.columns:
        return None, None
    labels: Any = sample.columns["labels"][usable]
    different = len(np.unique(labels))
    if different < 2:
        skipped["labels"] = "all rows have one label: need two different ones"
        return None, None
    if different > max(len(labels) // 2, 2):
        skipped["labels"] = f"{different:,} different labels for {len(labels):,} rows: these name rows, not groups"
        return None, None
    if different > _MOST_LABELS:
        skipped["labels"] = f"{different:,} different labels: silhouettes are measured for up to {_MOST_LABELS}"
        return None, None
    dealt = np.random.default_rng(settings.seed).permutation(labels)
    points = sample.vectors[usable]
    return (
        np.asarray(silhouette(points, labels, metric=settings.metric, per_point=True)),
        np.asarray(silhouette(points, dealt, metric=settings.metric, per_point=True)),
    )
