"""Measure groups of rows in the same two passes, with the same results as separate audits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError, TooFewRowsError
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
    from isoscope.auditing.measure import Measurements, Settings
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

_SAMPLE_BYTES = 2**30  # memory for the samples of all groups
_MIN_SAMPLE = 2_000


@dataclass(frozen=True)
class GroupMeasurements:
    """The measurements of each group, by group name, and the reasons why other groups were skipped."""

    groups: dict[str, Measurements]
    skipped: dict[str, str]
    settings: Settings
    """The settings of each group; the samples may be smaller if there are many groups."""


def measure_groups(
    store: Store, grouping: Grouping, by: str, *, settings: Settings, progress: Progress, engine: Engine
) -> GroupMeasurements:
    """Return the measurements of each group, from at most two passes over the store.

    On one machine, the results of each group are bit-identical to those of a separate store: its rows are numbered from
    0 and arrive in the same batches.
    """
    store = drop_single_groups(store.without("ids").without("by"), grouping.codes)
    settings = replace(settings, sample=_group_sample_size(settings.sample, len(grouping.names), store.dim))
    names = [f"{store.name}, {by} {name}" for name in grouping.names]
    first_tallies: list[FirstPassTally] = []
    blocks = max_blocks(store.dim, len(names))
    first_tallies += [
        FirstPassTally(settings, columns=store.columns, others=first_tallies, blocks=blocks) for _ in names
    ]
    tally = GroupTally(dict(enumerate(first_tallies)), names, grouping, default_rows(store.dim))
    tally = engine.tally(tally, store, progress, "summing up")
    runs: dict[int, MeasurementRun] = {}
    skipped: dict[str, str] = {}
    for code, group_tally in tally.tallies.items():
        try:
            runs[code] = MeasurementRun(names[code], store, settings, group_tally.result(names[code]))
        except InputError as error:
            skipped[grouping.names[code]] = str(error)
    _run_second_pass(engine, store, grouping, names, runs, progress)
    progress("groups", 0, 0.0)
    measured = {}
    for code, measurements in zip(runs, engine.each(_finish, runs.values()), strict=True):
        measured[grouping.names[code]] = measurements
        if by == "layer" and grouping.values[code] == 0:
            measurements.layer = 0
        progress("groups", measurements.n, len(measured) / len(runs))
    skipped |= grouping.others
    if not measured:
        count = f"the {len(names)} groups"
        if grouping.smaller:
            count = f"the {len(names)} largest of {len(names) + grouping.smaller:,} groups"
        raise TooFewRowsError(
            f"{store.name} was grouped by {by}, but none of {count} can be measured: {next(iter(skipped.values()))}"
        )
    return GroupMeasurements(measured, skipped, settings)


def _finish(run: MeasurementRun) -> Measurements:
    return run.measure(ignore_progress)


def _group_sample_size(requested: int, groups: int, dim: int) -> int:
    """Return the sample size for each group such that all samples together stay within the memory limit."""
    return limit_sample_size(min(requested, max(_SAMPLE_BYTES // (groups * dim * 4), _MIN_SAMPLE)), dim, groups=groups)


_GroupBatch = tuple[int, Batch]
"""The code of a group, and a batch of its rows."""


class GroupTally(Tally):
    """One tally per group; each tally receives only the rows of its group, numbered from 0.

    Parameters
    ----------
    tallies : dict
        The tally of each group, by group code; rows of other groups are ignored.
    names : sequence of str
        The name of each group in error messages.
    grouping : Grouping
        The group of each row.
    rows : int
        Rows per batch, as in a separate store of each group.
    """

    def __init__(self, tallies: Mapping[int, Any], names: Sequence[str], grouping: Grouping, rows: int):
        self.tallies, self.names, self.rows = tallies, names, rows
        self.columns = list(dict.fromkeys(role for tally in tallies.values() for role in tally.columns))
        self._seen = np.zeros(len(grouping.names), np.int64)
        self._set_rows(grouping.codes, 0, np.zeros_like(self._seen))
        self.counts = self._own
        self._last_share = 0, self._before

    def _set_rows(self, codes: np.ndarray, first: int, before: np.ndarray) -> None:
        """Set the group codes of the rows that start at `first`; `before` counts the earlier rows of each group."""
        self._codes, self._first, self._before = codes, first, before
        mine = np.isin(np.arange(len(before)), [*self.tallies])
        self._own = np.where(mine, np.bincount(codes[codes >= 0], minlength=len(before)), 0)

    def items(self, batches: Iterable[Batch]) -> Iterator[_GroupBatch]:
        """Yield batches of each group's rows."""
        here = (batch._replace(start=batch.start - self._first) for batch in batches)
        for code, batch in split_by_group(here, self._codes, self._own, self.rows):
            batch = batch._replace(start=batch.start + int(self._before[code]))
            self.tallies[code].watch(batch)
            yield code, batch

    def summarize(self, item: _GroupBatch) -> tuple[int, int, Any]:
        """Return the group, the number of rows and the partial result of one batch."""
        code, batch = item
        try:
            return code, len(batch.vectors), self.tallies[code].summarize(batch)
        except InputError as error:
            raise InputError(f"{self.names[code]}: {error}") from error

    def add(self, part: tuple[int, int, Any]) -> None:
        """Add the partial result of a batch to its group."""
        code, rows, more = part
        self.tallies[code].add(more)
        self._count(code, rows)

    def _count(self, code: int, rows: int) -> None:
        """Count the rows of a group, and finish its tally after the last row."""
        self._seen[code] += rows
        if self._seen[code] == self.counts[code]:
            self.tallies[code].finish()

    def partial_result(self) -> dict[int, tuple[int, Any]]:
        """Return the number of rows and the partial result of each group."""
        return {
            code: (int(self._seen[code]), tally.partial_result())
            for code, tally in self.tallies.items()
            if self._seen[code]
        }

    def join(self, gathered: dict[int, tuple[int, Any]]) -> None:
        """Add the partial results of other rows to each group."""
        for code, (rows, more) in gathered.items():
            self.tallies[code].join(more)
            self._count(code, rows)

    def share(self, first: int, rows: int) -> tuple[np.ndarray, int, np.ndarray]:
        """Return these rows' group codes, the first row's number, and the number of earlier rows in each group."""
        at, before = self._last_share if self._last_share[0] <= first else (0, np.zeros_like(self._before))
        between = self._codes[at:first]  # shares are requested in order, so each row is counted once
        before = before + np.bincount(between[between >= 0], minlength=len(before))
        self._last_share = first, before
        return self._codes[first : first + rows], first, before

    def narrow(self, share: tuple[np.ndarray, int, np.ndarray]) -> None:
        """Restrict the tally to the rows of a share."""
        self._set_rows(*share)

    def expect(self, rows: int) -> None:
        """Set the number of rows that the tally of each group expects."""
        for code, tally in self.tallies.items():
            tally.expect(int(self.counts[code]))

    def fell_short(self) -> bool:
        """Return whether the tally of any group received too few rows."""
        return any(tally.fell_short() for tally in self.tallies.values())

    def __getstate__(self) -> dict[str, Any]:
        no_codes = np.zeros(0, self._codes.dtype)  # each process gets the codes of its own rows from `narrow`
        return {**self.__dict__, "_codes": no_codes}


def split_by_group(batches: Iterable[Batch], codes: np.ndarray, counts: np.ndarray, rows: int) -> Iterator[_GroupBatch]:
    """Yield each group's code and its rows, numbered within the group, in batches of at most `rows` rows.

    `codes` contains the group of each row and `counts` the number of rows in each group; groups with count 0 are
    ignored. A batch of the right size that belongs to one group is passed on without a copy.
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
    """Yield the rows of a batch, split by group."""
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
    runs: Mapping[int, MeasurementRun],
    progress: Progress,
) -> None:
    """Compute each group's partition function, and the neighbors of its sample among all of its rows.

    Groups whose sample contains all of their rows are not read again.
    """
    stage = "partition and neighbors"
    sampled = {code: run.second_tally() for code, run in runs.items() if not run.complete}
    if sampled:
        engine.tally(GroupTally(sampled, names, grouping, default_rows(store.dim)), store, progress, stage)
    for run in runs.values():
        if run.complete:
            run.second_tally().add_batches(sample_batches(run.sample, ignore_progress, stage))
