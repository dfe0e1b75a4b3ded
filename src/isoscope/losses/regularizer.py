"""The base class of regularizers, and gathering of rows from all processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from isoscope._core.arrays import check_real
from isoscope._core.errors import InputError


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


class Regularizer(nn.Module):  # type: ignore[misc]
    """A term for the loss, computed from hidden states: `weight` times what `penalty` says of a cloud.

    To make your own, give it a `penalty(states, labels)`, and `attach` takes it like the others.

    Under data-parallel training the cloud is that of all processes. It is measured in float32 at least, whatever
    autocast says. What is too small to be measured adds zero and is counted in `skipped`.

    Examples
    --------
    >>> import torch
    >>> from isoscope.losses import Regularizer
    >>> class Shorter(Regularizer):
    ...     def penalty(self, states, labels):
    ...         return states.norm(dim=1).mean()
    >>> float(Shorter(weight=0.5)(torch.tensor([[3.0, 4.0], [0.0, 1.0]])))
    1.5
    """

    layer: int | str = -1
    """Where `attach` puts it unless told otherwise."""
    pool: str = "cls"
    """How `attach` makes one row of a text unless told otherwise."""
    together: bool = False
    """Whether the states of several layers are one cloud; otherwise each layer is measured and the mean is taken."""
    needs_labels: bool = False
    """Whether `penalty` cannot do without labels."""
    takes_groups: bool = False
    """Whether `penalty` also takes `groups`: the text of each row, where rows are tokens."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = check_real(weight, "weight")
        if not abs(self.weight) < float("inf"):
            raise InputError(f"weight is {weight}: need a finite number, negative to turn the effect round")
        self.seen = 0
        """Clouds that were met."""
        self.skipped = 0
        """Clouds that were too small, or had no two different points, and added nothing."""

    def forward(
        self, states: torch.Tensor, labels: torch.Tensor | None = None, groups: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the term: a scalar to be added to the loss.

        `groups` are numbers of the texts that rows come from; regularizers that do not take groups ignore them.
        """
        states, labels = _check_states(states, labels)
        groups = _check_groups(states, groups) if self.takes_groups else None
        if labels is None and self.needs_labels:
            raise InputError(self._format_missing_labels())
        if is_parallel() and self.training and torch.is_grad_enabled():
            states = gather_rows(states)
            labels = gather_rows(labels) if labels is not None else None
            groups = gather_rows(make_groups_unique(groups)) if groups is not None else None
        with torch.autocast(states.device.type, enabled=False):
            penalty: Any = self.penalty  # of those that take groups, with one more argument
            found = penalty(states, labels) if groups is None else penalty(states, labels, groups)
            return self.weight * found

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        """What is to be made small, from an (n, d) cloud of float32 or float64; n may be 0."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """What stands between the brackets when the module is printed."""
        return f"weight={self.weight:g}"

    def _skip_states(self, states: torch.Tensor) -> torch.Tensor:
        """Zero, from these states so that a gradient of zeros arrives, and counted."""
        self.skipped += 1
        return states.sum() * 0

    def _format_missing_labels(self) -> str:
        return f"{type(self).__name__} needs labels, one for each row, and got none"


def _check_states(states: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not torch.is_tensor(states) or states.ndim != 2:
        given = f"shape {tuple(states.shape)}" if torch.is_tensor(states) else f"type {type(states).__name__}"
        raise InputError(f"the states have {given}: need a torch tensor (n, d), one row for each example or token")
    if not states.is_floating_point():
        raise InputError(f"the states have dtype {states.dtype}: need floating point numbers")
    if states.dtype not in (torch.float32, torch.float64):
        states = states.float()
    if labels is not None:
        labels = torch.as_tensor(labels, device=states.device)
        if tuple(labels.shape) != (len(states),):
            raise InputError(
                f"labels have shape {tuple(labels.shape)}, the states {len(states)} rows: need one for each"
            )
    return states, labels


def _check_groups(states: torch.Tensor, groups: Any) -> torch.Tensor | None:
    if groups is None:
        return None
    groups = torch.as_tensor(groups, device=states.device)
    if tuple(groups.shape) != (len(states),) or groups.is_floating_point():
        raise InputError(
            f"groups have shape {tuple(groups.shape)} and dtype {groups.dtype}, the states {len(states)} rows: need a "
            "whole number for each row, such as its text's place in the batch"
        )
    return groups.long()
