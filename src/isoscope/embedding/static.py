"""Static word vectors (GloVe, word2vec, fastText) as a model: one vector per word, independent of context."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import NotFoundError
from isoscope._io.files import expand_user
from isoscope.embedding.tokens import Tokens
from isoscope.stores.open import open_store
from isoscope.stores.word_vectors import word_folder_files

if TYPE_CHECKING:
    from isoscope.embedding.embedder import WindowBatch
    from isoscope.stores.store import Store

_CHUNK = re.compile(r"\S+")
_PIECE = re.compile(r"\w+|[^\w\s]")


class WordTokenizer:
    """A tokenizer that looks up each word between spaces as written, then in lower case, then split at punctuation."""

    before: Sequence[int] = ()
    after: Sequence[int] = ()
    unknown: int | None = None

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._rows: dict[str, int] = {}
        for row, word in enumerate(words):
            self._rows.setdefault(word, row)
        self.missed = 0

    def read(self, texts: list[str]) -> list[Tokens]:
        """See `Tokenizer`."""
        return [self._read(text) for text in texts]

    def _read(self, text: str) -> Tokens:
        found: list[tuple[int, int, int]] = []
        for chunk in _CHUNK.finditer(text):
            row = self._row(chunk.group())
            if row is not None:
                found.append((row, chunk.start(), chunk.end()))
                continue
            for piece in _PIECE.finditer(text, chunk.start(), chunk.end()):
                row = self._row(piece.group())
                if row is not None:
                    found.append((row, piece.start(), piece.end()))
                self.missed += row is None
        ids, starts, ends = np.asarray(found, np.int64).reshape(-1, 3).T
        return Tokens(ids, starts, ends)

    def _row(self, word: str) -> int | None:
        row = self._rows.get(word)
        return self._rows.get(word.lower()) if row is None else row

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Return the words with these ids."""
        return [self._words[row] for row in ids]


class WordEmbedder:
    """An embedder for word vectors that loads only the vectors of the words in the texts."""

    part = "word vectors"
    prompt: str | None = None
    max_length: int | None = None
    batch_tokens = 65_536
    uses_accelerator = False
    can_pad = True

    def __init__(self, store: Store, name: str) -> None:
        words = store.text
        if words is None:
            raise NotFoundError(
                f"{name} contains vectors without words: need a GloVe, word2vec or fastText file, or a text column"
            )
        self.name, self._store, self.dim, self.layers = name, store, store.dim, [0]
        self.reader = WordTokenizer([str(word) for word in words])
        self._rows = np.zeros(0, np.int64)
        self._vectors = np.zeros((0, store.dim), np.float32)

    @property
    def digest(self) -> str:
        """A checksum of the words and vectors in use; call `prepare` first."""
        words = "\n".join(self.reader.strings(self._rows.tolist()))
        found = hashlib.blake2b(np.ascontiguousarray(self._vectors).tobytes(), digest_size=16)
        found.update(words.encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    def causal(self) -> bool:
        """See `Embedder`; a word's vector does not depend on context."""
        return True

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """See `Embedder`."""
        return nullcontext()

    def prepare(self, ids: np.ndarray) -> None:
        """See `Embedder`; loads the vectors immediately."""
        self._rows, self._vectors = ids, self._store.take(ids).astype(np.float32, copy=False)

    def states(self, given: WindowBatch) -> Iterator[tuple[int, np.ndarray]]:
        """See `Embedder`."""
        yield 0, self._vectors[np.searchsorted(self._rows, given.ids)]

    def strings(self, ids: Sequence[int]) -> list[str]:
        """See `Embedder`."""
        return self.reader.strings(ids)

    def close(self) -> None:
        """See `Embedder`."""


def open_words(model: str) -> WordEmbedder | None:
    """Open word vectors in a file, or in a folder with `vectors.npy` and `words.txt`; return None for anything else."""
    return WordEmbedder(open_store(expand_user(model)), model) if is_word_source(model) else None


def is_word_source(model: str) -> bool:
    """Return whether a path denotes word vectors: a file, or a folder with `vectors.npy` and `words.txt`."""
    path = expand_user(model)
    return path.is_file() or word_folder_files(path) is not None
