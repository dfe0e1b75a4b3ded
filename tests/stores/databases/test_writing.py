"""What is refused before a database is touched."""

import numpy as np
import pytest

from isoscope.errors import InputError
from isoscope.stores import open_store, write_store
from isoscope.stores.databases.address import address
from isoscope.stores.databases.writing import write_to_database


def test_batches_alone_cannot_be_gone_on_with():
    store = open_store(np.eye(3))
    with pytest.raises(InputError, match="is written from a store"):
        write_store("lancedb:library#docs", store.batches())


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "chroma"])
def test_what_is_read_is_not_written_to(kind):
    where = f"{kind}:library#docs"
    store = open_store(np.eye(3)).mapped(np.asarray, 3, name=f"{where}?missing=drop")
    for restart in (False, True):
        with pytest.raises(InputError, match="is what is read: give another place"):
            write_to_database(address(where), store, restart=restart)
