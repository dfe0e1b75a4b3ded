"""Read Milvus Lite collections as stores, and write to them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import MissingExtra, NotFoundError, ParameterError
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
    to_json_value,
    warn_if_unfinished,
)
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch

_ENDING = ".db"  # the extension by which Milvus recognizes Milvus Lite
_METRICS = {"cosine": "COSINE", "dot": "IP", "euclid": "L2"}
_KEY, _VECTOR, _PAYLOAD = "id", "vector", "payload"
_LONGEST_ID = 65_535  # bytes; the maximum of Milvus
_PAGE_NUMBERS, _PAGE_ROWS = 2**20, 1000  # numbers and rows per request
_IDS_PER_PAGE = 10_000
_SAMPLE = 256  # rows that are searched for fields


class MilvusClient(Client):
    """A client for a collection of Milvus Lite."""

    product = "Milvus Lite"
    server_form = ""

    def call_collection(self, method: str, **arguments: Any) -> Any:
        """See `Client`."""
        return self.call(method, collection_name=self.address.collection, **arguments)

    def names(self) -> list[str]:
        """See `Client`."""
        return sorted(self.call("list_collections"))

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.call_collection("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    def note(self) -> str | None:
        """Return isoscope's note."""
        note: str | None = self.call_collection("describe_collection").get("properties", {}).get(NOTE)
        return note

    def list_ids(self, key: str) -> list[Any]:
        """Return the ids of all rows, in the order of the database."""

        def read() -> list[Any]:
            pages = self._connected().query_iterator(
                self.address.collection, batch_size=_IDS_PER_PAGE, output_fields=[key]
            )
            ids: list[Any] = []
            while page := pages.next():
                ids += [row[key] for row in page]
            pages.close()
            return ids

        return self._retry(read)

    def close(self) -> None:
        """See `Client`."""
        if self._client is not None:
            self._client.close()
        super().close()

    def _connect(self) -> Any:
        import pymilvus

        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it also logs the errors that it raises
        client = pymilvus.MilvusClient(str(expand_user(self.address.place)))
        if self.address.collection and client.has_collection(self.address.collection):
            client.load_collection(self.address.collection)  # it is not loaded if its writer was killed
        return client

    def _is_own_folder(self, path: Path) -> bool:
        return path.suffix == _ENDING and (path.is_file() or (path / "collections").is_dir())

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        from pymilvus.exceptions import MilvusException

        return (MilvusException,)

    def _is_transient(self, error: Exception) -> bool:
        return False

    def _explain(self, error: Exception, reason: str) -> str:
        if "lock" in reason.lower() or "Open local milvus failed" in reason:
            return f"{reason}; another process may have opened the database: stop that process"
        return ""


def _open_client(address: Address, *, reading: bool) -> MilvusClient:
    if "://" in address.place:
        raise ParameterError(
            f"{address.redacted}: Milvus servers are not supported: read the vectors with client.query_iterator(), "
            "save them as a .parquet file, and pass that file"
        )
    if not address.place.endswith(_ENDING):
        raise NotFoundError(f"{address.redacted}: the name of a Milvus Lite database ends in {_ENDING}")
    try:
        import milvus_lite  # noqa: F401
        import pymilvus  # noqa: F401
    except ImportError as error:
        raise MissingExtra('milvus-lite is not installed: pip install "isoscope[milvus]"') from error
    client = MilvusClient(address)
    client.check_address(reading=reading)
    return client


def open_milvus(address: Address, wanted: ColumnSpec) -> Store:
    """Open a collection of Milvus Lite as a store; its scalar fields are columns.

    Parameters
    ----------
    address : Address
        ``milvus:FILE.db#collection``.
    wanted : ColumnSpec
        The fields to use as vectors, labels, text, …

    Notes
    -----
    The store keeps all ids in memory and reads rows by id.
    """
    check_options(address.options, ["missing"], address.redacted)  # in Milvus, every row has a vector
    client = _open_client(address, reading=True)
    client.require_collection()
    return MilvusStore(client, wanted)


