"""Compute all measurements of a store, in at most two passes over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import check_integer, nonzero_rows, unit_rows
from isoscope._core.cosine_histogram import CosineCounter
from isoscope._core.errors import InputError, ParameterError, ShapeError, TooFewRowsError, plural
from isoscope._core.memory import limit_sample_size
from isoscope._core.missing import check_missing, check_zeros, drop_policy
from isoscope._core.pairs import NeighborSearch, nearest_neighbors
from isoscope._core.random import check_seed
from isoscope._core.threads import run_together
from isoscope.auditing.grouping import drop_single_groups
from isoscope.auditing.metric_lists import list_overlaps
from isoscope.auditing.mixed_spaces import MIXED_ROWS, find_mixed_spaces
from isoscope.auditing.near_duplicates import near_duplicates, typical_distance
from isoscope.auditing.passes import NeighborTally, PartitionTally, RowScaling, first_pass, principal_axes, second_pass
from isoscope.auditing.structure import LID_SEARCH_ROWS, cluster_rows, label_scores, local_distances
from isoscope.engines.engine import CombinedTally
from isoscope.metrics.topology import h0_barcode

if TYPE_CHECKING:
    from isoscope._core.cosine_histogram import CosineHistogram
    from isoscope._core.types import Metric, Missing, Zeros
    from isoscope._io.progress import Progress
    from isoscope.auditing.mixed_spaces import MixedSpaces
    from isoscope.auditing.near_duplicates import NearDuplicates
    from isoscope.auditing.passes import Axes, FirstPass
    from isoscope.auditing.structure import LocalDistances
    from isoscope.auditing.type_cosines import TypeCosines
    from isoscope.engines.engine import Engine, Tally
    from isoscope.metrics.clusters import ClusterChoice
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Store

LID_NEIGHBORS = 100
"""The number of neighbors for the local dimension (Cai et al.), if there are at least ten times as many rows."""
LIST_LENGTH = 10
"""The length of a list of nearest rows, for hubness and for the agreement of two spaces."""
MIN_SAMPLE = 100
"""The smallest sample that an audit accepts."""

_CLUSTER_ROWS = 4_000
_BARCODE_ROWS = 1_500
_MIN_QUERIES = 1_000
_LIST_PRODUCTS = 20_000_000  # the largest number of row pairs that are ranked by several metrics
_FEW_ROWS = 30
_LENGTH_RANGE = (1e-60, 1e18)  # fourth powers fit into float64, squares into float32


@dataclass(frozen=True)
class Settings:
    """The options of an audit that affect its results."""

    metric: Metric = "cosine"
    sample: int = 20_000
    seed: int = 0
    missing: Missing = "error"
    zeros: Zeros = "keep"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise ParameterError(f'metric is {self.metric!r}: need "cosine" or "euclidean"')
        check_missing(self.missing)
        check_zeros(self.zeros)
        if check_integer(self.sample, "sample") < MIN_SAMPLE:
            raise ParameterError(f"sample is {self.sample}: need at least {MIN_SAMPLE} rows")
        object.__setattr__(self, "seed", check_seed(self.seed))

    @property
    def drop(self) -> Missing:
        """Whether rows are dropped in the passes: "drop" or "error"."""
        return drop_policy(self.missing, self.zeros)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Settings:
        """Create settings from a dict in an audit's JSON; before 0.2, `missing` was called `nonfinite`."""
        content = dict(content)
        if "nonfinite" in content:
            content["missing"] = "drop" if content.pop("nonfinite") == "drop" else "error"
        return cls(**content)

    def limit_sample(self, store: Store) -> Settings:
        """Return the settings with a sample size that fits the memory limit."""
        return replace(self, sample=limit_sample_size(self.sample, store.dim, store.dtype.itemsize))


@dataclass(frozen=True)
class Neighborhood:
    """The nearest neighbors of the query rows: distances and row numbers, nearest first."""

    asked: np.ndarray
    """The row numbers of the queries; for lists within the sample, their positions in it."""
    distances: np.ndarray
    indices: np.ndarray
    n_searched: int
    """The number of rows that were searched."""


@dataclass(frozen=True)
class QueryNeighbors:
    """The rows of the corpus that are nearest to each query."""

    name: str
    n: int
    sketch: Sketch
    distances: np.ndarray
    """The distances to the nearest rows of the corpus."""
    indices: np.ndarray


