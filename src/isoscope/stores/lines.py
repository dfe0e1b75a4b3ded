"""Stores that are read line by line: words, tables and JSON lines, plain or in gzip."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isoscope._core.errors import InputError, plural
from isoscope.stores.store import Piece, Store

_BLOCK_BYTES = 2**21
_LONGEST_LINE = 2**26


@dataclass(frozen=True)
class Lines:
    """Some lines of a file that are not empty, with their numbers, counted from 1."""

    lines: list[bytes]
    numbers: Sequence[int]
    share: float = 1.0

    def __getitem__(self, part: slice) -> Lines:
        return Lines(self.lines[part], self.numbers[part], self.share)

    def __len__(self) -> int:
        return len(self.lines)

    def chosen(self, indices: np.ndarray) -> Lines:
        """Those of the lines alone."""
        return Lines([self.lines[i] for i in indices], [self.numbers[i] for i in indices], self.share)


class LineFormat(Protocol):
    """How lines are understood."""

    dim: int
    dtype: np.dtype
    skip: int  # lines before the first row
    quoted: bool  # whether a line may go on behind its end, inside quotes

    def vectors(self, lines: Lines) -> np.ndarray:
        """(m, d) numbers of these lines; an `InputError` with the line's number if one has none."""

    def values(self, lines: Lines, name: str) -> Any:
        """A column's values in these lines."""


class LineStore(Store):
    """One vector in each line; finding a row scans the file from its beginning, without parsing the others."""

    def __init__(self, path: Path, form: LineFormat, columns: Mapping[str, str], length: int | None = None) -> None:
        super().__init__(path.name, form.dim, form.dtype, columns)
        self._path, self._form = path, form
        self._said = self._length = length  # a header's word, until the lines are counted

    def __len__(self) -> int:
        if self._length is None:
            for _ in self._blocks():
                pass
        assert self._length is not None
        return self._length

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        vectors: list[np.ndarray] = []
        values: dict[str, list[Any]] = {name: [] for name in names}
        held, done, skip = 0, start, start
        for block in self._blocks():
            block, skip = block[skip:], max(0, skip - len(block))
            for cut in _batch_offsets(len(block), rows - held, rows):
                part = block[cut : cut + rows - held]
                vectors.append(self._form.vectors(part))
                for name in names:
                    values[name].extend(self._form.values(part, name))
                held, done = held + len(part), done + len(part)
                if held == rows:
                    yield Piece(_concatenate(vectors), values, done / self._length if self._length else block.share)
                    vectors, values, held = [], {name: [] for name in names}, 0
        if held:
            yield Piece(_concatenate(vectors), values, 1.0)

    def _places(self) -> list[int]:
        return []

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return np.concatenate([self._form.vectors(lines) for lines in self._chosen(indices)])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        blocks = self._blocks() if indices is None else self._chosen(indices)
        return [value for lines in blocks for value in self._form.values(lines, name)]

    def _chosen(self, indices: np.ndarray) -> Iterator[Lines]:
        """The lines of these rows, block by block; what comes after the last is not read."""
        start = 0
        for block in self._blocks():
            low, high = np.searchsorted(indices, (start, start + len(block)))
            if low < high:
                yield block.chosen(indices[low:high] - start)
            start += len(block)
            if high == len(indices):
                return

    def _blocks(self) -> Iterator[Lines]:
        """The lines that hold rows; once all are read, their number is known."""
        skip, count = self._form.skip, 0
        for block in read_lines(self._path, quoted=self._form.quoted):
            block, skip = block[skip:], max(0, skip - len(block))
            count += len(block)
            if len(block):
                yield block
        if self._said not in (None, count):
            raise InputError(
                f"{self._path} says {plural(self._said or 0, 'row')} in its first line and has {count}: "
                "it is cut or was added to; copy it again, or mend that line"
            )
        self._length = count


def _concatenate(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _batch_offsets(length: int, first: int, rows: int) -> Iterator[int]:
    """Where a block is cut so that batches of `rows` come out, the first of which lacks `first` rows."""
    yield from range(0, min(first, length), first)
    yield from range(first, length, rows)


def read_lines(path: Path, *, quoted: bool = False) -> Iterator[Lines]:
    """The lines of a file, some megabytes at a time; the file is closed when no more are asked for."""
    size = max(1, path.stat().st_size)
    number, tail = 1, b""
    numbers: Sequence[int]
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if path.suffix.lower() == ".gz" and not zipped:
            raise InputError(f"{path} is not a gzip file: its first bytes are others; take the .gz from its name")
        file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        block = _read_block(file, path).removeprefix(b"\xef\xbb\xbf")  # some editors begin UTF-8 so
        while block:
            following = _read_block(file, path)
            text = tail + block
            cut = text.rfind(b"\n") + 1 if following else len(text)
            text, tail = text[:cut], text[cut:]
            lines = _split(text)
            if quoted and b'"' in text:
                records, numbers, rest = _join_quoted_lines(lines, number)
                begun = number + len(lines) - rest.count(b"\n")
                if rest and not following:
                    raise InputError(f"{path}, line {begun}: a quoted cell begins and does not end; is the file cut?")
                tail = rest + tail
                number, lines = begun, records
            else:
                numbers = range(number, number + len(lines))
                number += text.count(b"\n")
            if len(tail) > _LONGEST_LINE:
                raise InputError(
                    f"{path} has a line {number} of more than {_LONGEST_LINE >> 20} MB: is it a text file?"
                )
            full = [i for i, line in enumerate(lines) if line] if b"" in lines else None
            found = Lines(lines, numbers, 1.0 if not following else min(1.0, raw.tell() / size))
            yield found if full is None else found.chosen(np.asarray(full, int))
            block = following


def _read_block(file: Any, path: Path) -> bytes:
    try:
        return bytes(file.read(_BLOCK_BYTES))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}; copy it again") from error


def _split(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.rstrip(b"\r") for line in lines] if b"\r" in text else lines


def _join_quoted_lines(lines: list[bytes], first: int) -> tuple[list[bytes], list[int], bytes]:
    """Records and the numbers of their first lines: lines are joined while a quote is open; what is open at the end."""
    records: list[bytes] = []
    numbers: list[int] = []
    opened: list[bytes] = []
    for number, line in enumerate(lines, first):
        if opened or line.count(b'"') % 2:
            opened.append(line)
            if len(opened) == 1 or line.count(b'"') % 2 == 0:
                continue
            line, number, opened = b"\n".join(opened), number - len(opened) + 1, []
        records.append(line)
        numbers.append(number)
    return records, numbers, b"".join(line + b"\n" for line in opened)


def parse_numbers(
    lines: Lines, cells: int, chosen: Sequence[int], delimiter: str, dtype: np.dtype
) -> np.ndarray | None:
    """The numbers in these cells of every line, by Arrow's parser; None if a line is not so many cells of numbers."""
    import pyarrow as pa
    from pyarrow import csv

    names = [str(i) for i in chosen]
    data = b"\n".join(lines.lines)
    quote: Any = '"' if delimiter in ",;" else False
    try:
        table = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=[str(i) for i in range(cells)]),
            csv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=bool(quote)),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.from_numpy_dtype(dtype)), include_columns=names, null_values=[]
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    if table.num_rows != len(lines):
        return None
    matrix = np.empty((len(lines), len(names)), dtype)
    for i, column in enumerate(table.columns):
        matrix[:, i] = column.to_numpy()
    return matrix
