"""Cosine similarity over all pairs of rows, computed in one pass over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import (
    accumulator_dtype,
    asarray_like,
    cast_result,
    check_integer,
    check_points,
    encode_labels,
    take,
    tiles,
    unit_rows,
    zeros,
)
from isoscope._core.errors import ParameterError, TooFewRowsError
from isoscope._core.random import check_seed

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups
    from isoscope._core.types import Average, Seed


def mean_cosine(X: Array) -> Array:
    """Return the mean cosine similarity of all pairs of rows: near 0 if directions vary, 1 if all directions are equal.

    The value is exact and takes one pass: (‖Σu‖² − Σ‖u‖²)/(n(n−1)), where u are the unit vectors. A zero vector has no
    direction; its cosine with every other vector counts as 0, as in scikit-learn.

    Parameters
    ----------
    X : (n, d) array
        One row per vector, n ≥ 2.

    Examples
    --------
    >>> import isoscope
    >>> round(float(isoscope.mean_cosine([[1, 0], [0, 2], [3, 3]])), 4)
    0.4714
    """
    xp, X = check_points(X, min_dims=1)
    total, squares = _unit_sums(xp, X)
    return cast_result(xp, X, xp.sum(formulas.mean_cosine(X.shape[0], total, squares)))


def cosine_contribution(X: Array) -> Array:
    """Return the contribution of each dimension to the mean cosine; a few large ones are rogue dimensions.

    The contributions sum to `mean_cosine(X)`. Divide by it to get the shares of Timkey and van Schijndel.

    Parameters
    ----------
    X : (n, d) array
        One row per vector, n ≥ 2.

    Returns
    -------
    (d,) array

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((500, 8)); X[:, 3] += 9
    >>> share = isoscope.cosine_contribution(X) / isoscope.mean_cosine(X)
    >>> int(share.argmax()), bool(share[3] > 0.99)
    (3, True)

    References
    ----------
    Timkey and van Schijndel, All bark and no bite, 2021.
    """
    xp, X = check_points(X, min_dims=1)
    return cast_result(xp, X, formulas.mean_cosine(X.shape[0], *_unit_sums(xp, X)))


def intra_similarity(
    X: Array, types: Array, *, per_type_cap: int | None = None, seed: Seed = 0, clustered: Array | None = None
) -> Array:
    """Return S_intra, the mean cosine of rows of the same type, averaged over the types with at least two rows.

    Parameters
    ----------
    X : (n, d) array
        One row per instance, such as the hidden state of a token.
    types : (n,) labels
        The type of each row, such as the token's id.
    per_type_cap : int, optional
        Use at most this many random instances per type (the paper uses 1000). By default, use all of them.
    seed : int
        Random seed for choosing those instances.
    clustered : (n,) labels, optional
        The cluster of each row. Subtracts each cluster's mean, measures within each cluster, and averages over the
        clusters.

    Examples
    --------
    >>> import isoscope
    >>> X = [[1, 0], [1, 0], [0, 1], [0, -1], [5, 5]]
    >>> float(isoscope.intra_similarity(X, ["cat", "cat", "dog", "dog", "eel"]))
    0.0

    References
    ----------
    Cai et al., Isotropy in the contextual embedding space: clusters and manifolds, 2021.
    """
    return _similarity(X, types, "intra", per_type_cap, seed, clustered, "instances")


def inter_similarity(
    X: Array,
    types: Array,
    *,
    average: Average = "instances",
    per_type_cap: int | None = None,
    seed: Seed = 0,
    clustered: Array | None = None,
) -> Array:
    """Return S_inter, the mean cosine of rows of different types: high if all vectors point in a similar direction.

    Parameters
    ----------
    X : (n, d) array
        One row per instance.
    types : (n,) labels
        The type of each row; at least two types.
    average : {"instances", "types"}
        "instances" averages over all pairs of rows of different types, so frequent types weigh more. "types" averages
        over all pairs of types; the paper estimates this value by drawing one random instance per type.
    per_type_cap : int, optional
        Use at most this many random instances per type (the paper uses 1). By default, use all of them.
    seed : int
        Random seed for choosing those instances.
    clustered : (n,) labels, optional
        The cluster of each row. Subtracts each cluster's mean, measures within each cluster, and averages over the
        clusters that contain at least two types.

    Examples
    --------
    >>> import isoscope
    >>> X = [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> float(isoscope.inter_similarity(X, ["cat", "dog", "cat", "dog"]))
    0.5

    References
    ----------
    Cai et al., Isotropy in the contextual embedding space: clusters and manifolds, 2021.
    """
    if average not in ("instances", "types"):
        raise ParameterError(f'average is {average!r}: need "instances" or "types"')
    return _similarity(X, types, "inter", per_type_cap, seed, clustered, average)


def _similarity(
    X: Array, types: Array, which: str, per_type_cap: int | None, seed: Seed, clustered: Array | None, average: str
) -> Array:
    xp, X = check_points(X, min_dims=1)
    n = X.shape[0]
    kinds = encode_labels(types, n, name="types")
    clusters = None if clustered is None else encode_labels(clustered, n, name="clustered")
    if per_type_cap is not None:
        if check_integer(per_type_cap, "per_type_cap") < 1:
            raise ParameterError(f"per_type_cap is {per_type_cap}: need at least 1 instance per type")
        kept = _sample_per_type(kinds, per_type_cap, seed)
        X, kinds = take(xp, X, kept), encode_labels(kinds.codes[kept], len(kept))
        clusters = None if clusters is None else encode_labels(clusters.codes[kept], len(kept))
    if clusters is None:
        value = _type_similarity(xp, X, kinds, which, average)
        if value is None:
            raise TooFewRowsError(
                f"types has {len(kinds.names)} distinct values for {n} rows: "
                + ("need a type with at least two rows" if which == "intra" else "need at least two types")
            )
        return cast_result(xp, X, value)

    values: list[Array] = []
    for c in range(len(clusters.names)):
        rows = np.flatnonzero(clusters.codes == c)
        part = xp.astype(take(xp, X, rows), accumulator_dtype(xp, X))
        part = part - xp.mean(part, axis=0)
        value = _type_similarity(xp, part, encode_labels(kinds.codes[rows], len(rows)), which, average)
        if value is not None:
            values.append(value)
    if not values:
        needed = "two rows of one type" if which == "intra" else "two types"
        raise TooFewRowsError(f"no cluster contains {needed}: use larger clusters")
    return cast_result(xp, X, xp.mean(xp.stack(values)))


def _type_similarity(xp: Any, X: Array, kinds: Groups, which: str, average: str) -> Array | None:
    """Return S_intra or S_inter, or None if there is no pair of rows to compare."""
    if (which == "intra" and kinds.counts.max() < 2) or (which == "inter" and len(kinds.names) < 2):
        return None
    sums, squares = _type_sums(xp, X, kinds)
    counts = asarray_like(xp, X, kinds.counts, sums.dtype)
    if which == "intra":
        return formulas.intra_similarity(xp, counts, sums, squares)
    return formulas.inter_similarity(xp, counts, sums, average)


def _unit_sums(xp: Any, X: Array) -> tuple[Array, Array]:
    """Return Σu and Σu² for each dimension, where u runs over the unit vectors."""
    wide = accumulator_dtype(xp, X)
    total = squares = zeros(xp, X, (X.shape[1],))
    for part in tiles(X, nbytes=2**20):
        u = unit_rows(xp, X[part, :], wide)
        total = total + xp.sum(u, axis=0)
        squares = squares + xp.sum(u * u, axis=0)
    return total, squares


def _type_sums(xp: Any, X: Array, kinds: Groups) -> tuple[Array, Array]:
    """Return Σu and Σ‖u‖² for each type, in the order of the types.

    Rows are sorted by type. The cumulative sum of a tile, read where each type ends, gives the sums by difference. The
    sum of a type that continues in the next tile is carried over.
    """
    order = np.argsort(kinds.codes, kind="stable")
    codes = kinds.codes[order]
    wide = accumulator_dtype(xp, X)
    done: list[Array] = []
    carry: Array | None = None
    for part in tiles(X, nbytes=2**22):
        u = unit_rows(xp, take(xp, X, order[part]), wide)
        rows = xp.concat([u, xp.sum(u * u, axis=1, keepdims=True)], axis=1)  # ‖u‖² as the last column
        ends = np.flatnonzero(np.diff(codes[part], append=-1))
        running = take(xp, xp.cumulative_sum(rows, axis=0), ends)
        sums = xp.concat([running[:1, :], running[1:, :] - running[:-1, :]], axis=0)
        if carry is not None and codes[part.start] == codes[part.start - 1]:
            sums = xp.concat([sums[:1, :] + carry, sums[1:, :]], axis=0)
        elif carry is not None:
            done.append(carry)
        done.append(sums[:-1, :])
        carry = sums[-1:, :]
    sums = xp.concat([*done, carry], axis=0)
    return sums[:, :-1], sums[:, -1]


def _sample_per_type(kinds: Groups, cap: int, seed: Seed) -> np.ndarray:
    """Return the row numbers of at most `cap` random instances of each type, in ascending order."""
    shuffled = np.random.default_rng(check_seed(seed)).permutation(len(kinds.codes))
    shuffled = shuffled[np.argsort(kinds.codes[shuffled], kind="stable")]
    rank = np.arange(len(shuffled)) - np.repeat(np.cumsum(kinds.counts) - kinds.counts, kinds.counts)
    return np.sort(shuffled[rank < cap])
