from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from array_api_compat import array_namespace, device
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics.pairwise import cosine_similarity

import isoscope
from isoscope import InputError
from isoscope._core.arrays import blocks
from isoscope.metrics import cosine as room
from tests.conftest import assert_any_memory_will_do, rotation, tolerance

TOL = tolerance("float64")


def some_types(n):
    """Types of unequal size, in no order."""
    return np.minimum(np.arange(n) * 7 % 5, 3)


def typed(metric, **options):
    return lambda X: metric(X, some_types(X.shape[0]), **options)


def clustered(metric, **options):
    return lambda X: metric(X, some_types(X.shape[0]), clustered=np.arange(X.shape[0]) % 3, **options)


BY_TYPE = {
    "intra": typed(isoscope.intra_similarity),
    "inter": typed(isoscope.inter_similarity),
    "inter_types": typed(isoscope.inter_similarity, average="types"),
    "intra_capped": typed(isoscope.intra_similarity, per_type_cap=3),
    "intra_clustered": clustered(isoscope.intra_similarity),
    "inter_clustered": clustered(isoscope.inter_similarity),
}
ALL = {
    "mean_cosine": isoscope.mean_cosine,
    "cosine_contribution": isoscope.cosine_contribution,
} | BY_TYPE


def each(metrics):
    return pytest.mark.parametrize("metric", metrics.values(), ids=metrics)


def off_diagonal(square):
    return square[~np.eye(len(square), dtype=bool)]


def intra_by_pairs(X, types):
    """S_intra as Cai et al. (2021) define it: the mean cosine of each type, averaged over types."""
    cosines = cosine_similarity(X)
    means = [off_diagonal(cosines[np.ix_(own, own)]).mean() for own in members(types) if len(own) > 1]
    return np.mean(means)


def inter_by_pairs(X, types, average="instances"):
    cosines = cosine_similarity(X)
    between = [cosines[np.ix_(a, b)] for a, b in combinations(members(types), 2)]
    return np.mean(
        [block.mean() for block in between] if average == "types" else np.concatenate([*map(np.ravel, between)])
    )


def members(labels):
    return [np.flatnonzero(labels == name) for name in np.unique(labels)]


# Small integers, so that zero rows, opposite rows and duplicates come up often.
grids = st.tuples(st.integers(2, 12), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-3, 3))
)
typed_grids = grids.flatmap(lambda X: st.tuples(st.just(X), arrays(np.int64, len(X), elements=st.integers(0, 3))))
seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


# Identities and invariances


@given(grids)
def test_mean_cosine_equals_mean_of_full_matrix(X):
    assert isoscope.mean_cosine(X) == pytest.approx(off_diagonal(cosine_similarity(X)).mean(), abs=TOL)


@given(grids)
def test_contributions_split_the_mean_over_coordinates(X):
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    unit = X / np.where(lengths > 0, lengths, 1)
    parts = [off_diagonal(np.outer(column, column)).mean() for column in unit.T]
    assert isoscope.cosine_contribution(X) == pytest.approx(parts, abs=TOL)
    assert isoscope.cosine_contribution(X).sum() == pytest.approx(isoscope.mean_cosine(X), abs=TOL)


@given(typed_grids)
def test_similarities_equal_means_over_pairs(typed_grid):
    X, types = typed_grid
    counts = np.unique(types, return_counts=True)[1]
    if counts.max() > 1:
        assert isoscope.intra_similarity(X, types) == pytest.approx(intra_by_pairs(X, types), abs=TOL)
    if len(counts) > 1:
        for average in ("instances", "types"):
            found = isoscope.inter_similarity(X, types, average=average)
            assert found == pytest.approx(inter_by_pairs(X, types, average), abs=TOL)


