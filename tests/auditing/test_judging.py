"""Verdicts on data of a known kind, and on degenerate data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import InputError
from tests.conftest import rotation


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: k-means of a small dataset spends most of its time waiting for threads."""
    with threadpool_limits(1):
        yield


def verdicts(found):
    return {finding.name: finding.verdict for finding in found.findings}


def not_ok(found):
    return {name: verdict for name, verdict in verdicts(found).items() if verdict != "ok"}


def ball(n=400, d=32, seed=0, length=1.0):
    """Return isotropic vectors of about this length."""
    return length * np.random.default_rng(seed).standard_normal((n, d)) / np.sqrt(d)


# a cloud that is all right


@pytest.mark.parametrize(("n", "d"), [(400, 32), (1000, 64), (400, 24)])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_isotropic_data_are_ok_in_every_finding(n, d, metric):
    found = isoscope.audit(ball(n, d), queries=ball(100, d, seed=1), metric=metric)
    # Gaussian vectors differ in length, so the metrics rank them differently; by distance they also have hubs
    assert set(not_ok(found)) <= ({"hubness", "norm_spread"} if metric == "euclidean" else {"norm_spread"})
    assert len(found.findings) == 16
    assert found.skipped == {}


def test_isotropic_unit_vectors_are_ok_in_every_finding():
    X = ball(400, 32)
    assert not_ok(isoscope.audit(X / np.linalg.norm(X, axis=1, keepdims=True))) == {}


def test_few_dimensions_are_not_rogue():
    # whether the sum of all shares is 1 or a rounding below decides: several clouds
    found = [isoscope.audit(ball(100, d, seed))["rogue_dimensions"].verdict for d in (2, 3) for seed in range(4)]
    assert set(found) == {"ok"}


def test_few_rows_fill_at_most_as_many_dimensions():
    found = isoscope.audit(ball(20, 60))["effective_rank"]
    assert found.value == pytest.approx(found.judged.null, rel=0.1)
    assert found.verdict == "ok"


def test_the_local_dimension_range_respects_the_number_of_dimensions():
    assert isoscope.audit(ball(400, 8))["intrinsic_dimension"].verdict == "ok"


# clouds with one fault


def test_a_strong_common_mean():
    found = isoscope.audit(ball() + 0.3)
    assert found["mean_cosine"].verdict == "bad"
    assert "Subtract the mean from both the corpus and the queries" in found["mean_cosine"].advice
    assert abs(found["mean_cosine"].details["after_centering"]) < 0.01
    assert found["anisotropy"].verdict == "bad"
    assert "isoscope fix center" in found["anisotropy"].advice
    assert "removing more directions is not needed" in found["anisotropy"].advice
    assert found["isoscore"].verdict == found["rogue_dimensions"].verdict == "ok"
    assert set(not_ok(isoscope.audit(ball() + 0.3 - (ball() + 0.3).mean(axis=0)))) == {"norm_spread"}


def test_one_huge_coordinate():
    X = ball()
    X[:, 7] += 5
    found = isoscope.audit(X)["rogue_dimensions"]
    assert found.verdict == "bad"
    assert found.details["dimensions"] == [7]
    assert found.meaning.startswith("Coordinate 7 alone makes ")


def test_a_few_directions_with_all_the_variance(rng):
    X = (ball(400, 64) * np.r_[[20.0, 10], np.ones(62)]) @ rotation(64, rng)
    found = isoscope.audit(X)
    assert found["isoscore"].verdict == found["anisotropy"].verdict == "bad"
    assert found["effective_rank"].verdict == "bad"
    assert "isoscope fix all-but-the-top" in found["anisotropy"].advice


def test_zero_rows():
    X = ball()
    X[[3, 50]] = 0
    found = isoscope.audit(X)["broken_rows"]
    assert (found.verdict, found.details) == ("look", {"zero": 2, "nonfinite": 0})
    X[:60] = 0
    assert isoscope.audit(X)["broken_rows"].verdict == "bad"


def test_nonfinite_rows():
    X = ball()
    X[[3, 50], 2] = np.nan
    with pytest.raises(InputError, match="row 3"):
        isoscope.audit(X)
    found = isoscope.audit(X, missing="drop")
    assert found.n == 398
    assert (found["broken_rows"].value, found["broken_rows"].details["nonfinite"]) == (2 / 400, 2)
    rest = isoscope.audit(np.delete(X, [3, 50], axis=0))
    assert found["mean_cosine"].value == pytest.approx(rest["mean_cosine"].value)
    assert found["hubness"].value == rest["hubness"].value


