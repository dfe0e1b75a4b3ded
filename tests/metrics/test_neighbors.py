"""Local dimension and hubs: invariants, reference values and rejected input."""

from __future__ import annotations

import re

import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import skew
from sklearn.neighbors import NearestNeighbors

import isoscope
from isoscope.metrics.neighbors import local_dimensions
from tests.conftest import DTYPES, HARD, memory_for, rotation, tolerance

MEASURES = {
    "lid": lambda X, **options: isoscope.lid(X, 10, **options),
    "lid-cosine": lambda X, **options: isoscope.lid(X, 10, metric="cosine", **options),
    "two_nn": isoscope.two_nn,
    "hubness": lambda X, **options: isoscope.hubness(X, 5, **options).skewness,
    "antihubs": lambda X, **options: isoscope.hubness(X, 5, metric="cosine", **options).antihubs,
    "largest": lambda X, **options: isoscope.hubness(X, 5, **options).largest,
}
of_each_measure = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
of_each_dimension = pytest.mark.parametrize(
    "measure", [MEASURES[name] for name in ("lid", "lid-cosine", "two_nn")], ids=["lid", "lid-cosine", "two_nn"]
)


def neighbor_distances(X: np.ndarray, k: int, metric: str = "euclidean") -> np.ndarray:
    """The k nearest distances of each row by brute force in float64."""
    X = X.astype(np.float64)
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    table = cdist(X, X)
    np.fill_diagonal(table, np.inf)
    return np.sort(table, axis=1)[:, :k]


def local_dimension(r: np.ndarray) -> float:
    return float((-(r.shape[1] - 2) / np.log(r / r[:, -1:]).sum(axis=1)).mean())


def two_neighbor_slope(r: np.ndarray, discard: float = 0.1) -> float:
    n, kept = len(r), int(len(r) * (1 - discard))
    logs = np.sort(np.log(r[:, 1] / r[:, 0]))[:kept]
    return float(logs @ -np.log(1 - np.arange(1, kept + 1) / n) / (logs @ logs))


# what must hold


@of_each_measure
@given(seed=st.integers(0, 10**6), power=st.floats(-100, 100))
def test_rotation_scale_and_order_do_not_matter(measure, seed, power):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 6))
    moved = 10**power * rng.permutation(X) @ rotation(6, rng)
    assert measure(moved) == pytest.approx(measure(X), rel=tolerance("float64"))


@pytest.mark.parametrize("name", ["lid", "two_nn", "hubness", "largest"])
@given(seed=st.integers(0, 10**6), shift=st.floats(-1e4, 1e4))
def test_translation_does_not_matter(name, seed, shift):
    X = np.random.default_rng(seed).standard_normal((40, 5))
    assert MEASURES[name](X + shift) == pytest.approx(MEASURES[name](X), rel=tolerance("float64"))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_cai_convention_counts_all_neighbors_and_halves(cloud, metric):
    whole = isoscope.lid(cloud, 9, metric=metric)
    expected = float(whole) * 9 / 7 / 2
    assert isoscope.lid(cloud, 9, metric=metric, convention="cai") == pytest.approx(expected, rel=tolerance("float64"))


def test_cosine_is_the_chord_of_unit_vectors(cloud):
    units = cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    assert isoscope.lid(cloud, 9, metric="cosine") == pytest.approx(isoscope.lid(units, 9), rel=tolerance("float64"))
    assert isoscope.hubness(cloud, 4, metric="cosine") == pytest.approx(isoscope.hubness(units, 4))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_constant_coordinates_do_not_matter(rng, d):
    X = rng.random((300, d))
    wide = X @ np.eye(d, 50)
    assert isoscope.lid(wide, 20) == pytest.approx(isoscope.lid(X, 20), rel=tolerance("float64"))
    assert isoscope.two_nn(wide) == pytest.approx(isoscope.two_nn(X), rel=tolerance("float64"))
    assert isoscope.two_nn(X) == pytest.approx(d, rel=0.2)  # 300 points tell it within a fifth


def test_central_hub_is_a_neighbor_of_every_row():
    n = 9
    star = np.concatenate([np.eye(n - 1), np.zeros((1, n - 1))])
    times = np.array([1] + [0] * (n - 2) + [n - 1])
    found = isoscope.hubness(star, 1)
    assert found == pytest.approx((skew(times), (n - 2) / n, n - 1))