@dataclass
class Measurements:
    """The numbers and the sample on which findings and charts are based."""

    name: str
    dtype: str
    settings: Settings
    sketch: Sketch
    sample: Sample
    raw: Axes
    """The principal axes of the second moment XᵀX."""
    centered: Axes
    """The principal axes of the scatter about the mean."""
    partition: np.ndarray
    """log Z of each direction, for each jackknife group of rows."""
    unit_partition: np.ndarray
    """The same for rows scaled to a root-mean-square length of 1."""
    cosines: CosineHistogram
    """A histogram of the cosines of all pairs in the sample."""
    around: Neighborhood | None
    """The nearest neighbors of some rows among all rows."""
    lists: Neighborhood | None
    """The nearest neighbors of each row of the sample within the sample, by position."""
    local: LocalDistances | None
    """The distances for the local dimension, and its null samples."""
    near_duplicates: NearDuplicates | None
    """The near-duplicates of the rows in `around`."""
    list_overlaps: dict[tuple[str, str], np.ndarray]
    """For each pair of metrics: the share of nearest rows that both find, per query row; empty for few rows."""
    clusters: ClusterChoice | None
    cluster_positions: np.ndarray
    """The positions of the clustered rows in the sample."""
    bars: np.ndarray
    bar_rows: int
    label_scores: np.ndarray | None
    """The silhouette of each row under its label."""
    shuffled_scores: np.ndarray | None
    """The same for shuffled labels."""
    queries: QueryNeighbors | None
    types: TypeCosines | None
    """The mean cosines within and across token types."""
    mixed: MixedSpaces | None = None
    """Whether the rows come from two spaces; the rows are those at `mixed_positions`."""
    mixed_positions: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The positions in the sample of the rows that were examined for two spaces."""
    columns: dict[str, str] = field(default_factory=dict)
    layer: int | None = None
    """The layer of the rows, if the source contains several."""
    n_dropped_types: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    """The measurements that could not be made, and the reason for each."""

    @property
    def n(self) -> int:
        """The number of finite rows."""
        return self.sketch.n

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.sketch.d

    @property
    def complete(self) -> bool:
        """Whether the sample contains all rows."""
        return len(self.sample) == self.n


def measure(
    store: Store, *, queries: Store | None, settings: Settings, progress: Progress, engine: Engine
) -> Measurements:
    """Return all measurements of a store, from at most two passes over it."""
    store = drop_single_groups(store.without("ids"))  # ids are irrelevant to the shape
    if queries is not None and queries.dim != store.dim:
        raise ShapeError(
            f"the queries have {queries.dim} dimensions but the corpus has {store.dim}: embed both with the same model"
        )
    first = first_pass(engine, store, settings, progress, "summing up", columns=store.columns)
    run = MeasurementRun(store.name, store, settings, first)
    search = None if queries is None else _QuerySearch(queries, run, progress, engine)
    progress("partition and neighbors", 0, 0.0)
    tally = run.second_tally(() if search is None else (search.search,))
    second_pass(engine, tally, store, run.sample, run.sketch.n, progress, "partition and neighbors")
    return run.measure(progress, None if search is None else search.result())


class MeasurementRun:
    """The state of a measurement between the two passes.

    Raises an `InputError` if the rows cannot be measured.

    Parameters
    ----------
    name : str
        The name of the data in messages.
    store : Store
        The source of the rows.
    settings : Settings
        The options of the audit.
    first : FirstPass
        The result of the first pass.
    """

    def __init__(self, name: str, store: Store, settings: Settings, first: FirstPass):
        _check_measurable(name, first.sketch, first.sample)
        self.name, self.settings = name, settings
        self.dtype, self.columns, self.layer = str(store.dtype), dict(store.columns), store.layer
        self.first, self.sketch, self.sample = first, first.sketch, first.sample
        self.skipped: dict[str, str] = {}
        blocks = self.sketch.groups
        if blocks is not None and not blocks.can_estimate:
            self.skipped["groups"] = (
                f"{plural(blocks.groups, 'group')} of dependent rows {'is' if blocks.groups == 1 else 'are'} too "
                "few: need at least 5 to account for the dependence; estimates and intervals assume independent rows"
            )
            self.sketch = replace(self.sketch, groups=None)
            self.columns.pop("groups", None)
        self.placed = RowScaling(settings.metric, self.sketch)
        self.raw, self.centered = run_together(
            lambda: principal_axes(self.sketch, self.sample, centered=False),
            lambda: principal_axes(self.sketch, self.sample, centered=True),
        )
        self.usable = np.flatnonzero(self.placed.usable(self.sample.vectors))
        self.ask = _SampleSearch(self.placed, self.sketch, self.sample, self.usable, self.skipped)
        self.sums = PartitionTally(self.sketch, self.raw)

    @property
    def complete(self) -> bool:
        """Whether the sample contains all rows, so that they need not be read again."""
        return len(self.sample) == self.sketch.n

    def second_tally(self, searches: Sequence[NeighborSearch] = ()) -> Tally:
        """Return the tally for the second pass, which also runs the given `searches`."""
        searches = [*([] if self.ask.search is None else [self.ask.search]), *searches]
        return CombinedTally(self.sums, NeighborTally(searches, self.placed)) if searches else self.sums

    def measure(self, progress: Progress, queries: QueryNeighbors | None = None) -> Measurements:
        """Return all measurements; call this after the second pass."""
        sketch, sample, settings, skipped = self.sketch, self.sample, self.settings, self.skipped
        around, lists = self.ask.result()
        if self.ask.cosines is None:
            progress("pairs of the sample", 0, 0.0)
        cosines = self.ask.cosines if self.ask.cosines is not None else _count_cosines(sample)
        if sketch.n < _FEW_ROWS:
            skipped["few_rows"] = f"{sketch.n} rows are few: treat every number as a rough estimate"
        progress("clusters and barcode", 0, 0.0)
        at, mixed_at = sample.first(_CLUSTER_ROWS), sample.first(MIXED_ROWS)
        bar_rows = self.placed(sample.vectors[sample.first(_BARCODE_ROWS)])
        no_clusters: dict[str, str] = {}
        no_scores: dict[str, str] = {}
        mixed, clusters, local, copies, overlaps, bars, scores = run_together(
            lambda: find_mixed_spaces(sample.vectors[mixed_at], settings.seed),
            lambda: cluster_rows(sample.vectors[at], self.centered, settings.seed, no_clusters),
            lambda: self._local_distances(around),
            lambda: self._near_duplicates(around),
            lambda: _list_overlaps(sample),
            lambda: np.asarray(h0_barcode(bar_rows), np.float64),
            lambda: label_scores(sample, self.usable, settings, no_scores),
        )
        skipped |= no_clusters | no_scores
        partition, unit_partition = self.sums.log_partitions()
        return Measurements(
            name=self.name,
            dtype=self.dtype,
            settings=settings,
            sketch=sketch,
            sample=sample,
            raw=self.raw,
            centered=self.centered,
            partition=partition,
            unit_partition=unit_partition,
            cosines=cosines,
            around=around,
            lists=lists,
            local=local,
            near_duplicates=copies,
            list_overlaps=overlaps,
            clusters=clusters,
            cluster_positions=at,
            bars=bars,
            bar_rows=len(bar_rows),
            label_scores=scores[0],
            shuffled_scores=scores[1],
            queries=queries,
            types=self.first.types,
            mixed=mixed,
            mixed_positions=mixed_at,
            columns=self.columns,
            layer=self.layer,
            n_dropped_types=self.first.n_dropped_types,
            skipped=skipped,
        )

    def _local_distances(self, around: Neighborhood | None) -> LocalDistances | None:
        """Return the neighbor distances within the sample that the local dimension needs, and its null samples."""
        if around is None:
            return None
        at, seed = self.sample.first(LID_SEARCH_ROWS), self.settings.seed
        rows = self.sample.vectors[at[np.isin(at, self.usable)]]
        known = around.distances if self.complete and len(at) == len(self.sample) else None
        k = count_lid_neighbors(len(rows))
        return local_distances(self.sketch, rows, self.centered, self.placed, k, seed, known)

    def _near_duplicates(self, around: Neighborhood | None) -> NearDuplicates | None:
        if around is None:
            return None
        typical = typical_distance(self.ask.rows, self.settings.seed)
        return near_duplicates(
            around.asked,
            around.distances,
            around.indices,
            typical=typical * self.placed.unit,
            n=around.n_searched,
            d=self.sketch.d,
        )


def _check_measurable(name: str, sketch: Sketch, sample: Sample) -> None:
    """Raise an error if there are too few rows, too many zero rows, or norms that are out of range."""
    if sketch.n < 4 or sketch.d < 2:
        raise TooFewRowsError(
            f"{name} has {plural(sketch.n, 'vector')} with {plural(sketch.d, 'dimension')}: an audit needs "
            "at least 4 vectors and at least 2 dimensions"
        )
    if sketch.n - sketch.zeros < 2:
        raise TooFewRowsError(
            f"{sketch.zeros:,} of {sketch.n:,} vectors in {name} are zero: an audit needs at least 2 nonzero vectors"
        )
    check_largest_norm(name, sketch.greatest_norm)
    if nonzero_rows(sample.vectors).sum() < 2:
        raise TooFewRowsError(
            f"{sketch.zeros:,} of {sketch.n:,} vectors in {name} are zero, including nearly all of the sampled "
            "vectors: drop the zero vectors first"
        )


def check_largest_norm(name: str, norm: float) -> None:
    """Raise an error if the largest norm of the vectors is so large or small that their squares lose digits."""
    if not _LENGTH_RANGE[0] < norm < _LENGTH_RANGE[1]:
        raise InputError(
            f"the largest vector norm in {name} is {norm:.3g}: need a norm from {_LENGTH_RANGE[0]:g} to "
            f"{_LENGTH_RANGE[1]:g}; rescale the vectors"
        )


def measure_cosines(
    store: Store, *, settings: Settings, progress: Progress, engine: Engine
) -> tuple[CosineHistogram, Neighborhood | None]:
    """Return a histogram of a sample's cosines, and nearest neighbors, from at most two passes over the store."""
    first = first_pass(engine, store, settings, progress, "summing up")
    sketch, sample = first.sketch, first.sample
    placed = RowScaling("cosine", sketch)
    usable = np.flatnonzero(placed.usable(sample.vectors))
    if len(usable) < 2:
        raise TooFewRowsError(
            f"the number of nonzero vectors in {store.name} is {len(usable)}: need at least 2 to compute a cosine"
        )
    ask = _SampleSearch(placed, sketch, sample, usable, {})
    if ask.search is not None:
        second_pass(engine, NeighborTally([ask.search], placed), store, sample, sketch.n, progress, "neighbors")
    around = ask.result()[0]
    return (_count_cosines(sample) if ask.cosines is None else ask.cosines), around


