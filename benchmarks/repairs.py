"""Compare repairs with what users would otherwise run: the published notebook, one `syrk` call, and `x @ A + b`.

Both sides use the same data and the same number of threads, and they alternate. Times are the best of several runs.
Part of `make bench`.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.linalg.blas import dsyrk, ssyrk
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_info, threadpool_limits

import isoscope
from pages import write_table

CLUSTERS, COMPONENTS = 27, 12
SEEDS = range(6)  # of k-means, whose clusters change the partition isotropy
Call = Callable[[], object]


def token_cloud(n: int, d: int = 768, seed: int = 0) -> np.ndarray:
    """Return data that resemble token states: clusters of different sizes, decaying variances and a common mean."""
    rng = np.random.default_rng(seed)
    fading = (np.arange(1, d + 1) ** -0.35).astype(np.float32)
    kinds = 60
    share = 1 / np.arange(1, kinds + 1)
    centres = rng.standard_normal((kinds, d), dtype=np.float32) * fading
    X = rng.standard_normal((n, d), dtype=np.float32) * fading
    X += centres[rng.choice(kinds, n, p=share / share.sum())]
    X += 0.5 * rng.standard_normal(d, dtype=np.float32)
    return 0.6 * X


def notebook(X: np.ndarray, n_clusters: int, n_components: int, seed: int) -> np.ndarray:
    """Repair as in the notebook of Rajaee and Pilehvar: a full PCA of each cluster, applied row by row."""
    _, labels = kmeans2(X, n_clusters, minit="points", missing="warn", rng=np.random.default_rng(seed))
    repaired = np.zeros(X.shape)
    for cluster in range(n_clusters):
        rows = np.flatnonzero(labels == cluster)
        total = np.zeros(X.shape[1])
        for row in rows:
            total = total + X[row]
        centered = [X[row] - total / len(rows) for row in rows]
        directions = PCA().fit(np.array(centered)).components_
        for row, vector in zip(rows, centered, strict=True):
            along = np.zeros(X.shape[1])
            for direction in directions[:n_components]:
                along = along + np.dot(vector, direction) * direction
            repaired[row] = vector - along
    return repaired


def blas_threads() -> int:
    return max(int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas")


def seconds(call: Call) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def repeated(call: Call, loops: int) -> None:
    for _ in range(loops):
        call()


def fastest(calls: dict[str, Call], repeats: int, loops: int = 1) -> dict[str, float]:
    """Return the best time of each call; calls alternate, with a pause in which the other call's threads stop."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(0.2)
            taken, _ = seconds(partial(repeated, call, loops))
            best[name] = min(best[name], taken / loops)
    return best


def kept(promise: bool) -> str:
    return "✓" if promise else "✗"


def cluster_lines(X: np.ndarray) -> list[str]:
    size = f"{X.shape[0]:,}×{X.shape[1]}"
    before = float(isoscope.partition_isotropy(X))
    lines = []
    for threads in (blas_threads(), 1):
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        after: dict[str, list[float]] = {"ours": [], "theirs": []}
        # set no limit for the default number of threads: our own threads could not lower a limit that the caller set
        with threadpool_limits(1) if threads == 1 else nullcontext():
            for seed in SEEDS:
                repair = isoscope.ClusterNull(CLUSTERS, COMPONENTS, random_state=seed)
                calls = {
                    "ours": partial(repair.fit_transform, X),
                    "theirs": partial(notebook, X, CLUSTERS, COMPONENTS, seed),
                }
                for name, call in calls.items():
                    time.sleep(0.3)  # the other call's threads stop
                    spent, repaired = seconds(call)
                    taken[name].append(spent)
                    after[name].append(float(isoscope.partition_isotropy(repaired)))
        best = {name: min(each) for name, each in taken.items()}
        mean = {name: float(np.mean(each)) for name, each in after.items()}
        error = {name: float(np.std(each, ddof=1)) / len(SEEDS) ** 0.5 for name, each in after.items()}
        ratio = best["theirs"] / best["ours"]
        is_as_high = mean["ours"] >= mean["theirs"] - 2 * float(np.hypot(error["ours"], error["theirs"]))
        lines.append(
            f"| {size}, {threads} thread{'s' * (threads > 1)} | {best['theirs']:.3g} s | {best['ours']:.3g} s "
            f"| {ratio:.3g}× | 8× {kept(ratio >= 8)} | {before:.2g} | {mean['theirs']:.4f} ± {error['theirs']:.4f} "
            f"| {mean['ours']:.4f} ± {error['ours']:.4f} {kept(is_as_high)} |"
        )
        print(lines[-1], flush=True)
    return [
        f"This table compares `ClusterNull({CLUSTERS}, {COMPONENTS}).fit_transform` with the notebook. The partition "
        f"isotropy of the result is the mean over {len(SEEDS)} seeds of k-means with its standard error. It should not "
        "be lower than the notebook's by more than twice the standard error of the difference.",
        "",
        "| vectors | notebook | isoscope | ratio | target | isotropy before | after the notebook | after isoscope |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
    ]


