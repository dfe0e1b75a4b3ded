"""Tables of named columns in CSV, TSV, JSON lines and Parquet files, read in batches of rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isoscope._core.errors import FileFormatError, InputError, MissingValueError, NotFoundError, ShapeError, plural
from isoscope._io.files import expand_user
from isoscope._io.lines import choose_delimiter, has_decimal_comma, read_lines

TableFormat = Literal["csv", "tsv", "json", "parquet"]

_FORMATS: dict[str, TableFormat] = {
    **{".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json"},
    **{".parquet": "parquet", ".pq": "parquet"},
}
_SAMPLE = 100  # number of JSON objects that determine the column names
_ROWS = 1_000  # rows in a batch of JSON lines or Parquet


@dataclass(frozen=True)
class TableBatch:
    """A batch of table rows, stored by column; a missing value (an empty cell or a JSON null) is None."""

    path: Path
    columns: dict[str, list[Any]]
    lines: Sequence[int]
    """The line number of each row in the file, counted from 1; for a Parquet file, the row number."""
    unit: Literal["line", "row"] = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """Return the location of a row for messages, such as "train.csv, line 2"."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def column(self, name: str, purpose: str) -> list[Any]:
        """Return the values of a column; raise a `NotFoundError` that lists the columns if the name is unknown."""
        if name not in self.columns:
            raise NotFoundError(f"{self.path} has no column {name} for the {purpose}: its columns are {self.names}")
        return self.columns[name]

    def text(self, name: str, purpose: str) -> list[str]:
        """Return the values of a column as strings; a missing value is an empty string."""
        return ["" if value is None or value != value else str(value) for value in self.column(name, purpose)]

    def as_text(self) -> dict[str, list[str]]:
        """Return all columns as strings; missing values are empty strings."""
        return {name: self.text(name, "text") for name in self.columns}

    @property
    def names(self) -> str:
        """The column names as a comma-separated list for messages, limited to 12 names."""
        return format_names(list(self.columns))


@dataclass(frozen=True)
class Table:
    """A table in a file that can be read in batches any number of times."""

    path: Path
    names: list[str]
    """The column names; for JSON lines, those of the first 100 objects."""
    _read: Callable[[Sequence[str] | None], Iterator[TableBatch]]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[TableBatch]:
        """Yield the rows in order, with these columns or all columns."""
        return self._read(columns)

    def read(self) -> TableBatch:
        """Read all rows and columns; raise a `MissingValueError` if the table has no rows."""
        batches = list(self.batches())
        names = dict.fromkeys(name for batch in batches for name in batch.columns)
        columns = {
            name: [value for batch in batches for value in batch.columns.get(name, [None] * len(batch))]
            for name in names
        }
        lines = [line for batch in batches for line in batch.lines]
        if not lines:
            raise MissingValueError(f"{self.path} has no rows: need at least one")
        return TableBatch(self.path, columns, lines, batches[0].unit)


_BINARY_FORMATS = (".npy", ".npz", ".safetensors", ".arrow", ".feather", ".h5", ".hdf5", ".fvecs", ".bvecs", ".ivecs")
"""Extensions of files that hold vectors and are never tables of text."""


def table_format(path: Path) -> TableFormat | None:
    """Return the table format that a file extension indicates, with or without .gz, or None for other extensions.

    >>> table_format(Path("train.csv.gz")), table_format(Path("notes.txt"))
    ('csv', None)
    """
    return _FORMATS.get(Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower())


def read_table(
    path: str | os.PathLike[str], *, header: bool | None = True, ragged: bool = False, spaces: bool = False
) -> TableBatch:
    """Read all rows of a table; see `open_table` for the parameters."""
    return open_table(path, header=header, ragged=ragged, spaces=spaces).read()


