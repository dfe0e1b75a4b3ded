"""The registry of sentence encoders: the cosines of each model on one corpus, to rank a cosine without data.

`benchmarks/registry.py` writes the file; `make registry` checks every entry.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from isoscope._core.errors import NotFoundError, ParameterError
from isoscope._io.files import expand_user
from isoscope.auditing.similarity import Similarity

SCHEMA = "isoscope.registry/1"
"""The JSON schema of the registry."""

_FILE = "registry.json"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True)
class RegistryEntry:
    """The cosines and the shape of one model's vectors of the corpus, and how they were made."""

    name: str
    """The name of the model; a copy with reduced precision has its precision in the name."""
    model: str
    """The name of the original model on the Hugging Face Hub."""
    revision: str
    """The SHA-256 of the files with the weights."""
    precision: str
    pooling: str
    prompt: str
    """The prompt that was prepended to each text."""
    corpus: str
    rows: int
    dimensions: int
    isoscope: str
    """The version of isoscope that measured the entry."""
    isoscore: float
    mean_cosine: float
    floor: float
    """The median cosine of two random texts: a typical cosine of unrelated texts."""
    similarity: Similarity

    @property
    def about(self) -> str:
        """The provenance of the entry in one line."""
        prompt = f', prompt "{self.prompt}"' if self.prompt else ""
        weights = f"{self.precision} weights with SHA-256 {self.revision[:12]}…"
        return f"{weights}, {self.pooling} pooling{prompt}, measured on {self.corpus}"


@cache
def load_registry() -> dict[str, RegistryEntry]:
    """Return all entries by name.

    >>> load_registry()["all-MiniLM-L6-v2"].dimensions
    384
    """
    content = json.loads((files("isoscope.thresholding") / _FILE).read_text(encoding="utf-8"))
    plain = [field.name for field in fields(RegistryEntry) if field.name not in ("name", "corpus", "similarity")]
    return {
        name: RegistryEntry(
            name=name,
            corpus=content["corpus"],
            similarity=_read_similarity(content, entry),
            **{field: entry[field] for field in plain},
        )
        for name, entry in content["models"].items()
    }


def _read_similarity(content: dict[str, Any], entry: dict[str, Any]) -> Similarity:
    shared = {name: content[name] for name in ("shares", "cosines")}
    own = {name: entry[name] for name in ("pairs", "nearest", "pairs_below", "nearest_below")}
    return Similarity(**{name: np.asarray(values, np.float64) for name, values in (shared | own).items()})


def find_model(model: str) -> RegistryEntry:
    """Return the entry of a model, given its name or its folder; the weights of a folder must be those of the entry.

    >>> find_model("sentence-transformers/all-MiniLM-L6-v2").name
    'all-MiniLM-L6-v2'
    """
    entries = load_registry()
    folder = expand_user(model)
    if model.strip() and folder.is_dir():
        return _find_folder(folder, entries)
    known = {each.lower(): entry for entry in entries.values() for each in (entry.name,)}
    known |= {entry.model.lower(): entry for entry in entries.values() if _is_original(entry)}
    if model.lower() in known:
        return known[model.lower()]
    if not model.strip():
        raise ParameterError("the name of the model is empty: pass a name or a model folder")
    short = model.rsplit("/", 1)[-1].lower()
    for entry in entries.values():
        if short == entry.name.lower():
            raise NotFoundError(
                f"{model} is not in the registry, which contains {entry.model}: pass {entry.name}, or your own vectors "
                "as SOURCE"
            )
        if short == _short_name(entry):
            raise NotFoundError(
                f"the registry has no entry for the original {model}, only for a copy with {entry.precision} weights: "
                f'pass "{entry.name}", or pass your own vectors as SOURCE'
            )
    raise NotFoundError(
        f"{model} is not in the registry: choose from {', '.join(entries)}; or pass your own vectors as SOURCE"
    )


def _find_folder(folder: Path, entries: dict[str, RegistryEntry]) -> RegistryEntry:
    revision = hash_weights(folder)
    for entry in entries.values():
        if entry.revision == revision:
            return entry
    name = folder.resolve().name.lower()
    similar = next((entry for entry in entries.values() if name.startswith(_short_name(entry))), None)
    if similar is None:
        raise NotFoundError(
            f"{folder} is not a model of the registry: its weights have the SHA-256 {revision[:12]}…; embed your own "
            "texts with isoscope embed, and pass the vectors as SOURCE"
        )
    raise NotFoundError(
        f"{folder} is another revision of {_short_name(similar)}: its weights have the SHA-256 {revision[:12]}…, but "
        f"the entry {similar.name} was measured with {similar.revision[:12]}…; embed your own texts with isoscope "
        "embed, and pass the vectors as SOURCE"
    )


def _short_name(entry: RegistryEntry) -> str:
    """Return the name of the original model without its organization."""
    return entry.model.rsplit("/", 1)[-1].lower()


def _is_original(entry: RegistryEntry) -> bool:
    return entry.name.lower() == _short_name(entry)


def hash_weights(folder: Path) -> str:
    """Return the SHA-256 of the files with the weights of a model, in the order of their names."""
    for pattern in _WEIGHTS:
        if paths := sorted(folder.glob(pattern)):
            digest = hashlib.sha256()
            for path in paths:
                with path.open("rb") as file:
                    while block := file.read(2**20):
                        digest.update(block)
            return digest.hexdigest()
    raise ParameterError(f"{folder} contains no weights (model.safetensors or pytorch_model.bin): need a model folder")
