"""Whether a cloud falls into clusters, and into how many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.arrays import (
    accumulator_dtype,
    asarray_like,
    blocks,
    carries_gradient,
    cast_result,
    check_integer,
    check_points,
    check_real,
    encode_labels,
    nonzero_rows,
    safe_sqrt,
    take,
    tiles,
    to_numpy,
    unit_rows,
    zeros,
)
from isoscope._core.errors import InputError
from isoscope._core.pairs import MAX_MEMORY, cluster_distances, scale_to_safe_range, weighted_distances

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups

_MAX_ITERATIONS = 300  # of K-means at most
_MAX_COLUMNS = 256  # clusters to which distances are summed up in one go


class ClusterChoice(NamedTuple):
    """The number of clusters that fits best, and what the others scored."""

    n_clusters: int
    """1 if no number reaches `least`."""
    labels: np.ndarray
    """Each row's cluster, 0 … n_clusters − 1."""
    silhouettes: dict[int, float]
    """The silhouette of each number tried."""
    errors: dict[int, float]
    """The standard error of each, over the rows it was measured on."""


def silhouette(
    X: Any, labels: Any, *, metric: str = "euclidean", per_point: bool = False, max_memory: int = MAX_MEMORY
) -> Array:
    """How well the labels are clusters: 1 far apart and tight, 0 overlapping, below 0 mixed up.

    For each row (b − a)/max(a, b): a its mean distance to its own label's other rows, b to the nearest other label's.
    A row that is alone with its label scores 0. Exact, over all pairs; for "cosine" by sums alone.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    labels : (n,) labels
        Numbers or strings, at least two different ones.
    metric : {"euclidean", "cosine"}
        The distance: ‖x−y‖ or 1 − cos.
    per_point : bool
        Give each row's value, (n,), and not their mean.
    max_memory : int
        Bytes for the tiles of pairs. With a gradient the tiles are kept for it: use batches then.

    Examples
    --------
    >>> import isoscope
    >>> X = [[0, 0], [0, 1], [9, 9], [9, 8]]
    >>> round(float(isoscope.silhouette(X, ["a", "a", "b", "b"])), 3)
    0.917

    References
    ----------
    Rousseeuw, Silhouettes, 1987.
    """
    xp, X = check_points(X, min_dims=1)
    found = encode_labels(labels, X.shape[0], min_groups=2)
    if metric == "cosine":
        sums = _cosine_distance_sums(xp, X, found)
    elif metric != "euclidean":
        raise InputError(f'metric is {metric!r}: need "euclidean" or "cosine"')
    else:
        sums = distance_sums(xp, X, found, max_memory)
    # unit vectors of one direction differ by rounding, which is no distance
    rounding = 32 * float(xp.finfo(sums.dtype).eps) ** 2 if metric == "cosine" else 0.0
    scores = _silhouettes(xp, X, sums, found, rounding)
    return cast_result(xp, X, scores if per_point else xp.mean(scores))


def choose_clusters(
    X: Any,
    numbers: Iterable[int] = range(2, 16),
    *,
    least: float = 0.1,
    sample: int = 20_000,
    restarts: int = 10,
    seed: int = 0,
    max_memory: int = MAX_MEMORY,
) -> ClusterChoice:
    """Into how many clusters X falls best: K-means for each number, the one with the highest silhouette.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    numbers : iterable of int
        The numbers of clusters to try, each from 2 to n − 1.
    least : float
        Below this silhouette there are no clusters to speak of: the choice is 1 (Cai et al.).
    sample : int
        The silhouette is measured on at most so many random rows, the same ones for each number.
    restarts : int
        How often K-means starts anew for each number; the tightest result counts.
    seed : int
        For K-means and that choice.
    max_memory : int
        Bytes for the tiles of pairs.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 8)) + 9 * np.eye(8)[np.arange(300) % 3]
    >>> isoscope.choose_clusters(X, range(2, 6)).n_clusters
    3

    References
    ----------
    Cai et al., Isotropy in the contextual embedding space: clusters and manifolds, 2021.
    """
    _, X = check_points(X, min_rows=3, min_dims=1)
    values, _ = scale_to_safe_range(to_numpy(X))
    n = len(values)
    if not isinstance(numbers, Iterable):
        raise InputError(f"numbers is {numbers!r}: need several numbers of clusters, such as range(2, 16)")
    numbers = sorted({check_integer(k, "numbers") for k in numbers})
    if check_integer(sample, "sample") < 3:
        raise InputError(f"sample is {sample}: need 3 rows at least")
    if check_integer(restarts, "restarts") < 1:
        raise InputError(f"restarts is {restarts}: need 1 at least")
    if not numbers or numbers[0] < 2 or numbers[-1] >= n:
        raise InputError(f"numbers is {numbers}: need numbers of clusters from 2 to {n - 1} for {n} rows")
    rng = np.random.default_rng(check_integer(seed, "seed"))
    rows = np.arange(n) if n <= sample else np.sort(rng.choice(n, sample, replace=False))
    silhouettes: dict[int, float] = {}
    errors: dict[int, float] = {}
    best = ClusterChoice(1, np.zeros(n, np.int64), silhouettes, errors)
    highest = check_real(least, "least")
    seeds = [kmeans_plus_plus(values, numbers[-1], rng) for _ in range(restarts)]
    for some in _batch_cluster_counts(numbers):
        parted = [_k_means([values[chosen[:k]] for chosen in seeds], values) for k in some]
        scored = _score_clusterings(values[rows], [codes[rows] for codes in parted], max_memory)
        for k, codes, scores in zip(some, parted, scored, strict=True):
            silhouettes[k], errors[k] = float(scores.mean()), float(scores.std() / np.sqrt(len(scores)))
            if silhouettes[k] >= highest and (best.n_clusters == 1 or silhouettes[k] > highest):
                highest = silhouettes[k]
                best = ClusterChoice(k, codes, silhouettes, errors)
    return best


