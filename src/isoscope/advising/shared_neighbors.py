"""Nearest neighbors after each of several repairs, computed from shared matrix products.

Most repairs subtract from each row b a vector of few directions: a mean, or components of the row. If y = b − Dᵀc, with
r coefficients c, then y·y' = b·b' + c·e' + e·c' with e = DDᵀc/2 − Db. So the products of b serve all such repairs.
Whitening to more components adds products to those of fewer components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isoscope._core.arrays import nonzero_rows
from isoscope._core.pairs import most_similar_others, scale_to_safe_range
from isoscope.transforms.affine import AllButTheTop, Center, Standardize, Whiten
from isoscope.transforms.chain import Chain
from isoscope.transforms.clustered import ClusterCenter, ClusterNull
from isoscope.transforms.maps import split_float32, subtract

if TYPE_CHECKING:
    from isoscope._core.types import Metric
    from isoscope.transforms.repair import Repair

_LARGEST_RANK = 0.25  # number of subtracted directions, relative to the dimensions; with more, sharing is not faster
_LARGEST_LOSS = 64.0  # largest quotient of a row's squared lengths before and after, so that few digits cancel


class _Variant(NamedTuple):
    """One repair; its products are those of its layer plus `left @ right.T`."""

    position: int
    squares: np.ndarray
    """The squared length of each repaired row."""
    left: np.ndarray | None = None
    right: np.ndarray | None = None


class _Layer(NamedTuple):
    """Rows whose products are added to those of earlier layers, and the repairs whose products are then complete."""

    rows: np.ndarray
    variants: list[_Variant]


def find_shared_neighbors(
    X: np.ndarray, mean: np.ndarray, repairs: Sequence[Repair], k: int, metric: Metric
) -> dict[int, np.ndarray]:
    """Return the k nearest other rows of each row after each repair, by the position of the repair.

    All repairs must be fitted to the same vectors, whose mean is `mean`. Repairs that share no products, or that would
    lose digits by sharing, are missing from the result.
    """
    nonzero = nonzero_rows(X)
    if metric == "euclidean" and not nonzero.all():
        return {}  # repairs leave rows of zeros unchanged, so another formula holds for them
    found: dict[int, np.ndarray] = {}
    for family in _find_families(X, mean, repairs, nonzero, metric):
        variants = [variant for layer in family for variant in layer.variants]
        if len(variants) > 1:
            lists = _search(family, nonzero, min(k, len(X) - 1), metric)
            found.update(zip((variant.position for variant in variants), lists, strict=True))
    return found


def _find_families(
    X: np.ndarray, mean: np.ndarray, repairs: Sequence[Repair], nonzero: np.ndarray, metric: Metric
) -> Iterator[list[_Layer]]:
    """Yield the layers of each group of repairs that share products."""
    plain: list[tuple[int, Repair | None]] = []
    standardized: list[tuple[int, Repair | None]] = []
    whitened: dict[float, list[tuple[int, Whiten]]] = {}
    for i, repair in enumerate(repairs):
        first, *rest = repair.steps_ or [None] if type(repair) is Chain else [repair]
        if type(first) is Whiten and not rest:
            whitened.setdefault(first.shrinkage_, []).append((i, first))
        elif type(first) is Standardize and [type(step) for step in rest] in ([], [AllButTheTop]):
            standardized.append((i, rest[0] if rest else None))
            standardize = first
        elif (first is None or type(first) in (Center, AllButTheTop, ClusterCenter, ClusterNull)) and not rest:
            plain.append((i, first))
    if len(plain) > 1:
        yield [_subtracting_layer(X, _subtract_mean(X, mean), mean, plain, nonzero, metric)]
    if len(standardized) > 1:
        rows = np.asarray(standardize.transform(X))
        yield [_subtracting_layer(X, rows, np.zeros(len(mean)), standardized, nonzero, metric)]
    for members in whitened.values():
        if len(members) > 1:
            yield _whitening_layers(_subtract_mean(X, mean), members)


def _subtract_mean(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return np.asarray(subtract(np, X, split_float32(mean) if X.dtype == np.float32 else [mean]))


def _subtracting_layer(
    X: np.ndarray,
    rows: np.ndarray,
    mean: np.ndarray,
    members: list[tuple[int, Repair | None]],
    nonzero: np.ndarray,
    metric: Metric,
) -> _Layer:
    """Return the layer of repairs that subtract few directions; `rows` are the rows of X minus the mean."""
    rows, unit = scale_to_safe_range(rows)
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    variants = []
    for position, repair in members:
        coefficients, directions = _subtracted_part(repair, X, rows, mean, unit, metric)
        if len(directions) > _LARGEST_RANK * rows.shape[1]:
            continue
        C, D = coefficients.astype(rows.dtype), directions.astype(rows.dtype)
        E = C @ ((directions @ directions.T) / 2).astype(rows.dtype) - rows @ D.T
        own = squares + 2 * np.einsum("ij,ij->i", C, E, dtype=np.float64)
        if (squares <= _LARGEST_LOSS * own)[nonzero].all():
            variants.append(_Variant(position, own, np.hstack([C, E]), np.hstack([E, C])))
    return _Layer(rows, variants)


def _subtracted_part(
    repair: Repair | None, X: np.ndarray, rows: np.ndarray, mean: np.ndarray, unit: float, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients (n, r) and the directions (r, d) of what a repair subtracts from centered rows.

    A row of cluster c loses the shift δ of its cluster and the part of the rest along the cluster's components. No
    repair (None) adds the mean again, which does not change distances.
    """
    codes, shifts, components = np.zeros(len(X), np.int64), np.zeros((1, X.shape[1])), np.zeros((1, 0, X.shape[1]))
    if isinstance(repair, ClusterCenter):
        codes, shifts = repair.predict(X), repair.means_ - mean
        components = repair.components_ if isinstance(repair, ClusterNull) else components.repeat(len(shifts), axis=0)
    elif isinstance(repair, Center | AllButTheTop):
        shifts = repair.mean_[None] - mean
        components = repair.components_[None] if isinstance(repair, AllButTheTop) else components
    elif metric == "cosine":
        shifts = -mean[None]
    shifts = shifts / unit
    clusters, k = components.shape[:2]
    coefficients = np.zeros((len(X), clusters, 1 + k))
    for c in range(clusters):
        at = np.flatnonzero(codes == c)
        coefficients[at, c, 0] = 1
        coefficients[at, c, 1:] = (rows[at] - shifts[c].astype(rows.dtype)) @ components[c].T.astype(rows.dtype)
    directions = np.concatenate([shifts[:, None], components], axis=1).reshape(-1, X.shape[1])
    used = directions.any(axis=1)
    return coefficients.reshape(len(X), -1)[:, used], directions[used]


