"""The sums of each type equal the sums over its rows alone, independently of how rows are split."""

from dataclasses import fields
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoscope import InputError
from isoscope._core.arrays import encode_labels
from isoscope.sketching.parts import TypeSums
from tests.conftest import tolerance

NUMBERS = [f.name for f in fields(TypeSums) if f.name != "names"]


def sums_of(X, labels):
    return TypeSums.of(X, encode_labels(labels, len(X), name="types"))


def assert_close(a: TypeSums, b: TypeSums) -> None:
    assert a.names.tolist() == b.names.tolist()
    assert a.counts.tolist() == b.counts.tolist()
    for name in NUMBERS:
        x, y = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance(np.float64) * abs(y).max(), err_msg=name)


def assert_same(a: TypeSums, b: TypeSums) -> None:
    assert a.names.tolist() == b.names.tolist()
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@st.composite
def labelled_parts(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels = draw(st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "e"]), min_size=1, max_size=40))
    X = rng.standard_normal((len(labels), 3)) + draw(st.sampled_from([0, 10, 1e4]))
    cuts = sorted(draw(st.lists(st.integers(1, len(labels)), max_size=4, unique=True)))
    bounds = [0, *[c for c in cuts if c < len(labels)], len(labels)]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    return X, labels, draw(st.permutations(parts))


@given(labelled_parts())
def test_parts_merged_in_any_order_equal_the_total(case):
    X, labels, parts = case
    assert_close(reduce(add, [sums_of(X[p], labels[p]) for p in parts]), sums_of(X, labels))


@given(labelled_parts())
def test_addition_is_commutative_bit_for_bit(case):
    X, labels, parts = case
    a, b = sums_of(X[parts[0]], labels[parts[0]]), sums_of(X, labels)
    assert_same(a + b, b + a)


def test_each_type_has_the_statistics_of_its_rows(cloud):
    labels = np.arange(len(cloud)) % 4
    found = sums_of(cloud, labels)
    units = cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    for i, name in enumerate(found.names):
        rows, u = cloud[labels == name], units[labels == name]
        tol = tolerance(np.float64)
        assert found.counts[i] == len(rows)
        np.testing.assert_allclose(found.means[i], rows.mean(axis=0), rtol=tol, atol=tol)
        np.testing.assert_allclose(found.within[i], ((rows - rows.mean(axis=0)) ** 2).sum(), rtol=tol)
        np.testing.assert_allclose(found.unit_sums[i], u.sum(axis=0), atol=tol * len(rows))
        np.testing.assert_allclose(found.unit_squares[i], len(rows), rtol=tol)


@pytest.mark.parametrize("shift", [1e4, 1e8])
def test_large_mean_does_not_reduce_precision(shift, rng):
    X = rng.standard_normal((60, 5)) + shift * np.array([[1.0], [-3.0], [7.0]])[np.arange(60) % 3]
    labels = np.arange(60) % 3
    near = X - shift * np.array([[1.0], [-3.0], [7.0]])[labels]  # exact: neighbours in float64
    merged = sums_of(X[:25], labels[:25]) + sums_of(X[25:], labels[25:])
    for found in (sums_of(X, labels), merged):
        np.testing.assert_allclose(found.within, sums_of(near, labels).within, rtol=tolerance(np.float64))


def test_type_of_equal_rows_has_zero_variance(rng):
    X = np.repeat(rng.standard_normal((2, 4)) + 1e6, 7, axis=0)
    labels = np.repeat(["a", "b"], 7)
    assert sums_of(X, labels).within.tolist() == [0, 0]
    assert (sums_of(X[:3], labels[:3]) + sums_of(X[3:], labels[3:])).within.tolist() == [0, 0]


def test_a_zero_row_adds_no_direction():
    found = sums_of(np.array([[0.0, 0.0], [3.0, 4.0]]), ["a", "a"])
    np.testing.assert_allclose(found.unit_sums, [[0.6, 0.8]])
    np.testing.assert_allclose(found.unit_squares, [1])


@pytest.mark.parametrize(
    "labels",
    [
        [3, 1, 3],
        ["é", 'quo"te', ""],
        [True, False, True],
        [0.1, 1e300, -2.5],
        np.array(["b", "a", "b"], object),
        np.array([2, 2**63 - 1, 2], np.int64),
        np.array([3, 1, 3], np.int8),
        np.float32([0.1, 0.2, 0.1]),
        np.array([b"b", b"a", b"b"]),
        np.array(["2020-01-02", "2020-01-01", "2020-01-02"], "M8[D]"),
    ],
    ids=lambda labels: str(np.asarray(labels).dtype),
)
def test_tensors_round_trip(labels, rng):
    found = sums_of(rng.standard_normal((3, 2)), labels)
    kept = found.tensors()
    assert all(value.dtype.kind in "fiu" for value in kept.values())  # nothing that would need a pickle
    assert_same(TypeSums.from_tensors(kept), found)


def test_adding_strings_and_numbers_raises(rng):
    X = rng.standard_normal((2, 2))
    with pytest.raises(InputError, match=r"types are <U1 in one sketch and int64 in the other"):
        sums_of(X, ["a", "b"]) + sums_of(X, [1, 2])


@pytest.mark.parametrize(("one", "other"), [("<U1", "<U7"), ("<U1", object), (np.dtypes.StringDType(), "S1")])
def test_strings_of_any_dtype_can_be_added(one, other, rng):
    X = rng.standard_normal((4, 2))
    labels = np.array(["a", "b", "b", "c"])
    total = sums_of(X[:2], labels[:2].astype(one)) + sums_of(X[2:], labels[2:].astype(other))
    assert_close(total, sums_of(X, labels))


def test_saved_and_unsaved_sketches_can_be_added(rng):
    found = sums_of(rng.standard_normal((3, 2)), np.array(["b", "a", "b"], object))
    assert_close(TypeSums.from_tensors(found.tensors()) + found, found + found)
