"""What is asked of an audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from isoscope._core.arrays import whole
from isoscope._core.errors import InputError
from isoscope._core.memory import sample_rows

if TYPE_CHECKING:
    from isoscope.stores.store import Store

LEAST_SAMPLE = 100


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    metric: str = "cosine"
    sample: int = 20_000
    seed: int = 0
    nonfinite: str = "raise"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise InputError(f'metric is {self.metric!r}: need "cosine" or "euclidean"')
        if self.nonfinite not in ("raise", "drop"):
            raise InputError(f'nonfinite is {self.nonfinite!r}: need "raise" or "drop"')
        if whole(self.sample, "sample") < LEAST_SAMPLE:
            raise InputError(f"sample is {self.sample}: need {LEAST_SAMPLE} rows at least")
        if not 0 <= whole(self.seed, "seed") < 2**32:
            raise InputError(f"seed is {self.seed}: need a whole number from 0 to {2**32 - 1}")

    def fitted_to(self, store: Store) -> Settings:
        """The same, with a sample of the store's rows that a limit of memory has room for."""
        return replace(self, sample=sample_rows(self.sample, store.dim, store.dtype.itemsize))
