"""The tallies that fits need: the sketch of a store, and a sample of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import to_numpy
from isoscope._core.errors import InputError
from isoscope.engines.engine import Tally, open_engine
from isoscope.sketching.sketch import Sketch
from isoscope.stores.open import open_store
from isoscope.stores.sampling import Sampler

if TYPE_CHECKING:
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Batch


class SketchTally(Tally):
    """The sketch of all rows; with `types`, of each type's too; with `groups`, of blocks of groups."""

    def __init__(self, nonfinite: str = "raise", *, types: bool = False, groups: bool = False):
        self.nonfinite = nonfinite
        self.columns = [role for role, wanted in (("types", types), ("groups", groups)) if wanted]
        self.total = Sketch()

    def summarize(self, item: Batch) -> Sketch:
        """The sketch of a batch."""
        columns = item.columns
        return Sketch.of(
            item.vectors,
            columns.get("types"),
            groups=columns.get("groups"),
            nonfinite=self.nonfinite,
            first=item.start,
        )

    def add(self, part: Sketch) -> None:
        """Add the next batch's."""
        self.total = self.total + part

    def partial_result(self) -> Sketch:
        """The sketch so far."""
        return self.total

    def join(self, gathered: Sketch) -> None:
        """Add that of later rows."""
        self.add(gathered)


def sketch_store(source: Any, types: Any, groups: Any, nonfinite: str, engine: Any) -> Sketch:
    """Return the sketch of whatever `open_store` opens; `types` and `groups` are column names or values."""
    store = open_store(source, types=types, groups=groups)
    with open_engine(engine) as running:
        total = running.tally(SketchTally(nonfinite, types=types is not None, groups=groups is not None), store).total
    if not total.n:
        raise InputError(f"{store.name} has no finite row: need one at least")
    return total


class SampleTally(Tally):
    """A random sample of the rows of the store of this name, all of which must be finite."""

    def __init__(self, size: int, seed: int, name: str):
        self.sampler, self.name = Sampler(size, seed), name

    def summarize(self, item: Batch) -> Batch:
        """The batch, once its rows are seen to be finite."""
        finite = np.isfinite(to_numpy(item.vectors)).all(axis=1)
        if not finite.all():
            first = item.start + int(np.argmin(finite))
            raise InputError(f"{self.name} has NaN or infinity, the first in row {first}: drop or mend such rows")
        return item

    def add(self, part: Batch) -> None:
        """Look at the next batch."""
        self.sampler.offer(part)

    def partial_result(self) -> Sample:
        """The rows that are kept so far."""
        return self.sampler.sample()

    def join(self, gathered: Sample) -> None:
        """Choose from later rows too."""
        self.sampler.join(gathered)

    def expect(self, rows: int) -> None:
        """Keep no row that surely is not among the sample."""
        self.sampler.expect(rows)

    def fell_short(self) -> bool:
        """Whether rows may be lacking."""
        return self.sampler.fell_short()
