"""The function `audit`, which opens a source, measures it in at most two passes, and judges the measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np

from isoscope._core.errors import ParameterError, warn_data
from isoscope._core.random import check_seed
from isoscope._core.threads import single_threaded_blas
from isoscope._io.progress import show_progress
from isoscope.auditing.audit_result import Audit
from isoscope.auditing.by_group import measure_groups
from isoscope.auditing.comparison import Comparison
from isoscope.auditing.grouped import GroupedAudit
from isoscope.auditing.grouping import MAX_GROUPS, MAX_LAYERS, group_rows
from isoscope.auditing.measure import Settings, measure
from isoscope.auditing.row_table import RowTable
from isoscope.auditing.worst_rows import DEFAULT_TOP, WorstRows, check_top
from isoscope.engines.engine import open_engine
from isoscope.stores.columns import ColumnError
from isoscope.stores.open import open_store
from isoscope.stores.selection import list_layers

if TYPE_CHECKING:
    from isoscope._core.types import Column, Metric, Missing, Seed, Zeros
    from isoscope._io.progress import Progress
    from isoscope.auditing.grouping import Grouping
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

__all__ = ["Audit", "AuditOptions", "Comparison", "GroupedAudit", "audit"]


class AuditOptions(TypedDict, total=False):
    """The options of `audit`, for type checkers; see `audit` for their descriptions."""

    labels: Column | None
    types: Column | None
    text: Column | None
    frequency: Column | None
    groups: Column | None
    ids: Column | None
    vectors: str | None
    queries: Any
    metric: Metric
    sample: int
    seed: Seed
    missing: Missing
    zeros: Zeros
    rows: bool
    top: int
    progress: bool | Progress | None
    engine: Any


@overload
def audit(source: Any, *, by: None = None, **options: Unpack[AuditOptions]) -> Audit: ...
@overload
def audit(source: Any, other: Any, /, *others: Any, **options: Unpack[AuditOptions]) -> Comparison: ...
@overload
def audit(source: Any, *, by: Column, **options: Unpack[AuditOptions]) -> GroupedAudit: ...
def audit(
    source: Any,
    *others: Any,
    by: Column | None = None,
    labels: Column | None = None,
    types: Column | None = None,
    text: Column | None = None,
    frequency: Column | None = None,
    groups: Column | None = None,
    ids: Column | None = None,
    vectors: str | None = None,
    queries: Any = None,
    metric: Metric = "cosine",
    sample: int = 20_000,
    seed: Seed = 0,
    missing: Missing = "error",
    zeros: Zeros = "keep",
    rows: bool = False,
    top: int = DEFAULT_TOP,
    progress: bool | Progress | None = None,
    engine: Any = "local",
) -> Audit | Comparison | GroupedAudit:
    """Measure the shape of an embedding space and explain each number.

    An audit reads the source at most twice, in bounded memory. Sums over rows are exact for any number of rows.
    Measurements that need pairs of rows use all rows if there are at most `sample` of them, and a random sample
    otherwise. Each finding states the number of rows it is based on.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        The vectors: anything that `open_store` opens.
    *others : like `source`
        More sources to compare with the first one, such as the vectors of another model, or the same vectors after a
        repair. The options apply to each source.
    by : column name, or one value per row, optional
        The group of each row, such as its layer, label or frequency. Each group is audited separately, in the same
        passes, and the result is a `GroupedAudit`. A column with more than 24 distinct numbers is split into 8 ranges
        with about the same number of rows. In a column with more than 24 distinct names, only the 24 most frequent ones
        are audited.
    labels, types, text, frequency : column name, or one value per row, optional
        The class of each row, the token it is an instance of, the text to show for it, and how often it occurs.
    groups : column name, or one value per row, optional
        The group of each row, if rows depend on each other: the text of each token, or the document of each passage.
        The unbiased IsoScore then compares only rows from different groups, and the confidence intervals treat groups,
        not rows, as independent. The column `document`, which `isoscope embed` writes, is used by default.
        Without groups, all rows are treated as independent.
    ids : column name, or one value per row, optional
        The id of each row, for the row table and the lists of the worst rows.
    vectors : str, optional
        The column that contains the vectors, if there are several candidates.
    queries : like `source`, optional
        Query vectors; the source is the corpus being searched.
    metric : {"cosine", "euclidean"}
        How rows are compared, for neighbors and for labels.
    sample : int
        The largest number of rows for which all pairs are used; larger sources are sampled. At least 100.
    seed : int, sequence of int, SeedSequence, Generator or None
        Random seed for the sample and for k-means.
    missing : {"error", "drop"}
        Raise an error for rows with a missing value, or drop and count them. A value is missing if it is null, NaN,
        infinite or an empty cell, in the vector or in a column that you pass.
    zeros : {"keep", "drop"}
        Keep and count rows of zeros, which have no direction and cannot be found by cosine; or drop them.
    rows : bool
        Whether to measure each row too: `Audit.rows` is then a `RowTable`, and `Audit.worst` lists the rows that cause
        the trouble. Up to 100,000 rows, neighbors are searched among all rows; above, among the sample. Cannot be
        combined with `by`.
    top : int
        The number of rows in each of these lists.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt, for work of more than a second;
        or a function that is called with the stage, the number of rows read and the share of the work done (0 to 1).
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Where the rows are read: in threads of this process, by the current Dask client (or Dask's threads), or on a
        cluster.

    Returns
    -------
    Audit, GroupedAudit or Comparison
        A `GroupedAudit` if `by` is given, and a `Comparison` if there are several sources.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> cone = np.random.default_rng(0).standard_normal((2000, 64)) + 2
    >>> result = isoscope.audit(cone)
    >>> result.verdict, result["mean_cosine"].verdict, result["mean_cosine"].shown
    ('bad', 'bad', '0.801')
    >>> print(result["mean_cosine"].meaning.split(". ")[0])
    Every cosine is high, for unrelated rows too: 80% of each vector's squared length lies along one shared direction
    """
    check_top(top)
    if rows and by is not None:
        raise ParameterError(
            "rows= and by= cannot be combined: each group is a space of its own, so audit its rows separately"
        )
    settings = Settings(metric=metric, sample=sample, seed=check_seed(seed), missing=missing, zeros=zeros)
    if by is not None and queries is not None:
        raise ParameterError(
            "queries= and by= cannot be combined: to use queries, audit the rows of one group separately"
        )
    if by is not None and others:
        raise ParameterError(f"by= was passed with {1 + len(others)} sources: audit the groups of one source at a time")
    roles: dict[str, Any] = {
        "by": by,
        "labels": labels,
        "types": types,
        "text": text,
        "frequency": frequency,
        "groups": groups,
        "ids": ids,
    }
    # one BLAS thread: products of large matrices run in our own threads, and small ones are faster alone
    with single_threaded_blas(), show_progress(progress) as report, open_engine(engine) as running:
        first, *more = (
            _audit_source(each, roles, vectors, queries, settings, top if rows else None, report, running)
            for each in (source, *others)
        )
    return Comparison([first, *more]) if more else first


def _audit_source(
    source: Any,
    roles: dict[str, Any],
    vectors: str | None,
    queries: Any,
    settings: Settings,
    top: int | None,
    progress: Progress,
    engine: Engine,
) -> Any:
    """Return the audit of one source; `top` is the length of the lists of rows, or None for no row table."""
    policy: dict[str, Any] = {"missing": settings.missing, "zeros": settings.zeros}
    store = open_store(source, vectors=vectors, **roles, **policy)
    query_store = None if queries is None else open_store(queries, **policy)
    grouping = None
    by = roles["by"]
    by_name = by if isinstance(by, str) else "groups"
    if by is None:
        if (layers := len(list_layers(store))) > 1:
            warn_data(f'{store.name} contains {layers} layers, which are measured together: pass by="layer"')
        store = store.without("by")
        settings = settings.limit_sample(store)
    else:
        values = store.column("by")
        assert values is not None
        most = MAX_LAYERS if by_name == "layer" else MAX_GROUPS
        known = ~store.missing("by") if settings.missing == "drop" else np.ones(len(values), bool)
        grouping = group_rows(values[known], most).among(known)
    unusable: dict[str, str] = {}
    while True:
        try:
            if grouping is None:
                measured = measure(store, queries=query_store, settings=settings, progress=progress, engine=engine)
                table = None if top is None else RowTable.of(store, measured, progress, engine)
                worst = None if table is None or top is None else WorstRows.of(table, store, top)
                made = Audit.of(measured, unusable, table, worst)
                _add_ids([made], store)
                return made
            by_group = measure_groups(store, grouping, by_name, settings=settings, progress=progress, engine=engine)
            grouped = GroupedAudit.of(by_group, grouping, store.name, by_name, unusable)
            _number_points(by_group.groups, grouped.groups.values(), grouping)
            _add_ids(grouped.groups.values(), store)
            return grouped
        except ColumnError as error:
            # a column that was only recognized by its name must not stop the audit: continue without it
            if error.role not in store.guessed:
                raise
            unusable[error.role] = str(error)
            store = store.without(error.role)


def _number_points(names: Iterable[str], audits: Iterable[Audit], grouping: Grouping) -> None:
    """Give the drawn points of each group, which are numbered within it, the row numbers of the source."""
    for name, audit in zip(names, audits, strict=True):
        if audit.pictures is not None:
            rows = np.flatnonzero(grouping.codes == grouping.names.index(name))
            audit.pictures = replace(audit.pictures, rows=rows[audit.pictures.rows])


def _add_ids(audits: Iterable[Audit], store: Store) -> None:
    """Read the ids of the points that are drawn, if the store has ids."""
    drawn = [audit for audit in audits if audit.pictures is not None]
    if "ids" not in store.columns or not drawn:
        return
    rows = [audit.pictures.rows for audit in drawn if audit.pictures is not None]
    try:
        ids = store.column("ids", np.concatenate(rows))
    except ColumnError:
        if "ids" in store.guessed:  # recognized only by its name
            return
        raise
    assert ids is not None
    ends = np.cumsum([len(each) for each in rows])[:-1]
    for audit, own in zip(drawn, np.split(ids, ends), strict=True):
        assert audit.pictures is not None
        audit.pictures = replace(audit.pictures, ids=own)
