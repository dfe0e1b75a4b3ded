"""The study of repairs: independently computed numbers, an interrupted run, and rejected settings."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope._io import files
from isoscope.studies.datasets.similarities import SIMILARITIES, Pairs, read_pairs, read_train, train_data_set
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.isotropic_word_representation.measure import (
    PairSets,
    StateArm,
    TextTokens,
    correlations,
    isotropy,
)
from isoscope.studies.isotropic_word_representation.outcome import make_outcome
from isoscope.studies.models import Model
from isoscope.studies.study import ArmContext, Holds, Setting, study
from tests.finetuning.toy import WORDS, encoder, one_thread, opinions

SHARED = Path(__file__).parents[3] / "shared" / "data"
NAME = "isotropic-word-representation-in-bert"
SMALL = {"k": 2, "components": 1, "draws": (0,), "seeds": (0,), "epochs": 1.0, "tuning_rows": 32, "pairs": 20}


def sentence(rng):
    return " ".join(rng.choice(WORDS, rng.integers(3, 9)))


def write_data(folder):
    """Tiny files of every set that the study reads."""
    rng = np.random.default_rng(0)
    for name, tables in (("sts12", ("sts12", "sts12-train")), ("sts15", ("sts15",))):
        (folder / name).mkdir(parents=True)
        for file in tables:
            rows = [f"{'ab'[i % 2]}\t{rng.random() * 5:.2f}\t{sentence(rng)}\t{sentence(rng)}" for i in range(24)]
            (folder / name / f"{file}.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *rows, ""]))
    (folder / "stsb").mkdir()
    for split in ("train", "dev", "test"):
        rows = [f"g\tf\ty\t{i:04d}\t{rng.random() * 5:.3f}\t{sentence(rng)}\t{sentence(rng)}" for i in range(24)]
        (folder / "stsb" / f"sts-{split}.tsv").write_text("\n".join([*rows, ""]))
    (folder / "sick").mkdir()
    rows = [f"{i}\t{sentence(rng)}\t{sentence(rng)}\t{rng.random() * 5:.1f}\tNEUTRAL" for i in range(24)]
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (folder / "sick" / "SICK_test_annotated.txt").write_text("\n".join([head, *rows, ""]))
    for task, head in (("sst2", "sentence\tlabel"), ("wic", "label\tword\tpos\tidx1-idx2\texample1\texample2")):
        (folder / task).mkdir()
        for split, seed in (("train", 0), ("dev", 1)):
            rows = [
                f"{text}\t{label}" if task == "sst2" else f"{'FT'[label]}\tgood\tN\t0-0\t{text}\t{text}"
                for text, label in zip(*opinions(40, seed), strict=True)
            ]
            (folder / task / f"{split}.tsv").write_text("\n".join([head, *rows, ""]))
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return encoder(folder / "tiny-bert"), write_data(folder / "data")


def run(places, out, **more):
    asked = {"sets": ("sts15", "stsb-dev"), "tasks": ("wic",), **SMALL, **more}
    with one_thread():
        return isoscope.run_study(NAME, output=out, models=[places[0]], data=places[1], **asked)


@pytest.fixture(scope="module")
def whole(places, tmp_path_factory):
    return run(places, tmp_path_factory.mktemp("runs") / "whole")


# the numbers


def test_mean_of_tokens_is_computed_per_text():
    rng = np.random.default_rng(0)
    documents, states = np.array([0, 0, 2, 2, 2]), rng.standard_normal((5, 3)).astype(np.float32)
    tokens = TextTokens(isoscope.open_store(states), documents, 3)
    expected = np.stack([states[:2].mean(axis=0), np.zeros(3), states[2:].mean(axis=0)])
    np.testing.assert_allclose(tokens.means(states), expected, atol=1e-6)
    np.testing.assert_allclose(tokens.repaired_means(None), expected, atol=1e-6)
    repair = isoscope.Center().fit(states)
    np.testing.assert_allclose(tokens.repaired_means(repair), tokens.means(repair.transform(states)), atol=1e-6)


def test_tokens_of_selected_texts_repeat_with_the_texts():
    states = np.arange(6, dtype=np.float32)[:, None]
    tokens = TextTokens(isoscope.open_store(states), np.array([0, 0, 2, 3, 3, 3]), 5)
    some = tokens.of([3, 1, 0, 3, 4])
    assert some.states().ravel().tolist() == [3, 4, 5, 0, 1, 3, 4, 5]
    assert (some.documents.tolist(), some.texts) == ([0, 0, 0, 2, 2, 3, 3, 3], 5)


def test_every_sentence_of_the_datasets_is_read_once(places):
    data = DataSource(places[1])
    names = ("sts12", "sts15", "stsb", "stsb-dev", "sick")
    found = list(PairSets(data, names, ("same", "train"), 0).places)
    read = [read_pairs(name, data) for name in names] + [read_train(name, data) for name in ("sts12", "stsb")]
    assert set(found) == {text for pairs in read for text in pairs.texts}
    fewer = PairSets(data, names, ("same",), 3).places
    assert set(fewer) == {text for name in names for text in read_pairs(name, data).part(3).texts}


def test_correlations_of_cosines_match_scipy():
    from scipy.stats import spearmanr
    from sklearn.metrics.pairwise import cosine_similarity

    rng = np.random.default_rng(1)
    vectors, scores = rng.standard_normal((40, 5)), rng.random(20)
    found = correlations(Pairs([""] * 20, [""] * 20, scores, ["a"] * 10 + ["b"] * 10), vectors)
    cosines = np.diag(cosine_similarity(vectors[:20], vectors[20:]))
    assert found["spearman"] == pytest.approx(100 * spearmanr(cosines, scores)[0])
    halves = [spearmanr(cosines[at], scores[at])[0] for at in (slice(10), slice(10, None))]
    assert found["spearman_of_subsets"] == pytest.approx(100 * np.mean(halves))
    assert math.isnan(correlations(Pairs([""] * 20, [""] * 20, scores, [""] * 20), vectors)["pearson_of_subsets"])


def test_log_isotropy_is_the_logarithm_of_isotropy():
    states = 0.1 * np.random.default_rng(0).standard_normal((200, 8))
    found = isotropy(states)
    assert found["isotropy"] == pytest.approx(float(isoscope.partition_isotropy(states)))
    assert 10 ** found["log_isotropy"] == pytest.approx(found["isotropy"])
    assert found["isotropy_of_one_sign"] == pytest.approx(float(isoscope.partition_isotropy(states, signs="plus")))
    few = isotropy(states[:5])  # fewer rows than dimensions: some directions no row reaches
    assert few["isotropy_of_one_sign"] == pytest.approx(float(isoscope.partition_isotropy(states[:5], signs="plus")))


def test_arm_equals_embedding_repair_mean_and_cosine(whole, places):
    """Compute the result of an arm with the library's public functions, with tokens selected by their column."""
    pairs = read_pairs("sts15", DataSource(places[1])).part(20)
    texts = [*pairs.first, *pairs.second]
    with one_thread():
        store = isoscope.embed(places[0], texts, layers=-1, pool="tokens", special_tokens="drop", dtype="float16")
    states = np.concatenate(list(store.chunks())).astype(np.float32)
    counts = [len(text.split()) for text in texts]  # a token is a word here
    assert sum(counts) == len(states)
    repaired = isoscope.ClusterNull(2, 1, random_state=0).fit_transform(states)
    ends = np.cumsum(counts)
    vectors = np.stack([repaired[end - n : end].mean(axis=0) for end, n in zip(ends, counts, strict=True)])
    found = whole.results["sts/tiny-bert/sts15/kmeans-mean-pca/same/seed-0"]
    assert found["spearman"] == pytest.approx(correlations(pairs, vectors)["spearman"], abs=1e-4)
    assert found["isotropy"] == pytest.approx(float(isoscope.partition_isotropy(repaired)), rel=1e-4)


