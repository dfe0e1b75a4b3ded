"""Grouping: every row has a group, equal values share a group, and groups are ordered."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope.auditing.grouping import MAX_GROUPS, RANGES, group_rows
from isoscope.errors import MissingValueError


def texts(values):
    found = np.empty(len(values), object)
    found[:] = values
    return found


@pytest.mark.parametrize("different", [2, MAX_GROUPS, MAX_GROUPS + 1, 500])
@pytest.mark.parametrize("kind", [int, float])
def test_equal_numbers_share_a_group_and_every_number_has_one(rng, different, kind):
    values = rng.integers(-different, different, 3000).astype(kind) / (1 if kind is int else 7)
    found = group_rows(values)
    assert found.ordered
    assert found.left_out == 0
    assert found.counts.sum() == 3000
    assert len(found.names) == len(set(found.names)) == len(found.values)
    for value in np.unique(values):
        assert len(np.unique(found.codes[values == value])) == 1
    lows = [values[found.codes == code].min() for code in range(len(found.names))]
    highs = [values[found.codes == code].max() for code in range(len(found.names))]
    assert all(high < low for high, low in zip(highs[:-1], lows[1:], strict=True))


def test_groups_do_not_depend_on_the_order_of_rows(rng):
    values, order = rng.integers(0, 300, 1000), rng.permutation(1000)
    a, b = group_rows(values), group_rows(values[order])
    assert a.names == b.names
    np.testing.assert_array_equal(a.codes[order], b.codes)


def test_few_numbers_get_one_group_each():
    found = group_rows(np.asarray([12, -3, 6, 6, 12]))
    assert (found.names, found.values) == (["−3", "6", "12"], [-3, 6, 12])
    assert found.codes.tolist() == [2, 0, 1, 1, 2]
    assert group_rows(np.asarray([0.5, 2.0])).names == ["0.5", "2"]


def test_many_numbers_are_split_into_ranges_of_similar_size(rng):
    found = group_rows(rng.permutation(8000))
    assert len(found.names) == RANGES
    assert found.counts.tolist() == [1000] * RANGES
    assert found.names[:2] == ["0–999", "1000–1999"]
    assert found.values[0] == pytest.approx(500, abs=1)
    skewed = group_rows(np.concatenate([np.zeros(5000, np.int64), rng.integers(1, 1000, 5000)]))
    assert skewed.names[0].startswith("0")
    assert len(skewed.names) < RANGES  # one value holds half of all rows, and is not split


def test_ranges_with_equal_names_are_renamed():
    values = 1 + np.arange(100) * 1e-9
    names = group_rows(values).names
    assert len(set(names)) == RANGES


def test_names_are_in_natural_order():
    found = group_rows(texts(["layer 10", "layer 2", "layer 10", "layer 1"]))
    assert found.names == found.values == ["layer 1", "layer 2", "layer 10"]
    assert not found.ordered
    assert found.codes.tolist() == [2, 1, 2, 0]


def test_the_most_frequent_names_are_kept_and_the_rest_counted():
    values = texts([f"w{i}" for i in range(40) for _ in range(40 - i)])
    found = group_rows(values)
    assert found.names == [f"w{i}" for i in range(MAX_GROUPS)]
    rest = sum(40 - i for i in range(MAX_GROUPS, 40))
    assert found.left_out == rest
    assert found.others == {
        "16 others": f"{rest} rows in 16 smaller groups are skipped: only the {MAX_GROUPS} largest groups are measured"
    }
    assert (found.codes[-rest:] == -1).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_numbers_are_rejected(value):
    with pytest.raises(MissingValueError, match=rf"contains {value} in row 1 \(2 such rows\): need finite numbers"):
        group_rows(np.array([1.0, value, value]))
