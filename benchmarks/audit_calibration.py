"""Measure the false positives and the power of the audit's tests for clusters and local dimension.

Each table row shows one kind of data. `make calibration-audit` prints the tables and writes them into docs/findings.md.
The same seed gives the same tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from isoscope.auditing.audit import audit
from isoscope.auditing.nulls import wilson_interval
from isoscope.auditing.passes import Axes
from isoscope.auditing.structure import has_clusters, is_bimodal
from isoscope.sketching.sketch import Sketch
from pages import write_table

DIMENSIONS, ROWS = (16, 64, 256, 768), (200, 1_000, 5_000)
POWERS = {"isotropic": 0.0, "power law 1": 1.0, "power law 2": 2.0}
FORMS = {
    "centered": (0.0, False, None),
    "large mean": (3.0, False, None),
    "unit length": (0.0, True, None),
    "unit length, mean": (1.0, True, None),
    "t, 3 degrees": (0.0, False, 3),
}
COMPONENTS, SEPARATIONS = (2, 5, 15), (8.0, 30.0)


def unimodal(n: int, d: int, power: float, form: str, rng: np.random.Generator) -> np.ndarray:
    """Return unimodal data with a power-law spectrum, in one of `FORMS`."""
    mean, unit, degrees = FORMS[form]
    deviations = np.arange(1, d + 1) ** (-power / 2)
    X = rng.standard_normal((n, d)) * deviations
    if degrees:
        X *= np.sqrt(degrees / rng.chisquare(degrees, (n, 1)))
    direction = rng.standard_normal(d)
    X += mean * np.linalg.norm(deviations) * direction / np.linalg.norm(direction)
    return scaled(X, unit)


def mixture(n: int, d: int, k: int, separation: float, unit: bool, rng: np.random.Generator) -> np.ndarray:
    """Return a mixture of k spherical Gaussians with standard deviation 1 whose centers are `separation` apart."""
    centers = np.linalg.qr(rng.standard_normal((d, k)))[0].T * separation / np.sqrt(2)
    return scaled(rng.standard_normal((n, d)) + centers[rng.integers(0, k, n)], unit)


def scaled(X: np.ndarray, unit: bool) -> np.ndarray:
    """Return X in float32; if `unit` is true, normalize its rows to unit length."""
    return (X / np.linalg.norm(X, axis=1, keepdims=True) if unit else X).astype(np.float32)


def clusters_found(X: np.ndarray, seed: int) -> bool:
    """Return whether the null tests find several clusters; an audit also requires a silhouette of 0.1."""
    return is_bimodal(X, Axes.of(Sketch.of(X).scatter)) or has_clusters(X, seed)


def dimension_flagged(X: np.ndarray, seed: int) -> bool:
    """Return whether an audit flags the local dimension."""
    return audit(X, seed=seed)["intrinsic_dimension"].verdict != "ok"


def rate(
    draw: Callable[[np.random.Generator], np.ndarray], flagged: Callable[..., bool], runs: int, key: list[int]
) -> list[bool]:
    """Return, for each run, whether it was flagged."""
    return [flagged(draw(np.random.default_rng([*key, run])), run) for run in range(runs)]


def line(name: str, flags: list[bool]) -> str:
    """Return a table row: the number of flagged runs, their share, and Wilson's interval."""
    share = float(np.mean(flags))
    low, high = wilson_interval(share, len(flags))
    return f"| {name} | {sum(flags)} of {len(flags)} | {share:.1%} | {low:.1%} … {high:.1%} |"


def tables(runs: int, seed: int) -> tuple[str, str, str]:
    """Return tables of falsely detected clusters, of correctly detected clusters, and of flagged local dimensions."""
    head = "| {} | flagged | rate | 95% interval |\n|---|---|---|---|"
    false, pooled = [head.format("one mode")], []
    for s, (spectrum, power) in enumerate(POWERS.items()):
        for f, form in enumerate(FORMS):
            flags = []
            for d in DIMENSIONS:
                for n in ROWS:

                    def draw(rng, n=n, d=d, power=power, form=form):
                        return unimodal(n, d, power, form, rng)

                    flags += rate(draw, clusters_found, runs, [seed, 1, s, f, d, n])
            pooled += flags
            false.append(line(f"{spectrum}, {form}", flags))
            print(false[-1], flush=True)
    false.append(line("all", pooled))
    print(false[-1], flush=True)
    power_table = [head.format("mixture")]
    for k in COMPONENTS:
        for separation in SEPARATIONS:
            for unit in (False, True):
                flags = []
                for d in DIMENSIONS:
                    for n in ROWS:

                        def draw(rng, n=n, d=d, k=k, separation=separation, unit=unit):
                            return mixture(n, d, k, separation, unit, rng)

                        flags += rate(
                            draw, clusters_found, max(runs // 4, 1), [seed, 2, k, int(separation), int(unit), d, n]
                        )
                power_table.append(
                    line(f"{k} components, {separation:g} apart{', unit length' if unit else ''}", flags)
                )
                print(power_table[-1], flush=True)
    lids = [head.format("local dimension")]
    for spectrum in ("isotropic", "power law 1"):
        for d, n in ((64, 1_000), (384, 1_000), (768, 500)):
            for form in ("centered", "unit length"):

                def draw(rng, n=n, d=d, spectrum=spectrum, form=form):
                    return unimodal(n, d, POWERS[spectrum], form, rng)

                flags = rate(draw, dimension_flagged, max(runs // 2, 1), [seed, 3, d, n, int(form == "centered")])
                lids.append(line(f"{spectrum}, {form}, {n:,}×{d}", flags))
                print(lids[-1], flush=True)
    return "\n".join(false), "\n".join(power_table), "\n".join(lids)


def main() -> None:
    """Print the tables, and write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=25, help="number of runs per size; each table row on clusters covers 12 sizes"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    found = tables(asked.runs, asked.seed)
    if asked.page:
        for table, name in zip(found, ("false clusters", "clusters found", "local dimension"), strict=True):
            write_table(asked.page, table, name)


if __name__ == "__main__":
    main()
