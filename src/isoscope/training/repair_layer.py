"""A repair of the space inside a model: the vectors that its head reads, batch by batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError
from isoscope.training.capture import Hook, pooled_positions
from isoscope.training.layers import find_hidden_states, find_stack
from isoscope.transforms.clustered import ClusterNull


class BatchRepair:
    """Clusters the rows of a batch, and takes out each cluster's mean and first directions.

    Clusters, means and directions are of this batch alone and held fixed in the gradient, which so has no part along
    those directions. The same rows give the same result. A row that is alone stays as it is; a cluster with no more
    rows than directions becomes zero, whatever it held.

    Parameters
    ----------
    n_clusters : int
        How many; as many as rows if the batch has fewer.
    n_components : int
        Directions taken out in each cluster.
    seed : int
        Of the clusters' first centres.

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

    def __init__(self, n_clusters: int = 3, n_components: int = 1, *, seed: int = 0) -> None:
        if check_integer(n_clusters, "n_clusters") < 1:
            raise InputError(f"n_clusters is {n_clusters}: need 1 at least")
        if check_integer(n_components, "n_components") < 0:
            raise InputError(f"n_components is {n_components}: need 0 at least")
        self.n_clusters, self.n_components, self.seed = n_clusters, n_components, check_integer(seed, "seed")

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """The (n, d) rows, repaired."""
        if len(rows) < 2:
            return rows
        wide = rows if rows.dtype == torch.float64 else rows.float()
        made = ClusterNull(min(self.n_clusters, len(rows)), self.n_components, random_state=self.seed)
        found: torch.Tensor = made.fit(wide.detach().cpu().numpy()).transform(wide)
        return found.to(rows.dtype)

    def __repr__(self) -> str:
        return f"BatchRepair({self.n_clusters}, {self.n_components}, seed={self.seed})"


class Repairing:
    """A repair in a model, from now until `remove()`: in training and in evaluation, on each batch by itself.

    What comes out of the last layer (before a final norm, where the model has one) is changed at the one token of each
    text that the head reads.

    Parameters
    ----------
    model : torch.nn.Module
        A transformer, with its head or without.
    repair : callable
        `BatchRepair`, or anything that makes (n, d) rows of (n, d) rows.
    pool : {"cls", "last"}
        Which token stands for a text.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    >>> with Repairing(model, BatchRepair(1, 0)):
    ...     repaired = model(torch.ones(5, 4))
    >>> float(repaired.detach().abs().max())
    0.0
    """

    def __init__(self, model: nn.Module, repair: Any, pool: str = "cls") -> None:
        if pool not in ("cls", "last"):
            raise InputError(f'pool is {pool!r}: need "cls" or "last", the token that the head reads')
        if not callable(repair):
            raise InputError(f"repair is a {type(repair).__name__}: need a BatchRepair, or a function of (n, d) rows")
        stack = find_stack(model)
        if stack.depth > len(stack.names):
            raise InputError(f"{type(model).__name__} runs one layer again and again: there is no last one to repair")
        self.repair, self.pool = repair, pool
        self._mask: torch.Tensor | None = None
        last = model.get_submodule(stack.names[-1])
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before), with_kwargs=True),
            last.register_forward_hook(Hook(self._forward_hook)),
        ]

    def remove(self) -> None:
        """Leave the model as it was."""
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
            raise InputError("the last layer gives no states (texts, positions, d) or (n, d): nothing can be repaired")
        return _replace_states(output, states, self._repair_states(states))

    def _repair_states(self, states: torch.Tensor) -> torch.Tensor:
        if states.ndim == 2:
            found: torch.Tensor = self.repair(states)
            return found
        mask = torch.ones(states.shape[:2], dtype=torch.bool) if self._mask is None else self._mask > 0
        mask = mask.to(states.device)
        texts = torch.arange(len(states), device=states.device)
        at = (texts, pooled_positions(mask, self.pool))
        return states.index_put(at, self.repair(states[at]))


def _replace_states(output: Any, before: torch.Tensor, states: torch.Tensor) -> Any:
    """What a layer gave, with other states in it."""
    if torch.is_tensor(output):
        return states
    if isinstance(output, tuple):
        return tuple(states if each is before else each for each in output)
    raise InputError(f"the last layer gives a {type(output).__name__}: need a tensor, or a tuple with one")
