"""The decision: bounds, verdicts, the smallest candidate, and the number of examples that would decide."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from isoscope._core.errors import InputError
from isoscope.advising.inference import Scores, Units
from isoscope.compressing.candidates import AS_IS, Candidate
from isoscope.compressing.decision import (
    Kept,
    check_original,
    choose,
    compare_extended,
    compare_shares,
    needed_examples,
)
from isoscope.compressing.trials import Trials


def trials(columns, original=None, stopped=None) -> Trials:
    m = len(columns[0])
    original = np.ones(m) if original is None else original
    units = Units(csr_array((np.ones(m), (np.arange(m), np.arange(m))), shape=(m, m)), folds=2)
    candidates = [Candidate(f"c{i}", None, i + 1) for i in range(len(columns))] + [Candidate(AS_IS, None, 99)]
    scores = Scores({"score": np.column_stack([original, *columns, original])}, {}, units)
    return Trials(candidates, [None] * len(candidates), scores, stopped or [False] * len(candidates))


def test_single_candidate_has_the_bounds_of_students_t(rng):
    """One candidate: the simultaneous bounds are those of a paired t test (10,000 draws: within 2%)."""
    from scipy import stats

    values = 0.95 + 0.03 * rng.standard_normal(200)
    kept = compare_shares(trials([values]), 0.9, ["score"])["score"][0]
    error = values.std(ddof=1) / np.sqrt(200)
    lower = values.mean() - stats.t.ppf(0.95, 199) * error
    assert kept.share == pytest.approx(values.mean())
    assert kept.low == pytest.approx(lower, abs=0.15 * error)
    assert kept.verdict == "keeps"


def test_verdicts_follow_the_bounds(rng):
    noise = 0.02 * rng.standard_normal(300)
    found = compare_shares(trials([0.80 + noise, 0.95 + 20 * noise, 0.999 + noise / 20]), 0.95, ["score"])["score"]
    assert [each.verdict for each in found] == ["loses", "undecided", "keeps", "keeps"]
    assert found[-1].low == found[-1].share == 1  # the vectors themselves


def test_bounds_widen_with_the_number_of_candidates(rng):
    values = [0.95 + 0.03 * rng.standard_normal(200) for _ in range(20)]
    one = compare_shares(trials(values[:1]), 0.9, ["score"])["score"][0]
    many = compare_shares(trials(values), 0.9, ["score"])["score"][0]
    assert many.low < one.low < one.share == many.share


def test_shares_are_relative_to_the_original_score(rng):
    original = rng.uniform(0.2, 0.8, 400)
    kept = compare_shares(trials([0.97 * original], original), 0.95, ["score"])["score"][0]
    assert kept.share == pytest.approx(0.97)
    assert kept.verdict == "keeps"  # the paired difference hardly varies
    assert kept.value == pytest.approx(0.97 * original.mean())


def test_no_loss_among_few_examples_does_not_prove_that_there_is_none():
    few = compare_shares(trials([np.ones(20)]), 0.99, ["score"])["score"][0]
    many = compare_shares(trials([np.ones(400)]), 0.99, ["score"])["score"][0]
    assert few.low == pytest.approx(1 - 0.3 / 20)
    assert few.verdict == "undecided"
    assert many.verdict == "keeps"


def test_stopped_candidates_are_compared_on_the_first_examples(rng):
    stopped = np.concatenate([0.5 + 0.1 * rng.standard_normal(50), np.full(150, np.nan)])
    full = 0.99 + 0.001 * rng.standard_normal(200)
    found = compare_shares(trials([stopped, full], stopped=[True, False, False]), 0.95, ["score"])["score"]
    assert [each.examples for each in found] == [50, 200, 200]
    assert [each.verdict for each in found] == ["loses", "keeps", "keeps"]


def test_further_scores_are_compared_with_all_candidates(rng):
    columns = [0.97 + 0.02 * rng.standard_normal(200) for _ in range(10)]
    tried = trials(columns)
    found = compare_extended(tried, {3: columns[3] - 0.05}, 0.95, "score")
    assert list(found) == [3]
    assert found[3].share == pytest.approx(columns[3].mean() - 0.05)
    assert found[3].verdict == "loses"


@pytest.mark.parametrize("original", [0.0, -1.0, float("nan")])
def test_scores_that_are_not_positive_have_no_share(original):
    with pytest.raises(InputError, match="positive"):
        check_original(original, "score")


def test_needed_examples_grow_with_the_square_of_the_margin():
    assert needed_examples(100, 0.03, 0.01) == 900
    assert needed_examples(100, 0.03, -0.01) == 900
    assert needed_examples(100, 0.0334, 0.01) == 1200  # 1,116, rounded up to two digits
    assert needed_examples(100, 1.0, 0.0) is None


def kept(verdict: str) -> dict[str, Kept]:
    return {"a": Kept(1, 1, 1, 1, verdict, 10), "b": Kept(1, 1, 1, 1, "keeps", 10)}


def test_the_smallest_allowed_candidate_is_chosen():
    sizes = [(1, 0), (2, 0), (3, 0)]
    every = [kept("loses"), kept("keeps"), kept("keeps")]
    assert choose(sizes, every, [True] * 3, "a") == ("smaller", 1)
    assert choose(sizes, every, [True, False, True], "a") == ("smaller", 2)
    assert choose(sizes, [kept("loses"), kept("undecided")], [True] * 2, "a") == ("undecided", None)
    assert choose(sizes, [kept("loses"), kept("loses")], [True] * 2, "a") == ("none", None)


def test_a_loss_on_another_measure_excludes():
    other = kept("keeps") | {"b": Kept(1, 0.5, 0.4, 0.6, "loses", 10)}
    assert choose([(1, 0)], [other], [True], "a") == ("none", None)