def test_no_hubs_if_all_rows_are_neighbors(rng):
    assert isoscope.hubness(rng.standard_normal((12, 3)), 11) == (0, 0, 11)
    assert isoscope.hubness([[0, 1], [5, 5]], 1) == (0, 0, 1)


# outside oracles


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [3, 19])
def test_lid_matches_brute_force(cloud, k, metric):
    expected = local_dimension(neighbor_distances(cloud, k, metric))
    assert isoscope.lid(cloud, k, metric=metric) == pytest.approx(expected, rel=tolerance("float64"))


@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize("k", [5, 20])
def test_lid_matches_unbiased_estimate_of_scikit_dimension(rng, d, k):
    skdim = pytest.importorskip("skdim")
    X = rng.random((400, d)) @ rng.standard_normal((d, 12))
    fitted = skdim.id.MLE(unbiased=True).fit(X, n_neighbors=k)
    assert isoscope.lid(X, k) == pytest.approx(np.mean(fitted.dimension_pw_), rel=1e-6)


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("k", [4, 10])
def test_lid_is_unbiased_for_uniform_density(rng, d, k):
    # the k nearest of a point are as far as Poisson points in a ball: volumes are sums of exponential steps
    volumes = np.cumsum(rng.exponential(size=(40_000, k)), axis=1)
    found, known = local_dimensions(np, volumes ** (1 / d), 1e-16)
    assert known.all()
    assert found.mean() == pytest.approx(d, abs=4 * found.std() / 200)
    biased, _ = local_dimensions(np, volumes ** (1 / d), 1e-16, unbiased=False)
    assert biased.mean() == pytest.approx(d * k / (k - 2), abs=4 * biased.std() / 200)


@pytest.mark.parametrize("name", ["lid_gauss_500x8", "lid_plane2_in_16_500"])
@pytest.mark.parametrize(("short", "metric"), [("l2", "euclidean"), ("cos", "cosine")])
@pytest.mark.parametrize("k", [20, 100])
def test_lid_matches_cai(vectors, name, short, metric, k):
    arrays, scalars = vectors("cai")
    expected = scalars["cases"][name][f"{short}_k{k}"]["mean"]
    found = isoscope.lid(arrays[name], k, metric=metric, convention="cai")
    assert found == pytest.approx(expected, abs=1e-4)  # their cosines are taken in float32


@pytest.mark.parametrize("name", ["id_plane2_in10_800", "id_gauss5_600"])
def test_two_nn_matches_the_papers(vectors, name):
    arrays, scalars = vectors("misc")
    assert isoscope.two_nn(arrays[name]) == pytest.approx(scalars["cases"][name]["skdim_TwoNN"], rel=1e-6)


@pytest.mark.parametrize("discard", [0.05, 0.1, 0.3])
def test_two_nn_matches_scikit_dimension(cloud, discard):
    skdim = pytest.importorskip("skdim")
    expected = skdim.id.TwoNN(discard_fraction=discard).fit(cloud).dimension_
    assert isoscope.two_nn(cloud, discard=discard) == pytest.approx(expected, rel=tolerance("float64"))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 10])
def test_hubs_match_scikit_learn(cloud, k, metric):
    X = cloud if metric == "euclidean" else cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    found = NearestNeighbors(n_neighbors=k).fit(X).kneighbors(return_distance=False)
    times = np.bincount(found.ravel(), minlength=len(X))
    expected = skew(times), (times == 0).mean(), times.max()
    assert isoscope.hubness(cloud, k, metric=metric) == pytest.approx(expected, rel=tolerance("float64"))


# every library and precision


@of_each_measure
def test_every_library_gives_same_result(library, measure, rng):
    X = library.array(rng.standard_normal((60, 7)) + 1)
    found = measure(X)
    assert array_namespace(found) is array_namespace(X)
    assert found.dtype == X.dtype
    assert found.shape == ()
    expected = measure(library.values(X))
    assert library.values(found) == pytest.approx(expected, rel=tolerance(library.name.split("-")[1]))


@of_each_measure
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_is_computed_from_its_exact_values(measure, half, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((60, 7)), dtype=getattr(torch, half))
    found = measure(X)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(measure(X.double().numpy())), rel=tolerance("float32"))


