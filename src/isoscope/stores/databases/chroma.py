"""Chroma: collections as stores, and writing to them."""

from __future__ import annotations

import json
import os
import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.databases.base import (
    NOTE,
    batch_payloads,
    can_resume,
    check_options,
    check_ownership,
    check_row_count,
    collection_metadata,
    format_note,
    object_field,
    read_distance,
    read_index_settings,
    retry,
    scalar_fields,
    suggest_names,
    to_json_column,
    warn_if_unfinished,
)
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import VECTOR_COLUMN, Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout


_WAIT = 5.0  # seconds for a folder that another process is just writing to


@dataclass
class ChromaCollection:
    """The client of an address, made when it is first needed."""

    address: Address
    _client: Any = field(default=None, repr=False)
    _collection: Any = field(default=None, repr=False)
    _has_answered: bool = field(default=False, repr=False)  # who never answered is not waited for

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_collection": None}

    @property
    def is_remote(self) -> bool:
        """Whether it is on a server."""
        return "://" in self.address.place

    def ask(self, question: str, **said: Any) -> Any:
        """The answer of the client's method of this name."""
        return self._retry(lambda: getattr(self._connected(), question)(**said))

    def collection(self, question: str, **said: Any) -> Any:
        """The answer of the collection's method of this name."""
        return self._retry(lambda: getattr(self._opened(), question)(**said))

    def found(self) -> Any:
        """The collection; None if there is none of the name."""
        if not self.address.collection:
            known = ", ".join(self.names()[:12])
            has = f"; it has {known}" if known else ""
            raise InputError(f"{self.address.shown} says no collection: need {self.address.shown}#NAME{has}")
        return self._retry(self._opened) if self.address.collection in self.names() else None

    def names(self) -> list[str]:
        """The collections that are there."""
        found: list[str] = []
        while page := self.ask("list_collections", limit=1000, offset=len(found)):
            found += [each.name for each in page]
        return found

    def made(self, **said: Any) -> None:
        """Make the collection."""
        self.ask("create_collection", name=self.address.collection, embedding_function=None, **said)

    def delete_collection(self) -> None:
        """Delete the collection."""
        self.ask("delete_collection", name=self.address.collection)
        self._collection = None

    def check_folder(self, *, reading: bool) -> None:
        """Refuse a path that is not Chroma's, which its client would make one of."""
        import_chromadb()
        if self.is_remote:
            return
        path = Path(self.address.place).expanduser()
        file = path / "chroma.sqlite3"
        right = not reading and (not path.exists() or (path.is_dir() and not any(path.iterdir())))
        if file.is_file():
            right = self._is_chroma_database(file)
        if not right:
            there = "is not a folder of Chroma's" if path.exists() else "does not exist"
            raise InputError(f"{self.address.shown}: {path} {there}: need one, or chroma:http://host:8000#collection")

    def _is_chroma_database(self, file: Path) -> bool:
        """Whether a file has the table of collections; one that is locked is said, as Chroma would wait for ever."""
        try:
            with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", timeout=_WAIT, uri=True)) as connection:
                connection.execute("SELECT count(*) FROM collections").fetchone()
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise InputError(
                    f"{self.address.shown} is locked by another process: end that, or run Chroma as a server"
                ) from error
            return False
        return True

    def require_collection(self) -> Any:
        """The collection, or an `InputError` with the names that it may be."""
        found = self.found()
        if found is None:
            raise InputError(
                f"{self.address.shown} does not exist: {suggest_names(self.address.collection, self.names())}"
            )
        return found

    def close(self) -> None:
        """Let go of it."""
        self._client = self._collection = None

    def _connected(self) -> Any:
        if self._client is None:
            self._client = _connect_server(self.address) if self.is_remote else _open_folder(self.address)
        return self._client

    def _opened(self) -> Any:
        if self._collection is None:
            client = self._connected()
            self._collection = client.get_collection(self.address.collection, embedding_function=None)
        return self._collection

    def _retry(self, attempt: Any) -> Any:
        import httpx
        from chromadb.errors import ChromaError

        def passes(error: Exception) -> bool:
            return self._has_answered and (isinstance(error, httpx.TransportError) or _is_unreachable(error))

        try:
            answer = retry(attempt, passes)
            self._has_answered = True
            return answer
        except (ChromaError, httpx.HTTPError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(self._failure(error)) from error

    def _failure(self, error: Exception) -> str:
        where, why = self.address.shown, self.address.redact(str(error))[:200] or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or type(error).__name__ == "ChromaAuthError":
            return f"{where}: the server does not let you in: give user and password, http://user:password@host:8000"
        if "different settings" in why:
            return f"{where} is open in this program with other settings: open it here first, or with Chroma's own"
        if _is_unreachable(error):
            return f"{where} cannot be reached: is the server up? The same command goes on when it is"
        if self.is_remote and (status is None or status >= 500) and not hasattr(error, "code"):
            return f"{where} cannot be reached: {why}; is the server up? The same command goes on when it is"
        return f"{where}: {why}; look at the address and the collection"


def import_chromadb() -> Any:
    """Chroma's package."""
    try:
        import chromadb
    except ImportError as error:
        raise MissingExtra('chromadb is not installed: pip install "isoscope[chroma]"') from error
    return chromadb


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, ValueError) and "Could not connect" in str(error)


