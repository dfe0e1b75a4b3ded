"""Quantizer: codes and their decoding, ranges, frames, faiss's quantizers as the reference, saving, bad input."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import isoscope
from isoscope import Quantizer
from isoscope.errors import ParameterError, ShapeError, TooFewRowsError
from isoscope.transforms.quantize import Geometry, random_rotation
from isoscope.transforms.rounding import pack_nibbles, unpack_nibbles
from tests.conftest import tolerance
from tests.services import require

INTEGERS = [(precision, scale) for precision in ("int8", "int4") for scale in ("coordinate", "vector", "shared")]
SIMPLE = [("float32", "coordinate"), ("float16", "coordinate"), *INTEGERS, ("bit", "coordinate")]
FRAMES = [
    {"n_components": k, "reduction": reduction, "preprocess": preprocess}
    for k, reduction, preprocess in itertools.product((None, 5), ("first", "pca"), (None, "center", "rotate", "whiten"))
]


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_normal((300, 12)) * np.linspace(0.3, 2, 12) + 0.5).astype(np.float32)


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@parametrize_with_checks([Quantizer(), Quantizer("int4", scale="vector", preprocess="rotate", random_state=0)])
def test_passes_scikit_learn_checks(estimator, check):
    check(estimator)


# identities


@pytest.mark.parametrize(("precision", "scale"), SIMPLE)
@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_transform_is_the_decoded_code_and_codes_have_the_stated_size(precision, scale, frame, X):
    quantizer = Quantizer(precision, scale=scale, **frame, random_state=0).fit(X)
    codes = quantizer.encode(X)
    assert codes.dtype == np.uint8
    assert codes.shape == (len(X), quantizer.code_size)
    np.testing.assert_allclose(quantizer.decode(codes), quantizer.transform(X), atol=1e-6)
    width = frame["n_components"] or 12
    sizes = {"float32": 4 * width, "float16": 2 * width, "int8": width, "int4": -(-width // 2), "bit": -(-width // 8)}
    assert quantizer.code_size == sizes[precision] + (4 if scale == "vector" else 0)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("preprocess", [None, "center", "rotate", "whiten"])
@pytest.mark.parametrize("reduction", ["first", "pca"])
def test_float32_without_reduction_gives_back_the_vectors(reduction, preprocess, metric, X):
    quantizer = Quantizer("float32", reduction=reduction, preprocess=preprocess, metric=metric, random_state=1).fit(X)
    expected = unit(X) if metric == "cosine" else X
    np.testing.assert_allclose(quantizer.transform(X), expected, atol=tolerance(np.float32))


def test_first_coordinates_keep_the_cosine_of_the_first_coordinates(X):
    decoded = Quantizer("float32", n_components=5).fit(X).transform(X)
    assert not decoded[:, 5:].any()
    np.testing.assert_allclose(unit(decoded) @ unit(decoded).T, unit(X[:, :5]) @ unit(X[:, :5]).T, atol=1e-6)


def test_bits_have_the_cosine_of_their_hamming_distance(X):
    for preprocess in (None, "rotate", "whiten"):
        quantizer = Quantizer("bit", preprocess=preprocess, random_state=0).fit(X)
        codes, decoded = np.unpackbits(quantizer.encode(X), axis=1), quantizer.transform(X)
        hamming = (codes[:, None] != codes[None]).sum(axis=2)
        np.testing.assert_allclose(decoded @ decoded.T, 1 - 2 * hamming / 12, atol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("preprocess", ["center", "rotate", "whiten"])
def test_projected_queries_rank_like_decoded_vectors(preprocess, metric, X, rng):
    """The order of inner products (or distances) in a database equals that in the original space."""
    quantizer = Quantizer("float32", preprocess=preprocess, metric=metric, random_state=0).fit(X)
    queries = rng.standard_normal((20, 12)).astype(np.float32) + 0.5
    Z, Q = quantizer.project(X).astype(np.float64), quantizer.project_queries(queries).astype(np.float64)
    if metric == "cosine":
        found, expected = Q @ Z.T, unit(queries) @ unit(X).T
    elif preprocess != "whiten":  # whitening changes distances
        found = -((Q[:, None] - Z[None]) ** 2).sum(axis=2)
        expected = -((queries[:, None].astype(float) - X[None]) ** 2).sum(axis=2)
    else:
        return
    apart = expected - found  # constant for each query
    np.testing.assert_allclose(apart, np.repeat(apart[:, :1], len(X), axis=1), atol=1e-4)


@pytest.mark.parametrize(("precision", "scale"), INTEGERS)
def test_error_is_at_most_one_step(precision, scale, X):
    quantizer = Quantizer(precision, scale=scale, metric="euclidean").fit(X)
    error = np.abs(quantizer.transform(X) - X)
    levels = {"int8": 255, "int4": 15}[precision]
    spans = {
        "coordinate": np.ptp(X, axis=0),
        "shared": np.ptp(X),
        "vector": np.abs(X).max(axis=1, keepdims=True) * 2 * levels / (levels - 1),
    }
    assert (error <= spans[scale] / levels * 0.5 * (1 + 1e-3)).all()


def test_rotation_is_orthogonal_and_depends_on_the_seed():
    Q = random_rotation(9, 3)
    np.testing.assert_allclose(Q @ Q.T, np.eye(9), atol=1e-12)
    assert np.array_equal(Q, random_rotation(9, 3))
    assert not np.allclose(Q, random_rotation(9, 4))


def test_pca_keeps_the_most_of_the_vectors(X):
    """The directions of the second moments lose the least of unit vectors (Eckart and Young)."""
    decoded = Quantizer("float32", n_components=4, reduction="pca").fit(X).transform(X)
    values = np.linalg.svd(unit(X), compute_uv=False)
    np.testing.assert_allclose(((decoded - unit(X)) ** 2).sum(), (values[4:] ** 2).sum(), rtol=1e-3)


def test_whitened_projections_have_variance_one(X):
    projected = Quantizer("int8", preprocess="whiten").fit(X).project(X)
    np.testing.assert_allclose(np.cov(projected.T, bias=True), np.eye(12), atol=1e-3)


def test_rotation_lets_few_bits_keep_vectors_with_a_rogue_dimension(rng):
    """One large coordinate takes the shared range; a rotation spreads it (fixed draw; margins are wide)."""
    X = rng.standard_normal((400, 32)).astype(np.float32)
    X[:, 3] *= 30
    errors = {}
    for preprocess in (None, "rotate"):
        quantizer = Quantizer("int4", scale="shared", preprocess=preprocess, metric="euclidean", random_state=0).fit(X)
        errors[preprocess] = float(((quantizer.transform(X) - X) ** 2).mean())
    assert errors["rotate"] < errors[None] / 2


def test_shared_geometry_fits_the_same_quantizers(X):
    geometry = Geometry(X, "cosine", 7)
    for frame in FRAMES:
        shared = Quantizer("int8", **frame).fit_geometry(geometry)
        alone = Quantizer("int8", **frame).fit_geometry(Geometry(X, "cosine", 7))
        assert np.array_equal(shared.encode(X), alone.encode(X))


def test_values_outside_the_range_get_its_ends(X):
    quantizer = Quantizer("int8", metric="euclidean").fit(X)
    codes = quantizer.encode(np.vstack([X.min(axis=0) - 9, X.max(axis=0) + 9]))
    assert (codes[0] == 0).all()
    assert (codes[1] == 255).all()


def test_nibbles_are_unpacked():
    codes = np.arange(15, dtype=np.uint8).reshape(3, 5)
    assert pack_nibbles(codes).shape == (3, 3)
    assert np.array_equal(unpack_nibbles(pack_nibbles(codes), 5), codes)


def test_rows_of_zeros_stay_zero_and_constant_columns_are_kept(X):
    X[:, 2] = 3
    X[5] = 0
    quantizer = Quantizer("int8", metric="euclidean").fit(np.delete(X, 5, axis=0))
    decoded = quantizer.transform(X)
    assert not decoded[5].any()
    np.testing.assert_allclose(np.delete(decoded[:, 2], 5), 3, atol=1e-6)


def test_tensors_and_half_precision_give_the_same_vectors(X):
    torch = pytest.importorskip("torch")
    quantizer = Quantizer("int4").fit(X)
    expected = quantizer.transform(X)
    assert np.array_equal(quantizer.transform(torch.tensor(X)).numpy(), expected)
    assert quantizer.transform(X.astype(np.float16)).dtype == np.float16


# faiss as the reference


SCALAR_QUANTIZERS = {
    ("int8", "coordinate"): "QT_8bit",
    ("int8", "shared"): "QT_8bit_uniform",
    ("int4", "coordinate"): "QT_4bit",
    ("int4", "shared"): "QT_4bit_uniform",
    ("float16", "coordinate"): "QT_fp16",
}


@pytest.mark.parametrize(("precision", "scale"), SCALAR_QUANTIZERS, ids=str)
def test_codes_equal_those_of_faiss(precision, scale, rng):
    faiss = require("faiss")
    X = (rng.standard_normal((2000, 24)) * np.linspace(0.1, 3, 24) + 1).astype(np.float32)
    quantizer = Quantizer(precision, scale=scale, metric="euclidean").fit(X[:1500])
    reference = faiss.ScalarQuantizer(24, getattr(faiss.ScalarQuantizer, SCALAR_QUANTIZERS[precision, scale]))
    reference.train(X[:1500])
    codes, expected = quantizer.encode(X), reference.compute_codes(X)
    assert quantizer.code_size == reference.code_size
    # a value at the border of two intervals may be rounded differently: at most 1 in 10,000
    assert (codes != expected).mean() <= 1e-4
    same = (codes == expected).all(axis=1)
    np.testing.assert_allclose(quantizer.decode(codes)[same], reference.decode(expected)[same], atol=1e-5)


def test_bits_equal_those_of_faiss(X):
    faiss = require("faiss")
    codes = np.empty((len(X), 2), np.uint8)
    moved = np.ascontiguousarray(X)  # no value is exactly 0, where the two differ
    faiss.fvecs2bitvecs(faiss.swig_ptr(moved), faiss.swig_ptr(codes), 12, len(X))
    assert np.array_equal(Quantizer("bit", metric="euclidean").fit(X).encode(X), codes)


def test_product_codes_equal_those_of_faiss(rng):
    faiss = require("faiss")
    X = rng.standard_normal((600, 16)).astype(np.float32)
    quantizer = Quantizer("pq", n_subvectors=4, metric="euclidean", random_state=0).fit(X)
    reference = faiss.ProductQuantizer(16, 4, 8)
    faiss.copy_array_to_vector(quantizer.centroids_.ravel(), reference.centroids)
    assert quantizer.code_size == 4
    codes = quantizer.encode(X)
    assert (codes != reference.compute_codes(X)).mean() < 1e-3  # two centroids at the same distance
    np.testing.assert_allclose(quantizer.decode(codes), reference.decode(codes), atol=1e-6)
    assert ((quantizer.transform(X) - X) ** 2).mean() < 0.5 * X.var()


# saving and applying


@pytest.mark.parametrize(("precision", "scale"), SIMPLE)
def test_saved_quantizer_gives_the_same_codes(precision, scale, X, tmp_path):
    for i, frame in enumerate(FRAMES):
        quantizer = Quantizer(precision, scale=scale, **frame, random_state=0).fit(X)
        quantizer.save(tmp_path / str(i))
        loaded = isoscope.load_transform(tmp_path / str(i))
        assert isinstance(loaded, Quantizer)
        assert loaded.get_params() == quantizer.get_params()
        assert np.array_equal(loaded.encode(X), quantizer.encode(X))
        assert np.array_equal(loaded.transform(X), quantizer.transform(X))


def test_quantizer_is_applied_to_a_store_and_in_a_chain(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    chain = isoscope.Chain([isoscope.Center(), Quantizer("int4", metric="euclidean")]).fit(tmp_path / "x.npy")
    chain.save(tmp_path / "chain")
    isoscope.repair_store(tmp_path / "x.npy", isoscope.load_transform(tmp_path / "chain"), tmp_path / "y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), chain.transform(X), atol=1e-6)


def test_fit_to_a_store_uses_its_rows(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    from_file = Quantizer("int8", preprocess="rotate", random_state=3).fit(tmp_path / "x.npy")
    assert np.array_equal(from_file.encode(X), Quantizer("int8", preprocess="rotate", random_state=3).fit(X).encode(X))


def test_changed_file_is_rejected(X, tmp_path):
    Quantizer().fit(X).save(tmp_path / "q")
    config = tmp_path / "q" / "config.json"
    config.write_text(config.read_text().replace('"int8"', '"int4"'))
    with pytest.raises(isoscope.InputError, match="checksum"):
        isoscope.load_transform(tmp_path / "q")


# bad input


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"precision": "int2"}, "int2"),
        ({"scale": "row"}, "row"),
        ({"reduction": "last"}, "last"),
        ({"preprocess": "scale"}, "scale"),
        ({"metric": "dot"}, "dot"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 13}, "13.*12"),
        ({"n_subvectors": 1.5}, "n_subvectors"),
        ({"sample": 0}, "sample"),
    ],
)
def test_bad_parameters_are_rejected(parameters, match, X):
    with pytest.raises(ParameterError, match=match):
        Quantizer(**parameters).fit(X)


def test_codes_larger_than_the_vectors_are_rejected(X):
    with pytest.raises(ParameterError, match=r"5 bytes.*4"):
        Quantizer("int8", scale="vector", metric="euclidean").fit(X[:, :1])


def test_codes_of_another_size_are_rejected(X):
    quantizer = Quantizer().fit(X)
    with pytest.raises(ShapeError, match="11"):
        quantizer.decode(np.zeros((3, 11), np.uint8))
    with pytest.raises(ShapeError, match="float64"):
        quantizer.decode(np.zeros((3, 12)))


def test_codes_do_not_depend_on_the_memory_layout(X):
    for precision in ("int8", "int4", "bit"):
        quantizer = Quantizer(precision).fit(X)
        codes = quantizer.encode(X)
        assert np.array_equal(quantizer.encode(np.asfortranarray(X)), codes)
        assert np.array_equal(quantizer.encode(np.repeat(X, 2, axis=1)[:, ::2]), codes)
        assert np.array_equal(quantizer.decode(np.asfortranarray(codes)), quantizer.decode(codes))


def test_an_unfitted_quantizer_says_so(X):
    for call in (Quantizer().encode, Quantizer().decode, Quantizer().project, Quantizer().transform):
        with pytest.raises(NotFittedError):
            call(X)


@pytest.mark.parametrize("factor", [1e16, 1e200])
def test_values_that_overflow_distances_are_rejected(factor, X):
    large = X.astype(np.float64) * factor
    with pytest.raises(ParameterError, match="1e\\+15"):
        Quantizer("int8", metric="euclidean").fit(large)
    with pytest.raises(ParameterError, match="rescale"):
        Quantizer("int8", metric="euclidean").fit(X).encode(large)
    assert Quantizer("int8").fit(large).encode(large).shape == X.shape  # cosine scales them


def test_values_beyond_half_precision_are_rejected(X):
    with pytest.raises(ParameterError, match="float16"):
        Quantizer("float16", metric="euclidean").fit(1e5 * X)


def test_centroids_are_those_of_scikit_learn(rng):
    """The same start and number of rounds; no centroid loses all its rows."""
    X = rng.standard_normal((1000, 4)).astype(np.float32)
    quantizer = Quantizer("pq", n_subvectors=1, metric="euclidean", random_state=0).fit(X)
    seed = np.random.RandomState(0).randint(2**31 - 1, size=2)[1]
    start = X[np.random.default_rng(seed).permutation(len(X))[:256]]
    reference = KMeans(256, init=start, n_init=1, max_iter=8, tol=0, algorithm="lloyd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reference.fit(X)
    np.testing.assert_allclose(quantizer.centroids_[0], reference.cluster_centers_, atol=1e-5)


def test_a_centroid_without_rows_stays(rng):
    X = np.repeat(rng.standard_normal((4, 8)), 100, axis=0).astype(np.float32)
    quantizer = Quantizer("pq", n_subvectors=2, metric="euclidean", random_state=0).fit(X)
    np.testing.assert_allclose(quantizer.transform(X), X, atol=1e-6)


def test_product_quantization_needs_rows_and_a_divisor(X):
    with pytest.raises(TooFewRowsError, match="256"):
        Quantizer("pq", n_subvectors=3).fit(X[:100])
    with pytest.raises(ParameterError, match="divi"):
        Quantizer("pq", n_subvectors=5).fit(X)


def test_sketches_and_onnx_are_rejected(X):
    with pytest.raises(ParameterError, match="Sketch"):
        Quantizer().fit(isoscope.sketch(X))
    pytest.importorskip("onnx")
    with pytest.raises(ParameterError, match="ONNX"):
        clone(Quantizer()).fit(X).to_onnx()
