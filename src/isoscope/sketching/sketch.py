"""Summarize a dataset of any size in one pass by sums over rows: a few d-vectors and one d×d matrix.

A sketch holds every sum over rows that a measurement needs. The sums are taken about the mean, so that a large mean
costs no precision. Parts can be summarized separately, on any number of threads or machines, and then added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import (
    TILE_BYTES,
    as_real_array,
    blocks,
    check_integer,
    check_points,
    check_real,
    encode_labels,
    to_numpy,
    warn_if_transposed,
)
from isoscope._core.errors import InputError, MissingValueError, ParameterError, ShapeError, TooFewRowsError, plural
from isoscope._core.formulas import Moments
from isoscope._core.memory import tile_bytes
from isoscope._core.missing import DROP_HINT, check_missing
from isoscope._core.threads import map_in_threads
from isoscope._io.progress import ignore_progress
from isoscope.sketching import file
from isoscope.sketching.group_blocks import GroupBlocks, max_blocks
from isoscope.sketching.parts import RowCounts, TypeSums
from isoscope.sketching.row_sums import RowSums

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope._core.types import Average, Missing
    from isoscope._io.progress import Progress

_CHUNK_BYTES = 4 * TILE_BYTES  # the size of one chunk as float64


def sketch_chunks(
    source: Any, types: Any, groups: Any, missing: Missing, progress: Progress = ignore_progress
) -> Sketch:
    """Return the sketch of an array or of an iterable of chunks, on all cores; see `isoscope.sketch`."""

    def sketch_item(item: tuple[int, Any, Any, Any]) -> Sketch:
        first, chunk, chunk_types, chunk_groups = item
        return _sketch_chunk(chunk, chunk_types, chunk_groups, missing, first)

    chunks, expected = _chunks(source, types, groups)
    total = Sketch()
    for done, part in enumerate(map_in_threads(sketch_item, chunks, expected), 1):
        total = total + part
        progress("summing up", total.n, min(done / expected, 1.0) if hasattr(source, "ndim") else 0.0)
    if not total.n:
        raise TooFewRowsError("the source has no finite rows: need at least one row without NaN or infinity")
    return total


def _chunks(source: Any, types: Any, groups: Any) -> tuple[Iterator[tuple[int, Any, Any, Any]], int]:
    """Return an iterator of (number of the first row, chunk, types, groups), and the number of chunks."""
    if hasattr(source, "ndim") or (isinstance(source, list) and not _holds_chunks(source)):
        sliceable = hasattr(source, "ndim") and not hasattr(source, "to_numpy")  # a DataFrame is sliced differently
        X = source if sliceable else as_real_array(source, "source")[1]
        if X.ndim != 2:
            raise ShapeError(f"source has shape {tuple(X.shape)}: need shape (n, d), one row per vector")
        n, d = X.shape
        warn_if_transposed(n, d, "source")
        types, groups = _check_labels(types, n, "types"), _check_labels(groups, n, "groups")
        parts = list(blocks(n, max(1, tile_bytes(_CHUNK_BYTES) // (8 * max(d, 1)))))
        return (
            (p.start, X[p, :], None if types is None else types[p], None if groups is None else groups[p])
            for p in parts
        ), len(parts)
    if not isinstance(source, Iterable):
        raise ParameterError(
            f"source is a {type(source).__name__}: need an array of shape (n, d), or an iterable of chunks"
        )
    if types is not None:
        raise ParameterError(
            "types cannot be passed separately if the source yields chunks: yield pairs (chunk, types) instead"
        )
    if groups is not None:
        raise ParameterError(
            "groups cannot be passed separately if the source yields chunks: yield triples (chunk, types or None, "
            "groups) instead"
        )

    def walk() -> Iterator[tuple[int, Any, Any, Any]]:
        first = 0
        for item in source:
            if isinstance(item, tuple) and len(item) not in (2, 3):
                raise ParameterError(
                    f"a chunk is a tuple of length {len(item)}: need an array, a pair (array, types), or a triple "
                    "(array, types or None, groups)"
                )
            chunk, chunk_types, *more = item if isinstance(item, tuple) else (item, None)
            chunk = as_real_array(chunk, "chunk")[1]
            yield first, chunk, chunk_types, more[0] if more else None
            first += chunk.shape[0] if chunk.ndim else 0

    return walk(), 2


def _check_labels(labels: Any, n: int, name: str) -> np.ndarray | None:
    """Return checked labels, one per row."""
    if labels is None:
        return None
    encoded = encode_labels(labels, n, name=name, min_groups=0)
    return np.asarray(encoded.names[encoded.codes])


def _holds_chunks(source: list[Any]) -> bool:
    """Return whether a list contains chunks, or tuples that start with a chunk, rather than rows."""
    return bool(source) and (isinstance(source[0], tuple) or getattr(source[0], "ndim", 1) == 2)


@dataclass(eq=False)
class Sketch:
    """The sums over the rows of a dataset from which most measurements can be computed.

    ``a + b`` is the sketch of the rows of both, and ``Sketch()`` is the sketch of no rows.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 8))
    >>> isoscope.Sketch.of(X[:400]) + isoscope.Sketch.of(X[400:])
    Sketch(1,000 rows, 8 dimensions)
    """

    n: int = 0
    """The number of finite rows."""
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The mean row x̄."""
    scatter: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """The scatter matrix W = Σ(x−x̄)(x−x̄)ᵀ."""
    cubic: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Σ‖x−x̄‖²(x−x̄)."""
    quartic: float = 0.0
    """Σ‖x−x̄‖⁴."""
    unit_sum: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Σu, where u = x/‖x‖."""
    unit_squares: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Σu² for each dimension."""
    zeros: int = 0
    """The number of zero rows."""
    nonfinite: int = 0
    """The number of rows with NaN or infinity, which all other sums leave out."""
    least_norm: float = np.inf
    """The smallest norm of a row."""
    greatest_norm: float = 0.0
    """The largest norm of a row."""
    rows: RowCounts = field(default_factory=lambda: RowCounts.of(np.zeros(0, np.uint64)))
    """The counts of distinct rows."""
    types: TypeSums | None = None
    """The sums for each type, if types were given."""
    groups: GroupBlocks | None = None
    """The sums for blocks of groups, if groups were given."""

    @classmethod
    def of(
        cls,
        chunk: Array,
        types: Array | None = None,
        *,
        groups: Array | None = None,
        missing: Missing = "error",
        first: int = 0,
        blocks: int | None = None,
    ) -> Sketch:
        """Return the sketch of one (n, d) chunk in memory.

        Parameters
        ----------
        chunk : (n, d) array
            One row per vector, of any array library and real dtype.
        types : (n,) labels, optional
            The type of each row.
        groups : (n,) labels, optional
            The group of each row, for rows that are not independent. The rows of a group may be in several chunks.
        missing : {"error", "drop"}
            Raise an error for rows with NaN or infinity, or leave them out and count them.
        first : int
            The number of the chunk's first row in the dataset, for error messages.
        blocks : int, optional
            The largest number of blocks of groups to keep, each with a (d, d) matrix. By default 20, or fewer above
            1,000 dimensions.
        """
        check_missing(missing)
        return _sketch_chunk(chunk, types, groups, missing, first, blocks)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return len(self.mean)

    @property
    def duplicates(self) -> float:
        """The number of rows that equal an earlier row; it is estimated from a sample unless `rows.exact` is True."""
        return self.rows.copies

    def __add__(self, other: Sketch) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        if not self.d:
            return replace(other, nonfinite=self.nonfinite + other.nonfinite)
        if not other.d:
            return replace(self, nonfinite=self.nonfinite + other.nonfinite)
        if self.d != other.d:
            raise ShapeError(f"sketches with {self.d} and {other.d} dimensions cannot be added")
        if (self.types is None) != (other.types is None) and self.n and other.n:
            raise ParameterError("one sketch has types and the other has none: pass types for both or for neither")
        if (self.groups is None) != (other.groups is None) and self.n and other.n:
            raise ParameterError("one sketch has groups and the other has none: pass groups for both or for neither")
        n = self.n + other.n
        mean = self.mean + (other.mean - self.mean) * (other.n / n) if n else self.mean
        if self.n < other.n or (self.n == other.n and self._key() > other._key()):
            mean = other.mean + (self.mean - other.mean) * (self.n / n)  # the same bits in either order
        here, there = self._moments_about(mean), other._moments_about(mean)
        return Sketch(
            n=n,
            mean=mean,
            scatter=here.scatter + there.scatter,
            cubic=here.cubic + there.cubic,
            quartic=float(here.quartic + there.quartic),
            unit_sum=self.unit_sum + other.unit_sum,
            unit_squares=self.unit_squares + other.unit_squares,
            zeros=self.zeros + other.zeros,
            nonfinite=self.nonfinite + other.nonfinite,
            least_norm=min(self.least_norm, other.least_norm),
            greatest_norm=max(self.greatest_norm, other.greatest_norm),
            rows=self.rows + other.rows,
            types=self.types + other.types if self.types and other.types else self.types or other.types,
            groups=self.groups + other.groups if self.groups and other.groups else self.groups or other.groups,
        )

    def __radd__(self, other: object) -> Sketch:
        return self if other == 0 else NotImplemented  # sum() starts with 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        a, b = self._tensors(), other._tensors()
        same = a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)
        return same and json.dumps(self._numbers()) == json.dumps(other._numbers())  # NaN equals NaN here

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kinds = "" if self.types is None else f", {len(self.types.names)} types"
        kinds += "" if self.groups is None else f", {plural(self.groups.groups, 'group')}"
        return f"Sketch({plural(self.n, 'row')}, {plural(self.d, 'dimension')}{kinds})"

    def _key(self) -> bytes:
        return self.mean.tobytes()

    def _moments_about(self, point: np.ndarray) -> Moments:
        own = Moments(np.zeros(self.d), self.scatter, self.cubic, np.float64(self.quartic))
        with np.errstate(over="ignore", invalid="ignore"):
            return own.shift_rows(np, self.n, self.mean - point)

    # measurements

    def covariance(self) -> np.ndarray:
        """Return the sample covariance, a (d, d) array."""
        self._check_measurable(2)
        return self.scatter / (self.n - 1)

    def isoscore(self, *, unbiased: bool = False) -> float:
        """Return the IsoScore; see `isoscope.isoscore`. The unbiased IsoScore uses the sketch's groups, if any."""
        self._check_measurable(4 if unbiased else 2, dimensions=2, variance=True)
        return float(formulas.isoscore(self._traces(unbiased), self.d))

    def isoscore_interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return the bounds (low, high) of a confidence interval for the unbiased IsoScore, by a jackknife over groups.

        Parameters
        ----------
        confidence : float
            The confidence level, between 0 and 1.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> rng, text = np.random.default_rng(0), np.repeat(np.arange(30), 50)
        >>> tokens = 2 * rng.standard_normal((30, 8))[text] + rng.standard_normal((1500, 8))
        >>> low, high = isoscope.sketch(tokens, groups=text).isoscore_interval()
        >>> low < 1 < high
        True
        """
        if not 0 < check_real(confidence, "confidence") < 1:
            raise ParameterError(f"confidence is {confidence}: need a number between 0 and 1, such as 0.95")
        if self.groups is None:
            raise ParameterError(
                "the sketch has no groups, but an interval needs them: pass the group of each row to sketch, "
                "or pass the rows to isoscope.isoscore_interval(X)"
            )
        self._check_measurable(4, dimensions=2, variance=True)
        if not self.groups.can_estimate:
            raise TooFewRowsError(
                f"the sketch has {plural(self.groups.groups, 'group')}: need at least 5 for an interval"
            )
        left = [formulas.isoscore(traces, self.d) for traces in self._left_out()]
        spread = formulas.jackknife_error([float(value) for value in left])
        return formulas.student_interval(self.isoscore(unbiased=True), spread, confidence, len(left) - 1)

    def _traces(self, unbiased: bool) -> formulas.Traces:
        """Return (tr Σ)² and tr(Σ²) of the covariance Σ, both divided by (tr W)²."""
        trace = np.trace(self.scatter)  # dividing by it keeps the squares from overflowing
        one, squared, quartic = np.float64(1), np.sum((self.scatter / trace) ** 2), self.quartic / trace / trace
        if not unbiased:
            return formulas.covariance_traces(self.n, one, squared)
        if self.groups is not None:
            return self._clip_traces(self.groups.traces(self.mean, float(trace)))
        if not 0 < quartic < np.inf:
            raise InputError(self._format_range_error("fourth powers"))
        traces = formulas.unbiased_traces(self.n, one, squared, quartic)
        return formulas.clip_traces(np, traces, one / (self.n - 1) ** 2, self.n, self.d)

    def _left_out(self) -> list[formulas.Traces]:
        """Return the unbiased traces obtained by leaving out each block of groups in turn."""
        assert self.groups is not None
        return [self._clip_traces(traces) for traces in self.groups.left_out(self.mean, float(np.trace(self.scatter)))]

    def _clip_traces(self, traces: formulas.Traces) -> formulas.Traces:
        return formulas.clip_traces(np, traces, np.float64(1) / self.n**2, self.n, self.d)

    def isoscore_star(self, shrinkage: Array, zeta: float = 0.2) -> float:
        """Return the IsoScore*; see `isoscope.isoscore_star`."""
        S, other = self.covariance(), to_numpy(check_points(shrinkage, name="shrinkage")[1]).astype(np.float64)
        if other.shape != S.shape:
            raise ShapeError(f"shrinkage has shape {other.shape}: need {S.shape}")
        if not 0 <= check_real(zeta, "zeta") <= 1:
            raise ParameterError(f"zeta is {zeta}: need a number between 0 and 1")
        self._check_measurable(2, dimensions=2, variance=zeta < 1 and not np.trace(zeta * other) > 0)
        unit = max(np.trace(S), np.trace(other))
        S, other = S / unit, other / unit
        traces = formulas.shrunk_traces(
            zeta, np.trace(S), np.vdot(S, S), np.trace(other), np.vdot(other, other), np.vdot(S, other)
        )
        return float(formulas.isoscore(traces, self.d))

    def participation_ratio(self, *, unbiased: bool = False) -> float:
        """Return the participation ratio; see `isoscope.participation_ratio`."""
        self._check_measurable(4 if unbiased else 2, variance=True)
        if unbiased:
            return float(formulas.participation_ratio(self._traces(unbiased)))
        return float(1 / np.sum((self.scatter / np.trace(self.scatter)) ** 2))

    def spectrum(self, *, center: bool = True) -> np.ndarray:
        """Return the d squared singular values, largest first; see `isoscope.spectrum`."""
        self._check_measurable(2 if center else 1)
        with np.errstate(over="ignore"):
            square = self.n * float(self.mean @ self.mean)
        if not center and 0 < np.trace(self.scatter) < square / formulas.FAR_MEAN:
            return np.asarray(formulas.spectrum_about_far_mean(np, self.scatter, self.n, self.mean))
        with np.errstate(over="ignore"):
            matrix = self.scatter if center else self.scatter + self.n * np.outer(self.mean, self.mean)
            if not np.isfinite(np.trace(matrix)):
                raise InputError(self._format_range_error("squares"))
        return np.maximum(np.linalg.eigvalsh(matrix)[::-1], 0)

    def anisotropy(self, k: int = 3, *, center: bool = False) -> np.ndarray:
        """Return the share of the variance along each of the k leading principal axes; see `isoscope.anisotropy`."""
        self._check_measurable(1)
        if not 1 <= check_integer(k, "k") <= self.d:
            raise ParameterError(f"k is {k}: need 1 ≤ k ≤ {self.d}")
        self._check_measurable(1, variance=center, nonzero=True)
        return np.asarray(formulas.anisotropy(np, self.spectrum(center=center), k))

    def effective_rank(self, *, center: bool = True) -> float:
        """Return the effective rank; see `isoscope.effective_rank`."""
        self._check_measurable(2, variance=center, nonzero=True)
        return float(formulas.effective_rank(np, self.spectrum(center=center)))

    def mean_cosine(self) -> float:
        """Return the mean cosine of all pairs; see `isoscope.mean_cosine`."""
        return float(self.cosine_contribution().sum())

    def cosine_contribution(self) -> np.ndarray:
        """Return each dimension's contribution to the mean cosine; see `isoscope.cosine_contribution`."""
        if self.n < 2:
            raise TooFewRowsError(f"the sketch has {plural(self.n, 'row')}: need at least 2")
        return np.asarray(formulas.mean_cosine(self.n, self.unit_sum, self.unit_squares))

    def intra_similarity(self) -> float:
        """Return the mean cosine within types, S_intra; see `isoscope.intra_similarity`."""
        t = self._require_types()
        if t.counts.max() < 2:
            raise TooFewRowsError(f"{self.n} rows have {len(t.names)} types: need a type with at least two rows")
        return float(formulas.intra_similarity(np, t.counts.astype(float), t.unit_sums, t.unit_squares))

    def inter_similarity(self, *, average: Average = "instances") -> float:
        """Return the mean cosine between types, S_inter; see `isoscope.inter_similarity`."""
        if average not in ("instances", "types"):
            raise ParameterError(f'average is {average!r}: need "instances" or "types"')
        t = self._require_types()
        if len(t.names) < 2:
            raise TooFewRowsError("all rows have the same type: need at least two types")
        return float(formulas.inter_similarity(np, t.counts.astype(float), t.unit_sums, average))

    def isotropy_objective(self, *, cosine: bool = False) -> float:
        """Return the isotropy objective O_I; see `isoscope.metrics.isotropy_objective`."""
        if cosine:
            return float(np.sqrt(self.participation_ratio() / self.d))
        self._check_measurable(2)
        return float(formulas.isotropy_objective(self.n, np.trace(self.scatter)))

    def silhouette_objective(self) -> float:
        """Return the silhouette objective O_S of the types; see `isoscope.metrics.silhouette_objective`."""
        t = self._require_types()
        self._check_measurable(2)
        return float(formulas.silhouette_objective(np, self.n, np.trace(self.scatter), t.counts, t.within))

    def classifier_objective(self, class_vectors: Array) -> float:
        """Return the classifier objective O_C of the types; see `isoscope.metrics.classifier_objective`."""
        t = self._require_types()
        C = to_numpy(check_points(class_vectors, min_rows=1, name="class_vectors")[1]).astype(np.float64)
        if C.shape != t.means.shape:
            raise ShapeError(f"class_vectors has shape {C.shape}: need {t.means.shape}, one row per type")
        return float(formulas.classifier_objective(np, t.counts[:, None] * t.means, C))

    def triplet_objective(self) -> float:
        """Return the triplet objective O_T of the types; see `isoscope.metrics.triplet_objective`.

        The distances are squared.
        """
        t = self._require_types()
        self._check_measurable(2)
        return float(formulas.triplet_objective(np, self.n, t.means, t.counts.astype(float), t.within))

    def _check_measurable(
        self, rows: int, *, dimensions: int = 1, variance: bool = False, nonzero: bool = False
    ) -> None:
        if self.n < rows:
            raise TooFewRowsError(f"the sketch has {plural(self.n, 'row')}: need at least {rows}")
        if self.d < dimensions:
            raise ShapeError(f"the sketch has {plural(self.d, 'dimension')}: need at least {dimensions}")
        if nonzero and not self.greatest_norm > 0:
            raise InputError(f"all {self.n} rows are zero: need at least one nonzero row")
        with np.errstate(over="ignore"):
            trace = np.trace(self.scatter)
        if not np.isfinite(trace) or (trace == 0 and len(self.rows.hashes) > 1):
            raise InputError(self._format_range_error("squares"))
        if variance and not trace > 0:
            raise InputError(f"all {self.n} rows are equal: they have no variance")

    def _format_range_error(self, what: str) -> str:
        return (
            f"the largest row norm is {self.greatest_norm:.3g}, and the {what} of the rows overflow or underflow "
            "float64: rescale the rows"
        )

    def _require_types(self) -> TypeSums:
        if self.types is None:
            raise ParameterError("the sketch has no types: pass the type of each row to Sketch.of or sketch")
        return self.types

    # saving and loading

    def save(self, path: str | os.PathLike[str]) -> None:
        """Atomically write the sketch to a safetensors file."""
        file.write(path, self._tensors(), self._numbers())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read a sketch written by `save`."""
        return file.read(path, cls._from_parts)

    @classmethod
    def _from_parts(cls, tensors: dict[str, np.ndarray], numbers: dict[str, Any]) -> Sketch:
        """Build a sketch from saved parts; raise LookupError, TypeError or ValueError if they are inconsistent."""
        own = {f.name for f in fields(cls)} - {"rows", "types", "groups"}
        _check_types(tensors, numbers)
        level, total = numbers.pop("rows.level"), numbers.pop("rows.total")
        rows = RowCounts(tensors.pop("rows.hashes"), tensors.pop("rows.counts"), total, level)
        kinds = {name[6:]: tensors.pop(name) for name in list(tensors) if name.startswith("types.")}
        blocks = [{k[7:]: d.pop(k) for k in list(d) if k.startswith("groups.")} for d in (tensors, numbers)]
        values: dict[str, Any] = {**tensors, **numbers}
        loaded = cls(
            rows=rows,
            types=TypeSums.from_tensors(kinds) if kinds else None,
            groups=GroupBlocks.load(*blocks) if blocks[0] else None,
            **values,
        )
        if missing := own - tensors.keys() - numbers.keys():
            raise KeyError(", ".join(sorted(missing)))
        shapes = {tensors[name].shape for name in ("mean", "cubic", "unit_sum", "unit_squares")}
        if shapes != {(loaded.d,)} or loaded.scatter.shape != (loaded.d, loaded.d):
            raise ValueError(f"its arrays have inconsistent shapes: {sorted(shapes)} and {loaded.scatter.shape}")
        fitting = all(each.fits(loaded.d) for each in (loaded.types, loaded.groups) if each is not None)
        if not rows.hashes.shape == rows.counts.shape == (len(rows.hashes),) or not fitting:
            raise ValueError("its arrays have inconsistent lengths")
        return loaded

    def _tensors(self) -> dict[str, np.ndarray]:
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: value for name, value in own.items() if isinstance(value, np.ndarray)}
        arrays |= {"rows.hashes": self.rows.hashes, "rows.counts": self.rows.counts}
        if self.types is not None:
            arrays |= {f"types.{name}": value for name, value in self.types.tensors().items()}
        if self.groups is not None:
            arrays |= {f"groups.{name}": value for name, value in self.groups.tensors().items()}
        return arrays

    def _numbers(self) -> dict[str, float]:
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        numbers = {k: v for k, v in own.items() if isinstance(v, int | float)}
        numbers |= {"rows.level": self.rows.level, "rows.total": self.rows.total}
        if self.groups is not None:
            numbers |= {f"groups.{name}": value for name, value in self.groups.numbers().items()}
        return numbers


def _check_types(tensors: dict[str, np.ndarray], numbers: dict[str, Any]) -> None:
    """Raise an error if a saved array or number cannot be one of a sketch."""
    for name, value in tensors.items():
        last = name.rpartition(".")[2]
        wanted = {"names": np.uint8, "hashes": np.uint64, "keys": np.uint64, "counts": np.int64}.get(last, np.float64)
        if value.dtype != wanted:
            raise TypeError(f"{name} has dtype {value.dtype}: need {np.dtype(wanted)}")
    for name, value in numbers.items():
        real = name in ("quartic", "least_norm", "greatest_norm")
        if isinstance(value, bool) or not isinstance(value, int | float if real else int):
            raise TypeError(f"{name} is {value!r}: need {'a number' if real else 'an integer'}")
        most = {"level": 63, "bits": 64}.get(name.rpartition(".")[2], 2**63 - 1)
        if not real and not 0 <= value <= most:
            raise ValueError(f"{name} is {value}: need a number from 0 to {most}")


def _sketch_chunk(
    chunk: Any, types: Any, groups: Any, missing: Missing, first: int, block_limit: int | None = None
) -> Sketch:
    """Return the sketch of a chunk, computed tile by tile; `first` is the number of its first row, for errors."""
    _, chunk = as_real_array(chunk, "chunk")
    if chunk.ndim != 2 or chunk.shape[1] < 1:
        raise ShapeError(f"chunk has shape {tuple(chunk.shape)}: need shape (m, d), one row per vector")
    X = to_numpy(chunk)
    n, d = X.shape
    row_types = None if types is None else encode_labels(types, n, name="types", min_groups=0)
    row_groups = None if groups is None else encode_labels(groups, n, name="groups", min_groups=0)
    rows = RowSums.of(X)
    finite = ~np.isnan(rows.norms)
    m = int(finite.sum())
    if m < n and missing == "error":
        verb, them = ("contains", "it") if n - m == 1 else ("contain", "them")
        raise MissingValueError(
            f"{n - m} of the {n} rows {first}…{first + n - 1} {verb} NaN or infinity, first in row "
            f"{first + int(np.argmin(finite))}: fix {them}, or {DROP_HINT}"
        )
    if not m:
        return Sketch(nonfinite=n)
    norms = rows.norms[finite]
    mean = rows.total / m
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported when the squares are used
        sums = Moments(rows.total, rows.moment, rows.cubic, np.float64(rows.quartic)).shift_rows(np, m, -mean)
    return Sketch(
        n=m,
        mean=rows.pivot + mean,
        scatter=sums.scatter,
        cubic=sums.cubic,
        quartic=float(sums.quartic),
        unit_sum=rows.unit_sum,
        unit_squares=rows.unit_squares,
        zeros=int((norms == 0).sum()),
        nonfinite=n - m,
        least_norm=float(norms.min()),
        greatest_norm=float(norms.max()),
        rows=RowCounts.of(rows.hashes[finite]),
        types=None
        if row_types is None
        else TypeSums.of(X[finite], encode_labels(row_types.names[row_types.codes[finite]], m)),
        groups=None
        if row_groups is None
        else GroupBlocks.of(
            X[finite], encode_labels(row_groups.names[row_groups.codes[finite]], m), block_limit or max_blocks(d)
        ),
    )
