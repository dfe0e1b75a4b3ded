"""The two sides of a comparison: open them, match their rows, and read the matched rows or a sample."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from isoscope._core.arrays import to_numpy
from isoscope._core.errors import InputError, MissingValueError, NotFoundError, ParameterError, plural
from isoscope._core.missing import DROP_HINT, drop_policy
from isoscope._io.files import expand_user
from isoscope.advising.task_inputs import open_one_layer
from isoscope.auditing.grouping import drop_single_groups
from isoscope.comparing.canary import check_canary, is_canary
from isoscope.engines.engine import SampleTally, SketchTally, Tally
from isoscope.sketching.sketch import Sketch
from isoscope.stores.databases.address import redact_source_name
from isoscope.stores.sampling import row_keys

if TYPE_CHECKING:
    from isoscope._core.types import Missing, Zeros
    from isoscope._io.progress import Progress
    from isoscope.engines.engine import Engine
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Batch, Store

Pairing = Literal["auto", "ids", "text", "rows", "none"]
PAIRINGS: tuple[Pairing, ...] = ("auto", "ids", "text", "rows", "none")


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a store, or a sketch."""

    name: str
    store: Store | None = None
    sketch: Sketch | None = None
    canary: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        if self.store is not None:
            return self.store.dim
        assert self.sketch is not None
        return self.sketch.d

    @property
    def n(self) -> int:
        """The number of rows."""
        if self.sketch is not None:
            return self.sketch.n
        assert self.store is not None
        return len(self.store)


def open_side(
    source: Any,
    what: str,
    *,
    layer: int | None,
    missing: Missing,
    zeros: Zeros,
    columns: dict[str, Any],
) -> Side:
    """Open a source, a saved sketch or a canary file; `what` is its name in messages."""
    if isinstance(source, Sketch):
        return Side(what, sketch=source)
    if isinstance(source, str | os.PathLike) and os.path.isfile(path := expand_user(os.fspath(source))):
        if _is_sketch_file(path):
            return Side(str(source), sketch=Sketch.load(path))
        canary = is_canary(path)
        if canary:
            check_canary(path)
    else:
        canary = False
    store, notes = open_one_layer(source, layer, missing=missing, zeros=zeros, **columns)
    name = redact_source_name(os.fspath(source)) if isinstance(source, str | os.PathLike) else what
    return Side(name, store, canary=canary, notes=notes)


def _is_sketch_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a sketch that `isoscope sketch -o` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return "isoscope.sketch" in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError):
        return False


class RowMatch(NamedTuple):
    """The rows that two stores have in common."""

    by: Literal["ids", "text", "rows"]
    old: np.ndarray
    """The row numbers in the old store."""
    new: np.ndarray
    """The row numbers in the new store, in the same order."""
    names: np.ndarray
    """The id, text or row number of each match."""
    notes: list[str]


def match_rows(old: Side, new: Side, pairing: Pairing, missing: Missing) -> RowMatch | None:
    """Return the matched rows, or None if rows are not matched.

    By default, rows are matched by id if both sides have ids and share one, otherwise by text in the same way. Without
    either, they are matched by row number if both sides have equal rows.
    """
    if pairing not in PAIRINGS:
        raise ParameterError(f"pair is {pairing!r}: need one of {', '.join(PAIRINGS)}")
    if old.store is None or new.store is None:
        if pairing not in ("auto", "none"):
            raise ParameterError(f"pair is {pairing!r}, but a sketch has no rows: pass two sources of vectors")
        return None
    if pairing == "none":
        return None
    if pairing == "rows":
        if len(old.store) != len(new.store):
            raise ParameterError(
                f"{old.name} has {len(old.store):,} rows and {new.name} has {len(new.store):,}: matching by row "
                "number needs the same number of rows; match by id instead"
            )
        numbers = np.arange(len(old.store))
        return RowMatch("rows", numbers, numbers, numbers, [])
    for role in ("ids", "text") if pairing == "auto" else (pairing,):
        absent = [side.name for side in (old, new) if side.store is not None and role not in side.store.columns]
        if absent and pairing == role:
            column = "ids" if role == "ids" else "texts"
            raise NotFoundError(f"{absent[0]} has no {column} to match rows by: name the column, or use --pair none")
        if not absent:
            match = _match_by(role, old, new, missing)
            if match is not None:
                return match
            if pairing == role:
                raise NotFoundError(f"{old.name} and {new.name} have no {_NOUNS[role]} in common: check the column")
    if _are_equal(old.store, new.store):
        numbers = np.arange(len(old.store))
        note = "Rows are matched by row number: the two have the same number of rows, and 100 compared rows are equal."
        return RowMatch("rows", numbers, numbers, numbers, [note])
    return None


