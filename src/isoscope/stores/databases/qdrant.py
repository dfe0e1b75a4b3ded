"""Read Qdrant collections as stores, and write to them."""

from __future__ import annotations

import atexit
import json
import os
import re
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import DatabaseError, MissingExtra, ParameterError
from isoscope._io.files import expand_user
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.databases.base import (
    NOTE,
    Client,
    CollectionInfo,
    batch_payloads,
    check_distance,
    check_options,
    check_ownership,
    check_resumable,
    check_row_count,
    count_usable_rows,
    format_note,
    object_field,
    rows_lost_error,
    scalar_fields,
    to_json_column,
    warn_if_unfinished,
)
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch

_NAMESPACE = uuid.UUID("6f2c5a0e-6a0d-5c1f-9a53-1c1f5f3f7d10")  # for UUIDs derived from ids; never change it
_ORIGINAL_ID = "isoscope_id"  # payload key for an id that Qdrant does not support
_PAGE_NUMBERS, _PAGE_ROWS = (
    2**18,
    4096,
)  # per response; a Python list takes eight times the bytes of its numbers
_STEP = 1024  # rows between two bookmarks on a server
_SAMPLE = 256  # points whose payloads are searched for fields
_REQUEST_BYTES = 4 * 2**20  # bytes of float32 per request: servers accept 32 MB, and JSON is longer
_IDS_PER_QUERY = 4096
_DTYPES = {"float16": np.float16, "uint8": np.uint8}
_DISTANCES = ("cosine", "dot", "euclid", "manhattan")
_PLAIN_KEY = re.compile(r"[\w-]+", re.ASCII)

_folders: WeakValueDictionary[str, Any] = WeakValueDictionary()  # a process can open a folder only once


@atexit.register
def _close_clients() -> None:
    """Close open database folders before the interpreter shuts down; otherwise the client would print a traceback."""
    for client in list(_folders.values()):
        client.close()


class QdrantClient(Client):
    """A client for a Qdrant collection in a folder or on a server."""

    product = "Qdrant"
    server_form = "qdrant:http://host:6333#collection"

    def call_collection(self, method: str, **arguments: Any) -> Any:
        """See `Client`."""
        return self.call(method, collection_name=self.address.collection, **arguments)

    def names(self) -> list[str]:
        """See `Client`."""
        return [each.name for each in self.call("get_collections").collections]

    def exists(self) -> bool:
        """See `Client`."""
        return bool(self.call_collection("collection_exists"))

    def close(self) -> None:
        """Close the connection to a server; a database folder is closed when nothing uses it anymore."""
        if self._client is not None and self.is_remote:
            self._client.close()
        super().close()

    def _connect(self) -> Any:
        import qdrant_client

        if self.is_remote:
            key = os.environ.get("QDRANT_API_KEY")
            return qdrant_client.QdrantClient(
                url=self.address.place, api_key=key, timeout=60, check_compatibility=False
            )
        path = os.path.realpath(expand_user(self.address.place))
        client = _folders.get(path)
        if client is None:
            with _ignore_size_warning():
                _folders[path] = client = qdrant_client.QdrantClient(path=path)
        return client

    def _is_own_folder(self, path: Path) -> bool:
        try:
            content = json.loads((path / "meta.json").read_text())
        except (OSError, ValueError):
            return False
        return isinstance(content, dict) and "collections" in content

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        errors = _import_errors()
        return errors.ResponseHandlingException, errors.UnexpectedResponse

    def _is_transient(self, error: Exception) -> bool:
        unreachable, refused = self._driver_errors()
        return isinstance(error, unreachable) or (
            isinstance(error, refused) and (getattr(error, "status_code", None) or 0) >= 500
        )

    def _explain(self, error: Exception, reason: str) -> str:
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return f"the server denies access ({status}): set QDRANT_API_KEY to its key"
        if "already accessed" in reason:
            return "the folder is open in another process or client: close it there, or run Qdrant as a server"
        if self.is_remote and status is None and not isinstance(error, ValueError):
            return f"the server cannot be reached ({reason}): check that it is running, then rerun to resume"
        return ""


