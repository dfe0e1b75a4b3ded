"""Check that the tests notice faults: change one operator or number of the source at a time, and run its tests.

    python tools/mutants.py                           120 mutants of all packages (about an hour on 2 cores)
    python tools/mutants.py --package _io --count 20  20 mutants of one package
    python tools/mutants.py --list                    print the mutants without running them

The mutants are spread over the packages in proportion to their code lines. The seed chooses them, and most of the
choice stays the same when other lines change. Each mutant runs in a temporary copy of this checkout, first against the
doctests of the module and the tests of its package that are named after it or import it, then against the other tests
of the package, then against the tests of modules elsewhere that import it. A failed test, a crash or a hang kills the
mutant. Tests that fail without a mutant are left out and listed.

`--results` keeps one line of JSON per mutant. A rerun resumes, and repeats only the mutants whose module or tests have
changed. The exit code is 1 if fewer than 93% are killed, and 2 if some were not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import structure
from mutators import Finder, Mutant, code_lines

ROOT = Path(__file__).resolve().parent.parent

LEAST_SHARE = 0.93
"""The share of mutants that the tests must kill."""

TEST_SECONDS, SILENT_SECONDS = 150, 300
"""The limits that end a hang: of one test, and of a process in which no test ends (a loop in compiled code)."""

PASSED = (0, 5)
"""The exit codes of pytest without a failure: all tests passed, or the files contain no tests."""

MEMORY = 8 * 2**30
"""The limit of each test process in bytes, which ends a mutant that allocates without end."""


def package_of(path: str) -> str:
    """Return the package below isoscope that a module belongs to, or isoscope for a module beside the packages."""
    parts = Path(path).parts
    return parts[2] if len(parts) > 3 else parts[1]


def digest(*contents: bytes) -> str:
    """Return a hash."""
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


def choose(root: Path, count: int, seed: int, packages: list[str]) -> list[Mutant]:
    """Return a random choice of mutants, at most one per line, spread over the packages by their code lines."""
    modules: dict[str, list[Path]] = defaultdict(list)
    for file in structure.modules(root / "src" / "isoscope").values():
        modules[package_of(file.relative_to(root).as_posix())].append(file)
    if unknown := set(packages) - set(modules):
        raise SystemExit(f"src/isoscope has no package {min(unknown)}; its packages are {', '.join(sorted(modules))}")
    packages = sorted(set(packages or modules))
    lines = {package: sum(code_lines(file.read_bytes()) for file in modules[package]) for package in packages}
    shares = {package: count * lines[package] / sum(lines.values()) for package in packages}
    by_remainder = sorted(shares, key=lambda package: int(shares[package]) - shares[package])
    rounded_up = by_remainder[: count - sum(map(int, shares.values()))]

    chosen: list[Mutant] = []
    for package, share in shares.items():
        ranked: dict[str, Mutant] = {}
        for file in modules[package]:
            equal: Counter[str] = Counter()  # changes of the same text in one module
            for mutant in Finder(file.relative_to(root).as_posix(), file.read_bytes()).find():
                equal[mutant.change] += 1
                # A rank that does not depend on other lines: a later version is checked with much the same mutants.
                rank = digest(f"{seed} {mutant.path} {mutant.change} {equal[mutant.change]}".encode())
                ranked[rank] = mutant
        one_per_line: dict[tuple[str, int], Mutant] = {}
        for _, mutant in sorted(ranked.items()):
            one_per_line.setdefault((mutant.path, mutant.line), mutant)
        chosen += [*one_per_line.values()][: int(share) + (package in rounded_up)]
    return chosen


@cache
def imports_by_file(root: Path) -> dict[Path, set[str]]:
    """Return the modules of isoscope that each module and each test file imports."""
    known = structure.modules(root / "src" / "isoscope")
    return {file: structure.imports(file, known) for file in [*known.values(), *(root / "tests").rglob("test_*.py")]}


def mirrors(root: Path, path: str) -> list[list[str]]:
    """Return the tests of a module, in the groups in which they run.

    First come its doctests and the tests of its package that are named after it or import it, then those of its
    subpackage, then the others of its package, and at last the tests of other packages that import it or are named
    after a module that imports it.
    """
    known, imports = structure.modules(root / "src" / "isoscope"), imports_by_file(root)
    module = next(name for name, file in known.items() if file == root / path)
    users = [file.relative_to(root).as_posix() for file in known.values() if module in imports[file]]
    is_everywhere = package_of(path) == "isoscope"  # almost every test imports the public names

    def is_of_package(file: Path, path: str) -> bool:
        folder = root / "tests" / package_of(path).strip("_")
        return folder in file.parents if folder.is_dir() else file.parent == root / "tests"

    groups: list[list[str]] = [[path] if b">>>" in (root / path).read_bytes() else [], [], [], []]
    for file in sorted((root / "tests").rglob("test_*.py")):
        is_user = module in imports[file]
        if is_of_package(file, path):
            names = [*Path(path).parts[3:-1], Path(path).stem]
            is_close = [file.stem.startswith(f"test_{name}") or file.parent.name == name for name in names]
            group = 0 if is_user or is_close[-1] else 1 if any(is_close) else 2
            groups[group].append(file.relative_to(root).as_posix())
        elif is_everywhere:
            continue
        elif is_user or any(is_of_package(file, user) and file.stem == f"test_{Path(user).stem}" for user in users):
            groups[3].append(file.relative_to(root).as_posix())
    return [group for group in groups if group]


class Worker:
    """A temporary folder in which one mutant at a time is tested."""

    def __init__(self, root: Path, folder: Path, broken: dict[tuple[str, ...], list[str]]) -> None:
        self.root, self.folder, self.tree, self.broken = root, folder, folder / "tree", broken
        places = {"HOME": folder, "TMPDIR": folder / "tmp", "NUMBA_CACHE_DIR": folder / "numba"}
        places["PYTHONPATH"] = self.tree / "src"
        self.environment = os.environ | {name: str(place) for name, place in places.items()}

    def copy(self) -> None:
        """Make a new copy of the tree."""
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        shutil.copytree(self.root, self.tree)
        (self.folder / "tmp").mkdir()

    def check_import(self) -> None:
        """Make sure that tests import the copy and not another isoscope."""
        self.copy()
        command = [sys.executable, "-c", "import isoscope; print(isoscope.__file__)"]
        done = subprocess.run(command, cwd=self.tree, env=self.environment, capture_output=True, text=True, check=True)
        if not Path(done.stdout.strip()).is_relative_to(self.tree):
            raise SystemExit(f"{sys.executable} imports {done.stdout.strip()} instead of a copy of {self.root}")

    def run(self, mutant: Mutant | None, files: list[str]) -> tuple[int | None, list[str]]:
        """Run tests, with a mutant up to the first failure; return the exit code (None for a hang) and the failures.

        Tests that are known to fail without a mutant are left out.
        """
        self.copy()
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        command = [sys.executable, "-m", "pytest", "--doctest-modules", f"--timeout={TEST_SECONDS}"]
        command += ["-o", f"cache_dir={self.folder / 'cache'}", *files]
        if mutant is not None:
            (self.tree / mutant.path).write_bytes(mutant.source)
            command += ["-x", *(f"--deselect={test}" for test in self.broken.get(tuple(files), []))]
        code = self.wait(command)
        failed = self.folder / "cache" / "v" / "cache" / "lastfailed"
        return code, list(json.loads(failed.read_text())) if failed.exists() else []

    def wait(self, command: list[str]) -> int | None:
        """Run a command and return its exit code, or None after `SILENT_SECONDS` without output."""
        log = self.folder / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self.tree, env=self.environment, stdout=file, stderr=file, start_new_session=True
            )
        try:
            size, since = 0, time.monotonic()
            while time.monotonic() - since < SILENT_SECONDS:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(0.2)
                if log.stat().st_size > size:
                    size, since = log.stat().st_size, time.monotonic()
            return None
        finally:
            self.end_processes()
            process.wait()

    def end_processes(self) -> None:
        """End pytest and the processes that the tests started, by the home folder that only they have."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.folder):
                    process.kill()

    def find_broken(self, files: list[str]) -> list[str]:
        """Return the tests that fail without a mutant."""
        code, failed = self.run(None, files)
        if code not in (*PASSED, 1):
            log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"pytest {' '.join(files)} exits with {code} without a mutant:\n{log[-2000:]}")
        return failed

    def test(self, mutant: Mutant) -> dict[str, Any]:
        """Return whether the tests kill a mutant, why, and the files that decide it."""
        groups = mirrors(self.root, mutant.path)
        for files in groups:
            code, failed = self.run(mutant, files)
            if code not in PASSED and tuple(files) not in self.broken:
                self.broken[tuple(files)] = self.find_broken(files)
                if set(failed) & set(self.broken[tuple(files)]):
                    code, failed = self.run(mutant, files)
            if code not in PASSED and failed:
                return {"killed": True, "reason": f"{failed[0]} fails", "files": [failed[0].split("::")[0]]}
            if code not in PASSED:
                reason = "a test hangs" if code is None else f"pytest exits with {code}"
                return {"killed": True, "reason": reason, "files": files}
        return {"killed": False, "reason": "all tests pass", "files": [file for group in groups for file in group]}


