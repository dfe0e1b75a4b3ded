"""`advise` end to end: helpful repairs are recommended, good vectors stay unchanged, results are saved."""

from __future__ import annotations

import contextlib
import json
import re

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import AllButTheTop, Center, Chain, ClusterCenter, InputError, Whiten, load_transform, open_store
from isoscope.advising.advise import SCHEMA


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(1):
        yield


GIVEN = [Center(), AllButTheTop(1), Whiten()]


def rogue_pairs():
    """Vectors with meaning in 12 coordinates and one dominant noise coordinate, and graded pairs of rows."""
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((300, 12))
    X = np.hstack([meaning, np.zeros((300, 4))]) + 0.2 * rng.standard_normal((300, 16))
    X[:, 15] += 15 * rng.standard_normal(300)
    first, second = rng.permutation(300).reshape(2, 150)
    return X, (first, second, -np.linalg.norm(meaning[first] - meaning[second], axis=1))


@pytest.fixture(scope="module")
def rogue():
    X, pairs = rogue_pairs()
    with threadpool_limits(1):
        return X, pairs, isoscope.advise(X, pairs=pairs, candidates=GIVEN)


@pytest.fixture(scope="module")
def good():
    """Classes that the large coordinates separate: whitening can only amplify the noise of the small ones."""
    rng = np.random.default_rng(1)
    of = np.arange(300) % 3
    X = 1.5 * np.eye(24)[of] + rng.standard_normal((300, 24)) * np.r_[np.full(4, 0.6), np.full(20, 0.1)]
    with threadpool_limits(1):
        return X, of, isoscope.advise(X, labels=of, candidates=GIVEN, measure="knn")


# the advice


def test_rogue_coordinate_is_fixed(rogue):
    _, _, advice = rogue
    assert advice.choice.name == "AllButTheTop(1)"  # the simplest of those that gain
    assert advice.choice["spearman"].verdict == "gain"
    assert advice["Whiten"]["spearman"].verdict == "gain"
    assert advice["Center"]["spearman"].verdict == "noise"
    assert advice.promised_gain > 0.1
    assert advice.stability == 1
    assert advice.examples == 150


def test_good_space_is_kept_and_whitening_hurts(good):
    _, _, advice = good
    assert advice.leaves_vectors_unchanged
    assert advice["Whiten"]["knn"].verdict == "loss"
    assert advice.paragraph.startswith("Leave the vectors as they are: no repair improves neighbor accuracy")


def test_disagreeing_measures_are_reported():
    rng = np.random.default_rng(2)
    of = np.arange(400) % 4
    # what tells classes apart is small, and a probe does not mind; K-means sees what is large
    X = np.hstack([0.3 * np.eye(4)[of] + 0.05 * rng.standard_normal((400, 4)), 3 * rng.standard_normal((400, 2))])
    advice = isoscope.advise(X, labels=of, candidates=[Whiten()], measure="probe")
    assert advice.leaves_vectors_unchanged
    assert advice["Whiten"]["v_measure"].verdict == "gain"
    assert "Whiten improves adjusted V-measure by" in advice.paragraph
    assert "set the measure to v_measure" in advice.paragraph
    heard = isoscope.advise(X, labels=of, candidates=[Whiten()])
    assert (heard.choice.name, heard["Whiten"]["probe"].verdict) == ("Whiten", "noise")
    assert heard.measure in ("knn", "v_measure")


def test_retrieval_also_gains_from_a_repair():
    rng = np.random.default_rng(3)
    meaning = rng.standard_normal((300, 8))
    documents = np.hstack([meaning, 30 * rng.standard_normal((300, 1))])
    queries = np.hstack([meaning[:60] + 0.1 * rng.standard_normal((60, 8)), 30 * rng.standard_normal((60, 1))])
    advice = isoscope.advise(
        documents, queries=queries, qrels={i: {i: 1} for i in range(60)}, candidates=[Center(), AllButTheTop(1)]
    )
    assert advice.choice.name == "AllButTheTop(1)"
    assert advice.example == "query"
    assert set(advice.measures) == {"ndcg@10", "recall@100"}


def test_unused_labels_are_mentioned(rng):
    store = open_store(rng.standard_normal((80, 6)), labels=np.arange(80) % 2)
    advice = isoscope.advise(store, candidates=[Center()])
    assert advice.measure == "stability"
    assert "to use it, pass --labels" in advice.notes[-1]
    assert "This evidence is weak" in advice.paragraph


