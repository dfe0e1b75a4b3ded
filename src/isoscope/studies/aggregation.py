"""Group the results of arms and average them over seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from statistics import fmean
from typing import TypeVar

from isoscope.studies.study import Value

RowT = TypeVar("RowT")
KeyT = TypeVar("KeyT", bound=Hashable)


def group_by(rows: Iterable[RowT], key: Callable[[RowT], KeyT]) -> dict[KeyT, list[RowT]]:
    """Group rows by key, with the keys in order of first appearance.

    >>> group_by(["a1", "b1", "a2"], lambda row: row[0])
    {'a': ['a1', 'a2'], 'b': ['b1']}
    """
    groups: dict[KeyT, list[RowT]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def mean_by_seed(rows: Iterable[RowT], value: Callable[[RowT], float], seed: Callable[[RowT], Hashable]) -> Value:
    """Average the rows of each seed, such as its layers, and return the averages as a `Value`.

    >>> mean_by_seed([(0, 1.0), (0, 3.0), (1, 5.0)], lambda row: row[1], lambda row: row[0]).seeds
    (2.0, 5.0)
    """
    return Value.of([fmean(map(value, own)) for own in group_by(rows, seed).values()])
