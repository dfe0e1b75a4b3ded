"""Callbacks for Hugging Face, Sentence Transformers and Lightning trainers."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import ParameterError
from isoscope.training.history import build_log_entry

if TYPE_CHECKING:
    from isoscope.training.attach import Attachment
    from isoscope.training.tracker import IsotropyTracker


def trainer_kind(trainer: Any, otherwise: str = "call attachment.refresh(loader) at each epoch") -> str:
    """Return the kind of a trainer: "hugging-face" (also for Sentence Transformers) or "lightning".

    `otherwise` is the advice in the error message for users who write their own training loop.
    """
    for base in type(trainer).__mro__:
        if _is_hugging_face(base):
            return "hugging-face"
        if base.__name__ == "Trainer" and base.__module__.split(".")[0] in ("lightning", "pytorch_lightning"):
            return "lightning"
    raise ParameterError(
        f"trainer is a {type(trainer).__name__}: need a Hugging Face, Sentence Transformers or Lightning Trainer; "
        f"in your own training loop, {otherwise}"
    )


def _is_hugging_face(base: type) -> bool:
    """Return whether a class is the Hugging Face Trainer, without importing transformers."""
    return base.__name__ == "Trainer" and base.__module__.startswith("transformers.")


def is_lightning(model: Any) -> bool:
    """Return whether a model is a Lightning module, without importing Lightning."""
    return any(base.__name__ == "LightningModule" for base in type(model).__mro__)


def add_regularizer_callback(trainer: Any, attachment: Attachment, *, gradients: bool) -> Callable[[], None]:
    """Add the regularizer's callback to a trainer; return a function that removes it."""
    if trainer_kind(trainer) == "hugging-face":
        return _add_hugging_face_callback(trainer, attachment, gradients)
    return _add_lightning_callback(trainer, attachment, gradients)


def check_label_smoothing(trainer: Any) -> None:
    """Raise an error if a Hugging Face trainer smooths labels, because the model then returns no loss."""
    if getattr(trainer, "label_smoother", None) is not None and not hasattr(trainer, "collect_features"):
        raise ParameterError(
            "with label_smoothing_factor the trainer computes the loss outside of the model, where the regularizer "
            "cannot be added: set label_smoothing_factor to 0"
        )


def find_calling_trainer() -> Any:
    """Return the Hugging Face trainer that runs the model at this moment, or None."""
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        frame = caller
        found = frame.f_locals.get("self")
        if any(
            each.__name__ == "Trainer" and each.__module__.startswith("transformers.") for each in type(found).__mro__
        ):
            return found
    return None


def _add_hugging_face_callback(trainer: Any, attachment: Attachment, gradients: bool) -> Callable[[], None]:
    from transformers import TrainerCallback

    check_label_smoothing(trainer)

    log = _TermLog(attachment)

    class RegularizerCallback(TrainerCallback):
        """A callback that refreshes I-STAR's covariance at each epoch and logs the term."""

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if attachment.needs_refresh:
                batches = kwargs["train_dataloader"]
                if hasattr(trainer, "collect_features"):  # Sentence Transformers: the loss takes features
                    batches = _MappedLoader(batches, trainer.collect_features)
                attachment.refresh(batches, seed=_epoch_seed(args.seed, state.epoch))

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if gradients and (state.global_step + 1) % state.logging_steps == 0:
                attachment.compare_next_gradients()

        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            log.note()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            log.note()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs is not None and "loss" in logs:
                values = log.take()
                logs |= values
                state.log_history[-1] |= values

    callback = RegularizerCallback()
    # Insert it before the trainer's own callbacks, which send the log.
    trainer.callback_handler.callbacks.insert(0, callback)
    return lambda: _remove_callback(trainer.callback_handler.callbacks, callback)


def _add_lightning_callback(trainer: Any, attachment: Attachment, gradients: bool) -> Callable[[], None]:
    Callback = import_lightning(trainer).Callback

    log = _TermLog(attachment)

    class RegularizerCallback(Callback):  # type: ignore[misc, valid-type]
        """A callback that refreshes I-STAR's covariance at each epoch and logs the term."""

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if attachment.needs_refresh:
                attachment.refresh(_lightning_batches(trainer, pl_module), seed=_epoch_seed(0, trainer.current_epoch))

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if gradients and (trainer.global_step + 1) % trainer.log_every_n_steps == 0:
                attachment.compare_next_gradients()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            log.note()
            for name, value in log.take().items():
                pl_module.log(name, value, on_step=True, on_epoch=False)

    callback = RegularizerCallback()
    trainer.callbacks.append(callback)
    return lambda: _remove_callback(trainer.callbacks, callback)


