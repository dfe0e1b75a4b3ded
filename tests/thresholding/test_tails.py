"""The tail of random pairs: exact counts, the variance over rows, and extrapolation with its tests."""

import numpy as np
import pytest
from scipy.stats import genpareto

import isoscope
from isoscope._core.errors import TooFewRowsError
from isoscope.thresholding.tails import Tail, _predict, collect_tail, count_pairs, find_tail_cut, needed_rows
from tests.thresholding.conftest import unit


def cloud(rng, n, d=12):
    return unit(rng.standard_normal((n, d)))


def all_cosines(U, V=None):
    return (U @ U.T)[np.triu_indices(len(U), 1)] if V is None else (U @ V.T).ravel()


# counting


@pytest.mark.parametrize("cross", [False, True])
def test_the_tail_has_the_highest_pairs(cross, rng):
    U, V = cloud(rng, 1300), cloud(rng, 400) if cross else None
    tail = collect_tail(U, V, 0.01, 0)
    exact = np.sort(all_cosines(U, V))[::-1]
    assert tail.pairs == len(exact) == count_pairs((1300, 400 if cross else 1300), not cross)
    assert len(tail.cosines) >= 0.01 * len(exact)
    np.testing.assert_allclose(tail.cosines, exact[: len(tail.cosines)])
    columns = U if V is None else V
    np.testing.assert_allclose((U[tail.first] * columns[tail.second]).sum(axis=1), tail.cosines)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_the_counted_cut_has_the_requested_rate(cross, rate, rng):
    U, V = cloud(rng, 700), cloud(rng, 500) if cross else None
    found = find_tail_cut(U, V, rate, 0.95, 0)
    cosines = all_cosines(U, V)
    assert (cosines >= found.cut).sum() == found.count == int(rate * len(cosines))
    assert found.low < found.cut < found.high
    assert found.rate.low < rate < found.rate.high
    assert found.passed is None


def test_the_cut_does_not_depend_on_rotation_order_or_length(rng):
    U = cloud(rng, 600)
    rotation = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    cut = find_tail_cut(U, None, 1e-3, 0.95, 0).cut
    assert find_tail_cut(unit(3.0 * U[::-1] @ rotation), None, 1e-3, 0.95, 1).cut == pytest.approx(cut, abs=1e-9)


def test_the_error_of_the_rate_is_close_to_that_of_the_jackknife_over_rows(rng):
    """The jackknife overestimates it, because it counts the independent part of each pair twice."""
    U = unit(rng.standard_normal((300, 6)) + rng.standard_normal((15, 6))[rng.integers(0, 15, 300)])
    tail = collect_tail(U, None, 0.05, 0)
    count = int(0.02 * tail.pairs)
    cut = tail.cosines[count - 1]
    above = (cut <= U @ U.T) & ~np.eye(300, dtype=bool)
    left_out = [(above.sum() / 2 - above[i].sum()) / (299 * 298 / 2) for i in range(300)]
    error = np.sqrt(299 / 300 * np.sum((left_out - np.mean(left_out)) ** 2))
    share = tail.rate(count, 0.95)
    own = np.log(share.high / share.value) / 1.96 * share.value
    assert 0.8 * error < own < error


def test_intervals_of_parts_cover_the_rate_of_the_whole():
    """At least 30 of 40 intervals at 95% cover; fewer happen by chance in less than 0.01% of cases."""
    rng = np.random.default_rng(2)
    everything = unit(rng.standard_normal((4000, 10)) + 0.7 * rng.standard_normal((25, 10))[rng.integers(0, 25, 4000)])
    truth = np.quantile(all_cosines(everything), 1 - 2e-3)
    covered = 0
    for i in range(40):
        found = find_tail_cut(everything[rng.permutation(4000)[:400]], None, 2e-3, 0.95, i)
        covered += found.low <= truth <= found.high
    assert covered >= 30


def test_copies_of_rows_leave_no_cut(rng):
    U = cloud(rng, 400)
    U[:60] = U[0]
    found = find_tail_cut(U, None, 1e-3, 0.95, 0)
    assert found.cut is None
    assert found.count == 60 * 59 / 2


def test_equal_cosines_stay_on_one_side_of_the_cut():
    U = np.repeat(unit(np.random.default_rng(0).standard_normal((40, 5))), 20, axis=0)
    found = find_tail_cut(U, None, 0.05, 0.95, 0)
    cosines = all_cosines(U)
    assert found.cut is not None
    assert np.abs(cosines - found.cut).min() > 1e-9
    assert (cosines >= found.cut).mean() <= 0.05


# extrapolation


def test_the_fitted_tail_is_a_generalized_pareto_distribution():
    excess = np.sort(genpareto.ppf((np.arange(1, 501) - 0.5) / 500, -0.2, scale=0.1))[::-1]
    cosines = np.concatenate([0.3 + excess, [0.3], np.linspace(0.29, 0.1, 50)])
    assert _predict(cosines, 5) == pytest.approx(0.3 + genpareto.isf(5 / 500, -0.2, scale=0.1), abs=0.005)


def test_an_accepted_extrapolation_is_right_within_a_factor_of_two(rng):
    everything = cloud(rng, 4000, 24)
    found = find_tail_cut(everything[:900], None, 3e-5, 0.95, 0)
    assert found.passed >= 18
    assert found.low < found.cut < found.high
    exact = (all_cosines(everything) >= found.cut).mean()
    assert 0.5 < exact / 3e-5 < 2


