"""Read JSON files that have a schema, with clear error messages, and write them atomically."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import FileFormatError, InputError
from isoscope._core.printable import escape_controls_in_json
from isoscope._io.files import atomic_replace, replace_result

if TYPE_CHECKING:
    import os

_MOST_DIGITS = 300  # of an integer; float64 reaches 1e308
_MAX_DEPTH = 50  # levels of lists and objects; isoscope writes fewer than ten
_TOO_DEEP = "its values are nested too deeply"


def jsonable(value: Any) -> Any:
    """Return a value that JSON can represent: NumPy values become Python values, NaN and infinity become None.

    >>> import numpy as np
    >>> jsonable({"shares": np.array([0.5, np.nan]), 3: (1, 2)})
    {'shares': [0.5, None], '3': [1, 2]}
    """
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def parse_json(text: str) -> Any:
    """Return the value of JSON text; raise a `ValueError` for text that is not strict JSON.

    NaN, infinity, numbers beyond float64, lone surrogates and more than 50 levels of nesting are errors, because
    isoscope never writes them.

    >>> parse_json('{"share": 0.5, "missing": null}')
    {'share': 0.5, 'missing': None}
    >>> parse_json('{"share": NaN}')
    Traceback (most recent call last):
    ...
    ValueError: NaN is not a JSON number
    """
    try:
        content = json.loads(text, parse_float=_parse_float, parse_int=_parse_integer, parse_constant=_parse_float)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(content)
    if "\\u" in text:
        json.dumps(content, ensure_ascii=False).encode()  # raises a UnicodeEncodeError, which is a ValueError
    return content


def _check_depth(content: Any) -> None:
    """Raise a `ValueError` if lists and objects are nested so deeply that a recursive function would fail."""
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shorten(text)} is not a JSON number")
    return number


def _parse_integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{shorten(text)} is too large")
    return int(text)


def check_type(value: Any, expected: type | tuple[type, ...], name: str) -> Any:
    """Return a value from a JSON file; raise a `ValueError` if it has another type.

    >>> check_type("0.1", float, "share")
    Traceback (most recent call last):
    ...
    ValueError: share is '0.1': need float
    """
    kinds = expected if isinstance(expected, tuple) else (expected,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        words = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ValueError(f"{name} is {shorten(repr(value))}: need {words}")
    return value


def check_names(value: Any, name: str) -> dict[str, str]:
    """Return an object whose values are strings; raise a `ValueError` for anything else."""
    return {key: check_type(text, str, f"{name}.{key}") for key, text in check_type(value, dict, name).items()}


def checksum(content: Any) -> str:
    """Return a digest of JSON-compatible content, to detect damaged or changed files.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1}) != checksum({"a": 1})
    True
    """
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


CHANGED = "it was changed after it was written, because its checksum differs"
"""The reason why a file whose checksum differs is rejected."""


def shorten(text: str, most: int = 60) -> str:
    """Return text truncated to a length that fits into an error message."""
    return text if len(text) <= most else text[: most - 1] + "…"


def read_json(path: str | os.PathLike[str], schema: str, written_by: str) -> dict[str, Any]:
    """Return the object in a JSON file; raise an `InputError` if it does not have this schema.

    `written_by` is the command or function that writes such files; the error message includes it.
    """
    try:
        content = parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not JSON: {shorten(str(error), 200)}") from error
    found = content.get("schema") if isinstance(content, dict) else None
    if found != schema:
        raise FileFormatError(
            f"{path} has schema {shorten(repr(found))}: need {schema!r}, as written by `{written_by}`"
        )
    return dict(content)


def write_json(content: Any, path: str | os.PathLike[str], *, indent: int = 2) -> None:
    """Write a JSON file atomically; if the write is interrupted, the old file remains."""
    with atomic_replace(path) as temporary:
        temporary.write_text(format_json(content, indent=indent), encoding="utf-8")


def write_result(content: Any, path: str | os.PathLike[str]) -> None:
    """Write a result as JSON, atomically; an existing file is replaced only if it is a result of isoscope."""
    with replace_result(path) as temporary:
        temporary.write_text(format_json(content), encoding="utf-8")


def format_json(content: Any, *, indent: int = 2, ascii_only: bool = False) -> str:
    """Return a value as JSON text that ends with a line break; control characters are escaped."""
    return escape_controls_in_json(json.dumps(content, indent=indent, ensure_ascii=ascii_only)) + "\n"


_SCHEMAS = Path(__file__).parents[1] / "schemas"
RESULT_SCHEMAS = {
    "audit": ("audit-1", "grouped-audit-1", "comparison-1"),
    "advise": ("advice-2",),
    "similarity": ("similarity-1",),
    "threshold": ("threshold-1",),
    "same": ("same-1",),
    "compress": ("compress-1",),
    "fit": ("fit-1",),
    "apply": ("apply-1",),
}
"""The JSON schemas of the result of each command; with several sources or groups, an audit has another one."""


def read_schema(*names: str) -> dict[str, Any]:
    """Return the JSON schema with this name, or a schema of objects that match one of several.

    >>> read_schema("fit-1")["title"], [each["$ref"] for each in read_schema("audit-1", "comparison-1")["anyOf"]]
    ('isoscope.fit/1', ['urn:isoscope:audit:1', 'urn:isoscope:comparison:1'])
    """
    schemas = [parse_json((_SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")) for name in names]
    if len(schemas) == 1:
        return dict(schemas[0])
    references = [{"$ref": schema["$id"]} for schema in schemas]
    return {"$schema": schemas[0]["$schema"], "anyOf": references, "$defs": dict(zip(names, schemas, strict=True))}
