from functools import partial

import numpy as np
import pytest
from array_api_compat import array_namespace, device
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

import isoscope
from isoscope import InputError
from tests.conftest import assert_any_memory_will_do, rotation, tolerance

TOL = tolerance("float64")


def backwards(X):
    """Return the alignment of X with its rows in reverse order, whose pairs are unrelated."""
    return isoscope.alignment(X, array_namespace(X).flip(X, axis=0), alpha=1.5)


ALL = {
    "uniformity": isoscope.uniformity,
    "uniformity_local": partial(isoscope.uniformity, t=6),
    "alignment": backwards,
}


def each(metrics):
    return pytest.mark.parametrize("metric", metrics.values(), ids=metrics)


def on_sphere(X):
    X = np.asarray(X, np.float64)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def uniformity_by_pairs(X, t=2.0):
    squared = pdist(on_sphere(X), "sqeuclidean")
    return logsumexp(-t * squared) - np.log(len(squared))


def alignment_by_pairs(X, Y, alpha=2.0):
    return np.mean(np.linalg.norm(on_sphere(X) - on_sphere(Y), axis=1) ** alpha)


@st.composite
def clouds(draw):
    n, d, seed = draw(st.integers(2, 40)), draw(st.integers(2, 12)), draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).standard_normal((n, d)) + draw(st.sampled_from([0, 1, 100]))


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


# Identities and invariances


@given(clouds(), st.floats(0.01, 10))
def test_uniformity_equals_mean_over_pairs(X, t):
    assert isoscope.uniformity(X, t) == pytest.approx(uniformity_by_pairs(X, t), rel=TOL, abs=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "t",
    [1e-3, 0.5, 2, 5, 10, 30, 100, 1000],
)
def test_uniformity_is_correct_for_every_t(t, dtype, rng):
    X = rng.standard_normal((60, 384)).astype(dtype)
    assert isoscope.uniformity(X, t) == pytest.approx(uniformity_by_pairs(X, t), rel=tolerance(dtype))


@given(clouds(), seeds, st.sampled_from([0.5, 1, 2, 3]))
def test_alignment_equals_mean_over_partners(X, rng, alpha):
    Y = X + rng.standard_normal(X.shape)
    expected = pytest.approx(alignment_by_pairs(X, Y, alpha), rel=TOL)
    assert isoscope.alignment(X, Y, alpha) == expected
    assert isoscope.alignment(Y, X, alpha) == expected


@given(clouds(), seeds)
def test_rotation_lengths_and_order_do_not_matter(X, rng):
    Y = X + rng.standard_normal(X.shape)
    turn, order = rotation(X.shape[1], rng), rng.permutation(len(X))
    lengths = 10.0 ** rng.integers(-100, 100, (len(X), 1))
    uniform = pytest.approx(isoscope.uniformity(X), rel=TOL, abs=1e-14)
    aligned = pytest.approx(isoscope.alignment(X, Y), rel=TOL, abs=1e-14)
    for change in (lambda X: X @ turn, lambda X: X[order], lambda X: X * lengths, lambda X: X * 1e-300):
        assert isoscope.uniformity(change(X)) == uniform
        assert isoscope.alignment(change(X), change(Y)) == aligned


@pytest.mark.parametrize("t", [0.5, 2, 5])
@pytest.mark.parametrize(
    ("X", "squared"),
    [
        ([[3, 4], [6, 8], [0.3, 0.4]], 0),
        (np.diag([1, 2, 3, 4]), 2),
        ([[0, 5], [0, -1]], 4),
        ([[1, 0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]], 3),
    ],
    ids=["one_direction", "orthogonal", "opposite", "triangle"],
)
def test_uniformity_of_equal_distances_is_minus_t_times_square(X, squared, t):
    assert isoscope.uniformity(X, t) == pytest.approx(-t * squared, rel=TOL, abs=TOL)


def test_uniform_high_dimensional_sphere_gives_minus_2t(rng):
    # the squared distances of a high sphere are all near 2
    assert isoscope.uniformity(rng.standard_normal((250, 2000))) == pytest.approx(-4, abs=0.01)


