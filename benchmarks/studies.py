"""Measure the time that scoring takes in isotropy-clusters-classifiers, compared with the paper's tools.

    python benchmarks/studies.py --page docs/performance.md

Vectors with the shape of the polarity dataset (10,662×384 in float32) are optimized as in the study. After some
updates, the same vectors are scored in turn by isoscope, and by scikit-learn's silhouette_score with IsoScore 2.0.1.
The results are medians over these updates. The time that an update itself takes is also reported.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from IsoScore import IsoScore
from sklearn.metrics import silhouette_score

import isoscope
from pages import write_table

ROWS, DIM = 10_662, 384
WARM = 50
"""The number of updates before the first score, so that clusters have formed."""
PROMISED = 6.0


class Optimized:
    """Unit vectors of two classes and a linear head without bias."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        start = rng.standard_normal((ROWS, DIM)).astype(np.float32)
        self.labels = np.arange(ROWS) % 2
        self.targets = torch.tensor(self.labels)
        self.vectors = torch.nn.Parameter(torch.tensor(start / np.linalg.norm(start, axis=1, keepdims=True)))
        torch.manual_seed(0)
        self.head = torch.nn.Linear(DIM, 2, bias=False)
        self.adam = torch.optim.Adam([self.vectors, *self.head.parameters()])

    def update(self) -> None:
        self.adam.zero_grad()
        torch.nn.functional.cross_entropy(self.head(self.vectors), self.targets).backward()
        self.adam.step()


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the table into this page, between its markers")
    parser.add_argument("--updates", type=int, default=5, help="number of updates to score")
    arguments = parser.parse_args()
    run = Optimized()
    held = run.vectors.detach().numpy()
    tools: dict[str, Callable[[], object]] = {
        "silhouette, isoscope": lambda: isoscope.silhouette(held, run.labels),
        "IsoScore, isoscope": lambda: isoscope.isoscore(held),
        "silhouette, scikit-learn": lambda: silhouette_score(held, run.labels),
        "IsoScore, IsoScore 2.0.1": lambda: IsoScore.IsoScore(held),
    }
    taken: dict[str, list[float]] = {name: [] for name in ("update", *tools)}
    for _ in range(WARM):
        run.update()
    isoscope.silhouette(held[:2000], run.labels[:2000])  # compiles
    apart = 0.0
    for _ in range(arguments.updates):
        taken["update"].append(seconds(run.update)[0])
        found = {}
        for name, work in tools.items():
            spent, value = seconds(work)
            taken[name].append(spent)
            found[name] = float(value)  # type: ignore[arg-type]
        ours, theirs = (list(found.values())[part] for part in (slice(0, 2), slice(2, 4)))
        apart = max(apart, *(abs(a - b) for a, b in zip(ours, theirs, strict=True)))
    median = {name: statistics.median(each) for name, each in taken.items()}
    own = [sum(pair) for pair in zip(*(taken[name] for name in list(tools)[:2]), strict=True)]
    published = [sum(pair) for pair in zip(*(taken[name] for name in list(tools)[2:]), strict=True)]
    ratio = statistics.median(b / a for a, b in zip(own, published, strict=True))
    lines = ["| time per update | isoscope | IsoScore 2.0.1, scikit-learn |", "|---|---|---|"]
    for score in ("IsoScore", "silhouette"):
        a, b = (value for name, value in median.items() if name.startswith(score))
        lines.append(f"| {score} | {1000 * a:.0f} ms | {1000 * b:.0f} ms |")
    lines.append(
        f"| both | {1000 * statistics.median(own):.0f} ms | {1000 * statistics.median(published):.0f} ms, "
        f"**{ratio:.1f}×** (target: {PROMISED:g}×) {'✓' if ratio >= PROMISED else '✗'} |"
    )
    lines += [
        f"| the update itself | {1000 * median['update']:.0f} ms | |",
        "",
        f"The vectors are {ROWS:,}×{DIM} in float32. Times are medians over {arguments.updates} updates. The scores "
        f"differ by at most {apart:.0e}. "
        f"{os.cpu_count()} cores, {platform.machine()}, scikit-learn {version('scikit-learn')}, "
        f"numpy {version('numpy')}.",
    ]
    table = "\n".join(lines)
    print(table)
    if arguments.page:
        write_table(arguments.page, table, "studies")


if __name__ == "__main__":
    main()
