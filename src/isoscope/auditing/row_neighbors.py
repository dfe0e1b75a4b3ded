"""Measure every row of a store against its nearest rows: among all rows, or among a sample of a large store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import TILE_BYTES, blocks, to_numpy
from isoscope._core.errors import InputError
from isoscope._core.memory import fitting_rows
from isoscope._core.pairs import NeighborSearch, nearest_neighbors
from isoscope.auditing.findings.neighborhoods import check_ties, has_few_copies
from isoscope.auditing.measure import LIST_LENGTH, count_lid_neighbors
from isoscope.auditing.near_duplicates import (
    CLOSE_SHARE,
    FALSE_DISCOVERY_RATE,
    near_duplicates,
    pair_p_values,
    typical_distance,
)
from isoscope.auditing.nulls import discovery_threshold
from isoscope.auditing.outliers import MIN_OUTLIER_ROWS, find_outliers, fit_outliers, neighbor_differences
from isoscope.auditing.passes import RowScaling
from isoscope.engines.engine import SampleTally, Tally
from isoscope.metrics.neighbors import local_dimensions
from isoscope.sketching.row_sums import hash_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isoscope._io.progress import Progress
    from isoscope.auditing.measure import Measurements
    from isoscope.auditing.near_duplicates import NearDuplicates
    from isoscope.auditing.outliers import OutlierModel
    from isoscope.engines.engine import Engine
    from isoscope.stores.sampling import Sample
    from isoscope.stores.store import Batch, Store

MAX_EXACT_ROWS = 100_000
"""Up to this number of rows, neighbors are searched among all rows; above, among the sample of the audit."""
HUB_FACTOR = 5
"""A hub is in more than this many times the average number of lists."""
_MAX_SCORE = 300.0  # the exponent of the smallest p-value
CONFLICT_SHARE = 0.5
"""A label conflict requires that at least this share of a row's neighbors have the same other label."""


@dataclass
class RowNeighbors:
    """The measurements of each row that need its nearest rows; one entry for each row of the store."""

    searched: int
    """The number of rows among which neighbors were searched."""
    exact: bool
    """Whether these are all rows."""
    list_length: int
    """The number of nearest rows for k-occurrence, labels and outliers."""
    lid_neighbors: int
    """The number of nearest rows for the local dimension."""
    nearest: np.ndarray
    """The row number of the nearest row; −1 for a row without neighbors."""
    distance: np.ndarray
    """The distance to it; NaN for a row without neighbors."""
    lid: np.ndarray
    """The local intrinsic dimension; NaN where it is undefined."""
    occurrences: np.ndarray
    """The k-occurrence; −1 where it is unknown."""
    p_value: np.ndarray
    """The probability that an ordinary row is as unusual; NaN where it is undefined."""
    is_outlier: np.ndarray
    is_copy: np.ndarray
    """Whether an earlier row has the same values."""
    is_near_duplicate: np.ndarray
    is_zero: np.ndarray
    is_dropped: np.ndarray
    group: np.ndarray
    """The smallest row number in the row's group of copies and near-duplicates; −1 if it is in none."""
    closest_pairs: np.ndarray
    """(g, 2): the closest pair of rows in each group, closest first; groups of zero rows are left out."""
    closest_distances: np.ndarray
    """(g,): their distances."""
    same_label: np.ndarray | None
    """The share of the nearest rows that have the row's label; NaN if it has no neighbors. None without labels."""
    neighbor_label: np.ndarray | None
    """The most frequent label among the nearest rows, as a code into `label_names`; −1 for a row without neighbors."""
    neighbor_label_share: np.ndarray | None
    label_names: np.ndarray | None
    lists: tuple[np.ndarray, np.ndarray] | None
    """The row numbers and distances of the nearest rows, with shape (rows, k); None if neighbors were sampled."""
    notes: dict[str, str] = field(default_factory=dict)
    """The measurements that could not be made, and the reason for each."""

    def __len__(self) -> int:
        return len(self.nearest)

    @property
    def score(self) -> np.ndarray:
        """The outlier score of each row: −log₁₀ of its p-value, 0 for most rows; NaN where it is undefined."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.minimum(-np.log10(self.p_value), _MAX_SCORE) + 0.0)

    @property
    def is_hub(self) -> np.ndarray:
        """Whether each row is in more than 5 times the average number of lists."""
        return np.asarray(self.occurrences > HUB_FACTOR * self.list_length)

    @property
    def is_anti_hub(self) -> np.ndarray:
        """Whether each row has the k-occurrence 0 (anti-hub)."""
        return np.asarray(self.occurrences == 0)

    @property
    def has_label_conflict(self) -> np.ndarray:
        """Whether no neighbor has the row's label, and at least half of them share another one."""
        if self.same_label is None or self.neighbor_label_share is None:
            return np.zeros(len(self), bool)
        return np.asarray((self.same_label == 0) & (self.neighbor_label_share >= CONFLICT_SHARE))


