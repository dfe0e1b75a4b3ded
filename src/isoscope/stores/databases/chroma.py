"""Collections of Chroma: read in the order in which their rows were added."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.databases.chroma_client import ChromaCollection
from isoscope.stores.databases.notes import NOTE, check_options, warn_if_unfinished
from isoscope.stores.databases.payloads import collection_metadata, object_field, scalar_fields, to_json_column
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import VECTOR_COLUMN, Layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address

INTEGER_IDS_KEY = "isoscope_ids"
"""Where the metadata of a collection says that its ids were whole numbers: Chroma holds strings alone."""
SPACES = {"cosine": "cosine", "ip": "dot", "l2": "euclid"}
"""What Chroma calls the distances."""

_PAGE_NUMBERS, _PAGE_ROWS = 2**18, 2000  # in an answer
_IDS_PER_PAGE = 20_000  # ids in an answer
_SAMPLE = 256  # rows whose metadata say what fields there are


def open_chroma(address: Address, wanted: ColumnSpec) -> Store:
    """A collection of Chroma; its documents are the text, the fields of its metadata columns.

    Parameters
    ----------
    address : Address
        ``chroma:PATH#collection`` or ``chroma:http://host:8000#collection``.
    wanted : Wanted
        Which fields of the metadata are labels, types, …

    Notes
    -----
    The ids of all rows are kept in memory. Chroma itself holds the index in memory, and gives the vectors of a cosine
    collection back with a rounding error of float32, as it keeps direction and length apart.
    """
    check_options(address.options, ["missing"], address.shown)  # Chroma has no row without a vector
    chroma = ChromaCollection(address)
    chroma.check_folder(reading=True)
    return ChromaStore(chroma, wanted)


class ChromaStore(Store):
    """Rows that are asked for by their ids: to ask by their numbers takes longer the further they are behind."""

    def __init__(self, chroma: ChromaCollection, wanted: ColumnSpec) -> None:
        where = chroma.address.shown
        collection = chroma.require_collection()
        choose_vectors([VECTOR_COLUMN], wanted, where)
        metadata = collection.metadata or {}
        warn_if_unfinished(metadata.get(NOTE), where)
        self._chroma, self._integers = chroma, bool(metadata.get(INTEGER_IDS_KEY))
        self._configuration = collection.configuration_json or {}
        self._old_space = str(metadata.get("hnsw:space", ""))
        sample = chroma.collection("get", limit=_SAMPLE, include=["embeddings", "documents", "metadatas"])
        if not len(sample["ids"]):
            raise InputError(f"{where} has no rows: need at least one vector")
        self._ids = self._list_ids()
        self._integers = self._integers and _are_integers(self._ids)  # others may have added theirs
        documents = any(document is not None for document in sample["documents"] or [])
        if documents and wanted.roles.get("text") is None:
            wanted = replace(wanted, roles={**wanted.roles, "text": "document"})
        fields = [name for name in scalar_fields(sample["metadatas"] or []) if name not in ("id", "document")]
        available = ["id", *(["document"] if documents else []), *fields]
        dim = len(sample["embeddings"][0])
        super().__init__(where, dim, np.float32, choose_columns(available, wanted, where))

    def __len__(self) -> int:
        return len(self._ids)

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        include = ["embeddings", *(("documents", "metadatas") if beside else _fields_to_include(names))]
        for block in blocks(len(self) - start, rows):
            numbers = np.arange(start + block.start, start + block.stop)
            vectors = np.empty((len(numbers), self.dim), self.dtype)
            values: dict[str, list[Any]] = {name: [] for name in names}
            records = []
            for part, answer in self._pages(numbers, include):
                vectors[part] = answer["embeddings"]
                for name in names:
                    values[name] += self._column(answer, name)
                records += [self._record(answer)] if beside else []
            yield Piece(vectors, values, (start + block.stop) / len(self), _concat_records(records) if beside else None)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        found = np.empty((len(indices), self.dim), self.dtype)
        for part, answer in self._pages(indices, ["embeddings"]):
            found[part] = answer["embeddings"]
        return found

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        indices = np.arange(len(self)) if indices is None else indices
        return [
            value
            for _, answer in self._pages(indices, _fields_to_include([name]))
            for value in self._column(answer, name)
        ]

    def _layout(self) -> Layout:
        import pyarrow as pa

        fields = [
            pa.field("id", pa.int64() if self._integers else pa.string()),
            pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), self.dim)),
            pa.field("document", pa.string()),
            object_field("metadata"),
        ]
        hnsw = {name: value for name, value in (self._configuration.get("hnsw") or {}).items() if value is not None}
        space = hnsw.get("space") or (self._configuration.get("spann") or {}).get("space") or self._old_space
        kept = collection_metadata(SPACES.get(space, "euclid"), settings=json.dumps(hnsw) if hnsw else "")
        return Layout(pa.schema(fields, metadata=kept), VECTOR_COLUMN)

    def _record(self, answer: dict[str, Any]) -> Any:
        import pyarrow as pa

        layout = self._layout()
        columns = [
            pa.array(self._column(answer, "id"), layout.schema.field("id").type),
            pa.array(answer["documents"], pa.string()),
            to_json_column(answer["metadatas"]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(layout.others))

    def _column(self, answer: dict[str, Any], name: str) -> list[Any]:
        if name == "id":
            return [int(each) for each in answer["ids"]] if self._integers else list(answer["ids"])
        if name == "document":
            return list(answer["documents"])
        return [(each or {}).get(name) for each in answer["metadatas"]]

    def _pages(self, numbers: np.ndarray, include: list[str]) -> Iterator[tuple[slice, dict[str, Any]]]:
        """What the collection has of these rows, some at a time, in their order."""
        page = _PAGE_ROWS if "embeddings" not in include else max(1, min(_PAGE_ROWS, _PAGE_NUMBERS // self.dim))
        for part in blocks(len(numbers), page):
            ids = self._ids.take(numbers[part]).to_pylist()
            answer = self._chroma.collection("get", ids=ids, include=include)
            if len(answer["ids"]) < len(ids):
                raise InputError(f"{self._chroma.address.shown} has lost rows since it was opened: open it again")
            yield part, answer if answer["ids"] == ids else _reorder_answer(answer, ids, include)

    def _list_ids(self) -> Any:
        """The ids of all rows, as Arrow holds strings."""
        import pyarrow as pa

        parts: list[Any] = []
        done = 0
        while found := self._chroma.collection("get", limit=_IDS_PER_PAGE, offset=done, include=[])["ids"]:
            parts.append(pa.array(found, pa.large_string()))
            done += len(found)
        return pa.concat_arrays(parts)


def _are_integers(ids: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(ids, r"^-?[0-9]{1,19}$")).as_py())


def _fields_to_include(names: Sequence[str]) -> list[str]:
    """What holds these columns."""
    documents = ["documents"] if "document" in names else []
    return documents + (["metadatas"] if set(names) - {"id", "document"} else [])


def _reorder_answer(answer: dict[str, Any], ids: list[str], include: list[str]) -> dict[str, Any]:
    at = {each: row for row, each in enumerate(answer["ids"])}
    rows = [at[each] for each in ids]
    return {"ids": ids, **{part: [answer[part][row] for row in rows] for part in include}}


def _concat_records(records: list[Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches(records).combine_chunks().to_batches()[0]
