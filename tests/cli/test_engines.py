"""--engine, --scheduler, --workers: a cluster gives the results of this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import isoscope
from isoscope.cli.main import main
from isoscope.stores.open import open_store

pytest.importorskip("distributed", reason='Dask is not installed: pip install "isoscope[dask]"')
from tests.engines.conftest import client  # noqa: F401


@pytest.fixture
def shards(tmp_path):
    X = np.random.default_rng(0).standard_normal((1500, 8)).astype(np.float32) * np.arange(1, 9) + 2
    (tmp_path / "shards").mkdir()
    for i in range(3):
        np.save(tmp_path / "shards" / f"{i}.npy", X[500 * i : 500 * (i + 1)])
    return tmp_path / "shards"


@pytest.fixture
def scheduler(client):  # noqa: F811
    return ["--scheduler", client.scheduler.address]


def run(*arguments):
    assert main([str(each) for each in arguments]) == 0


def test_an_audit_on_a_cluster_equals_a_local_one(shards, scheduler, tmp_path):
    run("audit", shards, "--json", tmp_path / "here.json")
    run("audit", shards, "--json", tmp_path / "there.json", "--engine", "dask", *scheduler)
    here, there = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("here", "there"))
    for one, other in zip(there["findings"], here["findings"], strict=True):
        assert one["name"] == other["name"]
        assert one["value"] == pytest.approx(other["value"], rel=1e-6, abs=1e-9)


def test_a_cluster_of_processes_starts_and_ends_with_the_command(shards, capsys):
    run("sketch", shards, "--workers", "1")
    there = capsys.readouterr().out
    run("sketch", shards)
    assert capsys.readouterr().out == there
    assert "1,500 × 8" in there
    assert "mean cosine" in there


def test_a_sketch_is_saved(shards, tmp_path, capsys):
    run("sketch", shards, "-o", tmp_path / "cloud.sketch")
    assert isoscope.Sketch.load(tmp_path / "cloud.sketch") == isoscope.sketch(shards)


def test_a_repair_is_fitted_and_applied_on_a_cluster(shards, scheduler, tmp_path, capsys):
    run("fit", "whiten", shards, "-o", tmp_path / "repair", *scheduler)
    assert "fitted to 1,500 vectors" in capsys.readouterr().out
    run("apply", tmp_path / "repair", shards, "-o", tmp_path / "there", *scheduler)
    run("apply", tmp_path / "repair", shards, "-o", tmp_path / "here.npy")
    found = open_store(tmp_path / "there").take(np.arange(1500))
    np.testing.assert_array_equal(found, np.load(tmp_path / "here.npy"))
    run("fix", "center", shards, "-o", tmp_path / "fixed", *scheduler)
    assert "mean cosine" in capsys.readouterr().out.lower()
    run("similarity", shards, "0.5", *scheduler)
    assert "0.5 is above" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "local", "--workers", "2"], "--engine local does not accept --scheduler or --workers"),
        (["--workers", "0"], "workers is 0: need at least 1"),
        (["--scheduler", "tcp://127.0.0.1:9", "--workers", "2"], "has its own workers: pass either"),
    ],
)
def test_contradicting_options_print_one_line(shards, capsys, arguments, message):
    assert main(["sketch", str(shards), *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_several_processes_cannot_write_one_file(shards, scheduler, tmp_path, capsys):
    run("fit", "center", shards, "-o", tmp_path / "repair")
    assert main(["apply", str(tmp_path / "repair"), str(shards), "-o", str(tmp_path / "a.npy"), *scheduler]) == 2
    assert "folder" in capsys.readouterr().err
    assert not (tmp_path / "a.npy").exists()


SCRIPT = """
import os, sys
from isoscope.cli.main import main
from isoscope.engines import dask as cluster

need_alike = cluster._need_alike

def ready(client):
    need_alike(client)
    print(*client.run(os.getpid).values(), flush=True)

cluster._need_alike = ready
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def started(tmp_path, *arguments):
    (tmp_path / "command.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "command.py"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.heavy)])
@pytest.mark.heavy
def test_interruption_prints_one_line_and_leaves_no_process(tmp_path, number):
    """Send the signal to all processes of the command, as a terminal does."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.standard_normal((200_000, 64)).astype(np.float32) + 1)
    with started(tmp_path, "audit", tmp_path / "a.npy", "--workers", 2) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        os.killpg(process.pid, signal.SIGINT) if number == signal.SIGINT else process.send_signal(number)
        _, printed = process.communicate(timeout=600)
    assert process.returncode == 130
    assert printed == "isoscope: interrupted; existing files are unchanged\n"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.heavy
def test_worker_error_prints_one_line(tmp_path):
    X = np.zeros((3000, 8), np.float32)
    X[1234] = np.nan
    np.save(tmp_path / "a.npy", X)
    with started(tmp_path, "sketch", tmp_path / "a.npy", "--workers", 1) as process:
        _, printed = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "row 1234" in printed
    assert printed.count("\n") == 1
