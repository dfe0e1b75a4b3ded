"""All measurements that apply to a store, made in at most two passes over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.arrays import nonzero_rows, unit_rows
from isoscope._core.errors import InputError
from isoscope._core.pairs import CosineCounts, NeighborSearch, nearest_neighbors
from isoscope.auditing.grouping import drop_single_groups
from isoscope.auditing.metric_lists import list_overlaps
from isoscope.auditing.near_duplicates import near_duplicates, typical_distance
from isoscope.auditing.passes import NeighborTally, PartitionTally, RowScaling, first_pass, principal_axes, second_pass
from isoscope.auditing.structure import LID_SEARCH_ROWS, cluster_rows, label_scores, local_distances
from isoscope.engines.engine import CombinedTally
from isoscope.metrics.topology import h0_barcode

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.auditing.near_duplicates import NearDuplicates
    from isoscope.auditing.passes import Axes, FirstPass
    from isoscope.auditing.settings import Settings
    from isoscope.auditing.structure import LocalDistances
    from isoscope.auditing.type_cosines import TypeCosines
    from isoscope.engines.engine import Engine, Tally
    from isoscope.metrics.clusters import ClusterChoice
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Store

LID_NEIGHBORS = 100
"""Neighbours that the local dimension looks at (Cai et al.), where there are ten times as many rows."""
LIST_LENGTH = 10
"""Results in a list, for hubness and for how far two spaces agree."""
COSINE_BINS = 2**14

_CLUSTER_ROWS = 4_000
_BARCODE_ROWS = 1_500
_MIN_QUERIES = 1_000
_LIST_PRODUCTS = 20_000_000  # pairs of rows that are ranked by several metrics, at most
_FEW_ROWS = 30
_LENGTH_RANGE = (1e-60, 1e18)  # whose fourth powers float64, and whose squares float32, can hold


@dataclass(frozen=True)
class Neighborhood:
    """The nearest rows of some rows: distances and numbers, nearest first."""

    asked: np.ndarray
    """Numbers of the rows that ask (positions, for a list within the sample)."""
    distances: np.ndarray
    indices: np.ndarray
    n_searched: int
    """How many rows were searched."""


@dataclass(frozen=True)
class QueryNeighbors:
    """Where queries lie, seen from the corpus."""

    name: str
    n: int
    sketch: Sketch
    distances: np.ndarray
    """To the nearest rows of the corpus."""
    indices: np.ndarray


@dataclass
class Measurements:
    """The numbers and the sample from which findings and pictures are made."""

    name: str
    dtype: str
    settings: Settings
    sketch: Sketch
    sample: Sample
    raw: Axes
    """Of the second moment XᵀX."""
    centred: Axes
    """Of the scatter about the mean."""
    partition: np.ndarray
    """log Z of each direction, for each of some groups of rows."""
    unit_partition: np.ndarray
    """The same of rows scaled to a root-mean-square length of 1."""
    cosines: np.ndarray
    """Counts of the sample's cosines in equal bins from −1 to 1."""
    around: Neighborhood | None
    """The nearest of some queries among all rows."""
    lists: Neighborhood | None
    """The nearest of each row of the sample within it, by position."""
    local: LocalDistances | None
    """What the local dimension is read from and judged by."""
    near_duplicates: NearDuplicates | None
    """The rows that nearly repeat another, seen from the rows that ask for neighbors among all rows."""
    list_overlaps: dict[tuple[str, str], np.ndarray]
    """By two metrics: the share of its nearest rows in the sample that each of some rows keeps; empty for few rows."""
    clusters: ClusterChoice | None
    cluster_positions: np.ndarray
    """Positions in the sample of the rows that were clustered."""
    bars: np.ndarray
    bar_rows: int
    label_scores: np.ndarray | None
    """Each row's silhouette under the labels."""
    shuffled_scores: np.ndarray | None
    """The same under shuffled labels."""
    queries: QueryNeighbors | None
    types: TypeCosines | None
    """How alike rows of one type and of different types are."""
    columns: dict[str, str] = field(default_factory=dict)
    n_dropped_types: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    """What could not be measured, and why."""

    @property
    def n(self) -> int:
        """Finite rows."""
        return self.sketch.n

    @property
    def d(self) -> int:
        """Dimensions."""
        return self.sketch.d

    @property
    def whole(self) -> bool:
        """Whether the sample is everything."""
        return len(self.sample) == self.n


