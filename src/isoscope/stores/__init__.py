"""Where vectors live: files, folders of shards, tables and arrays, read batch by batch."""

from isoscope.stores.open import open_store
from isoscope.stores.store import Batch, Store
from isoscope.stores.write import write_store

__all__ = ["Batch", "Store", "open_store", "write_store"]
