"""Tables of text: rows of named or numbered columns from TSV, CSV, JSON lines and Parquet, plain or in gzip."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoscope._core.errors import InputError, plural
from isoscope.stores.lines import read_lines


@dataclass(frozen=True)
class TextTable:
    """Columns of a file, by name, and the line that each row stands on."""

    path: Path
    columns: dict[str, list[Any]]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str, what: str) -> list[Any]:
        """A column's values; an `InputError` that names the file's columns if there is none of this name."""
        if name not in self.columns:
            raise InputError(f"{self.path} has no column {name} for the {what}: its columns are {self.names}")
        return self.columns[name]

    @property
    def names(self) -> str:
        """The columns' names, as a list to show."""
        names = list(self.columns)
        return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def read_table(path: str | os.PathLike[str], *, header: bool = True, ragged: bool = False) -> TextTable:
    """The rows of a file: .csv, .jsonl, .parquet, and everything else as TSV without quoting.

    Parameters
    ----------
    path : path
        The file; text may be in gzip, whatever its name.
    header : bool
        Whether a TSV or CSV file names its columns in its first line; if not they are named "0", "1", …
    ragged : bool
        Whether rows may have more cells than the first; those are left out.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file of texts and labels")
    if not path.is_file():
        raise InputError(f"{path} is not there: name a .csv, .tsv, .jsonl or .parquet file of texts and labels")
    kind = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if kind in (".parquet", ".pq"):
        found = _read_parquet(path)
    elif kind in (".jsonl", ".ndjson"):
        found = _read_json_lines(path)
    else:
        found = _read_delimited(path, quoted=kind == ".csv", header=header, ragged=ragged)
    if not len(found):
        raise InputError(f"{path} has no rows: need texts and labels")
    return found


def _read_delimited(path: Path, *, quoted: bool, header: bool, ragged: bool) -> TextTable:
    numbers, rows = [], []
    for number, line in _decode_lines(path, quoted=quoted):
        rows.append(next(csv.reader([line])) if quoted else line.split("\t"))
        numbers.append(number)
    if not rows:
        raise InputError(f"{path} is empty: need texts and labels")
    names = [cell.strip() for cell in rows[0]] if header else [str(i) for i in range(len(rows[0]))]
    if header:
        numbers, rows = numbers[1:], rows[1:]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has two columns named {twice!r}: rename one")
    for number, row in zip(numbers, rows, strict=True):
        if len(row) < len(names) or (len(row) > len(names) and not ragged):
            raise InputError(f"{path}, line {number} has {plural(len(row), 'column')}, the first line has {len(names)}")
    return TextTable(path, {name: [row[i] for row in rows] for i, name in enumerate(names)}, numbers)


def _decode_lines(path: Path, *, quoted: bool = False) -> list[tuple[int, str]]:
    found = []
    for block in read_lines(path, quoted=quoted):
        for number, line in zip(block.numbers, block.lines, strict=True):
            try:
                found.append((number, line.decode("utf-8")))
            except UnicodeDecodeError as error:
                raise InputError(f"{path}, line {number} is not text in UTF-8: {error}") from error
    return found


def _read_json_lines(path: Path) -> TextTable:
    records, numbers = [], []
    for number, line in _decode_lines(path):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise InputError(f"{path}, line {number} is a JSON {type(record).__name__}: need an object of named fields")
        records.append(record)
        numbers.append(number)
    names = list(dict.fromkeys(name for record in records for name in record))
    return TextTable(path, {name: [record.get(name) for record in records] for name in names}, numbers)


def _read_parquet(path: Path) -> TextTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())}") from error
    columns = {name: table.column(name).to_pylist() for name in table.column_names if _is_scalar_column(table, name)}
    return TextTable(path, columns, range(1, table.num_rows + 1))


def _is_scalar_column(table: Any, name: str) -> bool:
    """Whether a column holds single values; vectors beside the text stay on the disk's side."""
    import pyarrow.types as kinds

    kind = table.schema.field(name).type
    return not kinds.is_nested(kind)
