"""Run all parts of `make bench` in turn, each in its own process, and write their tables into a page.

A part that fails or takes too long does not stop the others. At the end, the time of each part, the missed targets and
the failed parts are printed. The exit code is 1 if a part failed; a missed target is not a failure. The parts need up
to 10 GB in the folder for temporary files (TMPDIR).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
TIME_LIMIT = 20 * 60.0  # seconds for each part


@dataclass(frozen=True)
class Part:
    script: str
    quick: tuple[str, ...]  # the options for small inputs
    reads_data: bool = False  # whether real texts replace the packaged ones


PARTS = {
    "functions": Part("bench.py", ("--only", "participation_ratio", "isoscore_star", "persistent_entropy")),
    "audits": Part("audits.py", ("--small",)),
    "thresholds": Part("thresholds.py", ("--rows", "5000", "--repeats", "1")),
    "repairs": Part("repairs.py", ("--rows", "10000")),
    "applying": Part("applying.py", ("--small", "--repeats", "1")),
    "advising": Part("advising.py", ("--only", "busy", "postgres")),
    "training": Part("training.py", ("--batches", "2"), reads_data=True),
    "embedding": Part("embedding.py", ("--turns", "1", "--lines", "200"), reads_data=True),
    "studies": Part("studies.py", ("--updates", "1")),
}


@dataclass
class Outcome:
    seconds: float
    failure: str  # "" if the part succeeded
    missed: list[str] = field(default_factory=list)


def run_part(part: Part, options: argparse.Namespace) -> Outcome:
    """Run a part, print its output as it appears, and return what became of it."""
    command = [sys.executable, "-u", str(HERE / part.script)]
    command += part.quick if options.quick else []
    command += ["--page", str(options.page)] if options.page else []
    command += ["--data", str(options.data)] if options.data and part.reads_data else []
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        os.killpg(process.pid, signal.SIGKILL)  # also the processes that the part started

    watch = threading.Timer(options.limit, stop)
    watch.start()
    lines = []
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip())
        code = process.wait()
    except BaseException:
        stop()
        process.wait()
        raise
    finally:
        watch.cancel()
    seconds = time.perf_counter() - start
    failure = f"stopped after {options.limit:g} s" if stopped.is_set() else f"exit code {code}" if code else ""
    return Outcome(seconds, failure, list(dict.fromkeys(line for line in lines if "✗" in line)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="run only these parts")
    parser.add_argument("--page", type=Path, help="write the tables into this page, between their markers")
    parser.add_argument("--data", type=Path, help="a folder with cola/train.tsv and wikitext2/valid.txt")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT, help="stop a part after this many seconds")
    parser.add_argument("--quick", action="store_true", help="use small inputs, to check that each part runs")
    options = parser.parse_args()
    if options.quick and options.page:
        parser.error("--quick measures small inputs, which do not belong on the page: omit --page")
    outcomes = {}
    for name in options.only:
        print(f"\n=== {name} ({PARTS[name].script})", flush=True)
        outcomes[name] = run_part(PARTS[name], options)
    missed = [line for outcome in outcomes.values() for line in outcome.missed]
    print(f"\n=== Missed targets: {len(missed)}", *missed, sep="\n")
    print("\n=== Time of each part")
    for name, outcome in outcomes.items():
        print(f"{name:<12} {outcome.seconds:7.1f} s  {outcome.failure and 'FAILED: ' + outcome.failure}".rstrip())
    print(f"{'total':<12} {sum(outcome.seconds for outcome in outcomes.values()):7.1f} s")
    return int(any(outcome.failure for outcome in outcomes.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # run_part then stops its processes
    sys.exit(main())
