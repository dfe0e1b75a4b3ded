"""Unbiased traces over rows of different groups."""

import itertools

import numpy as np
import pytest

import isoscope
from isoscope._core.grouped_traces import moments_to_sums, sum_groups

GROUP = np.asarray([0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4, 5])


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((len(GROUP), 3)) * [3, 1, 0.5] + 2


def over_all_quadruples(X, group):
    """Average the kernels of (tr Σ)² and tr(Σ²) over every quadruple of rows from four groups."""
    products = X @ X.T
    found = []
    for i, j, k, m in itertools.permutations(range(len(X)), 4):
        if len({group[i], group[j], group[k], group[m]}) == 4:
            four = products[i, j] * products[k, m]
            lengths = products[i, i] * products[j, j] - 2 * products[i, i] * products[j, k] + four
            found.append((lengths, products[i, j] ** 2 - 2 * products[i, j] * products[j, k] + four))
    return np.mean(found, axis=0)


def summed(X, group, centre=0.0):
    return sum_groups(np, X, np.full(X.shape[1], centre), group, np.bincount(group))


def test_traces_average_over_quadruples_of_rows_from_different_groups(rows):
    np.testing.assert_allclose(summed(rows, GROUP).traces(np), over_all_quadruples(rows, GROUP), rtol=1e-10)


def test_order_of_rows_does_not_matter(rows):
    order = np.random.default_rng(1).permutation(len(rows))
    np.testing.assert_allclose(summed(rows[order], GROUP[order]).traces(np), summed(rows, GROUP).traces(np), rtol=1e-10)


def test_translation_does_not_matter(rows):
    np.testing.assert_allclose(summed(rows + 50, GROUP, 50.0).traces(np), summed(rows, GROUP).traces(np), rtol=1e-9)


def test_leaving_out_a_group_is_a_subtraction(rows):
    only = np.where(GROUP == 4, GROUP, -1)
    left = summed(rows, GROUP) - sum_groups(np, rows, np.zeros(3), only, np.bincount(GROUP))
    kept = GROUP != 4
    codes = np.unique(GROUP[kept], return_inverse=True)[1]
    np.testing.assert_allclose(left.traces(np), over_all_quadruples(rows[kept], codes), rtol=1e-9)


def test_group_moments_give_the_same_sums(rows):
    counts = np.bincount(GROUP)
    parts = [rows[g == GROUP] - 1 for g in range(len(counts))]
    alone = moments_to_sums(
        counts, np.stack([part.sum(axis=0) for part in parts]), np.stack([part.T @ part for part in parts])
    )
    total = alone[0]
    for one in alone[1:]:
        total = total + one
    np.testing.assert_allclose(total.traces(np), summed(rows, GROUP).traces(np), rtol=1e-10)


def test_groups_of_one_row_equal_traces_for_independent_rows(rows):
    n = len(rows)
    y = rows - rows.mean(axis=0)
    squared = (y * y).sum(axis=1)
    expected = isoscope._core.formulas.unbiased_traces(n, squared.sum(), np.sum((y.T @ y) ** 2), (squared**2).sum())
    np.testing.assert_allclose(summed(rows, np.arange(n)).traces(np), expected, rtol=1e-10)


def test_traces_are_unbiased_for_strongly_dependent_rows():
    rng = np.random.default_rng(3)
    spread = np.asarray([2.0, 1.0, 0.5])  # Σ = diag(spread²): tr(Σ²) = 17.0625, (tr Σ)² = 27.5625
    found = []
    for _ in range(1500):
        group = np.repeat(np.arange(6), rng.choice([1, 5], 6))
        shared = rng.standard_normal((6, 3))[group] * np.sqrt(0.8)
        X = (shared + rng.standard_normal((len(group), 3)) * np.sqrt(0.2)) * spread
        found.append(summed(X, group).traces(np))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(mean - [27.5625, 17.0625]) < 3 * error)
    assert np.all(error < [0.8, 0.8])