_NOUNS = {"ids": "id", "text": "text"}


_CHECKED_ROWS = 100


def _are_equal(old: Store, new: Store) -> bool:
    """Return whether two stores have the same number of rows, and equal vectors in 100 rows across the store."""
    if len(old) != len(new) or not len(old):
        return False
    rows = np.unique(np.linspace(0, len(old) - 1, _CHECKED_ROWS).astype(np.int64))
    return bool(np.array_equal(old.take(rows), new.take(rows)))


def _match_by(role: str, old: Side, new: Side, missing: Missing) -> RowMatch | None:
    names = [_read_names(side, role) for side in (old, new)]
    firsts, notes = [], []
    for side, own in zip((old, new), names, strict=True):
        values, first, counts = np.unique(own, return_index=True, return_counts=True)
        repeated = values[counts > 1]
        if role == "ids" and len(repeated):
            if missing == "error":
                raise ParameterError(
                    f"{side.name} has {plural(len(repeated), 'id')} on several rows, first {_shorten(repeated[0])}: "
                    'need unique ids, or pass missing="drop" (CLI: --missing drop) to leave them out'
                )
            occur = "occurs" if len(repeated) == 1 else "occur"
            notes.append(
                f"{plural(len(repeated), 'id')} that {occur} on several rows of {side.name} {_was(len(repeated))} left "
                "out."
            )
            values, first = values[counts == 1], first[counts == 1]
        firsts.append((values, first))
    (old_values, old_first), (new_values, new_first) = firsts
    shared, at_old, at_new = np.intersect1d(old_values, new_values, assume_unique=True, return_indices=True)
    if not len(shared):
        return None
    if role == "ids":
        notes += _note_unmatched(old, new, old_values, new_values, shared, missing)
    order = np.argsort(old_first[at_old], kind="stable")
    return RowMatch(
        "ids" if role == "ids" else "text",
        old_first[at_old][order],
        new_first[at_new][order],
        shared[order],
        notes,
    )


def _read_names(side: Side, role: str) -> np.ndarray:
    assert side.store is not None
    values = side.store.column(role)
    assert values is not None
    return np.asarray([str(value) for value in values.tolist()])


def _note_unmatched(
    old: Side, new: Side, old_values: np.ndarray, new_values: np.ndarray, shared: np.ndarray, missing: Missing
) -> list[str]:
    """Return notes on ids that only one side has; raise an error if they may not be left out."""
    notes = []
    for side, other, values in ((old, new, old_values), (new, old, new_values)):
        lonely = len(values) - len(shared)
        if not lonely or other.canary:  # a canary holds only a few of the rows on purpose
            continue
        own, be = f"{plural(lonely, 'id')} of {side.name}", "is" if lonely == 1 else "are"
        if missing == "error":
            first = values[~np.isin(values, shared)][0]
            raise NotFoundError(
                f'{own} {be} not in {other.name}, first {_shorten(first)}: pass missing="drop" (CLI: --missing drop) '
                f'to compare only the {len(shared):,} shared ids, or pair="none" (CLI: --pair none) to compare the sets'
            )
        notes.append(f"{own} that {be} not in {other.name} {_was(lonely)} left out.")
    return notes


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _shorten(name: Any) -> str:
    text = str(name)
    return text if len(text) <= 60 else text[:57] + "…"


