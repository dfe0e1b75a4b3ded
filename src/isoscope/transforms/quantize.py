"""Quantization: vectors with fewer dimensions and bits, as bytes and as the floats that the bytes stand for."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from isoscope._core.arrays import asarray_like, to_numpy, unit_rows
from isoscope._core.errors import ParameterError, ShapeError
from isoscope._core.memory import limit_sample_size
from isoscope._core.threads import single_threaded_blas
from isoscope.engines.engine import SampleTally, open_engine
from isoscope.sketching.sketch import Sketch
from isoscope.transforms.repair import FLOATS, Repair, as_store, check_rows, is_count, is_source, to_host
from isoscope.transforms.rounding import build_rounding

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope.transforms.export import Graph
    from isoscope.transforms.rounding import Rounding

PRECISIONS = ("float32", "float16", "int8", "int4", "bit", "pq")
"""The precisions of codes, from most to fewest bits."""

LARGEST = 1e15
"""The largest number in vectors that are compared by Euclidean distance."""

_ROUNDING_ARRAYS = ("low_", "span_", "centroids_")
_LEAST_VARIANCE = 1e-6  # relative to the largest variance; whitening amplifies no direction beyond this


class Quantizer(OneToOneFeatureMixin, Repair):  # type: ignore[misc]
    """A transform that stores each vector in fewer bytes: fewer dimensions, fewer bits per number.

    `encode` returns the bytes, `decode` the vectors that the bytes stand for, and `transform` does both. Decoded
    vectors have all d dimensions of the original space, so unchanged queries can search them. One bit is the exception:
    bits are compared with bits, by Hamming distance, so transform queries too.

    Parameters
    ----------
    precision : {"float32", "float16", "int8", "int4", "bit", "pq"}
        The precision of each number. "bit" keeps only the sign. "pq" is product quantization.
    scale : {"coordinate", "vector", "shared"}
        The range of "int8" and "int4": one for each coordinate, one for each vector (stored in 4 more bytes), or one
        for all numbers.
    n_components : int, optional
        The number of dimensions to keep; by default all.
    reduction : {"first", "pca"}
        The dimensions to keep: the first ones, as Matryoshka models define it, or the principal components.
    preprocess : {"center", "rotate", "whiten"} or None
        The map before rounding. "center" subtracts the mean. "rotate" also applies a random rotation, which spreads the
        variance evenly over the coordinates. "whiten" instead scales the principal components to equal variance.
        Decoding reverses the map (except for "bit").
    metric : {"cosine", "euclidean"}
        How the vectors are compared. With "cosine", vectors are scaled to length 1 first.
    n_subvectors : int, optional
        The number of subvectors of "pq", and bytes of a code; by default one for every 8 dimensions.
    sample : int
        The number of random rows of a file or store to fit to. All rows of an array are used.
    random_state : int, RandomState or None
        Random seed for the sample, the rotation and product quantization.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float32)
    >>> quantizer = isoscope.Quantizer("int4").fit(X)
    >>> codes = quantizer.encode(X)
    >>> codes.shape, codes.dtype, quantizer.code_size        # instead of 256 bytes
    ((1000, 32), dtype('uint8'), 32)
    >>> decoded = quantizer.decode(codes)
    >>> unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    >>> bool(np.abs(decoded - unit).max() < 0.05)
    True

    References
    ----------
    Jégou et al., Product quantization for nearest neighbor search, 2011; Kusupati et al., Matryoshka representation
    learning, 2022.
    """

    _fitted_attribute = "basis_"
    _choices: ClassVar = {
        "precision": PRECISIONS,
        "scale": ("coordinate", "vector", "shared"),
        "reduction": ("first", "pca"),
        "preprocess": (None, "center", "rotate", "whiten"),
        "metric": ("cosine", "euclidean"),
    }
    mean_: np.ndarray
    basis_: np.ndarray
    weights_: np.ndarray
    low_: np.ndarray
    span_: np.ndarray
    centroids_: np.ndarray

    def __init__(
        self,
        precision: str = "int8",
        *,
        scale: str = "coordinate",
        n_components: int | None = None,
        reduction: str = "first",
        preprocess: str | None = None,
        metric: str = "cosine",
        n_subvectors: int | None = None,
        sample: int = 50_000,
        random_state: Any = None,
    ):
        self.precision = precision
        self.scale = scale
        self.n_components = n_components
        self.reduction = reduction
        self.preprocess = preprocess
        self.metric = metric
        self.n_subvectors = n_subvectors
        self.sample = sample
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, engine: Any = "local") -> Self:
        """Fit the ranges and directions to an array of shape (n, d), a store or a file.

        Parameters
        ----------
        X : (n, d) array, Store or path
            The corpus; for a store, a random sample of `sample` rows is used.
        y : ignored
            Accepted for compatibility with scikit-learn pipelines.
        engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
            The engine that reads a store or a file; see `isoscope.audit`.
        """
        self._check_parameters()
        for_sample, seed = check_random_state(self.random_state).randint(2**31 - 1, size=2).tolist()
        return self.fit_geometry(Geometry(self._rows(X, for_sample, engine), self.metric, seed))

    def fit_geometry(self, geometry: Geometry) -> Self:
        """Fit to rows whose mean, directions and projections are computed once for several quantizers."""
        self._check_parameters()
        d = geometry.rows.shape[1]
        if self.n_components is not None and self.n_components > d:
            raise ParameterError(f"n_components is {self.n_components} but the vectors have only {d} dimensions")
        self._check_size(d)
        self.n_features_in_ = d
        frame = geometry.frame(self.reduction, self.n_components or d, self.preprocess)
        rounding = self._rounding({}, frame.width)
        learned = rounding.learn(geometry.project(frame), geometry.seed)
        for name in _ROUNDING_ARRAYS:
            setattr(self, name, learned.get(name, np.empty(0, np.float32)))
        self.mean_, self.weights_, self.basis_ = frame.mean, frame.weights, frame.basis
        return self

    def _rows(self, X: Any, seed: int, engine: Any) -> np.ndarray:
        if not is_source(X):
            return np.asarray(check_rows(self, to_host(X), dtype=FLOATS))
        if isinstance(X, Sketch):
            raise ParameterError("X is a Sketch: Quantizer needs the vectors; pass an array, store or path")
        store = as_store(X)
        size = limit_sample_size(int(self.sample), store.dim, store.dtype.itemsize)
        with open_engine(engine) as running:
            kept = running.tally(SampleTally(size, seed, store.name, "drop" if store.drops_rows else "error"), store)
        self.__dict__.pop("feature_names_in_", None)  # set by an earlier fit to a table
        vectors = kept.partial_result().vectors
        return vectors if vectors.dtype in FLOATS else vectors.astype(np.float32)

    def _check_parameters(self) -> None:
        for name, choices in self._choices.items():
            if (value := getattr(self, name)) not in choices:
                names = ", ".join(repr(each) for each in choices)
                raise ParameterError(f"{name} is {value!r}: need one of {names}")
        for name, value in (("n_components", self.n_components), ("n_subvectors", self.n_subvectors)):
            if value is not None and not is_count(value, 1):
                raise ParameterError(f"{name} is {value!r}: need a positive integer or None")
        if not is_count(self.sample, 1):
            raise ParameterError(f"sample is {self.sample!r}: need a positive integer")

    def _check_size(self, d: int) -> None:
        """Raise an error if the codes would be larger than float32 vectors."""
        size = self._rounding({}, self.n_components or d).code_size
        if size > 4 * d:
            raise ParameterError(
                f"codes would take {size} bytes per vector, but float32 vectors with n_features = {d} take only "
                f'{4 * d}: choose scale="coordinate", or fewer subvectors'
            )

    def _rounding(self, arrays: dict[str, np.ndarray] | None = None, width: int | None = None) -> Rounding:
        return build_rounding(
            self.precision,
            self.scale,
            len(self.weights_) if width is None else width,
            self.n_subvectors,
            vars(self) if arrays is None else arrays,
        )

    @property
    def code_size(self) -> int:
        """The number of bytes per vector."""
        check_is_fitted(self)
        return self._rounding().code_size

    @property
    def compares_bits(self) -> bool:
        """Whether codes are compared with codes, by Hamming distance, and queries must be transformed too."""
        return self.precision == "bit"

    def project(self, X: Any) -> np.ndarray:
        """Return the vectors as they are before rounding, in float32, for a database that quantizes them.

        With preprocess, compare them by inner product with projected queries (`project_queries`), or by Euclidean
        distance if that is the metric. Distances between whitened vectors differ from the original ones. For one bit,
        compare only the signs.

        Parameters
        ----------
        X : (n, d) array
            The vectors.
        """
        return self.frame.project(self._scaled(X))

    def project_queries(self, X: Any) -> np.ndarray:
        """Return queries for a search in projected vectors, in float32.

        Queries are rotated like the vectors. For cosine they are not centered: ⟨q, x − m⟩ ranks like ⟨q, x⟩. For one
        bit they are centered, because signs are compared; do not rescore with these queries.

        Parameters
        ----------
        X : (n, d) array
            The queries.
        """
        frame = self.frame
        if self.metric == "cosine" and not self.compares_bits:
            frame = frame._replace(mean=np.zeros_like(frame.mean), weights=1 / frame.weights)
        return frame.project(self._scaled(X))

    def round_projected(self, Z: np.ndarray) -> np.ndarray:
        """Return projected vectors after encoding and decoding, still projected, as a new array."""
        check_is_fitted(self)
        rounded = self._rounding().round_trip(Z)
        return rounded.copy() if rounded is Z or rounded.base is not None else rounded

    def encode(self, X: Any) -> np.ndarray:
        """Return the codes of vectors: an array of bytes with shape (n, code_size).

        Parameters
        ----------
        X : (n, d) array
            The vectors.
        """
        projected = self.project(X)  # raises an error if the quantizer is not fitted
        return self._rounding().encode(projected)

    def decode(self, codes: Any) -> np.ndarray:
        """Decode codes into float32 vectors with all d dimensions.

        Parameters
        ----------
        codes : (n, code_size) array of bytes
            Codes that `encode` returned.
        """
        check_is_fitted(self)
        codes, rounding = np.asarray(codes), self._rounding()
        if codes.ndim != 2 or codes.shape[1] != rounding.code_size or codes.dtype != np.uint8:
            raise ShapeError(
                f"codes have shape {codes.shape} and dtype {codes.dtype}: need bytes (uint8) of shape (n, "
                f"{rounding.code_size}), as encode returns"
            )
        return self._reconstruct(rounding.decode(codes), np.dtype(np.float32))

    def _apply(self, xp: Any, X: Array) -> Array:
        given = np.ascontiguousarray(to_numpy(X))
        projected = self.frame.project(scale_rows(given, self.metric))
        decoded = self._reconstruct(self.round_projected(projected), given.dtype)
        return asarray_like(xp, X, decoded, X.dtype)

    def _scaled(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = np.ascontiguousarray(to_numpy(self._checked(X)))  # the memory layout affects rounding
        return scale_rows(X if X.dtype.itemsize >= 4 else X.astype(np.float32), self.metric)

    @property
    def frame(self) -> Frame:
        """The affine map before rounding."""
        check_is_fitted(self)
        return Frame(self.mean_, self.basis_, self.weights_)

    def _reconstruct(self, rounded: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return vectors in the original space, given rounded projections; bits stay centered and whitened."""
        frame = self.frame
        if self.compares_bits:
            frame = frame._replace(mean=np.zeros_like(frame.mean), weights=np.ones_like(frame.weights))
        return frame.reconstruct(rounded, dtype)

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        raise ParameterError("a Quantizer cannot be exported to ONNX: save it with save, and use encode and decode")


