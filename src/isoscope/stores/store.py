"""Stores: rows of vectors, read in batches or by row number, with labels, text, ids and other columns."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from isoscope._core.arrays import blocks, check_integer
from isoscope._core.errors import InputError, MissingValueError, NotFoundError, ParameterError, ShapeError, plural
from isoscope._core.memory import batch_bytes, check_memory
from isoscope._core.missing import DROP_HINT, check_missing, check_zeros
from isoscope._render import Displayed, render
from isoscope.stores.columns import ALL_ROLES, ROLES, ColumnError, check_no_missing, fill_missing, plain_values

if TYPE_CHECKING:
    from isoscope._core.types import Missing, Zeros
    from isoscope._report.pictures import PointCloud
    from isoscope.stores.remote import RemoteFile
    from isoscope.stores.table_schema import Layout

_BATCH_BYTES = 16 * 2**20  # bytes of float32 numbers
_MOST_ROWS = 65_536


class Batch(NamedTuple):
    """Consecutive rows of a store."""

    start: int
    """The number of the batch's first row in the store."""
    vectors: np.ndarray
    """The (m, d) vectors, in the precision of the store."""
    columns: dict[str, np.ndarray]
    """The requested columns by role, with m values each."""
    share: float
    """The share of the store, from 0 to 1, that has been read up to the end of this batch."""
    other_columns: Any = None
    """All other columns of a table, as an Arrow record batch; set only if requested."""


class Piece(NamedTuple):
    """Rows read from a source: vectors, columns under their original names, and the share of the source read so far."""

    vectors: np.ndarray
    columns: dict[str, Any]
    share: float
    other_columns: Any = None


