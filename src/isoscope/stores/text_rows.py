"""Stores over text files with one vector on each line: CSV and TSV tables, and JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isoscope._core.errors import FileFormatError, MissingValueError, ParameterError, ShapeError, plural, warn_data
from isoscope._core.missing import DROP_HINT
from isoscope._io.lines import LineBlock, choose_delimiter, has_decimal_comma, parse_numbers, read_lines
from isoscope._io.tables import check_unique, parse_integer, parse_json_line, split_cells
from isoscope.stores.columns import (
    choose_columns,
    choose_dimensions,
    choose_vectors,
    have_common_pattern,
    is_position,
    not_numbers_error,
)
from isoscope.stores.store import Piece, Store

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec

_SAMPLE = 100  # number of rows that determine which columns are numeric
_MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"}  # in any case, as pandas reads them


class LineFormat(Protocol):
    """The rules for parsing the lines of a file."""

    dim: int
    dtype: np.dtype
    skip: int
    """The number of lines before the first row."""
    quoted: bool
    """Whether double quotes may enclose line breaks."""

    def vectors(self, block: LineBlock, missing: bool) -> np.ndarray:
        """Return the vectors of these lines as an (m, d) array; if a line is invalid, raise an error that names it.

        With `missing`, empty cells, null and missing vectors are read as NaN.
        """

    def values(self, block: LineBlock, name: str) -> Any:
        """Return the values of a column in these lines."""


class LineStore(Store):
    """A store with one vector on each line; to find a row, the file is scanned, but only that row's line is parsed."""

    def __init__(self, path: Path, form: LineFormat, columns: Mapping[str, str], length: int | None = None) -> None:
        super().__init__(path.name, form.dim, form.dtype, columns)
        self._path, self._form = path, form
        self._header_length = self._length = length  # the number in the header, until the lines are counted

    def __len__(self) -> int:
        if self._length is None:
            for _ in self._blocks():
                pass
        assert self._length is not None
        return self._length

    def known_length(self) -> int | None:
        """See `Store`."""
        return self._length

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        vectors: list[np.ndarray] = []
        values: dict[str, list[Any]] = {name: [] for name in names}
        pending, done, skip = 0, start, start
        for block in self._blocks():
            block, skip = block[skip:], max(0, skip - len(block))
            for offset in _batch_offsets(len(block), rows - pending, rows):
                part = block[offset : offset + rows - pending]
                vectors.append(self._form.vectors(part, self._required is not None))
                for name in names:
                    values[name].extend(self._form.values(part, name))
                pending, done = pending + len(part), done + len(part)
                if pending == rows:
                    yield Piece(_concatenate(vectors), values, done / self._length if self._length else block.share)
                    vectors, values, pending = [], {name: [] for name in names}, 0
        if pending:
            yield Piece(_concatenate(vectors), values, 1.0)

    def read_starts(self) -> list[int]:
        """See `Store`."""
        return []

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [self._form.vectors(lines, self._required is not None) for lines in self._select(indices)]
        )

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        blocks = self._blocks() if indices is None else self._select(indices)
        return [value for lines in blocks for value in self._form.values(lines, name)]

    def _select(self, indices: np.ndarray) -> Iterator[LineBlock]:
        """Yield the lines of these rows; stop after the last one."""
        start = 0
        for block in self._blocks():
            low, high = np.searchsorted(indices, (start, start + len(block)))
            if low < high:
                yield block.select(indices[low:high] - start)
            start += len(block)
            if high == len(indices):
                return

    def _blocks(self) -> Iterator[LineBlock]:
        """Yield the lines that contain rows; at the end, set the number of rows."""
        skip, count = self._form.skip, 0
        for block in read_lines(self._path, quoted=self._form.quoted):
            block, skip = block[skip:], max(0, skip - len(block))
            count += len(block)
            if len(block):
                yield block
        if self._header_length not in (None, count):
            raise FileFormatError(
                f"the first line of {self._path} declares {plural(self._header_length or 0, 'row')}, but the file has "
                f"{count}: it was truncated or extended; copy it again, or correct that line"
            )
        self._length = count


