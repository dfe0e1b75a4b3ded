"""Stable anisotropic regularization: estimators, measurements of layers, verdicts, and resuming."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import isoscope
from isoscope import InputError
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.models import Model
from isoscope.studies.run import run_study
from isoscope.studies.stable_anisotropic_regularization.estimators import (
    DISTRIBUTIONS,
    measure_estimators,
    true_isoscore,
)
from isoscope.studies.stable_anisotropic_regularization.training_runs import (
    Penalty,
    penalties,
    pretrained_key,
    training_key,
)
from isoscope.studies.study import ArmContext, Holds, Setting, study

NAME = "stable-anisotropic-regularization"
SMALL = {"part": "a", "sizes": "8,40", "dimensions": 12, "draws": 4, "reference": 2000, "clouds": "power law,isotropic"}


def bench(folder):
    return ArmContext(folder, folder, lambda share, words: None)


def setting(**values):
    found = study(NAME)
    told = {name: each.quick for name, each in found.parameters.items()} | values
    return Setting((Model("tiny"),), DataSource(None), told, quick=True)


# the estimators


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_large_sample_matches_the_covariance_of_its_distribution(name):
    draw, covariance = DISTRIBUTIONS[name](6)
    X = draw(np.random.default_rng(0), 200_000)
    assert np.cov(X.T) == pytest.approx(covariance, abs=0.06 * np.abs(covariance).max())
    assert float(isoscope.isoscore(X)) == pytest.approx(true_isoscore(covariance), abs=0.02)


def test_estimates_equal_the_public_metrics(tmp_path):
    found = measure_estimators("power law", 20, 12, 3, [0.0, 0.2, 0.75, 1.0], 3000, bench(tmp_path))
    draw, covariance = DISTRIBUTIONS["power law"](12)
    shrinkage = np.load(next(tmp_path.glob("*.npy")))
    rng = np.random.default_rng([20, 12, *b"power law"])
    samples = [draw(rng, 20) for _ in range(3)]
    truth = true_isoscore(covariance)
    assert found["truth"] == truth
    for zeta, mean in zip(found["zetas"], found["star"], strict=True):
        assert mean == pytest.approx(np.mean([isoscope.isoscore_star(X, shrinkage, zeta) for X in samples]))
    assert found["errors"]["plug-in"] == pytest.approx([float(isoscope.isoscore(X)) - truth for X in samples])
    unbiased = [float(isoscope.isoscore(X, unbiased=True)) - truth for X in samples]
    assert found["errors"]["unbiased"] == pytest.approx(unbiased)
    assert found["apart"] < 1e-12
    assert found["star"][-1] == pytest.approx(found["reference"])
    assert found["star_std"][-1] == pytest.approx(0, abs=1e-12)  # at ζ = 1 the sample has no say


def test_estimators_agree_with_the_authors_package():
    theirs = pytest.importorskip("IsoScore.IsoScore")
    draw, _ = DISTRIBUTIONS["clustered"](12)
    X = draw(np.random.default_rng(3), 30)
    assert float(theirs.IsoScore(X)) == pytest.approx(float(isoscope.isoscore(X)), abs=1e-6)


def test_part_a_runs_without_models_or_data_and_judges_its_claims(tmp_path):
    run = run_study(NAME, output=tmp_path / "run", quick=True, **SMALL)
    held = {each.claim.key: each.holds for each in run.outcome.verdicts}
    assert held["unstable"] is not Holds.untested
    assert held["stable"] is Holds.yes
    assert held["no-shrinkage"] is Holds.yes
    assert held["many-samples"] is not Holds.untested
    assert all(held[key] is Holds.untested for key in ("steers", "negative", "helps", "dimension", "cosine"))
    assert {each.claim.key for each in run.outcome.verdicts} == {each.key for each in run.study.published.claims}
    assert [each.key for each in run.outcome.figures] == ["4", "estimators"]
    assert (tmp_path / "run" / "figures" / "4.svg").exists()
    assert [len(each.rows) for each in run.outcome.tables] == [4, 4]


def test_interrupted_run_gives_same_results(tmp_path):
    whole = run_study(NAME, output=tmp_path / "whole", quick=True, **SMALL)

    def stop(stage, done, share, note=""):
        if stage.startswith("arm 3/") and "2 of 4" in note:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(NAME, output=tmp_path / "parts", quick=True, progress=stop, **SMALL)
    assert len(list((tmp_path / "parts" / "arms").glob("*.json"))) == 2
    again = run_study(NAME, output=tmp_path / "parts", quick=True, **SMALL)
    assert again.results == whole.results


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"part": "c"}, "part has c: choose from a, b"),
        ({"clouds": "cube"}, "clouds has cube: choose from isotropic"),
        ({"sizes": "3"}, "sizes has 3: need at least 5"),
        ({"zetas": "1.5"}, "zetas has 1.5"),
        ({"draws": 1}, "draws is 1: need at least 2"),
        ({"part": "b", "tasks": "stsb"}, "stsb"),
        ({"part": "b", "tasks": "", "epochs": 0}, "epochs is 0: need a number above 0"),
        ({"part": "b", "tasks": "", "batch_size": 0}, "batch_size is 0: need at least 1"),
        ({"part": "b", "tasks": "", "max_length": 0}, "max_length is 0: need at least 4"),
        ({"part": "b", "tasks": "", "reference": 0}, "reference is 0: need at least 2"),
        ({"part": "b", "tasks": "", "dev_limit": -1}, "dev_limit is -1: need at least 0"),
        ({"part": "b", "tasks": "", "lambdas": "0,1"}, "contains 0: remove the 0"),
    ],
)
def test_invalid_parameters_are_rejected_in_one_line(tmp_path, given, words):
    with pytest.raises(InputError, match=words) as error:
        run_study(NAME, output=tmp_path / "run", quick=True, **(SMALL | given))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


# fine-tuning: what becomes of results


def result(score, isotropy, dimension=3.0, cosine=0.4, iso=0.2, silhouette=None):
    silhouette = 1 - isotropy if silhouette is None else silhouette
    layer = {"isoscore_star": isotropy, "two_nn": dimension, "mean_cosine": cosine, "silhouette": silhouette}
    return {
        "score": score,
        "measure": "accuracy",
        "layers": [{"layer": 1, **layer}, {"layer": 2, **layer}],
        "mean_state": [0.1, -0.2, 3.0],
        "tokens_isoscore": isotropy,
        "last_isoscore": iso,
        "last_cosine": cosine,
    }


def made(asked, effect=-0.02, cosreg=(0.0, 0.2)):
    """Results as the paper says they are: isotropy and dimension rise with λ, the score falls."""
    found = {pretrained_key("sst2", "tiny"): result(0, 0.3)}
    for seed in asked["seeds"]:
        for each in penalties(asked):
            w = each.weight
            if each.regularizer == "cosreg":
                one = result(0.8 - seed / 1000, 0.3, cosine=cosreg[0], iso=cosreg[1])
            else:
                one = result(0.8 + effect * w + seed / 1000, 0.3 + w / 50 + seed / 1e4, 4 + w / 10 + seed / 1e3)
            found[training_key("sst2", "tiny", seed, each)] = one
    return found


def held(asked, results):
    return {each.claim.key: each.holds for each in study(NAME).outcome(asked, results).verdicts}


def test_results_like_the_paper_hold_and_opposite_ones_do_not():
    asked = setting(part=("b",), seeds=(0, 1, 2))
    claims = ("steers", "negative", "helps", "beats-cosreg", "dimension", "silhouette", "cosine")
    found = held(asked, made(asked))
    assert {key: found[key] for key in claims} == dict.fromkeys(claims, Holds.yes)
    opposite = held(asked, made(asked, effect=0.02, cosreg=(0.39, 0.2)))
    assert opposite["negative"] is opposite["helps"] is opposite["beats-cosreg"] is opposite["cosine"] is Holds.no
    assert held(asked, made(asked, cosreg=(0.0, 0.4)))["cosine"] is Holds.partly  # isotropy rises with it


def test_perfect_order_of_four_models_is_not_proof():
    asked = setting(part=("b",), seeds=(0,))
    assert held(asked, made(asked))["steers"] is Holds.undecided


def test_gains_use_the_same_seed_and_averages_skip_unfinished_seeds():
    asked = setting(part=("b",), seeds=(0, 1), lambdas=(-1.0, 1.0))
    results = made(asked)
    verdict = next(each for each in study(NAME).outcome(asked, results).verdicts if each.claim.key == "helps")
    assert verdict.ours.startswith(
        "+0.0200 (0.0200 to 0.0200) over 2 pairs; in hindsight, the best λ is −1.0 (+0.0200)"
    )
    assert "5 seeds" in verdict.published
    del results[training_key("sst2", "tiny", 1, Penalty("istar", 1.0))]
    panel = next(each for each in study(NAME).outcome(asked, results).figures if each.key == "6").panels[0]
    assert panel.series[0].x == [-1.0, 1.0]
    assert panel.series[0].y == pytest.approx([0.82, 0.78])  # of seed 0 alone
    assert panel.series[0].low is None


def test_outcome_can_be_made_from_any_part_of_the_results():
    asked = setting(part=("b",), seeds=(0, 1))
    results = made(asked)
    for count in range(len(results) + 1):
        outcome = study(NAME).outcome(asked, dict(list(results.items())[:count]))
        assert len(outcome.verdicts) == len(study(NAME).published.claims)
    correlations = next(each for each in outcome.tables if each.key == "correlations").rows[0].ours
    assert correlations["λ and isotropy, ρ"].mean > 0.95
    assert math.isnan(correlations["λ and isotropy, ρ"].std)
    cosine = next(each for each in outcome.tables if each.key == "cosine").rows[0]
    assert {name: each.value for name, each in cosine.published.items()} == {"none": 0.978, "CosReg 1": 0.005}


def outcome_of(asked, results):
    found = study(NAME).outcome(asked, results)
    return {each.key: each for each in found.tables}, {each.claim.key: each for each in found.verdicts}, found.notes


def test_collapsed_model_does_not_remove_a_task_from_correlations():
    asked = setting(part=("b",), seeds=(0, 1, 2))
    results = made(asked)
    for layer in results[training_key("sst2", "tiny", 0, Penalty("istar", -5.0))]["layers"]:
        layer["two_nn"] = math.nan
    assert held(asked, results)["dimension"] is Holds.yes


def test_a_task_without_a_correlation_is_named():
    asked = setting(part=("b",), seeds=(0, 1, 2), tasks=("sst2", "rte"))
    results = made(asked)
    results |= {
        key.replace("sst2", "rte"): result(0.5, each["layers"][0]["isoscore_star"]) for key, each in results.items()
    }
    _, verdicts, _ = outcome_of(asked, results)
    assert verdicts["negative"].holds is Holds.yes
    assert "rte, tiny: too few models trained successfully" in verdicts["negative"].why


def collapse(results, arm):
    """Let the models of an arm predict a constant: the least isotropic models then have the lowest score."""
    for key, each in results.items():
        if arm in key:
            each.update(score=0.0, scores={"matthews": 0.0})
    return results


def test_collapsed_models_are_counted_separately():
    asked = setting(part=("b",), seeds=(0, 1, 2))
    results = collapse(made(asked), "istar=-5")
    tables, verdicts, _ = outcome_of(asked, results)
    learned, collapsed, *_ = tables["score"].rows
    assert (learned.name, collapsed.name) == ("sst2, tiny", "sst2, tiny, collapsed")
    assert "λ −5" not in learned.ours
    assert set(collapsed.ours) == {"λ −5"}
    assert tables["collapsed"].rows[0].ours["λ −5"].mean == 3
    for key in ("negative", "helps", "beats-cosreg"):
        assert "left out: 3 of 3 with λ = −5." in verdicts[key].why
    assert not any("istar=-5" in key for key in [each.words for each in verdicts["negative"].cases])


def test_scores_of_collapsed_models_do_not_change_verdicts():
    asked = setting(part=("b",), seeds=(0, 1, 2))
    results = collapse(made(asked), "istar=-5")
    without = {key: each for key, each in results.items() if "istar=-5" not in key}
    ours, alone = (outcome_of(asked, each)[1] for each in (results, without))
    for key in ("steers", "negative", "helps", "beats-cosreg", "dimension", "silhouette"):
        assert ours[key].cases == alone[key].cases
        assert ours[key].holds is alone[key].holds
    assert ours["negative"].holds is Holds.yes  # pooled with the collapsed ones the correlation is positive


def test_collapse_is_an_observation_not_a_claim():
    asked = setting(part=("b",), seeds=(0, 1, 2))
    found = study(NAME).outcome(asked, collapse(made(asked), "istar=-"))
    assert [each.claim.key for each in found.observations] == ["collapse"]
    assert found.observations[0].holds is Holds.yes
    assert found.observations[0].ours == "6 of 6 models"
    verdicts = {each.claim.key: each for each in found.verdicts}
    assert verdicts["helps"].holds is Holds.untested  # no model with λ < 0 learned


def test_the_published_cosine_is_compared_with_the_largest_weight():
    asked = setting(part=("b",), seeds=(0,), cosreg=(2.0, 10.0))
    tables, _, _ = outcome_of(asked, made(asked))
    assert set(tables["cosine"].rows[0].published) == {"none", "CosReg 10"}


def test_notes_list_the_training_settings_and_missing_tasks():
    from isoscope.studies.stable_anisotropic_regularization.study import SHRINKAGE_STATES
    from isoscope.training.refresh import SHRINKAGE_STATES as taken

    assert taken == SHRINKAGE_STATES
    tables, _, notes = outcome_of(setting(part=("b",), limit=0), {})
    row = next(each for each in tables["setup"].rows if each.name == "states for the shrinkage covariance")
    some = outcome_of(setting(part=("b",), limit=100), {})[0]["setup"].rows
    assert row.name not in [each.name for each in some]  # so few rows have fewer states
    assert row.ours["value"].mean == row.published["value"].value == SHRINKAGE_STATES  # whatever the analysis takes
    assert any("rte, cola, mrpc, qnli, sst5, qqp, stsb, squad" in each for each in notes)


# fine-tuning: for real, on a tiny model


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    pytest.importorskip("transformers")
    from tests.finetuning import toy

    folder = tmp_path_factory.mktemp("stable")
    toy.encoder(folder / "encoder")
    toy.write_glue(folder / "data", rows=48, dev_rows=24)
    with toy.one_thread():
        yield folder


def test_layer_isotropy_equals_metrics_of_the_states(place):
    import torch
    from transformers import AutoModel, AutoTokenizer

    from isoscope.studies.datasets.tasks import read_task
    from isoscope.studies.stable_anisotropic_regularization.measure import measure_layers

    task = read_task("cola", DataSource(place / "data"))
    told = []
    found = measure_layers(
        str(place / "encoder"), task, zeta=0.75, reference=10**6, tell=lambda share, words: told.append(share)
    )
    model, words = (kind.from_pretrained(place / "encoder") for kind in (AutoModel, AutoTokenizer))
    model.eval()

    def states(texts):
        rows = [[] for _ in range(3)]
        for text in texts:  # one by one: no padding at all
            with torch.no_grad():
                seen = model(**words(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            for own, layer in zip(rows, seen, strict=True):
                own.append(layer[0].numpy())
        return rows

    tokens = [np.concatenate(each) for each in states(task.train.texts)]
    texts = [np.array([each[0] for each in layer]) for layer in states(task.dev.texts)]
    for number in (1, 2):
        layer = found["layers"][number - 1]
        star = isoscope.isoscore_star(texts[number], np.cov(tokens[number].T), 0.75)
        assert layer["isoscore_star"] == pytest.approx(float(star), rel=1e-3)
        assert layer["two_nn"] == pytest.approx(float(isoscope.two_nn(texts[number])), rel=1e-2)
        assert layer["silhouette"] == pytest.approx(
            float(isoscope.silhouette(texts[number], task.dev.labels)), abs=1e-3
        )
    assert found["mean_state"] == pytest.approx(texts[2].mean(axis=0), abs=1e-4)
    assert found["last_cosine"] == pytest.approx(float(isoscope.mean_cosine(tokens[2])), abs=1e-4)
    assert found["tokens_isoscore"] == pytest.approx(float(isoscope.isoscore(np.concatenate(tokens[1:]))), rel=1e-3)
    assert found["token_states"] == 2 * len(tokens[1])
    assert told == sorted(told)
    assert told[-1] == 1


@pytest.mark.filterwarnings("ignore:layer_. has collapsed")
def test_part_b_trains_every_arm_and_resumes(place, tmp_path):
    options = {
        "models": [place / "encoder"],
        "data": place / "data",
        "quick": True,
        "part": "b",
        "tasks": "cola",
        "seeds": "3",
        "lambdas": "-5",
        "epochs": 1,
        "batch_size": 16,
        "limit": 0,
        "dev_limit": 20,
        "learning_rate": 3e-3,
        "reference": 500,
    }

    def stop(stage, done, share, note=""):
        if stage.startswith("arm 4/") and "token states" in note:  # trained, not yet measured
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(NAME, output=tmp_path / "run", progress=stop, **options)
    run = run_study(NAME, output=tmp_path / "run", **options)
    whole = run_study(NAME, output=tmp_path / "whole", **options)
    assert json.dumps(run.results) == json.dumps(whole.results)  # there is NaN in it
    assert list(run.results) == [
        "before/cola/encoder",
        *(f"training/cola/encoder/seed-3/{each}" for each in ("none", "cosreg=1", "istar=-5")),
    ]
    trained = {key.rpartition("/")[2]: each for key, each in run.results.items()}
    assert trained["istar=-5"]["tokens_isoscore"] < trained["none"]["tokens_isoscore"]
    assert trained["cosreg=1"]["last_cosine"] < trained["none"]["last_cosine"]
    assert not (tmp_path / "run" / "work").exists()
    assert {each.key for each in run.outcome.figures} == {"1", "5", "6", "7", "layers"}
    kept = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert {each["key"] for each in kept["tables"]} >= {
        "score",
        "isotropy",
        "dimension",
        "correlations",
        "cosine",
        "setup",
    }
