"""What every database that is written to can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout


class Destination(Protocol):
    """A place in a database that rows are written to by their ids; to write a row twice is to write it once."""

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """Make what is missing; whether rows of an earlier run with the same `about` are there to go on with.

        `about["ids"]` names the column that ids are from, and is empty if they are from none. An `InputError` if what
        is there was made of something else, or is not isoscope's: then nothing is touched.
        """

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """Which of these ids are not there yet, as booleans."""

    def write(self, batch: Batch) -> None:
        """Write the rows of a batch, by `columns["ids"]`, with what is `beside`; they are durable when it returns."""

    def finish(self, rows: int) -> None:
        """Note that all is there."""

    def clear(self) -> None:
        """Remove what an earlier run of isoscope wrote; an `InputError` for anything else, which stays."""

    def close(self) -> None:
        """Let go of the database."""
