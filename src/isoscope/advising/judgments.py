"""What the owner knows of the vectors: graded pairs, and which documents answer which query, as files hold them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isoscope._core.errors import InputError, plural

_SCORE_COLUMNS = ("score", "similarity", "sim", "gold", "rating", "grade", "relatedness", "label")
_PAIR_COLUMNS = (
    *(("id1", "id2"), ("sentence1", "sentence2"), ("text1", "text2"), ("word1", "word2"), ("row1", "row2")),
    *(("a", "b"), ("left", "right"), ("first", "second"), ("source", "target"), ("sentence_a", "sentence_b")),
)


@dataclass(frozen=True)
class NamedPairs:
    """Graded pairs: what each is called, and how alike they are."""

    first: list[str]
    second: list[str]
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


Qrels = dict[str, dict[str, float]]
"""For each query, how relevant each judged document is; 0 or less is not at all."""


def read_pairs(source: Any) -> NamedPairs:
    """Graded pairs from a file (.tsv, .csv, .txt, .jsonl, .parquet), or from three sequences.

    A file has three columns (one, other, score), or names them in its first line: ``id1``, ``id2``, ``score``;
    ``sentence1``, ``sentence2``, ``score``; and the like.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        first, second, scores = _select_pair_columns(_read_table(path), path)
        where = str(path)
    else:
        where = "pairs"
        try:
            if isinstance(source, Mapping) or hasattr(source, "columns"):
                raise TypeError
            first, second, scores = (_to_list(side) for side in source)
        except (TypeError, ValueError):
            raise InputError(f"pairs is a {type(source).__name__}: need a file, or (first, second, scores)") from None
    if not len(first) == len(second) == len(scores):
        raise InputError(f"{where} has {len(first)}, {len(second)} and {len(scores)} entries: need as many of each")
    graded = NamedPairs([str(each) for each in first], [str(each) for each in second], _check_scores(scores, where))
    if len(graded) < 20:
        raise InputError(f"{where} has {plural(len(graded), 'pair')}: need 20 at least to tell a gain from noise")
    if graded.scores.min() == graded.scores.max():
        raise InputError(
            f"{where} gives every pair the score {graded.scores[0]:g}: nothing to rank, need scores that differ"
        )
    return graded


def read_qrels(source: Any) -> Qrels:
    """Relevance from TREC's file (query, iteration, document, relevance), BEIR's (query, document, score) or a dict.

    >>> read_qrels({"q1": {"d1": 1}})
    {'q1': {'d1': 1.0}}
    """
    found: Qrels
    if isinstance(source, Mapping):
        try:
            found = {str(q): {str(d): float(r) for d, r in judged.items()} for q, judged in source.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(f"qrels is not {{query: {{document: relevance}}}}: {error}") from error
        for query, judged in found.items():
            if not np.isfinite(list(judged.values())).all():
                raise InputError(f"qrels: a relevance of query {query!r} is not finite, need numbers")
        return found
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"qrels is a {type(source).__name__}: need a file, or {{query: {{document: relevance}}}}")
    path = Path(source).expanduser()
    found = {}
    for number, words in _read_fields(path):
        if len(words) == 4:  # TREC
            query, _, document, relevance = words
        elif len(words) == 3:  # BEIR
            query, document, relevance = words
        else:
            raise InputError(
                f"{path}, line {number} has {plural(len(words), 'column')}: need four (TREC: query, iteration, "
                "document, relevance) or three (BEIR: query, document, score)"
            )
        if _is_number(relevance) and np.isfinite(float(relevance)):
            found.setdefault(query, {})[document] = float(relevance)
        elif number > 1 or _is_number(relevance):  # a first line may name the columns
            raise InputError(f"{path}, line {number}: the relevance is {relevance!r}, need a number")
    if not found:
        raise InputError(f"{path} has no judgments: need a query, a document and a relevance on each line")
    return found


def _read_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_split_lines(_read_text(path)), 1):
        words = line.strip().split("\t") if "\t" in line else line.split()
        if words:
            yield number, [word.strip() for word in words]


def _split_lines(text: str) -> list[str]:
    """Lines as files end them: text may hold other marks that Python would end a line at."""
    return text.replace("\r\n", "\n").split("\n")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}") from error


Table = tuple[list[str] | None, list[list[Any]]]
"""Names of columns, if there are any, and rows."""


def _read_table(path: Path) -> Table:
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _read_parquet(path)
    if suffix in (".jsonl", ".ndjson"):
        return _read_json_lines(path)
    if suffix == ".csv":
        reader = csv.reader(io.StringIO(_read_text(path), newline=""))
        numbered = [(reader.line_num, row) for row in reader]
    else:
        text = _read_text(path)
        split = "\t" if "\t" in text else None
        numbered = [(number, line.split(split)) for number, line in enumerate(_split_lines(text), 1)]
    numbered = [(number, row) for number, row in numbered if any(cell.strip() for cell in row)]
    if not numbered:
        raise InputError(f"{path} is empty: need a pair and its score on each line")
    for number, row in numbered:
        if len(row) != len(numbered[0][1]):
            first = plural(len(numbered[0][1]), "column")
            raise InputError(f"{path}, line {number} has {plural(len(row), 'column')}, the first has {first}")
    rows = [row for _, row in numbered]
    if any(_is_number(cell) for cell in rows[0]):
        return None, rows
    return [cell.strip().lower() for cell in rows[0]], rows[1:]


def _read_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}") from error
    columns = [column.to_pylist() for column in table.columns]
    return [name.lower() for name in table.column_names], [list(row) for row in zip(*columns, strict=True)]


def _read_json_lines(path: Path) -> Table:
    try:
        records = [json.loads(line) for line in _split_lines(_read_text(path)) if line.strip()]
        names = list(records[0])
        return [name.lower() for name in names], [[record[name] for name in names] for record in records]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not JSON lines with the same fields: {type(error).__name__} {error}") from error


def _select_pair_columns(table: Table, path: Path) -> tuple[list[Any], list[Any], list[Any]]:
    names, rows = table
    width = len(names) if names is not None else len(rows[0])
    places = (0, 1, 2) if names is None else _find_columns(names)
    if places is None or (names is None and width != 3):
        has = f"the columns are {', '.join(names[:8])}" if names else f"it has {plural(width, 'column')} without names"
        raise InputError(f"{path} does not say its pairs: {has}; need three columns, or the names id1, id2 and score")
    first, second, score = ([row[place] for row in rows] for place in places)
    return first, second, score


def _find_columns(names: list[str]) -> tuple[int, int, int] | None:
    score = next((names.index(name) for name in _SCORE_COLUMNS if name in names), None)
    for one, other in _PAIR_COLUMNS:
        if one in names and other in names and score is not None:
            return names.index(one), names.index(other), score
    return (0, 1, 2) if len(names) == 3 else None


def _check_scores(values: Sequence[Any], where: str) -> np.ndarray:
    try:
        found = np.asarray([float(value) for value in values])
    except (TypeError, ValueError):
        at = next(i for i, value in enumerate(values) if not _is_number(value))
        raise InputError(f"{where}: the score of pair {at} is {values[at]!r}, need a number") from None
    if not np.isfinite(found).all():
        raise InputError(f"{where}: the score of pair {int(np.argmin(np.isfinite(found)))} is not finite")
    return found


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _to_list(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