@pytest.mark.parametrize(("copies", "verdict"), [(0, "ok"), (3, "ok"), (8, "look"), (60, "bad")])
def test_copies(copies, verdict):
    X = ball()
    X[400 - copies :] = X[:copies]
    found = isoscope.audit(X)["duplicates"]
    assert (found.verdict, found.value, found.details["exact"]) == (verdict, copies / 400, True)


def test_two_distant_round_clusters():
    X = ball()
    X[::2] += 1.5
    found = isoscope.audit(X)["clusters"]
    assert (found.verdict, found.details["n_clusters"]) == ("look", 2)
    assert found.details["isoscore_within"] > 0.9 > found.details["isoscore"]
    assert "isoscope fix cluster-center" in found.advice
    assert found.range == "ok below 0.100, or if random data without clusters has as high a silhouette"


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.0, "ok"), (0.08, "ok"), (0.13, "look"), (0.45, "look"), (0.6, "bad")]
)
def test_partition_function_detects_common_direction_at_any_length(share, verdict):
    X = np.sqrt(1 - share) * ball(1000, 32)
    X += np.sqrt(share / 32)
    found = isoscope.audit(X)["partition_isotropy"]
    assert found.verdict == verdict
    for length in (1e-3, 1e3):
        scaled = isoscope.audit(length * X)["partition_isotropy"]
        assert scaled.verdict == verdict
        assert scaled.value == pytest.approx(found.value, rel=1e-6)
    # a mean that holds a share s of the squared lengths is seen with e^√s from one side and e^−√s from the other
    assert np.log(found.value) == pytest.approx(-2 * np.sqrt(share), abs=0.1)


def test_partition_function_thresholds_equal_those_of_shares():
    found = isoscope.audit(ball(4000, 32))["partition_isotropy"]
    assert found.judged.ok[0] / found.judged.null == pytest.approx(np.exp(-2 * np.sqrt(0.1)))
    assert found.judged.bearable[0] / found.judged.null == pytest.approx(np.exp(-2 * np.sqrt(0.5)))


def test_hubs():
    # of Gaussian rows by distance the central ones are everybody's neighbors
    found = isoscope.audit(ball(600, 200), metric="euclidean")["hubness"]
    assert found.verdict != "ok"
    assert found.details["skewness"] > 2


# labels


FOUR = np.arange(400) % 4


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_clustered_labels_and_shuffled_labels(metric, rng):
    X = ball() + 1.5 * np.eye(32)[FOUR]
    found = isoscope.audit(X, labels=FOUR, metric=metric)["labels"]
    assert found.verdict == "ok"
    shuffled = isoscope.audit(X, labels=rng.permutation(FOUR), metric=metric)["labels"]
    assert shuffled.verdict == "bad"
    assert "check that they belong to these rows" in shuffled.advice


def test_overlapping_labels_are_not_ok():
    X = ball() + 0.25 * np.eye(32)[FOUR]
    X[:, 4] += 3 * np.arange(400) % 7  # a direction that has nothing to do with them
    assert isoscope.audit(X, labels=FOUR)["labels"].verdict in ("look", "bad")


def test_two_random_labels_are_bad():
    assert {isoscope.audit(ball(200, 8), labels=draw)["labels"].verdict for draw in dealt(6)} == {"bad"}


def dealt(draws):
    rng = np.random.default_rng(2)
    return [rng.permutation(np.arange(200) % 2) for _ in range(draws)]


CONFLICT = "label_conflict"


def test_labels_in_the_first_directions_are_a_conflict(rng):
    X = ball() + 1.5 * np.eye(32)[FOUR]
    found = isoscope.audit(X, labels=FOUR)[CONFLICT]
    assert found.verdict == "look"
    assert found.low <= found.value <= found.high
    assert "Do not remove the leading principal components" in found.advice
    assert found.details["isoscore_within_labels"] > found.details["isoscore"]
    assert isoscope.audit(X, labels=rng.permutation(FOUR))[CONFLICT].verdict == "ok"


def test_advice_on_the_mean_holds_when_labels_fill_the_first_directions():
    found = isoscope.audit(ball() + 1.5 * np.eye(32)[FOUR] + 1, labels=FOUR)
    assert found[CONFLICT].verdict == "look"
    assert "Subtract the mean" in found["mean_cosine"].advice
    assert found["anisotropy"].details["centered"][0] < found["anisotropy"].value / 2
    assert "isoscope fix center" in found["anisotropy"].advice, "not the opposite of the advice on the mean cosine"
    assert "all-but-the-top" not in found["anisotropy"].advice