def test_an_extrapolation_that_fails_its_tests_is_refused_with_the_needed_rows():
    rng = np.random.default_rng(0)
    U = cloud(rng, 800)
    U[1:24:2] = unit(U[0:23:2] + 0.05 * rng.standard_normal((12, 12)))  # 12 pairs of near copies: a step in the tail
    with pytest.raises(TooFewRowsError, match=r"319,600 pairs are too few to count.*of 20 tests.*3,163 rows"):
        find_tail_cut(U, None, 1e-5, 0.95, 0)


@pytest.mark.parametrize("cross", [False, True])
def test_a_rate_far_beyond_the_pairs_is_refused(cross, rng):
    V = cloud(rng, 300) if cross else None
    need = (
        r"need about 200,000 rows for 250 queries, or a rate of at least 0.0007" if cross else r"need about 14,143 rows"
    )
    with pytest.raises(TooFewRowsError, match=need):
        find_tail_cut(cloud(rng, 250), V, 1e-6 if cross else 5e-7, 0.95, 0)


@pytest.mark.parametrize("rate", [1e-15, 1e-300, 5e-324])
@pytest.mark.parametrize("cross", [False, True])
def test_no_message_asks_for_an_impossible_number_of_rows(cross, rate, rng):
    V = cloud(rng, 300) if cross else None
    with pytest.raises(TooFewRowsError, match=r"extrapolate: need a rate of at least 0\.00\d+$"):
        find_tail_cut(cloud(rng, 250), V, rate, 0.95, 0)


def test_few_rows_and_a_low_rate_need_more_of_both(rng):
    with pytest.raises(TooFewRowsError, match=r"^1 pair is too few .* need about 101 rows$"):
        find_tail_cut(cloud(rng, 2), None, 0.01, 0.95, 0)
    with pytest.raises(
        TooFewRowsError, match=r"need a higher rate and more rows, such as 1,001 rows for a rate of 0.0001"
    ):
        find_tail_cut(cloud(rng, 5), None, 1e-30, 0.95, 0)


def test_the_rate_of_a_message_can_be_counted(rng):
    """1 / 1,225 pairs is rounded up, because the rounded rate would otherwise be refused too."""
    X = cloud(rng, 50)
    with pytest.raises(TooFewRowsError, match=r"a rate of at least 0\.05") as error:
        find_tail_cut(X, None, 1e-6, 0.95, 0)
    assert find_tail_cut(X, None, float(str(error.value).rsplit(" ", 1)[1]), 0.95, 0).cut is not None


@pytest.mark.parametrize("cross", [False, True])
def test_a_high_rate_is_counted_on_a_part_of_the_rows(cross, rng, monkeypatch):
    """The pairs above the threshold do not all fit into memory."""
    monkeypatch.setattr("isoscope.thresholding.tails._MOST_KEPT", 20_000)
    X, Q = rng.standard_normal((900, 6)), rng.standard_normal((400, 6))
    found = isoscope.threshold(X, queries=Q if cross else None, false_matches=0.3)
    cosines = unit(Q) @ unit(X).T if cross else (unit(X) @ unit(X).T)[np.triu_indices(900, 1)]
    assert found.tail.count <= 10_100
    assert (cosines >= found.cut).mean() == pytest.approx(0.3, abs=0.02)
    assert found.low < np.quantile(cosines, 0.7) < found.high
    assert "of 900 rows" in " ".join(found.notes)
    assert ("of 400 queries" in " ".join(found.notes)) == cross


@pytest.mark.parametrize("cosine", [0.0, 0.5])
def test_ties_below_1_are_not_called_copies(cosine):
    """All pairs of rows have the same cosine, so no threshold has a rate between 0 and 1."""
    X = np.eye(60) if cosine == 0 else np.linalg.cholesky(np.full((60, 60), 0.5) + np.eye(60) / 2)
    found = isoscope.threshold(X, false_matches=0.1)
    assert (found.verdict, found.cut, found.tail.count) == ("no cut", None, 60 * 59 // 2)
    assert "share the highest cosine" in found.headline
    assert f"1,770 of 1,770 pairs have a cosine of {cosine:g}, and none has a higher one" in found.paragraph


def test_copies_below_the_rate_do_not_prevent_a_cut():
    """One pair in twenty has a cosine of 1, and all others 0: the threshold lies between, and its rate is lower."""
    X = np.repeat(np.eye(20), 20, axis=0)
    found = isoscope.threshold(X, false_matches=0.2)
    assert (found.cut, found.tail.count) == (0.5, 20 * 190)
    assert found.headline == "At most 20% of random pairs have a cosine of at least 0.50."
    assert isoscope.threshold(X, false_matches=0.01).headline.endswith("are copies of each other.")


def test_the_needed_rows_have_enough_pairs():
    for rate in (1e-2, 1e-4, 3e-7):
        n = needed_rows(rate)
        assert count_pairs((n, n), True) * rate >= 50 > count_pairs((n - 2, n - 2), True) * rate


def test_the_tail_of_some_rows_has_only_their_pairs(rng):
    tail = collect_tail(cloud(rng, 300), None, 0.1, 0)
    kept = np.zeros(300, bool)
    kept[::3] = True
    part = tail.of((kept, kept))
    assert isinstance(part, Tail)
    assert part.pairs == 100 * 99 // 2
    assert kept[part.first].all()
    assert kept[part.second].all()
