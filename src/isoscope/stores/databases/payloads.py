"""What stands beside vectors where rows have no columns: an object of names and values for each, kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from isoscope.stores.store import Batch

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
