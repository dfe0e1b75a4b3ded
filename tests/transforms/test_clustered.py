"""Repairs by cluster: properties of their output, the authors' numbers, and clusters of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

import isoscope
from isoscope import AllButTheTop, Center, ClusterCenter, ClusterNull, InputError, Sketch
from isoscope.errors import ParameterError
from isoscope.metrics.clusters import run_lloyd
from isoscope.transforms.clustered import first_directions
from tests.conftest import rotation, tolerance
from tests.transforms.conftest import CLUSTERED, Labelled, clustered_cloud

torch = pytest.importorskip("torch")
clustered = pytest.mark.parametrize("repair", CLUSTERED, ids=repr)


def shares(codes: np.ndarray) -> set[frozenset[int]]:
    """Return a clustering independently of the numbers of its clusters."""
    return {frozenset(np.flatnonzero(codes == code).tolist()) for code in np.unique(codes)}


# what must hold


@clustered
def test_each_cluster_of_the_corpus_has_mean_zero(repair, clusters):
    repair = clone(repair).fit(clusters)
    Y, codes = repair.transform(clusters), repair.predict(clusters)
    assert set(codes) == set(range(repair.n_clusters_))
    for code in range(repair.n_clusters_):
        np.testing.assert_allclose(Y[codes == code].mean(axis=0), 0, atol=1e-10)


@pytest.mark.parametrize("clusterer", ["kmeans", "gmm"])
def test_each_cluster_loses_its_own_top_directions(clusterer, rng):
    X = clustered_cloud(rng, d=40)
    repair = ClusterNull(3, 2, clusterer=clusterer, random_state=0).fit(X)
    Y, codes = repair.transform(X), repair.predict(X)
    assert repair.components_.shape == (3, 2, 40)
    for code, V in enumerate(repair.components_):
        rows = X[codes == code]
        np.testing.assert_allclose(V @ V.T, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(Y[codes == code] @ V.T, 0, atol=1e-10)
        np.testing.assert_allclose(Y[codes == code], AllButTheTop(2).fit_transform(rows), atol=1e-9)


def test_one_cluster_equals_the_global_repair(clusters):
    for clusterer in ("kmeans", "gmm"):
        center = ClusterCenter(1, clusterer=clusterer).fit_transform(clusters)
        np.testing.assert_allclose(center, Center().fit_transform(clusters), atol=1e-10)
        null = ClusterNull(1, 3, clusterer=clusterer).fit_transform(clusters)
        np.testing.assert_allclose(null, AllButTheTop(3).fit_transform(clusters), atol=1e-10)


def test_zero_components_only_center_clusters(clusters):
    a = ClusterNull(3, 0, random_state=0).fit_transform(clusters)
    np.testing.assert_array_equal(a, ClusterCenter(3, random_state=0).fit_transform(clusters))


@pytest.mark.parametrize("clusterer", ["kmeans", "gmm"])
def test_well_separated_clusters_are_found(clusterer, clusters):
    found = ClusterCenter(3, clusterer=clusterer, random_state=1).fit(clusters).predict(clusters)
    assert shares(found) == shares(np.arange(300) % 3)


def test_clusters_of_many_rows_are_as_tight_as_those_of_scikit_learn(rng):
    """k-means starts on a quarter of the rows; ours and scikit-learn's best of five runs are within 3%."""
    X = rng.standard_normal((4000, 12)) + rng.standard_normal((30, 12))[rng.integers(0, 30, 4000)]
    ours = min(
        float(np.sum(np.asarray(ClusterCenter(12, random_state=seed).fit_transform(X)) ** 2)) for seed in range(5)
    )
    assert ours < 1.03 * KMeans(12, n_init=5, random_state=0).fit(X).inertia_