def measure_row_neighbors(store: Store, measured: Measurements, progress: Progress, engine: Engine) -> RowNeighbors:
    """Measure every row of the store against its nearest rows, after an audit.

    The audit's own search is reused if it included all rows. Otherwise, up to `MAX_EXACT_ROWS` rows are read into
    memory and searched. In a larger store, the neighbors of each row are searched in the sample of the audit.

    Parameters
    ----------
    store : Store
        The source of the rows.
    measured : Measurements
        The measurements of the audit.
    progress : Progress
        A function that is called with the progress.
    engine : Engine
        The engine that reads the rows.
    """
    columns = [role for role in ("labels", "ids") if role in store.columns]  # ids are read to check their values
    if measured.complete:
        sample = measured.sample
        if "ids" in store.columns:
            store.column("ids")
    elif measured.n <= _exact_rows(store, measured):
        tally = SampleTally(len(store), measured.settings.seed, store.name, measured.settings.drop, columns)
        sample = engine.tally(tally, store, progress, "reading all rows").sampler.sample()
    else:
        return _search_sample(store, measured, columns, progress, engine)
    progress("rows", 0, 0.0)
    return _search_all(len(store), sample, measured)


def _exact_rows(store: Store, measured: Measurements) -> int:
    fitting = fitting_rows(store.dim, store.dtype.itemsize)
    return MAX_EXACT_ROWS if fitting is None else min(MAX_EXACT_ROWS, fitting - len(measured.sample))


class _SearchedRows:
    """The rows among which neighbors are searched, with the outlier model and the labels."""

    def __init__(self, sample: Sample, measured: Measurements):
        self.placed = RowScaling(measured.settings.metric, measured.sketch)
        usable = self.placed.usable(sample.vectors)
        self.rows = sample.rows[usable]
        self.vectors = self.placed(sample.vectors[usable])
        self.eps = float(np.finfo(self.vectors.dtype).eps)
        self.d = measured.d
        self.typical = typical_distance(self.vectors, measured.settings.seed) if len(self.rows) > 1 else 0.0
        self.codes: np.ndarray | None = None
        self.names: np.ndarray | None = None
        self.model: OutlierModel | None = None
        self.p_values: np.ndarray | None = None
        if measured.label_scores is not None:
            self.names, codes = np.unique(sample.columns["labels"], return_inverse=True)
            self.codes = codes[usable]

    @property
    def near(self) -> float:
        """The distance up to which a neighbor counts as a near-duplicate of an outlier."""
        return CLOSE_SHARE * self.typical

    def fit(self, distances: np.ndarray, positions: np.ndarray) -> None:
        """Estimate the outlier model from the neighbors of these rows."""
        found = fit_outliers(self.vectors, distances, positions, self.near)
        if found is not None:
            self.model, self.p_values = found

    def describe(self, distances: np.ndarray, positions: np.ndarray, labels: np.ndarray | None) -> dict[str, Any]:
        """Return the measurements of rows, given the distances and positions of their nearest rows, and their labels.

        `labels` contains codes; −1 is a label that no searched row has.
        """
        lid, known = local_dimensions(np, distances, self.eps)
        part: dict[str, Any] = {
            "nearest": self.rows[positions[:, 0]],
            "distance": distances[:, 0] * self.placed.unit,
            "lid": np.where(known & has_few_copies(distances), lid, np.nan),
        }
        if self.codes is not None and labels is not None:
            near = self.codes[positions[:, :LIST_LENGTH]]
            votes = (near[:, :, None] == near[:, None, :]).sum(axis=2)
            most = votes.argmax(axis=1)
            part["same_label"] = (near == labels[:, None]).mean(axis=1)
            part["neighbor_label"] = near[np.arange(len(near)), most]
            part["neighbor_label_share"] = votes[np.arange(len(near)), most] / near.shape[1]
        return part


