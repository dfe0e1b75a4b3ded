"""Read relevance judgments (qrels) and graded pairs from files or Python objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
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
from isoscope._io.files import expand_user
from isoscope._io.tables import format_names, is_number, read_table
from isoscope.stores.frames import is_frame

if TYPE_CHECKING:
    from isoscope._core.types import Missing
    from isoscope._io.tables import TableBatch

_SCORES = ("score", "similarity", "sim", "gold", "rating", "grade", "relatedness", "label")
_PAIR_NAMES = (
    *(("id1", "id2"), ("sentence1", "sentence2"), ("text1", "text2"), ("word1", "word2"), ("row1", "row2")),
    *(("a", "b"), ("left", "right"), ("first", "second"), ("source", "target"), ("sentence_a", "sentence_b")),
)
_QUERIES = ("query-id", "query_id", "queryid", "qid", "query")
_DOCUMENTS = (
    *("corpus-id", "corpus_id", "document-id", "document_id", "doc_id", "docid", "doc-id", "did", "docno", "document"),
    *("doc", "passage_id", "pid"),
)
_RELEVANCES = ("score", "relevance", "rel", "grade", "label")
_MISSING_WORDS = ("na", "n/a", "null", "none", "nan")
_EXACT = 2**53  # larger integers may change when they are stored as floats
_PAIR_FORMS = "a table or a file with three columns, a list of (first, second, score), or a tuple of three lists"
_QREL_FILE = "need four columns (TREC: query, iteration, document, relevance) or three (BEIR: query, document, score)"
_QREL_FORMS = (
    "a file, {query: {document: relevance}}, a table with three columns, or a list of (query, document, relevance)"
)


@dataclass(frozen=True)
class NamedPairs:
    """Graded pairs: the names of both rows (ids or texts), and their similarity scores."""

    first: list[str]
    second: list[str]
    scores: np.ndarray
    dropped: int = 0
    """The number of pairs that were dropped because a name or the score is missing."""

    def __len__(self) -> int:
        return len(self.scores)


class Qrels(dict[str, dict[str, float]]):
    """The relevance of each judged document for each query; 0 or less means not relevant."""

    dropped: int = 0
    """The number of judgments that were dropped because a name or the relevance is missing."""


@dataclass(frozen=True)
class _Triples:
    """Judgments as they were given: two names and a number each."""

    first: Sequence[Any]
    second: Sequence[Any]
    numbers: Sequence[Any]
    where: Callable[[int], str]
    """Describes the number of a judgment for messages, such as "pairs: the score of pair 3"."""

    def check(self, missing: Missing) -> tuple[list[str], list[str], np.ndarray, int]:
        """Return the names, the numbers, and how many judgments were dropped because a value is missing."""
        first, second = ([_to_name(value) for value in names] for names in (self.first, self.second))
        numbers = [None if _is_missing_number(value) else value for value in self.numbers]
        complete = [i for i, value in enumerate(numbers) if first[i] and second[i] and value is not None]
        dropped = len(numbers) - len(complete)
        if dropped and missing == "error":
            i = min(set(range(len(numbers))) - set(complete))
            problem, need = "refers to a row without a name", "the name"
            if first[i] and second[i]:
                problem, need = "is not finite" if is_number(self.numbers[i]) else "is missing", "a number"
            count = f" ({dropped} judgments are incomplete)" if dropped > 1 else ""
            raise MissingValueError(
                f'{self.where(i)} {problem}{count}: fill in {need}, or drop such judgments with missing="drop" '
                "(CLI: --missing drop)"
            )
        for i in complete:
            if not is_number(numbers[i]):
                raise FileFormatError(f"{self.where(i)} is {numbers[i]!r}: need a number")
        values = np.asarray([float(self.numbers[i]) for i in complete], np.float64)
        return [first[i] for i in complete], [second[i] for i in complete], values, dropped


def read_pairs(source: Any, missing: Missing = "error") -> NamedPairs:
    """Read graded pairs from a file (.tsv, .csv, .txt, .jsonl, .parquet), a table, or Python lists.

    A table has exactly three columns (first, second, score), or columns named ``id1``, ``id2``, ``score``;
    ``sentence1``, ``sentence2``, ``score``; or similar. A list contains (first, second, score) for each pair. A tuple
    contains three lists.

    >>> pairs = read_pairs([(f"a{i}", f"b{i}", i % 3) for i in range(20)])
    >>> pairs.first[:2], pairs.scores[:4].tolist()
    (['a0', 'a1'], [0.0, 1.0, 2.0, 0.0])
    """
    if isinstance(source, str | os.PathLike):
        where = str(source)
        triples = _read_pair_file(expand_user(source))
    else:
        where = "pairs"
        triples = _Triples(*_split_columns(source, _find_pair_columns, "pairs", _PAIR_FORMS), _locate_pair(where))
    first, second, scores, dropped = triples.check(missing)
    pairs = NamedPairs(first, second, scores, dropped)
    if len(pairs) < 20:
        raise TooFewRowsError(f"{where} has {plural(len(pairs), 'pair')}: need at least 20")
    if pairs.scores.min() == pairs.scores.max():
        raise ParameterError(
            f"{where} assigns every pair the same score, {pairs.scores[0]:g}: need at least two distinct scores"
        )
    return pairs


def read_qrels(source: Any, missing: Missing = "error") -> Qrels:
    """Read relevance judgments from a TREC file (query, iteration, document, relevance), a BEIR file, or an object.

    The columns of a BEIR file are query, document and score. A header line is skipped. An object is a dict
    ``{query: {document: relevance}}``, a dict ``{query: [documents]}``, a table with such columns, or a list of (query,
    document, relevance).

    >>> read_qrels({"q1": {"d1": 1}}), read_qrels([("q1", "d1", 1), ("q1", "d2", 0)])
    ({'q1': {'d1': 1.0}}, {'q1': {'d1': 1.0, 'd2': 0.0}})
    """
    if isinstance(source, str | os.PathLike):
        triples = _read_qrels_file(expand_user(source))
    else:
        columns = _list_judgments(source) if isinstance(source, Mapping) else None
        if columns is None:
            columns = _split_columns(source, _find_qrels_columns, "qrels", _QREL_FORMS)
        queries = columns[0]
        triples = _Triples(*columns, lambda i: f"qrels: the relevance of judgment {i}, for query {queries[i]!r},")
    qrels = Qrels()
    first, second, relevance, qrels.dropped = triples.check(missing)
    for query, document, value in zip(first, second, relevance.tolist(), strict=True):
        if qrels.setdefault(query, {}).setdefault(document, value) != value:
            raise ParameterError(
                f"the qrels contain two relevance grades, {qrels[query][document]:g} and {value:g}, of the "
                f"document {document!r} for the query {query!r}: keep one of them"
            )
    if not qrels and isinstance(source, str | os.PathLike):
        raise MissingValueError(_no_judgments(Path(source)))
    return qrels


# files


def _read_pair_file(path: Path) -> _Triples:
    table = read_table(path, header=None, spaces=True)
    names = list(table.columns)
    chosen = _find_pair_columns(names)
    if chosen is None:
        raise NotFoundError(
            f"{path} has {_describe_columns(names)}: need three columns, or columns named id1, id2 and score"
        )
    rows = [i for i in range(len(table)) if not _is_blank(table, i)]
    first, second, scores = ([table.columns[name][i] for i in rows] for name in chosen)
    return _Triples(first, second, scores, _locate_pair(str(path)))


def _locate_pair(where: str) -> Callable[[int], str]:
    return lambda i: f"{where}: the score of pair {i}"


def _read_qrels_file(path: Path) -> _Triples:
    try:
        table = read_table(path, header=False, ragged=True, spaces=True)
    except MissingValueError:
        raise MissingValueError(_no_judgments(path)) from None
    except FileFormatError as error:
        raise FileFormatError(f"{error}; {_QREL_FILE}, separated by tabs or spaces") from None
    names = list(table.columns)
    if len(names) > 3 and all(value is None for value in table.columns[names[-1]]):  # lines that end with a tab
        names.pop()
    chosen = _find_qrels_columns(names)
    if chosen is None:
        raise FileFormatError(f"{table.where(0)} has {plural(len(names), 'column')}: {_QREL_FILE}")
    columns = [table.columns[name] for name in chosen]
    relevance = columns[2][0]
    has_header = table.lines[0] == 1 and not is_number(relevance) and not _is_missing_number(relevance)
    queries, documents, relevances = ([_strip(value) for value in column[has_header:]] for column in columns)
    return _Triples(queries, documents, relevances, lambda i: f"{table.where(i + has_header)}: the relevance")


def _no_judgments(path: Path) -> str:
    return f"{path} has no judgments: need a query, a document and a relevance on each line"


def _describe_columns(names: list[str]) -> str:
    if names == [str(i) for i in range(len(names))]:
        return f"{plural(len(names), 'column')} without names"
    return f"the columns {format_names(names)}"


def _is_blank(table: TableBatch, row: int) -> bool:
    """Return whether all cells of a row are empty, as in the rows that spreadsheets append."""
    return all(values[row] is None or not str(values[row]).strip() for values in table.columns.values())


# objects


def _list_judgments(source: Mapping[Any, Any]) -> tuple[list[Any], list[Any], list[Any]] | None:
    """Return the judgments of a dict by query; None if it is a dict of columns."""
    if _find_qrels_columns([str(name) for name in source]) is not None and all(
        isinstance(values, Sequence) or hasattr(values, "tolist") for values in source.values()
    ):
        return None
    judged = []
    for query, of in source.items():
        if isinstance(of, Mapping):
            judged += [(query, document, relevance) for document, relevance in of.items()]
        elif isinstance(of, Collection) and not isinstance(of, str | bytes):
            judged += [(query, document, 1) for document in of]
        else:
            raise ParameterError(
                f"qrels maps the query {query!r} to a {type(of).__name__}: need {{query: {{document: relevance}}}} or "
                "{query: [documents]}"
            )
    return tuple(map(list, zip(*judged, strict=True))) if judged else ([], [], [])  # type: ignore[return-value]


def _split_columns(
    source: Any, find: Callable[[list[str]], tuple[str, str, str] | None], what: str, forms: str
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the three columns of a table, of a list with three values for each judgment, or of three lists."""
    columns = _table_columns(source)
    if columns is not None:
        chosen = find(list(columns))
        if chosen is None:
            raise NotFoundError(f"{what} has {_describe_columns(list(columns))}: need {forms}")
        first, second, numbers = (_to_list(columns[name]) for name in chosen)
    else:
        try:
            rows = [_to_list(row) for row in source]
        except TypeError:
            raise ParameterError(f"{what} is a {type(source).__name__}: need {forms}") from None
        if len(rows) == 3 and isinstance(source, tuple | list) and {len(row) for row in rows} != {3}:
            first, second, numbers = rows
        elif rows and all(len(row) == 3 for row in rows):
            first, second, numbers = (list(column) for column in zip(*rows, strict=True))
        else:
            raise ParameterError(f"{what} is a {type(source).__name__} of {plural(len(rows), 'entry')}: need {forms}")
    if not len(first) == len(second) == len(numbers):
        raise ShapeError(
            f"{what} has {len(first)}, {len(second)} and {len(numbers)} entries: all three columns must have equal "
            "lengths"
        )
    return first, second, numbers


