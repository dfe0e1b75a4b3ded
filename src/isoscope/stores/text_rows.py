"""Tables as text (CSV and TSV): a column for each dimension, or one column of "[0.1, 0.2, …]"."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError, plural
from isoscope.stores.columns import choose_columns, choose_dimensions, choose_vectors
from isoscope.stores.lines import Lines, LineStore, parse_numbers, read_lines

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_SAMPLE = 100  # rows that say which columns are numbers


class _Cells:
    """Lines of cells; the vectors are in some cells, or in one, as a list."""

    dtype = np.dtype(np.float64)  # as many digits as may be written

    def __init__(self, path: Path, names: list[str], delimiter: str, skip: int) -> None:
        self.path, self.names, self.delimiter, self.skip = path, names, delimiter, skip
        self.quoted = delimiter != "\t"
        self.dim = 0
        self.cells: list[int] = []
        self.listed = False
        self.typed: set[str] = set()  # columns that are handed out as numbers if all their cells are
        self.ids: str | None = None  # one of them, whose 007 is not 7
        self._kinds: dict[str, Any] = {}

    def vectors(self, lines: Lines) -> np.ndarray:
        if self.listed:
            return self._lists(lines)
        found = parse_numbers(lines, len(self.names), self.cells, self.delimiter, self.dtype)
        return self._parse_slowly(lines) if found is None else found

    def values(self, lines: Lines, name: str) -> list[Any]:
        if name not in self.typed:
            return self._texts(lines, name)
        kind = self._kind(name)
        return [kind(cell) if cell.strip() else None for cell in self._texts(lines, name)]

    def _texts(self, lines: Lines, name: str) -> list[str]:
        cell = self.names.index(name)
        return [row[cell] for row in self.rows(lines)]

    def _kind(self, name: str) -> Any:
        """What all cells of a column are: int, float or str. It takes a pass, as the last may be the only text."""
        if name not in self._kinds:
            kinds, skip = [_id, str] if name == self.ids else [int, float, str], self.skip
            for block in read_lines(self.path, quoted=self.quoted):
                cells = [cell for cell in self._texts(block[skip:], name) if cell.strip()]
                skip = max(0, skip - len(block))
                while not all(_can_parse(kinds[0], cell) for cell in cells):
                    kinds.pop(0)
                if len(kinds) == 1:
                    break
            self._kinds[name] = kinds[0]
        return self._kinds[name]

    def rows(self, lines: Lines) -> list[list[str]]:
        """The cells of each line; one with too few or too many is refused."""
        found = [_cells(line, self.delimiter) for line in lines.lines]
        for row, number in zip(found, lines.numbers, strict=True):
            if len(row) != len(self.names):
                raise InputError(
                    f"{self.path}, line {number}: {plural(len(row), 'cell')}, need {len(self.names)} as in the first"
                )
        return found

    def _parse_slowly(self, lines: Lines) -> np.ndarray:
        """Cell by cell, to find the one that is wrong, or that Arrow finds odd and Python does not."""
        matrix = np.empty((len(lines), self.dim))
        for i, (row, number) in enumerate(zip(self.rows(lines), lines.numbers, strict=True)):
            for j, cell in enumerate(self.cells):
                try:
                    matrix[i, j] = float(row[cell])
                except ValueError:
                    raise InputError(
                        f"{self.path}, line {number}: {row[cell][:30]!r} in column {self.names[cell]} is not a number"
                    ) from None
        return matrix

    def _lists(self, lines: Lines) -> np.ndarray:
        cell, rows = self.cells[0], self.rows(lines)
        plain = [row[cell].strip().removeprefix("[").removesuffix("]").encode() for row in rows]
        quick = parse_numbers(Lines(plain, lines.numbers), self.dim, range(self.dim), ",", self.dtype)
        if quick is not None:
            return quick
        matrix = np.empty((len(lines), self.dim))
        for i, (row, number) in enumerate(zip(rows, lines.numbers, strict=True)):
            numbers = _numbers(row[cell])
            if len(numbers) != self.dim:
                raise InputError(
                    f"{self.path}, line {number}: {self.names[cell]} has {plural(len(numbers), 'number')}, "
                    f"need {self.dim} as in the first"
                )
            try:
                matrix[i] = numbers
            except ValueError as error:
                raise InputError(
                    f"{self.path}, line {number}: {self.names[cell]} is not a list of numbers: {error}"
                ) from None
        return matrix


def open_table(path: Path, wanted: ColumnSpec) -> Store:
    """A CSV or TSV file, with or without a line of names."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    lines = _first_lines(path, quoted=kind != ".tsv")
    if not lines.lines:
        raise InputError(f"{path} is empty: need a vector in each line")
    if lines.lines[0].startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path} is in UTF-16: save it as UTF-8")
    first = lines.lines[0]
    delimiter = "\t" if kind == ".tsv" else ";" if b";" in first and b"," not in first else ","
    head = _cells(first, delimiter)
    named = _are_names(head, [_cells(line, delimiter) for line in lines.lines[1:]])
    names = head if named else [str(i) for i in range(len(head))]
    if len(set(names)) < len(names):
        raise InputError(f"{path} has two columns of one name in line 1: rename one")
    form = _Cells(path, names, delimiter, int(named))
    sample = lines[int(named) :]
    if not len(sample):
        raise InputError(f"{path} has a line of names and no rows: need at least one vector")
    columns = _choose_columns(form, form.rows(sample), wanted)
    return LineStore(path, form, columns)


