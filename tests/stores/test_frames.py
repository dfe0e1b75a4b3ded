"""Tables in memory, of five libraries."""

import uuid
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from isoscope import InputError
from isoscope.errors import ParameterError
from isoscope.stores.open import open_store
from tests.stores.conftest import D, N, arrow_table


def pandas_lists(cloud):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"embedding": list(cloud.vectors), "label": cloud.labels, "text": cloud.words})


def pandas_python_lists(cloud):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"embedding": cloud.vectors.tolist(), "label": cloud.labels, "text": cloud.words})


def pandas_wide(cloud):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(cloud.vectors).assign(label=cloud.labels, text=cloud.words)


def pandas_shuffled_index(cloud):
    return pandas_lists(cloud).set_axis(np.arange(N)[::-1])


def polars_arrays(cloud):
    pl = pytest.importorskip("polars")
    return pl.DataFrame({"embedding": cloud.vectors, "label": cloud.labels, "text": cloud.words})


def polars_lists(cloud):
    pl = pytest.importorskip("polars")
    return polars_arrays(cloud).with_columns(pl.col("embedding").arr.to_list())


def polars_wide(cloud):
    pl = pytest.importorskip("polars")
    frame = pl.from_numpy(cloud.vectors, schema=[f"d{i}" for i in range(D)])
    return frame.with_columns(label=cloud.labels, text=pl.Series(cloud.words))


def polars_lazy(cloud):
    return polars_arrays(cloud).lazy()


def duckdb_relation(cloud):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(arrow_table(cloud))


def pyarrow_table(cloud):
    return arrow_table(cloud)


def pyarrow_batch(cloud):
    return arrow_table(cloud).to_batches()[0]


def dataset(cloud):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset(arrow_table(cloud, "list"))


def dataset_with_an_order(cloud):
    back = np.random.default_rng(0).permutation(N)
    shuffled = type(cloud)(cloud.vectors[back], cloud.labels[back], [cloud.words[i] for i in back])
    return dataset(shuffled).select(np.argsort(back))


FRAMES = [
    pandas_lists,
    pandas_python_lists,
    pandas_wide,
    pandas_shuffled_index,
    polars_arrays,
    polars_lists,
    polars_wide,
]
FRAMES += [polars_lazy, duckdb_relation, pyarrow_table, pyarrow_batch, dataset, dataset_with_an_order]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_table_gives_the_same_vectors(frame, truth, rng):
    store = open_store(frame(truth))
    assert (len(store), store.dim) == (N, D)
    assert store.dtype == (np.float64 if frame is pandas_python_lists else np.float32)
    for rows in (None, 7):
        chunks = list(store.chunks(rows))
        assert all(chunk.dtype == store.dtype for chunk in chunks)
        np.testing.assert_array_equal(np.concatenate(chunks), truth.vectors)
    rows = rng.integers(0, N, 30)
    np.testing.assert_array_equal(store.take(rows), truth.vectors[rows])
    np.testing.assert_array_equal(store.labels, truth.labels)
    assert store.column("text", rows).tolist() == [truth.words[i] for i in rows]


def test_columns_with_only_vectors(truth):
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    for column in (pd.Series(list(truth.vectors)), pl.Series("v", truth.vectors), arrow_table(truth)["embedding"]):
        np.testing.assert_array_equal(next(open_store(column).chunks()), truth.vectors)
    with pytest.raises(InputError, match="a Table or a column"):
        open_store(pa.scalar(1))


def test_nan_in_a_data_frame_stays_nan():
    pd = pytest.importorskip("pandas")
    wide = pd.DataFrame({"a": [1.0, np.nan], "b": [2.0, 3.0]})
    lists = pd.DataFrame({"v": [np.array([1.0, 2.0]), np.array([np.nan, 3.0])]})
    for frame in (wide, lists):
        np.testing.assert_array_equal(next(open_store(frame).chunks()), [[1, 2], [np.nan, 3]])


