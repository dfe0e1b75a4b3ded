"""Compare complete audits with two tools that cover parts of an audit; each tool is run as a user would run it.

All tools read the same file on the same cores. Time is wall-clock time, and memory is the peak resident set size of the
process, including imports (read every 20 ms). The first run of each tool is not counted. The largest size runs once,
and a tool is stopped there as soon as it has taken longer than the target allows. `make bench` runs this script after
bench.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from pages import write_table

SIZES = ((20_000, 384, 3), (100_000, 768, 1))
LARGE = (1_000_000, 768)
COMPARED = (100_000, 384)
LAYERS = (7, 90_304, 384)  # layers, and the shape of each
FEW = (100, 384)
TARGETS = {(20_000, "vecscope"): 6, (20_000, "spectralyte"): 4, (100_000, "vecscope"): 60, (100_000, "spectralyte"): 4}
MAX_BY_LAYER, MAX_FEW, MAX_BUSY = 20.0, 0.93, 2.5  # seconds, seconds, times the idle time
SPINNERS = 2  # processes that keep the cores busy
PATIENCE = 600.0  # seconds after which a tool is stopped
HERE = Path(sys.executable).parent

COMMANDS = {
    "isoscope": [str(HERE / "isoscope"), "audit", "{file}", "--json", "{out}.json"],
    "isoscope with the HTML page": [str(HERE / "isoscope"), "audit", "{file}", "--html", "{out}.html"],
    "vecscope": [str(HERE / "vecscope"), "audit", "{file}", "--json"],
    "spectralyte": [
        sys.executable,
        "-c",
        "import sys, numpy as np; from spectralyte import Spectralyte; Spectralyte(np.load(sys.argv[1])).run()",
        "{file}",
    ],
}
MEASURES = {
    "isoscope": "16 to 20 findings with intervals, and figures",
    "vecscope": "11 findings",
    "spectralyte": "2 metrics (its default)",
}


@dataclass
class Run:
    seconds: float
    megabytes: float
    stopped: bool = False
    processor: float = 0.0  # CPU seconds, summed over all cores


class PeakMemory(threading.Thread):
    """The peak memory of a running process, in megabytes.

    `ru_maxrss` starts from the memory of the process that started the command, so it is too large for small commands.
    """

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self.status, self.megabytes, self.ended = Path(f"/proc/{process}/status"), 0.0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            with contextlib.suppress(OSError, IndexError):  # the process has ended, or this is not Linux
                self.megabytes = int(self.status.read_text().split("VmHWM:")[1].split()[0]) / 1024


def timed(command: list[str], patience: float = PATIENCE) -> Run:
    """Run a command until it exits or times out; return its time and peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    watch, memory = threading.Timer(patience, process.send_signal, [signal.SIGKILL]), PeakMemory(process.pid)
    watch.start()
    memory.start()
    _, status, used = os.wait4(process.pid, 0)
    watch.cancel()
    memory.ended.set()
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    stopped = process.returncode == -signal.SIGKILL
    if process.returncode not in (0, 1) and not stopped:  # exit code 1 reports a bad verdict
        raise RuntimeError(f"{command[0]} failed with exit code {process.returncode}")
    return Run(seconds, memory.megabytes or used.ru_maxrss / 1024, stopped, used.ru_utime + used.ru_stime)


