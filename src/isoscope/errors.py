"""What isoscope raises and warns with."""


class InputError(ValueError):
    """The data cannot be measured as given: the message says what came, what is needed, what to do."""


class DataWarning(UserWarning):
    """The data was measured, and something about it is worth a look."""
