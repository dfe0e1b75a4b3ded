"""Measure how time and memory scale: sketches and audits of 1e5 to 1e7 rows, with threads and with Dask.

Each number comes from a separate process, which is warmed up on a small file and then timed on the large one, without
imports. The file is first dropped from the page cache, so that it is read from disk. The baseline is the time to read
the same file plus the time that `ssyrk` takes on its rows. Memory is the sum of RssAnon over all workers, sampled
during the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from audits import write_cloud
from pages import write_table

D = 128
ROWS = (100_000, 1_000_000, 10_000_000)
MODEL_D = (128, 768)  # numbers of dimensions to which the cost model is fitted
KINDS = ("read", "syrk", "moments", "audit", "dask 1 moments", "dask 2 moments", "dask 2 audit")
WARM_ROWS = 20_000
CONFINED = 2**30  # bytes of address space
SHARE, MEMORY, DASK, EXPONENT = 0.6, 1000, 1.3, 1.05  # targets


# functions that run in the measured process


def dropped(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    buffer = bytearray(8 * 2**20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def syrk(path: Path) -> None:
    """Run `ssyrk` on the same number of rows as the file, with data that stay in the CPU cache."""
    from scipy.linalg.blas import ssyrk

    n, d = np.load(path, mmap_mode="r").shape
    block = np.random.default_rng(0).standard_normal((min(n, 16_384), d), dtype=np.float32)
    for _ in range(-(-n // len(block))):
        ssyrk(1.0, block.T, lower=1)


def moments(path: Path, engine: Any = "local") -> None:
    """Compute a sketch and the measurements that are derived from it."""
    import isoscope

    sketch = isoscope.sketch(path, engine=engine)
    for each in ("isoscore", "mean_cosine", "effective_rank", "participation_ratio", "anisotropy", "spectrum"):
        getattr(sketch, each)()


def audit(path: Path, engine: Any = "local") -> None:
    import isoscope

    isoscope.audit(path, engine=engine)


def measured(kind: str, path: Path, small: Path, cold: bool) -> float:
    """Return the time in seconds that one kind of work takes after a warm-up."""
    work: Callable[..., None] = {"read": read, "syrk": syrk, "moments": moments, "audit": audit}[kind.split()[-1]]
    if kind.startswith("dask"):
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=int(kind.split()[1]), threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0
            ) as cluster,
            Client(cluster) as client,
        ):
            client.run(audit, small)  # so that each worker has imported its modules
            return _timed(lambda: work(path, client), lambda: work(small, client), path, cold)
    return _timed(lambda: work(path), lambda: work(small), path, cold)


def _timed(work: Callable[[], None], warm: Callable[[], None], path: Path, cold: bool) -> float:
    warm()
    if cold:
        dropped(path)
    else:
        read(path)
    print("start", flush=True)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# functions that start and watch the measured process


def family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def own_memory(pid: int) -> float:
    """Return the memory of a process and its descendants in megabytes, without the page cache."""
    total = 0
    for each in family(pid):
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return total / 1024


def run(kind: str, path: Path, small: Path, *, cold: bool = True) -> tuple[float, float]:
    """Return the time in seconds and the peak memory in megabytes of one kind of work, run in a separate process."""
    command = [sys.executable, __file__, "--measure", kind, str(path), str(small), "cold" if cold else "warm"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            peak[0] = max(peak[0], own_memory(process.pid))

    assert process.stdout is not None
    process.stdout.readline()
    watching = threading.Thread(target=watch)
    watching.start()
    told = process.stdout.read()
    over.set()
    watching.join()
    if process.wait():
        raise RuntimeError(f"{kind} failed with exit code {process.returncode}")
    seconds = float(json.loads(told)["seconds"])
    print(f"  {kind:<16} {path.stem:>12} {seconds:8.2f} s {peak[0]:7.0f} MB", flush=True)
    return seconds, peak[0]


def in_turns(paths: dict[int, Path], small: Path, repeats: int) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the median time and the peak memory of each kind of work; the kinds alternate."""
    taken: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for n, path in paths.items():
        for _ in range(repeats):
            for kind in KINDS:
                taken.setdefault((kind, n), []).append(run(kind, path, small))
    return {key: (statistics.median(t for t, _ in runs), max(m for _, m in runs)) for key, runs in taken.items()}