@given(typed_grids, seeds)
def test_clustered_similarities_subtract_each_cluster_mean(typed_grid, rng):
    X, types = typed_grid
    clusters = rng.integers(0, 3, len(X))
    X = X + 0.1 * rng.standard_normal(X.shape)  # a centered row that is zero up to rounding has a direction of noise
    assume(np.unique(clusters, return_counts=True)[1].min() > 1 and X.shape[1] > 1)
    intra, inter = [], []
    for rows in members(clusters):
        part, own = X[rows] - X[rows].mean(axis=0), types[rows]
        counts = np.unique(own, return_counts=True)[1]
        intra += [intra_by_pairs(part, own)] if counts.max() > 1 else []
        inter += [inter_by_pairs(part, own)] if len(counts) > 1 else []
    if intra:
        assert isoscope.intra_similarity(X, types, clustered=clusters) == pytest.approx(np.mean(intra), abs=TOL)
    if inter:
        assert isoscope.inter_similarity(X, types, clustered=clusters) == pytest.approx(np.mean(inter), abs=TOL)


@given(grids)
def test_one_type_or_one_row_per_type_gives_mean_cosine(X):
    everything = pytest.approx(isoscope.mean_cosine(X), abs=TOL)
    assert isoscope.intra_similarity(X, np.zeros(len(X))) == everything
    for average in ("instances", "types"):
        assert isoscope.inter_similarity(X, np.arange(len(X)), average=average) == everything


@pytest.mark.parametrize("name", ["mean_cosine", "intra", "inter", "inter_types", "intra_clustered", "inter_clustered"])
@given(rng=seeds)
def test_rotation_does_not_matter(name, rng):
    X = rng.standard_normal((20, 5)) + 1
    assert ALL[name](X @ rotation(5, rng)) == pytest.approx(ALL[name](X), abs=TOL)


@each({name: ALL[name] for name in ("mean_cosine", "cosine_contribution", "intra", "inter", "inter_types")})
@given(rng=seeds)
def test_length_of_each_row_does_not_matter(metric, rng):
    X = rng.standard_normal((20, 5)) + 1
    lengths = 10.0 ** rng.integers(-30, 30, (20, 1))
    assert metric(X * lengths) == pytest.approx(metric(X), abs=TOL)


@each(ALL)
def test_rows_whose_squares_overflow_or_underflow_have_a_direction(metric, rng):
    X = rng.standard_normal((20, 5)) + 1
    for scale in (1e-300, 1e300):
        assert metric(X * scale) == pytest.approx(metric(X), abs=TOL)


@given(typed_grids, seeds)
def test_order_of_rows_and_names_of_types_do_not_matter(typed_grid, rng):
    X, types = typed_grid
    assume(1 < len(np.unique(types)) < len(types))
    order = rng.permutation(len(X))
    named = np.array(["wren", "owl", "jay", "rook"])[types][order]
    for metric in (isoscope.intra_similarity, isoscope.inter_similarity):
        assert metric(X[order], named) == pytest.approx(metric(X, types), abs=TOL)


@each(ALL)
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_tiles_do_not_matter(metric, rows, rng, monkeypatch):
    X = rng.standard_normal((41, 6)) + 1
    whole = metric(X)
    monkeypatch.setattr(room, "tiles", lambda X, **_: blocks(X.shape[0], rows))
    assert metric(X) == pytest.approx(whole, abs=TOL)


# The sampled variant


def test_cap_above_every_type_count_changes_nothing(rng):
    X, types = rng.standard_normal((30, 4)), np.arange(30) % 3
    for metric in (isoscope.intra_similarity, isoscope.inter_similarity):
        assert metric(X, types, per_type_cap=10, seed=3) == metric(X, types)


@pytest.mark.parametrize("cap", [1, 2])
def test_cap_limits_rows_per_type(cap, rng):
    X, types = rng.standard_normal((9, 4)), np.array([0, 1, 0, 1, 2, 0, 1, 0, 1])
    draws = product(*[combinations(own, min(cap, len(own))) for own in members(types)])
    possible = [inter_by_pairs(X[rows], types[rows]) for rows in (np.concatenate(draw) for draw in draws)]
    found = {float(isoscope.inter_similarity(X, types, per_type_cap=cap, seed=seed)) for seed in range(40)}
    assert len(found) > 5
    assert all(np.isclose(value, possible, rtol=0, atol=TOL).any() for value in found)


