"""What is asked of an audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError
from isoscope._core.memory import limit_sample_size

if TYPE_CHECKING:
    from isoscope._core.types import Metric, Nonfinite
    from isoscope.stores.store import Store

MIN_SAMPLE = 100


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    metric: Metric = "cosine"
    sample: int = 20_000
    seed: int = 0
    nonfinite: Nonfinite = "raise"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise InputError(f'metric is {self.metric!r}: need "cosine" or "euclidean"')
        if self.nonfinite not in ("raise", "drop"):
            raise InputError(f'nonfinite is {self.nonfinite!r}: need "raise" or "drop"')
        if check_integer(self.sample, "sample") < MIN_SAMPLE:
            raise InputError(f"sample is {self.sample}: need {MIN_SAMPLE} rows at least")
        if not 0 <= check_integer(self.seed, "seed") < 2**32:
            raise InputError(f"seed is {self.seed}: need a whole number from 0 to {2**32 - 1}")

    def limit_sample(self, store: Store) -> Settings:
        """The same, with a sample of the store's rows that a limit of memory has room for."""
        return replace(self, sample=limit_sample_size(self.sample, store.dim, store.dtype.itemsize))
