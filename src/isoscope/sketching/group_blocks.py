"""Sums over a few blocks of groups in a sketch, for estimates and intervals that are valid for dependent rows.

A hash of the group's name determines its block, so sketches of different parts agree on it: the rows of a group may be
in any number of parts, and addition is associative and commutative. Up to 20 groups get one block each. With more
groups, blocks of neighboring hashes are merged until at most 20 remain. Rows of different blocks belong to different
groups, so the estimates of `isoscope._core.grouped_traces` also hold with blocks in place of groups.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import unit_rows
from isoscope._core.errors import TooFewRowsError
from isoscope._core.formulas import jackknife_error
from isoscope._core.grouped_traces import MIN_GROUPS, moments_to_sums
from isoscope.sketching.parts import RowCounts

if TYPE_CHECKING:
    from isoscope._core.arrays import Groups
    from isoscope._core.formulas import Traces
    from isoscope._core.grouped_traces import GroupSums

MAX_BLOCKS = 20
"""The largest number of blocks."""
MIN_BLOCKS = 8
"""The largest number of blocks for vectors of very many dimensions."""

_BLOCK_BYTES = 160 * 2**20  # the memory for scatter matrices above which fewer blocks are kept


def max_blocks(d: int, sketches: int = 1) -> int:
    """Return the maximum number of blocks per sketch: 20, or fewer if 20 would take too much memory."""
    return max(MIN_BLOCKS, min(MAX_BLOCKS, _BLOCK_BYTES // (8 * d * d * sketches)))


def hash_names(names: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each name; 3 and 3.0 are the same name, but "3" is a different one."""
    plain = [int(name) if isinstance(name, float) and name.is_integer() else name for name in names.tolist()]
    digests = (hashlib.blake2b(repr(name).encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in plain)
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


@dataclass(frozen=True)
class GroupBlocks:
    """The sums for each block of groups, in the order of the blocks' keys."""

    keys: np.ndarray
    """The first `bits` bits of the group hashes, which all groups in a block share."""
    bits: int
    most: int
    counts: np.ndarray
    means: np.ndarray
    scatters: np.ndarray
    """The scatter matrices Σ(x−x̄)(x−x̄)ᵀ about each block's mean, a (blocks, d, d) array."""
    unit_sums: np.ndarray
    unit_squares: np.ndarray
    names: RowCounts
    """The counts of distinct groups."""

    @classmethod
    def of(cls, X: np.ndarray, groups: Groups, most: int) -> GroupBlocks:
        """Return the sums of the finite rows, with the groups merged into at most `most` blocks."""
        hashes = hash_names(groups.names)
        bits, keys, codes = _shorten_keys(hashes, 64, most)
        own = codes[groups.codes]
        blocks, d = len(keys), X.shape[1]
        counts = np.bincount(own, minlength=blocks)
        means, scatters = np.empty((blocks, d)), np.empty((blocks, d, d))
        unit_sums, unit_squares = np.empty((blocks, d)), np.empty(blocks)
        for block in range(blocks):
            rows = X[own == block].astype(np.float64)
            units = unit_rows(np, rows, rows.dtype)
            unit_sums[block], unit_squares[block] = units.sum(axis=0), np.sum(units * units)
            first = rows[0].copy()  # subtracted, so that a large mean costs no precision
            rows -= first
            shift = rows.mean(axis=0)
            rows -= shift
            means[block] = first + shift
            with np.errstate(over="ignore", invalid="ignore"):
                scatters[block] = rows.T @ rows
        return cls(keys, bits, most, counts, means, scatters, unit_sums, unit_squares, RowCounts.of(hashes))

    def __add__(self, other: GroupBlocks) -> GroupBlocks:
        most = min(self.most, other.most)
        bits = min(self.bits, other.bits)
        pieces = (self, other)
        shortened = np.concatenate([_first_bits(piece.keys, piece.bits, bits) for piece in pieces])
        fewer, keys, codes = _shorten_keys(shortened, bits, most)

        def both(name: str) -> np.ndarray:
            return np.concatenate([getattr(piece, name) for piece in pieces])

        counts, means, scatters = _merge_moments(codes, len(keys), both("counts"), both("means"), both("scatters"))
        return GroupBlocks(
            keys=keys,
            bits=fewer,
            most=most,
            counts=counts,
            means=means,
            scatters=scatters,
            unit_sums=_sum_by_block(codes, len(keys), both("unit_sums")),
            unit_squares=_sum_by_block(codes, len(keys), both("unit_squares")),
            names=self.names + other.names,
        )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def groups(self) -> int:
        """The number of distinct groups; it is estimated if there are more than 65,536."""
        return len(self.names.hashes) << self.names.level

    @property
    def can_estimate(self) -> bool:
        """Whether there are enough groups for an estimate with an interval."""
        return len(self) > MIN_GROUPS

    def traces(self, mean: np.ndarray, unit: float) -> Traces:
        """Return the unbiased traces of the covariance divided by `unit`; `mean` is the mean of all rows."""
        if len(self) < MIN_GROUPS:
            raise TooFewRowsError(
                f"the sketch has {self.groups} groups: need at least {MIN_GROUPS}, because the estimate compares rows "
                "from different groups"
            )
        return self._total(mean, unit).traces(np)

    def left_out(self, mean: np.ndarray, unit: float) -> list[Traces]:
        """Return the unbiased traces obtained by leaving out each block in turn, for the jackknife."""
        total = self._total(mean, unit)
        return [(total - self._sums(block, mean, unit)).traces(np) for block in range(len(self))]

    def _total(self, mean: np.ndarray, unit: float) -> GroupSums:
        total = self._sums(0, mean, unit)
        for block in range(1, len(self)):
            total = total + self._sums(block, mean, unit)
        return total

    def _sums(self, block: int, mean: np.ndarray, unit: float) -> GroupSums:
        n = self.counts[block : block + 1]
        gap = (self.means[block] - mean) / unit**0.5
        moment = self.scatters[block] / unit + n[0] * np.outer(gap, gap)
        return moments_to_sums(n, n[:, None] * gap[None, :], moment[None])[0]

    def mean_cosine_error(self) -> float:
        """Return the standard error of the mean cosine, by a jackknife over blocks."""
        n, total, squares = self.counts.sum(), self.unit_sums.sum(axis=0), self.unit_squares.sum()
        left = n - self.counts
        values = (np.sum((total - self.unit_sums) ** 2, axis=1) - (squares - self.unit_squares)) / (left * (left - 1.0))
        return jackknife_error(values)

    def moments_about(self, point: np.ndarray, block: int) -> np.ndarray:
        """Return Σ(x−p)(x−p)ᵀ over the rows x of a block, where p is `point`."""
        gap = self.means[block] - point
        return np.asarray(self.scatters[block] + self.counts[block] * np.outer(gap, gap))

    # saving and loading

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return own | {"names.hashes": self.names.hashes, "names.counts": self.names.counts}

    def numbers(self) -> dict[str, int]:
        """Return the numbers to save."""
        return {"bits": self.bits, "most": self.most, "names.level": self.names.level, "names.total": self.names.total}

    @classmethod
    def load(cls, tensors: dict[str, np.ndarray], numbers: dict[str, Any]) -> GroupBlocks:
        """Rebuild the blocks from their `tensors` and `numbers`."""
        values: dict[str, Any] = {**tensors, **numbers}
        names = RowCounts(*(values.pop(f"names.{name}") for name in ("hashes", "counts", "total", "level")))
        return cls(names=names, **values)

    def fits(self, d: int) -> bool:
        """Return whether all arrays have the same number of blocks and d dimensions."""
        k = len(self.keys)
        flat = {self.keys.shape, self.counts.shape, self.unit_squares.shape}
        names = {self.names.hashes.shape, self.names.counts.shape} == {(len(self.names.hashes),)}
        return (
            names
            and flat == {(k,)}
            and self.means.shape == self.unit_sums.shape == (k, d)
            and self.scatters.shape == (k, d, d)
        )


def _first_bits(keys: np.ndarray, bits: int, fewer: int) -> np.ndarray:
    """Return the first `fewer` bits of keys that have `bits` bits."""
    return np.zeros_like(keys) if fewer == 0 else keys >> np.uint64(bits - fewer)


def _shorten_keys(keys: np.ndarray, bits: int, most: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Shorten keys until at most `most` are distinct; return the number of bits, the distinct keys and the indices."""
    different, codes = np.unique(keys, return_inverse=True)
    fewer = bits
    while len(np.unique(_first_bits(different, bits, fewer))) > most:
        fewer -= 1
    shortened, indices = np.unique(_first_bits(different, bits, fewer), return_inverse=True)
    return fewer, shortened, indices[codes]


def _sum_by_block(codes: np.ndarray, blocks: int, values: np.ndarray) -> np.ndarray:
    total = np.zeros((blocks, *values.shape[1:]), values.dtype)
    np.add.at(total, codes, values)
    return total


def _merge_moments(
    codes: np.ndarray, blocks: int, counts: np.ndarray, means: np.ndarray, scatters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge the moments of the pieces of each block."""
    joined_counts = np.zeros(blocks, counts.dtype)
    joined_means, joined = np.zeros((blocks, means.shape[1])), np.zeros((blocks, *scatters.shape[1:]))
    for piece, block in enumerate(codes.tolist()):
        n = joined_counts[block] + counts[piece]
        gap = means[piece] - joined_means[block]
        with np.errstate(over="ignore", invalid="ignore"):
            joined[block] += scatters[piece]
            if joined_counts[block]:
                joined[block] += np.outer(gap, gap * (joined_counts[block] * counts[piece] / n))
        joined_means[block] = joined_means[block] + gap * (counts[piece] / n) if joined_counts[block] else means[piece]
        joined_counts[block] = n
    return joined_counts, joined_means, joined
