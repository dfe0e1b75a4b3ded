"""Add a term to losses of Sentence Transformers that cache the gradients of the embeddings (GradCache).

Such a loss embeds the batch without gradients, computes the loss and its gradient from the embeddings alone, and then
embeds the batch again, in small parts, to propagate this gradient. A term can be computed from the embeddings too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from isoscope._core.errors import ParameterError


def find_cached_loss(model: nn.Module) -> nn.Module | None:
    """Return the loss with cached gradients among a module and its parts, or None."""
    return next((each for each in model.modules() if _caches_gradients(each)), None)


def _caches_gradients(module: nn.Module) -> bool:
    earlier = hasattr(module, "calculate_loss_and_cache_gradients")  # before Sentence Transformers 6
    cached = getattr(module, "uses_gradient_cache", earlier)
    return bool(cached) and callable(getattr(module, "calculate_loss", None))


def wrap_cached_loss(cached: Any, make_term: Callable[[list[torch.Tensor]], torch.Tensor | None]) -> Callable[[], None]:
    """Add a term to a loss with cached gradients; return a function that removes it.

    `make_term` receives the embeddings of each column of the dataset, and returns the term or None.
    """
    original = cached.calculate_loss
    own = "calculate_loss" in vars(cached)  # MatryoshkaLoss has replaced it

    def calculate_loss(reps: Any, *args: Any, with_backward: bool = False, **kwargs: Any) -> Any:
        value = original(reps, *args, with_backward=with_backward, **kwargs)
        term = make_term([_join_parts(column, cached) for column in reps]) if with_backward else None
        if term is None:
            return value
        term.backward()  # adds to the gradients of the embeddings, which are cached next
        return value + term.detach()

    cached.calculate_loss = calculate_loss

    def undo() -> None:
        if own:
            cached.calculate_loss = original
        else:
            del cached.calculate_loss

    return undo


def _join_parts(column: Any, cached: Any) -> torch.Tensor:
    parts = list(column) if isinstance(column, list | tuple) else [column]
    if not all(torch.is_tensor(part) and part.ndim == 2 for part in parts):
        raise ParameterError(
            f"{type(cached).__name__} does not cache the gradients of sentence embeddings, so a regularizer cannot be "
            "attached: use the loss without the cache"
        )
    return torch.cat(parts)
