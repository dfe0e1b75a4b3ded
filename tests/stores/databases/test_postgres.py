"""PostgreSQL tables are read completely and in order, from a real server that may fail."""

import pickle

import numpy as np
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope._core.errors import DataWarning, InputError, MissingValueError, ParameterError
from isoscope.stores.databases import base
from tests.stores.databases.conftest import PASSWORD, new_server

KINDS = {"vector": np.float32, "halfvec": np.float16, "real[]": np.float32, "double precision[]": np.float64}


@pytest.fixture(scope="module")
def docs(postgres, cloud):
    postgres.fill("docs", cloud)
    return postgres.url("docs")


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(base, "PAUSES", (0.01, 0.05))


@pytest.mark.parametrize("kind", KINDS)
def test_every_vector_type_is_read_exactly(postgres, cloud, kind):
    vectors = cloud[:100].astype(KINDS[kind])
    postgres.fill("kinds", vectors, kind)
    store = isoscope.open_store(postgres.url("kinds"))
    assert (len(store), store.dim, store.dtype) == (100, 12, KINDS[kind])
    np.testing.assert_array_equal(np.concatenate(list(store.chunks())), vectors)


@pytest.mark.parametrize("rows", [1, 7, 333, 1000, 5000])
def test_page_size_and_start_do_not_change_rows(docs, cloud, rows):
    store = isoscope.open_store(docs)
    start = 990 if rows == 1 else 0
    batches = list(store.batches(["labels", "text", "ids"], rows, start=start))
    np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), cloud[start:])
    ids = np.concatenate([batch.columns["ids"] for batch in batches])
    np.testing.assert_array_equal(ids, np.arange(start, 1000))
    np.testing.assert_array_equal(np.concatenate([batch.columns["labels"] for batch in batches]), ids % 5)
    assert batches[-1].columns["text"][-1] == "word 999"
    assert batches[-1].share == 1
    for row in (500, 999, 1000, 2000):
        assert sum(len(batch.vectors) for batch in store.batches(start=row, rows=rows)) == max(0, 1000 - row)
        if rows == 1:
            break


@pytest.mark.parametrize("rows", [[5, 3, 3, 999], range(0, 1000, 2), range(0, 1000, 17), range(1000)])
def test_rows_are_taken_by_number(docs, cloud, rows):
    store, rows = isoscope.open_store(docs), np.array(list(rows))
    np.testing.assert_array_equal(store.take(rows), cloud[rows])
    np.testing.assert_array_equal(store.column("ids", rows), rows)
    assert store.column("text", rows).tolist() == [f"word {row}" for row in rows]


def test_audit_equals_audit_of_vectors_in_memory(docs, cloud):
    found, same = isoscope.audit(docs), isoscope.audit(cloud, labels=np.arange(1000) % 5)
    assert found.to_dict()["findings"][0] == same.to_dict()["findings"][0]
    assert (found.n, found.d, found.source) == (1000, 12, docs.replace(f":{PASSWORD}", ""))


def test_two_passes_at_once_are_independent(docs, cloud):
    store = isoscope.open_store(docs)
    for one, two in zip(store.chunks(100), store.chunks(100), strict=True):
        np.testing.assert_array_equal(one, two)


def test_all_passes_see_one_snapshot(postgres, cloud):
    postgres.fill("moving", cloud[:50])
    store = isoscope.open_store(postgres.url("moving"))
    postgres.run("DELETE FROM moving WHERE id < 10", "UPDATE moving SET embedding = embedding + embedding")
    np.testing.assert_array_equal(np.concatenate(list(store.chunks())), cloud[:50])


def test_store_can_be_pickled(docs, cloud):
    store = pickle.loads(pickle.dumps(isoscope.open_store(docs)))
    np.testing.assert_array_equal(store.take([7, 8]), cloud[7:9])


