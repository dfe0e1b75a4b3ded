"""Canary files: they are read as sources, and a changed one is rejected."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope import InputError, open_store, same
from isoscope.comparing.canary import check_canary, is_canary
from tests.comparing.spaces import topics

X = topics(200)
TEXTS = [f"text {i}" for i in range(200)]


@pytest.fixture
def path(tmp_path):
    return isoscope.canary(open_store(X, text=TEXTS), tmp_path / "canary.parquet", rows=100)


def test_canary_is_compared_with_the_next_deployment(path, tmp_path):
    assert same(path, open_store(X, text=TEXTS)).answer == "same"
    turned = same(path, open_store(X[:, ::-1], text=TEXTS))
    assert (turned.answer, turned.compared) == ("rotated", 100)
    again = isoscope.canary(open_store(topics(200, model=1), text=TEXTS), tmp_path / "new.parquet", rows=100)
    assert same(path, again).answer == "different"


def test_canary_of_ids_may_be_a_part_of_the_index(tmp_path):
    ids = [f"d{i}" for i in range(200)]
    path = isoscope.canary(open_store(X, ids=ids), tmp_path / "c.parquet", texts=ids[:60])
    found = same(path, open_store(X, ids=ids))
    assert (found.answer, found.compared) == ("same", 60)


def test_canary_is_a_table(path):
    table = pq.read_table(path)
    assert table.column_names == ["id", "text", "vector"]
    rows = [TEXTS.index(text) for text in table["text"].to_pylist()]
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), X[rows])
    assert is_canary(path)
    assert check_canary(path)["rows"] == 100


@pytest.mark.parametrize("column", ["vector", "text"])
def test_a_changed_canary_is_rejected(path, column):
    table = pq.read_table(path)
    values = table[column].take([*range(1, 100), 0])
    pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
    with pytest.raises(InputError, match=f"{column}s of .* changed"):
        same(path, open_store(X, text=TEXTS))


def test_precision_of_the_vectors_is_kept(tmp_path):
    for dtype in (np.float16, np.float64, np.int8):
        path = isoscope.canary(open_store((10 * X).astype(dtype), text=TEXTS), tmp_path / "c.parquet")
        assert open_store(path).dtype == dtype


def test_bad_input_is_one_line_and_writes_nothing(tmp_path):
    path = tmp_path / "c.parquet"
    for source, options, words in (
        (X, {}, "no texts or ids"),
        (open_store(X, text=TEXTS), {"rows": 10}, "at least 48"),
        (open_store(X, text=TEXTS), {"texts": ["nothing"]}, "1 text is not in .*first"),
        (open_store(X, text=TEXTS), {"texts": TEXTS[:5]}, "at least 48"),
    ):
        with pytest.raises(InputError, match=words):
            isoscope.canary(source, path, **options)
    assert not path.exists()
    assert not is_canary(tmp_path / "nothing.parquet")


def test_repeated_ids_and_other_formats_are_rejected_before_writing(tmp_path):
    ids = [f"d{i // 2}" for i in range(200)]
    with pytest.raises(InputError, match=r"ids of .* occur on several rows"):
        isoscope.canary(open_store(X, ids=ids), tmp_path / "canary.parquet", rows=200)
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        isoscope.canary(open_store(X, text=TEXTS), tmp_path / "canary.txt")
    assert not list(tmp_path.iterdir())
