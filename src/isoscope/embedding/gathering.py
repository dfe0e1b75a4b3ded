"""From the states of windows to rows, each in its place: of tokens, or of texts."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from isoscope.embedding.embedder import Embedder, Given
from isoscope.embedding.spool import Block
from isoscope.errors import InputError


class Gathering(Protocol):
    """Rows in the making."""

    def take(self, given: Given, chosen: np.ndarray, places: np.ndarray) -> None:
        """Have the model read some windows of a block, of which `places` are the tokens' numbers in it."""

    def found(self) -> dict[int, np.ndarray]:
        """The rows of each layer."""


class Tokens:
    """A row for each token that is kept, in the order of the texts."""

    def __init__(self, block: Block, embedder: Embedder, dtype: np.dtype) -> None:
        self._embedder = embedder
        kept = block.tokens["kept"].astype(bool)
        self._row = np.where(kept, np.cumsum(kept) - 1, -1)
        shape = int(kept.sum()), embedder.dim
        self._rows = {layer: np.empty(shape, dtype) for layer in embedder.layers}

    def take(self, given: Given, chosen: np.ndarray, places: np.ndarray) -> None:
        """See `Gathering`."""
        held = np.arange(places.shape[1]) < given.lengths[:, None]
        rows = np.where(held, self._row[places], -1).reshape(-1)
        kept = np.flatnonzero(rows >= 0)
        for layer, states in self._embedder.states(given):
            with np.errstate(over="ignore"):
                self._rows[layer][rows[kept]] = self._embedder.picked(states, kept)

    def found(self) -> dict[int, np.ndarray]:
        """See `Gathering`."""
        return self._rows


class Means:
    """The mean of a text's kept tokens, whichever windows they are in."""

    def __init__(self, block: Block, embedder: Embedder, dtype: np.dtype) -> None:
        self._embedder, self._dtype = embedder, dtype
        self._kept = block.tokens["kept"].astype(bool)
        documents, self._text = np.unique(block.documents, return_inverse=True)
        self._counts = np.zeros(len(documents))
        np.add.at(self._counts, self._text, block.rows)
        self._sums = {layer: np.zeros((len(documents), embedder.dim)) for layer in embedder.layers}

    def take(self, given: Given, chosen: np.ndarray, places: np.ndarray) -> None:
        """See `Gathering`."""
        kept = (np.arange(places.shape[1]) < given.lengths[:, None]) & self._kept[places]
        some = kept.any(axis=1)
        flat, counts = np.flatnonzero(kept), kept.sum(axis=1)[some]
        for layer, states in self._embedder.states(given):
            rows = self._embedder.picked(states, flat).astype(np.float64)
            sums = np.add.reduceat(rows, np.cumsum(counts) - counts, axis=0)
            np.add.at(self._sums[layer], self._text[chosen][some], sums)

    def found(self) -> dict[int, np.ndarray]:
        """See `Gathering`."""
        with np.errstate(over="ignore"):
            return {layer: (sums / self._counts[:, None]).astype(self._dtype) for layer, sums in self._sums.items()}


class Singles:
    """One state of a text: that of its first token, or of its last one that is kept."""

    def __init__(self, block: Block, embedder: Embedder, dtype: np.dtype, *, last: bool) -> None:
        self._embedder, self._last = embedder, last
        self._kept = block.tokens["kept"].astype(bool)
        documents, self._text = np.unique(block.documents, return_inverse=True)
        self._rows = {layer: np.empty((len(documents), embedder.dim), dtype) for layer in embedder.layers}

    def take(self, given: Given, chosen: np.ndarray, places: np.ndarray) -> None:
        """See `Gathering`."""
        for layer, states in self._embedder.states(given):
            width = states.shape[1]
            at = np.zeros(len(chosen), int)
            if self._last:
                kept = (np.arange(width) < given.lengths[:, None]) & self._kept[places]
                at = width - 1 - kept[:, ::-1].argmax(axis=1)
            found = self._embedder.picked(states, np.arange(len(chosen)) * width + at)
            with np.errstate(over="ignore"):
                self._rows[layer][self._text[chosen]] = found

    def found(self) -> dict[int, np.ndarray]:
        """See `Gathering`."""
        return self._rows


def gathering(pool: str, block: Block, embedder: Embedder, dtype: np.dtype) -> Gathering:
    """What makes the rows of a block."""
    if pool == "tokens":
        return Tokens(block, embedder, dtype)
    if pool == "mean":
        return Means(block, embedder, dtype)
    return Singles(block, embedder, dtype, last=pool == "last")


def refuse_nonfinite(rows: dict[int, np.ndarray], name: str) -> None:
    """Say which layer holds NaN or infinity, and whether the precision is to blame."""
    for layer, found in rows.items():
        flat = found.reshape(-1)
        if found.dtype == np.float16:
            bad = (flat.view(np.uint16) & 0x7C00) == 0x7C00
            if bad.any():
                raise InputError(
                    f"layer {layer} of {name} has states that float16 cannot hold, {int(bad.sum()):,} numbers so far: "
                    'keep them as float32, dtype="float32"'
                )
        elif not np.isfinite(np.vdot(flat, flat)) and not np.isfinite(flat).all():
            count = int((~np.isfinite(found).all(axis=1)).sum())
            raise InputError(
                f"layer {layer} of {name} gives NaN or infinity for {count:,} of {len(found):,} rows: is it whole?"
            )