def _batch_cluster_counts(numbers: list[int]) -> Iterator[list[int]]:
    """Numbers of clusters whose silhouettes are measured in one go, so that a row holds few numbers at a time."""
    some: list[int] = []
    for k in numbers:
        if some and sum(some) + k > _MAX_COLUMNS:
            yield some
            some = []
        some.append(k)
    yield some


def _score_clusterings(X: np.ndarray, parted: list[np.ndarray], max_memory: int) -> list[np.ndarray]:
    """Each row's silhouette under each of some ways to part the rows; the distances are found once.

    Of fewer distinct points than clusters K-means leaves some empty, and a single one has no silhouette: 0.
    """
    found = [encode_labels(codes, len(X)) for codes in parted]
    member = np.concatenate([np.eye(len(each.names), dtype=X.dtype)[each.codes] for each in found], axis=1)
    sums = weighted_distances(X, member, max_memory=max_memory)
    ends = np.cumsum([len(each.names) for each in found])[:-1]
    return [
        _silhouettes(np, X, own, each, 0.0) if len(each.names) > 1 else np.zeros(len(X))
        for own, each in zip(np.split(sums, ends, axis=1), found, strict=True)
    ]


def kmeans_plus_plus(X: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k rows far from each other, as k-means++ draws them: the first few of them serve for fewer clusters as well."""
    centred = X - X.mean(axis=0)
    norms = np.einsum("ij,ij->i", centred, centred)
    chosen = [int(rng.integers(len(X)))]
    nearest = np.full(len(X), np.inf)
    while len(chosen) < k:
        last = centred[chosen[-1]]
        nearest = np.minimum(nearest, np.maximum(norms + norms[chosen[-1]] - 2 * (centred @ last), 0))
        nearest[chosen] = 0
        weights = np.cumsum(nearest, dtype=np.float64)
        at = np.searchsorted(weights, rng.random() * weights[-1], side="right") if weights[-1] > 0 else len(chosen)
        chosen.append(min(int(at), len(X) - 1))
    return np.asarray(chosen)


def _k_means(starts: list[np.ndarray], X: np.ndarray) -> np.ndarray:
    """Each row's cluster by K-means, from the start that ends tightest."""
    mean = X.mean(axis=0)
    X = X - mean
    tightest, best = np.inf, np.zeros(len(X), np.int64)
    for start in starts:
        centres, codes = _run_lloyd(X, start - mean)
        spread = float(np.sum((X - centres[codes]) ** 2, dtype=np.float64))
        if spread < tightest:
            tightest, best = spread, codes
    return best


def _run_lloyd(X: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and codes once no row changes its cluster, or after as many rounds as scikit-learn would take.

    Two products a round: SciPy's takes every row's length anew in each, and holds the GIL.
    """
    codes = np.full(len(X), -1)
    member = np.empty((len(centres), len(X)), X.dtype)
    for _ in range(_MAX_ITERATIONS):
        before = codes
        codes = np.argmin(np.einsum("ij,ij->i", centres, centres) / 2 - X @ centres.T, axis=1)
        if np.array_equal(codes, before):
            break
        np.equal(np.arange(len(centres))[:, None], codes, out=member, casting="unsafe")
        counts = np.bincount(codes, minlength=len(centres)).astype(X.dtype)
        filled = counts > 0  # a cluster that loses its last row stays where it is
        centres = centres.copy()
        centres[filled] = (member @ X)[filled] / counts[filled, None]
    return centres, codes


def _silhouettes(xp: Any, X: Array, sums: Array, found: Groups, rounding: float) -> Array:
    """(b − a)/max(a, b) of each row from its sums of distances to each label."""
    k = len(found.names)
    own = asarray_like(xp, X, np.arange(k)[None, :] == found.codes[:, None], xp.bool)
    counts = asarray_like(xp, X, found.counts[None, :].astype(np.float64), sums.dtype)
    company = asarray_like(xp, X, found.counts[found.codes].astype(np.float64), sums.dtype) - 1
    alone = company == 0
    a = xp.sum(xp.where(own, sums, xp.zeros_like(sums)), axis=1) / xp.where(alone, xp.ones_like(company), company)
    b = xp.min(xp.where(own, xp.full_like(sums, xp.inf), sums / counts), axis=1)
    larger = xp.maximum(a, b)
    some = (larger > rounding) & ~alone
    return xp.where(some, (b - a) / xp.where(some, larger, xp.ones_like(larger)), xp.zeros_like(a))


def distance_sums(xp: Any, X: Array, found: Groups, max_memory: int) -> Array:
    """Each row's sum of distances to each label's rows; in X's own library if the gradient must pass.

    With a gradient, points closer than √(64·eps) of their distance from the mean count as equal: √ has no slope there.
    """
    wide = accumulator_dtype(xp, X)
    if not carries_gradient(X):
        sums = cluster_distances(to_numpy(X), found.codes, len(found.names), max_memory=max_memory)
        return asarray_like(xp, X, sums, wide)
    unit = scale_to_safe_range(to_numpy(X))[1]
    X = xp.astype(X, wide) * (1 / unit)
    X = X - xp.mean(X, axis=0)
    norms = xp.sum(X * X, axis=1)
    member = asarray_like(xp, X, np.eye(len(found.names))[found.codes], wide)
    rows = []
    for a in blocks(X.shape[0], max(1, max_memory // (8 * X.shape[0]))):
        size = norms[a][:, None] + norms[None, :]
        squared = size - 2 * (X[a, :] @ X.T)
        apart = squared > 64 * xp.finfo(wide).eps * size
        rows.append(safe_sqrt(xp, xp.where(apart, squared, xp.zeros_like(squared))) @ member)
    return xp.concat(rows, axis=0) * unit


def _cosine_distance_sums(xp: Any, X: Array, found: Groups) -> Array:
    """Each row's sum of 1 − cos to each label's rows, by the labels' mean unit vectors.

    1 − cos is half a squared chord, and squared chords to a label's rows sum to those to its mean and those of its own
    rows to its mean: nothing cancels in a narrow cone. A zero row is at 1 from every other.
    """
    wide = accumulator_dtype(xp, X)
    counts = asarray_like(xp, X, found.counts, wide)
    member = np.eye(len(found.names))[found.codes]

    def units(part: slice) -> Array:
        return unit_rows(xp, X[part, :], wide)

    means = zeros(xp, X, (len(found.names), X.shape[1]))
    for part in tiles(X):
        means = means + asarray_like(xp, X, member[part].T, wide) @ units(part)
    means = means / counts[:, None]
    within = zeros(xp, X, (len(found.names),))
    for part in tiles(X):
        step = units(part) - take(xp, means, found.codes[part])
        within = within + asarray_like(xp, X, member[part].T, wide) @ xp.sum(step * step, axis=1)
    zero = ~nonzero_rows(X)
    zeros_in = asarray_like(xp, X, member[zero].sum(axis=0), wide)
    rows = []
    for part in tiles(X):
        u = units(part)
        chords = xp.stack([xp.sum((u - means[c, :]) ** 2, axis=1) for c in range(len(found.names))], axis=1)
        lost = asarray_like(xp, X, zero[part][:, None].astype(float), wide)
        mine = asarray_like(xp, X, member[part], wide)
        rows.append((counts * chords + within + counts * lost + zeros_in) / 2 - mine * lost)
    return xp.concat(rows, axis=0)
