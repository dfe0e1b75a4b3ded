"""Arrays of any library, without a copy where that is possible."""

import numpy as np
import pytest

from isoscope import InputError
from isoscope.stores.open import open_store
from tests.stores.conftest import D, N


def test_numpy_is_not_copied(truth):
    chunk = next(open_store(truth.vectors).chunks())
    assert np.shares_memory(chunk, truth.vectors)
    assert (open_store(truth.vectors).name, len(open_store(truth.vectors))) == ("array", N)


def test_every_library_gives_its_values(library, truth, rng):
    store = open_store(library.array(truth.vectors))
    rows = rng.integers(0, N, 20)
    assert store.dim == D
    for chunk in (np.concatenate(list(store.chunks(7))), next(store.chunks())):
        assert isinstance(chunk, np.ndarray)
        np.testing.assert_array_equal(chunk, truth.vectors)
    np.testing.assert_array_equal(store.take(rows), truth.vectors[rows])


def test_bfloat16_becomes_float32_and_float16_stays(truth):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(truth.vectors, requires_grad=True).to(torch.bfloat16)
    store = open_store(tensor)
    assert store.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(list(store.chunks(64))), tensor.detach().float().numpy())
    assert open_store(tensor.half()).dtype == np.float16
    jax = pytest.importorskip("jax")
    store = open_store(jax.numpy.asarray(truth.vectors, dtype=jax.numpy.bfloat16))
    assert store.dtype == np.float32
    np.testing.assert_array_equal(store.take([5]), tensor.detach().float().numpy()[[5]])


def test_lists_and_integers():
    assert open_store([[1, 2], [3, 4]]).take([1]).tolist() == [[3, 4]]
    whole = np.array([[2**40, 1]], np.int64)
    assert open_store(whole).dtype == np.int64
    assert open_store(whole.astype(">i8")).take([0]).tolist() == [[2**40, 1]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.arange(3.0), r"the array has shape \(3,\)"),
        (np.zeros((2, 2, 2)), r"the array has shape \(2, 2, 2\).*reshape"),
        (np.zeros((0, 3)), "array has no rows"),
        (np.zeros((3, 0)), "array has no columns"),
        (np.eye(3, dtype=bool), "booleans"),
        (np.eye(3).astype(object), "dtype object"),
        ([[1, 2], [3]], "cannot be read as an array"),
        ([["a", "b"]], "need real numbers"),
        (np.ma.masked_array(np.eye(2)), "masked"),
        (3, r"shape \(\)"),
        (None, ""),
    ],
)
def test_arrays_that_are_not_rows_of_vectors_are_rejected(source, message):
    with pytest.raises(InputError, match=message or None):
        open_store(source)


def test_an_array_has_no_columns_to_name(truth):
    with pytest.raises(InputError, match="has no columns: omit vectors"):
        open_store(truth.vectors, vectors="x")
    with pytest.raises(InputError, match="the array has no column x for labels: it contains only vectors"):
        open_store(truth.vectors, labels="x")
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(InputError, match="sparse"):
        open_store(sparse.eye(3, format="csr"))