class Results:
    """The outcomes of mutants, in a file with one line of JSON for each."""

    def __init__(self, root: Path, path: Path) -> None:
        self.root, self.path = root, path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.outcomes = {outcome["mutant"]: outcome for outcome in map(json.loads, lines)}

    def _digest(self, files: list[str]) -> str:
        return digest(*((self.root / file).read_bytes() for file in files if (self.root / file).exists()))

    def get(self, mutant: Mutant) -> dict[str, Any] | None:
        """Return the outcome of a mutant, unless a file that decided it has changed."""
        outcome = self.outcomes.get(digest(mutant.path.encode(), mutant.source))
        return outcome if outcome and outcome["tests"] == self._digest(outcome["files"]) else None

    def add(self, mutant: Mutant, outcome: dict[str, Any]) -> None:
        """Keep the outcome of a mutant."""
        key = digest(mutant.path.encode(), mutant.source)
        self.outcomes[key] = {"mutant": key, **outcome, "tests": self._digest(outcome["files"])}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.outcomes[key]) + "\n")


def run_mutants(mutants: list[Mutant], results: Results, workers: int, minutes: float) -> None:
    """Run the mutants without an outcome, several at the same time; start none after so many minutes."""
    deadline = time.monotonic() + 60 * minutes
    free: SimpleQueue[Worker] = SimpleQueue()
    broken: dict[tuple[str, ...], list[str]] = {}

    def run(mutant: Mutant) -> dict[str, Any] | None:
        worker = free.get()
        try:
            return worker.test(mutant) if time.monotonic() < deadline else None
        finally:
            free.put(worker)

    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # if root runs the tests, their database server runs as another user
        crew = [Worker(results.root, Path(folder).resolve() / str(number), broken) for number in range(workers)]
        for worker in crew:
            worker.check_import()
            free.put(worker)
        pool = ThreadPoolExecutor(workers)
        runs = {pool.submit(run, mutant): mutant for mutant in mutants if results.get(mutant) is None}
        try:
            for done in as_completed(runs):
                mutant, outcome = runs[done], done.result()
                if outcome:
                    results.add(mutant, outcome)
                    print("killed  " if outcome["killed"] else "survived", describe(mutant, outcome), flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(done.done() for done in runs):  # the run was interrupted
                for worker in crew:
                    worker.end_processes()
                time.sleep(0.2)
    for test in sorted({test for tests in broken.values() for test in tests}):
        print(f"left out because it fails without a mutant: {test}")


def describe(mutant: Mutant, outcome: dict[str, Any]) -> str:
    """Return the place, the change and the reason of an outcome."""
    return f"{mutant.path}:{mutant.line}: {mutant.change} ({outcome['reason']})"


def report(mutants: list[Mutant], results: Results) -> int:
    """Print the outcomes by package and the mutants that are not killed; return the exit code."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    survivors = []
    for mutant in mutants:
        outcome = results.get(mutant)
        counts[package_of(mutant.path)][2 if outcome is None else int(not outcome["killed"])] += 1
        if outcome and not outcome["killed"]:
            survivors.append(describe(mutant, outcome))
    killed, survived, not_run = total = [sum(column) for column in zip(*counts.values(), strict=True)]
    print(f"\n{'package':<12}{'killed':>10}{'survived':>10}{'not run':>10}")
    for package, row in [*counts.items(), ("total", total)]:
        print(f"{package:<12}" + "".join(f"{count:>10}" for count in row))
    print("", *survivors, "", sep="\n")
    if not_run:
        print(f"{not_run} mutants were not run: rerun the same command to resume")
        return 2
    print(f"{killed} of {killed + survived} mutants killed ({killed / len(mutants):.1%}); {LEAST_SHARE:.0%} are needed")
    return int(killed < LEAST_SHARE * len(mutants))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, help="number of mutants (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="random seed that chooses the mutants (default: 0)")
    parser.add_argument("--package", action="append", default=[], help="a package to check; repeat it for several")
    parser.add_argument("--workers", type=int, default=2, help="number of mutants to run at the same time (default: 2)")
    parser.add_argument("--minutes", type=float, default=90, help="start no mutant after this time (default: 90)")
    parser.add_argument("--results", type=Path, default=ROOT / "out" / "mutants.jsonl", help="file with the outcomes")
    parser.add_argument("--list", action="store_true", help="print the mutants without running them")
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error(f"--count is {arguments.count}: it must be at least 1")
    if arguments.list:
        for mutant in choose(ROOT, arguments.count, arguments.seed, arguments.package):
            print(f"{mutant.path}:{mutant.line}: {mutant.change}")
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # which nohup sets
            signal.signal(number, lambda number, _: sys.exit(128 + number))  # ends the tests and removes the copies
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder).resolve() / "checkout"  # all mutants see the same files, whatever changes meanwhile
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".*", "__pycache__", "out", "build", "dist"))
        mutants = choose(root, arguments.count, arguments.seed, arguments.package)
        results = Results(root, arguments.results)
        run_mutants(mutants, results, arguments.workers, arguments.minutes)
        return report(mutants, results)


if __name__ == "__main__":
    sys.exit(main())
