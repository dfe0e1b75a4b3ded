"""Measure the similarities, clusters and local dimension of a layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import DataWarning
from isoscope.auditing.findings.frequency import KINDS, token_kinds
from isoscope.metrics.clusters import choose_clusters
from isoscope.metrics.cosine import inter_similarity, intra_similarity
from isoscope.metrics.neighbors import lid
from isoscope.studies.aggregation import group_by

if TYPE_CHECKING:
    from isoscope._core.types import Metric
    from isoscope.studies.study import Results


@dataclass(frozen=True)
class LayerResults:
    """The results of the finished arms for layers and for word vectors."""

    layers: list[dict[str, Any]]
    words: list[dict[str, Any]]

    @classmethod
    def of(cls, results: Results) -> LayerResults:
        """Separate the results of layers from those of word vectors, and sort the layers."""
        kinds = {what: [each for each in results.values() if each["what"] == what] for what in ("layer", "words")}
        return cls(sorted(kinds["layer"], key=lambda each: int(each["layer"])), kinds["words"])

    def by_corpus_and_model(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Group the layers by corpus and model; each group contains all seeds."""
        return group_by(self.layers, lambda each: (each["corpus"], each["model"]))

    def by_model(self) -> dict[str, list[dict[str, Any]]]:
        """Group the layers by model; each group contains all corpora and seeds."""
        return group_by(self.layers, lambda each: each["model"])

    def by_word_vectors(self) -> dict[str, list[dict[str, Any]]]:
        """Group the results of word vectors by model name; each group contains all seeds."""
        return group_by(self.words, lambda each: each["model"])