def test_auto_finds_number_of_clusters_and_one_without_structure(clusters, rng):
    assert ClusterCenter(random_state=0).fit(clusters).n_clusters_ == 3
    ball = rng.standard_normal((200, 16))
    one = ClusterCenter(random_state=0).fit(ball)
    assert one.n_clusters_ == 1
    np.testing.assert_allclose(one.transform(ball), ball - ball.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("offset", [0, 1e5])
@pytest.mark.parametrize("scale", [1e-5, 1, 1e5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clusterer", ["kmeans", "gmm"])
def test_clusters_do_not_depend_on_mean_or_scale(clusterer, dtype, scale, offset, clusters):
    X = (scale * clusters + scale * offset).astype(dtype)
    found = ClusterCenter(3, clusterer=clusterer, random_state=0).fit(X).predict(X)
    assert shares(found) == shares(np.arange(300) % 3)


@clustered
def test_seed_makes_fit_deterministic(repair, clusters):
    a, b = (clone(repair).set_params(random_state=5).fit(clusters) for _ in range(2))
    np.testing.assert_array_equal(a.predict(clusters), b.predict(clusters))
    np.testing.assert_array_equal(a.transform(clusters), b.transform(clusters))
    state = np.random.RandomState(5)
    c = clone(repair).set_params(random_state=state).fit(clusters)
    np.testing.assert_array_equal(a.transform(clusters), c.transform(clusters))


def test_tensors_are_assigned_like_arrays(clusters):
    repair = ClusterCenter(3, clusterer="gmm", random_state=0).fit(clusters)
    expected = repair.predict(clusters)
    np.testing.assert_array_equal(repair.predict(torch.tensor(clusters, requires_grad=True)), expected)
    np.testing.assert_array_equal(repair.predict(torch.tensor(clusters).bfloat16()), expected)


# what others compute


@pytest.mark.parametrize("case", ["d768_n71_k2_pc3", "d32_n500_k4_pc0", "d32_n300_k1_pc2_global"])
def test_results_equal_the_published_notebook(case, vectors):
    arrays, _ = vectors("rajaee_nulls")
    X, labels, expected = (arrays[f"{case}_{part}"] for part in ("X", "labels", "out"))
    X = X.astype(np.float64)
    k = int(case.split("_pc")[1][0])
    repair = ClusterNull(n_components=k, clusterer=Labelled(X, labels)).fit(X)
    assert repair.n_clusters_ == len(np.unique(labels))
    np.testing.assert_allclose(repair.transform(X), expected, rtol=0, atol=1e-10)


def test_small_clusters_that_crash_the_notebook_lose_all_directions(vectors):
    arrays, published = vectors("rajaee_nulls")
    case = "d16_n40_k10_pc8_smallclusters"
    assert "IndexError" in published[case]["error"]
    X, labels = arrays[f"{case}_X"], arrays[f"{case}_labels"]
    repair = ClusterNull(n_components=8, clusterer=Labelled(X, labels)).fit(X)
    Y = repair.transform(X)
    for code, label in enumerate(np.unique(labels)):
        rows = X[labels == label] - X[labels == label].mean(axis=0)
        rank = min(8, len(rows) - 1)
        V = repair.components_[code]
        np.testing.assert_allclose(V @ V.T, np.diag(np.arange(8) < rank), atol=1e-12)
        top = np.linalg.svd(rows)[2][:rank]
        np.testing.assert_allclose(Y[labels == label], rows - rows @ top.T @ top, atol=1e-10)
        if rank < 8:
            np.testing.assert_allclose(Y[labels == label], 0, atol=1e-10)


def test_mixtures_assign_like_scikit_learn(clusters, rng):
    X = clusters + 2 * rng.standard_normal(clusters.shape)
    repair = ClusterCenter(4, clusterer="gmm", random_state=0).fit(X)
    mixture = GaussianMixture(4, covariance_type="diag")
    mixture.means_, mixture.precisions_ = repair.centers_, repair.precisions_
    mixture.precisions_cholesky_ = np.sqrt(repair.precisions_)
    logs = repair.offsets_ - 0.5 * np.log(repair.precisions_).sum(axis=1)
    mixture.weights_ = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    queries = 10 * rng.standard_normal((500, 8))
    np.testing.assert_array_equal(repair.predict(queries), mixture.predict(queries))


def test_k_means_assigns_to_the_nearest_center(clusters, rng):
    repair = ClusterCenter(5, random_state=0).fit(clusters)
    queries = 10 * rng.standard_normal((500, 8))
    apart = np.linalg.norm(queries[:, None, :] - repair.centers_, axis=2)
    np.testing.assert_array_equal(repair.predict(queries), apart.argmin(axis=1))


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (2, 5)])
def test_top_directions_equal_those_of_svd(shape, rng):
    rows = rng.standard_normal(shape) @ np.diag(2.0 ** -np.arange(shape[1]))
    rows -= rows.mean(axis=0)
    k = min(3, shape[0] - 1)
    V, expected = first_directions(rows, 3), np.linalg.svd(rows)[2][:k]
    np.testing.assert_allclose(V.T @ V, expected.T @ expected, atol=1e-9)


def test_small_directions_of_a_wide_cluster_are_orthogonal_to_large_ones(rng):
    rows = np.diag(10.0 ** -np.arange(8)) @ rotation(40, rng)[:8]
    V = first_directions(rows - rows.mean(axis=0), 7)
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-12)


