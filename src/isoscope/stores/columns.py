"""Choose the columns for vectors, labels, types, text and other roles by name, and check their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isoscope._core.errors import (
    FileFormatError,
    InputError,
    MissingValueError,
    NotFoundError,
    ParameterError,
    ShapeError,
    plural,
)
from isoscope._core.missing import DROP_HINT
from isoscope._io.tables import format_names

ROLES = ("labels", "types", "text", "ids", "frequency", "groups", "by")
"""The roles of columns.

Rows with the same value in `groups` are not independent, such as the tokens of one text. `by` contains the groups that
are audited separately; it is never chosen automatically.
"""
ALL_ROLES = '"labels", "types", "text", "ids", "frequency", "groups" or "by"'

INVERSE_RANK = "1/rank"
"""The name of the frequency column that follows from Zipf's law, for files of words sorted by frequency."""

_USUAL_VECTORS = (
    *("embedding", "embeddings", "vector", "vectors", "emb", "embs", "sentence_embedding", "dense_vector"),
    *("features", "feature", "train", "base", "data", "x", "arr_0", "encoding", "encodings", "values"),
)
_USUAL = {
    "labels": ("label", "labels", "category", "class", "topic", "target", "intent", "y"),
    "types": ("type", "types", "token", "tokens", "token_type"),
    "text": (
        *("text", "sentence", "title", "content", "document", "word", "name", "body", "passage", "question", "gloss"),
    ),
    "ids": (
        *("id", "_id", "ids", "doc_id", "docid", "doc-id", "document_id", "uuid", "guid", "key", "row_id", "rowid"),
        *("query_id", "query-id", "queryid", "qid", "corpus_id", "corpus-id", "passage_id", "passage-id", "pid"),
    ),
    "frequency": ("frequency", "freq", "count", "counts"),
    "groups": ("document",),  # the name that `isoscope embed` writes
}


def is_chosen_first(role: str, name: str) -> bool:
    """Return whether a role reads the column with this name by default, unless another column has a usual name too.

    Label columns have several usual names that occur together, so only the first of them is certain.
    """
    usual = _USUAL.get(role, ())
    return name == INVERSE_RANK or name in (usual[:1] if role == "labels" else usual)


_NUMBERED = re.compile(r"(.*?)\d+(\D*)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_IDENTITIES = {"index", "idx", "row", "unnamed: 0", "", "__index_level_0__", "label_id", "timestamp"}


class ColumnError(InputError):
    """An error for a column whose values do not suit its role."""

    def __init__(self, message: str, role: str):
        super().__init__(message)
        self.role = role

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.role)


