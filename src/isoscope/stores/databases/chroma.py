"""Read Chroma collections as stores, and write to them."""

from __future__ import annotations

import json
import os
import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import DatabaseError, MissingExtra
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
from isoscope.stores.table_schema import VECTOR_COLUMN, Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch

_INTEGER_IDS = "isoscope_ids"  # metadata key: the ids were integers, which Chroma stores as strings
_DISTANCES = {"cosine": "cosine", "ip": "dot", "l2": "euclid"}  # keys are Chroma's names
_SPACES = {distance: space for space, distance in _DISTANCES.items()}
_PAGE_NUMBERS, _PAGE_ROWS = 2**18, 2000  # numbers and rows per response
_IDS_PER_PAGE = 20_000  # ids per response
_IDS_PER_QUERY = 2000
_SAMPLE = 256  # rows whose metadata is searched for fields
_WAIT = 5.0  # seconds to wait for a folder that another process is writing to


class ChromaClient(Client):
    """A client for a Chroma collection in a folder or on a server."""

    product = "Chroma"
    server_form = "chroma:http://host:8000#collection"

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._collection: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_collection": None}

    def call_collection(self, method: str, **arguments: Any) -> Any:
        """See `Client`."""
        return self._retry(lambda: getattr(self._opened(), method)(**arguments))

    def collection(self) -> Any:
        """Return the driver's collection, with its metadata and configuration."""
        return self._retry(self._opened)

    def names(self) -> list[str]:
        """See `Client`."""
        names: list[str] = []
        while page := self.call("list_collections", limit=1000, offset=len(names)):
            names += [each.name for each in page]
        return names

    def create_collection(self, **settings: Any) -> None:
        """Create the collection."""
        self.call("create_collection", name=self.address.collection, embedding_function=None, **settings)

    def delete_collection(self) -> None:
        """Delete the collection."""
        self.call("delete_collection", name=self.address.collection)
        self._collection = None

    def close(self) -> None:
        """See `Client`."""
        super().close()
        self._collection = None

    def _connect(self) -> Any:
        from chromadb.config import Settings

        chromadb = _import_chromadb()
        settings = Settings(anonymized_telemetry=False)
        if not self.is_remote:
            path = os.fspath(expand_user(self.address.place))
            try:
                return chromadb.PersistentClient(path, settings=settings)
            except ValueError as error:
                if "different settings" not in str(error):
                    raise
                return chromadb.PersistentClient(path)  # already open in this process, with other settings
        url = urlsplit(self.address.place)
        headers = {}
        if url.username:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
            headers["Authorization"] = "Basic " + b64encode(pair.encode()).decode()
        return chromadb.HttpClient(
            host=url.hostname or "localhost",
            port=url.port or (443 if url.scheme == "https" else 8000),
            ssl=url.scheme == "https",
            headers=headers,
            settings=settings,
        )

    def _opened(self) -> Any:
        if self._collection is None:
            client = self._connected()
            self._collection = client.get_collection(self.address.collection, embedding_function=None)
        return self._collection

    def _is_own_folder(self, path: Path) -> bool:
        """Return whether the folder's database has a table of collections; raise an error if it is locked.

        Chroma itself would wait for the lock forever.
        """
        file = path / "chroma.sqlite3"
        if not file.is_file():
            return False
        try:
            with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", timeout=_WAIT, uri=True)) as connection:
                connection.execute("SELECT count(*) FROM collections").fetchone()
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise DatabaseError(
                    f"{self.address.redacted} is locked by another process: stop that process, or run Chroma as a "
                    "server"
                ) from error
            return False
        return True

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import httpx
        from chromadb.errors import ChromaError

        return ChromaError, httpx.HTTPError

    def _is_transient(self, error: Exception) -> bool:
        import httpx

        return isinstance(error, httpx.TransportError) or _is_unreachable(error)

    def _explain(self, error: Exception, reason: str) -> str:
        status = _find_status(error)
        if status in (401, 403) or type(error).__name__ == "ChromaAuthError":
            return "the server denies access: pass a user name and password, as in http://user:password@host:8000"
        if "different settings" in reason:
            return "this program has already opened the folder with different settings: open it with isoscope first"
        if _is_unreachable(error):
            return "the server cannot be reached: check that it is running, then rerun to resume"
        if self.is_remote and (status is None or status >= 500) and not hasattr(error, "code"):
            return f"the server cannot be reached ({reason}): check that it is running, then rerun to resume"
        return ""


def _import_chromadb() -> Any:
    try:
        import chromadb
    except ImportError as error:
        raise MissingExtra('chromadb is not installed: pip install "isoscope[chroma]"') from error
    return chromadb


def _find_status(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an error; Chroma raises errors of its own while it handles those of httpx."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return int(status)
        error = error.__cause__ or error.__context__
    return None


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, ValueError) and "Could not connect" in str(error)


