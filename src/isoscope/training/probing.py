"""A fixed set of examples that a model is shown again and again while it trains."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from isoscope._core.errors import InputError
from isoscope.training.capture import probe_rows, run_model
from isoscope.training.trainers import is_lightning, run_training_step

if TYPE_CHECKING:
    from isoscope.training.capture import ProbeRows
    from isoscope.training.layers import Layer

_LABELS = ("labels", "label")
_BATCH_SIZE = 32  # examples of a dataset in a batch


class Probe:
    """Batches that stay the same, and each example's class.

    Parameters
    ----------
    examples : iterable of batches, DataLoader or Dataset
        Batches as the model takes them. Of a dataset the items are put together in their order.
    labels : sequence, optional
        Each example's class. Otherwise the batches' "labels", if they are whole numbers, one for each example.
    """

    def __init__(self, examples: Any, labels: Any = None) -> None:
        with torch.random.fork_rng([]):  # a loader draws a number even if it does not shuffle
            self.batches = _list_batches(examples)
        if not self.batches:
            raise InputError("probe is empty: need at least one batch, with a few dozen examples in all")
        self._given = labels is not None
        self._labels = _check_classes(labels) if self._given else _find_classes(self.batches)

    def rows(self, model: nn.Module, layer: Any, pool: Any) -> dict[Layer, ProbeRows]:
        """Return each layer's rows; the model, its gradients and torch's random numbers stay as they were."""
        inner = _unwrap_parallel(model)
        return probe_rows(inner, self.batches, layer, pool, run_for_states)

    def labels(self, rows: int) -> np.ndarray | None:
        """A class for each row, or None where the batches have none that fit."""
        if self._labels is None or len(self._labels) == rows:
            return self._labels
        if self._given:
            raise InputError(f"labels has {len(self._labels)} entries, the probe has {rows} rows: need one for each")
        return None


def run_for_states(model: Any, batch: Any) -> Any:
    """Run a model on a batch for its states alone: without labels where it can do without."""
    if not hasattr(batch, "keys"):
        return _run_training_step(model, batch) if is_lightning(model) else run_model(model, batch)
    batch = {key: batch[key] for key in batch.keys()}  # noqa: SIM118 - a BatchEncoding is no dict
    if is_lightning(model) and not _has_forward(model):
        return _run_training_step(model, batch)
    parameters = inspect.signature(model.forward).parameters
    required = {
        name for name, each in parameters.items() if each.default is each.empty and each.kind not in _VARIADIC_KINDS
    }
    asked = {key: value for key, value in batch.items() if key not in _LABELS or key in required}
    if required - asked.keys():  # it takes the batch as a whole, as SentenceTransformer does
        return run_model(model, (asked,))
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        asked = {key: value for key, value in asked.items() if key in parameters}
    return run_model(model, asked)


_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _run_training_step(module: Any, batch: Any) -> Any:
    if not module.automatic_optimization:
        raise InputError(
            f"{type(module).__name__} optimises by hand: its training_step cannot be run to look at it alone; give it "
            "a forward and the probe as dicts for that, or call tracker.measure with the module inside"
        )
    return run_model(_TrainingStep(module), (batch,))


class _TrainingStep:
    """What a Lightning module does with a batch, called as a model is."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def parameters(self) -> Any:
        return self.module.parameters()

    def __call__(self, batch: Any) -> Any:
        return run_training_step(self.module, self.module.training_step, batch)


def _has_forward(model: Any) -> bool:
    """Whether a Lightning module says itself how it runs."""
    home = next(base for base in type(model).__mro__ if "forward" in base.__dict__)
    return home.__name__ not in ("LightningModule", "Module")


def _unwrap_parallel(model: nn.Module) -> nn.Module:
    """The model inside a data-parallel one, whose own forward would wait for the other processes."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        return model.module
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}: need a torch.nn.Module")
    return model


def _list_batches(examples: Any) -> list[Any]:
    from torch.utils.data import DataLoader

    if hasattr(examples, "keys") or torch.is_tensor(examples) or isinstance(examples, str):
        raise InputError(f"probe is a {type(examples).__name__}: need a list of batches, [batch] for one")
    if hasattr(examples, "__getitem__") and hasattr(examples, "__len__") and not isinstance(examples, list | tuple):
        try:
            return list(DataLoader(examples, batch_size=_BATCH_SIZE))
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"the items of probe cannot be put together in batches ({str(error).splitlines()[0]}): "
                "need items of equal length, or a DataLoader with your collate_fn"
            ) from error
    try:
        return list(examples)
    except TypeError as error:
        raise InputError(
            f"probe is a {type(examples).__name__}: need batches as the model takes them, a DataLoader or a Dataset"
        ) from error


def _check_classes(labels: Any) -> np.ndarray:
    values = labels.cpu().numpy() if torch.is_tensor(labels) else np.asarray(labels)
    if values.ndim != 1:
        raise InputError(f"labels has shape {values.shape}: need one class for each example")
    return values


def _find_classes(batches: list[Any]) -> np.ndarray | None:
    """The classes that all batches bring along; numbers to be predicted, or a label for each token, are none."""
    found = []
    for batch in batches:
        labels = next((batch[name] for name in _LABELS if hasattr(batch, "keys") and name in batch), None)
        if labels is None:
            return None
        labels = torch.as_tensor(labels)
        if labels.ndim != 1 or labels.is_floating_point():
            return None
        found.append(labels.cpu().numpy())
    return np.concatenate(found)
