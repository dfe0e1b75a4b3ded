"""`isoscope.threshold`: every kind of judgment, the verdicts, invariances and bad input."""

import functools
import json

import numpy as np
import pytest

import isoscope
from isoscope._core.errors import MissingValueError, NotFoundError, ParameterError, ShapeError, TooFewRowsError
from tests.thresholding.conftest import unit


def ask(data, kind, **options):
    rows = data["rows"]
    if kind == "labels":
        return isoscope.threshold(rows, labels=data["topic"], **options)
    if kind == "queries":
        given = {"queries": data["queries"], "qrels": data["qrels"], "query_ids": np.arange(len(data["queries"]))}
        return isoscope.threshold(rows, ids=np.arange(len(rows)), **given, **options)
    return isoscope.threshold(rows, ids=np.arange(len(rows)), pairs=data["pairs"], **options)


# verdicts


@pytest.mark.parametrize("kind", ["pairs", "queries", "labels"])
@pytest.mark.parametrize("goal", [{"precision": 0.8}, {"recall": 0.8}, {"f1": True}])
def test_every_kind_of_judgment_gives_a_cut_with_held_out_scores(kind, goal, pairs, topics):
    found = ask(pairs if kind == "pairs" else topics, kind, **goal)
    assert found.verdict == "cut"
    assert found.low <= found.cut <= found.high
    for score in found.scores.values():
        assert 0 <= score.low <= score.value <= score.high <= 1
    assert len(found.fold_cuts) == 5
    assert found.lift.low > 0
    measure, level = next(iter(goal.items()))
    if measure != "f1":
        assert found.scores[measure].high >= level
    assert (found.relative is not None) == (kind == "queries")


def test_counts_of_pairs_and_matches_are_stated(pairs, topics):
    by_pairs, by_queries, by_labels = ask(pairs, "pairs"), ask(topics, "queries"), ask(topics, "labels")
    assert (by_pairs.pairs, by_pairs.matches) == (1200, pairs["is_match"].sum())
    assert by_queries.pairs == 120 * 600
    assert by_queries.matches == sum(map(len, topics["qrels"].values()))
    assert by_labels.pairs == 600 * 599 // 2
    assert "Documents without a judgment count as no match." in by_queries.notes


def test_shuffled_judgments_are_not_separated(topics):
    rng = np.random.default_rng(0)
    for goal in ({"precision": 0.9}, {"recall": 0.9}, {"f1": True}):
        found = isoscope.threshold(topics["rows"], labels=rng.permutation(topics["topic"]), **goal)
        assert found.verdict == "no cut"
        assert found.cut is None
        assert not found.scores
        assert found.headline.startswith("No threshold separates")
        assert found.best is not None


def test_few_examples_are_undecided_and_say_how_many_would_be_enough(pairs):
    a, b, grades = pairs["pairs"]
    few = {"rows": pairs["rows"], "pairs": (a[:60], b[:60], grades[:60])}
    found = ask(few, "pairs", precision=0.95)
    assert found.verdict == "undecided"
    assert found.needed > 60
    assert "60 pairs are too few to decide whether any threshold reaches a precision of" in found.headline
    assert f"about {found.needed:,} would be enough" in found.headline


def test_a_higher_lowest_grade_gives_a_higher_cut(pairs):
    rng = np.random.default_rng(0)
    U = unit(pairs["rows"])
    grades = np.digitize((U[:1200] * U[1200:]).sum(axis=1) + 0.05 * rng.standard_normal(1200), [0.2, 0.5, 0.7])
    data = pairs | {"pairs": (*pairs["pairs"][:2], grades)}
    low, high = (ask(data, "pairs", match_from=grade, f1=True).cut for grade in (1, 3))
    assert low < high
    with pytest.raises(ParameterError, match=r"4 distinct grades \(0, 1, 2, 3\)"):
        ask(data, "pairs")


def test_relevances_below_the_lowest_grade_are_no_matches(topics):
    qrels = {query: {doc: 2 if i % 2 else 1 for i, doc in enumerate(of)} for query, of in topics["qrels"].items()}
    data = topics | {"qrels": qrels}
    assert ask(data, "queries", match_from=2).matches < ask(data, "queries").matches
    with pytest.raises(ParameterError, match="no judgment has at least the grade 3: the grades are 1, 2"):
        ask(data, "queries", match_from=3)