def test_every_column_is_written_to_parquet(postgres, tmp_path):
    postgres.run(
        "DROP TABLE IF EXISTS wide",
        "CREATE TABLE wide (at timestamptz, day date, v vector(2), id uuid PRIMARY KEY, price numeric(9,2), ok bool, "
        'about jsonb, raw bytea, "odd ""name" varchar(9), other vector(3), tags text[], small smallint, x real)',
        "INSERT INTO wide VALUES ('2024-05-06 07:08:09.5+02', '1999-12-31', '[1,2]', "
        "'00000000-0000-0000-0000-000000000001', 12.50, true, '{\"a\": 1}', '\\xDEAD', 'näme', '[1,2,3]', '{a,b}', 3, "
        "0.5), (NULL, NULL, '[3,4]', '00000000-0000-0000-0000-000000000002', NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
        "NULL, NULL)",
    )
    store = isoscope.open_store(postgres.url("wide", "v"))
    assert store.ids.tolist() == [f"00000000-0000-0000-0000-00000000000{i}" for i in (1, 2)]
    isoscope.write_store(store, tmp_path / "wide.parquet")
    first, second = pq.read_table(tmp_path / "wide.parquet").to_pylist()
    assert list(first) == [
        *["at", "day", "v", "id", "price", "ok", "about", "raw"],
        'odd "name',
        *["other", "tags", "small", "x"],
    ]
    assert (first["v"], second["v"]) == ([1, 2], [3, 4])
    assert first["at"].isoformat() == "2024-05-06T05:08:09.500000+00:00"
    assert (first["day"].isoformat(), first["price"], first["ok"]) == ("1999-12-31", "12.50", True)
    assert (first["about"], first["raw"], first['odd "name']) == ('{"a": 1}', b"\xde\xad", "näme")
    assert (first["other"], first["tags"], first["small"], first["x"]) == ("[1,2,3]", "{a,b}", 3, 0.5)
    assert {name for name, value in second.items() if value is not None} == {"v", "id"}


def test_composite_keys_raise_and_a_generated_column_replaces_them(postgres):
    postgres.run(
        "DROP TABLE IF EXISTS pairs CASCADE",
        "CREATE TABLE pairs (b text, a int, v vector(2), PRIMARY KEY (a, b))",
        "INSERT INTO pairs SELECT chr(97 + j), i, ('[' || i || ',' || j || ']')::vector "
        "FROM generate_series(0, 9) i, generate_series(0, 9) j ORDER BY random()",
    )
    with pytest.raises(ParameterError, match=r"several columns \(a, b\): .*&key=NAME, or create such a column"):
        isoscope.open_store(postgres.url("pairs"))
    with pytest.raises(ParameterError, match=r"key=a,b refers to several columns: .*create such a column"):
        isoscope.open_store(postgres.url("pairs", key="a,b"))
    postgres.run(
        "CREATE VIEW one_key AS SELECT a || b AS id, v FROM pairs",
        "ALTER TABLE pairs ADD id text GENERATED ALWAYS AS (a::text || b) STORED",
    )
    expected = [(i, j) for i in range(10) for j in range(10)]
    for name in ("one_key", "pairs"):
        store = isoscope.open_store(postgres.url(name, key="id"))
        np.testing.assert_array_equal(np.concatenate(list(store.chunks(7))), expected)
        assert store.ids[11] == "1b"


def test_views_and_materialized_views_need_a_key(postgres, docs, cloud):
    for kind in ("VIEW", "MATERIALIZED VIEW"):
        name = kind.replace(" ", "_").lower()
        postgres.run(f"DROP {kind} IF EXISTS {name}", f"CREATE {kind} {name} AS SELECT * FROM docs WHERE id >= 500")
        with pytest.raises(InputError, match=r"no primary key.*&key=NAME"):
            isoscope.open_store(postgres.url(name))
        store = isoscope.open_store(postgres.url(name, key="id"))
        np.testing.assert_array_equal(np.concatenate(list(store.chunks(99))), cloud[500:])
        with pytest.raises(InputError, match="key=label has 5 distinct values in 500 rows"):
            isoscope.open_store(postgres.url(name, key="label"))


