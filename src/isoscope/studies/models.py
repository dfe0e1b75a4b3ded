"""The models of a study: names on the Hugging Face Hub, or local folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isoscope._io.files import expand_user

_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".npy", ".npz", ".txt", ".vec", ".gz")
_BLOCK_COUNT, _BLOCK_BYTES = 64, 2**14


@dataclass(frozen=True)
class Model:
    """A model, given by its name on the Hub, its local folder, or a folder or file of word vectors."""

    place: str

    @property
    def name(self) -> str:
        """Return the model's name for tables and files: the last component of its path or Hub name.

        >>> Model("sentence-transformers/all-MiniLM-L6-v2").name
        'all-MiniLM-L6-v2'
        """
        return Path(self.place).name or self.place

    @property
    def holds_word_vectors(self) -> bool:
        """Whether the folder or file contains static word vectors instead of a transformer."""
        path = Path(self.place)
        return path.is_file() or (path / "vectors.npy").is_file()

    def fingerprint(self) -> str:
        """Return a hash of the file names, file sizes and configuration; for a model on the Hub, return its name."""
        if not expand_user(self.place).exists():
            return self.place
        digest = hashlib.sha256()
        for path in self._files():
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            if path.name == "config.json":
                digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def weights_fingerprint(self) -> str:
        """Return a hash of the weights, which fine-tuning changes; return "" for a model on the Hub.

        Only some blocks of a large file are read, because different weights of the same shape differ nearly everywhere.
        """
        if not expand_user(self.place).exists():
            return ""
        digest = hashlib.sha256()
        for path in self._files():
            if path.suffix in _WEIGHT_SUFFIXES:
                size = path.stat().st_size
                with path.open("rb") as file:
                    for i in range(_BLOCK_COUNT):
                        file.seek(i * max(0, size - _BLOCK_BYTES) // (_BLOCK_COUNT - 1))
                        digest.update(file.read(_BLOCK_BYTES))
        return digest.hexdigest()[:16]

    def _files(self) -> Iterator[Path]:
        """Yield the files of a local model in sorted order."""
        place = expand_user(self.place)
        return (path for path in sorted([place] if place.is_file() else place.rglob("*")) if path.is_file())
