"""Read and write PostgreSQL's binary COPY format column by column with NumPy, without a loop over rows."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from isoscope._core.errors import DatabaseError, ParameterError

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""The COPY header: a fixed signature, no flags and no extension."""
_PART = 2**20  # number of bytes whose positions are in memory at the same time
_END = struct.pack(">h", -1)
NUMBERS = {"bool": "?", "int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
"""The NumPy type of each numeric type, in the byte order of COPY."""
_TIMES = {"date": ">i4", "timestamp": ">i8", "timestamptz": ">i8"}
_EPOCH = {"date": 10_957, "timestamp": 946_684_800_000_000, "timestamptz": 946_684_800_000_000}  # 1970 to 2000
_ELEMENTS = {"vector": ">f4", "halfvec": ">f2", "_float4": ">f4", "_float8": ">f8"}
_TEXTS = ("text", "varchar", "bpchar", "name", "json")
VARYING = (*_TEXTS, "bytea")
"""Types whose values have variable length."""
NATIVE = (*NUMBERS, *_TIMES, *VARYING)
"""Types that are read in binary format; all others are requested as text."""


class CopiedRows:
    """The rows from a binary COPY; call `vectors` or `column` once for each field, in order."""

    def __init__(self, messages: Sequence[Any], fields: int) -> None:
        self._bytes = np.frombuffer(b"".join(messages), np.uint8)
        self._starts, self._ends = self._bounds(messages, fields)
        self._at = self._starts + 2
        self._left = fields

    def __len__(self) -> int:
        return len(self._starts)

    def _bounds(self, messages: Sequence[Any], fields: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and end of each row; each message is one row, unless a proxy split them differently."""
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        head = len(SIGNATURE)
        starts = np.concatenate([[head], ends[:-1]])
        starts, ends = starts[starts < ends], ends[starts < ends]
        if len(ends) and ends[-1] - starts[-1] == 2:
            starts, ends = starts[:-1], ends[:-1]  # the trailer
        if not len(starts):
            return starts, ends
        counted = self._gather(starts, 2).view(">i2")[:, 0]
        at = starts + 2
        for _ in range(fields):
            if (counted != fields).any() or (at + 4 > ends).any():
                return self._scan_bounds(head)
            at = at + 4 + np.maximum(self._gather(at, 4).view(">i4")[:, 0], 0)
        return (starts, ends) if (at == ends).all() else self._scan_bounds(head)

    def _scan_bounds(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and end of each row by scanning row by row."""
        data, starts, ends = self._bytes.tobytes(), [], []
        while at + 2 <= len(data):
            (fields,) = struct.unpack_from(">h", data, at)
            if fields < 0:
                break
            starts.append(at)
            at += 2
            for _ in range(fields):
                at += 4 + max(0, struct.unpack_from(">i", data, at)[0])
            ends.append(at)
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def _gather(self, at: np.ndarray, width: int) -> np.ndarray:
        """Return `width` bytes from each position as an (n, width) array; evenly spaced positions need no copy."""
        if len(at) > 1 and width:
            step = int(at[1] - at[0])
            if (np.diff(at) == step).all():
                return as_strided(self._bytes[at[0] :], (len(at), width), (step, 1), writeable=False)
        return sliding_window_view(self._bytes, width)[at] if width else np.empty((len(at), 0), np.uint8)

    def _next(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the position and length of the next field in each row; a null has length -1."""
        lengths = self._gather(self._at, 4).view(">i4")[:, 0].astype(np.int64)
        at = self._at + 4
        self._at = at + np.maximum(lengths, 0)
        return at, lengths

    def vectors(self, kind: str, dim: int) -> np.ndarray:
        """Return the next field as an (n, dim) array of vectors."""
        at, lengths = self._next()
        form = vector_form(kind, dim)
        if not (lengths == form.itemsize).all():
            raise DatabaseError(
                f"a vector no longer has {dim} dimensions: the table changed during reading; rerun the command"
            )
        if not len(at):
            return np.empty((0, dim), np.dtype(_ELEMENTS[kind]).newbyteorder("="))
        rows = self._gather(at, form.itemsize).view(form)[:, 0]
        numbers = rows["x"]["x"] if kind.startswith("_") else rows["x"]
        return np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("="))

    def column(self, kind: str) -> Any:
        """Return the next field as an Arrow array."""
        import pyarrow as pa

        at, lengths = self._next()
        null = lengths < 0
        if kind not in NUMBERS and kind not in _TIMES:
            return self._texts(at, lengths, null, binary=kind == "bytea")
        dtype = np.dtype(NUMBERS.get(kind) or _TIMES[kind])
        at = np.where(null, 0, at)  # points to the header, which is long enough
        values = self._gather(at, dtype.itemsize).copy().view(dtype)[:, 0].astype(dtype.newbyteorder("="))
        mask = null if null.any() else None
        if kind in NUMBERS:
            return pa.array(values, mask=mask)
        infinite = ~null & ((values == np.iinfo(values.dtype).max) | (values == np.iinfo(values.dtype).min))
        if infinite.any():
            raise ParameterError("a date column contains infinity, which Arrow cannot represent: use --vectors-only")
        times = pa.array(np.where(null, 0, values + _EPOCH[kind]), mask=mask)
        return times.cast(pa.int32()).cast(pa.date32()) if kind == "date" else times.cast(time_type(kind))

    def _texts(self, at: np.ndarray, lengths: np.ndarray, null: np.ndarray, *, binary: bool) -> Any:
        import pyarrow as pa

        lengths = np.maximum(lengths, 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        data = np.empty(offsets[-1], np.uint8)
        for part, positions in _byte_positions(at, lengths):
            data[part] = self._bytes[positions]
        valid = pa.array(~null).buffers()[1] if null.any() else None
        kind = pa.large_binary() if binary else pa.large_string()
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
        values = pa.Array.from_buffers(kind, len(at), buffers)
        return values.cast(pa.binary() if binary else pa.string())


def _byte_positions(at: np.ndarray, lengths: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of the output with the positions of their bytes; slices save memory, as a position takes 8 bytes."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    row = 0
    while row < len(at):
        end = max(row + 1, int(np.searchsorted(offsets, offsets[row] + _PART, side="right")) - 1)
        if end == row + 1:
            yield slice(offsets[row], offsets[end]), np.arange(at[row], at[row] + lengths[row])
        else:
            before = np.repeat(at[row:end] - offsets[row:end], lengths[row:end])
            yield slice(offsets[row], offsets[end]), before + np.arange(offsets[row], offsets[end])
        row = end


def vector_form(kind: str, dim: int) -> np.dtype:
    """Return the binary layout of a vector: that of pgvector, or an array whose elements have a length prefix."""
    number = _ELEMENTS[kind]
    if not kind.startswith("_"):
        return np.dtype([("dim", ">i2"), ("unused", ">i2"), ("x", number, (dim,))])
    head = [("axes", ">i4"), ("nulls", ">i4"), ("element", ">i4"), ("dim", ">i4"), ("first", ">i4")]
    return np.dtype([*head, ("x", np.dtype([("length", ">i4"), ("x", number)]), (dim,))])


def time_type(kind: str) -> Any:
    """Return the Arrow type of a timestamp."""
    import pyarrow as pa

    return pa.timestamp("us", "UTC" if kind == "timestamptz" else None)


def arrow_kind(kind: str) -> Any:
    """Return the Arrow type for a column of this type."""
    import pyarrow as pa

    if kind in NUMBERS:
        return pa.from_numpy_dtype(np.dtype(NUMBERS[kind]).newbyteorder("="))
    if kind in _TIMES:
        return pa.date32() if kind == "date" else time_type(kind)
    return pa.binary() if kind == "bytea" else pa.string()


def pack_vectors(vectors: np.ndarray, kind: str) -> np.ndarray:
    """Return vectors as the bytes of a field, in an (n, width) array."""
    n, dim = vectors.shape
    form = vector_form(kind, dim)
    rows = np.zeros(n, form)
    rows["dim"] = dim
    if kind.startswith("_"):
        rows["axes"], rows["first"], rows["element"] = 1, 1, 701 if kind == "_float8" else 700
        rows["x"]["length"] = form["x"].base["x"].itemsize
        rows["x"]["x"] = vectors
    else:
        rows["x"] = vectors
    return rows.view(np.uint8).reshape(n, form.itemsize)


def pack_numbers(values: Any, kind: str) -> Any:
    """Return an Arrow array of numbers as the bytes of a field; `kind` is a type such as "int8" or "float4"."""
    import pyarrow as pa

    number = np.dtype(NUMBERS[kind])
    filled = (
        values.fill_null(False if pa.types.is_boolean(values.type) else 0).to_numpy(zero_copy_only=False).astype(number)
    )
    packed = filled.view(np.uint8).reshape(len(filled), number.itemsize)
    if not values.null_count:
        return packed
    valid = pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
    fixed = pa.Array.from_buffers(pa.binary(number.itemsize), len(packed), [valid, pa.py_buffer(packed)])
    return fixed.cast(pa.binary())


def pack_rows(fields: Sequence[Any]) -> memoryview:
    """Return the binary COPY data for these fields: (n, width) byte matrices, or Arrow arrays of strings or bytes."""
    n = len(fields[0])
    parts = [_Field.of(field) for field in fields]
    sizes = 2 + np.sum([4 + part.lengths for part in parts], axis=0)
    data = np.zeros(len(SIGNATURE) + int(sizes.sum()) + len(_END), np.uint8)
    data[: len(SIGNATURE)] = np.frombuffer(SIGNATURE, np.uint8)
    data[-len(_END) :] = np.frombuffer(_END, np.uint8)
    out = data[len(SIGNATURE) : -len(_END)]
    if n and all(isinstance(field, np.ndarray) for field in fields):
        _pack_matrices(out.reshape(n, -1), fields)
    elif n:
        at = np.cumsum(sizes) - sizes
        _scatter(out, at, np.full(n, len(parts), ">i2").view(np.uint8).reshape(n, 2))
        at = at + 2
        for part in parts:
            lengths = np.where(part.null, -1, part.lengths).astype(">i4")
            _scatter(out, at, lengths.view(np.uint8).reshape(n, 4))
            part.write_to(out, at + 4)
            at = at + 4 + part.lengths
    return data.data


def _pack_matrices(rows: np.ndarray, fields: Sequence[np.ndarray]) -> None:
    """Fill rows of equal length from byte matrices, without computing the position of each field."""
    rows[:, :2] = np.frombuffer(struct.pack(">h", len(fields)), np.uint8)
    at = 2
    for field in fields:
        width = field.shape[1]
        rows[:, at : at + 4] = np.frombuffer(struct.pack(">i", width), np.uint8)
        rows[:, at + 4 : at + 4 + width] = field
        at += 4 + width


class _Field:
    """The bytes of one field in each row, with equal or varying lengths."""

    def __init__(self, data: np.ndarray, lengths: np.ndarray, null: np.ndarray) -> None:
        self._data, self.lengths, self.null = data, lengths, null

    @classmethod
    def of(cls, field: Any) -> _Field:
        import pyarrow as pa

        if isinstance(field, np.ndarray):
            n, width = field.shape
            return cls(field, np.full(n, width), np.zeros(n, bool))
        field = field.cast(pa.large_binary())
        null = field.is_null().to_numpy(zero_copy_only=False)
        field = field.fill_null(b"")  # a null may still point to bytes
        offsets = np.frombuffer(field.buffers()[1], np.int64)[field.offset :][: len(field) + 1]
        data = field.buffers()[2]
        every = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        return cls(every[offsets[0] : offsets[-1]], np.diff(offsets), null)

    def write_to(self, out: np.ndarray, at: np.ndarray) -> None:
        if self._data.ndim == 2:
            _scatter(out, at, self._data)
            return
        for part, positions in _byte_positions(at, self.lengths):
            out[positions] = self._data[part]


def _scatter(out: np.ndarray, at: np.ndarray, rows: np.ndarray) -> None:
    sliding_window_view(out, rows.shape[1], writeable=True)[at] = rows
