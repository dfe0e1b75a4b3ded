"""What a regulariser asks of a trainer while it trains: a covariance at each epoch, a place in its log."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError

if TYPE_CHECKING:
    from isoscope.training.attach import Attachment


def trainer_kind(trainer: Any, otherwise: str = "call attachment.refresh(loader) at each epoch") -> str:
    """Whose trainer it is: "hugging-face" (Sentence Transformers' is one) or "lightning".

    `otherwise` is what to do in a loop of one's own.
    """
    for base in type(trainer).__mro__:
        if base.__name__ == "Trainer" and base.__module__.startswith("transformers."):
            return "hugging-face"
        if base.__name__ == "Trainer" and base.__module__.split(".")[0] in ("lightning", "pytorch_lightning"):
            return "lightning"
    raise InputError(
        f"trainer is a {type(trainer).__name__}: need a Hugging Face, Sentence Transformers or Lightning Trainer; "
        f"in a loop of your own {otherwise}"
    )


def is_lightning(model: Any) -> bool:
    """Whether a model is a Lightning module, without importing Lightning."""
    return any(base.__name__ == "LightningModule" for base in type(model).__mro__)


def add_regularizer_callback(trainer: Any, attachment: Attachment) -> Callable[[], None]:
    """Add the callback to a trainer; what comes back takes it off."""
    if trainer_kind(trainer) == "hugging-face":
        return _add_hugging_face_callback(trainer, attachment)
    return _add_lightning_callback(trainer, attachment)


def _add_hugging_face_callback(trainer: Any, attachment: Attachment) -> Callable[[], None]:
    from transformers import TrainerCallback

    smoothed = getattr(trainer, "label_smoother", None) is not None and not hasattr(trainer, "collect_features")
    if smoothed:
        raise InputError(
            "label_smoothing_factor has the trainer compute the loss outside of the model, where the regulariser "
            "cannot be added: set it to 0"
        )

    class RegularizerCallback(TrainerCallback):
        """Refreshes I-STAR's covariance at each epoch and puts the term in the log."""

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if attachment.needs_refresh:
                batches = kwargs["train_dataloader"]
                if hasattr(trainer, "collect_features"):  # Sentence Transformers: a loss takes what this makes of them
                    batches = _MappedLoader(batches, trainer.collect_features)
                attachment.refresh(batches, seed=_epoch_seed(args.seed, state.epoch))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs is not None and "loss" in logs and attachment.step:
                logs[_log_key(attachment)] = attachment.value

    callback = RegularizerCallback()
    # Before the trainer's own, which send the log away.
    trainer.callback_handler.callbacks.insert(0, callback)
    return lambda: _remove_callback(trainer.callback_handler.callbacks, callback)


def _add_lightning_callback(trainer: Any, attachment: Attachment) -> Callable[[], None]:
    Callback = import_lightning(trainer).Callback

    class RegularizerCallback(Callback):  # type: ignore[misc, valid-type]
        """Refreshes I-STAR's covariance at each epoch and puts the term in the log."""

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if attachment.needs_refresh:
                attachment.refresh(_lightning_batches(trainer, pl_module), seed=_epoch_seed(0, trainer.current_epoch))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if attachment.step:
                pl_module.log(_log_key(attachment), attachment.value, on_step=True, on_epoch=False)

    callback = RegularizerCallback()
    trainer.callbacks.append(callback)
    return lambda: _remove_callback(trainer.callbacks, callback)


class _MappedLoader:
    """A loader whose batches go through a function; its dataset can be looked into as before."""

    def __init__(self, loader: Any, made: Callable[[Any], Any]) -> None:
        self.loader, self.made = loader, made
        self.dataset, self.batch_size = getattr(loader, "dataset", None), getattr(loader, "batch_size", None)
        self.batch_sampler = getattr(loader, "batch_sampler", None)
        collate = getattr(loader, "collate_fn", None)
        self.collate_fn = None if collate is None else lambda items: made(collate(items))

    def __iter__(self) -> Iterator[Any]:
        return map(self.made, self.loader)


def _lightning_batches(trainer: Any, module: Any) -> Any:
    """The batches as the training step gets them: moved, and through the module's own hooks for that."""

    def transferred(batch: Any) -> Any:
        return trainer.strategy.batch_to_device(module._on_before_batch_transfer(batch))

    loaders = trainer.train_dataloader
    if hasattr(loaders, "dataset"):
        return _MappedLoader(loaders, transferred)
    # Several: put together as Lightning does, but by another than the one that it is walking along.
    from importlib import import_module

    kind = import_module(f"{import_lightning(trainer).__name__}.utilities.combined_loader").CombinedLoader
    mode = getattr(trainer.fit_loop._combined_loader, "_mode", "max_size_cycle")
    return (transferred(batch) for batch, _, _ in kind(loaders, mode))


def import_lightning(trainer: Any) -> Any:
    """The package that a Lightning trainer is of: it has two names."""
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


def _log_key(attachment: Attachment) -> str:
    return f"regularizer/{type(attachment.loss).__name__}"


def _epoch_seed(seed: int, epoch: float | None) -> int:
    """Another part of the training set at each epoch, the same one in each run."""
    return seed * 10_007 + int(epoch or 0)


@contextmanager
def mute_logging(module: Any) -> Iterator[None]:
    """A Lightning module whose `self.log` says nothing: it runs for its states alone."""
    names = ("log", "log_dict")
    for name in names:
        setattr(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for name in names:
            module.__dict__.pop(name, None)


def run_training_step(module: Any, step: Callable[..., Any], batch: Any) -> Any:
    """What a Lightning module's training step gives for a batch, unlogged; the batch's number is for those who ask."""
    parameters = inspect.signature(step).parameters.values()
    numbered = len(parameters) > 1 or any(each.kind is each.VAR_POSITIONAL for each in parameters)
    with mute_logging(module):
        return step(batch, 0) if numbered else step(batch)
