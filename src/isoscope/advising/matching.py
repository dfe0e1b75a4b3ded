"""Match the names in judgments with rows: by id, by text or by row number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from isoscope._core.arrays import unit_rows
from isoscope._core.errors import NotFoundError, ParameterError, plural

if TYPE_CHECKING:
    from isoscope._core.types import Missing
    from isoscope.stores.store import Store


class Match(NamedTuple):
    """The rows that judgments refer to."""

    rows: np.ndarray
    """The row number for each name; −1 if it is unknown."""
    by: Literal["ids", "texts", "row numbers"]
    """What the names were compared with."""

    @property
    def unknown(self) -> np.ndarray:
        """Whether each name is unknown."""
        return self.rows < 0

    @property
    def may_count_from_1(self) -> bool:
        """Whether the names are row numbers that could count from 0 or from 1."""
        return self.by == "row numbers" and len(self.rows) > 0 and int(self.rows.min()) > 0


def find_rows(store: Store, names: Sequence[str], what: str) -> Match:
    """Return the rows that names refer to: ids, texts or, if all names fit and the store has no ids, row numbers."""
    found = [_look_up(store, role, names, what) for role in _NAMED_BY if role in store.columns]
    best = min(found, key=lambda match: int(match.unknown.sum()), default=None)
    if best is not None and ("ids" in store.columns or not best.unknown.any()):
        return best
    numbers = [_parse_row_number(name) for name in names]
    if all(0 <= number < len(store) for number in numbers):
        return Match(np.asarray(numbers, np.int64), "row numbers")
    if min(numbers) == 1 and max(numbers) == len(store):
        raise NotFoundError(
            f"{what} refer to rows by numbers from 1 to {len(store):,}, but {store.name} has no ids, and its rows are "
            f"numbered from 0 to {len(store) - 1:,}: pass the ids ({_IDS_HINT})"
        )
    if best is not None and not best.unknown.all():
        return best
    odd = next(name for name, number in zip(names, numbers, strict=True) if not 0 <= number < len(store))
    raise NotFoundError(
        f"{what} refer to {shorten_name(odd)!r}, but {store.name} has no ids, and its rows are numbered from 0 to "
        f"{len(store) - 1:,}: pass the ids ({_IDS_HINT})"
    )


_NAMED_BY: dict[str, Literal["ids", "texts"]] = {"ids": "ids", "text": "texts"}
_IDS_HINT = "ids=, query_ids=; CLI: --ids, --query-ids with a column or a file"


def _look_up(store: Store, role: str, names: Sequence[str], what: str) -> Match:
    """Return the rows whose id or text is each name; of rows with equal texts, the first."""
    values = store.column(role)
    assert values is not None
    known = {str(value): row for row, value in zip(range(len(values) - 1, -1, -1), values[::-1], strict=True)}
    if role == "ids" and len(known) < len(values):
        counts = Counter(map(str, values))
        shared = next((name for name in names if counts[name] > 1), None)
        if shared is not None:
            raise ParameterError(
                f"{what} refer to the id {shorten_name(shared)!r}, which {counts[shared]:,} rows of {store.name} share"
                ": need unique ids"
            )
    return Match(np.fromiter((known.get(name, -1) for name in names), np.int64, len(names)), _NAMED_BY[role])


def _parse_row_number(name: str) -> int:
    is_number = name.isascii() and name.isdigit() and len(name) < 19  # Python refuses to convert thousands of digits
    return int(name) if is_number and (name == "0" or name[0] != "0") else -1


def shorten_name(name: str) -> str:
    """Return a name, such as a long text, with at most 60 characters."""
    return name if len(name) <= 60 else name[:57] + "…"


class Side(NamedTuple):
    """One side of judged pairs of rows: the query or the document, or one row of a graded pair."""

    store: Store
    match: Match
    rows: np.ndarray
    """The row of each judged pair."""


_CLEAR = 2.0  # standard errors; if counting from 1 is right, the difference is below 0


def check_numbering(sides: tuple[Side, Side], grades: np.ndarray, what: str, seed: int) -> list[str]:
    """Return notes about names that are row numbers; raise an error if they may count from 1 instead of 0.

    Names that include a 0 count from 0. Otherwise the vectors decide: grades must agree with the similarities of rows
    clearly better if the names count from 0 than if they count from 1.
    """
    notes = [
        f"{side.store.name} has no ids, so {what} refer to its rows by number, from 0 to {len(side.store) - 1:,}."
        for side in {id(side.store): side for side in sides}.values()
        if side.match.by == "row numbers"
    ]
    shifts = [(0, 1) if side.match.may_count_from_1 else (0,) for side in sides]
    same_store = sides[0].store is sides[1].store
    others = [each for each in product(*shifts) if any(each) and (not same_store or each[0] == each[1])]
    some = np.random.default_rng(seed).permutation(len(grades))[:1_000]
    differences = {shift: _mean_difference(sides, grades, some, shift) for shift in others}
    if differences:
        shift = min(differences, key=lambda each: differences[each][0])
        mean, error = differences[shift]
        if not mean > _CLEAR * error:
            side = sides[0] if shift[0] else sides[1]
            numbers = f"numbers from {side.match.rows.min():,} to {side.match.rows.max():,}"
            guess = "fits the vectors better" if mean < -_CLEAR * error else "is possible as well"
            raise NotFoundError(
                f"{what} refer to rows of {side.store.name} by {numbers}, and counting from 1 instead of 0 {guess}: "
                f"pass the ids ({_IDS_HINT})"
            )
    return notes


def _mean_difference(
    sides: tuple[Side, Side], grades: np.ndarray, some: np.ndarray, shift: tuple[int, ...]
) -> tuple[float, float]:
    """Return how much better counting from 0 agrees with the grades than a shifted count, and the standard error."""
    better = grades[some] * (_cosines(sides, some, (0, 0)) - _cosines(sides, some, shift))
    return float(better.mean()), float(better.std()) / max(len(better) - 1, 1) ** 0.5


def _cosines(sides: tuple[Side, Side], some: np.ndarray, shift: tuple[int, ...]) -> np.ndarray:
    """Return the cosine of each pair of rows, after subtracting the shift from their numbers.

    Coordinates are standardized, so that a shared direction or one large coordinate does not hide the others.
    """
    first, second = (
        np.nan_to_num(side.store.take(side.rows[some] - by).astype(np.float64), posinf=0, neginf=0)
        for side, by in zip(sides, shift, strict=True)
    )
    both = np.concatenate([first, second])
    mean, spread = both.mean(axis=0), both.std(axis=0)
    spread[spread == 0] = 1
    first, second = (unit_rows(np, (X - mean) / spread, np.dtype(np.float64)) for X in (first, second))
    return np.asarray(np.einsum("ij,ij->i", first, second))


def check_known(names: Sequence[str], match: Match, what: str, store: Store) -> None:
    """Raise an error if names are unknown; the message states how many, and the first of them."""
    if not match.unknown.any():
        return
    missing = list(dict.fromkeys(name for name, gone in zip(names, match.unknown, strict=True) if gone))
    advice = 'drop these judgments with missing="drop" (CLI: --missing drop)'
    if match.unknown.mean() > 0.5:
        advice = f"pass the ids ({_IDS_HINT})"
    raise NotFoundError(
        f"{what} refer to {plural(len(missing), 'row')} that {store.name} does not contain (compared with its "
        f"{match.by}){', such as' if len(missing) > 1 else ':'} {shorten_name(missing[0])!r}: {advice}"
    )


def count_unknown(names: list[str], match: Match, what: str, store: Store, missing: Missing) -> int:
    """Return the number of unknown names; raise an error if they must not be dropped or if no name is known."""
    if missing == "error" or match.unknown.all():
        check_known(names, match, what, store)
    return len({name for name, no in zip(names, match.unknown, strict=True) if no})
