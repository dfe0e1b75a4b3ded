"""What a model has to do to embed windows of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from isoscope.embedding.tokens import Tokenizer


class WindowBatch(NamedTuple):
    """Some windows of like length."""

    ids: np.ndarray
    """(windows, positions) tokens, on the right anything where a window is shorter."""
    lengths: np.ndarray
    documents: np.ndarray
    """The number of the text that each is of."""
    text: Callable[[int], str]
    """A text by its number."""


class Embedder(Protocol):
    """A model with what makes tokens of texts for it."""

    name: str
    dim: int
    layers: list[int]
    max_length: int | None
    """Tokens that it can read at once, special ones among them; None if any number."""
    can_pad: bool
    """Whether a window's states are the same beside a longer one, which pads it."""

    @property
    def reader(self) -> Tokenizer: ...  # noqa: D102

    @property
    def digest(self) -> str:
        """A checksum that another model does not have; asked for once it is prepared."""

    @property
    def batch_tokens(self) -> int:
        """How many tokens in a batch suit the device."""

    @property
    def uses_accelerator(self) -> bool:
        """Whether it computes elsewhere."""

    def causal(self) -> bool:
        """Whether a token's state knows nothing of the tokens behind it."""

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """A context in which `states` may be asked for."""

    def prepare(self, ids: np.ndarray) -> None:
        """Get ready for these tokens, which are different and sorted: no others will come."""

    def states(self, given: WindowBatch) -> Iterator[tuple[int, np.ndarray]]:
        """Each layer's (windows, positions, d) states."""

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Tokens as the vocabulary writes them."""

    def close(self) -> None:
        """Leave a model that was given as it was."""
