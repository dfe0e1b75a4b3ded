"""Scale a term like the loss of a batch when a trainer accumulates gradients over several batches."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

import torch
from torch import nn

from isoscope.training.layers import unwrap_compiled


def accumulation_share(model: nn.Module, kwargs: dict[str, Any]) -> float | torch.Tensor:
    """Return this batch's share of an optimizer step if the model scales its loss by this share, else 1.

    When it accumulates gradients, the Hugging Face trainer passes the number of labels in all accumulated batches and
    sums the losses. Some models divide by that number (language models, image classifiers); others take the mean of
    each batch. The term is scaled like the loss it is added to, so their ratio does not depend on accumulation.
    """
    total: Any = kwargs.get("num_items_in_batch")
    labels: Any = kwargs.get("labels")
    inner = _unwrap_peft(unwrap_compiled(model))
    if total is None or not torch.is_tensor(labels) or not uses_num_items_in_batch(inner.__class__):
        return 1.0
    counted = kwargs.get("shift_labels")
    if counted is None:
        counted = labels[..., 1:] if _shifts_labels(inner) else labels
    return (counted != -100).sum() / total


@functools.cache
def uses_num_items_in_batch(kind: Any) -> bool:
    """Return whether a model passes num_items_in_batch to its loss function, according to its source code."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (OSError, TypeError, SyntaxError):
        return False
    passed = (keyword.arg for call in calls if _is_loss_function(call.func) for keyword in call.keywords)
    return any(name in (None, "num_items_in_batch") for name in passed)


def _is_loss_function(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "loss_function"


def _shifts_labels(model: Any) -> bool:
    """Return whether the trainer drops each text's first label, as it does for causal language models."""
    from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

    shifts = LOSS_MAPPING.get(str(getattr(model, "loss_type", None))) is ForCausalLMLoss
    return shifts and not getattr(getattr(model, "config", None), "is_encoder_decoder", False)


def _unwrap_peft(model: nn.Module) -> nn.Module:
    """Return the transformer inside a PEFT model; other models are returned unchanged."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
