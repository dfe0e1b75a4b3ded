"""The commands of `pip install isoscope`, without extras: they work, or name the extra that is missing.

`make test-lowest` also runs these tests where nothing else is installed.
"""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

OPTIONAL = (
    *("accelerate", "aiohttp", "chromadb", "dask", "datasets", "distributed", "duckdb", "fsspec", "gcsfs", "h5py"),
    *("huggingface_hub", "jax", "lancedb", "matplotlib", "mcp", "milvus_lite", "onnx", "pymilvus", "s3fs"),
    *("pandas", "polars", "psycopg", "qdrant_client", "sentence_transformers", "torch", "transformers"),
)
HIDE = f"""
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {OPTIONAL} else PathFinder.find_spec(name, path, target)

sys.meta_path = [Hiding if each is PathFinder else each for each in sys.meta_path]
"""
SERVE = f"""{HIDE}
import os

import numpy  # every command imports it

from isoscope.cli.main import main

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.exit(main(line.split()))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Import the command line once, then run each command that is read in a fork, which no earlier command affects."""

WORDS = "the 1 0\nriver 0 1\nbank 2 2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    rng = np.random.default_rng(0)
    np.save(folder / "rows.npy", rng.standard_normal((300, 8)).astype(np.float32))
    vectors = pa.array(list(rng.standard_normal((300, 8))), pa.list_(pa.float32()))
    labels = pa.array(["a", "b", "c"] * 100)
    pq.write_table(pa.table({"vector": vectors, "label": labels}), folder / "rows.parquet")
    pq.write_table(pa.table({f"e{i}": rng.standard_normal(300) for i in range(8)}), folder / "wide.parquet")
    (folder / "rows.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (folder / "words.txt").write_text(WORDS)
    (folder / "texts.txt").write_text("the river bank\nthe bank\n")
    (folder / "task.csv").write_text("text,label\ngood,1\nbad,0\n")
    (folder / "database" / "t.lance").mkdir(parents=True)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text('{"model_type": "bert"}')
    return folder


def run_alone(folder, command):
    code = f"{HIDE}\nfrom isoscope.cli.main import main\nsys.exit(main({command.split()}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def run(folder):
    """Run a command without extras; return its exit code and standard error."""
    if sys.platform != "linux":  # Windows cannot fork, and macOS cannot do so safely once numpy is imported
        yield lambda command: run_alone(folder, command)
        return
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVE], cwd=folder, stdin=pipe, stdout=pipe, text=True) as server:

        def run_command(command):
            print(command, file=server.stdin, flush=True)
            return int(server.stdout.readline()), (folder / "stderr").read_text()

        yield run_command


@pytest.mark.parametrize(
    "command",
    [
        "demo --html demo.html",
        "audit rows.npy --json audit.json",
        "audit rows.parquet --by label",
        "audit wide.parquet --html wide.html",
        "similarity rows.parquet 0.5",
        "convert rows.parquet copy.parquet",
        "sketch wide.parquet -o rows.sketch",
        "fix center rows.parquet -o fixed.parquet",
        "advise rows.parquet --labels label",
        "embed words.txt texts.txt -o states",
        "study list",
        "study show clusters-and-manifolds",
    ],
)
def test_commands_work_without_extras(run, command):
    code, printed = run(command)
    assert code == 0, printed


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("embed model texts.txt -o none", "torch", "embed"),
        ("finetune model --train task.csv --dev task.csv -o none", "torch", "train"),
        ("audit rows.h5", "h5py", "hdf5"),
        ("audit postgresql://localhost/db?table=t", "psycopg", "postgres"),
        ("audit qdrant:http://localhost:1#c", "qdrant-client", "qdrant"),
        ("audit lancedb:database#t", "lancedb", "lancedb"),
        ("audit chroma:database#c", "chromadb", "chroma"),
        ("audit duckdb:words.txt#t", "duckdb", "duckdb"),
        ("audit milvus:a.db#c", "milvus-lite", "milvus"),
        ("audit https://localhost/rows.npy", "aiohttp", "http"),
        ("audit s3://bucket/rows.npy", "s3fs", "s3"),
        ("audit rows.npy --engine dask", "distributed", "dask"),
        ("mcp", "MCP SDK", "mcp"),
    ],
)
def test_commands_that_need_an_extra_name_it(folder, run, command, package, extra):
    code, printed = run(command)
    assert code == 2, printed
    assert package in printed
    assert f"isoscope[{extra}]" in printed
    assert len(printed.splitlines()) == 1
    assert not (folder / "none").exists()
