"""Binary COPY: packed rows are unpacked unchanged, however the messages are split."""

import numpy as np
import pyarrow as pa
import pytest

from isoscope._core.errors import InputError
from isoscope.stores.databases.postgres_copy import SIGNATURE, CopiedRows, pack_numbers, pack_rows, pack_vectors

KINDS = {"vector": np.float32, "halfvec": np.float16, "_float4": np.float32, "_float8": np.float64}
IDS = np.array([3, -1, 2**40])


def as_bytes(values, dtype):
    return np.asarray(values, dtype).view(np.uint8).reshape(len(values), -1)


def cut_by_rows(data, sizes):
    """Messages as a server sends them: the signature with the first row, the trailer alone."""
    edges = np.cumsum([len(SIGNATURE) + sizes[0], *sizes[1:], 2])
    return [data[low:high] for low, high in zip([0, *edges[:-1]], edges, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [["a", "b", "c"], ["", "naïve", None], [None, None, None]])
@pytest.mark.parametrize("part", [1, 6, 2**20])
def test_packed_rows_are_unpacked_unchanged(kind, texts, part, monkeypatch):
    monkeypatch.setattr("isoscope.stores.databases.postgres_copy._PART", part)
    vectors = np.random.default_rng(0).standard_normal((3, 5)).astype(KINDS[kind])
    packed = pack_vectors(vectors, kind)
    data = pack_rows([packed, as_bytes(IDS, ">i8"), pa.array(texts, pa.string())])
    sizes = [2 + 4 + packed.shape[1] + 4 + 8 + 4 + len((text or "").encode()) for text in texts]
    for messages in (cut_by_rows(data, sizes), [data], [data[i : i + 7] for i in range(0, len(data), 7)]):
        rows = CopiedRows(messages, 3)
        assert len(rows) == 3
        found = rows.vectors(kind, 5)
        assert found.dtype == KINDS[kind]
        np.testing.assert_array_equal(found, vectors)
        assert rows.column("int8").to_pylist() == IDS.tolist()
        assert rows.column("text").to_pylist() == texts


def test_sliced_column_is_packed_from_its_offset():
    texts = pa.array(["left", "out", "in", None, "too"])[2:]
    rows = CopiedRows([pack_rows([texts])], 1)
    assert rows.column("text").to_pylist() == ["in", None, "too"]


def test_no_rows():
    rows = CopiedRows([SIGNATURE, b"\xff\xff"], 2)
    assert len(rows) == 0
    assert rows.vectors("vector", 100).shape == (0, 100)
    assert rows.column("text").to_pylist() == []


def test_vector_of_another_length_raises():
    data = pack_rows([pack_vectors(np.ones((2, 3), np.float32), "vector")])
    with pytest.raises(InputError, match="no longer has 4 dimensions"):
        CopiedRows([data], 1).vectors("vector", 4)


@pytest.mark.parametrize("values", [[1, -2, 3], [1, None, 3], [None, None, None]])
def test_packed_numbers_are_unpacked_unchanged(values):
    vectors = np.ones((3, 2), np.float32)
    data = pack_rows([pack_numbers(pa.array(values, pa.int32()), "int8"), pack_vectors(vectors, "vector")])
    rows = CopiedRows([data], 2)
    assert rows.column("int8").to_pylist() == values
    np.testing.assert_array_equal(rows.vectors("vector", 2), vectors)