def fit_lines(n: int) -> list[str]:
    X = token_cloud(n)
    wide = X.astype(np.float64)
    repairs = {repair.__name__: repair for repair in (isoscope.Whiten, isoscope.AllButTheTop)}
    calls: dict[str, Call] = {name: partial(repair().fit, X) for name, repair in repairs.items()}
    calls["sketch"] = partial(isoscope.sketch, X)
    calls["ssyrk"] = partial(ssyrk, 1.0, X.T)
    calls["dsyrk"] = partial(dsyrk, 1.0, wide.T)
    best = fastest(calls, 4)
    lines = []
    for name in (*repairs, "sketch"):
        ratio = best[name] / best["ssyrk"]
        wanted = f"2× {kept(ratio <= 2)}" if name == "Whiten" else ""
        told = f"`{name}().fit`" if name in repairs else "the sums only (`sketch`)"
        lines.append(
            f"| {told} | {best[name]:.3g} s | {best['ssyrk']:.3g} s | {ratio:.3g}× | {wanted} "
            f"| {best['dsyrk']:.3g} s | {best[name] / best['dsyrk']:.3g}× |"
        )
        print(lines[-1], flush=True)
    return [
        f"This table compares fitting to {n:,}×768 float32 vectors with one `syrk` call on the same data. The target "
        "is relative to `ssyrk` (float32), which a user would call for these vectors. `dsyrk` (float64) is shown for "
        "comparison; the time to convert the data to float64 is not included.",
        "",
        "| call | isoscope | ssyrk | ratio to ssyrk | target: at most | dsyrk | ratio to dsyrk |",
        "|---|---|---|---|---|---|---|",
        *lines,
    ]


def query_lines(X: np.ndarray) -> list[str]:
    repairs: list[Any] = [
        isoscope.Center(),
        isoscope.Standardize(),
        isoscope.AllButTheTop(),
        isoscope.Whiten(),
        isoscope.ClusterCenter(CLUSTERS, random_state=0),
        isoscope.ClusterNull(CLUSTERS, COMPONENTS, random_state=0),
    ]
    x = X[:1].copy()
    A, b = (part.astype(np.float32) for part in isoscope.Whiten().fit(X).as_affine())
    calls: dict[str, Call] = {type(repair).__name__: partial(repair.fit(X).transform, x) for repair in repairs}
    best = fastest(calls | {"x @ A + b": lambda: x @ A + b}, 20, loops=20)
    raw = best["x @ A + b"]
    lines = [f"| {name} | {best[name] * 1e6:.0f} µs | {best[name] / raw:.2g}× |" for name in calls]
    return [
        f"This table shows how long `transform` takes for one query, a float32 array of shape (1, {X.shape[1]}). For "
        f"comparison, `x @ A + b` with a float32 matrix takes {raw * 1e6:.0f} µs.",
        "",
        "| repair | time for one query | relative to `x @ A + b` |",
        "|---|---|---|",
        *lines,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument(
        "--vectors",
        type=Path,
        help="an .npy file for clusters and queries; generated data are used if it does not exist",
    )
    parser.add_argument(
        "--rows", type=int, default=100_000, help="number of rows to which Whiten and AllButTheTop are fitted"
    )
    options = parser.parse_args()
    given = options.vectors is not None and options.vectors.exists()
    X = np.asarray(np.load(options.vectors)[:10_000], np.float32) if given else token_cloud(10_000)
    source = options.vectors.name if given else "generated data with 60 clusters, decaying variances and a common mean"
    parts = [cluster_lines(X), fit_lines(options.rows), query_lines(X)]
    head = (
        f"isoscope {version('isoscope')}, Python {platform.python_version()}, numpy {version('numpy')}, "
        f"scikit-learn {version('scikit-learn')}; {platform.machine()}, {blas_threads()} threads for both tools "
        f"unless stated otherwise; {source}."
    )
    text = "\n\n".join([head, *("\n".join(part) for part in parts)])
    print(text)
    if options.page:
        write_table(options.page, text, "repairs")


if __name__ == "__main__":
    main()
