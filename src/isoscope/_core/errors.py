"""The errors and warnings that isoscope raises, and helpers for the wording of messages."""

import os
import sys
import warnings
from pathlib import Path

from isoscope._core.printable import to_printable

_PACKAGE = str(Path(__file__).parent.parent) + os.sep


class InputError(ValueError):
    """The input cannot be used; the message states what was passed, what is needed and what to do.

    The message contains no control characters and no passwords, so it is safe to print and to log. The subclasses
    distinguish kinds of errors, so that code can handle an error without parsing its message.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> try:
    ...     isoscope.lid(np.ones((50, 4)), k=100)
    ... except isoscope.InputError as error:
    ...     print(type(error).__name__)
    ParameterError
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(to_printable(each) if isinstance(each, str) else each for each in args))


class ParameterError(InputError):
    """A parameter or option has a value that is not allowed or that contradicts another parameter."""


class ShapeError(InputError):
    """An array has the wrong number of rows, columns or dimensions."""


class TooFewRowsError(InputError):
    """There are fewer rows, examples or classes than the measurement needs."""


class MissingValueError(InputError):
    """A value is missing, NaN or infinite."""


class NotFoundError(InputError):
    """A file, folder, column, collection or name does not exist."""


class FileFormatError(InputError):
    """A file is damaged, or is not in the expected format."""


class OutputError(InputError):
    """The output cannot be written, or belongs to another run."""


class DatabaseError(InputError):
    """A database or a server of remote files cannot be reached, or it rejects a request."""


class MissingExtra(InputError, ImportError):
    """An optional package is not installed; the message contains the command that installs it."""


class DataWarning(UserWarning):
    """The data was measured, but it has a problem that needs attention."""


for _public in (InputError, MissingExtra, DataWarning):
    _public.__module__ = "isoscope"  # where users import it from
for _public in (
    ParameterError,
    ShapeError,
    TooFewRowsError,
    MissingValueError,
    NotFoundError,
    FileFormatError,
    OutputError,
    DatabaseError,
):
    _public.__module__ = "isoscope.errors"


def warn_data(message: str) -> None:
    """Issue a `DataWarning` that points to the line in the user's own code."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(to_printable(message), DataWarning, stacklevel=level)


def plural(count: int, word: str) -> str:
    """Return a count with its noun in the singular or plural.

    >>> plural(1, "row"), plural(1750, "row"), plural(2, "entry")
    ('1 row', '1,750 rows', '2 entries')
    """
    if count == 1:
        return f"1 {word}"
    return f"{count:,} {word[:-1]}ies" if word.endswith("y") else f"{count:,} {word}s"


def was_dropped(count: int, noun: str, reason: str = "") -> str:
    """Return a clause about dropped rows, pairs or other examples, without a period.

    >>> was_dropped(1, "row"), was_dropped(2, "pair", "with unknown rows")
    ('1 row was dropped', '2 pairs with unknown rows were dropped')
    """
    return " ".join(filter(None, [plural(count, noun), reason, "was" if count == 1 else "were", "dropped"]))
