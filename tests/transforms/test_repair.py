"""All repairs: scikit-learn's contract, one map for corpus and queries, any array library and precision."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

import isoscope
from isoscope import AllButTheTop, Center, ClusterCenter, ClusterNull, InputError, Standardize, Whiten
from tests.conftest import rotation, tolerance
from tests.transforms.conftest import EVERY, clustered_cloud, has_step

torch = pytest.importorskip("torch")
every = pytest.mark.parametrize("repair", EVERY, ids=repr)


ONE_OF_EACH = list({type(each): each for each in reversed(EVERY)}.values())


@parametrize_with_checks(ONE_OF_EACH)
def test_passes_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.heavy
@parametrize_with_checks([*(each for each in EVERY if each not in ONE_OF_EACH), ClusterCenter(), ClusterNull(2, 1)])
def test_passes_scikit_learn_checks_with_any_settings(estimator, check):
    check(estimator)


# what must hold


@every
def test_single_query_is_transformed_like_its_row_in_the_corpus(repair, clusters):
    repair = clone(repair).fit(clusters)
    together = repair.transform(clusters)
    alone = np.concatenate([repair.transform(row[None, :]) for row in clusters[:20]])
    np.testing.assert_allclose(alone, together[:20], atol=1e-11)


@every
def test_fit_uses_the_corpus_and_transform_does_not(repair, clusters, rng):
    repair = clone(repair).fit(clusters)
    before = {name: np.copy(value) for name, value in vars(repair).items() if isinstance(value, np.ndarray)}
    first = repair.transform(clusters[:5])
    repair.transform(100 * rng.standard_normal(clusters.shape))
    assert all(np.array_equal(value, getattr(repair, name)) for name, value in before.items())
    assert np.array_equal(repair.transform(clusters[:5]), first)


@every
def test_translated_corpus_gives_same_repaired_vectors(repair, clusters):
    moved = clusters + np.linspace(-1, 1, clusters.shape[1]) * 1e3
    expected = clone(repair).fit_transform(clusters)
    np.testing.assert_allclose(clone(repair).fit_transform(moved), expected, atol=1e-7)


@pytest.mark.parametrize("scale", [2.0**-60, 1e-6, 1e6, 2.0**60])
@every
def test_scaled_corpus_gives_same_repair(repair, scale, clusters):
    expected = clone(repair).fit_transform(clusters)
    found = clone(repair).fit_transform(scale * clusters)
    if not has_step(repair, Standardize | Whiten):
        expected = scale * expected
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "repair",
    [Center(), AllButTheTop(2), Whiten(), Whiten(n_components=3), ClusterCenter(3), ClusterNull(3, 2)],
    ids=repr,
)
def test_rotated_corpus_gives_rotated_repair(repair, clusters, rng):
    Q = rotation(8, rng)
    repair = repair.set_params(random_state=0) if "random_state" in repair.get_params() else repair
    expected = clone(repair).fit_transform(clusters) @ Q
    np.testing.assert_allclose(clone(repair).fit_transform(clusters @ Q), expected, atol=1e-8)


@every
def test_input_is_unchanged_for_any_memory_layout(repair, clusters):
    kept = clusters.copy()
    clusters.flags.writeable = False
    expected = clone(repair).fit_transform(clusters)
    spread = np.zeros((2 * len(clusters), 24))
    spread[::2, ::3] = clusters
    for same in (np.asfortranarray(clusters), spread[::2, ::3], clusters.tolist()):
        np.testing.assert_allclose(clone(repair).fit_transform(same), expected, atol=1e-9)
    assert np.array_equal(clusters, kept)


@every
def test_new_fit_or_array_clears_the_cache(repair, clusters):
    query, other = clusters[:5].astype(np.float32), clusters[::-1] * np.linspace(1, 2, 8) + 3
    repair = clone(repair).fit(clusters)
    repair.transform(query)
    np.testing.assert_array_equal(repair.fit(other).transform(query), clone(repair).fit(other).transform(query))
    for step in getattr(repair, "steps_", [repair]):
        setattr(step, step._fitted_attribute, getattr(step, step._fitted_attribute) + 1)
    again = pickle.loads(pickle.dumps(repair))
    np.testing.assert_array_equal(repair.transform(query), again.transform(query))
    wide = repair.transform(query.astype(np.float64))
    np.testing.assert_allclose(repair.transform(query), wide, atol=1e-4)


# libraries and precisions


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@every
def test_tensors_are_transformed_like_arrays_in_their_precision(repair, dtype, clusters):
    repair = clone(repair).fit(clusters)
    tensor = torch.tensor(clusters, dtype=getattr(torch, dtype))
    found = repair.transform(tensor)
    assert found.dtype == tensor.dtype
    expected = repair.transform(tensor.double().numpy())
    own, least = (float(torch.finfo(kind).eps) for kind in (tensor.dtype, torch.float32))
    atol = 64 * min(own, least) * 20  # half precision is computed in float32 and rounded once
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=own, atol=atol)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@every
def test_arrays_keep_their_dtype(repair, dtype, clusters):
    X = clusters.astype(dtype)
    for Y in (clone(repair).fit(clusters).transform(X), clone(repair).fit(X).transform(X)):
        assert Y.dtype == X.dtype
        assert Y.shape[0] == len(X)
    assert clone(repair).fit(clusters.astype(int)).transform(clusters.astype(int)).dtype == np.float64


@every
def test_gradient_flows_through_transform(repair, clusters):
    repair = clone(repair).fit(clusters)
    X = torch.tensor(clusters[:6], requires_grad=True)
    weights = torch.linspace(-1, 1, len(repair.get_feature_names_out()), dtype=torch.float64)
    (repair.transform(X) @ weights).sum().backward()
    step = 1e-4 * np.ones(8)
    change = repair.transform(clusters[:6] + step) - repair.transform(clusters[:6] - step)
    np.testing.assert_allclose(X.grad.numpy() @ step, change @ weights.numpy() / 2, atol=1e-10)


@every
def test_tensors_can_be_fitted(repair, clusters):
    tensor = torch.tensor(clusters, requires_grad=True)
    found = clone(repair).fit(tensor).transform(tensor)
    np.testing.assert_array_equal(found.detach().numpy().shape[0], 300)
    np.testing.assert_allclose(found.detach().numpy(), clone(repair).fit_transform(clusters), atol=1e-10)
    clone(repair).fit(tensor.bfloat16())


@every
def test_large_mean_does_not_reduce_float32_precision(repair, clusters):
    far = (clusters + 1e4).astype(np.float32)
    repair = clone(repair).fit(far)
    expected = repair.transform(far.astype(np.float64))
    atol = 1e-5 * np.abs(expected).max()  # the mean alone, rounded to float32, would miss by 5e-4
    np.testing.assert_allclose(repair.transform(far), expected, atol=atol)
    np.testing.assert_allclose(repair.transform(torch.tensor(far)).numpy(), expected, atol=atol)


@every
def test_empty_tensor_stays_empty_and_nan_stays_in_its_row(repair, clusters):
    repair = clone(repair).fit(clusters)
    assert repair.transform(torch.zeros((0, 8))).shape[0] == 0
    X = torch.tensor(clusters[:3])
    X[1, 2] = torch.nan
    Y = repair.transform(X)
    assert Y[[0, 2]].isfinite().all()
    assert not Y[1].isfinite().all()


# in scikit-learn's company


@every
def test_feature_names_tables_pipelines_and_copies(repair, clusters):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(clusters, columns=[f"v{i}" for i in range(8)])
    repair = clone(repair).fit(table)
    names = repair.get_feature_names_out()
    if has_step(repair, Whiten):
        assert list(names) == [f"whiten{i}" for i in range(repair.transform(table).shape[1])]
    else:
        assert list(names) == list(table.columns)
    written = clone(repair).set_output(transform="pandas").fit(table).transform(table)
    assert list(written.columns) == list(names)
    np.testing.assert_array_equal(written.to_numpy(), repair.transform(table))
    pipeline = make_pipeline(clone(repair), Normalizer()).fit(clusters)
    lengths = np.linalg.norm(pipeline.transform(clusters), axis=1)
    np.testing.assert_allclose(lengths, 1)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        repair.transform(clusters)
    copied = clone(repair)
    assert str(copied.get_params(deep=False)) == str(repair.get_params(deep=False))
    assert repr(copied) == repr(repair)
    assert not hasattr(copied, "n_features_in_")


def test_repr_shows_given_parameters():
    assert repr(Center()) == "Center()"
    assert repr(Whiten("pca", n_components=2)) == "Whiten(method='pca', n_components=2)"
    assert repr(ClusterNull(3, 2)) == "ClusterNull(n_clusters=3, n_components=2)"


# edges

DEGENERATE = {
    "one row": lambda rng: rng.standard_normal((1, 5)),
    "two rows": lambda rng: rng.standard_normal((2, 5)),
    "fewer rows than dimensions": lambda rng: rng.standard_normal((6, 30)) + 100,
    "constant": lambda rng: np.full((20, 5), 0.1),
    "constant and huge": lambda rng: np.tile(1e12 * rng.standard_normal(5), (1000, 1)),
    "zeros": lambda rng: np.zeros((20, 5)),
    "rank two": lambda rng: rng.standard_normal((50, 2)) @ rng.standard_normal((2, 5)),
    "duplicates": lambda rng: np.repeat(rng.standard_normal((3, 5)), 20, axis=0),
    "a still coordinate with a huge mean": lambda rng: np.c_[rng.standard_normal((500, 4)), np.full(500, 1e10 + 0.1)],
    "minus zero": lambda rng: np.where(rng.random((20, 5)) < 0.5, 0.0, -0.0),
    "one dimension": lambda rng: rng.standard_normal((20, 1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DEGENERATE)
@every
def test_degenerate_data_give_finite_vectors_or_an_error(repair, name, dtype, rng):
    X = DEGENERATE[name](rng).astype(dtype)
    query = X[:1] + np.asarray(rng.standard_normal(X.shape[1]), dtype)
    refused = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            repair = clone(repair).fit(X)
        except InputError as error:
            refused = str(error)
        else:
            Y, q = repair.transform(X), repair.transform(query)
    if refused:  # for want of rows or dimensions alone
        assert re.search("1 sample|n_clusters is|n_components is", refused)
        assert name in ("one row", "two rows", "one dimension")
        return
    assert np.isfinite(Y).all()
    assert np.isfinite(q).all()
    # nothing is blown up: whitened coordinates of n rows cannot exceed √n, others only shrink
    spread = np.sqrt(len(X)) if isinstance(repair, Standardize | Whiten) else np.abs(X - X.mean(axis=0)).max()
    assert np.abs(Y).max() <= 2 * spread + 1e-3 * np.abs(X).max() * (dtype == "float32") + 1e-15 * np.abs(X).max()


@every
def test_values_whose_squares_overflow_raise(repair, clusters):
    for factor in (1e200, 1e-200):
        X = factor * clusters
        if isinstance(repair, Center):
            np.testing.assert_allclose(clone(repair).fit_transform(X), factor * clone(repair).fit_transform(clusters))
        else:
            with pytest.raises(InputError, match="scale"):
                clone(repair).fit(X)


@every
def test_invalid_input_raises(repair, clusters, tmp_path):
    with pytest.raises(NotFittedError):
        clone(repair).transform(clusters)
    bad = clusters.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        clone(repair).fit(bad)
    fitted = clone(repair).fit(clusters)
    with pytest.raises(ValueError, match="NaN"):
        fitted.transform(bad)
    with pytest.raises(ValueError, match=r"X has 7 features, but .* is expecting 8"):
        fitted.transform(clusters[:, :7])
    with pytest.raises(InputError, match=r"shape \(300, 7\).*8 dimensions"):
        fitted.transform(torch.tensor(clusters[:, :7]))
    with pytest.raises(InputError, match=r"shape \(8,\)"):
        fitted.transform(torch.tensor(clusters[0]))
    with pytest.raises(InputError, match=r"int64.*floating-point"):
        fitted.transform(torch.ones((2, 8), dtype=torch.int64))
    with pytest.raises(InputError, match=r"str.*only fit accepts"):
        fitted.transform("corpus.npy")


@every
def test_failed_fit_leaves_repair_unfitted(repair, clusters):
    repair = clone(repair)
    bad = np.where(clusters > 40, np.inf, clusters)
    bad[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        repair.fit(bad)
    with pytest.raises(NotFittedError):
        repair.transform(clusters)


@pytest.mark.parametrize("repair", [AllButTheTop(9), Whiten(n_components=9), ClusterCenter(301)], ids=repr)
def test_fit_that_fails_after_reading_data_leaves_repair_unfitted(repair, clusters):
    with pytest.raises(InputError):
        repair.fit(clusters)
    with pytest.raises(NotFittedError):
        repair.transform(clusters)


@every
def test_files_and_stores_are_fitted_like_arrays(repair, clusters, tmp_path):
    np.save(tmp_path / "corpus.npy", clusters)
    expected = clone(repair).fit(clusters).transform(clusters)
    for source in (tmp_path / "corpus.npy", str(tmp_path / "corpus.npy"), isoscope.open_store(clusters)):
        fitted = clone(repair).fit(source)
        assert fitted.n_features_in_ == 8
        np.testing.assert_allclose(fitted.transform(clusters), expected, atol=1e-10)
    bad = clusters.copy()
    bad[7, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(InputError, match=r"row 7\b"):
        clone(repair).fit(tmp_path / "bad.npy")


def test_refit_on_a_file_clears_feature_names(clusters, tmp_path):
    pandas = pytest.importorskip("pandas")
    np.save(tmp_path / "corpus.npy", clusters)
    for repair in (Center(), ClusterCenter(2, random_state=0)):
        repair.fit(pandas.DataFrame(clusters, columns=[f"v{i}" for i in range(8)])).fit(tmp_path / "corpus.npy")
        assert not hasattr(repair, "feature_names_in_")
        repair.transform(clusters)


# the comparison of Rajaee and Pilehvar, each row a line


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(Center()),
        make_pipeline(AllButTheTop(12)),
        make_pipeline(ClusterCenter(27, random_state=0)),
        make_pipeline(ClusterNull(27, 12, clusterer="gmm", random_state=0)),
        make_pipeline(ClusterNull(27, 12, random_state=0)),
    ],
    ids=["Mean", "Mean+PCA", "K-means+Mean", "GMM+Mean+PCA", "K-means+Mean+PCA"],
)
def test_five_pipelines_reproduce_the_paper_table(pipeline, rng):
    X = clustered_cloud(rng, n=1500, d=32, k=27) / 4
    Y = pipeline.fit_transform(X)
    assert Y.shape == X.shape
    assert np.isfinite(Y).all()
    before, after = (float(isoscope.partition_isotropy(cloud)) for cloud in (X, Y))
    assert after > before
    if isinstance(pipeline[-1], ClusterNull):
        assert after > 2 * before
        assert after > isoscope.partition_isotropy(Center().fit_transform(X))


@pytest.mark.parametrize("n", [1, 3])
def test_rounding_error_of_queries_stays_within_tolerance(n, clusters):
    repair = Whiten().fit(clusters)
    X = clusters[:n].astype(np.float32)
    np.testing.assert_allclose(repair.transform(X), repair.transform(X.astype(float)), atol=tolerance("float32"))


@pytest.mark.parametrize("repair", [isoscope.Center(), isoscope.ClusterCenter(2), isoscope.Chain([isoscope.Center()])])
def test_wrong_arrays_are_input_errors_of_one_line(repair, rng):
    X = rng.standard_normal((60, 4))
    fitted = repair.fit(X)
    wrong = X.copy()
    wrong[3, 1] = np.nan
    for given in (wrong, X[:0], X[:, 0], X[None], X.astype(complex)):
        for call in (clone(repair).fit, fitted.transform):
            with pytest.raises(isoscope.InputError) as error:
                call(given)
            assert "\n" not in str(error.value)
    with pytest.raises(isoscope.InputError, match="4 features"):
        fitted.transform(X[:, :3])
