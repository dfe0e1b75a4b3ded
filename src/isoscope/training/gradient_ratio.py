"""Compare the gradient of a regularizer with that of the task."""

from __future__ import annotations

import math

import torch
from torch import nn

from isoscope._core.errors import ParameterError


def gradient_ratio(term: torch.Tensor, loss: torch.Tensor, model: nn.Module) -> float:
    """Return the norm of the gradient of a term divided by that of a loss, for the parameters that the term depends on.

    It is NaN if the gradient of the loss is zero for these parameters. The gradients stored in the parameters do not
    change.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> value = model(torch.ones(1, 2)).sum()
    >>> round(gradient_ratio(0.25 * value, value, model), 6)
    0.25
    """
    parameters = [each for each in model.parameters() if each.requires_grad]
    try:
        of_term = _gradient_norms(term, parameters)
        reached = [each for each, norm in zip(parameters, of_term, strict=True) if norm is not None]
        of_loss = _gradient_norms(loss, reached)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ParameterError(
            f"the gradients of the term and of the loss cannot be compared for this model ({reason}): pass "
            "gradients=False"
        ) from error
    above, below = (math.hypot(*(norm for norm in norms if norm is not None)) for norms in (of_term, of_loss))
    return above / below if below else math.nan


def _gradient_norms(value: torch.Tensor, parameters: list[nn.Parameter]) -> list[float | None]:
    """Return the norm of the gradient for each parameter; None where the value does not depend on it."""
    if not (value.requires_grad and parameters):
        return [None] * len(parameters)
    found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
    return [None if each is None else float(torch.linalg.vector_norm(each, dtype=torch.float64)) for each in found]