# without judgments


def test_without_judgments_the_cut_has_the_requested_rate(topics):
    found = isoscope.threshold(topics["rows"], false_matches=1e-2)
    U = unit(topics["rows"])
    cosines = (U @ U.T)[np.triu_indices(600, 1)]
    assert (cosines >= found.cut).mean() == pytest.approx(1e-2, abs=1e-5)
    assert found.kind == "random pairs"
    assert found.pairs == len(cosines)


def test_queries_without_judgments_use_pairs_of_queries_and_rows(topics):
    found = isoscope.threshold(topics["rows"], queries=topics["queries"], false_matches=1e-2)
    cosines = unit(topics["queries"]) @ unit(topics["rows"]).T
    assert (cosines >= found.cut).mean() == pytest.approx(1e-2, abs=1e-4)
    assert (found.kind, found.examples) == ("random results", 120)


def test_a_sample_gives_about_the_same_cut_and_is_stated():
    X = np.random.default_rng(0).standard_normal((3000, 12))
    whole, part = isoscope.threshold(X, false_matches=1e-2), isoscope.threshold(X, false_matches=1e-2, sample=800)
    assert part.cut == pytest.approx(whole.cut, abs=0.01)
    assert "a random sample were compared: 800 of 3,000 rows" in " ".join(part.notes)
    with pytest.raises(TooFewRowsError, match=r"the source has 3,000 rows, so raise sample \(CLI: --sample\)"):
        isoscope.threshold(X, false_matches=1e-6, sample=800)
    with pytest.raises(TooFewRowsError, match=r"rate of at least 0\.0002$"):  # all 3,000 rows are too few as well
        isoscope.threshold(X, false_matches=1e-7, sample=800)


def test_rows_of_zeros_are_in_no_pair(topics):
    X = np.concatenate([topics["rows"], np.zeros((5, 24))])
    found = isoscope.threshold(X, false_matches=1e-2)
    assert found.pairs == 600 * 599 // 2
    assert "5 rows of zeros were left out, because their cosine is undefined." in found.notes
    dropped = isoscope.threshold(X, false_matches=1e-2, zeros="drop")
    assert dropped.cut == found.cut


