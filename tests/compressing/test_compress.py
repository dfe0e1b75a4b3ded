"""compress: the choice, the promise of the saved quantizer, tasks, samples, notes, JSON and bad input."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope.compressing.candidates import build_candidates
from isoscope.compressing.compression import CompressionSettings
from isoscope.compressing.recall import NeighborRecall
from isoscope.compressing.trials import score_candidate, try_candidates
from isoscope.errors import InputError, NotFoundError, ParameterError, ShapeError, TooFewRowsError
from isoscope.stores import open_store

N, D = 600, 24


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((N, D)) * np.linspace(2, 0.5, D) + 0.5).astype(np.float32)


@pytest.fixture(scope="module")
def task(X) -> dict:
    rng = np.random.default_rng(1)
    of = rng.integers(N, size=150)
    queries = X[of] + 0.8 * rng.standard_normal((150, D)).astype(np.float32)
    return {
        "queries": queries,
        "query_ids": [f"q{i}" for i in range(150)],
        "ids": [f"d{i}" for i in range(N)],
        "qrels": {f"q{i}": {f"d{row}": 1} for i, row in enumerate(of)},
    }


@pytest.fixture(scope="module")
def compression(X) -> isoscope.Compression:
    return isoscope.compress(X, keep=0.9)


# without a task


def test_the_choice_is_the_smallest_whose_lower_bound_keeps_the_share(compression):
    keeping = [trial for trial in compression.trials[:-1] if trial["recall@10"].verdict == "keeps"]
    allowed = [trial for trial in keeping if not trial.oversampling]
    assert compression.outcome == "smaller"
    assert compression.choice.bytes == min(trial.bytes for trial in allowed)
    assert compression.choice["recall@10"].low >= 0.9
    assert compression.original.bytes == 4 * D
    assert compression.trials[-1] is compression.original


def test_a_higher_share_needs_as_many_bytes_or_more(X, compression):
    assert isoscope.compress(X, keep=0.98).choice.bytes >= compression.choice.bytes


def test_rescoring_allows_a_smaller_index(X, compression):
    rescored = isoscope.compress(X, keep=0.9, rescore=True)
    assert rescored.choice.bytes <= compression.choice.bytes
    assert compression.rescored_choice is None or compression.rescored_choice.bytes < compression.choice.bytes
    if rescored.choice.oversampling:
        assert rescored.choice.stored == 4 * D


def test_the_saved_quantizer_is_the_scored_one(X, compression, tmp_path, rng):
    """Fresh queries: 2,000 of the same distribution keep the promised share (error rate below 5%; fixed draw)."""
    compression.save(tmp_path / "quantizer")
    loaded = isoscope.load_transform(tmp_path / "quantizer")
    assert loaded.code_size == compression.choice.bytes
    assert np.array_equal(loaded.encode(X), compression.quantizer.encode(X))
    fresh = rng.standard_normal((2000, D)) * np.linspace(2, 0.5, D) + 0.5
    decoded = loaded.transform(X)
    exact = np.argsort(-fresh @ (X / np.linalg.norm(X, axis=1, keepdims=True)).T, axis=1)[:, :10]
    found = np.argsort(-fresh @ (decoded / np.linalg.norm(decoded, axis=1, keepdims=True)).T, axis=1)[:, :10]
    shared = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(exact, found, strict=True)])
    assert shared >= 0.9
    assert shared == pytest.approx(compression.choice["recall@10"].value, abs=0.03)


def test_equal_seeds_give_equal_results(X, compression):
    assert isoscope.compress(X, keep=0.9).to_dict() == compression.to_dict()


def test_wide_vectors_get_candidates_smaller_than_themselves(X):
    result = isoscope.compress(X.astype(np.float64), keep=0.9, precisions=["float32", "float16"])
    assert result.original.bytes == 8 * D
    assert result.choice.name == "float16, PCA 18" or result.choice.bytes <= 2 * D


def test_euclidean_distance(X):
    result = isoscope.compress(X, keep=0.9, metric="euclidean", precisions=["int8", "float16"], dimensions=[12])
    assert result.outcome == "smaller"
    assert result.quantizer.metric == "euclidean"


def test_few_queries_leave_it_undecided(X):
    """25 queries cannot show that 99.9% are kept: the bound allows for 3 unseen losses."""
    result = isoscope.compress(X[:125], keep=0.999, precisions=["float16"], dimensions=[])
    assert result.outcome == "undecided"
    assert result.chosen is None
    assert result.needed is None or result.needed > 25
    assert "25 queries are too few to decide whether anything smaller keeps" in result.headline
    with pytest.raises(NotFoundError, match="nothing to save"):
        result.save("nowhere")


def test_nothing_smaller_is_said(X):
    result = isoscope.compress(X, precisions=["bit"], dimensions=[])
    assert (result.outcome, result.chosen) == ("none", None)
    assert result.headline == "Nothing smaller keeps 99% of recall@10."
    assert result.database_settings == []


def test_zero_rows_and_missing_rows_are_noted(X):
    X = X.copy()
    X[3] = 0
    assert "1 row of zeros was left out" in isoscope.compress(X, precisions=["int8"]).notes[0]
    X[5, 2] = np.nan
    with pytest.raises(isoscope.InputError, match="row 5"):
        isoscope.compress(X)
    result = isoscope.compress(X, precisions=["int8"], missing="drop", zeros="drop")
    assert result.n == N - 2


def test_constant_columns_are_kept(X):
    X = X.copy()
    X[:, 4] = 2.5
    result = isoscope.compress(X, keep=0.9)
    assert result.outcome == "smaller"
    assert not result.left_out


# samples of larger sources


def test_finalists_are_searched_in_all_rows(X, rng):
    """Among more rows, neighbors are closer: recall on all rows is lower than on the sample (wide margin)."""
    many = (rng.standard_normal((6000, 8)) * np.linspace(2, 0.5, 8)).astype(np.float32)
    result = isoscope.compress(many, sample=500, keep=0.8)
    confirmed = [trial for trial in result.trials if trial.whole is not None]
    assert confirmed
    assert all(trial.whole.value <= trial["recall@10"].value + 0.02 for trial in confirmed)
    assert any(trial.whole.value < trial["recall@10"].value - 0.02 for trial in confirmed)
    assert result.chosen is None or result.choice.whole.verdict == "keeps"
    assert result.n == 6000


def confirm_with(recall_of, keep: float = 0.5) -> isoscope.Compression:
    """Return the result for 300 rows, with `recall_of(candidate)` as the recall of every query on all rows."""
    rng = np.random.default_rng(2)
    X = (rng.standard_normal((300, 64)) * np.linspace(2, 0.5, 64)).astype(np.float32)
    settings = CompressionSettings(keep=keep)
    task = NeighborRecall(X, np.arange(300), "cosine", 0)
    candidates = build_candidates(64, 4, "cosine", 0, rows=240, rescored=True)
    trials = try_candidates(task, candidates, keep, 0, lambda *_: None)
    result = isoscope.Compression.of(open_store(X), task, trials, settings, 10_000, None)
    wiggle = 0.05 * np.resize([1, -1], len(task))
    result.confirm(lambda chosen, _: [np.clip(recall_of(each) + wiggle, 0, 1) for each in chosen], trials)
    return result


def test_larger_candidates_are_confirmed_until_one_keeps_the_share():
    """Only float16 keeps the share on all rows, and about 30 smaller candidates of 10 sizes do on the sample."""
    result = confirm_with(lambda each: 0.9 if each.bytes >= 128 else 0.3)
    assert (result.outcome, result.choice.name) == ("smaller", "float16")
    assert sum(trial["recall@10"].verdict == "keeps" for trial in result.trials[:-1]) > 20


def test_nothing_is_left_unconfirmed_before_saying_that_nothing_is_smaller():
    result = confirm_with(lambda each: 0.3)
    assert result.outcome == "none"
    for trial in result.trials[:-1]:
        assert trial.oversampling or trial.whole or trial["recall@10"].verdict == "loses"


def test_needed_examples_are_those_of_all_rows():
    result = confirm_with(lambda each: 0.795, keep=0.8)
    assert (result.outcome, result.chosen) == ("undecided", None)
    whole = [trial.whole.needed for trial in result.trials if trial.whole and not trial.oversampling]
    assert result.needed == max(whole)


def test_larger_rescored_candidates_are_confirmed_too():
    """On all rows, bits of half of the dimensions keep too little, even with rescoring; all bits keep enough."""
    result = confirm_with(lambda each: 0.3 if each.bytes <= 4 else 0.9)
    assert result.rescored_choice is not None
    assert (result.rescored_choice.bytes, result.rescored_choice.whole.verdict) == (8, "keeps")


def test_an_engine_gives_the_same_result(rng):
    pytest.importorskip("distributed")
    X = rng.standard_normal((900, 8)).astype(np.float32)
    options = {"sample": 300, "keep": 0.8, "precisions": ["int8", "float16"]}
    local, cluster = isoscope.compress(X, **options), isoscope.compress(X, engine="dask", **options)
    assert local.to_dict() == cluster.to_dict()


def test_an_engine_reads_the_rows_of_a_task(rng, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("isoscope.engines.dask._MIN_SPAN_BYTES", 2_000)
    X = rng.standard_normal((600, 8)).astype(np.float32)
    options = {"labels": X[:, 0] > 0, "keep": 0.8, "precisions": ["int8"], "dimensions": [4], "sample": 200}
    local, cluster = isoscope.compress(X, **options), isoscope.compress(X, engine="dask", **options)
    assert local.to_dict() == cluster.to_dict()


# tasks


def test_queries_and_judgments_decide(X, task):
    result = isoscope.compress(X, keep=0.95, **task)
    assert (result.measure, result.examples, result.example) == ("ndcg@10", 150, "query")
    assert set(result.choice.scores) == {"ndcg@10", "recall@100"}
    assert result.outcome == "smaller"
    assert result.choice["ndcg@10"].low >= 0.95
    assert not result.choice.oversampling


def test_scores_of_a_task_are_those_of_decoded_documents(X, task):
    """An independent nDCG@10 with one relevant document per query: 1/log2(rank + 1)."""
    result = isoscope.compress(X, precisions=["int4"], dimensions=[6], **task)
    decoded = result["int4 per coordinate, first 6"].quantizer.transform(X)
    similarity = task["queries"] @ (decoded / np.linalg.norm(decoded, axis=1, keepdims=True)).T
    own = np.array([int(next(iter(of))[1:]) for of in task["qrels"].values()])
    rank = (similarity > similarity[np.arange(150), own][:, None]).sum(axis=1)
    expected = np.where(rank < 10, 1 / np.log2(rank + 2), 0).mean()
    assert result["int4 per coordinate, first 6"]["ndcg@10"].value == pytest.approx(expected, abs=1e-6)


def test_rescoring_all_documents_is_exact_search(X, task):
    result = isoscope.compress(X[:100], precisions=["bit"], dimensions=[], **_only_known(task, 100))
    assert result["1 bit, rescored ×10"]["ndcg@10"].value == pytest.approx(result.original["ndcg@10"].value)


def _only_known(task: dict, rows: int) -> dict:
    qrels = {query: of for query, of in task["qrels"].items() if int(next(iter(of))[1:]) < rows}
    qrels |= {f"q{i}": {f"d{i % rows}": 1} for i in range(150) if f"q{i}" not in qrels}
    return {**task, "ids": task["ids"][:rows], "qrels": qrels}


def test_labels_and_pairs_decide(X, rng):
    labels = (X[:, 0] > 0.5).astype(int)
    result = isoscope.compress(X[:300], labels=labels[:300], measure="knn", keep=0.9, precisions=["int8", "bit"])
    assert (result.measure, result.alone, result.example) == ("knn", True, "row")
    assert not any(trial.oversampling for trial in result.trials)
    a, b = rng.integers(N, size=(2, 200))
    result = isoscope.compress(X, pairs=(a, b, -np.linalg.norm(X[a] - X[b], axis=1)), keep=0.9, precisions=["int8"])
    assert (result.measure, result.examples, result.outcome) == ("spearman", 200, "smaller")


def test_bits_are_compared_with_bits(X, task):
    settings = isoscope.advising.task.AdviceSettings()
    inputs = isoscope.advising.task_inputs.TaskInputs(
        X, **{k: task[k] for k in ("queries", "qrels", "ids", "query_ids")}
    )
    store, queries, _ = inputs.open_stores("error", "keep")
    found = inputs.open_task(store, queries, settings, lambda *_: None)
    quantizer = isoscope.Quantizer("bit").fit(X)
    bits = score_candidate(found, quantizer, 0)["ndcg@10"].values.mean()
    both = found.score(quantizer, found.rounds[0])["ndcg@10"].values.mean()
    assert bits == both


# results


def test_dictionary_has_every_part(compression):
    content = compression.to_dict()
    assert content["schema"] == "isoscope.compress/1"
    assert content["choice"] == compression.choice.name
    assert len(content["trials"]) == len(compression.trials)
    assert [each["database"] for each in content["databases"]] == ["pgvector", "Qdrant", "LanceDB", "faiss"]
    assert content["trials"][0]["parameters"]["precision"]
    assert content["trials"][-1]["parameters"] is None


def test_texts_name_the_choice(compression):
    assert compression.choice.name in compression.headline
    assert str(compression).count("bytes per vector instead of") == 1
    assert max(len(line) for line in str(compression).splitlines()) <= 80
    assert compression["as it is"] is compression.original
    with pytest.raises(KeyError, match="choose from"):
        compression["int2"]
    assert repr(compression).startswith("Compression(")


# bad input


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"keep": 0}, ParameterError, "keep"),
        ({"keep": 1.5}, ParameterError, "1.5"),
        ({"keep": float("nan")}, ParameterError, "keep"),
        ({"metric": "dot"}, ParameterError, "dot"),
        ({"sample": 50}, ParameterError, "50"),
        ({"measure": "ndcg@10"}, ParameterError, "recall@10"),
        ({"dimensions": [25]}, ParameterError, r"25.*24"),
        ({"precisions": ["int2"]}, ParameterError, "int2"),
        ({"queries": np.ones((3, D))}, ParameterError, "qrels"),
        ({"seed": -1}, ParameterError, "seed"),
    ],
)
def test_bad_options(options, error, match, X):
    with pytest.raises(error, match=match):
        isoscope.compress(X, **options)


def test_bad_vectors(X):
    with pytest.raises(TooFewRowsError, match="99"):
        isoscope.compress(X[:99])
    with pytest.raises(ShapeError, match="1 dimension"):
        isoscope.compress(X[:, :1])


# hostile input


def test_dropped_rows_of_zeros_are_called_so(rng):
    X = rng.standard_normal((200, 16)).astype(np.float32)
    X[:3] = 0
    X[3] = np.nan
    result = isoscope.compress(X, precisions=["int8"], missing="drop", zeros="drop")
    assert result.notes == ["4 rows with a missing value or of zeros were dropped."]
    assert isoscope.compress(np.delete(X, 3, 0), precisions=["int8"], zeros="drop").notes == [
        "3 rows of zeros were dropped."
    ]


def test_too_few_rows_without_zeros_are_explained(rng):
    X = rng.standard_normal((200, 16)).astype(np.float32)
    X[1:] = 0
    message = r"1 row is too few .* need at least 100\. 199 rows of zeros were left out"
    with pytest.raises(TooFewRowsError, match=message):
        isoscope.compress(X)


def test_nothing_is_claimed_if_no_candidate_can_be_fitted(rng):
    X = rng.standard_normal((200, 16)).astype(np.float32)
    with pytest.raises(InputError, match=r"PQ .*256"):
        isoscope.compress(X, precisions="pq")


def test_one_value_stands_for_a_list(rng):
    X = rng.standard_normal((200, 16)).astype(np.float32)
    result = isoscope.compress(X, precisions="int8", dimensions=np.int64(8))
    assert "int8 per coordinate, first 8" in [trial.name for trial in result.trials]
    for options, match in (({"precisions": 5}, "precision 5"), ({"dimensions": 2.5}, r"dimensions is 2\.5")):
        with pytest.raises(ParameterError, match=match):
            isoscope.compress(X, **options)


def test_large_numbers_are_rejected_for_euclidean_distance(rng):
    X = 1e20 * rng.standard_normal((200, 16)).astype(np.float32)
    with pytest.raises(ParameterError, match="rescale"):
        isoscope.compress(X, metric="euclidean")
    assert isoscope.compress(X).outcome == "smaller"
