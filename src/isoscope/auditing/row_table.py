"""The table of an audit with one line per row: norm, nearest row, duplicates, hubs, outliers, cluster and position."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.arrays import to_numpy, unit_rows
from isoscope._core.errors import MissingExtra, OutputError
from isoscope._io.files import check_regular, expand_user
from isoscope.auditing.near_duplicates import CLOSE_SHARE, FALSE_DISCOVERY_RATE
from isoscope.auditing.outliers import OUTLIER_RULE
from isoscope.auditing.row_neighbors import HUB_FACTOR, measure_row_neighbors
from isoscope.auditing.structure import ClusterAssignment
from isoscope.stores.columns import INVERSE_RANK
from isoscope.stores.write import RECORD_ENDINGS, write_records

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.auditing.measure import Measurements
    from isoscope.auditing.row_neighbors import RowNeighbors
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Batch, Store

ROWS_SCHEMA = "isoscope.rows/1"
"""The version of the table, in the metadata of Parquet and Arrow files."""

_ROLE_NAMES = {"ids": "id", "labels": "label", "text": "text"}  # names of the user's columns if theirs are taken


@dataclass(frozen=True)
class _Column:
    """A column of the table: its Arrow type, its description, and its values for some rows."""

    type: Any
    description: str
    values: Callable[[_Part], Any]


@dataclass(frozen=True)
class _Part:
    """Consecutive rows of the table: their numbers, vectors, a mask of the complete rows, and the user's columns."""

    rows: slice
    vectors: np.ndarray
    finite: np.ndarray
    columns: dict[str, np.ndarray]


