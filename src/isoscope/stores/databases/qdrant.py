"""Qdrant: collections as stores, and writing to them."""

from __future__ import annotations

import atexit
import json
import os
import re
import sqlite3
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.databases.base import (
    NOTE,
    batch_payloads,
    can_resume,
    check_missing_vectors,
    check_options,
    check_ownership,
    check_row_count,
    collection_metadata,
    format_note,
    object_field,
    read_distance,
    read_ids_origin,
    read_vector_name,
    retry,
    scalar_fields,
    suggest_names,
    to_json_column,
    warn_if_unfinished,
)
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout


_folders: WeakValueDictionary[str, Any] = WeakValueDictionary()  # a folder can be opened once, by the whole process


@atexit.register
def _close_clients() -> None:
    """Close what is open while that is possible: the client's own end, later, fails with a traceback."""
    for client in list(_folders.values()):
        client.close()


@contextmanager
def _silence_local_mode_warning() -> Iterator[None]:
    """Let the client not warn of many points in a folder: where that is too slow is said in `open_qdrant`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Local mode is not recommended")
        yield


@dataclass
class QdrantCollection:
    """A collection that questions are put to: tried again if the server is away, failures said in one line."""

    address: Address
    _client: Any = field(default=None, repr=False)
    _has_answered: bool = field(default=False, repr=False)  # who never answered is not waited for

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @property
    def is_remote(self) -> bool:
        """Whether it is on a server."""
        return "://" in self.address.place

    def ask(self, question: str, **said: Any) -> Any:
        """The answer of the client's method of this name."""
        errors = import_qdrant_errors()

        def attempt() -> Any:
            if self._client is None:
                self._client = _connect(self.address, self.is_remote)
            return getattr(self._client, question)(**said)

        def passes(error: Exception) -> bool:
            if isinstance(error, errors.UnexpectedResponse):
                return self._has_answered and (error.status_code or 0) >= 500
            return self._has_answered and isinstance(error, errors.ResponseHandlingException)

        try:
            answer = retry(attempt, passes)
            self._has_answered = True
            return answer
        except (
            errors.ResponseHandlingException,
            errors.UnexpectedResponse,
            OSError,
            ValueError,
            RuntimeError,
        ) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(self._failure(error)) from error

    def collection(self, question: str, **said: Any) -> Any:
        """The answer of the client's method of this name about the collection."""
        return self.ask(question, collection_name=self.address.collection, **said)

    def names(self) -> list[str]:
        """The collections that are there."""
        return [each.name for each in self.ask("get_collections").collections]

    @contextmanager
    def defer_sync(self) -> Iterator[None]:
        """Have a folder's file synced when all points are in it: the client syncs it for each, a hundred times slower.

        The file stays whole whenever the process or the machine ends: what is written goes through SQLite's log.
        """
        local = getattr(self._client, "_client", None)
        collection = getattr(local, "collections", {}).get(self.address.collection)
        connection = getattr(getattr(collection, "storage", None), "storage", None)
        if not isinstance(connection, sqlite3.Connection):
            yield
            return
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        try:
            with _silence_local_mode_warning():
                yield
        finally:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA journal_mode=DELETE")

    def close(self) -> None:
        """Let go of it; a folder is free once nobody has it any more."""
        if self._client is not None and self.is_remote:
            self._client.close()
        self._client = None

    def _failure(self, error: Exception) -> str:
        where, why = self.address.shown, self.address.redact(str(error))[:200] or type(error).__name__
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return f"{where}: the server does not let you in ({status}): set QDRANT_API_KEY to its key"
        if "already accessed" in why:
            return f"{where} is open in another process or client: close that, or run Qdrant as a server"
        if self.is_remote and status is None and not isinstance(error, ValueError):
            return f"{where} cannot be reached: {why}; is the server up? The same command goes on when it is"
        return f"{where}: {why}; look at the address and the collection"


def import_qdrant_errors() -> Any:
    """What Qdrant's client raises; an `InputError` if it is not installed."""
    try:
        from qdrant_client.http import exceptions
    except ImportError as error:
        raise MissingExtra('qdrant-client is not installed: pip install "isoscope[qdrant]"') from error
    return exceptions


def _connect(address: Address, remote: bool) -> Any:
    from qdrant_client import QdrantClient

    if remote:
        key = os.environ.get("QDRANT_API_KEY")
        return QdrantClient(url=address.place, api_key=key, timeout=60, check_compatibility=False)
    path = os.path.realpath(Path(address.place).expanduser())
    client = _folders.get(path)
    if client is None:
        with _silence_local_mode_warning():
            _folders[path] = client = QdrantClient(path=path)
    return client


def check_folder(address: Address, *, reading: bool) -> None:
    """Refuse a path that is not Qdrant's, which its client would make one of."""
    path = Path(address.place).expanduser()
    try:
        kept = json.loads((path / "meta.json").read_text())
        right = isinstance(kept, dict) and "collections" in kept
    except FileNotFoundError:
        right = not reading and (not path.exists() or (path.is_dir() and not any(path.iterdir())))
    except (OSError, ValueError):
        right = False
    if not right:
        there = "is not a folder of Qdrant's local mode" if path.exists() else "does not exist"
        raise InputError(f"{address.shown}: {path} {there}: need one, or a server, qdrant:http://host:6333#collection")


