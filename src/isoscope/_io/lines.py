"""Read plain or gzip text files in blocks of numbered lines; quoted text may contain line breaks."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isoscope._core.errors import FileFormatError

_BLOCK_BYTES = 2**21
_LONGEST_LINE = 2**26
_OPENING_QUOTE = re.compile(rb'(?:^|[,;]) *"')  # a quote is special only at the start of a cell


@dataclass(frozen=True)
class LineBlock:
    """Consecutive non-empty lines of a file, with their line numbers."""

    lines: list[bytes]
    numbers: Sequence[int]
    """The line number of each line in the file, counted from 1."""
    share: float = 1.0
    """The share of the file, from 0 to 1, that has been read up to the end of this block."""

    def __getitem__(self, part: slice) -> LineBlock:
        return LineBlock(self.lines[part], self.numbers[part], self.share)

    def __len__(self) -> int:
        return len(self.lines)

    def select(self, indices: np.ndarray) -> LineBlock:
        """Return the lines at these positions in the block."""
        return LineBlock([self.lines[i] for i in indices], [self.numbers[i] for i in indices], self.share)

    def decode(self, path: Path) -> list[str]:
        """Return the lines as text; if a line is not UTF-8, raise an error with its line number."""
        try:
            return [line.decode("utf-8") for line in self.lines]
        except UnicodeDecodeError:
            for line, number in zip(self.lines, self.numbers, strict=True):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise FileFormatError(
                        f"{path}, line {number} is not valid UTF-8: {error}; save the file as UTF-8"
                    ) from error
            raise


def read_lines(path: Path, *, quoted: bool = False) -> Iterator[LineBlock]:
    """Read the non-empty lines of a file, about 2 MB at a time.

    A line ends with LF or CRLF. A UTF-8 byte order mark is removed, and gzip files are decompressed regardless of the
    file name. The file is closed when the iterator is closed.

    Parameters
    ----------
    path : Path
        The file.
    quoted : bool
        Whether double quotes may enclose line breaks, as in CSV. The lines of such a cell are joined into one, with the
        line number of the first.
    """
    size = max(1, path.stat().st_size)
    number, tail = 1, b""
    numbers: Sequence[int]
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if path.suffix.lower() == ".gz" and not zipped:
            raise FileFormatError(f"{path} is not a gzip file: it lacks the gzip header; remove .gz from its name")
        file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        block = _read_block(file, path).removeprefix(b"\xef\xbb\xbf")
        while block:
            following = _read_block(file, path)
            text = tail + block
            cut = text.rfind(b"\n") + 1 if following else len(text)
            text, tail = text[:cut], text[cut:]
            lines = _split_lines(text)
            if quoted and b'"' in text:
                records, numbers, rest = _join_quoted_lines(lines, number)
                first_open = number + len(lines) - rest.count(b"\n")
                if rest and not following:
                    raise FileFormatError(
                        f"{path}, line {first_open}: a quoted cell is never closed; if the file is truncated, "
                        "copy it again"
                    )
                tail = rest + tail
                number, lines = first_open, records
            else:
                numbers = range(number, number + len(lines))
                number += text.count(b"\n")
            if len(tail) > _LONGEST_LINE:
                raise FileFormatError(
                    f"{path}, line {number} is longer than {_LONGEST_LINE >> 20} MB: need shorter lines of text"
                )
            result = LineBlock(lines, numbers, 1.0 if not following else min(1.0, raw.tell() / size))
            if b"" in lines:
                result = result.select(np.asarray([i for i, line in enumerate(lines) if line], int))
            yield result
            block = following


def _read_block(file: Any, path: Path) -> bytes:
    try:
        return bytes(file.read(_BLOCK_BYTES))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileFormatError(f"{path} is a damaged or truncated gzip file: {error}; copy it again") from error


def _split_lines(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.rstrip(b"\r") for line in lines] if b"\r" in text else lines


def _join_quoted_lines(lines: list[bytes], first: int) -> tuple[list[bytes], list[int], bytes]:
    """Join the lines of each quoted cell; return the records, their first line numbers and any incomplete rest."""
    records: list[bytes] = []
    numbers: list[int] = []
    pending: list[bytes] = []
    for number, line in enumerate(lines, first):
        if pending or (line.count(b'"') % 2 and _OPENING_QUOTE.search(line)):
            pending.append(line)
            if len(pending) == 1 or line.count(b'"') % 2 == 0:
                continue
            line, number, pending = b"\n".join(pending), number - len(pending) + 1, []
        records.append(line)
        numbers.append(number)
    return records, numbers, b"".join(line + b"\n" for line in pending)


def parse_numbers(
    block: LineBlock, cells: int, columns: Sequence[int], delimiter: str, dtype: np.dtype
) -> np.ndarray | None:
    """Return the numbers in these columns of all lines, parsed by Arrow, as an (m, len(columns)) array.

    Return None if a line does not have exactly `cells` cells, or if a cell is not a number in Arrow's syntax.
    """
    import pyarrow as pa
    from pyarrow import csv

    names = [str(i) for i in columns]
    data = b"\n".join(block.lines)
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
    if table.num_rows != len(block):
        return None
    matrix = np.empty((len(block), len(names)), dtype)
    for i, column in enumerate(table.columns):
        matrix[:, i] = column.to_numpy()
    return matrix
