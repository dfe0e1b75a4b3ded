"""Compare isoscope with another tool, called "peer", for each performance target: `make bench`.

Both tools run in this process with the same number of threads. Each time is the median of alternating calls (ours,
peer, ours, peer, …), so that other load on the machine affects both. The targets are ratios, because absolute times
depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

import isoscope
from pages import write_table

Call = Callable[[], object]


@dataclass
class Line:
    work: str
    peer: str
    peer_time: float
    our_time: float
    difference: str
    wanted: float

    @property
    def ratio(self) -> float:
        return self.peer_time / self.our_time


def cloud(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return float32 data that resemble embeddings: power-law variances and a nonzero mean."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X *= (np.arange(1, d + 1) ** -0.35).astype(np.float32)
    return X + 0.1


def turns(ours: Call, peer: Call, repeats: int) -> tuple[float, float]:
    """Return the median times of both calls in seconds, over `repeats` alternating calls.

    Each turn begins with a pause and a call that is not counted: after a call, a library's threads keep spinning for a
    while, which would slow down the other library.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(min(3, repeats)):
        for call, taken in zip((ours, peer), times, strict=True):
            time.sleep(0.3)
            call()
            for _ in range(max(1, repeats // 3)):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def relative(ours: object, theirs: object) -> str:
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return f"{np.abs(a - b).max() / max(np.abs(b).max(), 1e-300):.0e}"


def isoscore_lines() -> list[Line]:
    from IsoScore.IsoScore import IsoScore

    lines = []
    for n, repeats, wanted in ((200, 60, 120), (10_000, 15, float("nan")), (100_000, 6, float("nan"))):
        X = cloud(n, 768)
        ours, peer = turns(partial(isoscope.isoscore, X), partial(IsoScore, X), repeats)
        difference = relative(isoscope.isoscore(X), isoscope.isoscore(X.astype(np.float64)))
        lines.append(Line(f"isoscore {n:,}×768", f"IsoScore {version('IsoScore')}", peer, ours, difference, wanted))
        if n > 200:
            ours, limit = turns(partial(isoscope.isoscore, X), partial(multiply_columns, X), repeats)
            name = f"numpy {version('numpy')} syrk (float32), the limit"
            lines.append(Line(f"isoscore {n:,}×768", name, limit, ours, "", 1 / 1.3 if n == 10_000 else float("nan")))
    return lines


def multiply_columns(X: np.ndarray) -> np.ndarray:
    """Return XᵀX, which NumPy computes with one `syrk` call."""
    return X.T @ X


def participation_ratio_lines() -> list[Line]:
    """Compare the unbiased participation ratio with the package of Chun et al. (2026), which computes four variants."""
    import dimensionality

    lines = []
    for n, repeats in ((200, 30), (2_000, 6)):
        X = cloud(n, 768).astype(np.float64)
        mine = partial(isoscope.participation_ratio, X, unbiased=True)
        theirs = partial(dimensionality.participation_ratio, X, return_all=True)
        ours, peer = turns(mine, theirs, repeats)
        difference = relative(mine(), theirs()["row"])
        name = f"dimensionality {version('dimensionality')}"
        lines.append(Line(f"participation_ratio, unbiased {n:,}×768", name, peer, ours, difference, 1))
    return lines


def isoscore_star_lines() -> list[Line]:
    import torch
    from IsoScore.IsoScore import istar

    X, S = torch.from_numpy(cloud(64, 768)), torch.cov(torch.from_numpy(cloud(8000, 768, 1)).T)
    module = istar()

    def theirs() -> torch.Tensor:
        x = X.clone().requires_grad_()
        module.IsoScore_star(x, S, 0.2, is_eval=False).backward()
        return x.grad

    def ours() -> torch.Tensor:
        x = X.clone().requires_grad_()
        isoscope.isoscore_star(x, S, 0.2).backward()
        return x.grad

    our_time, peer_time = turns(ours, theirs, 15)
    oracle = X.double().requires_grad_()
    isoscope.isoscore_star(oracle, S.double(), 0.2).backward()
    difference = relative(ours(), oracle.grad)
    name = f"IsoScore {version('IsoScore')} istar"
    return [Line("isoscore_star, forward and backward, 64×768", name, peer_time, our_time, difference, 40)]


def mean_cosine_lines() -> list[Line]:
    from sklearn.metrics.pairwise import cosine_similarity

    X = cloud(20_000, 768)
    n = len(X)

    def theirs() -> float:
        C = cosine_similarity(X)
        return (C.sum(dtype=np.float64) - n) / (n * (n - 1))

    ours, peer = turns(lambda: isoscope.mean_cosine(X), theirs, 3)
    difference = relative(isoscope.mean_cosine(X), theirs())
    name = f"scikit-learn {version('scikit-learn')} cosine_similarity"
    return [Line("mean_cosine 20,000×768", name, peer, ours, difference, 50)]


def barcode_lines() -> list[Line]:
    from ripser import ripser
    from scipy.sparse.csgraph import minimum_spanning_tree
    from scipy.spatial.distance import pdist, squareform

    X = cloud(5000, 768)

    def by_ripser() -> np.ndarray:
        return np.sort(ripser(X, maxdim=0)["dgms"][0][:-1, 1])[::-1]

    def by_scipy() -> np.ndarray:
        return np.sort(minimum_spanning_tree(squareform(pdist(X))).data)[::-1]

    bars = isoscope.h0_barcode(X)
    lines = []
    for name, call, wanted in (
        (f"ripser {version('ripser')} maxdim=0", by_ripser, 15),
        (f"scipy {version('scipy')} minimum_spanning_tree of pdist", by_scipy, 20),
    ):
        ours, peer = turns(lambda: isoscope.h0_barcode(X), call, 1)
        lines.append(Line("h0_barcode 5,000×768", name, peer, ours, relative(bars, by_scipy()), wanted))
    return lines


def entropy_lines() -> list[Line]:
    import torch
    from torch_topological.nn import VietorisRipsComplex

    X = torch.from_numpy(cloud(64, 768))
    rips = VietorisRipsComplex(dim=0)

    def theirs() -> torch.Tensor:
        x = X.clone().requires_grad_()
        pairs = rips(x)[0].diagram
        bars = pairs[:, 1] - pairs[:, 0]
        bars = bars[torch.isfinite(bars)]
        p = bars / bars.sum()
        (-(p * p.log()).sum()).backward()
        return x.grad

    def all_bars() -> torch.Tensor:
        x = X.clone().requires_grad_()
        isoscope.persistent_entropy(isoscope.h0_barcode(x)).backward()
        return x.grad

    def selected() -> torch.Tensor:
        x = X.clone().requires_grad_()
        isoscope.persistent_entropy(isoscope.metrics.select_bars(isoscope.h0_barcode(x))).backward()
        return x.grad

    ours, peer = turns(selected, theirs, 51)
    work = "persistent entropy of selected bars, forward and backward, 64×768"
    name = f"torch-topological {version('torch-topological')}, all bars"
    return [Line(work, name, peer, ours, relative(all_bars(), theirs()), 50)]


def silhouette_lines() -> list[Line]:
    from sklearn.metrics import silhouette_score

    X = cloud(10_000, 384)
    lines = []
    for k, wanted in ((2, 7), (50, 4.5)):
        labels = np.random.default_rng(k).integers(0, k, len(X))
        ours, peer = turns(partial(isoscope.silhouette, X, labels), partial(silhouette_score, X, labels), 6)
        oracle = silhouette_score(X.astype(np.float64), labels)
        difference = f"{abs(float(isoscope.silhouette(X, labels)) - oracle):.0e}"
        name = f"scikit-learn {version('scikit-learn')} silhouette_score"
        lines.append(Line(f"silhouette 10,000×384, k={k}", name, peer, ours, difference, wanted))
    ours, limit = turns(partial(isoscope.silhouette, X, labels), partial(multiply_half, X), 6)
    name = f"numpy {version('numpy')} sgemm of half of the pairs, the limit"
    lines.append(Line(f"silhouette 10,000×384, k={k}", name, limit, ours, "", float("nan")))
    return lines


def multiply_half(X: np.ndarray) -> np.ndarray:
    """Return as many inner products as there are pairs of rows, from one call of BLAS."""
    return X[: len(X) // 2] @ X.T


def neighbor_lines() -> list[Line]:
    from skdim.id import TwoNN
    from sklearn.neighbors import NearestNeighbors

    X = cloud(20_000, 768)
    lines = []
    name = f"scikit-learn {version('scikit-learn')} brute force (neighbors only)"
    for work, call, k in (
        ("lid k=100, 20,000×768", lambda: isoscope.lid(X), 100),
        ("two_nn 20,000×768", lambda: isoscope.two_nn(X), 2),
    ):

        def theirs(k: int = k) -> np.ndarray:
            return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X).kneighbors()[0]

        ours, peer = turns(call, theirs, 1)
        if k == 100:
            r = theirs().astype(np.float64)
            oracle = (-(k - 2) / np.log(r / r[:, -1:]).sum(axis=1)).mean()
        else:
            oracle = TwoNN(discard_fraction=0.1, dist=True).fit(theirs().astype(np.float64)).dimension_
        lines.append(Line(work, name, peer, ours, relative(call(), oracle), 2))
    return lines


def faiss_lines() -> list[Line]:
    """Compare with an exact in-memory index of faiss; there is no target for this comparison."""
    import faiss

    X = cloud(20_000, 768)
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X)
    ours, peer = turns(lambda: isoscope.lid(X), lambda: index.search(X, 101), 1)
    name = f"faiss-cpu {version('faiss-cpu')} IndexFlatL2 (neighbors only)"
    return [Line("lid k=100, 20,000×768", name, peer, ours, "", float("nan"))]


def sketch_lines() -> list[Line]:
    n, d = 1_000_000, 384
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        file = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for start in range(0, n, 50_000):
            file[start : start + 50_000] = cloud(50_000, d, start)
        del file
        in_memory, mapped = np.load(path), np.load(path, mmap_mode="r")
        ours, peer = turns(lambda: isoscope.sketch(mapped), partial(multiply_columns, in_memory), 3)
        few = isoscope.sketch(mapped[:50_000]).covariance()
        difference = relative(few, np.cov(in_memory[:50_000].astype(np.float64).T))
    name = f"numpy {version('numpy')} syrk (float32, in memory)"
    return [Line("sketch 1,000,000×384 from a memory-mapped file", name, peer, ours, difference, 1 / 1.5)]


def row_lines() -> list[Line]:
    """Compare what `audit --rows` adds to an audit with one exact search for the 100 nearest neighbors of all rows."""
    from isoscope._core.pairs import nearest_neighbors
    from isoscope._io.progress import ignore_progress
    from isoscope.auditing.row_table import RowTable
    from isoscope.engines.engine import LocalEngine

    n, d = 100_000, 384
    X = cloud(n, d)
    store, measured = isoscope.open_store(X), isoscope.audit(X).measured
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"

        def ours() -> int:
            return RowTable.of(store, measured, ignore_progress, LocalEngine()).write(path)

        our_time, peer_time = turns(ours, partial(nearest_neighbors, units, 100), 1)
    name = "isoscope, exact search for 100 neighbors"
    return [Line(f"audit --rows, beyond the audit, {n:,}×{d}", name, peer_time, our_time, "", 1 / 1.5)]


def compress_lines() -> list[Line]:
    """Compare compress on 100,000 rows with one exact search for the 10 nearest rows of every row of its sample."""
    from isoscope._core.pairs import nearest_neighbors
    from isoscope.compressing.compression import CompressionSettings

    sample = CompressionSettings().sample
    X = cloud(100_000, 384)
    units = X[:sample] / np.linalg.norm(X[:sample], axis=1, keepdims=True)
    ours, peer = turns(lambda: isoscope.compress(X), lambda: nearest_neighbors(units, 10), 1)
    return [Line("compress 100,000×384", f"exact 10-NN search of {sample:,} rows", peer, ours, "", 1 / 3)]


GROUPS = {
    "isoscore": isoscore_lines,
    "participation_ratio": participation_ratio_lines,
    "isoscore_star": isoscore_star_lines,
    "mean_cosine": mean_cosine_lines,
    "h0_barcode": barcode_lines,
    "persistent_entropy": entropy_lines,
    "silhouette": silhouette_lines,
    "neighbors": neighbor_lines,
    "faiss": faiss_lines,
    "sketch": sketch_lines,
    "rows": row_lines,
    "compress": compress_lines,
}


def in_new_process(code: str, **environment: str) -> dict[str, float]:
    answer = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=os.environ | environment
    )
    return json.loads(answer.stdout.splitlines()[-1])


