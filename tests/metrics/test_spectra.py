import warnings
from fractions import Fraction
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from array_api_compat import array_namespace, device
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import sparse, stats
from sklearn.decomposition import PCA

import isoscope
from isoscope import InputError
from isoscope._core import formulas
from isoscope._core.arrays import blocks
from isoscope.metrics import scatter
from tests.conftest import assert_any_memory_will_do, rotation, tolerance

TOL = tolerance("float64")


def skewed(d):
    """A covariance that is neither round nor diagonal."""
    return np.diag(np.arange(1.0, d + 1)) + 0.1


def pulled(X):
    return isoscope.isoscore_star(X, skewed(np.shape(X)[-1]), 0.3)


# Those that a translation leaves alone, and those that see the mean.
CENTERED = {
    "isoscore": isoscope.isoscore,
    "isoscore_unbiased": partial(isoscope.isoscore, unbiased=True),
    "isoscore_star": pulled,
    "participation_ratio": isoscope.participation_ratio,
    "spectrum": isoscope.spectrum,
    "anisotropy_centered": partial(isoscope.anisotropy, k=2, center=True),
    "effective_rank": isoscope.effective_rank,
}
RAW = {
    "spectrum_raw": partial(isoscope.spectrum, center=False),
    "anisotropy": partial(isoscope.anisotropy, k=2),
    "effective_rank_raw": partial(isoscope.effective_rank, center=False),
}
ALL = CENTERED | RAW


def each(metrics):
    return pytest.mark.parametrize("metric", metrics.values(), ids=metrics)


def but(metrics, *names):
    return {name: metric for name, metric in metrics.items() if name not in names}


def five_steps(X, shrinkage=0.0, zeta=0.0):
    """Algorithm 1 of Rudman and Eickhoff (2024), line by line; without shrinkage, that of Rudman et al. (2022)."""
    d = X.shape[1]
    covariance = (1 - zeta) * np.cov(X.T) + zeta * shrinkage
    eigenvalues = np.linalg.eigvalsh(covariance)
    normalised = np.sqrt(d) * eigenvalues / np.linalg.norm(eigenvalues)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    used = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return (d * used - 1) / (d - 1)


def traces_by_quadruples(X):
    """(tr Σ)² and tr(Σ²) from all quadruples of different rows.

    ‖x₁−x₂‖²‖x₃−x₄‖²/4 has the mean (tr Σ)² and ((x₁−x₂)·(x₃−x₄))²/4 the mean tr(Σ²); the average of either over all
    quadruples is the one symmetric unbiased estimate that there is, so the published estimators must be these.
    """
    i, j, k, m = np.array(list(permutations(range(len(X)), 4))).T
    first, second = X[i] - X[j], X[k] - X[m]
    squared_trace = np.mean(np.sum(first**2, axis=1) * np.sum(second**2, axis=1)) / 4
    return squared_trace, np.mean(np.sum(first * second, axis=1) ** 2) / 4


def by_svd(X):
    """IsoScore from the singular values of the centered rows, which is fast for large d."""
    X = np.asarray(X, np.float64)
    variances = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    return (variances.sum() ** 2 / (variances**2).sum() - 1) / (X.shape[1] - 1)


def grids(min_rows):
    """Clouds of small integers: ties, duplicates, zero rows and missing dimensions come up often."""
    shapes = array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=12).filter(lambda s: s[0] >= min_rows)
    return arrays(np.float64, shapes, elements=st.integers(-20, 20)).filter(lambda X: np.ptp(X, axis=0).any())


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


# Identities and invariances


@given(grids(2))
def test_isoscore_equals_five_step_recipe_and_participation_ratio(X):
    score = isoscope.isoscore(X)
    assert score == pytest.approx(five_steps(X), abs=TOL)
    assert score == pytest.approx((isoscope.participation_ratio(X) - 1) / (X.shape[1] - 1), abs=TOL)


@given(grids(2), st.floats(0, 1), seeds)
def test_isoscore_star_equals_recipe_on_shrunk_covariance(X, zeta, rng):
    shrinkage = np.cov(rng.standard_normal((X.shape[1], 30)))
    assert isoscope.isoscore_star(X, shrinkage, zeta) == pytest.approx(five_steps(X, shrinkage, zeta), abs=TOL)


@given(grids(2))
def test_isoscore_star_interpolates_between_data_and_shrinkage_target(X):
    d = X.shape[1]
    assert isoscope.isoscore_star(X, np.eye(d), zeta=0) == pytest.approx(isoscope.isoscore(X), abs=TOL)
    assert isoscope.isoscore_star(X, np.eye(d), zeta=1) == pytest.approx(1, abs=TOL)