@pytest.mark.parametrize("kind", ["pairs", "queries", "labels", "random pairs"])
def test_dask_reads_the_same_rows(kind, pairs, topics, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("isoscope.engines.dask._MIN_SPAN_BYTES", 20_000)  # several parts
    data = pairs if kind == "pairs" else topics
    call = functools.partial(isoscope.threshold, data["rows"]) if kind == "random pairs" else None
    call = call or functools.partial(ask, data, kind, sample=300, precision=0.8)
    assert call(engine="dask").to_dict() == call().to_dict()


@pytest.mark.parametrize("kind", ["pairs", "queries", "labels"])
def test_rows_of_zeros_in_judgments_are_reported(kind, pairs, topics):
    data = pairs if kind == "pairs" else topics
    X = data["rows"].copy()
    X[5] = 0
    kept, dropped = (ask(data | {"rows": X}, kind, precision=0.8, zeros=zeros) for zeros in ("keep", "drop"))
    words = '1 row of zeros is included, and its cosine counts as 0; to drop it, pass zeros="drop" (CLI: --zeros drop).'
    assert words in kept.notes
    assert f"1 of {len(X)} rows was dropped".replace("2400", "2,400") in " ".join(dropped.notes)


def test_queries_of_zeros_follow_the_same_policy(topics):
    Q = topics["queries"].copy()
    Q[[3, 4]] = 0
    kept, dropped = (ask(topics | {"queries": Q}, "queries", zeros=zeros) for zeros in ("keep", "drop"))
    assert any(note.startswith("2 queries of zeros are included") for note in kept.notes)
    assert (kept.examples, dropped.examples) == (120, 118)
    assert "2 judged queries were dropped: they are incomplete or all zeros." in dropped.notes


# contradicting judgments


def test_a_pair_that_is_a_match_and_no_match_is_refused(pairs):
    """In threshold, advise and compress; also if the rows are swapped."""
    first, second, grades = (np.append(each, each[7]) for each in pairs["pairs"])
    first[-1], second[-1] = second[7], first[7]
    grades[-1] = 1 - grades[7]
    words = rf"two scores.* for the rows '{first[7]}' and '{second[7]}': keep one score for each pair"
    options = {"pairs": (first, second, grades), "ids": np.arange(len(pairs["rows"]))}
    for command in (isoscope.threshold, isoscope.advise, isoscope.compress):
        with pytest.raises(ParameterError, match=words):
            command(pairs["rows"], **options)


def test_several_grades_of_a_pair_are_reported_unless_one_of_them_is_a_match(pairs):
    first, second, grades = (np.append(each, each[:2]) for each in pairs["pairs"])
    grades = 2 * grades
    grades[-2:] += 1
    options = {"pairs": (first, second, grades), "ids": np.arange(len(pairs["rows"]))}
    assert any(
        "2 pairs have several different scores" in each
        for each in isoscope.advise(pairs["rows"], candidates=[], **options).notes
    )
    found = isoscope.threshold(pairs["rows"], match_from=2, **options)
    assert "2 pairs have several different scores; each score counts as an example." in found.notes
    least = float(grades[-1])
    with pytest.raises(
        ParameterError, match=rf"both as a match \(score {least:g}\) and as no match \(score {least - 1:g}\)"
    ):
        isoscope.threshold(pairs["rows"], match_from=least, **options)


def test_a_row_paired_with_itself_is_reported(pairs):
    first, second, grades = (np.append(each, each[:3]) for each in pairs["pairs"])
    second[-3:], grades[-3:] = first[-3:], 1
    found = isoscope.threshold(pairs["rows"], pairs=(first, second, grades), ids=np.arange(2400))
    assert "3 pairs compare a row with itself, so their cosine is always 1." in found.notes


def test_swapped_queries_and_documents_are_recognized(topics):
    ids = {"ids": [f"d{i}" for i in range(600)], "query_ids": [f"q{i}" for i in range(120)]}
    qrels = {f"q{query}": {f"d{row}": 1 for row in of} for query, of in topics["qrels"].items()}
    backwards = [(document, query, 1) for query, of in qrels.items() for document in of]
    with pytest.raises(ParameterError, match="swap the source and the queries, or the first two columns"):
        isoscope.threshold(topics["rows"], queries=topics["queries"], qrels=backwards, **ids)
    ids = {"ids": ids["query_ids"], "query_ids": ids["ids"]}
    with pytest.raises(ParameterError, match="swap the source and the queries, or the first two columns"):
        isoscope.threshold(topics["queries"], queries=topics["rows"], qrels=qrels, **ids)


def test_judgments_without_other_pairs_are_refused(topics):
    qrels = {str(query): [str(row) for row in range(600)] for query in range(120)}
    with pytest.raises(ParameterError, match="every document is relevant for every query"):
        ask(topics | {"qrels": qrels}, "queries")


@pytest.mark.parametrize("kind", ["queries", "labels", "random pairs"])
def test_a_source_of_zeros_names_the_cause_if_they_are_dropped(kind, topics):
    zero = topics | {"rows": np.zeros((600, 24))}
    call = functools.partial(ask, zero, kind) if kind != "random pairs" else None
    call = call or functools.partial(isoscope.threshold, zero["rows"])
    with pytest.raises(MissingValueError, match="all rows of array are incomplete or all zeros"):
        call(zeros="drop")
    with pytest.raises(MissingValueError, match="all judged rows of array are incomplete or all zeros"):
        ask(topics | {"queries": np.zeros((120, 24))}, "queries", zeros="drop")


# invariances


@pytest.mark.parametrize("kind", ["pairs", "queries", "labels"])
def test_the_cut_does_not_depend_on_rotation_and_length(kind, pairs, topics):
    data = pairs if kind == "pairs" else topics
    d = data["rows"].shape[1]
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    moved = data | {"rows": rng.uniform(1, 5, (len(data["rows"]), 1)) * data["rows"] @ rotation}
    if kind == "queries":
        moved["queries"] = 7 * data["queries"] @ rotation
    before, after = ask(data, kind, precision=0.8), ask(moved, kind, precision=0.8)
    assert after.cut == before.cut
    assert after.scores["precision"].value == pytest.approx(before.scores["precision"].value, abs=0.01)


def test_the_same_seed_gives_the_same_result(topics):
    assert ask(topics, "labels", seed=3).to_dict() == ask(topics, "labels", seed=3).to_dict()


def test_a_result_is_json_and_text_at_80_columns(topics, pairs, tmp_path):
    for found in (ask(topics, "queries", f1=True), ask(pairs, "pairs"), isoscope.threshold(topics["rows"])):
        found.to_json(tmp_path / "threshold.json")
        content = json.loads((tmp_path / "threshold.json").read_text(encoding="utf-8"))
        assert content["schema"] == "isoscope.threshold/1"
        assert content["cut"] == found.cut
        assert content["verdict"] == found.verdict
        text = str(found)
        assert max(map(len, text.splitlines())) <= 80
        assert found.headline in " ".join(text.split())
        assert found.paragraph.startswith(found.headline)
        assert repr(found).startswith("Threshold(")


# bad input


BAD = {
    "two goals": ({"precision": 0.9, "recall": 0.9}, ParameterError, "precision and recall were passed together"),
    "precision": ({"precision": 1.5}, ParameterError, "precision is 1.5"),
    "no number": ({"recall": "high"}, ParameterError, "recall is 'high'"),
    "rate with judgments": ({"false_matches": 1e-3}, ParameterError, "false_matches needs no judgments"),
    "match_from with labels": ({"match_from": 2}, ParameterError, "labels were passed"),
    "folds": ({"folds": 1}, ParameterError, "folds is 1"),
    "match_from": ({"match_from": float("nan")}, ParameterError, "match_from is nan"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_one_clear_line(name, topics):
    options, kind, words = BAD[name]
    with pytest.raises(kind, match=words) as error:
        ask(topics, "labels", **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("option", [{"precision": 0.9}, {"recall": 0.5}, {"f1": True}, {"match_from": 1}])
def test_goals_need_judgments(option, topics):
    with pytest.raises(ParameterError, match=rf"{next(iter(option))} needs judgments"):
        isoscope.threshold(topics["rows"], **option)


@pytest.mark.parametrize("rate", [0, -1, 0.9])
def test_a_rate_out_of_range_is_rejected(rate, topics):
    with pytest.raises(ParameterError, match="false_matches is"):
        isoscope.threshold(topics["rows"], false_matches=rate)


def test_other_bad_input(topics):
    X = topics["rows"]
    with pytest.raises(ShapeError, match="the queries have 5 dimensions"):
        isoscope.threshold(X, queries=np.ones((10, 5)))
    with pytest.raises(ParameterError, match="only one kind of judgments"):
        isoscope.threshold(X, queries=topics["queries"], labels=topics["topic"])
    with pytest.raises(TooFewRowsError, match="1 nonzero row and 200 rows of zeros"):
        isoscope.threshold(np.concatenate([np.zeros((200, 3)), np.ones((1, 3))]))
    with pytest.raises(MissingValueError, match="NaN"):
        isoscope.threshold(np.where(np.arange(24) == 3, np.nan, X))
    with pytest.raises(NotFoundError):
        isoscope.threshold("no-such-file.npy")
    with pytest.raises(TooFewRowsError, match="need at least 20"):
        isoscope.threshold(X, pairs=(np.arange(5), np.arange(5, 10), np.arange(5) % 2), ids=np.arange(600))


def test_missing_rows_can_be_dropped(topics):
    X = topics["rows"].copy()
    X[7, 2] = np.nan
    found = isoscope.threshold(X, false_matches=1e-2, missing="drop")
    assert found.n == 599
    assert any("1 of 600 rows" in note for note in found.notes)


def test_an_interval_above_the_goal_is_explained_if_the_answer_is_undecided():
    """The interval is that of one threshold, but the guarantee covers all thresholds that are tested."""
    rng, n = np.random.default_rng(0), 100
    first, matches = rng.standard_normal((n, 8)), np.arange(n) % 2 == 0
    second = np.where(matches[:, None], first + 0.05 * rng.standard_normal((n, 8)), rng.standard_normal((n, 8)))
    pairs = (np.arange(n), np.arange(n) + n, matches.astype(float))
    found = isoscope.threshold(np.concatenate([first, second]), pairs=pairs)
    assert found.verdict == "undecided"
    assert found.best[1].low > 0.9
    assert "Several thresholds are tested" in found.paragraph
