import csv
import math

import pytest
import torch
from torch.utils.data import DataLoader

from isoscope._core.errors import DataWarning, InputError
from isoscope.training.history import History
from isoscope.training.tracker import IsotropyTracker
from tests.training.tiny import batches, bert, texts, weights

L = pytest.importorskip("lightning", reason="lightning is not installed")
pytest.importorskip("tensorboard", reason="tensorboard is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

LAST = "isotropy/layer_2/isoscore_unbiased"


def told(history: History) -> list[str]:
    return [repr(row) for row in history]


# Hugging Face


def hugging_face(folder, model=None, callbacks=(), **more) -> Trainer:
    settings = {"max_steps": 5, "per_device_train_batch_size": 4, "logging_steps": 2, "save_strategy": "no"}
    settings |= {"report_to": [], "use_cpu": True, "seed": 3, "disable_tqdm": True, "learning_rate": 1e-3}
    arguments = TrainingArguments(output_dir=str(folder), **settings | more)
    return Trainer(model or bert(), arguments, train_dataset=texts(24), eval_dataset=texts(8), callbacks=[*callbacks])


def test_tracked_run_gives_identical_weights(tmp_path):
    ended = []
    for tracked in (False, True):
        trainer = hugging_face(tmp_path)
        if tracked:
            IsotropyTracker(batches(32), every=1).follow(trainer)
        trainer.train()
        ended.append(weights(trainer.model))
    assert ended[0] == ended[1]


def test_measures_at_start_every_n_steps_and_at_end(tmp_path):
    tracker = IsotropyTracker(batches(32), every=2, path=tmp_path / "run")
    trainer = hugging_face(tmp_path, gradient_accumulation_steps=2)
    assert tracker.follow(trainer) is tracker
    trainer.train()
    assert tracker.history.steps == [0, 2, 4, 5]
    assert told(History.read(tmp_path / "run")) == told(tracker.history)
    epochs = [row["epoch"] for row in tracker.history if row["layer"] == "layer_2"]
    assert epochs == pytest.approx([0, 2 / 3, 4 / 3, 5 / 3])


def test_tensorboard_logs_every_metric_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = hugging_face(tmp_path, report_to=["tensorboard"])
    tracker = IsotropyTracker(batches(32), every=2).follow(trainer)
    trainer.train()
    (events,) = tmp_path.rglob("events.out.*")  # transformers 4 does not read the variable
    board = EventAccumulator(str(events.parent))
    board.Reload()
    seen = board.Scalars(f"train/{LAST}")
    steps, values = tracker.history.series("layer_2", "isoscore_unbiased")
    assert [each.step for each in seen] == steps.tolist()
    assert [each.value for each in seen] == pytest.approx(values.tolist())
    assert {"train/isotropy/layer_1/anisotropy_3_centered", "train/isotropy/layer_2/silhouette"} <= set(
        board.Tags()["scalars"]
    )
    assert [each.step for each in board.Scalars("train/loss")] == [2, 4], "its own log is not swallowed"


def test_progress_shows_only_the_last_layer(tmp_path, capsys):
    trainer = hugging_face(tmp_path)
    assert any(isinstance(each, PrinterCallback) for each in trainer.callback_handler.callbacks)
    IsotropyTracker(batches(32), every=2).follow(trainer)
    trainer.train()
    said = capsys.readouterr().out
    assert said.count(LAST) == 4
    assert "isotropy/layer_1" not in said
    assert any("isotropy/layer_1/isoscore" in each for each in trainer.state.log_history)
    assert any(isinstance(each, PrinterCallback) for each in trainer.callback_handler.callbacks)


def test_resumed_run_has_same_history_as_uninterrupted_run(tmp_path):
    class Crash(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 5:
                raise KeyboardInterrupt

    def run(name, *callbacks, resume=None):
        saved = {"save_strategy": "steps", "save_steps": 3, "max_steps": 8}
        trainer = hugging_face(tmp_path / name, callbacks=callbacks, **saved)
        IsotropyTracker(batches(32), every=2, path=tmp_path / name).follow(trainer)
        trainer.train(resume_from_checkpoint=resume)

    run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("parts", Crash())
    assert History.read(tmp_path / "parts").steps == [0, 2, 4]
    run("parts", resume=str(tmp_path / "parts" / "checkpoint-3"))
    assert History.read(tmp_path / "parts").steps == [0, 2, 4, 6, 8]
    parts, whole = (History.read(tmp_path / name) for name in ("parts", "whole"))
    for history in (parts, whole):  # the trainer's mean loss begins anew when it resumes
        assert not math.isnan(history._columns["loss"][-1])
        history._columns["loss"] = [0.0] * len(history)
    assert told(parts) == told(whole)


class Flatten(TrainerCallback):
    """A callback that makes the states of the last layer equal after the third step."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == 3:
            flatten(model)


def flatten(model):
    norm = model.bert.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight.fill_(1e-4)
        norm.bias.fill_(1.0)


@pytest.mark.parametrize(("stop", "last"), [(False, 5), (True, 3)])
def test_collapse_warns_and_stops_on_request(tmp_path, stop, last):
    trainer = hugging_face(tmp_path, callbacks=[Flatten()], learning_rate=1e-9)
    IsotropyTracker(batches(32), every=1, stop_on_collapse=stop).follow(trainer)
    with pytest.warns(DataWarning, match="layer_2 has collapsed by step 3"):
        trainer.train()
    assert trainer.state.global_step == last


def test_run_stopped_by_another_callback_is_measured_at_end(tmp_path):
    class Enough(TrainerCallback):
        def on_evaluate(self, args, state, control, **kwargs):
            control.should_training_stop = True

    trainer = hugging_face(tmp_path, eval_strategy="steps", eval_steps=3)
    tracker = IsotropyTracker(batches(32), every=100).follow(trainer)
    trainer.add_callback(Enough())
    trainer.train()
    assert tracker.history.steps == [0, 3]


def test_sharded_weights_raise(tmp_path):
    trainer = hugging_face(tmp_path)
    trainer.is_fsdp_enabled = True
    with pytest.raises(InputError, match=r"FSDP, DeepSpeed.*data-parallel"):
        IsotropyTracker(batches(8)).follow(trainer)


# Sentence Transformers


def test_sentence_transformers(tmp_path):
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from tests.training.sentences import encoder

    model = encoder(tmp_path / "model")
    assert isinstance(model, SentenceTransformer)
    pairs = datasets.Dataset.from_dict({"a": ["one two", "three four"] * 4, "b": ["two one", "four three"] * 4})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
    )
    words = ["one", "two", "three", "four", "five six", "seven", "one seven", "two six"]
    features = model.tokenize(words)
    tracker = IsotropyTracker([features], pool="mean", labels=[0, 1] * 4, every=2).follow(trainer)
    trainer.train()
    assert tracker.history.steps == [0, 2, 3]
    assert tracker.history.layers == ["layer_0", "layer_1", "layer_2"]
    assert any(LAST in each for each in trainer.state.log_history)


# Lightning


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = bert()
        self.seen = 0

    def training_step(self, batch, index):
        self.seen += self.training
        loss = self.model(**batch).loss
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        if self.global_step == 3 and getattr(self, "flat", False):
            flatten(self.model)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Forward(Module):
    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask)


def lightning(folder, **more) -> L.Trainer:
    settings = {"max_steps": 5, "log_every_n_steps": 1, "accelerator": "cpu", "enable_checkpointing": False}
    settings |= {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return L.Trainer(default_root_dir=str(folder), **settings | more)


@pytest.fixture
def loader():
    return DataLoader(texts(24), batch_size=4)


@pytest.mark.parametrize("kind", [Module, Forward])
def test_tracked_lightning_run_gives_identical_weights(tmp_path, loader, kind):
    ended = []
    for tracked in (False, True):
        module, trainer = kind(), lightning(tmp_path)
        torch.manual_seed(1)
        if tracked:
            tracker = IsotropyTracker(batches(32), every=2).follow(trainer)
        trainer.fit(module, loader)
        ended.append(weights(module))
        assert module.seen == 5
    assert ended[0] == ended[1]
    assert tracker.history.steps == [0, 2, 4, 5]
    assert tracker.history.layers == ["layer_0", "layer_1", "layer_2"]


def test_lightning_logs_to_its_loggers(tmp_path, loader):
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    trainer = lightning(tmp_path, logger=logger, accumulate_grad_batches=2)
    tracker = IsotropyTracker(batches(32), every=2).follow(trainer)
    trainer.fit(Module(), loader)
    assert tracker.history.steps == [0, 2, 4, 5]
    with open(f"{logger.log_dir}/metrics.csv", newline="") as file:
        held = [row for row in csv.DictReader(file) if row[LAST]]
    steps, values = tracker.history.series("layer_2", "isoscore_unbiased")
    assert [int(row["step"]) for row in held] == steps.tolist()
    assert [float(row[LAST]) for row in held] == pytest.approx(values.tolist())
    assert all(math.isfinite(row["epoch"]) for row in tracker.history)


@pytest.mark.parametrize(("stop", "last"), [(False, 5), (True, 4)])
def test_collapse_stops_lightning_on_request(tmp_path, loader, stop, last):
    module, trainer = Module(), lightning(tmp_path)
    module.flat = True
    IsotropyTracker(batches(32), every=2, stop_on_collapse=stop).follow(trainer)
    with pytest.warns(DataWarning, match="layer_2 has collapsed by step 4"):
        trainer.fit(module, loader)
    assert trainer.global_step == last


def test_resumed_lightning_run_continues_its_history(tmp_path, loader):
    tracker = IsotropyTracker(batches(32), every=2, path=tmp_path)
    trainer = lightning(tmp_path, max_steps=4)
    tracker.follow(trainer)
    trainer.fit(Module(), loader)
    trainer.save_checkpoint(tmp_path / "four.ckpt")
    before = told(tracker.history)
    again = IsotropyTracker(batches(32), every=2, path=tmp_path)
    trainer = lightning(tmp_path, max_steps=8)
    again.follow(trainer)
    trainer.fit(Module(), loader, ckpt_path=tmp_path / "four.ckpt")
    assert again.history.steps == [0, 2, 4, 6, 8]
    assert told(again.history)[: len(before)] == before