def test_chance_cosine_of_one_is_written_as_near_one():
    line = np.linspace(-1, 1, 200)[:, None] * np.ones((1, 32)) + 0.001 * ball()[:1]
    assert "may have a cosine near 1" in isoscope.audit(line)["isoscore"].meaning


def test_label_share_of_first_directions_matches_definition():
    X = ball() + 1.5 * np.eye(32)[FOUR]
    found = next(f for f in isoscope.audit(X, labels=FOUR).findings if f.name.endswith(CONFLICT))
    top = (X - X.mean(axis=0)) @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3].T
    means = np.stack([top[c == FOUR].mean(axis=0) for c in range(4)])
    assert found.value == pytest.approx((means[FOUR] ** 2).sum() / (top**2).sum())


# types


def test_types_that_cluster_and_types_that_do_not(rng):
    types = np.arange(400) % 20
    X = ball() + ball(20, 32, seed=1)[types]
    found = isoscope.audit(X, types=types)
    assert verdicts(found)["inter_type"] == verdicts(found)["intra_type"] == "ok"
    assert found["intra_type"].judged.null == found["inter_type"].value
    cone = isoscope.audit(ball() + 0.3, types=types)
    assert "within_clusters" not in cone["inter_type"].details  # it is one cluster
    assert cone["inter_type"].verdict == "bad"
    for types in (np.arange(400), np.zeros(400, int)):
        assert (
            "need at least two types, one of them with at least two rows"
            in isoscope.audit(X, types=types).skipped["types"]
        )


# queries


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("sample", [100, 1000])
def test_queries_from_the_corpus_and_from_elsewhere(metric, sample):
    corpus = ball(400, 16) + 0.3
    for queries, verdict in [(ball(200, 16, seed=1) + 0.3, "ok"), (ball(200, 16, seed=1) - 0.3, "bad")]:
        found = isoscope.audit(corpus, queries=queries, metric=metric, sample=sample)["queries"]
        assert found.verdict == verdict
        assert 0 <= found.low <= found.value <= found.high + 1e-12 <= 1 + 1e-12  # 1 up to rounding
    assert found.details["cosine_of_means"] < -0.9


# edges


def test_four_rows_of_two_dimensions_are_enough(rng):
    assert len(isoscope.audit(rng.standard_normal((4, 2))).findings) > 8


@pytest.mark.parametrize(("n", "d"), [(5, 2), (6, 3), (12, 4), (12, 40), (17, 300)])
def test_small_data_are_audited(n, d, rng):
    found = isoscope.audit(rng.standard_normal((n, d)), labels=np.arange(n) % 2, queries=rng.standard_normal((3, d)))
    assert {"mean_cosine", "effective_rank", "hubness", "labels", "queries"} <= set(verdicts(found))
    assert ("isoscore" in found) == (n >= 10)
    assert all(np.isfinite(f.value) for f in found.findings)


def test_identical_rows():
    found = isoscope.audit(np.full((50, 8), 0.3))
    assert found["mean_cosine"].value == pytest.approx(1)
    assert found["mean_cosine"].verdict == found["duplicates"].verdict == "bad"
    assert "all 50 rows are equal" in found.skipped["isoscore"]
    assert "too few distinct rows" in found.skipped["clusters"]
    assert found.skipped["two_nn"] == "every row has a duplicate: the dimension is undefined"
    assert "After centering, no variance remains." in found["anisotropy"].meaning


def test_identical_rows_have_one_direction():
    assert isoscope.audit(np.full((50, 8), 0.3))["anisotropy"].value == pytest.approx(1)


@pytest.mark.parametrize("length", [1e-3, 1e15])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_verdicts_do_not_depend_on_vector_length(length, dtype):
    plain, scaled = (isoscope.audit((scale * ball()).astype(dtype)) for scale in (1, length))
    for finding in plain.findings:
        assert scaled[finding.name].verdict == finding.verdict, finding.name
        assert scaled[finding.name].value == pytest.approx(finding.value, rel=2e-3, abs=1e-6), finding.name


