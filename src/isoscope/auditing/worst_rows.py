"""Lists of the rows to check, with their ids and texts, from the row table of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import check_integer
from isoscope._core.errors import ParameterError, plural
from isoscope._io.json import check_type, jsonable
from isoscope.auditing.row_neighbors import HUB_FACTOR

if TYPE_CHECKING:
    from isoscope.auditing.row_table import RowTable
    from isoscope.stores.store import Store

DEFAULT_TOP = 5
"""The number of rows in each list, unless the caller chooses another one."""

_MAX_TEXT_LENGTH = 200  # characters of a text in a list


@dataclass(frozen=True)
class RowList:
    """The worst rows of one kind, worst first."""

    name: str
    """The name for scripts, such as `hubs`."""
    title: str
    meaning: str
    count: int
    """The number of all rows (or groups of rows) of this kind."""
    values: dict[str, str]
    """The title of each number in the entries, by name."""
    entries: list[dict[str, Any]]
    """For each listed row: `row`, `id` and `text` if the source has them, and numbers by name."""

    def to_dict(self) -> dict[str, Any]:
        """Return the list as JSON-compatible values."""
        return jsonable({name: getattr(self, name) for name in _LIST_FIELDS})  # type: ignore[no-any-return]

    def without_texts(self) -> RowList:
        """Return the list without texts."""
        return replace(self, entries=[_remove_text(entry) for entry in self.entries])

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> RowList:
        """Create a list from a dict returned by `to_dict`."""
        types = {"count": int, "values": dict, "entries": list}
        return cls(**{name: check_type(content[name], types.get(name, str), name) for name in _LIST_FIELDS})


def _remove_text(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without its text and that of the other row of a pair."""
    kept = {name: value for name, value in entry.items() if name != "text"}
    return kept | ({"other": _remove_text(entry["other"])} if "other" in entry else {})


_LIST_FIELDS = ("name", "title", "meaning", "count", "values", "entries")


