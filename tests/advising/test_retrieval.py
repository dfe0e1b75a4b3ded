"""nDCG and recall are trec_eval's, whatever the order of the documents."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from isoscope import Chain
from isoscope.advising.retrieval import Retrieval, ndcg, recall
from tests.advising.conftest import rows_of


def task_of(documents, queries, relevant, metric="cosine"):
    return Retrieval(rows_of(documents), queries, relevant, metric, 2, 0)


def scored(task, fold, measure="ndcg@10"):
    return task.score(fold, Chain().fit(task.rows.vectors))[measure].values


@pytest.fixture
def asked(rng):
    documents, queries = rng.standard_normal((60, 5)), rng.standard_normal((12, 5))
    relevant = [{int(place): float(rng.integers(1, 4)) for place in rng.choice(60, 15, replace=False)} for _ in queries]
    return documents, queries, relevant


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ndcg_is_scikit_learns(asked, metric):
    documents, queries, relevant = asked
    task = task_of(documents, queries, relevant, metric)
    likeness = -np.linalg.norm(queries[:, None] - documents[None], axis=2)
    if metric == "cosine":
        likeness = queries @ documents.T / np.linalg.norm(documents, axis=1)
    truth = np.zeros((12, 60))
    for i, of in enumerate(relevant):
        truth[i, list(of)] = list(of.values())
    for fold, held in enumerate(task.folds):
        each = [ndcg_score(truth[[i]], likeness[[i]], k=10) for i in held]
        np.testing.assert_allclose(scored(task, fold), each, atol=1e-12)


def test_the_order_of_documents_does_not_matter(asked, rng):
    documents, queries, relevant = asked
    order = rng.permutation(60)
    moved = [{int(np.flatnonzero(order == place)[0]): grade for place, grade in of.items()} for of in relevant]
    for measure in Retrieval.measures:
        np.testing.assert_allclose(
            scored(task_of(documents[order], queries, moved), 0, measure),
            scored(task_of(documents, queries, relevant), 0, measure),
            atol=1e-12,
        )


def test_a_list_by_hand():
    # relevance 3, 0, 1 at ranks 1…3; 2 was missed: (3 + 1/2)/(3 + 2/log₂3 + 1/2)
    found, judged = np.asarray([5, 9, 7]), {5: 3.0, 7: 1.0, 8: 2.0}
    assert ndcg(found, judged) == pytest.approx(3.5 / (3.5 + 2 / np.log2(3)))
    assert recall(found, judged) == pytest.approx(2 / 3)


def test_only_the_first_ten_count_and_more_than_ten_answers_can_be_perfect():
    judged = dict.fromkeys(range(20), 1.0)
    assert ndcg(np.arange(100), judged) == pytest.approx(1)
    assert ndcg(np.arange(90, 200), {100: 1.0}) == 0
    assert recall(np.arange(100), judged) == 1


def test_what_answers_a_held_out_query_is_not_learnt_from(asked):
    task = task_of(*asked)
    for fold, held in enumerate(task.folds):
        answers = {place for query in held for place in task.relevant[query]}
        assert set(task.held_rows(fold)) == answers


def test_fewer_documents_than_are_listed(rng):
    documents = rng.standard_normal((6, 4))
    task = task_of(documents, documents[np.arange(8) % 6], [{i % 6: 1.0} for i in range(8)])
    assert scored(task, 0).tolist() == pytest.approx([1] * 4)
    assert scored(task, 0, "recall@100").tolist() == [1] * 4


def test_documents_that_cannot_be_told_apart_are_not_found_for_their_place(rng):
    documents, queries = np.ones((200, 4)), rng.standard_normal((8, 4))
    first, last = (
        scored(task_of(documents, queries, [{i + start: 1.0} for i in range(8)]), 0, "recall@100").mean()
        for start in (0, 190)
    )
    assert 0.2 <= first <= 0.8  # half of them are in any hundred; by their place it would be all, and none
    assert 0.2 <= last <= 0.8
