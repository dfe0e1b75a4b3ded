"""Compare the time to apply a repair to a file with `cat`: no repair can be faster than copying the same bytes.

Each measurement is for a complete process, including imports. The processes alternate, the file is in the page cache,
and each copy is synced to disk. The target for the three repairs without a full matrix product is twice the time that
`cat` takes. Whitening multiplies each vector by a d×d matrix, and is compared with that product alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from audits import Run, timed, write_cloud
from pages import write_table

SIZE = (1_000_000, 768)
SMALL = (100_000, 768)
PROMISED = 2.0
METHODS = ("center", "standardize", "all-but-the-top", "whiten")
ISOSCOPE = [sys.executable, "-m", "isoscope"]


def product_seconds(n: int, d: int) -> float:
    """Return the time in seconds that the matrix product of whitening takes, in memory and on all cores."""
    rng = np.random.default_rng(0)
    rows, matrix = rng.standard_normal((20_000, d), np.float32), rng.standard_normal((d, d), np.float32)
    taken = []
    for _ in range(4):
        start = time.perf_counter()
        rows @ matrix
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:]) * n / len(rows)


def in_turns(commands: dict[str, list[str]], copies: list[Path], repeats: int) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(repeats + 1):
        for name, command in commands.items():
            for copy in copies:
                copy.unlink(missing_ok=True)
            subprocess.run(["sync"], check=True)  # so that this run does not wait for writes of the previous run
            run = timed(command)
            if turn:
                runs[name].append(run)
            print(
                f"  {name:<16} {run.seconds:6.2f} s  {run.processor:6.2f} s CPU  {run.megabytes:6.0f} MB",
                flush=True,
            )
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    parser.add_argument("--small", action="store_true", help="use a tenth of the rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for temporary files; needs 7 GB")
    options = parser.parse_args()
    n, d = SMALL if options.small else SIZE
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        source, copy, out = folder / "cloud.npy", folder / "copy", folder / "out.npy"
        write_cloud(source, n, d)
        commands = {"cat": ["sh", "-c", f"cat {source} > {copy} && sync {copy}"]}
        for method in METHODS:
            saved = str(folder / method)
            subprocess.run([*ISOSCOPE, "fit", method, str(source), "-o", saved], check=True, stdout=subprocess.DEVNULL)
            commands[method] = [*ISOSCOPE, "apply", saved, str(source), "-o", str(out)]
        runs = in_turns(commands, [copy, out], options.repeats)
    product = product_seconds(n, d)
    cat = statistics.median(run.seconds for run in runs["cat"])
    lines = []
    for method, taken in runs.items():
        seconds, processor, memory = (
            statistics.median(getattr(run, it) for run in taken) for it in ("seconds", "processor", "megabytes")
        )
        ratio = "" if method == "cat" else f"{seconds / cat:.2f}×"
        wanted = f"under {PROMISED:g}× {'✓' if seconds < PROMISED * cat else '✗'}" if method in METHODS[:3] else ""
        wanted = f"none; the matrix product alone takes {product:.1f} s" if method == "whiten" else wanted
        size = "" if method == "cat" else f"{memory:,.0f} MB"  # that of the shell
        lines.append(f"| {method} | {seconds:.2f} s | {ratio} | {processor:.1f} s | {size} | {wanted} |")
    head = f"Python {platform.python_version()}, {os.cpu_count()} cores. Each command reads {n:,}×{d} float32 vectors "
    head += f"({n * d * 4 / 1e9:.2f} GB) from one .npy file and writes another, synced to disk. "
    head += "Times are for complete processes (medians; the commands run in turn)."
    table = (
        "| repair | time | relative to cat | CPU time | peak memory | target |\n|---|---|---|---|---|---|\n"
        + "\n".join(lines)
    )
    text = f"{head}\n\n{table}"
    print(text)
    if options.page:
        write_table(options.page, text, "applying")


if __name__ == "__main__":
    main()
