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

_OPENING_QUOTE = {  # by delimiter; a quote elsewhere than at the start of a cell is an ordinary character
    delimiters: re.compile(rb'(?:^|[%s]) *"' % delimiters) for delimiters in (b",", b";", b",;")
}
_CLOSING_QUOTE = re.compile(rb'[^"]*(?:""[^"]*)*"(?!")')
_QUOTED_CELL = re.compile(r'(^|[,;]) *"[^"]*(?:""[^"]*)*(?:"|$)')
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")


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

    A line ends with LF or CRLF, or with CR if the first 2 MB contain no LF. A UTF-8 byte order mark is removed, and
    gzip files are decompressed regardless of the file name. The file is closed when the iterator is closed.

    Parameters
    ----------
    path : Path
        The file.
    quoted : bool
        Whether double quotes may enclose line breaks, as in CSV. The lines of such a cell are joined into one, with the
        line number of the first. Only a quote at the start of a cell opens it. Text after a closing quote on a later
        line is an error, because the opening quote was then probably an ordinary character.
    """
    size = max(1, path.stat().st_size)
    number, tail = 1, b""
    delimiter: bytes | None = None
    numbers: Sequence[int]
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if path.suffix.lower() == ".gz" and not zipped:
            raise FileFormatError(f"{path} is not a gzip file: it lacks the gzip header; remove .gz from its name")
        file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        block = _read_block(file, path).removeprefix(b"\xef\xbb\xbf")
        ends_in_cr = b"\r" in block and b"\n" not in block
        while block:
            following = _read_block(file, path)
            if ends_in_cr:
                block = block.replace(b"\r", b"\n")
            text = tail + block
            cut = text.rfind(b"\n") + 1 if following else len(text)
            text, tail = text[:cut], text[cut:]
            lines = _split_lines(text)
            if quoted and delimiter is None:
                delimiter = _find_delimiter(lines)
            if quoted and b'"' in text:
                records, numbers, rest = _join_quoted_lines(lines, number, delimiter or b",;", path)
                first_open = number + len(lines) - rest.count(b"\n")
                if rest and (not following or len(rest) > _LONGEST_LINE):
                    where = "" if not following else f" within {_LONGEST_LINE >> 20} MB"
                    raise FileFormatError(
                        f"{path}, line {first_open}: a quoted cell is never closed{where}; if the file is truncated, "
                        "copy it again, else remove the double quote that opens the cell"
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


def _find_delimiter(lines: list[bytes]) -> bytes | None:
    """Return the delimiter that the first record indicates, or None if the record does not end in these lines."""
    record = b""
    for line in lines:
        record = record + b"\n" + line if record else line
        if record.strip() and not _ends_in_quotes(record, b",;"):
            return choose_delimiter(record.decode("utf-8", "backslashreplace")).encode()
    return None


def choose_delimiter(record: str) -> str:
    """Return the delimiter of a CSV file from its first record: a comma, or a semicolon.

    It is a semicolon if the record has one outside of quotes, and no commas except as decimal commas.

    >>> choose_delimiter("a;b"), choose_delimiter("a;b,c"), choose_delimiter("0,5;-0,25"), choose_delimiter("a")
    (';', ',', ';', ',')
    """
    cells = _QUOTED_CELL.sub(r"\1", record).split(";")
    return ";" if len(cells) > 1 and all("," not in cell or has_decimal_comma(cell) for cell in cells) else ","


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma, such as 0,5."""
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def _ends_in_quotes(line: bytes, delimiter: bytes, place: int = 0) -> bool:
    """Return whether a quoted cell is still open at the end of a line; `place` is the offset to start at.

    >>> _ends_in_quotes(b'"a, b",5" disk', b","), _ends_in_quotes(b'"a, b","c', b",")
    (False, True)
    """
    while line.find(b'"', place) >= 0 and (opening := _OPENING_QUOTE[delimiter].search(line, place)):
        closing = _CLOSING_QUOTE.match(line, opening.end())
        if closing is None:
            return True
        place = closing.end()
    return False


def _join_quoted_lines(
    lines: list[bytes], first: int, delimiter: bytes, path: Path
) -> tuple[list[bytes], list[int], bytes]:
    """Join the lines of each quoted cell; return the records, their first line numbers and any incomplete rest."""
    records: list[bytes] = []
    numbers: list[int] = []
    pending: list[bytes] = []
    for number, line in enumerate(lines, first):
        if pending:
            pending.append(line)
            closing = _CLOSING_QUOTE.match(line)
            if closing is None:
                continue
            if line[closing.end() :].lstrip(b" ")[:1] not in (b"", *(b"%c" % byte for byte in delimiter)):
                raise FileFormatError(
                    f"{path}, line {number - len(pending) + 1}: a cell opens with a double quote, and the closing "
                    f"quote, on line {number}, is followed by text: remove the opening quote, or double every quote "
                    "inside the cell"
                )
            if _ends_in_quotes(line, delimiter, closing.end()):
                continue
            line, number, pending = b"\n".join(pending), number - len(pending) + 1, []
        elif b'"' in line and _ends_in_quotes(line, delimiter):
            pending.append(line)
            continue
        records.append(line)
        numbers.append(number)
    return records, numbers, b"".join(line + b"\n" for line in pending)


def parse_numbers(
    block: LineBlock, cells: int, columns: Sequence[int], delimiter: str, dtype: np.dtype, *, decimal: str = "."
) -> np.ndarray | None:
    """Return the numbers in these columns of all lines, parsed by Arrow, as an (m, len(columns)) array.

    `decimal` is the decimal point. Return None if a line does not have exactly `cells` cells, or if a cell is not a
    number in Arrow's syntax.
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
                column_types=dict.fromkeys(names, pa.from_numpy_dtype(dtype)),
                include_columns=names,
                null_values=[],
                decimal_point=decimal,
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
