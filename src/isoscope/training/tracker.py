"""Track the shape of every layer on fixed examples while a model trains."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.arrays import check_integer
from isoscope._core.errors import ParameterError, warn_data
from isoscope._render import render
from isoscope.training.history import History
from isoscope.training.layer_metrics import MEASUREMENTS, CollapseDetector, label_correlation, measure
from isoscope.training.probe import Probe
from isoscope.training.trainers import add_tracker_callback

if TYPE_CHECKING:
    from isoscope.training.capture import Pool
    from isoscope.training.layer_metrics import Collapse
    from isoscope.training.layers import Layer


class IsotropyTracker:
    """A tracker that measures a model's layers on fixed examples during training, and warns when a layer collapses.

    It measures, for each layer: anisotropy_1 to _3, raw and centered; IsoScore, plug-in and unbiased; the mean cosine;
    the TwoNN dimension; and the silhouette of the classes. With `pool="tokens"`, the unbiased IsoScore compares only
    tokens of different texts; otherwise it assumes independent rows. Measuring does not affect training: module
    modes, gradients and torch's random numbers remain bit-identical.

    Parameters
    ----------
    probe : iterable of batches, DataLoader or Dataset
        The examples to measure, in batches that the model accepts. A few dozen suffice; a few hundred are better.
    layer : int, str or list
        The hidden states to measure: numbers as in Hugging Face's `hidden_states`, "all", or names of modules.
    pool : {"cls", "mean", "last", "tokens"} or callable, optional
        How the states of a text become rows: its first token, the mean over tokens, its last token, all tokens, or a
        function of (states, mask). The default is "last" if the model is causal (a decoder), otherwise "cls".
    every : int
        The number of optimizer steps between measurements. The start and the end are also measured.
    labels : sequence, optional
        The class of each example, for the silhouette, or its grade if the labels are floats. By default, the "labels"
        in the batches.
    path : path, optional
        Where to save the history: a file, or a folder in which `history.parquet` is written. If training is resumed, an
        existing history is continued; a new training run renames it first. If None, the history is kept only in memory.
    stop_on_collapse : bool
        Whether to stop training when a layer has collapsed. By default, only a warning is issued.

    Attributes
    ----------
    history : History
        The measurements so far.
    collapses : list of Collapse
        The layers that have collapsed.
    should_stop : bool
        Whether training should stop, because `stop_on_collapse` is set and a layer has collapsed. Check it in your own
        training loop.

    Notes
    -----
    In data-parallel training, only the first process measures and writes. With `stop_on_collapse` the other processes
    wait for its decision, so call `measure` in all processes.

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
        layer: Layer | list[Layer] = "all",
        pool: Pool | None = None,
        every: int = 100,
        labels: Any = None,
        path: str | os.PathLike[str] | None = None,
        stop_on_collapse: bool = False,
    ) -> None:
        if check_integer(every, "every") < 1:
            raise ParameterError(f"every is {every}: need at least 1 step")
        self.layer, self.pool, self.every, self.stop_on_collapse = layer, pool, every, stop_on_collapse
        self.should_stop = False
        self.latest = 0
        """The last measured step, also set in processes that do not measure."""
        self._probe = Probe(probe, labels)
        self.history = History(path)
        if self.history.path is not None and self.history.path.exists():
            self.history = History.read(self.history.path)
        self._watch = _make_detector(self.history)
        self._warned = False
        self._loss = math.nan

    @property
    def collapses(self) -> list[Collapse]:
        """The layers that have collapsed, with the step at which each collapsed."""
        return list(self._watch.found.values())

    # measuring

    def measure(
        self, model: Any, *, step: int, epoch: float | None = None, loss: float | None = None
    ) -> list[dict[str, Any]]:
        """Measure the model and save the result in the history, where it replaces all entries from `step` on.

        Parameters
        ----------
        model : torch.nn.Module
            The model.
        step, epoch
            The position in training.
        loss : float, optional
            The current loss of the task, averaged over some steps. It helps to tell a collapse from learning; trainers
            that the tracker follows provide it.

        Returns
        -------
        list of dict
            One row per layer; empty in all but the first process in data-parallel training.
        """
        self.latest = check_integer(step, "step")
        if loss is not None:
            self.note_loss(loss)
        rows = (
            self._measure_and_save(model, step, math.nan if epoch is None else float(epoch))
            if is_first_process()
            else []
        )
        if self.stop_on_collapse:
            self.should_stop = broadcast_decision(bool(self._watch.found))
        return rows

    def note_loss(self, loss: float) -> None:
        """Set the current loss of the task, which the next measurements record."""
        self._loss = float(loss)

    def _measure_and_save(self, model: Any, step: int, epoch: float) -> list[dict[str, Any]]:
        rows = self._rows(model, step, epoch)
        self._truncate_history(step)
        self.history.append(rows)
        self.history.save()
        for collapse in self._watch.look(rows):
            warn_data(collapse.message)
        self._warn_undefined(rows)
        return rows

    def _warn_undefined(self, rows: list[dict[str, Any]]) -> None:
        """Warn once if a measurement of a layer that has not collapsed cannot be computed.

        The input of the first layer is exempt: there, the state of a special token is the same for all texts.
        """
        for row in reversed(rows):
            exempt = row["layer"] in self._watch.found or (row["layer"] == "layer_0" and len(rows) > 1)
            has_labels = self._probe.labels(row["rows"]) is not None
            names = [name for name in MEASUREMENTS if math.isnan(row[name]) and (name != "silhouette" or has_labels)]
            if names and not exempt and not self._warned:
                self._warned = True
                warn_data(_format_undefined(row, names))

    def _rows(self, model: Any, step: int, epoch: float) -> list[dict[str, Any]]:
        rows = []
        for order, (layer, (states, texts)) in enumerate(self._probe.rows(model, self.layer, self.pool).items()):
            name = f"layer_{layer}" if isinstance(layer, int) else layer
            classes, grades = self._probe.labels(len(states)), self._probe.grades(len(states))
            found = measure(states, classes, groups=texts, layer=name, step=step)
            labels = grades if classes is None else classes
            evidence = {
                "loss": self._loss,
                "label_correlation": math.nan if labels is None else label_correlation(states, labels),
            }
            place = {"step": step, "epoch": epoch, "order": order, "layer": name}
            rows.append(place | {"rows": len(states), "dimensions": states.shape[1]} | found | evidence)
        return rows

    def _truncate_history(self, step: int) -> None:
        before = len(self.history)
        self.history.truncate(step)
        if len(self.history) < before:
            self._watch = _make_detector(self.history)

    # trainers

    def follow(self, trainer: Any) -> IsotropyTracker:
        """Add a callback to a trainer to measure and log at the start, every `every` steps and at the end.

        Parameters
        ----------
        trainer : Trainer
            A Hugging Face, Sentence Transformers or Lightning trainer. The complete model must fit on each device:
            if its weights are sharded over processes (FSDP, DeepSpeed ZeRO-3), one process cannot run it alone.
        """
        add_tracker_callback(trainer, self)
        return self

    def measure_at_start(self, model: Any, *, step: int, epoch: float) -> list[dict[str, Any]]:
        """Measure when training starts or resumes at `step`, unless the history already contains that step."""
        self.latest, self.should_stop = step, False
        if not is_first_process():
            return []
        self._truncate_history(step + 1 if step else 0)
        missing = step % self.every == 0 and step not in self.history.steps
        return self._measure_and_save(model, step, epoch) if missing or not len(self.history) else []

    def is_due(self, step: int) -> bool:
        """Return whether a multiple of `every` was reached since the last measurement."""
        return step // self.every > self.latest // self.every

    # output

    def __repr__(self) -> str:
        return f"IsotropyTracker({self.history!r}, every={self.every})"

    def save_figure(self, path: str | os.PathLike[str]) -> None:
        """Save a figure of the raw and centered anisotropy of each layer as PNG, SVG or PDF, by file extension."""
        render("History", "figure", self.history, path)

    def save_page(self, path: str | os.PathLike[str], facts: Mapping[str, object] | None = None) -> None:
        """Write all measurements as one HTML page, which also shows `facts`, such as the model and the task."""
        from isoscope._io.files import atomic_replace

        text = render("History", "page", self.history, facts)
        with atomic_replace(path) as temporary:
            Path(temporary).write_text(text, encoding="utf-8")


def _format_undefined(row: Mapping[str, Any], names: list[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 3 else ""
    shown = ", ".join(names[:2] if more else names)
    states = f"its {row['rows']} states"
    why = (
        f"{states} are all equal; choose another pool or another layer"
        if math.isnan(row["isoscore"])
        else f"{states} are too few, contain duplicates, or belong to one class; use a larger probe"
    )
    return f"{shown}{more} cannot be computed for {row['layer']} at step {row['step']}, because {why}"


def is_first_process() -> bool:
    """Return whether this process has rank 0, or is the only one."""
    dist = _distributed()
    return dist is None or dist.get_rank() == 0


def broadcast_decision(decision: bool) -> bool:
    """Return the first process's decision in all processes."""
    dist = _distributed()
    if dist is None:
        return decision
    decisions = [decision]
    dist.broadcast_object_list(decisions, src=0)
    return bool(decisions[0])


def _distributed() -> Any:
    """Return torch.distributed if training is distributed over several processes, else None."""
    import torch.distributed as dist

    from isoscope.losses.regularizer import is_parallel

    return dist if is_parallel() else None


def _make_detector(history: History) -> CollapseDetector:
    watch = CollapseDetector()
    watch.look(history)
    return watch