@given(grids(6))
def test_unbiased_isoscore_averages_over_all_quadruples_of_different_rows(X):
    X = X[:7]
    d = X.shape[1]
    squared_trace, trace_squared = traces_by_quadruples(X)
    assume(trace_squared > squared_trace / (2 * d) > 0)  # where the estimate is not held back
    expected = (squared_trace / trace_squared - 1) / (d - 1)
    assert isoscope.isoscore(X, unbiased=True) == pytest.approx(expected, rel=TOL, abs=TOL)


@each(ALL)
@given(X=grids(5), rng=seeds)
def test_rotation_and_order_of_rows_do_not_matter(metric, X, rng):
    moved = rng.permutation(X @ rotation(X.shape[1], rng))
    if metric is pulled:  # the shrinkage would have to turn with the cloud
        moved = rng.permutation(X)
    assert metric(moved) == pytest.approx(metric(X), rel=TOL, abs=TOL * np.square(X).sum())


@each(CENTERED)
@given(X=grids(5), shift=st.integers(-1000, 1000))
def test_translation_does_not_matter(metric, X, shift):
    assert metric(X + shift) == pytest.approx(metric(X), rel=TOL, abs=TOL)


@each(but(ALL, "isoscore_star", "spectrum", "spectrum_raw"))
@given(X=grids(5), power=st.integers(-30, 30))
def test_scale_does_not_matter(metric, X, power):
    assert metric(X * 10.0**power) == pytest.approx(metric(X), rel=TOL, abs=TOL)


@given(grids(2), st.booleans(), st.integers(-30, 30))
def test_spectrum_grows_with_the_square_of_the_scale(X, center, power):
    whole = isoscope.spectrum(X, center=center)
    scaled = isoscope.spectrum(X * 2.0**power, center=center)
    assert scaled / 4.0**power == pytest.approx(whole, rel=TOL, abs=TOL * whole[0])


@given(grids(2))
def test_spectrum_is_the_squared_singular_values(X):
    centered = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    raw = np.linalg.svd(X, compute_uv=False) ** 2
    assert isoscope.spectrum(X) == pytest.approx(centered, rel=TOL, abs=TOL * centered[0])
    assert isoscope.spectrum(X, center=False) == pytest.approx(raw, rel=TOL, abs=TOL * raw[0])


@given(grids(2), st.booleans())
def test_shares_and_effective_rank_follow_from_the_spectrum(X, center):
    whole = isoscope.spectrum(X, center=center)
    k = min(X.shape)
    assert isoscope.anisotropy(X, k, center=center) == pytest.approx(whole / whole.sum(), abs=TOL)
    assert isoscope.anisotropy(X, 1, center=center) == pytest.approx(whole[:1] / whole.sum(), abs=TOL)
    assert isoscope.effective_rank(X, center=center) == pytest.approx(np.exp(stats.entropy(whole)), rel=TOL)


@pytest.mark.parametrize(
    ("directions", "d"),
    [(1, 2), (1, 9), (3, 3), (2, 9), (5, 40)],
)
def test_equal_variance_in_some_directions_counts_only_those(directions, d, rng):
    axes = np.eye(d)[:directions] @ rotation(d, rng)
    X = np.concatenate([axes, -axes, 2 * axes, -2 * axes]) + 7
    assert isoscope.participation_ratio(X) == pytest.approx(directions, rel=TOL)
    assert isoscope.effective_rank(X) == pytest.approx(directions, rel=TOL)
    assert isoscope.isoscore(X) == pytest.approx((directions - 1) / (d - 1), abs=TOL)
    assert isoscope.anisotropy(X, 1, center=True) == pytest.approx([1 / directions], rel=TOL)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("shape", [(12, 4), (9, 20), (6, 6)])
def test_interval_is_the_jackknife_over_single_rows(unbiased, shape, rng):
    X = rng.standard_normal(shape) * np.linspace(1, 3, shape[1]) + 5
    n = len(X)
    value, low, high = isoscope.isoscore_interval(X, unbiased=unbiased, confidence=0.9)
    without = [isoscope.isoscore(np.delete(X, i, axis=0), unbiased=unbiased) for i in range(n)]
    reach = stats.t.ppf(0.95, n - 1) * np.sqrt((n - 1) / n * np.sum((without - np.mean(without)) ** 2))
    assert value == isoscope.isoscore_interval(X, unbiased=unbiased).value
    assert (low, high) == pytest.approx((value - reach, value + reach), rel=TOL, abs=TOL)


