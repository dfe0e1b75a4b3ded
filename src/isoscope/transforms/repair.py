"""What all repairs share: how their input is checked, in which library they compute, how they are saved."""

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

from isoscope._core.arrays import asarray_like, to_numpy
from isoscope._core.errors import InputError
from isoscope.sketching.sketch import Sketch
from isoscope.stores.open import open_store
from isoscope.stores.store import Store
from isoscope.transforms.maps import split_float32, to_float32

if TYPE_CHECKING:
    from isoscope._core.arrays import Array

FLOATS = [np.float64, np.float32]
_ACCEPTED_DTYPES = frozenset(map(np.dtype, (*FLOATS, np.float16)))

_DERIVED_CACHE: WeakKeyDictionary[Repair, dict[Any, tuple[list[Any], Any]]] = WeakKeyDictionary()
"""What follows from learnt arrays, beside the repairs: scikit-learn wants `transform` to leave the object as it is."""


class Repair(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A map of vectors that was learnt from a corpus and never learns anew when it is applied."""

    _fitted_attribute = "mean_"  # what is there once it is fitted
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fitted_attribute)  # n_features_in_ is there after a fit that failed as well

    def transform(self, X: Any) -> Array:
        """The repaired vectors, in the library and precision of X.

        Parameters
        ----------
        X : (n, d) array
            NumPy, or a torch tensor, through which the gradient passes. NaN in a tensor stays in its row.
        """
        check_is_fitted(self)
        X = self._checked(X)
        xp = array_namespace(X)
        if X.dtype.itemsize >= 4:
            return self._apply(xp, X)
        return xp.astype(self._apply(xp, xp.astype(X, xp.float32)), X.dtype)

    def _checked(self, X: Any) -> Array:
        """Vectors to be placed or repaired: a torch tensor as it is, anything else as a NumPy array."""
        if self._is_plain(X):
            return X
        if is_source(X):
            raise InputError(
                f"X is a {type(X).__name__}: only fit reads from it; give an (n, d) array, "
                "for example each batch.vectors of open_store(X).batches()"
            )
        if is_torch_array(X):
            self._check_tensor(X)
            return X
        return validate_data(self, X, dtype=[*FLOATS, np.float16], reset=False)

    def _is_plain(self, X: Any) -> bool:
        """Whether scikit-learn would give X back as it is: it takes longer to find out than a query to be repaired."""
        return (
            type(X) is np.ndarray
            and X.dtype in _ACCEPTED_DTYPES
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")  # it warns that X has none
            and bool(np.isfinite(X).all())
        )

    def _apply(self, xp: Any, X: Array) -> Array:
        raise NotImplementedError

    def _check_tensor(self, X: Any) -> None:
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has shape {tuple(X.shape)}: {type(self).__name__} was fitted to vectors of {self.n_features_in_} "
                "dimensions, one in each row"
            )
        if not X.dtype.is_floating_point:
            raise InputError(f"X has dtype {X.dtype}: need floating-point numbers")

    def _held(self, xp: Any, X: Array, name: str) -> Array:
        """A learnt array beside X: in its library, on its device, in its precision."""
        if is_numpy_array(X) and X.dtype == np.float32:
            return self._cache_derived(to_float32, name)
        return asarray_like(xp, X, getattr(self, name), X.dtype)

    def _parts(self, X: Array, name: str) -> tuple[np.ndarray, ...]:
        """Learnt means as `minus` wants them for X."""
        return self._cache_derived(split_float32, name) if X.dtype.itemsize < 8 else (getattr(self, name),)

    def _cache_derived(self, work: Callable[..., Any], *names: str) -> Any:
        """`work` of the learnt arrays of these names, done again only when one of them is another array."""
        learnt = [getattr(self, name) for name in names]
        kept = _DERIVED_CACHE.setdefault(self, {})
        before, found = kept.get((work, names), (None, None))
        if before is None or any(old is not new for old, new in zip(before, learnt, strict=True)):
            found = work(*learnt)
            kept[work, names] = learnt, found
        return found

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing."""

    def _update_derived(self) -> None:
        """Work out what follows from what was learnt and saved."""

    # where it goes

    def to_sentence_transformers(self) -> Any:
        """A module that repairs the embeddings of a Sentence Transformers pipeline when it is appended to it.

        An affine repair becomes the library's own `Dense`, which loads anywhere, without isoscope; its parameters are
        frozen until it is loaded. Its float32 loses the digits of a mean that is thousands of times the spread, which
        `transform` and `to_onnx` keep.

        A clustered repair becomes a `RepairModule`: a saved pipeline with it needs isoscope and, from
        Sentence Transformers 6 on, ``trust_remote_code=True``, which the library asks for every class not its own.

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
        """The repair as an ONNX model: "vectors", (n, d) float32, to "repaired".

        Parameters
        ----------
        path : path, optional
            Where to write it; an interrupted write leaves the old file.

        Returns
        -------
        onnx.ModelProto
            Also if it is written.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> X = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
        >>> model = isoscope.Whiten().fit(X).to_onnx("whiten.onnx")
        >>> [node.op_type for node in model.graph.node]
        ['Sub', 'Sub', 'MatMul']
        """
        from isoscope.transforms.export import to_onnx

        check_is_fitted(self)
        return to_onnx(self, path)

    # how it is kept

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted repair to a folder: numbers as safetensors, the rest as JSON; never pickle."""
        from isoscope.transforms.persistence import save

        check_is_fitted(self)
        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        from isoscope.transforms.persistence import load

        found = load(folder)
        if not isinstance(found, cls):
            raise InputError(f"{folder} holds a {type(found).__name__}, not a {cls.__name__}")
        return found


def is_source(X: Any) -> bool:
    """Whether X is somewhere to read vectors from, and not an array of them."""
    return isinstance(X, Store | Sketch | str | os.PathLike)


def as_store(X: Any) -> Store:
    """The store that a path names, or is already."""
    return X if isinstance(X, Store) else open_store(X)


def to_host(X: Any) -> Any:
    """X for scikit-learn, which cannot read a tensor that has a gradient, lives on a device or is bfloat16."""
    return to_numpy(X) if is_torch_array(X) else X


def is_count(value: Any, least: int = 0) -> bool:
    """Whether a parameter is a whole number of at least `least`."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