def _first_lines(path: Path, *, quoted: bool) -> Lines:
    lines: list[bytes] = []
    numbers: list[int] = []
    for block in read_lines(path, quoted=quoted):
        lines += block.lines
        numbers += block.numbers
        if len(lines) > _SAMPLE:
            break
    return Lines(lines, numbers)[: _SAMPLE + 1]


def _are_names(head: list[str], rows: list[list[str]]) -> bool:
    """Whether the first line names the columns: it has no numbers, or words above numbers, or 0, 1, 2, …

    A first row of numbers with a gap in it is no line of names: it must not be lost.
    """
    numbers = [cell for cell in head if _is_number(cell) or cell.lstrip().startswith("[")]
    if not numbers:
        return True
    rows = [row for row in rows if len(row) == len(head)]
    words = [i for i, cell in enumerate(head) if cell.strip() and not _can_parse(float, cell)]
    if all(cell.isdigit() for cell in numbers) and any(all(_is_number(row[i]) for row in rows) for i in words if rows):
        return True
    counted = [str(i) for i in range(len(numbers))]
    fractions = any(not cell.strip().lstrip("-").isdigit() for row in rows for cell in row if _is_number(cell))
    return numbers == counted and fractions


def _choose_columns(form: _Cells, sample: list[list[str]], wanted: ColumnSpec) -> dict[str, str]:
    """Find the cells of the vectors by looking at the first rows, and the columns of the roles."""
    where, names = str(form.path), form.names
    lists, numbers = [], []
    for i, name in enumerate(names):
        filled = [row[i] for row in sample if row[i].strip()]
        if filled and all(cell.lstrip().startswith("[") for cell in filled):
            lists.append(name)
        elif 2 * sum(map(_is_number, filled)) > len(filled):  # a cell that is none is an error, not a reason to drop it
            numbers.append(name)
    numbers = choose_dimensions(numbers, wanted)
    if wanted.vectors is not None or lists or len(numbers) < 2:  # one number beside text is no vector
        chosen = choose_vectors(lists, wanted, where, others=names)
        form.listed, form.cells = True, [names.index(chosen)]
        form.dim = len(_numbers(next(row[form.cells[0]] for row in sample if row[form.cells[0]].strip())))
        if not form.dim:
            raise InputError(f"{where}: {chosen} has no numbers in its first row: need vectors")
    else:
        form.cells = [names.index(name) for name in numbers]
        form.dim = len(form.cells)
    taken = {names[cell] for cell in form.cells}
    columns = choose_columns([name for name in names if name not in taken], wanted, where)
    form.typed = {name for role, name in columns.items() if role != "text"}
    form.ids = columns.get("ids")
    return columns


def _cells(line: bytes, delimiter: str) -> list[str]:
    """The cells of a line; between quotes a delimiter is none, and two quotes are one. (The csv module has a limit.)"""
    text = line.decode("utf-8", "backslashreplace")
    if delimiter == "\t" or '"' not in text:
        return text.split(delimiter)
    cells, parts = [""], text.split('"')
    for i, part in enumerate(parts):
        if i % 2:
            cells[-1] += part
        elif not part and 0 < i < len(parts) - 1:
            cells[-1] += '"'
        else:
            before, *behind = part.split(delimiter)
            cells[-1] += before
            cells += behind
    return cells


def _numbers(cell: str) -> list[str]:
    """The numbers of "[0.1, 0.2]", or of NumPy's "[0.1 0.2]"."""
    return cell.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()


def _is_number(cell: str) -> bool:
    return _can_parse(float, cell) and any(letter.isdigit() for letter in cell) and "_" not in cell


def _id(cell: str) -> int:
    if str(number := int(cell)) != cell.strip():
        raise ValueError
    return number


def _can_parse(kind: Any, cell: str) -> bool:
    try:
        kind(cell)
    except ValueError:
        return False
    return True
