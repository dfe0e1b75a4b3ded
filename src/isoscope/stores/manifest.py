"""The note in a folder of shards that an extraction writes: what they are of, and how far they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isoscope._core.errors import InputError, warn_data

EMBEDDING_MANIFEST = "_embedding.json"
REPAIR_MANIFEST = "_repaired.json"
"""The note in a folder that a repair is written to."""
SCHEMA = "isoscope.embedding/1"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What stands in the note; None if there is none."""
    path = folder / EMBEDDING_MANIFEST
    if not path.exists():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["schema"] != SCHEMA:
            raise ValueError(f"its schema is {held['schema']!r}")
        if not isinstance(held["settings"], dict) or not isinstance(held["blocks"], int):
            raise ValueError("it does not say what was asked for")
        files = [each for block in held["written"] for each in block.items()]
        if any(Path(name).name != name or not isinstance(checksum, str) for name, checksum in files):
            raise ValueError("it does not say what was written")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({error}): throw the run away, restart=True, on the command line --restart"
        ) from error
    return dict(held)


def warn_if_unfinished(folder: Path) -> None:
    """Warn if a folder's rows are not all written yet."""
    try:
        held = read_manifest(folder)
    except InputError as error:
        warn_data(str(error))
        return
    if held is not None and not held.get("finished"):
        warn_data(
            f"{folder} is unfinished: {len(held['written'])} of {held['blocks']} parts are there; embed goes on with it"
        )
    repaired = folder / REPAIR_MANIFEST
    if repaired.exists() and '"finished": true' not in repaired.read_text(encoding="utf-8"):
        warn_data(f"{folder} is unfinished: not all repaired vectors are there; apply goes on with it")
