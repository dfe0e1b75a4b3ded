"""DuckDB: tables, queries, and errors in one line; and Lance datasets as folders."""

import gc
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from isoscope.errors import DatabaseError, MissingValueError, NotFoundError, OutputError, ParameterError
from isoscope.stores import open_store, write_store
from isoscope.stores.databases.address import parse_address
from tests.services import require

duckdb = require("duckdb")
X = np.random.default_rng(0).standard_normal((20_000, 4)).astype(np.float32)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "docs.duckdb"
    vectors = pa.FixedSizeListArray.from_arrays(X.ravel(), 4)
    ids = pa.array(np.arange(len(X)))
    docs = pa.table({"id": ids, "vec": vectors, "label": [f"{i % 3}" for i in range(len(X))]})
    with duckdb.connect(str(path)) as database:
        database.register("given", docs)
        columns = "id, vec::FLOAT[4] AS vec, label, 'text ' || id AS text"
        database.execute(f"CREATE TABLE docs AS SELECT {columns} FROM given")
        database.execute('CREATE VIEW "odd ""view" AS SELECT id, vec::FLOAT[] AS v FROM docs WHERE id < 10')
        database.execute("CREATE TABLE gaps AS SELECT 1 AS id, [1.0, 2.0]::FLOAT[] AS vec UNION ALL SELECT 2, NULL")
        database.execute("CREATE TABLE empty AS SELECT * FROM docs WHERE id < 0")
    return path


def test_table(file):
    store = open_store(f"duckdb:{file}#docs")
    assert (len(store), store.dim, store.dtype) == (len(X), 4, np.float32)
    assert np.array_equal(np.concatenate([*store]), X)
    assert np.array_equal(store.take([19_999, 3]), X[[19_999, 3]])
    assert store.labels[:4].tolist() == ["0", "1", "2", "0"]
    assert store.text[7] == "text 7"
    assert store.ids[-1] == 19_999
    assert len(open_store(f'duckdb:{file}#odd "view')) == 10


def test_query_may_contain_any_character(file):
    query = "SELECT vec, id FROM docs WHERE label = '1' AND text <> '#&?=%20' ORDER BY id DESC"
    address = f"duckdb:{file}?query={query}"
    store = open_store(address)
    rows = np.arange(len(X))[1::3][::-1]
    assert np.array_equal(np.concatenate([*store]), X[rows])
    assert store.ids.tolist() == rows.tolist()
    assert store.name == address
    assert parse_address(store.name) == parse_address(address)


def test_result_is_a_snapshot_that_is_removed_with_the_store(file, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = open_store(f"duckdb:{file}?query=SELECT vec FROM docs ORDER BY random()")
    assert np.array_equal(np.concatenate([*store]), np.concatenate([*store]))
    assert np.array_equal(pickle.loads(pickle.dumps(store)).take([5]), store.take([5]))
    assert [*tmp_path.glob("isoscope-query-*")]
    del store
    gc.collect()
    assert not [*tmp_path.glob("isoscope-query-*")]


def test_query_over_files_without_a_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_store(X[:100], "x.parquet")
    assert len(open_store("duckdb::memory:?query=SELECT * FROM 'x.parquet' LIMIT 7")) == 7


def test_missing_vectors(file):
    with pytest.raises(MissingValueError, match="is null in row 1"):
        np.concatenate([*open_store(f"duckdb:{file}#gaps")])
    for store in (open_store(f"duckdb:{file}#gaps", missing="drop"), open_store(f"duckdb:{file}?missing=drop#gaps")):
        assert np.isfinite(np.concatenate([*store])).all(axis=1).tolist() == [True, False]


@pytest.mark.parametrize(
    ("rest", "error", "match"),
    [
        ("", ParameterError, "does not specify a table.*docs"),
        ("#dogs", NotFoundError, "did you mean docs"),
        ("?query=SELEC 1", DatabaseError, "check the query"),
        ("?query=DROP TABLE docs", DatabaseError, "read-only"),
        ("?query=SELECT id FROM docs", NotFoundError, "contains no vectors"),
        ("#docs?query=SELECT 1", ParameterError, "only one of them"),
        ("?table=docs", ParameterError, "unknown option table"),
        ("#empty", Exception, "has no rows"),
    ],
)
def test_errors_are_one_line(file, rest, error, match):
    with pytest.raises(error, match=match) as caught:
        open_store(f"duckdb:{file}{rest}")
    assert "\n" not in str(caught.value)


def test_other_files_and_writing(tmp_path):
    with pytest.raises(NotFoundError, match="is not a file"):
        open_store(f"duckdb:{tmp_path / 'none.duckdb'}#docs")
    (tmp_path / "text.duckdb").write_text("not a database")
    with pytest.raises(DatabaseError, match=r"text\.duckdb"):
        open_store(f"duckdb:{tmp_path / 'text.duckdb'}#docs")
    with pytest.raises(OutputError, match=r"write a \.parquet file"):
        write_store(X, f"duckdb:{tmp_path / 'new.duckdb'}#docs")
    assert not Path(tmp_path, "new.duckdb").exists()


def test_lance_folder_is_a_source_and_a_target(tmp_path, monkeypatch):
    require("lancedb")
    monkeypatch.chdir(tmp_path)
    for name in ("docs.lance", f"{tmp_path}/other.lance"):
        assert write_store(open_store(X[:50], text=[f"text {i}" for i in range(50)]), name) == 50
        store = open_store(name)
        assert np.array_equal(store.take([7, 3]), X[[7, 3]])
        assert store.text[7] == "text 7"
    assert len(open_store("lancedb:.#docs")) == 50
    with pytest.raises(NotFoundError, match="did you mean docs"):
        open_store("dogs.lance")


def test_lance_data_set_of_pylance(tmp_path):
    lance = pytest.importorskip("lance", reason="pylance is not installed")
    vectors = pa.FixedSizeListArray.from_arrays(X[:50].ravel(), 4)
    lance.write_dataset(pa.table({"vec": vectors}), str(tmp_path / "own.lance"))
    assert np.array_equal(np.concatenate([*open_store(tmp_path / "own.lance")]), X[:50])
