"""Simultaneous intervals, the choice of the simplest repair near the best, and its gain on held-out examples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import norm, t

from isoscope.advising.inference import (
    SPLITS,
    TOLERANCE,
    Promise,
    Scores,
    Units,
    choose_candidate,
    compare_candidates,
    critical_values,
    decide,
    estimate_nested_gain,
)


def units_of(groups, folds=5):
    """Examples of one group share a row."""
    groups = np.asarray(groups)
    m = len(groups)
    return Units(csr_array((np.ones(m), (np.arange(m), groups)), shape=(m, int(groups.max()) + 1)), folds)


def scores_of(values, units=None, **more):
    values = {"m": np.asarray(values, float)} if not isinstance(values, dict) else values
    m = len(next(iter(values.values())))
    return Scores(values, more, units or units_of(np.arange(m)))


def with_gains(gains, noise, rng, m=400):
    """Candidates whose values differ from the first by these gains, with independent noise."""
    shared = rng.standard_normal((m, 1))
    apart = rng.standard_normal((m, len(gains)))
    apart -= apart.mean(axis=0)
    return scores_of(shared + np.asarray(gains) + np.asarray(noise) * apart)


# units


def test_examples_that_share_rows_form_one_indivisible_unit(rng):
    groups = np.repeat(np.arange(40), 3)
    units = units_of(groups)
    assert len(units) == 40
    for part in units.folds(5, rng):
        assert all((np.isin(np.flatnonzero(groups == g), part)).mean() in (0, 1) for g in range(40))
    assert sorted(np.concatenate(units.folds(5, rng))) == list(range(120))


def test_covariance_equals_that_of_the_unit_means(rng):
    groups, values = np.repeat(np.arange(50), 4), rng.standard_normal((200, 3))
    units = units_of(groups)
    found = units.covariance(values - values.mean(axis=0), np.arange(200))
    expected = np.cov(values.reshape(50, 4, 3).mean(axis=1), rowvar=False) / 50
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_copies_of_examples_add_no_evidence(rng):
    values = rng.standard_normal((60, 3))
    once = compare_candidates(scores_of(values), 0.95, ["m"])["m"]
    again = compare_candidates(
        scores_of(np.repeat(values, 6, axis=0), units_of(np.repeat(np.arange(60), 6))), 0.95, ["m"]
    )["m"]
    np.testing.assert_allclose(again.low, once.low, atol=1e-12)
    np.testing.assert_allclose(again.high, once.high, atol=1e-12)


@pytest.mark.parametrize(
    ("groups", "linked"),
    [
        (np.r_[np.zeros(30, int), np.arange(1, 71)], True),  # one unit holds more than a fold
        (np.repeat(np.arange(10), 10), True),  # fewer than 20 units
        (np.repeat(np.arange(25), 4), False),
        (np.arange(100), False),
    ],
)
def test_units_with_and_without_direct_links(groups, linked):
    assert (units_of(groups).links is not None) is linked


def test_direct_sharing_widens_intervals_and_never_narrows_them(rng):
    groups = np.repeat(np.arange(10), 10)
    shared = np.repeat(rng.standard_normal((10, 1)), 10, axis=0)
    units = units_of(groups)
    for values in (shared + 0.1 * rng.standard_normal((100, 1)), rng.standard_normal((100, 1))):
        residuals = values - values.mean(axis=0)
        independent = float(np.var(values, ddof=1)) / 100
        assert units.covariance(residuals, np.arange(100))[0, 0] >= independent * (1 - 1e-12)
    residuals = shared - shared.mean(axis=0)
    assert units.covariance(residuals, np.arange(100))[0, 0] > 5 * float(np.var(shared, ddof=1)) / 100
    assert units.effective_count(np.arange(100)) == pytest.approx(10)


# intervals


def test_one_difference_has_student_interval(rng):
    values = rng.standard_normal((30, 2))
    found = compare_candidates(scores_of(values), 0.95, ["m"])["m"]
    difference = values[:, 1] - values[:, 0]
    margin = t.ppf(0.975, 29) * difference.std(ddof=1) / np.sqrt(30)
    assert found.gains[1] == pytest.approx(difference.mean())
    assert found.high[1] - found.gains[1] == pytest.approx(margin, rel=0.03)


def test_independent_differences_use_the_quantile_of_their_maximum():
    found = critical_values(np.eye(10), np.full(10, 1e9), 0.95)
    np.testing.assert_allclose(found, norm.ppf((1 + 0.95 ** (1 / 10)) / 2), rtol=0.02)
    same = critical_values(np.ones((10, 10)), np.full(10, 1e9), 0.95)
    np.testing.assert_allclose(same, norm.ppf(0.975), rtol=0.02)


def test_scale_and_order_do_not_matter(rng):
    values = rng.standard_normal((80, 4))
    order = np.asarray([0, 3, 1, 2])
    once, again = (compare_candidates(scores_of(v), 0.95, ["m"])["m"] for v in (values, 7 * values[:, order]))
    np.testing.assert_allclose(again.low, 7 * once.low[order], rtol=0.02, atol=1e-9)


def test_constant_differences_are_significant_and_rounding_is_not():
    values = np.tile([0.5, 0.5 + 1e-12, 0.6, 0.4], (50, 1))
    found = compare_candidates(scores_of(values), 0.95, ["m"])["m"]
    assert [found.verdict(i) for i in range(4)] == ["noise", "noise", "gain", "loss"]
    assert (found.gains[0], found.low[0], found.high[0]) == (0, 0, 0)


def test_random_algorithm_widens_the_interval(rng):
    values = rng.standard_normal((200, 2))
    repeats = np.column_stack([np.zeros(8), rng.standard_normal(8)])
    calm, lucky = (compare_candidates(scores_of(values, **more), 0.95, ["m"])["m"] for more in ({}, {"m": repeats}))
    assert np.ptp([lucky.low[1], lucky.high[1]]) > 2 * np.ptp([calm.low[1], calm.high[1]])


def test_a_variance_factor_widens_the_interval(rng):
    values = {"m": rng.standard_normal((200, 2))}
    one, two = (
        compare_candidates(Scores(values, {}, units_of(np.arange(200)), of), 0.95, ["m"])["m"]
        for of in ({}, {"m": 2.0})
    )
    assert np.ptp([two.low[1], two.high[1]]) == pytest.approx(np.sqrt(2) * np.ptp([one.low[1], one.high[1]]))


# the rule


@pytest.mark.parametrize(
    ("gains", "noise", "chosen", "best"),
    [
        ([0], 0.1, 0, 0),
        ([0, 0, 0], 0.1, 0, 0),
        ([0, 0.002, -0.002], 0.1, 0, 0),  # not significant
        ([0, 0.1, 0.1], 0.1, 1, 1),  # the simplest of equals
        ([0, 0.092, 0.1], 0.1, 1, 2),  # within a tenth of the best
        ([0, 0.088, 0.1], 0.1, 2, 2),  # not within a tenth
        ([0, -0.1, -0.2], 0.1, 0, 0),
        ([0, 0.1, -0.1], [0.001, 5.0, 0.001], 0, 0),  # large but not significant
        ([0, 0.4, 0.1], [0.001, 5.0, 0.001], 2, 2),
    ],
)
def test_choose_candidate(gains, noise, chosen, best, rng):
    found = choose_candidate(with_gains(gains, noise, rng), 0.95, "m")
    assert (found.chosen, found.best) == (chosen, best)


def test_tolerance_is_one_tenth():
    assert TOLERANCE == 0.1
    assert SPLITS == 20


def by_two(gains, others, rng):
    one, other = (with_gains(each, 0.01, rng) for each in (gains, others))
    return Scores({"m": one.values["m"], "o": other.values["m"]}, {}, one.units)


def test_significant_loss_by_another_measure_excludes_a_candidate(rng):
    scores = by_two([0, 0.1, 0.2, 0.3], [0, 0.0, 0.0, -0.1], rng)
    found = choose_candidate(scores, 0.95)
    assert (found.measure, found.chosen) == ("m", 2)
    assert choose_candidate(scores, 0.95, "m").chosen == 3
    assert choose_candidate(by_two([0, 0.1], [0, -0.1], rng), 0.95).chosen == 0


def test_first_measure_with_a_gain_decides(rng):
    scores = by_two([0, 0.0, 0.0], [0, 0.1, 0.3], rng)
    found = choose_candidate(scores, 0.95)
    assert (found.measure, found.chosen) == ("o", 2)
    assert choose_candidate(scores, 0.95, "m").chosen == 0


# nested selection


def promise_of(scores, folds=5, seed=0):
    return estimate_nested_gain(scores, choose_candidate(scores, 0.95, "m"), 0.95, "m", folds, seed)


def test_clear_gain_is_expected_and_every_split_agrees(rng):
    found = promise_of(with_gains([0, 0.1, 0.3], 0.1, rng))
    assert found.gain == pytest.approx(0.3, abs=0.01)
    assert found.choices == {2: 20}
    assert found.share(2) == 1


@pytest.mark.parametrize("folds", [3, 5, 10])
def test_splits_are_repeated_until_enough_selections(folds, rng):
    assert sum(promise_of(with_gains([0, 0.1], 0.1, rng), folds).choices.values()) >= SPLITS


def test_expected_gain_is_free_of_selection_bias():
    """Among many candidates with the same true gain, the promised gain of the best one is not inflated."""
    rng = np.random.default_rng(3)
    promised, looked = [], []
    for _ in range(80):
        values = np.column_stack([np.zeros(100), 0.3 + rng.standard_normal((100, 20))])
        scores = scores_of(values)
        choice = choose_candidate(scores, 0.95, "m")
        promised.append(estimate_nested_gain(scores, choice, 0.95, "m", 5, 0).gain)
        looked.append(choice.gains["m"].gains[choice.chosen])
    assert np.mean([gain for gain in looked if gain]) > 0.4
    assert np.mean(promised) <= 0.3 + 3 * np.std(promised) / np.sqrt(80)


def test_gain_not_confirmed_by_most_splits_is_withheld():
    for run in range(200):
        scores = with_gains([0, 0.128], 1.0, np.random.default_rng(run), m=500)
        choice, promise = decide(scores, 0.95, "m", 5, 0)
        assert (choice.chosen == 1) == (choose_candidate(scores, 0.95, "m").chosen == 1 and promise.share(0) <= 0.5)
        if choice.best == 1 and choice.chosen == 0:
            return
    pytest.fail("no borderline gain among 200")


def test_same_seed_gives_same_expected_gain(rng):
    scores = with_gains([0, 0.02, 0.03], 0.2, rng)
    assert promise_of(scores) == promise_of(scores)
    assert isinstance(promise_of(scores, seed=1), Promise)


# calibration: where nothing gains, at most 2.5% of runs may say so, at a family-wise 95%


def null_means(rng, m=100):
    return scores_of(rng.standard_normal((m, 1)) + 0.3 * rng.standard_normal((m, 8)))


def null_hits(rng, m=200):
    base = rng.random((m, 1)) < 0.7
    return scores_of(np.where(rng.random((m, 8)) < 0.06, ~base, base).astype(float))


def null_few(rng):
    return null_means(rng, 20)


def null_groups(rng):
    groups = np.repeat(np.arange(40), 5)
    return scores_of(
        (rng.standard_normal((40, 8)) + 0.1 * rng.standard_normal((5, 40, 8))).swapaxes(0, 1).reshape(-1, 8),
        units_of(groups),
    )


@pytest.mark.parametrize("null", [null_means, null_hits, null_few, null_groups])
def test_no_repair_is_recommended_on_noise(null):
    runs = 200
    hits = sum(choose_candidate(null(np.random.default_rng([11, run])), 0.95).chosen > 0 for run in range(runs))
    assert hits <= runs * 0.025 + 3 * np.sqrt(runs * 0.025 * 0.975)


def test_a_real_gain_is_found():
    found = [
        choose_candidate(with_gains([0, 0.0, 0.3], 1.0, np.random.default_rng(run)), 0.95).chosen for run in range(20)
    ]
    assert np.mean(np.asarray(found) == 2) >= 0.9