def _whitening_layers(rows: np.ndarray, members: list[tuple[int, Whiten]]) -> list[_Layer]:
    """Return a layer for each number of components; `rows` are centered."""
    widest = max((repair for _, repair in members), key=lambda repair: len(repair.weights_))
    whitened = rows @ (widest.components_.T * widest.weights_).astype(rows.dtype)
    layers, squares, start = [], np.zeros(len(rows)), 0
    for size in sorted({len(repair.weights_) for _, repair in members}):
        part = np.ascontiguousarray(whitened[:, start:size])
        squares = squares + np.einsum("ij,ij->i", part, part, dtype=np.float64)
        variants = [_Variant(position, squares) for position, repair in members if len(repair.weights_) == size]
        layers.append(_Layer(part, variants))
        start = size
    return layers


def _search(family: list[_Layer], nonzero: np.ndarray, k: int, metric: Metric) -> list[np.ndarray]:
    """Return the k nearest other rows of each row for each variant of a family."""
    dtype = family[0].rows.dtype
    squares = [variant.squares for layer in family for variant in layer.variants]
    # a row of zeros stays zero, and so does a row that a repair maps to zero
    scales = [(np.where(nonzero & (own > 0), own, np.inf) ** -0.5).astype(dtype) for own in squares]
    offsets = [(own / 2 if metric == "euclidean" else np.zeros(len(own))).astype(dtype) for own in squares]

    def products(a: slice, b: slice) -> Iterator[np.ndarray]:
        shared: np.ndarray | None = None
        scale = iter(scales)
        for layer in family:
            more = layer.rows[a] @ layer.rows[b].T
            shared = more if shared is None else np.add(shared, more, out=shared)
            for variant in layer.variants:
                tile = shared
                if variant.left is not None and variant.right is not None and variant.left.shape[1]:
                    tile = variant.left[a] @ variant.right[b].T
                    tile += shared
                if metric == "cosine":
                    own = next(scale)
                    tile = tile * own[b]
                    tile *= own[a, None]
                yield tile

    return most_similar_others(products, offsets, k)