@given(clouds())
def test_a_row_is_aligned_with_itself_and_farthest_from_its_opposite(X):
    assert isoscope.alignment(X, X) == 0
    assert isoscope.alignment(X, 3 * X) == pytest.approx(0, abs=1e-30)
    assert isoscope.alignment(X, -X, alpha=3) == pytest.approx(8, rel=TOL)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiles_do_not_matter(dtype, rng):
    X = rng.standard_normal((1100, 5)).astype(dtype) + 1
    expected = pytest.approx(uniformity_by_pairs(X), rel=tolerance(dtype))
    for max_memory in (2**15, 2**17, 2**30):
        assert isoscope.uniformity(X, max_memory=max_memory) == expected
    assert isoscope.uniformity(X) == isoscope.uniformity(X)  # to the bit, whichever thread is first


# Gradients


@each(ALL)
def test_gradient_matches_finite_differences(metric, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((8, 4)), requires_grad=True)
    assert torch.autograd.gradcheck(metric, [X])


def test_gradient_flows_through_every_tile(rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((70, 4)), requires_grad=True)
    (whole,) = torch.autograd.grad(isoscope.uniformity(X), X)
    (tiled,) = torch.autograd.grad(isoscope.uniformity(X, max_memory=2**15), X)
    assert tiled.numpy() == pytest.approx(whole.numpy(), abs=TOL)


@pytest.mark.parametrize("alpha", [0.5, 1, 2, 3])
def test_equal_partners_have_zero_gradient(alpha, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((8, 4)), requires_grad=True)
    isoscope.alignment(X, X.detach().clone(), alpha).backward()
    assert not X.grad.any()


def test_equal_directions_have_a_finite_gradient():
    torch = pytest.importorskip("torch")
    X = torch.ones((6, 3), dtype=torch.float64, requires_grad=True)
    isoscope.uniformity(X).backward()
    assert X.grad.numpy() == pytest.approx(0, abs=TOL)


@each(ALL)
def test_jax_and_torch_gradients_agree(metric, rng):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    values = rng.standard_normal((40, 6))
    X = torch.tensor(values, requires_grad=True)
    metric(X).backward()
    found = jax.grad(metric)(jax.numpy.asarray(values, np.float32))
    assert np.asarray(found) == pytest.approx(X.grad.numpy(), abs=tolerance("float32"))


# What others compute


@pytest.mark.parametrize("t", [1, 2, 4])
def test_both_agree_with_code_of_wang_and_isola(cloud, t, rng):
    torch = pytest.importorskip("torch")
    x = torch.nn.functional.normalize(torch.tensor(cloud))
    y = torch.nn.functional.normalize(torch.tensor(cloud + rng.standard_normal(cloud.shape)))
    theirs = torch.pdist(x, p=2).pow(2).mul(-t).exp().mean().log()
    assert isoscope.uniformity(x.numpy(), t) == pytest.approx(theirs.item(), rel=TOL, abs=1e-14)
    theirs = (x - y).norm(p=2, dim=1).pow(t).mean()
    assert isoscope.alignment(x.numpy(), y.numpy(), alpha=t) == pytest.approx(theirs.item(), rel=TOL)


# Libraries and precisions


@each(ALL)
def test_every_library_returns_its_own_type_and_same_value(metric, library, rng):
    X = library.array(rng.standard_normal((40, 6)) + 0.5)
    value = metric(X)
    assert array_namespace(value) is array_namespace(X)
    assert value.dtype == X.dtype
    assert device(value) == device(X)
    tol = tolerance(library.name.rpartition("-")[2])
    assert float(value) == pytest.approx(metric(library.values(X)), rel=tol)


@each(ALL)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_input_gives_float32_result(metric, dtype, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((40, 6)) + 0.5).to(getattr(torch, dtype))
    value = metric(X)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(metric(X.double().numpy()), rel=tolerance("float32"))


