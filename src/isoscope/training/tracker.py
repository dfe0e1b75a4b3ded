"""The shape of a model's layers while it trains: measured, logged, kept, and watched for collapse."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError, MissingExtra, warn_data
from isoscope.training.collapse import CollapseDetector
from isoscope.training.history import History
from isoscope.training.layer_metrics import MEASUREMENTS, measure

if TYPE_CHECKING:
    from isoscope.training.collapse import Collapse
    from isoscope.training.probing import Probe


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
        from isoscope.training.callbacks import add_tracker_callback

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
        from isoscope._report.training_figure import save_profile

        save_profile(self.history, path)

    def save_page(self, path: str | os.PathLike[str], facts: Mapping[str, object] | None = None) -> None:
        """Write all that was measured as one HTML page; `facts` are said on it, such as the model and the task."""
        from isoscope._io.files import atomic_replace
        from isoscope._report.training_page import render_training_page

        text = render_training_page(self.history, facts)
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

    from isoscope.losses.gathering import is_parallel

    return dist if is_parallel() else None


def _make_probe(probe: Any, labels: Any) -> Probe:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtra('a tracker needs torch, which is not installed: pip install "isoscope[train]"') from error
    from isoscope.training.probing import Probe

    return Probe(probe, labels)


def _make_detector(history: History) -> CollapseDetector:
    watch = CollapseDetector()
    watch.look(history)
    return watch
