"""Writing to Chroma: a new collection, its rows by their ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope.stores.databases.chroma import INTEGER_IDS_KEY, SPACES
from isoscope.stores.databases.chroma_client import ChromaCollection
from isoscope.stores.databases.notes import (
    NOTE,
    can_resume,
    check_options,
    check_ownership,
    check_row_count,
    format_note,
)
from isoscope.stores.databases.payloads import batch_payloads, read_distance, read_index_settings

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout

_IDS_PER_QUERY = 2000  # ids in a question
_SPACE_NAMES = {distance: space for space, distance in SPACES.items()}


def open_chroma_destination(address: Address) -> ChromaDestination:
    """A collection of Chroma to write to.

    Parameters
    ----------
    address : Address
        ``chroma:PATH#collection`` or ``chroma:http://host:8000#collection``; `distance` among the options is cosine,
        dot or euclid, that of the source unless it is said, cosine if the source has none.

    Notes
    -----
    Chroma keeps float32. Its ids are strings: whole numbers are written as such, and reading gives numbers back. The
    column ``document`` or ``text`` becomes the documents, the others the metadata, in which objects are JSON.
    """
    check_options(address.options, ["distance"], address.shown)
    if (said := address.options.get("distance", "cosine")) not in _SPACE_NAMES:
        raise InputError(f"{address.shown}: distance={said}: need {', '.join(_SPACE_NAMES)}")
    chroma = ChromaCollection(address)
    chroma.check_folder(reading=False)
    return ChromaDestination(chroma)


class ChromaDestination:
    """A collection that is written; see `Destination`. It is made with the first rows, as these say what ids are."""

    def __init__(self, chroma: ChromaCollection) -> None:
        self._chroma, self._where = chroma, chroma.address.shown
        self._about: dict[str, str] = {}
        self._schema: Any = None
        self._there = chroma.found() is not None

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        self._about, self._schema = dict(about), None if layout is None else layout.schema
        if not self._there:
            return False
        can_resume(self._metadata().get(NOTE), about, self._where)
        return bool(self._chroma.collection("count"))

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        names = list(map(str, ids.tolist()))
        there: set[str] = set()
        for part in blocks(len(names) if self._there else 0, _IDS_PER_QUERY):
            there |= set(self._chroma.collection("get", ids=names[part], include=[])["ids"])
        return np.array([each not in there for each in names], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        if not self._there:
            self._make(batch.columns["ids"].dtype.kind in "iu")
        ids = list(map(str, batch.columns["ids"].tolist()))
        objects = batch_payloads(batch, self._about.get("ids", ""))
        text = next((name for name in ("document", "text") if any(name in each for each in objects)), "")
        documents = [_text(each.pop(text, None)) for each in objects]
        metadatas = [_flatten_metadata(each) or None for each in objects]
        vectors = np.asarray(batch.vectors, np.float32)
        first = {each: row for row, each in reversed(list(enumerate(ids)))}
        rows = sorted(first.values())  # Chroma refuses an id that is twice in a request
        for part in blocks(len(rows), int(self._chroma.ask("get_max_batch_size"))):
            some = rows[part]
            self._chroma.collection(
                "upsert",
                ids=[ids[row] for row in some],
                embeddings=vectors[some],
                documents=[documents[row] for row in some] if any(documents[row] is not None for row in some) else None,
                metadatas=[metadatas[row] for row in some] if any(metadatas[row] for row in some) else None,
            )

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        check_row_count(rows, self._chroma.collection("count"), self._where)
        kept = {name: value for name, value in self._metadata().items() if name != "hnsw:space"}
        self._chroma.collection("modify", metadata={**kept, NOTE: format_note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._there:
            check_ownership(self._metadata().get(NOTE), self._where)
            self._chroma.delete_collection()
            self._there = False

    def close(self) -> None:
        """See `Destination`."""
        self._chroma.close()

    def _make(self, integers: bool) -> None:
        said = self._chroma.address.options.get("distance")
        hnsw = json.loads(read_index_settings(self._schema) or "{}")
        space = hnsw.get("space") or _SPACE_NAMES.get(read_distance(self._schema) or "cosine", "l2")
        hnsw["space"] = _SPACE_NAMES[said] if said else space
        metadata: dict[str, Any] = {NOTE: format_note(self._about), INTEGER_IDS_KEY: integers}
        self._chroma.made(metadata=metadata, configuration={"hnsw": hnsw})
        self._there = True

    def _metadata(self) -> dict[str, Any]:
        return dict(self._chroma.found().metadata or {})


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _flatten_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the metadata of a row may have them: objects and lists of several kinds as JSON, none if missing."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) or (isinstance(value, list) and not (value and len(set(map(type, value))) == 1)):
            value = json.dumps(value, ensure_ascii=False)
        if value is not None:
            found[name] = value
    return found
