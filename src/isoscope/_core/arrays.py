"""Check arrays of any library, convert them, and iterate over their rows.

Measurements are written once, against the array API standard. *Geometry* (sums, products, norms) runs in the array's
own library, so that gradients are kept and the data stays on its device. *Combinatorics* (such as which rows are
neighbors) uses `to_numpy` values, which carry no gradient, and returns only indices.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_cupy_array,
    is_dask_array,
    is_jax_array,
    is_numpy_array,
    is_torch_array,
)

from isoscope._core.errors import MissingValueError, ParameterError, ShapeError, TooFewRowsError, warn_data
from isoscope._core.memory import tile_bytes

Array = Any
"""An array from NumPy, torch, JAX, CuPy or any library that follows the array API standard."""

TILE_BYTES = 32 * 2**20
"""The size of a tile of rows: large enough for BLAS, small enough to bound memory."""

# Common embedding dimensions. An array with this number of rows and far more columns is probably transposed.
_USUAL_DIMENSIONS = frozenset(
    {50, 96, 100, 128, 192, 200, 256, 300, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 4096}
)


def check_points(
    X: Any, *, min_rows: int = 2, min_dims: int = 2, name: str = "X", finite: bool = True
) -> tuple[Any, Array]:
    """Check that `X` is a finite array of shape (n, d), and return its array namespace and the array.

    Lists, nested sequences and objects with ``__array__`` become NumPy arrays; integers become float64. Other arrays
    are not copied. Raises an `InputError` for anything that cannot be measured. If `finite` is False, the values are
    not read: the caller then checks its sums, and calls `check_finite` only if a sum is not finite.
    """
    X = _as_array(X, name)
    if X.ndim != 2:
        raise ShapeError(
            f"{name} has shape {tuple(X.shape)}: need shape (n, d), one row per vector" + _reshape_advice(X.ndim)
        )
    n, d = X.shape
    if n < min_rows:
        raise TooFewRowsError(f"{name} has {n} row{'s' * (n != 1)}: need at least {min_rows} vectors")
    if d < min_dims:
        raise ShapeError(f"{name} has {d} column{'s' * (d != 1)}: need vectors of at least {min_dims} dimensions")
    xp, X = as_real_array(X, name)
    if finite:
        check_finite(xp, X, name)
    warn_if_transposed(n, d, name)
    return xp, X


def warn_if_transposed(n: int, d: int, name: str) -> None:
    """Warn if an (n, d) array looks transposed: n is a common embedding dimension, and d is far larger than n."""
    like_dimensions = d in _USUAL_DIMENSIONS or (d % 32 == 0 and d <= 8192)
    if n in _USUAL_DIMENSIONS and d >= 2 * n and not like_dimensions:
        warn_data(
            f"{name} has {n} rows and {d} columns: each row is treated as one vector. "
            f"If these are {d} vectors of {n} dimensions, pass {name}.T"
        )


def as_real_array(X: Any, name: str) -> tuple[Any, Array]:
    """Return the array namespace of X, and X as an array of real numbers of at least 16 bits."""
    X = _as_array(X, name)
    xp = _namespace(X)
    return xp, _as_real(xp, X, name)


def _namespace(X: Array) -> Any:
    """Return the array namespace of X; for NumPy arrays, NumPy itself if it has all functions that are used.

    `array_api_compat.numpy` imports all of NumPy, which takes 0.1 s.
    """
    return np if is_numpy_array(X) and hasattr(np, "cumulative_sum") else array_namespace(X)


def _as_array(X: Any, name: str) -> Array:
    """Return X as an array; lists become NumPy arrays, in native byte order."""
    if is_torch_array(X) and str(X.layout) != "torch.strided":
        raise ParameterError(f"{name} is a tensor of layout {X.layout}: need dense vectors; pass {name}.to_dense()")
    if is_torch_array(X) and X.device.type == "meta":
        raise ParameterError(f"{name} is a tensor on the device meta, which has no values: pass a tensor with values")
    if is_dask_array(X):
        raise ParameterError(
            f"{name} is a Dask array, which measurements do not support: pass {name}.compute(), or audit the files "
            "that it was read from"
        )
    if isinstance(X, np.matrix):  # whose * is a matrix product
        X = np.asarray(X)
    if is_numpy_array(X) and not X.dtype.isnative:
        return X.astype(X.dtype.newbyteorder("="))
    if is_array_api_obj(X):
        return X
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise ParameterError(f"{name} is a sparse matrix: need dense vectors; pass {name}.toarray()")
    try:
        return np.asarray(X)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ParameterError(
            f"{name} cannot be read as an array: {error}; need lists of numbers of equal length"
        ) from error


def _as_real(xp: Any, X: Array, name: str) -> Array:
    if is_numpy_array(X):
        if isinstance(X, np.ma.MaskedArray):
            raise ParameterError(
                f"{name} is a masked array, and masked values are not supported: pass {name}.filled(), or drop the "
                "masked rows"
            )
        if X.dtype == np.longdouble and X.dtype != np.float64:
            return X.astype(np.float64)
        if X.dtype.kind not in "fiub":
            raise ParameterError(
                f"{name} has dtype {X.dtype}: need real numbers; pass np.stack(list({name})) or {name}.astype(float)"
            )
        if X.dtype.kind == "b":
            raise ParameterError(f"{name} holds booleans: need real numbers; pass {name}.astype(float)")
    if "float8" in str(X.dtype) or "float4" in str(X.dtype):
        raise ParameterError(f"{name} has dtype {X.dtype}: need at least 16 bits per number; convert it to float16")
    if xp.isdtype(X.dtype, "real floating"):
        return X
    if is_numpy_array(X) or xp.isdtype(X.dtype, "integral"):
        return xp.astype(X, accumulator_dtype(xp, X))
    if str(X.dtype).endswith("float16"):  # bfloat16, which the array API standard does not include
        return X
    raise ParameterError(f"{name} has dtype {X.dtype}: need real numbers")


def _reshape_advice(ndim: int) -> str:
    if ndim == 1:
        return "; for a single vector, pass X[None, :]"
    if ndim == 3:
        return "; for states of shape (batch, tokens, d), pass X.reshape(-1, X.shape[-1]) and drop the padding rows"
    return ""


def check_finite(xp: Any, X: Array, name: str = "X") -> None:
    """Raise a `MissingValueError` if a row contains NaN or infinity."""
    if not _looks_nonfinite(xp, X):
        return
    finite = np.concatenate([np.isfinite(to_numpy(X[part, :])).all(axis=1) for part in tiles(X)])
    bad = int((~finite).sum())
    if bad:
        raise MissingValueError(
            f"{bad} of {len(finite)} rows of {name} contain NaN or infinity, first in row {int(np.argmin(finite))}: "
            + ('fix or drop them; isoscope.sketch(…, missing="drop") drops them' if name == "X" else "fix them")
        )


def _looks_nonfinite(xp: Any, X: Array) -> bool:
    """Return whether the sum of X is not finite, as a cheap first check; return False for a JAX tracer."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = xp.sum(detach(X))
    try:
        return not math.isfinite(to_float(total))
    except Exception:
        if is_traced(X):
            return False
        raise


