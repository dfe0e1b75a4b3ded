"""Code that all databases share, for clients, row counts, notes, retries and payloads."""

from __future__ import annotations

import difflib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from isoscope._core.errors import (
    DatabaseError,
    InputError,
    MissingValueError,
    NotFoundError,
    OutputError,
    ParameterError,
    TooFewRowsError,
    warn_data,
)
from isoscope._core.missing import DROP_HINT
from isoscope._io.files import expand_user

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.table_schema import Layout

T = TypeVar("T")

_READERS = {
    "postgresql": ("postgres_read", "open_postgres"),
    "qdrant": ("qdrant", "open_qdrant"),
    "lancedb": ("lance", "open_lance"),
    "chroma": ("chroma", "open_chroma"),
    "duckdb": ("duckdb", "open_duckdb"),
    "milvus": ("milvus", "open_milvus"),
}
_WRITERS = {
    "postgresql": ("postgres_write", "open_postgres_destination"),
    "qdrant": ("qdrant", "open_qdrant_destination"),
    "lancedb": ("lance", "open_lance_destination"),
    "chroma": ("chroma", "open_chroma_destination"),
    "duckdb": ("duckdb", "open_duckdb_destination"),
    "milvus": ("milvus", "open_milvus_destination"),
}
_MAX_NAMES = 12  # maximum number of names in an error message

NOTE = "isoscope"
"""The key of isoscope's note in the metadata of a collection."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds to wait before each further attempt."""


def open_database(address: Address, wanted: ColumnSpec) -> Store:
    """Open the store at an address."""
    store: Store = _load(_READERS, address)(address, wanted)
    return store


def open_destination(address: Address) -> Destination:
    """Open an address for writing."""
    destination: Destination = _load(_WRITERS, address)(address)
    return destination


def _load(table: Mapping[str, tuple[str, str]], address: Address) -> Callable[..., Any]:
    module, name = table[address.kind]
    function: Callable[..., Any] = getattr(import_module(f"isoscope.stores.databases.{module}"), name)
    return function


class Destination(Protocol):
    """A table or collection to which rows are written by id; writing the same row again changes nothing."""

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """Create the table or collection if needed; return whether an earlier run with the same `about` wrote rows.

        `about["ids"]` is the name of the id column, or empty if the source has no ids. Raises an `OutputError`, before
        changing anything, if the destination has another origin or was not created by isoscope.
        """

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """Return a boolean mask of the ids that the destination does not contain yet."""

    def write(self, batch: Batch) -> None:
        """Write the rows of a batch under `columns["ids"]`, with its other columns; return when they are on disk."""

    def finish(self, rows: int) -> None:
        """Record that all rows are written."""

    def clear(self) -> None:
        """Delete the rows of an earlier run; raise an `OutputError` if isoscope did not create the destination."""

    def close(self) -> None:
        """Close the connection."""