@dataclass(frozen=True)
class ColumnSpec:
    """The columns that the caller requested: the vector column, and a column name or values for each role."""

    vectors: str | None = None
    roles: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The names of the requested columns."""
        return {value for value in self.roles.values() if isinstance(value, str)}

    def without_values(self) -> ColumnSpec:
        """Return the specification with the passed values replaced by empty tuples."""
        return ColumnSpec(
            self.vectors, {role: v if v is None or isinstance(v, str) else () for role, v in self.roles.items()}
        )


def choose_vectors(candidates: Sequence[str], wanted: ColumnSpec, where: str, *, others: Sequence[str] = ()) -> str:
    """Return the name of the vector column: the requested one, the only candidate, or one with a common name."""
    if wanted.vectors is not None:
        if wanted.vectors in candidates:
            return wanted.vectors
        if wanted.vectors in others:
            raise ParameterError(
                f"{where}: column {wanted.vectors} does not contain vectors; {_describe_candidates(candidates)}"
            )
        raise NotFoundError(f"{where} has no column named {wanted.vectors}; {_describe_candidates(candidates)}")
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        has = f"; its columns are {format_names(others)}" if others else ""
        raise NotFoundError(f"{where} contains no vectors{has}: need a column with lists of numbers of equal length")
    for usual in _USUAL_VECTORS:
        for name in candidates:
            if name.lower().rsplit("/")[-1] == usual:
                return name
    raise ParameterError(
        f"{where} has several columns of vectors: {format_names(candidates)}; choose one with "
        f'vectors="{candidates[0]}" (on the command line: --columns vectors={candidates[0]})'
    )


def choose_columns(
    available: Sequence[str],
    wanted: ColumnSpec,
    where: str,
    recorded: Mapping[str, str | None] | None = None,
    *,
    vectors: Sequence[str] = (),
) -> dict[str, str]:
    """Return a column for each role whose values were not passed: the requested column, or one with a common name.

    `recorded` contains the columns that a file itself declares for some roles; None means that it has no such column.
    `vectors` are the columns of the vectors, which cannot have another role.
    """
    chosen: dict[str, str] = {}
    for role in ROLES:
        requested = wanted.roles.get(role)
        if role == "by" and isinstance(requested, str) and requested in ROLES and requested not in available:
            if requested in chosen:
                chosen[role] = chosen[requested]
        elif isinstance(requested, str):
            if requested not in available:
                if requested in vectors:
                    raise ParameterError(
                        f"{where}: column {requested} holds the vectors, so it cannot be used for {role}; choose from "
                        f"{format_names(available)}"
                    )
                has = f"the columns are {format_names(available)}" if available else "it contains only vectors"
                raise NotFoundError(f"{where} has no column {requested} for {role}: {has}")
            chosen[role] = requested
        elif requested is None:
            name = _declared_or_usual_name(available, role, recorded or {})
            is_text = role == "groups" and name in chosen.values()  # a column of texts may also be called document
            if name is not None and not is_text:
                chosen[role] = name
    return chosen


def choose_dimensions(numeric: Sequence[str], wanted: ColumnSpec, names: Sequence[str] = ()) -> list[str]:
    """Return the columns that are dimensions of the vectors, excluding ids, labels and similar columns.

    If at least half of the numeric columns have names that differ only in a number, only these are dimensions. Other
    columns among `names`, all columns of the table, that have such a name are then dimensions too, although their
    values are not numbers: without them the vectors would lack a dimension. Case and spaces around names are ignored.

    >>> choose_dimensions(["e0", "e1", "e2", "price", "user_id"], ColumnSpec())
    ['e0', 'e1', 'e2']
    >>> choose_dimensions(["height", "price", "user_id"], ColumnSpec())
    ['height', 'price']
    >>> choose_dimensions(["e0", "e2", "price"], ColumnSpec(), ["e0", "e1", "e2", "price", "title"])
    ['e0', 'e1', 'e2']
    """
    lower = {name.strip().lower() for name in numeric}
    usual = _IDENTITIES.union(*_USUAL.values()) - ({"y"} if "x" in lower else set())
    possible = [
        name
        for name in names or numeric
        if name not in wanted.names and name.strip().lower() not in usual and not name.strip().lower().endswith("id")
    ]
    chosen = [name for name in possible if name in set(numeric)]
    families = Counter(filter(None, map(_family, chosen))).most_common()
    if families and 2 * families[0][1] >= len(chosen) and (len(families) == 1 or families[0][1] > families[1][1]):
        family, count = families[0]
        members = [name for name in possible if _family(name) == family]
        return members if count > 1 or len(members) == 2 else [name for name in members if name in chosen]
    return chosen


def have_common_pattern(names: Sequence[str]) -> bool:
    """Return whether names differ only in a number, as in e0, e1, …, or are single letters, as in x, y, z."""
    families = set(map(_family, names))
    return (len(families) == 1 and None not in families) or all(len(name.strip()) == 1 for name in names)


def is_position(name: str) -> bool:
    """Return whether a name is only a number, as libraries call columns without a name."""
    return name.strip().isdigit()


def not_numbers_error(where: str, name: str, what: str, dimensions: Sequence[str]) -> FileFormatError:
    """Return the error for a column that is a dimension by its name, but whose values are not numbers."""
    others = format_names([each.strip() for each in dimensions if each != name])
    return FileFormatError(
        f"{where}: column {name.strip()} belongs to the dimensions {others} by its name, but {what}: convert it to "
        f'numbers, rename it, or give it a role, such as text="{name}" (on the command line: --columns text={name})'
    )


def _family(name: str) -> tuple[str, str] | None:
    """Return what the names of related columns have in common: the text before and after their last number."""
    numbered = _NUMBERED.fullmatch(name.strip().lower())
    return (numbered[1], numbered[2]) if numbered else None


def _declared_or_usual_name(available: Sequence[str], role: str, recorded: Mapping[str, str | None]) -> str | None:
    if role in recorded and role in _USUAL and recorded[role] in (None, *available):
        return recorded[role]
    return _usual_name(available, role)


def _usual_name(available: Sequence[str], role: str) -> str | None:
    lower = {name.lower().rsplit("/")[-1]: name for name in reversed(available)}
    return next((lower[usual] for usual in _USUAL.get(role, ()) if usual in lower), None)


def _describe_candidates(candidates: Sequence[str]) -> str:
    return f"choose from {format_names(candidates)}" if candidates else "there are no columns of vectors"


def plain_values(values: Any, role: str, where: str = "") -> tuple[np.ndarray, np.ndarray | None]:
    """Return values as int64, float64 or strings, and a mask of missing values or None; missing text becomes ""."""
    where = where or role
    array = _as_objects(values)
    if array.ndim != 1:
        raise ShapeError(f"{where} has shape {array.shape}: need one value per row")
    if array.dtype.kind == "O" and set(map(type, array.tolist())) == {str} and role not in ("ids", "frequency"):
        return _escape_surrogates(array), None
    missing = None
    if array.dtype.kind == "f":
        missing = np.isnan(array)
    elif array.dtype.kind in "Mm":
        missing = np.isnat(array)
    elif array.dtype.kind == "O":
        missing = np.fromiter((v is None or v != v for v in array), bool, len(array))
    if missing is not None and not missing.any():
        missing = None
    if role == "text":
        return _as_text(array, missing), None
    if missing is not None:
        return array, missing
    if role == "frequency":
        return _frequencies(array, where), None
    if array.dtype.kind == "O":
        array = _check_single_type(array, where)
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and (not array.size or array.max() < 2**63)):
        return array.astype(np.int64), None
    if array.dtype.kind == "f" and role == "ids":
        return _to_integer_ids(array, where), None
    return (array.astype(np.float64) if array.dtype.kind == "f" else _as_text(array, None)), None


def check_no_missing(missing: np.ndarray | None, role: str, where: str) -> None:
    """Raise a `MissingValueError` if values are missing; the message states how many, and the first affected row."""
    if missing is not None and missing.any():
        raise MissingValueError(
            f"{where} is empty in {int(missing.sum())} of {plural(len(missing), 'row')}, first in row "
            f"{int(np.argmax(missing))}: fill in these values, use another column for {role}, or {DROP_HINT}"
        )


def fill_missing(values: Any, role: str, where: str = "") -> tuple[np.ndarray, np.ndarray | None]:
    """Return values as int64, float64 or strings with 0 or "" in place of missing values, and a mask of these."""
    plain, missing = plain_values(values, role, where)
    if missing is None or missing.all():
        return (plain, None) if missing is None else (np.zeros(len(plain), np.int64), missing)
    known = plain[~missing]
    if known.dtype.kind == "f" and (known == np.round(known)).all() and (np.abs(known) < 2**53).all():
        known = known.astype(np.int64)  # integers with a missing value are stored as floats
    known = plain_values(known, role, where)[0]
    filled = np.full(len(plain), "", object) if known.dtype.kind == "O" else np.zeros(len(plain), known.dtype)
    filled[~missing] = known
    return filled, missing


def _frequencies(values: np.ndarray, where: str) -> np.ndarray:
    """Return frequencies as float64; raise an error unless all are finite and non-negative."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{where} contains {_first_non_number(values)!r}: frequencies must be numbers") from None
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        raise ParameterError(
            f"{where} contains {numbers[wrong][0]:g} in row {int(np.argmax(wrong))} "
            f"({plural(int(wrong.sum()), 'such row')}): frequencies must be finite and non-negative"
        )
    return numbers


