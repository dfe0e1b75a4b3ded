"""Printed text contains no control characters and no passwords, however an address is mistyped."""

from __future__ import annotations

import json

import pytest

from isoscope import DataWarning, InputError
from isoscope._core.errors import warn_data
from isoscope._core.printable import escape_controls, escape_controls_in_json, redact_secrets, to_printable
from isoscope.stores.open import open_store

PW = "s3cr3t-Wort"

SPELLINGS = [
    f"postgresql://me:{PW}@host/db?table=t",
    f"postgres://me:{PW}@host/db",
    f"POSTGRES://me:{PW}@host/db",
    f"postgresql:/me:{PW}@host/db",
    f"postgresql:me:{PW}@host/db",
    f"postgresql//me:{PW}@host/db",
    f"postgresq://me:{PW}@host/db",
    f"postgre:me:{PW}@host/db",
    f"psql://me:{PW}@host/db",
    f"pg:me:{PW}@host/db",
    f"jdbc:postgresql://host/db?user=me&password={PW}",
    f"me:{PW}@host/db",
    f"//me:{PW}@host/db",
    f"postgresql://me:{PW}@1@host/db",
    f"postgresql://me:{PW}/1@host/db",
    f"postgresql://me:1/{PW}@host/db",
    f"postgresql://me:{PW}#1@host/db",
    f"postgresql://me:{PW}?1@host/db",
    f"postgresql://me:1:{PW}@host/db",
    f"host=db password={PW}",
    f"host=db password = {PW} dbname=x",
    f"host=db user=me password='my {PW}'",
    f'host=db user=me password="my {PW}"',
    f"host=db user=me passwd={PW}",
    f"PGPASSWORD={PW} host=db",
    f"qdrant:http//me:{PW}@host:6333#docs",
    f"qdrant:http:/me:{PW}@host:6333#docs",
    f"qdrant:https:me:{PW}@host#docs",
    f"qdrant://me:{PW}@host:6333#docs",
    f"qdrant:me:{PW}@host:6333#docs",
    f"qdrant;http://me:{PW}@host:6333#docs",
    f"qdrnt:http://me:{PW}@host:6333#docs",
    f"http://me:{PW}@host:6333#docs",
    f"qdrant:http://host:6333#docs?api-key={PW}",
    f"qdrant:http://host:6333#docs?apikey={PW}",
    f"qdrant:http://host:6333#docs?API_KEY={PW}",
    f"qdrant:http://host:6333#docs?api%5Fkey={PW}",
    f"qdrant:http://host:6333#docs&api_key={PW}",
    f"qdrant:nosuch#docs?api_key:{PW}",
    f"qdrant:nosuch?token={PW}#docs",
    f"api-key={PW}",
    f"--api-key={PW}",
    f"x-api-key: {PW}",
    f"Authorization: Bearer {PW}",
    f'{{"api_key": "{PW}"}}',
    f"chroma:http://host#docs?chroma_token={PW}",
    f"chroma:http//host#docs?x_chroma_token={PW}&missing=drop",
    f"lancedb:s3//bucket/x#docs?aws_secret_access_key={PW}",
    f"redis://:{PW}@host",
    f"mongodb+srv://me:{PW}@host/db",
    f"pinecone:index?api_key={PW}",
    f"s3://key:{PW}@bucket/x.npy",
    f"x.npy?signature={PW}&expires=9",
    f"x.npy?password=1&{PW}&table=docs",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_message_contains_the_secret(spelling):
    for message in (spelling, f"{spelling} does not exist", f"--columns {spelling!r}: need ROLE=NAME", f"({spelling})"):
        found = to_printable(message)
        assert PW not in found
        assert "need ROLE=NAME" in found or "need ROLE=NAME" not in message
        assert to_printable(found) == found


@pytest.mark.parametrize("spelling", [*SPELLINGS, f"qdrant:nosuch#docs?key={PW}", f"chroma:nosuch#docs?kye={PW}"])
def test_no_error_contains_the_secret(spelling, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        open_store(spelling)
    assert PW not in f"{caught.value} {caught.value!r} {caught.value.args}"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        "postgresql://me@host:5432/db?table=docs&column=v has no rows",
        "lancedb:s3://bucket/a@b#docs does not exist",
        "the server rejected the user name or password: check both; PGPASSWORD and ~/.pgpass can provide it",
        "max_tokens=5 is too small; the tokenizer: missing; author=me",
        r"C:\data\me@home.npy does not exist: did you mean me@work.npy?",
        "--columns labels=topic,types=token: the column token is missing",
        "write %40 for @, %2F for /, %3F for ?, %23 for # (need postgresql://user@host:5432/database?table=NAME)",
        "a\tb\nc: é, Ω, 中文, 👩‍💻 and ✓",
    ],
)
def test_other_messages_are_unchanged(message):
    assert to_printable(message) == message


HOSTILE = ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\x90q\x9c", "\r", "\x08", "\x7f", "\x00", "\u202e", "\u2066"]
HOSTILE += ["\u200f", "\u2028", "\ufeff", "\udcff", "\U000e0041"]


@pytest.mark.parametrize("mark", HOSTILE, ids=ascii)
def test_control_characters_are_escaped(mark):
    escaped = "".join(ascii(each)[1:-1] if each in _UNSAFE else each for each in mark)
    assert escape_controls(f"a{mark}b") == f"a{escaped}b"
    assert not _UNSAFE & set(escape_controls(f"a{mark}b"))
    assert not _UNSAFE & set(str(InputError(f"column {mark} is missing")))
    with pytest.warns(DataWarning) as caught:
        warn_data(f"column {mark} is missing")
    assert not _UNSAFE & set(str(caught[0].message))


_UNSAFE = set("\x1b\x07\x9b\x90\x9c\r\x08\x7f\x00\u202e\u2066\u200f\u2028\ufeff\udcff\U000e0041")


def test_json_keeps_its_meaning():
    content = {mark: [mark] for mark in HOSTILE}
    text = escape_controls_in_json(json.dumps(content, ensure_ascii=False))
    assert not _UNSAFE & set(text)
    assert json.loads(text) == content


@pytest.mark.parametrize("part", [":/a:", "a", "@", "a@b:", "x:", "password=", "password='", "password=&a", "&a", "%"])
def test_long_messages_take_linear_time(part):
    message = part * 300_000 + "@"  # quadratic time would be hours, and reach the limit of the test
    assert len(redact_secrets(message)) <= len(message)


def test_hostile_column_names_are_reported(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({":/a:" * 100_000: [1, 2], "\x1b]0;x\x07": [1, 2]}), path)
    with pytest.raises(InputError) as caught:
        open_store(path, vectors="v")
    assert not _UNSAFE & set(str(caught.value))