def test_cached_repair_equals_the_fitted_one(places, tmp_path):
    """STS 2012 and 2015 share a train split, so the second set reuses the repair that was fitted for the first."""
    asked = {"parts": ("sts",), "fits": ("train",), "variants": ("kmeans-mean-pca",)}
    alone = run(places, tmp_path / "alone", **asked, sets=("sts15",)).results
    shared = run(places, tmp_path / "shared", **asked, sets=("sts12", "sts15")).results
    ours, theirs = (each["sts/tiny-bert/sts15/kmeans-mean-pca/train/seed-0"] for each in (alone, shared))
    assert ours["spearman"] == pytest.approx(theirs["spearman"], abs=1e-3)
    assert ours["isotropy"] == pytest.approx(theirs["isotropy"], rel=1e-3)
    assert not list((tmp_path / "shared" / "shared").rglob("*.*"))


# a run


def test_run_has_every_part_and_removes_its_states(whole):
    kinds = {key.split("/")[0] for key in whole.results}
    assert kinds == {"layers", "sts", "sst2", "finetune"}
    assert not list((whole.folder / "shared").rglob("*.arrow"))
    assert {each.claim.key for each in whole.outcome.verdicts} == {each.key for each in whole.study.published.claims}
    assert all(each.holds is not Holds.untested for each in whole.outcome.verdicts)
    tables = {each.key: each for each in whole.outcome.tables}
    row = next(each for each in tables["sets-tiny-bert"].rows if each.name == "stsb-dev")
    assert row.published["repaired Spearman"].value == 74.846
    assert tables["finetuning"].rows[0].published["unrepaired accuracy"].value == 64.04
    assert {each.key for each in whole.outcome.figures} == {"isotropy-similarity", "layers", "clouds", "cls-layers"}


