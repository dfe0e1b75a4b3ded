from functools import partial

import numpy as np
import pytest
from array_api_compat import array_namespace, device
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist, pdist, squareform

import isoscope
from isoscope import InputError
from isoscope._core.arrays import blocks
from isoscope.metrics import objectives as room
from tests.conftest import assert_any_memory_will_do, rotation, tolerance

TOL = tolerance("float64")


def some_labels(n):
    """Labels of unequal size, in no order."""
    return np.minimum(np.arange(n) * 7 % 5, 3)


def labelled(metric, **options):
    return lambda X: metric(X, some_labels(X.shape[0]), **options)


def classified(X):
    return isoscope.metrics.classifier_objective(
        X, some_labels(X.shape[0]), np.cos(np.arange(4.0 * X.shape[-1])).reshape(4, -1)
    )


PAIRWISE = {
    "isotropy": isoscope.metrics.isotropy_objective,
    "silhouette": labelled(isoscope.metrics.silhouette_objective),
    "triplet": labelled(isoscope.metrics.triplet_objective),
}
ALL = PAIRWISE | {
    "isotropy_cosine": partial(isoscope.metrics.isotropy_objective, cosine=True),
    "triplet_plain": labelled(isoscope.metrics.triplet_objective, squared=False),
    "classifier": classified,
}
BY_LABEL = {
    "silhouette": isoscope.metrics.silhouette_objective,
    "triplet": isoscope.metrics.triplet_objective,
    "triplet_plain": partial(isoscope.metrics.triplet_objective, squared=False),
    "classifier": lambda X, labels: isoscope.metrics.classifier_objective(X, labels, np.eye(2, np.shape(X)[-1])),
}


def each(metrics):
    return pytest.mark.parametrize("metric", metrics.values(), ids=metrics)


def sign(labels, others):
    """Return −1 for pairs within a label, and 1 for other pairs."""
    return np.where(np.asarray(labels)[:, None] == np.asarray(others)[None], -1, 1)


def weighted_sign(labels):
    size = np.sum(labels[:, None] == labels[None], axis=1)[:, None]
    return np.where(sign(labels, labels) < 0, size - len(labels), size - 1)


def size_of_terms(X, weights=1):
    """Return the sum of the absolute terms of a pairwise objective, which bounds its rounding error."""
    return np.sum(np.abs(weights) * squareform(pdist(np.asarray(X, np.float64), "sqeuclidean")))


@st.composite
def labelled_grids(draw):
    """Small integers with duplicates; labels may be all equal, all different, or unique to one row."""
    n, d = draw(st.integers(2, 12)), draw(st.integers(2, 5))
    X = draw(arrays(np.float64, (n, d), elements=st.integers(-9, 9)))
    return X, draw(arrays(np.int64, n, elements=st.integers(0, 4)))


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


# The equations of Mickus et al. (2024), written out


@given(labelled_grids())
def test_silhouette_objective_is_equation_1(grid):
    X, labels = grid
    expected = np.sum(sign(labels, labels) * cdist(X, X, "sqeuclidean"))
    assert isoscope.metrics.silhouette_objective(X, labels) == pytest.approx(expected, abs=TOL * (1 + size_of_terms(X)))


@given(labelled_grids())
def test_isotropy_objective_is_equation_2(grid):
    X, _ = grid
    expected = np.sum(cdist(X, X, "sqeuclidean"))
    assert isoscope.metrics.isotropy_objective(X) == pytest.approx(expected, rel=TOL, abs=TOL)
    # its variances by pairs add up to it as the paper says
    assert isoscope.metrics.isotropy_objective(X) == pytest.approx(
        2 * len(X) ** 2 * X.var(axis=0).sum(), rel=TOL, abs=TOL
    )


def test_cosine_is_the_first_line_of_equation_2(cloud):
    variances = np.linalg.eigvalsh(np.cov(cloud.T))
    expected = variances.sum() / (np.sqrt(len(variances)) * np.linalg.norm(variances))
    assert isoscope.metrics.isotropy_objective(cloud, cosine=True) == pytest.approx(expected, rel=TOL)


