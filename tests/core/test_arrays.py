"""Arrays that can be measured, arrays that are rejected, and the error messages."""

import warnings

import numpy as np
import pytest

import isoscope
from isoscope import DataWarning, InputError
from isoscope._core.arrays import (
    blocks,
    check_points,
    encode_labels,
    is_traced,
    safe_sqrt,
    tiles,
    to_float,
    to_numpy,
    unit_rows,
)
from tests.conftest import tolerance

# what is welcome


def test_points_are_returned_unchanged_with_their_library(library, rng):
    X = library.array(rng.standard_normal((7, 3)))
    xp, Y = check_points(X)
    assert Y is X
    np.testing.assert_array_equal(library.values(xp.asarray(Y)), library.values(X))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integers_become_float64(dtype):
    X = np.array([[1, 2], [3, 5], [100, 7]], dtype)
    _, Y = check_points(X)
    assert Y.dtype == np.float64
    np.testing.assert_array_equal(Y, X)


def test_lists_and_tuples_become_arrays():
    for X in ([[1, 2], [3.5, 4]], ((1, 2), (3.5, 4)), [np.array([1, 2]), np.array([3.5, 4])]):
        np.testing.assert_array_equal(check_points(X)[1], [[1, 2], [3.5, 4]])


def test_matrix_is_handled_as_an_array(rng):
    X = rng.standard_normal((5, 5))
    assert isoscope.isoscore(X.view(np.matrix)) == isoscope.isoscore(X)


def test_data_frame_becomes_an_array(rng):
    pandas = pytest.importorskip("pandas")
    X = rng.standard_normal((9, 3))
    frame = pandas.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(check_points(frame)[1], X)
    # the columns of a data frame are contiguous, so sums may round differently
    assert isoscope.isoscore(frame) == pytest.approx(isoscope.isoscore(X), rel=1e-13)
    assert isoscope.sketch(frame) == isoscope.sketch(X)


def test_extended_precision_becomes_float64(rng):
    X = rng.standard_normal((9, 3))
    assert check_points(X.astype(np.longdouble))[1].dtype == np.float64


@pytest.mark.parametrize(
    "view",
    [
        lambda X: X[::2],
        lambda X: X[:, ::-1],
        lambda X: X[:, 1:4],
        lambda X: np.asfortranarray(X),
        lambda X: X[:6, :6].T,
        lambda X: np.broadcast_to(X[:, None, :], (20, 3, 8))[:, 1],
        lambda X: np.lib.stride_tricks.as_strided(X, writeable=False),
    ],
    ids=["every second row", "backwards", "some columns", "Fortran", "transposed", "broadcast", "read-only"],
)
def test_memory_layout_does_not_matter(view, rng):
    X = view(rng.standard_normal((20, 8)))
    copy = np.ascontiguousarray(X).copy()
    for measure in (isoscope.isoscore, isoscope.mean_cosine, isoscope.h0_barcode, isoscope.two_nn):
        np.testing.assert_allclose(measure(X), measure(copy), rtol=tolerance(np.float64))
    assert isoscope.Sketch.of(X) == isoscope.Sketch.of(copy)


def test_swapped_byte_order_keeps_precision(rng):
    X = rng.standard_normal((9, 3))
    swapped = X.astype(X.dtype.newbyteorder())
    np.testing.assert_array_equal(to_numpy(check_points(swapped)[1]), X)
    assert isoscope.isoscore(swapped) == isoscope.isoscore(X)


def test_overflowing_float16_sum_is_not_reported_as_infinite():
    X = np.full((100, 10), 6e4, np.float16)
    X[0, 0] = 0
    assert check_points(X)[1] is X
    assert np.isfinite(isoscope.mean_cosine(X))


def test_large_values_with_overflowing_sum_are_not_reported_as_infinite(library):
    largest = float(np.finfo(np.float64 if "64" in library.name else np.float32).max)
    X = library.array([[largest, largest / 2], [largest, 0.0], [largest, largest]])
    assert check_points(X)[1] is X


# what is refused, and the words


def _sparse():
    return pytest.importorskip("scipy.sparse").csr_array(np.eye(3))