def measure_query_cosines(
    store: Store, queries: Store, *, settings: Settings, progress: Progress, engine: Engine
) -> tuple[CosineHistogram, Neighborhood]:
    """Return a histogram of the cosines of queries and rows, and the nearest row of each query.

    The histogram counts all pairs of a sampled query and a sampled row. The nearest row is searched among all rows.
    """
    if queries.dim != store.dim:
        raise ShapeError(
            f"the queries have {queries.dim} dimensions but the corpus has {store.dim}: embed both with the same model"
        )
    first = first_pass(engine, store, settings, progress, "summing up")
    sketch, sample = first.sketch, first.sample
    placed = RowScaling("cosine", sketch)
    asked = first_pass(
        engine, queries, settings, progress, "reading queries", size=count_queries(sketch.n, settings.sample)
    ).sample.vectors.astype(sample.vectors.dtype)
    asked, rows = (placed(vectors[placed.usable(vectors)]) for vectors in (asked, sample.vectors))
    for vectors, each in ((asked, queries), (rows, store)):
        if not len(vectors):
            raise TooFewRowsError(f"all vectors in {each.name} are zero: need at least one nonzero vector")
    counted = CosineCounter()
    among = NeighborSearch(asked, 1, center=placed.center, cosines=counted)
    among.offer(rows, 0, np.ones(len(rows), bool))
    search = among
    if len(sample) < sketch.n:
        search = NeighborSearch(asked, 1, center=placed.center)
        second_pass(engine, NeighborTally([search], placed), store, sample, sketch.n, progress, "neighbors")
    distances, indices = search.results()
    return counted.histogram(), Neighborhood(np.arange(len(asked)), distances, indices, sketch.n)


