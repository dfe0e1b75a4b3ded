"""Affine repairs: properties of their output, scikit-learn's results, parts and files, parameters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.preprocessing import StandardScaler

import isoscope
from isoscope import AllButTheTop, Center, InputError, Sketch, Standardize, Whiten
from tests.conftest import tolerance
from tests.transforms.conftest import AFFINE

affine = pytest.mark.parametrize("repair", AFFINE, ids=repr)


def covariance(X: np.ndarray) -> np.ndarray:
    return np.cov(X.T, bias=True)


# what must hold


def test_centered_data_have_mean_zero(cloud):
    Y = Center().fit_transform(cloud)
    np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-11)
    np.testing.assert_allclose(covariance(Y), covariance(cloud), atol=1e-10)


def test_standardized_coordinates_have_mean_zero_and_deviation_one(cloud):
    Y = Standardize().fit_transform(cloud)
    np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-11)
    np.testing.assert_allclose(Y.std(axis=0), 1)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_top_directions_are_removed_and_transform_is_idempotent(k, cloud):
    repair = AllButTheTop(k).fit(cloud)
    Y = repair.transform(cloud)
    V = repair.components_
    assert V.shape == (repair.n_components_, cloud.shape[1]) == (k, cloud.shape[1])
    np.testing.assert_allclose(V @ V.T, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(Y @ V.T, 0, atol=1e-11)
    np.testing.assert_allclose(repair.transform(Y + repair.mean_), Y, atol=1e-11)
    np.testing.assert_allclose(AllButTheTop(0).fit_transform(Y), Y, atol=1e-11)
    kept = np.linalg.eigvalsh(covariance(cloud))[::-1][k:]
    np.testing.assert_allclose(np.linalg.eigvalsh(covariance(Y))[::-1][: len(kept)], kept, atol=1e-9)


@pytest.mark.parametrize(("d", "expected"), [(3, 1), (100, 1), (151, 2), (300, 3), (768, 8)])
def test_auto_removes_one_direction_per_hundred_dimensions(d, expected, rng):
    assert AllButTheTop().fit(rng.standard_normal((12, d))).n_components_ == expected


@pytest.mark.parametrize("method", ["zca", "pca"])
def test_whitened_covariance_is_identity_in_directions_with_variance(method, cloud):
    Y = Whiten(method, shrinkage=None).fit_transform(cloud)
    n, d = cloud.shape
    np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-10)
    if n > d:
        np.testing.assert_allclose(covariance(Y), np.eye(d), atol=1e-8)
    else:  # a projection onto the n − 1 directions there are
        values = np.linalg.eigvalsh(covariance(Y))[::-1]
        np.testing.assert_allclose(values, np.arange(d) < n - 1, atol=1e-8)


def test_zca_is_symmetric_and_closest_to_the_input(cloud):
    repair = Whiten(shrinkage=None).fit(cloud)
    np.testing.assert_allclose(repair.matrix_, repair.matrix_.T, atol=1e-10 * np.abs(repair.matrix_).max())
    assert np.linalg.eigvalsh(repair.matrix_).min() > -1e-10
    centered = cloud - cloud.mean(axis=0)
    moved = {m: np.linalg.norm(Whiten(m, shrinkage=None).fit_transform(cloud) - centered) for m in ("zca", "pca")}
    assert moved["zca"] <= moved["pca"] + 1e-9


@pytest.mark.parametrize("shrinkage", ["auto", None, 0, 0.3, 1.0])
def test_pca_decorrelates_with_any_shrinkage(shrinkage, cloud):
    Y = Whiten("pca", shrinkage=shrinkage).fit_transform(cloud)
    S = covariance(Y)
    np.testing.assert_allclose(S, np.diag(np.diag(S)), atol=1e-8)


@pytest.mark.parametrize("method", ["zca", "pca"])
def test_few_components_keep_the_leading_directions(method, cloud):
    repair = Whiten(method, 2, shrinkage=None).fit(cloud)
    Y = repair.transform(cloud)
    d = cloud.shape[1]
    assert Y.shape == (len(cloud), 2 if method == "pca" else d)
    values = np.linalg.eigvalsh(covariance(Y))[::-1]
    np.testing.assert_allclose(values, np.arange(len(values)) < 2, atol=1e-8)
    whole = Whiten("pca", shrinkage=None).fit_transform(cloud)
    np.testing.assert_allclose(Y if method == "pca" else Y @ repair.components_.T, whole[:, :2], atol=1e-8)


def test_shrinkage_interpolates_between_whitening_and_scaling(rng):
    X = rng.standard_normal((200, 6)) * np.arange(1, 7)
    scores = [isoscope.isoscore(Whiten(shrinkage=share).fit_transform(X)) for share in (None, 0.2, 0.6, 1.0)]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == pytest.approx(isoscope.isoscore(X))
    expected = (X - X.mean(axis=0)) / np.sqrt(np.trace(covariance(X)) / 6)
    np.testing.assert_allclose(Whiten(shrinkage=1.0).fit_transform(X), expected, atol=1e-10)


@affine
def test_affine_form_reproduces_transform(repair, cloud):
    repair = clone(repair).fit(cloud)
    A, b = repair.as_affine()
    assert A.dtype == b.dtype == np.float64
    expected = repair.transform(cloud)
    rounding = 1e-13 * np.abs(cloud).max() * max(np.abs(A).max(), 1) * cloud.shape[1]
    np.testing.assert_allclose(cloud @ A + b, expected, atol=rounding)


@affine
def test_batches_sketches_and_files_give_same_fit(repair, cloud, tmp_path):
    whole = clone(repair).fit(cloud).transform(cloud)
    pieces = clone(repair)
    cuts = [0, len(cloud) // 3, len(cloud) // 3 + 1, len(cloud)]  # the second piece is one row
    for first, last in pairwise(cuts):
        pieces.partial_fit(cloud[first:last])
    half = len(cloud) // 2
    summed = clone(repair).fit(Sketch.of(cloud[:half]) + Sketch.of(cloud[half:]))
    np.save(tmp_path / "a.npy", cloud)
    mixed = clone(repair).partial_fit(Sketch.of(cloud[:half])).partial_fit(isoscope.open_store(cloud[half:]))
    for fitted in (pieces, summed, mixed, clone(repair).fit(tmp_path / "a.npy")):
        assert fitted.sketch_.n == len(cloud)
        np.testing.assert_allclose(fitted.transform(cloud), whole, atol=1e-7)


def test_fit_resets_and_partial_fit_accumulates(rng):
    X = rng.standard_normal((20, 3))
    repair = Center().partial_fit(X[:10]).partial_fit(X[10:])
    np.testing.assert_allclose(repair.mean_, X.mean(axis=0))
    np.testing.assert_allclose(repair.fit(X[:10]).mean_, X[:10].mean(axis=0))


def test_rejected_batch_is_not_counted(rng):
    X = rng.standard_normal((20, 3))
    repair = Whiten().partial_fit(X)
    with pytest.raises(InputError, match="4 dimensions but earlier vectors had 3"):
        repair.partial_fit(Sketch.of(rng.standard_normal((5, 4))))
    with pytest.raises(ValueError, match="4 features"):
        repair.partial_fit(rng.standard_normal((5, 4)))
    assert repair.sketch_.n == 20
    few = AllButTheTop(3)
    with pytest.raises(InputError, match="n_components is 3"):
        few.partial_fit(X[:2])
    assert few.partial_fit(X).sketch_.n == 20


def test_refitting_gives_same_signs(rng):
    X = rng.standard_normal((200, 6)) * np.arange(1, 7)
    for repair in (AllButTheTop(3), Whiten("pca")):
        a, b = clone(repair).fit(X).components_, clone(repair).fit(X[::-1].copy()).components_
        np.testing.assert_allclose(a, b, atol=1e-10)
        assert (a[np.arange(len(a)), np.abs(a).argmax(axis=1)] > 0).all()


# what others compute


def test_standardize_equals_standard_scaler(cloud):
    np.testing.assert_allclose(Standardize().fit_transform(cloud), StandardScaler().fit_transform(cloud), atol=1e-9)


def test_components_equal_pca_and_truncated_svd(rng):
    X = rng.standard_normal((150, 16)) / np.arange(1, 17) ** 0.75 + 3
    found = AllButTheTop(3).fit(X).components_
    signs = np.sign((found * (other := PCA(3).fit(X).components_)).sum(axis=1))[:, None]
    np.testing.assert_allclose(found, signs * other, atol=1e-8)
    svd = TruncatedSVD(3, algorithm="arpack", random_state=0).fit(X - X.mean(axis=0)).components_
    np.testing.assert_allclose(found.T @ found, svd.T @ svd, atol=1e-8)


def test_whitening_equals_pca_up_to_denominator_and_signs(rng):
    X = rng.standard_normal((150, 16)) / np.arange(1, 17) ** 0.75 + 3
    found = Whiten("pca", 5, shrinkage=None).fit_transform(X)
    other = PCA(5, whiten=True).fit_transform(X) * np.sqrt(150 / 149)
    signs = np.sign((found * other).sum(axis=0))
    np.testing.assert_allclose(found, signs * other, atol=1e-8)


def test_shrinkage_equals_ledoit_wolf(cloud):
    repair = Whiten().fit(cloud)
    S, share = ledoit_wolf(cloud)
    assert repair.shrinkage_ == pytest.approx(share, abs=1e-9)
    seen = repair.weights_ > 0
    V = repair.components_[seen]
    np.testing.assert_allclose(repair.weights_[seen] ** -2.0, np.diag(V @ S @ V.T), rtol=1e-7)
    pieces = Whiten().partial_fit(cloud[:7]).partial_fit(cloud[7:])
    assert pieces.shrinkage_ == pytest.approx(share, abs=1e-9)


# edges


def test_constant_coordinate_is_only_centered(rng):
    X = np.c_[rng.standard_normal((500, 2)), np.full(500, 1e10 + 0.1)]
    for repair in (Standardize().fit(X), Standardize().partial_fit(X[:3]).partial_fit(X[3:])):
        assert repair.scale_[2] == 1
        np.testing.assert_allclose(repair.transform(X)[:, 2], 0, atol=1e-5)
        assert repair.transform(X[:1] + np.asarray([0, 0, 7]))[0, 2] == pytest.approx(7, abs=1e-5)


def test_rounding_error_of_a_huge_mean_is_not_a_direction(rng):
    still = np.where(rng.random(500) < 0.5, 1e10, np.nextafter(1e10, np.inf))
    X = np.c_[rng.standard_normal((500, 2)), still]
    assert X[:, 2].std() > 0
    assert Standardize().fit(X).scale_[2] == 1
    whitened = Whiten(shrinkage=None).fit(X)
    assert whitened.weights_[-1] == 0
    np.testing.assert_allclose(whitened.transform(X).std(axis=0), [1, 1, 0], atol=1e-6)
    assert AllButTheTop(3).fit(X).n_components_ == 2


def test_small_coordinate_next_to_huge_constant_one_is_whitened(rng):
    X = np.c_[1e-6 * rng.standard_normal((500, 2)), np.full(500, 1e10 + 0.1)]
    Y = Whiten(shrinkage=None).fit_transform(X)
    np.testing.assert_allclose(Y.std(axis=0), [1, 1, 0], atol=1e-8)


@pytest.mark.parametrize("n", [6, 20, 400])
def test_shrinkage_gives_unseen_directions_their_share_of_the_variance(n, rng):
    X = rng.standard_normal((n, 12)) * np.arange(1, 13)
    shrunk, _ = ledoit_wolf(X)
    values, vectors = np.linalg.eigh(shrunk)
    expected = (vectors / np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(Whiten().fit(X).as_affine()[0], expected, atol=1e-10)


def test_directions_without_variance_map_to_zero(rng):
    basis = rng.standard_normal((2, 5))
    X = rng.standard_normal((50, 2)) @ basis
    repair = Whiten(shrinkage=None).fit(X)
    outside = np.linalg.svd(basis)[2][2:]
    np.testing.assert_allclose(repair.transform(repair.mean_ + outside), 0, atol=1e-7)
    assert AllButTheTop(5).fit(X).n_components_ == 2
    assert AllButTheTop().fit(np.full((9, 5), 0.1)).n_components_ == 0
    np.testing.assert_array_equal(Whiten().fit_transform(np.full((9, 5), 3.0)), 0)


@pytest.mark.parametrize(
    ("repair", "message"),
    [
        (AllButTheTop("most"), "n_components is 'most': need \"auto\""),
        (AllButTheTop(-1), "n_components is -1"),
        (AllButTheTop(1.5), "n_components is 1.5"),
        (AllButTheTop(True), "n_components is True"),
        (AllButTheTop(5), "n_components is 5: 30 vectors of 4 dimensions have at most 4"),
        (Whiten("cholesky"), 'method is \'cholesky\': need "zca" or "pca"'),
        (Whiten(n_components=0), "n_components is 0"),
        (Whiten(n_components=5), "n_components is 5 but the vectors have only 4"),
        (Whiten(shrinkage=1.1), "shrinkage is 1.1"),
        (Whiten(shrinkage="oas"), "shrinkage is 'oas'"),
        (Whiten(shrinkage=float("nan")), "shrinkage is nan"),
        (Whiten(shrinkage=True), "shrinkage is True"),
    ],
)
def test_invalid_parameters_raise(repair, message, rng):
    with pytest.raises(InputError) as raised:
        repair.fit(rng.standard_normal((30, 4)))
    assert message in str(raised.value)


def test_numpy_scalars_are_accepted(rng):
    X = rng.standard_normal((30, 4))
    AllButTheTop(np.int64(2)).fit(X)
    Whiten(n_components=np.int32(2), shrinkage=np.float32(0.5)).fit(X)


@pytest.mark.parametrize("repair", [AllButTheTop(), Whiten()], ids=repr)
def test_single_row_raises(repair, rng):
    for one in (rng.standard_normal((1, 4)), Sketch.of(rng.standard_normal((1, 4)))):
        with pytest.raises(InputError, match="needs at least 2 vectors, but got 1 sample"):
            clone(repair).fit(one)
    with pytest.raises(InputError, match="got 0 samples"):
        Center().fit(Sketch())


def test_overflowing_fourth_powers_raise_only_where_needed(rng):
    X = 1e100 * rng.standard_normal((30, 4))
    with pytest.raises(InputError, match="fourth power is outside the range of float64"):
        Whiten().fit(X)
    np.testing.assert_allclose(covariance(Whiten(shrinkage=None).fit_transform(X)), np.eye(4), atol=1e-9)


@pytest.mark.parametrize("method", ["zca", "pca"])
def test_two_rows_are_whitened_along_their_difference_alone(method):
    """The shrinkage of two rows is zero but for rounding, which must not amplify the other directions."""
    for seed in range(60):  # without a limit on rounding, 7 of these fail
        X = np.random.default_rng(seed).standard_normal((2, 5)).astype(np.float32)
        repair = isoscope.Whiten(method).fit(X)
        assert np.linalg.matrix_rank(repair.matrix_) == 1
        np.testing.assert_allclose(np.linalg.norm(repair.transform(X), axis=1), 1, atol=tolerance("float32"))
