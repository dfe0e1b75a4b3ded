"""Run a model on a fixed set of examples, to measure its hidden states without disturbing training."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from isoscope._core.errors import ParameterError, ShapeError, TooFewRowsError
from isoscope.training.capture import probe_rows, run_model
from isoscope.training.layers import unwrap_compiled
from isoscope.training.trainers import is_lightning, run_training_step

if TYPE_CHECKING:
    from isoscope.training.capture import ProbeRows
    from isoscope.training.layers import Layer

_LABELS = ("labels", "label")
_BATCH_SIZE = 32  # batch size for the items of a dataset


class Probe:
    """A fixed list of batches, with the class of each example.

    Parameters
    ----------
    examples : iterable of batches, DataLoader or Dataset
        Batches in the form that the model accepts. The items of a dataset are batched in order.
    labels : sequence, optional
        The class of each example, or its grade if the labels are floats. By default, the "labels" in the batches, if
        they contain one number per example.
    """

    def __init__(self, examples: Any, labels: Any = None) -> None:
        with torch.random.fork_rng([]):  # a loader draws a random number even without shuffling
            self.batches = _list_batches(examples)
        if not self.batches:
            raise TooFewRowsError("probe is empty: need at least one batch, with a few dozen examples in total")
        self._has_own_labels = labels is not None
        found = _check_labels(labels) if self._has_own_labels else _find_labels(self.batches)
        graded = found is not None and found.dtype.kind == "f"
        self._labels = None if graded else found
        self._grades = found if graded else None

    def rows(self, model: nn.Module, layer: Any, pool: Any) -> dict[Layer, ProbeRows]:
        """Return the rows of each layer, without changing the model, its gradients or the random state."""
        inner = _unwrap_model(model)
        return probe_rows(inner, self.batches, layer, pool, run_for_states)

    def labels(self, rows: int) -> np.ndarray | None:
        """Return the class of each row, or None if the batches contain no classes that match the rows."""
        return self._match(self._labels, rows)

    def grades(self, rows: int) -> np.ndarray | None:
        """Return the grade of each row, or None if the batches contain no grades that match the rows."""
        return self._match(self._grades, rows)

    def _match(self, labels: np.ndarray | None, rows: int) -> np.ndarray | None:
        if labels is None or len(labels) == rows:
            return labels
        if self._has_own_labels:
            raise ShapeError(f"labels has {len(labels)} entries but the probe has {rows} rows; pass one label per row")
        return None


def run_for_states(model: Any, batch: Any) -> Any:
    """Run a model on a batch to compute its hidden states; labels are passed only if the model requires them."""
    if not hasattr(batch, "keys"):
        return _run_training_step(model, batch) if is_lightning(model) else run_model(model, batch)
    batch = {key: batch[key] for key in batch.keys()}  # noqa: SIM118 - a BatchEncoding is no dict
    if is_lightning(model) and not _has_forward(model):
        return _run_training_step(model, batch)
    parameters = inspect.signature(model.forward).parameters
    required = {
        name for name, each in parameters.items() if each.default is each.empty and each.kind not in _VARIADIC_KINDS
    }
    inputs = {key: value for key, value in batch.items() if key not in _LABELS or key in required}
    if required - inputs.keys():  # the model takes the batch as one argument, as SentenceTransformer does
        return run_model(model, (inputs,))
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        inputs = {key: value for key, value in inputs.items() if key in parameters}
    return run_model(model, inputs)


_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _run_training_step(module: Any, batch: Any) -> Any:
    if not module.automatic_optimization:
        raise ParameterError(
            f"{type(module).__name__} uses manual optimization, so running its training_step would train it: define "
            "forward and pass the probe as dicts, or call tracker.measure with the inner module"
        )
    return run_model(_TrainingStep(module), (batch,))


class _TrainingStep:
    """A wrapper that makes the training step of a Lightning module callable like a model."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def parameters(self) -> Any:
        return self.module.parameters()

    def __call__(self, batch: Any) -> Any:
        return run_training_step(self.module, self.module.training_step, batch)


def _has_forward(model: Any) -> bool:
    """Return whether a Lightning module defines its own `forward` method."""
    home = next(base for base in type(model).__mro__ if "forward" in base.__dict__)
    return home.__name__ not in ("LightningModule", "Module")


def _unwrap_model(model: Any) -> nn.Module:
    """Return the model inside a wrapper of `torch.compile` or of data-parallel training.

    A compiled model would be compiled again for the probe, and a parallel one would wait for the other processes.
    """
    if not isinstance(model, nn.Module):
        raise ParameterError(f"model is a {type(model).__name__}: need a torch.nn.Module")
    model = unwrap_compiled(model)
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        model = unwrap_compiled(model.module)
    return model


def _list_batches(examples: Any) -> list[Any]:
    from torch.utils.data import DataLoader

    if hasattr(examples, "keys") or torch.is_tensor(examples) or isinstance(examples, str):
        raise ParameterError(
            f"probe is a {type(examples).__name__}: need a list of batches; pass [batch] for a single batch"
        )
    if hasattr(examples, "__getitem__") and hasattr(examples, "__len__") and not isinstance(examples, list | tuple):
        try:
            return list(DataLoader(examples, batch_size=_BATCH_SIZE))
        except (RuntimeError, TypeError) as error:
            raise ShapeError(
                f"the items of the probe cannot be collated into batches ({str(error).splitlines()[0]}): "
                "need items of equal length, or a DataLoader with your own collate_fn"
            ) from error
    try:
        return list(examples)
    except TypeError as error:
        raise ParameterError(
            f"probe is a {type(examples).__name__}: need batches that the model accepts, a DataLoader or a Dataset"
        ) from error


def _check_labels(labels: Any) -> np.ndarray:
    values = labels.cpu().numpy() if torch.is_tensor(labels) else np.asarray(labels)
    if values.ndim != 1:
        raise ShapeError(f"labels has shape {values.shape}: need shape (n,), one class or grade per example")
    return values


def _find_labels(batches: list[Any]) -> np.ndarray | None:
    """Return the classes or grades in all batches, or None; labels of tokens are neither."""
    found = []
    for batch in batches:
        labels = next((batch[name] for name in _LABELS if hasattr(batch, "keys") and name in batch), None)
        if labels is None:
            return None
        labels = torch.as_tensor(labels)
        if labels.ndim != 1:
            return None
        found.append(labels.double().cpu().numpy() if labels.is_floating_point() else labels.cpu().numpy())
    return np.concatenate(found)
