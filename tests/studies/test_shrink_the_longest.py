"""Shrink the longest: arms fine-tune, a resumed run gives the same result, and claims have rules."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

from isoscope import InputError, finetune, run_study
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.models import Model
from isoscope.studies.shrink_the_longest.claims import ALL, ARMS, NONE, SELECTED, TaskModelRuns, make_verdicts
from isoscope.studies.shrink_the_longest.study import describe_differences
from isoscope.studies.study import ArmContext, Holds, Setting, Value, study
from tests.finetuning import toy

pytestmark = pytest.mark.filterwarnings("ignore:layer_. has collapsed")  # models of 32 dimensions do so easily
NAME = "shrink-the-longest"
SMALL = {
    "tasks": "cola",
    "seeds": (0, 1),
    "epochs": 1,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "limit": 48,
    "dev_limit": 32,
    "probe": 24,
    "measurements": 3,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and data."""
    folder = tmp_path_factory.mktemp("study")
    toy.encoder(folder / "tiny")
    toy.write_glue(folder / "data")
    with toy.one_thread():
        yield folder


@pytest.fixture(scope="module")
def whole(place):
    """A run from end to end."""
    return run(place, place / "whole")


def run(place, out, **parameters):
    progress = parameters.pop("progress", False)
    return run_study(
        NAME, output=out, models=[place / "tiny"], data=place / "data", progress=progress, **{**SMALL, **parameters}
    )


def test_each_arm_fine_tunes_with_its_regularizer(place, whole, tmp_path):
    assert list(whole.results) == [f"cola/tiny/{arm}/seed-{seed}" for seed in (0, 1) for arm in ARMS]
    told = {"epochs": 1, "batch_size": 16, "learning_rate": 3e-3, "limit": 48, "probe": 24, "every": 1}
    found = finetune(
        place / "tiny",
        "cola",
        data=place / "data",
        output=tmp_path / "own",
        seeds=[1],
        regularizer="persistent-entropy",
        weight=1.0,
        select=False,
        **told,
    )
    kept = whole.results["cola/tiny/all bars/seed-1"]["settings"]
    own = {name: value for name, value in found.settings.to_dict().items() if value is not None}
    apart = {"model", "data", "dev_rows"}  # the study scores a part of the dev set
    assert {name: kept[name] for name in kept if name not in apart} == {
        name: value for name, value in own.items() if name not in apart
    }
    assert whole.results["cola/tiny/all bars/seed-1"]["steps"] == found.seeds[0].steps
    assert kept["dev_rows"] == 32
    assert whole.results["cola/tiny/no regularizer/seed-0"]["clouds"] == 0
    assert whole.results["cola/tiny/selected bars/seed-0"]["clouds"] > 0


def test_tables_have_means_of_the_last_30_percent_over_seeds(whole):
    metrics, anisotropy, _ = whole.outcome.tables
    for arm in ARMS:
        late = [whole.results[f"cola/tiny/{arm}/seed-{seed}"]["late"] for seed in (0, 1)]
        assert metrics.rows[0].ours[arm] == Value.of(each["matthews"] for each in late)
        row = next(each for each in anisotropy.rows if each.name.endswith("anisotropy_2 centered"))
        assert row.ours[arm] == Value.of(each["layer_2/anisotropy_2_centered"] for each in late)
    one = whole.results["cola/tiny/no regularizer/seed-0"]
    steps, values = (one["series"]["matthews"][name] for name in ("step", "value"))
    wanted = [value for step, value in zip(steps, values, strict=True) if step > 0.7 * one["steps"]]
    assert one["late"]["matthews"] == pytest.approx(sum(wanted) / len(wanted))


def test_published_numbers_match_the_model_type(whole):
    metrics, anisotropy, _ = whole.outcome.tables
    assert metrics.rows[0].published["selected bars"].value == 0.588
    assert metrics.rows[0].of == "bert-base-uncased"
    assert anisotropy.rows[0].published["no regularizer"].value == 0.647
    assert TaskModelRuns("mrpc", "granite", {NONE: {0: {"family": "roberta"}}}).row == "RoBERTa-MRPC"


def test_arms_start_from_the_same_space_and_diverge(whole):
    starts = {json.dumps(each["start"]) for each in whole.results.values()}
    lates = {each["late"]["layer_2/anisotropy_1"] for each in whole.results.values()}
    assert len(starts) == 1
    assert len(lates) == len(whole.results)


