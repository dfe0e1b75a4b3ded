"""The base class of regularizers, which gathers rows from all processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from isoscope._core.arrays import check_real
from isoscope._core.errors import ParameterError, ShapeError


def is_parallel() -> bool:
    """Return whether training is distributed over several processes."""
    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def make_groups_unique(groups: torch.Tensor) -> torch.Tensor:
    """Return group numbers that no other process uses; each process numbers its texts from 0."""
    return groups * dist.get_world_size() + dist.get_rank()


def gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows of all processes in rank order; processes may have different numbers of rows.

    Each process receives the gradient of its own rows, times the number of processes. Trainers average gradients over
    processes, so the result equals the gradient of a single process with the complete batch. The backward pass does
    not communicate, because the trainer communicates at that time.
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
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))  # all processes must send the same number of rows
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient[ctx.start : ctx.start + ctx.rows] * dist.get_world_size(), None


class Regularizer(nn.Module):  # type: ignore[misc]
    """The base class of regularizers: a loss term computed from hidden states, `weight` times `penalty`.

    To write your own, define `penalty(states, labels)`; `attach` accepts it like the built-in regularizers.

    In data-parallel training, the term is computed from the states of all processes together. It is computed in at
    least float32, even under autocast. Batches that are too small add zero and are counted in `skipped`.

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
    """The default layer for `attach`."""
    pool: str | None = None
    """The default pooling mode for `attach`; None for the last token of a causal model and the first of others."""
    together: bool = False
    """Whether the term is computed from the states of all layers together; otherwise, it is the mean over layers."""
    needs_labels: bool = False
    """Whether `penalty` requires labels."""
    takes_groups: bool = False
    """Whether `penalty` accepts `groups`: the index of each row's text, if rows are tokens."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = check_real(weight, "weight")
        if not abs(self.weight) < float("inf"):
            raise ParameterError(f"weight is {weight}: need a finite number; a negative weight reverses the effect")
        self.seen = 0
        """The number of batches seen so far; if the term is computed per class, the number of classes in them."""
        self.skipped = 0
        """How many of them were skipped, because they were too small or all their rows were equal."""
        self.rows_seen = 0
        """The number of rows in the batches or classes seen so far."""
        self.rows_skipped = 0
        """How many of them were in a skipped batch or class, and therefore got no gradient."""

    def forward(
        self, states: torch.Tensor, labels: torch.Tensor | None = None, groups: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the regularization term, a scalar to add to the loss.

        `groups` contains the index of each row's text; regularizers without `takes_groups` ignore it.
        """
        states, labels = _check_states(states, labels)
        groups = _check_groups(states, groups) if self.takes_groups else None
        if labels is None and self.needs_labels:
            raise ParameterError(self._format_missing_labels())
        if is_parallel() and self.training and torch.is_grad_enabled():
            states = gather_rows(states)
            labels = gather_rows(labels) if labels is not None else None
            groups = gather_rows(make_groups_unique(groups)) if groups is not None else None
        with torch.autocast(states.device.type, enabled=False):
            penalty: Any = self.penalty  # with a third argument if `takes_groups`
            value = penalty(states, labels) if groups is None else penalty(states, labels, groups)
            return self.weight * value

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        """Return the value to minimize for states of shape (n, d) in float32 or float64; n may be 0."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the parameters to show in the module's repr."""
        return f"weight={self.weight:g}"

    def _see_states(self, states: torch.Tensor) -> None:
        """Add these states to the counts of seen calls and rows."""
        self.seen += 1
        self.rows_seen += len(states)

    def _skip_states(self, states: torch.Tensor) -> torch.Tensor:
        """Count these states as skipped, and return a zero whose gradient is zero."""
        self.skipped += 1
        self.rows_skipped += len(states)
        return states.sum() * 0

    def format_skipped(self) -> str:
        """Return the reason why rows are usually skipped, and the remedy, as text for a warning."""
        return "their batch is too small: use larger batches"

    def _format_missing_labels(self) -> str:
        return f"{type(self).__name__} needs labels, one per row, but got none"


def _check_states(states: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not torch.is_tensor(states) or states.ndim != 2:
        given = f"shape {tuple(states.shape)}" if torch.is_tensor(states) else f"type {type(states).__name__}"
        raise ShapeError(f"the states have {given}: need a torch tensor of shape (n, d), one row per example or token")
    if not states.is_floating_point():
        raise ParameterError(f"the states have dtype {states.dtype}: need floating-point numbers")
    if states.dtype not in (torch.float32, torch.float64):
        states = states.float()
    if labels is not None:
        try:
            labels = torch.as_tensor(labels, device=states.device)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"labels is a {type(labels).__name__} that is not numeric ({error}): pass one integer per row"
            ) from error
        if tuple(labels.shape) != (len(states),):
            raise ShapeError(
                f"labels has shape {tuple(labels.shape)} but the states have {len(states)} rows; pass one label per row"
            )
    return states, labels


def _check_groups(states: torch.Tensor, groups: Any) -> torch.Tensor | None:
    if groups is None:
        return None
    groups = torch.as_tensor(groups, device=states.device)
    if tuple(groups.shape) != (len(states),) or groups.is_floating_point():
        raise ShapeError(
            f"groups has shape {tuple(groups.shape)} and dtype {groups.dtype}, but the states have {len(states)} "
            "rows; pass one integer per row, such as the index of its text in the batch"
        )
    return groups.long()
