"""Writing to Qdrant: a new collection, its points by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope.stores.databases.notes import (
    NOTE,
    can_resume,
    check_options,
    check_ownership,
    check_row_count,
    format_note,
)
from isoscope.stores.databases.payloads import batch_payloads, read_distance, read_ids_origin, read_vector_name
from isoscope.stores.databases.qdrant import ORIGINAL_ID_KEY
from isoscope.stores.databases.qdrant_points import (
    QdrantCollection,
    check_collection_named,
    check_folder,
    import_qdrant_errors,
)

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout

_NAMESPACE = uuid.UUID("6f2c5a0e-6a0d-5c1f-9a53-1c1f5f3f7d10")  # of the UUIDs that stand for other ids: never change it
_REQUEST_BYTES = 4 * 2**20  # of float32: a server takes requests up to 32 MB, and a number as JSON is longer
_IDS_PER_QUERY = 4096  # ids in a question
_DISTANCES = ("cosine", "dot", "euclid", "manhattan")


def open_qdrant_destination(address: Address) -> QdrantDestination:
    """A collection of Qdrant to write to.

    Parameters
    ----------
    address : Address
        ``qdrant:PATH#collection`` or ``qdrant:http://host:6333#collection``; `distance` among the options is cosine,
        dot, euclid or manhattan, that of the source unless it is said, cosine if the source has none.

    Notes
    -----
    Qdrant keeps float32, or float16 if that is written. Ids that it cannot hold, which are all but unsigned whole
    numbers and UUIDs, become UUIDs made of them; the payload keeps them as ``isoscope_id``, and reading gives them.
    """
    check_options(address.options, ["distance"], address.shown)
    if (said := address.options.get("distance", "cosine")) not in _DISTANCES:
        raise InputError(f"{address.shown}: distance={said}: need {', '.join(_DISTANCES)}")
    points = QdrantCollection(address)
    import_qdrant_errors()
    if not points.is_remote:
        check_folder(address, reading=False)
    check_collection_named(address, points.names)
    return QdrantDestination(points)


class QdrantDestination:
    """A collection that is written; see `Destination`."""

    def __init__(self, points: QdrantCollection) -> None:
        self._points, self._where = points, points.address.shown
        self._about: dict[str, str] = {}
        self._vector, self._numbered = "", False

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        from qdrant_client import models

        schema = layout.schema if layout is not None else None
        self._about, self._vector, self._numbered = (
            dict(about),
            read_vector_name(schema),
            read_ids_origin(schema) == "qdrant",
        )
        if self._points.collection("collection_exists"):
            can_resume(self._note(), about, self._where)
            return bool(self._points.collection("count", exact=True).count)
        distance = self._points.address.options.get("distance") or read_distance(schema) or "cosine"
        params = models.VectorParams(
            size=dim,
            distance=models.Distance(distance.capitalize()),
            datatype=models.Datatype.FLOAT16 if dtype == np.float16 else None,
        )
        named = {self._vector: params} if self._vector else params
        self._points.collection("create_collection", vectors_config=named, metadata={NOTE: format_note(about)})
        if self._note() is None:
            self._points.collection("delete_collection")
            raise InputError(f"{self._where}: this server keeps no metadata of a collection: need Qdrant 1.16 or later")
        return False

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        own = [self._point_id(each) for each in ids.tolist()]
        there: set[int | str] = set()
        for part in blocks(len(own), _IDS_PER_QUERY):
            found = self._points.collection("retrieve", ids=own[part], with_payload=False, with_vectors=False)
            there |= {record.id for record in found}
        return np.array([each not in there for each in own], bool)

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        from qdrant_client import models

        payloads = batch_payloads(batch, self._about.get("ids", ""))
        originals = batch.columns["ids"].tolist()
        ids = [self._point_id(each) for each in originals]
        for own, original, payload in zip(ids, originals, payloads, strict=True):
            if own != original and str(own) != original:
                payload[ORIGINAL_ID_KEY] = original
        vectors = np.asarray(batch.vectors, np.float32)
        with self._points.defer_sync():
            for part in blocks(len(ids), max(1, _REQUEST_BYTES // (4 * vectors.shape[1]))):
                rows: Any = vectors[part].tolist()
                points = models.Batch(
                    ids=ids[part], vectors={self._vector: rows} if self._vector else rows, payloads=payloads[part]
                )
                self._points.collection("upsert", points=points, wait=True)

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        check_row_count(rows, self._points.collection("count", exact=True).count, self._where)
        self._points.collection("update_collection", metadata={NOTE: format_note(self._about, rows)})

    def clear(self) -> None:
        """See `Destination`."""
        if self._points.collection("collection_exists"):
            check_ownership(self._note(), self._where)
            self._points.collection("delete_collection")

    def close(self) -> None:
        """See `Destination`."""
        self._points.close()

    def _note(self) -> str | None:
        found = (self._points.collection("get_collection").config.metadata or {}).get(NOTE)
        return found if isinstance(found, str) else None

    def _point_id(self, original: Any) -> int | str:
        """The id that stands for one: itself if Qdrant can hold it, or a UUID that is made of it."""
        if isinstance(original, int) and original >= 0:
            return original
        if isinstance(original, str):
            if self._numbered and original.isascii() and original.isdigit():
                return int(original)
            try:
                if str(uuid.UUID(original)) == original:
                    return original
            except ValueError:
                pass
        return str(uuid.uuid5(_NAMESPACE, str(original)))