class Store(Displayed, ABC):
    """Rows of vectors from any source; iteration yields arrays of rows, so `isoscope.sketch(store)` works.

    The class of a format implements `__len__`, `_read` (all rows in order), `_pick` (some rows) and `_values` (a
    column). A table also implements `_layout`. A store that wraps other stores calls these methods on them.
    """

    def __init__(self, name: str, dim: int, dtype: Any, columns: Mapping[str, str]) -> None:
        self.name = name
        self.dim = int(dim)
        self.dtype = np.dtype(dtype)
        self.columns: Mapping[str, str] = dict(columns)
        self._given: dict[str, np.ndarray] = {}
        self._hidden: frozenset[str] = frozenset()  # excluded columns of the table
        self._required: frozenset[str] | None = None  # roles without which a row is incomplete; None: no row is dropped
        self._drop_zeros = False
        self._given_missing: dict[str, np.ndarray] = {}
        self.guessed: frozenset[str] = frozenset()
        """Roles whose column was chosen by its common name, not by the caller."""
        self.guessed_dimensions: tuple[str, ...] = ()
        """The numeric columns that are read as dimensions although their names have no common pattern."""
        self.files: tuple[Path | RemoteFile, ...] = ()
        """The files that are read; empty if the vectors are in memory or came through a pipe."""
        self.chosen: str | None = None
        """The name of the vector column, if the caller specified it."""
        self.layer: int | None = None
        """The layer that was selected, if the source contains several."""
        self._reopen: tuple[Callable[..., Store], tuple[Any, ...]] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        """Yield all rows from `start` on, at most `rows` at a time, with the columns of these names.

        With `other_columns`, a table also yields its record batches, with all columns.
        """

    @abstractmethod
    def _pick(self, indices: np.ndarray) -> np.ndarray:
        """Return the vectors of these rows, given valid and strictly increasing indices."""

    @abstractmethod
    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        """Return a column's values for all rows, or for these indices, which must be valid and strictly increasing."""

    def _layout(self) -> Layout | None:
        """Return the columns of the table as they are stored, or None if the store is not a table."""
        return None

    @property
    def given_columns(self) -> Mapping[str, np.ndarray]:
        """The columns whose values the caller passed, by role."""
        return self._given

    def has_column(self, name: str) -> bool:
        """Return whether the store can read a column of this name that has no role."""
        return False

    def known_length(self) -> int | None:
        """Return the number of rows, or None if it is unknown until the file is read."""
        return len(self)

    def read_starts(self) -> list[int]:
        """Return the rows after row 0 where reading can start directly; empty if reading always starts at row 0."""
        rows = _usual_rows(self.dim)
        return [*range(rows, len(self), rows)]

    def reopen_with(self, function: Callable[..., Store], *arguments: Any) -> None:
        """Set the function call that opens the store in another process, so that its rows need not be sent."""
        self._reopen = function, arguments

    def slice(self, start: int, stop: int) -> tuple[Store, int]:
        """Return a store with rows `start` to `stop` to send to another process, and the position of `start` in it.

        If another process can open the files, this is the store itself; otherwise it is a copy of the rows.
        """
        if self._reopen is not None:
            return self, start
        rows = np.arange(start, stop)
        table = {name: self._values(name, rows) for name in set(self.columns.values()) - self._given.keys()}
        return IndexedStore(self.name, self._pick(rows), self.columns, table), 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._reopen is None:
            return super().__reduce_ex__(protocol)
        state = ["name", "columns", "guessed", "chosen", "layer", "_given", "_hidden"]
        state += ["_required", "_drop_zeros", "_given_missing"]
        return (*self._reopen, {name: getattr(self, name) for name in state})

    def __copy__(self) -> Store:
        other = object.__new__(type(self))
        other.__dict__.update(self.__getstate__())
        return other

    def batches(
        self, columns: Sequence[str] = (), rows: int | None = None, *, start: int = 0, other_columns: bool = False
    ) -> Iterator[Batch]:
        """Yield all rows in order, in batches; each call starts a new pass.

        Parameters
        ----------
        columns : sequence of {"labels", "types", "text", "ids", "frequency", "groups", "by"}
            The columns to read with the vectors.
        rows : int, optional
            The maximum number of rows in a batch (default: 16 MB of float32).
        start : int
            The number of the first row to read.
        other_columns : bool
            Whether to read all other columns of a table as well, into `Batch.other_columns`.
        """
        columns = [columns] if isinstance(columns, str) else list(columns)
        for role in columns:
            if self._column_name(role) is None:
                raise NotFoundError(
                    f"{self.name} has no {role}: it has {self._roles()}; specify the column with open_store(…, "
                    f'{role}="…")'
                )
        rows = default_rows(self.dim) if rows is None else check_integer(rows, "rows")
        if rows < 1:
            raise ParameterError(f"rows is {rows}: need at least 1 row in a batch")
        layout = self.layout() if other_columns else None
        return self._read_batches(columns, rows, check_integer(start, "start"), layout)

    def _read_batches(self, roles: list[str], rows: int, start: int, layout: Layout | None) -> Iterator[Batch]:
        required = sorted((self._required or frozenset()) - set(roles))
        every = [*roles, *required]
        names = list(dict.fromkeys(self.columns[role] for role in every if role not in self._given))
        for piece in self._read(names, rows, start, layout is not None):
            if not len(piece.vectors):
                continue
            stop = start + len(piece.vectors)
            lost = np.zeros(stop - start, bool)
            values = {}
            for role in every:
                if role in self._given:
                    values[role] = self._given[role][start:stop]
                    if role in self._given_missing:
                        lost |= self._given_missing[role][start:stop]
                else:
                    found = piece.columns[self.columns[role]]
                    values[role] = self._check_values(role, found)
                    if self._required is not None and role in self._required:
                        missing = plain_values(found, role)[1]
                        lost |= False if missing is None else missing
            if self.drops_rows:
                piece = piece._replace(vectors=self._mark_dropped(piece.vectors, lost, start))
            values = {role: values[role] for role in roles}
            record = None
            if layout is not None:
                given = {role: values[start:stop] for role, values in self._given.items()}
                record = layout.conform(piece.other_columns, given, stop - start)
            yield Batch(start, piece.vectors, values, min(1.0, piece.share), record)
            start = stop

    @property
    def drops_rows(self) -> bool:
        """Whether incomplete rows or rows of zeros are to be dropped; batches contain NaN in their place."""
        return self._required is not None or self._drop_zeros

    def dropping(self, *, missing: Missing = "error", zeros: Zeros = "keep") -> Store:
        """Return the store with NaN in place of each row to drop, so that rows keep their numbers.

        Parameters
        ----------
        missing : {"error", "drop"}
            With "drop", rows whose vector or whose value in a column chosen by the caller is missing are dropped.
        zeros : {"keep", "drop"}
            With "drop", rows of zeros are dropped.
        """
        check_missing(missing)
        check_zeros(zeros)
        other = self._reading_missing() if missing == "drop" else copy.copy(self)
        if missing == "drop":
            other._required = frozenset(self.columns) - self.guessed - {"text"}
        other._drop_zeros = zeros == "drop"
        return other

    def _reading_missing(self) -> Store:
        """Return a copy that reads missing vectors as NaN instead of raising an error."""
        other = copy.copy(self)
        other._required = frozenset()
        return other

    def _mark_dropped(self, vectors: np.ndarray, lost: np.ndarray, start: int) -> np.ndarray:
        """Return the vectors with NaN in each row to drop."""
        if self._required is None:
            check_finite_rows(vectors, self.name, start)
        if self._drop_zeros:
            lost = lost | ~vectors.any(axis=1)
        if not lost.any():
            return vectors
        marked = vectors.astype(vectors.dtype if vectors.dtype.kind == "f" else np.float32)
        marked[lost] = np.nan
        return marked

    def layout(self) -> Layout | None:
        """Return the columns of the table with their Arrow types, or None if the store is not a table."""
        own = self._layout()
        return None if own is None else own.without(self._hidden).with_columns(self._given)

    def chunks(self, rows: int | None = None) -> Iterator[np.ndarray]:
        """Yield only the vectors, in order, in batches."""
        return (batch.vectors for batch in self.batches(rows=rows))

    def __iter__(self) -> Iterator[np.ndarray]:
        return self.chunks()

    def take(self, indices: Any) -> np.ndarray:
        """Return the vectors of these rows, in this order; a row may appear twice.

        A text file is scanned from its beginning.
        """
        rows, inverse = self._check_indices(indices)
        if not len(rows):
            return np.empty((0, self.dim), self.dtype)
        vectors = self._pick(rows)
        return vectors if inverse is None else vectors[inverse]

    def column(self, role: str, indices: Any = None) -> np.ndarray | None:
        """Return the column of a role, such as labels, for all rows or for these rows in this order; None if absent.

        Numbers are returned as int64 or float64, and text as strings. Only the requested rows are kept in memory.
        """
        name = self._column_name(role)
        if name is None:
            return None
        rows, inverse = (None, None) if indices is None else self._check_indices(indices)
        if role in self._given:
            values = self._given[role] if rows is None else self._given[role][rows]
        else:
            values = self._check_values(role, self._values(name, rows))
        return values if inverse is None else values[inverse]

    def missing(self, role: str) -> np.ndarray:
        """Return which rows have no value in the column of a role."""
        if role in self._given:
            return self._given_missing.get(role, np.zeros(len(self), bool))
        mask = plain_values(self._values(self.columns[role], None), role)[1]
        return np.zeros(len(self), bool) if mask is None else mask

    @property
    def labels(self) -> np.ndarray | None:
        """The class of each row, or None."""
        return self.column("labels")

    @property
    def types(self) -> np.ndarray | None:
        """The type of each row (the word or token it is an instance of), or None."""
        return self.column("types")

    @property
    def text(self) -> np.ndarray | None:
        """The text of each row, or None."""
        return self.column("text")

    @property
    def ids(self) -> np.ndarray | None:
        """The id of each row, an integer or a string, or None."""
        return self.column("ids")

    @property
    def frequency(self) -> np.ndarray | None:
        """The frequency of each row's word or text, or None."""
        return self.column("frequency")

    def mapped(
        self, function: Callable[[np.ndarray], Any], dim: int, dtype: Any = None, name: str | None = None
    ) -> Store:
        """Return the store with a function applied to its vectors, batch by batch, when they are read.

        Parameters
        ----------
        function : function
            A function that maps (m, d) vectors to (m, dim) vectors, row by row, such as the `transform` of a repair. It
            receives integers as float32.
        dim : int
            The number of dimensions of the new vectors.
        dtype : dtype, optional
            The precision of the new vectors (default: that of the store; float32 for integers).
        name : str, optional
            The name of the new store (default: the name of this one).

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> store = isoscope.open_store(np.arange(6, dtype=np.float32).reshape(3, 2), text=["a", "b", "c"])
        >>> doubled = store.mapped(lambda rows: 2 * rows, 2)
        >>> doubled.take([2]), doubled.text.tolist()
        (array([[ 8., 10.]], dtype=float32), ['a', 'b', 'c'])
        """
        return MappedStore(self, function, dim, dtype, name)

    def with_column(self, role: str, values: Any) -> Store:
        """Return the store with these values, one for each row, as the column of a role, such as its labels or text."""
        plain, missing = fill_missing(values, role) if self._required is not None else plain_values(values, role)
        if len(plain) != len(self):
            raise ShapeError(
                f"{role} has {plural(len(plain), 'entry')} but {self.name} has {plural(len(self), 'row')}; "
                "pass one entry per row"
            )
        other = copy.copy(self)
        if self._required is None:
            check_no_missing(missing, role, role)
        else:
            other._required = self._required if role == "text" else self._required | {role}
            if missing is not None:
                other._given_missing = {**self._given_missing, role: missing}
        other.guessed = self.guessed - {role}
        other.columns = {**self.columns, role: role}
        other._given = {**self._given, role: plain}
        return other

    def require(self, role: str) -> Store:
        """Return the store without rows whose value in the column of a role is missing, if it drops incomplete rows.

        A column that was chosen by its common name is not required otherwise.
        """
        other = copy.copy(self)
        other.guessed = self.guessed - {role}
        if self._required is not None and role in self.columns:
            other._required = self._required | {role}
        return other

    def group_by(self, name: str) -> Store:
        """Return the store with a role or column that defines the groups to audit separately."""
        if self.columns.get("by") == name:
            return self
        roles = [role for role, column in self.columns.items() if role != "by" and name in (role, column)]
        if not roles and (name in self._hidden or not self.has_column(name)):
            raise NotFoundError(
                f"{self.name} has no column {name} to group by: choose one of {self._roles()}, or name the column when "
                "you open the store: open_store(…, by=NAME)"
            )
        other = copy.copy(self)
        other.columns = {**self.columns, "by": self.columns[roles[0]] if roles else name}
        groups = {"by": self._given[roles[0]]} if roles and roles[0] in self._given else {}
        other._given = {role: values for role, values in self._given.items() if role != "by"} | groups
        return other

    def without(self, role: str) -> Store:
        """Return the store without the column of a role, such as its labels, types or text."""
        other = copy.copy(self)
        if role not in self._given:
            used = {name for each, name in self.columns.items() if each != role}
            other._hidden = self._hidden | ({self.columns[role]} - used if role in self.columns else set())
        other.columns = {each: name for each, name in self.columns.items() if each != role}
        other._given = {each: values for each, values in self._given.items() if each != role}
        other._given_missing = {each: mask for each, mask in self._given_missing.items() if each != role}
        other._required = None if self._required is None else self._required - {role}
        return other

    # notebooks

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_sampled"}

    def _sample(self) -> Any:
        """Return the store that a notebook draws and a sample of its points, read once; None if it draws none."""
        if "_sampled" not in self.__dict__:
            self.__dict__["_sampled"] = render("Store", "sample", self)
        return self.__dict__["_sampled"]

    def _render_page(self) -> str:
        return str(render("Store", "page", self, self._sample()))

    def _repr_html_(self) -> str:
        return str(render("Store", "notebook", self, self._sample()))

    def _drawn_sources(self) -> list[tuple[str, Sequence[PointCloud]]]:
        drawn = self._sample()
        return [] if drawn is None else [(drawn[0].name, [drawn[1]])]

    def __repr__(self) -> str:
        length = self.known_length()
        rows = "rows not counted" if length is None else plural(length, "row")
        columns = f", with {', '.join(self.columns)}" if self.columns else ""
        return f"Store({self.name}: {rows}, {plural(self.dim, 'dimension')}, {self.dtype}{columns})"

    def _roles(self) -> str:
        return ", ".join(self.columns) if self.columns else "only vectors"

    def _column_name(self, role: str) -> str | None:
        if role not in ROLES:
            raise ParameterError(f"{role!r} is not a column role: choose from {ALL_ROLES}")
        return self.columns.get(role)

    def _check_values(self, role: str, values: Any) -> np.ndarray:
        """Return values as int64, float64 or strings; if some are missing, the error states the number in all rows."""
        where = f"{self.name}: {self.columns[role]}"
        try:
            if self._required is not None and role in self._required:
                return fill_missing(values, role, where)[0]
            plain, missing = plain_values(values, role, where)
            if missing is not None:
                check_no_missing(plain_values(self._values(self.columns[role], None), role, where)[1], role, where)
        except InputError as error:
            raise ColumnError(str(error), role) from error
        return plain

    def _check_indices(self, indices: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return strictly increasing row numbers, and the indices that restore the given order (or None)."""
        rows = np.asarray(indices)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ParameterError(
                f"indices has dtype {rows.dtype} and shape {rows.shape}: need an integer array of shape (m,)"
            )
        rows = rows.astype(np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            wrong = rows[(rows < 0) | (rows >= len(self))][0]
            raise ParameterError(f"row {wrong} does not exist: {self.name} has rows 0…{len(self) - 1}")
        if (np.diff(rows) > 0).all():
            return rows, None
        unique, inverse = np.unique(rows, return_inverse=True)
        return unique, inverse


def complete_rows(batch: Batch) -> Batch:
    """Return the batch without the rows to drop, which contain NaN."""
    finite = np.isfinite(batch.vectors).all(axis=1)
    if finite.all():
        return batch
    columns = {role: values[finite] for role, values in batch.columns.items()}
    others = batch.other_columns
    if others is not None:
        import pyarrow as pa

        others = others.filter(pa.array(finite))
    return batch._replace(vectors=batch.vectors[finite], columns=columns, other_columns=others)


class Rows(Protocol):
    """Rows that can be sliced, or selected by an array of row numbers."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def dtype(self) -> np.dtype: ...  # noqa: D102

    def __getitem__(self, rows: Any) -> np.ndarray: ...


class IndexedStore(Store):
    """A store of vectors and columns that can be sliced: arrays in memory or in a file."""

    def __init__(self, name: str, rows: Rows, columns: Mapping[str, str], table: Mapping[str, Any]) -> None:
        super().__init__(name, rows.shape[1], native_dtype(rows.dtype), columns)
        self._rows = rows
        self._table = table

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        for block in blocks(len(self) - start, rows):
            part = slice(start + block.start, start + block.stop)
            values = {name: self._table[name][part] for name in names}
            yield Piece(to_native(self._rows[part]), values, part.stop / len(self))

    def read_starts(self) -> list[int]:
        """See `Store`."""
        return [] if getattr(self._rows, "scanned", False) else super().read_starts()

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return to_native(self._rows[indices])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        return self._table[name][slice(None) if indices is None else indices]


class WrappedStore(Store):
    """A store that reads from another store and has its columns."""

    def __init__(self, store: Store, name: str, dim: int, dtype: Any) -> None:
        super().__init__(name, dim, dtype, store.columns)
        self._store = store
        self._given, self._given_missing, self._hidden = store._given, store._given_missing, store._hidden
        self._required, self._drop_zeros, self.guessed = store._required, store._drop_zeros, store.guessed

    def _layout(self) -> Layout | None:
        return self._store._layout()

    def has_column(self, name: str) -> bool:
        """See `Store`."""
        return self._store.has_column(name)

    def _reading_missing(self) -> Store:
        other = super()._reading_missing()
        assert isinstance(other, WrappedStore)
        other._store = self._store._reading_missing()
        return other


class MappedStore(WrappedStore):
    """A store that applies a function to the vectors of another store, batch by batch."""

    def __init__(
        self, store: Store, function: Callable[[np.ndarray], Any], dim: int, dtype: Any, name: str | None
    ) -> None:
        if dtype is None:
            dtype = store.dtype if store.dtype.kind == "f" else np.float32
        super().__init__(store, store.name if name is None else name, dim, dtype)
        self._function = function

    def __len__(self) -> int:
        return len(self._store)

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        for piece in self._store._read(names, rows, start, other_columns):
            yield piece._replace(vectors=self._apply(piece.vectors))

    def known_length(self) -> int | None:
        """See `Store`."""
        return self._store.known_length()

    def slice(self, start: int, stop: int) -> tuple[Store, int]:
        """See `Store`."""
        inner, start = self._store.slice(start, stop)
        other = copy.copy(self)
        other._store = inner
        return other, start

    def read_starts(self) -> list[int]:
        """See `Store`."""
        return self._store.read_starts()

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return self._apply(self._store._pick(indices))

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        return self._store._values(name, indices)

    def _apply(self, vectors: np.ndarray) -> np.ndarray:
        vectors = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float32)
        if self._required is not None and not (finite := np.isfinite(vectors).all(axis=1)).all():
            result = np.full((len(vectors), self.dim), np.nan, self.dtype)
            if finite.any():
                result[finite] = self._apply(vectors[finite])
            return result
        result = np.asarray(self._function(vectors))
        if result.shape != (len(vectors), self.dim):
            raise ShapeError(
                f"the function returned shape {result.shape} for input of shape {vectors.shape}: need "
                f"{(len(vectors), self.dim)}, one vector of {self.dim} dimensions per row"
            )
        return result.astype(self.dtype, copy=False)