def table(found: dict[tuple[str, int], tuple[float, float]], rows: tuple[int, ...]) -> str:
    lines = ["| | " + " | ".join(f"{n:,} rows" for n in rows) + " | peak memory |", "|---" * (len(rows) + 2) + "|"]
    for kind in KINDS:
        name = {"read": "reading the file", "syrk": "`ssyrk` on all rows", "moments": "moments, local engine"}.get(
            kind, kind
        )
        name = {"audit": "complete audit, local engine"}.get(kind, name)
        if kind.startswith("dask"):
            _, workers, work = kind.split()
            name = (
                f"{'moments' if work == 'moments' else 'complete audit'}, Dask, {workers} worker{'s' * (workers > '1')}"
            )
        memory = max(found[kind, n][1] for n in rows)
        times = " | ".join(f"{found[kind, n][0]:.2f} s" for n in rows)
        lines.append(f"| {name} | {times} | {'' if kind in ('read', 'syrk') else f'{memory:,.0f} MB'} |")
    return "\n".join(lines)


def verdicts(found: dict[tuple[str, int], tuple[float, float]], rows: tuple[int, ...]) -> str:
    last = rows[-1]
    seconds = {kind: found[kind, last][0] for kind in KINDS}
    share = (seconds["read"] + seconds["syrk"]) / seconds["moments"]
    memory = max(found[kind, n][1] for kind in ("moments", "audit") for n in rows)
    lines = ["| target | measured | required |", "|---|---|---|"]

    def line(what: str, value: float, shown: str, wanted: str, kept: bool) -> None:
        lines.append(f"| {what} | {shown.format(value)} | {wanted} {'✓' if kept else '✗'} |")

    line(
        "speed of computing the moments, relative to reading the file and then running `ssyrk`",
        share,
        "{:.0%}",
        f"at least {SHARE:.0%}",
        share >= SHARE,
    )
    line("memory without the page cache, local engine", memory, "{:,.0f} MB", f"under {MEMORY:,} MB", memory < MEMORY)
    for work in ("moments", "audit"):
        ratio = seconds[f"dask 2 {work}"] / seconds[work]
        line(
            f"time for the {work} with 2 workers, relative to the local engine",
            ratio,
            "{:.2f}×",
            f"at most {DASK}×",
            ratio <= DASK,
        )
        slope = np.polyfit(np.log(rows), np.log([found[work, n][0] for n in rows]), 1)[0]
        line(
            f"time for the {work}, exponent of its growth with the number of rows",
            slope,
            "{:.2f}",
            f"at most {EXPONENT}",
            slope <= EXPONENT,
        )
    return "\n".join(lines)