def test_stopped_run_resumes_with_same_results(whole, places, tmp_path):
    seen = []

    def stop(stage, done, share, note=""):
        seen.append(note)
        if "sts15, GMM" in note:
            raise KeyboardInterrupt

    asked = {"parts": ("sts",), "sets": ("sts15", "stsb-dev"), **SMALL}
    for progress in (stop, False):
        try:
            with one_thread():
                isoscope.run_study(
                    NAME, output=tmp_path / "run", models=[places[0]], data=places[1], progress=progress, **asked
                )
        except KeyboardInterrupt:
            assert 0 < len(list((tmp_path / "run" / "arms").glob("*.json"))) < 22
    again, once = (json.loads((each / "results.json").read_text())["arms"] for each in (tmp_path / "run", whole.folder))
    assert again == {key: each for key, each in once.items() if key.startswith("sts/")}


@pytest.mark.parametrize("kept", ["none", "half", "one"])
def test_outcome_can_be_made_from_some_arms(whole, kept):
    keys = sorted(whole.results)
    some = {"none": [], "half": keys[::2], "one": keys[:1]}[kept]
    found = make_outcome(whole.study.published, whole.setting, {key: whole.results[key] for key in some})
    assert len(found.verdicts) == len(whole.study.published.claims)
    if kept == "none":
        assert not found.tables
        assert not found.figures
        assert {each.holds for each in found.verdicts} == {Holds.untested}


def test_verdicts_follow_the_numbers(whole):
    """With the paper's own numbers, its claims about similarity hold; with reversed signs, they do not."""
    published = whole.study.published
    numbers = {key: published.tables["variants"][key].value for key in published.tables["variants"]}
    for turned, expected in ((1, Holds.yes), (-1, Holds.no)):
        results = {}
        for variant in ("none", "mean", "mean-pca", "kmeans-mean", "gmm-mean-pca", "kmeans-mean-pca"):
            for column, name in (("STS2015", "sts15"), ("STS-B", "stsb-dev")):
                ours = {
                    "pearson": turned * numbers[variant, f"{column} Pearson"],
                    "spearman": turned * numbers[variant, f"{column} Spearman"],
                    "isotropy": numbers[variant, f"{column} isotropy"],
                    "log_isotropy": math.log10(numbers[variant, f"{column} isotropy"]),
                    "spearman_of_subsets": math.nan,
                    "pairs": 10**6,
                }
                results[f"sts/tiny-bert/{name}/{variant}" + ("" if variant == "none" else "/same")] = ours
        held = {each.claim.key: each.holds for each in make_outcome(published, whole.setting, results).verdicts}
        for claim in ("similarity", "global", "global-harms", "directions"):
            assert held[claim] is expected, claim
        assert held["isotropy"] is held["anisotropic"] is Holds.yes


# data


def test_train_splits_do_not_overlap_scored_data(places):
    data = DataSource(places[1])
    assert [train_data_set(each) for each in ("sts12", "sts15", "stsb-dev")] == ["sts12", "sts12", "stsb"]
    assert read_train("sts12", data).first != read_pairs("sts12", data).first
    splits = [read_train("stsb", data), read_pairs("stsb", data), read_pairs("stsb-dev", data)]
    assert len({tuple(each.first) for each in splits}) == 3


@pytest.mark.skipif(not (SHARED / "sick").is_dir(), reason="needs the datasets in ../shared/data")
@pytest.mark.parametrize("name", SIMILARITIES)
def test_at_most_a_tenth_of_scored_sentences_are_in_the_train_split(name):
    data = DataSource(SHARED)
    train, scored = read_train(train_data_set(name), data), read_pairs(name, data)
    seen, asked = ({*each.first, *each.second} for each in (train, scored))
    assert len(asked & seen) <= 0.11 * len(asked)


