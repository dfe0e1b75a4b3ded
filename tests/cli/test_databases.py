"""Every command reads and writes databases, resumes, and shows no password."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope.cli.main import main
from tests.stores.databases.conftest import PASSWORD, cloud, postgres  # noqa: F401

SECRETS = (PASSWORD, "s3cr3t")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command, check that its output has no password, and return its exit code and output."""

    def ran(*words):
        code = main([str(word) for word in words])
        said = "".join(capsys.readouterr())
        assert not any(secret in said for secret in SECRETS)
        return code, said

    return ran


def no_secret_in(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS)]
    return {path.name for path in files}


def test_every_command_reads_a_database_without_showing_the_password(postgres, cloud, folder, run):  # noqa: F811
    cloud = cloud[:300]
    postgres.fill("docs", cloud)
    url = postgres.url("docs", "embedding")
    shown = url.replace(f":{PASSWORD}", "")
    code, said = run("audit", url, "--html", "a.html", "--json", "a.json")
    assert (code, shown in said) == (0, True)
    assert shown.replace("&", "&amp;") in (folder / "a.html").read_text()
    assert run("audit", url, "--by", "label", "--html", "by.html", "--json", "by.json")[0] == 0
    assert run("audit", url, url, "--html", "two.html", "--json", "two.json")[0] == 0
    assert run("audit", url, "--baseline", "a.json", "--queries", url)[0] == 0
    assert run("similarity", url, 0.5)[0] == 0
    (folder / "qrels.tsv").write_text("".join(f"{i}\t0\t{(i * 7) % 300}\t1\n" for i in range(60)))
    words = ["--queries", url, "--qrels", "qrels.tsv", "--html", "search.html", "--json", "search.json", "-o", "search"]
    code, said = run("advise", url, *words)
    assert code == 0, said
    assert run("fit", "center", url, "-o", "center")[0] == 0
    assert run("apply", "center", url, "-o", "fixed.parquet")[0] == 0
    assert run("convert", url, "copy.npy")[0] == 0
    np.testing.assert_array_equal(np.load("copy.npy"), cloud)
    assert pq.read_schema("fixed.parquet").names == ["id", "embedding", "label", "text"]
    assert {"a.html", "a.json", "search.html", "search.json"} <= no_secret_in(folder)