def test_seed_determines_the_sample(rng):
    X, types = rng.standard_normal((60, 4)), np.arange(60) % 3
    draw = partial(isoscope.intra_similarity, X, types, per_type_cap=4)
    assert draw(seed=1) == draw(seed=1)
    assert draw(seed=1) != draw(seed=2)


def test_one_instance_per_type_estimates_mean_over_type_pairs(rng):
    types = np.repeat([0, 1, 2, 3], [20, 10, 5, 2])
    X = rng.standard_normal((37, 3)) + np.array([[3, 0, 0], [3, 1, 0], [-3, 0, 0], [0, 3, 0]])[types]
    draws = [isoscope.inter_similarity(X, types, per_type_cap=1, seed=seed) for seed in range(400)]
    exact = isoscope.inter_similarity(X, types, average="types")
    spread = np.std(draws) / np.sqrt(len(draws))
    assert np.mean(draws) == pytest.approx(exact, abs=4 * spread)
    assert abs(isoscope.inter_similarity(X, types) - exact) > 8 * spread  # and not that over pairs of instances


def test_cap_and_clusters_can_be_combined(rng):
    X, types, clusters = rng.standard_normal((30, 4)), np.arange(30) % 3, np.arange(30) // 15
    expected = isoscope.intra_similarity(X, types, clustered=clusters)
    assert isoscope.intra_similarity(X, types, clustered=clusters, per_type_cap=10) == pytest.approx(expected, abs=TOL)


# Gradients


@each(ALL)
def test_gradient_matches_finite_differences(metric, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((11, 4)) + 1, requires_grad=True)
    assert torch.autograd.gradcheck(metric, [X])


