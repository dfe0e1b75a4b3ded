"""Types of the values that public parameters accept."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

Metric = Literal["cosine", "euclidean"]
"""The distance that rows are compared by."""
Verdict = Literal["ok", "look", "bad"]
"""The verdict of a finding, from best to worst."""
Nonfinite = Literal["raise", "drop"]
"""What to do with rows that hold NaN or infinity."""
Average = Literal["instances", "types"]
"""What a mean over pairs of different types counts once: each pair of rows, or each pair of types."""
Seed = int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None
"""A random seed, as NumPy accepts it."""