class _MappedLoader:
    """A loader that applies a function to each batch and keeps the dataset of the original loader."""

    def __init__(self, loader: Any, transform: Callable[[Any], Any]) -> None:
        self.loader, self.transform = loader, transform
        self.dataset, self.batch_size = getattr(loader, "dataset", None), getattr(loader, "batch_size", None)
        self.batch_sampler = getattr(loader, "batch_sampler", None)
        collate = getattr(loader, "collate_fn", None)
        self.collate_fn = None if collate is None else lambda items: transform(collate(items))

    def __iter__(self) -> Iterator[Any]:
        return map(self.transform, self.loader)


def _lightning_batches(trainer: Any, module: Any) -> Any:
    """Return the batches as the training step receives them: on its device, after the module's transfer hooks."""

    def transfer(batch: Any) -> Any:
        return trainer.strategy.batch_to_device(module._on_before_batch_transfer(batch))

    loaders = trainer.train_dataloader
    if hasattr(loaders, "dataset"):
        return _MappedLoader(loaders, transfer)
    # Several loaders: combine them as Lightning does, in a new object, because training iterates over its own.
    from importlib import import_module

    kind = import_module(f"{import_lightning(trainer).__name__}.utilities.combined_loader").CombinedLoader
    mode = getattr(trainer.fit_loop._combined_loader, "_mode", "max_size_cycle")
    return (transfer(batch) for batch, _, _ in kind(loaders, mode))


def import_lightning(trainer: Any) -> Any:
    """Return the package that a trainer comes from: `lightning.pytorch` or `pytorch_lightning`."""
    from importlib import import_module

    for base in type(trainer).__mro__:
        root = base.__module__.split(".")[0]
        if root == "lightning":
            return import_module("lightning.pytorch")
        if root == "pytorch_lightning":
            return import_module("pytorch_lightning")
    raise AssertionError(type(trainer))


def _remove_callback(callbacks: list[Any], callback: Any) -> None:
    if callback in callbacks:
        callbacks.remove(callback)


class _TermLog:
    """What to log about a term: its mean, the share of rows with a gradient, and the ratio of gradients.

    The mean and the share cover the batches since the previous entry. The ratio is logged once after each comparison.
    """

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self.values: list[float] = []
        self.rows_before = (0, 0)
        self.compared_at = 0

    def note(self) -> None:
        """Add the term of a batch."""
        if self.attachment.step:
            self.values.append(self.attachment.value)

    def take(self) -> dict[str, float]:
        """Return the values by name; empty if there was no batch."""
        attachment, values = self.attachment, self.values
        if not values:
            return {}
        key = f"{TERM_PREFIX}{type(attachment.loss).__name__}"
        found = {key: sum(values) / len(values)}
        rows_now = (attachment.rows, attachment.rows_with_gradient)
        rows, with_gradient = (new - old for new, old in zip(rows_now, self.rows_before, strict=True))
        if rows:
            found[f"{key}/gradient_share"] = with_gradient / rows
        if attachment.compared_at > self.compared_at and not math.isnan(attachment.gradient_ratio):
            found[f"{key}/gradient_ratio"] = attachment.gradient_ratio
        self.values, self.rows_before, self.compared_at = [], rows_now, attachment.compared_at
        return found


TERM_PREFIX = "regularizer/"
"""The beginning of the names under which a term is logged."""


def _epoch_seed(seed: int, epoch: float | None) -> int:
    """Return a seed that differs between epochs but not between runs."""
    return seed * 10_007 + int(epoch or 0)