def open_chroma(address: Address, wanted: ColumnSpec) -> Store:
    """Open a Chroma collection as a store; its documents are the text, and its metadata fields are columns.

    Parameters
    ----------
    address : Address
        ``chroma:PATH#collection`` or ``chroma:http://host:8000#collection``.
    wanted : ColumnSpec
        The metadata fields to use as labels, types, …

    Notes
    -----
    The store keeps all ids in memory, and Chroma keeps its index in memory. A cosine collection returns vectors with a
    float32 rounding error, because Chroma stores direction and length separately.
    """
    check_options(address.options, ["missing"], address.redacted)  # in Chroma, every row has a vector
    _import_chromadb()
    client = ChromaClient(address)
    client.check_address(reading=True)
    client.require_collection()
    return ChromaStore(client, wanted)


class ChromaStore(Store):
    """The rows of a Chroma collection, read by id, because reading by row number is slow for high numbers."""

    def __init__(self, client: ChromaClient, wanted: ColumnSpec) -> None:
        where = client.address.redacted
        collection = client.collection()
        choose_vectors([VECTOR_COLUMN], wanted, where)
        metadata = collection.metadata or {}
        warn_if_unfinished(metadata.get(NOTE), where)
        self._client = client
        self._distance = _distance(collection.configuration_json or {}, metadata)
        sample = client.call_collection("get", limit=_SAMPLE, include=["embeddings", "documents", "metadatas"])
        count_usable_rows(client.address, len(sample["ids"]))
        self._ids = self._list_ids()
        self._integers = bool(metadata.get(_INTEGER_IDS)) and _are_integers(self._ids)  # others may have added text ids
        documents = any(document is not None for document in sample["documents"] or [])
        if documents and wanted.roles.get("text") is None:
            wanted = replace(wanted, roles={**wanted.roles, "text": "document"})
        fields = [name for name in scalar_fields(sample["metadatas"] or []) if name not in ("id", "document")]
        available = ["id", *(["document"] if documents else []), *fields]
        dim = len(sample["embeddings"][0])
        super().__init__(where, dim, np.float32, choose_columns(available, wanted, where))

    def __len__(self) -> int:
        return len(self._ids)

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        include = ["embeddings", *(("documents", "metadatas") if beside else _fields_to_include(names))]
        for block in blocks(len(self) - start, rows):
            numbers = np.arange(start + block.start, start + block.stop)
            vectors = np.empty((len(numbers), self.dim), self.dtype)
            values: dict[str, list[Any]] = {name: [] for name in names}
            records = []
            for part, answer in self._pages(numbers, include):
                vectors[part] = answer["embeddings"]
                for name in names:
                    values[name] += self._column(answer, name)
                records += [self._record(answer)] if beside else []
            yield Piece(vectors, values, (start + block.stop) / len(self), _concat_records(records) if beside else None)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(indices), self.dim), self.dtype)
        for part, answer in self._pages(indices, ["embeddings"]):
            vectors[part] = answer["embeddings"]
        return vectors

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        indices = np.arange(len(self)) if indices is None else indices
        return [
            value
            for _, answer in self._pages(indices, _fields_to_include([name]))
            for value in self._column(answer, name)
        ]

    def _layout(self) -> Layout:
        import pyarrow as pa

        fields = [
            pa.field("id", pa.int64() if self._integers else pa.string()),
            pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), self.dim)),
            pa.field("document", pa.string()),
            object_field("metadata"),
        ]
        return Layout(pa.schema(fields, metadata=CollectionInfo(self._distance).to_metadata()), VECTOR_COLUMN)

    def _record(self, answer: dict[str, Any]) -> Any:
        import pyarrow as pa

        layout = self._layout()
        columns = [
            pa.array(self._column(answer, "id"), layout.schema.field("id").type),
            pa.array(answer["documents"], pa.string()),
            to_json_column(answer["metadatas"]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(layout.others))

    def _column(self, answer: dict[str, Any], name: str) -> list[Any]:
        if name == "id":
            return [int(each) for each in answer["ids"]] if self._integers else list(answer["ids"])
        if name == "document":
            return list(answer["documents"])
        return [(each or {}).get(name) for each in answer["metadatas"]]

    def _pages(self, numbers: np.ndarray, include: list[str]) -> Iterator[tuple[slice, dict[str, Any]]]:
        """Yield pages of these rows, in their order."""
        page = _PAGE_ROWS if "embeddings" not in include else max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim))
        for part in blocks(len(numbers), page):
            ids = self._ids.take(numbers[part]).to_pylist()
            answer = self._client.call_collection("get", ids=ids, include=include)
            if len(answer["ids"]) < len(ids):
                raise rows_lost_error(self._client.address.redacted)
            yield part, answer if answer["ids"] == ids else _reorder_answer(answer, ids, include)

    def _list_ids(self) -> Any:
        """Return the ids of all rows as an Arrow array."""
        import pyarrow as pa

        parts: list[Any] = []
        done = 0
        while page := self._client.call_collection("get", limit=_IDS_PER_PAGE, offset=done, include=[])["ids"]:
            parts.append(pa.array(page, pa.large_string()))
            done += len(page)
        return pa.concat_arrays(parts)


