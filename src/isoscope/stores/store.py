"""What every store is: vectors in rows, read batch by batch or by their numbers, with labels, text and ids beside."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError, plural
from isoscope._core.memory import batch_bytes, check_memory
from isoscope.stores.columns import ALL_ROLES, ROLES, ColumnError, check_no_missing, plain_values

if TYPE_CHECKING:
    from isoscope.stores.table_schema import Layout

_BATCH_BYTES = 16 * 2**20  # of float32
_MOST_ROWS = 65_536


class Batch(NamedTuple):
    """Some rows of a store, one after the other."""

    start: int
    """The number of its first row in the store."""
    vectors: np.ndarray
    """(m, d), in the precision of the store."""
    columns: dict[str, np.ndarray]
    """What stands beside the vectors, m values for each role asked for."""
    share: float
    """How much of the store has been read after this batch, 0…1."""
    other_columns: Any = None
    """Every other column of a table, as a record batch of Arrow's; only if it was asked for."""


class Piece(NamedTuple):
    """What a format reads: vectors, the values of columns by their own names, the share that has been read."""

    vectors: np.ndarray
    columns: dict[str, Any]
    share: float
    other_columns: Any = None


class Store(ABC):
    """Vectors in rows, wherever they live; iterating gives chunks of them, so that `isoscope.sketch(store)` works.

    A format says how many rows there are, how to read them in order (`_read`), how to find some of them (`_pick`) and
    how to read a column (`_values`); the rest is here.
    """

    def __init__(self, name: str, dim: int, dtype: Any, columns: Mapping[str, str]) -> None:
        self.name = name
        self.dim = int(dim)
        self.dtype = np.dtype(dtype)
        self.columns: Mapping[str, str] = dict(columns)
        self._given: dict[str, np.ndarray] = {}
        self._hidden: frozenset[str] = frozenset()  # columns of a table that are left out
        self.guessed: frozenset[str] = frozenset()
        """Roles whose column was found by its usual name, and not said."""
        self.files: tuple[Path, ...] = ()
        """The files that are read; none if the vectors are in memory or came through a pipe."""
        self.chosen: str | None = None
        """The name of the vectors, if it was said."""
        self._opened: tuple[Callable[..., Store], tuple[Any, ...]] | None = None  # how to open it in another process

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        """Every row from `start` on, at most `rows` at a time, with the columns of these names.

        With `beside` a table gives its record batches too, with all columns.
        """

    @abstractmethod
    def _pick(self, indices: np.ndarray) -> np.ndarray:
        """The vectors of these rows, which are sorted, different, and exist."""

    @abstractmethod
    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        """A column's values, of all rows or of these, which are sorted, different, and exist."""

    def _layout(self) -> Layout | None:
        """The columns of a table; None if the store is not one."""
        return None

    def _has_column(self, name: str) -> bool:
        """Whether a column of this name can be read though it was not asked for when the store was opened."""
        return False

    def _cut(self, start: int, stop: int) -> tuple[Store, int]:
        """The least store that holds the rows from `start` to `stop`, and where they begin in it.

        What is in memory, and what no other process could open, is these rows alone.
        """
        if self._opened is not None:
            return self, start
        from isoscope.stores.in_memory import IndexedStore

        rows = np.arange(start, stop)
        table = {name: self._values(name, rows) for name in set(self.columns.values()) - self._given.keys()}
        return IndexedStore(self.name, self._pick(rows), self.columns, table), 0

    def _places(self) -> list[int]:
        """The rows, beside row 0, at which reading begins at once: none where a file is read from its beginning."""
        rows = _usual_rows(self.dim)
        return [*range(rows, len(self), rows)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._opened is None:
            return super().__reduce_ex__(protocol)
        kept = ("name", "columns", "guessed", "chosen", "_given", "_hidden")
        return (*self._opened, {name: getattr(self, name) for name in kept})  # files are opened anew where it arrives

    def __copy__(self) -> Store:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def batches(
        self, columns: Sequence[str] = (), rows: int | None = None, *, start: int = 0, beside: bool = False
    ) -> Iterator[Batch]:
        """Read all rows in order, a batch at a time; can be called again for another pass.

        Parameters
        ----------
        columns : sequence of {"labels", "types", "text", "ids", "frequency", "groups", "by"}
            What to read beside the vectors.
        rows : int, optional
            The most rows in a batch; 16 MB of float32 unless given.
        start : int
            The number of the first row to read.
        beside : bool
            Whether to read every other column of a table as well, for `Batch.beside`.
        """
        columns = [columns] if isinstance(columns, str) else list(columns)
        for role in columns:
            if self._own_name(role) is None:
                has = f"it has {' and '.join(self.columns)}" if self.columns else "it has vectors alone"
                raise InputError(f'{self.name} has no {role}: {has}; say where they are with open_store(…, {role}="…")')
        rows = default_rows(self.dim) if rows is None else check_integer(rows, "rows")
        if rows < 1:
            raise InputError(f"rows is {rows}: need at least 1 row in a batch")
        return self._numbered(columns, rows, check_integer(start, "start"), self.layout() if beside else None)

    def _numbered(self, roles: list[str], rows: int, start: int, layout: Layout | None) -> Iterator[Batch]:
        names = list(dict.fromkeys(self.columns[role] for role in roles if role not in self._given))
        for piece in self._read(names, rows, start, layout is not None):
            if not len(piece.vectors):
                continue
            stop = start + len(piece.vectors)
            values = {
                role: self._given[role][start:stop]
                if role in self._given
                else self._checked(role, piece.columns[self.columns[role]])
                for role in roles
            }
            record = None
            if layout is not None:
                given = {role: values[start:stop] for role, values in self._given.items()}
                record = layout.fitted(piece.other_columns, given, stop - start)
            yield Batch(start, piece.vectors, values, min(1.0, piece.share), record)
            start = stop

    def layout(self) -> Layout | None:
        """The columns of the table that the store is, as Arrow knows them; None if it is not a table."""
        own = self._layout()
        return None if own is None else own.without(self._hidden).plus(self._given)

    def chunks(self, rows: int | None = None) -> Iterator[np.ndarray]:
        """The vectors alone, in order, a batch at a time."""
        return (batch.vectors for batch in self.batches(rows=rows))

    def __iter__(self) -> Iterator[np.ndarray]:
        return self.chunks()

    def take(self, indices: Any) -> np.ndarray:
        """The vectors of these rows, in the order asked; a row may be asked twice.

        A file that is read line by line is scanned from its beginning.
        """
        rows, back = self._row_numbers(indices)
        if not len(rows):
            return np.empty((0, self.dim), self.dtype)
        found = self._pick(rows)
        return found if back is None else found[back]

    def column(self, role: str, indices: Any = None) -> np.ndarray | None:
        """The labels, types, text, … of all rows, or of these in the order asked; None if the store has none.

        Numbers come as int64 or float64, text as strings. Only the rows asked for are kept in memory.
        """
        name = self._own_name(role)
        if name is None:
            return None
        if indices is None:
            return self._given[role] if role in self._given else self._checked(role, self._values(name, None))
        rows, back = self._row_numbers(indices)
        found = self._given[role][rows] if role in self._given else self._checked(role, self._values(name, rows))
        return found if back is None else found[back]

    @property
    def labels(self) -> np.ndarray | None:
        """The class of each row, or None."""
        return self.column("labels")

    @property
    def types(self) -> np.ndarray | None:
        """What each row is an instance of, or None."""
        return self.column("types")

    @property
    def text(self) -> np.ndarray | None:
        """What each row is a vector of, or None."""
        return self.column("text")

    @property
    def ids(self) -> np.ndarray | None:
        """What identifies each row, whole numbers or strings, or None."""
        return self.column("ids")

    @property
    def frequency(self) -> np.ndarray | None:
        """How often what each row stands for occurs, or None."""
        return self.column("frequency")

    def mapped(
        self, function: Callable[[np.ndarray], Any], dim: int, dtype: Any = None, name: str | None = None
    ) -> Store:
        """The same store with its vectors sent through a function, batch by batch, when they are read.

        Parameters
        ----------
        function : function
            Makes (m, dim) vectors of (m, d) vectors, row by row: the `transform` of a repair, for example. Whole
            numbers come to it as float32.
        dim : int
            Dimensions of what it makes.
        dtype : dtype, optional
            The precision of what it makes; that of the store unless given, float32 for whole numbers.
        name : str, optional
            What the new store is called; as this one unless given.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> store = isoscope.open_store(np.arange(6, dtype=np.float32).reshape(3, 2), text=["a", "b", "c"])
        >>> doubled = store.mapped(lambda rows: 2 * rows, 2)
        >>> doubled.take([2]), doubled.text.tolist()
        (array([[ 8., 10.]], dtype=float32), ['a', 'b', 'c'])
        """
        from isoscope.stores.mapped import MappedStore

        return MappedStore(self, function, dim, dtype, name)

    def with_column(self, role: str, values: Any) -> Store:
        """The same store with these values, one for each row, as its labels, types, text, …"""
        plain, missing = plain_values(values, role)
        if len(plain) != len(self):
            raise InputError(f"{role} has {plural(len(plain), 'entry')}, the store has {plural(len(self), 'row')}")
        check_no_missing(missing, role, role)
        other = copy.copy(self)
        other.columns = {**self.columns, role: role}
        other._given = {**self._given, role: plain}
        return other

    def group_by(self, name: str) -> Store:
        """The same store with one of its roles, or a column, as what its rows are parted by."""
        if self.columns.get("by") == name:
            return self
        roles = [role for role, column in self.columns.items() if role != "by" and name in (role, column)]
        if not roles and (name in self._hidden or not self._has_column(name)):
            has = f"it has {', '.join(self.columns)}" if self.columns else "it has vectors alone"
            raise InputError(
                f"{self.name} has no {name} to group by: {has}; another column is named when the store is opened, "
                f'open_store(…, by="{name}")'
            )
        other = copy.copy(self)
        other.columns = {**self.columns, "by": self.columns[roles[0]] if roles else name}
        given = {"by": self._given[roles[0]]} if roles and roles[0] in self._given else {}
        other._given = {role: held for role, held in self._given.items() if role != "by"} | given
        return other

    def without(self, role: str) -> Store:
        """The same store without its labels, types, text, …"""
        other = copy.copy(self)
        if role not in self._given:
            kept = {name for each, name in self.columns.items() if each != role}
            other._hidden = self._hidden | ({self.columns[role]} - kept if role in self.columns else set())
        other.columns = {kept: name for kept, name in self.columns.items() if kept != role}
        other._given = {kept: values for kept, values in self._given.items() if kept != role}
        return other

    def __repr__(self) -> str:
        beside = f", {', '.join(self.columns)}" if self.columns else ""
        return f"Store({self.name}: {self.dim} dimensions of {self.dtype}{beside})"

    def _own_name(self, role: str) -> str | None:
        if role not in ROLES:
            raise InputError(f"{role!r} is not a column of a store: need {ALL_ROLES}")
        return self.columns.get(role)

    def _checked(self, role: str, values: Any) -> np.ndarray:
        """Values as they are handed out; a missing label is said with all the others that are missing."""
        where = f"{self.name}: {self.columns[role]}"
        try:
            plain, missing = plain_values(values, role, where)
            if missing is not None:
                check_no_missing(plain_values(self._values(self.columns[role], None), role, where)[1], role, where)
        except InputError as error:
            raise ColumnError(str(error), role) from error
        return plain

    def _row_numbers(self, indices: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Different row numbers in order, and where each that was asked for is among them (None: they are as asked)."""
        rows = np.asarray(indices)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise InputError(f"indices has dtype {rows.dtype} and shape {rows.shape}: need row numbers, shape (m,)")
        rows = rows.astype(np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            wrong = rows[(rows < 0) | (rows >= len(self))][0]
            raise InputError(f"row {wrong} was asked for: {self.name} has rows 0…{len(self) - 1}")
        if (np.diff(rows) > 0).all():
            return rows, None
        unique, back = np.unique(rows, return_inverse=True)
        return unique, back


def default_rows(dim: int) -> int:
    """How many rows a batch has unless it is said: 16 MB of float32, less if memory is limited."""
    check_memory(dim)
    return _usual_rows(dim, batch_bytes(_BATCH_BYTES))


def _usual_rows(dim: int, most_bytes: int = _BATCH_BYTES) -> int:
    return max(1, min(_MOST_ROWS, most_bytes // (4 * max(dim, 1))))
