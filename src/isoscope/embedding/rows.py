"""What stands beside the vectors: for each token its type and place, for each text its words and label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.embedding.texts import replace_surrogates

if TYPE_CHECKING:
    from isoscope.embedding.tokens import Block, Spool

_CONTEXT_CHARACTERS = 40  # characters of context before a token, and behind it


def token_columns(block: Block, spool: Spool, strings: Callable[[Sequence[int]], list[str]]) -> Any:
    """A row for each token that is kept: id, string, how often it occurs, text, place in it, context, label."""
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
    columns["text"] = pa.array(marked, pa.string())
    return pa.table(columns | _labels(documents, spool))


def text_columns(documents: np.ndarray, spool: Spool) -> Any:
    """A row for each text: its number, its words, its label."""
    import pyarrow as pa

    columns = {
        "document": pa.array(documents, pa.int64()),
        "text": pa.array([replace_surrogates(spool.text(document)) for document in documents.tolist()], pa.string()),
    }
    return pa.table(columns | _labels(documents, spool))


def _labels(documents: np.ndarray, spool: Spool) -> dict[str, Any]:
    import pyarrow as pa

    if spool.label_kind is None:
        return {}
    kind = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}[spool.label_kind]
    different, codes = np.unique(documents, return_inverse=True)
    values = pa.array([spool.label(document) for document in different.tolist()], kind).take(pa.array(codes))
    return {"label": values.dictionary_encode() if spool.label_kind == "str" else values}


def snippet(text: str, start: int, end: int, token: str) -> str:
    """A token in its context, with marks around it.

    Examples
    --------
    >>> snippet("They sat by the river bank in the sun.", 22, 26, "bank")
    'They sat by the river «bank» in the sun.'
    """
    if end <= start:  # a special token, or a tokenizer that does not tell places
        return f"«{token}»"
    before = f"…{text[start - _CONTEXT_CHARACTERS : start]}" if start > _CONTEXT_CHARACTERS else text[:start]
    after = f"{text[end : end + _CONTEXT_CHARACTERS]}…" if end + _CONTEXT_CHARACTERS < len(text) else text[end:]
    return f"{before}«{text[start:end]}»{after}"
