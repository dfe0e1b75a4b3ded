"""Building a task from judgments; unknown rows are refused, or dropped and reported."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope import InputError, open_store
from isoscope.advising.graded_pairs import pairs_task
from isoscope.advising.labels import labels_task, unlabeled_task
from isoscope.advising.retrieval import retrieval_task
from isoscope.advising.task import AdviceSettings
from tests.advising.conftest import silent

DROP = AdviceSettings(missing="drop")
RAISE = AdviceSettings()


@pytest.fixture
def X(rng):
    return rng.standard_normal((200, 5))


def qrels(n=30):
    return {f"q{i}": {f"d{2 * i}": 1, f"d{2 * i + 1}": 2} for i in range(n)}


def stores(X, n=30):
    return open_store(X, ids=[f"d{i}" for i in range(len(X))]), open_store(X[:n] + 0.1, ids=[f"q{i}" for i in range(n)])


def test_pairs_by_ids(X):
    first, second = [f"r{i}" for i in range(0, 60, 2)], [f"r{i}" for i in range(1, 60, 2)]
    task = pairs_task(open_store(X, ids=[f"r{i}" for i in range(200)]), (first, second, np.arange(30)), RAISE, silent)
    assert task.rows.numbers[task.first].tolist() == list(range(0, 60, 2))
    assert task.rows.numbers[task.second].tolist() == list(range(1, 60, 2))


def test_rows_of_pairs_are_added_to_the_sample(X):
    task = pairs_task(
        open_store(X), (np.arange(75), np.arange(75, 150), np.arange(75)), AdviceSettings(sample=100), silent
    )
    assert set(range(150)) <= set(task.rows.numbers)
    assert task.rows.sampled.sum() == 100
    assert task.rows.total == 200


def numbered(X):
    return open_store(X, ids=range(len(X)))


def test_unknown_rows_of_pairs_raise_or_are_dropped(X):
    pairs = (np.arange(30), np.r_[np.arange(30, 55), np.arange(900, 905)], np.arange(30))
    with pytest.raises(InputError, match=r"refer to 5 rows that array does not contain .compared with its ids"):
        pairs_task(numbered(X), pairs, RAISE, silent)
    task = pairs_task(numbered(X), pairs, DROP, silent)
    assert len(task) == 25
    assert "5 pairs with unknown rows were dropped" in task.notes[-1]
    with pytest.raises(InputError, match=r"the pairs .* 30 rows"):
        pairs_task(numbered(X), (np.arange(900, 930), np.arange(900, 930), np.arange(30)), DROP, silent)
    with pytest.raises(InputError, match="'900', but array has no ids"):  # not even with "drop"
        pairs_task(open_store(X), pairs, DROP, silent)


def test_too_few_remaining_pairs_raise(X):
    pairs = (np.arange(30), np.r_[np.arange(15), np.arange(900, 915)], np.arange(30))
    with pytest.raises(InputError, match="15 pairs with known rows remain"):
        pairs_task(numbered(X), pairs, DROP, silent)
    same = (np.arange(30), np.r_[np.arange(29), 900], np.r_[np.ones(29), 2])
    with pytest.raises(InputError, match="two distinct scores"):
        pairs_task(numbered(X), same, DROP, silent)


def test_retrieval_task_loads_queries_and_documents(X):
    store, queries = stores(X)
    task = retrieval_task(store, queries, qrels(), RAISE, silent)
    assert task.relevant[3] == {6: 1.0, 7: 2.0}
    np.testing.assert_array_equal(task.queries, X[:30] + 0.1)
    assert not task.notes


def test_relevance_of_zero_or_less_is_not_relevant(X):
    store, queries = stores(X)
    judged = qrels(25) | {"q3": {"d0": 0, "d1": -1, "d2": 1}, "q4": {"d1": -2}, "q29": {"nowhere": 0}}
    task = retrieval_task(store, queries, judged, RAISE, silent)
    assert len(task) == 24
    assert task.relevant[3] == {2: 1.0}
    with pytest.raises(InputError, match="no relevance in qrels is above 0"):
        retrieval_task(store, queries, {"q1": {"d1": 0}}, RAISE, silent)


def test_documents_are_sampled_in_addition_to_judged_ones(X):
    store, queries = stores(X)
    task = retrieval_task(store, queries, qrels(), AdviceSettings(sample=100), silent)
    assert set(range(60)) <= set(task.rows.numbers)
    assert task.rows.sampled.sum() == 100
    assert f"{len(task.rows)} of 200 documents" in task.notes[0]
    for of, i in zip(task.relevant, range(30), strict=True):
        assert task.rows.numbers[list(of)].tolist() == [2 * i, 2 * i + 1]


@pytest.mark.parametrize("judged", [{"q0": {"d999": 1, "d1": 1}}, {"x": {"d1": 1}}])
def test_unknown_queries_and_documents_raise_or_are_dropped(X, judged):
    store, queries = stores(X)
    with pytest.raises(
        InputError, match=r"the qrels refer to 1 row that array does not contain .compared with its ids"
    ):
        retrieval_task(store, queries, qrels() | judged, RAISE, silent)
    task = retrieval_task(store, queries, qrels() | judged, DROP, silent)
    assert len(task) == 30
    assert "Judgments that refer to 1 unknown query or document were dropped" in task.notes[0]


def test_all_unknown_ids_raise(X):
    store, queries = stores(X)
    with pytest.raises(InputError, match=r"does not contain .compared with its ids"):
        retrieval_task(store, queries, {"x": {"y": 1}}, DROP, silent)


def test_queries_with_other_dimensions_or_nan_raise(X):
    store, queries = stores(X)
    with pytest.raises(InputError, match="have 4 dimensions but array has 5"):
        retrieval_task(store, open_store(X[:30, :4]), qrels(), RAISE, silent)
    broken = X[:30].copy()
    broken[7, 1] = np.inf
    with pytest.raises(InputError, match="NaN or infinity, first in row 7"):
        retrieval_task(store, open_store(broken, ids=queries.ids), qrels(), RAISE, silent)


def test_labels_of_the_sampled_rows(X):
    labels = np.arange(200) % 3
    task = labels_task(open_store(X, labels=labels), AdviceSettings(sample=120), silent)
    np.testing.assert_array_equal(task.labels, labels[task.rows.numbers])
    assert "120 of 200 rows" in task.notes[0]
    with pytest.raises(InputError, match="has no labels"):
        labels_task(open_store(X), RAISE, silent)


def test_sampling_is_also_noted_without_labels(X):
    assert any("120 of 200" in note for note in unlabeled_task(open_store(X), AdviceSettings(sample=120), silent).notes)