def test_pairs_from_the_hub(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "mteb" / "sts15-sts"
    folder.mkdir(parents=True)
    columns = {"sentence1": ["a b", "c", "d"], "sentence2": ["b", "c d", "e"], "score": [1.0, 2.5, 4.0]}
    pq.write_table(pa.table(columns), folder / "test.parquet")
    monkeypatch.chdir(tmp_path)
    found = read_pairs("sts15", DataSource())
    assert (found.first, found.second, found.scores.tolist()) == (*list(columns.values())[:2], columns["score"])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sets": ("sts17",)}, "sets has sts17"),
        ({"variants": ("pca",)}, "variants has pca"),
        ({"tuned": ("gpt",)}, "tuned contains gpt"),
        ({"k": 0}, "k is 0"),
        ({"pairs": 2}, "pairs is 2"),
        ({"epochs": 0}, "epochs is 0: need a number above 0"),
    ],
)
def test_invalid_parameters_are_rejected(places, tmp_path, wrong, words):
    with pytest.raises(isoscope.InputError, match=words):
        run(places, tmp_path / "run", **wrong)


def test_file_without_scores_raises(tmp_path):
    (tmp_path / "sts15").mkdir()
    (tmp_path / "sts15" / "sts15.tsv").write_text("subset\tscore\tsentence1\tsentence2\na\thigh\tb\tc\n")
    with pytest.raises(isoscope.InputError, match="not a number"):
        read_pairs("sts15", DataSource(tmp_path))


def test_published_claims_match_the_published_numbers():
    """Numbers typed from the slides: the repair has the largest value, except for the isotropy of GMM on STS-B."""
    tables = study(NAME).published.tables
    for row in study(NAME).published.rows("sets"):
        for measure in ("Pearson", "Spearman", "isotropy"):
            assert tables["sets"][row, f"repaired {measure}"].value > tables["sets"][row, f"unrepaired {measure}"].value
    for column in ("STS-B Pearson", "STS2015 isotropy"):
        best = max((each.value, row) for (row, name), each in tables["variants"].items() if name == column)
        assert best[1] == "kmeans-mean-pca"


def test_setting_without_datasets_still_has_arms():
    found = study(NAME)
    values = {name: each.quick for name, each in found.parameters.items()} | {"sets": (), "parts": ("layers", "sst2")}
    keys = [each.key for each in found.arms(Setting((Model("bert"),), DataSource(), values, True))]
    assert keys == [key for key in keys if key.startswith("sst2/bert/")] != []


# accuracies, which differ by chance


def outcome_of(results):
    values = {name: each.quick for name, each in study(NAME).parameters.items()}
    asked = Setting((Model("m"),), DataSource(), values | {"tasks": ("rte",)}, quick=True)
    return make_outcome(study(NAME).published, asked, results)


def judged(results):
    return {each.claim.key: each for each in outcome_of(results).verdicts}


@pytest.mark.parametrize(
    ("usual", "repaired", "expected"),
    [
        ({0: 65.0, 1: 65.2, 2: 65.1}, {0: 62.0, 1: 62.1, 2: 62.2}, Holds.yes),
        ({0: 65.0}, {0: 62.0}, Holds.undecided),
        ({0: 65.0, 1: 65.0}, {0: 60.0, 1: 64.9}, Holds.undecided),
        ({0: 62.0}, {0: 65.0}, Holds.undecided),
        ({0: 70.0, 1: 60.0, 2: 61.0}, {1: 61.0, 2: 62.0}, Holds.no),  # seed by seed, and not in the order they stand in
    ],
)
def test_accuracy_drop_is_certain_possible_or_absent(usual, repaired, expected):
    arms = {"none": usual, "repair": repaired}
    results = {
        f"finetune/rte/m/{how}/seed-{seed}": {
            "accuracy": value,
            "mean_share": 0.5,
            "layers": [{"layer": 1, "log_isotropy": -3.0}],
            **{name: {"isotropy": 1e-3, "log_isotropy": -3.0} for name in ("read", "last", "offline")},
        }
        for how, seeds in arms.items()
        for seed, value in seeds.items()
    }
    assert judged(results)["finetuning-accuracy"].holds is expected


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ((56.0, 56.1, 56.2), Holds.yes),
        ((56.0,), Holds.undecided),
        ((55.0, 58.0), Holds.undecided),
        ((55.0, 55.1), Holds.no),
    ],
)
def test_gain_in_one_sample_is_not_proof(accuracies, expected):
    results = {"sst2/m/none": {"accuracy": 55.7, "isotropy": 1e-5}}
    for seed, accuracy in enumerate(accuracies):
        results[f"sst2/m/kmeans-mean-pca/seed-{seed}"] = {"accuracy": accuracy, "isotropy": 0.8}
    assert judged(results)["classification"].holds is expected