def _connect_server(address: Address) -> Any:
    from chromadb.config import Settings

    url = urlsplit(address.place)
    headers = {}
    if url.username:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Authorization"] = "Basic " + b64encode(pair.encode()).decode()
    return import_chromadb().HttpClient(
        host=url.hostname or "localhost",
        port=url.port or (443 if url.scheme == "https" else 8000),
        ssl=url.scheme == "https",
        headers=headers,
        settings=Settings(anonymized_telemetry=False),
    )


def _open_folder(address: Address) -> Any:
    from chromadb.config import Settings

    path = os.fspath(Path(address.place).expanduser())
    try:
        return import_chromadb().PersistentClient(path, settings=Settings(anonymized_telemetry=False))
    except ValueError as error:
        if "different settings" not in str(error):
            raise
        return import_chromadb().PersistentClient(path)  # the program has it open already, as it chose to


INTEGER_IDS_KEY = "isoscope_ids"
"""Where the metadata of a collection says that its ids were whole numbers: Chroma holds strings alone."""
SPACES = {"cosine": "cosine", "ip": "dot", "l2": "euclid"}
"""What Chroma calls the distances."""

_PAGE_NUMBERS, _PAGE_ROWS = 2**18, 2000  # in an answer
_IDS_PER_PAGE = 20_000  # ids in an answer
_SAMPLE = 256  # rows whose metadata say what fields there are


def open_chroma(address: Address, wanted: ColumnSpec) -> Store:
    """A collection of Chroma; its documents are the text, the fields of its metadata columns.

    Parameters
    ----------
    address : Address
        ``chroma:PATH#collection`` or ``chroma:http://host:8000#collection``.
    wanted : Wanted
        Which fields of the metadata are labels, types, …

    Notes
    -----
    The ids of all rows are kept in memory. Chroma itself holds the index in memory, and gives the vectors of a cosine
    collection back with a rounding error of float32, as it keeps direction and length apart.
    """
    check_options(address.options, ["missing"], address.shown)  # Chroma has no row without a vector
    chroma = ChromaCollection(address)
    chroma.check_folder(reading=True)
    return ChromaStore(chroma, wanted)


class ChromaStore(Store):
    """Rows that are asked for by their ids: to ask by their numbers takes longer the further they are behind."""

    def __init__(self, chroma: ChromaCollection, wanted: ColumnSpec) -> None:
        where = chroma.address.shown
        collection = chroma.require_collection()
        choose_vectors([VECTOR_COLUMN], wanted, where)
        metadata = collection.metadata or {}
        warn_if_unfinished(metadata.get(NOTE), where)
        self._chroma, self._integers = chroma, bool(metadata.get(INTEGER_IDS_KEY))
        self._configuration = collection.configuration_json or {}
        self._old_space = str(metadata.get("hnsw:space", ""))
        sample = chroma.collection("get", limit=_SAMPLE, include=["embeddings", "documents", "metadatas"])
        if not len(sample["ids"]):
            raise InputError(f"{where} has no rows: need at least one vector")
        self._ids = self._list_ids()
        self._integers = self._integers and _are_integers(self._ids)  # others may have added theirs
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
        found = np.empty((len(indices), self.dim), self.dtype)
        for part, answer in self._pages(indices, ["embeddings"]):
            found[part] = answer["embeddings"]
        return found

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
        hnsw = {name: value for name, value in (self._configuration.get("hnsw") or {}).items() if value is not None}
        space = hnsw.get("space") or (self._configuration.get("spann") or {}).get("space") or self._old_space
        kept = collection_metadata(SPACES.get(space, "euclid"), settings=json.dumps(hnsw) if hnsw else "")
        return Layout(pa.schema(fields, metadata=kept), VECTOR_COLUMN)

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
        """What the collection has of these rows, some at a time, in their order."""
        page = _PAGE_ROWS if "embeddings" not in include else max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim))
        for part in blocks(len(numbers), page):
            ids = self._ids.take(numbers[part]).to_pylist()
            answer = self._chroma.collection("get", ids=ids, include=include)
            if len(answer["ids"]) < len(ids):
                raise InputError(f"{self._chroma.address.shown} has lost rows since it was opened: open it again")
            yield part, answer if answer["ids"] == ids else _reorder_answer(answer, ids, include)

    def _list_ids(self) -> Any:
        """The ids of all rows, as Arrow holds strings."""
        import pyarrow as pa

        parts: list[Any] = []
        done = 0
        while found := self._chroma.collection("get", limit=_IDS_PER_PAGE, offset=done, include=[])["ids"]:
            parts.append(pa.array(found, pa.large_string()))
            done += len(found)
        return pa.concat_arrays(parts)


def _are_integers(ids: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(ids, r"^-?[0-9]{1,19}$")).as_py())


def _fields_to_include(names: Sequence[str]) -> list[str]:
    """What holds these columns."""
    documents = ["documents"] if "document" in names else []
    return documents + (["metadatas"] if set(names) - {"id", "document"} else [])


def _reorder_answer(answer: dict[str, Any], ids: list[str], include: list[str]) -> dict[str, Any]:
    at = {each: row for row, each in enumerate(answer["ids"])}
    rows = [at[each] for each in ids]
    return {"ids": ids, **{part: [answer[part][row] for row in rows] for part in include}}


def _concat_records(records: list[Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches(records).combine_chunks().to_batches()[0]


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