@given(grids(5))
def test_leave_one_out_sums_equal_sums_without_the_row(X):
    def sums(X):
        Y = X - X.mean(axis=0)
        W = Y.T @ Y
        return np.trace(W), np.sum(W**2), np.sum(np.sum(Y**2, axis=1) ** 2)

    n = len(X)
    Y = X - X.mean(axis=0)
    r = np.sum(Y**2, axis=1)
    found = formulas.leave_one_out(n, *sums(X), r=r, q=np.sum((Y @ Y.T) ** 2, axis=1), s=Y @ (r @ Y))
    expected = np.array([sums(np.delete(X, i, axis=0)) for i in range(n)]).T
    for mine, theirs, whole in zip(found, expected, sums(X), strict=True):
        assert mine == pytest.approx(theirs, rel=TOL, abs=TOL * whole)


@each(ALL | {"interval": isoscope.isoscore_interval})
@pytest.mark.parametrize("shape", [(60, 5), (23, 30)])
def test_tiles_do_not_matter(metric, shape, rng, monkeypatch):
    X = rng.standard_normal(shape) + 3
    whole = metric(X)
    monkeypatch.setattr(scatter, "tiles", lambda X, **_: blocks(X.shape[0], 7))
    assert metric(X) == pytest.approx(whole, rel=TOL, abs=TOL)


def test_many_rows_use_the_mean_of_a_few_rows_as_pivot(rng):
    n, d = 1300, 3
    X = rng.exponential(size=(n, d)) * [1, 2, 3] + 1e3
    Y = X - X.mean(axis=0)
    W = Y.T @ Y
    traces = formulas.unbiased_traces(n, np.trace(W), np.sum(W**2), np.sum(np.sum(Y**2, axis=1) ** 2))
    value, low, high = isoscope.isoscore_interval(X)
    without = [isoscope.isoscore(np.delete(X, i, axis=0), unbiased=True) for i in range(n)]
    assert value == pytest.approx(formulas.isoscore(traces, d), rel=TOL)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, n - 1) * np.sqrt(n - 1) * np.std(without), rel=TOL)
    assert isoscope.isoscore(X) == pytest.approx(five_steps(X), rel=TOL)
    assert pulled(X) == pytest.approx(five_steps(X, skewed(d), 0.3), rel=TOL)
    assert isoscope.spectrum(X) == pytest.approx(np.linalg.svd(Y, compute_uv=False) ** 2, rel=TOL)
    assert isoscope.spectrum(X, center=False) == pytest.approx(np.linalg.svd(X, compute_uv=False) ** 2, rel=TOL)


# Gradients


@each(ALL)
@pytest.mark.parametrize("shape", [(9, 3), (5, 7)])
def test_gradient_matches_finite_differences(metric, shape, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal(shape) * np.linspace(1, 2, shape[1]) + 1, requires_grad=True)
    assert torch.autograd.gradcheck(metric, [X])


@each({name: ALL[name] for name in ("isoscore", "isoscore_star")})
def test_jax_and_torch_gradients_agree(metric, rng):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    values = rng.standard_normal((40, 6)) * [1, 2, 3, 4, 5, 6]
    X = torch.tensor(values, requires_grad=True)
    metric(X).sum().backward()
    found = jax.grad(lambda X: metric(X).sum())(jax.numpy.asarray(values, np.float32))
    assert np.asarray(found) == pytest.approx(X.grad.numpy(), abs=tolerance("float32"))


def test_isoscore_can_be_compiled_by_jax(rng):
    jax = pytest.importorskip("jax")
    X = rng.standard_normal((40, 6)).astype(np.float32)
    assert float(jax.jit(isoscope.isoscore)(X)) == pytest.approx(isoscope.isoscore(X), rel=tolerance("float32"))


@each(but(CENTERED, "spectrum", "anisotropy_centered"))
def test_gradient_is_finite_where_eigenvalues_are_equal(metric):
    torch = pytest.importorskip("torch")
    X = torch.concat([torch.eye(4), -torch.eye(4)]).double().requires_grad_()
    metric(X).backward()
    assert X.grad.isfinite().all()


def test_interval_keeps_the_gradient_of_the_value(rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((12, 4)), requires_grad=True)
    (alone,) = torch.autograd.grad(isoscope.isoscore(X, unbiased=True), X)
    (beside,) = torch.autograd.grad(isoscope.isoscore_interval(X).value, X)
    assert torch.equal(alone, beside)


# What others compute


