"""Which column holds the vectors, and which the labels, types, text, …; how their values are handed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isoscope._core.errors import InputError, plural

ROLES = ("labels", "types", "text", "ids", "frequency", "groups", "by")
"""What a column may be to the vectors. Rows of one of the `groups` depend on each other, as the tokens of a text do.
`by`, which rows are audited apart, is there only if it is asked for."""
ALL_ROLES = '"labels", "types", "text", "ids", "frequency", "groups" or "by"'

INVERSE_RANK = "1/rank"
"""The frequency of words in a file that is sorted by it, as Zipf's law has it."""

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
    "groups": ("document",),  # as `isoscope embed` writes it
}
_IDENTITIES = {"index", "idx", "row", "unnamed: 0", "", "__index_level_0__", "label_id", "timestamp"}


class ColumnError(InputError):
    """A column's values cannot serve as what they were taken for."""

    def __init__(self, message: str, role: str):
        super().__init__(message)
        self.role = role

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.role)


@dataclass(frozen=True)
class ColumnSpec:
    """What the caller said about columns: the vectors' name, and a name or values for each role."""

    vectors: str | None = None
    roles: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The columns that were named as something."""
        return {value for value in self.roles.values() if isinstance(value, str)}

    def without_values(self) -> ColumnSpec:
        """The same, with nothing in the place of values that were given."""
        return ColumnSpec(
            self.vectors, {role: v if v is None or isinstance(v, str) else () for role, v in self.roles.items()}
        )


def choose_vectors(candidates: Sequence[str], wanted: ColumnSpec, where: str, *, others: Sequence[str] = ()) -> str:
    """The name of what holds the vectors: as said, or the only one, or the one with a usual name."""
    if wanted.vectors is not None:
        if wanted.vectors in candidates:
            return wanted.vectors
        if wanted.vectors in others:
            raise InputError(f"{where}: {wanted.vectors} does not hold vectors, {_describe_candidates(candidates)}")
        raise InputError(f"{where} has nothing named {wanted.vectors}: {_describe_candidates(candidates)}")
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        has = f"; it has {_format_names(others)}" if others else ""
        raise InputError(f"{where} holds no vectors{has}: need rows of numbers of equal length")
    for usual in _USUAL_VECTORS:
        for name in candidates:
            if name.lower().rsplit("/")[-1] == usual:
                return name
    raise InputError(
        f"{where} has several that may be the vectors: {_format_names(candidates)}; name one: "
        f'vectors="{candidates[0]}", '
        f"on the command line --columns vectors={candidates[0]}"
    )


def choose_columns(available: Sequence[str], wanted: ColumnSpec, where: str) -> dict[str, str]:
    """The column of each role: as said, or one with a usual name; what is given as values needs none."""
    found: dict[str, str] = {}
    for role in ROLES:
        said = wanted.roles.get(role)
        if role == "by" and isinstance(said, str) and said in ROLES and said not in available:
            if said in found:
                found[role] = found[said]
        elif isinstance(said, str):
            if said not in available:
                has = f"the columns are {_format_names(available)}" if available else "it has vectors alone"
                raise InputError(f"{where} has no column {said} for {role}: {has}")
            found[role] = said
        elif said is None:
            name = _usual_name(available, role)
            texts = role == "groups" and name in found.values()  # a column of texts may be called document, too
            if name is not None and not texts:
                found[role] = name
    return found


def choose_dimensions(numeric: Sequence[str], wanted: ColumnSpec) -> list[str]:
    """Which of a table's columns of numbers are the vectors' dimensions: not those that name or label a row."""
    lower = {name.lower() for name in numeric}
    usual = _IDENTITIES.union(*_USUAL.values()) - ({"y"} if "x" in lower else set())
    return [name for name in numeric if name not in wanted.names and name.lower() not in usual]


def _usual_name(available: Sequence[str], role: str) -> str | None:
    lower = {name.lower().rsplit("/")[-1]: name for name in reversed(available)}
    return next((lower[usual] for usual in _USUAL.get(role, ()) if usual in lower), None)


def _describe_candidates(candidates: Sequence[str]) -> str:
    return f"but {_format_names(candidates)}" if candidates else "and nothing else that could be vectors"


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def plain_values(values: Any, role: str, where: str = "") -> tuple[np.ndarray, np.ndarray | None]:
    """Values as int64, float64 or strings, and which are missing (None: no label is); text that is missing is empty."""
    where = where or role
    found = _as_objects(values)
    if found.ndim != 1:
        raise InputError(f"{where} has shape {found.shape}: need one value for each row")
    if found.dtype.kind == "O" and set(map(type, found.tolist())) == {str} and role not in ("ids", "frequency"):
        return found, None
    missing = None
    if found.dtype.kind == "f":
        missing = np.isnan(found)
    elif found.dtype.kind in "Mm":
        missing = np.isnat(found)
    elif found.dtype.kind == "O":
        missing = np.fromiter((v is None or v != v for v in found), bool, len(found))
    if missing is not None and not missing.any():
        missing = None
    if role == "text":
        return _as_text(found, missing), None
    if missing is not None:
        return found, missing
    if role == "frequency":
        return _frequencies(found, where), None
    if found.dtype.kind == "O":
        found = _check_single_type(found, where)
    if found.dtype.kind in "bi" or (found.dtype.kind == "u" and (not found.size or found.max() < 2**63)):
        return found.astype(np.int64), None
    if found.dtype.kind == "f" and role == "ids":
        return _to_integer_ids(found, where), None
    return (found.astype(np.float64) if found.dtype.kind == "f" else _as_text(found, None)), None


def check_no_missing(missing: np.ndarray | None, role: str, where: str) -> None:
    """Say how many labels are missing and where the first is."""
    if missing is not None and missing.any():
        raise InputError(
            f"{where} has no value in {int(missing.sum())} of {plural(len(missing), 'row')}, the first is row "
            f"{int(np.argmax(missing))}: give those rows a value, or other {role}"
        )


def _frequencies(values: np.ndarray, where: str) -> np.ndarray:
    """How often each row's word or text occurs: numbers, none of them negative."""
    try:
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{where} holds {_first_non_number(values)!r}: a frequency is a number") from None
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        raise InputError(
            f"{where} holds {found[wrong][0]:g} in row {int(np.argmax(wrong))}, one of {int(wrong.sum())}: a frequency "
            "is 0 or more, and finite"
        )
    return found


