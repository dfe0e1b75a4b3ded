"""Collections of Qdrant, on a server or in a folder: read in the order of their ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.databases.notes import (
    NOTE,
    check_missing_vectors,
    check_options,
    suggest_names,
    warn_if_unfinished,
)
from isoscope.stores.databases.payloads import collection_metadata, object_field, scalar_fields, to_json_column
from isoscope.stores.databases.qdrant_points import (
    QdrantCollection,
    check_collection_named,
    check_folder,
    import_qdrant_errors,
)
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address

ORIGINAL_ID_KEY = "isoscope_id"
"""Where the payload has an id that Qdrant cannot hold, which are unsigned whole numbers and UUIDs alone."""

_PAGE_NUMBERS, _PAGE_ROWS = 2**18, 4096  # in an answer: Python's lists of numbers take eight times their bytes
_STEP = 1024  # rows from one kept id to the next, on a server
_SAMPLE = 256  # points whose payloads say what fields there are
_DTYPES = {"float16": np.float16, "uint8": np.uint8}
_PLAIN_KEY = re.compile(r"[\w-]+", re.ASCII)


def open_qdrant(address: Address, wanted: ColumnSpec) -> Store:
    """A collection of Qdrant; its payloads' top-level fields are columns.

    Parameters
    ----------
    address : Address
        ``qdrant:PATH#collection`` or ``qdrant:http://host:6333#collection``; the server's key is `QDRANT_API_KEY`.
    wanted : Wanted
        Which of several named vectors, and which fields of the payloads are labels, text, …

    Notes
    -----
    A server keeps the vectors of a cosine collection at length 1, and gives them back so: what is measured of lengths
    is then of the collection, not of the model. A folder keeps them as they were written. Qdrant's client holds
    everything of a folder in memory, each collection, and walks through it in Python: up to some 100,000 points. A
    server pages, and isoscope keeps the id of every 1024th point.
    """
    check_options(address.options, ["missing"], address.shown)
    points = QdrantCollection(address)
    import_qdrant_errors()
    if not points.is_remote:
        check_folder(address, reading=True)
    check_collection_named(address, points.names)
    if not points.collection("collection_exists"):
        raise InputError(f"{address.shown} does not exist: {suggest_names(address.collection, points.names())}")
    return QdrantStore(points, wanted)


class QdrantStore(Store):
    """Points in the order of their ids: numbers before UUIDs."""

    def __init__(self, points: QdrantCollection, wanted: ColumnSpec) -> None:
        where = points.address.shown
        info = points.collection("get_collection")
        shown, self._vector, params = _choose_vectors(info.config.params, wanted, where)
        if params.multivector_config is not None:
            raise InputError(f"{where}: {shown} holds several vectors for each point: need one, of one length")
        metadata = info.config.metadata or {}
        warn_if_unfinished(metadata.get(NOTE), where)
        self._points, self._shown, self._distance = points, shown, params.distance.value.lower()
        self._mapped = NOTE in metadata
        self._rows = self._counted(where)
        self._marks: list[Any] | None = None
        self._text_ids = self._ids_are_text()
        sample = [record.payload for record in self._scroll(None, _SAMPLE, True, False)[0]]
        fields = [name for name in scalar_fields(sample) if name not in ("id", "payload", ORIGINAL_ID_KEY)]
        fields += [name for name in sorted(wanted.names - {"id", *fields}) if self._has_field(name)]
        kind = _DTYPES.get(params.datatype.value if params.datatype else "", np.float32)
        super().__init__(where, params.size, kind, choose_columns(["id", *fields], wanted, where))

    def __len__(self) -> int:
        return self._rows

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        records = self._walk(start, self._payload(names, beside), True)
        page = max(1, min(rows, _PAGE_ROWS, _PAGE_NUMBERS // self.dim))
        for block in blocks(len(self) - start, rows):
            vectors = np.empty((block.stop - block.start, self.dim), self.dtype)
            kept: list[Any] = []
            for part in blocks(len(vectors), page):
                found = list(islice(records, part.stop - part.start))
                self._check_count(len(found), part.stop - part.start)
                vectors[part] = self._matrix(found)
                kept += [(record.id, record.payload) for record in found] if names or beside else ()
            values = {name: self._column(kept, name) for name in names}
            yield Piece(vectors, values, (start + block.stop) / len(self), self._record(kept) if beside else None)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        found = np.empty((len(indices), self.dim), self.dtype)
        for part in blocks(len(indices), max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim))):
            found[part] = self._matrix(self._retrieve(self._find_ids(indices[part]), False, True))
        return found

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        fields = self._payload([name], False)
        if indices is None:
            found = [(record.id, record.payload) for record in self._walk(0, fields, False)]
            self._check_count(len(found), len(self))
        else:
            parts = [indices[part] for part in blocks(len(indices), _PAGE_ROWS)]
            records = (record for part in parts for record in self._retrieve(self._find_ids(part), fields, False))
            found = [(record.id, record.payload) for record in records]
        return self._column(found, name)

    def _layout(self) -> Layout:
        import pyarrow as pa

        vectors = "vector" if self._shown in ("id", "payload") else self._shown
        fields = [
            pa.field("id", pa.string() if self._text_ids else pa.int64()),
            pa.field(vectors, pa.list_(pa.from_numpy_dtype(self.dtype), self.dim)),
            object_field("payload"),
        ]
        return Layout(pa.schema(fields, metadata=collection_metadata(self._distance, self._vector, "qdrant")), vectors)

    def _record(self, points: Sequence[tuple[Any, Any]]) -> Any:
        import pyarrow as pa

        ids = pa.array(self._column(points, "id"), pa.string() if self._text_ids else pa.int64())
        kept = [
            None if payload is None else {name: value for name, value in payload.items() if name != ORIGINAL_ID_KEY}
            for _, payload in points
        ]
        schema = pa.schema([pa.field("id", ids.type), object_field("payload")])
        return pa.RecordBatch.from_arrays([ids, to_json_column(kept)], schema=schema)

    def _column(self, points: Sequence[tuple[Any, Any]], name: str) -> list[Any]:
        if name != "id":
            return [(payload or {}).get(name) for _, payload in points]
        originals = [(payload or {}).get(ORIGINAL_ID_KEY, own) if self._mapped else own for own, payload in points]
        return [str(each) for each in originals] if self._text_ids else originals

    def _matrix(self, records: Sequence[Any]) -> np.ndarray:
        lists = [each.vector[self._vector] if isinstance(each.vector, dict) else each.vector for each in records]
        return np.array(lists, self.dtype)

    def _payload(self, names: Sequence[str], beside: bool) -> Any:
        """Which fields of the payloads to ask for."""
        fields = [name for name in names if name != "id"] + (
            [ORIGINAL_ID_KEY] if self._mapped and "id" in names else []
        )
        return True if beside else [_key(name) for name in fields] or False

    def _walk(self, start: int, payload: Any, vectors: bool) -> Iterator[Any]:
        """Every point from a row on; a server goes on behind the last id, local mode would sort all for each page."""
        page = max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim)) if vectors else _PAGE_ROWS
        if not self._points.is_remote:
            marks = self._bookmarks()
            for part in blocks(len(marks) - start, page):
                yield from self._retrieve(marks[start + part.start : start + part.stop], payload, vectors)
            return
        skip = start % _STEP
        following = self._bookmarks()[start // _STEP] if start else None
        while True:
            records, following = self._scroll(following, page, payload, vectors)
            yield from records[skip:]
            skip = max(0, skip - len(records))
            if following is None:
                return

    def _bookmarks(self) -> list[Any]:
        """The ids of every so many rows of a server's; of all in local mode, which holds everything in memory."""
        if self._marks is None:
            if self._points.is_remote:
                self._marks, following = [], None
                while not self._marks or following is not None:
                    records, following = self._scroll(following, _STEP, False, False)
                    self._marks += [record.id for record in records[:1]]
            else:
                self._marks = [record.id for record in self._scroll(None, max(1, len(self)), False, False)[0]]
        return self._marks

    def _find_ids(self, indices: np.ndarray) -> list[Any]:
        marks = self._bookmarks()
        if not self._points.is_remote:
            return [marks[index] for index in indices]
        found = []
        for step in np.unique(indices // _STEP):
            ids = [record.id for record in self._scroll(marks[step], _STEP, False, False)[0]]
            found += [ids[index - step * _STEP] for index in indices[indices // _STEP == step]]
        return found

    def _retrieve(self, ids: list[Any], payload: Any, vectors: bool) -> list[Any]:
        wanted = [self._vector] if vectors else False
        found = self._points.collection("retrieve", ids=ids, with_payload=payload, with_vectors=wanted)
        by_id = {record.id: record for record in found}
        self._check_count(len(by_id), len(ids))
        return [by_id[each] for each in ids]

    def _scroll(self, offset: Any, limit: int, payload: Any, vectors: bool, lacking: bool = False) -> tuple[Any, Any]:
        found: tuple[Any, Any] = self._points.collection(
            "scroll",
            scroll_filter=_vector_filter(self._vector, not lacking),
            limit=limit,
            offset=offset,
            with_payload=payload,
            with_vectors=[self._vector] if vectors else False,
        )
        return found

    def _counted(self, where: str) -> int:
        total = self._points.collection("count", exact=True).count
        if not total:
            raise InputError(f"{where} has no points: need at least one vector")
        having = self._points.collection("count", count_filter=_vector_filter(self._vector, True), exact=True).count
        if lacking := total - having:
            first = self._scroll(None, 1, False, False, lacking=True)[0]
            drop = self._points.address.options.get("missing") == "drop"
            check_missing_vectors(lacking, total, first[0].id if first else "?", drop, where, f"no {self._shown}")
        return int(having)

    def _ids_are_text(self) -> bool:
        """Whether some are UUIDs or beyond 2⁶³: these come behind the others."""
        records = self._scroll(2**63, 1, [ORIGINAL_ID_KEY] if self._mapped else False, False)[0]
        originals = [(record.payload or {}).get(ORIGINAL_ID_KEY, record.id) for record in records]
        return any(not isinstance(each, int) or each >= 2**63 for each in originals)

    def _has_field(self, name: str) -> bool:
        """Whether the payload of any point has a field."""
        from qdrant_client import models

        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=_key(name)))
        full = models.Filter(must_not=[empty])
        return bool(self._points.collection("scroll", scroll_filter=full, limit=1, with_payload=False)[0])

    def _check_count(self, found: int, need: int) -> None:
        if found < need:
            raise InputError(f"{self._points.address.shown} has lost points since it was opened: open it again")


def _choose_vectors(params: Any, wanted: ColumnSpec, where: str) -> tuple[str, str, Any]:
    """The vectors' name as it is shown, as Qdrant has it, and what Qdrant says of them."""
    dense = params.vectors or {}
    if not isinstance(dense, dict):
        dense = {"": dense}
    shown = {name or "vector": name for name in dense}
    sparse = list(params.sparse_vectors or {})
    if wanted.vectors in sparse or (sparse and not dense):
        raise InputError(
            f"{where}: {wanted.vectors or ', '.join(sparse)} is sparse: need dense vectors, one for a point"
        )
    chosen = choose_vectors(list(shown), wanted, where, others=sparse)
    return chosen, shown[chosen], dense[shown[chosen]]


def _vector_filter(vector: str, there: bool) -> Any:
    """The points that have the vector, or those that lack it."""
    from qdrant_client import models

    condition = [models.HasVectorCondition(has_vector=vector)]
    return models.Filter(must=condition) if there else models.Filter(must_not=condition)


def _key(name: str) -> str:
    """A top-level field as Qdrant's paths into payloads have it."""
    return name if _PLAIN_KEY.fullmatch(name) else f'"{name}"'