# what is kept


def test_repair_is_the_choice_fitted_to_the_entire_source(rogue):
    X, _, advice = rogue
    np.testing.assert_array_equal(advice.repair.transform(X), AllButTheTop(1).fit(open_store(X)).transform(X))


def test_fit_uses_the_entire_source_not_the_sample(rng):
    X, pairs = rogue_pairs()
    more = np.vstack([X, rng.standard_normal((500, 16)) * 5])
    advice = isoscope.advise(more, pairs=pairs, candidates=[AllButTheTop(1)], sample=320)
    assert advice.n == 800
    assert advice.choice.name == "AllButTheTop(1)"
    np.testing.assert_array_equal(advice.repair.transform(more), AllButTheTop(1).fit(open_store(more)).transform(more))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_saved_repair_gives_identical_vectors(rogue, good, tmp_path, dtype):
    for i, (X, _, advice) in enumerate((rogue, good)):
        advice.save(tmp_path / str(i))
        again, X = load_transform(tmp_path / str(i)), X.astype(dtype)
        np.testing.assert_array_equal(again.transform(X), advice.repair.transform(X))
    np.testing.assert_array_equal(again.transform(X), X)  # leaving alone


def test_the_same_seed_gives_the_same_json(rogue, tmp_path):
    X, pairs, advice = rogue
    again = isoscope.advise(X, pairs=pairs, candidates=GIVEN)
    advice.to_json(tmp_path / "a.json")
    again.to_json(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert isoscope.advise(X, pairs=pairs, candidates=GIVEN, seed=1).to_dict() != advice.to_dict()


def test_dict_is_json_serializable_and_complete(rogue):
    _, _, advice = rogue
    held = advice.to_dict()
    assert json.loads(json.dumps(held, allow_nan=False)) == held
    assert held["schema"] == SCHEMA == "isoscope.advice/2"
    assert held["source"] == {"name": "array", "rows": 300, "dimensions": 16}
    assert held["task"]["examples"] == 150
    assert held["settings"]["seed"] == 0
    assert held["choice"] == "AllButTheTop(1)"
    assert held["best"] == advice.trials[advice.best].name
    assert [trial["name"] for trial in held["trials"]] == [trial.name for trial in advice.trials]
    for trial, shown in zip(advice.trials, held["trials"], strict=True):
        score = trial["spearman"]
        assert shown["scores"]["spearman"] == {
            "value": score.value,
            "gain": score.gain,
            "low": score.low,
            "high": score.high,
            "verdict": score.verdict,
        }
        assert score.low <= score.gain <= score.high
        assert score.value == pytest.approx(advice.trials[0]["spearman"].value + score.gain)
    assert held["paragraph"] == advice.paragraph


def test_excluded_candidates_are_listed_with_the_reason(good):
    X, of, _ = good
    advice = isoscope.advise(X, labels=of, candidates=[AllButTheTop(25), ClusterCenter(900)])
    assert set(advice.left_out) == {"AllButTheTop(25)", "ClusterCenter(900)"}
    assert advice.to_dict()["left_out"] == advice.left_out
    with pytest.raises(KeyError, match="n_components is 25"):
        advice["AllButTheTop(25)"]
    with pytest.raises(KeyError, match="not found; choose from as it is"):
        advice["Whiten"]


def test_repr_is_short(rogue, good):
    score = f"Spearman's correlation {rogue[2].choice['spearman'].value:.3f}"
    assert repr(rogue[2]) == f"Advice(array: AllButTheTop(1), {score}; 4 candidates, 150 pairs)"
    assert re.fullmatch(r"Advice\(array: as it is, [\w ]+ [01]\.\d{3}; 4 candidates, 300 rows\)", repr(good[2]))


def test_given_candidates_stay_unfitted(rogue):
    assert not any(hasattr(repair, "mean_") for repair in GIVEN)


# input that is odd, and answered


def odd(rng, name):
    X = rng.standard_normal((100, 8))
    return {
        "int8": (X * 30).astype(np.int8),
        "float16": X.astype(np.float16),
        "huge": (X * 1e30).astype(np.float32),
        "d = 2": X[:, :2],
        "n < d": np.hstack([X] * 20),
        "zeros among them": np.where(np.arange(100)[:, None] % 5, X, 0),
    }[name]


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("name", ["int8", "float16", "huge", "d = 2", "n < d", "zeros among them"])
def test_unusual_sources_give_finite_results(rng, name):
    advice = isoscope.advise(odd(rng, name), labels=rng.integers(0, 2, 100))
    for trial in advice.trials:
        for score in trial.scores.values():
            assert np.isfinite([score.value, score.gain, score.low, score.high]).all()
    str(advice)


@pytest.mark.parametrize("row", [np.zeros(8), np.ones(8), np.arange(8.0)], ids=["zeros", "ones", "numbers"])
def test_constant_source_is_kept(row):
    advice = isoscope.advise(np.tile(row, (100, 1)), candidates=GIVEN)
    assert advice.leaves_vectors_unchanged
    assert {trial["stability"].verdict for trial in advice.trials} == {"noise"}


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_constant_source_with_labels_is_reported():
    with pytest.raises(InputError, match="1 distinct row is too few"):
        isoscope.advise(np.ones((100, 8)), labels=np.arange(100) % 2, candidates=GIVEN)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_whose_squares_overflow(rng):
    with contextlib.suppress(InputError):
        isoscope.advise(1e200 * rng.standard_normal((100, 8)), labels=np.arange(100) % 2, candidates=GIVEN)


def test_translation_gains_nothing_by_distance(rng):
    of = np.arange(300) % 6
    X = (2 * np.eye(16)[of] + rng.standard_normal((300, 16)) + 1e4).astype(np.float32)
    assert isoscope.advise(
        X, labels=of, metric="euclidean", measure="knn", candidates=[Center()]
    ).leaves_vectors_unchanged


# input that is refused, in one line


X = np.random.default_rng(0).standard_normal((100, 6))
OF = np.arange(100) % 4
QRELS = {str(i): {str(i): 1} for i in range(30)}


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        (X, {"labels": OF, "pairs": ([0], [1], [2])}, "pairs and labels were passed"),
        (X, {"queries": X}, "queries and qrels must be passed together"),
        (X, {"qrels": QRELS}, "queries and qrels must be passed together"),
        (X, {"queries": X[:, :3], "qrels": QRELS}, "have 3 dimensions"),
        (X, {"queries": X[0], "qrels": QRELS}, r"shape \(6,\)"),
        (X, {"queries": X, "qrels": dict(list(QRELS.items())[:9])}, "9 queries are too few for 5 folds"),
        (X, {"labels": OF, "measure": "accuracy"}, "this task supports probe, knn, v_measure"),
        (X, {"measure": "probe"}, "this task supports stability"),
        (X, {"labels": np.zeros(100)}, "at least two distinct labels"),
        (X, {"labels": np.arange(100)}, "not unique ids"),
        (X, {"labels": "topic"}, "no column topic"),
        (X, {"labels": [None, *"ab" * 49, "a"]}, "is empty in 1 of 100 rows, first in row 0"),
        (X, {"labels": OF[1:]}, "99 entries"),
        (X, {"labels": OF, "folds": 30}, "need at least 120"),
        (X, {"labels": OF, "candidates": [Whiten]}, "a candidate is a type"),
        (X, {"labels": OF, "metric": "dot"}, "metric is 'dot'"),
        (X[:5], {"labels": OF[:5]}, "5 distinct rows are too few for 5 folds"),
        (X[:5], {}, "5 rows are too few for 5 folds"),
        (X[:0], {}, "no rows"),
        (X[0], {}, r"shape \(6,\)"),
        (X[:, :1], {"labels": OF}, "1 dimension"),
        (X[:, :3], {}, "need at least 4 to split"),
        (np.where(np.arange(600).reshape(100, 6) == 75, np.nan, X), {"labels": OF}, "first in row 12"),
    ],
)
def test_invalid_input_raises_one_line_error(source, given, words):
    with pytest.raises(InputError, match=words) as error:
        isoscope.advise(source, **given)
    assert "\n" not in str(error.value)


def test_errors_show_a_label_as_it_was_passed():
    with pytest.raises(InputError, match=r"the label 0(\.0)?:"):
        isoscope.advise(X, labels=np.zeros(100))


def test_progress_is_reported_and_displayed(capsys):
    told = []
    isoscope.advise(X, candidates=[Center()], progress=lambda *what: told.append(what))
    assert {stage for stage, _, _ in told} == {"reading", "trying repairs"}
    assert all(0 <= share <= 1 for _, _, share in told)
    isoscope.advise(X, candidates=[], progress=True)
    assert isinstance(isoscope.advise(X, candidates=[]).repair, Chain)