def _table_columns(source: Any) -> dict[str, Any] | None:
    """Return the columns of a DataFrame, a Dataset or a dict of columns; None for other objects."""
    if isinstance(source, Mapping):
        return {str(name): values for name, values in source.items()}
    if not is_frame(source) or not (hasattr(source, "columns") or hasattr(source, "column_names")):
        return None
    names = source.column_names if hasattr(source, "column_names") else list(source.columns)
    return {str(name): source[name] for name in names}


def _to_list(values: Any) -> list[Any]:
    if isinstance(values, str | bytes | Mapping):
        raise TypeError
    if hasattr(values, "to_list"):  # pandas and polars
        return list(values.to_list())
    return list(values.tolist() if hasattr(values, "tolist") else values)


# columns and values


def _find_pair_columns(names: list[str]) -> tuple[str, str, str] | None:
    lower = {name.lower(): name for name in reversed(names)}
    score = next((lower[name] for name in _SCORES if name in lower), None)
    for one, other in _PAIR_NAMES:
        if one in lower and other in lower and score is not None:
            return lower[one], lower[other], score
    return (names[0], names[1], names[2]) if len(names) == 3 else None


def _find_qrels_columns(names: list[str]) -> tuple[str, str, str] | None:
    lower = {name.lower(): name for name in reversed(names)}
    found = [
        next((lower[name] for name in usual if name in lower), None) for usual in (_QUERIES, _DOCUMENTS, _RELEVANCES)
    ]
    if None not in found:
        return found[0], found[1], found[2]  # type: ignore[return-value]
    return (names[0], names[-2], names[-1]) if len(names) in (3, 4) else None


def _is_missing(value: Any) -> bool:
    return (
        value is None or (isinstance(value, float) and value != value) or (isinstance(value, str) and not value.strip())
    )


def _is_missing_number(value: Any) -> bool:
    """Return whether a number is missing: null, NaN, infinite, an empty cell or a word such as NA."""
    if is_number(value):
        return not np.isfinite(float(value))
    return _is_missing(value) or (isinstance(value, str) and value.strip().lower() in _MISSING_WORDS)


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _to_name(value: Any) -> str:
    """Return a name as a string, and an empty one if it is missing; integers in a column of floats lose their ".0"."""
    if _is_missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        if abs(value) >= _EXACT:
            raise ParameterError(
                f"the judgments contain the id {value:.17g} as a float, which cannot represent it exactly: pass ids as "
                "integers or strings"
            )
        return str(int(value))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