def write_cloud(path: Path, n: int, d: int) -> None:
    """Write float32 vectors from fifty clusters with decaying variances and a common mean."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, d)).astype(np.float32)
    fading = (np.arange(1, d + 1) ** -0.3).astype(np.float32)
    with path.open(
        "wb"
    ) as file:  # no memory map, because the peak memory of a child process starts from that of its parent
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, d)})
        for start in range(0, n, 20_000):
            m = min(20_000, n - start)
            noise = rng.standard_normal((m, d), dtype=np.float32) * fading
            file.write((noise + 0.5 * centres[rng.integers(0, 50, m)] + 0.4).astype(np.float32).tobytes())


def write_layers(folder: Path) -> None:
    """Write token states in the way that `isoscope embed` does: one file per layer, with the document of each row."""
    layers, n, d = LAYERS
    rng = np.random.default_rng(0)
    tokens, documents = rng.zipf(1.3, n) % 5_000, np.arange(n) // 120
    fading = (np.arange(1, d + 1) ** -0.3).astype(np.float32)
    centers = rng.standard_normal((5_000, d), dtype=np.float32)
    contexts = rng.standard_normal((documents[-1] + 1, d), dtype=np.float32) * fading
    for layer in range(layers):
        depth = layer / (layers + 1)
        noise = rng.standard_normal((n, d), dtype=np.float32) * fading
        states = (1 - depth) * centers[tokens] + (0.3 + depth) * noise + depth * contexts[documents] + 0.8 * depth
        table = pa.table(
            {
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(states.astype(np.float32).ravel()), d),
                "layer": np.full(n, layer),
                "document": documents,
            }
        )
        with (
            pa.OSFile(str(folder / f"layer-{layer:02d}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as out,
        ):
            out.write_table(table, max_chunksize=8_192)


def mark(is_met: bool) -> str:
    return "✓" if is_met else "✗"


def tool(name: str) -> str:
    first = name.split()[0]
    return name.replace(first, f"{first} {version(first)}")


def lines_for(path: Path, n: int, d: int, repeats: int) -> list[str]:
    filled = {name: [part.format(file=path, out=path.with_suffix("")) for part in c] for name, c in COMMANDS.items()}
    runs: dict[str, list[Run]] = {name: [] for name in filled}
    for turn in range(repeats + 1):
        for name, command in filled.items():
            if turn == 0 and repeats == 1 and name != "isoscope":
                continue  # one run is long enough; only isoscope, which compiles code on its first run, is warmed up
            if any(run.stopped for run in runs[name]):
                continue
            limit = PATIENCE
            if repeats == 1 and (n, name) in TARGETS:
                limit = 1.05 * TARGETS[n, name] * runs["isoscope"][0].seconds
            run = timed(command, limit)
            if turn:
                runs[name].append(run)
            print(f"  {name:<24} {n:,}×{d}  {run.seconds:6.1f} s  {run.megabytes:6.0f} MB", flush=True)
    ours = statistics.median(run.seconds for run in runs["isoscope"])
    lines = []
    for name, taken in runs.items():
        seconds = statistics.median(run.seconds for run in taken)
        memory = statistics.median(run.megabytes for run in taken)
        more = "> " if taken[-1].stopped else ""
        told = f"{more}{seconds:.1f} s{', stopped' if more else ''}"
        ratio = "" if name == "isoscope" else f"{more}{seconds / ours:.2f}×"
        target = TARGETS.get((n, name))
        wanted = "" if target is None else f"{target}× {mark(seconds / ours >= target)}"
        lines.append(
            f"| {n:,}×{d} | {tool(name)} | {told} | {ratio} | {wanted} | {memory:,.0f} MB | {MEASURES.get(name, '')} |"
        )
    return lines


def start_up(folder: Path) -> str:
    taken = sorted(timed([str(HERE / "isoscope"), "--help"]).seconds for _ in range(11))
    path = folder / "few.npy"
    write_cloud(path, *FEW)
    few = [timed(audit_command(path)) for _ in range(6)][1:]
    seconds = statistics.median(run.seconds for run in few)
    return (
        f"`isoscope --help` takes {taken[5]:.2f} s (target: under 0.4 s). `isoscope audit` of {FEW[0]}×{FEW[1]} "
        f"vectors takes {seconds:.2f} s (target: at most {MAX_FEW} s) {mark(seconds <= MAX_FEW)}."
    )


def audit_command(path: Path, *options: str) -> list[str]:
    return [str(HERE / "isoscope"), "audit", str(path), *options, "--json", str(path.with_suffix(".json"))]


def by_layer(folder: Path) -> str:
    """Return how long an audit by layer takes."""
    path = folder / "layers"
    path.mkdir()
    write_layers(path)
    run = timed(audit_command(path, "--by", "layer"))
    shutil.rmtree(path)
    return (
        f"`isoscope audit --by layer` of {LAYERS[0]} layers of {LAYERS[1]:,}×{LAYERS[2]} float32 vectors takes "
        f"{run.seconds:.1f} s and {run.processor:.1f} s of CPU time (target: at most {MAX_BY_LAYER:.0f} s) "
        f"{mark(run.seconds <= MAX_BY_LAYER)}. It needs {run.megabytes:,.0f} MB of peak memory."
    )


def busy(path: Path) -> str:
    """Return how much longer an audit takes while other processes keep the cores busy; `path` is a file of vectors."""
    idle = statistics.median(timed(audit_command(path)).seconds for _ in range(3))
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(SPINNERS)]
    try:
        loaded = statistics.median(timed(audit_command(path)).seconds for _ in range(3))
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    n, d = SIZES[0][:2]
    ratio = loaded / idle
    return (
        f"Beside {SPINNERS} processes that use all cores, an audit of {n:,}×{d} vectors takes {loaded:.1f} s, "
        f"{ratio:.2f} times as long as alone (target: at most {MAX_BUSY} times) {mark(ratio <= MAX_BUSY)}."
    )


def large(folder: Path) -> str:
    path = folder / "large.npy"
    write_cloud(path, *LARGE)
    run = timed(audit_command(path))
    path.unlink()
    told = f"takes {run.seconds:.0f} s and needs {run.megabytes:,.0f} MB of peak memory (target: under 1,500 MB) "
    told += mark(run.megabytes < 1_500)
    return f"An audit of {LARGE[0]:,}×{LARGE[1]} float32 vectors from disk (3.07 GB) {told}."


def comparison(folder: Path) -> str:
    """Return how long `isoscope same` takes, relative to an audit of one of the two sources."""
    paths = [folder / f"{name}.npy" for name in ("old", "new")]
    for path in paths:
        write_cloud(path, *COMPARED)
    program, sources = str(HERE / "isoscope"), [str(path) for path in paths]
    audited = timed(audit_command(paths[0])).seconds
    compared = timed([program, "same", *sources, "--json", str(folder / "same.json")]).seconds
    for path in paths:
        path.unlink()
    return (
        f"`isoscope same` takes {compared:.1f} s for two files of {COMPARED[0]:,}×{COMPARED[1]} float32 vectors, "
        f"{compared / audited:.2f} times as long as an audit of one of them (target: at most 2 times) "
        f"{mark(compared <= 2 * audited)}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    parser.add_argument("--small", action="store_true", help="run only the smallest size")
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for n, d, repeats in SIZES[:1] if options.small else SIZES:
            path = Path(folder) / f"cloud-{n}.npy"
            write_cloud(path, n, d)
            lines += lines_for(path, n, d, repeats)
        smallest = Path(folder) / f"cloud-{SIZES[0][0]}.npy"
        remarks = [start_up(Path(folder)), busy(smallest)]
        if not options.small:
            remarks += [by_layer(Path(folder)), comparison(Path(folder)), large(Path(folder))]
    head = f"Python {platform.python_version()}, {os.cpu_count()} cores. "
    head += "Times are for complete processes (medians; the tools run in turn)."
    table = (
        "| file | tool | time | relative to isoscope | target | peak memory | measures |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(lines)
    )
    text = "\n\n".join([head, table, *remarks])
    print(text)
    if options.page:
        write_table(options.page, text, "audits")


if __name__ == "__main__":
    main()
