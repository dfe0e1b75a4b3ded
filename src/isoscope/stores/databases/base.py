"""What all databases share: opening, writing rows by id, notes on unfinished writes, retries and payloads."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from isoscope._core.errors import InputError, warn_data

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.table_schema import Layout


_PACKAGE = "isoscope.stores.databases"
_READS = {
    "postgresql": ("postgres_read", "open_postgres"),
    "qdrant": ("qdrant", "open_qdrant"),
    "lancedb": ("lance", "open_lance"),
    "chroma": ("chroma", "open_chroma"),
}
_WRITES = {
    "postgresql": ("postgres_write", "open_postgres_destination"),
    "qdrant": ("qdrant", "open_qdrant_destination"),
    "lancedb": ("lance", "open_lance_destination"),
    "chroma": ("chroma", "open_chroma_destination"),
}


def open_database(address: Address, wanted: ColumnSpec) -> Store:
    """The store that an address leads to."""
    module, name = _READS[address.kind]
    store: Store = getattr(import_module(f"{_PACKAGE}.{module}"), name)(address, wanted)
    return store


def open_destination(address: Address) -> Destination:
    """The place to write to that an address leads to."""
    module, name = _WRITES[address.kind]
    destination: Destination = getattr(import_module(f"{_PACKAGE}.{module}"), name)(address)
    return destination


class Destination(Protocol):
    """A place in a database that rows are written to by their ids; to write a row twice is to write it once."""

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """Make what is missing; whether rows of an earlier run with the same `about` are there to go on with.

        `about["ids"]` names the column that ids are from, and is empty if they are from none. An `InputError` if what
        is there was made of something else, or is not isoscope's: then nothing is touched.
        """

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """Which of these ids are not there yet, as booleans."""

    def write(self, batch: Batch) -> None:
        """Write the rows of a batch, by `columns["ids"]`, with what is `beside`; they are durable when it returns."""

    def finish(self, rows: int) -> None:
        """Note that all is there."""

    def clear(self) -> None:
        """Remove what an earlier run of isoscope wrote; an `InputError` for anything else, which stays."""

    def close(self) -> None:
        """Let go of the database."""


NOTE = "isoscope"
"""The name of the note among the metadata of a collection."""


def format_note(about: Mapping[str, str], rows: int | None = None) -> str:
    """The note on a collection made of this; with the number of its rows once all are there.

    Examples
    --------
    >>> format_note({"source": "docs.npy"}, rows=100)
    '{"about": {"source": "docs.npy"}, "rows": 100}'
    """
    return json.dumps({"about": dict(about), "rows": rows}, sort_keys=True)


def can_resume(found: str | None, about: Mapping[str, str], where: str) -> bool:
    """Whether a collection is made of the same; an `InputError` if it is of something else, or not isoscope's."""
    check_ownership(found, where)
    earlier = _parse_note(found)[0]
    if earlier == dict(about):
        return True
    names = [name for name in {**earlier, **about} if earlier.get(name) != about.get(name)]
    raise InputError(
        f"{where} was written by isoscope with another {' and '.join(names)}: write elsewhere, or write it anew "
        "with restart=True, on the command line --restart"
    )


def check_ownership(found: str | None, where: str) -> None:
    """Refuse to touch what isoscope has not made."""
    if not found:
        raise InputError(f"{where} exists and was not made by isoscope: nothing was touched, write to another name")


def warn_if_unfinished(found: str | None, where: str) -> None:
    """Say that a collection was not written to its end."""
    if found and _parse_note(found)[1] is None:
        warn_data(f"{where} was not written to its end: run the command that writes it again")


def check_row_count(written: int, there: int, where: str) -> None:
    """Refuse to call a collection whole that has fewer rows than were written: some had the same id."""
    if there < written:
        raise InputError(
            f"{where} has {there} rows after {written} were written: ids must be different; name other ids, or leave "
            "them out and rows are numbered"
        )


def check_missing_vectors(
    lacking: int, total: int, first: object, drop: bool, where: str, why: str = "no vector"
) -> None:
    """Refuse rows without a vector, or say how many are left out."""
    if not lacking:
        return
    found = f"{where} has {why} in {lacking} of {total} rows, the first has the id {first}"
    if lacking == total:
        raise InputError(f"{found}: need at least one vector")
    if not drop:
        raise InputError(f"{found}: give them one, or leave them out with ?missing=drop behind the address")
    warn_data(f"{found}: they are left out")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """What was meant by a name that is not there: names like it, or those that are there."""
    names = sorted(names)
    if found := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        return f"is it {' or '.join(found)}?"
    if not names:
        return "it has none"
    return "it has " + ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def check_options(options: Mapping[str, str], known: Iterable[str], where: str) -> None:
    """Refuse an option that would be passed over."""
    known = list(known)
    for name in options:
        if name not in known:
            need = f" here: need {' or '.join(known)}" if known else ": there are none"
            raise InputError(f"{where}: {name}= is not an option{need}")


