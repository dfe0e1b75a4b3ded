"""Bars, their entropy and their selection: invariants, reference values and rejected input."""

from __future__ import annotations

import re

import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform
from scipy.stats import entropy
from threadpoolctl import threadpool_limits

import isoscope
from isoscope.metrics.topology import count_features
from tests.conftest import DTYPES, HARD, memory_for, rotation, tolerance

seeds = st.integers(0, 10**6)
lengths = st.lists(st.floats(0, 1e6), max_size=40)


def tree_bars(X: np.ndarray) -> np.ndarray:
    """SciPy's minimum spanning tree, longest edge first; SciPy ignores zero distances, so rows must be distinct."""
    tree = minimum_spanning_tree(squareform(pdist(X.astype(np.float64))))
    return np.sort(tree.data)[::-1]


def random_bars(seed: int, n: int, spread: float = 1.0) -> np.ndarray:
    return np.exp(spread * np.random.default_rng(seed).standard_normal(n))


# what must hold


@given(seed=seeds, power=st.floats(-100, 100), n=st.integers(2, 60), d=st.integers(1, 6))
def test_bars_scale_with_data_and_ignore_rotation_translation_and_order(seed, power, n, d):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    moved = 10**power * (rng.permutation(X) @ rotation(d, rng) + 10 * rng.standard_normal(d))
    np.testing.assert_allclose(
        isoscope.h0_barcode(moved) / 10**power, isoscope.h0_barcode(X), rtol=tolerance("float64"), atol=1e-12
    )


@given(seed=seeds, n=st.integers(2, 40), twins=st.integers(0, 10))
def test_n_points_have_n_minus_1_bars_and_a_zero_per_duplicate(seed, n, twins):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    bars = isoscope.h0_barcode(np.concatenate([X, X[rng.integers(0, n, twins)]]))
    assert bars.shape == (n + twins - 1,)
    assert (np.diff(bars) <= 0).all()
    assert (bars == 0).sum() == twins
    np.testing.assert_allclose(bars[: n - 1], isoscope.h0_barcode(X), rtol=tolerance("float64"))


@given(seed=seeds, step=st.floats(1e-6, 1))
def test_bars_change_at_most_twice_the_perturbation(seed, step):
    rng = np.random.default_rng(seed)
    X, move = rng.standard_normal((30, 3)), rng.standard_normal((30, 3))
    move *= step / np.linalg.norm(move, axis=1, keepdims=True)
    shift = np.abs(isoscope.h0_barcode(X + move) - isoscope.h0_barcode(X)).max()
    assert shift <= 2 * step * (1 + tolerance("float64"))


@given(bars=lengths, power=st.floats(-100, 100))
def test_entropy_ignores_order_and_scale_and_is_at_most_log_n(bars, power):
    found = isoscope.persistent_entropy(bars)
    assert 0 <= found <= np.log(max(1, np.count_nonzero(bars))) + tolerance("float64")
    assert isoscope.persistent_entropy([*bars[::-1], 0.0]) == pytest.approx(found, abs=tolerance("float64"))
    if not bars or max(bars) == 0 or min(bar for bar in bars if bar > 0) > 1e-100:  # none falls out of float64
        scaled = [bar * 10**power for bar in bars]
        assert isoscope.persistent_entropy(scaled) == pytest.approx(found, abs=tolerance("float64"))


@pytest.mark.parametrize("m", [1, 2, 7, 1000])
def test_entropy_of_equal_bars_is_log_n(m):
    assert isoscope.persistent_entropy(np.full(m, 0.3)) == pytest.approx(np.log(m))


