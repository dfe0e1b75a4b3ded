"""How alike the directions of a cloud are: cosines over all pairs, without visiting the pairs."""

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
from isoscope._core.errors import InputError

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups


def mean_cosine(X: Any) -> Array:
    """The mean cosine of all pairs of different rows: near 0 in a round cloud, near 1 in a narrow cone.

    Exact, in one pass: (‖Σu‖² − Σ‖u‖²)/(n(n−1)) with u the unit vectors. A zero vector has no direction and counts
    with cosine 0 to everything, as in scikit-learn.

    Examples
    --------
    >>> import isoscope
    >>> round(float(isoscope.mean_cosine([[1, 0], [0, 2], [3, 3]])), 4)
    0.4714
    """
    xp, X = check_points(X, min_dims=1)
    total, squares = _unit_sums(xp, X)
    return cast_result(xp, X, xp.sum(formulas.mean_cosine(X.shape[0], total, squares)))


def cosine_contribution(X: Any) -> Array:
    """What each coordinate adds to the mean cosine: a few large entries are rogue dimensions that rule the similarity.

    The contributions sum to `mean_cosine(X)`; divide by it for the shares of Timkey and van Schijndel.

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
    X: Any, types: Any, *, per_type_cap: int | None = None, seed: int = 0, clustered: Any = None
) -> Array:
    """S_intra: how alike the instances of one type are, averaged over the types that have at least two.

    Parameters
    ----------
    X : (n, d) array
        One row for each instance, such as a token's state.
    types : (n,) labels
        What each row is an instance of, such as the token's id.
    per_type_cap : int, optional
        Take at most so many random instances of a type (the paper takes 1000). All, exactly, by default.
    seed : int
        For that choice.
    clustered : (n,) labels, optional
        Take each cluster's mean out of its rows, measure inside each cluster and average over the clusters.

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
    X: Any,
    types: Any,
    *,
    average: str = "instances",
    per_type_cap: int | None = None,
    seed: int = 0,
    clustered: Any = None,
) -> Array:
    """S_inter: how alike instances of different types are; high in a space whose vectors all point one way.

    Parameters
    ----------
    X : (n, d) array
        One row for each instance.
    types : (n,) labels
        What each row is an instance of; at least two types.
    average : {"instances", "types"}
        Over all pairs of rows of different types, where frequent types weigh more; or over all pairs of types, which
        is exactly what the paper's draw of one instance a type estimates.
    per_type_cap : int, optional
        Take at most so many random instances of a type (the paper takes 1). All, exactly, by default.
    seed : int
        For that choice.
    clustered : (n,) labels, optional
        Take each cluster's mean out of its rows, measure inside each cluster and average over the clusters that hold
        at least two types.

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
        raise InputError(f'average is {average!r}: need "instances" or "types"')
    return _similarity(X, types, "inter", per_type_cap, seed, clustered, average)


def _similarity(
    X: Any, types: Any, which: str, per_type_cap: int | None, seed: int, clustered: Any, average: str
) -> Array:
    xp, X = check_points(X, min_dims=1)
    n = X.shape[0]
    found = encode_labels(types, n, name="types")
    clusters = None if clustered is None else encode_labels(clustered, n, name="clustered")
    if per_type_cap is not None:
        if check_integer(per_type_cap, "per_type_cap") < 1:
            raise InputError(f"per_type_cap is {per_type_cap}: need at least 1 instance of a type")
        kept = _sample_per_type(found, per_type_cap, seed)
        X, found = take(xp, X, kept), encode_labels(found.codes[kept], len(kept))
        clusters = None if clusters is None else encode_labels(clusters.codes[kept], len(kept))
    if clusters is None:
        value = _type_similarity(xp, X, found, which, average)
        if value is None:
            raise InputError(
                f"types has {len(found.names)} different values for {n} rows: "
                + ("need a type with two rows at least" if which == "intra" else "need two types at least")
            )
        return cast_result(xp, X, value)

    values: list[Array] = []
    for c in range(len(clusters.names)):
        rows = np.flatnonzero(clusters.codes == c)
        part = xp.astype(take(xp, X, rows), accumulator_dtype(xp, X))
        part = part - xp.mean(part, axis=0)
        value = _type_similarity(xp, part, encode_labels(found.codes[rows], len(rows)), which, average)
        if value is not None:
            values.append(value)
    if not values:
        raise InputError(
            "no cluster holds what is compared: " + ("two rows of a type" if which == "intra" else "two types")
        )
    return cast_result(xp, X, xp.mean(xp.stack(values)))


def _type_similarity(xp: Any, X: Array, found: Groups, which: str, average: str) -> Array | None:
    """S_intra or S_inter by the sums of each type, or None where there is nothing to compare."""
    if (which == "intra" and found.counts.max() < 2) or (which == "inter" and len(found.names) < 2):
        return None
    sums, squares = _type_sums(xp, X, found)
    counts = asarray_like(xp, X, found.counts, sums.dtype)
    if which == "intra":
        return formulas.intra_similarity(xp, counts, sums, squares)
    return formulas.inter_similarity(xp, counts, sums, average)


def _unit_sums(xp: Any, X: Array) -> tuple[Array, Array]:
    """Σu and Σu² of each coordinate."""
    wide = accumulator_dtype(xp, X)
    total = squares = zeros(xp, X, (X.shape[1],))
    for part in tiles(X, nbytes=2**20):
        u = unit_rows(xp, X[part, :], wide)
        total = total + xp.sum(u, axis=0)
        squares = squares + xp.sum(u * u, axis=0)
    return total, squares


def _type_sums(xp: Any, X: Array, found: Groups) -> tuple[Array, Array]:
    """Σu and Σ‖u‖² of each type, in the types' order.

    Rows are visited type by type; a tile's running sum, read where its types end, gives the sums by difference. A type
    that goes on in the next tile is carried over.
    """
    order = np.argsort(found.codes, kind="stable")
    codes = found.codes[order]
    wide = accumulator_dtype(xp, X)
    done: list[Array] = []
    carry: Array | None = None
    for part in tiles(X, nbytes=2**22):
        u = unit_rows(xp, take(xp, X, order[part]), wide)
        rows = xp.concat([u, xp.sum(u * u, axis=1, keepdims=True)], axis=1)  # ‖u‖² rides along as a last column
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


def _sample_per_type(found: Groups, cap: int, seed: int) -> np.ndarray:
    """The rows of at most `cap` random instances of each type, in order."""
    shuffled = np.random.default_rng(seed).permutation(len(found.codes))
    shuffled = shuffled[np.argsort(found.codes[shuffled], kind="stable")]
    rank = np.arange(len(shuffled)) - np.repeat(np.cumsum(found.counts) - found.counts, found.counts)
    return np.sort(shuffled[rank < cap])
