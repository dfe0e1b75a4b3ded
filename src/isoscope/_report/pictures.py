"""The chart data of an audit, as arrays for the page and for matplotlib."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from isoscope._core.errors import TooFewRowsError
from isoscope._core.pairs import nearest_neighbors
from isoscope.auditing import nulls
from isoscope.auditing.findings.frequency import are_words, replace_zeros, token_kinds
from isoscope.auditing.passes import RowScaling
from isoscope.metrics.topology import select_bars
from isoscope.stores.sampling import Sampler

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.measure import Measurements
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Store

MAX_POINTS = 3_000
"""The largest number of points that are drawn; the caption states the total."""

NEIGHBORS = 10
"""The largest number of neighbors of a point."""

_MAX_TEXT_LENGTH = 160  # characters of a point's text
_BINS = 200
_MIN_POINTS = 3


@dataclass(frozen=True, kw_only=True)
class PointCloud:
    """The points of a cloud, and what is known about each; codes start at 0."""

    dimensions: int
    """The number of dimensions of the space."""
    points: np.ndarray
    """(m, 3): projections of the centered rows onto the leading principal components."""
    explained_variance: np.ndarray
    """(3,): the share of the variance that each of these components explains."""
    rows: np.ndarray
    """(m,): row numbers of the points in the store."""
    lengths: np.ndarray
    text: list[str] | None = None
    labels: np.ndarray | None = None
    """(m,) codes into `label_names`."""
    label_names: list[str] = field(default_factory=list)
    clusters: np.ndarray | None = None
    """(m,) codes; −1 for a point that was not clustered. None if there is a single cluster."""
    frequency: np.ndarray | None = None
    """(m,) frequency of each point: from its column, or else the number of occurrences of its type."""
    kinds: np.ndarray | None = None
    """(m,) codes into `KINDS`; None if the rows are not tokens or words, or all of one kind."""
    neighbors: np.ndarray | None = None
    """(m, k): positions of the nearest other points in the full space, nearest first; −1 where fewer are known. None if
    neighbors were not measured."""
    neighbor_scores: np.ndarray | None = None
    """(m, k): the cosine with each of these points, or the distance if neighbors are found by distance."""
    neighbor_metric: str = "cosine"
    """How neighbors are compared: "cosine" or "euclidean"."""
    ids: np.ndarray | None = None
    """(m,): the ids of the points, if the source has ids."""


@dataclass(frozen=True, kw_only=True)
class Pictures(PointCloud):
    """The arrays to draw for an audit: the points, and the data of the charts; shares add up to 1."""

    spectrum_raw: np.ndarray
    """Each direction's share of Σ‖x‖², largest first."""
    spectrum_centered: np.ndarray
    spectrum_null: np.ndarray
    """The same for isotropic data."""
    cosine_edges: np.ndarray
    """Edges of the bins of the next three densities."""
    cosines: np.ndarray
    """Density of the cosine of random pairs."""
    cosine_null: np.ndarray
    """The same for random directions."""
    nearest_cosines: np.ndarray | None
    """Density of the cosine with the nearest neighbor; None if neighbors are not found by cosine."""
    mean_cosine: float
    """Mean cosine of all pairs of all rows, as in the finding."""
    mean_nearest_cosine: float | None
    """Mean cosine of a row with its nearest neighbor; None if neighbors are not found by cosine."""
    activation_mean: np.ndarray
    """Mean of each coordinate."""
    activation_spread: np.ndarray
    """Standard deviation of each coordinate."""
    rogue_dimensions: list[int]
    """The coordinates to number in the chart."""
    bars: np.ndarray
    """Lengths of the bars of a sample, longest first."""
    n_significant_bars: int
    """Number of bars that stand out from noise."""
    bar_rows: int


CloudT = TypeVar("CloudT", bound=PointCloud)