def is_traced(X: Array) -> bool:
    """Return whether X is a tracer of `jax.jit`, which has no values."""
    if not is_jax_array(X):
        return False
    from jax.core import Tracer

    return isinstance(detach(X), Tracer)


def carries_gradient(X: Array) -> bool:
    """Return whether results computed from X may be differentiated."""
    if is_torch_array(X):
        return bool(X.requires_grad)
    if is_jax_array(X):
        from jax.core import Tracer

        return isinstance(X, Tracer)
    return False


def check_not_traced(X: Array) -> None:
    """Raise an error if X is a tracer of `jax.jit`, because the measurement needs actual values."""
    if is_traced(X):
        raise ParameterError("X is a tracer of jax.jit: this measurement needs actual values; call it outside jit")


def detach(X: Array) -> Array:
    """Return X detached from its gradient, as an array of the same library."""
    if is_torch_array(X):
        return X.detach()
    if is_jax_array(X):
        from jax.lax import stop_gradient

        return stop_gradient(X)
    return X


def to_numpy(X: Array) -> np.ndarray:
    """Return the values of X as a float32 or float64 NumPy array without a gradient; avoid a copy if possible."""
    check_not_traced(X)
    X = detach(X)
    values: np.ndarray
    if is_torch_array(X):
        values = (X.float() if X.dtype.itemsize < 4 else X).cpu().numpy()
    elif is_cupy_array(X):
        values = X.get()
    else:
        values = np.asarray(X)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    return values


