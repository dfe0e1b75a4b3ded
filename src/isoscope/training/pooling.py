"""From the states of a batch of texts to rows, one for each text or one for each token; padding is never one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from isoscope._core.errors import InputError

Pool = str | Callable[..., torch.Tensor]
"""The name of a way to make rows, or a function (states, mask) → (n, d) rows."""

POOLS = ("cls", "mean", "last", "tokens")


class PooledRows(NamedTuple):
    """A cloud, and where each row comes from."""

    states: torch.Tensor
    shape: tuple[int, ...]
    """How many texts, and positions, the batch had."""
    texts: torch.Tensor | None
    """Which text of the batch each row is of; unknown where a function made the rows of something else."""
    positions: torch.Tensor | None = None
    """Which token of it, where rows are tokens."""


def row_text_ids(runs: Sequence[PooledRows]) -> torch.Tensor | None:
    """Return a number for the text that each row comes from, over several runs of a model; None if it is unknown."""
    found, first = [], 0
    for rows in runs:
        if rows.texts is None:
            return None
        found.append(rows.texts + first)
        first += rows.shape[0]
    return torch.cat(found)


def check_pool(pool: Any) -> Pool:
    """Check the name of a way to make rows."""
    if callable(pool) or pool in POOLS:
        return pool  # type: ignore[no-any-return]
    named = ", ".join(f'"{name}"' for name in POOLS)
    raise InputError(f"pool is {pool!r}: need one of {named}, or a function (states, mask) → (n, d) rows")


def pool_states(states: torch.Tensor, mask: torch.Tensor | None, pool: Pool, where: str) -> PooledRows:
    """Rows of (texts, positions, d) states; `mask` is 1 where a token is and 0 where padding is.

    States that already are rows stay as they are. A text without any token has no row.
    """
    if callable(pool):
        rows = pool(states, mask)
        if not torch.is_tensor(rows) or rows.ndim != 2:
            given = f"shape {tuple(rows.shape)}" if torch.is_tensor(rows) else f"a {type(rows).__name__}"
            raise InputError(f"pool gave {given} for {where}: need a tensor (n, d)")
        texts = torch.arange(len(rows), device=rows.device) if len(rows) == len(states) else None
        return PooledRows(rows, tuple(states.shape[:2]), texts)
    shape = tuple(states.shape[:2])
    if states.ndim == 2:
        return PooledRows(states, shape, torch.arange(len(states), device=states.device))
    if states.ndim != 3:
        raise InputError(
            f"the states of {where} have shape {tuple(states.shape)}: need (texts, positions, d) or (n, d); "
            "give pool a function (states, mask) that makes rows of them"
        )
    if mask is None:
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    elif tuple(mask.shape) != tuple(states.shape[:2]):
        raise InputError(
            f"the attention mask has shape {tuple(mask.shape)}, the states of {where} {tuple(states.shape)}: "
            "need the same texts and positions, in this order"
        )
    mask = mask.to(states.device) > 0
    if pool == "tokens":
        texts, positions = mask.nonzero(as_tuple=True)
        return PooledRows(states[texts, positions], shape, texts, positions)
    texts = mask.any(dim=1).nonzero()[:, 0]
    if len(texts) < len(states):
        states, mask = states[texts], mask[texts]
    if pool == "mean":
        wide = states if states.dtype == torch.float64 else states.float()
        total = wide.masked_fill(~mask.unsqueeze(2), 0).sum(dim=1)
        return PooledRows(total / mask.sum(dim=1, keepdim=True), shape, texts)
    return PooledRows(
        states[torch.arange(len(texts), device=states.device), pooled_positions(mask, pool)], shape, texts
    )


def pooled_positions(mask: torch.Tensor, pool: str) -> torch.Tensor:
    """Where the token is that stands for each text: its first ("cls") or its last.

    >>> mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    >>> pooled_positions(mask, "cls").tolist(), pooled_positions(mask, "last").tolist()
    ([1, 0], [2, 1])
    """
    if pool == "cls":
        return mask.int().argmax(dim=1)
    return mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
