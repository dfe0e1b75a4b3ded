"""Word vectors: GloVe, word2vec and fastText as text, and word2vec as binary; the words are the store's text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.columns import INVERSE_RANK, choose_columns
from isoscope.stores.in_memory import IndexedStore, check_rows
from isoscope.stores.lines import Lines, LineStore, parse_numbers, read_lines

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_SAMPLE = 20  # lines that say what the file is
_WORD_BYTES, _LONGEST_WORD = 64, 2**12  # of nearly all words, and of any
_BUFFER_BYTES = 2**14


class _WordLines:
    """A word, which may have spaces in it, and d numbers in each line."""

    quoted = False
    dtype = np.dtype(np.float32)  # what such vectors are trained and printed in

    def __init__(self, where: str, dim: int, skip: int) -> None:
        self._where, self.dim, self.skip = where, dim, skip

    def vectors(self, lines: Lines) -> np.ndarray:
        tidy = Lines([line.rstrip(b" \t").replace(b"\t", b" ") for line in lines.lines], lines.numbers)
        odd = [i for i, line in enumerate(tidy.lines) if line.count(b" ") != self.dim]
        if odd:
            words = {i: self._parts(tidy.lines[i], tidy.numbers[i]) for i in odd}
            tidy = Lines(
                [b" ".join((b"_", *words[i][1:])) if i in words else v for i, v in enumerate(tidy.lines)], tidy.numbers
            )
        found = parse_numbers(tidy, self.dim + 1, range(1, self.dim + 1), " ", self.dtype)
        return self._parse_slowly(tidy) if found is None else found

    def values(self, lines: Lines, name: str) -> Any:
        if name != "word":
            return _rank_values(np.asarray(lines.numbers) - self.skip, name)
        spaces = self.dim  # a word without one is what stands before the first
        words = (
            line.partition(b" ")[0]
            if line.count(b" ") == spaces and line[-1:] != b" "
            else self._parts(line, number)[0]
            for line, number in zip(lines.lines, lines.numbers, strict=True)
        )
        return [word.decode("utf-8", "backslashreplace") for word in words]

    def _parts(self, line: bytes, number: int) -> list[bytes]:
        parts = line.rstrip(b" \t").replace(b"\t", b" ").rsplit(b" ", self.dim)
        if len(parts) <= self.dim:
            raise InputError(
                f"{self._where}, line {number}: {len(parts) - 1} numbers after the word, need {self.dim} as in the "
                "first; is the file cut?"
            )
        return parts

    def _parse_slowly(self, lines: Lines) -> np.ndarray:
        """Line by line, to find the one that is wrong, or that Arrow finds odd and Python does not."""
        rows = np.empty((len(lines), self.dim), self.dtype)
        for i, (line, number) in enumerate(zip(lines.lines, lines.numbers, strict=True)):
            for j, part in enumerate(self._parts(line, number)[1:]):
                try:
                    rows[i, j] = float(part)
                except ValueError:
                    cell = part.decode("utf-8", "backslashreplace")[:30]
                    raise InputError(
                        f"{self._where}, line {number}: {cell!r} is not a number; need a word and {self.dim} numbers"
                    ) from None
        return rows


def open_words(path: Path, wanted: ColumnSpec) -> Store:
    """GloVe (no header) or word2vec and fastText (a header of two numbers) as text."""
    lines = next((block.lines[:_SAMPLE] for block in read_lines(path) if len(block)), [b""])
    first = lines[0].split()
    if len(first) == 2 and first[0].isdigit() and first[1].isdigit():
        length, dim = int(first[0]), int(first[1])
        check_rows((length, dim), np.dtype(np.float32), str(path))
        form = _WordLines(str(path), dim, skip=1)
    else:
        length, form = None, _WordLines(str(path), _count_numbers(first), skip=0)
        if form.dim < 2:  # one number is a score, and no vector
            raise InputError(
                f"{path}, line 1: {lines[0][:40].decode('utf-8', 'backslashreplace')!r} is not a word and its vector; "
                'need "word 0.1 0.2 …" as GloVe and fastText write it'
            )
        if all(_is_fraction(line.split()[0]) for line in lines):
            raise InputError(
                f"{path} has numbers and no words: np.save(…, np.loadtxt({path.name!r})) makes an .npy of it"
            )
    return LineStore(path, form, _columns(wanted, str(path)), length)


def _columns(wanted: ColumnSpec, where: str) -> dict[str, str]:
    """The word of a row, and how frequent it is: such files begin with the most frequent."""
    found = choose_columns(["word", "rank", INVERSE_RANK], wanted, where)
    return found if wanted.roles.get("frequency") is not None else {**found, "frequency": INVERSE_RANK}


def _rank_values(ranks: np.ndarray, name: str) -> np.ndarray:
    return ranks if name == "rank" else 1 / ranks


def _is_fraction(cell: bytes) -> bool:
    """Whether it is a number with a point or an exponent: no word, and no number of a node."""
    try:
        float(cell)
    except ValueError:
        return False
    return not cell.lstrip(b"-").isdigit()


def _count_numbers(cells: list[bytes]) -> int:
    """How many numbers end a line; 0 if it holds nothing but words, or nothing but numbers and no word before."""
    for i in range(len(cells) - 1, 0, -1):
        try:
            float(cells[i])
        except ValueError:
            return len(cells) - 1 - i
    return max(0, len(cells) - 1)


class _WordBinary:
    """A word2vec binary file: words end with a space and vary in length, so where rows begin is looked up once."""

    dtype = np.dtype(np.float32)
    scanned = True

    def __init__(self, path: Path, n: int, dim: int, start: int) -> None:
        self._path, self.shape, self._start = path, (n, dim), start
        self._found: np.ndarray | None = None

    def __getitem__(self, rows: Any) -> np.ndarray:
        places = self._places()[1:][rows]
        found = np.empty((len(places), self.shape[1]), "<f4")
        with self._path.open("rb", _BUFFER_BYTES) as file:
            for row, end in zip(found, places.tolist(), strict=True):
                file.seek(end - row.nbytes)
                row[:] = np.frombuffer(file.read(row.nbytes), "<f4")
        return found

    def words(self, rows: Any) -> list[str]:
        """The words of these rows."""
        places, nbytes = self._places(), 4 * self.shape[1] + 1
        words = []
        with self._path.open("rb", _BUFFER_BYTES) as file:
            for start, end in zip(places[:-1][rows].tolist(), places[1:][rows].tolist(), strict=True):
                file.seek(start)
                words.append(file.read(end - nbytes - start).lstrip(b"\n").decode("utf-8", "backslashreplace"))
        return words

    def _places(self) -> np.ndarray:
        """Where each row ends, after where the first begins."""
        if self._found is None:
            n, nbytes = self.shape[0], 4 * self.shape[1]
            places = np.empty(n + 1, np.int64)
            places[0] = at = self._start
            size = self._path.stat().st_size
            with self._path.open("rb", _BUFFER_BYTES) as file:
                for i in range(1, n + 1):
                    file.seek(at)
                    space = file.read(_WORD_BYTES).find(b" ")
                    if space < 0:
                        file.seek(at)
                        space = file.read(_LONGEST_WORD).find(b" ")
                    at += space + 1 + nbytes
                    if space < 0 or at > size:
                        raise InputError(f"{self._path} is cut in row {i - 1} of {n}: copy it again")
                    places[i] = at
            self._found = places
        return self._found


class _Words:
    """The words of a binary file as a column."""

    def __init__(self, rows: _WordBinary) -> None:
        self._rows = rows

    def __getitem__(self, rows: Any) -> list[str]:
        return self._rows.words(rows)


class _Ranks:
    """The places of words in a binary file as a column, from 1 on."""

    def __init__(self, n: int, name: str) -> None:
        self._n, self._name = n, name

    def __getitem__(self, rows: Any) -> np.ndarray:
        return _rank_values(np.arange(self._n)[rows] + 1, self._name)


def open_word_binary(path: Path, wanted: ColumnSpec) -> Store:
    """The binary form of word2vec: a line "n d", then each word, a space and d float32 numbers."""
    with path.open("rb") as file:
        head = file.readline(64)
    cells = head.split()
    if not head.endswith(b"\n") or len(cells) != 2 or not all(cell.isdigit() for cell in cells):
        raise InputError(
            f"{path} is not a word2vec binary file: need a first line of two numbers, how many and how long"
        )
    n, dim = int(cells[0]), int(cells[1])
    check_rows((n, dim), np.dtype(np.float32), str(path))
    size = path.stat().st_size
    if size < len(head) + n * (4 * dim + 2):
        raise InputError(f"{path} is cut: {n} words of {dim} dimensions do not fit in {size} bytes; copy it again")
    rows = _WordBinary(path, n, dim, len(head))
    table = {"word": _Words(rows), "rank": _Ranks(n, "rank"), INVERSE_RANK: _Ranks(n, INVERSE_RANK)}
    return IndexedStore(path.name, rows, _columns(wanted, str(path)), table)
