"""Chart data: each array contains what its name says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

import isoscope
from isoscope.auditing.findings.frequency import token_kinds


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: k-means of a small dataset spends most of its time waiting for threads."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def X(rng):
    return rng.standard_normal((300, 8)) / np.sqrt(np.arange(1, 9)) + 0.3


@pytest.mark.parametrize("shape", [(300, 8), (20, 50), (40, 2)])
def test_spectra_are_shares_that_sum_to_one(rng, shape):
    X = rng.standard_normal(shape) + 0.3
    found = isoscope.audit(X).pictures
    np.testing.assert_allclose(found.spectrum_raw[:2], isoscope.anisotropy(X, 2), rtol=1e-7)
    np.testing.assert_allclose(found.spectrum_centered[:2], isoscope.anisotropy(X, 2, center=True), rtol=1e-7)
    for shares in (found.spectrum_raw, found.spectrum_centered, found.spectrum_null):
        assert shares.shape == (shape[1],)
        assert shares.sum() == pytest.approx(1)


def test_cosines_are_densities_over_the_visible_range(X):
    found = isoscope.audit(X).pictures
    width = np.diff(found.cosine_edges)
    expected, _ = np.histogram(1 - pdist(X, "cosine"), found.cosine_edges, density=True)
    np.testing.assert_allclose(found.cosines, expected, atol=0.02 * expected.max())
    for density in (found.cosines, found.cosine_null, found.nearest_cosines):
        assert (density * width).sum() == pytest.approx(1, abs=0.02)


def test_nearest_cosines_are_omitted_for_euclidean_neighbors(X):
    assert isoscope.audit(X, metric="euclidean").pictures.nearest_cosines is None


def test_nearest_cosines_of_duplicates_are_drawn(rng):
    X = np.repeat(rng.standard_normal((50, 6)).astype(np.float32), 2, axis=0)
    found = isoscope.audit(X).pictures
    assert (found.nearest_cosines * np.diff(found.cosine_edges)).sum() == pytest.approx(1)


def test_points_are_projected_with_their_text_and_labels(X):
    text = ["a  word\n" * 60] * 300
    found = isoscope.audit(X, labels=np.arange(300) % 3, types=np.arange(300) // 30, text=text, sample=120).pictures
    assert found.points.shape == (120, 3)
    Y = X - X.mean(axis=0)
    directions = np.linalg.svd(Y, full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(found.points), np.abs(Y[found.rows] @ directions.T), atol=1e-8)
    np.testing.assert_allclose(found.explained_variance, isoscope.anisotropy(X, 3, center=True))
    np.testing.assert_allclose(found.lengths, np.linalg.norm(X[found.rows], axis=1))
    assert found.label_names == ["0", "1", "2"]
    np.testing.assert_array_equal(found.labels, found.rows % 3)
    np.testing.assert_array_equal(found.frequency, np.full(120, 30))
    assert all(len(entry) == 160 and entry.endswith("…") and "\n" not in entry for entry in found.text)


def test_clusters_are_codes_of_the_points(rng):
    X = rng.standard_normal((200, 8)) / 3
    X[:60] += 3
    found = isoscope.audit(X, sample=150).pictures
    assert set(found.clusters.tolist()) == {0, 1}
    assert len(set(zip(found.clusters.tolist(), (found.rows < 60).tolist(), strict=True))) == 2
    assert isoscope.audit(rng.standard_normal((200, 40))).pictures.clusters is None


def test_kinds_come_from_types_or_words(X):
    tokens = np.asarray(["[CLS]", "swim", "##ming", ",", "1984"] * 60)
    found = isoscope.audit(X, types=tokens, text=["a whole sentence"] * 300, sample=120).pictures
    np.testing.assert_array_equal(found.kinds, token_kinds(tokens)[found.rows])
    words = np.asarray(["swim", "12", "."] * 100)
    found = isoscope.audit(X, text=words, sample=120).pictures
    np.testing.assert_array_equal(found.kinds, token_kinds(words)[found.rows])


@pytest.mark.parametrize("columns", [{}, {"types": np.arange(300) // 3}, {"text": ["a whole sentence"] * 300}])
def test_rows_without_tokens_have_no_kinds(X, columns):
    assert isoscope.audit(X, **columns).pictures.kinds is None
    assert isoscope.audit(X, text=["word", "other"] * 150).pictures.kinds is None  # all of one kind


def test_coordinates_have_means_and_standard_deviations(X):
    X[:, 5] += 9
    found = isoscope.audit(X).pictures
    np.testing.assert_allclose(found.activation_mean, X.mean(axis=0))
    np.testing.assert_allclose(found.activation_spread, X.std(axis=0, ddof=1))
    assert found.rogue_dimensions == [5]


def test_bars_equal_those_of_rows_under_the_metric(X):
    found = isoscope.audit(X).pictures
    expected = np.sort(isoscope.h0_barcode(X / np.linalg.norm(X, axis=1, keepdims=True)))[::-1]
    np.testing.assert_allclose(found.bars, expected, rtol=1e-7)
    assert found.bar_rows == 300
    assert found.n_significant_bars == len(isoscope.metrics.select_bars(expected))


def test_two_dimensional_data_have_zero_third_coordinate(rng):
    found = isoscope.audit(rng.standard_normal((40, 2))).pictures
    assert (found.points[:, 2] == 0).all()
    assert found.explained_variance[2] == 0


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("sample", [20_000, 120])
def test_neighbors_are_the_nearest_drawn_points_in_the_full_space(X, metric, sample):
    X[7] = 0  # has no cosine
    found = isoscope.audit(X, metric=metric, sample=sample).pictures
    drawn = X[found.rows]
    if metric == "cosine":
        usable = drawn.any(axis=1)
        drawn = drawn / np.where(usable, np.linalg.norm(drawn, axis=1), 1)[:, None]
    else:
        usable = np.ones(len(drawn), bool)
    distances = squareform(pdist(drawn))
    np.fill_diagonal(distances, np.inf)
    distances[:, ~usable] = np.inf
    expected = np.argsort(distances, axis=1)[:, :10]
    assert found.neighbor_metric == metric
    np.testing.assert_array_equal(found.neighbors[usable], expected[usable])
    assert (found.neighbors[~usable] == -1).all()
    nearest = np.take_along_axis(distances, expected, 1)
    scores = 1 - nearest**2 / 2 if metric == "cosine" else nearest
    np.testing.assert_allclose(found.neighbor_scores[usable], scores[usable], atol=1e-6)


def test_points_have_the_ids_of_their_rows(X):
    ids = np.array([f"id {i}" for i in range(300)])
    found = isoscope.audit(X, ids=ids, sample=120).pictures
    assert found.ids.tolist() == ids[found.rows].tolist()
    grouped = isoscope.audit(X, ids=ids, by=np.arange(300) % 2)
    for group in grouped.groups.values():
        assert group.pictures.ids.tolist() == ids[group.pictures.rows].tolist()
    assert isoscope.audit(X).pictures.ids is None
