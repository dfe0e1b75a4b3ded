"""What stands beside the vectors: for each token its type and place, for each text its words and label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isoscope.embedding.spool import Block, Spool
from isoscope.embedding.texts import storable

_AROUND = 40  # characters of context before a token, and behind it


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
    texts = _Remembered(lambda document: storable(spool.text(document)))
    marked = [
        snippet(texts(document), start, end, names[code])
        for document, start, end, code in zip(
            documents.tolist(), starts.tolist(), ends.tolist(), codes.tolist(), strict=True
        )
    ]
    columns["text"] = pa.array(marked, pa.string())
    return pa.table(columns | _labels(documents, spool))


def text_columns(documents: np.ndarray, spool: Spool) -> Any:
    """A row for each text: its number, its words, its label."""
    import pyarrow as pa

    columns = {
        "document": pa.array(documents, pa.int64()),
        "text": pa.array([storable(spool.text(document)) for document in documents.tolist()], pa.string()),
    }
    return pa.table(columns | _labels(documents, spool))


def _labels(documents: np.ndarray, spool: Spool) -> dict[str, Any]:
    import pyarrow as pa

    if spool.label_kind is None:
        return {}
    kind = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}[spool.label_kind]
    labels = _Remembered(spool.label)
    values = pa.array([labels(document) for document in documents.tolist()], kind)
    return {"label": values.dictionary_encode() if spool.label_kind == "str" else values}


class _Remembered:
    """A function that knows its last answer: rows of one text stand together."""

    def __init__(self, asked: Callable[[int], Any]) -> None:
        self._asked, self._number, self._found = asked, -1, None

    def __call__(self, number: int) -> Any:
        if number != self._number:
            self._number, self._found = number, self._asked(number)
        return self._found


def snippet(text: str, start: int, end: int, token: str) -> str:
    """A token in its context, with marks around it.

    Examples
    --------
    >>> snippet("They sat by the river bank in the sun.", 22, 26, "bank")
    'They sat by the river «bank» in the sun.'
    """
    if end <= start:  # a special token, or a tokenizer that does not tell places
        return f"«{token}»"
    before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    left = "…" if start > _AROUND else ""
    right = "…" if end + _AROUND < len(text) else ""
    return f"{left}{before}«{text[start:end]}»{after}{right}".replace("\n", " ")