def test_apply_convert_and_fix_write_to_a_database(postgres, cloud, folder, run):  # noqa: F811
    postgres.fill("corpus", cloud)
    url, fixed = postgres.url("corpus", "embedding"), postgres.url("corpus", "fixed")
    run("fit", "center", url, "-o", "center")
    repair = isoscope.load_transform("center")
    for _ in range(2):
        code, said = run("apply", "center", url, "-o", fixed)
        assert (code, f"{fixed.replace(':' + PASSWORD, '')}: 1,000 vectors" in said.splitlines()) == (0, True)
    assert "resuming an earlier run" in said
    store = isoscope.open_store(fixed)
    np.testing.assert_array_equal(np.concatenate(list(store.chunks())), repair.transform(cloud))
    del store
    assert run("convert", url, postgres.url("copied"))[0] == 0
    assert run("convert", "--restart", url, postgres.url("copied"))[0] == 0
    even = postgres.url("corpus", "even")
    code, said = run("fix", "standardize", url, "-o", even, "--html", "fix.html", "--save", "kept")
    assert (code, "column=even" in said) == (0, True)
    code, said = run("fix", "center", url, "-o", even)
    assert (code, "used another repair" in said) == (2, True)
    assert run("fix", "center", url, "-o", even, "--restart")[0] == 0
    assert postgres.run("SELECT count(fixed), count(even) FROM corpus") == [(1000, 1000)]
    comments = postgres.run("SELECT description FROM pg_description WHERE description LIKE 'isoscope%'")
    assert len(comments) >= 3
    assert PASSWORD not in str(comments)
    no_secret_in(folder)


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((PASSWORD, "wrong-s3cr3t"), "rejected the user name or password"),
        ((":{port}/", ":1/"), "cannot connect"),
        (("table=docs", "table=dogs"), "there is no table dogs"),
        ((f":{PASSWORD}@", ":s3cr3t/x@"), "cannot parse the address"),
        (("table=docs", "table=docs&connect_timeout=s3"), "cannot parse the address"),
    ],
)
def test_errors_are_one_line(postgres, cloud, folder, run, change, words, debug):  # noqa: F811
    postgres.fill("docs", cloud)
    url = postgres.url("docs", "embedding").replace(change[0].format(port=postgres.port), change[1])
    for command in (["audit", url], ["convert", url, "x.npy"], ["fix", "center", url, "-o", "x.npy"]):
        code, said = run(*command, *debug)
        assert code == 2
        assert words in said.splitlines()[-1]
        assert debug or len(said.splitlines()) == 1
    np.save("x.npy", cloud)
    if "table" not in change[0]:
        code, said = run("convert", "x.npy", url, *debug)
        assert (code, words in said.splitlines()[-1]) == (2, True)


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_address_instead_of_a_file_raises_without_password(folder, run, debug):
    np.save("x.npy", np.eye(12, dtype=np.float32))
    url = "postgresql://me:s3cr3t@127.0.0.1:1/db?table=docs&sslpassword=s3cr3t"
    for command in (
        ["fit", "center", "x.npy", "-o", url],
        ["fix", "center", "x.npy", "-o", "y.npy", "--save", url],
        ["apply", url, "x.npy", "-o", "y.npy"],
        ["audit", "x.npy", "--baseline", url],
        ["audit", "x.npy", "--html", url],
        ["audit", "x.npy", "--labels", url],
        ["advise", "x.npy", "--pairs", url],
        ["advise", "x.npy", "--labels", url],
        ["sketch", "x.npy", "-o", url],
    ):
        code, said = run(*command, *debug)
        assert code == 2, said
        assert debug or len(said.splitlines()) == 1
    assert {path.name for path in folder.iterdir()} == {"x.npy"}


def test_unexpected_driver_error_shows_no_password(postgres, cloud, folder, run, monkeypatch):  # noqa: F811
    import psycopg

    postgres.fill("docs", cloud)
    url = postgres.url("docs", "embedding")

    def broken(*_, **__):
        raise psycopg.InternalError(f"odd: {url}")

    monkeypatch.setattr("psycopg.Connection.cursor", broken)
    for debug in ([], ["--debug"]):
        code, said = run("audit", url, *debug)
        assert (code, "odd: postgresql://owner" in said) == (2, True)


@pytest.mark.heavy
def test_killed_run_resumes(postgres, folder, run):  # noqa: F811
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((20_000, 64)).astype(np.float32)
    np.save("big.npy", vectors)
    assert run("convert", "big.npy", postgres.url("big"))[0] == 0
    url, target = postgres.url("big", "embedding"), postgres.url("big", "fixed", sslmode="prefer")
    run("fit", "center", url, "-o", "center")
    small = "import isoscope.stores.store as s; s._MOST_ROWS = 500; from isoscope.cli.main import main; "
    words = [sys.executable, "-c", f"{small} raise SystemExit(main({['apply', 'center', url, '-o', target]!r}))"]
    done = 0
    process = subprocess.Popen(
        words, env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}, stderr=subprocess.PIPE
    )
    while done < 1500 and process.poll() is None:
        there = postgres.run("SELECT count(*) FROM pg_attribute WHERE attrelid = 'big'::regclass AND attname = 'fixed'")
        done = postgres.run("SELECT count(fixed) FROM big")[0][0] if there[0][0] else 0
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < done < 20_000, process.stderr.read()
    code, said = run("apply", "center", url, "-o", target)
    assert (code, "resuming" in said) == (0, True)
    store = isoscope.open_store(postgres.url("big", "fixed"))
    expected = isoscope.load_transform("center").transform(vectors)
    np.testing.assert_array_equal(np.concatenate(list(store.chunks())), expected)
