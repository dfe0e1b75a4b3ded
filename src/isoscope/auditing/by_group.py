"""Many clouds measured in the same two passes: the groups of a store's rows, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope._core.memory import limit_sample_size
from isoscope._io.progress import ignore_progress
from isoscope.auditing.grouping import drop_single_groups
from isoscope.auditing.measure import MeasurementRun
from isoscope.auditing.passes import FirstPassTally, sample_batches
from isoscope.engines.engine import Tally
from isoscope.sketching.group_blocks import max_blocks
from isoscope.stores.store import Batch, default_rows

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.auditing.grouping import Grouping
    from isoscope.auditing.measure import Measurements
    from isoscope.auditing.settings import Settings
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

_SAMPLE_BYTES = 2**30  # what the samples of all groups may take
_MIN_SAMPLE = 2_000


@dataclass(frozen=True)
class GroupMeasurements:
    """What was measured of each group, by its name, and why it was not of others."""

    groups: dict[str, Measurements]
    skipped: dict[str, str]
    settings: Settings
    """As they were for each group: the more there are, the smaller their samples may have to be."""


def measure_groups(
    store: Store, grouping: Grouping, by: str, *, settings: Settings, progress: Progress, engine: Engine
) -> GroupMeasurements:
    """Measure everything that applies, for each group apart, in at most two passes over the store.

    Each group gives what it would give as a store of its own, on one machine to the last bit: its rows are numbered
    from 0 and come in the batches that they would come in alone.
    """
    store = drop_single_groups(store.without("ids").without("by"), grouping.codes)
    settings = replace(settings, sample=_group_sample_size(settings.sample, len(grouping.names), store.dim))
    names = [f"{store.name}, {by} {name}" for name in grouping.names]
    looks: list[FirstPassTally] = []
    blocks = max_blocks(store.dim, len(names))
    looks += [FirstPassTally(settings, columns=store.columns, others=looks, blocks=blocks) for _ in names]
    rows = default_rows(store.dim)
    seen = engine.tally(GroupTally(dict(enumerate(looks)), names, grouping, rows), store, progress, "summing up")
    found: dict[int, MeasurementRun] = {}
    skipped: dict[str, str] = {}
    for code, look in seen.tallies.items():
        try:
            found[code] = MeasurementRun(names[code], store, settings, look.seen(names[code]))
        except InputError as error:
            skipped[grouping.names[code]] = str(error)
    _run_second_pass(engine, store, grouping, names, found, progress)
    progress("groups", 0, 0.0)
    measured = {}
    for code, one in zip(found, engine.each(_finish, found.values()), strict=True):
        measured[grouping.names[code]] = one
        progress("groups", one.n, len(measured) / len(found))
    return GroupMeasurements(measured, skipped | grouping.others, settings)


def _finish(one: MeasurementRun) -> Measurements:
    return one.measured(ignore_progress)


def _group_sample_size(asked: int, groups: int, dim: int) -> int:
    """Rows of each group's sample, so that all samples together stay within bounds."""
    return limit_sample_size(min(asked, max(_SAMPLE_BYTES // (groups * dim * 4), _MIN_SAMPLE)), dim, clouds=groups)


_GroupBatch = tuple[int, Batch]
"""A group's code, and some of its rows."""


class GroupTally(Tally):
    """A tally for each of some groups; a group sees its rows alone, numbered within it.

    Parameters
    ----------
    tallies : dict
        By the code of the group; rows of others are passed over.
    names : sequence of str
        What each group is called in an error.
    grouping : Grouping
        Which group each row is in.
    rows : int
        In a batch, as the groups' own stores would have them.
    """

    def __init__(self, tallies: Mapping[int, Any], names: Sequence[str], grouping: Grouping, rows: int):
        self.tallies, self.names, self.rows = tallies, names, rows
        self.columns = list(dict.fromkeys(role for tally in tallies.values() for role in tally.columns))
        self._seen = np.zeros(len(grouping.names), np.int64)
        self._set_rows(grouping.codes, 0, np.zeros_like(self._seen))
        self.counts = self._own
        self._told = 0, self._before

    def _set_rows(self, codes: np.ndarray, first: int, before: np.ndarray) -> None:
        """Look at the rows from number `first` on, which have these codes; `before` them were so many of each group."""
        self._codes, self._first, self._before = codes, first, before
        mine = np.isin(np.arange(len(before)), [*self.tallies])
        self._own = np.where(mine, np.bincount(codes[codes >= 0], minlength=len(before)), 0)

    def items(self, batches: Iterable[Batch]) -> Iterator[_GroupBatch]:
        """Batches of each group's rows."""
        here = (batch._replace(start=batch.start - self._first) for batch in batches)
        for code, batch in split_by_group(here, self._codes, self._own, self.rows):
            batch = batch._replace(start=batch.start + int(self._before[code]))
            self.tallies[code].watch(batch)
            yield code, batch

    def summarize(self, item: _GroupBatch) -> tuple[int, int, Any]:
        """What a group's batch adds to it."""
        code, batch = item
        try:
            return code, len(batch.vectors), self.tallies[code].summarize(batch)
        except InputError as error:
            raise InputError(f"{self.names[code]}: {error}") from error

    def add(self, part: tuple[int, int, Any]) -> None:
        """Add it to the group's."""
        code, rows, more = part
        self.tallies[code].add(more)
        self._count(code, rows)

    def _count(self, code: int, rows: int) -> None:
        """A group is settled with its last row."""
        self._seen[code] += rows
        if self._seen[code] == self.counts[code]:
            self.tallies[code].finish()

    def partial_result(self) -> dict[int, tuple[int, Any]]:
        """What each group gathered, of how many rows."""
        return {
            code: (int(self._seen[code]), tally.partial_result())
            for code, tally in self.tallies.items()
            if self._seen[code]
        }

    def join(self, gathered: dict[int, tuple[int, Any]]) -> None:
        """Join to each group what its like gathered."""
        for code, (rows, more) in gathered.items():
            self.tallies[code].join(more)
            self._count(code, rows)

    def share(self, first: int, rows: int) -> tuple[np.ndarray, int, np.ndarray]:
        """The codes of these rows, and how many of each group come before them."""
        at, before = self._told if self._told[0] <= first else (0, np.zeros_like(self._before))
        between = self._codes[at:first]  # shares are asked for in order: no row is counted for each of them
        before = before + np.bincount(between[between >= 0], minlength=len(before))
        self._told = first, before
        return self._codes[first : first + rows], first, before

    def narrow(self, share: tuple[np.ndarray, int, np.ndarray]) -> None:
        """See only these rows."""
        self._set_rows(*share)

    def expect(self, rows: int) -> None:
        """Tell each group how many rows it has."""
        for code, tally in self.tallies.items():
            tally.expect(int(self.counts[code]))

    def fell_short(self) -> bool:
        """Whether a group did."""
        return any(tally.fell_short() for tally in self.tallies.values())

    def __getstate__(self) -> dict[str, Any]:
        nobody = np.zeros(0, self._codes.dtype)  # a process is told of its own rows alone
        return {**self.__dict__, "_codes": nobody}


def split_by_group(batches: Iterable[Batch], codes: np.ndarray, counts: np.ndarray, rows: int) -> Iterator[_GroupBatch]:
    """Each group's code and its rows, numbered within it, in batches of `rows` but for its last.

    `codes` are the rows' groups and `counts` how many rows each has; a group without any is passed over. Nothing is
    copied where a batch of the store is one group's, whole and in step.
    """
    waiting: list[list[Batch]] = [[] for _ in counts]
    held, done = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64)
    for batch in batches:
        for code, part in _split(batch, codes):
            if not counts[code]:
                continue
            waiting[code].append(part)
            held[code] += len(part.vectors)
            last = done[code] + held[code] == counts[code]
            if held[code] < rows and not last:
                continue
            joined = _concat_batches(waiting[code])
            start = 0
            while held[code] >= rows or (last and held[code]):
                stop = min(start + rows, len(joined.vectors))
                yield code, _slice(joined, start, stop)._replace(start=int(done[code]))
                done[code] += stop - start
                held[code] -= stop - start
                start = stop
            waiting[code] = [_slice(joined, start, len(joined.vectors))] if held[code] else []


def _split(batch: Batch, codes: np.ndarray) -> Iterator[_GroupBatch]:
    """A batch's rows by group."""
    own = codes[batch.start : batch.start + len(batch.vectors)]
    if own[0] >= 0 and (own == own[0]).all():
        yield int(own[0]), batch
        return
    for code in np.unique(own[own >= 0]):
        at = np.flatnonzero(own == code)
        columns = {role: values[at] for role, values in batch.columns.items()}
        yield int(code), batch._replace(vectors=batch.vectors[at], columns=columns)


def _concat_batches(parts: Sequence[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    columns = {role: np.concatenate([part.columns[role] for part in parts]) for role in parts[0].columns}
    return parts[-1]._replace(vectors=np.concatenate([part.vectors for part in parts]), columns=columns)


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    columns = {role: values[start:stop] for role, values in batch.columns.items()}
    return batch._replace(vectors=batch.vectors[start:stop], columns=columns)


def _run_second_pass(
    engine: Engine,
    store: Store,
    grouping: Grouping,
    names: Sequence[str],
    found: Mapping[int, MeasurementRun],
    progress: Progress,
) -> None:
    """The partition function, and the neighbours of each group's sample among all of its rows.

    A group that its sample holds whole is not read again.
    """
    stage = "partition and neighbours"
    read = {code: one.second() for code, one in found.items() if not one.whole}
    if read:
        engine.tally(GroupTally(read, names, grouping, default_rows(store.dim)), store, progress, stage)
    for one in found.values():
        if one.whole:
            one.second().add_batches(sample_batches(one.sample, ignore_progress, stage))