@contextmanager
def mute_logging(module: Any) -> Iterator[None]:
    """Disable `log` and `log_dict` of a Lightning module while it runs only to compute its states."""
    names = ("log", "log_dict")
    for name in names:
        setattr(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for name in names:
            module.__dict__.pop(name, None)


def run_training_step(module: Any, step: Callable[..., Any], batch: Any) -> Any:
    """Run a Lightning module's training step without logging; pass the batch number if the step accepts it."""
    parameters = inspect.signature(step).parameters.values()
    numbered = len(parameters) > 1 or any(each.kind is each.VAR_POSITIONAL for each in parameters)
    with mute_logging(module):
        return step(batch, 0) if numbered else step(batch)


def add_tracker_callback(trainer: Any, tracker: IsotropyTracker) -> None:
    """Add the tracker's callback to a Hugging Face or Lightning trainer."""
    kind = trainer_kind(trainer, otherwise="call tracker.measure(model, step=step)")
    _check_unsharded(trainer)
    if kind == "hugging-face":
        _track_hugging_face(trainer, tracker)
    else:
        _track_lightning(trainer, tracker)


def _check_unsharded(trainer: Any) -> None:
    """Reject a model that is sharded over processes, because a run in one process would wait for the others forever."""
    strategy = type(getattr(trainer, "strategy", None)).__name__
    sharded = getattr(trainer, "is_fsdp_enabled", False) or strategy in ("FSDPStrategy", "DeepSpeedStrategy")
    if getattr(trainer, "is_deepspeed_enabled", False):
        plugin = trainer.accelerator.state.deepspeed_plugin
        sharded = sharded or plugin.deepspeed_config.get("zero_optimization", {}).get("stage") == 3
    if sharded:
        raise ParameterError(
            "the trainer shards the model over processes (FSDP, DeepSpeed), but the tracker runs it in one process; "
            "use data-parallel training, or measure checkpoints afterward with tracker.measure(model, step=step)"
        )


# Hugging Face, and Sentence Transformers


def _track_hugging_face(trainer: Any, tracker: IsotropyTracker) -> None:
    from transformers import TrainerCallback

    class TrackerCallback(TrainerCallback):
        """A callback that measures at the start, every `every` optimizer steps and when training stops."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._note_loss(next((each for each in reversed(state.log_history) if "loss" in each), {}))
            _log(trainer, tracker.measure_at_start(kwargs["model"], step=state.global_step, epoch=state.epoch or 0.0))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if tracker.is_due(state.global_step) or control.should_training_stop:
                self._measure(state, control, kwargs["model"])

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self._note_loss(logs or {})

        def _note_loss(self, logs: Mapping[str, Any]) -> None:
            if "loss" in logs:
                tracker.note_loss(_task_loss(logs["loss"], logs))

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # Not in on_train_end: the trainer may have loaded the best checkpoint by then.
            if control.should_training_stop and state.global_step > tracker.latest:
                self._measure(state, control, kwargs["model"])

        def _measure(self, state: Any, control: Any, model: Any) -> None:
            _log(trainer, tracker.measure(model, step=state.global_step, epoch=state.epoch))
            if tracker.should_stop:
                control.should_training_stop = True

    trainer.add_callback(TrackerCallback())


def _task_loss(loss: Any, logged: Mapping[str, Any]) -> float:
    """Return a loss without the terms of regularizers that were logged with it."""
    terms = [name for name in logged if name.startswith(TERM_PREFIX) and name.count("/") == 1]
    return float(loss) - sum(float(logged[name]) for name in terms)


def _log(trainer: Any, rows: list[dict[str, Any]]) -> None:
    """Log a measurement through the trainer, and print only the last layer's values on the console."""
    values = build_log_entry(rows)
    if not values:
        return
    control = trainer.control
    should_log = control.should_log  # logging clears it, but the trainer's own loss may still have to be logged
    with _mute_console_callbacks(trainer, rows):
        trainer.log(values)
    trainer.control.should_log = should_log


@contextmanager
def _mute_console_callbacks(trainer: Any, rows: list[dict[str, Any]]) -> Iterator[None]:
    """Pass only the last layer to console callbacks, because a hundred numbers would hide the loss."""
    from transformers import PrinterCallback, ProgressCallback

    handler = trainer.callback_handler
    every = list(handler.callbacks)
    screens: list[Any] = [each for each in every if isinstance(each, PrinterCallback | ProgressCallback)]
    handler.callbacks = [each for each in every if each not in screens]
    try:
        yield
    finally:
        handler.callbacks = every
    for screen in screens:
        screen.on_log(trainer.args, trainer.state, trainer.control, logs=build_log_entry(rows[-1:]))


# Lightning


def _track_lightning(trainer: Any, tracker: IsotropyTracker) -> None:
    Callback = import_lightning(trainer).Callback

    class TrackerCallback(Callback):  # type: ignore[misc, valid-type]
        """A callback that measures at the start, every `every` optimizer steps and when training stops."""

        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            epoch = float(trainer.current_epoch)
            self._log(trainer, tracker.measure_at_start(pl_module, step=trainer.global_step, epoch=epoch))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            if loss is not None:
                self.losses.append(_task_loss(loss, trainer.callback_metrics))
            if tracker.is_due(trainer.global_step):
                batches = trainer.num_training_batches
                part = (batch_idx + 1) / batches if math.isfinite(batches) else 0.0
                self._measure(trainer, pl_module, trainer.current_epoch + part)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.global_step > tracker.latest:
                self._measure(trainer, pl_module, float(trainer.current_epoch))

        def _measure(self, trainer: Any, module: Any, epoch: float) -> None:
            losses, self.losses = self.losses, []
            loss = sum(losses) / len(losses) if losses else None
            self._log(trainer, tracker.measure(module, step=trainer.global_step, epoch=epoch, loss=loss))
            if tracker.should_stop:
                trainer.should_stop = True

        def _log(self, trainer: Any, rows: list[dict[str, Any]]) -> None:
            values = build_log_entry(rows)
            for logger in trainer.loggers if values else ():
                logger.log_metrics(values, step=trainer.global_step)

    trainer.callbacks.append(TrackerCallback())