@each(ALL)
def test_gradient_is_finite_at_zero_rows_and_duplicates(metric, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(np.repeat(rng.standard_normal((6, 4)), 2, axis=0))
    X[:3] = 0
    X.requires_grad_()
    metric(X).sum().backward()
    assert X.grad.isfinite().all()


@each({name: ALL[name] for name in ("mean_cosine", "intra")})
def test_jax_and_torch_gradients_agree(metric, rng):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    values = rng.standard_normal((40, 6)) + 1
    X = torch.tensor(values, requires_grad=True)
    metric(X).backward()
    found = jax.grad(metric)(jax.numpy.asarray(values, np.float32))
    assert np.asarray(found) == pytest.approx(X.grad.numpy(), abs=tolerance("float32"))


# What others compute


@pytest.mark.parametrize("case", ["cosreg_n50_d8", "cosreg_n3_d2"])
def test_mean_cosine_agrees_with_the_published_regularizer(case, vectors):
    clouds, published = vectors("isoscore_star")
    n = len(clouds[case])
    theirs = published["cases"][case]["cosreg"] * n / (n - 1)  # they divide by n² and we by n(n−1)
    assert isoscope.mean_cosine(clouds[case]) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(("case", "center"), [("intra_all", False), ("intra_center", True)])
def test_intra_similarity_agrees_with_its_authors(case, center, vectors):
    clouds, published = vectors("cai")
    X = clouds["y"] - center * clouds["y"].mean(axis=0)
    found = isoscope.intra_similarity(X, clouds["keys"])
    assert found == pytest.approx(published["cases"][case]["value"], abs=1e-6)


def test_inter_similarity_of_one_instance_per_type_agrees_with_authors(vectors):
    clouds, published = vectors("cai")
    X = clouds["inter_maxl1_y"]
    (expected,) = (case["value"] for name, case in published["cases"].items() if name.startswith("inter_one_instance"))
    assert isoscope.inter_similarity(X, np.arange(len(X))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("case", "center"), [("inter_all_instances(maxl=1000)", False), ("inter_all_instances_center", True)]
)
def test_mean_cosine_matches_authors_code_for_many_instances(case, center, vectors):
    # with more than one instance a type their S_inter counts pairs of one type too
    clouds, published = vectors("cai")
    X = clouds["y"] - center * clouds["y"].mean(axis=0)
    assert isoscope.mean_cosine(X) == pytest.approx(published["cases"][case]["value"], abs=1e-6)


def test_clustered_similarity_agrees_with_its_authors(vectors):
    clouds, published = vectors("cai")
    X, types, clusters = clouds["y"], clouds["keys"], clouds["cluster_labels_center"]
    expected = published["cases"]["cluster_center"]["mean_intra"]
    assert isoscope.intra_similarity(X, types, clustered=clusters) == pytest.approx(expected, abs=1e-6)
    (parts,) = (case for name, case in published["cases"].items() if name.startswith("per_cluster_deterministic"))
    for part in parts:
        own = X[clusters == part["cluster"]]
        found = isoscope.inter_similarity(own, np.arange(part["n"]), clustered=np.zeros(part["n"]))
        assert found == pytest.approx(part["inter_allinst_centered"], abs=1e-6)


def test_mean_cosine_agrees_with_scikit_learn(cloud):
    assert isoscope.mean_cosine(cloud) == pytest.approx(off_diagonal(cosine_similarity(cloud)).mean(), abs=TOL)


# Libraries and precisions


@each(ALL)
def test_every_library_returns_its_own_type_and_same_value(metric, library, rng):
    X = library.array(rng.standard_normal((40, 6)) + 0.5)
    value = metric(X)
    assert array_namespace(value) is array_namespace(X)
    assert value.dtype == X.dtype
    assert device(value) == device(X)
    tol = tolerance(library.name.rpartition("-")[2])
    assert library.values(value) == pytest.approx(metric(library.values(X)), abs=tol)


@each(ALL)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_input_gives_float32_result(metric, dtype, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((40, 6)) + 0.5).to(getattr(torch, dtype))
    value = metric(X)
    assert value.dtype == torch.float32
    assert value.numpy() == pytest.approx(metric(X.double().numpy()), abs=tolerance("float32"))


def test_types_may_use_the_library_of_the_data(library, rng):
    X, types = rng.standard_normal((40, 6)), some_types(40)
    labels = array_namespace(library.array(X)).asarray(types)
    found = isoscope.intra_similarity(library.array(X), labels)
    tol = tolerance(library.name.rpartition("-")[2])
    assert float(found) == pytest.approx(isoscope.intra_similarity(X, types), abs=tol)


@each(ALL)
@pytest.mark.parametrize("shape", [(300, 2), (30, 4096)])
@pytest.mark.parametrize(
    "place",
    [lambda X: X, lambda X: X + 1e4, lambda X: np.repeat(X[: len(X) // 2], 2, axis=0) + 1e-5 * X],
    ids=["near", "far", "near_duplicates"],
)
def test_float32_keeps_full_precision(metric, shape, place, rng):
    X = place(rng.standard_normal(shape)).astype(np.float32)
    expected = metric(X.astype(np.float64))
    assert metric(X) == pytest.approx(expected, rel=tolerance("float32"), abs=1e-6)


def test_mean_cosine_near_one_keeps_full_precision(rng):
    X = rng.standard_normal((50, 8)) + 1e4
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    angles = off_diagonal(np.square(unit[:, None] - unit[None]).sum(axis=2)) / 2  # 1 − cos without cancellation
    assert 1 - isoscope.mean_cosine(X) == pytest.approx(angles.mean(), rel=1e-5)  # 1e-8, of which eps is 2e-8


# Edges


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        ([[1, 0], [0, 0]], 0),
        ([[0, 0], [0, 0], [0, 0]], 0),
        ([[3, 4], [3, 4], [0, 0]], 1 / 3),
        ([[2], [5], [-1]], -1 / 3),
        ([[1, 0], [-1, 0]], -1),
    ],
)
def test_a_zero_vector_has_cosine_zero_to_everything(X, expected):
    assert isoscope.mean_cosine(X) == pytest.approx(expected, abs=TOL)
    assert isoscope.intra_similarity(X, [0] * len(X)) == pytest.approx(expected, abs=TOL)


def test_single_row_types_are_excluded_from_intra_similarity(rng):
    X = rng.standard_normal((8, 3))
    types = ["a", "a", "b", "b", "b", "c", "d", "e"]
    assert isoscope.intra_similarity(X, types) == pytest.approx(isoscope.intra_similarity(X[:5], types[:5]), abs=TOL)


@each(ALL)
def test_memory_layout_does_not_matter_and_input_is_unchanged(metric, rng):
    assert_any_memory_will_do(metric, rng.standard_normal((30, 8)) + 1, abs=TOL)


@each(ALL)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"X has shape \(3,\): need shape \(n, d\)"),
        (np.zeros((2, 5, 3)), r"X has shape \(2, 5, 3\)"),
        (np.ones((1, 3)), "X has 1 row: need at least 2 vectors"),
        (np.ones((9, 0)), "X has 0 columns: need vectors of at least 1 dimensions"),
        (np.array([[1, 2], [np.nan, 1], [3, -np.inf]]), "2 of 3 rows of X contain NaN or infinity, first in row 1"),
    ],
    ids=["1d", "3d", "one_row", "no_column", "nan"],
)
def test_invalid_input_raises(metric, X, message):
    with pytest.raises(InputError, match=message):
        metric(X)


