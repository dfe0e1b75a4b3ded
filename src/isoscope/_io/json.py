"""Read JSON files that have a schema, with clear error messages, and write them atomically."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import FileFormatError, InputError
from isoscope._core.printable import escape_controls_in_json
from isoscope._io.files import atomic_replace

if TYPE_CHECKING:
    import os


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


def read_json(path: str | os.PathLike[str], schema: str, written_by: str) -> dict[str, Any]:
    """Return the object in a JSON file; raise an `InputError` if it does not have this schema.

    `written_by` is the command or function that writes such files; the error message includes it.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    found = content.get("schema") if isinstance(content, dict) else None
    if found != schema:
        raise FileFormatError(f"{path} has schema {found!r}: need {schema!r}, as written by `{written_by}`")
    return dict(content)


def write_json(content: Any, path: str | os.PathLike[str], *, indent: int = 2) -> None:
    """Write a JSON file atomically; if the write is interrupted, the old file remains."""
    with atomic_replace(path) as temporary:
        temporary.write_text(format_json(content, indent=indent), encoding="utf-8")


def format_json(content: Any, *, indent: int = 2, ascii_only: bool = False) -> str:
    """Return a value as JSON text that ends with a line break; control characters are escaped."""
    return escape_controls_in_json(json.dumps(content, indent=indent, ensure_ascii=ascii_only)) + "\n"