class Client(ABC):
    """A client for one collection that connects on first use, retries lost connections and raises one-line errors.

    A subclass connects, lists collections, and specifies the errors of its driver.
    """

    product: str
    """The database's name in messages."""
    server_form: str
    """The form of a server's address, for messages."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: Any = None
        self._has_answered = False  # requests to a server that never answered are not retried

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @property
    def is_remote(self) -> bool:
        """Whether the database is a server, not a folder."""
        return "://" in self.address.place

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the driver's client, and return the result."""
        return self._retry(lambda: getattr(self._connected(), method)(**arguments))

    @abstractmethod
    def call_collection(self, method: str, **arguments: Any) -> Any:
        """Call a method of the driver's client for this collection, and return the result."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all collections."""

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def _is_own_folder(self, path: Path) -> bool: ...

    @abstractmethod
    def _driver_errors(self) -> tuple[type[Exception], ...]: ...

    @abstractmethod
    def _is_transient(self, error: Exception) -> bool:
        """Return whether a lost connection caused the error, so that another attempt may succeed."""

    @abstractmethod
    def _explain(self, error: Exception, reason: str) -> str:
        """Return an explanation of an error with advice, or an empty string if the error is unknown."""

    def check_address(self, *, reading: bool) -> None:
        """Raise an error unless the folder belongs to this database and the address contains a collection name."""
        if not self.is_remote:
            check_folder(self.address, self._is_own_folder, self.product, self.server_form, reading=reading)
        if not self.address.collection:
            raise unnamed_error(self.address, self.names())

    def exists(self) -> bool:
        """Return whether the collection exists."""
        return self.address.collection in self.names()

    def require_collection(self) -> None:
        """Raise a `NotFoundError` that suggests similar names if the collection does not exist."""
        if not self.exists():
            raise not_found_error(self.address, self.names())

    def close(self) -> None:
        """Release the driver's client."""
        self._client = None

    def _errors(self) -> tuple[type[Exception], ...]:
        return (*self._driver_errors(), OSError, ValueError, RuntimeError)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _retry(self, attempt: Callable[[], T]) -> T:
        try:
            answer = retry(attempt, lambda error: self._has_answered and self._is_transient(error))
            self._has_answered = True
            return answer
        except InputError:
            raise
        except Exception as error:
            if not isinstance(error, self._errors()) and type(error) is not Exception:  # Chroma raises it for a proxy
                raise
            reason = self.address.redact(str(error))[:200] or type(error).__name__
            advice = self._explain(error, reason) or f"{reason}; check the address and the collection"
        # not chained: the driver's message may contain a password
        raise DatabaseError(f"{self.address.redacted}: {advice}")


def check_folder(
    address: Address, is_own: Callable[[Path], bool], product: str, server_form: str = "", *, reading: bool
) -> None:
    """Raise an error if a path is not, and cannot become, a folder of this database; drivers accept any folder."""
    path = expand_user(address.place)
    is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if is_own(path) or (is_free and not reading):
        return
    what = f"is not a {product} folder" if path.exists() else "does not exist"
    server = f", or a server: {server_form}" if server_form else ""
    raise NotFoundError(f"{address.redacted}: {path} {what}: pass the path of a {product} folder{server}")


def unnamed_error(address: Address, names: Sequence[str], what: str = "collection") -> ParameterError:
    """Return the error for an address without a collection name."""
    known = f"; it contains {', '.join(names[:_MAX_NAMES])}" if names else ""
    return ParameterError(f"{address.redacted} does not specify a {what}: use {address.redacted}#NAME{known}")


def not_found_error(address: Address, names: Iterable[str]) -> NotFoundError:
    """Return the error for a collection that does not exist."""
    return NotFoundError(f"{address.redacted} does not exist: {suggest_names(address.collection, names)}")


def rows_lost_error(where: str) -> DatabaseError:
    """Return the error for rows that disappeared after the store was opened."""
    return DatabaseError(f"{where} lost rows while it was being read: run again when it no longer changes")


