import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import isoscope
from isoscope._core.errors import DataWarning, InputError
from isoscope.training.history import History, build_log_entry
from isoscope.training.layer_metrics import MEASUREMENTS, measure
from isoscope.training.tracker import IsotropyTracker
from tests.training.models import llama
from tests.training.tiny import batches, bert, weights


def trained(steps: int, tracker: IsotropyTracker | None = None, start: int = 0, model: nn.Module | None = None):
    """A plain training loop with dropout, in which any extra random number changes the result."""
    torch.manual_seed(0)
    model = model or bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for step in range(start, steps):
        if tracker and step % 2 == 0:
            tracker.measure(model, step=step)
        model(**batches(16, seed=step)[0]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def told(history: History) -> list[str]:
    return [repr(row) for row in history]


# measuring disturbs nothing, and gives what the layers are like


def test_tracked_loop_gives_identical_weights():
    assert weights(trained(5, IsotropyTracker(batches(32)))) == weights(trained(5))


def test_rows_equal_measurements_of_the_states():
    model, probe = bert(), batches(32)
    rows = IsotropyTracker(probe).measure(model, step=3, epoch=0.5)
    model.eval()
    with torch.no_grad():
        states = [model(**batch, output_hidden_states=True).hidden_states for batch in probe]
    labels = torch.cat([batch["labels"] for batch in probe]).numpy()
    assert [row["layer"] for row in rows] == ["layer_0", "layer_1", "layer_2"]
    for i, row in enumerate(rows):
        assert (row["step"], row["epoch"], row["order"], row["rows"], row["dimensions"]) == (3, 0.5, i, 32, 32)
        expected = measure(torch.cat([each[i][:, 0] for each in states]).numpy(), labels)
        assert {name: row[name] for name in MEASUREMENTS} == pytest.approx(expected, rel=1e-4, nan_ok=True)


def test_layers_and_pools_can_be_chosen():
    tracker = IsotropyTracker(batches(32), layer=[-1, "bert.pooler"], pool="mean")
    rows = tracker.measure(bert(), step=0)
    assert [row["layer"] for row in rows] == ["layer_2", "bert.pooler"]
    assert set(build_log_entry(rows)) >= {"isotropy/layer_2/isoscore_unbiased", "isotropy/bert.pooler/silhouette"}


def test_compiled_model_is_measured_like_the_original():
    expected = IsotropyTracker(batches(32), layer=[-1, "bert.pooler"]).measure(bert(), step=0)
    compiled = torch.compile(bert(), backend="eager")
    found = IsotropyTracker(batches(32), layer=[-1, "bert.pooler"]).measure(compiled, step=0)
    assert [repr(row) for row in found] == [repr(row) for row in expected]


# the history


def test_file_is_complete_after_each_measurement(tmp_path):
    tracker = IsotropyTracker(batches(32), path=tmp_path / "run")
    for step in (0, 5):
        tracker.measure(bert(), step=step)
        assert told(History.read(tmp_path / "run")) == told(tracker.history)
    assert tracker.history.steps == [0, 5]
    assert all(math.isnan(row["epoch"]) for row in tracker.history)


def test_resumed_loop_has_same_history_as_uninterrupted_loop(tmp_path):
    class Fixed(nn.Module):
        """A model whose states depend only on the step."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Linear(8, 8)

        def forward(self, x):
            return self.scale(x)

    def run(path, steps, crash=None):
        tracker = IsotropyTracker([torch.eye(8)[:, :8]], layer="scale", path=path)
        for step in steps:
            torch.manual_seed(step)
            tracker.measure(Fixed(), step=step)
            if step == crash:
                return

    run(tmp_path / "whole", range(0, 60, 10))
    run(tmp_path / "parts", range(0, 60, 10), crash=40)
    run(tmp_path / "parts", range(30, 60, 10))
    assert told(History.read(tmp_path / "parts")) == told(History.read(tmp_path / "whole"))


def test_a_new_training_renames_the_earlier_file(tmp_path):
    for step in (0, 1):
        IsotropyTracker(batches(32), path=tmp_path).measure(bert(), step=step)
    with pytest.warns(
        DataWarning, match=r"an earlier training run, up to step 1: the file was renamed to history-1.parquet"
    ):
        IsotropyTracker(batches(32), path=tmp_path).measure(bert(), step=0)
    assert History.read(tmp_path / "history-1.parquet").steps == [0, 1]
    assert History.read(tmp_path).steps == [0]


# collapse


def collapsing(model: nn.Module) -> nn.Module:
    """A model whose last-layer states are equal up to a thousandth."""
    norm = model.bert.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight.fill_(1e-4)
        norm.bias.fill_(1.0)
    return model


def test_collapse_is_reported_once_and_stops_on_request():
    for stop in (False, True):
        tracker = IsotropyTracker(batches(32), layer=[1, 2], stop_on_collapse=stop)
        tracker.measure(bert(), step=0)
        assert not tracker.should_stop
        with pytest.warns(DataWarning, match=r"layer_2 has collapsed by step 10: its mean cosine rose from") as caught:
            tracker.measure(collapsing(bert()), step=10)
        assert len(caught) == 1
        tracker.measure(collapsing(bert()), step=20)
        assert [(each.layer, each.step) for each in tracker.collapses] == [("layer_2", 10)]
        assert tracker.should_stop == stop


def test_unchanged_model_does_not_collapse():
    tracker = IsotropyTracker(batches(32), stop_on_collapse=True)
    trained(5, tracker)
    assert not tracker.collapses
    assert not tracker.should_stop


def test_nonfinite_states_raise_with_layer_and_step(tmp_path):
    model = bert()
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.bias[0] = math.nan
    tracker = IsotropyTracker(batches(32), path=tmp_path)
    tracker.measure(bert(), step=0)
    with pytest.raises(InputError, match=r"layer_2 at step 7: 32 of 32 rows"):
        tracker.measure(model, step=7)
    assert History.read(tmp_path).steps == [0]


# undefined measurements


def common_start(count: int) -> list[dict]:
    """Batches of texts that begin with the same token."""
    found = batches(count)
    for batch in found:
        batch["input_ids"][:, 0] = 1
        batch["attention_mask"][:] = 1
    return found


def test_decoder_is_measured_at_its_last_token():
    row = IsotropyTracker(common_start(32)).measure(llama(), step=0)[-1]
    assert all(math.isfinite(row[name]) for name in MEASUREMENTS)
    expected = IsotropyTracker(common_start(32), pool="last").measure(llama(), step=0)[-1]
    assert repr(row) == repr(expected)


def test_undefined_measurements_warn_once():
    tracker = IsotropyTracker(common_start(32), pool="cls")
    with pytest.warns(DataWarning, match=r"for layer_3 at step 0, because its 32 states are all equal") as caught:
        row = tracker.measure(llama(), step=0)[-1]
    assert math.isnan(row["isoscore_unbiased"])
    tracker.measure(llama(), step=1)
    assert len(caught) == 1
    with pytest.warns(DataWarning, match="silhouette cannot be computed for layer_2 at step 0.*belong to one class"):
        IsotropyTracker(batches(32), labels=[1] * 32).measure(bert(), step=0)


def test_encoder_input_and_missing_labels_are_not_reported():
    probe = [{name: batch[name] for name in ("input_ids", "attention_mask")} for batch in common_start(32)]
    rows = IsotropyTracker(probe).measure(bert(), step=0)
    assert math.isnan(rows[0]["isoscore"])
    assert all(math.isnan(row["silhouette"]) for row in rows)


# logs


def test_log_contains_only_numbers():
    probe = batches(32)
    for batch in probe:
        batch["input_ids"][:, 0] = 1  # as [CLS] is in every text
    values = build_log_entry(IsotropyTracker(probe).measure(bert(), step=0))
    assert all(type(value) is float and math.isfinite(value) for value in values.values())
    assert not [key for key in values if key.startswith("isotropy/layer_0/isoscore")]
    assert "isotropy/layer_1/isoscore" in values


# bad input


@pytest.mark.parametrize("every", [0, -5, 2.5, "ten"])
def test_every_is_a_number_of_steps(every):
    with pytest.raises(InputError, match=r"every is"):
        IsotropyTracker(batches(8), every=every)


def test_unknown_layer_raises_with_known_names():
    with pytest.raises(InputError, match=r"bert.pooler"):
        IsotropyTracker(batches(8), layer="bert.poole").measure(bert(), step=0)


@pytest.mark.parametrize("trainer", [None, "Trainer", nn.Linear(2, 2)])
def test_unsupported_trainer_raises_with_supported_ones(trainer):
    with pytest.raises(InputError, match=r"Hugging Face, Sentence Transformers or Lightning .* tracker.measure\("):
        IsotropyTracker(batches(8)).follow(trainer)


def test_missing_torch_error_names_the_extra_and_histories_work():
    code = """
import sys
sys.modules["torch"] = None
import isoscope
isoscope.History()
try:
    isoscope.IsotropyTracker
except isoscope.InputError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'pip install "isoscope[train]"' in said


# several processes

PARALLEL = """
import sys, warnings
import torch
import torch.distributed as dist
from torch import nn
from isoscope.training.tracker import IsotropyTracker

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
warnings.simplefilter("ignore")
for stop in (False, True):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)))
    probe = [torch.randn(16, 4)]
    tracker = IsotropyTracker(probe, layer="1", path=f"{folder}/{stop}-{rank}", stop_on_collapse=stop)
    found = len(tracker.measure(model, step=0))
    with torch.no_grad():
        model.module[1].weight.zero_()
    found += len(tracker.measure(model, step=1))
    print(found, tracker.should_stop)
    if tracker.stop_on_collapse:
        dist.barrier()
"""


def test_the_first_of_two_processes_measures_and_both_stop(tmp_path):
    command = [sys.executable, "-c", PARALLEL]
    running = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    said = [each.communicate(timeout=600)[0].split() for each in running]
    assert said == [["2", "False", "2", "True"], ["0", "False", "0", "True"]]
    for stop in (False, True):
        assert History.read(tmp_path / f"{stop}-0").steps == [0, 1]
        assert not (tmp_path / f"{stop}-1").exists()


# what is seen in it


def test_page_and_figure_are_written(tmp_path):
    tracker = IsotropyTracker(batches(32))
    trained(4, tracker)
    tracker.save_page(tmp_path / "page.html", {"model": "tiny"})
    tracker.save_figure(tmp_path / "profile.svg")
    assert "anisotropy_1" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<svg" in (tmp_path / "profile.svg").read_text(encoding="utf-8")


def test_empty_history_is_not_drawn(tmp_path):
    with pytest.raises(InputError, match="the history is empty: record at least one measurement"):
        IsotropyTracker(batches(32)).save_page(tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_the_unbiased_isoscore_of_tokens_compares_different_texts():
    model, probe = bert(), batches(24)
    (row,) = IsotropyTracker(probe, layer=-1, pool="tokens").measure(model, step=0)
    with torch.no_grad():
        states = [model.eval()(**batch, output_hidden_states=True).hidden_states[-1] for batch in probe]
    masks = [batch["attention_mask"] > 0 for batch in probe]
    X = np.concatenate([state[mask].numpy() for state, mask in zip(states, masks, strict=True)])
    sizes = np.concatenate([mask.sum(dim=1).numpy() for mask in masks])
    text = np.repeat(np.arange(len(sizes)), sizes)
    assert row["isoscore_unbiased"] == pytest.approx(float(isoscope.isoscore(X, unbiased=True, groups=text)), rel=1e-4)
    assert row["isoscore_unbiased"] != pytest.approx(float(isoscope.isoscore(X, unbiased=True)), rel=1e-3)