@pytest.mark.parametrize(
    "case",
    [
        "ball_500x3",
        "disk_500x3",
        "line_500x3",
        "aniso_300x10_mean50",
        "square_40x40",
        "two_dims_100x2",
        "n_lt_d_20x50",
        "float32_256x32",
    ],
)
def test_isoscore_agrees_with_both_published_versions(case, vectors):
    clouds, published = vectors("isoscore")
    score, case = isoscope.isoscore(clouds[case]), published["cases"][case]
    assert score == pytest.approx(case["v2_pypi"], abs=1e-6)
    if case["v1_error"] is None:
        assert score == pytest.approx(case["v1_repo"], abs=1e-10 if case["dtype"] == "float64" else 1e-6)


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_isoscore_agrees_with_the_authors_package(cloud):
    theirs = pytest.importorskip("IsoScore.IsoScore")
    assert isoscope.isoscore(cloud) == pytest.approx(float(theirs.IsoScore(cloud)), abs=1e-6)


@pytest.mark.parametrize("zeta", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("case", ["n300_d24", "n10_d24", "n64_d4_exactlyiso_C0"])
def test_isoscore_star_and_its_gradient_agree_with_the_authors(case, zeta, vectors):
    torch = pytest.importorskip("torch")
    clouds, published = vectors("isoscore_star")
    published = published["cases"][case][f"zeta_{zeta}"]
    X = torch.tensor(clouds[f"{case}_X"], requires_grad=True)
    score = isoscope.isoscore_star(X, clouds[f"{case}_C0"], zeta)
    (-3 * (1 - score)).backward()
    assert score.item() == pytest.approx(published["repo"], abs=1e-6)
    assert X.grad.numpy() == pytest.approx(clouds[f"{case}_grad_lam-3_zeta{zeta}"], abs=1e-6)


def test_isoscore_of_initial_mickus_toy_data(vectors):
    clouds, published = vectors("misc")
    (_, score, _, _), *_ = next(iter(v for k, v in published["cases"].items() if k.startswith("mickus_toy(")))
    assert isoscope.isoscore(clouds["mickus_E0"]) == pytest.approx(score, abs=1e-6)  # theirs is in float32


def test_anisotropy_agrees_with_its_authors(vectors):
    clouds, published = vectors("misc")
    X, published = clouds["ani_X"], published["cases"]
    raw = published["anisotropy_all(returns raw singular values, not ratios)"]
    assert isoscope.anisotropy(X) == pytest.approx(published["anisotropy_top3"], abs=1e-8)
    assert isoscope.anisotropy(X, center=True) == pytest.approx(published["anisotropy_centered_top3"], abs=1e-8)
    assert np.sqrt(isoscope.spectrum(X, center=False))[: len(raw)] == pytest.approx(raw, rel=1e-8)


def test_spectrum_agrees_with_scikit_learn(cloud):
    fitted = PCA(svd_solver="full").fit(cloud)
    expected = fitted.explained_variance_ * (len(cloud) - 1)
    assert isoscope.spectrum(cloud) == pytest.approx(expected, rel=TOL, abs=TOL * expected[0])
    assert isoscope.anisotropy(cloud, 2, center=True) == pytest.approx(fitted.explained_variance_ratio_[:2], rel=TOL)


# Libraries and precisions


@each(ALL)
@pytest.mark.parametrize("shape", [(40, 6), (12, 17)])
def test_every_library_returns_its_own_type_and_same_value(metric, shape, library, rng):
    X = library.array(rng.standard_normal(shape) + 2)
    value = metric(X)
    assert array_namespace(value) is array_namespace(X)
    assert value.dtype == X.dtype
    assert device(value) == device(X)
    tol = tolerance(library.name.rpartition("-")[2])
    assert library.values(value) == pytest.approx(metric(library.values(X)), rel=tol, abs=tol)


@each(ALL)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_input_gives_float32_result(metric, dtype, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((40, 6)) + 2).to(getattr(torch, dtype))
    value = metric(X)
    assert value.dtype == torch.float32
    assert value.numpy() == pytest.approx(metric(X.double().numpy()), rel=tolerance("float32"))


def test_interval_is_the_same_in_every_library(library, rng):
    X = library.array(rng.standard_normal((40, 6)) * [1, 2, 3, 4, 5, 6])
    expected = isoscope.isoscore_interval(library.values(X))
    found = isoscope.isoscore_interval(X)
    tol = tolerance(library.name.rpartition("-")[2])
    assert [float(number) for number in found] == pytest.approx(expected, rel=tol)


@pytest.mark.parametrize("given", [list, tuple, lambda X: X.astype(np.int8), lambda X: X.astype(np.longdouble)])
def test_numeric_input_is_measured_in_float64(given, rng):
    X = rng.integers(-9, 9, (20, 3)).astype(np.float64)
    score = isoscope.isoscore(given(X))
    assert score.dtype == np.float64
    assert score == isoscope.isoscore(X)


def test_byte_order_does_not_matter(rng):
    X = rng.standard_normal((30, 4))
    score = isoscope.isoscore(X.astype(X.dtype.newbyteorder()))
    assert score.dtype == np.float64
    assert score == pytest.approx(isoscope.isoscore(X), rel=1e-12)


# The promise: within 4·√eps of the float64 value, wherever the cloud lies


@each(ALL)
@pytest.mark.parametrize("shape", [(1300, 12), (12, 30)])
@pytest.mark.parametrize(
    "place",
    [
        lambda X: X + 1e4,
        lambda X: 1e-3 * X + 10 * np.cos(np.arange(X.shape[1])),
        lambda X: np.repeat(X[: len(X) // 2], 2, axis=0) + 1e-5 * X,
    ],
    ids=["far", "far_in_some_dimensions", "near_duplicates"],
)
def test_float32_keeps_full_precision(metric, shape, place, rng):
    X = place(rng.standard_normal(shape)).astype(np.float32)
    expected = metric(X.astype(np.float64))
    # eigenvalues are as good as the largest of them allows
    floor = tolerance("float32") * np.max(expected) if np.ndim(expected) else 0
    assert metric(X) == pytest.approx(expected, rel=tolerance("float32"), abs=floor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1300, 5), (90, 2), (2, 2), (70, 33), (64, 64), (20, 65), (24, 768), (24, 4096), (2, 4096)]
)
def test_isoscore_is_correct_at_any_size(shape, dtype, rng):
    X = (rng.standard_normal(shape) * np.linspace(1, 2, shape[1]) + 1e4).astype(dtype)
    assert isoscope.isoscore(X) == pytest.approx(by_svd(X), rel=tolerance(dtype), abs=tolerance(dtype))
    assert isoscope.spectrum(X).shape == (min(shape),)


@pytest.mark.parametrize(
    ("metric", "scale", "dtype"),
    [
        (isoscope.isoscore, 1e-100, np.float64),
        (isoscope.isoscore, 1e80, np.float64),
        (isoscope.isoscore, 1e20, np.float32),
        (partial(isoscope.isoscore, unbiased=True), 1e-100, np.float64),
        (partial(isoscope.isoscore, unbiased=True), 1e80, np.float64),
        (isoscope.participation_ratio, 1e80, np.float64),
        (isoscope.effective_rank, 1e160, np.float64),
        (isoscope.anisotropy, 1e160, np.float64),
        *[
            (lambda X: isoscope.isoscore_star(X, np.cov(X.T)), *scale_and_dtype)
            for scale_and_dtype in [(1e10, np.float32), (1e-12, np.float32), (1e80, np.float64), (1e-100, np.float64)]
        ],
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_scale_within_dtype_range_gives_same_value(metric, scale, dtype, rng):
    X = rng.standard_normal((60, 6)) * [1, 2, 3, 4, 5, 6]
    assert metric((X * scale).astype(dtype)) == pytest.approx(metric(X), rel=tolerance(dtype))


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_constant_column_does_not_hide_a_tiny_spread(unbiased, rng):
    X = np.column_stack([np.ones(60), rng.standard_normal((60, 5))])
    tiny = X * [1, *[1e-100] * 5]
    assert isoscope.isoscore(tiny, unbiased=unbiased) == pytest.approx(isoscope.isoscore(X, unbiased=unbiased), rel=TOL)


# The unbiased estimate and its interval


def gaussian(variances, n, rng):
    return rng.standard_normal((n, len(variances))) * np.sqrt(variances)


def truth(variances):
    return (variances.sum() ** 2 / (variances**2).sum() - 1) / (len(variances) - 1)


POWER_LAW = 1 / np.arange(1.0, 257)


@pytest.mark.parametrize(
    ("variances", "n", "draws"),
    [(np.ones(768), 64, 40), (np.ones(64), 32, 200), (POWER_LAW, 64, 200), (POWER_LAW[:64], 64, 200)],
    ids=["ball_768", "ball_64", "power_law_256", "power_law_64"],
)
def test_unbiased_isoscore_is_accurate_where_plug_in_is_not(variances, n, draws, rng):
    clouds = [gaussian(variances, n, rng) for _ in range(draws)]
    scores = np.array([isoscope.isoscore(X, unbiased=True) for X in clouds])
    # the traces are unbiased; their ratio is so up to O(1/n)
    assert scores.mean() == pytest.approx(truth(variances), rel=0.06)
    plug_in = np.mean([isoscope.isoscore(X) for X in clouds])
    assert abs(plug_in - truth(variances)) > 3 * abs(scores.mean() - truth(variances))
    assert plug_in < 0.93 * truth(variances)


@pytest.mark.parametrize("variances", [np.ones(64), POWER_LAW[:32]], ids=["ball", "power_law"])
@pytest.mark.parametrize("noise", ["laplace", "uniform"])
def test_unbiased_isoscore_does_not_need_gaussian_data(noise, variances, rng):
    draw = getattr(rng, noise)
    scores = [
        isoscope.isoscore(draw(-1, 1, (160, len(variances))) * np.sqrt(variances), unbiased=True) for _ in range(200)
    ]
    assert np.mean(scores) == pytest.approx(truth(variances), rel=0.06)


@pytest.mark.parametrize(
    "reach",
    [
        1e2,
        1e4,
        1e5,
    ],
)
def test_unbiased_isoscore_is_robust_to_one_outlier(reach, rng):
    X = rng.standard_normal((9, 4))
    X[3] *= reach
    squared_trace, trace_squared = traces_by_quadruples(X)
    expected = (squared_trace / trace_squared - 1) / 3
    # fourth powers of the reach cancel and leave its square
    assert isoscope.isoscore(X, unbiased=True) == pytest.approx(expected, rel=TOL + 1e-14 * reach**2)


@given(grids(4))
def test_unbiased_isoscore_is_bounded_for_few_rows(X):
    d = X.shape[1]
    score = isoscope.isoscore(X, unbiased=True)
    assert -1 / (d - 1) - TOL <= score <= (2 * d - 1) / (d - 1) + TOL  # PR is held between 0 and 2d


def test_unbiased_isoscore_of_one_dominant_row_equals_that_of_a_line():
    clouds = [np.pad([[by] + [0.0] * (d - 1)], ((0, n), (0, 0))) for n in range(4, 20) for d in (2, 5) for by in (1, 7)]
    assert [isoscope.isoscore(X, unbiased=True) for X in clouds] == pytest.approx([0] * len(clouds), abs=TOL)


@pytest.mark.parametrize(
    ("variances", "n"),
    [(np.ones(16), 100), (POWER_LAW[:8], 100), (POWER_LAW[:64], 64), (POWER_LAW, 64)],
    ids=["ball_16", "power_law_8", "power_law_64", "power_law_256"],
)
def test_interval_has_nominal_coverage(variances, n, rng):
    held = 0
    for _ in range(200):
        _, low, high = isoscope.isoscore_interval(gaussian(variances, n, rng))
        held += low <= truth(variances) <= high
    assert held >= 0.85 * 200


def test_interval_shrinks_with_rows_and_grows_with_confidence(rng):
    X = gaussian(POWER_LAW[:16], 1600, rng)

    def width(rows, confidence=0.95):
        _, low, high = isoscope.isoscore_interval(X[:rows], confidence=confidence)
        return high - low

    assert width(100) > 1.5 * width(400) > 1.5**2 * width(1600)
    assert width(100, 0.5) < width(100, 0.9) < width(100, 0.99)


def test_interval_is_infinite_if_one_row_holds_all_variance():
    clouds = [np.pad([[1.0] * d], ((0, n), (0, 0))) + at for n in range(4, 9) for d in (3, 13) for at in (0, 0.1)]
    ends = [isoscope.isoscore_interval(X, unbiased=False)[1:] for X in clouds]
    assert ends == [(-np.inf, np.inf)] * len(clouds)


# Edges


@each(ALL)
def test_memory_layout_does_not_matter_and_input_is_unchanged(metric, rng):
    assert_any_memory_will_do(metric, rng.standard_normal((30, 8)) + 1, rel=TOL)


@each(ALL)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"X has shape \(3,\): need shape \(n, d\).*X\[None, :\]"),
        (np.zeros((2, 5, 3)), r"X has shape \(2, 5, 3\).*reshape\(-1, X.shape\[-1\]\)"),
        (np.zeros((0, 3)), "X has 0 rows: need at least [124]"),
        (np.ones((9, 1)), "X has 1 column: need vectors of at least 2 dimensions"),
        (
            np.array([[1, 2]] * 4 + [[np.nan, 1]] * 2 + [[3, -np.inf]]),
            "3 of 7 rows of X contain NaN or infinity.*first in row 4",
        ),
        (np.full((8, 2), np.inf), "8 of 8 rows of X contain NaN or infinity.*first in row 0"),
        (np.eye(6, dtype=bool), "X holds booleans"),
        (np.eye(6, dtype=complex), "X has dtype complex128: need real numbers"),
        (np.array([["a", "b"]] * 6), "X has dtype <U1: need real numbers"),
        (np.ma.masked_greater(np.eye(6), 0), "X is a masked array"),
    ],
    ids=["1d", "3d", "empty", "one_column", "nan", "inf", "bool", "complex", "text", "masked"],
)
def test_invalid_input_raises(metric, X, message):
    with pytest.raises(InputError, match=message):
        metric(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1, 2], [3]], "X cannot be read as an array.*equal length"),
        (sparse.eye_array(5), r"X is a sparse matrix.*X.toarray\(\)"),
    ],
    ids=["ragged", "sparse"],
)
def test_non_arrays_raise(X, message):
    with pytest.raises(InputError, match=message):
        isoscope.isoscore(X)


