"""Writing to Chroma: a new collection, its rows by their ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope.stores.databases.chroma import INTEGERS, SPACES
from isoscope.stores.databases.chroma_client import Chroma
from isoscope.stores.databases.notes import NOTE, can_go_on, note, refuse_foreign, refuse_lost, refuse_options
from isoscope.stores.databases.payloads import carried_distance, carried_settings, objects_of

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout

_ASKED = 2000  # ids in a question
_NAMES = {distance: space for space, distance in SPACES.items()}


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
    refuse_options(address.options, ["distance"], address.shown)
    if (said := address.options.get("distance", "cosine")) not in _NAMES:
        raise InputError(f"{address.shown}: distance={said}: need {', '.join(_NAMES)}")
    chroma = Chroma(address)
    chroma.refuse_other_folders(reading=False)
    return ChromaDestination(chroma)


class ChromaDestination:
    """A collection that is written; see `Destination`. It is made with the first rows, as these say what ids are."""

    def __init__(self, chroma: Chroma) -> None:
        self._chroma, self._where = chroma, chroma.address.shown
        self._about: dict[str, str] = {}
        self._schema: Any = None
        self._there = chroma.found() is not None

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        self._about, self._schema = dict(about), None if layout is None else layout.schema
        if not self._there:
            return False
        can_go_on(self._metadata().get(NOTE), about, self._where)
        return bool(self._chroma.collection("count"))

    def lacking(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        names = list(map(str, ids.tolist()))
        there: set[str] = set()
        for part in blocks(len(names) if self._there else 0, _ASKED):
            there |= set(self._chroma.collection("get", ids=names[part], include=[])["ids"])
        return np.array([each not in there for each in names], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        if not self._there:
            self._make(batch.columns["ids"].dtype.kind in "iu")
        ids = list(map(str, batch.columns["ids"].tolist()))
        objects = objects_of(batch, self._about.get("ids", ""))
        text = next((name for name in ("document", "text") if any(name in each for each in objects)), "")
        documents = [_text(each.pop(text, None)) for each in objects]
        metadatas = [_flat(each) or None for each in objects]
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
        refuse_lost(rows, self._chroma.collection("count"), self._where)
        kept = {name: value for name, value in self._metadata().items() if name != "hnsw:space"}
        self._chroma.collection("modify", metadata={**kept, NOTE: note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._there:
            refuse_foreign(self._metadata().get(NOTE), self._where)
            self._chroma.dropped()
            self._there = False

    def close(self) -> None:
        """See `Destination`."""
        self._chroma.close()

    def _make(self, integers: bool) -> None:
        said = self._chroma.address.options.get("distance")
        hnsw = json.loads(carried_settings(self._schema) or "{}")
        space = hnsw.get("space") or _NAMES.get(carried_distance(self._schema) or "cosine", "l2")
        hnsw["space"] = _NAMES[said] if said else space
        metadata: dict[str, Any] = {NOTE: note(self._about), INTEGERS: integers}
        self._chroma.made(metadata=metadata, configuration={"hnsw": hnsw})
        self._there = True

    def _metadata(self) -> dict[str, Any]:
        return dict(self._chroma.found().metadata or {})


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the metadata of a row may have them: objects and lists of several kinds as JSON, none if missing."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) or (isinstance(value, list) and not (value and len(set(map(type, value))) == 1)):
            value = json.dumps(value, ensure_ascii=False)
        if value is not None:
            found[name] = value
    return found