@contextmanager
def _ignore_size_warning() -> Iterator[None]:
    """Suppress the client's warning about large folders; `open_qdrant` documents this limit."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Local mode is not recommended")
        yield


def _import_errors() -> Any:
    try:
        from qdrant_client.http import exceptions
    except ImportError as error:
        raise MissingExtra('qdrant-client is not installed: pip install "isoscope[qdrant]"') from error
    return exceptions


def open_qdrant(address: Address, wanted: ColumnSpec) -> Store:
    """Open a Qdrant collection as a store; top-level payload fields are its columns.

    Parameters
    ----------
    address : Address
        ``qdrant:PATH#collection`` or ``qdrant:http://host:6333#collection``; `QDRANT_API_KEY` contains the API key.
    wanted : ColumnSpec
        The named vectors to read, and the payload fields to use as labels, text, …

    Notes
    -----
    A server normalizes the vectors of a cosine collection to length 1, so measured norms describe the collection, not
    the model. A folder keeps the original vectors. Qdrant's client loads a complete folder into memory and scans it in
    Python: use folders for up to about 100,000 points. A server is read page by page, and isoscope keeps the id of
    every 1024th point.
    """
    check_options(address.options, ["missing"], address.redacted)
    _import_errors()
    client = QdrantClient(address)
    client.check_address(reading=True)
    client.require_collection()
    return QdrantStore(client, wanted)


class QdrantStore(Store):
    """The points of a collection in the order of their ids: numbers before UUIDs."""

    def __init__(self, client: QdrantClient, wanted: ColumnSpec) -> None:
        where = client.address.redacted
        info = client.call_collection("get_collection")
        shown, self._vector, params = _choose_vectors(info.config.params, wanted, where)
        if params.multivector_config is not None:
            raise ParameterError(f"{where}: {shown} contains several vectors per point: need one vector per point")
        metadata = info.config.metadata or {}
        warn_if_unfinished(metadata.get(NOTE), where)
        self._client, self._shown, self._distance = client, shown, params.distance.value.lower()
        self._has_original_ids = NOTE in metadata
        self._rows = self._count_rows()
        self._marks: list[Any] | None = None
        self._text_ids = self._ids_are_text()
        sample = [record.payload for record in self._scroll(None, _SAMPLE, True, False)[0]]
        fields = [name for name in scalar_fields(sample) if name not in ("id", "payload", _ORIGINAL_ID)]
        fields += [name for name in sorted(wanted.names - {"id", *fields}) if self._has_field(name)]
        kind = _DTYPES.get(params.datatype.value if params.datatype else "", np.float32)
        super().__init__(where, params.size, kind, choose_columns(["id", *fields], wanted, where))

    def __len__(self) -> int:
        return self._rows

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        records = self._walk(start, self._payload(names, beside), True)
        for block in blocks(len(self) - start, rows):
            vectors = np.empty((block.stop - block.start, self.dim), self.dtype)
            points: list[Any] = []
            for part in blocks(len(vectors), min(rows, self._page_rows)):
                page = list(islice(records, part.stop - part.start))
                self._check_count(len(page), part.stop - part.start)
                vectors[part] = self._matrix(page)
                points += [(record.id, record.payload) for record in page] if names or beside else ()
            values = {name: self._column(points, name) for name in names}
            yield Piece(vectors, values, (start + block.stop) / len(self), self._record(points) if beside else None)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(indices), self.dim), self.dtype)
        for part in blocks(len(indices), self._page_rows):
            vectors[part] = self._matrix(self._retrieve(self._find_ids(indices[part]), False, True))
        return vectors

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        fields = self._payload([name], False)
        if indices is None:
            points = [(record.id, record.payload) for record in self._walk(0, fields, False)]
            self._check_count(len(points), len(self))
        else:
            parts = [indices[part] for part in blocks(len(indices), _PAGE_ROWS)]
            records = (record for part in parts for record in self._retrieve(self._find_ids(part), fields, False))
            points = [(record.id, record.payload) for record in records]
        return self._column(points, name)

    def _layout(self) -> Layout:
        import pyarrow as pa

        vectors = "vector" if self._shown in ("id", "payload") else self._shown
        fields = [
            pa.field("id", pa.string() if self._text_ids else pa.int64()),
            pa.field(vectors, pa.list_(pa.from_numpy_dtype(self.dtype), self.dim)),
            object_field("payload"),
        ]
        info = CollectionInfo(self._distance, self._vector, "qdrant")
        return Layout(pa.schema(fields, metadata=info.to_metadata()), vectors)

    def _record(self, points: Sequence[tuple[Any, Any]]) -> Any:
        import pyarrow as pa

        ids = pa.array(self._column(points, "id"), pa.string() if self._text_ids else pa.int64())
        payloads = [
            None if payload is None else {name: value for name, value in payload.items() if name != _ORIGINAL_ID}
            for _, payload in points
        ]
        schema = pa.schema([pa.field("id", ids.type), object_field("payload")])
        return pa.RecordBatch.from_arrays([ids, to_json_column(payloads)], schema=schema)

    def _column(self, points: Sequence[tuple[Any, Any]], name: str) -> list[Any]:
        if name != "id":
            return [(payload or {}).get(name) for _, payload in points]
        ids = [(payload or {}).get(_ORIGINAL_ID, own) if self._has_original_ids else own for own, payload in points]
        return [str(each) for each in ids] if self._text_ids else ids

    def _matrix(self, records: Sequence[Any]) -> np.ndarray:
        lists = [each.vector[self._vector] if isinstance(each.vector, dict) else each.vector for each in records]
        return np.array(lists, self.dtype)

    @property
    def _page_rows(self) -> int:
        return max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim))

    def _payload(self, names: Sequence[str], beside: bool) -> Any:
        """Return the payload fields to request: True for all, False for none."""
        fields = [name for name in names if name != "id"]
        fields += [_ORIGINAL_ID] if self._has_original_ids and "id" in names else []
        return True if beside else [_key(name) for name in fields] or False

    def _walk(self, start: int, payload: Any, vectors: bool) -> Iterator[Any]:
        """Yield all points, starting at a row; in folders, read by id, because each page would sort all points."""
        page = self._page_rows if vectors else _PAGE_ROWS
        if not self._client.is_remote:
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
        """Return the id of every 1024th row on a server, or of every row in a folder."""
        if self._marks is None:
            if self._client.is_remote:
                self._marks, following = [], None
                while not self._marks or following is not None:
                    records, following = self._scroll(following, _STEP, False, False)
                    self._marks += [record.id for record in records[:1]]
            else:
                self._marks = [record.id for record in self._scroll(None, max(1, len(self)), False, False)[0]]
        return self._marks

    def _find_ids(self, indices: np.ndarray) -> list[Any]:
        marks = self._bookmarks()
        if not self._client.is_remote:
            return [marks[index] for index in indices]
        found = []
        for step in np.unique(indices // _STEP):
            ids = [record.id for record in self._scroll(marks[step], _STEP, False, False)[0]]
            found += [ids[index - step * _STEP] for index in indices[indices // _STEP == step]]
        return found

    def _retrieve(self, ids: list[Any], payload: Any, vectors: bool) -> list[Any]:
        names = [self._vector] if vectors else False
        records = self._client.call_collection("retrieve", ids=ids, with_payload=payload, with_vectors=names)
        by_id = {record.id: record for record in records}
        self._check_count(len(by_id), len(ids))
        return [by_id[each] for each in ids]

    def _scroll(
        self, offset: Any, limit: int, payload: Any, vectors: bool, without_vector: bool = False
    ) -> tuple[Any, Any]:
        page: tuple[Any, Any] = self._client.call_collection(
            "scroll",
            scroll_filter=_vector_filter(self._vector, not without_vector),
            limit=limit,
            offset=offset,
            with_payload=payload,
            with_vectors=[self._vector] if vectors else False,
        )
        return page

    def _count_rows(self) -> int:
        total = self._client.call_collection("count", exact=True).count
        with_vector = _vector_filter(self._vector, True)
        usable = self._client.call_collection("count", count_filter=with_vector, exact=True).count

        def first() -> str:
            return f"id {self._scroll(None, 1, False, False, without_vector=True)[0][0].id}"

        return count_usable_rows(self._client.address, total, {f"no {self._shown}": total - usable}, first)

    def _ids_are_text(self) -> bool:
        """Return whether some ids are UUIDs or exceed int64; such ids come after all others."""
        records = self._scroll(2**63, 1, [_ORIGINAL_ID] if self._has_original_ids else False, False)[0]
        ids = [(record.payload or {}).get(_ORIGINAL_ID, record.id) for record in records]
        return any(not isinstance(each, int) or each >= 2**63 for each in ids)

    def _has_field(self, name: str) -> bool:
        """Return whether any point has this payload field."""
        from qdrant_client import models

        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=_key(name)))
        some = models.Filter(must_not=[empty])
        return bool(self._client.call_collection("scroll", scroll_filter=some, limit=1, with_payload=False)[0])

    def _check_count(self, found: int, need: int) -> None:
        if found < need:
            raise rows_lost_error(self._client.address.redacted)


def _choose_vectors(params: Any, wanted: ColumnSpec, where: str) -> tuple[str, str, Any]:
    """Return the vectors' name for messages, their name in Qdrant, and their parameters."""
    dense = params.vectors or {}
    if not isinstance(dense, dict):
        dense = {"": dense}
    shown = {name or "vector": name for name in dense}
    sparse = list(params.sparse_vectors or {})
    if wanted.vectors in sparse or (sparse and not dense):
        raise ParameterError(
            f"{where}: {wanted.vectors or ', '.join(sparse)} is sparse: need dense vectors, one per point"
        )
    chosen = choose_vectors(list(shown), wanted, where, others=sparse)
    return chosen, shown[chosen], dense[shown[chosen]]