def _count_cosines(sample: Sample) -> CosineHistogram:
    """Return a histogram of the cosines of all pairs of nonzero rows in the sample."""
    rows = sample.vectors[nonzero_rows(sample.vectors)]
    counted = CosineCounter()
    nearest_neighbors(unit_rows(np, rows, rows.dtype), 1, cosines=counted)
    return counted.histogram()


def _list_overlaps(sample: Sample) -> dict[tuple[str, str], np.ndarray]:
    """Return the overlap of the neighbor lists by cosine, inner product and Euclidean distance, for nonzero rows."""
    at = np.flatnonzero(nonzero_rows(sample.vectors))
    if len(at) < LIST_LENGTH + 2:  # a list would contain all other rows
        return {}
    asked = np.flatnonzero(np.isin(at, sample.first(_LIST_PRODUCTS // len(at))))
    rows = sample.vectors if len(at) == len(sample) else sample.vectors[at]
    return list_overlaps(rows, asked, LIST_LENGTH) if len(asked) else {}


def count_queries(n: int, sample: int) -> int:
    """Return how many of the given queries are used for a search among n rows."""
    return n if n <= sample else min(max(sample * sample // n, _MIN_QUERIES), sample)


def count_query_rows(n: int, sample: int) -> int:
    """Return the number of rows of a sample whose neighbors are searched among all n rows.

    This search takes at most half as long as the search within the sample, unless 1,000 rows take longer. Four times as
    many rows would halve the intervals of the findings that use it.
    """
    return min(max(sample * sample // (4 * n), _MIN_QUERIES), sample)


def count_lid_neighbors(n: int) -> int:
    """Return the number of neighbors for the local dimension: a tenth of the n rows, limited to 10 to 100."""
    return min(max(n // 10, LIST_LENGTH), LID_NEIGHBORS, n - 1)


class _SampleSearch:
    """A search for the neighbors of some rows among all rows, and of the sample's rows within the sample."""

    def __init__(self, placed: RowScaling, sketch: Sketch, sample: Sample, usable: np.ndarray, skipped: dict[str, str]):
        self.placed, self.sketch, self.sample, self.usable = placed, sketch, sample, usable
        self.search: NeighborSearch | None = None
        self.cosines: CosineHistogram | None = None
        """A histogram of the cosines of all pairs in the sample, if the search computed them."""
        self.enough = len(usable) >= 4
        if not self.enough:
            skipped["neighbors"] = f"{len(usable)} rows are nonzero: need at least 4 to measure nearest neighbors"
        elif len(sample) < sketch.n:
            ask = sample.first(count_query_rows(sketch.n, len(sample)))
            self.ask = ask[np.isin(ask, usable)]
            k = count_lid_neighbors(sketch.n - (sketch.zeros if placed.metric == "cosine" else 0))
            self.search = NeighborSearch(
                placed(sample.vectors[self.ask]), k, center=placed.center, own=sample.rows[self.ask]
            )

    @cached_property
    def rows(self) -> np.ndarray:
        """The usable rows of the sample, scaled."""
        vectors = self.sample.vectors
        return self.placed(vectors if len(self.usable) == len(vectors) else vectors[self.usable])

    def result(self) -> tuple[Neighborhood | None, Neighborhood | None]:
        """Return the neighbors among all rows, and within the sample."""
        if not self.enough:
            return None, None
        usable, unit, among = self.usable, self.placed.unit, len(self.usable)
        k = count_lid_neighbors(among) if self.search is None else min(LIST_LENGTH, among - 1)
        counted = CosineCounter() if self.placed.metric == "cosine" else None
        distances, at = nearest_neighbors(self.rows, k, cosines=counted)
        self.cosines = None if counted is None else counted.histogram()
        within = Neighborhood(usable, distances[:, :LIST_LENGTH] * unit, usable[at[:, :LIST_LENGTH]], among)
        if self.search is None:
            return Neighborhood(self.sample.rows[usable], distances * unit, self.sample.rows[usable[at]], among), within
        distances, indices = self.search.results()
        return Neighborhood(self.sample.rows[self.ask], distances * unit, indices, self.sketch.n), within


class _QuerySearch:
    """A search for the rows of the corpus nearest to each query, or to each of a sample of the queries."""

    def __init__(self, store: Store, corpus: MeasurementRun, progress: Progress, engine: Engine):
        placed, sketch, sample, settings = corpus.placed, corpus.sketch, corpus.sample, corpus.settings
        self.name, self.unit = store.name, placed.unit
        self.rows = sample.rows if len(sample) == sketch.n else None
        size = settings.sample if self.rows is not None else count_queries(sketch.n, settings.sample)
        self.first = first_pass(engine, store, settings, progress, "reading queries", size=size)
        vectors = self.first.sample.vectors.astype(sample.vectors.dtype)
        vectors = vectors[placed.usable(vectors)]
        if not len(vectors):
            raise TooFewRowsError(f"all queries in {store.name} are zero: need at least one nonzero query")
        k = min(LIST_LENGTH, sketch.n - (sketch.zeros if placed.metric == "cosine" else 0))
        self.search = NeighborSearch(placed(vectors), k, center=placed.center)

    def result(self) -> QueryNeighbors:
        """Return the rows of the corpus that are nearest to each query."""
        distances, indices = self.search.results()
        if self.rows is not None:  # the second pass numbered rows by their position in the sample
            indices = self.rows[indices]
        return QueryNeighbors(self.name, self.first.sketch.n, self.first.sketch, distances * self.unit, indices)