@pytest.mark.parametrize("rule", ["reference", "printed"])
@given(seed=seeds, n=st.integers(1, 60), spread=st.floats(0.01, 4), power=st.floats(-100, 100))
def test_features_are_the_longest_bars_for_any_order_and_scale(rule, seed, n, spread, power):
    bars = random_bars(seed, n, spread)
    found = isoscope.metrics.select_bars(bars, rule=rule)
    assert 1 <= len(found) <= n
    np.testing.assert_array_equal(found, np.sort(bars)[::-1][: len(found)])
    np.testing.assert_array_equal(isoscope.metrics.select_bars(np.sort(bars), rule=rule), found)
    np.testing.assert_array_equal(isoscope.metrics.select_bars(np.append(bars, [0.0, 0.0]), rule=rule), found)
    scaled = isoscope.metrics.select_bars(bars * 10**power, rule=rule)
    np.testing.assert_allclose(scaled / 10**power, found, rtol=tolerance("float64"))


@pytest.mark.parametrize("rule", ["reference", "printed"])
@given(bars=lengths)
def test_selection_terminates_for_any_bars(rule, bars):
    found = isoscope.metrics.select_bars(bars, rule=rule)
    assert len(found) >= min(1, np.count_nonzero(bars))
    assert (found > 0).all()


# outside oracles


@pytest.mark.parametrize("dtype", DTYPES)
def test_bars_equal_minimum_spanning_tree_edges(cloud, dtype):
    X = cloud.astype(dtype)
    np.testing.assert_allclose(isoscope.h0_barcode(X), tree_bars(X), rtol=tolerance(dtype))


@pytest.mark.filterwarnings("ignore:The input point cloud has more columns than rows")
def test_bars_match_ripser(cloud):
    ripser = pytest.importorskip("ripser")
    pairs = ripser.ripser(cloud, maxdim=0)["dgms"][0]
    expected = np.sort(pairs[np.isfinite(pairs[:, 1]), 1])[::-1]
    # ripser computes in float32, and far from the origin from float32 distances of rounded points
    np.testing.assert_allclose(isoscope.h0_barcode(cloud), expected, rtol=tolerance("float32"))


def test_bars_match_gudhi(cloud):
    gudhi = pytest.importorskip("gudhi")
    tree = gudhi.RipsComplex(points=cloud).create_simplex_tree(max_dimension=1)
    tree.compute_persistence(homology_coeff_field=2, min_persistence=-1)
    pairs = tree.persistence_intervals_in_dimension(0)
    expected = np.sort(pairs[np.isfinite(pairs[:, 1]), 1])[::-1]
    np.testing.assert_allclose(isoscope.h0_barcode(cloud), expected, rtol=tolerance("float64"))


@given(seed=seeds, n=st.integers(1, 50))
def test_entropy_matches_scipy(seed, n):
    bars = random_bars(seed, n)
    assert isoscope.persistent_entropy(bars) == pytest.approx(entropy(bars), abs=tolerance("float64"))


def test_bars_and_entropies_match_the_paper(vectors):
    arrays, scalars = vectors("persistent_entropy")
    for name, case in scalars["cases"].items():
        if name == "n1_x3":  # a single point, which has its own test
            continue
        bars = isoscope.h0_barcode(arrays[name])
        # theirs leaves out the bars of duplicates
        np.testing.assert_allclose(bars[bars > 0], np.sort(arrays[f"{name}__bars_sorted"])[::-1], rtol=1e-9)
        assert isoscope.persistent_entropy(bars) == pytest.approx(case["entropy_all"], abs=1e-9), name


def test_features_match_the_paper(vectors):
    arrays, scalars = vectors("persistent_entropy")
    for name, case in scalars["cases"].items():
        if f"{name}__selected" in arrays and not name.startswith("ties"):  # how many of equal bars is float noise
            found = isoscope.metrics.select_bars(isoscope.h0_barcode(arrays[name]))
            np.testing.assert_allclose(found, np.sort(arrays[f"{name}__selected"])[::-1], rtol=1e-9, err_msg=name)
            assert isoscope.persistent_entropy(found) == pytest.approx(case["entropy_selected"], abs=1e-9), name