def open_table(
    path: str | os.PathLike[str], *, header: bool | None = True, ragged: bool = False, spaces: bool = False
) -> Table:
    """Open a .csv, .tsv, .jsonl or .parquet file; a file with another extension is read as TSV.

    Values from CSV and TSV files remain strings, so that an id such as 007 keeps its zeros. TSV has no quoting. A CSV
    file is split at semicolons if its first line contains semicolons and no commas, except decimal commas. All formats
    except Parquet may be compressed with gzip.

    Parameters
    ----------
    path : path
        The file.
    header : bool, optional
        Whether the first line of a CSV or TSV file contains the column names. If not, the columns are named "0", "1", …
        None treats the first line as names if none of its cells is a number.
    ragged : bool
        Whether rows may have more cells than the first; the extra cells are ignored.
    spaces : bool
        Whether the table contains ids and numbers, so that a TSV line without tabs is split at spaces. In CSV, decimal
        commas between semicolons become decimal points. If a space follows each delimiter of the first line, spaces
        around cells are removed. Quoted cells remain as they are.

    Examples
    --------
    >>> _ = Path("t.csv").write_text('id,text\\n007,"a, b"\\n8,\\n')
    >>> for batch in open_table("t.csv").batches():
    ...     print(batch.columns, list(batch.lines))
    {'id': ['007', '8'], 'text': ['a, b', None]} [2, 3]
    """
    path = expand_user(path)
    if path.is_dir():
        raise NotFoundError(f"{path} is a folder: pass a .csv, .tsv, .jsonl or .parquet file")
    if not path.exists():
        raise NotFoundError(f"{path} does not exist: pass a .csv, .tsv, .jsonl or .parquet file")
    if path.suffix.lower() in _BINARY_FORMATS:
        raise FileFormatError(f"{path} is a {path.suffix} file: need a .tsv, .csv, .jsonl or .parquet file")
    try:
        kind = table_format(path) or "tsv"
        if kind == "parquet":
            return _open_parquet(path)
        if kind == "json":
            return _open_json_lines(path)
        return _open_delimited(path, kind == "csv", header, ragged, spaces)
    except PermissionError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from error


def format_names(names: Sequence[str]) -> str:
    """Return names as a comma-separated list for messages, limited to 12 names.

    >>> format_names(["id", "text"])
    'id, text'
    """
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


# CSV and TSV


def _open_delimited(path: Path, quoted: bool, header: bool | None, ragged: bool, spaces: bool) -> Table:
    first, first_number = _first_line(path, quoted)
    delimiter = choose_delimiter(first) if quoted else "\t"

    has_spaces = all(cell.startswith(" ") for cell in first.split(delimiter)[1:])

    def tidy(cell: str) -> str:
        cell = cell.strip() if has_spaces else cell
        return cell.replace(",", ".") if delimiter == ";" and has_decimal_comma(cell) else cell

    def split(line: str) -> list[str]:
        if spaces and not quoted and "\t" not in line:
            return line.split()
        return split_cells(line, delimiter, tidy=tidy if spaces and quoted else None)

    cells = split(first)
    has_names = not any(map(is_number, cells)) if header is None else header
    names = [cell.strip() for cell in cells] if has_names else [str(i) for i in range(len(cells))]
    check_unique([name for name in names if name], path)
    places = {name: i for i, name in reversed([*enumerate(names)])}  # the first of several unnamed columns

    def read(columns: Sequence[str] | None) -> Iterator[TableBatch]:
        for block in read_lines(path, quoted=quoted):
            rows, numbers = [], []
            for line, number in zip(block.decode(path), block.numbers, strict=True):
                if number < first_number + has_names:
                    continue
                row = split(line)
                if len(row) < len(names) and not line.strip():
                    continue
                if len(row) < len(names) or (len(row) > len(names) and not ragged):
                    raise FileFormatError(
                        f"{path}, line {number} has {plural(len(row), 'column')}, but the first line has {len(names)}"
                    )
                rows.append(row)
                numbers.append(number)
            if rows:
                chosen = [name for name in names if name in places] if columns is None else columns
                yield TableBatch(path, {name: [row[places[name]] or None for row in rows] for name in chosen}, numbers)

    return Table(path, list(dict.fromkeys(names)), read)


def _first_line(path: Path, quoted: bool) -> tuple[str, int]:
    """Return the first line that is not blank, and its line number."""
    for block in read_lines(path, quoted=quoted):
        for i, line in enumerate(block.lines):
            if line.strip():
                return block[i : i + 1].decode(path)[0], block.numbers[i]
    raise MissingValueError(f"{path} is empty: need at least one row")


def split_cells(line: str, delimiter: str, *, tidy: Callable[[str], str] | None = None) -> list[str]:
    """Return the cells of a line; a cell may have any length. `tidy` changes the cells without quotes.

    A cell that begins with a double quote ends at the next unpaired double quote; a pair of double quotes inside it
    stands for one. Quotes elsewhere are ordinary characters. If the delimiter is a tab, all quotes are ordinary
    characters.

    >>> split_cells('a,"b, ""c"" d",5" disk', ",")
    ['a', 'b, "c" d', '5" disk']
    """
    if delimiter == "\t" or '"' not in line:
        cells = line.split(delimiter)
        return cells if tidy is None else [*map(tidy, cells)]
    cells = []
    place, pattern = 0, _cell_pattern(delimiter)
    while place <= len(line):
        match = pattern.match(line, place)
        assert match is not None  # every string begins with a cell, possibly an empty one
        inside, rest = match.groups()
        if inside is None:
            cells.append(rest if tidy is None else tidy(rest))
        else:
            cells.append(inside.replace('""', '"') + rest)
        place = match.end() + 1
    return cells