@pytest.mark.parametrize(
    ("length", "dtype"),
    [
        (1e-30, "float32"),
        (1e-30, "float64"),
    ],
)
def test_tiny_vectors_get_the_same_verdicts(length, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, scaled = (isoscope.audit((scale * ball()).astype(dtype)) for scale in (1, length))
    assert scaled["clusters"].value == pytest.approx(plain["clusters"].value, rel=0.1)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int64", "uint8", ">f4", ">f8"])
def test_every_dtype_is_audited_with_its_exact_values(dtype):
    X = (20 * ball(150, 8) + 40).astype(dtype)
    found, expected = isoscope.audit(X), isoscope.audit(X.astype(np.float64))
    for finding in expected.findings:
        assert found[finding.name].value == pytest.approx(finding.value, rel=5e-3, abs=1e-6), finding.name


# what a stranger met


def test_few_long_rows_are_reported():
    X = ball(2000, 64)
    X[0] *= 1e5
    found = isoscope.audit(X)["isoscore"]
    assert found.verdict == "bad"
    assert "few long rows" in found.meaning
    assert found.value == found.details["as_published"] < 0.01


def test_centering_is_advised_only_where_it_helps():
    X = ball(2000, 32) + 0.5
    X[:5] *= 1e4
    advice = isoscope.audit(X)["mean_cosine"].advice
    assert "isoscope fix" not in advice
    assert "Check the longest rows" in advice


@pytest.mark.parametrize("scale", [1, 5, 30])
def test_noise_of_any_length_has_no_preferred_direction(scale):
    for seed in range(6):
        X = scale * np.random.default_rng(seed).standard_normal((1000, 64))
        assert isoscope.audit(X)["partition_isotropy"].verdict == "ok"


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_elongated_data_are_not_two_clusters(power):
    X = ball(1500, 64) * np.arange(1, 65) ** (-power / 2)
    found = isoscope.audit(X)["clusters"]
    assert found.details["n_clusters"] == 1
    assert found.verdict == "ok"
    assert found.value > 0.1
    assert found.range == "ok: random data without clusters has as high a silhouette"


@pytest.mark.parametrize("rows", [5, 10, 12, 20, 40])
@pytest.mark.parametrize("d", [64, 384])
def test_few_isotropic_rows_fill_as_many_dimensions_as_they_can(rows, d):
    for seed in range(4):
        found = isoscope.audit(np.random.default_rng(seed).standard_normal((rows, d)))
        assert found["effective_rank"].verdict == "ok"
        assert found["effective_rank"].judged.null < rows - 1


def test_isoscore_of_too_few_rows_is_not_judged():
    rng = np.random.default_rng(0)
    assert "9 rows are too few" in isoscope.audit(rng.standard_normal((9, 384))).skipped["isoscore"]
    found = isoscope.audit(np.random.default_rng(0).standard_normal((10, 2)))
    assert "contains all values from 0 to 1" in found.skipped["isoscore"]
    assert "isoscore" not in found
    assert "isoscore" in isoscope.audit(rng.standard_normal((30, 384)))


def test_queries_are_not_outside_a_corpus_with_copies():
    X = ball(1000, 16)
    twice = np.concatenate([X, X])
    fresh = np.random.default_rng(9).standard_normal((200, 16))
    assert isoscope.audit(twice, queries=fresh)["queries"].verdict == "ok"


def test_hubs_among_copies_are_not_judged():
    found = isoscope.audit(np.repeat(ball(100, 16), 5, axis=0))
    assert "hubness" not in found
    assert "arbitrary" in found.skipped["hubness"]


def test_tokens_within_clusters_have_low_similarity():
    X = np.concatenate([ball() + 2, ball(seed=1) + 2 * (-1) ** np.arange(32)])
    types, cluster = np.random.default_rng(2).integers(0, 50, 800), np.repeat([0, 1], 400)
    found = isoscope.audit(X, types=types)
    assert found["clusters"].details["n_clusters"] == 2
    for name, measure in (("inter_type", isoscope.inter_similarity), ("intra_type", isoscope.intra_similarity)):
        adjusted = found[name].details["within_clusters"]
        assert adjusted == pytest.approx(float(measure(X, types, clustered=cluster)), abs=1e-9)
        assert abs(adjusted) < 0.02 < abs(found[name].value)


def test_local_dimension_ignores_rows_with_mostly_copies():
    copied = np.repeat(ball(10, 8, seed=1), 60, axis=0)
    mixed = isoscope.audit(np.concatenate([ball(300, 8), copied]))["intrinsic_dimension"]
    assert mixed.details["without_estimate"] == 600
    assert "intrinsic_dimension" not in isoscope.audit(copied)
