"""Mean cosines within and across token types, from sums of unit vectors per type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import to_numpy
from isoscope._core.errors import ParameterError


@dataclass(frozen=True)
class TypeCosines:
    """S_inter, S_intra and the number of rows per type."""

    names: np.ndarray
    counts: np.ndarray
    rows: int
    """The number of rows."""
    inter: float
    """The mean cosine of rows of different types; NaN if there is only one type."""
    intra: float
    """The mean over types of the mean cosine within the type; NaN if no type has two rows."""
    each: np.ndarray
    """The mean cosine within each type that has at least two rows."""

    @classmethod
    def of(cls, vectors: np.ndarray, types: np.ndarray) -> TypeCosines:
        """Return the mean cosines of rows in memory, given their types."""
        sums = TypeUnits(vectors.shape[1])
        sums.add(vectors, types)
        return sums.cosines()


class TypeUnits:
    """The sum of the unit vectors of each type, updated batch by batch."""

    def __init__(self, d: int):
        self.codes: dict[Any, int] = {}
        self.sums, self.counts, self.lengths = np.zeros((0, d)), np.zeros(0, np.int64), np.zeros(0)

    def __len__(self) -> int:
        return len(self.codes)

    def add(self, vectors: np.ndarray, types: np.ndarray) -> None:
        """Add rows with their types; rows with NaN or infinity are ignored."""
        from isoscope._core.kernels import add_unit_vectors

        add_unit_vectors(to_numpy(vectors), self._codes(types.tolist()), self.sums, self.counts, self.lengths)

    def partial_result(self) -> tuple[list[Any], np.ndarray, np.ndarray, np.ndarray]:
        """Return the types seen so far and the sums of each type."""
        k = len(self)
        return [*self.codes], self.sums[:k], self.counts[:k], self.lengths[:k]

    def join(self, gathered: tuple[list[Any], np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Add the partial result of other rows."""
        names, sums, counts, lengths = gathered
        codes = self._codes(names)
        self.sums[codes] += sums
        self.counts[codes] += counts
        self.lengths[codes] += lengths

    def _codes(self, names: list[Any]) -> np.ndarray:
        """Return the code of each type; new types get new codes."""
        seen = self.codes
        codes = np.fromiter((seen.setdefault(kind, len(seen)) for kind in names), np.int64, len(names))
        if len(seen) > len(self.counts):
            self._grow(max(len(seen), 2 * len(self.counts)))
        return codes

    def _grow(self, size: int) -> None:
        more = size - len(self.counts)
        self.sums = np.concatenate([self.sums, np.zeros((more, self.sums.shape[1]))])
        self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
        self.lengths = np.concatenate([self.lengths, np.zeros(more)])

    def cosines(self) -> TypeCosines:
        """Return the mean cosines; call this after all rows have been added."""
        if len({isinstance(kind, str) for kind in self.codes}) > 1:
            raise ParameterError("types contains both text and numbers: need text in all rows or numbers in all rows")
        names = np.asarray(list(self.codes))
        some = np.flatnonzero(self.counts[: len(names)])
        order = some[np.argsort(names[some], kind="stable")]
        sums, counts, lengths = self.sums[order], self.counts[order].astype(float), self.lengths[order]
        several = counts > 1
        inter = intra = math.nan
        if len(counts) > 1:
            inter = float(formulas.inter_similarity(np, counts, sums, "instances"))
        if several.any():
            intra = float(formulas.intra_similarity(np, counts, sums, lengths))
        each = ((sums[several] ** 2).sum(axis=1) - lengths[several]) / (counts * (counts - 1))[several]
        return TypeCosines(names[order], self.counts[order], int(counts.sum()), inter, intra, each)
