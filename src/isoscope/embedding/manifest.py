"""The note in a folder of hidden states: what they are of, and how far they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isoscope.errors import InputError

FILE = "_embedding.json"
SCHEMA = "isoscope.embedding/1"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What stands in the note; None if there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["schema"] != SCHEMA or not isinstance(held["settings"], dict) or not isinstance(held["sizes"], list):
            raise ValueError(f"its schema is {held['schema']!r}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({error}): throw the run away, restart=True, on the command line --restart"
        ) from error
    return dict(held)
