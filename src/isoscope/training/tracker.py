"""Track the shape of every layer on a fixed probe while a model trains."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError, MissingExtra, warn_data
from isoscope._render import render
from isoscope.training.capture import probe_rows, run_model
from isoscope.training.history import History
from isoscope.training.layer_metrics import MEASUREMENTS, CollapseDetector, measure
from isoscope.training.trainers import is_lightning, run_training_step

if TYPE_CHECKING:
    from isoscope.training.capture import ProbeRows
    from isoscope.training.layer_metrics import Collapse
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


class IsotropyTracker:
    """Measures the layers of a model on a fixed probe while it trains, and tells when one collapses.

    Of each layer: anisotropy_1 to _3, raw and centred, IsoScore, plug-in and unbiased, mean cosine, TwoNN dimension and
    the silhouette of the classes. Where rows are tokens (`pool="tokens"`), the unbiased IsoScore compares tokens of
    different texts alone; otherwise it assumes independent rows. Measuring leaves training as it is: modes, gradients
    and torch's random numbers stay untouched, to the last bit.

    Parameters
    ----------
    probe : iterable of batches, DataLoader or Dataset
        The examples, the same each time: batches as the model takes them. A few dozen will do, a few hundred are good.
    layer : int, str or list
        Which hidden states: numbers as in Hugging Face's `hidden_states`, "all", or a module's name.
    pool : {"cls", "mean", "last", "tokens"} or callable
        Rows from the states of a text: its first token, the mean, the last token, all tokens, or a function.
    every : int
        Measure every so many optimizer steps, besides the start and the end.
    labels : sequence, optional
        Each example's class, for the silhouette; by default the batches' own "labels".
    path : path, optional
        Where the history is kept: a file, or a folder for a `history.parquet`. One that is there is continued when
        training is resumed, and set aside when it begins anew. None keeps the history in memory.
    stop_on_collapse : bool
        Stop training when a layer has collapsed, and not only warn.

    Attributes
    ----------
    history : History
        What was measured.
    collapses : list of Collapse
        The layers that have collapsed.
    should_stop : bool
        Whether `stop_on_collapse` holds and one has; for a loop of your own.

    Notes
    -----
    Under data-parallel training the first process alone measures and writes. With `stop_on_collapse` the others wait
    for its word, so call `measure` in all of them.

    Examples
    --------
    >>> import torch, isoscope
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    >>> probe = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    >>> tracker = isoscope.IsotropyTracker([probe], layer=["1", "2"])
    >>> rows = tracker.measure(model, step=0)
    >>> [(row["layer"], row["rows"], row["dimensions"]) for row in rows]
    [('1', 64, 16), ('2', 64, 4)]
    """

    def __init__(
        self,
        probe: Any,
        *,
        layer: Any = "all",
        pool: Any = "cls",
        every: int = 100,
        labels: Any = None,
        path: str | os.PathLike[str] | None = None,
        stop_on_collapse: bool = False,
    ) -> None:
        if check_integer(every, "every") < 1:
            raise InputError(f"every is {every}: need 1 step at least")
        self.layer, self.pool, self.every, self.stop_on_collapse = layer, pool, every, stop_on_collapse
        self.should_stop = False
        self.latest = 0
        """The last step that was measured, in this process or in the first."""
        self._probe = _make_probe(probe, labels)
        self.history = History(path)
        if self.history.path is not None and self.history.path.exists():
            self.history = History.read(self.history.path)
        self._watch = _make_detector(self.history)

    @property
    def collapses(self) -> list[Collapse]:
        """The layers that have collapsed, and when."""
        return list(self._watch.found.values())

    # measuring

    def measure(self, model: Any, *, step: int, epoch: float | None = None) -> list[dict[str, Any]]:
        """Measure the model now, add to the history and save it; what it holds of `step` and later is replaced.

        Returns
        -------
        list of dict
            A row for each layer; none in the other processes of a data-parallel training.
        """
        self.latest = check_integer(step, "step")
        rows = (
            self._measure_and_save(model, step, math.nan if epoch is None else float(epoch))
            if is_first_process()
            else []
        )
        if self.stop_on_collapse:
            self.should_stop = broadcast_decision(bool(self._watch.found))
        return rows

    def _measure_and_save(self, model: Any, step: int, epoch: float) -> list[dict[str, Any]]:
        rows = self._rows(model, step, epoch)
        self._truncate_history(step)
        self.history.append(rows)
        self.history.save()
        for collapse in self._watch.look(rows):
            warn_data(collapse.message)
        return rows

    def _rows(self, model: Any, step: int, epoch: float) -> list[dict[str, Any]]:
        rows = []
        for order, (layer, (states, texts)) in enumerate(self._probe.rows(model, self.layer, self.pool).items()):
            name = f"layer_{layer}" if isinstance(layer, int) else layer
            found = measure(states, self._probe.labels(len(states)), groups=texts, layer=name, step=step)
            place = {"step": step, "epoch": epoch, "order": order, "layer": name}
            rows.append(place | {"rows": len(states), "dimensions": states.shape[1]} | found)
        return rows

    def _truncate_history(self, step: int) -> None:
        before = len(self.history)
        self.history.truncate(step)
        if len(self.history) < before:
            self._watch = _make_detector(self.history)

    # trainers

    def follow(self, trainer: Any) -> IsotropyTracker:
        """Have a trainer measure at the start, every so many steps and at the end, and log to where it logs.

        Parameters
        ----------
        trainer : Trainer
            Of Hugging Face or Sentence Transformers, or of Lightning. For both the model must fit on each device:
            where its weights are spread over processes (FSDP, DeepSpeed ZeRO-3), one process cannot run it alone.
        """
        from isoscope.training.trainers import add_tracker_callback

        add_tracker_callback(trainer, self)
        return self

    def measure_at_start(self, model: Any, *, step: int, epoch: float) -> list[dict[str, Any]]:
        """A trainer starts, or goes on from a checkpoint of `step`: measure what the history does not have yet."""
        self.latest, self.should_stop = step, False
        if not is_first_process():
            return []
        self._truncate_history(step + 1 if step else 0)
        missing = step % self.every == 0 and step not in self.history.steps
        return self._measure_and_save(model, step, epoch) if missing or not len(self.history) else []

    def is_due(self, step: int) -> bool:
        """Whether a multiple of `every` has come since the last measurement."""
        return step // self.every > self.latest // self.every

    # what is seen in it

    def save_figure(self, path: str | os.PathLike[str]) -> None:
        """Draw how the anisotropy of each layer went, raw and centred: png, svg or pdf, by the name."""
        render("History", "figure", self.history, path)

    def save_page(self, path: str | os.PathLike[str], facts: Mapping[str, object] | None = None) -> None:
        """Write all that was measured as one HTML page; `facts` are said on it, such as the model and the task."""
        from isoscope._io.files import atomic_replace

        text = render("History", "page", self.history, facts)
        with atomic_replace(path) as temporary:
            Path(temporary).write_text(text, encoding="utf-8")


def build_log_entry(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The numbers of a measurement under the names they have in a log; what could not be had is left out.

    >>> build_log_entry([{"layer": "layer_3", "isoscore": 0.5, "silhouette": float("nan")}])
    {'isotropy/layer_3/isoscore': 0.5}
    """
    return {
        f"isotropy/{row['layer']}/{name}": float(row[name])
        for row in rows
        for name in MEASUREMENTS
        if not math.isnan(row.get(name, math.nan))
    }


def is_first_process() -> bool:
    """Whether this process is the one that measures; it is if it is alone."""
    dist = _distributed()
    return dist is None or dist.get_rank() == 0


def broadcast_decision(decision: bool) -> bool:
    """What the first process has decided, in all of them."""
    dist = _distributed()
    if dist is None:
        return decision
    held = [decision]
    dist.broadcast_object_list(held, src=0)
    return bool(held[0])


def _distributed() -> Any:
    """torch.distributed, where several processes train together."""
    import torch.distributed as dist

    from isoscope.losses.regularizer import is_parallel

    return dist if is_parallel() else None


def _make_probe(probe: Any, labels: Any) -> Probe:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtra('a tracker needs torch, which is not installed: pip install "isoscope[train]"') from error

    return Probe(probe, labels)


def _make_detector(history: History) -> CollapseDetector:
    watch = CollapseDetector()
    watch.look(history)
    return watch