_FILLS = {
    **{"nearest": (np.int64, -1), "distance": (np.float32, np.nan), "lid": (np.float32, np.nan)},
    **{"p_value": (np.float64, np.nan), "same_label": (np.float32, np.nan), "neighbor_label": (np.int32, -1)},
    **{"neighbor_label_share": (np.float32, np.nan), "partner": (np.int64, -1), "chance": (np.float64, 1.0)},
}


class _RowArrays:
    """The measurements of each row of a store, filled part by part."""

    def __init__(self, n: int, names: Sequence[str]):
        self.arrays = {name: np.full(n, fill, dtype) for name, (dtype, fill) in _FILLS.items() if name in names}

    def set_rows(self, rows: np.ndarray, part: dict[str, Any]) -> None:
        """Set the measurements of these rows."""
        for name, values in part.items():
            self.arrays[name][rows] = values


def _search_all(n: int, sample: Sample, measured: Measurements) -> RowNeighbors:
    """Search the neighbors of each row among all rows, which are in memory; `n` is the number of rows of the store."""
    searched = _SearchedRows(sample, measured)
    names = ["nearest", "distance", "lid", "p_value", *(_LABEL_COLUMNS if searched.codes is not None else ())]
    filled = _RowArrays(n, names)
    pairs: NearDuplicates | None = None
    lists, occurrences, k = None, np.full(n, -1, np.int32), 0
    notes: dict[str, str] = {}
    edges, gaps = np.empty((0, 2), np.int64), np.empty(0)
    if len(searched.rows) >= 4:
        unit = searched.placed.unit
        if sample is measured.sample and measured.around is not None:
            around = measured.around
            distances, positions = around.distances / unit, np.searchsorted(searched.rows, around.indices)
            pairs = measured.near_duplicates
        else:
            distances, positions = nearest_neighbors(searched.vectors, count_lid_neighbors(len(searched.rows)))
            pairs = near_duplicates(
                searched.rows,
                distances * unit,
                searched.rows[positions],
                typical=searched.typical * unit,
                n=len(searched.rows),
                d=searched.d,
            )
        k = distances.shape[1]
        for part in blocks(len(distances), _block_rows(k)):
            labels = None if searched.codes is None else searched.codes[part]
            filled.set_rows(searched.rows[part], searched.describe(distances[part], positions[part], labels))
        searched.fit(distances, positions)
        if searched.p_values is not None:
            filled.set_rows(searched.rows, {"p_value": searched.p_values})
        first = positions[:, :LIST_LENGTH]
        lists = np.full((n, first.shape[1]), -1), np.full((n, first.shape[1]), np.nan, np.float32)
        lists[0][searched.rows] = searched.rows[first]
        lists[1][searched.rows] = distances[:, :LIST_LENGTH] * unit
        occurrences, notes = _count_occurrences(n, searched.rows, first, distances[:, :LIST_LENGTH])
        same, place = np.nonzero(distances <= 0)
        edges = np.column_stack([searched.rows[same], searched.rows[positions[same, place]]])
        gaps = np.zeros(len(edges))
        if pairs is not None:
            edges = np.concatenate([edges, pairs.pairs])
            gaps = np.concatenate([gaps, pairs.distances * searched.typical * unit])
    hashes, finite = np.zeros(n, np.uint64), np.zeros(n, bool)
    finite[sample.rows], hashes[sample.rows] = True, hash_rows(sample.vectors)
    is_zero = np.zeros(n, bool)
    is_zero[sample.rows] = ~sample.vectors.any(axis=1)
    near = np.zeros(n, bool)
    if pairs is not None:
        near[pairs.pairs.ravel()] = True
    return _assemble(
        searched,
        filled.arrays,
        exact=True,
        list_length=0 if lists is None else lists[0].shape[1],
        lid_neighbors=k,
        occurrences=occurrences,
        near=near,
        finite=finite,
        is_zero=is_zero,
        hashes=hashes,
        edges=edges,
        gaps=gaps,
        lists=lists,
        notes=notes,
    )


