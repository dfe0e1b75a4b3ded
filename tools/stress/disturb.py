"""Disturb real commands in seeded ways: kills, limits, two processes, odd numbers, hostile text, a server that dies.

    python tools/stress/disturb.py --seed 0 [--scale 0.5] [--attacks kill text]

A command must end with exit code 0, or with exit code 2 and one line (130 or 143 after a signal). An output is complete
or absent; a repetition of the same command gives the same bytes as a run without a disturbance, and no temporary file
remains. Everything else is a failure, and the exit code is then 1. The files of failures are kept in the folder that
the last line names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).parents[2]
_HANG = 300  # seconds; a limit only for commands that would never end
_LONGEST_MESSAGE = 800


class Finished:
    """How a command ended."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def problem(self, *codes: int) -> str | None:
        """Return what is wrong with the ending, or None."""
        if self.code not in codes:
            return f"exit code {self.code}: {self.err.strip()[-300:]!r}"
        if "Traceback" in self.err or "should not have happened" in self.err:
            return f"internal error: {self.err.strip()[-300:]!r}"
        if any(ord(character) < 32 and character not in "\n\r\t" for character in self.err + self.out):
            return f"control characters: {(self.err + self.out)[-300:]!r}"
        lines = [line for line in self.err.splitlines() if line.startswith("isoscope:")]
        if self.code == 2 and not lines:
            return f"no message: {self.err.strip()[-300:]!r}"
        if any(len(line) > _LONGEST_MESSAGE for line in lines):
            return f"a message of {max(map(len, lines))} characters: {lines[-1][:200]!r}"
        return None


def start(words: list[str], folder: Path, **limits: int) -> subprocess.Popen[bytes]:
    """Start a command of isoscope in a folder, with resource limits such as RLIMIT_AS."""

    def set_limits() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "isoscope", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=set_limits if limits else None,
    )


