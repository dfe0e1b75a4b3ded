"""The simplest sure gain that nothing surely beats; sure means sure, however many were tried."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope.advising import trying
from isoscope.advising.deciding import blind_gain, critical, decide, gains_of, not_beaten
from isoscope.advising.evidence import Means, RankCorrelation
from isoscope.advising.task import dealt
from isoscope.advising.trying import Tried, _drawn, freedom


def tried_of(scores, noise, rng, draws=2000):
    """Candidates with these scores, whose draws spread by `noise`, each by itself."""
    scores = np.asarray(scores, float)
    resampled = scores + np.asarray(noise) * rng.standard_normal((draws, len(scores)))
    by_fold = np.tile(scores, (4, 1))
    return Tried([], {"m": scores}, {"m": by_fold}, {"m": resampled}, [], np.full(4, 10))


@pytest.mark.parametrize(
    ("scores", "noise", "choice", "best"),
    [
        ([0.5], 0.01, 0, 0),  # nothing else was tried
        ([0.5, 0.5, 0.5], 0.01, 0, 0),
        ([0.5, 0.51, 0.49], 0.01, 0, 1),  # not sure
        ([0.5, 0.6, 0.6], 0.01, 1, 1),  # the simplest of equals
        ([0.5, 0.6, 0.61], 0.01, 1, 2),  # the best is not surely better
        ([0.5, 0.6, 0.8], 0.01, 2, 2),  # the best is surely better than the simplest
        ([0.5, 0.4, 0.3], 0.01, 0, 0),
        ([0.5, 0.6, 0.4], [0.001, 0.5, 0.001], 0, 1),  # high, and not sure
        ([0.5, 0.9, 0.6], [0.001, 0.5, 0.001], 2, 1),
    ],
)
def test_the_rule(scores, noise, choice, best, rng):
    decision = decide(tried_of(scores, noise, rng), 0.95, "m")
    assert (decision.choice, decision.best) == (choice, best)


def test_what_is_chosen_is_not_beaten(rng):
    for _ in range(50):
        tried = tried_of(0.5 + 0.03 * rng.standard_normal(5), 0.01, rng, draws=200)
        decision = decide(tried, 0.95, "m")
        assert decision.choice == 0 or decision.near_best[decision.choice]
        assert decision.near_best[decision.best]


def by_two(gains, others, rng):
    """Candidates with these gains by m, which decides, and by another measure."""
    one, other = (tried_of(0.5 + np.asarray(each), 0.001, rng) for each in (gains, others))
    both = [
        {"m": getattr(one, name)["m"], "o": getattr(other, name)["m"]} for name in ("scores", "by_fold", "resampled")
    ]
    return Tried([], *both, [], one.sizes)


def test_what_surely_loses_by_another_measure_is_out_unless_one_decides_alone(rng):
    tried = by_two([0, 0.1, 0.2, 0.3], [0, 0.0, 0.0, -0.1], rng)
    heard = decide(tried, 0.95)
    assert (heard.measure, heard.choice, heard.best) == ("m", 2, 2)
    assert heard.near_best.tolist() == [False, False, True, False]
    assert decide(tried, 0.95, "m").choice == 3
    assert decide(by_two([0, 0.1], [0, -0.1], rng), 0.95).choice == 0


def test_the_first_measure_by_which_one_gains_decides(rng):
    heard = decide(by_two([0, 0.0, 0.0], [0, 0.1, 0.3], rng), 0.95)
    assert (heard.measure, heard.choice) == ("o", 2)
    assert decide(by_two([0, 0.0, 0.0], [0, 0.1, 0.3], rng), 0.95, "m").choice == 0


def test_intervals_of_several_measures_hold_at_once(rng):
    tried = by_two([0, 0.1], [0, 0.1], rng)
    widths = [
        np.diff([of.low[1], of.high[1]])[0] for of in (decide(tried, 0.95).gains["m"], gains_of(tried, "m", 0.975))
    ]
    assert widths[0] == widths[1] > np.diff([decide(tried, 0.95, "m").gains["m"].low[1]] * 2)[0]


def test_blind_gain_is_of_what_may_be_chosen(rng):
    assert decide(by_two([0, 0.1], [0, -0.1], rng), 0.95).blind_gain == 0


def test_differences_that_never_vary_are_sure_and_rounding_is_none(rng):
    same = tried_of([0.5, 0.5 + 1e-12, 0.6, 0.4], 0.0, rng)
    gains = gains_of(same, "m", 0.95)
    assert [gains.verdict(i) for i in range(4)] == ["noise", "noise", "gain", "loss"]
    assert not_beaten(same.scores["m"], same.resampled["m"], 0.95, 10**6).tolist() == [False, False, True, False]


def test_as_it_is_gains_nothing_over_itself(rng):
    gains = gains_of(tried_of([0.5, 0.6], 0.1, rng), "m", 0.95)
    assert (gains.gains[0], gains.low[0], gains.high[0]) == (0, 0, 0)


def test_one_candidate_is_as_wide_as_a_normal_interval_and_many_are_wider(rng):
    assert critical(rng.standard_normal((20_000, 1)), 0.95, 10**6) == pytest.approx(1.96, abs=0.05)
    # of 10 that are independent: Φ⁻¹((1 + 0.95^(1/10))/2)
    assert critical(rng.standard_normal((20_000, 10)), 0.95, 10**6) == pytest.approx(2.80, abs=0.06)
    assert critical(np.empty((50, 0)), 0.95, 9) == 0


def test_scale_and_order_do_not_matter(rng):
    tried = tried_of([0.5, 0.55, 0.6, 0.4], 0.02, rng)
    order = np.asarray([0, 3, 1, 2])
    gains = gains_of(tried, "m", 0.95)
    changed = Tried(
        [], {"m": 7 * tried.scores["m"][order]}, {}, {"m": 7 * tried.resampled["m"][:, order]}, [], tried.sizes
    )
    again = gains_of(changed, "m", 0.95)
    np.testing.assert_allclose(again.low, 7 * gains.low[order])
    np.testing.assert_allclose(again.high, 7 * gains.high[order])


def test_blind_gain_is_what_choosing_on_the_other_folds_gives():
    by_fold = np.asarray([[0.5, 0.9, 0.4], [0.5, 0.1, 0.6], [0.5, 0.2, 0.7]])
    tried = Tried([], {}, {"m": by_fold}, {}, [], np.asarray([2, 1, 1]))
    # fold 0 is judged by the third (0.65), the others by the second (weights 2:1)
    assert blind_gain(tried, "m", [0, 1, 2]) == pytest.approx((2 * -0.1 + -0.4 + -0.3) / 4)
    alone = Tried([], {}, {"m": by_fold[:, :1]}, {}, [], np.asarray([2, 1, 1]))
    assert blind_gain(alone, "m", [0]) == 0
    assert blind_gain(tried, "m", [0, 2]) == pytest.approx((2 * -0.1 + 0.0 + 0.0) / 4)


# calibration: what is exchangeable gains nothing, and says so


class _Examples:
    def __init__(self, groups, folds, rng):
        self.groups, self.folds = groups, dealt(groups, folds, rng)


def simulated(make, groups, candidates, rng, folds=5):
    """Candidates whose evidence on some examples is `make(candidate, examples)`."""
    task = _Examples(groups, folds, rng)
    sizes = np.asarray([len(fold) for fold in task.folds])
    held = [[make(j, fold) for j in range(candidates)] for fold in task.folds]
    by_fold = np.asarray([[one.resampled(np.ones((1, m)))[0] for one in of] for m, of in zip(sizes, held, strict=True)])
    drawn = _drawn(task, held, sizes, int(rng.integers(2**31)))
    return Tried([], {"m": sizes / sizes.sum() @ by_fold}, {"m": by_fold}, {"m": drawn}, [], sizes, freedom(task))


def null_means(rng, candidates=8, n=100, effect=0.0):
    shared = rng.standard_normal((n, 1))
    values = shared + 0.3 * rng.standard_normal((n, candidates))
    values[:, 1] += effect
    return simulated(lambda j, fold: Means(values[fold, j]), np.arange(n), candidates, rng)


def null_hits(rng, candidates=8, n=200, effect=0.0):
    base = rng.random((n, 1)) < 0.7
    hits = np.where(rng.random((n, candidates)) < 0.06, ~base, base).astype(float)
    hits[:, 1] = np.where(rng.random(n) < effect, 1.0, hits[:, 1])
    return simulated(lambda j, fold: Means(hits[fold, j]), np.arange(n), candidates, rng)


def null_ranks(rng, candidates=6, n=60, effect=0.0):
    alike = rng.standard_normal(n)
    grade = np.round(2 * alike + rng.standard_normal(n))
    seen = alike[:, None] + 0.5 * rng.standard_normal((n, 1)) + 0.3 * rng.standard_normal((n, candidates))
    seen[:, 1] += 8 * effect * alike
    return simulated(lambda j, fold: RankCorrelation(seen[fold, j], grade[fold]), np.arange(n), candidates, rng)


NULLS = {"means": null_means, "hits": null_hits, "ranks": null_ranks}


def shares(null, runs, **settings):
    """How often all intervals hold 0, and how often something gains."""
    held = gained = first = 0
    for run in range(runs):
        gains = gains_of(null(np.random.default_rng([11, run]), **settings), "m", 0.95)
        held += bool(((gains.low <= 1e-10) & (gains.high >= -1e-10)).all())
        verdicts = [gains.verdict(i) for i in range(len(gains.gains))]
        gained += "gain" in verdicts
        first += verdicts[1] == "gain"
    return held / runs, gained / runs, first / runs


@pytest.mark.parametrize("null", NULLS)
def test_where_nothing_gains_nothing_is_said_to(null, monkeypatch):
    monkeypatch.setattr(trying, "DRAWS", 300)
    runs = 150
    held, gained, _ = shares(NULLS[null], runs)
    three_sigma = 3 * np.sqrt(0.05 * 0.95 / runs)
    assert held >= 0.95 - three_sigma
    assert gained <= 0.05 + three_sigma


@pytest.mark.parametrize("null", NULLS)
def test_what_gains_is_found(null, monkeypatch):
    monkeypatch.setattr(trying, "DRAWS", 300)
    examples = {"means": 100, "hits": 400, "ranks": 400}[null]
    assert shares(NULLS[null], 12, effect=0.3, n=examples)[2] > 0.9


def test_few_examples_in_each_fold_are_wide_enough(monkeypatch):
    monkeypatch.setattr(trying, "DRAWS", 300)
    runs = 200
    assert shares(null_means, runs, n=20)[0] >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / runs)