def build_pictures(m: Measurements, findings: list[Finding]) -> Pictures:
    """Return the chart data from the measurements of an audit."""
    centered, raw = m.centered.values, m.raw.values
    at = m.sample.first(MAX_POINTS)
    sample = m.sample.at(at)
    k = min(3, m.centered.vectors.shape[1])  # fewer if the rows lie on a line or a plane
    points = np.zeros((len(at), 3))
    points[:, :k] = (sample.vectors - m.sketch.mean) @ m.centered.vectors[:, :k]
    trace = max(centered.sum(), 1e-300)
    explained = np.zeros(3)
    explained[:k] = centered[:k] / trace
    near = _nearest_cosines(m)
    edges, cosines, null, nearest = _cosine_densities(m, near)
    labels, names = _label_codes(m, sample.columns.get("labels"))
    text = sample.columns.get("text")
    neighbors, scores = _point_neighbors(m, at)
    rogue = next((f for f in findings if f.name == "rogue_dimensions"), None)
    return Pictures(
        dimensions=m.d,
        spectrum_raw=raw / max(raw.sum(), 1e-300),
        spectrum_centered=centered / trace,
        spectrum_null=nulls.spectrum(m.n, m.d),
        cosine_edges=edges,
        cosines=cosines,
        cosine_null=null,
        nearest_cosines=nearest,
        mean_cosine=m.sketch.mean_cosine(),
        mean_nearest_cosine=None if near is None else float(near.mean()),
        activation_mean=m.sketch.mean,
        activation_spread=np.sqrt(np.diag(m.sketch.scatter) / (m.n - 1)),
        rogue_dimensions=list(rogue.details["dimensions"]) if rogue is not None else [],
        points=points,
        explained_variance=explained,
        rows=sample.rows,
        lengths=np.linalg.norm(sample.vectors.astype(np.float64), axis=1),
        text=None if text is None else [_truncate_text(entry) for entry in text],
        labels=labels,
        label_names=names,
        clusters=_cluster_codes(m, at),
        frequency=_point_frequency(m, sample),
        kinds=_point_kinds(m, at),
        neighbors=neighbors,
        neighbor_scores=scores,
        neighbor_metric=m.settings.metric,
        bars=m.bars,
        n_significant_bars=len(np.asarray(select_bars(m.bars))),
        bar_rows=m.bar_rows,
    )


def subsample_points(p: CloudT, count: int) -> CloudT:
    """Return the cloud with at most `count` points; clouds of equal size keep the same rows."""
    if len(p.points) <= count:
        return p
    at = np.sort(np.random.default_rng(0).permutation(len(p.points))[:count])
    each = ("points", "rows", "lengths", "labels", "clusters", "frequency", "kinds", "ids", "neighbor_scores")
    fewer: dict[str, Any] = {name: None if getattr(p, name) is None else getattr(p, name)[at] for name in each}
    if p.neighbors is not None:
        fewer["neighbors"], fewer["neighbor_scores"] = _keep_positions(
            p.neighbors[at], fewer["neighbor_scores"], at, len(p.points), p.neighbors.shape[1]
        )
    return replace(p, text=None if p.text is None else [p.text[i] for i in at.tolist()], **fewer)


def sample_points(store: Store) -> PointCloud:
    """Return a random sample of the points of a store, read in one pass; the neighbors are those within the sample."""
    sampler = Sampler(MAX_POINTS, 0)
    roles = [role for role in ("labels", "text", "ids") if role in store.columns]
    for batch in store.batches(columns=roles):
        sampler.offer(batch)
    sample = sampler.sample() if sampler.pool_size else None
    if sample is None or len(sample) < _MIN_POINTS:
        raise TooFewRowsError(
            f"{store.name} has fewer than {_MIN_POINTS} finite rows: a cloud needs at least that many"
        )
    vectors = sample.vectors.astype(np.float64)
    centered = vectors - vectors.mean(axis=0)
    left, scales, _ = np.linalg.svd(centered, full_matrices=False)
    k = min(3, int((scales > 1e-9 * scales[0]).sum()))
    points, explained = np.zeros((len(vectors), 3)), np.zeros(3)
    points[:, :k] = left[:, :k] * scales[:k]
    explained[:k] = scales[:k] ** 2 / max(float((scales**2).sum()), 1e-300)
    lengths = np.linalg.norm(vectors, axis=1)
    count = min(NEIGHBORS, len(vectors) - 1)
    units = vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
    distances, neighbors = nearest_neighbors(units, count)
    names, codes = None, None
    if "labels" in sample.columns:
        names, codes = np.unique(sample.columns["labels"], return_inverse=True)
    text = sample.columns.get("text")
    return PointCloud(
        dimensions=store.dim,
        points=points,
        explained_variance=explained,
        rows=sample.rows,
        lengths=lengths,
        text=None if text is None else [_truncate_text(entry) for entry in text],
        labels=codes,
        label_names=[] if names is None else [_truncate_text(name) for name in names],
        neighbors=neighbors,
        neighbor_scores=1 - distances**2 / 2,
        ids=sample.columns.get("ids"),
    )


