"""Affine repairs, which can be fitted from a sketch: out of core, incrementally or on many machines."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from isoscope._core.errors import ParameterError, ShapeError, TooFewRowsError, plural
from isoscope.engines.engine import sketch
from isoscope.sketching.sketch import Sketch
from isoscope.transforms.maps import AFFINE_MAPS, subtract
from isoscope.transforms.repair import FLOATS, Repair, as_store, check_rows, is_count, is_source, to_host

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope.transforms.export import Graph

Directions = tuple[np.ndarray, np.ndarray, np.ndarray]


class AffineRepair(Repair):
    """A repair y = (x − mean)·M that is fitted from a sketch alone."""

    _map: ClassVar[str]
    _least_rows = 1

    def fit(self, X: Any, y: Any = None, *, engine: Any = "local") -> Self:
        """Fit the repair to an array of shape (n, d), a `Sketch`, a store or a file.

        Parameters
        ----------
        X : (n, d) array, Sketch, Store or path
            The corpus. A file is read in chunks.
        y : ignored
            Accepted for compatibility with scikit-learn pipelines.
        engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
            The engine that reads a store or a file; see `isoscope.audit`.
        """
        self._check_parameters()
        return self._learn_from(self._sketch_input(X, reset=True, engine=engine))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Update the fitted repair with more vectors, in addition to those of earlier calls."""
        self._check_parameters()
        first = not hasattr(self, "mean_")
        if not first and not hasattr(self, "sketch_"):
            raise ParameterError(
                f"this {type(self).__name__} was loaded from a folder, so it has no sketch to update: keep the "
                "Sketch of the corpus (Sketch.save), add the sketch of the new vectors, and fit to the sum"
            )
        more = self._sketch_input(X, reset=first)
        return self._learn_from(more if first else self.sketch_ + more)

    def _sketch_input(self, X: Any, *, reset: bool, engine: Any = "local") -> Sketch:
        if not is_source(X):
            return sketch(check_rows(self, to_host(X), dtype=FLOATS, reset=reset))
        found = X if isinstance(X, Sketch) else sketch(as_store(X), engine=engine)
        if not reset and found.d != self.n_features_in_:
            raise ShapeError(
                f"X has {found.d} dimensions but earlier vectors had {self.n_features_in_}: need the same number"
            )
        if reset:
            self.__dict__.pop("feature_names_in_", None)  # set by an earlier fit to a table
        self.n_features_in_ = found.d
        return found

    def _fit_with(self, total: Sketch, directions: Callable[[], Directions]) -> Self:
        """Fit to a sketch; `directions` returns its `principal_directions`, which several repairs can share."""
        self._check_parameters()
        return self._learn_from(self._sketch_input(total, reset=True), directions)

    def _learn_from(self, total: Sketch, directions: Callable[[], Directions] | None = None) -> Self:
        if total.n < self._least_rows:
            raise TooFewRowsError(
                f"{type(self).__name__} needs at least {self._least_rows} vectors, but got {plural(total.n, 'sample')}"
            )
        self._learn(total, directions or (lambda: principal_directions(total)))
        self.sketch_ = total
        self.mean_ = total.mean
        return self

    def _learn(self, total: Sketch, directions: Callable[[], Directions]) -> None:
        """Compute the fitted arrays other than the mean."""

    def _apply(self, xp: Any, X: Array) -> Array:
        centered = subtract(xp, X, self._parts(X, "mean_"))
        return AFFINE_MAPS[self._map](centered, lambda name: self._fitted_like(xp, X, name))

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        return graph.subtract_means(vectors, self.mean_)

    @property
    def is_affine(self) -> bool:
        """Whether the repair is an affine map y = x·A + b; always True."""
        return True

    def as_affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrix A and the vector b of the affine map y = x·A + b, in float64.

        This holds for all rows except rows of zeros, which `transform` leaves unchanged.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> X = np.random.default_rng(0).standard_normal((100, 4)) + 3
        >>> A, b = isoscope.Whiten().fit(X).as_affine()
        >>> np.allclose(X @ A + b, isoscope.Whiten().fit(X).transform(X))
        True
        """
        check_is_fitted(self)
        A = self._matrix()
        return A, -self.mean_ @ A

    def _matrix(self) -> np.ndarray:
        raise NotImplementedError


class Center(OneToOneFeatureMixin, AffineRepair):  # type: ignore[misc]
    """A repair that subtracts the mean of the corpus, which removes the direction that all vectors share.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 32)) + 1
    >>> repair = isoscope.Center().fit(X)
    >>> round(float(isoscope.mean_cosine(X)), 1), abs(round(float(isoscope.mean_cosine(repair.transform(X))), 1))
    (0.5, 0.0)
    """

    _map = "Center"

    def _matrix(self) -> np.ndarray:
        return np.eye(self.n_features_in_)


class Standardize(OneToOneFeatureMixin, AffineRepair):  # type: ignore[misc]
    """A repair that scales each coordinate to mean 0 and variance 1, so that rogue dimensions no longer dominate.

    A constant coordinate is only centered.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 3)) * [1, 10, 100]
    >>> isoscope.Standardize().fit(X).transform(X).std(axis=0).round(3).tolist()
    [1.0, 1.0, 1.0]

    References
    ----------
    Timkey and van Schijndel, All bark and no bite: rogue dimensions in transformer language models, 2021.
    """

    _map = "Standardize"

    def _learn(self, total: Sketch, directions: Callable[[], Directions]) -> None:
        check_range(total)
        deviation = np.sqrt(np.diag(total.scatter) / total.n)
        still = deviation <= _rounding(total)
        self.scale_ = np.where(still, 1.0, deviation)

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        return graph.add("Div", super()._add_to_onnx(graph, vectors), self.scale_.astype(np.float32))

    def _matrix(self) -> np.ndarray:
        return np.diag(1 / self.scale_)


class AllButTheTop(OneToOneFeatureMixin, AffineRepair):  # type: ignore[misc]
    """A repair that removes the mean and the leading principal components, which encode frequency more than meaning.

    Parameters
    ----------
    n_components : "auto" or int
        The number of components to remove; "auto" means d/100, but at least one.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 32)) * ([10] + [1] * 31)
    >>> Y = isoscope.AllButTheTop().fit(X).transform(X)
    >>> round(float(isoscope.anisotropy(X, 1)[0]), 2), round(float(isoscope.anisotropy(Y, 1)[0]), 2)
    (0.77, 0.04)

    References
    ----------
    Mu and Viswanath, All-but-the-top: simple and effective postprocessing for word representations, 2018.
    """

    _map = "AllButTheTop"
    _least_rows = 2

    def __init__(self, n_components: str | int = "auto"):
        self.n_components = n_components

    def _check_parameters(self) -> None:
        if self.n_components != "auto" and not is_count(self.n_components):
            raise ParameterError(f'n_components is {self.n_components!r}: need "auto" or a non-negative integer')

    def _learn(self, total: Sketch, directions: Callable[[], Directions]) -> None:
        d = total.d
        k = max(1, round(d / 100)) if self.n_components == "auto" else int(self.n_components)
        if k > min(total.n - 1, d) and self.n_components != "auto":
            raise TooFewRowsError(
                f"n_components is {k}: {total.n} vectors of {d} dimensions have at most {min(total.n - 1, d)} "
                "components"
            )
        _, components, seen = directions()
        self.components_ = components[:k][seen[:k]]
        self._update_derived()

    def _update_derived(self) -> None:
        self.n_components_ = len(self.components_)

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        centered = super()._add_to_onnx(graph, vectors)
        if not len(self.components_):
            return centered
        along = graph.add("MatMul", centered, self.components_.T.astype(np.float32))
        return graph.remove_directions(centered, self.components_, along)

    def _matrix(self) -> np.ndarray:
        return np.asarray(np.eye(self.n_features_in_) - self.components_.T @ self.components_)


class Whiten(ClassNamePrefixFeaturesOutMixin, AffineRepair):  # type: ignore[misc]
    """A repair that whitens the vectors, so that every direction has the same variance.

    Parameters
    ----------
    method : {"zca", "pca"}
        "zca" rotates the whitened vectors back to the original axes, which keeps each vector as close to the original
        as possible. "pca" uses the principal components as the new axes.
    n_components : int, optional
        The number of principal components to keep; by default all. With "pca", the result has that many dimensions.
    shrinkage : "auto", float or None
        The shrinkage of the covariance towards a multiple of the identity, which limits the amplification of directions
        with little variance. "auto" computes the Ledoit-Wolf shrinkage from the sketch. A number from 0 to 1 sets it
        directly; None means 0.

    Notes
    -----
    A direction without variance is never amplified. A direction counts as such if its eigenvalue is below d·eps times
    the largest eigenvalue, or if its standard deviation is below the rounding error of the mean. With shrinkage, it is
    assigned a share of the mean variance. This matters if there are fewer vectors than dimensions: most directions are
    then merely unobserved, and queries have components along them. Without shrinkage, the direction is mapped to 0.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 32)) * np.arange(1, 33)
    >>> Y = isoscope.Whiten(shrinkage=None).fit(X).transform(X)
    >>> round(float(isoscope.isoscore(X)), 2), round(float(isoscope.isoscore(Y)), 2)
    (0.54, 1.0)

    References
    ----------
    Su et al., Whitening sentence representations for better semantics and faster retrieval, 2021; Ledoit and Wolf, A
    well-conditioned estimator for large-dimensional covariance matrices, 2004.
    """

    _map = "Whiten"
    _least_rows = 2
    _methods: ClassVar = ("zca", "pca")

    def __init__(self, method: str = "zca", n_components: int | None = None, shrinkage: str | float | None = "auto"):
        self.method = method
        self.n_components = n_components
        self.shrinkage = shrinkage

    def _check_parameters(self) -> None:
        if self.method not in self._methods:
            raise ParameterError(f'method is {self.method!r}: need "zca" or "pca"')
        if self.n_components is not None and not is_count(self.n_components, 1):
            raise ParameterError(f"n_components is {self.n_components!r}: need a positive integer or None")
        share: Any = self.shrinkage
        number = isinstance(share, Real) and not isinstance(share, bool)
        if not (share is None or (share == "auto" if isinstance(share, str) else number and 0 <= float(share) <= 1)):
            raise ParameterError(f'shrinkage is {self.shrinkage!r}: need "auto", None or a number from 0 to 1')

    def _learn(self, total: Sketch, directions: Callable[[], Directions]) -> None:
        d = total.d
        k = d if self.n_components is None else int(self.n_components)
        if k > d:
            raise ParameterError(f"n_components is {k} but the vectors have only {d} dimensions")
        values, components, seen = directions()
        share = ledoit_wolf(total) if self.shrinkage == "auto" else float(self.shrinkage or 0)
        shrunk = (1 - share) * values + share * values.mean()
        # shrinkage assigns a variance to unobserved directions, unless it is zero but for rounding
        known = seen | (share * values.mean() > values[0] * d * np.finfo(np.float64).eps)
        weights = np.where(known, 1 / np.sqrt(np.where(known, shrunk, 1)), 0)[:k]
        self.components_ = components[:k]
        self.weights_ = weights
        self.shrinkage_ = share
        self.matrix_ = self.components_.T * weights
        if self.method == "zca":
            self.matrix_ = self.matrix_ @ self.components_
        self._update_derived()

    def _update_derived(self) -> None:
        self._n_features_out = self.matrix_.shape[1]

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        return graph.add("MatMul", super()._add_to_onnx(graph, vectors), self.matrix_.astype(np.float32))

    def _matrix(self) -> np.ndarray:
        return self.matrix_


def principal_directions(total: Sketch) -> Directions:
    """Return the variances, largest first, the principal directions as rows, and a mask of variances above rounding."""
    check_range(total)
    values, vectors = np.linalg.eigh(total.scatter / total.n)
    values, components = np.maximum(values[::-1], 0), _fix_signs(vectors[:, ::-1].T)
    seen = (values > values[0] * total.d * np.finfo(np.float64).eps) & (values > components**2 @ _rounding(total) ** 2)
    return values, components, seen


def _rounding(total: Sketch) -> np.ndarray:
    """Return the standard deviation that a constant coordinate can have due to rounding alone."""
    return np.asarray(10 * np.finfo(np.float64).eps * np.abs(total.mean))


def check_range(total: Sketch) -> None:
    """Raise an error if squares of the data overflow or underflow float64."""
    trace = np.trace(total.scatter)
    if not np.isfinite(trace) or (trace == 0 and len(total.rows.hashes) > 1):
        raise ParameterError(
            f"the largest row norm is {total.greatest_norm:.3g}, and its square is outside the range of float64: "
            "rescale the rows"
        )


def ledoit_wolf(total: Sketch) -> float:
    """Return the Ledoit-Wolf shrinkage, computed only from tr S, tr S² and Σ‖x−x̄‖⁴.

    With S = W/n and μ = tr S/d, the error of S is (Σ‖x−x̄‖⁴/n − tr S²)/n, and its distance from μI is tr S² − dμ².
    """
    trace = np.trace(total.scatter)
    if not trace > 0:
        return 0.0
    if not 0 < total.quartic < np.inf:
        raise ParameterError(
            f"the largest row norm is {total.greatest_norm:.3g}, and its fourth power is outside the range of float64: "
            "rescale the rows or pass a number as shrinkage"
        )
    W = total.scatter / trace  # normalized, because squares of a sum can overflow where the sum does not
    squared = float(np.sum(W * W))
    distance = squared - 1 / total.d
    error = (total.n * total.quartic / trace / trace - squared) / total.n
    return float(min(max(error, 0.0), distance) / distance) if distance > 0 else 0.0


def _fix_signs(components: np.ndarray) -> np.ndarray:
    """Make the largest entry of each direction positive, so that signs do not depend on the machine."""
    largest = components[np.arange(len(components)), np.abs(components).argmax(axis=1)]
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0)[:, None])