@each(ALL)
@pytest.mark.parametrize("shape", [(300, 2), (30, 4096)])
@pytest.mark.parametrize(
    "place",
    [lambda X: X, lambda X: X + 1e4, lambda X: np.repeat(X[: len(X) // 2], 2, axis=0) + 1e-5 * X],
    ids=["near", "far", "near_duplicates"],
)
def test_float32_keeps_full_precision(metric, shape, place, rng):
    X = place(rng.standard_normal(shape)).astype(np.float32)
    # cosines of unit vectors in float32 are good to a few eps, and so is their mean
    assert metric(X) == pytest.approx(metric(X.astype(np.float64)), rel=tolerance("float32"), abs=1e-6)


# Edges


@each(ALL)
def test_memory_layout_does_not_matter_and_input_is_unchanged(metric, rng):
    assert_any_memory_will_do(metric, rng.standard_normal((30, 8)) + 1, rel=TOL)


@each(ALL)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"X has shape \(3,\): need shape \(n, d\)"),
        (np.zeros((2, 5, 3)), r"X has shape \(2, 5, 3\)"),
        (np.ones((0, 3)), "X has 0 rows: need at least [12] vectors"),
        (np.ones((9, 1)), "X has 1 column: need vectors of at least 2 dimensions"),
        (np.array([[1, 2], [np.nan, 1], [3, -np.inf]]), "2 of 3 rows of X contain NaN or infinity, first in row 1"),
        (np.array([[1, 2], [0, 0], [3, 1], [0, 0]]), "2 of 4 rows of X are zero: they have no direction"),
    ],
    ids=["1d", "3d", "empty", "one_column", "nan", "zero"],
)
def test_invalid_input_raises(metric, X, message):
    with pytest.raises(InputError, match=message):
        metric(X)


@pytest.mark.parametrize("t", [0, -1, np.nan])
def test_t_out_of_range_raises(t):
    with pytest.raises(InputError, match=f"t is {t}: need a positive number"):
        isoscope.uniformity(np.eye(3), t)


def test_too_little_memory_raises():
    with pytest.raises(InputError, match="max_memory is 100 bytes: need at least"):
        isoscope.uniformity(np.eye(3), max_memory=100)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.ones((4, 3)), r"X has shape \(3, 3\) but Y has shape \(4, 3\): need one row of Y per row of X"),
        (np.ones((3, 2)), r"X has shape \(3, 3\) but Y has shape \(3, 2\)"),
        (np.ones(3), r"Y has shape \(3,\): need shape"),
        (np.diag([1.0, 0, 1]), "1 of 3 rows of Y are zero"),
        (np.diag([1.0, np.nan, 1]), "1 of 3 rows of Y contain NaN or infinity, first in row 1"),
    ],
)
def test_mismatched_partners_raise(Y, message):
    with pytest.raises(InputError, match=message):
        isoscope.alignment(np.eye(3), Y)


def test_partners_of_another_library_raise():
    torch = pytest.importorskip("torch")
    with pytest.raises(
        InputError, match=r"X is a .*numpy array but Y is a .*torch array: need arrays from the same library"
    ):
        isoscope.alignment(np.eye(3), torch.eye(3))


@pytest.mark.parametrize("alpha", [0, -2, np.nan])
def test_alpha_out_of_range_raises(alpha):
    with pytest.raises(InputError, match=f"alpha is {alpha}: need a positive number"):
        isoscope.alignment(np.eye(3), np.eye(3), alpha)


def test_one_pair_has_alignment_and_two_directions_have_uniformity():
    assert isoscope.alignment([[1, 0]], [[0, 3]]) == pytest.approx(2)
    with pytest.raises(InputError, match="X has 1 row: need at least 2 vectors"):
        isoscope.uniformity([[1, 0]])


def test_transposed_input_warns_at_the_callers_line(rng):
    with pytest.warns(isoscope.DataWarning, match="50 rows and 101 columns") as caught:
        isoscope.uniformity(rng.standard_normal((50, 101)))
    assert [warning.filename for warning in caught] == [__file__]
