"""The columns of embedded rows other than the vectors: text, labels, ids, tokens, and their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.embedding.texts import FIELDS, replace_surrogates
from isoscope.stores.columns import ColumnSpec, choose_columns
from isoscope.stores.table_schema import VECTOR_COLUMN

if TYPE_CHECKING:
    from isoscope.embedding.tokens import Block, Spool

_CONTEXT_CHARACTERS = 40  # characters of context before and after a token
_OWN_COLUMNS = (VECTOR_COLUMN, "layer", "document")
_TOKEN_COLUMNS = ("token_id", "token", "frequency", "position")


def column_names(spool: Spool, *, pooled: bool) -> dict[str, str]:
    """Return the names of the columns of text, labels and ids: those of the table that they were read from.

    A name that this module uses for another column is replaced by the default name. The text of a token is its context,
    which is not the content of the table's column.
    """
    taken = {*_OWN_COLUMNS, *(() if pooled else _TOKEN_COLUMNS)}
    names = {}
    for role, default in {"text": "text", **FIELDS}.items():
        if role != "text" and default not in spool.kinds:
            continue
        own = spool.columns.get(role, default) if pooled or role != "text" else default
        candidates = (own, default, *(f"{default}_{i}" for i in range(2, 6)))
        names[role] = next(name for name in candidates if name not in taken)
        taken.add(names[role])
    return names


def column_roles(spool: Spool, *, pooled: bool) -> dict[str, str | None] | None:
    """Return the column of each role, as the schema records it, or None if the names of the columns suffice."""
    names = column_names(spool, pooled=pooled)
    roles = {"labels": names.get("labels"), "text": names["text"], "groups": "document"}
    if pooled:
        roles |= {"types": None, "frequency": None, "ids": names.get("ids")}
    else:
        roles |= {"types": "token", "frequency": "frequency", "ids": None}  # the tokens of a text share its id
    columns = ["layer", "document", *(() if pooled else _TOKEN_COLUMNS), *names.values()]
    guessed = choose_columns(columns, ColumnSpec(), "")
    return None if guessed == {role: name for role, name in roles.items() if name is not None} else roles


def token_columns(block: Block, spool: Spool, strings: Callable[[Sequence[int]], list[str]]) -> Any:
    """Return the columns for rows that are tokens: id, string, frequency, text number, position, context, label, id."""
    import pyarrow as pa

    kept = block.tokens["kept"].astype(bool)
    ids, starts, ends, positions = (block.tokens[name][kept] for name in ("ids", "starts", "ends", "positions"))
    documents = np.repeat(block.documents, block.rows)
    different, codes = np.unique(ids, return_inverse=True)
    names = strings(different.tolist())
    columns = {
        "token_id": pa.array(ids, pa.int32()),
        "token": pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string())),
        "frequency": pa.array(spool.frequency[ids], pa.int64()),
        "document": pa.array(documents, pa.int64()),
        "position": pa.array(positions, pa.int32()),
    }
    marked: list[str] = []
    for rows in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(documents)) + 1):
        text = replace_surrogates(spool.text(int(documents[rows[0]]))).replace("\n", " ")
        places = zip(starts[rows].tolist(), ends[rows].tolist(), codes[rows].tolist(), strict=True)
        marked.extend(snippet(text, start, end, names[code]) for start, end, code in places)
    columns[column_names(spool, pooled=False)["text"]] = pa.array(marked, pa.string())
    return pa.table(columns | _label_and_id(documents, spool, pooled=False))


def text_columns(documents: np.ndarray, spool: Spool) -> Any:
    """Return the columns for rows that are texts: number, text, label, id."""
    import pyarrow as pa

    names = column_names(spool, pooled=True)
    texts = [replace_surrogates(spool.text(document)) for document in documents.tolist()]
    columns = {"document": pa.array(documents, pa.int64()), names["text"]: pa.array(texts, pa.string())}
    return pa.table(columns | _label_and_id(documents, spool, pooled=True))


def _label_and_id(documents: np.ndarray, spool: Spool, *, pooled: bool) -> dict[str, Any]:
    import pyarrow as pa

    columns, names = {}, column_names(spool, pooled=pooled)
    different, codes = np.unique(documents, return_inverse=True)
    for role, name in FIELDS.items():
        if role not in names:
            continue
        kind = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}[spool.kinds[name]]
        values = pa.array([spool.value(name, document) for document in different.tolist()], kind).take(pa.array(codes))
        repeats = role == "labels" or not pooled
        columns[names[role]] = values.dictionary_encode() if spool.kinds[name] == "str" and repeats else values
    return columns


def snippet(text: str, start: int, end: int, token: str) -> str:
    """Return a token in its context, between « and ».

    Examples
    --------
    >>> snippet("They sat by the river bank in the sun.", 22, 26, "bank")
    'They sat by the river «bank» in the sun.'
    """
    if end <= start:  # a special token, or a tokenizer without offsets
        return f"«{token}»"
    before = f"…{text[start - _CONTEXT_CHARACTERS : start]}" if start > _CONTEXT_CHARACTERS else text[:start]
    after = f"{text[end : end + _CONTEXT_CHARACTERS]}…" if end + _CONTEXT_CHARACTERS < len(text) else text[end:]
    return f"{before}«{text[start:end]}»{after}"