@pytest.mark.parametrize("shape", [(300, 40), (60, 200)])
@pytest.mark.parametrize("least", [0.5, 2e-3, 1e-6])
def test_top_directions_of_float32_rows_contain_the_same_variance(shape, least, rng):
    scales = np.append(np.geomspace(1, least, 6) ** 0.5, np.full(shape[1] - 6, 0.1 * least**0.5))
    rows = rng.standard_normal(shape) * scales @ rotation(shape[1], rng)
    rows = (rows - rows.mean(axis=0)).astype(np.float32)
    V, exact = first_directions(rows, 6), np.linalg.svd(rows.astype(float))[2][:6]
    along, expected = (((rows.astype(float) @ found.T) ** 2).sum(axis=0) for found in (V, exact))
    np.testing.assert_allclose(along, expected, rtol=tolerance(np.float32))
    np.testing.assert_allclose(V @ V.T, np.eye(6), atol=1e-12)


# clusterers of the user's own


def test_any_estimator_with_fit_and_predict_is_accepted(clusters):
    own = KMeans(3, n_init=1, random_state=0)
    repair = ClusterNull(n_components=2, clusterer=own).fit(clusters)
    assert repair.n_clusters_ == 3
    assert not hasattr(own, "cluster_centers_")
    expected = ClusterNull(3, 2, random_state=0).fit_transform(clusters)
    np.testing.assert_allclose(repair.transform(clusters), expected, atol=1e-10)
    np.testing.assert_allclose(repair.transform(torch.tensor(clusters)).numpy(), expected, atol=1e-10)


class BySign:
    """A clusterer whose clusters have names, based on the first coordinate only."""

    def fit(self, X):
        return self

    def predict(self, X):
        return np.where(X[:, 0] > 100, "far", np.where(X[:, 0] > 0, "right", "left"))


def test_query_in_unseen_cluster_uses_the_nearest_mean(clusters):
    repair = ClusterCenter(clusterer=BySign()).fit(clusters)
    assert list(repair.clusters_) == ["left", "right"]
    queries = np.concatenate([clusters[:3], clusters[:2] + 1000 * np.eye(8)[0]])
    found = repair.predict(queries)
    np.testing.assert_array_equal(found[3:], 1)
    np.testing.assert_array_equal(found[:3], clusters[:3, 0] > 0)
    np.testing.assert_allclose(repair.transform(queries), queries - repair.means_[found])


class Wrong(BySign):
    def predict(self, X):
        return np.zeros((len(X), 2))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters is 0"),
        ({"n_clusters": 2.0}, "n_clusters is 2.0"),
        ({"n_clusters": "many"}, "n_clusters is 'many': need \"auto\""),
        ({"n_clusters": True}, "n_clusters is True"),
        ({"n_clusters": 31}, "n_clusters is 31 but got 30 samples"),
        ({"clusterer": "dbscan"}, 'clusterer is \'dbscan\': need "kmeans", "gmm"'),
        ({"clusterer": KMeans}, "clusterer is the class KMeans: pass an instance"),
        ({"clusterer": object()}, "clusterer is a object, which lacks fit or predict"),
        ({"clusterer": Wrong()}, "Wrong.predict returned shape (30, 2) for 30 rows"),
        ({"sample": 0}, "sample is 0"),
        ({"n_components": -1}, "n_components is -1"),
        ({"n_components": 1.0}, "n_components is 1.0"),
    ],
)
def test_invalid_parameters_raise(parameters, message, rng):
    with pytest.raises(InputError) as raised:
        ClusterNull(2, 1).set_params(**parameters).fit(rng.standard_normal((30, 4)))
    assert message in str(raised.value)


def test_sketch_cannot_fit_clusters(clusters):
    with pytest.raises(InputError, match="X is a Sketch: ClusterCenter needs the vectors"):
        ClusterCenter(2).fit(Sketch.of(clusters))


# edges


@pytest.mark.parametrize("clusterer", ["kmeans", "gmm"])
def test_clusters_never_outnumber_distinct_rows(clusterer, rng):
    X = np.repeat(rng.standard_normal((3, 5)), 20, axis=0)
    repair = ClusterNull(7, 2, clusterer=clusterer, random_state=0).fit(X)
    assert repair.n_clusters_ <= 3
    np.testing.assert_allclose(repair.transform(X), 0, atol=1e-12)
    assert ClusterCenter(random_state=0).fit(X).n_clusters_ <= 3


@pytest.mark.parametrize("n_clusters", ["auto", 1])
@pytest.mark.parametrize("clusterer", ["kmeans", "gmm"])
def test_one_row_is_its_own_mean(clusterer, n_clusters, rng):
    X = rng.standard_normal((1, 5))
    np.testing.assert_array_equal(ClusterNull(n_clusters, 2, clusterer=clusterer).fit_transform(X), 0)


