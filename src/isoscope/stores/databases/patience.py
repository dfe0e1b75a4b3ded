"""Databases that are out of reach for a moment: what failed is tried again, after pauses that grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt."""


def retry(attempt: Callable[[], T], passes: Callable[[Exception], bool]) -> T:
    """What an attempt gives; one that fails with what may pass is made again, `len(PAUSES)` times at most.

    Parameters
    ----------
    attempt : function
        What is asked of the database: to do it twice must be as good as once.
    passes : function
        Whether an error may be gone in a while: a lost connection is, a wrong password is not.

    Examples
    --------
    >>> answers = iter([ConnectionError("gone"), 7])
    >>> def ask():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> retry(ask, lambda error: isinstance(error, ConnectionError))
    7
    """
    for pause in PAUSES:
        try:
            return attempt()
        except Exception as error:
            if not passes(error):
                raise
            time.sleep(pause)
    return attempt()
