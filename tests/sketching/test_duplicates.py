"""Copies are counted exactly up to a capacity and estimated above it, independently of how rows are split."""

from functools import reduce
from itertools import chain
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from isoscope import Sketch, sketch
from isoscope.sketching import parts as module
from isoscope.sketching.parts import RowCounts


def same(a: RowCounts, b: RowCounts) -> bool:
    arrays = np.array_equal(a.hashes, b.hashes) and np.array_equal(a.counts, b.counts)
    return arrays and (a.level, a.total) == (b.level, b.total)


# few values, so that there are copies; the whole range, so that levels rise
hashes = st.lists(st.one_of(st.integers(0, 20).map(lambda k: k * 2**59 + k), st.integers(0, 2**64 - 1)), max_size=40)


@given(parts=st.lists(hashes, min_size=1, max_size=6), order=st.randoms(use_true_random=False))
@pytest.mark.parametrize("capacity", [4, 2**16])
def test_merged_parts_equal_the_total_bit_for_bit(parts, order, capacity, monkeypatch):
    monkeypatch.setattr(module, "CAPACITY", capacity)
    whole = RowCounts.of(np.array([*chain(*parts)], np.uint64))
    pieces = [RowCounts.of(np.array(part, np.uint64)) for part in parts]
    order.shuffle(pieces)
    assert same(reduce(add, pieces), whole)
    while len(pieces) > 1:  # and in any tree
        a = pieces.pop(order.randrange(len(pieces)))
        pieces.append(a + pieces.pop(order.randrange(len(pieces))))
    assert same(pieces[0], whole)


@given(hashes)
def test_adding_empty_counts_changes_nothing(values):
    counts = RowCounts.of(np.array(values, np.uint64))
    nothing = RowCounts.of(np.zeros(0, np.uint64))
    assert same(counts + nothing, counts)
    assert same(nothing + counts, counts)
    assert nothing.exact
    assert nothing.copies == 0


@given(hashes)
def test_copies_equal_rows_minus_distinct_rows(values):
    counts = RowCounts.of(np.array(values, np.uint64))
    assert counts.exact
    assert counts.copies == len(values) - len(set(values))


def test_all_copies_of_a_row_are_counted_or_none(monkeypatch, rng):
    monkeypatch.setattr(module, "CAPACITY", 64)
    different = rng.integers(0, 2**64, 1000, np.uint64)
    times = rng.integers(1, 5, 1000)
    counts = RowCounts.of(rng.permutation(np.repeat(different, times)))
    assert not counts.exact
    assert 0 < len(counts.hashes) <= 64
    truth = dict(zip(different.tolist(), times.tolist(), strict=True))
    assert counts.counts.tolist() == [truth[h] for h in counts.hashes.tolist()]


def test_count_is_exact_up_to_the_capacity(rng):
    different = np.unique(rng.integers(0, 2**64, module.CAPACITY + 100, np.uint64))
    full = different[: module.CAPACITY]
    exact = RowCounts.of(np.concatenate([full, full[:1000], full[:7]]))
    assert exact.exact
    assert exact.copies == 1007
    assert not RowCounts.of(different[: module.CAPACITY + 1]).exact


@pytest.mark.parametrize("distinct", [100_000, 500_000])
def test_above_the_capacity_the_estimate_is_within_a_few_percent(distinct, rng):
    different = rng.integers(0, 2**64, distinct, np.uint64)
    times = 1 + rng.poisson(0.5, distinct)
    counts = RowCounts.of(np.repeat(different, times))
    assert not counts.exact
    assert counts.copies == pytest.approx(times.sum() - distinct, rel=0.03)


def test_without_copies_the_estimate_is_zero(rng):
    assert RowCounts.of(rng.integers(0, 2**64, 300_000, np.uint64)).copies == 0


@pytest.mark.parametrize("seed", range(4))  # the row is in the sample or it is not
def test_one_often_repeated_row_is_estimated(seed):
    different = np.random.default_rng(seed).integers(0, 2**64, 150_000, np.uint64)
    counts = RowCounts.of(np.concatenate([different, np.repeat(different[:1], 50_000)]))
    assert counts.copies == pytest.approx(50_000, rel=0.05)


# rows are equal if their values are


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_copies_are_counted_exactly(dtype, rng):
    X = (rng.standard_normal((200, 3)) * 9).astype(dtype)
    copies = len(X) + 50 - len(np.unique(X, axis=0))
    X = rng.permutation(np.concatenate([X, X[:50]]))
    assert Sketch.of(X).duplicates == copies
    s = sketch(iter(np.array_split(X, 9)))
    assert s.duplicates == copies
    assert s.rows.exact


@pytest.mark.parametrize(("dtype", "bits"), [("float32", "uint32"), ("float64", "uint64")])
def test_rows_that_differ_in_one_bit_are_different(dtype, bits):
    row = np.array([1.5, -0.3, 0.7], dtype)
    width = row.itemsize * 8
    for p in range(3):
        X = np.tile(row, (width, 1))
        X.view(bits)[:, p] ^= np.array(1, bits) << np.arange(width, dtype=bits)
        X = X[np.isfinite(X).all(axis=1)]
        assert Sketch.of(np.concatenate([X, row[None]])).duplicates == 0


def test_negative_zero_equals_zero():
    assert Sketch.of([[0.0, 1.0, -0.0], [-0.0, 1.0, 0.0]]).duplicates == 1


@pytest.mark.parametrize(
    "rows",
    [
        lambda rng: rng.standard_normal((200_000, 4)).astype(np.float32),
        lambda rng: rng.integers(-128, 128, (200_000, 16)).astype(np.int8),
        lambda rng: rng.choice(np.float32([-1, 1]), (200_000, 64)),
        lambda rng: rng.choice(np.int8([-1, 1]), (200_000, 64)),
    ],
    ids=["float32", "int8", "signs in float32", "signs in int8"],
)
def test_distinct_rows_are_never_counted_as_copies(rows, rng, monkeypatch):
    monkeypatch.setattr(module, "CAPACITY", 2**18)
    with threadpool_limits(1):  # BLAS threads wait for each other on a busy machine
        s = Sketch.of(rows(rng))
    assert s.rows.exact
    assert s.duplicates == 0


@pytest.mark.parametrize("zeros", [0, 5000])
def test_above_the_capacity_copies_are_estimated(zeros, rng):
    X = rng.standard_normal((120_000, 2)).astype(np.float32)
    X[:zeros] = 0
    s = sketch(iter(np.array_split(np.concatenate([X, X[-20_000:]]), 10)))
    assert not s.rows.exact
    assert s.duplicates == pytest.approx(20_000 + max(0, zeros - 1), rel=0.05)


def test_equal_rows_of_different_dtypes_are_copies(rng):
    X = rng.standard_normal((10, 3)).astype(np.float32)
    assert (Sketch.of(X) + Sketch.of(X.astype(np.float64))).duplicates == 10