def _first_non_number(values: np.ndarray) -> Any:
    """Return the first value that is not a number."""
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values[0]


def _to_integer_ids(values: np.ndarray, where: str) -> np.ndarray:
    """Return ids as integers if a table stores them as floats."""
    integers = values.astype(np.int64) if (np.abs(values) < 2**53).all() else np.zeros(len(values), np.int64)
    if (integers != values).any():
        raise ParameterError(f"{where} contains {values[integers != values][0]}: ids must be integers or strings")
    return integers


def _as_objects(values: Any) -> np.ndarray:
    """Return values from any library as a NumPy array; a list with both strings and numbers keeps both."""
    if not isinstance(values, np.ndarray | list | tuple) and hasattr(values, "__dlpack__"):
        values = values.tolist()
    if isinstance(values, list | tuple) and not all(isinstance(v, str | bytes) for v in values):
        kinds = {type(v) for v in values}
        if len(kinds) > 1 and not kinds <= {int, float, bool}:
            array = np.empty(len(values), object)
            array[:] = values
            return array
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError("labels, types, text, ids, … must have a single value per row, not a list") from None
    return array.astype(object) if array.dtype.kind in "UTS" else array


def _check_single_type(values: np.ndarray, where: str) -> np.ndarray:
    kinds = {type(v.item() if isinstance(v, np.generic) else v) for v in values}
    if kinds <= {int, bool, float}:
        return np.asarray(values.tolist())
    if kinds & {int, bool, float} and kinds & {str, bytes}:
        raise ParameterError(f"{where} contains both numbers and text: need values of one type")
    return values


def _as_text(values: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
    """Return values as an object array of strings, which needs less memory than NumPy's fixed-length strings."""
    if values.dtype.kind == "O" and missing is None and all(type(v) is str for v in values):
        return _escape_surrogates(values)
    strings = np.empty(len(values), object)
    if values.dtype.kind in "iu":
        strings[:] = list(map(str, values.tolist()))
        return strings
    mask = np.zeros(len(values), bool) if missing is None else missing
    strings[:] = ["" if is_missing else _string(value) for value, is_missing in zip(values, mask, strict=True)]
    return _escape_surrogates(strings)


def _escape_surrogates(strings: np.ndarray) -> np.ndarray:
    """Return strings with lone surrogates, which a JSON file may contain and UTF-8 cannot represent, as escapes."""
    wrong = [i for i, text in enumerate(strings) if not text.isascii() and _SURROGATE.search(text)]
    if wrong:
        strings = strings.copy()
        strings[wrong] = [text.encode("utf-8", "backslashreplace").decode() for text in strings[wrong]]
    return strings


def _string(value: Any) -> str:
    if hasattr(value, "to_pytimedelta"):  # pandas formats durations in another way than Python
        value = value.to_pytimedelta()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