def test_features_of_150_barcodes_match_the_paper(vectors, rng):
    arrays, _ = vectors("persistent_entropy")
    rows = zip(
        arrays["barcodes_nanpadded"], arrays["barcodes_n_i_nsel"], arrays["barcodes_entropy_selected"], strict=True
    )
    for padded, (n, _, count), expected in rows:
        bars = rng.permutation(padded[~np.isnan(padded)])
        assert len(bars) == n
        found = isoscope.metrics.select_bars(bars)
        assert len(found) == count
        assert isoscope.persistent_entropy(found) == pytest.approx(expected, abs=1e-9)


def shared(gradient: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Sum the gradient over equal rows, because an edge may end at any of them."""
    _, inverse = np.unique(X, axis=0, return_inverse=True)
    total = np.zeros_like(gradient)
    np.add.at(total, inverse.reshape(-1), gradient)  # NumPy 2.0 returns a column
    return total


def test_gradients_match_the_paper(vectors):
    torch = pytest.importorskip("torch")
    arrays, scalars = vectors("persistent_entropy")
    losses = {"all": lambda bars: bars, "sel_noL2": isoscope.metrics.select_bars}
    for name in scalars["cases"]:
        for kind, keep in losses.items():
            key = f"{name}__grad_loss_{kind}"
            if key not in arrays or name == "n1_x3" or (name.startswith("ties") and kind == "sel_noL2"):
                continue
            X = torch.tensor(arrays[name], requires_grad=True)
            (found,) = torch.autograd.grad(isoscope.persistent_entropy(keep(isoscope.h0_barcode(X))), X)
            np.testing.assert_allclose(
                shared(found.numpy(), arrays[name]), shared(arrays[key], arrays[name]), atol=1e-9, err_msg=key
            )


# every library and precision

MEASURES = {
    "bars": isoscope.h0_barcode,
    "entropy": lambda X: isoscope.persistent_entropy(isoscope.h0_barcode(X)),
    "features": lambda X: isoscope.metrics.select_bars(isoscope.h0_barcode(X)),
    "printed features": lambda X: isoscope.metrics.select_bars(isoscope.h0_barcode(X), rule="printed"),
}
of_each_measure = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)


@of_each_measure
def test_every_library_gives_same_result(library, measure, rng):
    X = library.array(rng.standard_normal((50, 6)) + 1)
    found = measure(X)
    assert array_namespace(found) is array_namespace(X)
    assert found.dtype == X.dtype
    expected = np.asarray(measure(library.values(X)))
    assert tuple(found.shape) == expected.shape
    np.testing.assert_allclose(library.values(found), expected, rtol=tolerance(library.name.split("-")[1]))


@of_each_measure
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_is_computed_from_its_exact_values(measure, half, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((50, 6)), dtype=getattr(torch, half))
    found = measure(X)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, measure(X.double().numpy()), rtol=tolerance("float32"))


@of_each_measure
@pytest.mark.parametrize("layout", ["read-only", "strided", "by columns"])
def test_any_memory_layout_works_and_input_is_unchanged(measure, layout, rng):
    X = rng.standard_normal((40, 6))
    given = {"read-only": X.copy(), "strided": np.repeat(X, 2, axis=0)[::2], "by columns": np.asfortranarray(X)}[layout]
    given.setflags(write=layout != "read-only")
    before = given.tobytes()
    np.testing.assert_allclose(measure(given), measure(X), rtol=1e-12)
    assert given.tobytes() == before


def test_input_bars_are_unchanged(rng):
    bars = rng.random(30)
    before = bars.copy()
    bars.setflags(write=False)
    isoscope.metrics.select_bars(bars)
    isoscope.persistent_entropy(bars[::-2])
    np.testing.assert_array_equal(bars, before)


# gradients


@of_each_measure
def test_gradients_match_finite_differences(measure, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((12, 3)), requires_grad=True)
    assert measure(X).requires_grad
    assert torch.autograd.gradcheck(measure, (X,))


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1), ("float64", 1), ("float32", 1e-24), ("float32", 1e24), ("float64", 1e-170)]
)
def test_computing_gradients_does_not_change_the_bars(rng, dtype, scale):
    torch = pytest.importorskip("torch")
    X = torch.tensor(scale * rng.standard_normal((120, 5)), dtype=getattr(torch, dtype))
    found = isoscope.h0_barcode(X.clone().requires_grad_())
    assert found.dtype == X.dtype
    np.testing.assert_allclose(found.detach(), isoscope.h0_barcode(X), rtol=tolerance(dtype))


def test_jax_gradient_of_entropy_matches_torch(rng):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    values = rng.standard_normal((20, 3)).astype(np.float32)
    X = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(MEASURES["entropy"](X), X)
    found = jax.grad(MEASURES["entropy"])(jax.numpy.asarray(values))
    np.testing.assert_allclose(found, expected, atol=tolerance("float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["entropy", "features"])
def test_gradients_at_duplicates_are_finite(name, dtype, rng):
    torch = pytest.importorskip("torch")
    values = rng.standard_normal((20, 4))
    X = torch.tensor(np.concatenate([values, values[:5]]), dtype=getattr(torch, dtype), requires_grad=True)
    (gradient,) = torch.autograd.grad(MEASURES[name](X).sum(), X)
    assert gradient.dtype == X.dtype
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0


def test_gradient_of_identical_points_is_zero():
    torch = pytest.importorskip("torch")
    X = torch.ones((6, 3), requires_grad=True)
    (gradient,) = torch.autograd.grad(MEASURES["entropy"](X), X)
    assert not gradient.any()


# digits


@pytest.mark.parametrize("shape", HARD)
@pytest.mark.parametrize("d", [2, 8, 256, 4096])
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_bar_keeps_full_precision(rng, shape, d, dtype):
    X = HARD[shape](120, d, rng).astype(dtype)
    np.testing.assert_allclose(isoscope.h0_barcode(X), tree_bars(X), rtol=tolerance(dtype))


@pytest.mark.parametrize("bars", [[1e-300, 3e-300, 2e-300], [1e308] * 3, [1e-320, 2e-320]])
def test_entropy_works_for_any_representable_length(bars):
    assert isoscope.persistent_entropy(bars) == pytest.approx(entropy(np.array(bars) / max(bars)))


# blocks


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [97, 700, 1100])
def test_blocks_and_threads_do_not_matter(rng, n, dtype):
    X = rng.standard_normal((n, 4)).astype(dtype)
    expected = isoscope.h0_barcode(X)
    np.testing.assert_allclose(expected, tree_bars(X), rtol=tolerance(dtype))
    np.testing.assert_allclose(isoscope.h0_barcode(X, max_memory=memory_for(40)), expected, rtol=tolerance(dtype))
    with threadpool_limits(1):
        np.testing.assert_allclose(isoscope.h0_barcode(X), expected, rtol=tolerance(dtype))
    np.testing.assert_array_equal(isoscope.h0_barcode(X), expected)


def test_duplicates_in_different_blocks_give_zero_bars(rng):
    X = rng.standard_normal((400, 4))
    bars = isoscope.h0_barcode(np.concatenate([X, X]), max_memory=memory_for(40))
    assert (bars == 0).sum() == 400
    np.testing.assert_allclose(bars[:399], tree_bars(X), rtol=tolerance("float64"))


# edges


def test_two_points_have_one_bar():
    assert isoscope.h0_barcode([[0, 0], [3, 4]]).tolist() == [5]
    assert isoscope.h0_barcode([[1], [1]]).tolist() == [0]


@pytest.mark.parametrize("rule", ["reference", "printed"])
@pytest.mark.parametrize(
    ("bars", "kept"),
    [
        ([], []),
        ([0.0], []),
        ([0, 0, 0, 0, 0], []),
        ([2.0], [2]),
        ([1, 9], [9, 1]),
        ([1, 9, 5], [9, 5, 1]),
        ([1, 0, 9, 5, 0], [9, 5, 1]),
        ([0.3] * 8, [0.3] * 8),
        ([0.3] * 8 + [0], [0.3] * 8),
    ],
)
def test_few_equal_or_zero_bars_are_all_kept_or_all_dropped(bars, kept, rule):
    assert isoscope.metrics.select_bars(bars, rule=rule).tolist() == kept


def test_code_rule_and_printed_rule_differ():
    bars = [0.9, 1.1, 8.0, 1.0, 7.0, 1.2, 0.8]
    assert isoscope.metrics.select_bars(bars).tolist() == [8, 7, 1.2]
    assert isoscope.metrics.select_bars(bars, rule="printed").tolist() == [8, 7]


@pytest.mark.parametrize("bars", [[], [0.0], [0, 0, 0], [7.0]])
def test_zero_or_one_bars_have_no_entropy(bars):
    found = isoscope.persistent_entropy(bars)
    assert found == 0
    assert not np.signbit(found)


X = np.random.default_rng(0).standard_normal((20, 4))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: isoscope.h0_barcode(X[:1]), "X has 1 row: need at least 2"),
        (lambda: isoscope.h0_barcode(X[0]), r"X has shape \(\d+,\): need shape"),
        (lambda: isoscope.h0_barcode(np.where(X > 1, np.inf, X)), "of 20 rows of X contain NaN or infinity"),
        (lambda: isoscope.h0_barcode(X, max_memory=100), "max_memory is 100 bytes"),
        (lambda: isoscope.metrics.select_bars([1, 2, 3], rule="mine"), "rule is 'mine'"),
        *(
            (lambda measure=measure, bars=bars: measure(bars), complaint)
            for measure in (isoscope.metrics.select_bars, isoscope.persistent_entropy)
            for bars, complaint in [
                ([3, 1, -2, -1], "2 of 4 bars are negative, infinite or NaN, the first at index 2"),
                ([3, np.inf], "1 of 2 bars .* the first at index 1: .* remove the infinite bar"),
                ([np.nan, 1], "1 of 2 bars .* the first at index 0"),
                ([[1, 2], [3, 4]], r"bars has shape \(2, 2\): need one length per bar"),
                (3.0, r"bars has shape \(\)"),
                (["long", "short"], "bars has dtype <U5"),
                ([True, False], "bars holds booleans"),
            ]
        ),
    ],
)
def test_invalid_input_raises(call, complaint):
    with pytest.raises(isoscope.InputError, match=re.compile(complaint)):
        call()


def features(bars: list[float], printed: bool) -> int:
    """Atienza's selection of bars as DESIGN describes it; each sum and entropy is computed from scratch."""

    def neutral_total(x, i):
        rest = np.asarray(x[i:])
        p = rest / rest.sum()
        return rest.sum() + i * rest.sum() / np.exp(-(p * np.log(p)).sum())

    bars = sorted(bars, reverse=True)
    T, r = bars[0], bars[-1]
    alpha = r / T
    x = [*bars[1:], T]
    if len(x) < 4 or alpha == 1:
        return len(x)
    while True:
        n = len(x)
        for i in range(1, (n - 2 if printed else n - 3) + 1):
            C = neutral_total(x, i - 1) / neutral_total(x, i)
            if C > 1 if printed else C < 1:
                break
        Q = np.ceil(alpha * n * (alpha - 1 - np.log(alpha)) / (alpha - 1) ** 2)
        again = i >= Q if printed else i > Q
        if not again or i + 2 == n:  # the page would go round for ever here
            return i + 1
        x = [*x[:i], r, T]


@pytest.mark.parametrize("printed", [False, True], ids=["reference", "printed"])
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), spread=st.floats(0.01, 4))
def test_feature_count_matches_reference_implementation(printed, seed, n, spread):
    bars = np.sort(np.exp(spread * np.random.default_rng(seed).standard_normal(n)))[::-1].copy()
    assert count_features(bars, printed) == features(bars.tolist(), printed)
