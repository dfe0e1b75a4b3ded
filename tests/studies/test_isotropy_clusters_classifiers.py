"""The study of Mickus et al. on tiny data: its protocol compared with plain torch, and resumed runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope._core.errors import InputError
from isoscope.studies.datasets.classified import ClassifiedTexts, read_classified, read_word_classes
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.formatting import format_number
from isoscope.studies.isotropy_clusters_classifiers.claims import COUNTEREXAMPLE
from isoscope.studies.isotropy_clusters_classifiers.measure import (
    OptimizationSettings,
    optimize,
    silhouette_labels,
)
from isoscope.studies.isotropy_clusters_classifiers.outcome import make_outcome
from isoscope.studies.models import Model
from isoscope.studies.run import run_study
from isoscope.studies.study import Case, Holds, Setting, Value, study
from isoscope.studies.verdicts import correlation
from tests.finetuning.toy import BAD, GOOD, encoder, one_thread

torch = pytest.importorskip("torch")
NAME = "isotropy-clusters-classifiers"
SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def _sentence(rng, words):
    return " ".join(["the", "film", "is", *rng.choice(list("abcdefgh"), 3), str(rng.choice(words))])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folders in the datasets' layout, with 40 sentences, 30 pairs, and a few words with their classes."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    (folder / "mr").mkdir()
    for name, words in (("neg", BAD), ("pos", GOOD)):
        lines = [_sentence(rng, words) for _ in range(20)]
        (folder / "mr" / f"rt-polarity.{name}").write_text("\n".join(lines) + " \n", encoding="utf-8")
    (folder / "rte").mkdir()
    rows = [
        f"{i}\t{_sentence(rng, GOOD)}\t{_sentence(rng, words)}\t{label}"
        for i, (words, label) in enumerate([(GOOD, "entailment"), (BAD, "not_entailment")] * 15)
    ]
    for name in ("train", "dev"):
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
        (folder / "rte" / f"{name}.tsv").write_text(text, encoding="utf-8")
    (folder / "snli").mkdir()
    pairs = [
        "label\tsentence1\tsentence2",
        "neutral\ta film\ta good film",
        "entailment\ta film\tthe film",
        "contradiction\ta good film\ta bad film",
        "-\tno\tlabel",
    ]
    (folder / "snli" / "dev.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    (folder / "wordnet30").mkdir()
    lemmas = ["lemma\tpos\tn_senses\tsemcor_tag_count\tfirst_sense_supersense\tall_senses_supersenses"]
    kinds = ("noun.act", "noun.food", "noun.act|noun.food")
    lemmas += [f"{'w' + chr(97 + i)}\tnoun\t1\t{50 - i}\tx\t{kinds[i % 3]}" for i in range(24)]
    lemmas += ["wa\tverb\t1\t99\tx\tverb.motion", "two_words\tnoun\t1\t99\tx\tnoun.act", "rare\tadj\t1\t0\tx\tadj.all"]
    (folder / "wordnet30" / "lemma_supersenses.tsv").write_text("\n".join(lemmas) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("models") / "tiny", layers=1)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Word vectors for all words of the data except one, and for other words."""
    folder = tmp_path_factory.mktemp("vectors") / "words"
    folder.mkdir()
    words = ["other", *("w" + chr(97 + i) for i in range(23)), "rare"]
    np.save(folder / "vectors.npy", np.random.default_rng(0).standard_normal((len(words), 6)).astype(np.float32))
    (folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return folder


def cloud(n=24, d=5, pairs=False, several=False, seed=0):
    rng = np.random.default_rng(seed)
    items = rng.integers(0, n, (n, 2)) if pairs else np.arange(n)[:, None]
    targets = rng.integers(0, 2, (n, 3)) if several else np.arange(n) % 3
    return rng.standard_normal((n, d)).astype(np.float32), ClassifiedTexts([""] * n, items, targets, ("a", "b", "c"))


def recipe(**more):
    return OptimizationSettings(
        **{"updates": 6, "every": 1, "moments": 3, "sample": 100, "bias": True, "seed": 0} | more
    )


def silent(share, words):
    pass


# the protocol


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_series_match_plain_torch_and_scikit_learn(pairs, several):
    """Reimplement the protocol with Adam, scikit-learn's silhouette, and IsoScore."""
    from sklearn.metrics import silhouette_score

    start, data = cloud(pairs=pairs, several=several)
    found = optimize(start, data, recipe(), silent)
    torch.manual_seed(0)
    head = torch.nn.Linear(10 if pairs else 5, 3)
    E = torch.tensor(start, requires_grad=True)
    adam = torch.optim.Adam([E, *head.parameters()], lr=1e-3, betas=(0.9, 0.999))
    labels = [str(row) for row in data.targets]
    for i in range(6):
        rows = torch.cat([E[data.items[:, 0]], E[data.items[:, 1]]], 1) if pairs else E
        if several:
            loss = torch.nn.BCEWithLogitsLoss()(head(rows), torch.tensor(data.targets).float())
        else:
            loss = torch.nn.CrossEntropyLoss()(head(rows), torch.tensor(data.targets))
        adam.zero_grad()
        loss.backward()
        adam.step()
        now = E.detach().double().numpy()
        rows = np.hstack([now[data.items[:, 0]], now[data.items[:, 1]]]) if pairs else now
        variances = np.linalg.eigvalsh(np.cov(now.T))
        ratio = variances.sum() ** 2 / (variances**2).sum()
        assert found["isoscore"][i] == pytest.approx((ratio - 1) / 4, rel=1e-5)
        assert found["silhouette"][i] == pytest.approx(silhouette_score(rows, labels), abs=1e-5)
    assert found["parameters"] == 24 * 5 + 3 * ((10 if pairs else 5) + 1)
    assert found["updates"] == [1, 2, 3, 4, 5, 6]


def test_input_vectors_are_unchanged_and_rerun_is_identical():
    start, data = cloud()
    before = start.copy()
    first = optimize(start, data, recipe(), silent)
    torch.rand(3)  # whatever else drew random numbers
    assert optimize(start, data, recipe(), silent) == first
    assert optimize(start, data, recipe(seed=1), silent)["silhouette"] != first["silhouette"]
    np.testing.assert_array_equal(start, before)


def test_a_head_without_bias_has_no_parameters_for_it():
    start, data = cloud()
    assert optimize(start, data, recipe(bias=False), silent)["parameters"] == 24 * 5 + 3 * 5


def test_scores_are_computed_at_intervals_and_at_the_last_update():
    start, data = cloud()
    every = optimize(start, data, recipe(updates=7), silent)
    some = optimize(start, data, recipe(updates=7, every=3), silent)
    assert some["updates"] == [3, 6, 7]
    assert some["silhouette"] == [every["silhouette"][i - 1] for i in some["updates"]]
    assert some["moments"] == [1, 4, 7]


def test_many_items_are_resampled_at_each_update():
    start, data = cloud(n=60)
    whole, some = (optimize(start, data, recipe(sample=sample), silent) for sample in (60, 30))
    assert some["silhouette"] == optimize(start, data, recipe(sample=30), silent)["silhouette"]
    assert not np.allclose(some["isoscore"], whole["isoscore"], rtol=1e-6)
    assert np.ptp(some["isoscore"]) > 10 * np.ptp(whole["isoscore"])


def test_objectives_equal_the_sums_in_the_paper():
    start, data = cloud()
    found = optimize(start, data, recipe(updates=1, moments=1), silent)
    torch.manual_seed(0)
    head = torch.nn.Linear(5, 3)
    E = torch.tensor(start, requires_grad=True)
    adam = torch.optim.Adam([E, *head.parameters()])
    torch.nn.functional.cross_entropy(head(E), torch.tensor(data.targets)).backward()
    adam.step()
    X, C = E.detach().double().numpy(), head.weight.detach().double().numpy()
    squared = ((X[:, None] - X[None]) ** 2).sum(2)
    same = data.targets[:, None] == data.targets[None]
    assert found["O_I"][0] == pytest.approx(squared.sum())
    assert found["O_S"][0] == pytest.approx(np.where(same, -squared, squared).sum())
    assert found["within"][0] == pytest.approx(squared[same].sum() / squared.sum())
    own = data.targets[:, None] == np.arange(3)[None]
    assert found["O_C"][0] == pytest.approx(np.where(own, X @ C.T, -(X @ C.T)).sum())
    assert found["O_T"][0] == pytest.approx((np.where(same, 8 - 24, 8 - 1) * squared).sum())


def test_items_with_the_same_classes_form_one_cluster():
    labels = silhouette_labels(np.array([[1, 0], [1, 1], [1, 0], [0, 1]]))
    assert labels[0] == labels[2]
    assert len(set(labels.tolist())) == 3


# data


def test_each_text_of_pairs_and_every_polarity_item_appears_once(data):
    found = read_classified("snli", DataSource(data))
    assert sorted(found.texts) == ["a bad film", "a film", "a good film", "the film"]
    assert [[found.texts[i] for i in item] for item in found.items] == [
        ["a film", "a good film"],
        ["a film", "the film"],
        ["a good film", "a bad film"],
    ]
    assert [found.classes[i] for i in found.targets] == ["neutral", "entailment", "contradiction"]
    polarity = read_classified("polarity", DataSource(data))
    assert len(polarity.texts) == len(polarity.items) == 40
    assert polarity.targets.tolist() == [0] * 20 + [1] * 20


def test_original_polarity_files_are_read_as_latin_1(tmp_path):
    for name in ("neg", "pos"):
        (tmp_path / f"rt-polarity.{name}").write_bytes("a café film\n\nanother\n".encode("latin-1"))
    assert read_classified("polarity", DataSource(tmp_path)).texts == ["a café film", "another"] * 2


def test_subset_keeps_only_the_texts_it_needs():
    _, data = cloud(pairs=True)
    texts = [f"text {i}" for i in range(24)]
    whole = ClassifiedTexts(texts, data.items, data.targets, data.classes)
    part = whole.part(5)
    assert len(part.items) == len(part.targets) == 5
    assert set(part.items.ravel()) == set(range(len(part.texts)))
    spoken = [([texts[i] for i in item], target) for item, target in zip(whole.items, whole.targets, strict=True)]
    assert all(
        ([part.texts[i] for i in item], target) in spoken for item, target in zip(part.items, part.targets, strict=True)
    )
    assert whole.part(0) is whole
    assert whole.part(24) is whole


def test_words_have_all_their_classes_and_most_tagged_come_first(data):
    nouns = read_word_classes("supersense", DataSource(data))
    assert nouns.texts[:3] == ["wa", "wb", "wc"]
    assert "rare" not in nouns.texts
    assert "two_words" not in nouns.texts
    assert nouns.classes == ("noun.act", "noun.food")
    assert nouns.targets[:3].tolist() == [[1, 0], [0, 1], [1, 1]]
    every = read_word_classes("pos", DataSource(data))
    assert every.classes == ("noun", "verb", "adjective", "adverb")
    assert every.targets[every.texts.index("wa")].tolist() == [1, 1, 0, 0]
    assert every.targets[every.texts.index("rare")].tolist() == [0, 0, 1, 0]


def test_from_the_hub(tmp_path, monkeypatch):
    """`datasets` also accepts a relative folder with the name of the Hub dataset."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    polarity = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    place = Path("cornell-movie-review-data/rotten_tomatoes")
    place.mkdir(parents=True)
    for i, split in enumerate(("train", "validation", "test")):
        rows = datasets.Dataset.from_dict({"text": [f"bad {i}", f"good {i}"], "label": [0, 1]}, polarity)
        rows.to_parquet(place / f"{split}.parquet")
    found = read_classified("polarity", DataSource())
    assert found.texts == ["bad 0", "bad 1", "bad 2", "good 0", "good 1", "good 2"]
    pairs = datasets.Features(
        {name: datasets.Value("string") for name in ("premise", "hypothesis")}
        | {"label": datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])}
    )
    place = Path("stanfordnlp/snli")
    place.mkdir(parents=True)
    rows = {"premise": ["a", "a", "x"], "hypothesis": ["b", "c", "y"], "label": [2, 0, -1]}
    datasets.Dataset.from_dict(rows, pairs).to_parquet(place / "validation.parquet")
    found = read_classified("snli", DataSource())
    assert sorted(found.texts) == ["a", "b", "c"]
    assert [found.classes[i] for i in found.targets] == ["contradiction", "entailment"]


@pytest.mark.skipif(not (SHARED / "rte").is_dir(), reason="needs the datasets in ../shared/data")
@pytest.mark.parametrize(
    ("task", "texts", "items"), [("rte", 4523, 2490), ("mrpc", 7052, 3668), ("polarity", 10662, 10662)]
)
def test_real_data_have_the_published_sizes(task, texts, items):
    found = read_classified(task, DataSource(SHARED))
    assert (len(found.texts), len(found.items)) == (texts, items)
    whole = study(NAME).published
    published = whole.number("sizes", task, "parameters") or whole.number(
        "glue-sizes", task, "all-MiniLM-L6-v2 parameters"
    )
    head = len(found.classes) * (384 * found.items.shape[1] + (task != "polarity"))
    assert texts * 384 + head == published.value


# whole runs

SMALL = {"updates": 12, "every": 2, "moments": 4}


@pytest.fixture(scope="module")
def finished(data, model, vectors, tmp_path_factory):
    with one_thread():
        return run_study(
            NAME,
            output=tmp_path_factory.mktemp("run") / "whole",
            models=[model, vectors],
            data=data,
            tasks="rte,polarity,supersense,pos",
            seeds="0,1",
            **SMALL,
        )


def test_complete_run(finished, data):
    assert set(finished.results) == {
        f"{task}/{model}/seed-{seed}"
        for task, model in (("rte", "tiny"), ("polarity", "tiny"), ("supersense", "words"), ("pos", "words"))
        for seed in (0, 1)
    }
    one = finished.results["polarity/tiny/seed-0"]
    assert one["parameters"] == 40 * 32 + 2 * 32
    assert len(one["silhouette"]) == 6
    assert one["silhouette"][-1] > one["silhouette"][0]
    assert finished.results["supersense/words/seed-0"]["items"] == 23
    assert finished.results["pos/words/seed-0"]["parameters"] == 24 * 6 + 4 * 7
    assert {each.key for each in finished.outcome.tables} >= {"correlations", "glue", "sizes"}
    assert {each.key for each in finished.outcome.figures} == {"figure-2", "figure-3", "figure-4", "objectives"}
    verdicts = {each.claim.key: each for each in finished.outcome.verdicts}
    assert list(verdicts) == [each.key for each in study(NAME).published.claims]
    first, last = (np.mean([run["isoscore"][place] for run in _of(finished, "rte/tiny")]) for place in (0, -1))
    assert f"rte {format_number(first, 3)} → {format_number(last, 3)}" in verdicts["isoscore-falls"].ours
    table = next(each for each in finished.outcome.tables if each.key == "correlations")
    row = next(each for each in table.rows if each.name.startswith("polarity"))
    assert row.published["Pearson r"].value == -0.808
    assert row.of == "all-MiniLM-L6-v2"
    by_hand = [correlation(run["isoscore"], run["silhouette"]) for run in _of(finished, "polarity/tiny")]
    assert row.ours["Pearson r"].mean == pytest.approx(np.mean(by_hand))
    page = (finished.folder / "page.html").read_text(encoding="utf-8")
    assert "Isotropy, Clusters, and Classifiers" in page
    assert "−0.8080" in page


def _of(run, start):
    return [each for key, each in run.results.items() if key.startswith(start)]


def test_a_stopped_run_resumes_with_the_same_results(finished, data, model, vectors, tmp_path):
    class Stop(BaseException):
        pass

    settings = {"models": [model, vectors], "data": data, "tasks": "rte,polarity,supersense,pos", "seeds": "0,1"}

    def stopping(stage, done, share, note=""):
        if stage.startswith("arm 3/") and "silhouette" in note:
            raise Stop

    with pytest.raises(Stop):
        run_study(NAME, output=tmp_path / "run", progress=stopping, **settings, **SMALL)
    assert len(list((tmp_path / "run" / "arms").glob("*.json"))) == 2
    again = run_study(NAME, output=tmp_path / "run", **settings, **SMALL)
    assert json.dumps(again.results, sort_keys=True) == json.dumps(finished.results, sort_keys=True)


def test_single_seed_without_glue_tasks(data, model, tmp_path):
    run = run_study(NAME, output=tmp_path / "run", models=[model], data=data, tasks="polarity", seeds="3", **SMALL)
    verdicts = {each.claim.key: each for each in run.outcome.verdicts}
    assert verdicts["seeds"].holds is Holds.untested
    assert {each.key for each in run.outcome.figures} == {"figure-2", "figure-3", "objectives"}


def _runs(**series):
    steps = list(range(1, 11))
    run = {"updates": steps, "moments": steps, "accuracy": [1.0] * 10, "items": 10, "parameters": 100, "labels": 2}
    rising, falling = [0.1 * i for i in steps], [1 / i for i in steps]
    run |= {"silhouette": rising, "isoscore": falling, "within": falling, "cos": falling}
    run |= {"O_I": falling, "O_S": rising, "O_C": rising, "O_T": [2 * each for each in rising]}
    return {("polarity", "m"): [run | series] * 2, ("rte", "m"): [run | series] * 2}


def _verdicts(runs):
    setting = Setting((), DataSource(), {}, quick=False)
    return {each.claim.key: each.holds for each in make_outcome(study(NAME).published, setting, runs, ()).verdicts}


def test_verdicts_follow_from_the_numbers():
    assert {key for key, held in _verdicts(_runs()).items() if held is not Holds.yes} == {"triplet-bound"}
    assert set(_verdicts({}).values()) == {Holds.untested}
    turned = _verdicts(_runs(silhouette=[1 / i for i in range(1, 11)]))
    assert [turned[key] for key in ("silhouette-rises", "pearson", "spearman")] == [Holds.no] * 3
    assert turned["isoscore-falls"] is Holds.yes
    assert _verdicts(_runs(O_I=list(range(10))))["objectives-conflict"] is Holds.no
    assert _verdicts(_runs(O_C=[float("nan")] * 10))["classifier-clusters"] is Holds.untested
    wavy = [0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6, 0.5, 0.95]
    assert _verdicts(_runs(silhouette=wavy))["silhouette-rises"] is Holds.partly
    runs = _runs()
    runs["rte", "m"] = [runs["rte", "m"][0], runs["rte", "m"][0] | {"silhouette": [5 + i for i in range(10)]}]
    assert _verdicts(runs)["seeds"] is Holds.no


def test_triplet_sum_is_not_an_upper_bound_of_silhouette_objective():
    """Appendix B claims this bound; in the counterexample, both labels contain the points 10 and −10."""
    X, labels = COUNTEREXAMPLE
    assert [row[0] for row in X] == [10, -10, 10, -10]
    distances = np.abs(np.subtract.outer([10, -10, 10, -10], [10, -10, 10, -10]))
    same = np.equal.outer(labels, labels)
    by_hand = (np.where(same, 2 - 4, 2 - 1) * distances).sum()  # |D_ω| − |D| inside a label, |D_ω| − 1 between
    assert float(isoscope.metrics.triplet_objective(X, labels, squared=False)) == by_hand == -80
    assert float(isoscope.metrics.silhouette_objective(X, labels)) == (np.where(same, -1, 1) * distances**2).sum() == 0
    assert float(isoscope.metrics.triplet_objective(X, labels)) < 0
    setting = Setting((), DataSource(), {}, quick=False)
    found = {each.claim.key: each for each in make_outcome(study(NAME).published, setting, _runs(), ()).verdicts}
    assert found["triplet-bound"].holds is Holds.no  # though O_T is above O_S everywhere in these runs
    assert "O_T = −80 is below O_S = 0" in found["triplet-bound"].why


def test_barely_met_threshold_is_not_a_clear_yes():
    """Three seeds of −0.8004 ± 0.0007 have an interval that contains −0.8."""
    case = Case.over_seeds("polarity", Value.of([-0.8011, -0.8004, -0.7997]), (-math.inf, -0.8))
    assert case.estimate < -0.8
    assert case.holds is Holds.undecided
    rows = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    noisy = [[0.9, 0.4, 0.9, 0.3, 0.6, 0.5, 0.2, 0.3, 0.1, 0.2], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]]
    runs = {("rte", "m"): [_runs()["rte", "m"][0] | {"silhouette": rows, "isoscore": each} for each in noisy]}
    assert float(np.mean([correlation(rows, each) for each in noisy])) < -0.8
    assert _verdicts(runs)["pearson"] is Holds.undecided


def test_undefined_correlations_are_not_evidence():
    """A correlation of two updates, or of a constant score, is no evidence against a claim either."""
    flat = _verdicts(_runs(isoscore=[0.5] * 10))
    assert flat["pearson"] is flat["spearman"] is Holds.untested
    some = _runs()
    some["rte", "m"] = [each | {"isoscore": [0.5] * 10} for each in some["rte", "m"]]
    assert _verdicts(some)["pearson"] is _verdicts(some)["spearman"] is Holds.yes


def test_reason_mentions_only_the_runs_it_names():
    runs = _runs()
    runs["rte", "m"] = [each | {"O_I": list(range(10))} for each in runs["rte", "m"]]
    setting = Setting((), DataSource(), {}, quick=False)
    verdicts = {each.claim.key: each for each in make_outcome(study(NAME).published, setting, runs, ()).verdicts}
    assert verdicts["objectives-conflict"].holds is Holds.partly
    assert "O_I and O_S do not move in opposite directions in rte." in verdicts["objectives-conflict"].why


def test_notes_list_the_paper_tasks_that_were_not_run(model):
    values = {name: each.full for name, each in study(NAME).parameters.items()} | {"tasks": ("cola", "polarity")}
    notes = study(NAME).outcome(Setting((Model(str(model)),), DataSource(), values, False), {}).notes
    missing = "snli, pos, supersense, mnli, mrpc, qnli, qqp, rte, sst2, wnli"
    unsupported = "mnli, qqp, wnli: not supported by this study"
    assert f"Tasks of the paper that were not run: {missing} ({unsupported})." in notes


def test_the_published_bound_on_spearman_is_shown_for_each_task():
    """The number is published for all tasks with 1000 updates together, and belongs to no row."""
    tables = {
        each.key: each
        for each in make_outcome(study(NAME).published, Setting((), DataSource(), {}, False), _runs(), ()).tables
    }
    assert "below −0.998" in tables["correlations"].note
    assert (tables["correlations"].where, tables["glue"].where) == ("section 3.2", "table 3")


def test_constant_series_has_no_correlation():
    assert np.isnan(correlation([1, 1, 1, 1], [1, 2, 3, 4]))
    assert np.isnan(correlation([1, 2], [2, 1], ranks=True))


# what cannot be meant


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tasks": "cola,mood"}, "tasks has mood"),
        ({"tasks": "supersense"}, "supersense needs word vectors"),
        ({"every": "0"}, "every is 0: need at least 1"),
        ({"rows": "-1"}, "rows is -1: need at least 0"),
    ],
)
def test_invalid_parameters_are_rejected(given, words, data, model, tmp_path):
    with pytest.raises(InputError, match=words):
        run_study(NAME, output=tmp_path / "run", models=[model], data=data, **{"tasks": "polarity"} | given)
    assert not (tmp_path / "run").exists()


def test_words_without_a_task_and_wordnet_without_a_folder(data, vectors, tmp_path):
    with pytest.raises(InputError, match="contains word vectors, but polarity needs a sentence model"):
        run_study(NAME, output=tmp_path / "run", models=[vectors], data=data, tasks="polarity")
    with pytest.raises(InputError, match="use --data to pass the folder that contains wordnet30"):
        run_study(NAME, output=tmp_path / "run", models=[vectors], tasks="pos")
    with pytest.raises(InputError, match=r"wordnet needs lemma_supersenses.tsv"):
        run_study(NAME, output=tmp_path / "run", models=[vectors], data=tmp_path, tasks="pos")


def test_vectors_of_other_words_raise(data, tmp_path):
    (tmp_path / "words").mkdir()
    np.save(tmp_path / "words" / "vectors.npy", np.eye(4, dtype=np.float32))
    (tmp_path / "words" / "words.txt").write_text("un\ndeux\ntrois\nquatre\n", encoding="utf-8")
    with pytest.raises(InputError):
        run_study(NAME, output=tmp_path / "run", models=[tmp_path / "words"], data=data, tasks="pos", **SMALL)