REFUSED = {
    "one vector": (lambda: np.ones(5), r"X has shape \(5,\).*X\[None, :\]"),
    "token states": (lambda: np.ones((2, 3, 4)), r"X has shape \(2, 3, 4\).*reshape\(-1"),
    "four axes": (lambda: np.ones((2, 3, 4, 5)), r"X has shape \(2, 3, 4, 5\)"),
    "a number": (lambda: 3.0, r"X has shape \(\)"),
    "nothing": (lambda: None, r"X has shape \(\): need"),
    "an empty list": (lambda: [], r"X has shape \(0,\)"),
    "no rows": (lambda: np.ones((0, 4)), "X has 0 rows: need at least 2"),
    "one row": (lambda: np.ones((1, 4)), "X has 1 row: need at least 2"),
    "one column": (lambda: np.ones((4, 1)), "X has 1 column: need vectors of at least 2"),
    "no columns": (lambda: np.ones((4, 0)), "X has 0 columns"),
    "objects": (lambda: np.ones((3, 2), object), r"dtype object.*np\.stack\(list\(X\)\)"),
    "strings": (lambda: [["a", "b"], ["c", "d"]], "dtype <U1: need real numbers"),
    "dates": (lambda: np.zeros((3, 2), "M8[s]"), r"dtype datetime64\[s\]"),
    "complex": (lambda: np.ones((3, 2), complex), "dtype complex128: need real numbers"),
    "booleans": (lambda: np.ones((3, 2), bool), r"X holds booleans.*X\.astype\(float\)"),
    "masked": (lambda: np.ma.masked_equal(np.eye(3), 1), r"X is a masked array.*X\.filled\(\)"),
    "masked, extended": (lambda: np.ma.masked_equal(np.eye(3, dtype=np.longdouble), 1), "X is a masked array"),
    "sparse": (_sparse, r"X is a sparse matrix.*X\.toarray\(\)"),
    "ragged": (lambda: [[1, 2], [3]], "X cannot be read as an array.*lists of numbers of equal length"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_raises(case):
    make, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        check_points(make())


def test_error_uses_the_name_of_the_argument():
    with pytest.raises(InputError, match=r"^shrinkage has shape \(2,\)"):
        check_points([1.0, 2.0], name="shrinkage")


def test_torch_input_raises_the_same_error():
    torch = pytest.importorskip("torch")
    for X, words in [
        (torch.ones(5), r"X has shape \(5,\)"),
        (torch.ones(3, 2) > 0, "dtype torch.bool"),
        (torch.ones(3, 2) + 1j, "dtype torch.complex64"),
    ]:
        with pytest.raises(InputError, match=words):
            check_points(X)


def test_sparse_tensor_raises():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"X is a tensor of layout torch\.sparse_coo.*X\.to_dense\(\)"):
        isoscope.isoscore(torch.eye(3).to_sparse())


@pytest.mark.parametrize("measure", [isoscope.isoscore, isoscope.mean_cosine, isoscope.h0_barcode, isoscope.sketch])
def test_tensor_without_values_raises(measure):
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="on the device meta"):
        measure(torch.empty(20, 3, device="meta"))


@pytest.mark.parametrize("measure", [isoscope.isoscore, isoscope.mean_cosine, isoscope.h0_barcode, isoscope.sketch])
def test_dask_array_raises(measure):
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises(InputError, match=r"is a Dask array.*\.compute\(\)"):
        measure(dask_array.ones((20, 3)))


def test_list_of_tensors_with_gradients_raises():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError):
        check_points([torch.ones(2, requires_grad=True), torch.ones(2)])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_rows_are_counted_and_the_first_is_named(bad, library, rng):
    X = rng.standard_normal((50, 4))
    X[[7, 31], [1, 3]] = bad
    X[31, 0] = bad
    with pytest.raises(InputError, match=r'2 of 50 rows of X contain NaN or infinity, first in row 7.*"drop"'):
        check_points(library.array(X))


