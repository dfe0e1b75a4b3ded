"""Stores of vectors in files, folders of shards, tables, arrays and databases, read batch by batch."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.stores.open import open_store as open_store
    from isoscope.stores.store import Batch as Batch
    from isoscope.stores.store import Store as Store
    from isoscope.stores.write import write_store as write_store
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "store": ["Batch", "Store"],
            "open": ["open_store"],
            "write": ["write_store"],
        },
    )
