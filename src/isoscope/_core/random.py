"""Convert any seed that NumPy accepts to an integer."""

from __future__ import annotations

from typing import Any

import numpy as np

from isoscope._core.errors import ParameterError

_SKLEARN_LIMIT = 2**32  # scikit-learn requires random_state to be below this


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return a seed as an integer; a seed that is not an integer is replaced by random bits that NumPy derives from it.

    >>> check_seed(3_000_000_000)
    3000000000
    >>> check_seed([1, 2]) == check_seed(np.random.SeedSequence([1, 2]))
    True
    """
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0:
        return int(seed)
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    try:
        if isinstance(seed, bool | str | float):
            raise TypeError
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        return int(sequence.generate_state(1, np.uint64)[0])
    except (TypeError, ValueError):
        raise ParameterError(
            f"{name} is {seed!r}: need a non-negative integer (in Python also a sequence of such integers, None, "
            "a numpy SeedSequence or a numpy Generator)"
        ) from None


def sklearn_seed(seed: int) -> int:
    """Return a seed that scikit-learn accepts: the seed itself if it is below 2³², otherwise a hash of it."""
    return seed if seed < _SKLEARN_LIMIT else int(np.random.SeedSequence(seed).generate_state(1)[0])
