"""A sequence of repairs that is fitted, saved and applied as one repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from isoscope._core.errors import ParameterError
from isoscope.engines.engine import open_engine
from isoscope.sketching.sketch import Sketch
from isoscope.transforms.repair import FLOATS, Repair, as_store, check_rows, is_source, to_host

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope.engines.engine import Engine
    from isoscope.transforms.affine import Directions
    from isoscope.transforms.export import Graph


class Chain(Repair):
    """A sequence of repairs, each fitted to the output of the previous one; a chain without steps changes nothing.

    Parameters
    ----------
    steps : sequence of repairs
        The repairs in order; copies of them are fitted.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((500, 8)) * [90, 5, 1, 1, 1, 1, 1, 1] + 3
    >>> chain = isoscope.Chain([isoscope.Standardize(), isoscope.AllButTheTop(1)]).fit(X)
    >>> round(float(isoscope.isoscore(X)), 2), round(float(isoscope.isoscore(chain.transform(X))), 2)
    (0.0, 0.85)
    >>> isoscope.Chain().fit(X).transform(X) is X
    True
    """

    _fitted_attribute = "steps_"

    def __init__(self, steps: Any = ()):
        self.steps = steps

    def fit(self, X: Any, y: Any = None, *, engine: Any = "local") -> Self:
        """Fit each step to an array of shape (n, d), a store or a file.

        Parameters
        ----------
        X : (n, d) array, Store or path
            The corpus; a store is read at least once per step.
        y : ignored
            Accepted for compatibility with scikit-learn pipelines.
        engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
            The engine that reads a store or a file; see `isoscope.audit`.
        """
        self._check_parameters()
        steps = [clone(step) for step in self.steps]
        if is_source(X):
            with open_engine(engine) as running:
                self._fit_source(steps, X, running)
        else:
            X = check_rows(self, to_host(X), dtype=FLOATS)
            for i, step in enumerate(steps):
                step.fit(X)
                X = step.transform(X) if i + 1 < len(steps) else X
        self.steps_ = steps
        return self

    def _fit_last(self, fitted: list[Repair], total: Sketch, directions: Callable[[], Directions]) -> Self:
        """Fit the last step, an affine repair, to the sketch of the vectors that the other, fitted steps return."""
        self._check_parameters()
        self.steps_ = [*fitted, clone(self.steps[-1])._fit_with(total, directions)]
        self.n_features_in_ = self.steps_[0].n_features_in_
        return self

    def _fit_source(self, steps: list[Any], X: Any, engine: Engine) -> None:
        if isinstance(X, Sketch):
            if len(steps) > 1:
                raise ParameterError(
                    "X is a Sketch, which can fit only the first step of a Chain: pass an array, a store or a path"
                )
            d = X.d
        else:
            X = as_store(X)
            d = X.dim
        self.__dict__.pop("feature_names_in_", None)
        for i, step in enumerate(steps):
            step.fit(X, engine=engine)
            if i + 1 < len(steps):
                X = X.mapped(step.transform, len(step.get_feature_names_out()))
        self.n_features_in_ = d

    def _check_parameters(self) -> None:
        steps = self.steps
        if isinstance(steps, Repair) or not isinstance(steps, list | tuple):
            raise ParameterError(
                f"steps is a {type(steps).__name__}: need a list of repairs, such as [Center(), Whiten()]"
            )
        for step in steps:
            if not isinstance(step, Repair) or isinstance(step, Chain):
                raise ParameterError(f"a step is a {type(step).__name__}: need isoscope repairs other than Chain")
            step._check_parameters()

    def _apply(self, xp: Any, X: Array) -> Array:
        for step in self.steps_:
            X = step._apply(xp, X)
        return X

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the output dimensions."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        for step in self.steps_:
            names = step.get_feature_names_out(names)
        return np.asarray(names, dtype=object)

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        for step in self.steps_:
            vectors = step._add_to_onnx(graph, vectors)
        return vectors

    @property
    def is_affine(self) -> bool:
        """Whether every step is an affine map y = x·A + b."""
        check_is_fitted(self)
        return all(step.is_affine for step in self.steps_)

    def as_affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrix A and the vector b of the affine map y = x·A + b, if every step is affine."""
        if not self.is_affine:
            raise ParameterError(f"{self!r} is not affine: one of its steps treats clusters separately")
        A, b = np.eye(self.n_features_in_), np.zeros(self.n_features_in_)
        for step in self.steps_:
            M, c = step.as_affine()
            A, b = A @ M, b @ M + c
        return A, b