@dataclass(frozen=True)
class WorstRows:
    """The rows to check: near-duplicates, hubs, anti-hubs, outliers, zero rows and label conflicts."""

    top: int
    """The largest number of rows in each list."""
    searched: int
    """The number of rows among which nearest neighbors were computed."""
    exact: bool
    """Whether these are all rows."""
    lists: list[RowList]
    notes: dict[str, str] = field(default_factory=dict)
    """The measurements that could not be made, and the reason for each."""

    def __getitem__(self, name: str) -> RowList:
        for each in self.lists:
            if each.name == name:
                return each
        raise KeyError(f"{name}: choose from {', '.join(each.name for each in self.lists)}")

    def __repr__(self) -> str:
        counts = ", ".join(f"{each.name}: {each.count:,}" for each in self.lists)
        return f"WorstRows({counts})"

    @property
    def nonempty(self) -> list[RowList]:
        """The lists that are not empty."""
        return [each for each in self.lists if each.count]

    @property
    def note(self) -> str:
        """Among which rows nearest neighbors were computed, as a sentence."""
        if self.exact:
            return f"Nearest neighbors were computed among all {plural(self.searched, 'row')}."
        return (
            f"Nearest neighbors were computed among a random sample of {plural(self.searched, 'row')}. Exact copies "
            "are always found; near-duplicates are found if at least one of the rows is in the sample. Hubs and "
            "anti-hubs are known only for sampled rows."
        )

    @classmethod
    def of(cls, table: RowTable, store: Store, top: int) -> WorstRows:
        """Return the worst rows of a table; their ids and texts are read from the store."""
        found = _Finder(table, store, check_top(top))
        lists = [found.near_duplicates(), found.hubs(), found.anti_hubs(), found.outliers(), found.zero_rows()]
        if table.neighbors.same_label is not None:
            lists.append(found.label_conflicts())
        return cls(top, table.neighbors.searched, table.neighbors.exact, lists, dict(table.neighbors.notes))

    def without_texts(self) -> WorstRows:
        """Return the lists without texts."""
        return replace(self, lists=[each.without_texts() for each in self.lists])

    def to_dict(self) -> dict[str, Any]:
        """Return the lists as JSON-compatible values; see docs/audit-json.md."""
        return {
            "top": self.top,
            "searched": self.searched,
            "exact": self.exact,
            "lists": [each.to_dict() for each in self.lists],
            "notes": self.notes,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> WorstRows:
        """Create the lists from a dict returned by `to_dict`."""
        return cls(
            check_type(content["top"], int, "top"),
            check_type(content["searched"], int, "searched"),
            check_type(content["exact"], bool, "exact"),
            [RowList.from_dict(each) for each in check_type(content["lists"], list, "lists")],
            dict(content["notes"]),
        )


def check_top(top: Any) -> int:
    """Return the number of rows in each list; raise an error unless it is positive."""
    if check_integer(top, "top") < 1:
        raise ParameterError(f"top is {top}: need at least 1 row in each list")
    return int(top)


class _Finder:
    """A search for the worst rows of each kind."""

    def __init__(self, table: RowTable, store: Store, top: int):
        self.neighbors, self.roles, self.store, self.top = table.neighbors, table.roles, store, top
        self.euclidean = table.settings.metric == "euclidean"

    @property
    def nearest_title(self) -> dict[str, str]:
        return {"distance": "distance"} if self.euclidean else {"cosine": "cosine"}

    def nearest_value(self, distances: np.ndarray) -> dict[str, np.ndarray]:
        """Return distances as they are, or as cosines."""
        return {"distance": distances} if self.euclidean else {"cosine": 1 - distances**2 / 2}

    def near_duplicates(self) -> RowList:
        pairs, gaps = self.neighbors.closest_pairs, self.neighbors.closest_distances
        groups = self.neighbors.group
        sizes = np.unique_counts(groups[groups >= 0])
        some = pairs[: self.top]
        size = sizes.counts[np.searchsorted(sizes.values, groups[some[:, 0]])]
        return self._list(
            "near_duplicates",
            "Groups of copies and near-duplicates",
            "The rows of a group are identical or nearly identical, so search results contain repeats. Each entry "
            "shows the two closest rows of a group.",
            len(pairs),
            some[:, 0],
            {**self.nearest_title, "group_size": "group size"},
            {**self.nearest_value(gaps[: self.top].astype(np.float64)), "group_size": size},
            others=some[:, 1],
        )

    def hubs(self) -> RowList:
        counts = self.neighbors.occurrences
        rows = self._worst(self.neighbors.is_hub, -counts.astype(np.float64))
        k = self.neighbors.list_length
        return self._list(
            "hubs",
            "Hubs",
            f"These rows are among the {k} nearest neighbors of more than {HUB_FACTOR * k} rows, {HUB_FACTOR} times "
            "the average. They appear in many search results, including unrelated ones.",
            int(self.neighbors.is_hub.sum()),
            rows,
            {"k_occurrence": f"top-{k} lists"},
            {"k_occurrence": counts[rows]},
        )

    def anti_hubs(self) -> RowList:
        rows = self._worst(self.neighbors.is_anti_hub, -self.neighbors.distance.astype(np.float64))
        k = self.neighbors.list_length
        return self._list(
            "anti_hubs",
            "Anti-hubs",
            f"These rows are not among the {k} nearest neighbors of any row, so a search hardly ever finds them. The "
            "rows that are farthest from their nearest neighbor come first.",
            int(self.neighbors.is_anti_hub.sum()),
            rows,
            {f"nearest_{name}": f"nearest {title}" for name, title in self.nearest_title.items()},
            {f"nearest_{name}": values for name, values in self.nearest_value(self.neighbors.distance[rows]).items()},
        )

    def outliers(self) -> RowList:
        score = self.neighbors.score
        rows = self._worst(self.neighbors.is_outlier, -score)
        return self._list(
            "outliers",
            "Outliers",
            "These rows are unusual compared with all rows and with their nearest neighbors: often failed embeddings, "
            "or vectors of another model. The expected share of ordinary rows among the outliers is at most 5%.",
            int(self.neighbors.is_outlier.sum()),
            rows,
            {"score": "score", "p": "p-value"},
            {"score": score[rows], "p": self.neighbors.p_value[rows]},
        )

    def zero_rows(self) -> RowList:
        broken = self.neighbors.is_zero | self.neighbors.is_dropped
        rows = np.flatnonzero(broken)[: self.top]
        return self._list(
            "zero_rows",
            "Zero and dropped rows",
            "A search by cosine never finds these rows: they are zero, or were dropped because they are zero or have a "
            "missing value.",
            int(broken.sum()),
            rows,
            {"is_zero": "zero"},
            {"is_zero": self.neighbors.is_zero[rows]},
        )

    def label_conflicts(self) -> RowList:
        share, names = self.neighbors.neighbor_label_share, self.neighbors.label_names
        assert share is not None
        assert names is not None
        assert self.neighbors.neighbor_label is not None
        conflict = self.neighbors.has_label_conflict
        rows = self._worst(conflict, -share.astype(np.float64))
        labels = self.store.column("labels", rows)
        assert labels is not None
        return self._list(
            "label_conflicts",
            "Label conflicts",
            f"None of the {self.neighbors.list_length} nearest neighbors has the row's label, and at least half of the "
            "neighbors share another label. The label may be wrong.",
            int(conflict.sum()),
            rows,
            {"label": "label", "neighbor_label": "label of neighbors", "share": "share"},
            {"label": labels, "neighbor_label": names[self.neighbors.neighbor_label[rows]], "share": share[rows]},
        )

    def _worst(self, marked: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Return the marked rows that come first in an order; ties are ordered by row number."""
        rows = np.flatnonzero(marked)
        return np.asarray(rows[np.argsort(order[rows], kind="stable")[: self.top]])

    def _list(
        self,
        name: str,
        title: str,
        meaning: str,
        count: int,
        rows: np.ndarray,
        values: dict[str, str],
        numbers: dict[str, np.ndarray],
        others: np.ndarray | None = None,
    ) -> RowList:
        plain = {key: value.tolist() for key, value in numbers.items()}
        entries: list[dict[str, Any]] = [
            {**own, **{key: value[i] for key, value in plain.items()}} for i, own in enumerate(self._describe(rows))
        ]
        if others is not None:
            for entry, other in zip(entries, self._describe(others), strict=True):
                entry["other"] = other
        return RowList(name, title, meaning, count, values, entries)

    def _describe(self, rows: np.ndarray) -> list[dict[str, Any]]:
        """Return the number, id and text of each row."""
        entries: list[dict[str, Any]] = [{"row": int(row)} for row in rows]
        for role, key in (("ids", "id"), ("text", "text")):
            if role in self.roles and len(rows):
                column = self.store.column(role, rows)
                assert column is not None
                for entry, value in zip(entries, column.tolist(), strict=True):
                    entry[key] = _shorten(value) if role == "text" else value
        return entries


def _shorten(entry: object) -> str:
    text = " ".join(str(entry).split())
    return text if len(text) <= _MAX_TEXT_LENGTH else text[: _MAX_TEXT_LENGTH - 1] + "…"
