"""What a tracker asks of a trainer: to be called as it trains, a place in its log, and to stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError
from isoscope.training.trainers import import_lightning, trainer_kind

if TYPE_CHECKING:
    from isoscope.training.tracker import IsotropyTracker


def add_tracker_callback(trainer: Any, tracker: IsotropyTracker) -> None:
    """Add a callback to a Hugging Face or Lightning trainer, whose package is imported by then."""
    kind = trainer_kind(trainer, otherwise="call tracker.measure(model, step=step)")
    _check_unsharded(trainer)
    if kind == "hugging-face":
        _add_hugging_face_callback(trainer, tracker)
    else:
        _add_lightning_callback(trainer, tracker)


def _check_unsharded(trainer: Any) -> None:
    """A model of which each process holds a part cannot be run by one of them: all would wait for ever."""
    strategy = type(getattr(trainer, "strategy", None)).__name__
    spread = getattr(trainer, "is_fsdp_enabled", False) or strategy in ("FSDPStrategy", "DeepSpeedStrategy")
    if getattr(trainer, "is_deepspeed_enabled", False):
        plugin = trainer.accelerator.state.deepspeed_plugin
        spread = spread or plugin.deepspeed_config.get("zero_optimization", {}).get("stage") == 3
    if spread:
        raise InputError(
            "the trainer spreads the model over processes (FSDP, DeepSpeed): the tracker runs it in one process alone; "
            "use data-parallel training, or measure checkpoints afterwards with tracker.measure(model, step=step)"
        )


# Hugging Face, and Sentence Transformers


def _add_hugging_face_callback(trainer: Any, tracker: IsotropyTracker) -> None:
    from transformers import TrainerCallback

    class TrackerCallback(TrainerCallback):
        """Measures at the start, every so many optimizer steps and when training stops."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _log(trainer, tracker.measure_at_start(kwargs["model"], step=state.global_step, epoch=state.epoch or 0.0))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if tracker.is_due(state.global_step) or control.should_training_stop:
                self._measure(state, control, kwargs["model"])

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # Not when training ends: the best checkpoint may be in the place of the last by then.
            if control.should_training_stop and state.global_step > tracker.latest:
                self._measure(state, control, kwargs["model"])

        def _measure(self, state: Any, control: Any, model: Any) -> None:
            _log(trainer, tracker.measure(model, step=state.global_step, epoch=state.epoch))
            if tracker.should_stop:
                control.should_training_stop = True

    trainer.add_callback(TrackerCallback())


def _log(trainer: Any, rows: list[dict[str, Any]]) -> None:
    """Put a measurement in the trainer's log, and the last layer's part of it on the screen."""
    from isoscope.training.tracker import build_log_entry

    values = build_log_entry(rows)
    if not values:
        return
    control = trainer.control
    waiting = control.should_log  # the trainer's own loss may be, and a log takes the sign down
    with _mute_console_callbacks(trainer, rows):
        trainer.log(values)
    trainer.control.should_log = waiting


@contextmanager
def _mute_console_callbacks(trainer: Any, rows: list[dict[str, Any]]) -> Iterator[None]:
    """The callbacks that write to the screen hear of the last layer alone: a hundred numbers would bury the loss."""
    from transformers import PrinterCallback, ProgressCallback

    from isoscope.training.tracker import build_log_entry

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


def _add_lightning_callback(trainer: Any, tracker: IsotropyTracker) -> None:
    Callback = import_lightning(trainer).Callback
    from isoscope.training.tracker import build_log_entry

    class TrackerCallback(Callback):  # type: ignore[misc, valid-type]
        """Measures at the start, every so many optimizer steps and when training stops."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            epoch = float(trainer.current_epoch)
            self._log(trainer, tracker.measure_at_start(pl_module, step=trainer.global_step, epoch=epoch))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if tracker.is_due(trainer.global_step):
                batches = trainer.num_training_batches
                part = (batch_idx + 1) / batches if math.isfinite(batches) else 0.0
                self._measure(trainer, pl_module, trainer.current_epoch + part)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.global_step > tracker.latest:
                self._measure(trainer, pl_module, float(trainer.current_epoch))

        def _measure(self, trainer: Any, module: Any, epoch: float) -> None:
            self._log(trainer, tracker.measure(module, step=trainer.global_step, epoch=epoch))
            if tracker.should_stop:
                trainer.should_stop = True

        def _log(self, trainer: Any, rows: list[dict[str, Any]]) -> None:
            values = build_log_entry(rows)
            for logger in trainer.loggers if values else ():
                logger.log_metrics(values, step=trainer.global_step)

    trainer.callbacks.append(TrackerCallback())