class Frame(NamedTuple):
    """The affine map before rounding: z = (x − mean)·basis·weights; an empty basis means the first coordinates."""

    mean: np.ndarray
    basis: np.ndarray
    weights: np.ndarray

    @property
    def width(self) -> int:
        """The number of dimensions after the map."""
        return len(self.weights)

    def project(self, X: np.ndarray) -> np.ndarray:
        """Return the rows of X after the map, in float32."""
        if self.mean.any():
            X = X - self.mean.astype(X.dtype)
        Z = X @ self.basis.astype(X.dtype, copy=False) if self.basis.size else X[:, : self.width]
        Z = np.asarray(Z, np.float32)
        return Z if (self.weights == 1).all() else Z * self.weights.astype(np.float32)

    def reconstruct(self, Z: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return rows in the original space, given rows after the map."""
        Z = Z.astype(dtype, copy=False)
        if not (self.weights == 1).all():
            Z = Z / self.weights.astype(dtype)
        if self.basis.size:
            X = Z @ self.basis.T.astype(dtype, copy=False)
        else:
            X = np.zeros((len(Z), len(self.mean)), dtype)
            X[:, : self.width] = Z
        if self.mean.any():
            X += self.mean.astype(dtype)
        return np.asarray(X)


class Geometry:
    """Rows, scaled for their metric, with the mean, directions and projections that several quantizers share."""

    def __init__(self, X: np.ndarray, metric: str, seed: int):
        self.rows, self.metric, self.seed = scale_rows(X, metric), metric, seed
        self._projected: tuple[Frame, np.ndarray] | None = None
        self._components: dict[bool, np.ndarray] = {}
        self._frames: dict[tuple[str, int, str | None], Frame] = {}
        self._directions: dict[tuple[int, bool], tuple[np.ndarray, np.ndarray]] = {}

    def frame(self, reduction: str, width: int, preprocess: str | None) -> Frame:
        """Return the map to `width` dimensions; the same arguments return the same object."""
        key = (reduction, width, preprocess)
        if key not in self._frames:
            self._frames[key] = self._build_frame(*key)
        return self._frames[key]

    def project(self, frame: Frame) -> np.ndarray:
        """Return the rows after a map that `frame` returned; the last result is kept."""
        if self._projected is None or self._projected[0] is not frame:
            self._projected = frame, self._compute_projection(frame)
        return self._projected[1]

    def _compute_projection(self, frame: Frame) -> np.ndarray:
        """Return the rows after a map; principal components that a wider map needed are used again."""
        reduction, width, preprocess = next(key for key, each in self._frames.items() if each is frame)
        if reduction != "pca" or preprocess == "whiten":
            return frame.project(self.rows)
        centered = bool(frame.mean.any())
        if centered not in self._components or self._components[centered].shape[1] < width:
            basis = self._principal(len(frame.mean), centered)[1][:, :width]
            plain = frame._replace(basis=np.ascontiguousarray(basis, np.float32))
            self._components[centered] = plain.project(self.rows)
        components = self._components[centered][:, :width]
        return (
            components @ random_rotation(width, self.seed).astype(np.float32) if preprocess == "rotate" else components
        )

    def _build_frame(self, reduction: str, width: int, preprocess: str | None) -> Frame:
        d = self.rows.shape[1]
        centered = preprocess is not None or (reduction == "pca" and self.metric == "euclidean")
        mean, basis, weights = np.zeros(d), np.empty((d, 0)), np.ones(width)
        if centered:
            mean = self.mean.copy()
        if reduction == "pca":
            # without centering, the directions of the second moments lose the least of the cosine
            basis = self._principal(d, centered)[1][:, :width]
        elif centered:
            mean[width:] = 0  # the other coordinates stay zero
        if preprocess == "rotate":
            rotation = random_rotation(width, self.seed)
            basis = basis @ rotation if basis.size else np.eye(d, width) @ rotation
        elif preprocess == "whiten":
            variances, directions = self._principal(d if reduction == "pca" else width, True)
            basis = np.zeros((d, width))
            basis[: len(directions)] = directions[:, :width]
            floor = _LEAST_VARIANCE * float(variances[0])
            weights = 1 / np.sqrt(np.maximum(variances[:width], floor)) if floor > 0 else weights
        return Frame(mean, np.ascontiguousarray(basis, np.float32), weights)

    @cached_property
    def mean(self) -> np.ndarray:
        """The mean of the rows."""
        return np.asarray(self.rows.mean(axis=0, dtype=np.float64))

    @cached_property
    def _moments(self) -> np.ndarray:
        """The covariance of the rows."""
        moved = self.rows - self.mean.astype(self.rows.dtype)
        return np.asarray((moved.T @ moved).astype(np.float64) / len(moved))

    def _principal(self, size: int, centered: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the moments of the first `size` coordinates along their directions, largest first."""
        if (size, centered) not in self._directions:
            moments = self._moments[:size, :size]
            if not centered:
                moments = moments + np.outer(self.mean[:size], self.mean[:size])
            with single_threaded_blas():  # waiting threads would slow down small matrices
                values, vectors = np.linalg.eigh(moments)
            self._directions[size, centered] = values[::-1], vectors[:, ::-1]
        return self._directions[size, centered]


def scale_rows(X: np.ndarray, metric: str) -> np.ndarray:
    """Return the rows of X scaled to length 1 for cosine, else unchanged; zero rows stay zero."""
    if metric == "cosine":
        return np.asarray(unit_rows(np, X, X.dtype))
    largest = float(np.abs(X).max(initial=0))
    if largest > LARGEST:
        raise ParameterError(
            f"a vector contains {largest:.3g}: for Euclidean distance, numbers must not exceed {LARGEST:.0e}, because "
            "their squares exceed the range of float32; rescale the vectors"
        )
    return X


@lru_cache(maxsize=8)
def random_rotation(width: int, seed: int) -> np.ndarray:
    """Return a random orthogonal matrix, uniformly distributed."""
    with single_threaded_blas():  # waiting threads would slow down small matrices
        Q, R = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
    return np.asarray(Q * np.sign(np.diag(R)))