def count_usable_rows(
    address: Address, total: int, problems: Mapping[str, int] | None = None, first: Callable[[], object] | None = None
) -> int:
    """Return the number of rows with a usable vector.

    Parameters
    ----------
    address : Address
        With ``missing=drop``, rows without a usable vector are dropped with a warning; otherwise they raise an error.
    total : int
        The total number of rows.
    problems : mapping, optional
        The number of rows with each problem, such as ``{"no embedding": 2}``.
    first : function, optional
        A function that returns the first row with a problem, such as ``"id 7"``.
    """
    where = address.redacted
    if not total:
        raise TooFewRowsError(f"{where} has no rows: need at least one vector")
    problems = {what: count for what, count in (problems or {}).items() if count}
    usable = total - sum(problems.values())
    if usable == total:
        return usable
    what = " and ".join(f"{count:,} with {each}" for each, count in problems.items())
    verb = "has" if total - usable == 1 else "have"
    found = f"{where}: {total - usable:,} of {total:,} rows {verb} no usable vector ({what})"
    at = f"; the first is {first()}" if first and (not usable or address.options.get("missing") != "drop") else ""
    if not usable:
        raise MissingValueError(f"{found}{at}: need at least one vector")
    if address.options.get("missing") == "drop":
        warn_data(f"{found}; such rows are dropped")
        return usable
    raise MissingValueError(f"{found}{at}: add the vectors, or {DROP_HINT}, or with missing=drop in the address")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Return a hint for a name that does not exist: similar names, or the existing names."""
    names = sorted(names)
    if similar := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(similar)}?"
    if not names:
        return "none exist yet"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"choose from {', '.join(names[:_MAX_NAMES])}{more}"


def check_options(options: Mapping[str, str], known: Sequence[str], where: str) -> None:
    """Raise an error if an address has an unknown option."""
    for name in options:
        if name not in known:
            allowed = f"choose from {', '.join(known)}" if known else "no options are allowed here"
            raise ParameterError(f"{where}: unknown option {name}: {allowed}")


def check_distance(address: Address, known: Iterable[str]) -> None:
    """Raise an error if an address has a `distance` option that is not a known distance."""
    check_options(address.options, ["distance"], address.redacted)
    known = list(known)
    if address.options.get("distance", known[0]) not in known:
        raise ParameterError(
            f"{address.redacted}: distance={address.options['distance']} is unknown: choose from {', '.join(known)}"
        )


# notes: the origin of a collection, and whether it is complete


def format_note(about: Mapping[str, str], rows: int | None = None) -> str:
    """Return the note for a collection: its origin, and the number of rows if all rows are written.

    Examples
    --------
    >>> format_note({"source": "docs.npy"}, rows=100)
    '{"about": {"source": "docs.npy"}, "rows": 100}'
    """
    return json.dumps({"about": dict(about), "rows": rows}, sort_keys=True)


_DIFFERENCES = {
    "source": "another source",
    "files": "files that have changed since",
    "vectors": "other vectors",
    "columns": "other columns",
    "ids": "other ids",
    "repair": "another repair",
    "version": "another version of isoscope",
}


def check_resumable(note: str | None, about: Mapping[str, str], where: str) -> None:
    """Raise an `OutputError` if a collection has a different origin than this run."""
    check_ownership(note, where)
    earlier = _parse_note(note)[0]
    names = [name for name in {**earlier, **about} if earlier.get(name) != about.get(name)]
    if names:
        raise OutputError(
            f"{where} was written by an earlier run that used {' and '.join(_DIFFERENCES.get(n, n) for n in names)}: "
            "choose another target, or replace it with restart=True (CLI: --restart)"
        )


def check_ownership(note: str | None, where: str) -> None:
    """Raise an `OutputError` for a collection that isoscope did not create."""
    if not note:
        raise OutputError(f"{where} exists and was not created by isoscope: nothing was changed; choose another name")


def warn_if_unfinished(note: str | None, where: str) -> None:
    """Warn if a collection is incomplete."""
    if note and _parse_note(note)[1] is None:
        warn_data(f"{where} is incomplete: rerun the command that wrote it")


def check_row_count(written: int, found: int, where: str) -> None:
    """Raise an error if a collection has fewer rows than were written, because some rows shared an id."""
    if found < written:
        raise OutputError(
            f"{where} has {found} rows although {written} were written, so some rows share an id: use unique ids, or "
            "omit the ids to have the rows numbered automatically"
        )


def _parse_note(note: str | None) -> tuple[dict[str, str], int | None]:
    """Return the origin of a collection, and its number of rows if it is complete."""
    try:
        content = json.loads(note or "")
        return dict(content["about"]), content["rows"]
    except (ValueError, LookupError, TypeError):
        return {}, None


def retry(attempt: Callable[[], T], is_transient: Callable[[Exception], bool]) -> T:
    """Return the result of an attempt; repeat it up to `len(PAUSES)` times while it fails with transient errors.

    Parameters
    ----------
    attempt : function
        A request to the database; repeating it must be harmless.
    is_transient : function
        A function that returns whether an error may be temporary, such as a lost connection but not a wrong password.

    Examples
    --------
    >>> answers = iter([ConnectionError("gone"), 7])
    >>> def ask():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> retry(ask, lambda error: isinstance(error, ConnectionError))
    7
    """
    for pause in PAUSES:
        try:
            return attempt()
        except Exception as error:
            if not is_transient(error):
                raise
            time.sleep(pause)
    return attempt()


# payloads: other columns as JSON objects, and the properties of the collection they come from

_KIND, _OBJECTS = b"isoscope:kind", b"objects"


class CollectionInfo(NamedTuple):
    """Properties of a collection that are stored in the Arrow schema of its rows."""

    distance: str = ""
    """The distance: cosine, dot, euclid or manhattan; empty if unknown."""
    vector_name: str = ""
    """The name of the vectors; empty if they have no name."""
    ids_from: str = ""
    """The kind of database that the ids come from; empty if none."""

    def to_metadata(self) -> dict[bytes, bytes]:
        """Return the metadata for a schema."""
        return {key: value.encode() for key, value in zip(_INFO_KEYS, self, strict=True) if value}

    @classmethod
    def from_schema(cls, schema: Any) -> CollectionInfo:
        """Return the properties in the metadata of a schema; if the schema is None, all properties are empty."""
        metadata = getattr(schema, "metadata", None) or {}
        return cls(*(metadata.get(key, b"").decode() for key in _INFO_KEYS))


_INFO_KEYS = (b"isoscope:distance", b"isoscope:vectors", b"isoscope:ids")


def object_field(name: str) -> Any:
    """Return the Arrow field for a column of objects stored as JSON."""
    import pyarrow as pa

    return pa.field(name, pa.string(), metadata={_KIND: _OBJECTS})


def to_json_column(objects: Sequence[Mapping[str, Any] | None]) -> Any:
    """Return objects as an Arrow column of JSON; None becomes null."""
    import pyarrow as pa

    return pa.array([None if each is None else json.dumps(each, ensure_ascii=False) for each in objects], pa.string())


def holds_ids(batch: Batch, name: str) -> bool:
    """Return whether the column of this name contains exactly the ids of a batch."""
    names = batch.other_columns.schema.names if batch.other_columns is not None else []
    return name in names and batch.other_columns.column(name).to_pylist() == batch.columns["ids"].tolist()


def batch_payloads(batch: Batch, ids: str = "") -> list[dict[str, Any]]:
    """Return the other columns of each row as a JSON object, without nulls and without the id.

    Columns of objects are merged into the payload, so a payload that was read is written unchanged. `ids` is the name
    of the id column, which is not repeated.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores.store import Batch
    >>> rows = Batch(0, np.eye(2), {"ids": np.array([7, 8]), "text": np.array(["east", "north"], object)}, 1.0)
    >>> batch_payloads(rows)
    [{'text': 'east'}, {'text': 'north'}]
    """
    payloads: list[dict[str, Any]] = [{} for _ in range(len(batch.vectors))]
    for name, values in batch.columns.items():
        if name != "ids":
            for payload, value in zip(payloads, values, strict=True):
                payload[name] = to_json_value(value)
    if batch.other_columns is None:
        return payloads
    skipped = {ids} if holds_ids(batch, ids) else set()
    for field in batch.other_columns.schema:
        if field.name in skipped:
            continue
        holds_objects = (field.metadata or {}).get(_KIND) == _OBJECTS
        for payload, value in zip(payloads, batch.other_columns.column(field.name).to_pylist(), strict=True):
            if value is None:
                continue
            if holds_objects:
                payload.update(json.loads(value))
            else:
                payload[field.name] = to_json_value(value)
    return payloads


def scalar_fields(objects: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Return the names of fields that never contain a list or an object, in order of appearance."""
    names: dict[str, bool] = {}
    for each in objects:
        for name, value in (each or {}).items():
            names[name] = names.get(name, True) and (value is None or isinstance(value, str | int | float))
    return [name for name, is_scalar in names.items() if is_scalar]


def to_json_value(value: Any) -> Any:
    """Return a value that JSON can represent: dates and decimals become text, NaN and infinity become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {str(name): to_json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [to_json_value(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