def test_invalid_data_frames_are_rejected():
    pd = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="column v is null in row 1"):
        list(open_store(pd.DataFrame({"v": [[1.0, 2], None]})).chunks())
    with pytest.raises(InputError, match="column v has 1 number in row 1: need 2, as in the first row"):
        list(open_store(pd.DataFrame({"v": [[1.0, 2], [3.0]]})).chunks())
    with pytest.raises(InputError, match="column v of the data frame cannot be read"):
        open_store(pd.DataFrame({"v": [[1.0, 2], "x"]}))
    with pytest.raises(InputError, match="two columns with the same name"):
        open_store(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]))
    with pytest.raises(InputError, match="is empty in 1 of 2 rows, first in row 1"):
        open_store(pd.DataFrame({"v": [[1.0], [2.0]], "label": ["x", None]})).column("labels")


def test_dataset_dicts_are_rejected_with_advice(truth):
    datasets = pytest.importorskip("datasets")
    with pytest.raises(InputError, match=r'choose one, such as source\["train"\]'):
        open_store(datasets.DatasetDict({"train": dataset(truth)}))
    with pytest.raises(InputError, match=r"need a datasets\.Dataset"):
        open_store(dataset(truth).to_iterable_dataset())


def test_a_dataset_saved_to_disk_is_a_folder_of_shards(truth, tmp_path):
    dataset(truth).save_to_disk(tmp_path / "saved", num_shards=3)
    store = open_store(tmp_path / "saved")
    np.testing.assert_array_equal(np.concatenate(list(store.chunks())), truth.vectors)
    assert store.labels.tolist() == truth.labels.tolist()


X = np.random.default_rng(0).standard_normal((3, 4))
OBJECTS = {
    "uuid": [uuid.UUID(int=i + 1) for i in range(3)],
    "bytes": [b"a", "é".encode(), b"c"],
    "datetime": [datetime(2020, 1, i + 1, 3, 0, 5) for i in range(3)],
    "datetime-with-zone": [datetime(2020, 1, i + 1, tzinfo=UTC) for i in range(3)],
    "date": [date(2020, 1, i + 1) for i in range(3)],
    "timedelta": [timedelta(i + 1) for i in range(3)],
    "huge": [2**64 + i for i in range(3)],
    "above-int64": [2**63 + i for i in range(3)],
}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_ids_of_a_table_are_those_of_a_list_of_the_same_objects(kind, library):
    values = OBJECTS[kind]
    if library == "pyarrow":
        pa = pytest.importorskip("pyarrow")
        if kind in ("huge", "above-int64"):
            pytest.skip("pyarrow has no such integers")
        ids = pa.array([v.bytes for v in values], pa.uuid()) if kind == "uuid" else pa.array(values)
        table = pa.table({"id": ids, "embedding": X.tolist()})
    else:
        try:
            table = pytest.importorskip(library).DataFrame({"id": values, "embedding": X.tolist()})
        except OverflowError:
            pytest.skip(f"this version of {library} has no such integers")
    assert open_store(table).ids.tolist() == open_store(X, ids=values).ids.tolist()


@pytest.mark.parametrize("values", [[1, -1, 2**63], [float("nan"), 2, 2**64], [None, 2, 2**64]])
def test_unused_column_of_huge_integers_is_not_read(values):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"hash": pd.Series(values, dtype=object), "embedding": list(X)})
    np.testing.assert_array_equal(open_store(frame).take([0, 1, 2]), X)


def test_ids_with_one_huge_integer_are_text():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"id": [5, 6, 2**64], "embedding": list(X)})
    assert open_store(frame).ids.tolist() == ["5", "6", str(2**64)]


def test_polars_objects_other_than_ids_are_not_read():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"id": pl.Series([object(), 1, 2], dtype=pl.Object), "embedding": X.tolist()})
    store = open_store(frame)
    assert store.ids is None
    np.testing.assert_array_equal(store.take([0, 1, 2]), X)


def test_levels_of_a_multi_index_are_joined():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=pd.MultiIndex.from_product([["e"], range(4)]))
    frame[("label", "")] = [0, 1, 0]
    store = open_store(frame)
    np.testing.assert_array_equal(store.take([0, 1, 2]), X)
    assert store.labels.tolist() == [0, 1, 0]


def test_names_that_become_equal_as_text_are_an_error():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ParameterError, match="two columns with the same name"):
        open_store(pd.DataFrame(X[:, :2], columns=[1, "1"]))
