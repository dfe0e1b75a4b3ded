"""Bounds of shares, the choice of a threshold, and its guarantee."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom, binomtest

from isoscope.advising.inference import Units
from isoscope.thresholding.counts import Counts, make_cuts
from isoscope.thresholding.cuts import (
    Choice,
    Goal,
    HeldOut,
    Share,
    binomial_bounds,
    choose_cut,
    confirm,
    f1,
    locate_cut,
    precision,
    recall,
    round_up,
)


def counts_of(cosines, is_match, groups=None, cuts=None):
    """Counts of pairs, each an example; pairs of one group form a unit."""
    m = len(cosines)
    groups = np.arange(m) if groups is None else groups
    units = Units(csr_array((np.ones(m), (np.arange(m), groups)), shape=(m, int(groups.max()) + 1)), 5)
    cuts = make_cuts(cosines[is_match], None) if cuts is None else cuts
    above = (cosines[:, None] >= cuts - 1e-6).astype(float)
    ones = np.ones(m)
    return Counts(cuts, above, above * is_match[:, None], 1.0 * is_match, ones, units, np.arange(m))


def draw(rng, m, share=0.4, gap=2.0):
    """Cosines of pairs: those of matches are higher by `gap` standard deviations."""
    is_match = rng.random(m) < share
    return np.tanh(0.3 * (rng.standard_normal(m) + gap * is_match)), is_match


# shares


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (20, 20), (7, 50), (199, 200)])
def test_bounds_are_those_of_the_exact_binomial_test(successes, trials):
    exact = binomtest(successes, trials).proportion_ci(0.95, "exact")
    low, high = binomial_bounds(np.array([float(successes)]), np.array([float(trials)]), 0.025)
    assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_precision_recall_and_f1_agree_with_scikit_learn(rng):
    metrics = pytest.importorskip("sklearn.metrics")
    cosines, is_match = draw(rng, 500)
    counts = counts_of(cosines, is_match)
    i = len(counts.cuts) // 2
    above = cosines >= counts.cuts[i] - 1e-6
    for own, theirs in (
        (precision, metrics.precision_score),
        (recall, metrics.recall_score),
        (f1, metrics.f1_score),
    ):
        assert own(counts, 0.05).values[i] == pytest.approx(theirs(is_match, above))


def test_independent_pairs_have_nearly_exact_binomial_bounds(rng):
    cosines, is_match = draw(rng, 800)
    found = recall(counts_of(cosines, is_match), 0.05)
    i = int(np.argmin(np.abs(found.values - 0.8)))
    n = int(is_match.sum())
    exact = binomtest(round(found.values[i] * n), n).proportion_ci(0.95, "exact")
    assert (found.low[i], found.high[i]) == pytest.approx((exact.low, exact.high), abs=0.01)


def test_copies_of_pairs_do_not_narrow_the_intervals(rng):
    cosines, is_match = draw(rng, 300)
    cuts = make_cuts(cosines[is_match], None)
    once = recall(counts_of(cosines, is_match, cuts=cuts), 0.05)
    six = [np.repeat(each, 6) for each in (cosines, is_match, np.arange(300))]
    copied = recall(counts_of(six[0], six[1], six[2], cuts), 0.05)
    middle = (once.values > 0.2) & (once.values < 0.9)
    np.testing.assert_allclose(copied.values, once.values)
    np.testing.assert_allclose((copied.high - copied.low)[middle], (once.high - once.low)[middle], rtol=0.1)


def test_a_cut_above_all_pairs_has_no_precision(rng):
    cosines, is_match = draw(rng, 100)
    found = precision(counts_of(cosines, is_match, cuts=np.array([0.0, 2.0])), 0.05)
    assert np.isnan(found.values[1])
    assert (found.low[1], found.high[1]) == (0, 1)


# the choice


@pytest.mark.parametrize("measure", ["precision", "recall"])
def test_the_chosen_cut_is_proven_and_a_stricter_goal_moves_it_to_the_safe_side(measure, rng):
    counts = counts_of(*draw(rng, 3000, gap=3.0))
    function, sign = (precision, 1) if measure == "precision" else (recall, -1)
    cuts = []
    for level in (0.7, 0.8, 0.9):
        choice = choose_cut(counts, Goal(measure, level))
        assert choice.verdict == "cut"
        assert function(counts, 0.05, sides=1).low[choice.index] >= level
        cuts.append(sign * counts.cuts[choice.index])
        low, high = locate_cut(counts, Goal(measure, level), choice.index)
        assert low <= counts.cuts[choice.index] <= high
    assert cuts == sorted(cuts)


def test_the_best_f1_is_chosen_and_its_interval_contains_it(rng):
    counts = counts_of(*draw(rng, 1000))
    choice = choose_cut(counts, Goal("f1", 0.0))
    values = f1(counts, 0.05).values
    assert values[choice.index] == values.max()
    low, high = locate_cut(counts, Goal("f1", 0.0), choice.index)
    assert low <= counts.cuts[choice.index] <= high
    assert low < high


def test_noise_is_not_separated(rng):
    cosines, is_match = draw(rng, 1000, gap=0.0)
    choice = choose_cut(counts_of(cosines, is_match), Goal("precision", 0.9))
    assert choice.verdict == "no cut"
    assert choice.index is None


def test_few_pairs_cannot_decide_and_the_stated_number_is_enough():
    rng = np.random.default_rng(1)
    choice = choose_cut(counts_of(*draw(rng, 120, gap=4.0)), Goal("precision", 0.95))
    assert choice.verdict == "undecided"
    assert choice.needed is not None
    assert 120 < choice.needed < 10_000
    # about 80% of samples of the stated size decide: fewer than 5 of 20 happen by chance in less than 0.01% of cases
    decided = [
        choose_cut(counts_of(*draw(rng, choice.needed, gap=4.0)), Goal("precision", 0.95)).verdict for _ in range(20)
    ]
    assert decided.count("cut") >= 5


@pytest.mark.parametrize("measure", ["precision", "recall"])
@pytest.mark.parametrize("size", [1, 8])
def test_the_guarantee_holds_for_independent_and_for_grouped_pairs(measure, size):
    """A true error rate of 5% fails this test in less than 0.1% of cases: it allows the 99.9% quantile of 150 runs."""
    rng = np.random.default_rng(size)
    level, runs, groups = 0.85, 150, 1200 // size

    def sample(groups):
        shift = rng.standard_normal((groups, 1)) * (0.7 if size > 1 else 0.0)  # errors of one group go together
        is_match = rng.random((groups, size)) < 0.4
        values = rng.standard_normal((groups, size)) + shift + 3.0 * is_match
        return np.tanh(0.2 * values).ravel(), is_match.ravel(), np.repeat(np.arange(groups), size)

    cosines, is_match, _ = sample(200_000 // size)
    missed = found = 0
    for _ in range(runs):
        counts = counts_of(*sample(groups))
        choice = choose_cut(counts, Goal(measure, level))
        if choice.index is None:
            continue
        found += 1
        above = cosines >= counts.cuts[choice.index]
        true = (above & is_match).sum() / (above if measure == "precision" else is_match).sum()
        missed += true < level
    assert found > runs / 2
    assert missed <= binom.ppf(0.999, runs, 0.05)


def test_a_cut_that_nearly_no_fold_confirms_is_undecided(rng):
    counts = counts_of(*draw(rng, 100))
    share = Share(0.0, 0.0, 0.0)
    for cuts, verdict in (([0.5, None, 0.4, None, None], "cut"), ([0.5, None, None, None, None], "undecided")):
        choice = confirm(Choice(3, "cut", best=3), HeldOut({}, cuts, share), counts)
        assert choice.verdict == verdict
        assert (choice.index is None) == (verdict == "undecided")
        assert choice.needed == (150 if verdict == "undecided" else None)


def test_numbers_of_examples_are_rounded_up():
    assert [round_up(each) for each in (9.2, 10.0, 101.0, 1999.0)] == [10, 10, 110, 2000]
