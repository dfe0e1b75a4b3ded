"""Stores over Arrow columns, read in record batches: Parquet, Arrow and Feather files, and tables in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isoscope._core.errors import FileFormatError, MissingValueError, ShapeError, plural
from isoscope._core.missing import DROP_HINT
from isoscope._io.tables import check_unique, is_number
from isoscope.stores.columns import (
    choose_columns,
    choose_dimensions,
    choose_vectors,
    have_common_pattern,
    is_position,
    not_numbers_error,
)
from isoscope.stores.in_memory import check_rows, file_identity
from isoscope.stores.ipc_slices import SliceCopier, is_sliceable
from isoscope.stores.remote import RemoteFile
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout, read_roles, wide_layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec

_BUFFER_BYTES = 2**20  # bytes buffered for a column chunk
_REQUEST_BYTES = 2**23  # bytes that one request to a server reads of a column chunk
_REQUESTS_BYTES = 2**26  # bytes buffered for all columns of a remote file
_PICKED_ROWS = 8_192  # rows that are read at a time to pick some of them
_BEST_COMPRESSION = 2**15  # of zstd, for equal bytes


class Pieces(Protocol):
    """A table divided into pieces that can be read separately: Parquet row groups or Arrow record batches."""

    @property
    def schema(self) -> Any: ...  # noqa: D102

    @property
    def lengths(self) -> Sequence[int]: ...  # noqa: D102

    def full_schema(self) -> Any:
        """Return a schema that fits the values of all pieces."""

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """Read these columns of one piece in record batches of at most `rows` rows."""


class ArrowStore(Store):
    """A table with a column of vectors, or with one column for each dimension."""

    def __init__(self, name: str, where: str, pieces: Pieces, wanted: ColumnSpec) -> None:
        import pyarrow.types as kinds

        self._where, self._pieces = where, pieces
        with _reraise_as_input_error(where):
            fields = {field.name: _storage(field.type) for field in pieces.schema}
        check_unique(pieces.schema.names, where)
        unnamed = [name for name, kind in fields.items() if is_position(name) and _may_be_words(kind)]
        words = {name for name in unnamed if not self._contains_numbers(name)}
        self._lists, plain = _find_vector_columns(fields, words, wanted, where)
        if not sum(pieces.lengths):
            raise MissingValueError(f"{where} has no rows: need at least one vector")
        self._ends = np.cumsum(pieces.lengths)
        columns = choose_columns(plain, wanted, where, read_roles(pieces.schema), vectors=self._lists)
        if len(self._lists) == 1 and _is_list(fields[self._lists[0]]):
            kind = fields[self._lists[0]]
            self._wide = False
            dim = kind.list_size if kinds.is_fixed_size_list(kind) else self._first_length()
            dtype = _numpy_dtype(kind.value_type)
        else:
            self._wide = True
            dim = len(self._lists)
            dtype = np.result_type(*(_numpy_dtype(fields[name]) for name in self._lists))
        check_rows((len(self), dim), np.dtype(dtype), where)
        super().__init__(name, dim, dtype, columns)
        if self._wide and not have_common_pattern(self._lists):
            self.guessed_dimensions = tuple(self._lists)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        wanted = list(self._pieces.schema.names) if other_columns else [*self._lists, *names]
        done = 0
        for piece, length in enumerate(self._pieces.lengths):
            if done + length <= start:
                done += length
                continue
            for batch in self._batches(piece, wanted, rows):
                batch, done = batch.slice(min(max(0, start - done), len(batch))), done + len(batch)
                vectors = self._matrix(batch, range(done - len(batch), done))
                values = {name: self._column(batch, name) for name in names}
                yield Piece(vectors, values, done / len(self), batch if other_columns else None)

    def read_starts(self) -> list[int]:
        """See `Store`."""
        return [int(end) for end in self._ends[:-1]]

    def _layout(self) -> Layout:
        with _reraise_as_input_error(self._where):
            schema = self._pieces.full_schema()
        return wide_layout(schema, self._lists) if self._wide else Layout(schema, self._lists[0])

    def has_column(self, name: str) -> bool:
        """See `Store`."""
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
        values = [self._column(batch, name) for batch in batches]
        return np.concatenate(values) if values else np.empty(0, object)

    def _picked(self, names: list[str], indices: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield record batches that contain only these rows, with their row numbers; skip pieces without such rows."""
        for piece in np.unique(np.searchsorted(self._ends, indices, side="right")):
            start = int(self._ends[piece]) - self._pieces.lengths[piece]
            if isinstance(self._pieces, IpcPieces) and self._pieces.can_slice(names):
                low, high = np.searchsorted(indices, (start, self._ends[piece]))
                with _reraise_as_input_error(self._where):
                    for batch, own in self._pieces.pick(int(piece), names, indices[low:high] - start):
                        yield batch, own + start
                continue
            for batch in self._batches(int(piece), names, _PICKED_ROWS):
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
            return _as_numpy(column)

    def _first_length(self) -> int:
        import pyarrow.compute as pc

        for piece, length in enumerate(self._pieces.lengths):
            if length:
                for batch in self._batches(piece, self._lists, 1_024):
                    lengths = pc.list_value_length(_storage_array(batch.column(0))).fill_null(0)
                    filled = lengths.filter(pc.greater(lengths, 0))
                    if len(filled):
                        return int(filled[0].as_py())
        raise MissingValueError(
            f"{self._where}: column {self._lists[0]} is null or empty in all rows: need at least one vector"
        )

    def _contains_numbers(self, name: str) -> bool:
        """Return whether one of the first values in a column can be read as a number."""
        piece = next((i for i, length in enumerate(self._pieces.lengths) if length), None)
        if piece is None:
            return False
        first = next(self._batches(piece, [name], 1_024))
        return any(map(is_number, _storage_array(first.column(0)).to_pylist()))

    def _matrix(self, batch: Any, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the vectors of a record batch, an (m, d) array; `rows` are their row numbers, for messages."""
        if self._wide:
            return self._stack_columns(batch, rows)
        import pyarrow.compute as pc

        name = self._lists[0]
        lists = _storage_array(batch.column(name))
        if lists.null_count:
            if self._required is not None:
                return self._with_missing_rows(batch, lists.is_null(), rows)
            row = rows[_first_null(lists)]
            raise MissingValueError(f"{self._where}: column {name} is null in row {row}: fill it in, or {DROP_HINT}")
        lengths = _as_numpy(pc.list_value_length(lists))
        if (lengths == 0).any() and self.dim:
            if self._required is not None:
                return self._with_missing_rows(batch, lengths == 0, rows)
            row = rows[int(np.argmax(lengths == 0))]
            raise MissingValueError(
                f"{self._where}: column {name} has an empty list in row {row}: fill it in, or {DROP_HINT}"
            )
        if (lengths != self.dim).any():
            at = int(np.argmax(lengths != self.dim))
            raise ShapeError(
                f"{self._where}: column {name} has {plural(lengths[at], 'number')} in row {rows[at]}: need "
                f"{self.dim}, as in the first row"
            )
        numbers = lists.flatten()
        if numbers.null_count:
            if self._required is not None:
                incomplete = numbers.is_null().to_numpy(zero_copy_only=False).reshape(-1, self.dim).any(axis=1)
                return self._with_missing_rows(batch, incomplete, rows)
            row = rows[_first_null(numbers) // self.dim]
            raise MissingValueError(
                f"{self._where}: column {name} has a null inside the vector of row {row}: fill it in, or {DROP_HINT}"
            )
        return _as_numpy(numbers).reshape(-1, self.dim).astype(self.dtype, copy=False)

    def _with_missing_rows(self, batch: Any, missing: Any, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the vectors of a record batch with NaN in the rows whose vector is missing."""
        complete = np.flatnonzero(~np.asarray(missing, bool))
        matrix = np.full((len(batch), self.dim), np.nan, self.dtype if self.dtype.kind == "f" else np.float32)
        if len(complete):
            matrix[complete] = self._matrix(batch.take(_indices(complete)), np.asarray(rows)[complete])
        return matrix

    def _stack_columns(self, batch: Any, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.types as kinds

        matrix = np.empty((len(batch), self.dim), self.dtype)
        for i, name in enumerate(self._lists):
            numbers = _storage_array(batch.column(name))
            if numbers.null_count:
                if self._required is not None:
                    return self._with_missing_rows(batch, _any_null(batch, self._lists), rows)
                row = rows[_first_null(numbers)]
                raise MissingValueError(f"{self._where}: column {name} is null in row {row}: fix it, or {DROP_HINT}")
            if kinds.is_decimal(numbers.type):
                numbers = numbers.cast(pa.float64())
            matrix[:, i] = _as_numpy(numbers)
        return matrix


class ParquetPieces:
    """A Parquet file in row groups; its footer is read once."""

    def __init__(self, path: Path | RemoteFile) -> None:
        import pyarrow.parquet as pq

        self._path = path
        with _open_binary(path) as source, pq.ParquetFile(source) as file:
            self._metadata = file.metadata
            self.schema = file.schema_arrow
        self.lengths = [self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)]
        self._buffer_bytes = _BUFFER_BYTES
        if isinstance(path, RemoteFile):
            each = _REQUESTS_BYTES // max(1, self._metadata.num_columns)
            self._buffer_bytes = min(_REQUEST_BYTES, max(_BUFFER_BYTES, each))

    def full_schema(self) -> Any:
        """See `Pieces`."""
        return self.schema

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """See `Pieces`."""
        import pyarrow.parquet as pq

        with _open_binary(self._path) as source:
            file = pq.ParquetFile(
                source,
                metadata=self._metadata,
                page_checksum_verification=True,
                pre_buffer=False,  # a row group may be larger than memory
                buffer_size=self._buffer_bytes,
            )
            yield from file.iter_batches(rows, row_groups=[piece], columns=names)


class IpcPieces:
    """An Arrow or Feather file in record batches, in the file format or in the stream format that `datasets` writes."""

    def __init__(self, path: Path | RemoteFile) -> None:
        self._path = path
        self._seen = () if isinstance(path, RemoteFile) else file_identity(path.stat())
        with _open_binary(path) as file:
            self._stream = file.read(6) != b"ARROW1"
        with _map_file(path) as source:
            reader = self._open(source)
            self.schema = reader.schema
            self._in_place = not isinstance(path, RemoteFile) and _is_in_place(source, self._first_batch(reader))
        with _map_file(path) if self._in_place else _open_binary(path) as source:
            if self._stream:
                self.lengths = [sum(len(batch) for batch in self._open(source))]
            else:  # decompress only one column to get the lengths
                reader = self._open(source, [] if self._in_place else _cheapest(self.schema))
                self.lengths = [len(reader.get_batch(i)) for i in range(reader.num_record_batches)]

    def full_schema(self) -> Any:
        """See `Pieces`."""
        return self.schema

    def can_slice(self, names: Sequence[str]) -> bool:
        """Return whether rows of these columns can be read without reading an entire record batch."""
        return self._in_place and all(is_sliceable(self.schema.field(name).type) for name in names)

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """See `Pieces`."""
        if self.can_slice(names):
            for copier, batch in self._mapped_batches(piece, names):
                for start in range(0, len(batch), rows):
                    yield _validated(copier.rows(batch, start, min(start + rows, len(batch))))
            return
        fields = [self.schema.get_field_index(name) for name in names]
        with _open_binary(self._path) as source:
            for batch in self._open(source) if self._stream else [self._open(source, fields).get_batch(piece)]:
                batch = _validated(batch.select(names))
                yield from (batch.slice(start, rows) for start in range(0, len(batch), rows))

    def pick(self, piece: int, names: list[str], indices: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield record batches that contain only these rows of a piece, which `can_slice`, and their indices."""
        start = 0
        for copier, batch in self._mapped_batches(piece, names):
            low, high = np.searchsorted(indices, (start, start + len(batch)))
            for at in range(low, high, _PICKED_ROWS):
                own = indices[at : min(at + _PICKED_ROWS, high)]
                yield _validated(copier.scattered_rows(batch, own - start)), own
            start += len(batch)

    def _mapped_batches(self, piece: int, names: list[str]) -> Iterator[tuple[SliceCopier, Any]]:
        """Yield the record batches of a piece; read their values only with the `SliceCopier`."""
        assert isinstance(self._path, Path)  # a remote file is not memory-mapped
        with self._path.open("rb", buffering=0) as file, _map_file(self._path) as source:
            copier = SliceCopier(self._path, file, self._seen, source)
            for batch in self._open(source) if self._stream else [self._open(source).get_batch(piece)]:
                yield copier, batch.select(names)

    def _open(self, source: Any, fields: Sequence[int] = ()) -> Any:
        """Return a reader of the stream, or of these columns of the file (default: all)."""
        import pyarrow as pa

        if self._stream:
            return pa.ipc.open_stream(source)
        return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=list(fields)))

    def _first_batch(self, reader: Any) -> Any:
        if self._stream:
            return next(iter(reader), None)
        return reader.get_batch(0) if reader.num_record_batches else None


def _validated(batch: Any) -> Any:
    batch.validate(full=True)  # offsets in a damaged file may point outside it
    return batch


def _map_file(path: Path | RemoteFile) -> Any:
    """Memory-map a file to find where its values are; if the address space is too small (`ulimit -v`), open it."""
    import pyarrow as pa

    if isinstance(path, RemoteFile):
        return _open_binary(path)
    try:
        return pa.memory_map(os.fsencode(path))
    except OSError:  # if the file itself is the cause, this also raises an error
        return _open_binary(path)


def _open_binary(path: Path | RemoteFile) -> Any:
    """Open a file by the bytes of its name, which may not be valid UTF-8, or a remote file by its address."""
    import pyarrow as pa

    if isinstance(path, RemoteFile):
        return pa.PythonFile(path.open(), mode="r")
    return pa.OSFile(os.fsencode(path))


def _is_in_place(source: Any, batch: Any) -> bool:
    """Return whether the values of a record batch are in the memory-mapped file, not decompressed."""
    import pyarrow as pa

    if not isinstance(source, pa.MemoryMappedFile) or batch is None:
        return False
    buffers = [each for column in batch.columns for each in column.buffers() if each is not None]
    if not buffers:
        return False
    longest = max(buffers, key=lambda each: each.size)  # an empty buffer may have any address
    source.seek(0)
    file = source.read_buffer()
    return bool(file.address <= longest.address < file.address + file.size)


def _cheapest(schema: Any) -> list[int]:
    """Return a list with the index of one scalar column, whose length is cheap to read; empty if there is none."""
    import pyarrow.types as kinds

    return [i for i, field in enumerate(schema) if kinds.is_primitive(field.type)][:1]


def open_parquet(path: Path | RemoteFile, wanted: ColumnSpec) -> Store:
    """Open a Parquet file."""
    return _open_arrow(path, ParquetPieces, wanted)


def open_ipc(path: Path | RemoteFile, wanted: ColumnSpec) -> Store:
    """Open an Arrow or Feather file."""
    return _open_arrow(path, IpcPieces, wanted)


def _open_arrow(path: Path | RemoteFile, pieces: Any, wanted: ColumnSpec) -> Store:
    with _reraise_as_input_error(str(path)):
        opened = pieces(path)
    return ArrowStore(path.name, str(path), opened, wanted)


@contextmanager
def _reraise_as_input_error(where: str) -> Iterator[None]:
    """Convert Arrow errors into an `InputError` that names the file; let operating system errors pass."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, EOFError, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        what = " ".join(str(error).split())[:200] or type(error).__name__
        if isinstance(error, MemoryError):
            requested = re.search(r"size (\d+)", what)
            if requested and _is_damage(int(requested[1]), where):
                raise FileFormatError(
                    f"{where} cannot be read: it declares {int(requested[1]):,} bytes for a part of one column; "
                    "if it is damaged, copy it again; otherwise, write it in smaller parts"
                ) from error
            raise MemoryError(f"{where}: {what}") from error
        raise FileFormatError(f"{where} cannot be read: {what.rstrip('.')}; copy or write it again") from error


def _numpy_dtype(kind: Any) -> np.dtype[Any]:
    """Return the dtype of an Arrow type of numbers, without importing pandas (see `_as_numpy`)."""
    import pyarrow as pa
    import pyarrow.types as kinds

    for code, is_kind in (("f", kinds.is_floating), ("i", kinds.is_signed_integer), ("u", kinds.is_unsigned_integer)):
        if is_kind(kind):
            return np.dtype(f"{code}{kind.bit_width // 8}")
    if kinds.is_decimal(kind) or kinds.is_null(kind):
        return np.dtype(np.float64)
    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def _as_numpy(values: Any) -> np.ndarray:
    """Return an Arrow array as a NumPy array; nulls become None, or NaN among numbers.

    `to_numpy` imports pandas if it is installed, which takes 0.2 s. Numbers and strings are therefore converted
    without it.
    """
    import pyarrow.types as kinds

    if kinds.is_string(values.type) or kinds.is_large_string(values.type):
        return np.asarray(values.to_pylist(), dtype=object)
    if not values.null_count and (kinds.is_floating(values.type) or kinds.is_integer(values.type)):
        return np.from_dlpack(values)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _is_damage(requested: int, where: str) -> bool:
    """Return whether a memory request indicates a damaged file: no compression saves that much, or the machine has
    less."""
    with suppress(OSError):
        if requested > _BEST_COMPRESSION * os.path.getsize(where):
            return True
    try:
        return requested > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return False


def _find_vector_columns(
    fields: dict[str, Any], words: set[str], wanted: ColumnSpec, where: str
) -> tuple[list[str], list[str]]:
    """Return the vector column, or one column for each dimension, and the columns of scalars.

    `words` are columns with a number as the name that contain no numbers, and so are not dimensions.
    """
    import pyarrow.types as kinds

    floats = [n for n, kind in fields.items() if _is_list(kind) and kinds.is_floating(kind.value_type)]
    integers = [n for n, kind in fields.items() if _is_list(kind) and kinds.is_integer(kind.value_type)]
    plain = [n for n, kind in fields.items() if not kinds.is_nested(kind)]
    names = [n for n in fields if n not in words]
    numbers = choose_dimensions([n for n in names if _is_numeric(fields[n])], wanted, names)
    if (
        wanted.vectors is not None or floats or integers or len(numbers) < 2
    ):  # a single column of numbers is not a vector
        named = floats + integers if wanted.vectors is not None else floats or integers
        return [choose_vectors(named, wanted, where, others=list(fields))], plain
    for name in numbers:
        if not _is_numeric(fields[name]) and not kinds.is_null(fields[name]):
            raise not_numbers_error(where, name, f"its type is {fields[name]}", numbers)
    return numbers, [n for n in plain if n not in numbers]


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_decimal(kind))


def _may_be_words(kind: Any) -> bool:
    import pyarrow.types as kinds

    return not (_is_numeric(kind) or kinds.is_boolean(kind) or kinds.is_null(kind) or kinds.is_nested(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _storage(kind: Any) -> Any:
    return getattr(kind, "storage_type", kind)


def _storage_array(column: Any) -> Any:
    return getattr(column, "storage", column)


def _any_null(batch: Any, names: Sequence[str]) -> np.ndarray:
    """Return which rows have a null in one of these columns."""
    nulls = [batch.column(name).is_null().to_numpy(zero_copy_only=False) for name in names]
    return np.asarray(np.any(nulls, axis=0))


def _first_null(values: Any) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))


def _indices(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(rows)