@given(labelled_grids(), seeds)
def test_classifier_objective_is_both_lines_of_equation_3(grid, rng):
    X, labels = grid
    names, counts = np.unique(labels, return_counts=True)
    C = rng.integers(-9, 9, (len(names), X.shape[1])).astype(float)
    signs = sign(labels, names)
    first = -np.sum(signs * (X @ C.T))
    last = (
        -np.sum((len(names) - 2) / 2 * np.sum(X**2, axis=1))
        - np.sum((len(X) - 2 * counts) / 2 * np.sum(C**2, axis=1))
        + np.sum(signs * cdist(X, C, "sqeuclidean")) / 2
    )
    found = isoscope.metrics.classifier_objective(X, labels, C)
    assert found == pytest.approx(first, rel=TOL, abs=TOL)
    assert found == pytest.approx(last, rel=TOL, abs=TOL * np.sum(cdist(X, C, "sqeuclidean")))


@pytest.mark.parametrize(("squared", "distance"), [(True, "sqeuclidean"), (False, "euclidean")])
@given(grid=labelled_grids())
def test_triplet_objective_is_equation_5(squared, distance, grid):
    X, labels = grid
    weights = weighted_sign(labels)
    expected = np.sum(weights * cdist(X, X, distance))
    floor = TOL * (1 + size_of_terms(X, weights))
    assert isoscope.metrics.triplet_objective(X, labels, squared=squared) == pytest.approx(expected, abs=floor)


@given(labelled_grids())
def test_triplet_objective_bounds_the_loss_over_all_triplets(grid):
    X, labels = grid
    distances = cdist(X, X)
    same = labels[:, None] == labels[None]
    gain = loss = 0
    for a in range(len(X)):
        positives = distances[a, same[a] & (np.arange(len(X)) != a)]
        gaps = positives[:, None] - distances[a, ~same[a]][None]
        gain -= gaps.sum()
        loss += np.maximum(gaps, 0).sum()
    found = isoscope.metrics.triplet_objective(X, labels, squared=False)
    assert found == pytest.approx(gain, rel=TOL, abs=TOL * (1 + size_of_terms(X)))
    assert found >= -loss - TOL * (1 + size_of_terms(X))


# Identities and invariances


@given(labelled_grids())
def test_silhouette_objective_is_plus_or_minus_the_isotropy_objective(grid):
    X, _ = grid
    isotropy = isoscope.metrics.isotropy_objective(X)
    assert isoscope.metrics.silhouette_objective(X, np.arange(len(X))) == pytest.approx(isotropy, rel=TOL, abs=TOL)
    assert isoscope.metrics.silhouette_objective(X, np.zeros(len(X))) == pytest.approx(-isotropy, rel=TOL, abs=TOL)
    for squared in (True, False):
        for labels in (np.arange(len(X)), np.zeros(len(X))):  # no triplet at all
            found = isoscope.metrics.triplet_objective(X, labels, squared=squared)
            assert found == pytest.approx(0, abs=TOL * (1 + size_of_terms(X)))


@given(labelled_grids(), seeds)
def test_rotation_translation_and_order_do_not_matter(grid, rng):
    X, labels = grid
    order = rng.permutation(len(X))
    names = np.array(["wren", "owl", "jay", "rook", "kite"])
    moved = (X @ rotation(X.shape[1], rng) + rng.standard_normal(X.shape[1]))[order]
    for metric in (isoscope.metrics.silhouette_objective, BY_LABEL["triplet"], BY_LABEL["triplet_plain"]):
        floor = 10 * TOL * (1 + size_of_terms(X))
        assert metric(moved, names[labels][order]) == pytest.approx(metric(X, labels), abs=floor)
    assert isoscope.metrics.isotropy_objective(moved) == pytest.approx(
        isoscope.metrics.isotropy_objective(X), rel=TOL, abs=TOL
    )


@each(PAIRWISE)
@given(rng=seeds, power=st.integers(-30, 30))
def test_objectives_grow_with_the_square_of_the_scale(metric, rng, power):
    X = rng.standard_normal((15, 4))
    assert metric(X * 2.0**power) == pytest.approx(metric(X) * 4.0**power, rel=TOL)


@given(seeds, st.integers(-30, 30))
def test_only_the_cosine_is_scale_invariant(rng, power):
    X = rng.standard_normal((15, 4))
    free = isoscope.metrics.isotropy_objective(X, cosine=True)
    assert isoscope.metrics.isotropy_objective(X * 10.0**power, cosine=True) == pytest.approx(free, rel=TOL)
    plain = partial(isoscope.metrics.triplet_objective, labels=some_labels(15), squared=False)
    assert plain(X * 2.0**power) == pytest.approx(plain(X) * 2.0**power, rel=TOL)


