"""The clusters of a sample, the silhouettes of its labels, and null samples for its local dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.pairs import nearest_neighbors
from isoscope.auditing import nulls
from isoscope.metrics.clusters import choose_clusters, silhouette
from isoscope.metrics.neighbors import local_dimensions

if TYPE_CHECKING:
    from isoscope.auditing.measure import Settings
    from isoscope.auditing.passes import Axes, RowScaling
    from isoscope.metrics.clusters import ClusterChoice
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.sampling import Sample

CLUSTER_COUNTS = range(2, 16)
MIN_SILHOUETTE = 0.1
"""Below this silhouette, the rows count as one cluster (Cai et al.)."""
CLUSTER_NULLS = 49
"""The number of null samples that the data must exceed; 1 in 50 datasets without clusters is then flagged."""
MIN_UNIMODAL_KURTOSIS = 1.5
"""Just below 189/125, the smallest kurtosis of a unimodal distribution."""
LID_SEARCH_ROWS = 5_000
"""The number of rows among which the local dimension is measured, in the data and in null samples."""
LID_NULLS = 6
"""The number of null samples for the range of the local dimension."""

_AXES = 16  # principal components used for clustering: the means of 15 clusters span 14
_MAX_MEDIAN_DISTANCES = 2.0  # relative to the median distance from the center; farther rows are moved closer
_TEST_ROWS = 300  # rows of the data and of each null sample in the test
_TEST_CLUSTERS = (2, 3, 5, 8, 15)
_EARLY_STOP_SAMPLES, _EARLY_STOP_DEVIATIONS = (
    6,
    6.0,
)  # Student's t with 5 degrees of freedom exceeds 6/√(1 + 1/6) once in 770 times
_EQUAL_LENGTHS, _MAX_MEAN_SHARE = (
    1e-4,
    0.25,
)  # spread of lengths over their mean; the mean vector's share of squared lengths
_LID_SAMPLE_QUERIES = 500  # rows that search for neighbors in a sample of a larger store
_LID_NULL_QUERIES = 48  # rows that search in a null sample
_MAX_LABELS = 500  # the silhouette needs one number per row and label


def cluster_rows(vectors: np.ndarray, axes: Axes, seed: int, skipped: dict[str, str]) -> ClusterChoice | None:
    """Return the clusters of the rows, or a single cluster if they do not score higher than null samples.

    K-means and the silhouette use the leading principal components, where noise does not hide clusters. Rows that are
    farther from the center than twice the median distance are moved to that distance, so that no single row forms a
    cluster.
    """
    numbers = [k for k in CLUSTER_COUNTS if k < len(vectors)]
    if len({row.tobytes() for row in vectors}) <= numbers[-1]:
        skipped["clusters"] = "too few distinct rows to cluster"
        return None
    rows = ClusterSpace(vectors, axes)(vectors)
    choice = choose_clusters(rows, numbers, seed=seed, restarts=2, least=MIN_SILHOUETTE)
    if choice.n_clusters > 1 and not (is_bimodal(vectors, axes) or has_clusters(vectors, seed)):
        return choice._replace(n_clusters=1, labels=np.zeros_like(choice.labels))
    return choice


class ClusterSpace:
    """The leading principal components of rows, in which they are clustered.

    Rows that are farther from the median than twice the median distance are moved to that distance. The coordinates are
    scaled so that the largest absolute value of the given rows is 1.
    """

    def __init__(self, vectors: np.ndarray, axes: Axes):
        self.axes = axes.vectors[:, :_AXES]
        rows = vectors.astype(np.float64) @ self.axes
        self.center = np.median(rows, axis=0)
        self.limit = _MAX_MEDIAN_DISTANCES * float(np.median(np.linalg.norm(rows - self.center, axis=1)))
        self.unit = _largest(self._clip(rows))

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Return the coordinates of rows in this space, in float32."""
        return (self._clip(vectors.astype(np.float64) @ self.axes) / self.unit).astype(np.float32)

    def _clip(self, rows: np.ndarray) -> np.ndarray:
        rows = rows - self.center
        if self.limit > 0:
            distances = np.linalg.norm(rows, axis=1)
            rows *= np.minimum(1, self.limit / np.maximum(distances, self.limit / 2))[:, None]
        return rows


