"""A cloud of any size, summed up in one pass: a few d-vectors and one d×d matrix that can be added to others.

Whatever a measurement needs that is a sum over rows is here, kept about the mean so that a large mean does not eat the
digits. Pieces are summed up apart, on any number of threads or machines, and added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import (
    TILE_BYTES,
    as_real_array,
    blocks,
    check_integer,
    check_points,
    check_real,
    to_numpy,
    warn_if_transposed,
)
from isoscope._core.arrays import encode_labels as grouped
from isoscope._core.errors import InputError
from isoscope._core.formulas import Moments
from isoscope._core.memory import tile_bytes
from isoscope._core.threads import map_in_threads
from isoscope.sketching import file
from isoscope.sketching.group_blocks import GroupBlocks, max_blocks
from isoscope.sketching.parts import RowCounts, TypeSums

_CHUNK_BYTES = 4 * TILE_BYTES  # of float64: what is summed up before it is added to the rest
_ROW_BYTES = TILE_BYTES // 4  # of centred rows: multiplied while they are in cache


def sketch(
    source: Any, *, types: Any = None, groups: Any = None, nonfinite: str = "raise", engine: Any = "local"
) -> Sketch:
    """Sum up a whole cloud, chunk by chunk, on all cores.

    Parameters
    ----------
    source : (n, d) array, store, path, or iterable
        An array (a memory-mapped one is never loaded whole); a store, or the path of whatever `open_store` opens; or
        chunks: (m, d) arrays, pairs of such an array and its rows' types, or triples with their groups too.
    types : (n,) labels, optional
        What each row of an array is an instance of; gives S_inter, S_intra and the label objectives.
    groups : (n,) labels, optional
        The group of each row of an array, for rows that are not independent, such as the tokens of one text. The
        unbiased IsoScore then uses only rows from different groups: see `isoscope.isoscore`.
    nonfinite : {"raise", "drop"}
        Refuse rows with NaN or infinity, or leave them out and count them.
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Who reads a store or a path: threads of this process; the client that it uses, or Dask's threads; a cluster.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((10_000, 64))
    >>> s = isoscope.sketch(X[i : i + 1000] for i in range(0, 10_000, 1000))
    >>> s.n, round(s.isoscore(), 3), round(s.mean_cosine(), 3)
    (10000, 0.993, 0.0)
    """
    if nonfinite not in ("raise", "drop"):
        raise InputError(f'nonfinite is {nonfinite!r}: need "raise" or "drop"')

    if isinstance(source, str | os.PathLike) or hasattr(source, "batches") or engine != "local":
        from isoscope.engines.sums import sketch_store

        return sketch_store(source, types, groups, nonfinite, engine)

    def summed(item: tuple[int, Any, Any, Any]) -> Sketch:
        first, chunk, chunk_types, chunk_groups = item
        return _sketch_chunk(chunk, chunk_types, chunk_groups, nonfinite, first)

    chunks, expected = _chunks(source, types, groups)
    total = Sketch()
    for part in map_in_threads(summed, chunks, expected):
        total = total + part
    if not total.n:
        raise InputError("the source has no finite row: need one at least")
    return total


def _chunks(source: Any, types: Any, groups: Any) -> tuple[Iterator[tuple[int, Any, Any, Any]], int]:
    """Return (first row's number, chunk, its types, its groups) for each chunk, and how many there may be."""
    if hasattr(source, "ndim") or (isinstance(source, list) and not _holds_chunks(source)):
        sliceable = hasattr(source, "ndim") and not hasattr(source, "to_numpy")  # a DataFrame is sliced otherwise
        X = source if sliceable else as_real_array(source, "source")[1]
        if X.ndim != 2:
            raise InputError(f"source has shape {tuple(X.shape)}: need (n, d), one row for each vector")
        n, d = X.shape
        warn_if_transposed(n, d, "source")
        types, groups = _check_labels(types, n, "types"), _check_labels(groups, n, "groups")
        parts = list(blocks(n, max(1, tile_bytes(_CHUNK_BYTES) // (8 * max(d, 1)))))
        return (
            (p.start, X[p, :], None if types is None else types[p], None if groups is None else groups[p])
            for p in parts
        ), len(parts)
    if not isinstance(source, Iterable):
        raise InputError(f"source is a {type(source).__name__}: need an (n, d) array, or an iterable of chunks")
    if types is not None:
        raise InputError("types is given beside chunks: give pairs (chunk, its types) as the source")
    if groups is not None:
        raise InputError("groups is given beside chunks: give triples (chunk, its types or None, its groups) instead")

    def walk() -> Iterator[tuple[int, Any, Any, Any]]:
        first = 0
        for item in source:
            if isinstance(item, tuple) and len(item) not in (2, 3):
                raise InputError(
                    f"a chunk is a tuple of {len(item)}: need an array, or a pair (array, its types), or a triple "
                    "(array, its types or None, its groups)"
                )
            chunk, chunk_types, *more = item if isinstance(item, tuple) else (item, None)
            chunk = as_real_array(chunk, "chunk")[1]
            yield first, chunk, chunk_types, more[0] if more else None
            first += chunk.shape[0] if chunk.ndim else 0

    return walk(), 2


def _check_labels(labels: Any, n: int, name: str) -> np.ndarray | None:
    """Return checked labels, one for each of n rows."""
    if labels is None:
        return None
    found = grouped(labels, n, name=name, min_groups=0)
    return np.asarray(found.names[found.codes])


def _holds_chunks(source: list[Any]) -> bool:
    """Whether a list holds chunks, or pairs of a chunk and its types, and not rows."""
    return bool(source) and (isinstance(source[0], tuple) or getattr(source[0], "ndim", 1) == 2)


@dataclass(eq=False)
class Sketch:
    """The sums of a cloud; `a + b` is the sketch of both, and `Sketch()` that of nothing."""

    n: int = 0
    """Finite rows."""
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scatter: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """W = Σ(x−x̄)(x−x̄)ᵀ."""
    cubic: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Σ‖x−x̄‖²(x−x̄)."""
    quartic: float = 0.0
    """Σ‖x−x̄‖⁴."""
    unit_sum: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Σu, u = x/‖x‖."""
    unit_squares: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Σu² of each coordinate."""
    zeros: int = 0
    """Rows that are zero."""
    nonfinite: int = 0
    """Rows with NaN or infinity, left out of everything else."""
    least_norm: float = np.inf
    greatest_norm: float = 0.0
    rows: RowCounts = field(default_factory=lambda: RowCounts.of(np.zeros(0, np.uint64)))
    types: TypeSums | None = None
    groups: GroupBlocks | None = None

    @classmethod
    def of(
        cls,
        chunk: Any,
        types: Any = None,
        *,
        groups: Any = None,
        nonfinite: str = "raise",
        first: int = 0,
        blocks: int | None = None,
    ) -> Sketch:
        """Return the sketch of one (n, d) chunk held in memory.

        Parameters
        ----------
        chunk : (n, d) array
            One row for each vector; any library, any real dtype.
        types : (n,) labels, optional
            What each row is an instance of.
        groups : (n,) labels, optional
            The group of each row, for rows that are not independent. A group's rows may be in several chunks.
        nonfinite : {"raise", "drop"}
            Refuse rows with NaN or infinity, or leave them out and count them.
        first : int
            The number of the chunk's first row in the whole, for what an error says.
        blocks : int, optional
            Blocks of groups to keep at most, each with a (d, d) matrix; by default 20, fewer above 1,000 dimensions.
        """
        if nonfinite not in ("raise", "drop"):
            raise InputError(f'nonfinite is {nonfinite!r}: need "raise" or "drop"')
        return _sketch_chunk(chunk, types, groups, nonfinite, first, blocks)

    @property
    def d(self) -> int:
        """Dimensions."""
        return len(self.mean)

    @property
    def duplicates(self) -> float:
        """Rows that equal an earlier one; estimated from a sample of different rows unless `rows.exact`."""
        return self.rows.copies

    def __add__(self, other: Sketch) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        if not self.d:
            return replace(other, nonfinite=self.nonfinite + other.nonfinite)
        if not other.d:
            return replace(self, nonfinite=self.nonfinite + other.nonfinite)
        if self.d != other.d:
            raise InputError(f"sketches of {self.d} and of {other.d} dimensions cannot be added")
        if (self.types is None) != (other.types is None) and self.n and other.n:
            raise InputError("one sketch has types and the other has none: give types for both or for neither")
        if (self.groups is None) != (other.groups is None) and self.n and other.n:
            raise InputError("one sketch has groups and the other has none: give groups for both or for neither")
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
        return self if other == 0 else NotImplemented  # sum() begins with 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        a, b = self._tensors(), other._tensors()
        same = a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)
        return same and json.dumps(self._numbers()) == json.dumps(other._numbers())  # a NaN is equal to itself here

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kinds = "" if self.types is None else f", {len(self.types.names)} types"
        kinds += "" if self.groups is None else f", {self.groups.groups} groups"
        return f"Sketch({self.n} rows, {self.d} dimensions{kinds})"

    def _key(self) -> bytes:
        return self.mean.tobytes()

    def _moments_about(self, point: np.ndarray) -> Moments:
        own = Moments(np.zeros(self.d), self.scatter, self.cubic, np.float64(self.quartic))
        with np.errstate(over="ignore", invalid="ignore"):
            return own.shift_rows(np, self.n, self.mean - point)

    # what it measures

    def covariance(self) -> np.ndarray:
        """The sample covariance, (d, d)."""
        self._check_measurable(2)
        return self.scatter / (self.n - 1)

    def isoscore(self, *, unbiased: bool = False) -> float:
        """Return the IsoScore, see `isoscope.isoscore`; the unbiased one uses the sketch's groups if it has any."""
        self._check_measurable(4 if unbiased else 2, dimensions=2, variance=True)
        return float(formulas.isoscore(self._traces(unbiased), self.d))

    def isoscore_interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return the ends of a confidence interval of the unbiased IsoScore, from leaving out each block of groups.

        Parameters
        ----------
        confidence : float
            The share of samples whose interval should hold the truth.

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
            raise InputError(f"confidence is {confidence}: need a number between 0 and 1, such as 0.95")
        if self.groups is None:
            raise InputError(
                "the sketch was made without groups and keeps no rows to leave out: give each row's group to sketch, "
                "or pass the rows to isoscope.isoscore(X, unbiased=True, return_interval=True)"
            )
        self._check_measurable(4, dimensions=2, variance=True)
        if not self.groups.can_estimate:
            raise InputError(f"the sketch has {self.groups.groups} groups: need at least 5 for an interval")
        left = [formulas.isoscore(traces, self.d) for traces in self._left_out()]
        spread = formulas.jackknife_error([float(value) for value in left])
        return formulas.student_interval(self.isoscore(unbiased=True), spread, confidence, len(left) - 1)

    def _traces(self, unbiased: bool) -> formulas.Traces:
        """Return both traces of the covariance, over tr W."""
        trace = np.trace(self.scatter)  # the unit: squares of a sum may leave the range where the sum does not
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
        """Return the unbiased traces without each block of groups in turn."""
        assert self.groups is not None
        return [self._clip_traces(traces) for traces in self.groups.left_out(self.mean, float(np.trace(self.scatter)))]

    def _clip_traces(self, traces: formulas.Traces) -> formulas.Traces:
        return formulas.clip_traces(np, traces, np.float64(1) / self.n**2, self.n, self.d)

    def isoscore_star(self, shrinkage: Any, zeta: float = 0.2) -> float:
        """See `isoscope.isoscore_star`."""
        S, other = self.covariance(), to_numpy(check_points(shrinkage, name="shrinkage")[1]).astype(np.float64)
        if other.shape != S.shape:
            raise InputError(f"shrinkage has shape {other.shape}: need {S.shape}")
        if not 0 <= check_real(zeta, "zeta") <= 1:
            raise InputError(f"zeta is {zeta}: need a share between 0 and 1")
        self._check_measurable(2, dimensions=2, variance=zeta < 1 and not np.trace(zeta * other) > 0)
        unit = max(np.trace(S), np.trace(other))
        S, other = S / unit, other / unit
        traces = formulas.shrunk_traces(
            zeta, np.trace(S), np.vdot(S, S), np.trace(other), np.vdot(other, other), np.vdot(S, other)
        )
        return float(formulas.isoscore(traces, self.d))

    def participation_ratio(self, *, unbiased: bool = False) -> float:
        """Return the participation ratio, see `isoscope.participation_ratio`."""
        self._check_measurable(4 if unbiased else 2, variance=True)
        if unbiased:
            return float(formulas.participation_ratio(self._traces(unbiased)))
        return float(1 / np.sum((self.scatter / np.trace(self.scatter)) ** 2))

    def spectrum(self, *, center: bool = True) -> np.ndarray:
        """See `isoscope.spectrum`; d values."""
        self._check_measurable(2 if center else 1)
        square = self.n * float(self.mean @ self.mean)
        if not center and 0 < formulas.FAR_MEAN * np.trace(self.scatter) < square:
            return np.asarray(formulas.spectrum_about_far_mean(np, self.scatter, self.n, self.mean))
        matrix = self.scatter if center else self.scatter + self.n * np.outer(self.mean, self.mean)
        return np.maximum(np.linalg.eigvalsh(matrix)[::-1], 0)

    def anisotropy(self, k: int = 3, *, center: bool = False) -> np.ndarray:
        """See `isoscope.anisotropy`."""
        self._check_measurable(1)
        if not 1 <= check_integer(k, "k") <= self.d:
            raise InputError(f"k is {k}: need 1 ≤ k ≤ {self.d}")
        self._check_measurable(1, variance=center, nonzero=True)
        return np.asarray(formulas.anisotropy(np, self.spectrum(center=center), k))

    def effective_rank(self, *, center: bool = True) -> float:
        """See `isoscope.effective_rank`."""
        self._check_measurable(2, variance=center, nonzero=True)
        return float(formulas.effective_rank(np, self.spectrum(center=center)))

    def mean_cosine(self) -> float:
        """See `isoscope.mean_cosine`."""
        return float(self.cosine_contribution().sum())

    def cosine_contribution(self) -> np.ndarray:
        """See `isoscope.cosine_contribution`."""
        if self.n < 2:
            raise InputError(f"the sketch has {self.n} rows: need at least 2")
        return np.asarray(formulas.mean_cosine(self.n, self.unit_sum, self.unit_squares))

    def intra_similarity(self) -> float:
        """See `isoscope.intra_similarity`."""
        t = self._require_types()
        if t.counts.max() < 2:
            raise InputError(f"{len(t.names)} types for {self.n} rows: need a type with two rows at least")
        return float(formulas.intra_similarity(np, t.counts.astype(float), t.unit_sums, t.unit_squares))

    def inter_similarity(self, *, average: str = "instances") -> float:
        """See `isoscope.inter_similarity`."""
        if average not in ("instances", "types"):
            raise InputError(f'average is {average!r}: need "instances" or "types"')
        t = self._require_types()
        if len(t.names) < 2:
            raise InputError("the rows have one type: need two types at least")
        return float(formulas.inter_similarity(np, t.counts.astype(float), t.unit_sums, average))

    def isotropy_objective(self, *, cosine: bool = False) -> float:
        """See `isoscope.metrics.isotropy_objective`."""
        if cosine:
            return float(np.sqrt(self.participation_ratio() / self.d))
        self._check_measurable(2)
        return float(formulas.isotropy_objective(self.n, np.trace(self.scatter)))

    def silhouette_objective(self) -> float:
        """See `isoscope.metrics.silhouette_objective`."""
        t = self._require_types()
        self._check_measurable(2)
        return float(formulas.silhouette_objective(np, self.n, np.trace(self.scatter), t.counts, t.within))

    def classifier_objective(self, class_vectors: Any) -> float:
        """See `isoscope.metrics.classifier_objective`."""
        t = self._require_types()
        C = to_numpy(check_points(class_vectors, min_rows=1, name="class_vectors")[1]).astype(np.float64)
        if C.shape != t.means.shape:
            raise InputError(f"class_vectors has shape {C.shape}: need {t.means.shape}, a row for each type")
        return float(formulas.classifier_objective(np, t.counts[:, None] * t.means, C))

    def triplet_objective(self) -> float:
        """See `isoscope.metrics.triplet_objective`, of squared distances."""
        t = self._require_types()
        self._check_measurable(2)
        return float(formulas.triplet_objective(np, self.n, t.means, t.counts.astype(float), t.within))

    def _check_measurable(
        self, rows: int, *, dimensions: int = 1, variance: bool = False, nonzero: bool = False
    ) -> None:
        if self.n < rows:
            raise InputError(f"the sketch has {self.n} rows: need at least {rows}")
        if self.d < dimensions:
            raise InputError(f"the sketch has {self.d} dimensions: need at least {dimensions}")
        if nonzero and not self.greatest_norm > 0:
            raise InputError(f"all {self.n} rows are zero: there is nothing to share")
        trace = np.trace(self.scatter)
        if not np.isfinite(trace) or (trace == 0 and len(self.rows.hashes) > 1):
            raise InputError(self._format_range_error("squares"))
        if variance and not trace > 0:
            raise InputError(f"all {self.n} rows are equal: there is no variance to share among the dimensions")

    def _format_range_error(self, what: str) -> str:
        return f"rows reach {self.greatest_norm:.3g} in length: their {what} leave float64's range, scale them"

    def _require_types(self) -> TypeSums:
        if self.types is None:
            raise InputError("the sketch was made without types: give each row's type to Sketch.of or sketch")
        return self.types

    # how it is kept

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch to a safetensors file; an interrupted write leaves the old file."""
        file.write(path, self._tensors(), self._numbers())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read what `save` wrote."""
        return file.read(path, cls._from_parts)

    @classmethod
    def _from_parts(cls, tensors: dict[str, np.ndarray], numbers: dict[str, Any]) -> Sketch:
        """The sketch that gave these; LookupError, TypeError or ValueError if they are not all of one."""
        own = {f.name for f in fields(cls)} - {"rows", "types", "groups"}
        level, total = numbers.pop("rows.level"), numbers.pop("rows.total")
        rows = RowCounts(tensors.pop("rows.hashes"), tensors.pop("rows.counts"), total, level)
        kinds = {name[6:]: tensors.pop(name) for name in list(tensors) if name.startswith("types.")}
        held = [{k[7:]: d.pop(k) for k in list(d) if k.startswith("groups.")} for d in (tensors, numbers)]
        values: dict[str, Any] = {**tensors, **numbers}
        found = cls(
            rows=rows,
            types=TypeSums.from_tensors(kinds) if kinds else None,
            groups=GroupBlocks.load(*held) if held[0] else None,
            **values,
        )
        if missing := own - tensors.keys() - numbers.keys():
            raise KeyError(", ".join(sorted(missing)))
        shapes = {tensors[name].shape for name in ("mean", "cubic", "unit_sum", "unit_squares")}
        if shapes != {(found.d,)} or found.scatter.shape != (found.d, found.d):
            raise ValueError(f"its arrays have {sorted(shapes)} and {found.scatter.shape} entries")
        fitting = all(each.fits(found.d) for each in (found.types, found.groups) if each is not None)
        if rows.hashes.shape != rows.counts.shape or not fitting:
            raise ValueError("its counts and what they count differ in number")
        for name, kind in (("n", int), ("zeros", int), ("nonfinite", int), ("quartic", float)):
            if not isinstance(getattr(found, name), kind):
                raise TypeError(f"{name} is {getattr(found, name)!r}")
        return found

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
        found = {k: v for k, v in own.items() if isinstance(v, int | float)}
        found |= {"rows.level": self.rows.level, "rows.total": self.rows.total}
        if self.groups is not None:
            found |= {f"groups.{name}": value for name, value in self.groups.numbers().items()}
        return found


def _sketch_chunk(
    chunk: Any, types: Any, groups: Any, nonfinite: str, first: int, block_limit: int | None = None
) -> Sketch:
    """Look once at each row, a tile at a time; `first` is the chunk's first row in the whole, for the error message."""
    from isoscope._core.kernels import add_row_sums, center_and_hash_rows

    _, chunk = as_real_array(chunk, "chunk")
    if chunk.ndim != 2 or chunk.shape[1] < 1:
        raise InputError(f"chunk has shape {tuple(chunk.shape)}: need (m, d), one row for each vector")
    X = to_numpy(chunk)
    n, d = X.shape
    found = None if types is None else grouped(types, n, name="types", min_groups=0)
    dependent = None if groups is None else grouped(groups, n, name="groups", min_groups=0)
    pivot = _pivot(X)
    moment, total, cubic = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    unit_sum, unit_squares = np.zeros(d), np.zeros(d)
    norms, squares, hashes = np.empty(n), np.empty(n), np.empty(n, np.uint64)
    keys = np.random.default_rng(0x150C09E).integers(0, 2**64, d, np.uint64) | np.uint64(1)
    buffer = np.empty((min(n, _tile_rows(d)), d))
    for part in blocks(n, _tile_rows(d)):
        rows = np.ascontiguousarray(X[part])
        centred = buffer[: len(rows)]
        center_and_hash_rows(
            rows, pivot, keys, centred, norms[part], squares[part], hashes[part], unit_sum, unit_squares
        )
        seen = ~np.isnan(norms[part])
        if not seen.all():
            rows, centred, part = rows[seen], centred[seen], np.flatnonzero(seen) + part.start
        add_row_sums(rows, centred, norms[part], squares[part], total, cubic, unit_sum, unit_squares)
        with np.errstate(over="ignore", invalid="ignore"):
            moment += centred.T @ centred
    finite = ~np.isnan(norms)
    m = int(finite.sum())
    if m < n and nonfinite == "raise":
        raise InputError(
            f"{n - m} of the {n} rows {first}…{first + n - 1} have NaN or infinity, the first is row "
            f'{first + int(np.argmin(finite))}: mend them, or count and drop them: nonfinite="drop", --nonfinite drop'
        )
    if not m:
        return Sketch(nonfinite=n)
    norms, hashes = norms[finite], hashes[finite]
    greatest = float(norms.max())
    mean = total / m
    with np.errstate(over="ignore", invalid="ignore"):  # squares that overflow are said where they are asked for
        sums = Moments(total, moment, cubic, np.sum(squares * squares)).shift_rows(np, m, -mean)
    return Sketch(
        n=m,
        mean=pivot + mean,
        scatter=sums.scatter,
        cubic=sums.cubic,
        quartic=float(sums.quartic),
        unit_sum=unit_sum,
        unit_squares=unit_squares,
        zeros=int((norms == 0).sum()),
        nonfinite=n - m,
        least_norm=float(norms.min()),
        greatest_norm=greatest,
        rows=RowCounts.of(hashes),
        types=None if found is None else TypeSums.of(X[finite], grouped(found.names[found.codes[finite]], m)),
        groups=None
        if dependent is None
        else GroupBlocks.of(
            X[finite], grouped(dependent.names[dependent.codes[finite]], m), block_limit or max_blocks(d)
        ),
    )


def _tile_rows(d: int) -> int:
    return max(1, _ROW_BYTES // (8 * d))


def _pivot(X: np.ndarray) -> np.ndarray:
    """A point amid the chunk: its first finite row, moved by the mean of the first few. Equal rows give it exactly."""
    few = X[:256].astype(np.float64)
    few = few[np.isfinite(few).all(axis=1)]
    return few[0] + (few - few[0]).mean(axis=0) if len(few) else np.zeros(X.shape[1])