@pytest.mark.parametrize("seed", range(6))
def test_rare_distinct_rows_get_a_cluster(seed):
    """k-means starts on a quarter of the rows, which three times in four does not contain the single row."""
    X = np.concatenate([np.repeat(np.eye(4), 400, axis=0), [[1, 1, 1, 1]]])
    repair = ClusterCenter(5, random_state=seed).fit(X)
    assert repair.n_clusters_ == 5
    np.testing.assert_allclose(repair.transform(X), 0, atol=1e-12)


def test_one_cluster_per_row(rng):
    X = rng.standard_normal((9, 5))
    repair = ClusterNull(9, 2, random_state=0).fit(X)
    assert repair.n_clusters_ == 9
    np.testing.assert_allclose(repair.transform(X), 0, atol=1e-12)


def test_many_clusters_leave_none_empty(rng):
    X = rng.standard_normal((60, 3))
    for seed in range(5):
        repair = ClusterCenter(40, random_state=seed).fit(X)
        assert len(repair.means_) == len(repair.centers_) == repair.n_clusters_ <= 40
        assert set(repair.predict(X)) == set(range(repair.n_clusters_))
        assert repair.predict(100 * rng.standard_normal((200, 3))).max() < repair.n_clusters_


def test_empty_center_is_dropped(clusters, monkeypatch, rng):
    def add_center(X, start, *, least_move):
        found, codes = run_lloyd(X, start[:-1], least_move=least_move)
        return np.concatenate([found[:1], np.full((1, X.shape[1]), 50.0), found[1:]]), codes

    monkeypatch.setattr("isoscope.transforms.clustered.run_lloyd", add_center)
    repair = ClusterNull(4, 1, random_state=0).fit(clusters)
    assert repair.n_clusters_ == len(repair.means_) == len(repair.centers_) == 3
    queries = np.concatenate([clusters, np.full((1, 8), 1e4)])
    assert set(repair.predict(queries)) == {0, 1, 2}
    apart = np.linalg.norm(queries[:, None, :] - repair.means_, axis=2)
    np.testing.assert_array_equal(repair.predict(queries), apart.argmin(axis=1))


def test_file_is_clustered_from_a_sample(tmp_path, rng):
    X = clustered_cloud(rng, n=3000)
    np.save(tmp_path / "corpus.npy", X)
    repair = ClusterCenter(3, sample=600, random_state=0).fit(tmp_path / "corpus.npy")
    assert shares(repair.predict(X)) == shares(np.arange(3000) % 3)
    again = ClusterCenter(3, sample=600, random_state=0).fit(isoscope.open_store(X))
    np.testing.assert_array_equal(again.means_, repair.means_)
    whole = ClusterCenter(3, random_state=0).fit(X)
    assert not np.array_equal(np.sort(whole.means_, axis=0), np.sort(repair.means_, axis=0))


def test_tight_distant_mixture_is_found_in_float32():
    rows = np.arange(400)
    X = np.random.default_rng(0).standard_normal((400, 8)) * 1e-2
    X[:, 0] += np.where(rows % 2, 0, 1000)
    X[:, 1] += np.where(rows % 4 < 2, 0, 300)
    found = ClusterNull(4, 1, clusterer="gmm", random_state=0).fit(X.astype(np.float32)).predict(X.astype(np.float32))
    assert len({(cluster, row % 4) for cluster, row in zip(found.tolist(), rows.tolist(), strict=True)}) == 4


@pytest.mark.parametrize(
    ("repair", "words"),
    [
        (ClusterCenter(3, sample=5), "need at least 6 rows, two for each of 3 clusters"),
        (ClusterCenter("auto", sample=29), "need at least 30 rows, two for each of up to 15 clusters"),
        (ClusterNull(sample=53), "need at least 54 rows"),
        (ClusterCenter(clusterer=KMeans(3), sample=1), "need at least 2 rows"),
    ],
)
def test_sample_of_a_store_with_fewer_than_two_rows_per_cluster_is_an_error(repair, words):
    X = np.random.default_rng(0).standard_normal((90, 4))
    with pytest.raises(ParameterError, match=words):
        repair.fit(isoscope.open_store(X))
    assert repair.fit(X).n_features_in_ == 4  # all rows of an array are used


def test_smallest_sample_is_used():
    store = isoscope.open_store(np.random.default_rng(0).standard_normal((90, 4)))
    assert ClusterCenter(3, sample=6, random_state=0).fit(store).n_clusters_ == 3