def _point_neighbors(m: Measurements, at: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the nearest points of each drawn point in the full space, and their cosines or distances.

    The lists of the audit contain rows that are not drawn. They are long enough if the sample contains all rows;
    otherwise, the drawn points are searched.
    """
    if m.around is None or m.lists is None:
        return None, None
    usable = m.lists.asked
    if m.complete:
        drawn = np.isin(usable, at)
        own, distances = usable[drawn], m.around.distances[drawn]
        indices = np.searchsorted(m.sample.rows, m.around.indices[drawn])
    else:
        own = at[np.isin(at, usable)]
        scaled = RowScaling(m.settings.metric, m.sketch)
        count = min(NEIGHBORS, len(own) - 1)
        if count < 1:
            return None, None
        distances, found = nearest_neighbors(scaled(m.sample.vectors[own]), count)
        indices, distances = own[found], distances * scaled.unit
    rows = np.full((len(m.sample), indices.shape[1]), -1)
    rows[own] = indices
    scores = np.zeros(rows.shape)
    scores[own] = 1 - distances**2 / 2 if m.settings.metric == "cosine" else distances
    return _keep_positions(rows[at], scores[at], at, len(m.sample), NEIGHBORS)


def _keep_positions(
    neighbors: np.ndarray, scores: np.ndarray, kept: np.ndarray, total: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `count` neighbors that are among the kept positions, renumbered, and their scores."""
    place = np.full(total + 1, -1)
    place[kept] = np.arange(len(kept))
    renumbered = place[neighbors]  # −1 is the last entry, which stays −1
    first = np.argsort(renumbered < 0, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(renumbered, first, 1), np.take_along_axis(scores, first, 1)


def _nearest_cosines(m: Measurements) -> np.ndarray | None:
    """Return the cosine of each query row with its nearest neighbor; None if neighbors were not found by cosine."""
    if m.around is None or m.settings.metric != "cosine":
        return None
    return np.asarray(1 - m.around.distances[:, 0] ** 2 / 2)


def _cosine_densities(
    m: Measurements, nearest: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the bin edges, and the cosine densities of pairs, random directions and nearest neighbors."""
    fine, counts = m.cosines.edges, m.cosines.counts
    some = np.flatnonzero(counts)
    reach = min(4 / np.sqrt(m.d), 1.0)
    low = max(-1.0, min(fine[some[0]], -reach))
    high = 1.0 if nearest is not None else min(1.0, max(fine[some[-1] + 1], reach))
    edges = np.linspace(low, high, _BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    width = edges[1] - edges[0]
    cumulative = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    density = np.diff(np.interp(edges, fine, cumulative)) / width
    neighbors = None if nearest is None else np.histogram(nearest, edges)[0] / (max(len(nearest), 1) * width)
    return edges, density, nulls.cosine_density(middle, m.d), neighbors


def _label_codes(m: Measurements, labels: np.ndarray | None) -> tuple[np.ndarray | None, list[str]]:
    if labels is None or m.label_scores is None:
        return None, []
    names, codes = np.unique(labels, return_inverse=True)
    return codes, [_truncate_text(name) for name in names]


def _cluster_codes(m: Measurements, at: np.ndarray) -> np.ndarray | None:
    if m.clusters is None or m.clusters.n_clusters == 1:
        return None
    codes = np.full(len(m.sample), -1)
    codes[m.cluster_positions] = m.clusters.labels
    return np.asarray(codes[at])


def _point_frequency(m: Measurements, sample: Sample) -> np.ndarray | None:
    if "frequency" in sample.columns:
        return replace_zeros(sample.columns["frequency"])
    types = sample.columns.get("types")
    if types is None or m.types is None or m.n_dropped_types:
        return None
    counts = dict(zip(m.types.names.tolist(), m.types.counts.tolist(), strict=True))
    return np.asarray([counts.get(kind, 1) for kind in types.tolist()])


def _point_kinds(m: Measurements, at: np.ndarray) -> np.ndarray | None:
    """Return the kind of each point's type, or of its text if the texts are words."""
    for role in ("types", "text"):
        entries = m.sample.columns.get(role)
        if entries is not None and are_words(entries):
            codes = token_kinds(entries)
            return np.asarray(codes[at]) if len(np.unique(codes[at])) > 1 else None
    return None


def _truncate_text(entry: object) -> str:
    text = " ".join(str(entry).split())
    return text if len(text) <= _MAX_TEXT_LENGTH else text[: _MAX_TEXT_LENGTH - 1] + "…"
