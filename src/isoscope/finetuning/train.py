"""Train with one seed: batches, the training loop and checkpoints."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from isoscope.finetuning.checkpoints import (
    explain_damage,
    last_checkpoint,
    record_state,
    record_weights,
    restore_weights,
)
from isoscope.finetuning.result import SeedOutcome, score_logits
from isoscope.finetuning.samplers import ClassGroupedSampler, LengthGroupedSampler
from isoscope.finetuning.settings import SCHEDULES
from isoscope.finetuning.tokenizing import load_model
from isoscope.losses.cosreg import CosReg
from isoscope.losses.istar import IStar
from isoscope.losses.persistent_entropy import PersistentEntropy
from isoscope.losses.unbiased_isoscore import UnbiasedIsoScore
from isoscope.training.attach import attach
from isoscope.training.history import HISTORY_FILE, History
from isoscope.training.loading import mute_transformers
from isoscope.training.repair_layer import Repairing
from isoscope.training.tracker import IsotropyTracker
from isoscope.training.trainers import TERM_PREFIX

if TYPE_CHECKING:
    from isoscope.finetuning.settings import Settings
    from isoscope.finetuning.task_data import Task
    from isoscope.finetuning.tokenizing import Reader, Row
    from isoscope.losses.regularizer import Regularizer
    from isoscope.training.attach import Attachment
    from isoscope.training.repair_layer import BatchRepair


class FineTuningTrainer(Trainer):
    """A Trainer that groups rows into batches as the settings require, and verifies the checkpoints it resumes from."""

    def __init__(self, *args: Any, settings: Settings, **kwargs: Any) -> None:
        self._settings = settings
        super().__init__(*args, **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        rows: Any = self.train_dataset if train_dataset is None else train_dataset
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        if self._settings.group_lengths:
            return LengthGroupedSampler([len(row["input_ids"]) for row in rows], self.args.train_batch_size, seed)
        if self._settings.group_classes:
            return ClassGroupedSampler([row["labels"] for row in rows], self.args.train_batch_size, seed)
        return super()._get_train_sampler(train_dataset)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        record_weights(self.model, Path(output_dir or str(self.args.output_dir)))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        super()._save_checkpoint(*args, **kwargs)
        record_state(Path(str(self.args.output_dir), f"checkpoint-{self.state.global_step}"))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        restore_weights(self.model if model is None else model, Path(resume_from_checkpoint))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with explain_damage(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with explain_damage(checkpoint):
            super()._load_rng_state(checkpoint)


_CHECKPOINT_STEPS = 500
"""The number of steps between checkpoints within a long epoch."""


ReportStep = Callable[[int, float, str], None]
"""A function that is called with the step, the seed's share of steps done, and a note with the loss and the score."""


@dataclass(frozen=True)
class TaskRows:
    """The tokenized rows of a task."""

    train: list[Row]
    dev: list[Row]
    probe: list[Row]


def make_regularizer(settings: Settings, given: str | Regularizer, *, graded: bool) -> Regularizer | None:
    """Return the regularizer as a torch module; None for "none"."""
    if not isinstance(given, str):
        return deepcopy(given)  # its counts and buffers belong to one seed
    weight = settings.weight
    if weight is None:
        return None
    per_class = settings.per_class and not graded
    makers: dict[str, Callable[[], Regularizer]] = {
        "persistent-entropy": lambda: PersistentEntropy(weight, select=settings.select, per_class=per_class),
        "istar": lambda: IStar(weight, zeta=settings.zeta),
        "unbiased": lambda: UnbiasedIsoScore(weight),
        "cosreg": lambda: CosReg(weight),
    }
    return makers[given]()


def run_seed(
    seed: int,
    folder: Path,
    settings: Settings,
    task: Task,
    rows: TaskRows,
    reader: Reader,
    regularizer: str | Regularizer,
    *,
    repair: BatchRepair | None,
    keep_model: bool,
    report: ReportStep,
) -> SeedOutcome:
    """Train with one seed, starting from the last checkpoint if there is one, and return the outcome."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        (folder / HISTORY_FILE).unlink(missing_ok=True)  # from a run without a checkpoint
    set_seed(seed)
    model = load_model(settings.model, task, reader)
    repairing = None if repair is None else Repairing(model, repair, reader.pool)  # before the tracker
    loss = make_regularizer(settings, regularizer, graded=task.is_graded)
    collate = DataCollatorWithPadding(reader.tokenizer)
    with mute_transformers():
        trainer = FineTuningTrainer(
            model,
            _training_arguments(settings, folder, seed, each_epoch=isinstance(loss, IStar)),
            data_collator=collate,
            train_dataset=rows.train,
            eval_dataset=_sort_by_length(rows.dev) if repair is None else rows.dev,  # a repair needs mixed batches
            processing_class=reader.tokenizer,
            settings=settings,
            compute_metrics=lambda found: score_logits(*_logits_and_labels(found), len(task.labels)),
        )
        trainer.remove_callback(PrinterCallback)
        attachment = None if loss is None else attach(model, loss, settings.layer, _choose_pool(settings, loss, reader))
        if attachment is not None:
            attachment.follow(trainer, gradients=True)
        tracker = IsotropyTracker(
            _probe_batches(rows.probe, collate, settings),
            layer="all",
            pool=settings.pool if settings.pool not in (None, "tokens") else reader.pool,
            every=settings.every,
            path=folder / HISTORY_FILE,
            stop_on_collapse=settings.stop_on_collapse,
        )
        tracker.follow(trainer)
        callback = _RunCallback(settings, report, attachment)
        trainer.add_callback(callback)  # after the tracker, which may stop training
        began = time.monotonic()
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        seconds = time.monotonic() - began
        if attachment is not None:
            attachment.detach()
        if repairing is not None:
            repairing.remove()
        if keep_model:
            _save_model(model, reader, folder / "model")
    return SeedOutcome(
        seed=seed,
        steps=trainer.state.global_step,
        seconds=seconds,
        resumed_at=0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2]),
        scores=_scores(trainer.state.log_history),
        losses=[{"step": each["step"], "loss": each["loss"]} for each in trainer.state.log_history if "loss" in each],
        layers=list(History.read(folder / HISTORY_FILE)),
        collapses=[each.message for each in tracker.collapses],
        term_counts=callback.term_counts(),
        terms=_terms(trainer.state.log_history),
    )


def _sort_by_length(rows: list[Row]) -> list[Row]:
    """Return the rows sorted by length, which reduces padding."""
    return sorted(rows, key=lambda row: len(row["input_ids"]))


def _training_arguments(settings: Settings, folder: Path, seed: int, *, each_epoch: bool) -> TrainingArguments:
    """Return the Trainer's arguments; `each_epoch` limits checkpoints to the ends of epochs (for I-STAR)."""
    long_epoch = settings.steps_per_epoch > _CHECKPOINT_STEPS and not each_epoch
    other = not torch.cuda.is_available() and (torch.xpu.is_available() or torch.backends.mps.is_available())
    optimizer = "adamw_torch" if other else "adamw_torch_fused"  # saves a fifth of the time per step on a CPU
    return TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        data_seed=seed,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=max(64, settings.batch_size),
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=math.ceil(settings.warmup * settings.steps),
        lr_scheduler_type=SCHEDULES[settings.schedule],
        optim=optimizer,
        bf16=settings.bf16,
        use_cpu=not (other or torch.cuda.is_available()),
        logging_steps=settings.every,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=settings.every,
        save_strategy="steps" if long_epoch else "epoch",
        save_steps=_CHECKPOINT_STEPS,
        save_total_limit=1,
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )


