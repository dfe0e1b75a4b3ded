"""The rule by which all studies decide claims."""

import math

import numpy as np
import pytest

from isoscope.studies.study import Case, Claim, Holds, Value
from isoscope.studies.verdicts import (
    ABOVE_ZERO,
    BELOW_ZERO,
    Evidence,
    correlation_interval,
    difference_interval,
    judge,
    make_verdict,
    share_interval,
)

YES, NO, OPEN = ((-0.3, -0.1), (0.1, 0.3), (-0.1, 0.1))


def cases(*intervals):
    return [Case("", sum(each) / 2, each, BELOW_ZERO) for each in intervals]


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((-0.3, -0.1), Holds.yes),
        ((0.1, 0.3), Holds.no),
        ((0.0, 0.3), Holds.no),
        ((-0.3, 0.0), Holds.undecided),
        ((-0.1, 0.3), Holds.undecided),
        ((math.nan, math.nan), Holds.undecided),
    ],
)
def test_interval_decides_only_if_entirely_on_one_side(interval, expected):
    assert cases(interval)[0].holds is expected
    assert judge(cases(interval)) is expected


def test_case_and_its_opposite_are_mirror_images():
    mirrored = {Holds.yes: Holds.no, Holds.no: Holds.yes, Holds.undecided: Holds.undecided}
    for low, high in (YES, NO, OPEN):
        one, other = Case("", 0, (low, high), BELOW_ZERO), Case("", 0, (low, high), ABOVE_ZERO)
        assert other.holds is mirrored[one.holds]


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], Holds.untested),
        ([YES] * 3, Holds.yes),
        ([YES, YES, NO], Holds.partly),
        ([YES, NO], Holds.partly),
        ([YES, NO, NO], Holds.no),
        ([YES, YES, YES, OPEN], Holds.partly),  # no plain yes
        ([YES, YES, OPEN, OPEN], Holds.partly),
        ([YES, OPEN, OPEN, OPEN], Holds.undecided),
        ([NO, OPEN], Holds.no),
        ([NO, OPEN, OPEN], Holds.undecided),
        ([OPEN] * 4, Holds.undecided),
    ],
)
def test_several_cases_are_combined_into_one_verdict(intervals, expected):
    assert judge(cases(*intervals)) is expected
    assert judge(cases(*reversed(intervals))) is expected


def test_verdict_yes_may_need_only_some_cases():
    assert judge(cases(*[YES] * 9, NO), most=0.9) is Holds.yes
    assert judge(cases(*[YES] * 8, NO, NO), most=0.9) is Holds.partly


def test_mean_over_seeds_has_student_interval_and_one_seed_none():
    case = Case.over_seeds("", Value.of([0.1, 0.2, 0.3]), ABOVE_ZERO)
    assert case.interval == pytest.approx((0.2 - 4.302653 * 0.1 / 3**0.5, 0.2 + 4.302653 * 0.1 / 3**0.5))
    assert case.holds is Holds.undecided
    assert Case.over_seeds("", Value.of([0.1]), ABOVE_ZERO).holds is Holds.undecided
    assert Case.exact("", 0.1, ABOVE_ZERO).holds is Holds.yes


def test_a_verdict_lists_its_cases():
    found = make_verdict(Claim("k", "It falls.", "§1"), Evidence("so", cases(YES, OPEN), "Why."))
    assert found.holds is Holds.partly
    assert found.why == "1 of 2 cases agrees, 0 contradict, 1 is undecided. Why."
    assert "(−0.300 to −0.100)" in found.ours
    nothing = make_verdict(Claim("k", "It falls.", "§1"), Evidence("so", untested="needs a model"))
    assert (nothing.holds, nothing.ours) == (Holds.untested, "needs a model")


def test_interval_of_pearson_r_matches_scipy():
    from scipy.stats import pearsonr

    x, y = np.random.default_rng(0).standard_normal((2, 20))
    found = pearsonr(x, x + y)
    assert correlation_interval(found.statistic, 20) == pytest.approx(tuple(found.confidence_interval()), abs=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_intervals_of_spearman_and_of_differences_cover_the_truth(rho):
    """On 400 samples of 40 pairs, the conservative interval covers a difference on the same pairs in at least 95%."""
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(rho / 2)  # Spearman's ρ of two normal variables
    inside = even = 0
    for _ in range(400):
        z, a, b = rng.standard_normal((3, 40))
        common = rng.standard_normal(40)
        one, other = (rho * z + np.sqrt(1 - rho**2) * (0.8 * common + 0.6 * noise) for noise in (a, b))
        first, second = (float(spearmanr(z, each).statistic) for each in (one, other))
        low, high = correlation_interval(first, 40, ranks=True)
        inside += low <= truth <= high
        ends = difference_interval((first, (low, high)), (second, correlation_interval(second, 40, ranks=True)))
        even += ends[0] <= 0 <= ends[1]
    assert 0.92 <= inside / 400 <= 0.98
    assert even / 400 >= 0.95


def test_few_pairs_have_no_interval():
    assert all(map(math.isnan, correlation_interval(0.9, 3)))
    assert all(map(math.isnan, correlation_interval(1.0, 4)))
    assert all(map(math.isnan, correlation_interval(math.nan, 30)))


def test_share_has_wilson_interval():
    from scipy.stats import binomtest

    wanted = binomtest(16, 18).proportion_ci(method="wilson")
    assert share_interval(16 / 18, 18) == pytest.approx((wanted.low, wanted.high))
