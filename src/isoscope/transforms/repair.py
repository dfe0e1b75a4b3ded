"""The base class of repairs: input checks, choice of the array library, and saving."""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from isoscope._core.arrays import asarray_like, detach, to_numpy
from isoscope._core.errors import FileFormatError, InputError, ParameterError, ShapeError
from isoscope.sketching.sketch import Sketch
from isoscope.stores.open import open_store
from isoscope.stores.store import Store
from isoscope.transforms.maps import keep_zero_rows, split_float32, to_float32

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope.transforms.export import Graph

FLOATS = [np.float64, np.float32]
_ACCEPTED_DTYPES = frozenset(map(np.dtype, (*FLOATS, np.float16)))

_DERIVED_CACHE: WeakKeyDictionary[Repair, dict[Any, tuple[list[Any], Any]]] = WeakKeyDictionary()
"""Values derived from fitted arrays; stored here because in scikit-learn, `transform` must not change the object."""


class Repair(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformation of vectors that is fitted once on a corpus and applied to both the corpus and the queries."""

    _fitted_attribute = "mean_"  # exists once the repair is fitted
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fitted_attribute)  # n_features_in_ also exists after a failed fit

    def transform(self, X: Any) -> Array:
        """Return the repaired vectors, in the array library and dtype of X.

        A row of zeros, often a failed embedding, stays zero: otherwise, it would become a vector that queries can find.

        Parameters
        ----------
        X : (n, d) array
            A NumPy array or a torch tensor. For a tensor, the result is differentiable, and NaN affects only its row.
        """
        check_is_fitted(self)
        X = self._checked(X)
        xp = array_namespace(X)
        wide = X if X.dtype.itemsize >= 4 else xp.astype(X, xp.float32)
        repaired = keep_zero_rows(xp, X, self._apply(xp, wide))
        return repaired if wide is X else self._narrow(xp, repaired, X.dtype)

    def _narrow(self, xp: Any, repaired: Array, dtype: Any) -> Array:
        """Return repaired vectors in a narrower dtype; raise an error if a number exceeds its range."""
        if "bfloat16" not in str(dtype):  # its range is that of float32
            largest = float(xp.max(xp.abs(detach(repaired)))) if len(repaired) else 0.0
            if float(xp.finfo(dtype).max) < largest < float("inf"):
                raise ParameterError(
                    f"a repaired vector contains {largest:.3g}, which exceeds the range of {dtype}: pass X as float32"
                )
        return xp.astype(repaired, dtype)

    def _checked(self, X: Any) -> Array:
        """Check X and return it: a torch tensor unchanged, and anything else as a NumPy array."""
        if self._is_plain(X):
            return X
        if is_source(X):
            raise ParameterError(
                f"X is a {type(X).__name__}, which only fit accepts: pass an array of shape (n, d), "
                "such as batch.vectors for each batch in open_store(X).batches()"
            )
        if is_torch_array(X):
            self._check_tensor(X)
            return X
        return check_rows(self, X, dtype=[*FLOATS, np.float16], reset=False)

    def _is_plain(self, X: Any) -> bool:
        """Return whether scikit-learn would return X unchanged; its own check takes longer than repairing one query."""
        return (
            type(X) is np.ndarray
            and X.dtype in _ACCEPTED_DTYPES
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")  # scikit-learn warns if X has no names
            and bool(np.isfinite(X).all())
        )

    def _apply(self, xp: Any, X: Array) -> Array:
        raise NotImplementedError

    @property
    def is_affine(self) -> bool:
        """Whether the repair is an affine map y = x·A + b."""
        return False

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        """Add the nodes that repair `vectors`, and return the name of the last output."""
        raise NotImplementedError

    def _check_tensor(self, X: Any) -> None:
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ShapeError(
                f"X has shape {tuple(X.shape)}: {type(self).__name__} was fitted to vectors with {self.n_features_in_} "
                "dimensions; pass one such vector per row"
            )
        if not X.dtype.is_floating_point:
            raise ParameterError(f"X has dtype {X.dtype}: need floating-point numbers")

    def _fitted_like(self, xp: Any, X: Array, name: str) -> Array:
        """Return a fitted array in the array library and the dtype of X, on the device of X."""
        if is_numpy_array(X) and X.dtype == np.float32:
            return self._cache_derived(to_float32, name)
        return asarray_like(xp, X, getattr(self, name), X.dtype)

    def _parts(self, X: Array, name: str) -> tuple[np.ndarray, ...]:
        """Return the fitted means in the form that `subtract` needs for X."""
        return self._cache_derived(split_float32, name) if X.dtype.itemsize < 8 else (getattr(self, name),)

    def _cache_derived(self, work: Callable[..., Any], *names: str) -> Any:
        """Return the result of `work` on the named fitted arrays, cached until one of them is replaced."""
        arrays = [getattr(self, name) for name in names]
        kept = _DERIVED_CACHE.setdefault(self, {})
        before, found = kept.get((work, names), (None, None))
        if before is None or any(old is not new for old, new in zip(before, arrays, strict=True)):
            found = work(*arrays)
            kept[work, names] = arrays, found
        return found

    def _check_parameters(self) -> None:
        """Raise a `ParameterError` for invalid parameters."""

    def _update_derived(self) -> None:
        """Set the attributes that are derived from the saved ones."""

    # export

    def to_sentence_transformers(self) -> Any:
        """Return a module that repairs embeddings at the end of a Sentence Transformers pipeline.

        An affine repair becomes the library's own `Dense` module, which can be loaded without isoscope. Its parameters
        are frozen until it is saved and loaded again. It maps a row of zeros to the vector b of `as_affine`. If the
        mean is thousands of times larger than the spread, `Dense` loses digits in float32 that `transform` and
        `to_onnx` keep.

        A clustered repair becomes a `RepairModule`. To load a saved pipeline that contains it, isoscope must be
        installed. Sentence Transformers 6 or later also needs ``trust_remote_code=True``, as for every class outside
        that library.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> X = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
        >>> module = isoscope.Center().fit(X).to_sentence_transformers()  # model.append(module)
        >>> type(module).__name__, module.get_embedding_dimension()
        ('Dense', 4)
        """
        from isoscope.transforms.export import to_sentence_transformers

        check_is_fitted(self)
        return to_sentence_transformers(self)

    def to_onnx(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Return the repair as an ONNX model with input "vectors" (float32, shape (n, d)) and output "repaired".

        Parameters
        ----------
        path : path, optional
            The file to write, atomically.

        Returns
        -------
        onnx.ModelProto
            The model, whether or not it is also written to a file.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> X = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
        >>> model = isoscope.Whiten().fit(X).to_onnx("whiten.onnx")
        >>> [node.op_type for node in model.graph.node]
        ['Sub', 'Sub', 'MatMul', 'Abs', 'ReduceMax', 'Equal', 'Where']
        """
        from isoscope.transforms.export import to_onnx

        check_is_fitted(self)
        return to_onnx(self, path)

    # saving

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted repair to a folder: arrays as safetensors and the rest as JSON, without pickle."""
        from isoscope.transforms.persistence import save

        check_is_fitted(self)
        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Load a repair that was written by `save`."""
        from isoscope.transforms.persistence import load

        found = load(folder)
        if not isinstance(found, cls):
            raise FileFormatError(f"{folder} contains a {type(found).__name__}, not a {cls.__name__}")
        return found


def check_rows(repair: Repair, X: Any, **options: Any) -> Any:
    """Return the array that scikit-learn's `validate_data` accepts; its errors become an `InputError` of one line."""
    try:
        return validate_data(repair, X, **options)
    except InputError:
        raise
    except ValueError as error:
        reason = str(error).strip().splitlines()[0].rstrip(":.")
        need = ": Reshape your data to (n, d)" if "Reshape your data" in str(error) else ""
        raise InputError(reason + need) from error


def is_source(X: Any) -> bool:
    """Return whether X is a source of vectors rather than an array."""
    return isinstance(X, Store | Sketch | str | os.PathLike)


def as_store(X: Any) -> Store:
    """Return X as a store; a path is opened."""
    return X if isinstance(X, Store) else open_store(X)


def to_host(X: Any) -> Any:
    """Return X as a NumPy array for scikit-learn, even if it is a tensor with a gradient, on a GPU or in bfloat16."""
    return to_numpy(X) if is_torch_array(X) else X


def is_count(value: Any, least: int = 0) -> bool:
    """Return whether a parameter is an integer that is at least `least`."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