def accumulator_dtype(xp: Any, X: Array) -> Any:
    """Return the dtype for sums: float64, or float32 if the library or device has no float64."""
    if is_numpy_array(X):
        return np.dtype(np.float64)
    if is_torch_array(X):
        return xp.float32 if X.device.type == "mps" else xp.float64
    return xp.__array_namespace_info__().dtypes(kind="real floating").get("float64", xp.float32)


def result_dtype(xp: Any, X: Array) -> Any:
    """Return the dtype for results: the dtype of X, but at least float32."""
    return xp.float64 if X.dtype == xp.float64 else xp.float32


def asarray_like(xp: Any, X: Array, value: Any, dtype: Any = None) -> Array:
    """Return `value` as an array with the library, device and precision of X."""
    if is_numpy_array(X):
        return np.asarray(value, dtype=dtype or result_dtype(xp, X))[()]
    return xp.asarray(value, dtype=dtype or result_dtype(xp, X), device=_device_of(X))


def take(xp: Any, X: Array, rows: np.ndarray) -> Array:
    """Return the given rows of X, with their gradient."""
    dtype = xp.__array_namespace_info__().default_dtypes()["indexing"] if is_jax_array(X) else xp.int64
    return xp.take(X, asarray_like(xp, X, rows, dtype), axis=0)