class MilvusStore(Store):
    """The rows of a collection, read by id."""

    def __init__(self, client: MilvusClient, wanted: ColumnSpec) -> None:
        from pymilvus import DataType

        where = client.address.redacted
        warn_if_unfinished(client.note(), where)
        fields = client.call_collection("describe_collection")["fields"]
        dims = {each["name"]: each["params"]["dim"] for each in fields if each["type"] == DataType.FLOAT_VECTOR}
        self._client = client
        self._key: str = next(each["name"] for each in fields if each.get("is_primary"))
        self._vector = choose_vectors([*dims], wanted, where, others=[each["name"] for each in fields])
        self._hidden_fields = {self._key, *(each["name"] for each in fields if "VECTOR" in each["type"].name)}
        index = client.call_collection("describe_index", index_name=self._vector) or {}
        self._distance = {metric: name for name, metric in _METRICS.items()}.get(index.get("metric_type", ""), "")
        count_usable_rows(client.address, client.count())
        self._ids = np.array(client.list_ids(self._key))
        sample = self._rows(self._ids[:_SAMPLE], ["*"])
        scalars = scalar_fields([self._payload(row) for row in sample])
        available = [self._key, *(name for name in scalars if name != self._key)]
        if wanted.roles.get("ids") is None:
            wanted = type(wanted)(wanted.vectors, {**wanted.roles, "ids": self._key})
        super().__init__(where, int(dims[self._vector]), np.float32, choose_columns(available, wanted, where))

    def __len__(self) -> int:
        return len(self._ids)

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        fields = ["*"] if other_columns else [self._vector, *names]
        for block in blocks(len(self) - start, rows):
            found = [
                row
                for part in self._parts(slice(start + block.start, start + block.stop))
                for row in self._rows(self._ids[part], fields)
            ]
            vectors = np.array([row[self._vector] for row in found], np.float32)
            values = {name: [row.get(name) for row in found] for name in names}
            share = (start + block.stop) / len(self)
            yield Piece(vectors, values, share, self._record(found) if other_columns else None)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(indices), self.dim), self.dtype)
        for part in self._parts(slice(0, len(indices))):
            vectors[part] = [row[self._vector] for row in self._rows(self._ids[indices[part]], [self._vector])]
        return vectors

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        ids = self._ids if indices is None else self._ids[indices]
        if name == self._key:
            return ids
        parts = (self._rows(ids[part], [name]) for part in blocks(len(ids), _PAGE_ROWS))
        return [row.get(name) for rows in parts for row in rows]

    def _layout(self) -> Layout:
        import pyarrow as pa

        fields = [
            pa.field(self._key, pa.int64() if self._ids.dtype.kind == "i" else pa.string()),
            pa.field(self._vector, pa.list_(pa.float32(), self.dim)),
            object_field(_PAYLOAD),
        ]
        return Layout(pa.schema(fields, metadata=CollectionInfo(self._distance).to_metadata()), self._vector)

    def _record(self, rows: list[dict[str, Any]]) -> Any:
        import pyarrow as pa

        others = self._layout().others
        columns = [
            pa.array([row[self._key] for row in rows], others[0].type),
            to_json_column([self._payload(row) for row in rows]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(others))

    def _payload(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: to_json_value(value) for name, value in row.items() if name not in self._hidden_fields}

    def _parts(self, rows: slice) -> Iterator[slice]:
        """Yield the parts of a range of rows that fit into one request."""
        for part in blocks(rows.stop - rows.start, max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim))):
            yield slice(rows.start + part.start, rows.start + part.stop)

    def _rows(self, ids: np.ndarray, fields: list[str]) -> list[dict[str, Any]]:
        """Return the rows with these ids, in this order."""
        names = list(dict.fromkeys([self._key, *fields])) if fields != ["*"] else fields
        found = {
            row[self._key]: row
            for part in blocks(len(ids), _PAGE_ROWS)
            for row in self._client.call_collection("get", ids=ids[part].tolist(), output_fields=names)
        }
        if len(found) < len(ids):
            raise rows_lost_error(self._client.address.redacted)
        return [found[each] for each in ids.tolist()]


def open_milvus_destination(address: Address) -> MilvusDestination:
    """Open a collection of Milvus Lite for writing.

    Parameters
    ----------
    address : Address
        ``milvus:FILE.db#collection``; the option `distance` is cosine, dot or euclid (default: that of the source, or
        cosine).

    Notes
    -----
    Milvus stores float32. Ids are integers or text. The other columns are written as dynamic fields.
    """
    check_distance(address, _METRICS)
    return MilvusDestination(_open_client(address, reading=False))


class MilvusDestination:
    """A collection to write to; the first rows create it, because they determine the type of the ids."""

    def __init__(self, client: MilvusClient) -> None:
        self._client, self._where = client, client.address.redacted
        self._about: dict[str, str] = {}
        self._source = CollectionInfo()
        self._exists = client.exists()

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        self._about, self._source = dict(about), CollectionInfo.from_schema(layout and layout.schema)
        if not self._exists:
            return False
        check_resumable(self._client.note(), about, self._where)
        return bool(self._client.count())

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        present: set[Any] = set()
        for part in blocks(len(ids) if self._exists else 0, _PAGE_ROWS):
            rows = self._client.call_collection("get", ids=ids[part].tolist(), output_fields=[_KEY])
            present |= {row[_KEY] for row in rows}
        return np.array([each not in present for each in ids.tolist()], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        ids, dim = batch.columns["ids"].tolist(), batch.vectors.shape[1]
        if not self._exists:
            self._create(batch.columns["ids"].dtype.kind in "iu", dim)
        payloads = batch_payloads(batch, self._about.get("ids", ""))
        vectors = np.asarray(batch.vectors, np.float32)
        rows = [
            {
                **{f"{name}_" if name in (_KEY, _VECTOR) else name: value for name, value in payload.items()},
                _KEY: each,
                _VECTOR: vector,
            }
            for payload, each, vector in zip(payloads, ids, vectors.tolist(), strict=True)
        ]
        unique = [*{row[_KEY]: row for row in reversed(rows)}.values()][::-1]  # the first row with each id
        for part in blocks(len(unique), max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // dim))):
            self._client.call_collection("upsert", data=unique[part])

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        check_row_count(rows, self._client.count(), self._where)
        self._client.call_collection("alter_collection_properties", properties={NOTE: format_note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._exists:
            check_ownership(self._client.note(), self._where)
            self._client.call_collection("drop_collection")
            self._exists = False

    def close(self) -> None:
        """See `Destination`."""
        self._client.close()

    def _create(self, integers: bool, dim: int) -> None:
        from pymilvus import DataType

        distance = self._client.address.options.get("distance") or self._source.distance or "cosine"
        schema = self._client.call("create_schema", auto_id=False, enable_dynamic_field=True)
        kind = {"datatype": DataType.INT64} if integers else {"datatype": DataType.VARCHAR, "max_length": _LONGEST_ID}
        schema.add_field(_KEY, is_primary=True, **kind)
        schema.add_field(_VECTOR, DataType.FLOAT_VECTOR, dim=dim)
        index = self._client.call("prepare_index_params")
        index.add_index(_VECTOR, index_type="FLAT", metric_type=_METRICS.get(distance, "L2"))
        note = {NOTE: format_note(self._about)}
        self._client.call_collection("create_collection", schema=schema, index_params=index, properties=note)
        self._exists = True
