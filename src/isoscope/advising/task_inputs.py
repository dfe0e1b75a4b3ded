"""The inputs of a task as a user passes them: the source with one of pairs, queries and judgments, or labels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import ParameterError
from isoscope.advising.graded_pairs import pairs_task
from isoscope.advising.labels import labels_task, unlabeled_task
from isoscope.advising.retrieval import retrieval_task
from isoscope.stores.columns import ROLES
from isoscope.stores.databases.address import redact_source_name
from isoscope.stores.open import open_store
from isoscope.stores.selection import list_layers, select_layer

if TYPE_CHECKING:
    from isoscope._core.types import Column, Missing, Zeros
    from isoscope._io.progress import Progress
    from isoscope.advising.task import AdviceSettings, Task
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store


@dataclass(frozen=True)
class TaskInputs:
    """The arguments of a function that takes a task; see `isoscope.advise`."""

    source: Any
    pairs: Any = None
    queries: Any = None
    qrels: Any = None
    labels: Column | None = None
    vectors: str | None = None
    ids: Column | None = None
    query_ids: Column | None = None
    text: Column | None = None
    layer: int | None = None

    def __post_init__(self) -> None:
        if (self.queries is None) != (self.qrels is None):
            raise ParameterError("queries and qrels must be passed together, but one of them is missing")
        if self.queries is None and self.query_ids is not None:
            raise ParameterError("query_ids was passed without queries: pass the queries and qrels too")
        tasks = [name for name in ("pairs", "queries", "labels") if getattr(self, name) is not None]
        if len(tasks) > 1:
            raise ParameterError(f"{' and '.join(tasks)} were passed together: pass only one task")

    @property
    def names(self) -> dict[str, str]:
        """The names of the files or columns that were passed, by role, without passwords."""
        roles = ("pairs", "queries", "qrels", "labels", "ids", "query_ids")
        given = {role: getattr(self, role) for role in roles}
        return {
            role: redact_source_name(os.fspath(name))
            for role, name in given.items()
            if isinstance(name, str | os.PathLike)
        }

    def open_stores(self, missing: Missing, zeros: Zeros) -> tuple[Store, Store | None, list[str]]:
        """Open the source and the queries, one layer of each; return them, and notes for the reader."""
        store, notes = open_one_layer(
            self.source,
            self.layer,
            vectors=self.vectors,
            labels=self.labels,
            ids=self.ids,
            text=self.text,
            missing=missing,
            zeros=zeros,
        )
        if self.queries is None:
            return store, None, notes
        queries, more = open_queries(self.queries, store, self.query_ids, missing, zeros)
        return store, queries, notes + more

    def open_task(
        self,
        store: Store,
        queries: Store | None,
        settings: AdviceSettings,
        progress: Progress,
        engine: Engine | None = None,
    ) -> Task:
        """Read the judgments and the rows that they need; without judgments, neighbors are the task.

        The engine reads the rows of the source; this process reads ids, labels, judgments and queries.
        """
        if self.pairs is not None:
            return pairs_task(store, self.pairs, settings, progress, engine)
        if queries is not None:
            return retrieval_task(store, queries, self.qrels, settings, progress, engine)
        if self.labels is not None:
            return labels_task(store, settings, progress, engine)
        return unlabeled_task(store, settings, progress, engine)


def open_queries(
    queries: Any, store: Store, ids: Column | None, missing: Missing, zeros: Zeros
) -> tuple[Store, list[str]]:
    """Open query vectors, by default of the same layer as the store; return them, and notes for the reader."""
    return open_one_layer(queries, None, default=store.layer, ids=ids, missing=missing, zeros=zeros)


def open_one_layer(
    source: Any, layer: int | None, *, default: int | None = None, **columns: Any
) -> tuple[Store, list[str]]:
    """Open a source; if it contains hidden states of several layers, select one, and return a note if it is the last.

    `default` is the layer to select if there are several and `layer` is None. `columns` are arguments of `open_store`.
    Values, such as a list of labels, have one entry for each row of the layer.
    """
    values = {role: each for role, each in columns.items() if role in ROLES and not isinstance(each, str | None)}
    store = open_store(source, **{role: each for role, each in columns.items() if role not in values})
    name, notes = store.name, []
    if layer is not None:
        store = select_layer(store, layer)
    elif len(layers := list_layers(store)) > 1:
        store = select_layer(store, -1 if default is None else default)
        if default is None:
            notes.append(
                f"The last of {len(layers)} layers (layer {layers[-1]}) is used; to use another one, pass layer (CLI: "
                "--layer)."
            )
    store.name = name
    for role, each in values.items():
        store = store.with_column(role, each)
    return store.require("ids"), notes
