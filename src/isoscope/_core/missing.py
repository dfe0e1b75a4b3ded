"""The policy for rows with missing values and for rows of zeros, which every command and function shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._core.errors import ParameterError, plural

if TYPE_CHECKING:
    from isoscope._core.types import Missing, Zeros

DROP_HINT = 'drop such rows with missing="drop" (CLI: --missing drop)'
"""The end of messages about missing values."""


def check_missing(missing: str) -> None:
    """Raise a `ParameterError` unless `missing` is "error" or "drop"."""
    if missing not in ("error", "drop"):
        raise ParameterError(f'missing is {missing!r}: need "error" or "drop"')


def check_zeros(zeros: str) -> None:
    """Raise a `ParameterError` unless `zeros` is "keep" or "drop"."""
    if zeros not in ("keep", "drop"):
        raise ParameterError(f'zeros is {zeros!r}: need "keep" or "drop"')


def note_zero_rows(count: int) -> str:
    """Return a note that rows of zeros were left out.

    >>> note_zero_rows(3)
    '3 rows of zeros were left out, because their cosine is undefined.'
    """
    verb, owner = ("was", "its") if count == 1 else ("were", "their")
    return f"{plural(count, 'row')} of zeros {verb} left out, because {owner} cosine is undefined."


def note_dropped_rows(count: int, total: int) -> str:
    """Return a note about rows that missing="drop" or zeros="drop" dropped.

    >>> note_dropped_rows(1, 600)
    '1 of 600 rows was dropped: it is incomplete or all zeros.'
    """
    verb, are = ("was", "it is") if count == 1 else ("were", "they are")
    return f"{count:,} of {total:,} rows {verb} dropped: {are} incomplete or all zeros."


def drop_policy(missing: Missing, zeros: Zeros) -> Missing:
    """Return "drop" if any rows are to be dropped; a store that drops rows of zeros marks them as missing."""
    return "drop" if "drop" in (missing, zeros) else "error"
