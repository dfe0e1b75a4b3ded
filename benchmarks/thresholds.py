"""Compare the time of `isoscope threshold` with that of an audit of the same file; the target is at most twice as long.

python benchmarks/thresholds.py [--rows 100000] [--repeats 3] [--page docs/performance.md]

Each command is a complete process. The commands run in turn, and the first run of each is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from audits import Run, timed, write_cloud
from pages import write_table

DIMENSIONS, QUERIES, CLASSES, TARGET = 384, 500, 50, 2.0


def prepare(folder: Path, rows: int) -> dict[str, list[str]]:
    """Write vectors, labels, queries and judgments, and return the commands."""
    write_cloud(folder / "cloud.npy", rows, DIMENSIONS)
    rng = np.random.default_rng(0)
    np.save(folder / "labels.npy", rng.integers(0, CLASSES, rows))
    some = np.sort(rng.permutation(rows)[:QUERIES])
    vectors = np.load(folder / "cloud.npy", mmap_mode="r")
    np.save(folder / "queries.npy", vectors[some] + 0.3 * rng.standard_normal((QUERIES, DIMENSIONS), dtype=np.float32))
    lines = "".join(f"{i}\t{row}\t1\n" for i, row in enumerate(some))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    (folder / "ids.txt").write_text("\n".join(map(str, range(rows))))
    (folder / "query-ids.txt").write_text("\n".join(map(str, range(QUERIES))))
    isoscope, cloud = [sys.executable, "-m", "isoscope"], str(folder / "cloud.npy")
    judged = ["--queries", "queries.npy", "--qrels", "qrels.tsv", "--ids", "ids.txt", "--query-ids", "query-ids.txt"]
    judged = [str(folder / word) if "." in word else word for word in judged]
    return {
        "`audit`": [*isoscope, "audit", cloud],
        "`threshold`, without judgments": [*isoscope, "threshold", cloud],
        "`threshold --labels`": [*isoscope, "threshold", cloud, "--labels", str(folder / "labels.npy"), "--f1"],
        "`threshold --queries --qrels`": [*isoscope, "threshold", cloud, *judged, "--f1"],
    }


def main() -> None:
    """Time the commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = prepare(Path(folder), options.rows)
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for turn in range(options.repeats + 1):
            for name, command in commands.items():
                run = timed(command)
                print(f"  {name:<32} {run.seconds:6.1f} s  {run.megabytes:6.0f} MB", flush=True)
                if turn:
                    runs[name].append(run)
    audit = statistics.median(run.seconds for run in runs["`audit`"])
    cpu = statistics.median(run.processor for run in runs["`audit`"])
    lines = ["| command | time | relative to the audit | CPU time, relative | peak memory |", "|---|---|---|---|---|"]
    for name, taken in runs.items():
        seconds = statistics.median(run.seconds for run in taken)
        ratio, memory = seconds / audit, statistics.median(run.megabytes for run in taken)
        mark = "" if name == "`audit`" else " ✓" if ratio <= TARGET else " ✗"
        busy = statistics.median(run.processor for run in taken) / cpu
        lines.append(f"| {name} | {seconds:.1f} s | {ratio:.2f}×{mark} | {busy:.2f}× | {memory:,.0f} MB |")
    runs_each = "one run each" if options.repeats == 1 else f"medians of {options.repeats} runs"
    head = f"{options.rows:,}×{DIMENSIONS} float32 vectors, {os.cpu_count()} cores, {runs_each}. "
    text = head + f"The target is at most {TARGET:g} times the time of the audit.\n\n" + "\n".join(lines)
    print(text)
    if options.page:
        write_table(options.page, text, "thresholds")


if __name__ == "__main__":
    main()
