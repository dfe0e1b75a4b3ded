"""Fine-tuning: equal seeds give equal runs, a resumed run gives the same result, and settings are saved."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("transformers")

from isoscope import DataWarning, InputError, finetune
from isoscope.finetuning import Split, Task, train
from isoscope.finetuning.settings import (
    DEFAULT_RECIPE,
    DEFAULT_WEIGHTS,
    RECIPES,
    REGULARIZERS,
    Settings,
    compare_settings,
    make_settings,
)
from isoscope.losses import CosReg
from tests.finetuning import toy

pytestmark = pytest.mark.filterwarnings("ignore:layer_. has collapsed")  # models of 32 dimensions do so easily
QUICK = {"epochs": 2, "batch_size": 16, "learning_rate": 3e-3, "probe": 24, "every": 3}
ARMS = ["none", "persistent-entropy", "istar", "unbiased", "cosreg"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with an encoder, a decoder and data."""
    folder = tmp_path_factory.mktemp("finetuning")
    toy.encoder(folder / "encoder")
    toy.decoder(folder / "decoder")
    toy.write_glue(folder / "data")
    with toy.one_thread():
        yield folder


def run(place, out, model="encoder", task="cola", **options):
    if task == "cola":
        options.setdefault("data", place / "data")
    return finetune(place / model, task, output=out, **{**QUICK, **options})


def told(found) -> list[dict]:
    """Return all measurements without the run times."""
    return [
        {name: value for name, value in each.to_dict().items() if name not in ("seconds", "resumed_at")}
        for each in found.seeds
    ]


class Stop(Exception):
    """An error raised in the middle of a run."""


def stopping(seed, step):
    def progress(stage, done, share, note=""):
        if (stage, done) == (f"seed {seed}", step):
            raise Stop

    return progress


# identities


def test_same_seed_gives_same_run_and_other_seed_differs(place, tmp_path):
    first, second = run(place, tmp_path / "a", seeds=2), run(place, tmp_path / "b", seeds=[1, 0])
    assert told(first)[0] == told(second)[1]
    assert told(first)[1] == told(second)[0]
    assert first.seeds[0].losses != first.seeds[1].losses


@pytest.mark.parametrize("arm", ["none", "istar", "persistent-entropy"])
def test_a_stopped_run_resumes_to_the_same_result(arm, place, tmp_path):
    last = 1 if arm == "none" else 0
    options = {
        "group_lengths": arm != "istar",
        "regularizer": arm,
        "seeds": last + 1,
        "epochs": 3,
        "every": 5,
        "accumulate": 2 if arm == "istar" else 1,
    }
    whole = run(place, tmp_path / "whole", **options)
    steps = whole.settings.steps_per_epoch
    with pytest.raises(Stop):
        run(place, tmp_path / "cut", progress=stopping(last, 2 * steps + 1), **options)
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut").glob("seed-*/result.json")}
    assert len(done) == last
    resumed = run(place, tmp_path / "cut", **options)
    assert resumed.seeds[last].resumed_at == 2 * steps
    assert told(resumed) == told(whole)
    assert done == {path: path.stat().st_mtime_ns for path in done}


def old_names(place, folder):
    """The encoder, saved with the parameter names that were used before 2019."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(place / "encoder", folder)
    weights = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }
    assert sum("gamma" in name for name in renamed) == 5
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_model_with_old_parameter_names_resumes_to_the_same_result(place, tmp_path):
    model = old_names(place, tmp_path / "old")
    whole = run(place, tmp_path / "whole", model=model)
    with pytest.raises(Stop):
        run(place, tmp_path / "cut", model=model, progress=stopping(0, 8))
    resumed = run(place, tmp_path / "cut", model=model)
    assert resumed.seeds[0].resumed_at == 6
    assert told(resumed) == told(whole)
    assert whole.seeds[0].losses == run(place, tmp_path / "usual").seeds[0].losses


def test_a_checkpoint_with_other_weights_is_not_resumed(place, tmp_path):
    from safetensors.torch import load_file, save_file

    with pytest.raises(Stop):
        run(place, tmp_path / "run", progress=stopping(0, 8))
    (path,) = (tmp_path / "run" / "seed-0").glob("checkpoint-*/model.safetensors")
    weights = load_file(path)
    first = next(iter(weights))
    for change in ({first: weights[first] * 2}, {}):
        rest = {name: value for name, value in weights.items() if name != first}
        save_file(rest | change, path, {"format": "pt"})
        with pytest.raises(
            InputError, match=rf"checkpoint-6 does not restore 1 of the 41 weights, such as {first}"
        ) as e:
            run(place, tmp_path / "run")
        assert "\n" not in str(e.value)


def test_a_run_resumes_in_the_middle_of_a_long_epoch(place, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "_CHECKPOINT_STEPS", 4)
    options = {"regularizer": "unbiased", "every": 5}
    whole = run(place, tmp_path / "whole", **options)
    with pytest.raises(Stop):
        run(place, tmp_path / "cut", progress=stopping(0, 10), **options)
    resumed = run(place, tmp_path / "cut", **options)
    assert resumed.seeds[0].resumed_at == 8
    assert told(resumed) == told(whole)


KILLED = """
import os, signal, sys
from isoscope import finetune