def test_nonfinite_rows_are_counted_in_every_library(library, rng):
    X = rng.standard_normal((12, 3))
    X[[5, 9], 1] = np.nan, np.inf
    with pytest.raises(InputError, match=r"2 of 12 rows of X contain NaN or infinity, first in row 5"):
        isoscope.isoscore(library.array(X))


@pytest.mark.parametrize("metric", [isoscope.isoscore, isoscope.participation_ratio])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_rows_of_several_tiles_are_reported_without_warnings(metric, value):
    X = np.tile(np.eye(768, dtype=np.float32), (4, 1))  # several tiles, which threads sum up
    X[2000, 5] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=r"1 of 3072 rows of X contain NaN or infinity, first in row 2000"):
            metric(X)


@each(but(CENTERED, "spectrum", "isoscore_star"))
@pytest.mark.parametrize("shape", [(9, 4), (6, 20)])
def test_equal_rows_have_no_variance_shares(metric, shape):
    with pytest.raises(InputError, match=f"all {shape[0]} rows of X are equal"):
        metric(np.full(shape, 0.1))


@pytest.mark.parametrize("shape", [(9, 4), (6, 20)])
def test_equal_rows_have_zero_spectrum_and_one_raw_direction(shape):
    X = np.full(shape, 0.1)
    assert not isoscope.spectrum(X).any()
    assert isoscope.anisotropy(X, 1) == pytest.approx([1])
    assert isoscope.effective_rank(X, center=False) == pytest.approx(1)


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("shape", [(200, 6), (6, 9)])
def test_raw_shares_keep_precision_with_a_large_mean(shape, ratio, rng):
    X = rng.standard_normal(shape) * np.linspace(3, 1, shape[1]) + ratio * rng.standard_normal(shape[1])
    # singular values in extended precision: XᵀX of exact integers in Python's own numbers
    exact = [[Fraction(x) for x in row] for row in X.tolist()]
    mean = [sum(column) / len(X) for column in zip(*exact, strict=True)]
    total = float(sum(x * x for row in exact for x in row))
    k = min(shape)
    # the mean's direction is orthogonal to all others up to (spread/mean)², so that what lies across it is the rest
    u = np.array([float(m) for m in mean])
    u /= np.linalg.norm(u)
    Y = np.array([[float(x - m) for x, m in zip(row, mean, strict=True)] for row in exact])
    across = Y - np.outer(Y @ u, u)
    rest = np.linalg.svd(across, compute_uv=False)[: k - 1] ** 2 / total
    near = max(tolerance("float64"), 30 / ratio**2)
    for found in (isoscope.anisotropy(X, k), isoscope.Sketch.of(X).anisotropy(k)):
        assert found[1:] == pytest.approx(rest, rel=near)
        assert found.sum() == pytest.approx(1, rel=tolerance("float64"))