@lru_cache
def _cell_pattern(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of a cell: quoted text, if the cell begins with a quote, then text up to the delimiter."""
    return re.compile(rf'(?: *"([^"]*(?:""[^"]*)*)(?:"|$))?([^{delimiter}]*)')


def check_unique(names: Sequence[str], where: object) -> None:
    """Raise a `FileFormatError` if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileFormatError(f"{where} has two columns named {twice!r}: rename one")


def is_number(value: Any) -> bool:
    """Return whether a value is a number or a string that represents one.

    >>> is_number("1e-3"), is_number("one"), is_number(None)
    (True, False, False)
    """
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def parse_integer(cell: str, where: str) -> int:
    """Return the integer in a cell; raise a `FileFormatError` if it has more digits than Python can convert."""
    try:
        return int(cell)
    except ValueError as error:
        if cell.strip().removeprefix("-").isdecimal():
            raise FileFormatError(
                f"{where} contains an integer of {len(cell.strip()):,} digits, which is too long: shorten it, or add a "
                "letter so that it is read as text"
            ) from error
        raise


# JSON lines


def _open_json_lines(path: Path) -> Table:
    def read(columns: Sequence[str] | None) -> Iterator[TableBatch]:
        rows = _read_objects(path)
        while part := list(islice(rows, _ROWS)):
            numbers, records = [number for number, _ in part], [record for _, record in part]
            names = dict.fromkeys(chain.from_iterable(records)) if columns is None else columns
            yield TableBatch(path, {name: [record.get(name) for record in records] for name in names}, numbers)

    first = islice(_read_objects(path), _SAMPLE)
    return Table(path, list(dict.fromkeys(name for _, record in first for name in record)), read)


def _read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for block in read_lines(path):
        for line, number in zip(block.decode(path), block.numbers, strict=True):
            if not line.strip():
                continue
            record = parse_json_line(line, f"{path}, line {number}")
            if not isinstance(record, dict):
                raise FileFormatError(
                    f"{path}, line {number} is a JSON {type(record).__name__}: need an object with named fields"
                )
            yield number, record


def parse_json_line(line: str | bytes, where: str) -> Any:
    """Return the JSON value in a line; if the line is not JSON, raise a `FileFormatError` that begins with `where`."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise FileFormatError(
            f"{where} is not JSON: {error.msg} at column {error.colno}; if the file is truncated, copy it again"
        ) from None
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{where} is not valid UTF-8: {error}; save the file as UTF-8") from None
    except ValueError:  # Python limits the number of digits of an integer
        raise FileFormatError(
            f"{where} contains an integer with too many digits: write it as a string in double quotes"
        ) from None
    except RecursionError:
        raise FileFormatError(f"{where} cannot be read as JSON: it is nested too deeply") from None


# Parquet


def _open_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.types as kinds

    def failure(error: Exception) -> InputError:
        return FileFormatError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())}; copy it again")

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise failure(error) from error
    check_unique(schema.names, path)
    names = [field.name for field in schema if not kinds.is_nested(field.type)]

    def read(columns: Sequence[str] | None) -> Iterator[TableBatch]:
        chosen, count = names if columns is None else list(columns), 0
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS, columns=chosen):
                    values = {name: batch.column(name).to_pylist() for name in chosen}
                    yield TableBatch(path, values, range(count + 1, count + len(batch) + 1), "row")
                    count += len(batch)
        except (OSError, pa.ArrowException) as error:
            raise failure(error) from error

    return Table(path, names, read)


# one value for each row


def read_entries(path: Path) -> np.ndarray:
    """Read one entry for each row of a store, from a one-dimensional .npy array or the lines of a text file.

    An empty line is a missing value, None.
    """
    try:
        if path.suffix == ".npy":
            values: np.ndarray = np.load(path, allow_pickle=False)
            if values.ndim != 1:
                raise ShapeError(f"{path} has shape {values.shape}: need shape (n,), one entry per row")
            return values
        lines = path.read_text(encoding="utf-8-sig").replace("\r\n", "\n").split("\n")
        entries = lines[:-1] if lines[-1] == "" else lines
        return np.asarray(entries if all(entries) else [entry or None for entry in entries])
    except InputError:
        raise
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        kind = "a plain .npy array" if path.suffix == ".npy" else "UTF-8 text"
        raise FileFormatError(f"{path} is not {kind}: {error}; need one entry per row") from error