def measure(
    store: Store, *, queries: Store | None, settings: Settings, progress: Progress, engine: Engine
) -> Measurements:
    """Measure everything that applies."""
    store = drop_single_groups(store.without("ids"))  # ids say nothing of the space
    if queries is not None and queries.dim != store.dim:
        raise InputError(
            f"queries of {queries.dim} dimensions against a corpus of {store.dim}: they must come from one model"
        )
    first = first_pass(engine, store, settings, progress, "summing up", columns=store.columns)
    one = MeasurementRun(store.name, store, settings, first)
    sketch, sample = one.sketch, one.sample
    seek = None if queries is None else _QuerySearch(queries, one.placed, sketch, sample, settings, progress, engine)
    progress("partition and neighbours", 0, 0.0)
    tally = one.second(() if seek is None else (seek.search,))
    second_pass(engine, tally, store, sample, sketch.n, progress, "partition and neighbours")
    return one.measured(progress, None if seek is None else seek.found())


class MeasurementRun:
    """A cloud between the passes: what the first gave, what the second and third are to find, and the rest from both.

    Parameters
    ----------
    name : str
        What the cloud is called.
    store : Store
        Where its rows come from.
    settings : Settings
        What is asked for.
    first : FirstPass
        What the first pass gave; an `InputError` if it cannot be measured.
    """

    def __init__(self, name: str, store: Store, settings: Settings, first: FirstPass):
        _check_measurable(name, first.sketch, first.sample)
        self.name, self.settings = name, settings
        self.dtype, self.columns = str(store.dtype), dict(store.columns)
        self.first, self.sketch, self.sample = first, first.sketch, first.sample
        self.skipped: dict[str, str] = {}
        blocks = self.sketch.groups
        if blocks is not None and not blocks.can_estimate:
            self.skipped["groups"] = (
                f"{blocks.groups} groups of rows that depend on each other: need 5 to allow for that; estimates and "
                "intervals assume independent rows"
            )
            self.sketch = replace(self.sketch, groups=None)
            self.columns.pop("groups", None)
        self.placed = RowScaling(settings.metric, self.sketch)
        self.raw = principal_axes(self.sketch, self.sample, centred=False)
        self.usable = np.flatnonzero(self.placed.usable(self.sample.vectors))
        self.ask = _SampleSearch(self.placed, self.sketch, self.sample, self.usable, self.skipped)
        self.sums = PartitionTally(self.sketch, self.raw)

    @property
    def whole(self) -> bool:
        """Whether the sample holds all rows, so that they need not be read again."""
        return len(self.sample) == self.sketch.n

    def second(self, searches: Sequence[NeighborSearch] = ()) -> Tally:
        """What all rows are to be shown to in the second pass, and to other `searches` besides."""
        searches = [*([] if self.ask.search is None else [self.ask.search]), *searches]
        return CombinedTally(self.sums, NeighborTally(searches, self.placed)) if searches else self.sums

    def measured(self, progress: Progress, queries: QueryNeighbors | None = None) -> Measurements:
        """After all passes: what they found, and what is measured on the sample."""
        sketch, sample, settings, skipped = self.sketch, self.sample, self.settings, self.skipped
        around, lists = self.ask.found()
        if self.ask.cosines is None:
            progress("pairs of the sample", 0, 0.0)
        cosines = self.ask.cosines if self.ask.cosines is not None else _count_cosines(sample)
        if sketch.n < _FEW_ROWS:
            skipped["few_rows"] = (
                f"{sketch.n} rows say little of the space they come from: read every number as a guess"
            )
        progress("clusters", 0, 0.0)
        at = sample.first(_CLUSTER_ROWS)
        centred = principal_axes(sketch, sample, centred=True)
        clusters = cluster_rows(sample.vectors[at], centred, settings.seed, skipped)
        local = self._local_distances(centred, around)
        progress("barcode", 0, 0.0)
        bar_rows = self.placed(sample.vectors[sample.first(_BARCODE_ROWS)])
        partition, unit_partition = self.sums.log_partitions()
        scores, shuffled = label_scores(sample, self.usable, settings, skipped)
        return Measurements(
            name=self.name,
            dtype=self.dtype,
            settings=settings,
            sketch=sketch,
            sample=sample,
            raw=self.raw,
            centred=centred,
            partition=partition,
            unit_partition=unit_partition,
            cosines=cosines,
            around=around,
            lists=lists,
            local=local,
            near_duplicates=self._near_duplicates(around),
            list_overlaps=_list_overlaps(sample),
            clusters=clusters,
            cluster_positions=at,
            bars=np.asarray(h0_barcode(bar_rows), np.float64),
            bar_rows=len(bar_rows),
            label_scores=scores,
            shuffled_scores=shuffled,
            queries=queries,
            types=self.first.types,
            columns=self.columns,
            n_dropped_types=self.first.n_dropped_types,
            skipped=skipped,
        )

    def _local_distances(self, centred: Axes, around: Neighborhood | None) -> LocalDistances | None:
        """The distances within the sample that the local dimension is read from, and its null."""
        if around is None:
            return None
        at, seed = self.sample.first(LID_SEARCH_ROWS), self.settings.seed
        rows = self.sample.vectors[at[np.isin(at, self.usable)]]
        known = around.distances if self.whole and len(at) == len(self.sample) else None
        return local_distances(self.sketch, rows, centred, self.placed, count_lid_neighbors(len(rows)), seed, known)

    def _near_duplicates(self, around: Neighborhood | None) -> NearDuplicates | None:
        if around is None:
            return None
        typical = typical_distance(self.placed(self.sample.vectors[self.usable]), self.settings.seed)
        return near_duplicates(
            around.asked,
            around.distances,
            around.indices,
            typical=typical * self.placed.unit,
            n=around.n_searched,
            d=self.sketch.d,
        )


