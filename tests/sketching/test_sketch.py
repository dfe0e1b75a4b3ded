"""The sum of the sketches of parts is the sketch of all rows, and its methods equal the functions of the same names."""

import tracemalloc
import weakref
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import InputError, Sketch, sketch
from isoscope.sketching import row_sums
from isoscope.sketching import sketch as sketching
from tests.conftest import rotation, tolerance

TOL = tolerance(np.float64)

PLAIN = [
    ("isoscore", {}),
    ("isoscore", {"unbiased": True}),
    ("participation_ratio", {}),
    ("spectrum", {"center": True}),
    ("spectrum", {"center": False}),
    ("anisotropy", {"k": 2, "center": True}),
    ("anisotropy", {"k": 2, "center": False}),
    ("effective_rank", {"center": True}),
    ("effective_rank", {"center": False}),
    ("mean_cosine", {}),
    ("cosine_contribution", {}),
    ("isotropy_objective", {}),
    ("isotropy_objective", {"cosine": True}),
]
LABELLED = [
    ("intra_similarity", {}),
    ("inter_similarity", {"average": "instances"}),
    ("inter_similarity", {"average": "types"}),
    ("silhouette_objective", {}),
    ("triplet_objective", {}),
]


def assert_near(got, expected, name=""):
    """Check that values agree within 4·√eps of the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(got, expected, rtol=TOL, atol=TOL * abs(expected).max(initial=0), err_msg=name)


def assert_same_rows(a: Sketch, b: Sketch) -> None:
    """Check that the counts are equal."""
    for name in ("n", "d", "zeros", "nonfinite", "least_norm", "greatest_norm", "duplicates"):
        assert getattr(a, name) == getattr(b, name), name
    assert (a.rows.level, a.rows.total) == (b.rows.level, b.rows.total)
    np.testing.assert_array_equal(a.rows.hashes, b.rows.hashes)
    np.testing.assert_array_equal(a.rows.counts, b.rows.counts)


def assert_close(a: Sketch, b: Sketch) -> None:
    """Check that all fields agree: counts exactly, and sums up to rounding."""
    assert_same_rows(a, b)
    trace = np.trace(b.scatter)
    sizes = {
        "mean": np.sqrt(trace / b.n),
        "scatter": trace,
        "cubic": b.quartic**0.75 * b.n**0.25,  # at least Σ‖y‖³
        "quartic": b.quartic,
        "unit_sum": b.n,
        "unit_squares": b.n,
    }
    for name, size in sizes.items():
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=TOL * size, err_msg=name)
    assert (a.types is None) == (b.types is None)
    if b.types is not None:
        assert a.types.names.tolist() == b.types.names.tolist()
        assert a.types.counts.tolist() == b.types.counts.tolist()
        for name in ("means", "within", "unit_sums", "unit_squares"):
            assert_near(getattr(a.types, name), getattr(b.types, name), name)


def measured(s: Sketch, calls) -> dict:
    return {f"{name} {options}": getattr(s, name)(**options) for name, options in calls}


def splits(n, draw):
    """Any number of parts of 0…n−1, which may be empty, in any order."""
    cuts = draw(st.lists(st.integers(0, n), max_size=6))
    bounds = [0, *sorted(cuts), n]
    return draw(st.permutations([slice(a, b) for a, b in pairwise(bounds)]))


def added(pieces, order):
    """Add the parts in a tree of any shape."""
    pieces = list(pieces)
    while len(pieces) > 1:
        a = pieces.pop(order.randrange(len(pieces)))
        pieces.append(a + pieces.pop(order.randrange(len(pieces))))
    return pieces[0]


@st.composite
def noise(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(8, 60)), draw(st.integers(2, 6))
    X = rng.standard_normal((n, d)) * 10.0 ** draw(st.integers(-3, 3))
    X += draw(st.sampled_from([0, 1, 1e4])) * abs(X).max()
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    return X.astype(dtype), rng.integers(0, 4, n), splits(n, draw)


@st.composite
def lattices(draw):
    """Rows with few distinct values: equal rows, zero rows and data without variance."""
    n, d = draw(st.integers(1, 30)), draw(st.integers(1, 3))
    X = np.array(draw(st.lists(st.integers(-1, 1), min_size=n * d, max_size=n * d)), np.float32).reshape(n, d)
    return X, np.arange(n) % 3, splits(n, draw)


# what must hold: pieces


@given(noise(), st.randoms(use_true_random=False))
def test_parts_merged_in_any_tree_equal_the_total(case, order):
    X, types, parts = case
    merged, whole = added([Sketch.of(X[p], types[p]) for p in parts], order), Sketch.of(X, types)
    assert_close(merged, whole)
    assume(whole.types.counts.max() > 1 and len(whole.types.names) > 1)
    found = measured(merged, PLAIN + LABELLED)
    for name, expected in measured(whole, PLAIN + LABELLED).items():
        assert_near(found[name], expected, name)


@given(lattices(), st.randoms(use_true_random=False))
def test_parts_with_equal_and_zero_rows_equal_the_total(case, order):
    X, types, parts = case
    merged, whole = added([Sketch.of(X[p], types[p]) for p in parts], order), Sketch.of(X, types)
    assert_close(merged, whole)
    assert whole.duplicates == len(X) - len(np.unique(X, axis=0))
    assert whole.zeros == (~X.any(axis=1)).sum()


@given(st.one_of(noise(), lattices()), st.integers(1, 29))
def test_addition_is_commutative_bit_for_bit(case, cut):
    X, types, _ = case
    a, b = Sketch.of(X[:cut], types[:cut]), Sketch.of(X[cut:], types[cut:])
    assert a + b == b + a
    half = len(X) // 2  # equal counts decide by the means
    a, b = Sketch.of(X[:half]), Sketch.of(X[half : 2 * half])
    assert a + b == b + a


@given(st.one_of(noise(), lattices()))
def test_adding_empty_sketch_changes_nothing(case):
    X, types, _ = case
    for s in (Sketch.of(X), Sketch.of(X, types)):
        assert s + Sketch() == s
        assert Sketch() + s == s
        assert s + Sketch.of(X[:0]) == s
    assert Sketch() + Sketch() == Sketch()


def test_sketches_of_different_data_differ(rng):
    X = rng.standard_normal((9, 3))
    s = Sketch.of(X)
    assert s == Sketch.of(X.copy())
    assert s != Sketch.of(X * [1, 1, 2])
    assert s != Sketch.of(X, [0] * 9)
    assert s != "a sketch"
    with pytest.raises(TypeError):
        s + 1


def test_rotation_rotates_the_sketch(cloud, rng):
    R = rotation(cloud.shape[1], rng)
    s, turned = Sketch.of(cloud), Sketch.of(cloud @ R)
    for name in ("mean", "cubic", "unit_sum"):
        own = getattr(s, name)
        size = {"mean": abs(cloud).max(), "cubic": s.quartic**0.75 * s.n**0.25, "unit_sum": s.n}[name]
        np.testing.assert_allclose(getattr(turned, name), own @ R, atol=TOL * size, err_msg=name)
    assert_near(turned.scatter, R.T @ s.scatter @ R)
    assert_near(turned.quartic, s.quartic)
    for name, options in PLAIN:
        if name not in ("cosine_contribution", "spectrum"):
            assert_near(getattr(turned, name)(**options), getattr(s, name)(**options), name)


def test_row_order_does_not_matter_and_column_order_permutes(cloud, rng):
    s = Sketch.of(cloud)
    assert_close(Sketch.of(rng.permutation(cloud)), s)
    order = rng.permutation(cloud.shape[1])
    permuted = Sketch.of(cloud[:, order])
    assert_near(permuted.mean, s.mean[order])
    assert_near(permuted.scatter, s.scatter[np.ix_(order, order)])
    assert_near(permuted.cosine_contribution(), s.cosine_contribution()[order])


def test_repeated_runs_are_bit_identical(rng):
    X = rng.standard_normal((40_000, 16)).astype(np.float32)

    def run():
        return sketch((X[i : i + 1000], np.arange(1000) % 7) for i in range(0, len(X), 1000))

    first = run()
    assert all(run() == first for _ in range(4))
    assert sketch(X) == sketch(X)
    with threadpool_limits(1):
        assert_close(run(), first)


# the functions are the oracle


@pytest.mark.parametrize(("name", "options"), PLAIN, ids=str)
def test_each_method_equals_the_function_of_the_same_name(name, options, cloud):
    expected = np.asarray(getattr(isoscope.metrics, name)(cloud, **options))
    for s in (Sketch.of(cloud), sketch(iter(np.array_split(cloud, 3)))):
        got = np.asarray(getattr(s, name)(**options))
        if name == "spectrum":  # a sketch does not know how few the rows were: the rest is zero
            assert len(got) == s.d
            assert (got[len(expected) :] <= TOL * got[0]).all()
            got = got[: len(expected)]
        assert_near(got, expected)


@pytest.mark.parametrize(("name", "options"), LABELLED, ids=str)
def test_each_labeled_method_equals_the_function_of_the_same_name(name, options, cloud, rng):
    types = rng.integers(0, 5, len(cloud))
    expected = getattr(isoscope.metrics, name)(cloud, types, **options)
    merged = Sketch.of(cloud[:7], types[:7]) + Sketch.of(cloud[7:], types[7:])
    for s in (Sketch.of(cloud, types), merged):
        assert_near(getattr(s, name)(**options), expected)


@pytest.mark.parametrize("zeta", [0, 0.2, 1])
def test_isoscore_star_and_classifier_equal_the_functions(zeta, cloud, rng):
    types = np.arange(len(cloud)) % 3
    s = Sketch.of(cloud, types)
    shrinkage = np.cov(rng.standard_normal((50, s.d)), rowvar=False)
    assert_near(s.isoscore_star(shrinkage, zeta), isoscope.isoscore_star(cloud, shrinkage, zeta))
    vectors = rng.standard_normal((3, s.d))
    assert_near(s.classifier_objective(vectors), isoscope.metrics.classifier_objective(cloud, types, vectors))


def test_covariance_matches_numpy(cloud):
    s = Sketch.of(cloud)
    assert_near(s.covariance(), np.cov(cloud, rowvar=False))
    assert_near(s.mean, cloud.mean(axis=0))
    assert_near([s.least_norm, s.greatest_norm], np.sort(np.linalg.norm(cloud, axis=1))[[0, -1]])


@pytest.mark.parametrize("shift", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("unbiased", [False, True])
def test_large_mean_does_not_reduce_precision(shift, unbiased, rng):
    X = rng.standard_normal((300, 8)) / np.arange(1, 9) + shift
    expected = isoscope.isoscore(X - shift, unbiased=unbiased)  # exact: neighbours in float64
    for s in (Sketch.of(X), sketch(iter(np.array_split(X, 7)))):
        assert s.isoscore(unbiased=unbiased) == pytest.approx(expected, rel=TOL)


@pytest.mark.parametrize("tile", [2**23, 8 * 5 * 64])
def test_data_that_drift_from_the_first_rows_are_summed_correctly(tile, rng, monkeypatch):
    monkeypatch.setattr(row_sums, "_TILE_BYTES", tile)
    X = rng.standard_normal((1500, 5)) + np.linspace(0, 30, 1500)[:, None] * [1, -1, 0, 2, 0.5]
    s = Sketch.of(X)
    Y = X - X.mean(axis=0)
    r = (Y * Y).sum(axis=1)
    assert_near(s.mean, X.mean(axis=0))
    assert_near(s.scatter, Y.T @ Y)
    assert_near(s.quartic, (r * r).sum())
    np.testing.assert_allclose(s.cubic, r @ Y, atol=TOL * (r**1.5).sum())
    assert_near(s.unit_sum, (X / np.linalg.norm(X, axis=1, keepdims=True)).sum(axis=0))
    assert_near(s.isoscore(unbiased=True), isoscope.isoscore(X, unbiased=True))


# any input


def _torch(dtype):
    return lambda X: pytest.importorskip("torch").tensor(X).to(getattr(pytest.importorskip("torch"), dtype))


def _jax(dtype):
    return lambda X: pytest.importorskip("jax").numpy.asarray(X).astype(dtype)


KINDS = {
    **{dtype: lambda X, dtype=dtype: X.astype(dtype) for dtype in ("float16", "float32", "float64", "longdouble")},
    **{dtype: lambda X, dtype=dtype: (X * 9).astype(dtype) for dtype in ("int8", "int16", "int64")},
    **{f"torch {dtype}": _torch(dtype) for dtype in ("bfloat16", "float16", "float32", "float64", "int32")},
    **{f"jax {dtype}": _jax(dtype) for dtype in ("bfloat16", "float16", "float32", "int32")},
    "strict": lambda X: pytest.importorskip("array_api_strict").asarray(X),
    "the other byte order": lambda X: X.astype(X.dtype.newbyteorder()),
    "list": lambda X: X.tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_library_and_any_real_dtype_is_summed_in_float64(kind, rng):
    X = KINDS[kind](rng.standard_normal((60, 5)) * 4 + 2)
    values = X.double().numpy() if hasattr(X, "double") else np.asarray(X, np.float64)
    types = np.arange(60) % 3
    whole = Sketch.of(X, types)
    for name, options in PLAIN:
        assert_near(getattr(whole, name)(**options), getattr(isoscope.metrics, name)(values, **options), name)
    assert_near(whole.triplet_objective(), isoscope.metrics.triplet_objective(values, types))
    assert sketch(X, types=types) == whole


@pytest.mark.parametrize(
    "types",
    [
        (1, 0) * 4,
        ["b", "a"] * 4,
        np.array(["b", "a"] * 4, object),
        lambda: pytest.importorskip("torch").tensor([1, 0] * 4),
        lambda: pytest.importorskip("jax").numpy.asarray([1, 0] * 4),
    ],
    ids=["tuple", "strings", "objects", "torch", "jax"],
)
def test_labels_of_any_type_give_the_same_types(types, rng):
    types = types() if callable(types) else types
    X = rng.standard_normal((8, 3))
    X[[2, 5]] = np.nan
    expected = Sketch.of(X, [1, 0] * 4, missing="drop")
    for s in (
        Sketch.of(X, types, missing="drop"),
        sketch(X, types=types, missing="drop"),
        sketch(iter([(X[:4], types[:4]), (X[4:], types[4:])]), missing="drop"),
    ):
        assert s.types.counts.tolist() == [3, 3]
        assert_near(s.intra_similarity(), expected.intra_similarity())


# scales


SCALES = [1e200, 1e150, 1e-150, 1e-200]


@pytest.mark.parametrize(
    ("scale", "types"),
    [
        *((scale, None) for scale in SCALES),
        *((scale, [0, 1] * 10) for scale in SCALES),
    ],
)
def test_norms_directions_and_counts_are_correct_at_any_scale(scale, types, rng):
    X = rng.standard_normal((20, 4))
    X[7] = X[3]
    half = None if types is None else types[:10]
    plain = Sketch.of(X, types)
    for s in (Sketch.of(X * scale, types), Sketch.of(X[:10] * scale, half) + Sketch.of(X[10:] * scale, half)):
        assert_near(np.array([s.least_norm, s.greatest_norm]) / scale, [plain.least_norm, plain.greatest_norm])
        assert_near(s.mean / scale, plain.mean)
        assert_near(s.unit_sum, plain.unit_sum)
        assert_near(s.unit_squares, plain.unit_squares)
        assert_near(s.mean_cosine(), isoscope.mean_cosine(X * scale))
        assert (s.n, s.zeros, s.nonfinite, s.duplicates) == (20, 0, 0, 1)
        if types:
            assert_near(s.intra_similarity(), plain.intra_similarity())


@pytest.mark.parametrize("scale", [1e-310, 1.5e308])
def test_directions_are_correct_at_the_limits_of_the_float_range(scale):
    X = np.array([[1.0, 0.5], [0.5, 1.0], [1.0, 1.0]]) * scale
    assert_near(Sketch.of(X).mean_cosine(), isoscope.mean_cosine(X))


@pytest.mark.parametrize("scale", [1e-100, 1e100])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("isoscore", {}),
        ("participation_ratio", {}),
        ("anisotropy", {"center": True}),
        ("effective_rank", {}),
    ],
    ids=str,
)
def test_scale_free_scores_do_not_depend_on_scale(name, options, scale, rng):
    X = rng.standard_normal((20, 4))
    assert_near(getattr(Sketch.of(X * scale), name)(**options), getattr(isoscope.metrics, name)(X, **options))


@pytest.mark.parametrize("exponent", [60, -60, 100, -100])
def test_overflowing_fourth_powers_raise(exponent, rng):
    X = rng.standard_normal((20, 4))
    s = Sketch.of(X * 10.0**exponent)
    if abs(exponent) == 60:
        assert_near(s.isoscore(unbiased=True), isoscope.isoscore(X, unbiased=True))
    else:
        with pytest.raises(InputError, match="fourth powers of the rows overflow or underflow float64"):
            s.isoscore(unbiased=True)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize(
    "measure",
    [
        lambda s: s.isoscore(),
        lambda s: s.isoscore(unbiased=True),
        lambda s: s.isoscore_star(np.eye(4)),
        lambda s: s.participation_ratio(),
        lambda s: s.covariance(),
        lambda s: s.spectrum(),
        lambda s: s.anisotropy(),
        lambda s: s.effective_rank(),
        lambda s: s.isotropy_objective(),
        lambda s: s.silhouette_objective(),
        lambda s: s.triplet_objective(),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")  # of typed rows, as above
def test_overflowing_squares_raise_where_needed(measure, scale, rng):
    s = Sketch.of(rng.standard_normal((20, 4)) * scale, [0, 1] * 10)
    with pytest.raises(InputError, match="squares of the rows overflow or underflow float64"):
        measure(s)


def test_sketch_equals_itself_even_if_squares_overflow(rng):
    X = rng.standard_normal((20, 4)) * 1e200
    assert Sketch.of(X) == Sketch.of(X)


# rows that are not finite or zero


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_invalid_row_is_reported_by_its_overall_position(bad, dtype, rng):
    X = rng.standard_normal((30, 4)).astype(dtype)
    X[[17, 18, 25], [0, 3, 2]] = bad
    with pytest.raises(InputError, match=r'3 of the 30 rows 0…29 .* row 17: .*missing="drop"'):
        Sketch.of(X)
    with pytest.raises(InputError, match=r"3 of the 30 rows 0…29 .* row 17"):
        sketch(X)
    with pytest.raises(InputError, match=r"2 of the 10 rows 10…19 .* row 17"):
        sketch(X[i : i + 10] for i in range(0, 30, 10))


def test_dropped_rows_are_counted_and_change_nothing_else(rng):
    X, types = rng.standard_normal((600, 4)) + 3, np.arange(600) % 3
    good = rng.random(600) < 0.8
    X[~good, rng.integers(0, 4, (~good).sum())] = np.nan
    X[:5], good[:5] = np.inf, False
    clean = Sketch.of(X[good], types[good])
    clean.nonfinite = int((~good).sum())
    assert_close(Sketch.of(X, types, missing="drop"), clean)
    chunks = ((X[i : i + 5], types[i : i + 5]) for i in range(0, 600, 5))  # the first chunk is dropped whole
    assert_close(sketch(chunks, missing="drop"), clean)


def test_a_chunk_without_a_finite_row_is_only_counted(rng):
    s = Sketch.of(rng.standard_normal((5, 3)))
    bad = Sketch.of(np.full((4, 3), np.nan), missing="drop")
    assert (bad.n, bad.nonfinite) == (0, 4)
    for total in (s + bad, bad + s):
        assert total.nonfinite == 4
        total.nonfinite = 0
        assert total == s


def test_zero_rows_are_counted_and_have_no_direction(rng):
    X = rng.standard_normal((20, 4)).astype(np.float32)
    X[[3, 9]], X[12] = 0, -0.0
    s = Sketch.of(X)
    assert (s.zeros, s.duplicates, s.least_norm) == (3, 2, 0)
    assert_near(s.mean_cosine(), isoscope.mean_cosine(X.astype(float)))


# sources


def test_array_and_its_chunks_give_the_same_sketch(rng, monkeypatch):
    X, types = rng.standard_normal((5000, 8)) + 2, rng.integers(0, 9, 5000)
    whole = sketch(X, types=types)
    assert_close(sketch((X[i : i + 700], types[i : i + 700]) for i in range(0, 5000, 700)), whole)
    assert_close(sketch(X[i : i + 1] for i in range(300)), sketch(X[:300]))
    monkeypatch.setattr(sketching, "_CHUNK_BYTES", 8 * 8 * 300)
    assert_close(sketch(X, types=types), whole)


def test_lists_are_rows_or_chunks_and_empty_chunks_are_skipped(rng):
    X = rng.standard_normal((12, 3))
    assert sketch(X.tolist()) == Sketch.of(X)
    for chunks in ([X[:6], X[6:]], [X[:5], X[5:]], [X[:0], X[:4], X[:0], X[4:]]):
        assert_close(sketch(chunks), Sketch.of(X))
        assert_close(sketch(iter(chunks)), Sketch.of(X))
    assert_close(sketch([(X[:5], [0] * 5), (X[5:], [1] * 7)]), Sketch.of(X, [0] * 5 + [1] * 7))


def _memmap(tmp_path, dtype, rng):
    X = np.memmap(tmp_path / "rows", dtype, "w+", shape=(2**18, 64))
    for i in range(0, len(X), 2**14):
        X[i : i + 2**14] = (rng.standard_normal((1, 64)) * 20).astype(dtype)
    X.flush()
    return np.memmap(tmp_path / "rows", dtype, "r", shape=X.shape)


def _peak(X):
    sketch(X[:100])  # compiles
    tracemalloc.start()
    try:
        s = sketch(X)
        return s, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_memory_mapped_file_is_converted_chunk_by_chunk(dtype, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(sketching, "_CHUNK_BYTES", 2**22)
    s, peak = _peak(_memmap(tmp_path, dtype, rng))
    assert s.n == 2**18
    assert peak < 2**25  # 128 MB as float64


def test_few_chunks_are_in_memory_at_a_time(rng):
    made, held = [], []

    def chunks():
        for _ in range(60):
            chunk = rng.standard_normal((3, 2))
            made.append(weakref.ref(chunk))
            held.append(sum(ref() is not None for ref in made))
            yield chunk

    with threadpool_limits(2):
        assert sketch(chunks()).n == 180
    assert max(held) < 15


def _ragged(rng):
    return iter([rng.standard_normal((4, 3)), rng.standard_normal((4, 2))])


SOURCES = {
    "no chunks": (lambda rng: iter([]), "no finite rows"),
    "no rows": (lambda rng: np.ones((0, 3)), "no finite rows"),
    "only bad rows": (lambda rng: np.full((3, 2), np.nan), "no finite rows|3 of the 3 rows"),
    "one vector": (lambda rng: np.ones(3), r"source has shape \(3,\): need shape \(n, d\)"),
    "no columns": (lambda rng: np.ones((3, 0)), r"shape \(3, 0\)"),
    "chunks of one vector": (lambda rng: iter([np.ones(3)]), r"chunk has shape \(3,\): need shape \(m, d\)"),
    "chunks of three axes": (lambda rng: iter([np.ones((2, 3, 4))]), r"chunk has shape \(2, 3, 4\)"),
    "chunks of two widths": (_ragged, "sketches with 3 and 2 dimensions cannot be added"),
    "words": (lambda rng: ["a", "b"], "dtype <U1"),
    "complex": (lambda rng: np.ones((3, 2)) + 1j, "chunk has dtype complex128"),
    "types in one chunk only": (lambda rng: iter([(np.eye(2), [0, 1]), np.eye(2)]), "types for both or for neither"),
    "too few types": (lambda rng: iter([(np.eye(2), [0])]), "types has 1 entries but X has 2 rows"),
    "a number": (lambda rng: 5, "source is a int: need an"),
    "nothing": (lambda rng: None, "source is a NoneType"),
    "chunks of numbers": (lambda rng: iter([np.float64(3)]), r"chunk has shape \(\)"),
    "four of a kind": (lambda rng: iter([(np.eye(2), [0, 1], [0, 1], "?")]), "tuple of length 4"),
    "groups that are no list": (lambda rng: iter([(np.eye(2), [0, 1], "?")]), r"groups has shape \(\)"),
}


@pytest.mark.parametrize("case", SOURCES)
@pytest.mark.parametrize("missing", ["error", "drop"])
def test_invalid_sources_raise_errors(case, missing, rng):
    make, words = SOURCES[case]
    with pytest.raises(InputError, match=words):
        sketch(make(rng), missing=missing)


def test_invalid_types_raise(rng):
    X = rng.standard_normal((6, 2))
    with pytest.raises(InputError, match="types has 5 entries but X has 6 rows"):
        sketch(X, types=[0] * 5)
    with pytest.raises(InputError, match=r"yield pairs \(chunk, types\)"):
        sketch(iter([X]), types=[0] * 6)
    X[1] = np.nan
    with pytest.raises(InputError, match="types has 5 entries but X has 6 rows"):
        Sketch.of(X, [0] * 5, missing="drop")


@pytest.mark.parametrize("make", [Sketch.of, sketch])
def test_unknown_policy_raises(make):
    with pytest.raises(InputError, match='missing is \'ignore\': need "error" or "drop"'):
        make(np.eye(3), missing="ignore")


def test_transposed_input_warns():
    with pytest.warns(isoscope.DataWarning, match=r"pass source\.T"):
        sketch(np.random.default_rng(0).standard_normal((50, 1001)))


# edges of the measurements


def test_incompatible_sketches_cannot_be_added(rng):
    X = rng.standard_normal((4, 3))
    with pytest.raises(InputError, match="sketches with 3 and 2 dimensions"):
        Sketch.of(X) + Sketch.of(X[:, :2])
    with pytest.raises(InputError, match="one sketch has types and the other has none"):
        Sketch.of(X) + Sketch.of(X, [0, 0, 1, 1])
    with pytest.raises(InputError, match="need numbers in both or strings in both"):
        Sketch.of(X, list("aabb")) + Sketch.of(X, [0, 0, 1, 1])


ZERO, ONE, EQUAL = np.zeros((3, 2)), np.ones((1, 2)), np.ones((3, 2))


@pytest.mark.parametrize(
    ("cloud", "measure", "words"),
    [
        (ONE, lambda s: s.isoscore(), "the sketch has 1 row: need at least 2"),
        (EQUAL, lambda s: s.isoscore(unbiased=True), "the sketch has 3 rows: need at least 4"),
        (ONE, lambda s: s.mean_cosine(), "need at least 2"),
        (ONE, lambda s: s.covariance(), "need at least 2"),
        (ONE, lambda s: s.effective_rank(), "need at least 2"),
        (EQUAL, lambda s: s.isoscore(), "all 3 rows are equal"),
        (EQUAL, lambda s: s.participation_ratio(), "all 3 rows are equal"),
        (EQUAL, lambda s: s.anisotropy(k=1, center=True), "all 3 rows are equal"),
        (EQUAL, lambda s: s.effective_rank(), "all 3 rows are equal"),
        (EQUAL, lambda s: s.isotropy_objective(cosine=True), "all 3 rows are equal"),
        (EQUAL, lambda s: s.isoscore_star(np.eye(2), 0), "rows are equal"),
        (ZERO, lambda s: s.anisotropy(k=1), "all 3 rows are zero"),
        (ZERO, lambda s: s.effective_rank(center=False), "all 3 rows are zero"),
        (np.eye(3)[:, :1], lambda s: s.isoscore(), "the sketch has 1 dimension: need at least 2"),
        (EQUAL, lambda s: s.anisotropy(k=3), "k is 3: need 1 ≤ k ≤ 2"),
        (EQUAL, lambda s: s.anisotropy(k=0), "k is 0"),
        pytest.param(
            np.eye(2),
            lambda s: s.anisotropy(k=1.5),
            "k is 1.5: need an integer",
        ),
        (EQUAL, lambda s: s.isoscore_star(np.eye(3)), r"shrinkage has shape \(3, 3\): need \(2, 2\)"),
        (EQUAL, lambda s: s.isoscore_star(np.eye(2), 1.5), "zeta is 1.5"),
        (EQUAL, lambda s: s.intra_similarity(), "has no types"),
        (EQUAL, lambda s: s.triplet_objective(), "has no types"),
    ],
)
def test_impossible_measurements_raise_errors(cloud, measure, words):
    with pytest.raises(InputError, match=words):
        measure(Sketch.of(cloud))


def test_insufficient_types_raise(rng):
    X = rng.standard_normal((3, 2))
    with pytest.raises(InputError, match="3 rows have 3 types: need a type with at least two rows"):
        Sketch.of(X, [0, 1, 2]).intra_similarity()
    with pytest.raises(InputError, match="at least two types"):
        Sketch.of(X, [0, 0, 0]).inter_similarity()
    with pytest.raises(InputError, match="average is 'mean'"):
        Sketch.of(X, [0, 0, 1]).inter_similarity(average="mean")
    with pytest.raises(InputError, match=r"class_vectors has shape \(3, 2\): need \(2, 2\)"):
        Sketch.of(X, [0, 0, 1]).classifier_objective(X)


def test_repr_shows_the_size(rng):
    X = rng.standard_normal((4, 3))
    assert repr(Sketch.of(X)) == "Sketch(4 rows, 3 dimensions)"
    assert repr(Sketch.of(X, list("aabc"))) == "Sketch(4 rows, 3 dimensions, 3 types)"
