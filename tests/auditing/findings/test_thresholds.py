"""Values just below and just above every threshold, so that changing a constant fails a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import silhouette_samples
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

import isoscope

N = 400
FINDINGS = (Path(__file__).parents[3] / "docs" / "findings.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def ball(n=N, d=32, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) / np.sqrt(d)


# shares of rows, on the number of rows next to the threshold


@pytest.mark.parametrize(("copies", "verdict"), [(3, "ok"), (4, "look"), (39, "look"), (40, "bad")])
def test_duplicates_are_look_at_1_percent_and_bad_at_10_percent(copies, verdict):
    X = ball()
    X[N - copies :] = X[:copies]
    assert isoscope.audit(X)["duplicates"].verdict == verdict


@pytest.mark.parametrize(("zeros", "verdict"), [(0, "ok"), (1, "look"), (39, "look"), (40, "bad")])
def test_zero_rows_are_look_at_one_row_and_bad_at_10_percent(zeros, verdict):
    X = ball()
    X[:zeros] = 0
    assert isoscope.audit(X)["broken_rows"].verdict == verdict


@pytest.mark.parametrize(("near", "verdict"), [(3, "ok"), (4, "look"), (39, "look"), (40, "bad")])
def test_near_duplicates_are_look_at_1_percent_and_bad_at_10_percent(near, verdict):
    X = ball()
    X[:near] = X[0] + 1e-4 * X[:near]
    found = isoscope.audit(X)["near_duplicates"]
    assert (found.details["rows"], found.verdict) == (near, verdict)


# the ranges of findings whose value cannot be set by hand


@pytest.fixture(scope="module")
def found():
    labels, types = np.arange(N) % 4, np.arange(N) % 50
    with threadpool_limits(1):
        return isoscope.audit(ball(), labels=labels, types=types, queries=ball(80, seed=1), frequency=np.arange(N) + 1)


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        (name, value, verdict)
        for name in ("queries", "frequency", "inter_type", "mean_cosine", "hubness")
        for value, verdict in [(0.0999, "ok"), (0.1, "look"), (0.4999, "look"), (0.5, "bad")]
    ]
    + [
        (name, value, verdict)
        for name in ("duplicates", "near_duplicates")
        for value, verdict in [(0.00999, "ok"), (0.01, "look"), (0.0999, "look"), (0.1, "bad")]
    ]
    + [("norm_spread", 0.9, "ok"), ("norm_spread", 0.8999, "look"), ("norm_spread", 0.0, "look")]
    + [("label_conflict", 0.4999, "ok"), ("label_conflict", 0.5, "look"), ("label_conflict", 1.0, "look")],
)
def test_shares_are_look_at_10_percent_and_bad_at_50_percent(found, name, value, verdict):
    assert found[name].judged.verdict(value) == verdict


def test_tokens_of_one_type_are_at_least_as_similar_as_tokens_of_different_types(found):
    inter = found["inter_type"].value
    judged = found["intra_type"].judged
    assert (judged.verdict(inter), judged.verdict(np.nextafter(inter, -1))) == ("ok", "bad")


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_labels_are_bad_up_to_four_standard_errors_above_shuffled_ones(metric):
    X, labels = ball(60, 4), np.arange(60) % 2
    found = isoscope.audit(X, labels=labels, metric=metric)["labels"]
    dealt = silhouette_samples(X, np.random.default_rng(0).permutation(labels), metric=metric)
    limit = dealt.mean() + 4 * dealt.std(ddof=1) / np.sqrt(60)
    assert limit > 0.02
    assert found.judged.verdict(limit * 0.999) == "bad"
    assert found.judged.verdict(limit * 1.001) == "ok"  # above 0 there is nothing between bad and ok


def test_negative_label_silhouettes_are_look_if_shuffled_are_lower():
    # many labels: shuffled ones are far below 0
    found = isoscope.audit(ball(400, 2), labels=np.arange(400) % 20)["labels"]
    assert found.judged.bearable[0] < -0.01
    assert [found.judged.verdict(value) for value in (-1e-9, 0.0)] == ["look", "ok"]


@pytest.mark.parametrize(("labels", "limit"), [(2, 0.5), (15, 0.5), (20, 2 * 19 / 59)])
def test_label_conflict_starts_at_one_half_or_twice_the_share_of_shuffled_labels(labels, limit):
    judged = isoscope.audit(ball(60, 4), labels=np.arange(60) % labels)["label_conflict"].judged
    assert (judged.verdict(limit - 1e-6), judged.verdict(limit + 1e-6)) == ("ok", "look")


@pytest.mark.parametrize(
    ("n", "d", "look", "bad"),
    [
        (400, 32, 1 + 0.5 * 31, 1 + 0.1 * 31),  # half and a tenth of the dimensions
        (200, 300, 8 * np.log(200), 2 * np.log(200)),  # a cosine of 1/2 and of 1 by chance
    ],
)
def test_effective_rank_is_judged_by_dimensions_and_rows(n, d, look, bad):
    judged = isoscope.audit(ball(n, d))["effective_rank"].judged
    verdicts = [judged.verdict(value) for value in (look, look * (1 - 1e-9), bad, bad * (1 - 1e-9))]
    assert verdicts == ["ok", "look", "look", "bad"]


def test_local_dimension_is_judged_by_half_and_eleven_tenths_of_the_limits_of_random_samples(found):
    judged, null = found["intrinsic_dimension"].judged, np.asarray(found["intrinsic_dimension"].details["null"])
    error = null.std(ddof=1) * np.sqrt(1 + 1 / len(null))  # of one more sample
    low, high = stats.t(len(null) - 1, null.mean(), error).interval(0.95)
    assert judged.ok == pytest.approx((0.5 * low, 1.1 * high), rel=1e-9)
    assert judged.bearable == (1.0, np.inf)


@pytest.mark.parametrize(("copies", "left_out"), [(21, 0), (22, 22)])
def test_rows_have_a_local_dimension_if_half_of_their_40_neighbors_are_not_copies(copies, left_out):
    X = ball()
    X[:copies] = X[0]
    details = isoscope.audit(X)["intrinsic_dimension"].details
    assert (details["k"], details["without_estimate"]) == (40, left_out)


@pytest.mark.parametrize(("pairs", "measured"), [(20, True), (21, False)])
def test_hubness_is_measured_if_at_most_10_percent_of_rows_have_copies(pairs, measured):
    X = ball()
    X[N - pairs :] = X[:pairs]
    found = isoscope.audit(X)
    assert ("hubness" in found) == measured
    assert ("duplicates" in found.skipped.get("hubness", "")) == (not measured)


def test_hubness_of_rows_with_equal_distances_is_not_measured():
    assert "100% of rows" in isoscope.audit(np.eye(60), metric="euclidean").skipped["hubness"]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_queries_are_outside_beyond_tenth_neighbor_of_99_percent_of_rows(metric):
    X, queries = ball(), ball(80, seed=1)
    found = isoscope.audit(X, queries=queries, metric=metric)["queries"]
    if metric == "cosine":
        X, queries = (Y / np.linalg.norm(Y, axis=1, keepdims=True) for Y in (X, queries))
    search = NearestNeighbors(n_neighbors=10).fit(X)
    own = search.kneighbors()[0][:, -1]
    limit = np.quantile(own, 0.99)
    assert found.details["limit"] == pytest.approx(limit, rel=1e-6)
    assert found.value == (search.kneighbors(queries)[0][:, -1] > limit).mean()


# what the documentation says


@pytest.mark.parametrize(
    "words",
    [
        "the verdict is *look* at one in ten or more, and *bad* at one in two or more",
        "the verdict is *look* at one in a hundred or more, and *bad* at one in ten or more",
        "**look** at 0.1 or more, **bad** at 0.5 or more",
        "**look** below 0.9, that is, if more than one result in ten differs. It is never **bad**",
        "**look** if at least one row is zero or non-finite, and **bad** if at least one row in ten is",
        "its distance is below 3% of the typical distance",
        "false discovery rate of 5%",
        "within 1% of the typical distance",
        "99% of the rows are from theirs",
        "**look** below 0. It is **bad** below the silhouette that shuffled labels reach (mean + 4 standard errors",
        "At one half or more, these components mainly separate the labels, and the verdict is **look**",
    ],
)
def test_the_documentation_names_the_thresholds(words):
    assert " ".join(words.split()) in " ".join(FINDINGS.split())