def _check_measurable(name: str, sketch: Sketch, sample: Sample) -> None:
    """Refuse a cloud without a shape."""
    if sketch.n < 4 or sketch.d < 2:
        raise InputError(
            f"{name} has {sketch.n} vectors of {sketch.d} dimensions: an audit needs 4 vectors of 2 at least"
        )
    if sketch.n - sketch.zeros < 2:
        raise InputError(
            f"{sketch.zeros:,} of {sketch.n:,} vectors of {name} are zero: an audit needs two that are not"
        )
    if not _LENGTH_RANGE[0] < sketch.greatest_norm < _LENGTH_RANGE[1]:
        raise InputError(
            f"vectors of {name} reach {sketch.greatest_norm:.3g} in length: need {_LENGTH_RANGE[0]:g} to "
            f"{_LENGTH_RANGE[1]:g}, scale them"
        )
    if nonzero_rows(sample.vectors).sum() < 2:
        raise InputError(
            f"{sketch.zeros:,} of {sketch.n:,} vectors of {name} are zero, and nearly all sampled: drop them first"
        )


def measure_cosines(
    store: Store, *, settings: Settings, progress: Progress, engine: Engine
) -> tuple[np.ndarray, Neighborhood | None]:
    """Only what tells a cosine's worth: counts of the sample's cosines, and neighbours; at most two passes."""
    first = first_pass(engine, store, settings, progress, "summing up")
    sketch, sample = first.sketch, first.sample
    placed = RowScaling("cosine", sketch)
    usable = np.flatnonzero(placed.usable(sample.vectors))
    if len(usable) < 2:
        raise InputError(f"{len(usable)} vectors of {store.name} have a direction: need 2 for a cosine")
    ask = _SampleSearch(placed, sketch, sample, usable, {})
    if ask.search is not None:
        second_pass(engine, NeighborTally([ask.search], placed), store, sample, sketch.n, progress, "neighbours")
    around = ask.found()[0]
    return (_count_cosines(sample) if ask.cosines is None else ask.cosines), around


def _count_cosines(sample: Sample) -> np.ndarray:
    """Counts of the cosines of all pairs of the sample's rows, zero rows left out."""
    rows = sample.vectors[nonzero_rows(sample.vectors)]
    counted = CosineCounts(COSINE_BINS)
    nearest_neighbors(unit_rows(np, rows, rows.dtype), 1, cosines=counted)
    return counted.counts