@pytest.mark.parametrize("metric", [isoscope.intra_similarity, isoscope.inter_similarity])
@pytest.mark.parametrize(
    ("types", "options", "message"),
    [
        ([0] * 9, {}, "types has 9 entries but X has 10 rows"),
        (np.zeros((10, 2)), {}, r"types has shape \(10, 2\): need shape \(10,\), one label per row"),
        ([0.0, np.nan] * 5, {}, "types has 5 NaN or infinite entries"),
        ([0, "a", None, "b", 1] * 2, {}, "types .*NoneType, int, str: need all numbers or all strings"),
        ([0, 1] * 5, {"per_type_cap": 0}, "per_type_cap is 0: need at least 1"),
        ([0, 1] * 5, {"clustered": [0] * 8}, "clustered has 8 entries but X has 10 rows"),
    ],
)
def test_invalid_labels_raise(metric, types, options, message, rng):
    with pytest.raises(InputError, match=message):
        metric(rng.standard_normal((10, 3)), types, **options)


@pytest.mark.parametrize("entries", [8, 12])
def test_clusters_of_wrong_length_raise_with_a_cap(entries, rng):
    X, types = rng.standard_normal((10, 3)), [0, 1] * 5
    with pytest.raises(InputError, match=f"clustered has {entries} entries but X has 10 rows"):
        isoscope.intra_similarity(X, types, per_type_cap=5, clustered=[0] * entries)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda X: isoscope.intra_similarity(X, range(6)),
            "types has 6 distinct values for 6 rows: need a type",
        ),
        (lambda X: isoscope.intra_similarity(X, [0] * 6, per_type_cap=1), "need a type with at least two rows"),
        (
            lambda X: isoscope.inter_similarity(X, [0] * 6),
            "types has 1 distinct values for 6 rows: need at least two types",
        ),
        (
            lambda X: isoscope.intra_similarity(X, [0, 1] * 3, clustered=[0, 0, 1, 1, 2, 2]),
            "no cluster contains.*two rows of",
        ),
        (lambda X: isoscope.inter_similarity(X, [0, 1] * 3, clustered=[0, 1] * 3), "no cluster contains.*two types"),
        (
            lambda X: isoscope.inter_similarity(X, [0, 1] * 3, average="mean"),
            "average is 'mean': need \"instances\" or",
        ),
    ],
)
def test_missing_comparisons_raise(ask, message, rng):
    with pytest.raises(InputError, match=message):
        ask(rng.standard_normal((6, 3)))


@each({name: ALL[name] for name in ("mean_cosine", "cosine_contribution", "intra", "inter_clustered")})
def test_transposed_input_warns_at_the_callers_line(metric, rng):
    with pytest.warns(isoscope.DataWarning, match="50 rows and 101 columns") as caught:
        metric(rng.standard_normal((50, 101)))
    assert [warning.filename for warning in caught] == [__file__]