def test_names_are_quoted(postgres):
    postgres.run(
        'DROP SCHEMA IF EXISTS "Odd. one" CASCADE',
        'CREATE SCHEMA "Odd. one"',
        'CREATE TABLE "Odd. one"."Robert\'); DROP TABLE x;--" ("a ""b" int PRIMARY KEY, "V v" vector(2))',
        'INSERT INTO "Odd. one"."Robert\'); DROP TABLE x;--" VALUES (1, \'[1,2]\')',
    )
    url = postgres.url("%22Odd. one%22.Robert'); DROP TABLE x;--", "V v")
    assert isoscope.open_store(url).take([0]).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("column", "lacks"),
    [
        ("vector(2)", "2 of 6 rows have no usable vector (2 with no v); the first is id 1"),
        (
            "vector",
            "3 of 6 rows have no usable vector (2 with no v and 1 with 3 dimensions instead of 2)",
        ),
        (
            "real[]",
            "3 of 6 rows have no usable vector (1 with no v and 1 with NULL elements in v and 1 with 3 dimensions "
            "instead of 2); the first is id 1",
        ),
    ],
)
def test_rows_without_vector_raise_or_are_dropped(postgres, column, lacks):
    wide = "NULL" if column == "vector(2)" else "'[1,2,3]'::vector"
    gaps = f"gaps_{len(column)}_{column[:1]}"
    null = "'{1,NULL}'" if column == "real[]" else "NULL"
    postgres.run(
        f"CREATE TABLE {gaps} (id int PRIMARY KEY, v {column})",
        f"INSERT INTO {gaps} SELECT i, CASE WHEN i = 1 THEN NULL WHEN i = 4 THEN {wide} ELSE '[1,2]'::vector END "
        f"FROM generate_series(0, 4) i" + (", (SELECT 0) one" if column == "vector(2)" else ""),
        f"INSERT INTO {gaps} VALUES (5, {null if column != 'vector(2)' else chr(39) + '[1,2]' + chr(39)})",
    )
    with pytest.raises(InputError) as caught:
        isoscope.open_store(postgres.url(gaps))
    assert lacks in str(caught.value)
    assert "missing=drop" in str(caught.value)
    with pytest.warns(DataWarning, match="dropped"):
        assert len(isoscope.open_store(postgres.url(gaps), missing="drop")) == len(
            isoscope.open_store(postgres.url(gaps, missing="drop"))
        )
    with pytest.warns(DataWarning, match="dropped"):
        store = isoscope.open_store(postgres.url(gaps, missing="drop"))
    kept = [0, 2, 3, 5] if column == "vector(2)" else [0, 2, 3]
    assert store.ids.tolist() == kept
    assert len(store) == len(np.concatenate(list(store.chunks(2)))) == len(kept)


def test_null_elements_of_arrays_are_counted_and_located(postgres):
    rows = "(10, '{1,2}'), (11, '{1,NULL}'), (12, '{NULL,NULL}'), (13, '{}'), (14, '{{1,2},{3,4}}'), (15, '{3,4}')"
    postgres.run("CREATE TABLE holes_in (id int PRIMARY KEY, v float8[])", f"INSERT INTO holes_in VALUES {rows}")
    found = r"4 of 6 rows .*\(2 with NULL elements in v and 2 with an empty or nested array in v\)"
    with pytest.raises(MissingValueError, match=found + r'; the first is id 11: .*missing="drop"'):
        isoscope.open_store(postgres.url("holes_in"))
    with pytest.raises(MissingValueError, match="the first is id 11"):
        isoscope.open_store(postgres.url("holes_in", missing="error"), missing="drop")
    with pytest.warns(DataWarning, match=found + "; such rows are dropped"):
        store = isoscope.open_store(postgres.url("holes_in"), missing="drop")
    assert store.ids.tolist() == [10, 15]
    assert np.concatenate(list(store)).tolist() == [[1, 2], [3, 4]]
    assert store.take([1]).tolist() == [[3, 4]]
    postgres.run("DELETE FROM holes_in WHERE id IN (10, 15)")
    with pytest.raises(MissingValueError, match=r"4 of 4 rows .*2 with NULL elements.*the first is id 11: need at"):
        isoscope.open_store(postgres.url("holes_in"), missing="drop")


def test_reading_resumes_after_lost_connection(postgres, docs, cloud, hasty):
    store = isoscope.open_store(docs)
    found = []
    for i, chunk in enumerate(store.chunks(100)):
        found.append(chunk)
        if i in (2, 5):
            assert postgres.end_connections() > 0
    np.testing.assert_array_equal(np.concatenate(found), cloud)
    postgres.end_connections()
    np.testing.assert_array_equal(store.take([1, 900]), cloud[[1, 900]])


def test_table_changed_after_lost_connection_warns(postgres, cloud, hasty):
    postgres.fill("shrinking", cloud[:30])
    chunks = isoscope.open_store(postgres.url("shrinking")).chunks(10)
    next(chunks)
    postgres.run("DELETE FROM shrinking WHERE id > 24")
    postgres.end_connections()
    with pytest.warns(DataWarning, match="had 30 rows with a vector, and now has 25"):
        assert sum(map(len, chunks)) == 15


def test_row_numbers_follow_the_new_snapshot_after_lost_connection(postgres, cloud, hasty):
    postgres.fill("moving", cloud[:40])
    store = isoscope.open_store(postgres.url("moving"))
    chunks = store.chunks(10)
    next(chunks)
    postgres.run("DELETE FROM moving WHERE id < 5")
    postgres.end_connections()
    assert sum(map(len, chunks)) == 30
    np.testing.assert_array_equal(store.take(np.arange(22, 34)), cloud[27:39])