def zeros(xp: Any, X: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of zeros, in the dtype used for sums over X."""
    return xp.zeros(shape, dtype=accumulator_dtype(xp, X), device=_device_of(X))


def _device_of(X: Array) -> Any:
    """Return the device of X, or None for a JAX tracer, which uses the default device."""
    return None if is_jax_array(X) and carries_gradient(X) else device(X)


def itemsize(xp: Any, dtype: Any) -> int:
    """Return the size of one number of this dtype in bytes."""
    return int(xp.finfo(dtype).bits) // 8


def cast_result(xp: Any, X: Array, value: Array) -> Array:
    """Return a computed value in the result dtype of X."""
    return xp.astype(value, result_dtype(xp, X))[()] if is_numpy_array(X) else xp.astype(value, result_dtype(xp, X))


def tiles(X: Array, *, nbytes: int = TILE_BYTES, itemsize: int = 8) -> Iterator[slice]:
    """Return slices over the rows of X; each covers at most `nbytes` bytes if a value takes `itemsize` bytes."""
    n, d = X.shape
    return blocks(n, max(1, tile_bytes(nbytes) // (itemsize * max(d, 1))))


def blocks(n: int, rows: int) -> Iterator[slice]:
    """Return slices of at most `rows` rows that cover 0…n−1."""
    return (slice(start, min(start + rows, n)) for start in range(0, n, rows))


def to_float(value: Array) -> float:
    """Return a scalar array as a float, without torch's warning about its gradient."""
    return float(detach(value))


def safe_sqrt(xp: Any, squared: Array) -> Array:
    """Return the square root; its derivative at 0 is set to 0, so that equal points have a finite gradient."""
    positive = squared > 0
    root = xp.sqrt(xp.where(positive, squared, xp.ones_like(squared)))
    return xp.where(positive, root, xp.zeros_like(root))


def unit_rows(xp: Any, X: Array, dtype: Any) -> Array:
    """Return the rows scaled to length 1, in `dtype`; zero rows stay zero.

    Unless `dtype` is wider than that of X, each row is divided by its largest value first, so that no square overflows.
    """
    wider = itemsize(xp, dtype) > itemsize(xp, X.dtype)
    X = xp.astype(X, dtype, copy=False)
    if not wider:
        largest = xp.max(xp.abs(X), axis=1, keepdims=True)
        X = X / xp.where(largest > 0, largest, xp.ones_like(largest))
    squared = xp.sum(X * X, axis=1, keepdims=True)
    return X / xp.sqrt(xp.where(squared > 0, squared, xp.ones_like(squared)))


def check_real(value: Any, name: str) -> float:
    """Return a parameter as a float; raise an error if it is not a real number."""
    if isinstance(value, str) or not isinstance(value, SupportsFloat):
        raise ParameterError(f"{name} is {value!r}: need a number")
    return float(value)


def nonzero_rows(X: Array) -> np.ndarray:
    """Return a mask of the rows of X that are not zero."""
    return np.asarray(to_numpy(X).any(axis=1))


def check_integer(value: Any, name: str) -> int:
    """Return a parameter as an int; raise an error if it is not an integer."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise ParameterError(f"{name} is {value!r}: need an integer") from error


class Groups(NamedTuple):
    """The labels of the rows as integer `codes` that index the sorted `names`, and the number of rows for each name."""

    codes: np.ndarray
    names: np.ndarray
    counts: np.ndarray


def encode_labels(labels: Any, n: int, *, name: str = "labels", min_groups: int = 1) -> Groups:
    """Encode one label per row as integer codes, names (int64, float64 or strings) and counts."""
    values = _labels_to_numpy(labels, name)
    if values.ndim != 1:
        raise ShapeError(f"{name} has shape {values.shape}: need shape ({n},), one label per row")
    if len(values) != n:
        raise ShapeError(f"{name} has {len(values)} entries but X has {n} rows: pass one label per row")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise MissingValueError(f"{name} has {bad} NaN or infinite entries: give those rows a label")
    names, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(names) < min_groups:
        distinct = f"{len(names)} distinct value{'s' * (len(names) != 1)}"
        raise TooFewRowsError(f"{name} has {distinct}: need at least {min_groups}")
    return Groups(codes.astype(np.int64), names, counts.astype(np.int64))


def _labels_to_numpy(labels: Any, name: str) -> np.ndarray:
    """Return labels as a NumPy array of int64, float64 or fixed-width strings."""
    if is_torch_array(labels) or is_jax_array(labels) or is_cupy_array(labels):
        labels = labels.tolist()
    try:
        values = np.asarray(labels)
    except ValueError as error:
        raise ParameterError(f"{name} cannot be read as labels: {error}; need one label per row") from error
    if values.dtype.kind == "U" and isinstance(labels, list | tuple) and not all(isinstance(v, str) for v in labels):
        values = np.asarray(labels, dtype=object)  # NumPy turns numbers among strings into strings
    if values.dtype.kind in "OT":
        values = np.asarray([getattr(v, "item", lambda v=v: v)() for v in values.ravel()], object).reshape(values.shape)
        kinds = {type(value) for value in values.ravel()}
        if not kinds <= {str} and not kinds <= {int, bool, float}:
            types = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ParameterError(f"{name} holds values of type {types}: need all numbers or all strings")
        values = np.asarray(values.tolist())
    if values.dtype.kind in "biu":
        if values.dtype.kind == "u" and values.size and values.max() > np.iinfo(np.int64).max:
            raise ParameterError(f"{name} has numbers up to {values.max()}: need integers below 2**63, or strings")
        return values.astype(np.int64)
    if values.dtype.kind == "f":
        if isinstance(labels, list | tuple) and any(isinstance(v, int) and abs(v) >= 2**63 for v in labels):
            raise ParameterError(f"{name} contains integers outside the range of int64: pass them as strings")
        return values.astype(np.float64)
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind in "Mm" and np.isnat(values).any():
        raise ParameterError(f"{name} has {int(np.isnat(values).sum())} missing dates (NaT): give those rows a label")
    if values.dtype.kind in "UMm":
        return values.astype(np.str_)
    raise ParameterError(f"{name} has dtype {values.dtype}: need numbers or strings")