def test_both_raw_spectrum_algorithms_agree(rng):
    Y = rng.standard_normal((300, 5)) * [3, 2, 1.5, 1, 0.5]
    X = Y + 1.01 * np.sqrt(formulas.FAR_MEAN * np.trace(np.cov(Y.T)) / 5)
    moment = X.T @ X
    sketch = isoscope.Sketch.of(X)
    found = formulas.spectrum_about_far_mean(np, sketch.scatter, 300, sketch.mean)
    assert found == pytest.approx(np.linalg.eigvalsh(moment)[::-1], rel=1e-8)


def test_zero_rows_have_no_raw_direction():
    with pytest.raises(InputError, match="all rows of X are zero"):
        isoscope.anisotropy(np.zeros((5, 3)))
    with pytest.raises(InputError, match="all 5 rows of X are equal"):
        isoscope.effective_rank(np.zeros((5, 3)), center=False)


def test_isoscore_star_of_equal_rows_uses_only_the_shrinkage():
    X = np.full((9, 3), 0.1)
    assert isoscope.isoscore_star(X, np.eye(3), 0.2) == pytest.approx(1)
    with pytest.raises(InputError, match="all 9 rows of X are equal"):
        isoscope.isoscore_star(X, np.eye(3), 0)


def test_zero_shrinkage_covariance_raises(rng):
    with pytest.raises(InputError, match="shrinkage"):
        isoscope.isoscore_star(rng.standard_normal((9, 3)), np.zeros((3, 3)), 1)


