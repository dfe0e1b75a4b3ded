"""Silhouettes of labeled rows, and the choice of the number of clusters."""

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
    detach,
    encode_labels,
    nonzero_rows,
    safe_sqrt,
    take,
    tiles,
    to_float,
    to_numpy,
    unit_rows,
    zeros,
)
from isoscope._core.errors import ParameterError
from isoscope._core.pairs import MAX_MEMORY, cluster_distances, scale_to_safe_range, weighted_distances
from isoscope._core.random import check_seed
from isoscope._core.threads import map_in_threads, run_all

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups
    from isoscope._core.types import Metric, Seed

_MAX_ITERATIONS = 300  # iterations of k-means
_ROWS_PER_TASK = 4096  # rows that one thread places at a time
_ROWS_PER_PRODUCT = 1024  # rows that are multiplied with all centers at a time, so that the products stay in the cache
_LARGEST_UNSURE_SHARE = 0.15  # of the pairs of rows and centers; a distance takes about six times as long as a product
_MAX_PRODUCTS = 2**25  # per iteration of k-means without compiled kernels
_PROPOSALS = 16  # rows that k-means++ proposes per step if there are many
_MAX_COLUMNS = 256  # clusters whose distance sums are computed at the same time


class ClusterChoice(NamedTuple):
    """The number of clusters with the highest silhouette, and the silhouettes of all numbers tried."""

    n_clusters: int
    """The number of clusters, or 1 if no silhouette reaches `least`."""
    labels: np.ndarray
    """The cluster of each row, 0 … n_clusters − 1."""
    silhouettes: dict[int, float]
    """The mean silhouette of each number of clusters tried."""
    errors: dict[int, float]
    """The standard error of each silhouette, over the rows that were measured."""

    def __repr__(self) -> str:
        scores = ", ".join(f"{k}: {score:.2f}" for k, score in self.silhouettes.items())
        return f"ClusterChoice(n_clusters={self.n_clusters}, silhouettes={{{scores}}})"


def silhouette(
    X: Array, labels: Array, *, metric: Metric = "euclidean", per_point: bool = False, max_memory: int = MAX_MEMORY
) -> Array:
    """Return the silhouette of labeled rows: 1 if the labels are tight, separate clusters, 0 if they overlap.

    The silhouette of a row is (b − a)/max(a, b): a is its mean distance to the other rows of its label, b its mean
    distance to the rows of the nearest other label. It is negative if another label is closer. A row that is the only
    one with its label has silhouette 0. The result is exact, over all pairs.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    labels : (n,) labels
        Numbers or strings; at least two distinct labels.
    metric : {"euclidean", "cosine"}
        The distance: ‖x−y‖, or 1 − cos. "cosine" needs no pairs and is much faster.
    per_point : bool
        Return the silhouette of each row, an (n,) array, instead of the mean.
    max_memory : int
        Memory in bytes for the tiles of pairs. With a gradient, all tiles are kept for the backward pass, so use
        batches.

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
    groups = encode_labels(labels, X.shape[0], min_groups=2)
    if metric == "cosine":
        sums = _cosine_distance_sums(xp, X, groups)
    elif metric != "euclidean":
        raise ParameterError(f'metric is {metric!r}: need "euclidean" or "cosine"')
    else:
        X = _scale_down(xp, X)
        sums = distance_sums(xp, X, groups, max_memory)
    # unit vectors of the same direction differ by rounding errors, which must count as distance 0
    rounding = 32 * float(xp.finfo(sums.dtype).eps) ** 2 if metric == "cosine" else 0.0
    scores = _silhouettes(xp, X, sums, groups, rounding)
    return cast_result(xp, X, scores if per_point else xp.mean(scores))


def _scale_down(xp: Any, X: Array) -> Array:
    """Return X, divided by a power of two if sums of its distances could overflow; silhouettes do not change."""
    largest = to_float(xp.max(xp.abs(detach(X))))
    return X if largest < 1e150 else X * 2.0 ** -int(np.frexp(largest)[1])


def choose_clusters(
    X: Array,
    numbers: Iterable[int] = range(2, 16),
    *,
    least: float = 0.1,
    sample: int = 20_000,
    restarts: int = 10,
    seed: Seed = 0,
    max_memory: int = MAX_MEMORY,
) -> ClusterChoice:
    """Choose the number of clusters in X by running k-means for several numbers and comparing the silhouettes.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    numbers : iterable of int
        The numbers of clusters to try, each from 2 to n − 1.
    least : float
        The minimum silhouette. If no number of clusters reaches it, the choice is 1, as in Cai et al.
    sample : int
        Measure the silhouette on at most this many random rows, the same rows for each number of clusters.
    restarts : int
        Run k-means from this many random starts and keep the tightest result.
    seed : int
        Random seed for sampling and k-means.
    max_memory : int
        Memory in bytes for the tiles of pairs.

    Returns
    -------
    ClusterChoice
        The chosen number `n_clusters`, the `labels`, and the `silhouettes` and their standard `errors` by number.

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
        raise ParameterError(f"numbers is {numbers!r}: need several numbers of clusters, such as range(2, 16)")
    numbers = sorted({check_integer(k, "numbers") for k in numbers})
    if check_integer(sample, "sample") < 3:
        raise ParameterError(f"sample is {sample}: need at least 3 rows")
    if check_integer(restarts, "restarts") < 1:
        raise ParameterError(f"restarts is {restarts}: need at least 1")
    if not numbers or numbers[0] < 2 or numbers[-1] >= n:
        raise ParameterError(f"numbers is {numbers}: with {n} rows, the numbers of clusters must be from 2 to {n - 1}")
    rng = np.random.default_rng(check_seed(seed))
    rows = np.arange(n) if n <= sample else np.sort(rng.choice(n, sample, replace=False))
    silhouettes: dict[int, float] = {}
    errors: dict[int, float] = {}
    best = ClusterChoice(1, np.zeros(n, np.int64), silhouettes, errors)
    highest = check_real(least, "least")
    seeds = [kmeans_plus_plus(values, numbers[-1], rng) for _ in range(restarts)]
    for batch in _batch_cluster_counts(numbers):
        clusterings = [_k_means([values[chosen[:k]] for chosen in seeds], values) for k in batch]
        scored = _score_clusterings(values[rows], [codes[rows] for codes in clusterings], max_memory)
        for k, codes, scores in zip(batch, clusterings, scored, strict=True):
            silhouettes[k], errors[k] = float(scores.mean()), float(scores.std() / np.sqrt(len(scores)))
            if silhouettes[k] >= highest and (best.n_clusters == 1 or silhouettes[k] > highest):
                highest = silhouettes[k]
                best = ClusterChoice(k, codes, silhouettes, errors)
    return best