def test_nan_and_canceling_infinities_are_found():
    for pair in ([np.inf, -np.inf], [np.nan, np.inf]):
        with pytest.raises(InputError, match="1 of 3 rows"):
            check_points([[1.0, 2.0], pair, [3.0, 4.0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_checked_for_nan(dtype):
    torch = pytest.importorskip("torch")
    X = torch.ones(30, 4, dtype=getattr(torch, dtype))
    X[11, 2] = float("nan")
    with pytest.raises(InputError, match=r"1 of 30 rows .* row 11"):
        check_points(X)


def test_first_invalid_row_is_named_across_tiles():
    X = np.zeros((3, 3 * 2**20), np.float32)  # a row and a half to a tile
    X[2, 5] = np.nan
    with pytest.raises(InputError, match=r"1 of 3 rows .* row 2"):
        check_points(X)


# which way it lies


@pytest.mark.parametrize(
    "shape", [(64, 768), (32, 384), (200, 768), (1000, 768), (256, 1024), (100, 300), (768, 768), (5000, 300)]
)
def test_ordinary_batches_do_not_warn(shape):
    check_points(np.broadcast_to(np.float32(1), shape))


@pytest.mark.parametrize("shape", [(768, 10_007), (300, 5001), (50, 1000), (128, 1001), (50, 100_000)])
def test_transposed_input_warns(shape):
    with pytest.warns(DataWarning, match=rf"X has {shape[0]} rows and {shape[1]} columns.*pass X\.T"):
        check_points(np.broadcast_to(np.float32(1), shape))


LABELS = np.arange(50) % 2


@pytest.mark.parametrize(
    "measure",
    [
        isoscope.isoscore,
        isoscope.mean_cosine,
        isoscope.h0_barcode,
        isoscope.metrics.isotropy_objective,
        lambda X: isoscope.metrics.isotropy_objective(X, cosine=True),
        lambda X: isoscope.silhouette(X, LABELS),
        isoscope.hubness,
        isoscope.two_nn,
        lambda X: isoscope.lid(X, k=5),
        lambda X: isoscope.inter_similarity(X, LABELS),
        lambda X: isoscope.intra_similarity(X, LABELS),
    ],
)
def test_the_warning_points_at_the_caller(measure, rng):
    with pytest.warns(DataWarning) as caught:
        measure(rng.standard_normal((50, 1001)))
    assert {w.filename for w in caught if w.category is DataWarning} == {__file__}


# gradients and traces


@pytest.mark.parametrize(
    "measure", [isoscope.isoscore, isoscope.mean_cosine, isoscope.effective_rank, isoscope.h0_barcode, isoscope.two_nn]
)
def test_tensor_with_a_gradient_does_not_warn(measure, rng):
    torch = pytest.importorskip("torch")
    X = torch.tensor(rng.standard_normal((30, 4)), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(X).sum().backward()
    assert torch.isfinite(X.grad).all()


@pytest.mark.parametrize(
    "measure",
    [
        isoscope.isoscore,
        lambda X: isoscope.isoscore(X, unbiased=True),
        isoscope.mean_cosine,
        isoscope.participation_ratio,
        isoscope.effective_rank,
    ],
)
def test_sums_can_be_computed_inside_jit(measure, rng):
    jax = pytest.importorskip("jax")
    X = jax.numpy.asarray(rng.standard_normal((40, 6)), dtype="float32")
    np.testing.assert_allclose(jax.jit(measure)(X), measure(X), rtol=tolerance(np.float32))


def test_nan_inside_jit_does_not_raise():
    jax = pytest.importorskip("jax")
    X = jax.numpy.ones((4, 2)).at[1, 1].set(float("nan"))
    assert np.isnan(jax.jit(isoscope.isoscore)(X))
    with pytest.raises(InputError, match="row 1"):
        isoscope.isoscore(X)


def test_nan_inside_grad_raises():
    jax = pytest.importorskip("jax")
    X = jax.numpy.ones((4, 2)).at[1, 1].set(float("nan"))
    with pytest.raises(InputError, match="row 1"):
        jax.grad(isoscope.isoscore)(X)


@pytest.mark.parametrize("measure", [lambda X: isoscope.lid(X, k=3), isoscope.h0_barcode, isoscope.sketch])
def test_combinatorial_metrics_inside_jit_raise(measure):
    jax = pytest.importorskip("jax")
    with pytest.raises(InputError, match=r"jax\.jit.*outside jit"):
        jax.jit(measure)(jax.numpy.eye(8))


def test_only_jax_tracers_are_traced():
    jax = pytest.importorskip("jax")
    seen = []
    jax.jit(lambda X: seen.append(is_traced(X)) or X)(jax.numpy.ones(3))
    assert seen == [True]
    assert not is_traced(jax.numpy.ones(3))
    assert not is_traced(np.ones(3))


# labels


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["b", "a", "b", "c"], ["a", "b", "c"]),
        (np.array(["b", "a", "b", "c"], object), ["a", "b", "c"]),
        (np.array(["b", "a", "b", "c"], np.dtypes.StringDType()), ["a", "b", "c"]),
        (np.array([b"b", b"a", b"b", b"c"]), ["a", "b", "c"]),
        (np.array(["2020-02", "2020-01", "2020-02", "2021-01"], "M8[M]"), ["2020-01", "2020-02", "2021-01"]),
        ([7, -1, 7, 9], [-1, 7, 9]),
        ((7, -1, 7, 9), [-1, 7, 9]),
        (np.array([7, 1, 7, 9], np.uint8), [1, 7, 9]),
        (np.array([7, 1, 7, 9], object), [1, 7, 9]),
        ([0.5, -1.0, 0.5, 2.5], [-1.0, 0.5, 2.5]),
        (np.array([0.5, -1, 0.5, 2.5], np.float16), [-1.0, 0.5, 2.5]),
        (np.array([0.5, -1, 0.5, 2], object), [-1.0, 0.5, 2.0]),
    ],
    ids=lambda labels: f"{type(labels).__name__} {np.asarray(labels).dtype}",
)
def test_labels_of_any_type_are_counted_in_sorted_order(labels, names):
    found = encode_labels(labels, 4)
    assert found.codes.tolist() == [1, 0, 1, 2]
    assert found.counts.tolist() == [1, 2, 1]
    assert found.names.tolist() == names
    assert found.names.dtype.kind == "U" or found.names.dtype in (np.int64, np.float64)


def test_labels_of_any_library_are_counted(library):
    assert encode_labels(library.array([7, 1, 7, 9]), 4).codes.tolist() == [1, 0, 1, 2]


def test_booleans_are_two_labels():
    assert encode_labels([True, False, True], 3).codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize("values", [np.int64([2, 1]), np.float32([2, 1]), np.array(["b", "a"])], ids=["i", "f", "U"])
def test_numpy_scalars_are_labels_in_object_arrays(values):
    labels = np.empty(2, object)
    labels[:] = list(values)
    assert encode_labels(labels, 2).codes.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(99), "labels has 99 entries but X has 100 rows"),
        ([], "labels has 0 entries but X has 100 rows"),
        (np.zeros((100, 1)), r"labels has shape \(100, 1\): need shape \(100,\), one label per row"),
        (3, r"labels has shape \(\)"),
        (np.r_[np.nan, np.inf, np.zeros(98)], "labels has 2 NaN or infinite entries"),
        (np.array([1.0, np.nan] * 50, object), "labels has 50 NaN or infinite entries"),
        ([None, *"a" * 99], "labels holds values of type NoneType, str: need all numbers or all strings"),
        (np.array([1, "a"] * 50, object), "labels holds values of type int, str"),
        ([[1], [1, 2]] * 50, "labels cannot be read as labels"),
        (np.zeros(100, complex), "labels has dtype complex128: need numbers or strings"),
        (np.full(100, 2**63, np.uint64), r"labels has numbers up to 9223372036854775808: need integers below 2\*\*63"),
        (np.zeros(100), "labels has 1 distinct value: need at least 2"),
    ],
)
def test_invalid_labels_raise(labels, words):
    with pytest.raises(InputError, match=words):
        encode_labels(labels, 100, min_groups=2)


