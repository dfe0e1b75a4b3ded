"""What repairs compute with: means in two parts, so that float32 loses no digit of a large one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import asarray_like, take

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def subtract(xp: Any, X: Array, parts: Iterable[np.ndarray], rows: np.ndarray | None = None) -> Array:
    """X without each part, or without these rows of it, one part after the other."""
    for part in parts:
        held = asarray_like(xp, X, part, X.dtype)
        X = X - (held if rows is None else take(xp, held, rows))
    return X


def split_float32(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means as a sum of two float32 arrays: subtracted one after the other, no digit of a large mean is lost."""
    high = to_float32(means)
    return high, to_float32(means - high)


def to_float32(values: np.ndarray) -> np.ndarray:
    """Values as float32."""
    return values.astype(np.float32)
