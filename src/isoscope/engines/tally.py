"""What is gathered while the rows of a store come by, on one machine or on many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isoscope.stores.store import Batch


class Tally:
    """Something that is known of the rows seen so far; what others gathered of other rows can be joined to it.

    It begins with no rows. An engine has items summed up apart, by any thread, and adds them in order. Where several
    processes read, each begins with a copy, and what they `gathered` is joined in the order of the rows.
    """

    columns: Sequence[str] = ()
    """What is read beside the vectors."""

    def items(self, batches: Iterable[Batch]) -> Iterator[Any]:
        """What is to be summed up, of batches that come in order."""
        for batch in batches:
            self.watch(batch)
            yield batch

    def watch(self, batch: Batch) -> None:
        """See the next batch, in order, before it is summed up."""

    def finish(self) -> None:
        """Be told that all rows are in: what is not needed any longer may go."""

    def summarize(self, item: Any) -> Any:
        """What an item adds; by any thread."""
        raise NotImplementedError

    def add(self, part: Any) -> None:
        """Add what the next item gave."""
        raise NotImplementedError

    def partial_result(self) -> Any:
        """What the rows gave, without what it began with: this goes from process to process."""
        raise NotImplementedError

    def join(self, gathered: Any) -> None:
        """Add what was gathered of rows behind these."""
        raise NotImplementedError

    def share(self, first: int, rows: int) -> Any:
        """What a process that reads these rows alone must be told of them; it goes to `narrow` there."""
        return None

    def narrow(self, share: Any) -> None:
        """See only the rows of a `share` from now on."""

    def expect(self, rows: int) -> None:
        """Be told how many rows there are in all, so that less has to be gathered of each part."""

    def fell_short(self) -> bool:
        """Whether, for all that was expected, too little was gathered, so that it must be done without."""
        return False


class CombinedTally(Tally):
    """Several tallies of the same rows."""

    def __init__(self, *tallies: Tally):
        self.tallies = tallies

    def summarize(self, item: Batch) -> list[Any]:
        """What a batch adds to each."""
        return [tally.summarize(item) for tally in self.tallies]

    def add(self, part: list[Any]) -> None:
        """Add it to each."""
        for tally, own in zip(self.tallies, part, strict=True):
            tally.add(own)

    def partial_result(self) -> list[Any]:
        """What each gathered."""
        return [tally.partial_result() for tally in self.tallies]

    def join(self, gathered: list[Any]) -> None:
        """Join to each what its like gathered."""
        for tally, own in zip(self.tallies, gathered, strict=True):
            tally.join(own)