def _first_non_number(values: np.ndarray) -> Any:
    """The first value that is no number."""
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values[0]


def _to_integer_ids(values: np.ndarray, where: str) -> np.ndarray:
    """Ids that some table keeps as floats."""
    found = values.astype(np.int64) if (np.abs(values) < 2**53).all() else np.zeros(len(values), np.int64)
    if (found != values).any():
        raise InputError(f"{where} holds {values[found != values][0]}: ids are whole numbers or strings")
    return found


def _as_objects(values: Any) -> np.ndarray:
    """Values of any library as a NumPy array; a list of strings and numbers keeps both."""
    if not isinstance(values, np.ndarray | list | tuple) and hasattr(values, "__dlpack__"):
        values = values.tolist()
    if isinstance(values, list | tuple) and not all(isinstance(v, str | bytes) for v in values):
        kinds = {type(v) for v in values}
        if len(kinds) > 1 and not kinds <= {int, float, bool}:
            found = np.empty(len(values), object)
            found[:] = values
            return found
    try:
        found = np.asarray(values)
    except ValueError:
        raise InputError("labels, types, text, ids, … need one value for each row: these are lists") from None
    return found.astype(object) if found.dtype.kind in "UTS" else found


def _check_single_type(values: np.ndarray, where: str) -> np.ndarray:
    kinds = {type(v.item() if isinstance(v, np.generic) else v) for v in values}
    if kinds <= {int, bool, float}:
        return np.asarray(values.tolist())
    if kinds & {int, bool, float} and kinds & {str, bytes}:
        raise InputError(f"{where} mixes numbers and text: need one kind")
    return values


def _as_text(values: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
    """Strings, as objects: their memory is that of the strings and not of the longest."""
    if values.dtype.kind == "O" and missing is None and all(type(v) is str for v in values):
        return values
    gone = np.zeros(len(values), bool) if missing is None else missing
    found = np.empty(len(values), object)
    found[:] = ["" if no else _string(value) for value, no in zip(values, gone, strict=True)]
    return found


def _string(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
