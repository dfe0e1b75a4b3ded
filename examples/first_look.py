"""Measure four generated datasets and explain the numbers.

python examples/first_look.py
"""

from __future__ import annotations

import numpy as np

import isoscope


def make_data(n: int = 2000, d: int = 384, seed: int = 0) -> dict[str, np.ndarray]:
    """Return an isotropic dataset and three datasets with typical properties of real embeddings."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n, d), dtype=np.float32)
    rogue = noise + np.where(np.arange(d) < 3, 25, 0).astype(np.float32)
    power = noise * (np.arange(1, d + 1) ** -0.6).astype(np.float32)
    centers = 30 * rng.standard_normal((4, d), dtype=np.float32) / np.sqrt(d)
    clusters = noise * 0.6 + centers[np.arange(n) % 4]
    return {"isotropic": noise, "rogue dimensions": rogue, "decaying spectrum": power, "four clusters": clusters}


def measure(X: np.ndarray) -> dict[str, str]:
    """Return measurements that need no labels, formatted as text."""
    score = isoscope.isoscore_interval(X)
    bars = isoscope.metrics.select_bars(isoscope.h0_barcode(X))
    choice = isoscope.choose_clusters(X, range(2, 7))
    contribution = isoscope.cosine_contribution(X)
    raw, centered = isoscope.anisotropy(X, 1)[0], isoscope.anisotropy(X, 1, center=True)[0]
    return {
        "IsoScore (unbiased)": f"{score.value:.3f} ± {score.high - score.value:.3f}",
        "IsoScore (as published)": f"{isoscope.isoscore(X):.3f}",
        "mean cosine": f"{isoscope.mean_cosine(X):+.3f}",
        "largest share of one dimension": f"{contribution.max():+.3f} (no. {contribution.argmax()})",
        "anisotropy_1 raw / centered": f"{raw:.3f} / {centered:.3f}",
        "effective rank": f"{isoscope.effective_rank(X):.0f} of {X.shape[1]}",
        "partition isotropy": f"{isoscope.partition_isotropy(X / np.linalg.norm(X, axis=1).mean()):.3f}",
        "local dimension (LID)": f"{isoscope.lid(X):.1f}",
        "dimension (TwoNN)": f"{isoscope.two_nn(X):.1f}",
        "hubness (skewness)": f"{isoscope.hubness(X).skewness:.1f}",
        "clusters (silhouette)": f"{choice.n_clusters} (best {max(choice.silhouettes.values()):.2f})",
        "significant bars": f"{len(bars)} of {len(X) - 1}",
        "uniformity": f"{isoscope.uniformity(X):.2f}",
    }


MEANING = """
How to read the table
- IsoScore near 1: the variance is equal in all dimensions. The published estimate is too low if there are few rows
  relative to the number of dimensions; the unbiased estimate is not.
- Rogue dimensions make every cosine high, but they do not change IsoScore: they shift the mean, not the variance.
  Subtract the mean to remove them.
- A decaying spectrum lowers the effective rank and the local dimension.
- Clusters also lower IsoScore. This is not a defect: a space with clusters cannot be isotropic."""


def main() -> None:
    columns = {name: measure(X) for name, X in make_data().items()}
    width = max(len(row) for row in next(iter(columns.values())))
    widths = {name: max(len(name), *(len(value) for value in values.values())) for name, values in columns.items()}
    print("2,000 vectors with 384 dimensions in each dataset\n")
    print(" " * width, *(name.rjust(widths[name]) for name in columns), sep="   ")
    for row in next(iter(columns.values())):
        print(row.ljust(width), *(values[row].rjust(widths[name]) for name, values in columns.items()), sep="   ")
    print(MEANING)


if __name__ == "__main__":
    main()