def test_pages_with_long_texts_are_smaller(postgres, cloud, monkeypatch):
    monkeypatch.setattr("isoscope.stores.databases.postgres_read._FIRST", 8)
    monkeypatch.setattr("isoscope.stores.databases.postgres_read._PAGE_BYTES", 50_000)
    postgres.fill("long", cloud[:100])
    postgres.run("UPDATE long SET text = repeat('x', CASE WHEN id < 8 THEN 10 ELSE 5000 END)")
    store = isoscope.open_store(postgres.url("long"))
    batches = list(store.batches(["text"], other_columns=True))
    assert [len(text) for batch in batches for text in batch.columns["text"]] == [10] * 8 + [5000] * 92
    assert [len(batch.vectors) for batch in batches[:3]] == [8, 32, 9]
    np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), cloud[:100])
    assert [len(batch.vectors) for batch in store.batches()] == [100]


def test_inherited_tables_need_unique_keys(postgres, cloud):
    postgres.fill("parent", cloud[:10])
    postgres.run("CREATE TABLE child () INHERITS (parent)", "INSERT INTO child SELECT * FROM parent WHERE id < 5")
    with pytest.raises(InputError, match="key=id has 10 distinct values in 15 rows"):
        isoscope.open_store(postgres.url("parent"))
    postgres.run("UPDATE child SET id = id + 10")
    assert sum(map(len, isoscope.open_store(postgres.url("parent")).chunks(3))) == 15


def test_stopped_server_raises_one_line(cloud, hasty):
    server = new_server()
    try:
        server.run("CREATE EXTENSION vector")
        server.fill("docs", cloud)
        store = isoscope.open_store(server.url("docs"))
        chunks = store.chunks(100)
        next(chunks)
        server.stop()
        with pytest.raises(InputError, match="connection was lost and could not be restored") as caught:
            list(chunks)
        _one_safe_line(caught)
        with pytest.raises(InputError, match=r"cannot connect .*the server is running") as caught:
            isoscope.open_store(server.url("docs"))
        _one_safe_line(caught)
    finally:
        server.remove()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((PASSWORD, "wrong-s3cr3t"), "rejected the user name or password"),
        (("/postgres", "/postgras"), "database does not exist: did you mean postgres?"),
        (("table=docs", "table=doks"), "there is no table doks: did you mean docs"),
        (("table=docs", "table=no.docs"), "there is no table no.docs"),
        (("table=docs", "table=a.b.c"), "need NAME or SCHEMA.NAME"),
        (("table=docs", "table=docs&column=embeding"), "has no column embeding: did you mean embedding?"),
        (("table=docs", "table=docs&column=text"), "column text does not contain vectors; choose from embedding"),
        (("table=docs", "table=docs&key=idd"), "no column idd for key=: did you mean id?"),
        (("table=docs", "table=docs&nonsense=1"), "cannot parse the address"),
        (("?table=docs", ""), "does not specify a table"),
        (("table=docs", "table=empty"), "has no rows"),
        (("table=docs", "table=nulls"), "3 of 3 rows have no usable vector (3 with no embedding)"),
        (("table=docs", "table=sparse&column=v"), "v contains sparse vectors, which isoscope cannot read"),
        (("table=docs", "table=sparse&column=b"), "b contains bits, which isoscope cannot read"),
    ],
)
def test_errors_are_one_line_without_password(postgres, docs, change, words):
    postgres.run(
        "CREATE TABLE IF NOT EXISTS empty (id int PRIMARY KEY, embedding vector(2))",
        "CREATE TABLE IF NOT EXISTS nulls (id int PRIMARY KEY, embedding vector(2))",
        "INSERT INTO nulls SELECT generate_series(1, 3) ON CONFLICT DO NOTHING",
        "CREATE TABLE IF NOT EXISTS sparse (id int PRIMARY KEY, v sparsevec(9), b bit(8))",
    )
    with pytest.raises(InputError) as caught:
        isoscope.open_store(docs.replace(*change))
    assert words in str(caught.value)
    _one_safe_line(caught)


def test_contradicting_columns_raise(docs):
    assert isoscope.open_store(docs + "&column=embedding", vectors="embedding").dim == 12
    with pytest.raises(InputError, match="column=embedding, but vectors is other"):
        isoscope.open_store(docs + "&column=embedding", vectors="other")
    with pytest.raises(InputError, match="has no column embeddin: did you mean embedding"):
        isoscope.open_store(docs, vectors="embeddin")


def _one_safe_line(caught):
    import traceback

    assert "\n" not in str(caught.value)
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