def _distance(configuration: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return the distance of a collection; older versions of Chroma store it in the metadata."""
    index = configuration.get("hnsw") or configuration.get("spann") or {}
    return _DISTANCES.get(index.get("space") or str(metadata.get("hnsw:space", "")), "euclid")


def _are_integers(ids: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(ids, r"^-?[0-9]{1,19}$")).as_py())


def _fields_to_include(names: Sequence[str]) -> list[str]:
    """Return the kinds of data to request for these columns."""
    documents = ["documents"] if "document" in names else []
    return documents + (["metadatas"] if set(names) - {"id", "document"} else [])


def _reorder_answer(answer: dict[str, Any], ids: list[str], include: list[str]) -> dict[str, Any]:
    at = {each: row for row, each in enumerate(answer["ids"])}
    rows = [at[each] for each in ids]
    return {"ids": ids, **{part: [answer[part][row] for row in rows] for part in include}}


def _concat_records(records: list[Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches(records).combine_chunks().to_batches()[0]


def open_chroma_destination(address: Address) -> ChromaDestination:
    """Open a Chroma collection for writing.

    Parameters
    ----------
    address : Address
        ``chroma:PATH#collection`` or ``chroma:http://host:8000#collection``; the option `distance` is cosine, dot or
        euclid (default: that of the source, or cosine).

    Notes
    -----
    Chroma stores float32. Its ids are strings: integers are written as text, and reading restores them. The column
    ``document`` or ``text`` is written as documents, and the other columns as metadata; objects become JSON.
    """
    check_distance(address, _SPACES)
    _import_chromadb()
    client = ChromaClient(address)
    client.check_address(reading=False)
    return ChromaDestination(client)


class ChromaDestination:
    """A Chroma collection to write to; the first rows create it, because they determine the type of the ids."""

    def __init__(self, client: ChromaClient) -> None:
        self._client, self._where = client, client.address.redacted
        self._about: dict[str, str] = {}
        self._source = CollectionInfo()
        self._exists = client.exists()

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        self._about, self._source = dict(about), CollectionInfo.from_schema(layout and layout.schema)
        if not self._exists:
            return False
        check_resumable(self._metadata().get(NOTE), about, self._where)
        return bool(self._client.call_collection("count"))

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        names = list(map(str, ids.tolist()))
        present: set[str] = set()
        for part in blocks(len(names) if self._exists else 0, _IDS_PER_QUERY):
            present |= set(self._client.call_collection("get", ids=names[part], include=[])["ids"])
        return np.array([each not in present for each in names], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        if not self._exists:
            self._create(batch.columns["ids"].dtype.kind in "iu")
        ids = list(map(str, batch.columns["ids"].tolist()))
        objects = batch_payloads(batch, self._about.get("ids", ""))
        text = next((name for name in ("document", "text") if any(name in each for each in objects)), "")
        documents = [_text(each.pop(text, None)) for each in objects]
        metadatas = [_flatten_metadata(each) or None for each in objects]
        vectors = np.asarray(batch.vectors, np.float32)
        first = {each: row for row, each in reversed(list(enumerate(ids)))}
        rows = sorted(first.values())  # Chroma rejects a request with duplicate ids
        for part in blocks(len(rows), int(self._client.call("get_max_batch_size"))):
            some = rows[part]
            self._client.call_collection(
                "upsert",
                ids=[ids[row] for row in some],
                embeddings=vectors[some],
                documents=[documents[row] for row in some] if any(documents[row] is not None for row in some) else None,
                metadatas=[metadatas[row] for row in some] if any(metadatas[row] for row in some) else None,
            )

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        check_row_count(rows, self._client.call_collection("count"), self._where)
        metadata = {name: value for name, value in self._metadata().items() if name != "hnsw:space"}
        self._client.call_collection("modify", metadata={**metadata, NOTE: format_note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._exists:
            check_ownership(self._metadata().get(NOTE), self._where)
            self._client.delete_collection()
            self._exists = False

    def close(self) -> None:
        """See `Destination`."""
        self._client.close()

    def _create(self, integers: bool) -> None:
        distance = self._client.address.options.get("distance") or self._source.distance or "cosine"
        metadata: dict[str, Any] = {NOTE: format_note(self._about), _INTEGER_IDS: integers}
        self._client.create_collection(
            metadata=metadata, configuration={"hnsw": {"space": _SPACES.get(distance, "l2")}}
        )
        self._exists = True

    def _metadata(self) -> dict[str, Any]:
        return dict(self._client.collection().metadata or {})


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _flatten_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that Chroma's metadata supports: objects and mixed lists become JSON, and None is dropped."""
    metadata: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) or (isinstance(value, list) and not (value and len(set(map(type, value))) == 1)):
            value = json.dumps(value, ensure_ascii=False)
        if value is not None:
            metadata[name] = value
    return metadata