def _vector_filter(vector: str, present: bool) -> Any:
    """Return the filter for points that have the vector, or for those that do not."""
    from qdrant_client import models

    condition = [models.HasVectorCondition(has_vector=vector)]
    return models.Filter(must=condition) if present else models.Filter(must_not=condition)


def _key(name: str) -> str:
    """Return the path of a top-level payload field."""
    return name if _PLAIN_KEY.fullmatch(name) else f'"{name}"'


def open_qdrant_destination(address: Address) -> QdrantDestination:
    """Open a Qdrant collection for writing.

    Parameters
    ----------
    address : Address
        ``qdrant:PATH#collection`` or ``qdrant:http://host:6333#collection``; the option `distance` is cosine, dot,
        euclid or manhattan (default: that of the source, or cosine).

    Notes
    -----
    Qdrant stores float32, or float16 for float16 vectors. Its ids are unsigned integers and UUIDs. Other ids are
    mapped to UUIDs; the payload keeps the originals as ``isoscope_id``, and reading restores them.
    """
    check_distance(address, _DISTANCES)
    _import_errors()
    client = QdrantClient(address)
    client.check_address(reading=False)
    return QdrantDestination(client)


class QdrantDestination:
    """A Qdrant collection to write to; see `Destination`."""

    def __init__(self, client: QdrantClient) -> None:
        self._client, self._where = client, client.address.redacted
        self._about: dict[str, str] = {}
        self._vector, self._ids_from_qdrant = "", False

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        from qdrant_client import models

        source = CollectionInfo.from_schema(layout and layout.schema)
        self._about, self._vector, self._ids_from_qdrant = dict(about), source.vector_name, source.ids_from == "qdrant"
        if self._client.exists():
            check_resumable(self._note(), about, self._where)
            return bool(self._client.call_collection("count", exact=True).count)
        distance = self._client.address.options.get("distance") or source.distance or "cosine"
        params = models.VectorParams(
            size=dim,
            distance=models.Distance(distance.capitalize()),
            datatype=models.Datatype.FLOAT16 if dtype == np.float16 else None,
        )
        config = {self._vector: params} if self._vector else params
        self._client.call_collection("create_collection", vectors_config=config, metadata={NOTE: format_note(about)})
        if self._note() is None:
            self._client.call_collection("delete_collection")
            raise DatabaseError(
                f"{self._where}: the server does not support collection metadata: need Qdrant 1.16 or later"
            )
        return False

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        own = [self._point_id(each) for each in ids.tolist()]
        present: set[int | str] = set()
        for part in blocks(len(own), _IDS_PER_QUERY):
            records = self._client.call_collection("retrieve", ids=own[part], with_payload=False, with_vectors=False)
            present |= {record.id for record in records}
        return np.array([each not in present for each in own], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        from qdrant_client import models

        payloads = batch_payloads(batch, self._about.get("ids", ""))
        originals = batch.columns["ids"].tolist()
        ids = [self._point_id(each) for each in originals]
        for own, original, payload in zip(ids, originals, payloads, strict=True):
            if own != original and str(own) != original:
                payload[_ORIGINAL_ID] = original
        vectors = np.asarray(batch.vectors, np.float32)
        for part in blocks(len(ids), max(1, _REQUEST_BYTES // (4 * vectors.shape[1]))):
            rows: Any = vectors[part].tolist()
            points = models.Batch(
                ids=ids[part], vectors={self._vector: rows} if self._vector else rows, payloads=payloads[part]
            )
            with nullcontext() if self._client.is_remote else _ignore_size_warning():
                self._client.call_collection("upsert", points=points, wait=True)

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        check_row_count(rows, self._client.call_collection("count", exact=True).count, self._where)
        self._client.call_collection("update_collection", metadata={NOTE: format_note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._client.exists():
            check_ownership(self._note(), self._where)
            self._client.call_collection("delete_collection")

    def close(self) -> None:
        """See `Destination`."""
        self._client.close()

    def _note(self) -> str | None:
        note = (self._client.call_collection("get_collection").config.metadata or {}).get(NOTE)
        return note if isinstance(note, str) else None

    def _point_id(self, original: Any) -> int | str:
        """Return the id itself if Qdrant supports it, otherwise a UUID derived from it."""
        if isinstance(original, int) and original >= 0:
            return original
        if isinstance(original, str):
            if self._ids_from_qdrant and original.isascii() and original.isdigit():
                return int(original)
            try:
                if str(uuid.UUID(original)) == original:
                    return original
            except ValueError:
                pass
        return str(uuid.uuid5(_NAMESPACE, str(original)))