def test_lists_and_integers_become_float64(rng):
    X = rng.integers(0, 10**6, (40, 3))
    assert isoscope.lid(X, 5) == isoscope.lid(X.tolist(), 5) == isoscope.lid(X.astype(float), 5)


LAYOUTS = {
    "read-only": lambda X: (X.setflags(write=False), X)[1],
    "every second row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "by columns": np.asfortranarray,
}


@of_each_measure
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout_works_and_input_is_unchanged(measure, layout, rng):
    X = rng.standard_normal((40, 6))
    given = LAYOUTS[layout](X.copy())
    before = given.tobytes()
    found = measure(given)
    assert found == pytest.approx(measure(X), rel=1e-12)  # the mean may be summed in another order
    assert given.tobytes() == before


# gradients


@pytest.mark.parametrize(
    "measure",
    [
        lambda X: isoscope.lid(X, 5),
        lambda X: isoscope.lid(X, 5, metric="cosine", convention="cai"),
        isoscope.two_nn,
    ],
    ids=["lid", "lid-cosine", "two_nn"],
)
def test_gradients_match_finite_differences(measure, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((14, 3)) + 1, requires_grad=True)
    assert torch.autograd.gradcheck(measure, (X,))


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *((name, scale) for name in ("lid", "lid-cosine", "two_nn") for scale in (1, 1e-100, 1e100)),
        *(("lid-cosine", scale) for scale in (1e-170, 1e170)),
        *(pytest.param(name, scale) for name in ("lid", "two_nn") for scale in (1e-170, 1e170)),
    ],
)
def test_computing_gradients_does_not_change_the_value(name, scale, rng):
    torch = pytest.importorskip("torch")
    X, measure = torch.tensor(scale * rng.standard_normal((40, 5))), MEASURES[name]
    with_gradient = measure(X.clone().requires_grad_())
    assert with_gradient.requires_grad
    assert float(with_gradient.detach()) == pytest.approx(float(measure(X)), rel=tolerance("float64"))


def test_jax_gradient_of_lid_matches_torch(rng):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    values = rng.standard_normal((20, 3)).astype(np.float32)
    X = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(isoscope.lid(X, 5), X)
    found = jax.grad(lambda Y: isoscope.lid(Y, 5))(jax.numpy.asarray(values))
    np.testing.assert_allclose(found, expected, rtol=tolerance("float32"), atol=tolerance("float32"))


@of_each_dimension
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_gradients_at_duplicates_are_finite(measure, dtype, rng):
    torch = pytest.importorskip("torch")
    values = rng.standard_normal((40, 4))
    X = torch.tensor(np.concatenate([values, values[:3]]), dtype=getattr(torch, dtype), requires_grad=True)
    with pytest.warns(isoscope.DataWarning, match="6 of 43 rows have a duplicate"):
        (gradient,) = torch.autograd.grad(measure(X), X)
    assert gradient.dtype == X.dtype
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0


# digits


