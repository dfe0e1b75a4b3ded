"""Names for the values that parameters take."""

from typing import Literal

Metric = Literal["cosine", "euclidean"]
"""How rows are compared."""
Verdict = Literal["ok", "look", "bad"]
"""How a finding is judged, from best to worst."""
