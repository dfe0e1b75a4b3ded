"""Which module opens which kind of database, to read and to write; each is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.databases.destination import Destination
    from isoscope.stores.store import Store

_PACKAGE = "isoscope.stores.databases"
_READS = {
    "postgresql": ("postgres", "open_postgres"),
    "qdrant": ("qdrant", "open_qdrant"),
    "lancedb": ("lance", "open_lance"),
    "chroma": ("chroma", "open_chroma"),
}
_WRITES = {
    "postgresql": ("postgres_writing", "open_postgres_destination"),
    "qdrant": ("qdrant_writing", "open_qdrant_destination"),
    "lancedb": ("lance_writing", "open_lance_destination"),
    "chroma": ("chroma_writing", "open_chroma_destination"),
}


def open_database(address: Address, wanted: ColumnSpec) -> Store:
    """The store that an address leads to."""
    module, name = _READS[address.kind]
    store: Store = getattr(import_module(f"{_PACKAGE}.{module}"), name)(address, wanted)
    return store


def open_destination(address: Address) -> Destination:
    """The place to write to that an address leads to."""
    module, name = _WRITES[address.kind]
    destination: Destination = getattr(import_module(f"{_PACKAGE}.{module}"), name)(address)
    return destination