def finish(process: subprocess.Popen[bytes]) -> Finished:
    """Wait for the end of a command."""
    try:
        out, err = process.communicate(timeout=_HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Finished(-1, out, err + b" (did not end)")
    return Finished(process.returncode, out, err)


def run(words: list[str], folder: Path, **limits: int) -> Finished:
    """Run a command of isoscope to its end."""
    return finish(start(words, folder, **limits))


# sources and commands


def write_source(folder: Path, rows: int = 30_000) -> None:
    """Write a corpus in several formats, and texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    X = (rng.standard_normal((rows, 48)) + 1).astype(np.float32)
    np.save(folder / "x.npy", X)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 48)
    table = pa.table({"id": range(rows), "embedding": lists, "label": [f"l{i % 7}" for i in range(rows)]})
    pq.write_table(table, folder / "x.parquet", row_group_size=2_000)
    with (folder / "x.csv").open("w", encoding="utf-8") as file:
        file.write(",".join(f"e{i}" for i in range(8)) + "\n")
        np.savetxt(file, X[: rows // 3, :8], fmt="%.5f", delimiter=",")


_COMMANDS: dict[str, tuple[list[str], str]] = {
    "convert": (["convert", "x.parquet", "out.parquet"], "out.parquet"),
    "convert npy": (["convert", "x.parquet", "out.npy"], "out.npy"),
    "convert csv": (["convert", "x.csv", "out.safetensors"], "out.safetensors"),
    "sketch": (["sketch", "x.npy", "-o", "out.sketch"], "out.sketch"),
    "audit": (["audit", "x.npy", "--sample", "2000", "--json", "out.json"], "out.json"),
    "page": (["audit", "x.parquet", "--sample", "2000", "--html", "out.html"], "out.html"),
    "fit": (["fit", "whiten", "x.npy", "-o", "out"], "out"),
    "fix": (["fix", "center", "x.npy", "-o", "out.npy"], "out.npy"),
    "apply": (["apply", "repair", "x.parquet", "-o", "out"], "out"),
    "advise": (["advise", "x.parquet", "--labels", "label", "--sample", "500", "--json", "out.json"], "out.json"),
}
"""Each command and its output."""


def digest(path: Path) -> str:
    """Return a checksum of a file, or of all files in a folder; times of runs are not part of it."""
    found = hashlib.blake2b()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.name != "_isoscope_run.lock":
            content = file.read_bytes()
            if file.suffix == ".json":
                content = json.dumps(_without_times(json.loads(content)), sort_keys=True).encode()
            found.update(f"{file.relative_to(path.parent)}\0".encode() + content)
    return found.hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in ("seconds", "created", "time")}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


class Reference:
    """The sources, and the outputs of undisturbed runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_source(folder)
        run(["fit", "center", "x.npy", "-o", "repair"], folder)
        self.outputs: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def prepare(self, name: str) -> None:
        """Run a command without a disturbance."""
        place = self.copy(name.replace(" ", "-") + "-reference")
        words, output = _COMMANDS[name]
        started = time.monotonic()
        done = run(words, place)
        if problem := done.problem(0):
            raise SystemExit(f"{name} fails without a disturbance: {problem}")
        self.seconds[name] = time.monotonic() - started
        self.outputs[name] = digest(place / output)
        shutil.rmtree(place)

    def copy(self, name: str) -> Path:
        """Return a new folder with links to the sources."""
        place = self.folder / name
        place.mkdir()
        for source in ("x.npy", "x.parquet", "x.csv", "repair"):
            (place / source).symlink_to(self.folder / source)
        return place

    def check(self, name: str, place: Path) -> str | None:
        """Repeat a command and compare its output with that of an undisturbed run."""
        words, output = _COMMANDS[name]
        if problem := run(words, place).problem(0):
            return f"the repetition: {problem}"
        if digest(place / output) != self.outputs[name]:
            return "the repetition has other bytes"
        known = {"x.npy", "x.parquet", "x.csv", "repair", output}
        left = [path.name for path in place.iterdir() if path.name not in known]
        return f"files remain: {left}" if left else None

    def is_whole(self, name: str, place: Path) -> str | None:
        """Return a problem unless a single output file is complete or absent."""
        output = place / _COMMANDS[name][1]
        if output.is_file() and digest(output) != self.outputs[name]:
            return "the output is incomplete"
        return None


# attacks: each returns None, or what went wrong


def kill(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Kill a command at a random time, then repeat it."""
    name = chance.choice(list(_COMMANDS))
    process = start(_COMMANDS[name][0], place)
    time.sleep(chance.uniform(0, reference.seconds[name]))
    process.kill()
    process.communicate()
    return _name(name, reference.is_whole(name, place) or reference.check(name, place))


def stop(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Send SIGINT or SIGTERM at a random time, then repeat the command."""
    name = chance.choice(list(_COMMANDS))
    process = start(_COMMANDS[name][0], place)
    time.sleep(chance.uniform(0.05, reference.seconds[name]))
    process.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
    done = finish(process)
    problem = None
    if done.code not in (-signal.SIGTERM, -signal.SIGINT):  # before Python has installed its handlers
        problem = done.problem(0, 130, 143)
    return _name(name, problem or reference.is_whole(name, place) or reference.check(name, place))


def full(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Limit the size of files, as a full disk does, then repeat the command without the limit."""
    name = chance.choice(list(_COMMANDS))
    done = run(_COMMANDS[name][0], place, RLIMIT_FSIZE=chance.choice([0, 100, 4_096, 100_000, 2_000_000]))
    return _name(name, done.problem(0, 2) or reference.is_whole(name, place) or reference.check(name, place))


def memory(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Limit the address space."""
    name = chance.choice(list(_COMMANDS))
    done = run(_COMMANDS[name][0], place, RLIMIT_AS=chance.randint(150, 1_500) * 2**20)
    return _name(name, done.problem(0, 2) or reference.is_whole(name, place))


def twice(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Run the same command in two processes at once."""
    name = chance.choice(list(_COMMANDS))
    processes = []
    for _ in range(2):
        processes.append(start(_COMMANDS[name][0], place))
        time.sleep(chance.uniform(0, 0.5))
    endings = [finish(process) for process in processes]
    problem = next((problem for done in endings if (problem := done.problem(0, 2))), None)
    if problem is None and all(done.code for done in endings):
        problem = f"both failed: {endings[0].err[-200:]!r}"
    return _name(name, problem or reference.check(name, place))


def numbers(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Audit and repair arrays of odd shapes with odd numbers."""
    rng = np.random.default_rng(chance.randrange(2**32))
    dtype = chance.choice([np.float16, np.float32, np.float64, np.int8, np.uint64])
    shape = chance.choice([1, 2, 3, 5, 40, 400]), chance.choice([1, 2, 3, 16, 300])
    scale = chance.choice([1e-45, 1e-320, 1e-10, 1, 1e4, 6e4, 1e30, 3e38, 1e150, 1.7e308])
    with np.errstate(all="ignore"):
        X = rng.standard_normal(shape) * scale
        if chance.random() < 0.3:
            X = np.repeat(X[:1], shape[0], axis=0)
        if chance.random() < 0.3:
            X[:, rng.integers(shape[1])] = chance.choice([0, 1e300, -1, 5e-324])
        if chance.random() < 0.3:
            X[rng.integers(shape[0])] = chance.choice([0, np.nan, np.inf, -np.inf, 1e308])
        X = X.astype(dtype)
    np.save(place / "odd.npy", X)
    (place / "x.npy").unlink()
    policy = chance.choice([[], ["--missing", "drop"], ["--zeros", "drop"]])
    method = chance.choice(["center", "standardize", "whiten", "all-but-the-top", "cluster-center"])
    words = chance.choice(
        [
            ["audit", "odd.npy", "--json", "out.json"],
            ["audit", "odd.npy", "--html", "out.html"],
            ["sketch", "odd.npy"],
            ["similarity", "odd.npy", "0.5"],
            ["fix", method, "odd.npy", "-o", "out.npy"],
            ["advise", "odd.npy"],
        ]
    )
    done = run([*words, *policy], place)
    problem = done.problem(0, 2)
    if problem is None and (place / "out.npy").exists() and done.code == 0:
        repaired = np.load(place / "out.npy")
        if not np.isfinite(repaired).all():
            problem = "the repaired vectors are not finite"
    return _name(f"{words[0]} {dtype.__name__} {shape} {scale:g}", problem)


_TEXTS = [
    *("\x1b]0;title\x07", "\x1b[2J", "\u202e\u2066", "<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>"),
    *(
        "\x00",
        "\r\n\r\n",
        "a" * 200_000,
        "{{7*7}}",
        "${jndi:ldap://x}",
        "[bold red]",
        "[/]",
        "=cmd|' /C calc'!A0",
        "﷽" * 50,
    ),
    *(
        "\u2028",
        "\ufeff",
        "٣",
        "%s%n%x",
        "../../etc/passwd",
        "$(touch owned)",
        "; touch owned",
        "-rf",
        "--help",
        "é" * 300,
    ),
]


def text(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """Put hostile text into names of files and columns, labels, ids and texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(chance.randrange(2**32))
    hostile = [chance.choice(_TEXTS) for _ in range(4)]
    n = 60
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(n * 6).astype(np.float32)), 6)
    column = hostile[0][:100] or "c"
    columns = {
        "embedding": lists,
        "label": [hostile[1] + str(i % 3) for i in range(n)],
        "text": [hostile[2] + str(i) for i in range(n)],
        "id": [hostile[3] + str(i) for i in range(n)],
    }
    columns[column] = list(range(n))
    name = "".join(c for c in hostile[1][:60] if c not in "/\x00") + "x.parquet"
    pq.write_table(pa.table(columns), place / name)
    words = chance.choice(
        [
            ["audit", "./" + name, "--html", "out.html"],
            ["audit", "./" + name, "--by", column.replace("\x00", ""), "--html", "out.html"],
            ["advise", "./" + name, "--labels", "label", "--html", "out.html"],
            ["audit", "./" + name, "--columns", f"labels={hostile[2][:50]}".replace("\x00", "")],
            ["convert", "./" + name, "out.arrow"],
            ["advise", "./" + name, "--pairs", "./" + name],
        ]
    )
    done = run(words, place)
    problem = done.problem(0, 2)
    page = place / "out.html"
    if problem is None and page.exists():
        content = page.read_text(encoding="utf-8")
        if "<script>alert(1)" in content or "<img src=x" in content:
            problem = "the page contains the text as markup"
    if any((each / "owned").exists() for each in (place, reference.folder)):
        problem = "a command inside a text was run"
    return _name(f"{words[0]} {hostile[0][:20]!r}", problem)


def server(reference: Reference, chance: random.Random, place: Path) -> str | None:
    """End a PostgreSQL server while a command reads from it or writes to it."""
    sys.path.insert(0, str(_ROOT))
    from tests.stores.databases.conftest import new_server

    try:
        postgres = new_server()
    except BaseException as error:  # a skip of pytest
        if type(error).__name__ != "Skipped":
            raise
        return None
    try:
        postgres.run("CREATE EXTENSION vector")
        postgres.fill("docs", np.random.default_rng(0).standard_normal((8_000, 24)).astype(np.float32))
        words = chance.choice(
            [
                ["audit", postgres.url("docs")],
                ["convert", postgres.url("docs"), "out.npy"],
                ["convert", "x.npy", postgres.url("copy")],
                ["apply", "repair", "x.npy", "-o", postgres.url("copy")],
            ]
        )
        process = start(words, place)
        time.sleep(chance.uniform(0.5, 4))
        postgres.stop()
        problem = finish(process).problem(0, 2)
        if problem is None and (place / "out.npy").exists() and np.load(place / "out.npy").shape != (8_000, 24):
            problem = "the output is incomplete"
        return _name(words[0], problem)
    finally:
        postgres.remove()


def _name(name: str, problem: str | None) -> str | None:
    return None if problem is None else f"{name}: {problem}"


_ATTACKS: dict[str, tuple[Callable[[Reference, random.Random, Path], str | None], int]] = {
    "kill": (kill, 40),
    "stop": (stop, 40),
    "full": (full, 30),
    "memory": (memory, 30),
    "twice": (twice, 15),
    "numbers": (numbers, 80),
    "text": (text, 60),
    "server": (server, 6),
}
"""Each attack, and how often it is tried."""


def main() -> int:
    """Run the attacks; print how many were tried and how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of attempts")
    parser.add_argument("--attacks", nargs="*", default=list(_ATTACKS), choices=list(_ATTACKS))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="isoscope-disturbed-"))
    reference = Reference(folder)
    failures = 0
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(reference.prepare, _COMMANDS))
        print(f"{'attack':<12} tried  failed")
        for kind in options.attacks:
            attack, count = _ATTACKS[kind]

            def attempt(i: int, kind: str = kind, attack: Any = attack) -> tuple[int, str | None]:
                place = reference.copy(f"{kind}-{options.seed}-{i}")
                problem = attack(reference, random.Random(f"{options.seed} {kind} {i}"), place)
                if problem is None:
                    shutil.rmtree(place)
                return i, problem

            found = list(pool.map(attempt, range(max(1, round(count * options.scale)))))
            failed = {i: problem for i, problem in found if problem is not None}
            failures += len(failed)
            print(f"{kind:<12} {len(found):>5} {len(failed):>7}", flush=True)
            for i, problem in failed.items():
                print(f"    {kind}-{options.seed}-{i}: {problem}", flush=True)
    print(f"{failures} failures" + (f"; the files are in {folder}" if failures else ""))
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