class ClusterAssignment:
    """The clusters of an audit for any row: the cluster with the nearest center.

    Parameters
    ----------
    vectors : (m, d) array
        The clustered rows.
    axes : Axes
        The principal axes of the data.
    choice : ClusterChoice
        The clusters of these rows.
    """

    def __init__(self, vectors: np.ndarray, axes: Axes, choice: ClusterChoice):
        self.space = ClusterSpace(vectors, axes)
        rows = self.space(vectors).astype(np.float64)
        self.centers = np.stack([rows[choice.labels == code].mean(axis=0) for code in range(choice.n_clusters)])

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Return the cluster of each row."""
        rows = self.space(vectors).astype(np.float64)
        gaps = np.square(self.centers).sum(axis=1) - 2 * rows @ self.centers.T
        return np.asarray(gaps.argmin(axis=1))


def is_bimodal(vectors: np.ndarray, axes: Axes) -> bool:
    """Return whether the rows form two distant groups along their first principal component.

    Directions alone cannot tell two distant groups from one very elongated group. The kurtosis can: a distribution with
    one mode has a kurtosis of at least 189/125 (Klaassen, Mokveld and van Es, 2000). Rows of equal length around the
    origin are excluded, since scaling an elongated group to unit length also gives two groups.
    """
    rows = vectors.astype(np.float64)
    rows /= max(float(np.abs(rows).max()), 1e-300)
    lengths, mean = np.linalg.norm(rows, axis=1), rows.mean(axis=0)
    if lengths.std() < _EQUAL_LENGTHS * lengths.mean() and mean @ mean < _MAX_MEAN_SHARE * np.mean(lengths**2):
        return False
    first = (rows - mean) @ axes.vectors[:, 0]
    return bool(np.mean(first**4) < MIN_UNIMODAL_KURTOSIS * np.mean(first**2) ** 2)


def has_clusters(vectors: np.ndarray, seed: int) -> bool:
    """Return whether the best silhouette of the rows' directions exceeds that of every null sample.

    Directions are taken from the spatial median of the rows, so that neither lengths nor heavy tails matter. The null
    samples are directions of Gaussian data with the same spectrum, since elongated data without clusters can be split
    into halves as well. The data and the null samples are searched in the same way. The test stops at the first null
    sample that scores as high as the data, or if the data lies `_EARLY_STOP_DEVIATIONS` standard deviations above the
    first `_EARLY_STOP_SAMPLES` null samples.
    """
    rng = np.random.default_rng(seed)
    rows = vectors if len(vectors) <= _TEST_ROWS else vectors[rng.choice(len(vectors), _TEST_ROWS, replace=False)]
    null = nulls.UnimodalDirections(nulls.directions_from_median(rows.astype(np.float64)), _AXES, rng)
    score = _best_silhouette(null.scores, rng)
    scores: list[float] = []
    for _ in range(CLUSTER_NULLS):
        scores.append(_best_silhouette(null.draw(rng), rng))
        if scores[-1] >= score:
            return False
        if len(scores) == _EARLY_STOP_SAMPLES and score > np.mean(scores) + _EARLY_STOP_DEVIATIONS * np.std(
            scores, ddof=1
        ):
            break
    return True


def _best_silhouette(rows: np.ndarray, rng: np.random.Generator) -> float:
    numbers = [k for k in _TEST_CLUSTERS if k < len(rows)]
    choice = choose_clusters(_unit_scale(rows), numbers, least=-1.0, restarts=1, seed=int(rng.integers(2**32)))
    return max(choice.silhouettes.values())


def _unit_scale(rows: np.ndarray) -> np.ndarray:
    """Return the rows in float32, scaled so that the largest absolute value is 1."""
    return (rows / _largest(rows)).astype(np.float32)


def _largest(rows: np.ndarray) -> float:
    return max(float(np.abs(rows).max()), 1e-300)


class LocalDistances(NamedTuple):
    """The distances from rows to their nearest neighbors in the sample, and the LID of null samples."""

    distances: np.ndarray
    """The distances, nearest first, with shape (rows, k)."""
    null: np.ndarray
    """The mean LID of each null sample, with k neighbors."""


def local_distances(
    sketch: Sketch, rows: np.ndarray, axes: Axes, placed: RowScaling, k: int, seed: int, known: np.ndarray | None
) -> LocalDistances | None:
    """Return the neighbor distances for the local dimension, and its null samples; None if all rows are equal.

    `known` contains the distances to the k nearest rows if they were computed before. Otherwise, they are computed here
    for some of the rows.
    """
    if not np.trace(sketch.scatter) > 0:
        return None
    if known is None:
        known = nearest_neighbors(placed(rows), k, rows=np.arange(min(_LID_SAMPLE_QUERIES, len(rows))))[0] * placed.unit
    return LocalDistances(known, _null_dimensions(sketch, rows, axes, placed.metric, k, seed))


def _null_dimensions(sketch: Sketch, rows: np.ndarray, axes: Axes, metric: str, k: int, seed: int) -> np.ndarray:
    """Return the mean LID of Gaussian null samples that match the rows in number, mean, spectrum and lengths."""
    rng = np.random.default_rng(seed)
    unit = sketch.greatest_norm
    dimensions = 1 + sketch.isoscore(unbiased=True) * (sketch.d - 1)
    variances = nulls.shrunk_spectrum(axes.values / unit / unit / sketch.n, dimensions)
    along = axes.vectors.T @ sketch.mean / unit
    mean = np.zeros(sketch.d)
    mean[: len(along)] = along
    if len(along) < sketch.d:  # the rest of the mean is orthogonal to the span of the rows
        mean[len(along)] = np.sqrt(max(float(np.sum((sketch.mean / unit) ** 2) - along @ along), 0.0))
    lengths = np.linalg.norm(rows.astype(np.float64) / unit, axis=1)
    null = nulls.GaussianRows(mean, variances, lengths if metric == "euclidean" else np.ones_like(lengths))
    queries, eps = np.arange(min(_LID_NULL_QUERIES, len(rows))), float(np.finfo(np.float32).eps)
    draws = (local_dimensions(np, nearest_neighbors(null.draw(rng), k, rows=queries)[0], eps) for _ in range(LID_NULLS))
    return np.asarray([estimates[known].mean() if known.any() else np.nan for estimates, known in draws])


def label_scores(
    sample: Sample, usable: np.ndarray, settings: Settings, skipped: dict[str, str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the silhouette of each row with the given labels and with shuffled labels."""
    if "labels" not in sample.columns:
        return None, None
    labels: Any = sample.columns["labels"][usable]
    different = len(np.unique(labels))
    if different < 2:
        skipped["labels"] = "all rows have the same label: need at least two distinct labels"
        return None, None
    if different > max(len(labels) // 2, 2):
        skipped["labels"] = (
            f"{len(labels):,} rows have {different:,} distinct labels: need labels that several rows share"
        )
        return None, None
    if different > _MAX_LABELS:
        skipped["labels"] = f"there are {different:,} distinct labels: the silhouette supports at most {_MAX_LABELS}"
        return None, None
    shuffled = np.random.default_rng(settings.seed).permutation(labels)
    points = sample.vectors[usable]
    return (
        np.asarray(silhouette(points, labels, metric=settings.metric, per_point=True)),
        np.asarray(silhouette(points, shuffled, metric=settings.metric, per_point=True)),
    )
