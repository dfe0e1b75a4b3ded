"""The errors that isoscope raises: every error is an `InputError`, and each subclass is one kind of problem."""

from isoscope._core.errors import (
    DatabaseError,
    DataWarning,
    FileFormatError,
    InputError,
    MissingExtra,
    MissingValueError,
    NotFoundError,
    OutputError,
    ParameterError,
    ShapeError,
    TooFewRowsError,
)

__all__ = [
    "DataWarning",
    "DatabaseError",
    "FileFormatError",
    "InputError",
    "MissingExtra",
    "MissingValueError",
    "NotFoundError",
    "OutputError",
    "ParameterError",
    "ShapeError",
    "TooFewRowsError",
]