def _list_overlaps(sample: Sample) -> dict[tuple[str, str], np.ndarray]:
    """How far the lists by cosine, inner product and Euclidean distance agree, zero rows left out."""
    at = np.flatnonzero(nonzero_rows(sample.vectors))
    if len(at) < LIST_LENGTH + 2:  # one list holds all other rows
        return {}
    asked = np.flatnonzero(np.isin(at, sample.first(_LIST_PRODUCTS // len(at))))
    return list_overlaps(sample.vectors[at], asked, LIST_LENGTH) if len(asked) else {}


def count_queries(n: int, sample: int) -> int:
    """How many rows look for their neighbours among n: all that a sample holds, else few enough to bound the work."""
    return n if n <= sample else min(max(sample * sample // n, _MIN_QUERIES), sample)


def count_lid_neighbors(n: int) -> int:
    """How many neighbours the local dimension looks at among n rows: a tenth of them, within what is customary."""
    return min(max(n // 10, LIST_LENGTH), LID_NEIGHBORS, n - 1)


class _SampleSearch:
    """The neighbours of some rows among all, and of all rows of the sample within it."""

    def __init__(self, placed: RowScaling, sketch: Sketch, sample: Sample, usable: np.ndarray, skipped: dict[str, str]):
        self.placed, self.sketch, self.sample, self.usable = placed, sketch, sample, usable
        self.search: NeighborSearch | None = None
        self.cosines: np.ndarray | None = None
        """Counts of the cosines of all pairs of the sample, if they came along."""
        self.enough = len(usable) >= 4
        if not self.enough:
            skipped["neighbors"] = f"{len(usable)} rows have a direction: need 4 for neighbours"
        elif len(sample) < sketch.n:
            ask = sample.first(count_queries(sketch.n, len(sample)))
            self.ask = ask[np.isin(ask, usable)]
            k = count_lid_neighbors(sketch.n - (sketch.zeros if placed.metric == "cosine" else 0))
            self.search = NeighborSearch(
                placed(sample.vectors[self.ask]), k, centre=placed.centre, own=sample.rows[self.ask]
            )

    def found(self) -> tuple[Neighborhood | None, Neighborhood | None]:
        if not self.enough:
            return None, None
        usable, unit, among = self.usable, self.placed.unit, len(self.usable)
        k = count_lid_neighbors(among) if self.search is None else min(LIST_LENGTH, among - 1)
        counted = CosineCounts(COSINE_BINS) if self.placed.metric == "cosine" else None
        distances, at = nearest_neighbors(self.placed(self.sample.vectors[usable]), k, cosines=counted)
        self.cosines = None if counted is None else counted.counts
        within = Neighborhood(usable, distances[:, :LIST_LENGTH] * unit, usable[at[:, :LIST_LENGTH]], among)
        if self.search is None:
            return Neighborhood(self.sample.rows[usable], distances * unit, self.sample.rows[usable[at]], among), within
        distances, indices = self.search.found()
        return Neighborhood(self.sample.rows[self.ask], distances * unit, indices, self.sketch.n), within


class _QuerySearch:
    """The nearest rows of the corpus to each query, or to a sample of them."""

    def __init__(
        self,
        store: Store,
        placed: RowScaling,
        sketch: Sketch,
        sample: Sample,
        settings: Settings,
        progress: Progress,
        engine: Engine,
    ):
        self.name, self.unit = store.name, placed.unit
        self.rows = sample.rows if len(sample) == sketch.n else None
        size = settings.sample if self.rows is not None else count_queries(sketch.n, settings.sample)
        self.first = first_pass(engine, store, settings, progress, "reading queries", size=size)
        vectors = self.first.sample.vectors.astype(sample.vectors.dtype)
        vectors = vectors[placed.usable(vectors)]
        if not len(vectors):
            raise InputError(f"all queries of {store.name} are zero: they have no direction")
        k = min(LIST_LENGTH, sketch.n - (sketch.zeros if placed.metric == "cosine" else 0))
        self.search = NeighborSearch(placed(vectors), k, centre=placed.centre)

    def found(self) -> QueryNeighbors:
        distances, indices = self.search.found()
        if self.rows is not None:  # rows were numbered as they are held
            indices = self.rows[indices]
        return QueryNeighbors(self.name, self.first.sketch.n, self.first.sketch, distances * self.unit, indices)


def percentile(counts: np.ndarray, cosine: float) -> float:
    """The share of pairs whose cosine is below this one, 0…1, from counts in equal bins from −1 to 1."""
    place = (cosine + 1) / 2 * len(counts)
    whole = min(max(math.floor(place), 0), len(counts) - 1)  # what shares its bin with the cosine is not below it
    return float(counts[:whole].sum()) / float(counts.sum())


def quantile(counts: np.ndarray, share: float) -> float:
    """The cosine below which this share of pairs lies."""
    some = np.flatnonzero(counts)
    edges = np.linspace(-1, 1, len(counts) + 1)[some[0] : some[-1] + 2]
    below = np.concatenate([[0], np.cumsum(counts[some[0] : some[-1] + 1])]) / counts.sum()
    return float(np.interp(share, below, edges))