def _parse_note(found: str | None) -> tuple[dict[str, str], int | None]:
    """What a collection was made of, and its rows if it is whole."""
    try:
        kept = json.loads(found or "")
        return dict(kept["about"]), kept["rows"]
    except (ValueError, LookupError, TypeError):
        return {}, None


T = TypeVar("T")

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt."""


def retry(attempt: Callable[[], T], passes: Callable[[Exception], bool]) -> T:
    """What an attempt gives; one that fails with what may pass is made again, `len(PAUSES)` times at most.

    Parameters
    ----------
    attempt : function
        What is asked of the database: to do it twice must be as good as once.
    passes : function
        Whether an error may be gone in a while: a lost connection is, a wrong password is not.

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
            if not passes(error):
                raise
            time.sleep(pause)
    return attempt()


_KIND, _OBJECTS = b"isoscope:kind", b"objects"
_DISTANCE, _NAME, _IDS = b"isoscope:distance", b"isoscope:vectors", b"isoscope:ids"
_SETTINGS = b"isoscope:chroma"


def object_field(name: str) -> Any:
    """A column of objects as JSON, known as such where it is written to another database."""
    import pyarrow as pa

    return pa.field(name, pa.string(), metadata={_KIND: _OBJECTS})


def to_json_column(objects: Sequence[Mapping[str, Any] | None]) -> Any:
    """Objects as a column of JSON; a row without one is null."""
    import pyarrow as pa

    return pa.array([None if each is None else json.dumps(each, ensure_ascii=False) for each in objects], pa.string())


def collection_metadata(distance: str, name: str = "", ids: str = "", settings: str = "") -> dict[bytes, bytes]:
    """What a collection is beside its rows, for the schema: its distance, the vectors' own name, whose ids they are."""
    kept = {_DISTANCE: distance, _NAME: name, _IDS: ids, _SETTINGS: settings}
    return {key: value.encode() for key, value in kept.items() if value}


def read_distance(schema: Any) -> str:
    """The distance of the collection that rows come from: cosine, dot, euclid or manhattan; empty if none is known."""
    return _read_metadata(schema, _DISTANCE)


def read_vector_name(schema: Any) -> str:
    """The own name that the vectors had; empty if they had none."""
    return _read_metadata(schema, _NAME)


def read_ids_origin(schema: Any) -> str:
    """The kind of database that the ids are from; empty if they are from none."""
    return _read_metadata(schema, _IDS)


def read_index_settings(schema: Any) -> str:
    """What Chroma was told about its index, as JSON; empty if rows are from elsewhere."""
    return _read_metadata(schema, _SETTINGS)


def _read_metadata(schema: Any, key: bytes) -> str:
    return ((getattr(schema, "metadata", None) or {}).get(key) or b"").decode()


def holds_ids(batch: Batch, name: str) -> bool:
    """Whether the column of this name beside a batch holds its ids as they are written."""
    names = batch.other_columns.schema.names if batch.other_columns is not None else []
    return name in names and batch.other_columns.column(name).to_pylist() == batch.columns["ids"].tolist()


def batch_payloads(batch: Batch, ids: str = "") -> list[dict[str, Any]]:
    """What stands beside each row of a batch, but for its id, as values that JSON has; what is missing is left out.

    Columns of objects are spread: what was a payload becomes the same payload. `ids` is the column that the ids are
    from, which need not stand there a second time.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Batch(0, np.eye(2), {"ids": np.array([7, 8]), "text": np.array(["east", "north"], object)}, 1.0)
    >>> batch_payloads(rows)
    [{'text': 'east'}, {'text': 'north'}]
    """
    found: list[dict[str, Any]] = [{} for _ in range(len(batch.vectors))]
    for name, values in batch.columns.items():
        if name != "ids":
            for each, value in zip(found, values, strict=True):
                each[name] = to_json_value(value)
    if batch.other_columns is None:
        return found
    written = {ids} if holds_ids(batch, ids) else {}
    for field in batch.other_columns.schema:
        if field.name in written:
            continue
        spread = (field.metadata or {}).get(_KIND) == _OBJECTS
        for each, value in zip(found, batch.other_columns.column(field.name).to_pylist(), strict=True):
            if value is None:
                continue
            if spread:
                each.update(json.loads(value))
            else:
                each[field.name] = to_json_value(value)
    return found


def scalar_fields(objects: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """The names of values, in the order they are met, that are never lists or objects."""
    names: dict[str, bool] = {}
    for each in objects:
        for name, value in (each or {}).items():
            names[name] = names.get(name, True) and (value is None or isinstance(value, str | int | float))
    return [name for name, plain in names.items() if plain]


def to_json_value(value: Any) -> Any:
    """A value as JSON has it; dates are text, and what is not a number is none."""
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
