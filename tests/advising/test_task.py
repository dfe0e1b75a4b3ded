"""The rows that repairs are fitted to."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope import InputError
from isoscope.advising.matching import find_rows
from isoscope.advising.task import check_folds, row_identity
from isoscope.stores import open_store
from tests.advising.conftest import Recording, topics


def test_too_few_examples_for_the_folds_raise():
    check_folds(5, 20, "row")
    with pytest.raises(InputError, match="19 rows are too few for 5 folds: need at least 20"):
        check_folds(5, 19, "row")
    with pytest.raises(InputError, match="1 query is too few for 5 folds"):
        check_folds(5, 1, "query")


def test_equal_rows_share_an_index(rng):
    X = rng.standard_normal((5, 3))
    X[4], X[3] = X[1], 0.0
    X = np.vstack([X, -0.0 * np.ones(3)])
    found = row_identity(X)
    assert found[4] == found[1]
    assert found[5] == found[3]
    assert len(set(found)) == 4


def keys(X):
    return {row.tobytes() for row in np.asarray(X, np.float64)}


def fits(recording, source, **task):
    """Return the sets of rows that a repair was fitted to with all coordinates; the first is for what is saved."""
    isoscope.advise(source, candidates=[recording], **task)
    return [keys(X) for X in Recording.seen if X.shape[1] == source.shape[1]]


def tasks(rng):
    X, of = topics(rng, 100)
    pairs = np.arange(0, 100, 2), np.arange(1, 100, 2), rng.random(50)
    qrels = {str(i): {str(i): 1, str(i + 30): 2} for i in range(30)}
    return X, {
        "labels": {"labels": of},
        "pairs": {"pairs": pairs},
        "retrieval": {"queries": X[:30] + 0.1, "qrels": qrels},
        "none": {},
    }


@pytest.mark.parametrize("kind", ["labels", "pairs", "retrieval", "none"])
def test_scored_repair_is_fitted_once_to_the_entire_source(kind, recording, rng):
    X, every = tasks(rng)
    seen = fits(recording, X, **every[kind])
    assert seen[0] == keys(X)
    assert sum(rows == keys(X) for rows in seen) == 1
    assert len(seen) == 2  # the other measures the shape, on half of the rows
    assert len(seen[1]) == 50


@pytest.mark.parametrize("kind", ["labels", "pairs", "retrieval"])
def test_new_rows_are_held_out_of_the_scored_fits(kind, recording, rng):
    X, every = tasks(rng)
    seen = fits(recording, X, new_rows=True, **every[kind])
    assert seen[0] == keys(X)  # what is saved
    held_out = [keys(X) - rows for rows in seen[1:6]]
    assert [len(rows) for rows in held_out] == [20] * 5
    assert set.union(*held_out) == keys(X)


def test_a_name_of_thousands_of_digits_is_an_unknown_row(rng):
    store = open_store(rng.standard_normal((5, 3)))
    with pytest.raises(InputError, match="refer to '99999"):
        find_rows(store, ["3", "9" * 5000], "the pairs")
