"""A file several times larger than the memory: the real commands, in processes whose address space is limited."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import isoscope

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux alone"),
    pytest.mark.xdist_group("large"),  # the file is made once
]

LIMIT = 512 * 2**20  # of address space; most of what libraries take of it is never looked at
WITH_SKLEARN, LIBRARIES = 768 * 2**20, 600 * 2**20  # it has a BLAS of its own
WITH_KMEANS = 1_100 * 10**6
ROWS, DIM = 3_200_000, 64
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


@pytest.fixture(scope="module")
def block():
    return np.random.default_rng(0).standard_normal((50_000, DIM)) + np.linspace(0, 1, DIM)


@pytest.fixture(scope="module")
def large(block, tmp_path_factory):
    """A file in float64, which has half as many values as float32; rows of both are returned without a copy."""
    path = write_blocks(tmp_path_factory.mktemp("large") / "large.npy", block, ROWS)
    assert path.stat().st_size > 3 * LIMIT
    yield path
    path.unlink()


def write_blocks(path, block, rows):
    """Write one block of rows repeatedly."""
    with path.open("wb") as file:
        about = {
            "descr": np.lib.format.dtype_to_descr(block.dtype),
            "fortran_order": False,
            "shape": (rows, block.shape[1]),
        }
        np.lib.format.write_array_header_1_0(file, about)
        for _ in range(rows // len(block)):
            file.write(block.data)
    return path


def limited(*arguments, limit=LIMIT, **options):
    """Run Python in a process that cannot have more address space than the limit."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,  # a BLAS that gets no memory may ask for it for ever
        **options,
    )


def command(*arguments, limit=LIMIT, memory="250MB"):
    done = limited("-m", "isoscope", *arguments, "--max-memory", memory, limit=limit)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_memory_limit_is_enforced(large):
    for mode in ("None", "'r'"):
        done = limited("-c", f"import numpy; numpy.load({str(large)!r}, mmap_mode={mode})", limit=WITH_SKLEARN)
        assert done.returncode
        assert "memory" in done.stderr.lower()


def mean_cosine(block):
    """Return the mean cosine of the repeated block."""
    wide = block.astype(np.float64)
    unit = np.linalg.norm((wide / np.linalg.norm(wide, axis=1, keepdims=True)).mean(axis=0)) ** 2
    return (ROWS * unit - 1) / (ROWS - 1)


def test_audit(large, block, tmp_path):
    command("audit", large, "--sample", 100, "--json", tmp_path / "audit.json", "--html", tmp_path / "audit.html")
    found = isoscope.Audit.from_json(tmp_path / "audit.json")
    assert found.n == ROWS
    assert found["mean_cosine"].value == pytest.approx(mean_cosine(block), rel=1e-6)
    assert (tmp_path / "audit.html").stat().st_size > 10_000


@pytest.mark.heavy
def test_sketch(large, block, tmp_path):
    command("sketch", large, "-o", tmp_path / "large.sketch")
    assert isoscope.Sketch.load(tmp_path / "large.sketch").mean_cosine() == pytest.approx(mean_cosine(block), rel=1e-6)


@pytest.mark.heavy
def test_similarity(large):
    assert "0.9 is above 100% of the pairs in large.npy" in command("similarity", large, 0.9, "--sample", 100)


@pytest.mark.heavy
def test_fit_and_apply(large, block, tmp_path):
    assert large.stat().st_size > 2 * WITH_SKLEARN
    command("fit", "center", large, "-o", tmp_path / "repair", limit=WITH_SKLEARN)
    repair = isoscope.load_transform(tmp_path / "repair")
    np.testing.assert_allclose(repair.mean_, block.mean(axis=0, dtype=np.float64), rtol=1e-9)
    command("apply", tmp_path / "repair", large, "-o", tmp_path / "out.npy")
    made = np.load(tmp_path / "out.npy", mmap_mode="r")
    assert made.shape == (ROWS, DIM)
    np.testing.assert_allclose(made[-500:], repair.transform(block[-500:]), atol=1e-6)
    (tmp_path / "out.npy").unlink()


def test_convert(large, block, tmp_path):
    command("convert", large, tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy", mmap_mode="r")[-len(block) :], block)
    (tmp_path / "out.npy").unlink()


@pytest.mark.heavy
def test_fix(rng, tmp_path):
    """Run two audits with all neighbors, which are slow, on fewer values of 16 bytes each.

    The file and the libraries still do not fit into memory together. The other commands make the same passes without a
    copy.
    """
    rows, wide = 132_000, rng.standard_normal((12_000, 256)) + 1
    few = write_blocks(tmp_path / "few.npy", wide.astype(np.longdouble), rows)
    assert few.stat().st_size > 3 * (WITH_SKLEARN - LIBRARIES)
    options = {"limit": WITH_SKLEARN, "memory": "220MB"}
    shown = command("fix", "center", few, "-o", tmp_path / "out.npy", "--html", tmp_path / "both.html", **options)
    assert f"{rows:,} vectors" in shown
    made = np.load(tmp_path / "out.npy", mmap_mode="r")
    np.testing.assert_allclose(made[-500:], wide[-500:] - wide.mean(axis=0), atol=1e-9)
    assert (tmp_path / "both.html").stat().st_size > 10_000
    few.unlink()
    (tmp_path / "out.npy").unlink()


@pytest.mark.heavy
def test_advise(large):
    shown = command("advise", large, "--sample", 1000, limit=WITH_KMEANS)
    assert "Center" in shown or "nothing" in shown.lower()


def test_scattered_rows_are_found_under_the_limit(large, block):
    code = (
        "import sys, numpy, isoscope; store = isoscope.open_store(sys.argv[1]); "
        "print(numpy.abs(store.take(numpy.arange(0, len(store), 1003)).astype(float)).sum())"
    )
    done = limited("-c", code, large)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(np.abs(block[np.arange(0, ROWS, 1003) % len(block)].astype(float)).sum())


def test_too_little_memory_raises_one_line_error(large):
    done = limited("-m", "isoscope", "audit", large, "--max-memory", "100MB")
    assert done.returncode == 2
    assert done.stderr == "isoscope: a memory limit of 100MB is too small for d = 64: need at least 211MB\n"


@pytest.mark.parametrize("ending", ["npy", pytest.param("parquet", marks=pytest.mark.heavy)])
def test_max_memory_is_respected(tmp_path, ending):
    """Measure the memory of the process itself, RssAnon, every few milliseconds."""
    rows = np.random.default_rng(1).standard_normal((60_000, 96)).astype(np.float32)
    isoscope.write_store(rows, tmp_path / f"rows.{ending}")
    peak = own_memory("audit", tmp_path / f"rows.{ending}", "--max-memory", "220MB", "--json", tmp_path / "a.json")
    assert 50e6 < peak < 220e6
    assert json.loads((tmp_path / "a.json").read_text())["settings"]["sample"] < 20_000


def own_memory(*arguments):
    """Return the peak of the memory of a command's own process."""
    words = [sys.executable, "-m", "isoscope", *map(str, arguments)]
    peak = 0
    with subprocess.Popen(words, env={**os.environ, **ONE_THREAD}, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(1024 * int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line), 0)
            time.sleep(0.005)
    assert process.returncode == 0
    return peak