def _search_sample(
    store: Store, measured: Measurements, columns: list[str], progress: Progress, engine: Engine
) -> RowNeighbors:
    """Search the neighbors of each row in the sample of the audit, in one more pass over the store."""
    searched, lists = _SearchedRows(measured.sample, measured), measured.lists
    n = len(store)
    assert lists is not None  # a sample has at least 100 rows, and two of them are nonzero
    positions = np.searchsorted(searched.rows, measured.sample.rows[lists.indices])
    distances = lists.distances / searched.placed.unit
    searched.fit(distances, positions)
    tally = engine.tally(RowTally(searched, columns), store, progress, "neighbors of each row")
    arrays = tally.result()
    occurrences, notes = _count_occurrences(n, searched.rows, positions, distances)
    near = arrays["chance"] <= discovery_threshold(arrays["chance"], FALSE_DISCOVERY_RATE)
    edges = [np.column_stack([np.flatnonzero(near), arrays["partner"][near]])]
    gaps = [arrays["gap"][near]]
    same = np.flatnonzero(arrays["distance"] <= 0)
    edges.append(np.column_stack([same, arrays["nearest"][same]]))
    gaps.append(np.zeros(len(same)))
    near[arrays["partner"][near]] = True
    return _assemble(
        searched,
        arrays,
        exact=False,
        list_length=positions.shape[1],
        lid_neighbors=tally.k,
        occurrences=occurrences,
        near=near,
        finite=arrays["finite"],
        is_zero=arrays["zero"],
        hashes=arrays["hash"],
        edges=np.concatenate(edges),
        gaps=np.concatenate(gaps),
        lists=None,
        notes=notes,
    )


_LABEL_COLUMNS = ("same_label", "neighbor_label", "neighbor_label_share")


class RowTally(Tally):
    """A tally of the measurements of each row, for neighbors that are searched in a sample."""

    def __init__(self, searched: _SearchedRows, columns: Sequence[str]):
        self.searched, self.columns = searched, list(columns)
        self.k = count_lid_neighbors(len(searched.rows))
        self.parts: list[dict[str, np.ndarray]] = []

    def summarize(self, item: Batch) -> tuple[Batch, np.ndarray, np.ndarray]:
        """Return the batch, its scaled rows, and a mask of those that can have neighbors."""
        rows = to_numpy(item.vectors)
        usable = self.searched.placed.usable(rows)
        return item._replace(vectors=rows), self.searched.placed(rows[usable]), usable

    def add(self, part: tuple[Batch, np.ndarray, np.ndarray]) -> None:
        """Search the neighbors of the rows of a batch; the search uses its own threads."""
        batch, placed, usable = part
        searched, n = self.searched, len(batch.vectors)
        rows = batch.start + np.flatnonzero(usable)
        own = np.minimum(np.searchsorted(searched.rows, rows), len(searched.rows) - 1)
        own[searched.rows[own] != rows] = -1
        search = NeighborSearch(placed, self.k, center=searched.placed.center, own=own)
        search.offer(searched.vectors, 0, np.ones(len(searched.rows), bool))
        distances, positions = search.results()
        labels = None
        if searched.names is not None:
            labels = _encode(batch.columns["labels"][usable], searched.names)
        values = searched.describe(distances, positions, labels)
        chances = pair_p_values(distances, searched.typical, len(searched.rows), searched.d)
        best = chances.argmin(axis=1)
        at = np.arange(len(best))
        values |= {"chance": chances[at, best], "partner": searched.rows[positions[at, best]]}
        values["gap"] = distances[at, best] * searched.placed.unit
        if searched.model is not None and searched.p_values is not None:
            differences = neighbor_differences(placed, searched.vectors, distances, positions, searched.near)
            p_values = searched.model.p_values(placed, differences)
            values["p_value"] = np.where(own >= 0, searched.p_values[own], p_values)
        filled = _RowArrays(n, [name for name in _FILLS if name in values])
        filled.arrays["gap"] = np.full(n, np.nan, np.float32)
        filled.set_rows(np.flatnonzero(usable), values)
        finite = np.isfinite(batch.vectors).all(axis=1)
        more = {"finite": finite, "zero": finite & ~batch.vectors.any(axis=1), "hash": hash_rows(batch.vectors)}
        self.parts.append(filled.arrays | more)

    def partial_result(self) -> list[dict[str, np.ndarray]]:
        """Return the measurements of the rows so far."""
        return self.parts

    def join(self, gathered: list[dict[str, np.ndarray]]) -> None:
        """Append the measurements of later rows."""
        self.parts += gathered

    def result(self) -> dict[str, np.ndarray]:
        """Return the measurements of all rows, by name."""
        return {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}


