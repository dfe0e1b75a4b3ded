"""Types of the values that public parameters accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Metric = Literal["cosine", "euclidean"]
"""The distance that rows are compared by."""
Verdict = Literal["ok", "look", "bad"]
"""The verdict of a finding, from best to worst."""
GainVerdict = Literal["gain", "loss", "noise"]
"""The verdict on the gain of a repair: significant either way, or neither."""
Nonfinite = Literal["raise", "drop"]
"""What to do with rows that hold NaN or infinity."""
Average = Literal["instances", "types"]
"""What a mean over pairs of different types counts once: each pair of rows, or each pair of types."""
Seed: TypeAlias = "int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None"
"""A random seed, as NumPy accepts it."""
Column: TypeAlias = "str | npt.ArrayLike"
"""The name of a column, or one value per row."""
