"""What embedding runs need from a model; importing this module needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from isoscope.embedding.tokens import Tokenizer

FULL_DIGEST = "all:"
"""The start of a checksum of all weights and the configuration; version 0.1 included only a part of each weight."""


class WindowBatch(NamedTuple):
    """A batch of windows of similar length."""

    ids: np.ndarray
    """Token ids of shape (windows, positions), padded on the right with arbitrary ids."""
    lengths: np.ndarray
    documents: np.ndarray
    """The number of the text that each window belongs to."""
    text: Callable[[int], str]
    """A function that returns a text by its number."""


class Embedder(Protocol):
    """A model with its tokenizer."""

    name: str
    dim: int
    layers: list[int]
    max_length: int | None
    """The longest window in tokens, including special ones; None if unlimited."""
    can_pad: bool
    """Whether padding leaves a window's states unchanged."""
    part: str
    """The part of the model that is used, for messages."""
    prompt: str | None
    """The prompt that the caller requested for each text; None means that the model chooses it."""

    @property
    def reader(self) -> Tokenizer: ...  # noqa: D102

    @property
    def digest(self) -> str:
        """A checksum that identifies the model; call `prepare` first."""

    @property
    def batch_tokens(self) -> int:
        """A suitable number of tokens per batch."""

    @property
    def uses_accelerator(self) -> bool:
        """Whether the model runs on a GPU or another accelerator."""

    def causal(self) -> bool:
        """Return whether a token's state is independent of later tokens."""

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """Return a context in which `states` may be called."""

    def prepare(self, ids: np.ndarray) -> None:
        """Prepare for these token ids, which are distinct and sorted; no other ids will be used."""

    def states(self, given: WindowBatch) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each layer with its states, an array of shape (windows, positions, d)."""

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens as strings of the vocabulary."""

    def close(self) -> None:
        """Restore the original state of a model that was passed in."""
