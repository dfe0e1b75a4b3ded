"""PostgreSQL sessions: missing driver, snapshots and retries."""

import sys
from threading import Event, Thread
from time import sleep

import pytest

import isoscope
from isoscope._core.errors import MissingExtra
from isoscope.stores.databases import base
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.postgres_session import Session


def test_missing_driver_raises_with_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for use in (isoscope.open_store, lambda url: isoscope.write_store([[1.0, 2.0]], url)):
        with pytest.raises(MissingExtra, match=r'pip install "isoscope\[postgres\]"'):
            use("postgresql://host/db?table=docs")


def test_session_reads_one_snapshot_until_it_is_released(postgres):
    postgres.run("CREATE TABLE counted AS SELECT 1 AS x")
    session = Session(parse_address(postgres.url()))

    def count():
        return session.run(lambda connection: connection.execute("SELECT count(*) FROM counted").fetchone()[0])

    assert count() == 1
    postgres.run("INSERT INTO counted VALUES (2)")
    assert count() == 1
    before = session.snapshot
    session.release_snapshot()
    assert count() == 2
    assert session.snapshot > before
    session.close()
    assert count() == 2
    session.close()


def test_deadlock_is_retried(postgres, cloud, monkeypatch):
    postgres.fill("crossed", cloud[:2])
    monkeypatch.setattr(base, "PAUSES", (0.01, 0.05))
    session = Session(parse_address(postgres.url("crossed")), writes=True)
    first, second = Event(), Event()

    def other():
        with postgres.connect() as connection, connection.transaction():
            connection.execute("SET LOCAL lock_timeout = 0")
            connection.execute("SET LOCAL deadlock_timeout = '600s'")  # it is ours that is given up
            connection.execute("UPDATE crossed SET label = 7 WHERE id = 1")
            first.set()
            second.wait()
            connection.execute("UPDATE crossed SET label = 7 WHERE id = 0")

    tries = []

    def work(connection):
        tries.append(len(tries))
        connection.execute("SET LOCAL deadlock_timeout = '100ms'")
        connection.execute("UPDATE crossed SET text = 'ours' WHERE id = 0")
        first.wait()
        second.set()
        blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while len(tries) == 1 and not postgres.run(blocked):
            sleep(0.02)
        connection.execute("UPDATE crossed SET text = 'ours' WHERE id = 1")

    thread = Thread(target=other)
    thread.start()
    session.run(work)
    thread.join()
    session.close()
    assert len(tries) > 1
    assert postgres.run("SELECT label, text FROM crossed") == [(7, "ours")] * 2
