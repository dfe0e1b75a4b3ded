"""Names for the values that parameters take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Metric = Literal["cosine", "euclidean"]
"""How rows are compared."""
Verdict = Literal["ok", "look", "bad"]
"""How a finding is judged, from best to worst."""
GainVerdict = Literal["gain", "loss", "noise"]
"""How the gain of a repair is judged: significant either way, or neither."""
Seed: TypeAlias = "int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None"
"""What `check_seed` accepts as a random seed."""
Column: TypeAlias = "str | npt.ArrayLike"
"""The name of a column, or one value per row."""
