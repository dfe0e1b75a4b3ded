"""nDCG and recall as trec_eval defines them, for any order of the documents; repairs see the whole corpus."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from isoscope import Chain
from isoscope.advising.retrieval import Judgments, Retrieval
from tests.advising.conftest import rows_of


def task_of(documents, queries, relevant, metric="cosine", **more):
    return Retrieval(rows_of(documents), queries, relevant, metric, 2, 0, **more)


def scored(task, measure="ndcg@10"):
    return task.score(Chain().fit(task.rows.vectors), task.rounds[0])[measure].values


@pytest.fixture
def asked(rng):
    documents, queries = rng.standard_normal((60, 5)), rng.standard_normal((12, 5))
    relevant = [{int(place): float(rng.integers(1, 4)) for place in rng.choice(60, 15, replace=False)} for _ in queries]
    return documents, queries, relevant


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ndcg_matches_scikit_learn(asked, metric):
    documents, queries, relevant = asked
    task = task_of(documents, queries, relevant, metric)
    similarity = -np.linalg.norm(queries[:, None] - documents[None], axis=2)
    if metric == "cosine":
        similarity = queries @ documents.T / np.linalg.norm(documents, axis=1)
    truth = np.zeros((12, 60))
    for i, of in enumerate(relevant):
        truth[i, list(of)] = list(of.values())
    each = [ndcg_score(truth[[i]], similarity[[i]], k=10) for i in range(12)]
    np.testing.assert_allclose(scored(task), each, atol=1e-12)


def test_the_order_of_documents_does_not_matter(asked, rng):
    documents, queries, relevant = asked
    order = rng.permutation(60)
    moved = [{int(np.flatnonzero(order == place)[0]): grade for place, grade in of.items()} for of in relevant]
    for measure in Retrieval.measures:
        np.testing.assert_allclose(
            scored(task_of(documents[order], queries, moved), measure),
            scored(task_of(documents, queries, relevant), measure),
            atol=1e-12,
        )


def test_ndcg_matches_manual_example():
    # relevance 3, 0, 1 at ranks 1…3; 2 was missed: (3 + 1/2)/(3 + 2/log₂3 + 1/2)
    found, judgments = np.asarray([[5, 9, 7]]), Judgments([{9: 1.0}, {5: 3.0, 7: 1.0, 8: 2.0}], 10)
    ndcg, recall = judgments.score(found, np.asarray([1]))
    assert ndcg == pytest.approx([3.5 / (3.5 + 2 / np.log2(3))])
    assert recall == pytest.approx([2 / 3])


def test_only_the_top_ten_count_and_more_answers_can_be_perfect():
    judgments = Judgments([dict.fromkeys(range(20), 1.0), {100: 1.0}], 200)
    ndcg, recall = judgments.score(np.asarray([np.arange(100), np.arange(90, 190)]), np.asarray([0, 1]))
    assert ndcg == pytest.approx([1, 0])
    assert recall.tolist() == [1, 1]


def test_lists_are_scored_as_one_by_one(rng):
    relevant = [
        {int(row): float(rng.integers(1, 4)) for row in rng.choice(50, rng.integers(1, 30), replace=False)}
        for _ in range(40)
    ]
    lists = np.stack([rng.permutation(50)[:20] for _ in relevant])
    ndcg, recall = Judgments(relevant, 50).score(lists, np.arange(40))
    for i, (of, found) in enumerate(zip(relevant, lists.tolist(), strict=True)):
        gains = [of.get(document, 0.0) / np.log2(rank + 2) for rank, document in enumerate(found[:10])]
        best = [gain / np.log2(rank + 2) for rank, gain in enumerate(sorted(of.values(), reverse=True)[:10])]
        assert ndcg[i] == pytest.approx(sum(gains) / sum(best))
        assert recall[i] == len(of.keys() & set(found)) / len(of)


def test_repairs_are_fitted_to_the_entire_corpus(asked):
    task = task_of(*asked)
    assert [round.fit_rows for round in task.rounds] == [None]
    assert task.rounds[0].examples.tolist() == list(range(12))


def test_new_rows_are_held_out_for_any_judgments(asked):
    documents, queries, relevant = asked
    one, other = (task_of(documents, queries, of, new_rows=True) for of in (relevant, relevant[::-1]))
    for a, b in zip(one.rounds, other.rounds, strict=True):
        np.testing.assert_array_equal(a.fit_rows, b.fit_rows)
        assert a.examples.tolist() == list(range(12))
    assert sorted(np.concatenate([np.setdiff1d(np.arange(60), round.fit_rows) for round in one.rounds])) == [*range(60)]


def test_queries_that_share_a_relevant_document_or_a_vector_are_one_unit(rng):
    documents, queries = rng.standard_normal((200, 4)), rng.standard_normal((60, 4))
    documents[150] = documents[0]
    queries[59] = queries[3]
    relevant = [{i: 1.0} for i in range(60)]
    relevant[10] = {10: 1.0, 1: 1.0}  # shares document 1 with query 1
    relevant[20] = {150: 1.0}  # document 150 equals document 0
    units = Retrieval(rows_of(documents), queries, relevant, "cosine", 5, 0).units.of
    assert units[10] == units[1]
    assert units[20] == units[0]
    assert units[59] == units[3]
    assert len(np.unique(units)) == 57


def test_fewer_documents_than_the_list_length(rng):
    documents = rng.standard_normal((6, 4))
    task = task_of(documents, documents[np.arange(8) % 6], [{i % 6: 1.0} for i in range(8)])
    assert scored(task).tolist() == pytest.approx([1] * 8)
    assert scored(task, "recall@100").tolist() == [1] * 8


def test_equal_documents_are_ranked_randomly(rng):
    documents, queries = np.ones((200, 4)), rng.standard_normal((8, 4))
    first, last = (
        scored(task_of(documents, queries, [{i + start: 1.0} for i in range(8)]), "recall@100").mean()
        for start in (0, 190)
    )
    assert 0.2 <= first <= 0.8  # half of them are in any hundred; by their place it would be all, and none
    assert 0.2 <= last <= 0.8
