"""PostgreSQL: rows are written once, writing survives failures, other columns stay unchanged."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

import isoscope
from isoscope._core.errors import DataWarning, InputError, ParameterError
from isoscope.stores.databases import base
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.postgres_write import PostgresDestination, open_postgres_destination
from isoscope.stores.store import Batch
from tests.stores.databases.conftest import new_server

ABOUT = {"source": "here"}


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(base, "PAUSES", (0.01, 0.05))


@pytest.fixture
def repair(cloud):
    return isoscope.Center().fit(cloud)


def kinds(server, table):
    form = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0 AND attrelid = "
    return dict(server.run(f"{form} '{table}'::regclass"))


def read(url):
    store = isoscope.open_store(url)
    return store, np.concatenate(list(store.chunks()))


@pytest.mark.parametrize("kind", ["vector", "halfvec", "real[]", "double precision[]"])
def test_new_column_of_the_same_table(postgres, cloud, repair, kind):
    dtype = {"halfvec": np.float16, "double precision[]": np.float64}.get(kind, np.float32)
    table = f"same_{kind[:3]}_{len(kind)}"
    postgres.fill(table, cloud.astype(dtype), kind)
    source, target = postgres.url(table, "embedding"), postgres.url(table, "fixed")
    assert isoscope.repair_store(source, repair, target) == 1000
    store, found = read(target)
    np.testing.assert_array_equal(found, repair.transform(cloud.astype(dtype)))
    assert store.dtype == dtype
    np.testing.assert_array_equal(read(source)[1], cloud.astype(dtype))
    assert store.layout().schema.names == ["id", "embedding", "label", "text", "fixed"]


def test_second_run_writes_only_new_rows(postgres, cloud, repair, monkeypatch):
    postgres.fill("growing", cloud[:500])
    source, target = postgres.url("growing", "embedding"), postgres.url("growing", "fixed")
    written = []
    write = PostgresDestination.write
    monkeypatch.setattr(
        PostgresDestination, "write", lambda self, batch: (written.append(len(batch.vectors)), write(self, batch))
    )
    isoscope.repair_store(source, repair, target)
    isoscope.repair_store(source, repair, target)
    assert written == [500]
    postgres.run("INSERT INTO growing (id, embedding) SELECT -id - 1, embedding FROM growing WHERE id < 7")
    said = []
    assert isoscope.repair_store(source, repair, target, say=said.append) == 507
    assert written == [500, 7]
    assert "resuming an earlier run" in said[0]
    expected = repair.transform(np.concatenate([cloud[:7][::-1], cloud[:500]]))
    np.testing.assert_array_equal(read(target)[1], expected)


def test_rows_without_vector_stay_null(postgres, cloud, repair):
    postgres.fill("holes", cloud[:20])
    postgres.run("UPDATE holes SET embedding = NULL WHERE id IN (3, 5)")
    with pytest.warns(DataWarning, match=r"2 of 20 rows .*no embedding.*dropped"):
        source = isoscope.open_store(postgres.url("holes", "embedding", missing="drop"))
    assert isoscope.repair_store(source, repair, postgres.url("holes", "fixed")) == 18
    assert postgres.run("SELECT id FROM holes WHERE fixed IS NULL ORDER BY id") == [(3,), (5,)]


def test_new_table_has_every_column(postgres, repair, cloud):
    postgres.fill(
        "wide",
        cloud[:3],
        more=", price numeric(9,2) DEFAULT 1.50, about jsonb DEFAULT '{\"a\": [1]}', "
        "raw bytea DEFAULT '\\xDEAD', at timestamptz DEFAULT '2024-05-06 07:08:09.5+02', tags text[] DEFAULT '{a,b}', "
        "nothing int, ok bool DEFAULT true, other vector(2) DEFAULT '[1,2]'",
    )
    source, target = postgres.url("wide", "embedding"), postgres.url("wide_copy")
    names = "id, embedding, label, text, price, about, raw, at, tags, nothing, ok, other"
    assert isoscope.write_store(source, target) == 3
    assert postgres.run(f"SELECT {names} FROM wide EXCEPT SELECT {names} FROM wide_copy") == []
    assert kinds(postgres, "wide") == kinds(postgres, "wide_copy")
    assert isoscope.write_store(source, target) == 3


def test_file_survives_a_table(postgres, cloud, tmp_path):
    table = pa.table(
        {
            "key": [f"k{i}" for i in range(100)],
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(cloud[:100].ravel()), 12),
            "list": [[i, None] for i in range(100)],
            "part": [{"x": float("nan"), "at": datetime.date(2024, 5, 6)}] * 100,
            "when": pa.array(range(100), pa.timestamp("s")),
            "small": pa.array(range(100), pa.uint8()),
            "half": pa.array(np.arange(100, dtype=np.float16)),
            "words": pa.array(["a", None] * 50).dictionary_encode(),
        }
    )
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "docs.parquet")
    assert isoscope.write_store(tmp_path / "docs.parquet", postgres.url("from_file")) == 100
    store, found = read(postgres.url("from_file"))
    order = np.argsort([f"k{i}" for i in range(100)])
    np.testing.assert_array_equal(found, cloud[order])
    assert store.ids.tolist() == [f"k{i}" for i in order]
    row = postgres.run("SELECT list, part, \"when\"::text, small, half, words FROM from_file WHERE key = 'k1'")
    assert row == [([1, None], {"x": None, "at": "2024-05-06"}, "1970-01-01 00:00:01", 1, 1.0, None)]


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("f4", "vector(12)"),
        ("f2", "halfvec(12)"),
        ("f8", "double precision[]"),
        ("i2", "vector(12)"),
        ("i8", "double precision[]"),
    ],
)
def test_array_is_written_by_row_number_in_its_precision(postgres, cloud, dtype, kind):
    vectors = (10 * cloud[:50]).astype(dtype)
    table = f"array_{dtype}"
    store = isoscope.open_store(vectors, labels=[f"l{i % 3}" for i in range(50)])
    isoscope.write_store(store, postgres.url(table))
    again, found = read(postgres.url(table))
    np.testing.assert_array_equal(found, vectors)
    assert again.ids.tolist() == list(range(50))
    assert again.labels[:4].tolist() == ["l0", "l1", "l2", "l0"]
    assert kinds(postgres, table) == {"id": "bigint", "embedding": kind, "labels": "text"}


def test_composite_key_raises_before_anything_is_written(postgres, repair, cloud):
    postgres.fill("two_keys", cloud[:40])
    postgres.run("ALTER TABLE two_keys DROP CONSTRAINT two_keys_pkey, ADD PRIMARY KEY (text, id)")
    source = postgres.url("two_keys", "embedding", key="id")
    with pytest.raises(ParameterError, match="several columns"):
        isoscope.repair_store(source, repair, postgres.url("two_keys", "fixed"))
    assert "fixed" not in kinds(postgres, "two_keys")
    isoscope.repair_store(source, repair, postgres.url("two_keys", "fixed", key="id"))
    isoscope.repair_store(source, repair, postgres.url("two_keys_copy"))
    same = "SELECT count(*) FROM two_keys t JOIN two_keys_copy c USING (id) WHERE t.fixed = c.embedding"
    assert postgres.run(same) == [(40,)]


def test_names_with_special_characters(postgres, repair, cloud):
    postgres.fill("plain", cloud[:9])
    postgres.run('DROP TABLE IF EXISTS "50% of.""x""; {0}"', 'ALTER TABLE plain RENAME TO "50% of.""x""; {0}"')
    postgres.run("""ALTER TABLE "50% of.""x""; {0}" RENAME id TO "select %s'" """)
    table = "%2250%25 of.%22%22x%22%22; {0}%22"
    for _ in range(2):
        isoscope.repair_store(postgres.url(table, "embedding"), repair, postgres.url(table, "fi%25s.%22x"))
    np.testing.assert_array_equal(read(postgres.url(table, "fi%25s.%22x"))[1], repair.transform(cloud[:9]))


def test_writing_survives_lost_connections(postgres, repair, cloud, monkeypatch):
    postgres.fill("shaky", cloud)
    write = PostgresDestination.write

    def cut(self, batch):
        postgres.end_connections()
        write(self, batch)
        postgres.end_connections()

    monkeypatch.setattr(PostgresDestination, "write", cut)
    isoscope.repair_store(postgres.url("shaky", "embedding"), repair, postgres.url("shaky", "fixed"))
    np.testing.assert_array_equal(read(postgres.url("shaky", "fixed"))[1], repair.transform(cloud))


def test_writing_resumes_after_server_stop(cloud, repair, monkeypatch):
    server = new_server()
    try:
        server.run("CREATE EXTENSION vector")
        server.fill("docs", cloud)
        source, target = server.url("docs", "embedding"), server.url("docs", "fixed")
        write, seen = PostgresDestination.write, []

        def stop(self, batch):
            seen.append(len(batch.vectors))
            if len(seen) == 3:
                server.stop()
            write(self, batch)

        monkeypatch.setattr(PostgresDestination, "write", stop)
        monkeypatch.setattr("isoscope.stores.store._MOST_ROWS", 200)
        with pytest.raises(InputError, match=r"connection was lost.*rerun the same command to resume"):
            isoscope.repair_store(source, repair, target)
        server.start()
        assert server.run("SELECT count(fixed) FROM docs") == [(400,)]
        isoscope.repair_store(source, repair, target)
        assert sum(seen[3:]) == 600
        np.testing.assert_array_equal(read(target)[1], repair.transform(cloud))
    finally:
        server.remove()


def test_other_repair_raises_and_restart_replaces(postgres, cloud, repair):
    postgres.fill("again", cloud[:50])
    source, target = postgres.url("again", "embedding"), postgres.url("again", "fixed")
    isoscope.repair_store(source, repair, target)
    other = isoscope.Standardize().fit(cloud)
    with pytest.raises(InputError, match=r"used another repair: .*--restart"):
        isoscope.repair_store(source, other, target)
    np.testing.assert_array_equal(read(target)[1], repair.transform(cloud[:50]))
    isoscope.repair_store(source, other, target, restart=True)
    np.testing.assert_array_equal(read(target)[1], other.transform(cloud[:50]))
    for restart in (False, True):
        isoscope.repair_store(source, other, postgres.url("again_table"), restart=restart)


@pytest.mark.parametrize("restart", [False, True])
def test_foreign_tables_are_not_touched(postgres, cloud, repair, restart):
    postgres.fill("theirs", cloud[:9])
    postgres.fill("others", cloud[:9])
    source = postgres.url("others", "embedding")
    before = postgres.run("SELECT * FROM theirs ORDER BY id")
    for target, words in [
        (postgres.url("theirs", "embedding"), "embedding exists and was not created by isoscope"),
        (postgres.url("theirs", "text"), "text exists and was not created by isoscope"),
        (postgres.url("theirs"), "was not created by isoscope: choose a new column"),
        (source, "is the source itself"),
        (postgres.url(), "does not specify a table to write to"),
    ]:
        with pytest.raises(InputError, match=words):
            isoscope.repair_store(source, repair, target, restart=restart)
    assert postgres.run("SELECT * FROM theirs ORDER BY id") == before


def test_restart_does_not_clear_the_source(postgres, cloud, repair):
    postgres.run("DROP DATABASE IF EXISTS lonely", "CREATE DATABASE lonely")
    target = postgres.url("docs", database="lonely")
    isoscope.write_store(cloud[:9], target)
    with pytest.raises(InputError, match="is the source itself"):
        isoscope.repair_store(postgres.url(database="lonely"), repair, target, restart=True)
    assert len(isoscope.open_store(target)) == 9


def test_reading_an_incomplete_table_warns(postgres, cloud):
    where = open_postgres_destination(parse_address(postgres.url("half")))
    where.begin(12, np.dtype("f4"), None, ABOUT)
    where.write(Batch(0, cloud[:5], {"ids": np.arange(5)}, 0.5))
    where.close()
    with pytest.warns(DataWarning, match="is incomplete"):
        assert len(isoscope.open_store(postgres.url("half"))) == 5


def test_invalid_ids_raise_one_line(postgres, cloud):
    postgres.fill("by_key", cloud[:9])
    twice = isoscope.open_store(cloud[:4], ids=["a", "b", "a", "c"])
    with pytest.raises(InputError, match="two rows have the id a"):
        isoscope.write_store(twice, postgres.url("twice"))
    with pytest.raises(InputError, match=r"id is a 64-bit integer, .* the id 'a'"):
        isoscope.write_store(isoscope.open_store(cloud[:1], ids=["a"]), postgres.url("by_key", "fixed"))
    large = isoscope.open_store(cloud[:2], ids=np.array([7, 2**63 + 5], np.uint64))
    with pytest.raises(InputError, match=r"64-bit integer, .* the id '9223372036854775813'"):
        isoscope.write_store(large, postgres.url("by_key", "fixed4"))
    with pytest.raises(InputError, match="id contains none of the source's ids, such as 77"):
        isoscope.write_store(isoscope.open_store(cloud[:1], ids=[77]), postgres.url("by_key", "fixed2"))
    for _ in range(2):
        with pytest.warns(DataWarning, match="skipped 1 row of the source"):
            isoscope.write_store(isoscope.open_store(cloud[:2], ids=[7, 77]), postgres.url("by_key", "fixed3"))
    for _ in range(2):
        with pytest.raises(InputError, match="id contains none of the source's ids, such as 77"):
            isoscope.write_store(isoscope.open_store(cloud[:1], ids=[77]), postgres.url("by_key", "fixed5"))


def test_duplicate_id_in_a_later_batch_raises(postgres, cloud, monkeypatch):
    monkeypatch.setattr("isoscope.stores.store._MOST_ROWS", 10)
    monkeypatch.setattr("isoscope._core.threads.thread_count", lambda: 2)
    postgres.fill("later", cloud[:10])
    twice = isoscope.open_store(cloud[:20], ids=[*range(10), *range(10)])
    for target in (postgres.url("later", "fixed"), postgres.url("later_table")):
        with pytest.raises(InputError, match="unique ids"):
            isoscope.write_store(twice, target)


def test_concurrent_run_raises_and_rows_are_correct(postgres, cloud, repair, monkeypatch):
    postgres.fill("at_once", cloud[:20])
    source, target = postgres.url("at_once", "embedding"), postgres.url("at_once", "fixed")
    begin = PostgresDestination.begin

    def late(self, *about):
        there = begin(self, *about)
        monkeypatch.setattr(PostgresDestination, "begin", begin)
        isoscope.repair_store(source, repair, target)
        return there

    monkeypatch.setattr(PostgresDestination, "begin", late)
    with pytest.raises(InputError, match="or another run is writing to the same target"):
        isoscope.repair_store(source, repair, target)
    np.testing.assert_array_equal(read(target)[1], repair.transform(cloud[:20]))


def test_vectors_are_matched_to_rows_by_key(postgres, cloud, repair):
    postgres.fill("ranked", cloud[:9])
    postgres.run("ALTER TABLE ranked ADD rank int", "UPDATE ranked SET rank = 8 - id")
    by_rank = postgres.url("ranked", "embedding", key="rank")
    with pytest.raises(
        InputError, match="id column of the source is rank, but the key of the table is id: use &key=rank"
    ):
        isoscope.repair_store(by_rank, repair, postgres.url("ranked", "fixed"))
    with pytest.raises(InputError, match="the source has no ids to match"):
        isoscope.repair_store(cloud[:9], repair, postgres.url("ranked", "fixed"))
    labels = isoscope.open_store(cloud[:5], ids=list(range(5)))
    with pytest.raises(InputError, match="key=label has 5 distinct values in 9 rows"):
        isoscope.write_store(labels, postgres.url("ranked", "fixed", key="label"))
    assert "fixed" not in kinds(postgres, "ranked")
    isoscope.repair_store(by_rank, repair, postgres.url("ranked", "fixed", key="rank"), columns=False)
    np.testing.assert_array_equal(read(postgres.url("ranked", "fixed"))[1], repair.transform(cloud[:9]))


def test_too_many_dimensions_and_unknown_types_raise(postgres):
    where = open_postgres_destination(parse_address(postgres.url("too_wide")))
    with pytest.raises(InputError, match="16001 dimensions, but the type vector supports at most 16000"):
        where.begin(16_001, np.dtype("f4"), None, ABOUT)
    with pytest.raises(InputError, match="type=text is unknown"):
        open_postgres_destination(parse_address(postgres.url("too_wide", type="text")))


def test_errors_are_raised_before_restart_clears(postgres, cloud, repair):
    postgres.fill("kept", cloud[:9])
    source, target = postgres.url("kept", "embedding"), postgres.url("kept", "fixed")
    isoscope.repair_store(source, repair, target)
    with pytest.raises(InputError, match="type=text is unknown"):
        isoscope.repair_store(source, repair, f"{target}&type=text", restart=True)
    with pytest.raises(InputError, match="two rows have the id 3"):
        isoscope.write_store(isoscope.open_store(cloud[:2], ids=[3, 3]), target, restart=True)
    np.testing.assert_array_equal(read(target)[1], repair.transform(cloud[:9]))


def test_vectors_do_not_replace_another_column(postgres, cloud):
    postgres.fill("named", cloud[:9])
    with pytest.raises(InputError, match="the source has another column named text"):
        isoscope.write_store(postgres.url("named", "embedding"), postgres.url("named_copy", "text"))
    isoscope.write_store(postgres.url("named", "embedding"), postgres.url("named_copy", "text"), columns=False)
    assert kinds(postgres, "named_copy") == {"id": "bigint", "text": "vector(12)"}


def test_locked_table_raises_one_line(postgres, cloud, repair, monkeypatch):
    postgres.fill("held", cloud[:9])
    monkeypatch.setattr("isoscope.stores.databases.postgres_write._LOCK_TIMEOUT", "100ms")
    with postgres.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE held IN ACCESS SHARE MODE")
        with pytest.raises(InputError, match="another transaction has locked the table"):
            isoscope.repair_store(postgres.url("held", "embedding"), repair, postgres.url("held", "fixed"))


def test_writing_to_postgresql(postgres):
    where = open_postgres_destination(parse_address(postgres.url("contract")))
    ids, vectors = np.array([5, 9]), np.eye(2, dtype=np.float32)
    assert where.begin(2, np.dtype("f4"), None, ABOUT) is False
    assert where.find_missing(ids).tolist() == [True, True]
    where.write(Batch(0, vectors, {"ids": ids}, 1.0))
    assert where.find_missing(np.array([9, 4, 5])).tolist() == [False, True, False]
    where.write(Batch(0, 2 * vectors, {"ids": ids}, 1.0))
    where.finish(2)
    where.close()
    assert postgres.run("SELECT id, embedding::text FROM contract ORDER BY id") == [(5, "[2,0]"), (9, "[0,2]")]
    again = open_postgres_destination(parse_address(postgres.url("contract")))
    assert again.begin(2, np.dtype("f4"), None, ABOUT) is True
    again.clear()
    assert postgres.run("SELECT to_regclass('contract')") == [(None,)]


def test_numbers_and_texts_are_copied_directly(postgres, cloud, tmp_path, monkeypatch):
    """Columns of these types need no cast, so the rows bypass the temporary table."""
    others = {
        "small": pa.array([1, None, -3], pa.int16()),
        "count": pa.array([2**40, 5, None], pa.int64()),
        "share": pa.array([0.1, None, float("nan")], pa.float64()),
        "weight": pa.array([1.5, 2.5, None], pa.float32()),
        "used": pa.array([True, None, False]),
        "text": pa.array(["naïve", None, ""]),
    }
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(cloud[:3].ravel()), cloud.shape[1])
    path = tmp_path / "rows.arrow"
    table = pa.table({"embedding": vectors, **others})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    monkeypatch.delattr(PostgresDestination, "_stage_rows")
    isoscope.write_store(path, postgres.url("direct"))
    found = postgres.run(f"SELECT {', '.join(others)} FROM direct ORDER BY id")
    for name, column in zip(others, zip(*found, strict=True), strict=True):
        np.testing.assert_equal(list(column), others[name].to_pylist())
    np.testing.assert_array_equal(read(postgres.url("direct", "embedding"))[1], cloud[:3])


def test_rows_of_a_lost_transaction_are_not_written_twice(postgres):
    """If the connection is lost after the commit, the same rows are written again and replace themselves."""
    where = open_postgres_destination(parse_address(postgres.url("twice")))
    where.begin(2, np.dtype("f4"), None, ABOUT)
    rows = Batch(0, np.eye(2, dtype=np.float32), {"ids": np.array([5, 9])}, 1.0)
    where.write(rows)
    once = where._session._run_once

    def lose_connection_after_commit(work):
        once(work)
        where._session._run_once = once
        where._session._connection.close()
        return once(work)

    where._session._run_once = lose_connection_after_commit
    where.write(rows._replace(columns={"ids": np.array([7, 8])}))
    where.finish(4)
    where.close()
    assert postgres.run("SELECT id FROM twice ORDER BY id") == [(5,), (7,), (8,), (9,)]
