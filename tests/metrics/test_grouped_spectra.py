"""IsoScore and participation ratio of rows that are not independent."""

import numpy as np
import pytest
from scipy import stats

import isoscope
from isoscope import InputError
from tests.conftest import tolerance

TEXT = np.repeat(np.arange(9), [4, 1, 7, 3, 3, 5, 2, 4, 6])


@pytest.fixture
def tokens(rng):
    return rng.standard_normal((9, 5))[TEXT] + rng.standard_normal((len(TEXT), 5)) * [3, 2, 1, 1, 0.5]


def test_groups_of_one_row_equal_independent_rows(tokens):
    own = [f"text {i}" for i in range(len(tokens))]
    assert isoscope.isoscore(tokens, unbiased=True, groups=own) == isoscope.isoscore(tokens, unbiased=True)
    assert isoscope.isoscore_interval(tokens, groups=own) == isoscope.isoscore_interval(tokens)


def test_isoscore_and_participation_ratio_estimates_agree(tokens):
    for groups in (None, TEXT):
        score = isoscope.isoscore(tokens, unbiased=True, groups=groups)
        ratio = isoscope.participation_ratio(tokens, unbiased=True, groups=groups)
        np.testing.assert_allclose(ratio, 1 + score * 4, rtol=1e-12)


def test_names_and_order_of_groups_do_not_matter(tokens, rng):
    order = rng.permutation(len(TEXT))
    named = np.asarray(["z", "b", "c", "y", "d", "a", "e", "f", "x"])[TEXT[order]]
    np.testing.assert_allclose(
        isoscope.isoscore(tokens[order], unbiased=True, groups=named),
        isoscope.isoscore(tokens, unbiased=True, groups=TEXT),
        rtol=1e-12,
    )


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1.0, 1e30, 1e150])
def test_scale_and_translation_do_not_matter(tokens, scale):
    expected = isoscope.isoscore(tokens, unbiased=True, groups=TEXT)
    np.testing.assert_allclose(
        isoscope.isoscore((tokens + 100) * scale, unbiased=True, groups=TEXT), expected, rtol=1e-10
    )


def test_interval_is_the_leave_one_group_out_jackknife(tokens):
    value, low, high = isoscope.isoscore_interval(tokens, groups=TEXT)
    left = [isoscope.isoscore(tokens[g != TEXT], unbiased=True, groups=TEXT[g != TEXT]) for g in range(9)]
    reach = stats.t.ppf(0.975, 8) * np.sqrt(8 * np.var(left))
    np.testing.assert_allclose([low, high], [value - reach, value + reach], rtol=1e-10)


def test_many_groups_are_left_out_in_64_blocks(rng):
    text = np.repeat(np.arange(400), 2)
    X = rng.standard_normal((400, 4))[text] + rng.standard_normal((800, 4))
    rows = isoscope.isoscore_interval(X)
    found = isoscope.isoscore_interval(X, groups=text)
    assert found.low < found.value < found.high
    assert found.high - found.low < 4 * (rows.high - rows.low)


def test_every_library_gives_the_same_value(tokens, library):
    X = library.array(tokens)
    expected = isoscope.isoscore_interval(library.values(X), groups=np.arange(35) // 5)
    found = isoscope.isoscore_interval(X, groups=np.arange(35) // 5)
    tol = tolerance(library.name.rpartition("-")[2])
    assert [float(number) for number in found] == pytest.approx(expected, rel=tol)


def test_gradient_matches_finite_differences(tokens):
    torch = pytest.importorskip("torch")
    X = torch.tensor(tokens, requires_grad=True)
    isoscope.isoscore(X, unbiased=True, groups=TEXT).backward()
    for i, j in ((0, 0), (11, 3), (30, 4)):
        step = np.zeros_like(tokens)
        step[i, j] = 1e-5
        ends = [float(isoscope.isoscore(tokens + sign * step, unbiased=True, groups=TEXT)) for sign in (1, -1)]
        np.testing.assert_allclose(float(X.grad[i, j]), (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(("texts", "power"), [(6, 0), (6, 1), (12, 1)])
def test_grouped_intervals_cover_the_truth_where_row_intervals_do_not(texts, power):
    rng, d, runs = np.random.default_rng([texts, power]), 8, 200
    variances = np.arange(1, d + 1.0) ** -power
    truth = (variances.sum() ** 2 / (variances**2).sum() - 1) / (d - 1)
    held, by_rows, values = 0, 0, []
    for _ in range(runs):
        text = np.repeat(np.arange(texts), rng.choice([6, 12], texts))
        shared = rng.standard_normal((texts, d))[text] * np.sqrt(0.4)
        X = (shared + rng.standard_normal((len(text), d)) * np.sqrt(0.6)) * np.sqrt(variances)
        value, low, high = isoscope.isoscore_interval(X, groups=text)
        held += low <= truth <= high
        values.append(value)
        rows = isoscope.isoscore_interval(X)
        by_rows += rows.low <= truth <= rows.high
    assert held / runs > 0.903  # 95% less three standard errors
    assert by_rows / runs < 0.85
    assert abs(np.mean(values) - truth) < 0.05


def test_groups_need_the_unbiased_estimate_and_enough_groups(tokens):
    with pytest.raises(InputError, match="pass unbiased=True"):
        isoscope.isoscore(tokens, groups=TEXT)
    with pytest.raises(InputError, match="pass unbiased=True"):
        isoscope.participation_ratio(tokens, groups=TEXT)
    with pytest.raises(InputError, match="3 distinct values: need at least 4"):
        isoscope.isoscore(tokens, unbiased=True, groups=TEXT % 3)
    with pytest.raises(InputError, match="4 distinct values: need at least 5"):
        isoscope.isoscore_interval(tokens, groups=TEXT % 4)
    with pytest.raises(InputError, match="groups has 3 entries"):
        isoscope.isoscore(tokens, unbiased=True, groups=[0, 1, 2])
    with pytest.raises(InputError, match="all 35 rows of X are equal"):
        isoscope.isoscore(np.ones((35, 4)), unbiased=True, groups=TEXT)


def test_row_estimate_matches_the_dimensionality_package(tokens):
    dimensionality = pytest.importorskip("dimensionality")
    theirs = dimensionality.participation_ratio(tokens, return_all=True)["row"]
    np.testing.assert_allclose(isoscope.participation_ratio(tokens, unbiased=True), theirs, rtol=1e-12)
