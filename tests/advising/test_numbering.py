"""Judgments that refer to rows by number are used only if they cannot count from 1; a note reports them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import isoscope
from isoscope._core.errors import InputError, MissingValueError, NotFoundError, ParameterError

DOCUMENTS, QUERIES = 240, 60


@pytest.fixture
def search(rng):
    """Return a corpus and queries; the relevant documents of a query are near it, and row 0 is never relevant."""
    corpus = rng.standard_normal((DOCUMENTS, 16))
    rows = 1 + np.arange(QUERIES * 3).reshape(QUERIES, 3)
    queries = corpus[rows].mean(axis=1) + 0.3 * rng.standard_normal((QUERIES, 16))
    return corpus, queries, {str(i): {str(row): 1 for row in of} for i, of in enumerate(rows)}


def shifted(qrels, queries=0, documents=0):
    return {str(int(q) + queries): {str(int(d) + documents): r for d, r in of.items()} for q, of in qrels.items()}


def test_row_numbers_are_announced(search):
    corpus, queries, qrels = search
    advice = isoscope.advise(corpus, queries=queries, qrels=qrels, candidates=[])
    assert [note for note in advice.notes if "has no ids" in note] == [
        "array has no ids, so the qrels refer to its rows by number, from 0 to 59.",
        "array has no ids, so the qrels refer to its rows by number, from 0 to 239.",
    ]
    named = isoscope.advise(
        corpus, queries=queries, qrels=qrels, candidates=[], ids=range(DOCUMENTS), query_ids=range(QUERIES)
    )
    assert not [note for note in named.notes if "has no ids" in note]
    assert named.trials[0]["ndcg@10"] == advice.trials[0]["ndcg@10"]


@pytest.mark.parametrize(("by_query", "by_document"), [(0, 1), (1, 0), (1, 1)])
def test_numbers_that_count_from_1_are_refused(search, by_query, by_document):
    corpus, queries, qrels = search
    if by_query:  # without the last query no number is out of range
        qrels = {query: of for query, of in qrels.items() if int(query) < QUERIES - 1}
    off = shifted(qrels, by_query, by_document)
    with pytest.raises(NotFoundError, match="counting from 1 instead of 0 fits the vectors better: pass the ids"):
        isoscope.advise(corpus, queries=queries, qrels=off, candidates=[])
    ids = {"ids": np.arange(DOCUMENTS) + by_document, "query_ids": np.arange(QUERIES) + by_query}
    right = isoscope.advise(corpus, queries=queries, qrels=off, candidates=[], **ids)
    assert right.trials[0]["ndcg@10"].value > 0.5


def test_the_source_whose_numbers_count_from_1_is_named(search):
    corpus, queries, qrels = search
    frame = pd.DataFrame({"embedding": list(corpus)})
    with pytest.raises(NotFoundError, match="refer to rows of data frame by numbers from 2 to 181"):
        isoscope.advise(frame, queries=queries, qrels=shifted(qrels, 0, 1), candidates=[])
    qrels = {query: of for query, of in qrels.items() if int(query) < QUERIES - 1}
    with pytest.raises(NotFoundError, match="refer to rows of array by numbers from 1 to 59"):
        isoscope.advise(frame, queries=queries, qrels=shifted(qrels, 1, 0), candidates=[])


def is_refused(corpus, queries, qrels):
    try:
        isoscope.advise(corpus, queries=queries, qrels=qrels, candidates=[])
    except NotFoundError:
        return True
    return False


def test_numbers_of_unrelated_rows_are_ambiguous(search):
    _, queries, qrels = search
    noise = [np.random.default_rng(run).standard_normal((DOCUMENTS, 16)) for run in range(20)]
    assert sum(is_refused(corpus, queries, qrels) for corpus in noise) >= 17  # noise passes in 2.3% of cases


def test_pairs_that_count_from_1_are_refused(rng):
    corpus = rng.standard_normal((200, 12))
    corpus[1::2] = corpus[::2] + np.linspace(0.1, 3, 100)[:, None] * rng.standard_normal((100, 12))
    first, second, grades = np.arange(2, 198, 2), np.arange(3, 199, 2), -np.linspace(0.1, 3, 98)
    advice = isoscope.advise(corpus, pairs=(first, second, grades), candidates=[])
    assert "by number, from 0 to 199" in advice.notes[0]
    with pytest.raises(NotFoundError, match="counting from 1"):
        isoscope.advise(corpus, pairs=(first + 1, second + 1, grades), candidates=[])


def test_query_ids_need_queries(search):
    with pytest.raises(ParameterError, match="query_ids was passed without queries"):
        isoscope.advise(search[0], query_ids=range(3))


# missing values


def test_missing_labels_and_vectors_are_dropped_and_counted(rng):
    X = rng.standard_normal((200, 8))
    labels = np.array(["a", "b"] * 100, object)
    labels[[3, 50]] = None
    with pytest.raises(MissingValueError, match=r"2 of 200 rows.*--missing drop"):
        isoscope.advise(X, labels=labels, candidates=[])
    X[7] = np.nan
    X[9] = 0
    with pytest.raises(MissingValueError, match=r"first in row 7.*--missing drop"):
        isoscope.advise(X, candidates=[])
    advice = isoscope.advise(X, labels=labels, missing="drop", candidates=[])
    assert advice.n == 197
    assert advice.examples == 197
    assert "3 of 200 rows were dropped: they are incomplete or all zeros." in advice.notes
    assert any(note.startswith("1 row of zeros is included") for note in advice.notes)
    keep = np.setdiff1d(np.arange(200), [3, 7, 50])
    plain = isoscope.advise(X[keep], labels=labels[keep].astype(str), candidates=[])
    assert advice.trials[0]["probe"] == plain.trials[0]["probe"]
    without = isoscope.advise(X, labels=labels, missing="drop", zeros="drop", candidates=[])
    assert without.n == 196
    assert not any("of zeros is" in note for note in without.notes)


def test_judgments_of_incomplete_rows_are_dropped(search):
    corpus, queries, qrels = search
    corpus[[1, 4, 5, 6]] = np.nan  # one of query 0's documents, and all of query 1's
    queries[7] = np.nan
    ids = {"ids": range(DOCUMENTS), "query_ids": range(QUERIES)}
    with pytest.raises(MissingValueError, match="first in row 1"):
        isoscope.advise(corpus, queries=queries, qrels=qrels, candidates=[], **ids)
    advice = isoscope.advise(corpus, queries=queries, qrels=qrels, candidates=[], missing="drop", **ids)
    assert advice.examples == QUERIES - 2
    assert "4 of 240 rows were dropped: they are incomplete or all zeros." in advice.notes
    assert "1 judged query was dropped: it is incomplete or all zeros." in advice.notes


def test_pairs_of_incomplete_rows_are_dropped(rng):
    corpus = rng.standard_normal((100, 8))
    corpus[3] = np.inf
    pairs = [(i, i + 50, i % 7) for i in range(50)]
    advice = isoscope.advise(corpus, pairs=[*pairs, (1, 2, None)], missing="drop", candidates=[])
    assert advice.examples == 49
    assert "1 pair with a missing value was dropped." in advice.notes
    assert "1 pair with a dropped row was dropped." in advice.notes


# ids


def test_shared_ids_are_rejected(search):
    corpus, queries, qrels = search
    ids = np.arange(DOCUMENTS)
    ids[200:] = 5  # query 1 refers to document 5
    with pytest.raises(ParameterError, match="the qrels refer to the id '5', which 41 rows of array share"):
        isoscope.advise(corpus, queries=queries, qrels=qrels, ids=ids, query_ids=range(QUERIES), candidates=[])
    ids[200:] = 239  # nothing refers to these
    isoscope.advise(corpus, queries=queries, qrels=qrels, ids=ids, query_ids=range(QUERIES), candidates=[])


def test_ids_that_a_float_cannot_represent_are_rejected(rng):
    first, second = 2.0**53 + 2 * np.arange(30), 2.0**53 + 2 * np.arange(30, 60)
    ids = [2**53 + i for i in range(60)]
    with pytest.raises(ParameterError, match="the id 9007199254740992 as a float"):
        isoscope.advise(rng.standard_normal((60, 8)), pairs=(first, second, np.arange(30)), ids=ids)


def test_conflicting_judgments_are_rejected(search):
    corpus, queries, qrels = search
    judged = [(query, document, 1) for query, of in qrels.items() for document in of]
    judged.append(judged[0])  # a repetition is no conflict
    ids = {"ids": range(DOCUMENTS), "query_ids": range(QUERIES)}
    isoscope.advise(corpus, queries=queries, qrels=judged, candidates=[], **ids)
    with pytest.raises(ParameterError, match="two relevance grades, 1 and 0, of the document '1' for the query '0'"):
        isoscope.advise(corpus, queries=queries, qrels=[*judged, ("0", "1", 0)], candidates=[], **ids)


def test_rows_without_an_id_are_dropped(search):
    corpus, queries, qrels = search
    frame = pd.DataFrame({"embedding": list(corpus), "id": [str(i) for i in range(DOCUMENTS)]})
    frame.loc[239, "id"] = None
    with pytest.raises(InputError, match="--missing drop"):
        isoscope.advise(frame, queries=queries, qrels=qrels, query_ids=range(QUERIES), candidates=[])
    advice = isoscope.advise(
        frame, queries=queries, qrels=qrels, query_ids=range(QUERIES), candidates=[], missing="drop"
    )
    assert advice.n == DOCUMENTS - 1


def test_a_judgment_on_the_first_line_without_a_relevance_is_no_header(tmp_path, search):
    corpus, queries, qrels = search
    lines = [f"{query}\t{document}\t1" for query, of in qrels.items() for document in of]
    (tmp_path / "q.tsv").write_text("\n".join(["0\t1\tNA", *lines[1:]]))
    ids = {"ids": range(DOCUMENTS), "query_ids": range(QUERIES)}
    with pytest.raises(MissingValueError, match="line 1: the relevance is missing"):
        isoscope.advise(corpus, queries=queries, qrels=tmp_path / "q.tsv", candidates=[], **ids)
    advice = isoscope.advise(corpus, queries=queries, qrels=tmp_path / "q.tsv", candidates=[], missing="drop", **ids)
    assert "1 judgment with a missing value was dropped." in advice.notes
