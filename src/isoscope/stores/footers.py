"""The footers of Parquet files: how those of parts that stand one after the other in a file become one.

A footer is a struct in Thrift's compact protocol that says, among other things, where in the file each column of each
row group begins. Arrow writes it and reads it, but cannot move those places; that is all that is done here. What is not
a place is kept as it is, whether it is known or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)

# numbers of fields, from parquet.thrift
_NUM_ROWS, _ROW_GROUPS = 3, 4  # of the file
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7  # of a row group
_META_DATA, _CHUNK_OFFSETS = 3, (2, 4, 6)  # of a column in it: its file, offset index and column index offsets
_PAGE_OFFSETS = (9, 10, 11, 14)  # of what is known of that column: data, index and dictionary pages, bloom filter


class Field(NamedTuple):
    """A field of a struct: its number, its kind, its value."""

    number: int
    kind: int
    value: Any


def read_footer(path: Path) -> tuple[bytes, int]:
    """The footer of a Parquet file, and where it begins."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        start = file.seek(-8 - length, os.SEEK_END)
        return file.read(length), start


def join_footers(parts: Sequence[tuple[bytes, int]]) -> tuple[int, bytes]:
    """The number of rows and the footer of a file that holds several, the beginning of each with its footer given."""
    whole: list[Field] = []
    groups: list[list[Field]] = []
    rows = 0
    for footer, start in parts:
        fields = _Reader(footer).struct()
        whole = whole or fields
        rows += _value(fields, _NUM_ROWS)
        groups += [_shift_group(group, start) for group in _value(fields, _ROW_GROUPS)[1]]
    numbered = [_replace_values(group, {_ORDINAL: i}) for i, group in enumerate(groups)]
    whole = _replace_values(whole, {_NUM_ROWS: rows, _ROW_GROUPS: (_STRUCT, numbered)})
    return rows, b"".join(_encode_struct(whole))


def _shift_group(group: list[Field], by: int) -> list[Field]:
    kind, columns = _value(group, _COLUMNS)
    group = _shift_offsets(group, (_GROUP_OFFSET,), by)
    return _replace_values(group, {_COLUMNS: (kind, [_shift_column(column, by) for column in columns])})


def _shift_column(column: list[Field], by: int) -> list[Field]:
    column = _shift_offsets(column, _CHUNK_OFFSETS, by)
    return _replace_values(column, {_META_DATA: _shift_offsets(_value(column, _META_DATA), _PAGE_OFFSETS, by)})


def _shift_offsets(fields: list[Field], offsets: tuple[int, ...], by: int) -> list[Field]:
    """Places in the file, further on; 0 is no place, as a file begins with its magic number."""
    return _replace_values(fields, {f.number: f.value + by for f in fields if f.number in offsets and f.value})


def _value(fields: list[Field], number: int) -> Any:
    return next(field.value for field in fields if field.number == number)


def _replace_values(fields: list[Field], values: dict[int, Any]) -> list[Field]:
    """The fields that are there, with other values."""
    return [field._replace(value=values.get(field.number, field.value)) for field in fields]


class _Reader:
    """Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> list[Field]:
        fields: list[Field] = []
        number = 0
        while (head := self._byte()) != _STOP:
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._read_zigzag()
            fields.append(Field(number, kind, kind if kind in (_TRUE, _FALSE) else self._value(kind)))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._read_zigzag()
        if kind == _BINARY:
            return self._bytes(self._read_varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4
            size = self._read_varint() if size == 15 else size
            return head & 15, [self._value(head & 15) for _ in range(size)]
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        size = self._read_varint()  # of a map
        kinds = self._byte() if size else 0
        return kinds, [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def _read_varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7

    def _read_zigzag(self) -> int:
        found = self._read_varint()
        return (found >> 1) ^ -(found & 1)


def _encode_struct(fields: list[Field]) -> Iterator[bytes]:
    before = 0
    for number, kind, value in fields:
        delta = number - before
        yield bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + _encode_zigzag(number)
        if kind not in (_TRUE, _FALSE):
            yield from _encode_value(kind, value)
        before = number
    yield bytes([_STOP])


def _encode_value(kind: int, value: Any) -> Iterator[bytes]:
    if kind in (_I16, _I32, _I64):
        yield _encode_zigzag(value)
    elif kind == _BINARY:
        yield _encode_varint(len(value)) + value
    elif kind == _STRUCT:
        yield from _encode_struct(value)
    elif kind in (_LIST, _SET):
        inner, values = value
        yield (
            bytes([len(values) << 4 | inner])
            if len(values) < 15
            else bytes([0xF0 | inner]) + _encode_varint(len(values))
        )
        for each in values:
            yield from _encode_value(inner, each)
    elif kind in (_TRUE, _FALSE, _BYTE):
        yield bytes([value])
    elif kind == _DOUBLE:
        yield value
    else:
        kinds, pairs = value
        yield _encode_varint(len(pairs)) + (bytes([kinds]) if pairs else b"")
        for key, held in pairs:
            yield from _encode_value(kinds >> 4, key)
            yield from _encode_value(kinds & 15, held)


def _encode_varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _encode_zigzag(value: int) -> bytes:
    return _encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)
