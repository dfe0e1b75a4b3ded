"""A connection to PostgreSQL: without the driver the line says what installs it, and a snapshot that rests ends."""

import sys

import pytest

import isoscope
from isoscope.errors import MissingExtra
from isoscope.stores.databases.address import address
from isoscope.stores.databases.postgres_session import Session


def test_without_the_driver_the_line_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for use in (isoscope.open_store, lambda url: isoscope.write_store(url, [[1.0, 2.0]])):
        with pytest.raises(MissingExtra, match=r'pip install "isoscope\[postgres\]"'):
            use("postgresql://host/db?table=docs")


def test_what_is_read_is_one_snapshot_until_the_session_rests(postgres):
    postgres.run("CREATE TABLE counted AS SELECT 1 AS x")
    session = Session(address(postgres.url()))

    def count():
        return session.run(lambda connection: connection.execute("SELECT count(*) FROM counted").fetchone()[0])

    assert count() == 1
    postgres.run("INSERT INTO counted VALUES (2)")
    assert count() == 1
    before = session.snapshot
    session.rest()
    assert count() == 2
    assert session.snapshot > before
    session.close()
    assert count() == 2
    session.close()