@pytest.mark.parametrize(
    ("rows", "unbiased", "interval", "needed"), [(1, 0, 0, 2), (2, 0, 1, 3), (3, 1, 0, 4), (4, 1, 1, 5)]
)
def test_isoscore_states_how_many_rows_it_needs(rows, unbiased, interval, needed, rng):
    X = rng.standard_normal((needed, 3))
    ask = partial(isoscope.isoscore_interval if interval else isoscope.isoscore, unbiased=bool(unbiased))
    assert np.isfinite(ask(X)).all()
    with pytest.raises(InputError, match=f"X has {rows} rows?: need at least {needed} vectors"):
        ask(X[:rows])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda X: isoscope.isoscore_interval(X, confidence=95),
            "confidence is 95: need.*between 0 and 1",
        ),
        (lambda X: isoscope.isoscore_interval(X, confidence=0), "confidence is 0"),
        (lambda X: isoscope.isoscore_star(X, np.eye(3), 1.5), "zeta is 1.5: need.*between 0 and 1"),
        (lambda X: isoscope.isoscore_star(X, np.eye(3), np.nan), "zeta is nan"),
        (
            lambda X: isoscope.isoscore_star(X, np.eye(4)),
            r"shrinkage has shape \(4, 4\) but X has 3 columns: need shape \(3, 3\)",
        ),
        (lambda X: isoscope.isoscore_star(X, np.ones(3)), r"shrinkage has shape \(3,\): need shape"),
        (lambda X: isoscope.isoscore_star(X, np.full((3, 3), np.nan)), "3 of 3 rows of shrinkage contain NaN"),
        (lambda X: isoscope.anisotropy(X, 0), r"k is 0, but X of shape \(9, 3\) has 3 principal axes: need 1 ≤ k ≤ 3"),
        (lambda X: isoscope.anisotropy(X, 4), "k is 4"),
        (lambda X: isoscope.anisotropy(X[:2], 3), r"k is 3, but X of shape \(2, 3\) has 2 principal axes"),
    ],
)
def test_parameters_out_of_range_raise(ask, message, rng):
    with pytest.raises(InputError, match=message):
        ask(rng.standard_normal((9, 3)))


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_shrinkage_may_come_from_another_library_and_precision(name, rng):
    torch = pytest.importorskip("torch")
    X, S = rng.standard_normal((20, 3)), np.diag([1.0, 2, 3])
    expected = isoscope.isoscore_star(X, S)
    mixed = (X, torch.tensor(S).float()) if name == "numpy" else (torch.tensor(X), S.astype(np.float32))
    found = isoscope.isoscore_star(*mixed)
    assert array_namespace(found) is array_namespace(mixed[0])
    assert float(found) == pytest.approx(expected, rel=TOL)


