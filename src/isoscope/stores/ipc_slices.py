"""Copy rows of a memory-mapped Arrow record batch by reading them from its file.

The map shows where the values of each column are in the file, and costs no memory. But the values are not read through
it: if another process truncates a mapped file, the operating system ends this process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from isoscope._core.errors import FileFormatError
from isoscope.stores.in_memory import file_identity, read_exactly

_GAP_ROWS = 16  # rows that are closer than this are read together


def is_sliceable(kind: Any) -> bool:
    """Return whether `SliceCopier` can copy rows of an Arrow type: lists, strings, numbers and other scalars."""
    import pyarrow.types as kinds

    kind = getattr(kind, "storage_type", kind)
    if kinds.is_dictionary(kind):
        return is_sliceable(kind.value_type)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return is_sliceable(kind.value_type)
    fixed = kinds.is_primitive(kind) or kinds.is_decimal(kind) or kinds.is_fixed_size_binary(kind)
    return bool(fixed or kinds.is_null(kind) or _offset_type(kind))


class SliceCopier:
    """Copies rows of record batches that are memory-mapped from a file.

    Parameters
    ----------
    path : Path
        The file.
    file : file
        The same file, opened without a buffer.
    seen : tuple
        The `file_identity` of the file when its store was opened, to detect changes.
    source : pyarrow.MemoryMappedFile
        The map in which the record batches are.
    """

    def __init__(self, path: Path, file: IO[bytes], seen: tuple[int, ...], source: Any) -> None:
        self._path, self._file, self._seen = path, file, seen
        place = source.tell()
        source.seek(0)
        mapped = source.read_buffer()
        self._address, self._size = mapped.address, mapped.size
        source.seek(place)
        self._dictionaries: dict[tuple[int, ...], Any] = {}
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise a `FileFormatError` if the file has changed since it was opened."""
        if file_identity(os.fstat(self._file.fileno())) != self._seen:
            raise FileFormatError(f"{self._path} changed while it was being read: run again when it no longer changes")

    def rows(self, batch: Any, start: int, stop: int) -> Any:
        """Return the rows from `start` to `stop` of a record batch."""
        import pyarrow as pa

        columns = [self._copy(column.slice(start, stop - start)) for column in batch.columns]
        self.check_unchanged()
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def scattered_rows(self, batch: Any, indices: np.ndarray) -> Any:
        """Return the rows at these increasing indices of a record batch; read rows that are close together at once."""
        import pyarrow as pa

        ends = np.append(np.flatnonzero(np.diff(indices) > _GAP_ROWS) + 1, len(indices)).tolist()
        runs = [indices[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        columns = []
        for column in batch.columns:
            copies = [self._copy(column.slice(run[0], run[-1] + 1 - run[0])) for run in runs]
            where = np.concatenate([run - run[0] for run in runs])
            where += np.repeat(np.cumsum([0, *map(len, copies[:-1])]), [len(run) for run in runs])
            columns.append(pa.concat_arrays(copies).take(pa.array(where)))
        self.check_unchanged()
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _copy(self, array: Any) -> Any:
        """Return a copy of an array."""
        import pyarrow as pa
        import pyarrow.types as kinds

        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(kind, self._copy(array.storage))
        if kinds.is_dictionary(kind):
            return pa.DictionaryArray.from_arrays(
                self._copy(array.indices), self._dictionary(array.dictionary), ordered=kind.ordered, safe=False
            )
        if kinds.is_null(kind):
            return array
        skip = array.offset % 8  # bits of the validity bitmap before the first row
        start, stop = array.offset - skip, array.offset + len(array)
        buffers = array.buffers()
        validity = self._read(buffers[0], start // 8, -(-stop // 8)) if buffers[0] is not None else None
        parts, children = [validity], []
        if kinds.is_fixed_size_list(kind):
            size = kind.list_size
            children = [self._copy(array.values.slice(start * size, (stop - start) * size))]
        elif (offset_type := _offset_type(kind)) is not None:
            width = np.dtype(offset_type).itemsize
            offsets = np.frombuffer(self._read(buffers[1], start * width, (stop + 1) * width), offset_type)
            first, last = int(offsets[0]), int(offsets[-1])
            if not 0 <= first <= last:
                raise pa.ArrowInvalid(f"the offsets of the rows {start} to {stop} are {first} to {last}")
            parts.append(pa.py_buffer(offsets - offsets[:1]))
            if kinds.is_list(kind) or kinds.is_large_list(kind):
                if last > len(array.values):
                    raise pa.ArrowInvalid(f"the values end at {len(array.values)}, but an offset is {last}")
                children = [self._copy(array.values.slice(first, last - first))]
            else:
                parts.append(self._read(buffers[2], first, last))
        else:
            parts.append(self._read(buffers[1], start * kind.bit_width // 8, -(-stop * kind.bit_width // 8)))
        return pa.Array.from_buffers(kind, len(array), parts, offset=skip, children=children)

    def _dictionary(self, values: Any) -> Any:
        """Return a copy of the values of a dictionary, which many slices share."""
        key = tuple(0 if buffer is None else buffer.address for buffer in values.buffers())
        if key not in self._dictionaries:
            self._dictionaries[key] = self._copy(values)
        return self._dictionaries[key]

    def _read(self, buffer: Any, start: int, stop: int) -> Any:
        """Return a range of bytes of a buffer, from the file if the buffer is mapped."""
        import pyarrow as pa

        if start == stop:
            return pa.py_buffer(b"")
        if buffer is None or stop > buffer.size:
            raise pa.ArrowInvalid(f"a buffer of at least {stop} bytes is needed")
        if not 0 <= (place := buffer.address - self._address) < self._size:
            return buffer.slice(start, stop - start)
        content = np.empty(stop - start, np.uint8)
        read_exactly(self._file, place + start, content, self._path)
        return pa.py_buffer(content)


def _offset_type(kind: Any) -> str | None:
    """Return the dtype of the offsets of lists or strings, or None for other types."""
    import pyarrow.types as kinds

    if kinds.is_list(kind) or kinds.is_string(kind) or kinds.is_binary(kind):
        return "<i4"
    if kinds.is_large_list(kind) or kinds.is_large_string(kind) or kinds.is_large_binary(kind):
        return "<i8"
    return None