def _batch_cluster_counts(numbers: list[int]) -> Iterator[list[int]]:
    """Yield batches of cluster counts whose silhouettes are computed together; their sum limits the memory per row."""
    batch: list[int] = []
    for k in numbers:
        if batch and sum(batch) + k > _MAX_COLUMNS:
            yield batch
            batch = []
        batch.append(k)
    yield batch


def _score_clusterings(X: np.ndarray, clusterings: list[np.ndarray], max_memory: int) -> list[np.ndarray]:
    """Return the silhouette of each row under each clustering; the distances are computed only once.

    With fewer distinct points than clusters, k-means leaves clusters empty. A single cluster scores 0.
    """
    groups = [encode_labels(codes, len(X)) for codes in clusterings]
    member = np.concatenate([np.eye(len(each.names), dtype=X.dtype)[each.codes] for each in groups], axis=1)
    sums = weighted_distances(X, member, max_memory=max_memory)
    ends = np.cumsum([len(each.names) for each in groups])[:-1]
    return [
        _silhouettes(np, X, own, each, 0.0) if len(each.names) > 1 else np.zeros(len(X))
        for own, each in zip(np.split(sums, ends, axis=1), groups, strict=True)
    ]


def kmeans_plus_plus(X: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return k row numbers chosen by k-means++; the first m of them can start k-means with m clusters."""
    return np.asarray(choose_starts(X, k, [rng])[0][0])


def choose_starts(X: np.ndarray, k: int, rngs: list[np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
    """Return k row numbers chosen by k-means++ for each generator, and the nearest of them (0 … k − 1) for each row.

    The rows are read once per step for all generators. In large inputs, a step chooses several rows by rejection
    sampling. Rows are proposed with probabilities proportional to their squared distances from earlier centers. The
    probability of accepting a row is its squared distance from all centers, including those of the same step, divided
    by that from the earlier centers. The rows then have the distribution of k-means++.
    """
    proposals = _PROPOSALS if X.size * k > _MAX_PRODUCTS else 1
    mean = X.mean(axis=0)
    is_centered = proposals > 1 and len(X) * float(mean @ mean) < 0.01 * float(np.vdot(X, X))
    centered = X if is_centered else X - mean  # a copy of many rows takes longer than the first distances
    norms = np.einsum("ij,ij->i", centered, centered)
    chosen = np.empty((len(rngs), k), np.int64)
    chosen[:, 0] = [int(rng.integers(len(X))) for rng in rngs]
    nearest, codes = np.full((len(rngs), len(X)), np.inf, X.dtype), np.zeros((len(rngs), len(X)), np.int32)
    counts, ends = np.zeros(len(rngs), np.int64), np.ones(len(rngs), np.int64)

    def squares(rows: np.ndarray, others: slice | np.ndarray) -> np.ndarray:
        """Return the squared distances from some centered rows to others."""
        found = norms[others] + norms[rows, None] - 2 * (centered[rows] @ centered[others].T)
        return np.asarray(np.maximum(found, 0, out=found))

    while True:
        new = [chosen[run, counts[run] : ends[run]] for run in range(len(rngs))]
        distances = np.split(squares(np.concatenate(new), slice(None)), np.cumsum([len(rows) for rows in new])[:-1])
        for run, rows in enumerate(new):
            for m, row in enumerate(distances[run], int(counts[run])):
                np.copyto(codes[run], m, where=row < nearest[run])
                np.minimum(nearest[run], row, out=nearest[run])
            nearest[run, rows] = 0
        counts[:] = ends
        if (counts == k).all():
            return chosen, codes
        for run, rng in enumerate(rngs):
            if counts[run] == k:
                continue
            weights = np.cumsum(nearest[run], dtype=np.float64)
            if not 0 < weights[-1] < np.inf:  # fewer distinct rows than centers
                chosen[run, counts[run]] = min(int(counts[run]), len(X) - 1)
                ends[run] += 1
                continue
            drawn = np.minimum(np.searchsorted(weights, rng.random(proposals) * weights[-1], side="right"), len(X) - 1)
            apart = squares(drawn, drawn)
            apart[drawn[:, None] == drawn] = 0
            accepted: list[int] = []
            for j, level in enumerate(rng.random(proposals) if proposals > 1 else [0.0]):
                before = float(nearest[run, drawn[j]])
                if proposals == 1 or level * before < min([before, *apart[j, accepted]]):
                    accepted.append(j)
            accepted = accepted[: k - counts[run]]
            ends[run] += len(accepted)
            chosen[run, counts[run] : ends[run]] = drawn[accepted]


def _k_means(starts: list[np.ndarray], X: np.ndarray) -> np.ndarray:
    """Return the cluster of each row, from the k-means start that gives the tightest clusters."""
    mean = X.mean(axis=0)
    X = X - mean
    tightest, best = np.inf, np.zeros(len(X), np.int64)
    for start in starts:
        centers, codes = run_lloyd(X, start - mean)
        spread = float(np.sum((X - centers[codes]) ** 2, dtype=np.float64))
        if spread < tightest:
            tightest, best = spread, codes
    return best


def run_lloyd(X: np.ndarray, centers: np.ndarray, *, least_move: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Run k-means on centered rows; return the centers and the cluster of each row.

    It ends if no row changes its cluster, if the squared moves of all centers add up to at most `least_move`, or after
    scikit-learn's maximum number of iterations. A row is compared with all centers only if they moved so far that
    another center may be nearer (Hamerly, 2010), so that late iterations are cheap. Large inputs use `run_elkan`.
    """
    n, k = len(X), len(centers)
    if k <= X.shape[1] and X.size * k > _MAX_PRODUCTS:
        return run_elkan(X, centers, least_move=least_move)
    norms = np.einsum("ij,ij->i", X, X)
    codes, nearest, second = np.full(n, -1), np.full(n, np.inf, X.dtype), np.zeros(n, X.dtype)
    sums, counts = np.zeros(centers.shape), np.zeros(k)
    numbers, everything = np.arange(k)[:, None], np.arange(n)

    def place(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the nearest center of each row and bound its distances; return the rows that change their cluster."""
        at = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] == len(rows) - 1 else rows  # a view if possible
        scores = lengths / 2 - X[at] @ centers.T
        found, row, own = scores.argmin(axis=1), everything[: len(rows)], norms[at]
        least = scores[row, found]
        scores[row, found] = np.inf
        error = rounding * (own + lengths.max())
        nearest[at] = np.sqrt(np.maximum(own + 2 * least + error, 0))
        second[at] = np.sqrt(np.maximum(own + 2 * scores.min(axis=1) - error, 0))
        (differ,) = (found != codes[at]).nonzero()
        changed, after = rows[differ], found[differ]
        before = codes[changed]
        codes[changed] = after
        return changed, after, before

    rounding = 16 * float(np.finfo(X.dtype).eps)
    for _ in range(_MAX_ITERATIONS):
        lengths = np.einsum("ij,ij->i", centers, centers)
        (unsure,) = (nearest >= second).nonzero()
        if 2 * len(unsure) > n:
            unsure = everything  # comparing all rows is faster than copying most of them
        parts = [unsure[part] for part in blocks(len(unsure), _ROWS_PER_TASK)]
        moved = [part for part in map_in_threads(place, parts, len(parts)) if len(part[0])]
        if not moved:
            break
        for changed, after, before in moved:
            change = (numbers == after).astype(X.dtype)
            change -= numbers == before
            sums += change @ X[changed]
            counts += change.sum(axis=1)
        filled = counts > 0  # an empty cluster keeps its center
        previous, centers = centers, centers.copy()
        centers[filled] = sums[filled] / counts[filled, None]
        steps = centers - previous
        moves = np.sqrt(np.einsum("ij,ij->i", steps, steps))
        farthest = int(moves.argmax())
        others = np.full(k, moves[farthest])  # how far any other center moved, for the rows of each cluster
        others[farthest] = np.max(moves[numbers[:, 0] != farthest], initial=0)
        nearest += moves[codes]
        second -= others[codes]
        if float(moves @ moves) <= least_move:
            break
    return centers, codes


def run_elkan(
    X: np.ndarray, centers: np.ndarray, *, least_move: float = 0.0, nearest_start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Run k-means on centered rows as `run_lloyd` does, with compiled kernels.

    A lower bound of the distance of each row and center (Elkan, 2003) excludes most distances in later iterations. If
    it excludes too few, the products of the rows and all moved centers take less time than the remaining distances.
    `nearest_start` is the nearest of the first centers for each row, if known.
    """
    from isoscope._core import kernels

    n, k = len(X), len(centers)
    X, centers = np.ascontiguousarray(X), centers.astype(X.dtype)
    norms = np.einsum("ij,ij->i", X, X)
    rounding = X.dtype.type(16 * np.finfo(X.dtype).eps)
    slack = 2 * rounding * np.sqrt(norms.max())  # of a bound that is the sum of rounded moves
    codes, nearest, bounds = np.full(n, -1), np.full(n, np.inf, X.dtype), np.empty((n, k), X.dtype)
    sums, counts = np.zeros(centers.shape), np.zeros(k, np.int64)
    moved, moves = np.arange(k), np.zeros(k, X.dtype)

    def place(part: slice) -> None:
        own = codes[part], nearest[part], bounds[part]
        rows = X[part]
        if nearest[part.start] == np.inf:
            for each in blocks(len(rows), _ROWS_PER_PRODUCT):
                products = rows[each] @ centers.T
                kernels.place_rows(products, norms[part][each], lengths, rounding, *(of[each] for of in own))
            return
        unsure = np.empty(len(rows) + 1, np.int64)
        count, pairs = kernels.age_bounds(moves + slack, *own, unsure)
        if count + pairs > _LARGEST_UNSURE_SHARE * len(rows) * len(moved):
            count, some = 0, np.empty(_ROWS_PER_PRODUCT + 1, np.int64)
            for each in blocks(len(rows), _ROWS_PER_PRODUCT):
                products = rows[each] @ centers[moved].T
                more = kernels.refresh_bounds(
                    products, moved, norms[part][each], lengths[moved], rounding, *(of[each] for of in own), some
                )
                unsure[count : count + more] = some[:more] + each.start
                count += more
        kernels.place_unsure_rows(rows, centers, unsure[:count], *own)

    parts = list(blocks(n, _ROWS_PER_TASK))
    for _ in range(_MAX_ITERATIONS):
        before, lengths = codes.copy(), np.einsum("ij,ij->i", centers, centers)
        if nearest_start is None:
            run_all(map_in_threads(place, parts, len(parts)))
        else:
            codes[:], nearest_start = nearest_start, None
        if not kernels.add_changes(X, before, codes, sums, counts):
            break
        changed = before != codes
        touched = np.zeros(k, bool)
        touched[codes[changed]] = True
        touched[before[changed & (before >= 0)]] = True
        moved = np.flatnonzero(touched & (counts > 0))  # an empty cluster keeps its center
        previous = centers[moved]
        centers = centers.copy()
        centers[moved] = sums[moved] / counts[moved, None]
        steps = centers[moved] - previous
        moves = np.zeros(k, X.dtype)
        moves[moved] = np.sqrt(np.einsum("ij,ij->i", steps, steps))
        if float(moves @ moves) <= least_move:
            break
    return centers, codes


def _silhouettes(xp: Any, X: Array, sums: Array, groups: Groups, rounding: float) -> Array:
    """Return the silhouette (b − a)/max(a, b) of each row, from the sums of its distances to the rows of each label."""
    k = len(groups.names)
    own = asarray_like(xp, X, np.arange(k)[None, :] == groups.codes[:, None], xp.bool)
    counts = asarray_like(xp, X, groups.counts[None, :].astype(np.float64), sums.dtype)
    others = asarray_like(xp, X, groups.counts[groups.codes].astype(np.float64), sums.dtype) - 1
    alone = others == 0
    a = xp.sum(xp.where(own, sums, xp.zeros_like(sums)), axis=1) / xp.where(alone, xp.ones_like(others), others)
    b = xp.min(xp.where(own, xp.full_like(sums, xp.inf), sums / counts), axis=1)
    larger = xp.maximum(a, b)
    some = (larger > rounding) & ~alone
    return xp.where(some, (b - a) / xp.where(some, larger, xp.ones_like(larger)), xp.zeros_like(a))


def distance_sums(xp: Any, X: Array, groups: Groups, max_memory: int) -> Array:
    """Return the sum of each row's distances to the rows of each label; differentiable if X carries a gradient.

    With a gradient, points closer than √(64·eps) of their distance from the mean count as equal, because the
    derivative of √ is infinite at 0.
    """
    wide = accumulator_dtype(xp, X)
    if not carries_gradient(X):
        sums = cluster_distances(to_numpy(X), groups.codes, len(groups.names), max_memory=max_memory)
        return asarray_like(xp, X, sums, wide)
    unit = scale_to_safe_range(to_numpy(X))[1]
    X = xp.astype(X, wide) * (1 / unit)
    X = X - xp.mean(X, axis=0)
    norms = xp.sum(X * X, axis=1)
    member = asarray_like(xp, X, np.eye(len(groups.names))[groups.codes], wide)
    rows = []
    for a in blocks(X.shape[0], max(1, max_memory // (8 * X.shape[0]))):
        size = norms[a][:, None] + norms[None, :]
        squared = size - 2 * (X[a, :] @ X.T)
        distinct = squared > 64 * xp.finfo(wide).eps * size
        rows.append(safe_sqrt(xp, xp.where(distinct, squared, xp.zeros_like(squared))) @ member)
    return xp.concat(rows, axis=0) * unit


def _cosine_distance_sums(xp: Any, X: Array, groups: Groups) -> Array:
    """Return the sum of each row's cosine distances to the rows of each label, from the labels' mean unit vectors.

    1 − cos is half the squared chord. The squared chords to a label's rows split into the chord to the label's mean and
    the scatter of the rows around it, so no digits cancel in a narrow cone. A zero row has distance 1 to all others.
    """
    wide = accumulator_dtype(xp, X)
    counts = asarray_like(xp, X, groups.counts, wide)
    member = np.eye(len(groups.names))[groups.codes]

    def units(part: slice) -> Array:
        return unit_rows(xp, X[part, :], wide)

    means = zeros(xp, X, (len(groups.names), X.shape[1]))
    for part in tiles(X):
        means = means + asarray_like(xp, X, member[part].T, wide) @ units(part)
    means = means / counts[:, None]
    within = zeros(xp, X, (len(groups.names),))
    for part in tiles(X):
        step = units(part) - take(xp, means, groups.codes[part])
        within = within + asarray_like(xp, X, member[part].T, wide) @ xp.sum(step * step, axis=1)
    zero = ~nonzero_rows(X)
    zeros_in = asarray_like(xp, X, member[zero].sum(axis=0), wide)
    center = xp.mean(means, axis=0)
    offsets = means - center
    sizes = xp.sum(offsets * offsets, axis=1)
    near = 8 * float(xp.finfo(wide).eps) ** 0.5
    rows = []
    for part in tiles(X):
        u = units(part)
        from_center = u - center
        both = xp.sum(from_center * from_center, axis=1)[:, None] + sizes[None, :]
        chords = both - 2 * (from_center @ offsets.T)
        close = np.flatnonzero(to_numpy(detach(chords <= near * both)).any(axis=0))
        if len(close):  # the subtraction cancels digits
            columns = [chords[:, c] for c in range(len(groups.names))]
            for c in close.tolist():
                columns[c] = xp.sum((u - means[c, :]) ** 2, axis=1)
            chords = xp.stack(columns, axis=1)
        lost = asarray_like(xp, X, zero[part][:, None].astype(float), wide)
        mine = asarray_like(xp, X, member[part], wide)
        rows.append((counts * chords + within + counts * lost + zeros_in) / 2 - mine * lost)
    return xp.concat(rows, axis=0)
