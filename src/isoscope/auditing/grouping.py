"""Assign rows to groups by the values in a column, by ranges of numbers, or by the most frequent names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import MissingValueError, plural, was_dropped
from isoscope.stores.shards import natural_sort_key

if TYPE_CHECKING:
    from isoscope.stores.store import Store

MAX_GROUPS = 24
"""The largest number of groups that are measured separately."""
MAX_LAYERS = 1_000
"""The largest number of layers that are measured separately; layers are never merged into ranges."""
RANGES = 8
"""The number of ranges into which a column with more than MAX_GROUPS distinct numbers is split."""


@dataclass(frozen=True)
class Grouping:
    """The groups in order, and the group that each row belongs to."""

    names: list[str]
    values: list[int | float | str]
    """The value of each group; for a range, the value of its middle row."""
    codes: np.ndarray
    """The group of each row, with shape (n,); −1 for a row that is in no group."""
    ordered: bool
    """Whether the groups are numbers or ranges of numbers."""
    others: dict[str, str] = field(default_factory=dict)
    """The groups that are left out, and the reason for each."""
    smaller: int = 0
    """The number of names that are not measured because there are too many."""

    @property
    def counts(self) -> np.ndarray:
        """The number of rows in each group."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))

    def among(self, known: np.ndarray) -> Grouping:
        """Return this grouping extended to all rows; rows outside `known` belong to no group."""
        if known.all():
            return self
        codes = np.full(len(known), -1, self.codes.dtype)
        codes[known] = self.codes
        without = {"no value": was_dropped(int((~known).sum()), "row", "without a value")}
        return replace(self, codes=codes, others=self.others | without)

    @property
    def left_out(self) -> int:
        """The number of rows that are in no group."""
        return int((self.codes < 0).sum())


def group_rows(values: np.ndarray, most: int = MAX_GROUPS) -> Grouping:
    """Group rows by their values, which are int64 or float64 numbers, or strings (dtype object).

    If there are more than `most` distinct numbers, they are split into ranges. If there are more than `most` names,
    only the most frequent are kept.

    Examples
    --------
    >>> import numpy as np
    >>> grouping = group_rows(np.asarray([6, 0, 6, 12]))
    >>> grouping.names, grouping.codes.tolist()
    (['0', '6', '12'], [1, 0, 1, 2])
    >>> group_rows(np.arange(80)).names
    ['0–9', '10–19', '20–29', '30–39', '40–49', '50–59', '60–69', '70–79']
    """
    if values.dtype.kind == "O":
        return _group_by_name(values, most)
    infinite = np.isinf(values)
    if infinite.any():
        raise MissingValueError(
            f"the column to group by contains {values[infinite][0]} in row {int(np.argmax(infinite))} "
            f"({plural(int(infinite.sum()), 'such row')}): need finite numbers or names"
        )
    different, codes = np.unique(values, return_inverse=True)
    if len(different) > most:
        return _group_by_range(different, codes)
    return Grouping([_format_value(v) for v in different], different.tolist(), codes.astype(np.int16), ordered=True)


def drop_single_groups(store: Store, apart: np.ndarray | None = None) -> Store:
    """Return the store without its group column if every group has only one row, because the rows are then independent.

    `apart` contains the code of each row's separate audit, such as its layer. A group then counts only if at least two
    of its rows have the same code.
    """
    values = store.column("groups")
    if values is None:
        return store
    codes = np.unique(values.astype(str) if values.dtype.kind == "O" else values, return_inverse=True)[1]
    if apart is not None:
        codes = codes * (int(apart.max()) + 2) + apart
    return store.without("groups") if len(np.unique(codes)) == len(codes) else store


def _group_by_name(values: np.ndarray, most: int) -> Grouping:
    counts = Counter(values.tolist())  # much faster than sorting many strings
    natural = sorted(counts, key=lambda name: (natural_sort_key(name), name))
    largest = set(sorted(natural, key=lambda name: -counts[name])[:most])
    names = [name for name in natural if name in largest]
    place = {name: code for code, name in enumerate(names)}
    codes = np.fromiter((place.get(name, -1) for name in values), np.int16, len(values))
    fewer = len(counts) - len(names)
    others = {}
    if fewer:
        rows = int((codes < 0).sum())
        others[plural(fewer, "other")] = (
            f"{plural(rows, 'row')} in {plural(fewer, 'smaller group')} "
            f"{'is' if rows == 1 else 'are'} skipped: only the {most} largest groups are measured"
        )
    return Grouping(names, list(names), codes, ordered=False, others=others, smaller=fewer)


def _group_by_range(different: np.ndarray, codes: np.ndarray) -> Grouping:
    """Return ranges with about the same number of rows; tied values are always placed in the same range."""
    counts = np.bincount(codes, minlength=len(different))
    middles = np.cumsum(counts) - counts / 2  # the middle position of each value's rows
    places = np.minimum((middles * RANGES / counts.sum()).astype(np.int64), RANGES - 1)
    _, places = np.unique(places, return_inverse=True)  # a frequent value may fill several ranges
    names, values = [], []
    for place in range(int(places.max()) + 1):
        own = np.flatnonzero(places == place)
        low, high = different[own[0]], different[own[-1]]
        names.append(_format_value(low) if low == high else f"{_format_value(low)}–{_format_value(high)}")
        half = np.searchsorted(np.cumsum(counts[own]), counts[own].sum() / 2)
        values.append(different[own[half]].item())
    if len(set(names)) < len(names):  # numbers that are equal to four digits
        starts = [different[np.argmax(places == place)] for place in range(len(names))]
        names = [f"from {start!r}" for start in map(float, starts)]
    return Grouping(names, values, places[codes].astype(np.int16), ordered=True)


def _format_value(value: Any) -> str:
    """Return a number as a group name: integers exactly, other numbers with four digits."""
    text = f"{int(value)}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", "−", 1) if text.startswith("-") else text
