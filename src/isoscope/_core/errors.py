"""What isoscope raises and warns with."""

import os
import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent.parent) + os.sep


class InputError(ValueError):
    """The data cannot be measured as given: the message says what came, what is needed, what to do."""


class MissingExtra(InputError, ImportError):
    """A package that an extra brings is not installed: the message holds the command that installs it."""


class DataWarning(UserWarning):
    """The data was measured, and something about it is worth a look."""


def warn_data(message: str) -> None:
    """Warn with a `DataWarning` that points at the user's own line, however deep inside isoscope it is noticed."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DataWarning, stacklevel=level)
