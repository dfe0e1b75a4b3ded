"""Many clouds measured in the same two passes: the groups of a store's rows, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isoscope.auditing.grouping import Grouping
from isoscope.auditing.measuring import Measured, Measuring
from isoscope.auditing.passes import FirstLook, PartitionSums, Progress, held_rows, offer, partition, silent
from isoscope.auditing.settings import Settings
from isoscope.errors import InputError
from isoscope.metrics.partition import LogSum
from isoscope.sketching import Sketch
from isoscope.stores import Batch, Store
from isoscope.stores.store import default_rows
from isoscope.threads import in_threads

_SAMPLE_BYTES = 2**30  # what the samples of all groups may take
_LEAST_SAMPLE = 2_000


@dataclass(frozen=True)
class MeasuredGroups:
    """What was measured of each group, by its name, and why it was not of others."""

    groups: dict[str, Measured]
    skipped: dict[str, str]
    settings: Settings
    """As they were for each group: the more there are, the smaller their samples may have to be."""


def measure_groups(
    store: Store, grouping: Grouping, by: str, *, settings: Settings, progress: Progress
) -> MeasuredGroups:
    """Measure everything that applies, for each group apart, in at most two passes over the store.

    Each group gives what it would give as a store of its own, to the last bit: its rows are numbered from 0 and come in
    the batches that they would come in alone.
    """
    store = store.without("ids").without("groups")
    settings = replace(settings, sample=_sample(settings.sample, len(grouping.names), store.dim))
    passing = _Passing(store, grouping, progress)
    names = [f"{store.name}, {by} {name}" for name in grouping.names]
    found, skipped = _first(passing, names, settings)
    _second(passing, found)
    progress("groups", 0, 0.0)
    measured = {}
    for code, one in in_threads(lambda item: (item[0], item[1].measured(silent)), found.items(), len(found)):
        measured[grouping.names[code]] = one
        progress("groups", one.n, len(measured) / len(found))
    why = {grouping.names[code]: reason for code, reason in skipped.items()}
    return MeasuredGroups(measured, why | grouping.others, settings)


def _sample(asked: int, groups: int, dim: int) -> int:
    """Rows of each group's sample, so that all samples together stay within bounds."""
    return min(asked, max(_SAMPLE_BYTES // (groups * dim * 4), _LEAST_SAMPLE))


class _Passing:
    """The passes over a store, parted by group."""

    def __init__(self, store: Store, grouping: Grouping, progress: Progress):
        self.store, self.grouping, self.progress = store, grouping, progress
        self.counts = grouping.counts

    def batches(self, name: str, columns: Iterable[str] = (), among: Iterable[int] | None = None) -> Iterator[_Part]:
        """Batches of each group's rows, of those `among` the groups alone."""
        chosen = np.ones(len(self.counts), bool) if among is None else np.isin(np.arange(len(self.counts)), [*among])

        def watched() -> Iterator[Batch]:
            for batch in self.store.batches(list(columns)):
                self.progress(name, batch.start + len(batch.vectors), batch.share)
                yield batch

        return parted(watched(), self.grouping.codes, np.where(chosen, self.counts, 0), default_rows(self.store.dim))


_Part = tuple[int, Batch]


def parted(batches: Iterable[Batch], codes: np.ndarray, counts: np.ndarray, rows: int) -> Iterator[_Part]:
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
            joined = _joined(waiting[code])
            start = 0
            while held[code] >= rows or (last and held[code]):
                stop = min(start + rows, len(joined.vectors))
                yield code, _slice(joined, start, stop)._replace(start=int(done[code]))
                done[code] += stop - start
                held[code] -= stop - start
                start = stop
            waiting[code] = [_slice(joined, start, len(joined.vectors))] if held[code] else []


def _split(batch: Batch, codes: np.ndarray) -> Iterator[_Part]:
    """A batch's rows by group."""
    own = codes[batch.start : batch.start + len(batch.vectors)]
    if own[0] >= 0 and (own == own[0]).all():
        yield int(own[0]), batch
        return
    for code in np.unique(own[own >= 0]):
        at = np.flatnonzero(own == code)
        columns = {role: values[at] for role, values in batch.columns.items()}
        yield int(code), batch._replace(vectors=batch.vectors[at], columns=columns)


def _joined(parts: Sequence[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    columns = {role: np.concatenate([part.columns[role] for part in parts]) for role in parts[0].columns}
    return parts[-1]._replace(vectors=np.concatenate([part.vectors for part in parts]), columns=columns)


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    columns = {role: values[start:stop] for role, values in batch.columns.items()}
    return batch._replace(vectors=batch.vectors[start:stop], columns=columns)


def _first(passing: _Passing, names: Sequence[str], settings: Settings) -> tuple[dict[int, Measuring], dict[int, str]]:
    """Sums and samples; a group is settled with its last row, and one that cannot be measured is told why."""
    looks: list[FirstLook] = []
    looks += [FirstLook(settings, others=looks) for _ in names]
    left = passing.counts.copy()
    found: dict[int, Measuring] = {}
    skipped: dict[int, str] = {}

    def watched() -> Iterator[_Part]:
        for code, batch in passing.batches("summing up", passing.store.columns):
            looks[code].watch(batch)
            yield code, batch

    def summed(part: _Part) -> tuple[int, int, Sketch]:
        code, batch = part
        try:
            return code, len(batch.vectors), looks[code].summed(batch)
        except InputError as error:
            raise InputError(f"{names[code]}: {error}") from error

    for code, rows, sums in in_threads(summed, watched(), 2):
        looks[code].add(sums)
        left[code] -= rows
        if not left[code]:
            try:
                found[code] = Measuring(names[code], passing.store, settings, looks[code].seen(names[code]))
            except InputError as error:
                skipped[code] = str(error)
    return dict(sorted(found.items())), dict(sorted(skipped.items()))


def _second(passing: _Passing, found: dict[int, Measuring]) -> None:
    """The partition function, and the neighbours of each group's sample among all of its rows.

    Both need the first pass alone, so one look at each row does for both; a group that its sample holds needs none.
    """
    sums = {code: PartitionSums(one.sketch, one.raw) for code, one in found.items() if not one.whole}

    def summed(part: _Part) -> tuple[int, Batch, tuple[np.ndarray, list[LogSum]]]:
        code, batch = part
        return code, batch, sums[code].summed((batch.start, batch.vectors))

    if sums:
        for code, batch, more in in_threads(summed, passing.batches("partition and neighbours", among=sums), 2):
            sums[code].add(more)
            if found[code].searches:
                offer(found[code].searches, found[code].placed, batch.start, batch.vectors)
    for code, one in found.items():
        if one.whole:
            one.logs = partition(one.sketch, one.raw, held_rows(one.sample, silent, ""))
        else:
            one.logs = sums[code].logs()
