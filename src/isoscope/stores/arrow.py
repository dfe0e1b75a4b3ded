"""Columns as Apache Arrow knows them, read in record batches: Parquet, Arrow and Feather files, tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.columns import choose_columns, choose_dimensions, choose_vectors
from isoscope.stores.in_memory import check_rows
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout, wide_layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec

_BUFFER_BYTES = 2**20  # of a column chunk


class Pieces(Protocol):
    """A table in pieces that can be read one by one: row groups, record batches."""

    @property
    def schema(self) -> Any: ...  # noqa: D102

    @property
    def lengths(self) -> Sequence[int]: ...  # noqa: D102

    def settled(self) -> Any:
        """A schema that the values of all pieces fit into."""

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """The record batches of one piece, of at most so many rows, with these columns."""


class ArrowStore(Store):
    """Vectors in a column of lists, or in one column for each dimension."""

    def __init__(self, name: str, where: str, pieces: Pieces, wanted: ColumnSpec) -> None:
        import pyarrow.types as kinds

        self._where, self._pieces = where, pieces
        with _reraise_as_input_error(where):
            fields = {field.name: _storage(field.type) for field in pieces.schema}
        if len(fields) < len(pieces.schema.names):
            raise InputError(
                f"{where} has two columns of one name: rename one of {', '.join(pieces.schema.names[:12])}"
            )
        self._lists, plain = _find_vector_columns(fields, wanted, where)
        if not sum(pieces.lengths):
            raise InputError(f"{where} has no rows: need at least one vector")
        self._ends = np.cumsum(pieces.lengths)
        columns = choose_columns(plain, wanted, where)
        if len(self._lists) == 1 and _is_list(fields[self._lists[0]]):
            kind = fields[self._lists[0]]
            self._wide = False
            dim = kind.list_size if kinds.is_fixed_size_list(kind) else self._first_length()
            dtype = kind.value_type.to_pandas_dtype()
        else:
            self._wide = True
            dim = len(self._lists)
            dtype = np.result_type(*(fields[name].to_pandas_dtype() for name in self._lists))
        check_rows((len(self), dim), np.dtype(dtype), where)
        super().__init__(name, dim, dtype, columns)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        wanted = list(self._pieces.schema.names) if beside else [*self._lists, *names]
        done = 0
        for piece, length in enumerate(self._pieces.lengths):
            if done + length <= start:
                done += length
                continue
            for batch in self._batches(piece, wanted, rows):
                batch, done = batch.slice(min(max(0, start - done), len(batch))), done + len(batch)
                vectors = self._matrix(batch, range(done - len(batch), done))
                values = {name: self._column(batch, name) for name in names}
                yield Piece(vectors, values, done / len(self), batch if beside else None)

    def _places(self) -> list[int]:
        return [int(end) for end in self._ends[:-1]]

    def _layout(self) -> Layout:
        with _reraise_as_input_error(self._where):
            schema = self._pieces.settled()
        return wide_layout(schema, self._lists) if self._wide else Layout(schema, self._lists[0])

    def _has_column(self, name: str) -> bool:
        fields = {field.name: field.type for field in self._pieces.schema}
        return name in fields and name not in self._lists and not _is_list(_storage(fields[name]))

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return np.concatenate([self._matrix(batch, rows) for batch, rows in self._picked(self._lists, indices)])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        if indices is None:
            pieces = range(len(self._ends))
            batches = (batch for piece in pieces for batch in self._batches(piece, [name], 65_536))
        else:
            batches = (batch for batch, _ in self._picked([name], indices))
        found = [self._column(batch, name) for batch in batches]
        return np.concatenate(found) if found else np.empty(0, object)

    def _picked(self, names: list[str], indices: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """Record batches of the rows asked for alone, and their numbers; pieces without such are not read."""
        for piece in np.unique(np.searchsorted(self._ends, indices, side="right")):
            start = int(self._ends[piece]) - self._pieces.lengths[piece]
            for batch in self._batches(int(piece), names, 8_192):
                low, high = np.searchsorted(indices, (start, start + len(batch)))
                if low < high:
                    yield batch.take(_indices(indices[low:high] - start)), indices[low:high]
                start += len(batch)

    def _batches(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        with _reraise_as_input_error(self._where):
            yield from self._pieces.read(piece, list(dict.fromkeys(names)), rows)

    def _column(self, batch: Any, name: str) -> np.ndarray:
        import pyarrow.types as kinds

        with _reraise_as_input_error(self._where):
            column = _storage_array(batch.column(name))
            if kinds.is_dictionary(column.type):
                column = column.dictionary_decode()
            values: np.ndarray = column.to_numpy(zero_copy_only=False)
        return values

    def _first_length(self) -> int:
        for piece, length in enumerate(self._pieces.lengths):
            if length:
                first = next(self._batches(piece, self._lists, 1)).column(0)[0]
                if not first.is_valid:
                    raise InputError(
                        f"{self._where}: {self._lists[0]} is null in row 0: drop the rows without a vector"
                    )
                return len(first)
        raise AssertionError

    def _matrix(self, batch: Any, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The vectors of a record batch as (m, d); `rows` are their numbers in the store, for the message."""
        if self._wide:
            return self._stack_columns(batch, rows)
        import pyarrow.compute as pc

        name = self._lists[0]
        lists = _storage_array(batch.column(name))
        if lists.null_count:
            row = rows[_first_null(lists)]
            raise InputError(f"{self._where}: {name} is null in row {row}: drop the rows without a vector")
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        if (lengths != self.dim).any():
            at = int(np.argmax(lengths != self.dim))
            raise InputError(
                f"{self._where}: {name} has {lengths[at]} numbers in row {rows[at]}, need {self.dim} as in the first"
            )
        numbers = lists.flatten()
        if numbers.null_count:
            row = rows[_first_null(numbers) // self.dim]
            raise InputError(f"{self._where}: {name} has a null among the numbers of row {row}: mend it")
        matrix: np.ndarray = numbers.to_numpy().reshape(-1, self.dim)
        return matrix.astype(self.dtype, copy=False)

    def _stack_columns(self, batch: Any, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        matrix = np.empty((len(batch), self.dim), self.dtype)
        for i, name in enumerate(self._lists):
            numbers = batch.column(name)
            if numbers.null_count:
                row = rows[_first_null(numbers)]
                raise InputError(f"{self._where}: {name} is null in row {row}: mend it, or drop the row")
            matrix[:, i] = numbers.to_numpy(zero_copy_only=False)
        return matrix


class ParquetPieces:
    """A Parquet file by row groups; its footer is read once."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._path = path
        with pq.ParquetFile(path) as file:
            self._metadata = file.metadata
            self.schema = file.schema_arrow
        self.lengths = [self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)]

    def settled(self) -> Any:
        """See `Pieces`."""
        return self.schema

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """See `Pieces`."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(
            self._path,
            metadata=self._metadata,
            page_checksum_verification=True,
            pre_buffer=False,  # a row group may be larger than memory
            buffer_size=_BUFFER_BYTES,
        ) as file:
            yield from file.iter_batches(rows, row_groups=[piece], columns=names)


class IpcPieces:
    """An Arrow or Feather file by record batches; the stream form that `datasets` writes, too."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path = path
        with path.open("rb") as file:
            self._stream = file.read(6) != b"ARROW1"
        with _source(path) as source:
            reader = pa.ipc.open_stream(source) if self._stream else pa.ipc.open_file(source)
            self.schema = reader.schema
            if self._stream:
                self.lengths = [sum(len(batch) for batch in reader)]
                return
            self._in_place = _is_memory_mapped(source, reader)
        with _source(path) as source:  # the lengths alone: no more is unpacked than one column
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=_cheapest(self.schema)))
            self.lengths = [len(reader.get_batch(i)) for i in range(reader.num_record_batches)]

    def settled(self) -> Any:
        """See `Pieces`."""
        return self.schema

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """See `Pieces`."""
        import pyarrow as pa

        with _source(self._path) as source:
            if self._stream:
                batches: Iterator[Any] = (batch.select(names) for batch in pa.ipc.open_stream(source))
            elif self._in_place:  # choosing columns beforehand would copy them
                batches = iter([pa.ipc.open_file(source).get_batch(piece).select(names)])
            else:
                fields = [self.schema.get_field_index(name) for name in names]
                options = pa.ipc.IpcReadOptions(included_fields=fields)
                batches = iter([pa.ipc.open_file(source, options=options).get_batch(piece)])
            for batch in batches:
                batch.validate(full=True)  # a damaged file may point outside of itself
                yield from (batch.slice(start, rows) for start in range(0, len(batch), rows))


def _source(path: Path) -> Any:
    """A file, mapped, so that what is not packed is read without a copy.

    Where there is no room for that (`ulimit -v`) a record batch at a time is read into memory.
    """
    import pyarrow as pa

    try:
        return pa.memory_map(str(path))
    except OSError:  # if the file is what is wrong, this says so as well
        return pa.OSFile(str(path))


def _is_memory_mapped(source: Any, reader: Any) -> bool:
    """Whether the values of a file are not packed and stand in memory where the file is mapped."""
    import pyarrow as pa

    if not isinstance(source, pa.MemoryMappedFile) or not reader.num_record_batches:
        return False
    buffers = [each for column in reader.get_batch(0).columns for each in column.buffers() if each is not None]
    longest = max(buffers, key=lambda each: each.size)  # an empty one may stand anywhere
    source.seek(0)
    whole = source.read_buffer()
    return bool(whole.address <= longest.address < whole.address + whole.size)


def _cheapest(schema: Any) -> list[int]:
    """A column of single values, if there is one: unpacking it says how many rows there are."""
    import pyarrow.types as kinds

    return [i for i, field in enumerate(schema) if kinds.is_primitive(field.type)][:1]


def open_parquet(path: Path, wanted: ColumnSpec) -> Store:
    """A Parquet file."""
    return _open_arrow(path, ParquetPieces, wanted)


def open_ipc(path: Path, wanted: ColumnSpec) -> Store:
    """An Arrow or Feather file."""
    return _open_arrow(path, IpcPieces, wanted)


def _open_arrow(path: Path, pieces: Any, wanted: ColumnSpec) -> Store:
    with _reraise_as_input_error(str(path)):
        found = pieces(path)
    return ArrowStore(path.name, str(path), found, wanted)


@contextmanager
def _reraise_as_input_error(where: str) -> Iterator[None]:
    """Say which file it is that Arrow cannot read; what the system refuses (a disk error) is not ours to say."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, EOFError, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        what = " ".join(str(error).split())[:200] or type(error).__name__
        if isinstance(error, MemoryError):  # nothing is wrong with the file
            raise MemoryError(f"{where}: {what}") from error
        raise InputError(f"{where} cannot be read: {what}; copy or write it again") from error


def _find_vector_columns(fields: dict[str, Any], wanted: ColumnSpec, where: str) -> tuple[list[str], list[str]]:
    """The column of vectors, or the columns that are their dimensions; and the columns of single values."""
    import pyarrow.types as kinds

    def is_number(kind: Any) -> bool:
        return bool(kinds.is_floating(kind) or kinds.is_integer(kind))

    floats = [n for n, kind in fields.items() if _is_list(kind) and kinds.is_floating(kind.value_type)]
    whole = [n for n, kind in fields.items() if _is_list(kind) and kinds.is_integer(kind.value_type)]
    plain = [n for n, kind in fields.items() if not kinds.is_nested(kind)]
    numbers = choose_dimensions([n for n in plain if is_number(fields[n])], wanted)
    if wanted.vectors is not None or floats or whole or len(numbers) < 2:  # one number beside text is no vector
        named = floats + whole if wanted.vectors is not None else floats or whole
        return [choose_vectors(named, wanted, where, others=list(fields))], plain
    return numbers, [n for n in plain if n not in numbers]


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _storage(kind: Any) -> Any:
    return getattr(kind, "storage_type", kind)


def _storage_array(column: Any) -> Any:
    return getattr(column, "storage", column)


def _first_null(values: Any) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))


def _indices(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(rows)