def progress(stage, done, share, note=""):
    if done == 15:
        os.kill(os.getpid(), signal.SIGKILL)

finetune(sys.argv[1], "cola", output=sys.argv[2], data=sys.argv[3], progress=progress, regularizer="persistent-entropy",
         epochs=3, batch_size=16, learning_rate=3e-3, probe=24, every=3)
"""


def test_a_killed_run_resumes_to_the_same_result(place, tmp_path):
    words = [str(place / "encoder"), str(tmp_path / "cut"), str(place / "data")]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False, env=alone
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    torn = tmp_path / "cut" / "seed-0" / "checkpoint-15"  # as if it had been killed while it wrote one more
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"global_st', encoding="utf-8")
    options = {"regularizer": "persistent-entropy", "epochs": 3}
    resumed, whole = run(place, tmp_path / "cut", **options), run(place, tmp_path / "whole", **options)
    assert resumed.seeds[0].resumed_at == 12
    assert told(resumed) == told(whole)
    assert not list((tmp_path / "cut" / "seed-0").glob("checkpoint-*"))


def test_a_run_without_a_checkpoint_starts_over(place, tmp_path):
    with pytest.raises(Stop):
        run(place, tmp_path / "cut", progress=stopping(0, 4))
    again = run(place, tmp_path / "cut")
    assert again.seeds[0].resumed_at == 0
    assert told(again) == told(run(place, tmp_path / "whole"))
    assert sorted(path.name for path in (tmp_path / "cut" / "seed-0").iterdir()) == ["history.parquet", "result.json"]


# what it does


@pytest.mark.parametrize("arm", ARMS)
def test_every_regularizer_trains_encoders_and_decoders(arm, place, tmp_path):
    for model, pad in (("encoder", False), ("decoder", True)):
        found = run(place, tmp_path / model, model=model, regularizer=arm)
        assert [each["step"] for each in found.seeds[0].losses][-1] == found.settings.steps == 12
        assert all(math.isfinite(each["loss"]) for each in found.seeds[0].losses)
        assert any("no padding token: texts are padded with <eos>" in note for note in found.notes) == pad
        assert found.layers == ("layer_0", "layer_1", "layer_2")
        counts = found.seeds[0].term_counts
        if arm == "none":
            assert (counts, found.seeds[0].terms) == ({}, [])
            assert math.isnan(found.gradient_share.mean)
        else:
            rows = 192 if arm != "istar" else counts["rows"]
            assert (counts["clouds"], counts["too_small"], counts["rows"]) == (24 if "entropy" in arm else 12, 0, rows)
            assert found.gradient_share.mean == counts["rows_with_gradient"] / rows
            assert found.gradient_share.mean == 1 or ("entropy" in arm and 0 < found.gradient_share.mean < 1)
            assert [each["step"] for each in found.seeds[0].terms] == [each["step"] for each in found.seeds[0].losses]
            assert all(math.isfinite(each["term"]) for each in found.seeds[0].terms)


def many_classes(classes=24, rows=240):
    """A task whose batches rarely contain three rows of a class."""
    texts = toy.opinions(rows)[0]
    split = Split(texts, None, np.arange(rows) % classes)
    return Task("many", split, split.part(np.arange(48)), tuple(f"class {i}" for i in range(classes)), "accuracy")


def test_rows_without_a_gradient_are_reported(place, tmp_path):
    options = {"task": many_classes(), "regularizer": "persistent-entropy", "select": False, "epochs": 1}
    with pytest.warns(DataWarning, match=r"skips 9\d% of .* first 10 steps.*--group-classes.*--whole-batch"):
        skipping = run(place, tmp_path / "skipping", **options)
    assert skipping.gradient_share.mean < 0.1
    assert skipping.to_dict()["gradient_share"]["mean"] == skipping.gradient_share.mean
    assert max(each["gradient_share"] for each in skipping.seeds[0].terms) < 0.2
    for more in ({"group_classes": True}, {"per_class": False}):
        helped = run(place, tmp_path / next(iter(more)), **options, **more)
        assert helped.gradient_share.mean > 0.9
        assert ("whole batch" in helped.settings.arm) == ("per_class" in more)
    assert helped.seeds[0].term_counts["clouds"] == 15


def test_grouping_needs_classes_and_one_way(place, tmp_path):
    with pytest.raises(InputError, match="group_lengths and group_classes are both set"):
        run(place, tmp_path / "run", group_lengths=True, group_classes=True)
    rows = Split(*[toy.opinions(40)[0]] * 2, np.linspace(0, 1, 40))
    with pytest.raises(InputError, match="group_classes is set, but graded has grades"):
        run(place, tmp_path / "run", task=Task("graded", rows, rows, (), "spearman"), group_classes=True)
    with pytest.raises(InputError, match="per_class is False, but regularizer 'istar' has no such option"):
        run(place, tmp_path / "run", regularizer="istar", per_class=False)


def test_model_learns_and_score_matches_the_task(place, tmp_path):
    found = run(place, tmp_path / "run", model="decoder", epochs=8, learning_rate=1e-2)
    assert found.scores == ("matthews", "accuracy", "f1")
    assert found.final["matthews"].mean > 0.8
    assert found.final["accuracy"].values == (found.seeds[0].scores[-1]["accuracy"],)


def test_isoscore_follows_the_sign_of_the_weight(place, tmp_path):
    options = {"regularizer": "unbiased", "epochs": 6, "model": "decoder"}
    more = run(place, tmp_path / "more", weight=3, **options).final["layer_2/isoscore_unbiased"].mean
    less = run(place, tmp_path / "less", weight=-3, **options).final["layer_2/isoscore_unbiased"].mean
    assert more > less + 0.05


def test_late_values_are_means_over_last_steps_with_spread_over_seeds(place, tmp_path):
    found = run(place, tmp_path / "run", seeds=2, every=1)
    late = [np.mean([each["loss"] for each in seed.scores if each["step"] > 0.7 * 12]) for seed in found.seeds]
    assert found.late["loss"].values == pytest.approx(late)
    assert found.late["loss"].mean == pytest.approx(np.mean(late))
    assert found.late["loss"].std == pytest.approx(np.std(late, ddof=1))
    rows = [row for row in found.seeds[1].layers if row["layer"] == "layer_2" and row["step"] > 0.7 * 12]
    assert len(rows) == 4
    expected = np.mean([row["anisotropy_1_centered"] for row in rows])
    assert found.late["layer_2/anisotropy_1_centered"].values[1] == pytest.approx(expected)


def test_a_collapse_is_reported_and_can_stop_the_seed(place, tmp_path):
    options = {
        "regularizer": "cosreg",
        "weight": -50,
        "epochs": 8,
        "model": "decoder",
        "every": 1,
        "learning_rate": 1e-2,
    }
    on = run(place, tmp_path / "on", **options)
    assert any("has collapsed by step" in each for each in on.seeds[0].collapses)
    ended = run(place, tmp_path / "ended", stop_on_collapse=True, **options)
    assert ended.seeds[0].steps < ended.settings.steps
    assert ended.seeds[0].scores[-1]["step"] == ended.seeds[0].losses[-1]["step"] == ended.seeds[0].steps
    assert ended.final["matthews"].values == (ended.seeds[0].scores[-1]["matthews"],)
    assert told(run(place, tmp_path / "ended", stop_on_collapse=True, **options)) == told(ended)


def test_folder_contains_settings_metrics_and_page(place, tmp_path):
    found = run(place, tmp_path / "run", limit=40, max_length=8, seeds=[3])
    folder = tmp_path / "run"
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.json", "page.html", "seed-3", "settings.json"]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics == found.to_dict()
    assert metrics["schema"] == "isoscope.finetuning/1"
    assert metrics["seeds"] == [3]
    assert metrics["settings"]["limit"] == 40
    assert "trained on 40 of 96 rows: a sample stratified by class, the same for every seed" in metrics["notes"]
    assert any(note.endswith("truncated to 8 tokens") for note in metrics["notes"])
    assert metrics["final"]["matthews"]["std"] is None
    assert "transformers" in metrics["versions"]


def test_grades_are_learned_as_numbers(place, tmp_path):
    texts, labels = toy.opinions(96)
    rows = Split(texts, texts, np.asarray(labels) + 0.5)
    task = Task("graded", rows, rows.part(np.arange(30)), (), "spearman")
    found = run(place, tmp_path / "run", model="decoder", task=task, regularizer="persistent-entropy", epochs=4)
    assert found.scores == ("spearman", "pearson")
    assert found.final["spearman"].mean > 0
    part = run(place, tmp_path / "part", model="decoder", task=task, limit=40, epochs=1)
    assert "trained on 40 of 96 rows: a random sample, the same for every seed" in part.notes
    assert math.isnan(found.final["layer_2/silhouette"].mean)


def test_a_custom_file_and_a_regularizer_object(place, tmp_path):
    from isoscope.losses import PersistentEntropy

    lines = [f"{text},{'good' if label else 'bad'}\n" for text, label in zip(*toy.opinions(120), strict=True)]
    (tmp_path / "mood.csv").write_text("text,label\n" + "".join(lines), encoding="utf-8")
    loss = PersistentEntropy(0.5, noise_weight=0.1)
    found = run(place, tmp_path / "run", task=tmp_path / "mood.csv", regularizer=loss, dev_share=0.2)
    assert found.settings.task == "mood"
    assert found.settings.dev_rows == 24
    assert "noise_weight=0.1" in found.settings.regularizer
    assert loss.seen == 0
    again = finetune(place / "encoder", train=tmp_path / "mood.csv", output=tmp_path / "again", **QUICK, dev_share=0.2)
    assert again.settings.data == found.settings.data
    for task in ({}, {"task": "cola", "train": tmp_path / "mood.csv"}):
        with pytest.raises(InputError, match=r"train= .*: pass one of them"):
            finetune(place / "encoder", output=tmp_path / "none", **task)


def test_model_is_saved_on_request_and_can_be_loaded(place, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    run(place, tmp_path / "run", keep_model=True)
    folder = tmp_path / "run" / "seed-0" / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "0", 1: "1"}
    assert AutoTokenizer.from_pretrained(folder).pad_token == "[PAD]"
    further = run(place, tmp_path / "further", model=str(folder), seeds=1)  # its head may be of another task
    assert further.final


def test_bfloat16_is_supported(place, tmp_path):
    found = run(place, tmp_path / "run", regularizer="istar", bf16=True)
    assert all(math.isfinite(each["loss"]) for each in found.seeds[0].losses)


def test_transformers_prints_nothing(place, tmp_path, capfd):
    run(place, tmp_path / "run")
    assert capfd.readouterr() == ("", "")


# settings


def test_recipes_are_the_published_ones():
    assert (RECIPES["cola"].learning_rate, RECIPES["cola"].weight_decay) == (5e-5, 5e-6)
    assert (RECIPES["mrpc"].learning_rate, RECIPES["mrpc"].weight_decay) == (8e-5, 8e-6)
    assert (RECIPES["mrpc"].batch_size, RECIPES["mrpc"].epochs) == (64, 10)
    assert (RECIPES["sst2"].learning_rate, RECIPES["sst2"].batch_size) == (1e-5, 32)
    assert DEFAULT_RECIPE not in RECIPES.values()


def test_learning_rate_has_warmup_and_cosine_decay(place, tmp_path, monkeypatch):
    seen = []
    log = train.Trainer.log
    monkeypatch.setattr(train.Trainer, "log", lambda self, logs, *a: (seen.append(dict(logs)), log(self, logs, *a)))
    run(place, tmp_path / "run", every=1, epochs=5)
    rates = np.array([each["learning_rate"] for each in seen if "learning_rate" in each])
    steps = np.arange(30)
    warm = 3
    cosine = 0.5 * (1 + np.cos(np.pi * (steps - warm) / (30 - warm)))
    assert rates == pytest.approx(3e-3 * np.where(steps < warm, steps / warm, cosine))


def test_changed_settings_raise_and_more_seeds_are_added(place, tmp_path):
    run(place, tmp_path / "run")
    with pytest.raises(
        InputError, match=r"different settings: learning rate was 0\.003, is 0\.1; choose another folder"
    ):
        run(place, tmp_path / "run", learning_rate=0.1)
    with pytest.raises(InputError, match=r"regularizer was none, is cosreg; weight was not set, is 0\.5"):
        run(place, tmp_path / "run", regularizer="cosreg", weight=0.5)
    more = run(place, tmp_path / "run", seeds=2)
    assert [each.seed for each in more.seeds] == [0, 1]
    with pytest.raises(InputError, match="is complete, but its model was not saved"):
        run(place, tmp_path / "run", keep_model=True)
    toy.write_glue(tmp_path / "data", rows=90)
    with pytest.raises(InputError, match="the rows of the task differ"):
        run(place, tmp_path / "run", data=tmp_path / "data")


def test_number_of_steps_matches_the_trainer(place, tmp_path):
    found = run(place, tmp_path / "run", batch_size=20, accumulate=2, epochs=1.5)
    assert found.settings.steps_per_epoch == 3  # 96 rows: 5 batches, 3 steps
    assert found.seeds[0].steps == found.settings.steps == 5


# errors

GLAD, SHORT, BEYOND = (Split(["good", "bad"], None, np.array(labels)) for labels in ([0, 1], [0], [0, 2]))
WRONG = {
    "regularizer is 'sparse': need one of none, persistent": {"regularizer": "sparse"},
    "regularizer is a int: need one of none": {"regularizer": 3},
    "dev_share applies only to a file of your own": {"dev_share": 0.2},
    "weight is 2, but regularizer 'none' has no such option": {"weight": 2},
    "weight is nan: need a finite number": {"regularizer": "istar", "weight": math.nan},
    "seeds is 0: need a number": {"seeds": 0},
    "seeds is [1, 1]: need a number of seeds, or a list of distinct": {"seeds": [1, 1]},
    "seeds is 2.5: need a number": {"seeds": 2.5},
    "epochs is 0: need a positive, finite number": {"epochs": 0},
    "batch_size is 1.5": {"batch_size": 1.5},
    "learning_rate is -1: need a positive, finite number": {"learning_rate": -1},
    "warmup is 1: need a number in [0, 1)": {"warmup": 1},
    "zeta is 2: need a number in [0, 1]": {"regularizer": "istar", "zeta": 2},
    "schedule is 'step': need one of cosine, linear, constant": {"schedule": "step"},
    "limit is 1: need": {"limit": 1},
    "every is 0: need": {"every": 0},
    "kola": {"task": "kola"},
    "nothing.csv does not exist": {"task": "nothing.csv"},
    "label applies only to a file of your own": {"label": "mood"},
    "seeds is 20241116, which would start more than 1000 runs": {"seeds": 20241116},
    "weight is 2, but regularizer is an object: set weight in that object": {"regularizer": CosReg(), "weight": 2},
    "select is False, but regularizer 'cosreg' has no such option": {"regularizer": "cosreg", "select": False},
    "zeta is 0.9, but regularizer 'cosreg' has no such option": {"regularizer": "cosreg", "zeta": 0.9},
    "layer is 1, but regularizer 'none' has no such option": {"layer": 1},
    "the train split of mood has 2 texts but 1 labels": {
        "task": Task("mood", SHORT, GLAD, ("sad", "glad"), "accuracy")
    },
    "the dev split of mood has labels that are not class numbers: need integers from 0 to 1": {
        "task": Task("mood", GLAD, BEYOND, ("sad", "glad"), "accuracy")
    },
    "layer is 9": {"regularizer": "cosreg", "layer": 9},
}


@pytest.mark.parametrize("words", WRONG)
def test_invalid_arguments_raise_one_line_error(words, place, tmp_path):
    with pytest.raises(InputError) as error:
        run(place, tmp_path / "run", **WRONG[words])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_corrected_call_can_use_the_same_folder(place, tmp_path):
    with pytest.raises(InputError, match="layer is 9"):
        run(place, tmp_path / "run", regularizer="cosreg", layer=9)
    assert run(place, tmp_path / "run", regularizer="cosreg", layer=1).settings.layer == 1


def test_missing_model_raises_one_line_error(place, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"no-such-model .* Hugging Face Hub"):
        finetune("no-such-model", "cola", output=tmp_path / "run", data=place / "data")
    with pytest.raises(InputError, match=r"nowhere does not exist"):
        finetune(tmp_path / "nowhere", "cola", output=tmp_path / "run", data=place / "data")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty cannot be fine-tuned for classification or regression"):
        finetune(tmp_path / "empty", "cola", output=tmp_path / "run", data=place / "data")
    assert not (tmp_path / "run").exists()


def test_incomplete_model_raises_one_line_error(place, tmp_path):
    torn, mute = (shutil.copytree(place / "encoder", tmp_path / name) for name in ("torn", "mute"))
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    for path in mute.glob("token*"):
        path.unlink()
    for model, words in ((torn, "torn cannot be fine-tuned"), (mute, "mute recognizes none of the words in the texts")):
        with pytest.raises(InputError, match=words) as error:
            run(place, tmp_path / "run", model=model)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
def test_a_truncated_checkpoint_is_not_resumed(name, place, tmp_path):
    with pytest.raises(Stop):
        run(place, tmp_path / "run", progress=stopping(0, 9))
    (checkpoint,) = (tmp_path / "run" / "seed-0").glob("checkpoint-*")
    (checkpoint / name).write_bytes((checkpoint / name).read_bytes()[:1000])
    assert run(place, tmp_path / "run").seeds[0].resumed_at == 0


def test_a_checkpoint_with_a_changed_trainer_state_is_not_resumed(place, tmp_path):
    with pytest.raises(Stop):
        run(place, tmp_path / "run", progress=stopping(0, 9))
    (state,) = (tmp_path / "run" / "seed-0").glob("checkpoint-*/trainer_state.json")
    state.write_text(state.read_text().replace('"log_history": [', '"log_history": [7, ', 1))  # still JSON
    assert run(place, tmp_path / "run").seeds[0].resumed_at == 0


def _damage_archive(path):
    data = path.read_bytes()
    start = data.index(b"PK", 4)  # the second record of the zip file; its directory stays whole
    path.write_bytes(data[:start] + b"\xff" * 40 + data[start + 40 :])


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth", "config.json", "weights.json"])
def test_a_damaged_checkpoint_is_named(name, place, tmp_path):
    with pytest.raises(Stop):
        run(place, tmp_path / "run", progress=stopping(0, 9))
    (checkpoint,) = (tmp_path / "run" / "seed-0").glob("checkpoint-*")
    if name.endswith(".json"):
        (checkpoint / name).write_text('{"hidden_dropout_prob": "x"' + ("}" if name == "config.json" else ""))
    else:
        _damage_archive(checkpoint / name)
    with pytest.raises(InputError, match=r"checkpoint-\d+ cannot be resumed \(.*remove this folder") as caught:
        run(place, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("scores", [[{"step": 3, "accuracy": "x"}], [{"step": "3", "accuracy": 1.0}]])
def test_wrong_types_in_a_result_are_named(scores, place, tmp_path):
    run(place, tmp_path / "run")
    path = tmp_path / "run" / "seed-0" / "result.json"
    content = json.loads(path.read_text()) | {"scores": scores}
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"result\.json cannot be read as the result of a seed .*checksum"):
        run(place, tmp_path / "run")
    del content["checksum"]  # as earlier versions wrote it
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"result\.json cannot be read as the result of a seed"):
        run(place, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "words"),
    [("settings.json", "cannot be read"), ("seed-0/result.json", "cannot be read as the result of a seed")],
)
def test_damaged_files_are_named(name, words, place, tmp_path):
    run(place, tmp_path / "run")
    (tmp_path / "run" / name).write_text("[]" if "settings" in name else "{}", encoding="utf-8")
    with pytest.raises(InputError, match=words):
        run(place, tmp_path / "run")


def test_folder_with_other_files_raises(place, tmp_path):
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(InputError, match="contains other files, such as letter"):
        run(place, tmp_path)
    with pytest.raises(InputError, match=r"letter.txt is a file: pass the name of a folder"):
        run(place, tmp_path / "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_diverging_training_raises(place, tmp_path):
    with pytest.raises(InputError, match=r"diverged|not finite"):
        run(place, tmp_path / "run", learning_rate=1e30, warmup=0)


def test_missing_extra_error_names_it(monkeypatch, place, tmp_path):
    monkeypatch.setattr("isoscope.finetuning.finetune.find_spec", lambda name: None if name == "accelerate" else name)
    with pytest.raises(ImportError, match=r'fine-tuning needs accelerate: pip install "isoscope\[train\]"'):
        run(place, tmp_path / "run")


def test_changed_settings_are_named():
    some = {**dict.fromkeys(Settings.__dataclass_fields__), "model": "a", "data": "x", "train_rows": 5}
    assert compare_settings(some, some) == []
    assert compare_settings({**some, "model": "b"}, some) == ["model was b, is a"]
    assert compare_settings({**some, "data": "y", "train_rows": 6}, some) == ["the rows of the task differ"]


def test_default_weights_are_those_of_the_classes():
    assert set(DEFAULT_WEIGHTS) == set(REGULARIZERS) - {"none"}
    task = Task("toy", *[Split(["a", "b"], None, np.array([0, 1]))] * 2, ("0", "1"), "accuracy")
    given = dict.fromkeys(("learning_rate", "weight_decay", "batch_size", "epochs", "limit", "every"))
    given |= {
        "weight": None,
        "layer": None,
        "pool": None,
        "select": True,
        "per_class": True,
        "zeta": 0.2,
        "repair": None,
    }
    given |= {"accumulate": 1, "warmup": 0.1, "schedule": "cosine", "max_length": 16, "group_lengths": False}
    given |= {"group_classes": False, "probe": 2, "bf16": False, "stop_on_collapse": False}
    for name in REGULARIZERS:
        settings = make_settings("model", task, regularizer=name, **given)
        loss = train.make_regularizer(settings, name, graded=False)
        if loss is None:
            assert (name, settings.weight) == ("none", None)
        else:
            assert settings.weight == DEFAULT_WEIGHTS[name] == loss.weight == type(loss)().weight


def test_runs_without_a_recorded_weight_had_the_weight_1():
    old = {"data": "x", "regularizer": "unbiased", "weight": None}
    assert compare_settings(old, {**old, "weight": 1.0}) == []
    assert compare_settings(old, {**old, "weight": 0.1}) == ["weight was 1.0, is 0.1"]
    assert compare_settings({**old, "regularizer": "none"}, {**old, "regularizer": "none"}) == []


def test_folder_of_earlier_version_resumes_or_raises(place, tmp_path):
    """An earlier version wrote settings without newer fields, such as `group_lengths`, and never rewrote them."""
    first = run(place, tmp_path / "run")
    path = tmp_path / "run" / "settings.json"
    recorded = json.loads(path.read_text())
    assert list(recorded)[:4] == ["schema", "model", "task", "measure"]
    del recorded["group_lengths"], recorded["repair"]
    path.write_text(json.dumps(recorded, indent=2) + "\n")
    before = (tmp_path / "run" / "seed-0" / "result.json").stat().st_mtime_ns
    assert told(run(place, tmp_path / "run")) == told(first)
    assert (tmp_path / "run" / "seed-0" / "result.json").stat().st_mtime_ns == before
    path.write_text(json.dumps({**recorded, "schema": "isoscope.finetuning-settings/0"}))
    with pytest.raises(InputError, match=r"finetuning-settings/0.*choose another folder") as caught:
        run(place, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_progress_names_the_seed_the_step_and_the_loss(place, tmp_path):
    seen = []
    run(place, tmp_path / "run", seeds=2, progress=lambda *now: seen.append(now))
    stages, steps, shares, notes = zip(*seen, strict=True)
    assert list(dict.fromkeys(stages)) == ["seed 0", "seed 1"]
    assert max(steps) == 12
    assert shares[-1] == 1
    assert notes[-1].startswith("loss ")
    assert "score " in notes[-1]
