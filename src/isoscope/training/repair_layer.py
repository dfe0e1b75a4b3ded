"""Repair the hidden states inside a model, batch by batch, before they reach its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from isoscope._core.arrays import check_integer
from isoscope._core.errors import ParameterError, ShapeError
from isoscope._core.random import check_seed
from isoscope.training.capture import Hook, pooled_positions
from isoscope.training.layers import default_pool, find_hidden_states, find_stack
from isoscope.transforms.clustered import ClusterNull

if TYPE_CHECKING:
    from isoscope._core.types import Seed


class BatchRepair:
    """A repair that clusters a batch and removes each cluster's mean and leading principal components.

    The clusters, means and components come from this batch alone. The gradient treats them as constants, so it is
    zero along the removed components. The same rows always produce the same result. A batch of one row is returned
    unchanged. In a cluster that does not have more rows than removed components, all rows become zero.

    Parameters
    ----------
    n_clusters : int
        The number of clusters; a batch with fewer rows is split into one cluster per row.
    n_components : int
        The number of principal components to remove from each cluster.
    seed : int
        Random seed for the initial cluster centers.

    Examples
    --------
    >>> import torch
    >>> rows = torch.randn(32, 8, generator=torch.Generator().manual_seed(0)) + 5
    >>> bool(BatchRepair(1, 0)(rows).mean(dim=0).abs().max() < 1e-5)
    True

    References
    ----------
    Rajaee and Sheikhi, Isotropic word representation in BERT, 2020.
    """

    def __init__(self, n_clusters: int = 3, n_components: int = 1, *, seed: Seed = 0) -> None:
        if check_integer(n_clusters, "n_clusters") < 1:
            raise ParameterError(f"n_clusters is {n_clusters}: need a positive integer")
        if check_integer(n_components, "n_components") < 0:
            raise ParameterError(f"n_components is {n_components}: need a non-negative integer")
        self.n_clusters, self.n_components, self.seed = n_clusters, n_components, check_seed(seed)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the repaired rows, a tensor of shape (n, d)."""
        if len(rows) < 2:
            return rows
        wide = rows if rows.dtype == torch.float64 else rows.float()
        repair = ClusterNull(min(self.n_clusters, len(rows)), self.n_components, random_state=self.seed)
        repaired: torch.Tensor = repair.fit(wide.detach().cpu().numpy()).transform(wide)
        return repaired.to(rows.dtype)

    def __repr__(self) -> str:
        return f"BatchRepair({self.n_clusters}, {self.n_components}, seed={self.seed})"


class Repairing:
    """A hook that repairs the hidden states of a model in every batch, until `remove()` is called.

    The repair is active in training and in evaluation. It changes the output of the last layer, before a final
    norm if the model has one, and only for the token of each text that the head reads.

    Parameters
    ----------
    model : torch.nn.Module
        A transformer, with or without a head.
    repair : callable
        A `BatchRepair`, or any function that maps rows of shape (n, d) to rows of the same shape.
    pool : {"cls", "last"}, optional
        The token that the head reads. The default is "last" if the model is causal (a decoder), otherwise "cls".

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    >>> with Repairing(model, BatchRepair(1, 0)):
    ...     repaired = model(torch.ones(5, 4))
    >>> float(repaired.detach().abs().max())
    0.0
    """

    def __init__(
        self,
        model: nn.Module,
        repair: Callable[[torch.Tensor], torch.Tensor],
        pool: str | None = None,
    ) -> None:
        if pool not in ("cls", "last", None):
            raise ParameterError(f'pool is {pool!r}: need the token that the head reads, "cls" or "last"')
        if not callable(repair):
            raise ParameterError(
                f"repair is a {type(repair).__name__}: need a BatchRepair, or a function of rows of shape (n, d)"
            )
        stack = find_stack(model)
        if stack.depth > len(stack.names):
            raise ParameterError(
                f"{type(model).__name__} reuses the same layer several times, so it has no last layer to repair"
            )
        self.repair, self.pool = repair, pool or default_pool(model, [-1])
        self._mask: torch.Tensor | None = None
        last = model.get_submodule(stack.names[-1])
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before), with_kwargs=True),
            last.register_forward_hook(Hook(self._forward_hook)),
        ]

    def remove(self) -> None:
        """Remove the repair from the model."""
        while self._handles:
            self._handles.pop().remove()

    def __enter__(self) -> Repairing:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()

    def _before(self, _: nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        mask: Any = kwargs.get("attention_mask")
        self._mask = mask if torch.is_tensor(mask) and mask.ndim == 2 else None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward_hook(self, _: nn.Module, __: Any, output: Any) -> Any:
        states = find_hidden_states(output)
        if states is None or states.ndim not in (2, 3):
            raise ShapeError("the last layer returns no states of shape (texts, positions, d) or (n, d) to repair")
        return _replace_states(output, states, self._repair_states(states))

    def _repair_states(self, states: torch.Tensor) -> torch.Tensor:
        if states.ndim == 2:
            return self.repair(states)
        mask = torch.ones(states.shape[:2], dtype=torch.bool) if self._mask is None else self._mask > 0
        mask = mask.to(states.device)
        texts = torch.arange(len(states), device=states.device)
        at = (texts, pooled_positions(mask, self.pool))
        return states.index_put(at, self.repair(states[at]))


def _replace_states(output: Any, before: torch.Tensor, states: torch.Tensor) -> Any:
    """Return the output of a layer with its states replaced."""
    if torch.is_tensor(output):
        return states
    if isinstance(output, tuple):
        return tuple(states if each is before else each for each in output)
    raise ParameterError(
        f"the last layer returns a {type(output).__name__}: need a tensor, or a tuple that contains one"
    )
