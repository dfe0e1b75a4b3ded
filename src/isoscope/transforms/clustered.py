"""Repairs that treat each cluster of the corpus separately, because clusters can make a space anisotropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.base import OneToOneFeatureMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from isoscope._core.arrays import accumulator_dtype, asarray_like, take, tiles, to_numpy
from isoscope._core.errors import ParameterError, ShapeError, TooFewRowsError, plural
from isoscope._core.memory import limit_sample_size
from isoscope._core.threads import map_in_threads, run_all, single_threaded_blas
from isoscope.engines.engine import SampleTally, open_engine
from isoscope.metrics.clusters import choose_clusters, kmeans_plus_plus, run_lloyd
from isoscope.sketching.sketch import Sketch
from isoscope.transforms.maps import split_float32, subtract
from isoscope.transforms.repair import FLOATS, Repair, as_store, check_rows, is_count, is_source, to_host

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope.transforms.export import Graph

_AUTO = range(2, 16)
_LEAST_MOVE = 1e-4  # squared moves of centers, relative to the mean variance, as in scikit-learn
_LEAST_ROWS = 64  # per cluster, of a sample on which k-means starts
_LEAST_SHARE = 1e-3  # of the variance along the first component
_TILE_BYTES = 2 * 2**20  # of rows in float64, which fit in the cache
_ROWS_PER_THREAD = 500  # starting a thread takes as long as repairing a few hundred rows
ScoreCoefficients = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]


class ClusterCenter(OneToOneFeatureMixin, Repair):  # type: ignore[misc]
    """A repair that assigns each vector to a cluster and subtracts the cluster's mean.

    Parameters
    ----------
    n_clusters : "auto" or int
        The number of clusters; "auto" chooses the number from 2 to 15 with the best silhouette, or 1 if none reaches
        0.1 (Cai et al.).
    clusterer : {"kmeans", "gmm"} or estimator
        The clustering method: k-means, a Gaussian mixture with diagonal covariances, or any estimator with `fit` and
        `predict`. Such an estimator determines the number of clusters itself. If it assigns a query to a cluster
        without corpus rows, the cluster with the nearest mean is used instead.
    sample : int
        The number of random rows of a file or store on which clusters are fitted, at least two per cluster ("auto": 30
        rows). All rows of an array are used.
    random_state : int, RandomState or None
        Random seed for the clusterer and the sample.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((600, 16)) + 9 * np.eye(16)[np.arange(600) % 3]
    >>> repair = isoscope.ClusterCenter(3, random_state=0).fit(X)
    >>> round(float(isoscope.isoscore(X)), 2), round(float(isoscope.isoscore(repair.transform(X))), 2)
    (0.14, 0.97)

    References
    ----------
    Cai et al., Isotropy in the contextual embedding space: clusters and manifolds, 2021.
    """

    _fitted_attribute = "means_"
    centers_: np.ndarray
    precisions_: np.ndarray
    offsets_: np.ndarray

    def __init__(
        self,
        n_clusters: str | int = "auto",
        *,
        clusterer: Any = "kmeans",
        sample: int = 50_000,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.clusterer = clusterer
        self.sample = sample
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, engine: Any = "local") -> Self:
        """Fit the clusters to an array of shape (n, d), a store or a file.

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
        for_sample, for_clusters = check_random_state(self.random_state).randint(2**31, size=2).tolist()
        X = self._rows(X, for_sample, engine)
        with single_threaded_blas():  # most products are small, and our own threads work on the large ones
            return self._fit_rows(X, for_clusters)

    def _fit_to_clusters(self, other: ClusterCenter, X: np.ndarray) -> Self:
        """Fit to the clusters that another repair has found in the rows of X, without running the clusterer again."""
        self._check_parameters()
        X = np.asarray(check_rows(self, X, dtype=FLOATS))
        for name in ("clusters_", "centers_", "precisions_", "offsets_"):
            setattr(self, name, getattr(other, name))
        with single_threaded_blas():
            return self._fit_members(X, other._codes(np, X))

    def _fit_rows(self, X: np.ndarray, seed: int) -> Self:
        self.clusters_, codes = np.unique(self._cluster(X, seed), return_inverse=True)
        if isinstance(self.clusterer, str):  # a center without rows has no mean to subtract
            self.centers_, self.precisions_ = self.centers_[self.clusters_], self.precisions_[self.clusters_]
            self.offsets_ = self.offsets_[self.clusters_]
            self.clusters_ = np.arange(len(self.clusters_))
        return self._fit_members(X, codes)

    def _fit_members(self, X: np.ndarray, codes: np.ndarray) -> Self:
        self._update_derived()
        order = np.argsort(codes, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        means = np.stack([X[rows].mean(axis=0, dtype=np.float64) for rows in members])
        self._learn(X, members, means)
        self.means_ = means
        return self

    def _update_derived(self) -> None:
        self.n_clusters_ = len(self.clusters_)

    def _rows(self, X: Any, seed: int, engine: Any) -> np.ndarray:
        if not is_source(X):
            return np.asarray(check_rows(self, to_host(X), dtype=FLOATS))
        if isinstance(X, Sketch):
            raise ParameterError(
                f"X is a Sketch: {type(self).__name__} needs the vectors; pass an array, store or path"
            )
        store = as_store(X)
        self._check_sample()
        size = limit_sample_size(int(self.sample), store.dim, store.dtype.itemsize)
        with open_engine(engine) as running:
            kept = running.tally(SampleTally(size, seed, store.name, "drop" if store.drops_rows else "error"), store)
        self.__dict__.pop("feature_names_in_", None)  # set by an earlier fit to a table
        self.n_features_in_ = store.dim
        return kept.partial_result().vectors

    def _check_parameters(self) -> None:
        if self.n_clusters != "auto" and not is_count(self.n_clusters, 1):
            raise ParameterError(f'n_clusters is {self.n_clusters!r}: need "auto" or a positive integer')
        if isinstance(self.clusterer, str) and self.clusterer not in ("kmeans", "gmm"):
            raise ParameterError(
                f'clusterer is {self.clusterer!r}: need "kmeans", "gmm" or an estimator with a predict method'
            )
        if isinstance(self.clusterer, type):
            raise ParameterError(
                f"clusterer is the class {self.clusterer.__name__}: pass an instance, such as "
                f"{self.clusterer.__name__}()"
            )
        if not isinstance(self.clusterer, str) and not (
            hasattr(self.clusterer, "fit") and hasattr(self.clusterer, "predict")
        ):
            name = type(self.clusterer).__name__
            raise ParameterError(
                f"clusterer is a {name}, which lacks fit or predict: need an estimator that can assign new vectors to "
                "clusters"
            )
        if not is_count(self.sample, 1):
            raise ParameterError(f"sample is {self.sample!r}: need a positive integer")

    def _check_sample(self) -> None:
        """Raise an error if the sample has fewer than two rows per cluster."""
        clusters = _AUTO[-1] if self.n_clusters == "auto" else int(self.n_clusters)
        least = 2 * clusters if isinstance(self.clusterer, str) else 2
        if self.sample < least:
            most = f"up to {clusters}" if self.n_clusters == "auto" else str(clusters)
            of = f", two for each of {most} clusters" if isinstance(self.clusterer, str) else ""
            raise ParameterError(f"sample is {self.sample}: need at least {least} rows{of}")

    def _cluster(self, X: np.ndarray, seed: int) -> np.ndarray:
        """Fit the clusters, and return the cluster of each row."""
        mean, unit, variance = X.mean(axis=0, dtype=np.float64), 1.0, 0.0
        moved = subtract(np, X, split_float32(mean) if X.dtype == np.float32 else [mean])
        if largest := float(max(moved.max(), -moved.min())):
            if not 1e-140 < largest < 1e140:
                raise ParameterError(
                    f"values differ from their mean by up to {largest:.3g}, and the square of this difference is "
                    "outside the range of float64: rescale the rows"
                )
            # divide by powers of two, so that neither a large mean nor the scale affects the clusters
            first = 2.0 ** np.floor(np.log2(largest))
            moved /= first
            variance = float(np.sum(np.einsum("ij,ij->i", moved, moved), dtype=np.float64)) / moved.size
            second = 2.0 ** np.round(np.log2(np.sqrt(variance)))
            moved /= second
            unit, variance = first * second, variance / second**2
        if not isinstance(self.clusterer, str):
            self.clusterer_ = clone(self.clusterer, safe=False)
            self.clusterer_.fit(X)
            return self._predict_custom(X)
        k = self._choose_n_clusters(X, moved, seed)
        centers, precisions, offsets = np.zeros((1, X.shape[1])), np.ones((1, X.shape[1])), np.zeros(1)
        if k > 1 and self.clusterer == "gmm":
            from sklearn.mixture import GaussianMixture

            wide = moved.astype(np.float64)  # in float32, E[x²] − E[x]² of a tight cluster far from 0 can be negative
            found = GaussianMixture(k, covariance_type="diag", random_state=seed).fit(wide)
            centers, precisions = found.means_, found.precisions_
            offsets = np.log(found.weights_) + 0.5 * np.log(precisions).sum(axis=1)
        elif k > 1:
            centers = _k_means_centers(moved, k, _LEAST_MOVE * variance, np.random.default_rng(seed))
            precisions, offsets = np.ones_like(centers), np.zeros(k)
        self.centers_, self.precisions_, self.offsets_ = centers * unit + mean, precisions / unit**2, offsets
        return self._nearest(np, X)

    def _choose_n_clusters(self, X: np.ndarray, moved: np.ndarray, seed: int) -> int:
        """Return the number of clusters, which never exceeds the number of distinct rows."""
        most = _AUTO[-1] + 1 if self.n_clusters == "auto" else int(self.n_clusters)
        if self.n_clusters != "auto" and most > len(X):
            raise TooFewRowsError(
                f"n_clusters is {most} but got {plural(len(X), 'sample')}: need at least one vector per cluster; use "
                "fewer clusters"
            )
        different: set[bytes] = set()
        for row in X:
            different.add((row + 0.0).tobytes())  # −0 is 0
            if len(different) == most:
                break
        if self.n_clusters != "auto":
            return len(different)
        numbers = [k for k in _AUTO if k < len(different)]
        return choose_clusters(moved, numbers, restarts=2, seed=seed).n_clusters if numbers else 1

    def _nearest(self, xp: Any, X: Array) -> np.ndarray:
        """Return the most likely cluster of each row."""
        wide = accumulator_dtype(xp, X)
        linear, constant, quadratic, shift = (
            None if values is None else asarray_like(xp, X, values, wide) for values in self.score_coefficients()
        )

        def place(part: slice) -> np.ndarray:
            x = X[part, :] - shift
            scores = x @ linear + constant
            if quadratic is not None:
                scores = scores + (x * x) @ quadratic
            return np.asarray(np.argmax(to_numpy(scores), axis=1))

        if not is_numpy_array(X):
            return place(slice(None))
        parts = list(tiles(X, nbytes=_TILE_BYTES))
        return np.concatenate(list(map_in_threads(place, parts, len(parts))))

    def score_coefficients(self) -> ScoreCoefficients:
        """Return the linear, constant and quadratic coefficients of the log-likelihoods in x − shift, and the shift."""
        found: ScoreCoefficients = self._cache_derived(_score_coefficients, "centers_", "precisions_", "offsets_")
        return found

    def predict(self, X: Any) -> np.ndarray:
        """Return the cluster number of each vector, from 0 to n_clusters_ − 1."""
        check_is_fitted(self)
        X = self._checked(X)
        return self._codes(array_namespace(X), X)

    def _predict_custom(self, X: np.ndarray) -> np.ndarray:
        """Return the cluster that the user's own clusterer assigns to each row."""
        found = np.asarray(self.clusterer_.predict(X))
        if found.shape != (len(X),):
            name = type(self.clusterer).__name__
            raise ShapeError(
                f"{name}.predict returned shape {found.shape} for {len(X)} rows: need one cluster number per row"
            )
        return found

    def _codes(self, xp: Any, X: Array) -> np.ndarray:
        if isinstance(self.clusterer, str):
            return self._nearest(xp, X)
        found = self._predict_custom(to_numpy(X))
        places = np.minimum(np.searchsorted(self.clusters_, found), len(self.clusters_) - 1)
        unseen = np.flatnonzero(self.clusters_[places] != found)
        if len(unseen):
            places[unseen] = cdist(to_numpy(X)[unseen], self.means_, "sqeuclidean").argmin(axis=1)
        return places

    def _learn(self, X: np.ndarray, members: list[np.ndarray], means: np.ndarray) -> None:
        """Compute the fitted arrays other than the means, from the rows of each cluster."""

    def _apply(self, xp: Any, X: Array) -> Array:
        return subtract(xp, X, self._parts(X, "means_"), self._codes(xp, X))

    def _add_to_onnx(self, graph: Graph, vectors: str) -> str:
        if not isinstance(self.clusterer, str):
            raise ParameterError(
                f"the clusterer is a {type(self.clusterer).__name__}, which cannot be exported to ONNX: "
                'use clusterer="kmeans" or "gmm"'
            )
        codes = self._add_codes(graph, vectors)
        return self._add_removal(graph, graph.subtract_means(vectors, self.means_, codes), codes)

    def _add_codes(self, graph: Graph, vectors: str) -> str:
        """Add nodes that find each vector's cluster in float64, because float32 rounding could change the cluster."""
        linear, constant, quadratic, shift = self.score_coefficients()
        x = graph.add("Sub", graph.cast(vectors, np.float64), shift)
        scores = graph.add("Add", graph.add("MatMul", x, linear), constant)
        if quadratic is not None:
            scores = graph.add("Add", scores, graph.add("MatMul", graph.add("Mul", x, x), quadratic))
        return graph.add("ArgMax", scores, axis=1, keepdims=0)

    def _add_removal(self, graph: Graph, centered: str, codes: str) -> str:
        """Add the nodes that follow the subtraction of means; by default there are none."""
        return centered


class ClusterNull(ClusterCenter):
    """A repair that subtracts each cluster's mean and removes the cluster's leading principal components.

    Parameters
    ----------
    n_clusters : "auto" or int
        The number of clusters; see `ClusterCenter`.
    n_components : int
        The number of components to remove from each cluster; fewer are removed from a cluster with few rows.
    clusterer : {"kmeans", "gmm"} or estimator
        See `ClusterCenter`.
    sample : int
        The number of random rows of a file or store on which clusters are fitted.
    random_state : int, RandomState or None
        Random seed for the clusterer and the sample.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((600, 16)) * ([8] + [1] * 15) + 90 * np.eye(16)[np.arange(600) % 3]
    >>> Y = isoscope.ClusterNull(3, 1, random_state=0).fit_transform(X)
    >>> round(float(isoscope.isoscore(X)), 2), round(float(isoscope.isoscore(Y)), 2)
    (0.07, 0.91)

    References
    ----------
    Rajaee and Pilehvar, A cluster-based approach for improving isotropy in contextual embedding space, 2021.
    """

    def __init__(
        self,
        n_clusters: str | int = 27,
        n_components: int = 12,
        *,
        clusterer: Any = "kmeans",
        sample: int = 50_000,
        random_state: Any = None,
    ):
        super().__init__(n_clusters, clusterer=clusterer, sample=sample, random_state=random_state)
        self.n_components = n_components

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not is_count(self.n_components):
            raise ParameterError(f"n_components is {self.n_components!r}: need a non-negative integer")

    def _learn(self, X: np.ndarray, members: list[np.ndarray], means: np.ndarray) -> None:
        k = int(self.n_components)
        self.components_ = np.zeros((len(members), k, X.shape[1]))
        """Unit vectors, one row per direction; rows of zeros if a cluster has fewer directions."""

        def directions(cluster: int) -> np.ndarray:
            centered = X[members[cluster]] - means[cluster]  # in float64
            return first_directions(centered.astype(X.dtype, copy=False), k)

        for cluster, found in enumerate(map_in_threads(directions, range(len(members)), len(members))):
            self.components_[cluster, : len(found)] = found

    def _apply(self, xp: Any, X: Array) -> Array:
        codes = self._codes(xp, X)
        means, components = self._parts(X, "means_"), self._fitted_like(xp, X, "components_")

        def without(rows: Array, cluster: int) -> Array:
            V = components[cluster, :, :]
            rest = subtract(xp, rows, [part[cluster] for part in means])
            return rest - (rest @ V.T) @ V

        here = np.unique(codes)
        if len(here) < 2:
            return without(X, int(codes[0]) if len(codes) else 0)
        places = [np.flatnonzero(codes == cluster) for cluster in here]
        if is_numpy_array(X):
            found = np.empty_like(X, order="C")

            def fill(item: tuple[int, np.ndarray]) -> None:
                cluster, at = item
                found[at] = without(X[at], cluster)

            run_all(map_in_threads(fill, zip(here, places, strict=True), len(X) // _ROWS_PER_THREAD))
            return found
        parts = [without(take(xp, X, at), int(cluster)) for cluster, at in zip(here, places, strict=True)]
        return take(xp, xp.concat(parts, axis=0), np.argsort(np.concatenate(places), kind="stable"))

    def _add_removal(self, graph: Graph, centered: str, codes: str) -> str:
        """Add nodes that remove the directions of each vector's own cluster, but not those of other clusters."""
        clusters, k, d = self.components_.shape
        if not k:
            return centered
        flat = self.components_.reshape(clusters * k, d)
        owners = np.repeat(np.arange(clusters), k)[None, :]
        own = graph.add("Equal", graph.add("Unsqueeze", codes, np.asarray([1])), owners)
        along = graph.add("MatMul", centered, flat.T.astype(np.float32))
        return graph.remove_directions(centered, flat, graph.add("Mul", along, graph.cast(own, np.float32)))


def _k_means_centers(X: np.ndarray, k: int, least_move: float, rng: np.random.Generator) -> np.ndarray:
    """Run k-means on a quarter of the rows if there are enough, and from the centers found there on all rows.

    This takes less time than a run on all rows only, and the clusters are as tight. The first centers are chosen among
    all rows: if they were chosen among the quarter, the repaired vectors would be less isotropic.
    """
    start = X[kmeans_plus_plus(X, k, rng)]
    if len(X) >= 4 * _LEAST_ROWS * k:
        few = X[np.sort(rng.choice(len(X), len(X) // 4, replace=False))]
        found, codes = run_lloyd(few, start, least_move=least_move)
        if len(np.unique(codes)) == k:  # a sample of many equal rows may lack some of the distinct ones
            start = found
    return run_lloyd(X, start, least_move=least_move)[0].astype(np.float64)


def _score_coefficients(centers: np.ndarray, precisions: np.ndarray, offsets: np.ndarray) -> ScoreCoefficients:
    """Return the coefficients of −½(x−m)ᵀP(x−m) + const for each cluster, in powers of x − shift.

    The quadratic term matters only if clusters differ in P; for k-means, P is a multiple of the identity.
    """
    shift = centers.mean(axis=0)  # so that a large mean does not reduce precision
    P, m = precisions, centers - shift
    quadratic = None if np.array_equal(P, np.broadcast_to(P[0], P.shape)) else -0.5 * P.T
    return (m * P).T, offsets - 0.5 * (m * m * P).sum(axis=1), quadratic, shift


def first_directions(rows: np.ndarray, k: int) -> np.ndarray:
    """Return up to k leading principal components of centered rows, computed from the smaller Gram matrix.

    Float32 rows are decomposed in float32, which takes half the time, unless the variance along the last component is
    below `_LEAST_SHARE` of the first: rounding changes each variance by about 1e-6 of the first.
    """
    n, d = rows.shape
    k = min(k, n - 1, d)
    if k < 1:
        return np.zeros((0, d))
    wide = n < d
    gram = rows @ rows.T if wide else rows.T @ rows
    values, vectors = eigh(gram, subset_by_index=(len(gram) - k, len(gram) - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    if rows.dtype == np.float32 and not values[-1] > _LEAST_SHARE * values[0]:
        return first_directions(rows.astype(np.float64), k)
    real = values > max(values[0], 0) * max(n, d) * np.finfo(np.float64).eps
    found = vectors[:, real].astype(np.float64)
    if wide:
        found = rows.T @ (found / np.sqrt(values[real])).astype(rows.dtype)
    # minor directions from the Gram matrix are not exactly orthogonal to major ones: orthogonalize them
    found = found.astype(np.float64, copy=False)
    return np.asarray(np.linalg.qr(found)[0].T if wide or rows.dtype == np.float32 else found.T)