@pytest.mark.parametrize(
    "labels",
    [[1, "1"], [1, 2**63 + 5], np.array(["2020-01-01", "NaT"], "M8[D]")],
    ids=["a number and a word", "beyond int64", "no date"],
)
def test_unsupported_label_types_raise(labels):
    with pytest.raises(InputError, match="labels"):
        encode_labels(labels, 2)


# small things that everything stands on


@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("rows", [1, 3, 100, 1000])
def test_blocks_cover_every_row_once(n, rows):
    parts = list(blocks(n, rows))
    assert [i for p in parts for i in range(p.start, p.stop)] == list(range(n))
    assert all(0 < p.stop - p.start <= rows for p in parts)


def test_tiles_stay_within_their_memory_limit():
    X = np.zeros((1000, 16))
    parts = list(tiles(X, nbytes=16 * 8 * 10))
    assert [p.stop - p.start for p in parts] == [10] * 100
    assert len(list(tiles(X, nbytes=1))) == 1000  # a row at least


@pytest.mark.parametrize("scale", [1, 1e200, 1e-200, 1e-310, 1.7e308])
def test_unit_rows_have_length_one_at_any_scale(scale):
    X = np.array([[0.3, 0.4], [-1.0, 0.0], [1.0, 1.0]]) * scale
    np.testing.assert_allclose(
        unit_rows(np, X, np.float64), [[0.6, 0.8], [-1, 0], [2**-0.5, 2**-0.5]], rtol=tolerance(np.float64)
    )


def test_a_zero_row_has_no_direction():
    np.testing.assert_array_equal(unit_rows(np, np.zeros((2, 3)), np.float64), 0)


def test_square_root_of_zero_has_derivative_zero():
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    root = safe_sqrt(torch, x)
    root.sum().backward()
    assert root.tolist() == [0, 2]
    assert x.grad.tolist() == [0, 0.25]


def test_host_values_are_views_where_possible(library, rng):
    X = rng.standard_normal((4, 3))
    values = to_numpy(library.array(X))
    assert values.dtype in (np.float32, np.float64)
    np.testing.assert_array_equal(values, library.values(library.array(X)))
    assert to_numpy(X) is X


def test_scalar_of_any_library_becomes_a_float(library):
    assert to_float(library.array(2.5)) == 2.5
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_float(torch.tensor(2.5, requires_grad=True)) == 2.5