def test_cosine_is_a_function_of_isoscore(cloud):
    d = cloud.shape[1]
    cosine = isoscope.metrics.isotropy_objective(cloud, cosine=True)
    assert (d * cosine**2 - 1) / (d - 1) == pytest.approx(isoscope.isoscore(cloud), rel=TOL)


@pytest.mark.parametrize("name", ["isotropy", "silhouette", "triplet", "classifier"])
def test_tiles_do_not_matter(name, rng, monkeypatch):
    X = rng.standard_normal((41, 6)) + 3
    whole = ALL[name](X)
    monkeypatch.setattr(room, "tiles", lambda X, **_: blocks(X.shape[0], 7))
    assert ALL[name](X) == pytest.approx(whole, rel=TOL)


def test_memory_for_the_plain_triplet_objective_does_not_matter(rng):
    X, labels = rng.standard_normal((600, 3)), np.arange(600) % 4
    expected = np.sum(weighted_sign(labels) * cdist(X, X))
    for max_memory in (2**16, 2**28):
        found = isoscope.metrics.triplet_objective(X, labels, squared=False, max_memory=max_memory)
        assert found == pytest.approx(expected, rel=TOL)


# Gradients


@each(ALL)
@pytest.mark.parametrize("shape", [(9, 3), (7, 9)])
def test_gradient_matches_finite_differences(metric, shape, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal(shape) + 1, requires_grad=True)
    assert torch.autograd.gradcheck(metric, [X])


def test_gradient_flows_to_class_vectors(rng):
    torch = pytest.importorskip("torch")
    X, labels = torch.tensor(rng.standard_normal((9, 3))), np.arange(9) % 2
    C = torch.tensor(rng.standard_normal((2, 3)), requires_grad=True)
    assert torch.autograd.gradcheck(lambda C: isoscope.metrics.classifier_objective(X, labels, C), [C])


@each(ALL)
def test_equal_points_have_a_finite_gradient(metric, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(np.repeat(rng.standard_normal((4, 3)), 3, axis=0), requires_grad=True)
    metric(X).backward()
    assert X.grad.isfinite().all()


@each({name: ALL[name] for name in ("silhouette", "triplet_plain")})
def test_jax_and_torch_gradients_agree(metric, rng):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    values = rng.standard_normal((40, 6))
    X = torch.tensor(values, requires_grad=True)
    metric(X).backward()
    found = jax.grad(metric)(jax.numpy.asarray(values, np.float32))
    assert np.asarray(found) == pytest.approx(X.grad.numpy(), rel=tolerance("float32"), abs=tolerance("float32"))


# Libraries and precisions


@each(ALL)
def test_every_library_returns_its_own_type_and_same_value(metric, library, rng):
    X = library.array(rng.standard_normal((40, 6)) + some_labels(40)[:, None])
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
    X = torch.tensor(rng.standard_normal((40, 6)) + some_labels(40)[:, None]).to(getattr(torch, dtype))
    value = metric(X)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(metric(X.double().numpy()), rel=tolerance("float32"))


def test_labels_and_class_vectors_may_use_another_library(library, rng):
    values, codes, C = rng.standard_normal((40, 6)), some_labels(40), rng.standard_normal((4, 6))
    X = library.array(values)
    tol = tolerance(library.name.rpartition("-")[2])
    expected = pytest.approx(isoscope.metrics.classifier_objective(values, codes, C), rel=tol)
    labels = array_namespace(X).asarray(codes)
    assert float(isoscope.metrics.classifier_objective(X, labels, library.array(C))) == expected
    assert float(isoscope.metrics.classifier_objective(X, list(codes), C)) == expected


@each(ALL)
@pytest.mark.parametrize("shape", [(300, 2), (30, 4096)])
@pytest.mark.parametrize(
    "place",
    [
        lambda X: X + some_labels(len(X))[:, None],
        lambda X: X + some_labels(len(X))[:, None] + 1e4,
        lambda X: np.repeat(X[: len(X) // 2], 2, axis=0) + 1e-5 * X,
    ],
    ids=["near", "far", "near_duplicates"],
)
def test_float32_keeps_full_precision(metric, shape, place, rng):
    X = place(rng.standard_normal(shape)).astype(np.float32)
    assert metric(X) == pytest.approx(metric(X.astype(np.float64)), rel=tolerance("float32"))


@each(PAIRWISE)
def test_large_mean_keeps_precision_with_float32_sums(metric, rng):
    jax = pytest.importorskip("jax")
    X = (rng.standard_normal((40, 6)) + 1e4).astype(np.float32)
    expected = metric(X.astype(np.float64))
    floor = tolerance("float32") * size_of_terms(X)  # the labels are noise: nearly everything cancels
    assert float(metric(jax.numpy.asarray(X))) == pytest.approx(expected, abs=floor)


# Edges


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (isoscope.metrics.isotropy_objective([[0, 0], [3, 4]]), 50),
        (isoscope.metrics.isotropy_objective(np.full((5, 2), 0.1)), 0),
        (isoscope.metrics.silhouette_objective([[0, 0], [0, 1], [3, 0]], ["a", "a", "b"]), 2 * (9 + 10 - 1)),
        (isoscope.metrics.triplet_objective([[0, 0], [0, 1], [3, 0]], ["a", "a", "b"]), 9 + 10 - 2),
        (isoscope.metrics.triplet_objective([[0, 0], [0, 1], [3, 0]], ["a", "a", "b"], squared=False), 3 + 10**0.5 - 2),
        (isoscope.metrics.classifier_objective([[2, 0], [0, 1]], ["b", "a"], [[0, 1], [1, 0]]), 3),
    ],
)
def test_small_cases_match_manual_results(found, expected):
    assert found == pytest.approx(expected)


@each(ALL)
def test_memory_layout_does_not_matter_and_input_is_unchanged(metric, rng):
    assert_any_memory_will_do(metric, rng.standard_normal((30, 8)) + 1, rel=TOL)


@each(ALL)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"X has shape \(3,\): need shape \(n, d\)"),
        (np.zeros((2, 5, 3)), r"X has shape \(2, 5, 3\)"),
        (np.ones((1, 3)), "X has 1 row: need at least 2 vectors"),
        (np.ones((9, 1)), "X has 1 column: need vectors of at least 2 dimensions"),
        (np.array([[1, 2], [np.nan, 1], [3, -np.inf]]), "2 of 3 rows of X contain NaN or infinity, first in row 1"),
    ],
    ids=["1d", "3d", "one_row", "one_column", "nan"],
)
def test_invalid_input_raises(metric, X, message):
    with pytest.raises(InputError, match=message):
        metric(X)


