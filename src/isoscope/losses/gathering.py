"""The rows of all processes of a data-parallel run, as one cloud that every process sees."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def is_parallel() -> bool:
    """Whether other processes train beside this one."""
    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def make_groups_unique(groups: torch.Tensor) -> torch.Tensor:
    """Return numbers of groups that no other process uses: each numbers its own texts from 0."""
    return groups * dist.get_world_size() + dist.get_rank()


def gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """The rows of every process, in the order of their ranks; each may bring another number of rows, or none.

    The gradient comes back to the process whose rows they are, times the number of processes: trainers average the
    gradients of the processes, and each has only its own part of this one. The average is then exactly the gradient
    of one process that has the whole batch. Nothing is sent on the way back, where other messages are under way.
    """
    sizes = _gather_sizes(rows)
    return _GatherRows.apply(rows, sizes)


def _gather_sizes(rows: torch.Tensor) -> list[int]:
    own = torch.tensor([len(rows)], device=rows.device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own)
    return [int(size) for size in sizes]


class _GatherRows(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        ctx.start = sum(sizes[: dist.get_rank()])
        ctx.rows = len(rows)
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))  # every process has to send as much as the others
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient[ctx.start : ctx.start + ctx.rows] * dist.get_world_size(), None
