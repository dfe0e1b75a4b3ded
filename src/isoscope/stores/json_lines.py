"""JSON lines: an object with a list of numbers in each line, or the bare list."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError, plural
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.lines import Lines, LineStore, parse_numbers, read_lines

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store


class _Objects:
    """Objects with the vector under `key`; bare lists if there is none."""

    quoted, skip = False, 0
    dtype = np.dtype(np.float64)  # as many digits as may be written

    def __init__(self, where: str, key: str | None, dim: int) -> None:
        self._where, self._key, self.dim = where, key, dim
        name = b"" if key is None else re.escape(json.dumps(key).encode()) + rb"\s*:\s*"
        self._list = re.compile(
            name + rb'\[([^\[\]{}"]*)\]'
        )  # of numbers: it has no other list, object or string in it

    def vectors(self, lines: Lines) -> np.ndarray:
        apart = [self._split_vector(line) for line in lines.lines]
        plain = [numbers for numbers, rest in apart if self._is_valid_rest(rest)]
        if len(plain) == len(lines):
            quick = parse_numbers(Lines(plain, lines.numbers), self.dim, range(self.dim), ",", self.dtype)
            if quick is not None:
                return quick
        return self._parse_slowly(lines)

    def _split_vector(self, line: bytes) -> tuple[bytes, bytes]:
        """The vector's numbers, for Arrow to parse, and the line without them, which is short; or none and the line."""
        found = self._list.search(line)
        if found is None:
            return b"", line
        return found[1], line[: found.start(1) - 1] + b"0" + line[found.end(1) + 1 :]

    def _is_valid_rest(self, rest: bytes) -> bool:
        """Whether the line that a vector was taken from is right without it."""
        try:
            found = json.loads(rest)
        except (ValueError, RecursionError):
            return False
        return (found.get(self._key) if isinstance(found, dict) and self._key is not None else found) == 0

    def _parse_slowly(self, lines: Lines) -> np.ndarray:
        """Line by line, to find the one that is wrong, or that Arrow finds odd and Python does not."""
        found = [self._vector(line, number) for line, number in zip(lines.lines, lines.numbers, strict=True)]
        try:
            matrix = np.asarray(found, dtype=self.dtype)
        except (TypeError, ValueError, OverflowError):
            matrix = np.empty(0)
        if matrix.shape != (len(found), self.dim) or np.isnan(matrix).any():
            for vector, number in zip(found, lines.numbers, strict=True):
                self._check(vector, number)
        return matrix

    def values(self, lines: Lines, name: str) -> list[Any]:
        short = [self._split_vector(line)[1] for line in lines.lines]
        found = [self._object(line, number) for line, number in zip(short, lines.numbers, strict=True)]
        values = [each.get(name) if isinstance(each, dict) else None for each in found]
        return [json.dumps(value) if isinstance(value, list | dict) else value for value in values]

    def _object(self, line: bytes, number: int) -> Any:
        return _parse_json(line, f"{self._where}, line {number}")

    def _vector(self, line: bytes, number: int) -> Any:
        found = self._object(line, number)
        if self._key is None:
            return found
        vector = found.get(self._key) if isinstance(found, dict) else None
        if vector is None:
            raise InputError(f"{self._where}, line {number}: there is no {self._key}; drop the lines without a vector")
        return vector

    def _check(self, vector: Any, number: int) -> None:
        where = f"{self._where}, line {number}"
        if not isinstance(vector, list):
            raise InputError(f"{where}: {json.dumps(vector)[:30]} is not a list of numbers")
        wrong = [v for v in vector if not isinstance(v, int | float)]
        if wrong:
            raise InputError(f"{where}: {json.dumps(wrong[0])[:30]} in the vector is not a number")
        if len(vector) != self.dim:
            raise InputError(
                f"{where}: the vector has {plural(len(vector), 'number')}, need {self.dim} as in the first"
            )


def open_json_lines(path: Path, wanted: ColumnSpec) -> Store:
    """A file with a JSON object or list in each line."""
    first = next((line for block in read_lines(path) for line in block.lines), None)
    if first is None:
        raise InputError(f"{path} is empty: need a vector in each line")
    if path.name.lower().removesuffix(".gz").endswith(".json") and not _is_vector_line(first):
        raise InputError(
            f"{path} is one JSON value: need one object in each line, to be read bit by bit; "
            f"jq -c '.[]' {path.name} > {path.stem}.jsonl makes it so"
        )
    found = _parse_json(first, f"{path}, line 1")
    key, beside = None, []
    if isinstance(found, dict):
        lists = [name for name, value in found.items() if _is_vector(value)]
        key = choose_vectors(lists, wanted, str(path), others=list(found))
        beside = [name for name, value in found.items() if not isinstance(value, list | dict)]
        found = found[key]
    elif wanted.vectors is not None:
        raise InputError(
            f"vectors is {wanted.vectors!r} and {path} holds bare lists: they have no names to choose from"
        )
    if not _is_vector(found):
        raise InputError(f'{path}, line 1: need a list of numbers, or an object with one: {{"embedding": [0.1, 0.2]}}')
    return LineStore(path, _Objects(str(path), key, len(found)), choose_columns(beside, wanted, str(path)))


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, int | float) for v in value)


def _is_vector_line(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return _is_vector(found) or isinstance(found, dict)


def _parse_json(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON: {error.msg} at column {error.colno}; is the file cut?") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None
