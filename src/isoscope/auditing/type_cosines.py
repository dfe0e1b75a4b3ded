"""How alike rows of one type and of different types are: what is kept of the types' sums once all rows are in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoscope import formulas
from isoscope.type_sums import TypeSums


@dataclass(frozen=True)
class TypeCosines:
    """S_inter and S_intra, with how many rows each type has; a few numbers a type, where its sums are 2d."""

    names: np.ndarray
    counts: np.ndarray
    rows: int
    """On how many rows it rests."""
    inter: float
    """The mean cosine of rows of different types; NaN if there is one type."""
    intra: float
    """The mean over types of the mean cosine of its rows; NaN if no type has two."""
    each: np.ndarray
    """That mean cosine, of each type with two rows or more."""

    @classmethod
    def of(cls, sums: TypeSums) -> TypeCosines:
        """From the sums of all rows."""
        counts = sums.counts.astype(float)
        several = sums.counts > 1
        inter = intra = math.nan
        if len(several) > 1:
            inter = float(formulas.inter_similarity(np, counts, sums.unit_sums, "instances"))
        if several.any():
            intra = float(formulas.intra_similarity(np, counts, sums.unit_sums, sums.unit_squares))
        squares = (sums.unit_sums[several] ** 2).sum(axis=1) - sums.unit_squares[several]
        each = squares / (counts * (counts - 1))[several]
        return cls(sums.names, sums.counts, int(sums.counts.sum()), inter, intra, each)