def test_transposed_data_warns_at_the_line_of_the_caller(rng):
    X = rng.standard_normal((50, 101))
    with pytest.warns(isoscope.DataWarning, match=r"50 rows and 101 columns.*pass X\.T") as caught:
        isoscope.isoscore(X)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1, 1e18])
def test_isoscore_star_without_shrinkage_is_isoscore_at_any_scale(scale, rng):
    X = (rng.standard_normal((30, 4)) * scale).astype(np.float32)
    assert isoscope.isoscore_star(X, np.eye(4), zeta=0) == pytest.approx(isoscope.isoscore(X), rel=tolerance("float32"))


@pytest.mark.parametrize("zeta", [None, "a"])
def test_nonnumeric_zeta_raises(zeta):
    with pytest.raises(InputError, match=r"zeta is .*: need a number"):
        isoscope.isoscore_star(np.eye(3), np.eye(3), zeta)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.987, 0.976, 0.998), "0.99 [0.98, 1.00]"),
        ((0.00312, 0.00301, 0.00325), "0.0031 [0.0030, 0.0032]"),
        ((0.5, -np.inf, np.inf), "0.50 [-inf, inf]"),
        ((0.5, 0.5, 0.5), "0.50 [0.50, 0.50]"),
    ],
)
def test_estimate_prints_its_interval(numbers, text):
    estimate = isoscope.metrics.Estimate(*numbers)
    assert str(estimate) == f"{estimate}" == text
    assert repr(estimate) == f"Estimate({text})"


def test_estimate_of_a_tensor_prints_plain_numbers(rng):
    torch = pytest.importorskip("torch")
    estimate = isoscope.isoscore_interval(torch.tensor(rng.standard_normal((12, 4)), requires_grad=True))
    assert "tensor" not in repr(estimate)
