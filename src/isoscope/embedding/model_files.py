"""Files of a model on disk or on the Hugging Face Hub, and the code that its configuration files name."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isoscope._core.errors import FileFormatError
from isoscope._io.files import expand_user

_SENTENCE_MODEL = "SentenceTransformer"
_MODULE = re.compile(r"sentence_transformers(\.\w+)*\.(models|modules)(\.\w+)*\.[A-Z]\w*", re.ASCII)
_ACTIVATION = re.compile(r"torch\.nn\.(modules\.(activation|linear)\.)?[A-Z]\w*", re.ASCII)
_CODE = {
    "type": _MODULE,
    "tokenizer_class": _MODULE,
    "activation_function": _ACTIVATION,
    "activation_fn": _ACTIVATION,
}
"""The keys under which Sentence Transformers reads the name of a class to import, and the names that are allowed."""
_DATA_FILES = ("tokenizer.json", "vocab.json")  # large files that contain no settings


def is_sentence_model(model: str) -> bool:
    """Return whether a folder, or a model of this name on the Hugging Face Hub, is a Sentence Transformers model.

    Sparse encoders and cross-encoders of the same package do not count: they do not embed texts as dense vectors.
    """
    if _model_file(model, "modules.json") is None:
        return False
    settings = _model_file(model, "config_sentence_transformers.json")
    kind = {} if settings is None else _read_json(settings)
    return not isinstance(kind, dict) or kind.get("model_type", _SENTENCE_MODEL) == _SENTENCE_MODEL


def _model_file(model: str, name: str) -> Path | None:
    """Return a file of a model, downloaded if necessary, or None if the model has no such file."""
    folder = expand_user(model)
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    try:
        from huggingface_hub import hf_hub_download

        with mute_hub():
            return Path(hf_hub_download(model, name))
    except (ImportError, OSError, ValueError):  # no such file or model, no network, or not a name on the hub
        return None


@contextmanager
def mute_hub() -> Iterator[None]:
    """Silence the log of huggingface_hub, which reports every attempt to reach the hub."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        hub.setLevel(level)


def download_settings(model: str) -> Path:
    """Download the JSON files of a model on the Hugging Face Hub and return their folder, named after the commit."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, allow_patterns="*.json"))


def find_foreign_code(folder: Path) -> str | None:
    """Return which setting in a Sentence Transformers folder names code outside that package and torch, or None.

    Sentence Transformers imports the classes that `modules.json`, `router_config.json` and the settings of the modules
    name. Versions before 6 import any class without asking; later versions replace an unknown activation function.
    """
    for path in _settings_files(folder):
        for key, value in _items(_read_json(path)):
            if found := _foreign_code(key, value):
                return f"{path.relative_to(folder)} {found}"
    return None


def _foreign_code(key: str, value: Any) -> str | None:
    if key == "trust_remote_code" and value:
        return "sets trust_remote_code"
    if key == "types" and isinstance(value, dict):  # the classes of a router, by the paths of their settings
        pairs = (("type", name) for name in value.values())
        paths = (("path", name) for name in value)
        return next((found for each in (*pairs, *paths) if (found := _foreign_code(*each))), None)
    if not isinstance(value, str):
        return None
    if key == "path" and (os.path.isabs(value) or ".." in re.split(r"[/\\]", value)):
        return f"names the path {value[:100]!r}, which is outside the folder"
    is_foreign = key in _CODE and "." in value and not _CODE[key].fullmatch(value)
    return f"names {value[:100]!r}" if is_foreign else None


def _settings_files(folder: Path) -> Iterator[Path]:
    """Yield the JSON files of a folder and its subfolders, which may be symbolic links."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place, name) for name in names if name.endswith(".json") and name not in _DATA_FILES)


def _read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if it is not JSON, so that Sentence Transformers cannot read it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    except RecursionError:
        raise FileFormatError(f"{path} cannot be read as JSON: it is nested too deeply") from None


def _items(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the key and value of every field in nested JSON."""
    pending = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield from value.items()
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