class _RunCallback(TrainerCallback):
    """A callback that scores the last step, restarts the mean loss at each checkpoint, and reports progress."""

    def __init__(self, settings: Settings, report: ReportStep, attachment: Attachment | None) -> None:
        self.measure, self.report, self.attachment = settings.measure, report, attachment
        self.loss: float | None = None
        self.score: float | None = None
        self.counts_before: dict[str, int] = {}

    def term_counts(self) -> dict[str, int]:
        """Return what the regularizer has seen in the whole run; empty without a regularizer."""
        if self.attachment is None:
            return {}
        counts = {
            "clouds": self.attachment.loss.seen,
            "too_small": self.attachment.loss.skipped,
            "rows": self.attachment.rows,
            "rows_with_gradient": self.attachment.rows_with_gradient,
        }
        return {name: int(count) + self.counts_before.get(name, 0) for name, count in counts.items()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Restore the regularizer's counts from the checkpoint."""
        counts = [each for each in state.log_history if "clouds" in each]
        self.counts_before = {name: count for name, count in counts[-1].items() if name != "step"} if counts else {}

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Report progress, and score the last step."""
        last = state.global_step >= state.max_steps or control.should_training_stop
        control.should_evaluate = control.should_evaluate or last
        control.should_log = control.should_log or last
        self._log_before_checkpoint(state, control)
        known = (("loss", self.loss), ("score", self.score))
        note = "  ".join(f"{name} {value:.3f}" for name, value in known if value is not None)
        self.report(state.global_step, state.global_step / state.max_steps, note)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Log the loss before the checkpoint at the end of an epoch."""
        self._log_before_checkpoint(state, control)

    def _log_before_checkpoint(self, state: Any, control: Any) -> None:
        """Save the regularizer's counts and log before a checkpoint, so that a resumed run has the same mean losses."""
        if control.should_save:
            control.should_log = True
            if self.attachment is not None:
                state.log_history.append({"step": state.global_step, **self.term_counts()})

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **more: Any) -> None:
        """Keep the latest loss and score for the progress bar."""
        self.loss = (logs or {}).get("loss", self.loss)
        self.score = (logs or {}).get(f"eval_{self.measure}", self.score)


def _logits_and_labels(found: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits, without other outputs of the model, and the labels."""
    logits = found.predictions[0] if isinstance(found.predictions, tuple) else found.predictions
    return np.asarray(logits, np.float32), np.asarray(found.label_ids)


def _choose_pool(settings: Settings, loss: Regularizer, reader: Reader) -> str:
    """Return the pooling mode for the regularizer: from the settings, or else its own, or else the model's."""
    return settings.pool or loss.pool or reader.pool


def _probe_batches(rows: list[Row], collate: Any, settings: Settings) -> list[dict[str, Any]]:
    size = max(64, settings.batch_size)
    return [dict(collate(rows[start : start + size])) for start in range(0, len(rows), size)]


def _scores(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the scores in a Trainer's log, one entry per step."""
    timing = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time")
    found = {}
    for each in log:
        if "eval_loss" in each:
            names = [name for name in each if name.startswith("eval_") and name not in timing]
            found[each["step"]] = {"step": each["step"], **{name.removeprefix("eval_"): each[name] for name in names}}
    return list(found.values())


def _terms(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the values of the regularizer in a Trainer's log, by step."""
    found = []
    for each in log:
        values = {name.removeprefix(TERM_PREFIX): value for name, value in each.items() if name.startswith(TERM_PREFIX)}
        if values:
            named = {name.partition("/")[2] or "term": value for name, value in values.items()}
            found.append({"step": each["step"], **named})
    return found


def _save_model(model: Any, reader: Reader, folder: Path) -> None:
    """Save the model and its tokenizer atomically."""
    half = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(half, ignore_errors=True)
    model.save_pretrained(half)
    reader.tokenizer.save_pretrained(half)
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)