def check_finite_rows(vectors: np.ndarray, name: str, start: int) -> None:
    """Raise a `MissingValueError` if a row contains NaN or infinity; `start` is the number of the first row."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        first = start + int(np.argmin(finite))
        raise MissingValueError(
            f"{name} contains NaN or infinity, first in row {first}: fix these rows, or {DROP_HINT}"
        )


def check_finite_batches(batches: Iterator[Batch], name: str) -> Iterator[Batch]:
    """Yield the batches; raise a `MissingValueError` at the first row that contains NaN or infinity."""
    for batch in batches:
        check_finite_rows(batch.vectors, name, batch.start)
        yield batch


def native_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which rows are returned: native byte order, at most float64."""
    return np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize > 8 else dtype.newbyteorder("=")


def to_native(part: np.ndarray) -> np.ndarray:
    """Return rows in their native dtype; copy them only if the byte order or alignment requires it."""
    part = np.asarray(part).astype(native_dtype(part.dtype), copy=False)
    return part if part.flags.aligned else part.copy()


def default_rows(dim: int) -> int:
    """Return the default number of rows in a batch: 16 MB of float32, fewer if memory is limited."""
    check_memory(dim)
    return _usual_rows(dim, batch_bytes(_BATCH_BYTES))


def _usual_rows(dim: int, most_bytes: int = _BATCH_BYTES) -> int:
    return max(1, min(_MOST_ROWS, most_bytes // (4 * max(dim, 1))))