def test_figures_follow_every_arm_from_the_first_step(whole):
    profile, scores = whole.outcome.figures
    assert [len(panel.series) for panel in profile.panels] == [3] * 6
    assert profile.panels[0].series[0].x[0] == 0
    assert len(scores.panels) == 1
    for line in profile.panels[0].series:
        assert all(low <= y <= high for low, y, high in zip(line.low, line.y, line.high, strict=True))


def test_interrupted_run_gives_same_results_as_uninterrupted_run(place, whole, tmp_path):
    def stop(stage, done, share, note=""):
        if stage.startswith("arm 2/") and share > 1.6 / 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "run", seeds=(0,), progress=stop)
    assert len(list((tmp_path / "run" / "arms").glob("*.json"))) == 1
    again = run(place, tmp_path / "run", seeds=(0,))
    wanted = {key: value for key, value in whole.results.items() if key.endswith("seed-0")}
    assert json.dumps(again.results) == json.dumps(wanted)
    assert {each.holds for each in again.outcome.verdicts} <= {Holds.undecided, Holds.untested}
    assert "(no interval)" in again.outcome.verdicts[0].ours


def test_speedup_options_reach_fine_tuning_and_are_noted(place, whole, tmp_path):
    key = f"cola/tiny/{NONE}/seed-0"
    found = run(place, tmp_path / "run", bf16=True, group_lengths=True, only=key)
    assert list(found.results) == [key]
    assert all(found.results[key]["settings"][name] for name in ("bf16", "group_lengths"))
    told = " ".join(found.outcome.notes)
    assert "bfloat16" in told
    assert "texts of similar length" in told
    assert "bfloat16" not in " ".join(whole.outcome.notes)
    assert found.results[key]["late"] != whole.results[key]["late"]


def test_checkpoints_are_removed_when_the_settings_change(place, tmp_path):
    def stop(stage, done, share, note=""):
        if share > 0.8 / 3:
            raise KeyboardInterrupt

    for rate in (3e-3, 1e-3):
        with pytest.raises(KeyboardInterrupt):
            run(place, tmp_path / "run", epochs=2, limit=32, seeds=(0,), learning_rate=rate, progress=stop)
        assert list((tmp_path / "run" / "work").glob("*/finetuning/seed-0/checkpoint-*"))


def test_limit_0_uses_all_rows_and_learning_rate_0_the_published_one(place, whole, tmp_path):
    values = {**whole.setting.values, "limit": 0, "dev_limit": 0, "learning_rate": 0.0}
    arm = study(NAME).arms(replace(whole.setting, values=values))[0]
    settings = arm.run(ArmContext(tmp_path, tmp_path, lambda share, words: None))["settings"]
    assert (settings["train_rows"], settings["dev_rows"], settings["learning_rate"]) == (96, 48, 5e-5)


def test_claims_without_results_are_not_judged(place, whole):
    setting = Setting((Model(str(place / "tiny")),), DataSource(place / "data"), whole.setting.values, False)
    nothing = study(NAME).outcome(setting, {})
    assert {each.holds for each in nothing.verdicts} == {Holds.untested}
    some = {key: value for key, value in whole.results.items() if ALL not in key}
    held = {each.claim.key: each.holds for each in study(NAME).outcome(setting, some).verdicts}
    assert held["all-lowers"] is held["selection-isotropy"] is Holds.untested
    assert held["lowers"] is not Holds.untested


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"tasks": "mood"}, "tasks has mood: choose from cola"),
        ({"tasks": "mrpc"}, "mrpc needs train.tsv"),
        ({"measurements": 0}, "measurements is 0: need at least 1"),
        ({"limit": -3}, "limit is -3: need at least 0"),
        ({"seeds": (0, -1)}, "seeds contains -1: need integers from 0"),
        ({"weight": "heavy"}, "weight is heavy: need a number"),
        ({"epochs": 0}, "epochs is 0: need a number above 0"),
        ({"batch_size": 0}, "batch_size is 0: need at least 1"),
    ],
)
def test_bad_parameters_are_rejected_in_one_line(place, tmp_path, parameters, words):
    with pytest.raises(InputError, match=re.escape(words)):
        run(place, tmp_path / "run", **parameters)


