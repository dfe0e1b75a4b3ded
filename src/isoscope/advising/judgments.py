"""Read relevance judgments (qrels) and graded pairs from files or Python objects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import (
    FileFormatError,
    MissingValueError,
    NotFoundError,
    ParameterError,
    ShapeError,
    TooFewRowsError,
    plural,
)
from isoscope._io.tables import format_names, is_number, read_table

if TYPE_CHECKING:
    from isoscope._io.tables import TableBatch

_SCORE_COLUMNS = ("score", "similarity", "sim", "gold", "rating", "grade", "relatedness", "label")
_PAIR_COLUMNS = (
    *(("id1", "id2"), ("sentence1", "sentence2"), ("text1", "text2"), ("word1", "word2"), ("row1", "row2")),
    *(("a", "b"), ("left", "right"), ("first", "second"), ("source", "target"), ("sentence_a", "sentence_b")),
)


@dataclass(frozen=True)
class NamedPairs:
    """Graded pairs: the names of both rows (ids or texts), and their similarity scores."""

    first: list[str]
    second: list[str]
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


Qrels = dict[str, dict[str, float]]
"""The relevance of each judged document for each query; 0 or less means not relevant."""


def read_pairs(source: Any) -> NamedPairs:
    """Read graded pairs from a file (.tsv, .csv, .txt, .jsonl, .parquet), or from three sequences.

    A file has exactly three columns (first, second, score), or a header line with the names ``id1``, ``id2``,
    ``score``; ``sentence1``, ``sentence2``, ``score``; or similar names.
    """
    if isinstance(source, str | os.PathLike):
        first, second, scores, where = *_read_pair_columns(Path(source).expanduser()), str(source)
    else:
        where = "pairs"
        try:
            if isinstance(source, Mapping) or hasattr(source, "columns"):
                raise TypeError
            first, second, scores = (_to_list(side) for side in source)
        except (TypeError, ValueError):
            raise ParameterError(
                f"pairs is a {type(source).__name__}: need a file, or a tuple (first, second, scores)"
            ) from None
    if not len(first) == len(second) == len(scores):
        raise ShapeError(
            f"{where} has {len(first)}, {len(second)} and {len(scores)} entries: first, second and scores must have "
            "equal lengths"
        )
    pairs = NamedPairs([str(name) for name in first], [str(name) for name in second], _check_scores(scores, where))
    if len(pairs) < 20:
        raise TooFewRowsError(f"{where} has {plural(len(pairs), 'pair')}: need at least 20 to tell a gain from noise")
    if pairs.scores.min() == pairs.scores.max():
        raise ParameterError(
            f"{where} assigns every pair the same score, {pairs.scores[0]:g}: need at least two distinct scores"
        )
    return pairs


def read_qrels(source: Any) -> Qrels:
    """Read relevance judgments from a TREC file (query, iteration, document, relevance), a BEIR file or a dict.

    The columns of a BEIR file are query, document and score. A header line is skipped.

    >>> read_qrels({"q1": {"d1": 1}})
    {'q1': {'d1': 1.0}}
    """
    qrels: Qrels
    if isinstance(source, Mapping):
        try:
            qrels = {str(q): {str(d): float(r) for d, r in judged.items()} for q, judged in source.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise ParameterError(
                f"qrels is not a dict of the form {{query: {{document: relevance}}}}: {error}"
            ) from error
        for query, judged in qrels.items():
            if not np.isfinite(list(judged.values())).all():
                raise MissingValueError(f"qrels: a relevance for query {query!r} is not finite: need finite numbers")
        return qrels
    if not isinstance(source, str | os.PathLike):
        raise ParameterError(f"qrels is a {type(source).__name__}: need a file, or {{query: {{document: relevance}}}}")
    path = Path(source).expanduser()
    try:
        table = read_table(path, header=False, ragged=True, spaces=True)
    except MissingValueError:
        raise MissingValueError(_no_judgments(path)) from None
    columns = list(table.columns.values())
    if len(columns) > 3 and all(value is None for value in columns[-1]):  # lines that end with a tab
        columns.pop()
    if len(columns) not in (3, 4):
        raise FileFormatError(
            f"{table.where(0)} has {plural(len(columns), 'column')}: need four (TREC: query, iteration, document, "
            "relevance) or three (BEIR: query, document, score)"
        )
    qrels = {}
    for i, (query, document, relevance) in enumerate(zip(columns[0], *columns[-2:], strict=True)):
        if is_number(relevance) and np.isfinite(float(relevance)):
            qrels.setdefault((query or "").strip(), {})[(document or "").strip()] = float(relevance)
        elif table.lines[i] > 1 or is_number(relevance):  # the first line may be a header line
            raise FileFormatError(f"{table.where(i)}: the relevance is {relevance!r}: need a finite number")
    if not qrels:
        raise MissingValueError(_no_judgments(path))
    return qrels


def _no_judgments(path: Path) -> str:
    return f"{path} has no judgments: need a query, a document and a relevance on each line"


def _read_pair_columns(path: Path) -> tuple[list[str], list[str], list[Any]]:
    table = read_table(path, header=None, spaces=True)
    names = list(table.columns)
    chosen = _find_pair_columns(names)
    if chosen is None:
        raise NotFoundError(
            f"{path} has {_describe_columns(names)}: need three columns, or columns named id1, id2 and score"
        )
    first, second, scores = (table.columns[name] for name in chosen)
    rows = [i for i in range(len(table)) if not _is_blank(table, i)]
    return [_name(first[i]) for i in rows], [_name(second[i]) for i in rows], [scores[i] for i in rows]


def _find_pair_columns(names: list[str]) -> tuple[str, str, str] | None:
    lower = {name.lower(): name for name in reversed(names)}
    score = next((lower[name] for name in _SCORE_COLUMNS if name in lower), None)
    for one, other in _PAIR_COLUMNS:
        if one in lower and other in lower and score is not None:
            return lower[one], lower[other], score
    return (names[0], names[1], names[2]) if len(names) == 3 else None


def _describe_columns(names: list[str]) -> str:
    if names == [str(i) for i in range(len(names))]:
        return f"{plural(len(names), 'column')} without names"
    return f"the columns {format_names(names)}"


def _is_blank(table: TableBatch, row: int) -> bool:
    """Return whether all cells of a row are empty, as in the rows that spreadsheets append."""
    return all(values[row] is None or not str(values[row]).strip() for values in table.columns.values())


def _name(value: Any) -> str:
    return "" if value is None else str(value)


def _check_scores(values: Sequence[Any], where: str) -> np.ndarray:
    try:
        scores = np.asarray([float(value) for value in values])
    except (TypeError, ValueError):
        wrong = next(i for i, value in enumerate(values) if not is_number(value))
        message = f"{where}: the score of pair {wrong} is {values[wrong]!r}: need a number"
        raise (MissingValueError if values[wrong] is None else FileFormatError)(message) from None
    if not np.isfinite(scores).all():
        raise MissingValueError(
            f"{where}: the score of pair {int(np.argmin(np.isfinite(scores)))} is not finite: need a finite number"
        )
    return scores


def _to_list(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
