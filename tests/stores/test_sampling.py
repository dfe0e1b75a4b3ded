"""The rows of a sample depend only on their numbers and the seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoscope.stores.sampling import Sampler, row_keys
from isoscope.stores.store import Batch


def sampled(X, size, *, seed=0, cuts=(), **columns):
    """The sample of X's rows, offered in batches that end at the cuts."""
    sampler = Sampler(size, seed)
    ends = [0, *sorted(cuts), len(X)]
    for start, stop in pairwise(ends):
        if stop > start:
            part = slice(start, stop)
            sampler.offer(Batch(start, X[part], {role: v[part] for role, v in columns.items()}, stop / len(X)))
    return sampler.sample()


def numbered(n, d=3):
    """Vectors that contain their row number."""
    return np.repeat(np.arange(n, dtype=np.float64)[:, None], d, axis=1)


# what must hold


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 300), max_size=12))
def test_the_sample_does_not_depend_on_the_batches(n, size, seed, cuts):
    X, text = numbered(n), np.array([f"row {i}" for i in range(n)])
    whole = sampled(X, size, seed=seed, text=text)
    parts = sampled(X, size, seed=seed, cuts=[cut for cut in cuts if cut <= n], text=text)
    assert len(whole) == min(n, size)
    np.testing.assert_array_equal(parts.rows, whole.rows)
    np.testing.assert_array_equal(parts.vectors, X[whole.rows])
    np.testing.assert_array_equal(parts.keys, whole.keys)
    assert parts.columns["text"].tolist() == [f"row {i}" for i in whole.rows]


@given(st.integers(1, 50), st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_a_large_sample_is_every_row_in_order(n, room, seed):
    found = sampled(numbered(n), n + room, seed=seed, cuts=[n // 2])
    np.testing.assert_array_equal(found.rows, np.arange(n))
    np.testing.assert_array_equal(found.vectors, numbered(n))


@given(st.integers(2, 300), st.integers(0, 2**32 - 1))
def test_smaller_samples_are_subsets_of_larger_ones(n, seed):
    found = sampled(numbered(n), 200, seed=seed)
    before: set[int] = set()
    for m in range(1, len(found) + 3):
        at = found.first(m)
        assert len(at) == min(m, len(found))
        assert (np.diff(at) > 0).all()
        assert before <= set(at.tolist())
        before = set(at.tolist())
        if m in (1, 7, 50):
            np.testing.assert_array_equal(found.at(at).rows, sampled(numbered(n), m, seed=seed).rows)


def test_two_stores_of_the_same_length_give_the_same_rows(rng):
    a = sampled(rng.standard_normal((400, 3)), 40, seed=7, cuts=[111])
    b = sampled(rng.standard_normal((400, 12)).astype(np.float32), 40, seed=7, cuts=[7, 300])
    np.testing.assert_array_equal(a.rows, b.rows)


def test_added_rows_only_replace_sampled_rows():
    few, many = (set(sampled(numbered(n), 40).rows.tolist()) for n in (400, 500))
    assert {row for row in many if row < 400} <= few
    assert len(many - few) > 0


# against chance


def test_all_rows_and_all_pairs_are_equally_likely():
    n, size, draws = 500, 50, 400
    taken = np.zeros((draws, n))
    for seed in range(draws):
        taken[seed, sampled(numbered(n), size, seed=seed).rows] = 1
    share = size / n
    # Σ(count − mean)²/variance is near χ² of n − 1 degrees: mean n, deviation √(2n); 4 deviations either way
    chi = ((taken.sum(axis=0) - draws * share) ** 2).sum() / (draws * share * (1 - share))
    assert abs(chi - n) < 4 * np.sqrt(2 * n)
    both = share * (size - 1) / (n - 1)
    for gap in (1, 2, 8, 64):
        pairs = (taken[:, gap:] * taken[:, :-gap]).sum()
        trials = draws * (n - gap)
        assert abs(pairs - trials * both) < 4 * np.sqrt(trials * both)


def test_seeds_give_different_samples():
    first, second = (set(sampled(numbered(1000), 100, seed=seed).rows.tolist()) for seed in (0, 1))
    assert len(first & second) < 30  # 10 by chance


def test_keys_differ_and_do_not_depend_on_the_first_row():
    keys = row_keys(0, 20_000, 3)
    assert len(np.unique(keys)) == 20_000
    np.testing.assert_array_equal(row_keys(12_345, 100, 3), keys[12_345:12_445])
    # 64 buckets of equal width, χ² as above
    counts = np.bincount((keys >> np.uint64(58)).astype(int), minlength=64)
    assert abs(((counts - 312.5) ** 2 / 312.5).sum() - 63) < 4 * np.sqrt(126)


# edges


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_skipped(bad):
    X = numbered(100)
    X[10:50, 1] = bad
    found = sampled(X, 80, cuts=[30, 31])
    np.testing.assert_array_equal(found.rows, np.r_[0:10, 50:100])
    few = sampled(X, 20, cuts=[30, 31])
    assert len(few) == 20
    assert not ((few.rows >= 10) & (few.rows < 50)).any()


def test_the_sample_does_not_keep_the_batch_in_memory():
    X = numbered(10)
    found = sampled(X, 10)
    X[:] = -1
    np.testing.assert_array_equal(found.vectors, numbered(10))


@pytest.mark.parametrize(
    ("given_as", "kept_as"),
    [("float16", "float32"), ("int64", "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_vectors_are_kept_as_floats(given_as, kept_as):
    found = sampled(numbered(20).astype(given_as), 10)
    assert found.vectors.dtype == kept_as
    np.testing.assert_array_equal(found.vectors[:, 0], found.rows)
