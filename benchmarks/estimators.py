"""How far three estimators of IsoScore are from the truth: bias and RMSE against n, on clouds of known covariance.

    python benchmarks/estimators.py --page docs/estimators.md

Plug-in is `isoscore(X)`; IsoScore* is `isoscore_star` at ζ = 0.2, helped by an oracle: its shrinkage matrix is the true
covariance; unbiased is `isoscore(X, unbiased=True)`, with the share of its 95% intervals that hold the truth.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import isoscope
from isoscope.studies.stable_anisotropic_regularization.known_clouds import CLOUDS, truth_of
from pages import put

ROWS = (16, 64, 256, 1024, 4096)
DIMENSIONS = (64, 384, 768)


def row(name: str, d: int, n: int, draws: int) -> str:
    draw, covariance = CLOUDS[name](d)
    truth = truth_of(covariance)
    rng = np.random.default_rng([n, d, *name.encode()])
    errors, inside = [], 0
    for _ in range(draws):
        X = draw(rng, n)
        unbiased = isoscope.isoscore(X, unbiased=True, return_interval=True)
        star = isoscope.isoscore_star(X, covariance, zeta=0.2)
        errors.append([float(isoscope.isoscore(X)) - truth, float(star) - truth, float(unbiased.value) - truth])
        inside += unbiased.low <= truth <= unbiased.high
    bias, rmse = np.mean(errors, axis=0), np.sqrt(np.mean(np.square(errors), axis=0))
    cells = [f"{b:+.4f} / {r:.4f}" for b, r in zip(bias, rmse, strict=True)]
    best = int(np.argmin(rmse))
    cells[best] = f"**{cells[best]}**"
    return f"| {name} | {d} | {n} | {truth:.4f} | " + " | ".join(cells) + f" | {inside / draws:.0%} | {draws} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--draws", type=int, default=200, help="clouds for each line; a quarter and a tenth for large n"
    )
    parser.add_argument("--page", type=Path, help="put the table into this page, between its marks")
    arguments = parser.parse_args()
    lines = [
        "| cloud | d | n | truth | plug-in: bias / RMSE | IsoScore*, true Σ | unbiased | in 95% interval | draws |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in CLOUDS:
        for d in DIMENSIONS:
            for n in ROWS:
                draws = max(5, arguments.draws // {1024: 4, 4096: 10}.get(n, 1))
                lines.append(row(name, d, n, draws))
                print(lines[-1], flush=True)
    if arguments.page:
        put(arguments.page, "\n".join(lines))


if __name__ == "__main__":
    main()