@pytest.mark.parametrize("d", [2, 64, 4096])
@pytest.mark.parametrize("shape", HARD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ill_conditioned_data_keep_full_precision(rng, shape, d, dtype):
    X = HARD[shape](120, d, rng).astype(dtype)
    assert isoscope.lid(X, 5) == pytest.approx(local_dimension(neighbor_distances(X, 5)), rel=tolerance(dtype))
    assert isoscope.two_nn(X) == pytest.approx(two_neighbor_slope(neighbor_distances(X, 2)), rel=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_nearly_parallel_vectors_keep_full_precision(rng, dtype):
    X = (np.ones(8) + 1e-4 * rng.standard_normal((120, 8))).astype(dtype)
    expected = local_dimension(neighbor_distances(X, 5, "cosine"))
    assert isoscope.lid(X, 5, metric="cosine") == pytest.approx(expected, rel=tolerance(dtype))


# blocks and samples


@of_each_measure
def test_blocks_do_not_matter(measure, rng):
    X = rng.standard_normal((700, 6))
    assert measure(X, max_memory=memory_for(40)) == pytest.approx(measure(X), rel=tolerance("float64"))


@of_each_measure
def test_sample_depends_only_on_the_seed(measure, rng):
    X = rng.standard_normal((300, 6))
    assert measure(X, sample=300) == measure(X)
    assert measure(X, sample=100, seed=3) == measure(X, sample=100, seed=3)
    if measure is not MEASURES["largest"]:  # a small whole number, that two samples may share
        assert measure(X, sample=100, seed=3) != measure(X, sample=100, seed=4)


def test_mean_over_samples_approaches_full_value(rng):
    X = rng.standard_normal((200, 4))
    means = [isoscope.lid(X, 10, sample=100, seed=seed) for seed in range(30)]
    spread = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - isoscope.lid(X, 10)) < 4 * spread


# duplicates


def test_zero_distance_neighbors_are_excluded_and_counted(rng):
    X = rng.standard_normal((50, 4))
    X[7] = X[8] = X[3]
    r = neighbor_distances(X, 10)
    logs = np.log(np.where(r > 0, r, r[:, -1:]) / r[:, -1:])
    expected = (-((r > 0).sum(axis=1) - 2) / logs.sum(axis=1)).mean()
    with pytest.warns(isoscope.DataWarning, match="3 of 50 rows have a duplicate; 0 rows yield no estimate"):
        assert isoscope.lid(X, 10) == pytest.approx(expected, rel=tolerance("float64"))


def test_rows_without_an_estimate_are_excluded_and_counted(rng):
    X = rng.standard_normal((50, 4))
    X[:6] = 20  # far from the other rows, none of which has only copies as neighbors
    r = neighbor_distances(X, 5)[6:]
    with pytest.warns(isoscope.DataWarning, match="6 of 50 rows have a duplicate; 6 rows yield no estimate"):
        assert isoscope.lid(X, 5) == pytest.approx(local_dimension(r), rel=tolerance("float64"))


def test_two_nn_excludes_and_counts_duplicates(rng):
    X = rng.standard_normal((50, 4))
    X[4] = X[9]
    r = neighbor_distances(X, 2)
    with pytest.warns(isoscope.DataWarning, match="2 of 50 rows have a duplicate; 2 rows yield no estimate"):
        assert isoscope.two_nn(X) == pytest.approx(two_neighbor_slope(r[r[:, 0] > 0]), rel=tolerance("float64"))


def test_first_of_duplicate_rows_is_the_hub():
    assert isoscope.hubness(np.ones((20, 3)), 4) == pytest.approx((skew([19] * 4 + [4] + [0] * 15), 0.75, 19))


@pytest.mark.parametrize(
    ("measure", "complaint"),
    [
        (lambda X: isoscope.lid(X, 5), "no row of X has 5 neighbors at distinct distances"),
        (isoscope.two_nn, "0 of the 0 rows without a duplicate"),
    ],
    ids=["lid", "two_nn"],
)
def test_identical_points_have_no_dimension(measure, complaint):
    with pytest.raises(isoscope.InputError, match=complaint):
        measure(np.ones((20, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turn", [False, True])
def test_a_regular_simplex_has_no_dimension(turn, dtype, rng):
    X = (np.eye(10) @ (rotation(10, rng) if turn else np.eye(10))).astype(dtype)
    with pytest.raises(isoscope.InputError, match="two nearest neighbors at the same distance"):
        isoscope.two_nn(X)
    with pytest.raises(isoscope.InputError, match="no row of X has 5 neighbors at distinct distances"):
        isoscope.lid(X, 5)


# rows without a direction


@pytest.mark.parametrize("options", [{}, {"sample": 30}])
@pytest.mark.parametrize(
    "measure",
    [
        lambda X, **o: isoscope.lid(X, 5, metric="cosine", **o),
        lambda X, **o: isoscope.hubness(X, 5, metric="cosine", **o),
    ],
    ids=["lid", "hubness"],
)
def test_zero_rows_are_excluded_and_counted(measure, options, library, rng):
    X = rng.standard_normal((50, 4))
    with_zeros = library.array(np.insert(X, [0, 7], 0, axis=0))
    with pytest.warns(isoscope.DataWarning, match="2 of 52 rows are zero: they have no direction and are omitted"):
        found = measure(with_zeros, **options)
    expected = measure(library.array(X), **options)
    assert [float(x) for x in np.ravel(found)] == [float(x) for x in np.ravel(expected)]


def test_gradient_at_zero_row_is_zero(rng):
    torch = pytest.importorskip("torch")
    values = rng.standard_normal((50, 4))
    values[7] = 0
    X = torch.tensor(values, requires_grad=True)
    with pytest.warns(isoscope.DataWarning, match="1 of 50 rows are zero"):
        (gradient,) = torch.autograd.grad(isoscope.lid(X, 5, metric="cosine"), X)
    assert not gradient[7].any()
    assert torch.isfinite(gradient).all()


@pytest.mark.filterwarnings("ignore::isoscope.DataWarning")
@pytest.mark.parametrize("measure", [isoscope.lid, isoscope.hubness])
def test_all_zero_rows_raise(measure):
    with pytest.raises(isoscope.InputError, match=r"rows .*are zero"):
        measure(np.zeros((20, 3)), 5, metric="cosine")


# what is refused


def wrong(**changes) -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((30, 4))
    for row, value in changes.get("rows", {}).items():
        X[row] = value
    return X[: changes.get("n", 30)]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: isoscope.lid(wrong(), 30), "k is 30 but X has 30 rows: need 1 ≤ k ≤ 29"),
        (lambda: isoscope.lid(wrong()), "k is 100 but X has 30 rows"),
        (lambda: isoscope.lid(wrong(), 2), "k is 2: need at least 3 neighbors"),
        (lambda: isoscope.lid(wrong(), 1, convention="cai"), "k is 1: need at least 2 neighbors"),
        (lambda: isoscope.lid(wrong(), -3), "k is -3"),
        (lambda: isoscope.lid(wrong(), 2.5), "k is 2.5: need an integer"),
        (lambda: isoscope.lid(wrong(n=3), 3), "k is 3 but X has 3 rows"),
        (lambda: isoscope.lid(wrong(n=1), 3), "X has 1 row: need at least 2"),
        (lambda: isoscope.lid(wrong(), 5, metric="manhattan"), "metric is 'manhattan'"),
        (lambda: isoscope.lid(wrong(), 5, convention="mine"), "convention is 'mine'"),
        (lambda: isoscope.lid(wrong(), 5, sample=0), "sample is 0 but X has 30 rows"),
        (lambda: isoscope.lid(wrong(), 5, sample=31), "sample is 31 but X has 30 rows"),
        (lambda: isoscope.lid(wrong(), 5, sample=9.5), "sample is 9.5: need an integer"),
        (lambda: isoscope.lid(wrong(), 5, max_memory=100), "max_memory is 100 bytes"),
        (lambda: isoscope.lid(wrong(rows={3: np.nan, 9: np.inf}), 5), "2 of 30 rows of X contain NaN.* first in row 3"),
        (lambda: isoscope.lid(wrong()[0], 5), r"X has shape \(\d+,\): need shape"),
        (lambda: isoscope.two_nn(wrong(n=1)), "X has 1 row"),
        (lambda: isoscope.two_nn(wrong(n=2)), "X has 2 rows: need at least 3"),
        (lambda: isoscope.two_nn(wrong(), discard=1), "discard is 1"),
        (lambda: isoscope.two_nn(wrong(), discard=-0.1), "discard is -0.1"),
        (
            lambda: isoscope.two_nn(wrong(), discard=0.95),
            "keeps 1 of the 30 rows without a duplicate: need at least 2",
        ),
        (lambda: isoscope.two_nn(wrong(), sample=99), "sample is 99"),
        (lambda: isoscope.two_nn(wrong(rows={0: np.nan})), "1 of 30 rows of X contain NaN"),
        (lambda: isoscope.hubness(wrong()[:10]), "k is 10 but X has 10 rows"),
        (lambda: isoscope.hubness(wrong(), 0), "k is 0 but X has 30 rows"),
        (lambda: isoscope.hubness(wrong(), 2.5), "k is 2.5: need an integer"),
        (lambda: isoscope.hubness(wrong(n=1), 1), "X has 1 row"),
        (lambda: isoscope.hubness(wrong(), 5, metric="dot"), "metric is 'dot'"),
        (lambda: isoscope.hubness(wrong(), 5, max_memory=1), "max_memory is 1 bytes"),
    ],
)
def test_invalid_input_raises(call, complaint):
    with pytest.raises(isoscope.InputError, match=re.compile(complaint)):
        call()


def test_gradient_of_a_sample_raises(rng):
    torch = pytest.importorskip("torch")
    with pytest.raises(isoscope.InputError, match="X requires gradients"):
        isoscope.lid(torch.tensor(rng.standard_normal((30, 3)), requires_grad=True), 5, sample=10)