def _encode(labels: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the codes of labels in sorted names; −1 for a label that is not among them."""
    codes = np.minimum(np.searchsorted(names, labels), len(names) - 1)
    return np.asarray(np.where(names[codes] == labels, codes, -1))


def _count_occurrences(
    n: int, rows: np.ndarray, positions: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, dict[str, str]]:
    """Return the k-occurrence of each row, −1 if it is unknown, and a note if it cannot be measured."""
    occurrences = np.full(n, -1, np.int32)
    try:
        check_ties(distances)
    except InputError as error:
        return occurrences, {"k_occurrence": str(error)}
    occurrences[rows] = np.bincount(positions.ravel(), minlength=len(rows))
    return occurrences, {}


def _assemble(
    searched: _SearchedRows,
    arrays: dict[str, np.ndarray],
    *,
    near: np.ndarray,
    finite: np.ndarray,
    is_zero: np.ndarray,
    hashes: np.ndarray,
    edges: np.ndarray,
    gaps: np.ndarray,
    notes: dict[str, str],
    **more: Any,
) -> RowNeighbors:
    """Return the measurements of all rows, with groups of duplicates and with outliers."""
    rows = np.flatnonzero(finite)
    _, first, inverse = np.unique(hashes[rows], return_index=True, return_inverse=True)
    original = rows[first[inverse]]
    is_copy = np.zeros(len(finite), bool)
    is_copy[rows] = original != rows
    copies = np.column_stack([original[original != rows], rows[original != rows]])
    edges, gaps = np.concatenate([copies, edges]), np.concatenate([np.zeros(len(copies)), gaps])
    group = _connect(len(finite), edges)
    pairs, distances = _closest_pairs(edges, gaps, group, is_zero)
    p_value = arrays.get("p_value", np.full(len(finite), np.nan))
    if searched.model is None:
        why = f"at least {MIN_OUTLIER_ROWS} rows are needed, not all equal to their neighbors"
        notes = {**notes, "outlier_score": why}
    return RowNeighbors(
        searched=len(searched.rows),
        nearest=arrays["nearest"],
        distance=arrays["distance"],
        lid=arrays["lid"],
        p_value=p_value,
        is_outlier=find_outliers(p_value),
        is_copy=is_copy,
        is_near_duplicate=near,
        is_zero=is_zero,
        is_dropped=~finite,
        group=group,
        closest_pairs=pairs,
        closest_distances=distances,
        same_label=arrays.get("same_label"),
        neighbor_label=arrays.get("neighbor_label"),
        neighbor_label_share=arrays.get("neighbor_label_share"),
        label_names=searched.names,
        notes=notes,
        **more,
    )


def _connect(n: int, edges: np.ndarray) -> np.ndarray:
    """Return the smallest row number in the connected component of each row; −1 for rows without an edge.

    >>> _connect(6, np.asarray([[4, 2], [2, 5]])).tolist()
    [-1, -1, 2, -1, 2, 2]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, ends = np.unique(edges, return_inverse=True)
    group = np.full(n, -1, np.int64)
    if len(rows):
        ends = ends.reshape(edges.shape)
        graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(len(rows), len(rows)))
        _, first, inverse = np.unique(
            connected_components(graph, directed=False)[1], return_index=True, return_inverse=True
        )
        group[rows] = rows[first[inverse]]
    return group


def _closest_pairs(
    edges: np.ndarray, gaps: np.ndarray, group: np.ndarray, is_zero: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the closest pair of rows in each group, closest first, and their distances."""
    kept = ~is_zero[edges[:, 0]]
    pairs, gaps = np.sort(edges[kept], axis=1), gaps[kept]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], gaps))
    pairs, gaps = pairs[order], gaps[order]
    first = np.sort(np.unique(group[pairs[:, 0]], return_index=True)[1])
    return pairs[first], gaps[first]


def _block_rows(k: int) -> int:
    return max(1, TILE_BYTES // (8 * k))