class _PickTally(Tally):
    """A tally that collects the rows with the given numbers, which increase."""

    def __init__(self, rows: np.ndarray, name: str, drops_rows: bool) -> None:
        self.rows, self.name, self.drops_rows = rows, name, drops_rows
        self.found: list[tuple[np.ndarray, np.ndarray]] = []

    def summarize(self, item: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers and vectors of the wanted rows of a batch."""
        low, high = np.searchsorted(self.rows, (item.start, item.start + len(item.vectors)))
        wanted = self.rows[low:high]
        vectors = to_numpy(item.vectors)[wanted - item.start].copy()
        if not self.drops_rows and not (finite := np.isfinite(vectors).all(axis=1)).all():
            raise MissingValueError(
                f"{self.name} contains NaN or infinity, first in row {wanted[np.argmin(finite)]}: fix these rows, or "
                f"{DROP_HINT}"
            )
        return wanted, vectors

    def add(self, part: tuple[np.ndarray, np.ndarray]) -> None:
        """Add the rows of the next batch."""
        self.found.append(part)

    def partial_result(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rows found so far."""
        return self.found

    def join(self, gathered: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Add the rows found among later ones."""
        self.found += gathered


class PairedRows(NamedTuple):
    """The vectors of matched rows, without rows that are incomplete or whose texts differ."""

    old: np.ndarray
    new: np.ndarray
    names: np.ndarray
    notes: list[str]


def read_pairs(
    old: Side, new: Side, match: RowMatch, size: int, seed: int, engine: Engine, progress: Progress
) -> PairedRows:
    """Read the vectors of the matched rows, at most `size` of them, chosen at random."""
    assert old.store is not None
    assert new.store is not None
    notes = list(match.notes)
    chosen = np.arange(len(match.old))
    if len(chosen) > size:
        chosen = np.sort(np.argsort(row_keys(0, len(chosen), seed))[:size])
        notes.append(f"A random sample of {size:,} of {len(match.old):,} matched rows is compared.")
    if match.by == "ids" and "text" in old.store.columns and "text" in new.store.columns:
        before, after = old.store.column("text", match.old[chosen]), new.store.column("text", match.new[chosen])
        assert before is not None
        assert after is not None
        equal = np.asarray([str(a) == str(b) for a, b in zip(before, after, strict=True)])
        if not equal.all():
            count = int((~equal).sum())
            its, vectors = ("its", "vector") if count == 1 else ("their", "vectors")
            notes.append(
                f"{plural(count, 'row')} {_was(count)} left out because {its} text differs in {new.name}, so {its} "
                f"{vectors} should differ."
            )
            chosen = chosen[equal]
    sides = (
        _pick(old.store, match.old[chosen], engine, progress, "reading old rows"),
        _pick(new.store, match.new[chosen], engine, progress, "reading new rows"),
    )
    complete = np.isfinite(sides[0]).all(axis=1) & np.isfinite(sides[1]).all(axis=1)
    if not complete.all():
        count = int((~complete).sum())
        notes.append(f"{plural(count, 'pair')} {_was(count)} left out because a row is incomplete or zero.")
    return PairedRows(sides[0][complete], sides[1][complete], match.names[chosen][complete], notes)


def _pick(store: Store, rows: np.ndarray, engine: Engine, progress: Progress, stage: str) -> np.ndarray:
    """Return the vectors of these rows, in this order; rows to drop contain NaN."""
    wanted = np.unique(rows)
    found = engine.tally(_PickTally(wanted, store.name, store.drops_rows), store, progress, stage).found
    vectors = np.concatenate([part for _, part in found]) if found else np.empty((0, store.dim), store.dtype)
    if len(vectors) != len(wanted):
        raise InputError(f"{store.name} changed while it was being read: run again when it no longer changes")
    return np.asarray(vectors[np.searchsorted(wanted, rows)])


def read_sample(side: Side, size: int, seed: int, drop: Missing, engine: Engine, progress: Progress) -> Sample:
    """Return a random sample of the rows, with their groups if they depend on each other."""
    assert side.store is not None
    tally = SampleTally(size, seed, side.name, drop)
    tally.columns = [role for role in ("groups",) if role in side.store.columns]
    return engine.tally(tally, side.store, progress, "reading").partial_result()


def read_sketch(side: Side, missing: Missing, zeros: Zeros, engine: Engine, progress: Progress) -> Sketch:
    """Return the sketch of a side, in one pass over its rows unless it is a sketch."""
    if side.sketch is not None:
        return side.sketch
    assert side.store is not None
    store = drop_single_groups(side.store)
    tally = SketchTally(drop_policy(missing, zeros), groups="groups" in store.columns)
    return engine.tally(tally, store, progress, "summing up").total


def repeated_groups(sample: Sample) -> np.ndarray | None:
    """Return the groups of the sampled rows, or None if every row is a group of its own."""
    groups = sample.columns.get("groups")
    return None if groups is None or len(np.unique(groups)) == len(groups) else groups