class RowTable:
    """A table with one line for each row of an audited source.

    The vectors are read from the source again when the table is written or converted, so that a table of any length
    needs little memory. `audit(source, rows=True).rows` is the table of an audit.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((500, 16))
    >>> X[3] = X[8]
    >>> table = isoscope.audit(X, rows=True).rows
    >>> table
    RowTable(500 rows, 20 columns)
    >>> frame = table.to_pandas()
    >>> frame.loc[frame.duplicate_group >= 0, ["row", "nearest_row", "is_copy"]].values.tolist()
    [[3, 8, False], [8, 3, True]]
    >>> table.write("rows.parquet")
    500
    """

    def __init__(self, store: Store, measured: Measurements, neighbors: RowNeighbors):
        self._store, self.neighbors = store, neighbors
        self.source, self.settings = measured.name, measured.settings
        self.roles = _name_roles(store)
        self._mean, self._plane = measured.sketch.mean, np.zeros((measured.d, 2))
        some = measured.centered.vectors[:, :2]
        self._plane[:, : some.shape[1]] = some
        length = float(np.linalg.norm(measured.sketch.unit_sum))
        self._direction = measured.sketch.unit_sum / length if length > 0 else None
        self._assign: ClusterAssignment | None = None
        self._clustered = np.empty(0, np.int64)
        self._clusters = np.empty(0, np.int64)
        if measured.clusters is not None:
            vectors = measured.sample.vectors[measured.cluster_positions]
            self._assign = ClusterAssignment(vectors, measured.centered, measured.clusters)
            self._clustered = measured.sample.rows[measured.cluster_positions]
            self._clusters = measured.clusters.labels
        self._ids: tuple[np.ndarray, np.ndarray] | None = None
        self._columns = self._define_columns()

    @classmethod
    def of(cls, store: Store, measured: Measurements, progress: Progress, engine: Engine) -> RowTable:
        """Measure every row of a store after an audit."""
        return cls(store, measured, measure_row_neighbors(store, measured, progress, engine))

    def __len__(self) -> int:
        return len(self.neighbors)

    def __repr__(self) -> str:
        return f"RowTable({len(self):,} rows, {len(self._columns)} columns)"

    @property
    def columns(self) -> dict[str, str]:
        """The description of each column, by name."""
        return {name: column.description for name, column in self._columns.items()}

    @property
    def schema(self) -> Any:
        """The Arrow schema, with the description of each column and the settings of the audit as metadata."""
        import pyarrow as pa

        fields = [
            pa.field(name, column.type, metadata={"description": column.description})
            for name, column in self._columns.items()
        ]
        return pa.schema(fields, metadata={"isoscope": json.dumps(self.metadata, ensure_ascii=False)})

    @property
    def metadata(self) -> dict[str, Any]:
        """The settings and rules of the table, as JSON-compatible values."""
        neighbors = self.neighbors
        return {
            "schema": ROWS_SCHEMA,
            "isoscope": isoscope.__version__,
            "source": self.source,
            "settings": dict(vars(self.settings)),
            "rows": len(self),
            "searched_rows": neighbors.searched,
            "exact": neighbors.exact,
            "list_length": neighbors.list_length,
            "lid_neighbors": neighbors.lid_neighbors,
            "rules": {
                "duplicate_group": f"identical rows, and pairs closer than {CLOSE_SHARE:.0%} of the typical distance "
                f"and closer than the local density explains (false discovery rate {FALSE_DISCOVERY_RATE:.0%})",
                "is_hub": f"k_occurrence above {HUB_FACTOR} times its mean, which is {neighbors.list_length}",
                "is_outlier": OUTLIER_RULE,
            },
            "roles": self.roles,
            "notes": neighbors.notes,
        }

    def batches(self, *, nested: bool = True) -> Iterator[Any]:
        """Yield the table as Arrow record batches; without `nested`, columns of lists are left out."""
        import pyarrow as pa

        schema = self._flat_schema() if not nested else self.schema
        for batch in self._store.batches([*self.roles]):
            part = self._part(batch)
            arrays = [_to_arrow(self._columns[field.name].values(part), field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _flat_schema(self) -> Any:
        import pyarrow as pa

        schema = self.schema
        return pa.schema([field for field in schema if not pa.types.is_nested(field.type)], metadata=schema.metadata)

    def to_arrow(self) -> Any:
        """Return the table as a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame."""
        try:
            import pandas as pd  # noqa: F401
        except ImportError:
            raise MissingExtra("to_pandas needs pandas: pip install pandas") from None
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the table to other libraries, such as `polars.DataFrame(table)`."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    def without_texts(self) -> RowTable:
        """Return the table without the texts of rows, for a file to share."""
        table, text = copy(self), self.roles.get("text")
        table.roles = {role: name for role, name in self.roles.items() if role != "text"}
        table._columns = {name: column for name, column in self._columns.items() if name != text}
        return table

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the table to a .parquet, .arrow or .csv file, atomically, and return the number of rows.

        A .csv file has no metadata, and no column `neighbors`.
        """
        target = check_rows_output(path)
        if target.suffix.lower() == ".csv":
            return write_records(target, self._flat_schema(), self.batches(nested=False))
        return write_records(target, self.schema, self.batches())

    def _part(self, batch: Batch) -> _Part:
        vectors = to_numpy(batch.vectors)
        rows = slice(batch.start, batch.start + len(vectors))
        return _Part(rows, vectors, ~self.neighbors.is_dropped[rows], batch.columns)

    def _define_columns(self) -> dict[str, _Column]:
        import pyarrow as pa

        found, number, real = self.neighbors, pa.int64(), pa.float32()
        euclidean, k = self.settings.metric == "euclidean", found.list_length

        def read_values(name: str) -> Callable[[_Part], Any]:
            return lambda part: getattr(found, name)[part.rows]

        def read_numbers(name: str) -> Callable[[_Part], Any]:
            return lambda part: _known_numbers(getattr(found, name)[part.rows])

        columns = {"row": _Column(number, "row number in the source, from 0", lambda part: _numbers(part.rows))}
        for role, name in self.roles.items():
            columns[name] = self._user_column(role)
        columns["norm"] = _Column(pa.float64(), "Euclidean length of the vector", _norms)
        columns["cosine_to_mean"] = _Column(
            real, "cosine with the mean direction (the mean of all unit vectors)", self._cosines_to_mean
        )
        columns["nearest_row"] = _Column(number, "row number of the nearest other row", read_numbers("nearest"))
        if "ids" in self.roles:
            columns["nearest_id"] = _Column(
                columns[self.roles["ids"]].type, "id of the nearest other row", self._nearest_ids
            )
        if euclidean:
            columns["nearest_distance"] = _Column(
                real, "Euclidean distance to the nearest row", read_values("distance")
            )
        else:
            columns["nearest_cosine"] = _Column(
                real, "cosine with the nearest row", lambda part: 1 - found.distance[part.rows] ** 2 / 2
            )
        columns |= {
            "is_copy": _Column(pa.bool_(), "an earlier row has the same values", read_values("is_copy")),
            "is_near_duplicate": _Column(
                pa.bool_(),
                "another row is nearly the same (exact copies do not count)",
                read_values("is_near_duplicate"),
            ),
            "duplicate_group": _Column(
                number,
                "smallest row number in the group of copies and near-duplicates; null if alone",
                read_numbers("group"),
            ),
            "k_occurrence": _Column(
                pa.int32(),
                f"number of rows that have this row among their {k} nearest; {k} on average",
                read_numbers("occurrences"),
            ),
            "is_hub": _Column(
                pa.bool_(),
                f"k_occurrence is above {HUB_FACTOR * k}, {HUB_FACTOR} times its mean",
                read_values("is_hub"),
            ),
            "is_anti_hub": _Column(pa.bool_(), "k_occurrence is 0", read_values("is_anti_hub")),
            "lid": _Column(
                real, f"local intrinsic dimension, from {found.lid_neighbors} nearest rows", read_values("lid")
            ),
            "cluster": _Column(
                pa.int16(), "cluster of the audit, from 0; one cluster if all are 0", self._cluster_codes
            ),
            "outlier_score": _Column(
                real,
                "−log10 of the probability that an ordinary row is as unusual; 0 for most rows",
                read_values("score"),
            ),
            "is_outlier": _Column(
                pa.bool_(),
                "outlier at a false discovery rate (expected share of ordinary rows) of 5%",
                read_values("is_outlier"),
            ),
        }
        if found.same_label is not None:
            columns |= {
                "same_label_share": _Column(
                    real, f"share of the {k} nearest rows with the same label", read_values("same_label")
                ),
                "neighbor_label": _Column(
                    columns[self.roles["labels"]].type,
                    f"most frequent label among the {k} nearest rows",
                    self._neighbor_labels,
                ),
                "has_label_conflict": _Column(
                    pa.bool_(),
                    f"none of the {k} nearest rows has the label of the row, and at least half share another one",
                    read_values("has_label_conflict"),
                ),
            }
        columns |= {
            "is_zero": _Column(pa.bool_(), "all values are 0", read_values("is_zero")),
            "is_dropped": _Column(
                pa.bool_(), "dropped by missing='drop' or zeros='drop'; not measured", read_values("is_dropped")
            ),
            "x": _Column(real, "first principal component", lambda part: self._project(part, 0)),
            "y": _Column(real, "second principal component", lambda part: self._project(part, 1)),
        }
        if found.lists is not None:
            columns["neighbors"] = _Column(
                pa.struct([("ids", pa.list_(number)), ("distances", pa.list_(real))]),
                f"row numbers and distances of the {k} nearest rows, nearest first",
                self._neighbor_lists,
            )
        return columns

    def _user_column(self, role: str) -> _Column:
        import pyarrow as pa

        kinds = {"i": pa.int64(), "f": pa.float64()}
        first = self._store.column(role, np.arange(min(1, len(self))))
        kind = kinds.get(np.asarray(first).dtype.kind, pa.string())
        described = {"ids": "id of the row", "labels": "label of the row", "text": "text of the row"}[role]
        return _Column(kind, described, lambda part: part.columns[role])

    def _cosines_to_mean(self, part: _Part) -> np.ndarray:
        cosines = np.full(len(part.vectors), np.nan)
        some = part.finite & part.vectors.any(axis=1)
        if self._direction is not None and some.any():
            cosines[some] = unit_rows(np, part.vectors[some], np.dtype(np.float64)) @ self._direction
        return cosines

    def _nearest_ids(self, part: _Part) -> Any:
        nearest = self.neighbors.nearest[part.rows]
        if self._ids is None:
            rows = np.unique(self.neighbors.nearest)
            rows = rows[rows >= 0]
            ids = self._store.column("ids", rows)
            assert ids is not None
            self._ids = rows, ids
        rows, ids = self._ids
        known = nearest >= 0
        return _masked(ids[np.searchsorted(rows, np.where(known, nearest, rows[0]))] if len(rows) else nearest, known)

    def _cluster_codes(self, part: _Part) -> Any:
        codes = np.full(len(part.vectors), -1)
        if self._assign is not None:
            codes[part.finite] = self._assign(part.vectors[part.finite])
            inside = slice(*np.searchsorted(self._clustered, [part.rows.start, part.rows.stop]))
            codes[self._clustered[inside] - part.rows.start] = self._clusters[inside]
        return _known_numbers(codes)

    def _neighbor_labels(self, part: _Part) -> Any:
        codes, names = self.neighbors.neighbor_label, self.neighbors.label_names
        assert codes is not None
        assert names is not None
        return _masked(names[np.maximum(codes[part.rows], 0)], codes[part.rows] >= 0)

    def _project(self, part: _Part, axis: int) -> np.ndarray:
        return np.asarray((part.vectors - self._mean) @ self._plane[:, axis])

    def _neighbor_lists(self, part: _Part) -> Any:
        import pyarrow as pa

        assert self.neighbors.lists is not None
        indices, distances = (each[part.rows] for each in self.neighbors.lists)
        known = indices[:, 0] >= 0 if indices.shape[1] else np.zeros(len(indices), bool)
        ends = np.concatenate([[0], np.cumsum(np.where(known, indices.shape[1], 0))])
        lists = [
            pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(each[known].ravel(), kind))
            for each, kind in ((indices, pa.int64()), (distances, pa.float32()))
        ]
        return pa.StructArray.from_arrays(lists, ["ids", "distances"], mask=pa.array(~known))


def check_rows_output(path: str | os.PathLike[str]) -> Path:
    """Return the path of a table to write; raise an `OutputError` if its extension or its folder cannot be used."""
    target = expand_user(path)
    if target.suffix.lower() not in RECORD_ENDINGS:
        raise OutputError(f"{target} does not have a supported extension: need .parquet, .arrow or .csv")
    if target.is_dir():
        raise OutputError(f"{target} is a folder: pass the name of a file")
    if not target.absolute().parent.is_dir():
        raise OutputError(f"{target.parent} is not a folder: create it first, or choose another location")
    check_regular(target)
    return target


_OWN_NAMES = {
    *("row", "norm", "cosine_to_mean", "nearest_row", "nearest_id", "nearest_cosine", "nearest_distance"),
    *("is_copy", "is_near_duplicate", "duplicate_group", "k_occurrence", "is_hub", "is_anti_hub", "lid", "cluster"),
    *("outlier_score", "is_outlier", "same_label_share", "neighbor_label", "has_label_conflict"),
    *("is_zero", "is_dropped", "x", "y", "neighbors"),
}


def _name_roles(store: Store) -> dict[str, str]:
    """Return the names of the user's ids, text and labels in the table; a taken name is replaced by its role."""
    names: dict[str, str] = {}
    for role in ("ids", "text", "labels"):
        name = store.columns.get(role)
        if name is not None:
            taken = name in _OWN_NAMES or name in names.values() or name in (role, INVERSE_RANK)
            names[role] = _ROLE_NAMES[role] if taken else name
    return names


def _numbers(rows: slice) -> np.ndarray:
    return np.arange(rows.start, rows.stop)


def _norms(part: _Part) -> np.ndarray:
    norms = np.linalg.norm(part.vectors.astype(np.float64), axis=1)
    return np.asarray(np.where(part.finite, norms, np.nan))


def _known_numbers(values: np.ndarray) -> Any:
    """Return numbers as an Arrow array in which −1 becomes null."""
    return _masked(values, values >= 0)


def _masked(values: np.ndarray, known: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(values.tolist(), mask=~known) if values.dtype.kind in "OU" else pa.array(values, mask=~known)


def _to_arrow(values: Any, kind: Any) -> Any:
    """Return values as an Arrow array; NaN becomes null."""
    import pyarrow as pa

    if not isinstance(values, np.ndarray):
        return values if values.type == kind else values.cast(kind)
    if values.dtype.kind == "f":
        return pa.array(values, kind, mask=np.isnan(values), safe=False)
    if values.dtype.kind in "OU":
        return pa.array(values.tolist(), kind)
    return pa.array(values, kind)
