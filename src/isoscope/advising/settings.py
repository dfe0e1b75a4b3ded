"""The settings of the advisor."""

from __future__ import annotations

from dataclasses import dataclass

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError
from isoscope.auditing.settings import MIN_SAMPLE


@dataclass(frozen=True)
class AdviceSettings:
    """How candidates are tried."""

    metric: str = "cosine"
    folds: int = 5
    sample: int = 20_000
    seed: int = 0
    missing: str = "raise"
    new_rows: bool = False
    """Whether repairs are scored on rows that they were not fitted to."""
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise InputError(f'metric is {self.metric!r}: need "cosine" or "euclidean"')
        if not 2 <= check_integer(self.folds, "folds") <= 50:
            raise InputError(f"folds is {self.folds}: need 2 to 50")
        if check_integer(self.sample, "sample") < MIN_SAMPLE:
            raise InputError(f"sample is {self.sample}: need at least {MIN_SAMPLE} rows")
        if not 0 <= check_integer(self.seed, "seed") < 2**31:
            raise InputError(f"seed is {self.seed}: need a whole number from 0 to {2**31 - 1}")
        if self.missing not in ("raise", "drop"):
            raise InputError(f'missing is {self.missing!r}: need "raise" or "drop"')
