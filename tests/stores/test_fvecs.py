"""fvecs, bvecs and ivecs files."""

import numpy as np
import pytest

from isoscope import InputError
from isoscope.stores.open import open_store


def records(path, rows, number):
    with path.open("wb") as file:
        for row in rows:
            file.write(np.int32(len(row)).tobytes() + np.asarray(row, number).tobytes())
    return path


@pytest.mark.parametrize(("ending", "number"), [("fvecs", "<f4"), ("bvecs", "u1"), ("ivecs", "<i4")])
def test_three_number_types(ending, number, tmp_path):
    store = open_store(records(tmp_path / f"a.{ending}", [[1, 2, 3], [4, 5, 6]], number))
    assert store.dtype == np.dtype(number)
    assert next(store.chunks()).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert store.take([1, 1, 0])[:, 0].tolist() == [4, 4, 1]


def test_a_truncated_record_is_reported(tmp_path):
    path = records(tmp_path / "a.fvecs", np.eye(3), "<f4")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(
        InputError, match=r"a\.fvecs is truncated, or its rows differ in length: 43 bytes are 2 rows of 3 dim"
    ):
        open_store(path)


def test_record_of_another_length_is_reported_by_row(tmp_path):
    path = records(tmp_path / "a.fvecs", np.ones((50, 3)), "<f4")
    data = bytearray(path.read_bytes())
    data[16 * 20] = 7
    path.write_bytes(data)
    store = open_store(path)
    for read in (lambda: list(store.chunks()), lambda: list(store.chunks(8)), lambda: store.take([3, 20])):
        with pytest.raises(InputError, match=r"row 20 has 7 dimensions, but row 0 has 3"):
            read()
    assert store.take([3]).tolist() == [[1, 1, 1]]


def test_invalid_first_length_raises(tmp_path):
    (tmp_path / "a.fvecs").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match=r"declare 0 dimensions: it is not a \.fvecs file"):
        open_store(tmp_path / "a.fvecs")
