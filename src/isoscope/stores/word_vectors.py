"""Stores over word vectors: GloVe, word2vec and fastText files, and folders with an array and a list of words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import FileFormatError, ShapeError, plural
from isoscope._io.lines import LineBlock, parse_numbers, read_lines
from isoscope.stores.columns import INVERSE_RANK, choose_columns
from isoscope.stores.in_memory import check_rows
from isoscope.stores.numpy_files import read_npy
from isoscope.stores.store import IndexedStore
from isoscope.stores.text_rows import LineStore

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_SAMPLE = 20  # number of lines that determine the format
_WORD_BYTES, _LONGEST_WORD = 64, 2**12  # the length that most words fit into, and the maximum length
_BUFFER_BYTES = 2**14
_MOST_DIGITS = 20  # of a number of rows or dimensions


class _WordLines:
    """Lines with a word, which may contain spaces, followed by d numbers."""

    quoted = False
    dtype = np.dtype(np.float32)  # the precision in which such vectors are trained and printed

    def __init__(self, where: str, dim: int, skip: int) -> None:
        self._where, self.dim, self.skip = where, dim, skip

    def vectors(self, lines: LineBlock, missing: bool) -> np.ndarray:
        tidy = LineBlock([line.rstrip(b" \t").replace(b"\t", b" ") for line in lines.lines], lines.numbers)
        odd = [i for i, line in enumerate(tidy.lines) if line.count(b" ") != self.dim]
        if odd:
            words = {i: self._parts(tidy.lines[i], tidy.numbers[i]) for i in odd}
            tidy = LineBlock(
                [b" ".join((b"_", *words[i][1:])) if i in words else v for i, v in enumerate(tidy.lines)], tidy.numbers
            )
        matrix = parse_numbers(tidy, self.dim + 1, range(1, self.dim + 1), " ", self.dtype)
        return self._parse_slowly(tidy) if matrix is None else matrix

    def values(self, lines: LineBlock, name: str) -> Any:
        if name != "word":
            return _rank_values(np.asarray(lines.numbers) - self.skip, name)
        spaces = self.dim  # a word without spaces ends at the first space
        words = (
            line.partition(b" ")[0]
            if line.count(b" ") == spaces and line[-1:] != b" "
            else self._parts(line, number)[0]
            for line, number in zip(lines.lines, lines.numbers, strict=True)
        )
        return [word.decode("utf-8", "backslashreplace") for word in words]

    def _parts(self, line: bytes, number: int) -> list[bytes]:
        tidy = line.rstrip(b" \t").replace(b"\t", b" ")
        parts = tidy.rsplit(b" ", self.dim)
        if b"" in parts[1:]:  # several spaces between the numbers
            parts = tidy.rsplit(None, self.dim)
        parts[0] = parts[0].rstrip(b" ") or parts[0]
        first, space, last = parts[0].rpartition(b" ")
        if len(parts) <= self.dim or (first and space and _is_fraction(last)):
            raise FileFormatError(
                f"{self._where}, line {number} has {plural(_count_numbers(line.split()), 'number')} after the word: "
                f"need {self.dim}, as in the first line; if the file is damaged, copy it again"
            )
        return parts

    def _parse_slowly(self, lines: LineBlock) -> np.ndarray:
        """Parse line by line, to find an invalid line, or to accept numbers that Python can parse and Arrow cannot."""
        rows = np.empty((len(lines), self.dim), self.dtype)
        for i, (line, number) in enumerate(zip(lines.lines, lines.numbers, strict=True)):
            for j, part in enumerate(self._parts(line, number)[1:]):
                try:
                    rows[i, j] = float(part)
                except ValueError:
                    cell = part.decode("utf-8", "backslashreplace")[:30]
                    raise FileFormatError(
                        f"{self._where}, line {number}: {cell!r} is not a number; need a word and {self.dim} numbers"
                    ) from None
        return rows


def open_words(path: Path, wanted: ColumnSpec) -> Store:
    """Open word vectors as text: GloVe (no header), or word2vec and fastText (a header of two numbers)."""
    block = next((block[:_SAMPLE] for block in read_lines(path) if len(block)), LineBlock([b""], [1]))
    lines = block.lines
    first = lines[0].split()
    if len(first) == 2 and all(cell.isdigit() and len(cell) < _MOST_DIGITS for cell in first):
        length, dim = int(first[0]), int(first[1])
        check_rows((length, dim), np.dtype(np.float32), str(path))
        form = _WordLines(str(path), dim, skip=1)
    else:
        length, form = None, _WordLines(str(path), _find_dim(lines), skip=0)
        if form.dim < 2:  # a single number is a score, not a vector
            raise FileFormatError(
                f"{path}, line 1: {lines[0][:40].decode('utf-8', 'backslashreplace')!r} is not a word followed by a "
                'vector; need "word 0.1 0.2 …" as GloVe and fastText write it; to embed texts, use isoscope embed'
            )
        if all(_is_fraction(line.split()[0]) for line in lines if line.strip()):
            raise FileFormatError(
                f"{path} contains numbers but no words: convert it with np.save(…, np.loadtxt({path.name!r}))"
            )
        if _count_numbers(first) < form.dim:
            raise FileFormatError(
                f"{path}, line {block.numbers[0]} has {plural(_count_numbers(first), 'number')} after the word, but "
                f"other lines have {form.dim}: complete or remove this line"
            )
    return LineStore(path, form, _columns(wanted, str(path)), length)


def _columns(wanted: ColumnSpec, where: str) -> dict[str, str]:
    """Return the text and frequency columns; word vector files are sorted by decreasing frequency."""
    columns = choose_columns(["word", "rank", INVERSE_RANK], wanted, where)
    return columns if wanted.roles.get("frequency") is not None else {**columns, "frequency": INVERSE_RANK}


def _rank_values(ranks: np.ndarray, name: str) -> np.ndarray:
    return ranks if name == "rank" else 1 / ranks


def _find_dim(lines: list[bytes]) -> int:
    """Return how many numbers follow the word on most lines; a word may end in an integer, but not in a fraction."""
    cells = [line.split() for line in lines]
    counts = Counter(map(_count_numbers, cells))
    *smaller, largest = sorted(dim for dim in counts if counts[dim] == max(counts.values()))
    for dim in smaller:
        if dim > 1 and not any(len(each) > dim + 1 and _is_fraction(each[-dim - 1]) for each in cells):
            return dim
    return largest


def _is_fraction(cell: bytes) -> bool:
    """Return whether a cell is a number with a decimal point or an exponent, unlike a word or a node number."""
    try:
        float(cell)
    except ValueError:
        return False
    return not cell.lstrip(b"-").isdigit() and any(48 <= byte < 58 for byte in cell)


def _count_numbers(cells: list[bytes]) -> int:
    """Return how many numbers follow the word on a line."""
    for i in range(len(cells) - 1, 0, -1):
        try:
            float(cells[i])
        except ValueError:
            return len(cells) - 1 - i
    return max(0, len(cells) - 1)


class _WordBinary:
    """A word2vec binary file; its rows differ in length, so the file is scanned once to find where they begin."""

    dtype = np.dtype(np.float32)
    scanned = True

    def __init__(self, path: Path, n: int, dim: int, start: int) -> None:
        self._path, self.shape, self._start = path, (n, dim), start
        self._row_ends: np.ndarray | None = None

    def __getitem__(self, rows: Any) -> np.ndarray:
        places = self._places()[1:][rows]
        vectors = np.empty((len(places), self.shape[1]), "<f4")
        with self._path.open("rb", _BUFFER_BYTES) as file:
            for row, end in zip(vectors, places.tolist(), strict=True):
                file.seek(end - row.nbytes)
                row[:] = np.frombuffer(file.read(row.nbytes), "<f4")
        return vectors

    def words(self, rows: Any) -> list[str]:
        """Return the words of these rows."""
        places, nbytes = self._places(), 4 * self.shape[1] + 1
        words = []
        with self._path.open("rb", _BUFFER_BYTES) as file:
            for start, end in zip(places[:-1][rows].tolist(), places[1:][rows].tolist(), strict=True):
                file.seek(start)
                words.append(file.read(end - nbytes - start).lstrip(b"\n").decode("utf-8", "backslashreplace"))
        return words

    def _places(self) -> np.ndarray:
        """Return the offset where the first row begins, followed by the offsets where each row ends."""
        if self._row_ends is None:
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
                        raise FileFormatError(f"{self._path} is truncated in row {i - 1} of {n}: copy it again")
                    places[i] = at
                file.seek(at)
                if size - at > 2 or file.read(2).strip():
                    raise FileFormatError(
                        f"{self._path} has {plural(size - at, 'byte')} after the {plural(n, 'row')} of "
                        f"{self.shape[1]} dimensions that its first line declares: correct that line, or copy it again"
                    )
            self._row_ends = places
        return self._row_ends


class _Words:
    """The column of words in a binary file."""

    def __init__(self, rows: _WordBinary) -> None:
        self._rows = rows

    def __getitem__(self, rows: Any) -> list[str]:
        return self._rows.words(rows)


class _Ranks:
    """The column of word ranks in a binary file, counted from 1, or the column of inverse ranks."""

    def __init__(self, n: int, name: str) -> None:
        self._n, self._name = n, name

    def __getitem__(self, rows: Any) -> np.ndarray:
        return _rank_values(np.arange(self._n)[rows] + 1, self._name)


def open_word_binary(path: Path, wanted: ColumnSpec) -> Store:
    """Open a word2vec binary file: a line "n d", then for each row a word, a space and d float32 numbers."""
    with path.open("rb") as file:
        head = file.readline(64)
    cells = head.split()
    if not head.endswith(b"\n") or len(cells) != 2 or not all(cell.isdigit() for cell in cells):
        raise FileFormatError(
            f"{path} is not a word2vec binary file: its first line must contain the number of rows and the "
            "number of dimensions"
        )
    n, dim = int(cells[0]), int(cells[1])
    check_rows((n, dim), np.dtype(np.float32), str(path))
    size = path.stat().st_size
    if size < len(head) + n * (4 * dim + 2):
        raise FileFormatError(
            f"{path} is truncated: {n} words of {dim} dimensions do not fit in {size} bytes; copy it again"
        )
    rows = _WordBinary(path, n, dim, len(head))
    table = {"word": _Words(rows), "rank": _Ranks(n, "rank"), INVERSE_RANK: _Ranks(n, INVERSE_RANK)}
    return IndexedStore(path.name, rows, _columns(wanted, str(path)), table)


FOLDER_FILES = ("vectors.npy", "words.txt")
"""The files of a folder of word vectors: the array, and the words."""


def word_folder_files(folder: Path) -> tuple[Path, Path] | None:
    """Return the array and the words of a folder of word vectors, or None if one is missing."""
    vectors, words = (folder / name for name in FOLDER_FILES)
    return (vectors, words) if vectors.is_file() and words.is_file() else None


def open_word_folder(name: str, vectors: Path, words: Path, wanted: ColumnSpec) -> Store:
    """Open an .npy array and a text file with the word of each row on a line of its own.

    The words may be in any order, so that their ranks become frequencies only on request.
    """
    rows = read_npy(vectors, wanted)
    lines = [line for block in read_lines(words) for line in block.decode(words)]
    n = rows.shape[0]
    if len(lines) != n:
        raise ShapeError(
            f"{words} has {plural(len(lines), 'word')} but {vectors.name} has {plural(n, 'row')}: need one word per row"
        )
    table = {"word": np.array(lines, object), "rank": _Ranks(n, "rank"), INVERSE_RANK: _Ranks(n, INVERSE_RANK)}
    return IndexedStore(name, rows, choose_columns([*table], wanted, str(vectors.parent)), table)