def peak_memory() -> str:
    code = """
import json, threading, time, numpy as np, isoscope
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
X = np.random.default_rng(0).standard_normal((50_000, 384), dtype=np.float32)
isoscope.h0_barcode(X[:2000])
before, seen, done = resident(), [], threading.Event()
def watch():
    while not done.wait(0.005):
        seen.append(resident())
watcher = threading.Thread(target=watch); watcher.start()
isoscope.h0_barcode(X)
done.set(); watcher.join()
print(json.dumps({"MB": (max(seen) - before) / 2**20}))
"""
    over = in_new_process(code)["MB"]
    return (
        f"`h0_barcode` on 50,000×384 vectors needs at most {over:,.0f} MB of memory in addition to the input "
        "(target: under 1,000 MB)."
    )


def compile_times() -> str:
    """Measure the first run after installation against the runs after it, as whole processes."""
    out = [
        "| whole process | | nothing compiled yet | already compiled | ratio | target: at most |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in (("`isoscope demo`", 0), ("audit of 4,000×384", 4_000), ("audit of 20,000×384", 20_000)):
        with tempfile.TemporaryDirectory() as folder:
            command = ["demo", "--html", str(Path(folder) / "demo.html")]
            if rows:
                path = Path(folder) / "vectors.npy"
                np.save(path, np.random.default_rng(0).standard_normal((rows, 384), dtype=np.float32) + np.float32(0.2))
                command = ["audit", str(path)]
            times = [_process_times(command, folder) for _ in range(4)]
        first, later = times[0], [statistics.median(each) for each in zip(*times[1:], strict=True)]
        ratio = first[1] / later[1]
        mark = f"1.5× {'✓' if ratio <= 1.5 else '✗'}"
        out += [
            f"| {name} | time | {first[0]:.1f} s | {later[0]:.1f} s | {first[0] / later[0]:.2f}× | |",
            f"| | CPU time | {first[1]:.1f} s | {later[1]:.1f} s | {ratio:.2f}× | {mark} |",
        ]
    return "\n".join(out)


def _process_times(command: list[str], cache: str) -> tuple[float, float]:
    """Run a command in a new process that keeps compiled code in `cache`; return its time and CPU time in seconds."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "isoscope", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
    )
    taken, after = time.perf_counter() - start, os.times()
    return taken, after.children_user + after.children_system - before.children_user - before.children_system


REMARKS = {"memory": peak_memory, "first run": compile_times}


def cells(line: Line) -> tuple[str, ...]:
    mark = "" if np.isnan(line.wanted) else f"{line.wanted:.3g}× {'✓' if line.ratio >= line.wanted else '✗'}"
    times = f"{line.peer_time:.4g} s", f"{line.our_time:.4g} s", f"{line.ratio:.3g}×"
    return line.work, line.peer, *times, mark, line.difference


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*GROUPS, *REMARKS]
    parser.add_argument("--only", choices=names, nargs="+", default=names, help="measure only these groups")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its markers")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch
    from threadpoolctl import threadpool_info

    libraries = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    threads = max((pool["num_threads"] for pool in libraries), default=1)
    torch.set_num_threads(threads)
    blas = ", ".join(sorted({f"{pool['internal_api']} {pool.get('architecture') or ''}".strip() for pool in libraries}))
    out: list[str] = []
    failed = False

    def tell(*parts: str) -> None:
        out.extend(parts)
        print(*parts, sep="\n", flush=True)

    def not_measured(name: str, error: Exception) -> str:
        traceback.print_exc()
        return f"{name}: not measured ({type(error).__name__}: {' '.join(str(error).split())})"

    tell(
        f"isoscope {version('isoscope')}, Python {platform.python_version()}, numpy {version('numpy')}, "
        f"torch {version('torch')}; {platform.machine()}, {blas}, {threads} threads for both tools; "
        "each time is the median of alternating calls.",
        "",
        "| function (float32) | peer | peer's time | our time | ratio | target | largest difference |",
        "|---|---|---|---|---|---|---|",
    )
    for name, measure_group in GROUPS.items():
        if name not in arguments.only:
            continue
        try:
            for line in measure_group():
                tell("| " + " | ".join(cells(line)) + " |")
        except Exception as error:  # a peer that is missing or fails does not stop the other groups
            failed = True
            tell("| " + not_measured(name, error).replace("|", "/") + " |" * 7)
    for name, remark in REMARKS.items():
        if name not in arguments.only:
            continue
        try:
            tell("", remark())
        except Exception as error:
            failed = True
            tell("", not_measured(name, error))
    if arguments.page:
        write_table(arguments.page, "\n".join(out))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