# the rules


def made(late: dict[str, list[dict[str, float]]], start: float = 0.4) -> TaskModelRuns:
    """A task and model whose arms have these numbers, one for each seed."""
    names = ("anisotropy_1", "anisotropy_2", "anisotropy_3")
    full = [f"layer_1/{name}{ending}" for name in names for ending in ("", "_centered")]

    def one(told: dict[str, float]) -> dict:
        shape = {name: told.get("space", 0.5) for name in full}
        series = {name: {"step": [0, 1, 2], "value": [start, 0.45, told.get("space", 0.5)]} for name in full}
        series["layer_1/silhouette"] = {"step": [0, 1, 2], "value": [0.0, 0.1, 0.2]}
        score = told.get("score", 0.5)
        return {
            "family": "bert",
            "measure": "matthews",
            "layers": ["layer_0", "layer_1"],
            "start": dict.fromkeys(full, start),
            "late": {"matthews": score, **shape},
            "series": series,
        }

    return TaskModelRuns(
        "cola", "made", {arm: {i: one(each) for i, each in enumerate(late.get(arm, []))} for arm in ARMS}
    )


def held(*cases: TaskModelRuns) -> dict[str, Holds]:
    return {each.claim.key: each.holds for each in make_verdicts(study(NAME).published, cases)}


def seeds(*told: tuple[float, float]) -> list[dict[str, float]]:
    return [{"space": space, "score": score} for space, score in told]


def test_result_like_the_paper_holds():
    case = made(
        {
            NONE: seeds((0.70, 0.570), (0.71, 0.571), (0.72, 0.572)),
            SELECTED: seeds((0.50, 0.580), (0.51, 0.582), (0.53, 0.584)),
            ALL: seeds((0.60, 0.571), (0.62, 0.570), (0.64, 0.573)),
        }
    )
    assert set(held(case).values()) == {Holds.yes}
    assert case.between(SELECTED, NONE, ["anisotropy_1"]).mean == pytest.approx(-0.59 / 3)
    assert case.growth(["anisotropy_1"]).mean == pytest.approx(0.31)


def test_result_unlike_the_paper_does_not_hold():
    worse = made(
        {
            NONE: seeds((0.30, 0.57), (0.31, 0.57)),
            SELECTED: seeds((0.50, 0.40), (0.512, 0.401)),
            ALL: seeds((0.40, 0.50), (0.411, 0.501)),
        }
    )
    assert set(held(worse).values()) == {Holds.no}


def test_scores_of_a_model_that_learned_nothing_are_ignored():
    idle = made({arm: [{"score": 0.0}, {"score": 0.0}] for arm in ARMS})
    found = {each.claim.key: each for each in make_verdicts(study(NAME).published, [idle])}
    assert found["metric-kept"].holds is found["all-on-par"].holds is Holds.untested
    assert "learned nothing" in found["metric-kept"].why


def test_published_wording_comes_from_the_published_numbers():
    told = {each.claim.key: each.published for each in make_verdicts(study(NAME).published, [])}
    assert told["lowers"].startswith("anisotropy_1: −0.194 to −0.047 (4 of 4 as claimed)")
    assert told["metric-rises"] == "−0.003 to +0.013 (3 of 4 as claimed)"
    assert told["selection-isotropy"].endswith("(3 of 4 as claimed)")


def test_notes_compare_settings_with_the_published_ones():
    from isoscope.finetuning.settings import RECIPES

    published = study(NAME).published
    usual = {"learning_rate": 5e-5, "weight_decay": 5e-6, "batch_size": 64, "epochs": 10.0}
    assert describe_differences(usual, "BERT-CoLA", published).endswith("epochs as published")
    assert describe_differences(usual | {"epochs": 3.0}, "BERT-CoLA", published) == "epochs 3 (published 10)"
    assert describe_differences(usual, "BERT-rte", published) == "the paper has no settings for BERT-rte"
    for task, row in (("cola", "RoBERTa-CoLA"), ("mrpc", "BERT-MRPC")):  # what is taken unless told
        recipe = RECIPES[task]
        taken = {name: getattr(recipe, name) for name in usual}
        assert describe_differences(taken, row, published).endswith("epochs as published")
