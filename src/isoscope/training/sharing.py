"""Which part of a step a batch is, where Hugging Face's trainer adds up the losses of several."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

import torch
from torch import nn


def accumulation_share(model: nn.Module, kwargs: dict[str, Any]) -> float | torch.Tensor:
    """The part of a step that this batch is, where the model's own loss is such a part; 1 where it is a mean.

    Hugging Face's trainer tells models over how many labels, in all the batches that it accumulates, their loss is to
    be a mean, and then adds the losses up. Some heed it (language models, image classifiers), others take the mean of
    each batch all the same. The term does as the loss does that it is added to, so that their balance is the same
    however many batches are accumulated.
    """
    total: Any = kwargs.get("num_items_in_batch")
    labels: Any = kwargs.get("labels")
    inner = _unwrap_peft(model)
    if total is None or not torch.is_tensor(labels) or not uses_num_items_in_batch(inner.__class__):
        return 1.0
    counted = kwargs.get("shift_labels")
    if counted is None:
        counted = labels[..., 1:] if _shifts_labels(inner) else labels
    return (counted != -100).sum() / total


@functools.cache
def uses_num_items_in_batch(kind: Any) -> bool:
    """Whether a model hands on to its loss what the trainer tells it; only its source says so."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (OSError, TypeError, SyntaxError):
        return False
    handed = (keyword.arg for call in calls if _is_loss_function(call.func) for keyword in call.keywords)
    return any(name in (None, "num_items_in_batch") for name in handed)


def _is_loss_function(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "loss_function"


def _shifts_labels(model: Any) -> bool:
    """Whether the trainer leaves out each text's first label, which no token comes before: its own rule."""
    from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

    shifts = LOSS_MAPPING.get(str(getattr(model, "loss_type", None))) is ForCausalLMLoss
    return shifts and not getattr(getattr(model, "config", None), "is_encoder_decoder", False)


def _unwrap_peft(model: nn.Module) -> nn.Module:
    """The transformer inside a PEFT model; any other is itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