def confined(path: Path) -> str:
    """Run `isoscope audit` on a file that is several times larger than the address space limit of the process."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "isoscope", "audit", str(path), "--max-memory", "300MB"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (CONFINED, CONFINED)),
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    size = path.stat().st_size
    told = f"`isoscope audit --max-memory 300MB` with one thread under a `ulimit -v` of {CONFINED / 1e9:.2f} GB, "
    told += f"on a file of {size / 1e9:.2f} GB ({size / CONFINED:.1f} times the limit), "
    took = time.perf_counter() - start
    return told + (f"failed: {done.stderr.strip()}" if done.returncode else f"takes {took:.0f} s.")


# the cost model


def model(folder: Path, small_rows: int) -> tuple[str, dict[str, Any]]:
    """Fit the core time per row, a·d + b·d² seconds, to files with two numbers of dimensions and two numbers of rows.

    The files are in the page cache. With 400,000 rows or more, an audit searches the neighbors of a thousand rows; with
    fewer rows, it searches those of more rows.
    """
    costs: dict[str, tuple[float, float]] = {}
    constant = 0.0
    for kind in ("moments", "audit"):
        each = []
        for d in MODEL_D:
            taken = []
            for n in (small_rows, 2 * small_rows):
                path = folder / f"model-{n}-{d}.npy"
                if not path.exists():
                    write_cloud(path, n, d)
                small = folder / f"small-{d}.npy"
                if not small.exists():
                    write_cloud(small, WARM_ROWS, d)
                taken.append(run(kind, path, small, cold=False)[0])
            each.append((taken[1] - taken[0]) / small_rows * (os.cpu_count() or 1))
            constant = max(constant, taken[0] - each[-1] * small_rows / (os.cpu_count() or 1))
        (d1, d2), (c1, c2) = MODEL_D, each
        b = max((c2 / d2 - c1 / d1) / (d2 - d1), 0.0)
        costs[kind] = (c1 / d1 - b * d1, b)
    lines = ["| | core time per row | with 128 dimensions | with 768 dimensions |", "|---|---|---|---|"]
    for kind, (a, b) in costs.items():
        at = [f"{1e6 * (a * d + b * d * d):.2f} µs" for d in MODEL_D]
        name = "moments" if kind == "moments" else "complete audit"
        lines.append(f"| {name} | {1e9 * a:.2f} ns · d + {1e12 * b:.2f} ps · d² | {' | '.join(at)} |")
    return "\n".join(lines), {"costs": costs, "constant": constant}


def prediction(costs: dict[str, tuple[float, float]], constant: float, read_rate: float) -> str:
    """Predict the time for 1e9×768 vectors on machines with 16 cores and one disk each, as fast as on this machine."""
    n, d, cores = 1e9, 768, 16
    size = n * d * 4
    lines = [
        "| machines with 16 cores | reading once | moments | complete audit, two passes |",
        "|---|---|---|---|",
    ]
    for machines in (1, 4, 16, 64):
        reading = size / (machines * read_rate)
        told = []
        for kind, passes in (("moments", 1), ("audit", 2)):
            a, b = costs[kind]
            working = n * (a * d + b * d * d) / (machines * cores)
            told.append(_spoken(max(passes * reading, working) + (constant if kind == "audit" else 0)))
        lines.append(f"| {machines} | {_spoken(reading)} | {told[0]} | {told[1]} |")
    return "\n".join(lines)


def _spoken(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--rows", type=float, nargs="+", default=ROWS, help="numbers of rows of the files")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for temporary files; needs 9 GB")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, path, small, cold = options.measure
        print(json.dumps({"seconds": measured(kind, Path(path), Path(small), cold == "cold")}))
        return
    rows = tuple(int(n) for n in options.rows)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        small = folder / f"small-{D}.npy"
        write_cloud(small, WARM_ROWS, D)
        paths = {n: folder / f"cloud-{n}.npy" for n in rows}
        for n, path in paths.items():
            write_cloud(path, n, D)
        found = in_turns(paths, small, options.repeats)
        within = confined(paths[rows[-1]])
        print(within, flush=True)
        costs, numbers = model(folder, 400_000)
    read_rate = rows[-1] * D * 4 / found["read", rows[-1]][0]
    head = (
        f"Measured with Python {platform.python_version()} on {os.cpu_count()} cores. The vectors have {D} dimensions "
    )
    head += f"in float32; {rows[-1]:,} rows take {rows[-1] * D * 4 / 1e9:.2f} GB. Files are read from disk "
    head += f"({read_rate / 1e9:.2f} GB/s). The computations run in turn; each time is "
    head += f"the median of {options.repeats} runs." if options.repeats > 1 else "from a single run."
    text = f"{head}\n\n{table(found, rows)}\n\n{verdicts(found, rows)}\n\n{within}"
    predicted = prediction(numbers["costs"], numbers["constant"], read_rate)
    told = (
        f"{costs}\n\nThe computations on the sample take {numbers['constant']:.0f} s per audit, for any number of rows."
    )
    print(f"{text}\n\n{told}\n\n{predicted}")
    if options.page:
        write_table(options.page, text, "scale")
        write_table(options.page, told, "cost")
        write_table(options.page, predicted, "prediction")


if __name__ == "__main__":
    main()
