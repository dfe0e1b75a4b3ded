"""Types of the values that public parameters accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Metric = Literal["cosine", "euclidean"]
"""The distance used to compare rows."""
Verdict = Literal["ok", "look", "bad"]
"""The verdict of a finding, from best to worst."""
GainVerdict = Literal["gain", "loss", "noise"]
"""The verdict on the gain of a repair: a significant gain, a significant loss, or neither."""
Nonfinite = Literal["raise", "drop"]
"""What to do with rows that contain NaN or infinity."""
Average = Literal["instances", "types"]
"""What a mean between types averages over: all pairs of rows of different types, or all pairs of types."""
Seed: TypeAlias = "int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None"
"""A random seed in any form that NumPy accepts."""
Column: TypeAlias = "str | npt.ArrayLike"
"""The name of a column, or one value per row."""
