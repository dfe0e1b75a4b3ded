"""Counts of predicted and true matches, compared with a comparison of every pair."""

import numpy as np
import pytest

from isoscope._core.errors import ParameterError
from isoscope._io.progress import ignore_progress
from isoscope.advising.task import AdviceSettings
from isoscope.advising.task_inputs import TaskInputs
from isoscope.thresholding.counts import (
    GradedExamples,
    LabeledExamples,
    QueryExamples,
    count_above,
    find_matches,
    make_cuts,
)
from tests.thresholding.conftest import unit


def open_task(source, settings=None, **given):
    settings = settings or AdviceSettings()
    inputs = TaskInputs(source, **given)
    store, queries, _ = inputs.open_stores(settings.missing, settings.zeros)
    return inputs.open_task(store, queries, settings, ignore_progress)


def query_task(topics, settings=None):
    rows, queries = topics["rows"], topics["queries"]
    given = {"queries": queries, "qrels": topics["qrels"]}
    return open_task(rows, settings, ids=np.arange(len(rows)), query_ids=np.arange(len(queries)), **given)


# counting


@pytest.mark.parametrize("cuts", [np.arange(10, 90) / 100, np.array([0.1, 0.4, 0.405, 0.41, 0.415]), np.array([0.5])])
def test_count_above_agrees_with_comparing_every_value(cuts, rng):
    tile, weights = rng.uniform(-1, 1, (20, 300)), rng.uniform(0, 2, 300)
    exact = (tile[:, :, None] >= cuts - 1e-6) * weights[:, None]
    np.testing.assert_allclose(count_above(tile, cuts, weights), exact.sum(axis=1), atol=1e-9)


def test_a_cosine_at_the_cut_counts():
    assert count_above(np.array([[0.3, 0.305, 0.31]]), np.array([0.3, 0.305, 0.31])).tolist() == [[3, 2, 1]]


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_cuts_are_round_ascending_and_cover_all_matches(scale, rng):
    cosines = 1 - scale * rng.uniform(0.1, 0.9, 500)
    cuts = make_cuts(cosines, 0.9)
    assert (np.diff(cuts) > 0).all()
    assert 50 <= len(cuts) <= 260
    assert cuts[0] <= cosines.min()
    assert cuts[-1] >= cosines.max()
    assert all(len(f"{cut:.12g}") <= 10 for cut in cuts)


def test_pairs_are_counted_exactly(pairs):
    task = open_task(pairs["rows"], ids=np.arange(2400), pairs=pairs["pairs"])
    counts = GradedExamples(task, None, None).counts
    U = unit(pairs["rows"])
    cosines, is_match = (U[:1200] * U[1200:]).sum(axis=1), pairs["is_match"]
    for i in (0, len(counts.cuts) // 2, -1):
        above = cosines >= counts.cuts[i] - 1e-6
        assert counts.predicted[:, i].sum() == above.sum()
        assert counts.matched[:, i].sum() == (above & is_match).sum()
    assert counts.share == is_match.mean()


def test_queries_are_counted_exactly_also_relative_to_the_best_result(topics):
    examples = QueryExamples(query_task(topics), None, None)
    cosines = unit(topics["queries"]) @ unit(topics["rows"]).T
    relevant = topics["of"][:, None] == topics["topic"]
    for counts, values in ((examples.counts, cosines), (examples.relative, cosines - cosines.max(axis=1)[:, None])):
        for i in (0, len(counts.cuts) // 2, -1):
            above = values >= counts.cuts[i] - 1e-6
            assert counts.predicted[:, i].tolist() == above.sum(axis=1).tolist()
            assert counts.matched[:, i].tolist() == (above & relevant).sum(axis=1).tolist()
    assert examples.counts.positives.tolist() == relevant.sum(axis=1).tolist()
    assert examples.matches.sum() == relevant.sum()
    assert examples.matches.sum() + examples.others.sum() == relevant.size


def test_a_sample_of_the_documents_stands_for_the_whole_corpus(topics):
    rng = np.random.default_rng(0)
    more = np.concatenate([topics["rows"], rng.standard_normal((3000, 24))])
    topics = topics | {"rows": more}
    everything = QueryExamples(query_task(topics), None, None)
    sampled = QueryExamples(query_task(topics, AdviceSettings(sample=1000)), None, None)
    assert sampled.relative is None
    assert sampled.number_of_pairs == pytest.approx(120 * 3600)
    assert sampled.number_of_matches == everything.number_of_matches
    whole, part = (each.counts.predicted.sum(axis=0) for each in (everything, sampled))
    middle = len(whole) // 3  # 400 of 3,000 rows are sampled: a standard error of about 5% of the others
    assert part[middle] == pytest.approx(whole[middle], rel=0.25)


def test_labels_are_counted_exactly_and_held_out_pairs_have_both_rows_in_the_fold(topics):
    task = open_task(topics["rows"], labels=topics["topic"])
    examples = LabeledExamples(task, 5, None, 0)
    U, labels = unit(topics["rows"]), topics["topic"]
    cosines, same = U @ U.T, labels[:, None] == labels
    np.fill_diagonal(cosines, -2)
    np.fill_diagonal(same, False)
    i = len(examples.cuts) // 2
    above = cosines >= examples.cuts[i] - 1e-6
    assert examples.counts.predicted[:, i].tolist() == above.sum(axis=1).tolist()
    assert examples.counts.matched[:, i].tolist() == (above & same).sum(axis=1).tolist()
    assert examples.number_of_pairs == 600 * 599 / 2
    assert examples.number_of_matches == same.sum() / 2
    for fold, (fit, held_out) in enumerate(examples.splits(5, 0)):
        own = examples.fold_of == fold
        assert held_out.predicted[:, i].sum() == above[np.ix_(own, own)].sum()
        assert fit.matched[:, i].sum() == (above & same)[np.ix_(~own, ~own)].sum()
        assert fit.pairs.sum() == (~own).sum() * ((~own).sum() - 1)


def test_folds_of_queries_hold_out_every_query_once(topics):
    examples = QueryExamples(query_task(topics), None, None)
    seen = np.concatenate([held_out.members for _, held_out in examples.splits(5, 1)])
    assert sorted(seen) == list(range(120))
    for fit, held_out in examples.splits(5, 1):
        assert not np.intersect1d(fit.members, held_out.members).size
        assert not np.intersect1d(fit.units.of[fit.members], fit.units.of[held_out.members]).size


# grades


def test_two_grades_need_no_lowest_grade():
    assert find_matches(np.array([2.0, 5.0, 2.0]), None).tolist() == [False, True, False]


def test_more_grades_need_a_lowest_grade_and_are_listed():
    with pytest.raises(ParameterError, match=r"3 distinct grades \(0, 1, 2\).*match_from.*--match-from"):
        find_matches(np.array([0.0, 1.0, 2.0]), None)
    with pytest.raises(ParameterError, match="…"):
        find_matches(np.arange(100.0), None)


@pytest.mark.parametrize(("least", "words"), [(0.0, "every pair is a match"), (9.0, "no pair is a match")])
def test_a_lowest_grade_that_does_not_divide_the_pairs_is_rejected(least, words):
    with pytest.raises(ParameterError, match=rf"{words}.*0, 1, 2"):
        find_matches(np.array([0.0, 1.0, 2.0]), least)