@each(BY_LABEL)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1] * 4, "labels has 8 entries but X has 10 rows"),
        (np.zeros((10, 2)), r"labels has shape \(10, 2\): need shape \(10,\), one label per row"),
        ([0.0, np.nan] * 5, "labels has 5 NaN or infinite entries"),
        (["a", None] * 5, "labels .*NoneType, str: need all numbers or all strings"),
    ],
)
def test_invalid_labels_raise(metric, labels, message, rng):
    with pytest.raises(InputError, match=message):
        metric(rng.standard_normal((10, 3)), labels)


@pytest.mark.parametrize(
    ("class_vectors", "message"),
    [
        (
            np.eye(3),
            r"class_vectors has shape \(3, 3\): labels has 2 distinct values and X has 3 columns, so .*\(2, 3\)",
        ),
        (np.eye(2), r"class_vectors has shape \(2, 2\)"),
        (np.ones(3), r"class_vectors has shape \(3,\): need shape"),
        (np.full((2, 3), np.nan), "2 of 2 rows of class_vectors contain NaN or infinity"),
    ],
)
def test_mismatched_class_vectors_raise(class_vectors, message, rng):
    with pytest.raises(InputError, match=message):
        isoscope.metrics.classifier_objective(rng.standard_normal((10, 3)), [0, 1] * 5, class_vectors)


def test_equal_rows_have_no_cosine_objective():
    with pytest.raises(InputError, match="all 5 rows of X are equal"):
        isoscope.metrics.isotropy_objective(np.full((5, 3), 0.1), cosine=True)


def test_too_little_memory_raises():
    with pytest.raises(InputError, match="max_memory is 100 bytes: need at least"):
        isoscope.metrics.triplet_objective(np.eye(3), [0, 1, 1], squared=False, max_memory=100)


@pytest.mark.parametrize("name", ["isotropy", "isotropy_cosine", "silhouette", "triplet"])
def test_transposed_input_warns_at_the_callers_line(name, rng):
    with pytest.warns(isoscope.DataWarning, match="50 rows and 101 columns") as caught:
        ALL[name](rng.standard_normal((50, 101)))
    assert [warning.filename for warning in caught] == [__file__]
