"""Unbiased estimates of the traces of a covariance if rows depend on each other within groups, as tokens of a text do.

Rows of one group may depend on each other; groups are independent. Both traces are averages of a kernel over all
quadruples of rows x₁, x₂, x₃, x₄ from four *different* groups:

    tr(Σ²)  = E[(x₁·x₂)² − 2(x₁·x₂)(x₂·x₃) + (x₁·x₂)(x₃·x₄)]
    (tr Σ)² = E[‖x₁‖²‖x₂‖² − 2‖x₁‖²(x₂·x₃) + (x₁·x₂)(x₃·x₄)]

Every row has the same weight, so the target is the covariance of a random row, and a long text counts for more than a
short one. The estimates do not depend on the origin. With groups of one row they equal `formulas.unbiased_traces`.

Each group contributes its number of rows w, s = Σx, S = Σxxᵀ and ρ = tr S. The sum over quadruples of different groups
follows from sums over single groups by inclusion and exclusion. Those sums are additive, so leaving out some groups
is a subtraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import TILE_BYTES, accumulator_dtype, blocks, take, zeros
from isoscope._core.formulas import Traces

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups

MIN_GROUPS = 4
"""The minimum number of groups for an estimate, because its kernel takes rows from four different groups."""

_JACKKNIFE_SETS = 64  # the number of sets to leave out in turn; with fewer groups, each group is a set


@dataclass(frozen=True)
class GroupSums:
    """Sums over groups; along the first axis, the weights are the powers 0, 1, … of w, a group's number of rows."""

    sizes: np.ndarray  # Σw, Σw², Σw³, Σw⁴
    total: Array  # s: (2, d)
    moment: Array  # S: (3, d, d)
    between: Array  # ssᵀ: (2, d, d)
    moment_total: Array  # Ss: (2, d)
    quadratic_form: Array  # sᵀSs: (2,)
    moment_squared: Array  # tr(S²): (3,)
    trace_squared: Array  # ρ²: (3,)
    trace_total: Array  # ρs: (2, d)
    trace_norm_squared: Array  # ρ‖s‖²: (2,)
    cubic: Array  # ‖s‖²s: (d,)
    quartic: Array  # ‖s‖⁴: ()

    def __add__(self, other: GroupSums) -> GroupSums:
        return GroupSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: GroupSums) -> GroupSums:
        return GroupSums(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def traces(self, xp: Any) -> Traces:
        """Return the unbiased estimates of (tr Σ)² and tr(Σ²)."""
        W, W2, W3, W4 = (float(size) for size in self.sizes)
        quadruples = W**4 - 6 * W**2 * W2 + 3 * W2**2 + 8 * W * W3 - 6 * W4
        (s0, s1), (S0, S1, S2), (B0, B1) = _unstack(self.total), _unstack(self.moment), _unstack(self.between)
        v0, v1 = _unstack(self.moment_total)
        q0, q1 = _unstack(self.quadratic_form)
        F0, F1, F2 = _unstack(self.moment_squared)
        R0, R1, R2 = _unstack(self.trace_squared)
        u0, u1 = _unstack(self.trace_total)
        e0, e1 = _unstack(self.trace_norm_squared)
        t0, t1, t2 = (xp.sum(xp.linalg.diagonal(S)) for S in (S0, S1, S2))
        b0, b1 = (xp.sum(xp.linalg.diagonal(B)) for B in (B0, B1))

        def dot(a: Array, b: Array) -> Array:
            return xp.sum(a * b)

        def pairs(a00: Array, a01: Array, a11: Array, a02: Array, own: tuple[Array, Array, Array]) -> Array:
            """Sum w_c·w_d times a product of values of a and b, over all distinct groups a, b, c and d."""
            return (
                (W**2 - W2) * (a00 - own[0])
                - 4 * W * (a01 - own[1])
                + 2 * (a11 - own[2])
                + 4 * (a02 - own[2])
            )  # fmt: skip

        length = dot(s0, s0)
        both = (  # (x₁·x₂)(x₃·x₄)
            length**2
            - 2 * b0 * length
            - 4 * dot(s0, B0 @ s0)
            + b0**2
            + 2 * dot(B0, B0)
            + 8 * dot(self.cubic, s0)
            - 6 * self.quartic
        )
        chain = (  # (x₁·x₂)(x₂·x₃)
            W * (dot(s0, S0 @ s0) - 2 * dot(s0, v0) - dot(S0, B0) + 2 * q0)
            - 2 * (dot(s1, S0 @ s0) - dot(s0, v1) - dot(s1, v0) - dot(S0, B1) + 2 * q1)
            - (dot(s0, S1 @ s0) - 2 * dot(s0, v1) - dot(S1, B0) + 2 * q1)
        )
        mixed = (  # ‖x₁‖²(x₂·x₃)
            W * (t0 * length - 2 * dot(u0, s0) - t0 * b0 + 2 * e0)
            - (t1 * length - 2 * dot(u1, s0) - t1 * b0 + 2 * e1)
            - 2 * (t0 * dot(s0, s1) - dot(u1, s0) - dot(u0, s1) - t0 * b1 + 2 * e1)
        )
        squares = pairs(dot(S0, S0), dot(S0, S1), dot(S1, S1), dot(S0, S2), (F0, F1, F2))  # (x₁·x₂)²
        lengths = pairs(t0 * t0, t0 * t1, t1 * t1, t0 * t2, (R0, R1, R2))  # ‖x₁‖²‖x₂‖²
        return Traces(
            squared_trace=(lengths - 2 * mixed + both) / quadruples,
            trace_squared=(squares - 2 * chain + both) / quadruples,
        )

    def plug_in(self, xp: Any) -> Array:
        """Return (Σ‖x‖²/n)², which sets the scale of the rounding error in (tr Σ)²."""
        return (xp.sum(xp.linalg.diagonal(self.moment[0, ...])) / float(self.sizes[0])) ** 2


def _unstack(values: Array) -> list[Array]:
    return [values[i, ...] for i in range(values.shape[0])]


def sum_groups(xp: Any, X: Array, center: Array, codes: np.ndarray, counts: np.ndarray) -> GroupSums:
    """Compute the `GroupSums` of rows that are divided into groups.

    Parameters
    ----------
    xp : namespace
        The array namespace of X.
    X : (n, d) array
        One row per vector. Gradients pass through the sums.
    center : (d,) array
        A point near the mean of the rows. The traces do not depend on it, but a point near the mean
        reduces rounding errors.
    codes : (n,) array of int
        The group of each row; rows with −1 are left out.
    counts : (groups,) array of int
        The number of rows of X in each group.
    """
    wide, d = accumulator_dtype(xp, X), X.shape[1]
    sizes = np.zeros(4)
    parts = [zeros(xp, X, shape) for shape in _shapes(d)]
    for width, rows in _iter_by_size(codes, counts, d):
        y = xp.reshape(xp.astype(take(xp, X, rows), wide) - center, (-1, width, d))
        own = _sum_equal_sizes(xp, y)
        w = float(width)
        sizes += len(rows) // width * w ** np.arange(1, 5)
        for i, (value, shape) in enumerate(zip(own, _shapes(d), strict=True)):
            if len(shape) == value.ndim:  # not weighted
                parts[i] = parts[i] + value
            else:
                parts[i] = parts[i] + xp.stack([value * w**power for power in range(shape[0])])
    return GroupSums(sizes, *parts)


def _shapes(d: int) -> list[tuple[int, ...]]:
    return [(2, d), (3, d, d), (2, d, d), (2, d), (2,), (3,), (3,), (2, d), (2,), (d,), ()]


def _sum_equal_sizes(xp: Any, y: Array) -> list[Array]:
    """Return the unweighted sums of a (groups, width, d) array of rows, in the order of the fields."""
    groups, width, d = y.shape
    flat = xp.reshape(y, (-1, d))
    s = xp.sum(y, axis=1)
    along = xp.reshape(xp.matmul(y, s[:, :, None]), (groups, width))  # s·x of each row
    trace = xp.sum(xp.sum(y * y, axis=2), axis=1)
    length = xp.sum(s * s, axis=1)
    if width <= d:
        gram = xp.matmul(y, xp.matrix_transpose(y))
        moment_squared = xp.sum(gram * gram)
    else:
        moments = [y[i, ...].T @ y[i, ...] for i in range(groups)]
        moment_squared = xp.sum(xp.stack([xp.sum(moment * moment) for moment in moments]))
    return [
        xp.sum(s, axis=0),
        flat.T @ flat,
        s.T @ s,
        xp.reshape(along, (-1,)) @ flat,
        xp.sum(along * along),
        moment_squared,
        xp.sum(trace * trace),
        trace @ s,
        xp.sum(trace * length),
        length @ s,
        xp.sum(length * length),
    ]


def _iter_by_size(codes: np.ndarray, counts: np.ndarray, d: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the group size and the row numbers for all groups of one size at a time; rows of a group are adjacent."""
    sizes = np.where(codes >= 0, counts[codes], 0)
    order = np.lexsort((codes, sizes))
    order = order[np.searchsorted(sizes[order], 1) :]
    for width in np.unique(sizes[order]).tolist():
        rows = order[sizes[order] == width]
        tile = max(
            1, TILE_BYTES // (8 * width * (min(width, d) + d))
        )  # the number of groups whose rows and products fit in a tile
        for part in blocks(len(rows) // width, tile):
            yield width, rows[part.start * width : part.stop * width]


def jackknife_blocks(groups: Groups) -> Iterator[np.ndarray]:
    """Yield arrays of codes for `sum_groups`; each array keeps one group, or one of 64 random sets of groups."""
    count = len(groups.counts)
    sets = np.random.default_rng(0).permutation(count) % min(count, _JACKKNIFE_SETS)
    for one in range(min(count, _JACKKNIFE_SETS)):
        yield np.where(sets[groups.codes] == one, groups.codes, -1)


def moments_to_sums(counts: np.ndarray, totals: np.ndarray, moments: np.ndarray) -> list[GroupSums]:
    """Compute the `GroupSums` of each group from its n, Σx and Σxxᵀ."""
    sums = []
    for n, s, S in zip(counts.astype(float).tolist(), totals, moments, strict=True):
        trace, length, pulled = np.trace(S), s @ s, S @ s
        own = [s, S, np.outer(s, s), pulled, s @ pulled, np.sum(S * S), trace**2, trace * s, trace * length]
        weighted = [
            np.stack([value * n**power for power in range(shape[0])])
            for value, shape in zip(own, _shapes(len(s)), strict=False)
        ]
        sums.append(GroupSums(n ** np.arange(1, 5), *[*weighted, length * s, length**2]))
    return sums