def check_collection_named(address: Address, names: Callable[[], list[str]]) -> None:
    """Refuse an address without a collection."""
    if not address.collection:
        known = ", ".join(names()[:12])
        has = f"; it has {known}" if known else ""
        raise InputError(f"{address.shown} says no collection: need {address.shown}#NAME{has}")


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


_NAMESPACE = uuid.UUID("6f2c5a0e-6a0d-5c1f-9a53-1c1f5f3f7d10")  # of the UUIDs that stand for other ids: never change it
_REQUEST_BYTES = 4 * 2**20  # of float32: a server takes requests up to 32 MB, and a number as JSON is longer
_IDS_PER_QUERY = 4096  # ids in a question
_DISTANCES = ("cosine", "dot", "euclid", "manhattan")


def open_qdrant_destination(address: Address) -> QdrantDestination:
    """A collection of Qdrant to write to.

    Parameters
    ----------
    address : Address
        ``qdrant:PATH#collection`` or ``qdrant:http://host:6333#collection``; `distance` among the options is cosine,
        dot, euclid or manhattan, that of the source unless it is said, cosine if the source has none.

    Notes
    -----
    Qdrant keeps float32, or float16 if that is written. Ids that it cannot hold, which are all but unsigned whole
    numbers and UUIDs, become UUIDs made of them; the payload keeps them as ``isoscope_id``, and reading gives them.
    """
    check_options(address.options, ["distance"], address.shown)
    if (said := address.options.get("distance", "cosine")) not in _DISTANCES:
        raise InputError(f"{address.shown}: distance={said}: need {', '.join(_DISTANCES)}")
    points = QdrantCollection(address)
    import_qdrant_errors()
    if not points.is_remote:
        check_folder(address, reading=False)
    check_collection_named(address, points.names)
    return QdrantDestination(points)


class QdrantDestination:
    """A collection that is written; see `Destination`."""

    def __init__(self, points: QdrantCollection) -> None:
        self._points, self._where = points, points.address.shown
        self._about: dict[str, str] = {}
        self._vector, self._numbered = "", False

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        from qdrant_client import models

        schema = layout.schema if layout is not None else None
        self._about, self._vector, self._numbered = (
            dict(about),
            read_vector_name(schema),
            read_ids_origin(schema) == "qdrant",
        )
        if self._points.collection("collection_exists"):
            can_resume(self._note(), about, self._where)
            return bool(self._points.collection("count", exact=True).count)
        distance = self._points.address.options.get("distance") or read_distance(schema) or "cosine"
        params = models.VectorParams(
            size=dim,
            distance=models.Distance(distance.capitalize()),
            datatype=models.Datatype.FLOAT16 if dtype == np.float16 else None,
        )
        named = {self._vector: params} if self._vector else params
        self._points.collection("create_collection", vectors_config=named, metadata={NOTE: format_note(about)})
        if self._note() is None:
            self._points.collection("delete_collection")
            raise InputError(f"{self._where}: this server keeps no metadata of a collection: need Qdrant 1.16 or later")
        return False

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        own = [self._point_id(each) for each in ids.tolist()]
        there: set[int | str] = set()
        for part in blocks(len(own), _IDS_PER_QUERY):
            found = self._points.collection("retrieve", ids=own[part], with_payload=False, with_vectors=False)
            there |= {record.id for record in found}
        return np.array([each not in there for each in own], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        from qdrant_client import models

        payloads = batch_payloads(batch, self._about.get("ids", ""))
        originals = batch.columns["ids"].tolist()
        ids = [self._point_id(each) for each in originals]
        for own, original, payload in zip(ids, originals, payloads, strict=True):
            if own != original and str(own) != original:
                payload[ORIGINAL_ID_KEY] = original
        vectors = np.asarray(batch.vectors, np.float32)
        with self._points.defer_sync():
            for part in blocks(len(ids), max(1, _REQUEST_BYTES // (4 * vectors.shape[1]))):
                rows: Any = vectors[part].tolist()
                points = models.Batch(
                    ids=ids[part], vectors={self._vector: rows} if self._vector else rows, payloads=payloads[part]
                )
                self._points.collection("upsert", points=points, wait=True)

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        check_row_count(rows, self._points.collection("count", exact=True).count, self._where)
        self._points.collection("update_collection", metadata={NOTE: format_note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._points.collection("collection_exists"):
            check_ownership(self._note(), self._where)
            self._points.collection("delete_collection")

    def close(self) -> None:
        """See `Destination`."""
        self._points.close()

    def _note(self) -> str | None:
        found = (self._points.collection("get_collection").config.metadata or {}).get(NOTE)
        return found if isinstance(found, str) else None

    def _point_id(self, original: Any) -> int | str:
        """The id that stands for one: itself if Qdrant can hold it, or a UUID that is made of it."""
        if isinstance(original, int) and original >= 0:
            return original
        if isinstance(original, str):
            if self._numbered and original.isascii() and original.isdigit():
                return int(original)
            try:
                if str(uuid.UUID(original)) == original:
                    return original
            except ValueError:
                pass
        return str(uuid.uuid5(_NAMESPACE, str(original)))