def _concatenate(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _batch_offsets(length: int, first: int, rows: int) -> Iterator[int]:
    """Yield the offsets at which batches start in a block: after the first `first` rows, then every `rows` rows."""
    yield from range(0, min(first, length), first)
    yield from range(first, length, rows)


# CSV and TSV


class _CellLines:
    """Lines of cells, with the vectors in several numeric columns or in one column of lists."""

    dtype = np.dtype(np.float64)  # keeps all digits

    def __init__(self, path: Path, names: list[str], delimiter: str, skip: int) -> None:
        self.path, self.names, self.delimiter, self.skip = path, names, delimiter, skip
        self.quoted = delimiter != "\t"
        self.decimal = "."
        self.dim = 0
        self.cells: list[int] = []  # the columns of the vectors
        self.has_lists = False
        self.typed: set[str] = set()  # columns that become numbers if all their cells are numbers
        self.ids: str | None = None  # the id column, one of these; an id such as 007 is not 7
        self._types: dict[str, Callable[[str], Any]] = {}

    def vectors(self, block: LineBlock, missing: bool) -> np.ndarray:
        self._check_quotes(block)
        if self.has_lists:
            return self._parse_lists(block, missing)
        matrix = parse_numbers(block, len(self.names), self.cells, self.delimiter, self.dtype, decimal=self.decimal)
        return self._parse_slowly(block, missing) if matrix is None else matrix

    def values(self, block: LineBlock, name: str) -> list[Any]:
        if name not in self.typed:
            return self._texts(block, name)
        convert = self._value_type(name)
        return [convert(cell) if cell.strip() else None for cell in self._plain_cells(block, name)]

    def _texts(self, block: LineBlock, name: str) -> list[str]:
        cell = self.names.index(name)
        return [row[cell] for row in self.rows(block)]

    def _plain_cells(self, block: LineBlock, name: str) -> list[str]:
        """Return the cells of a column, with numbers as Python writes them."""
        texts = self._texts(block, name)
        return texts if self.decimal == "." else _with_decimal_points(texts)

    def _check_quotes(self, block: LineBlock) -> None:
        """Raise an error if a quoted cell contains line breaks and, on one line, as many numbers as a vector has.

        The opening quote is then an ordinary character, and the quote that closes the cell belongs to another row.
        """
        for i, line in enumerate(block.lines):
            if b"\n" not in line:
                continue
            others = [cell for j, cell in enumerate(_split_line(line, self.delimiter)) if j not in self.cells]
            inner = [text.split(self.delimiter) for cell in others if "\n" in cell for text in cell.split("\n")]
            if any(sum(map(_is_number, _with_decimal_points(cells))) >= max(2, self.dim) for cells in inner):
                raise FileFormatError(
                    f"{self.path}, line {block.numbers[i]}: a cell opens with a double quote, and the next double "
                    "quote is in another row; remove the quote, or write it twice inside a quoted cell"
                )

    def _value_type(self, name: str) -> Callable[[str], Any]:
        """Return the type of all cells in a column: int, float or str.

        This reads the entire file, because the last cell may be text.
        """
        if name not in self._types:
            types: list[Callable[[str], Any]] = [_id, str] if name == self.ids else [int, float, str]
            skip = self.skip
            for block in read_lines(self.path, quoted=self.quoted):
                cells = [cell for cell in self._plain_cells(block[skip:], name) if cell.strip()]
                skip = max(0, skip - len(block))
                while not all(_can_parse(types[0], cell) for cell in cells):
                    if types[0] is int:
                        self._check_digits(cells, name)
                    types.pop(0)
                if len(types) == 1:
                    break
            self._types[name] = types[0]
        return self._types[name]

    def _check_digits(self, cells: list[str], name: str) -> None:
        for cell in cells:
            if cell.strip().removeprefix("-").isdecimal():
                parse_integer(cell, f"{self.path}: column {name}")

    def rows(self, block: LineBlock) -> list[list[str]]:
        """Return the cells of each line; raise an error if a line has too few or too many cells."""
        rows = [_split_line(line, self.delimiter) for line in block.lines]
        for row, number in zip(rows, block.numbers, strict=True):
            if len(row) != len(self.names):
                raise ShapeError(
                    f"{self.path}, line {number} has {plural(len(row), 'cell')}: need {len(self.names)}, as in the "
                    "first line"
                )
        return rows

    def _parse_slowly(self, block: LineBlock, missing: bool) -> np.ndarray:
        """Parse cell by cell, to find an invalid cell, or to accept numbers that Python can parse and Arrow cannot."""
        matrix = np.empty((len(block), self.dim))
        for i, (row, number) in enumerate(zip(self.rows(block), block.numbers, strict=True)):
            for j, cell in enumerate(self.cells):
                absent = _is_missing(row[cell])
                try:
                    matrix[i, j] = np.nan if absent and missing else float(row[cell].replace(self.decimal, "."))
                except ValueError:
                    where = f"{self.path}, line {number}"
                    if absent:
                        raise MissingValueError(
                            f"{where}: column {self.names[cell]} is {row[cell].strip() or 'empty'}: fill it in, or "
                            f"{DROP_HINT}"
                        ) from None
                    raise FileFormatError(
                        f"{where}: {row[cell][:30]!r} in column {self.names[cell]} is not a number"
                    ) from None
        return matrix

    def _parse_lists(self, block: LineBlock, missing: bool) -> np.ndarray:
        cell, rows = self.cells[0], self.rows(block)
        plain = [row[cell].strip().removeprefix("[").removesuffix("]").encode() for row in rows]
        quick = parse_numbers(LineBlock(plain, block.numbers), self.dim, range(self.dim), ",", self.dtype)
        if quick is not None:
            return quick
        matrix = np.empty((len(block), self.dim))
        for i, (row, number) in enumerate(zip(rows, block.numbers, strict=True)):
            numbers = _list_items(row[cell])
            if not numbers:
                if not missing:
                    raise MissingValueError(
                        f"{self.path}, line {number}: column {self.names[cell]} has no vector: fill it in, or "
                        f"{DROP_HINT}"
                    )
                matrix[i] = np.nan
                continue
            if len(numbers) != self.dim and all(len(item.split()) < 2 for item in numbers):
                raise ShapeError(
                    f"{self.path}, line {number}: column {self.names[cell]} has {plural(len(numbers), 'number')}: "
                    f"need {self.dim}, as in the first row"
                )
            try:
                matrix[i] = [np.nan if missing and _is_missing(item) else float(item) for item in numbers]
            except ValueError as error:
                raise FileFormatError(
                    f"{self.path}, line {number}: column {self.names[cell]} is not a list of numbers: {error}"
                ) from None
        return matrix


def open_text_table(path: Path, wanted: ColumnSpec) -> Store:
    """Open a CSV or TSV file, with or without a header line."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    lines = _first_lines(path, quoted=kind != ".tsv")
    if not len(lines):
        raise MissingValueError(f"{path} is empty: need a vector on each line")
    first = lines.lines[0]
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileFormatError(f"{path} is encoded in UTF-16: save it as UTF-8")
    delimiter = "\t" if kind == ".tsv" else choose_delimiter(_decode(first))
    head, *rows = (_split_line(line, delimiter) for line in lines.lines)
    has_decimal_commas = delimiter == ";" and any(has_decimal_comma(cell) for row in (head, *rows) for cell in row)
    if has_decimal_commas:
        head, *rows = map(_with_decimal_points, (head, *rows))
    has_names = _are_names(head, rows)
    names = _tidy_names(head) if has_names else [str(i) for i in range(len(head))]
    check_unique(names, f"{path}, line 1,")
    form = _CellLines(path, names, delimiter, int(has_names))
    form.decimal = "," if has_decimal_commas else "."
    sample = lines[int(has_names) :]
    if not len(sample):
        raise MissingValueError(f"{path} has only a header line: need at least one vector")
    cells = form.rows(sample)
    if has_decimal_commas:
        cells = [*map(_with_decimal_points, cells)]
    store = LineStore(path, form, _choose_columns(form, sample, cells, wanted))
    if not form.has_lists:
        _warn_of_counted_cells(form, head, cells)
    dimensions = [names[cell] for cell in form.cells]
    if not form.has_lists and not have_common_pattern(dimensions):
        store.guessed_dimensions = tuple(dimensions)
    return store


def _first_lines(path: Path, *, quoted: bool) -> LineBlock:
    lines: list[bytes] = []
    numbers: list[int] = []
    for block in read_lines(path, quoted=quoted):
        lines += block.lines
        numbers += block.numbers
        if len(lines) > _SAMPLE:
            break
    return LineBlock(lines, numbers)[: _SAMPLE + 1]


def _are_names(head: list[str], rows: list[list[str]]) -> bool:
    """Return whether the first line has column names: no numbers, words above numbers, or the numbers 0, 1, 2, …

    A first line of missing values, or of numbers with an empty cell, is a data row, which must not be lost.
    """
    if all(map(_is_missing, head)):
        return False
    numbers = [cell for cell in head if _is_number(cell) or cell.lstrip().startswith("[")]
    if not numbers:
        return True
    rows = [row for row in rows if len(row) == len(head)]
    words = [i for i, cell in enumerate(head) if not (_is_missing(cell) or _can_parse(float, cell))]
    if all(cell.isdigit() for cell in numbers) and any(all(_is_number(row[i]) for row in rows) for i in words if rows):
        return True
    counted = [str(i) for i in range(len(numbers))]
    fractions = any(not cell.strip().lstrip("-").isdigit() for row in rows for cell in row if _is_number(cell))
    return numbers == counted and fractions


def _tidy_names(head: list[str]) -> list[str]:
    """Return column names without spaces around them, and without the # that `numpy.savetxt` puts before a header."""
    names = [name.strip() for name in head]
    return [names[0].removeprefix("#").lstrip() or names[0], *names[1:]]


def _warn_of_counted_cells(form: _CellLines, head: list[str], rows: list[list[str]]) -> None:
    """Warn if the first line is 0, 1, 2, … (names or a vector), or if the first column looks like row numbers."""
    cells = [cell.strip() for cell in head]
    if cells == [str(i) for i in range(len(cells))]:
        meaning = "column names; if it is a vector, add a line with names before it"
        if not form.skip:
            meaning = "a vector; if it contains the names of the columns, remove it"
        warn_data(f"{form.path}: the first line counts from {cells[0]} to {cells[-1]} and is read as {meaning}")
    first = [row[0].strip() for row in rows]
    is_count = any(first == [str(i) for i in range(start, start + len(first))] for start in (0, 1))
    if not form.skip and 0 in form.cells and is_count and len(first) > 2:
        warn_data(
            f"{form.path} has no header line, and its first column counts {first[0]}, {first[1]}, {first[2]}, …; it is "
            'read as a dimension: if it contains row numbers, pass ids="0" (on the command line: --columns ids=0)'
        )


def _choose_columns(form: _CellLines, lines: LineBlock, sample: list[list[str]], wanted: ColumnSpec) -> dict[str, str]:
    """Choose the vector columns from the first rows and set them; return the column of each role."""
    where, names = str(form.path), form.names
    lists, numbers, texts, words = [], [], {}, set()
    for i, name in enumerate(names):
        filled = [row[i] for row in sample if not _is_missing(row[i])]
        count = sum(map(_is_number, filled))
        if filled and all(cell.lstrip().startswith("[") for cell in filled):
            lists.append(name)
        elif 2 * count > len(filled):  # an invalid cell is an error; the column is kept
            numbers.append(name)
        elif filled:
            texts[name] = next(
                (number, row[i])
                for row, number in zip(sample, lines.numbers, strict=True)
                if not (_is_missing(row[i]) or _is_number(row[i]))
            )
            if is_position(name) and not count:
                words.add(name)
        elif not form.skip and i == len(names) - 1 and not any(row[i].strip() for row in sample):
            words.add(name)  # lines that end with a delimiter
    numbers = choose_dimensions(numbers, wanted, [name for name in names if name not in words])
    if wanted.vectors is not None or lists or len(numbers) < 2:  # a single column of numbers is not a vector
        vectors = choose_vectors(lists, wanted, where, others=names)
        form.has_lists, form.cells = True, [names.index(vectors)]
        form.dim = len(_list_items(next(row[form.cells[0]] for row in sample if row[form.cells[0]].strip())))
        if not form.dim:
            raise ShapeError(f"{where}: column {vectors} has no numbers in its first row: need at least one number")
    else:
        for name in filter(texts.get, numbers):
            number, cell = texts[name]
            raise not_numbers_error(f"{where}, line {number}", name, f"{cell[:30]!r} is not a number", numbers)
        form.cells = [names.index(name) for name in numbers]
        form.dim = len(form.cells)
    used = {names[cell] for cell in form.cells}
    columns = choose_columns([name for name in names if name not in used], wanted, where)
    form.typed = {name for role, name in columns.items() if role != "text"}
    form.ids = columns.get("ids")
    return columns


def _split_line(line: bytes, delimiter: str) -> list[str]:
    return split_cells(_decode(line), delimiter)


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def _with_decimal_points(cells: list[str]) -> list[str]:
    return [cell.replace(",", ".") if has_decimal_comma(cell) else cell for cell in cells]


def _list_items(cell: str) -> list[str]:
    """Return the numbers in "[0.1, 0.2]", or in NumPy's "[0.1 0.2]".

    >>> _list_items("[1, 2]"), _list_items("[1. 2.]"), _list_items("[1 2, 3]")
    (['1', '2'], ['1.', '2.'], ['1 2', '3'])
    """
    inside = cell.strip().removeprefix("[").removesuffix("]").strip()
    return [item.strip() for item in inside.removesuffix(",").split(",")] if "," in inside else inside.split()


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in _MISSING


def _is_number(cell: str) -> bool:
    return _can_parse(float, cell) and any(letter.isdigit() for letter in cell) and "_" not in cell


def _id(cell: str) -> int:
    if str(number := int(cell)) != cell.strip():
        raise ValueError
    return number


def _can_parse(convert: Callable[[str], Any], cell: str) -> bool:
    try:
        convert(cell)
    except ValueError:
        return False
    return True


# JSON lines


class _JsonLines:
    """JSON objects with the vector under `key`, or bare lists of numbers if `key` is None."""

    quoted, skip = False, 0
    dtype = np.dtype(np.float64)  # keeps all digits

    def __init__(self, where: str, key: str | None, dim: int) -> None:
        self._where, self._key, self.dim = where, key, dim
        name = b"" if key is None else re.escape(json.dumps(key).encode()) + rb"\s*:\s*"
        self._list = re.compile(name + rb'\[([^\[\]{}"]*)\]')  # without a list, object or string inside

    def vectors(self, block: LineBlock, missing: bool) -> np.ndarray:
        split = [self._split_vector(line) for line in block.lines]
        plain = [numbers for numbers, rest in split if self._is_valid_rest(rest)]
        if len(plain) == len(block):
            quick = parse_numbers(LineBlock(plain, block.numbers), self.dim, range(self.dim), ",", self.dtype)
            if quick is not None:
                return quick
        return self._parse_slowly(block, missing)

    def values(self, block: LineBlock, name: str) -> list[Any]:
        short = [self._split_vector(line)[1] for line in block.lines]
        records = [self._parse(line, number) for line, number in zip(short, block.numbers, strict=True)]
        values = [record.get(name) if isinstance(record, dict) else None for record in records]
        return [json.dumps(value) if isinstance(value, list | dict) else value for value in values]

    def _split_vector(self, line: bytes) -> tuple[bytes, bytes]:
        """Return the numbers of the vector as text, and the rest of the line with 0 in place of the numbers."""
        match = self._list.search(line)
        if match is None:
            return b"", line
        return match[1], line[: match.start(1) - 1] + b"0" + line[match.end(1) + 1 :]

    def _is_valid_rest(self, rest: bytes) -> bool:
        """Return whether the rest of a line is valid JSON in which the vector was the value of `key`."""
        try:
            value = json.loads(rest)
        except (ValueError, RecursionError):
            return False
        return (value.get(self._key) if isinstance(value, dict) and self._key is not None else value) == 0

    def _parse_slowly(self, block: LineBlock, missing: bool) -> np.ndarray:
        """Parse line by line, to find an invalid line, or to accept numbers that Python can parse and Arrow cannot."""
        matrix = np.full((len(block), self.dim), np.nan, self.dtype)
        for i, (line, number) in enumerate(zip(block.lines, block.numbers, strict=True)):
            vector = self._vector(line, number)
            if missing and (vector is None or (isinstance(vector, list) and (not vector or None in vector))):
                continue
            self._check(vector, number)
            matrix[i] = vector
        return matrix

    def _parse(self, line: bytes, number: int) -> Any:
        return parse_json_line(line, f"{self._where}, line {number}")

    def _vector(self, line: bytes, number: int) -> Any:
        value = self._parse(line, number)
        if self._key is None:
            return value
        return value.get(self._key) if isinstance(value, dict) else None

    def _check(self, vector: Any, number: int) -> None:
        where = f"{self._where}, line {number}"
        if vector is None and self._key is not None:
            raise MissingValueError(f'{where}: the field "{self._key}" is missing: fill it in, or {DROP_HINT}')
        if not isinstance(vector, list):
            raise FileFormatError(f"{where}: {json.dumps(vector)[:30]} is not a list of numbers")
        for value in vector:
            if not _is_json_number(value):
                if value is None:
                    raise MissingValueError(f"{where}: null in the vector is not a number: fix it, or {DROP_HINT}")
                raise FileFormatError(f"{where}: {json.dumps(value)[:30]} in the vector is not a number")
            if isinstance(value, int) and abs(value) > float(np.finfo(self.dtype).max):
                raise FileFormatError(f"{where}: {str(value)[:30]}… in the vector is too large for float64")
        if len(vector) != self.dim:
            raise ShapeError(
                f"{where}: the vector has {plural(len(vector), 'number')}: need {self.dim}, as in the first line"
            )


def open_json_lines(path: Path, wanted: ColumnSpec) -> Store:
    """Open a file with a JSON object or a list of numbers on each line."""
    lines = _first_lines(path, quoted=False)
    if not len(lines):
        raise MissingValueError(f"{path} is empty: need a vector on each line")
    first = lines.lines[0]
    if path.name.lower().removesuffix(".gz").endswith(".json") and not _is_vector_line(first):
        raise FileFormatError(
            f"{path} is a single JSON value: need one object per line, so that it can be read in batches; "
            f"convert it with jq -c '.[]' {path.name} > {path.stem}.jsonl"
        )
    value = parse_json_line(first, f"{path}, line {lines.numbers[0]}")
    for line, number in zip(lines.lines, lines.numbers, strict=True):
        if not isinstance(value, dict) or any(map(_is_vector, value.values())):
            break
        value = parse_json_line(line, f"{path}, line {number}")  # the vector is missing in the lines before
    key: str | None = None
    columns: list[str] = []
    if isinstance(value, dict):
        lists = [name for name, item in value.items() if _is_vector(item)]
        key = choose_vectors(lists, wanted, str(path), others=list(value))
        columns = [name for name, item in value.items() if not isinstance(item, list | dict)]
        value = value[key]
    elif wanted.vectors is not None:
        raise ParameterError(
            f"vectors is {wanted.vectors!r}, but {path} contains bare lists, which have no field names: omit vectors"
        )
    if not _is_vector(value):
        raise FileFormatError(
            f'{path}, line 1: need a list of numbers, or an object that contains one, such as {{"embedding": [0.1, '
            f"0.2]}}"
        )
    return LineStore(path, _JsonLines(str(path), key, len(value)), choose_columns(columns, wanted, str(path)))


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_json_number, value))


def _is_json_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_vector_line(line: bytes) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return _is_vector(value) or isinstance(value, dict)