@pytest.mark.parametrize(("after", "expected"), [(90.0, Holds.yes), (56.1, Holds.undecided), (40.0, Holds.no)])
def test_accuracy_verdict_accounts_for_dev_set_size(after, expected):
    results = {"sst2/m/none": {"accuracy": 55.7, "isotropy": 1e-5, "dev_rows": 872}}
    results["sst2/m/kmeans-mean-pca/seed-0"] = {"accuracy": after, "isotropy": 0.8, "dev_rows": 872}
    assert judged(results)["classification"].holds is expected


def test_isotropy_at_unit_length_does_not_depend_on_scale():
    X = np.random.default_rng(0).standard_normal((300, 8)) @ np.diag([5, 1, 1, 1, 1, 1, 1, 0.2]) + 2
    small, large = (isotropy((factor * X).astype(np.float32)) for factor in (0.01, 30.0))
    for name in ("isotropy_at_unit_length", "isoscore"):
        assert small[name] == pytest.approx(large[name], rel=1e-4)
    assert small["isotropy"] > 0.9 > 1e-6 > large["isotropy"]
    unit = X / np.sqrt((X**2).sum(axis=1).mean())
    assert small["isotropy_at_unit_length"] == pytest.approx(float(isoscope.partition_isotropy(unit)), rel=1e-4)
    assert small["isoscore"] == pytest.approx(float(isoscope.isoscore(X)), rel=1e-4)
    assert math.isnan(isotropy(np.ones((4, 2)))["isoscore"])


def test_arms_of_earlier_release_have_no_unit_length_row():
    old = {"pearson": 50.0, "spearman": 50.0, "spearman_of_subsets": math.nan, "isotropy": 0.5, "log_isotropy": -0.3}
    results = {"sts/m/stsb/none": dict(old), "sts/m/stsb/kmeans-mean-pca/same/seed-0": dict(old)}
    assert "unit-length" not in [each.key for each in outcome_of(results).tables]
    for each in results.values():
        each |= {"isotropy_at_unit_length": 0.25, "isoscore": 0.1}
    table = next(each for each in outcome_of(results).tables if each.key == "unit-length")
    assert table.rows[0].ours["unrepaired isotropy at unit length"].mean == 0.25
    assert table.rows[0].ours["repaired IsoScore"].mean == 0.1


def test_notes_compare_fits_and_one_sign_isotropy():
    def scored(value):
        told = {"pearson": value, "spearman": value, "spearman_of_subsets": math.nan, "pairs": 1379}
        return told | {"isotropy": 0.5, "log_isotropy": math.log10(0.5)}

    results = {"sts/m/stsb/none": scored(54.0)}
    results |= {f"sts/m/stsb/kmeans-mean-pca/{fit}/seed-0": scored(to) for fit, to in (("same", 67.0), ("train", 53.0))}
    results["sts/m/stsb/none"]["isotropy_of_one_sign"] = 1.5
    assert any("3.0 to 3.0 times as large" in each for each in outcome_of(results).notes)
    results["sts/m/stsb/none"] |= {"isotropy": 0.0, "log_isotropy": -453.0, "isotropy_of_one_sign": 1e-149}
    assert any("10^304 to 10^304 times as large" in each for each in outcome_of(results).notes)
    verdict = judged(results)["similarity"]
    assert verdict.holds is Holds.yes
    assert verdict.why.endswith("both rise in 0 of 1 cases.")
    for each in results.values():
        each["pairs"] = 30  # too few to tell
    assert judged(results)["similarity"].holds is Holds.undecided


def test_states_partly_removed_by_a_kill_are_not_read(tmp_path, monkeypatch):
    folder = tmp_path / "states" / "tiny" / "sentences-1a2b"
    arm = StateArm(Model("tiny"), DataSource(tmp_path), "none", 2, 1, 0, cleanup_pattern="sentences-*")
    bench = ArmContext(tmp_path / "work", tmp_path, lambda share, words: None)
    remove = shutil.rmtree

    def killed(path, **more):
        if path.exists():
            raise KeyboardInterrupt

    for left in (True, False):
        folder.mkdir(parents=True)
        (folder / "part-0.arrow").touch()
        monkeypatch.setattr(files.shutil, "rmtree", killed if left else remove)
        with pytest.raises(KeyboardInterrupt) if left else nullcontext():
            arm.clean(bench)
        assert not folder.exists()
    assert not any(folder.parent.iterdir())
