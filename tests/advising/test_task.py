"""Every example is held out once, with its whole group, and what it touches is not learnt from."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope import InputError
from isoscope.advising.task import check_folds, dealt
from tests.advising.conftest import Recording, rows_of, topics


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_every_example_once_and_groups_whole(rng, folds):
    groups = np.unique(rng.integers(0, 40, 100), return_inverse=True)[1]
    parts = dealt(groups, folds, rng)
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert sum(len(np.unique(groups[part])) for part in parts) == groups.max() + 1
    assert np.ptp([len(part) for part in parts]) <= np.bincount(groups).max()


@pytest.mark.parametrize(("folds", "examples", "words"), [(1, 99, "need 2 at least"), (5, 19, "need 20 at least")])
def test_folds_that_are_too_small(folds, examples, words):
    with pytest.raises(InputError, match=words):
        check_folds(folds, examples, "rows")


# what a repair is fitted to, seen by the repair itself


def keys(X):
    return {row.tobytes() for row in np.asarray(X, np.float64)}


def learnt(recording, source, **task):
    """The rows that a repair saw in each fold."""
    advice = isoscope.advise(source, candidates=[recording], **task)
    return advice, [keys(X) for X in Recording.seen]


def test_rows_of_held_out_labels_are_not_learnt_from(recording, rng):
    X, of = topics(rng, 100)
    _, seen = learnt(recording, X, labels=of)
    assert len(seen) == 5
    held = [keys(X) - fold for fold in seen]
    assert [len(fold) for fold in held] == [20] * 5
    assert set.union(*held) == keys(X)


def test_rows_alone_are_held_out_as_well(recording, rng):
    X = rng.standard_normal((120, 6))
    _, seen = learnt(recording, X)
    held = [keys(X) - fold for fold in seen]
    held = [fold for fold in held if len(fold) < len(X)]  # those fitted to all coordinates
    assert [len(fold) for fold in held] == [24] * 5
    assert set.union(*held) == keys(X)


def test_rows_of_held_out_pairs_are_not_learnt_from(recording, rng):
    X = rng.standard_normal((150, 6))
    first, second = np.arange(0, 100, 2), np.arange(1, 101, 2)
    _, seen = learnt(recording, X, pairs=(first, second, rng.random(50)))
    held = [keys(X) - fold for fold in seen]
    assert [len(fold) for fold in held] == [20] * 5  # 10 pairs
    assert set.union(*held) == keys(X[:100])
    for fold in held:
        assert all((X[a].tobytes() in fold) == (X[b].tobytes() in fold) for a, b in zip(first, second, strict=True))


def test_documents_that_answer_held_out_queries_are_not_learnt_from(recording, rng):
    X = rng.standard_normal((150, 6))
    _, seen = learnt(recording, X, queries=X[:30] + 0.1, qrels={str(i): {str(i): 1, str(i + 30): 2} for i in range(30)})
    held = [keys(X) - fold for fold in seen]
    assert [len(fold) for fold in held] == [12] * 5
    assert set.union(*held) == keys(X[:60])


def test_where_held_out_examples_touch_most_rows_it_is_said(recording, rng):
    X = rng.standard_normal((60, 6))
    qrels = {str(i): {str(j): 1 for j in rng.choice(60, 20, replace=False)} for i in range(20)}
    advice, seen = learnt(recording, X, queries=X[:20], qrels=qrels)
    assert all(fold == keys(X) for fold in seen)
    assert any("fitted to all rows" in note for note in advice.notes)


@pytest.mark.parametrize("n", [41, 101])
def test_labels_of_held_out_rows_are_never_learnt_from(rng, n):
    from isoscope.advising.labelled import Labelled

    task = Labelled(rows_of(rng.standard_normal((n, 4))), np.arange(n) % 2, "cosine", 2, 0)
    for fold in range(2):
        assert not set(task.fit_rows(fold)) & set(task.held_rows(fold))
