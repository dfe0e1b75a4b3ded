"""Pool token states into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from isoscope._core.errors import MissingValueError, ParameterError

if TYPE_CHECKING:
    from isoscope.embedding.embedder import Embedder, WindowBatch
    from isoscope.embedding.tokens import Block


class Pooling(Protocol):
    """An object that collects the rows of a block."""

    def take(self, given: WindowBatch, chosen: np.ndarray, places: np.ndarray) -> None:
        """Run the model on windows of a block; `places` contains the positions of their tokens in the block."""

    def layer_rows(self) -> dict[int, np.ndarray]:
        """Return the rows of each layer."""


class TokenPooling:
    """Pooling with one row for each kept token, in the order of the texts.

    `room` contains arrays that are reused across blocks, because allocating new ones takes as long as copying.
    """

    def __init__(self, block: Block, embedder: Embedder, room: dict[int, np.ndarray]) -> None:
        self._embedder = embedder
        self._spans, count = _kept_spans(block)
        self._rows = {layer: room[layer][:count] for layer in embedder.layers}

    def take(self, given: WindowBatch, chosen: np.ndarray, places: np.ndarray) -> None:
        """See `Pooling`."""
        spans = [(i, *span) for i, window in enumerate(chosen.tolist()) for span in self._spans[window]]
        for layer, states in self._embedder.states(given):
            rows = self._rows[layer]
            with np.errstate(over="ignore"):
                for i, start, stop, to in spans:
                    rows[to : to + stop - start] = states[i, start:stop]

    def layer_rows(self) -> dict[int, np.ndarray]:
        """See `Pooling`."""
        return self._rows


def _kept_spans(block: Block) -> tuple[list[list[tuple[int, int, int]]], int]:
    """Return the span of kept tokens in each window as (start, stop, first row), and the number of rows."""
    kept = block.tokens["kept"].astype(bool)
    windows = np.repeat(np.arange(len(block.lengths)), block.lengths)
    begins = np.flatnonzero(kept & ~np.append(False, kept[:-1] & (windows[1:] == windows[:-1])))
    ends = np.flatnonzero(kept & ~np.append(kept[1:] & (windows[1:] == windows[:-1]), False)) + 1
    starts = np.cumsum(block.lengths) - block.lengths
    rows = np.cumsum(kept) - 1
    found: list[list[tuple[int, int, int]]] = [[] for _ in block.lengths]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        window = int(windows[begin])
        found[window].append((begin - int(starts[window]), end - int(starts[window]), int(rows[begin])))
    return found, int(kept.sum())


class MeanPooling:
    """Pooling with the mean of the kept tokens of each text, over all its windows."""

    def __init__(self, block: Block, embedder: Embedder, dtype: np.dtype) -> None:
        self._embedder, self._dtype = embedder, dtype
        self._kept = block.tokens["kept"].astype(bool)
        documents, self._text = np.unique(block.documents, return_inverse=True)
        self._counts = np.zeros(len(documents))
        np.add.at(self._counts, self._text, block.rows)
        self._sums = {layer: np.zeros((len(documents), embedder.dim)) for layer in embedder.layers}

    def take(self, given: WindowBatch, chosen: np.ndarray, places: np.ndarray) -> None:
        """See `Pooling`."""
        kept = (np.arange(places.shape[1]) < given.lengths[:, None]) & self._kept[places]
        some = kept.any(axis=1)
        flat, counts = np.flatnonzero(kept), kept.sum(axis=1)[some]
        for layer, states in self._embedder.states(given):
            rows = states.reshape(-1, states.shape[-1])[flat].astype(np.float64)
            sums = np.add.reduceat(rows, np.cumsum(counts) - counts, axis=0)
            np.add.at(self._sums[layer], self._text[chosen][some], sums)

    def layer_rows(self) -> dict[int, np.ndarray]:
        """See `Pooling`."""
        with np.errstate(over="ignore"):
            return {layer: (sums / self._counts[:, None]).astype(self._dtype) for layer, sums in self._sums.items()}


class SingleTokenPooling:
    """Pooling with the state of the first token of each text, or of its last kept token."""

    def __init__(self, block: Block, embedder: Embedder, dtype: np.dtype, *, last: bool) -> None:
        self._embedder, self._last = embedder, last
        self._kept = block.tokens["kept"].astype(bool)
        documents, self._text = np.unique(block.documents, return_inverse=True)
        self._rows = {layer: np.empty((len(documents), embedder.dim), dtype) for layer in embedder.layers}

    def take(self, given: WindowBatch, chosen: np.ndarray, places: np.ndarray) -> None:
        """See `Pooling`."""
        for layer, states in self._embedder.states(given):
            width = states.shape[1]
            at = np.zeros(len(chosen), int)
            if self._last:
                kept = (np.arange(width) < given.lengths[:, None]) & self._kept[places]
                at = width - 1 - kept[:, ::-1].argmax(axis=1)
            with np.errstate(over="ignore"):
                self._rows[layer][self._text[chosen]] = states[np.arange(len(chosen)), at]

    def layer_rows(self) -> dict[int, np.ndarray]:
        """See `Pooling`."""
        return self._rows


def make_pooling(pool: str, block: Block, embedder: Embedder, room: dict[int, np.ndarray]) -> Pooling:
    """Return an object that pools a block; its rows have the dtype of the arrays in `room`."""
    dtype = next(iter(room.values())).dtype
    if pool == "tokens":
        return TokenPooling(block, embedder, room)
    if pool == "mean":
        return MeanPooling(block, embedder, dtype)
    return SingleTokenPooling(block, embedder, dtype, last=pool == "last")


def check_finite(rows: dict[int, np.ndarray], name: str) -> None:
    """Raise an error if a layer contains NaN or infinity; the message states whether float16 is the cause."""
    for layer, vectors in rows.items():
        flat = vectors.reshape(-1)
        if vectors.dtype == np.float16:
            bad = (flat.view(np.uint16) & 0x7C00) == 0x7C00
            if not bad.any():
                continue
            if not np.isnan(flat[bad]).any():
                raise ParameterError(
                    f"layer {layer} of {name} has {int(bad.sum()):,} values outside the range of float16: "
                    'use dtype="float32"'
                )
        elif np.isfinite(np.vdot(flat, flat)) or np.isfinite(flat).all():
            continue
        count = int((~np.isfinite(vectors).all(axis=1)).sum())
        raise MissingValueError(
            f"layer {layer} of {name} contains NaN or infinity in {count:,} of {len(vectors):,} rows: check the "
            "model's weights"
        )
