"""Read and write sketch files: safetensors files that store scalar values as JSON in the header, without pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from isoscope._core.errors import FileFormatError, InputError
from isoscope._io.files import replace_result
from isoscope._io.json import shorten

_FORMAT, _VERSION = "isoscope.sketch", 2  # version 2 has groups; a sketch without them is written as version 1
T = TypeVar("T")


def write(path: str | os.PathLike[str], tensors: dict[str, np.ndarray], numbers: dict[str, Any]) -> None:
    """Atomically write tensors and numbers to a file."""
    from safetensors.numpy import save

    version = _VERSION if any(name.startswith("groups.") for name in tensors) else 1
    about = json.dumps({"version": version, "numbers": numbers, "checksum": checksum(tensors, numbers)})
    content = save({name: np.ascontiguousarray(value) for name, value in tensors.items()}, {_FORMAT: about})
    with replace_result(path) as temporary:  # save_file would replace the locked file by another
        temporary.write_bytes(content)


def checksum(tensors: dict[str, np.ndarray], numbers: dict[str, Any]) -> str:
    """Return a digest of the file's content, so that a damaged file is detected."""
    digest = hashlib.blake2b(json.dumps(numbers, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def read(path: str | os.PathLike[str], build: Callable[[dict[str, np.ndarray], dict[str, Any]], T]) -> T:
    """Read a file and pass its tensors and numbers to `build`; if that fails, raise an error that names the file."""
    from safetensors import SafetensorError, safe_open

    if Path(path).is_dir():
        raise FileFormatError(f"{path} is a folder: need a file written by Sketch.save")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            if _FORMAT not in metadata:
                raise FileFormatError(f"{path} is a safetensors file, but it does not contain a sketch")
            about = json.loads(metadata[_FORMAT])
            if not isinstance(about, dict) or not isinstance(about["numbers"], dict):
                raise TypeError("its numbers are missing")
            if about["version"] > _VERSION:
                raise FileFormatError(
                    f"{path} has version {shorten(str(about['version']))}, but this version of isoscope reads at most "
                    f"version {_VERSION}: upgrade isoscope"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if about["checksum"] != checksum(tensors, about["numbers"]):
            raise FileFormatError(f"{path} was changed after it was written (its checksum differs): create it again")
        return build(tensors, about["numbers"])
    except InputError:
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        why = shorten(f"{type(error).__name__} {error}", 200)
        raise FileFormatError(f"{path} is not a complete sketch: {why}; create it again") from error