def mean_lid_by_rows(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Return the mean LID for each number of rows at which every result was measured."""
    shared = set.intersection(*({int(n) for n in each["lid, cosine, by rows"]} for each in rows))
    return {n: fmean(each["lid, cosine, by rows"][str(n)] for each in rows) for n in sorted(shared)}


LID_ROW_COUNTS = (1_000, 4_000, 16_000, 64_000, 256_000)
"""The numbers of rows at which LID is measured, so that datasets can be compared at equal sizes."""
METRICS = ("cosine", "euclidean")
TEXTBOOK_LID_FACTOR = 2
"""The factor that converts LID from the authors' scale, which uses squared distances, to the textbook scale. With k
neighbors, `isoscope.lid` returns (k − 2)/k of that value, because its estimate is unbiased and theirs is not."""

_WINDOW_BINS, _FREQUENCY_BINS = 16, 8  # numbers of equal window segments, and of frequency quantiles


@dataclass(frozen=True)
class MeasureOptions:
    """The sample sizes and other options of the measurements."""

    k: int
    """The number of nearest neighbors for LID."""
    lid_sample: int
    """The number of rows for which to find the nearest neighbors among all rows."""
    cluster_sample: int
    """The number of rows for k-means and the silhouette."""
    restarts: int
    """The number of k-means initializations for each number of clusters."""
    points: int
    """The number of points to draw."""
    seed: int


@dataclass(frozen=True)
class LayerTokens:
    """The token states of a layer, with the type, frequency and position of each token."""

    states: np.ndarray
    types: np.ndarray
    frequency: np.ndarray
    places: np.ndarray
    """The position in the window, from 0 to 1."""


def measure_layer(tokens: LayerTokens, asked: MeasureOptions, tell: Callable[[float, str], None]) -> dict[str, Any]:
    """Return the similarities (raw, centered, within clusters), clusters, LID and leading principal components."""
    X, types = tokens.states, tokens.types
    tell(0.0, "clusters")
    clusters, silhouettes = _find_clusters(X, asked)
    found: dict[str, Any] = {
        "rows": len(X),
        "width": X.shape[1],
        "clusters": int(clusters.max()) + 1,
        "silhouette": max(silhouettes.values()),
        "silhouettes": {str(k): value for k, value in silhouettes.items()},
        "sizes": np.bincount(clusters).tolist(),
    }
    tell(0.6, "similarities")
    for name, parts in (("raw", None), ("one mean", np.zeros(len(X), int)), ("clusters", clusters)):
        found[f"inter, {name}"] = float(inter_similarity(X, types, average="types", clustered=parts))
        found[f"intra, {name}"] = float(intra_similarity(X, types, clustered=parts))
    means = np.stack([X[clusters == code].mean(axis=0, dtype=np.float64) for code in range(found["clusters"])])
    centered = X - means[clusters]  # measured together, so that a small cluster has little weight
    found["inter, centered"] = float(inter_similarity(centered, types, average="types"))
    found["intra, centered"] = float(intra_similarity(centered, types))
    tell(0.7, "local dimension")
    found |= local_dimensions(X, asked)
    tell(0.9, "principal components")
    return found | _measure_directions(tokens, clusters, asked)


def local_dimensions(X: np.ndarray, asked: MeasureOptions) -> dict[str, Any]:
    """Return the cosine and Euclidean LID on the authors' scale, and the cosine LID of smaller samples."""
    order = np.random.default_rng(asked.seed).permutation(len(X))
    sizes = [n for n in LID_ROW_COUNTS if asked.k < n < len(X)] + [len(X)]

    def measure(n: int, metric: Metric) -> float:
        some = X if n == len(X) else X[np.sort(order[:n])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # duplicates: equal tokens at the start of windows
            many = min(asked.lid_sample, n)
            return float(lid(some, asked.k, metric=metric, convention="cai", sample=many, seed=asked.seed))

    by_rows = {str(n): measure(n, "cosine") for n in sizes}
    return {
        "lid, cosine": by_rows[str(len(X))],
        "lid, euclidean": measure(len(X), "euclidean"),
        "lid, cosine, by rows": by_rows,
    }


def _find_clusters(X: np.ndarray, asked: MeasureOptions) -> tuple[np.ndarray, dict[int, float]]:
    """Return the cluster of each row and the silhouettes; rows outside the sample are assigned to the nearest mean."""
    from sklearn.metrics import pairwise_distances_argmin

    rng = np.random.default_rng(asked.seed)
    rows = np.sort(rng.choice(len(X), min(asked.cluster_sample, len(X)), replace=False))
    numbers = [k for k in range(2, 16) if k < len(rows)]
    found = choose_clusters(X[rows], numbers, restarts=asked.restarts, seed=asked.seed)
    if len(rows) == len(X) or found.n_clusters == 1:
        codes = found.labels if found.n_clusters > 1 else np.zeros(len(X), np.int64)
    else:
        means = [X[rows][found.labels == code].mean(axis=0) for code in np.unique(found.labels)]
        codes = pairwise_distances_argmin(X, np.stack(means))
    return np.unique(codes, return_inverse=True)[1], found.silhouettes


def _measure_directions(tokens: LayerTokens, clusters: np.ndarray, asked: MeasureOptions) -> dict[str, Any]:
    """Return the variance along the first three principal components, what explains it, and points to draw."""
    from sklearn.decomposition import PCA

    X = tokens.states
    fitted = PCA(min(3, X.shape[1]), svd_solver="covariance_eigh").fit(X)
    along = fitted.transform(X)
    ranges = _bin_by_quantile(tokens.frequency, _FREQUENCY_BINS)
    kinds = token_kinds(tokens.types)
    far = np.linalg.norm(X - fitted.mean_, axis=1)
    found: dict[str, Any] = {
        "explained": fitted.explained_variance_ratio_.tolist(),
        "along, place": between_group_share(along, (tokens.places * _WINDOW_BINS).astype(int)),
        "along, frequency": between_group_share(along, ranges),
        "along, kind": between_group_share(along, kinds),
        "along, cluster": between_group_share(along, clusters),
        "distance by frequency": [
            [float(np.log10(tokens.frequency[ranges == each]).mean()), float(far[ranges == each].mean() / far.mean())]
            for each in np.unique(ranges)
        ],
    }
    if asked.points:
        at = np.sort(np.random.default_rng(asked.seed).permutation(len(X))[: asked.points])
        greatest = float(np.abs(along[at]).max()) or 1.0
        by_size = np.argsort(np.argsort(-np.bincount(clusters), kind="stable"), kind="stable")
        found["cloud"] = {
            "points": np.round(along[at] / greatest, 3).tolist(),
            "cluster": [f"cluster {each + 1}" for each in by_size[clusters[at]].tolist()],
            "frequency": np.round(np.log10(tokens.frequency[at]), 2).tolist(),
            "kind": [KINDS[code] for code in kinds[at].tolist()],
            "place": np.round(tokens.places[at], 3).tolist(),
        }
    return found


def between_group_share(points: np.ndarray, groups: np.ndarray) -> float:
    """Return the between-group share of the points' variance; it is 0 if all groups have the same mean.

    >>> between_group_share(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 0, 1, 1]))
    1.0
    """
    centered = points - points.mean(axis=0)
    _, codes = np.unique(groups, return_inverse=True)
    counts = np.bincount(codes)
    sums = np.stack([np.bincount(codes, weights=column) for column in centered.T], axis=1)
    total = float((centered**2).sum())
    return float((sums**2 / counts[:, None]).sum()) / total if total else 0.0


def _bin_by_quantile(values: np.ndarray, parts: int) -> np.ndarray:
    """Return the quantile bin of each value, out of at most `parts` bins of about equal size."""
    edges = np.unique(np.quantile(values, np.arange(1, parts) / parts))
    return np.searchsorted(edges, values, side="left")
