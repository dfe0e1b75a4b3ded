"""Draw the figures of docs/explanation from the example vectors and from generated data.

python tools/explanation_figures.py writes docs/explanation/figures/*.svg in about a minute.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

import isoscope
from isoscope.metrics import silhouette
from isoscope.studies.figures import render_svg
from isoscope.studies.study import Figure, Panel, Series

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "figures"
_SEED = 0


def draw_cosines() -> Figure:
    """Draw the cosines of random pairs before and after subtracting the mean."""
    X = _load_demo(5)[0]
    edges = np.linspace(-0.6, 1, 81)
    centers = (edges[1:] + edges[:-1]) / 2
    first, second = np.random.default_rng(_SEED).integers(0, len(X), (2, 200_000))
    series = []
    for name, rows in (("as stored", X), ("mean subtracted", X - X.mean(0))):
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        density = np.histogram((units[first] * units[second]).sum(1)[first != second], edges, density=True)[0]
        series.append(Series(name, centers, density))
    panel = Panel("Cosines of random pairs of texts", series, "cosine", "density", zero=True)
    return Figure("cosines", "All vectors share one direction", "", [panel])


def draw_spectrum() -> Figure:
    """Draw the share of the variance of each direction for two layers and for isotropic data."""
    series = []
    rng = np.random.default_rng(_SEED)
    layers = (("layer 5", _load_demo(5)[0]), ("layer 6 (output)", _load_demo(6)[0]))
    for name, X in (*layers, ("isotropic data", rng.standard_normal((1750, 384)))):
        shares = isoscope.spectrum(X)
        shares = shares / shares.sum()
        ranks = np.unique(np.geomspace(1, 384, 60).astype(int))
        series.append(Series(name, ranks, shares[ranks - 1], dashed=name == "isotropic data"))
    panel = Panel(
        "Share of the variance of each direction", series, "direction, by rank", "share", log_x=True, log_y=True
    )
    return Figure("spectrum", "The flatter the line, the more isotropic the space", "", [panel])


def draw_estimators() -> Figure:
    """Draw three estimates of IsoScore by the number of rows, for data whose true IsoScore is 1."""
    rng = np.random.default_rng(_SEED)
    d, sizes, repeats = 384, (16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 8
    values: dict[str, list[float]] = {"as published": [], "IsoScore* (ζ = 0.2)": [], "unbiased": []}
    for n in sizes:
        samples = [rng.standard_normal((n, d)) for _ in range(repeats)]
        values["as published"].append(np.mean([isoscope.isoscore(X) for X in samples]))
        values["IsoScore* (ζ = 0.2)"].append(
            np.mean([isoscope.isoscore_star(X, shrinkage=np.eye(d), zeta=0.2) for X in samples])
        )
        values["unbiased"].append(np.mean([isoscope.isoscore(X, unbiased=True) for X in samples]))
    series = [Series(name, sizes, each) for name, each in values.items()]
    panel = Panel("IsoScore of isotropic data in 384 dimensions", series, "rows", "IsoScore", log_x=True, zero=True)
    return Figure("estimators", "With few rows, IsoScore is far too low", "", [panel])


def draw_conflict() -> Figure:
    """Draw IsoScore and two scores of the labels while the spectrum of the example vectors is flattened."""
    X, labels = _load_demo(6)
    X = X - X.mean(0)
    _, s, V = np.linalg.svd(X, full_matrices=False)
    s, V = s[:-1], V[:-1]  # layer normalization leaves almost no variance in the last direction
    strengths = np.linspace(0, 1, 9)
    scores: dict[str, list[float]] = {"IsoScore": [], "nearest neighbors with the same label": [], "silhouette": []}
    for strength in strengths:
        Y = (X @ V.T) * (s / s[0]) ** -strength
        scores["IsoScore"].append(float(isoscope.isoscore(Y)))
        units = Y / np.linalg.norm(Y, axis=1, keepdims=True)
        neighbors = NearestNeighbors(n_neighbors=11).fit(units).kneighbors(return_distance=False)[:, :10]
        scores["nearest neighbors with the same label"].append(float((labels[neighbors] == labels[:, None]).mean()))
        scores["silhouette"].append(float(silhouette(Y, labels)))
    series = [Series(name, strengths, each) for name, each in scores.items()]
    panel = Panel("From the original spectrum (0) to a flat one (1)", series, "whitening", "score")
    return Figure("conflict", "More isotropic, but the classes are less separate", "", [panel])


def draw_clusters() -> Figure:
    """Draw the mean cosine and the IsoScore inside k-means clusters by the number of clusters."""
    X = _load_demo(5)[0]
    counts = (1, 2, 3, 5, 8, 12, 20, 30)
    cosines, scores = [], []
    for k in counts:
        labels = KMeans(k, n_init=3, random_state=_SEED).fit_predict(X)
        centered = X - np.stack([X[labels == each].mean(0) for each in range(k)])[labels]
        cosines.append(float(isoscope.mean_cosine(centered)))
        scores.append(float(isoscope.isoscore(centered)))
    before = float(isoscope.mean_cosine(X)), float(isoscope.isoscore(X))
    panels = [
        Panel(
            title,
            [
                Series("each cluster centered", counts, values),
                Series("as stored", counts, [flat] * len(counts), dashed=True),
            ],
            "clusters",
            "",
            log_x=True,
            zero=True,
        )
        for title, values, flat in (("Mean cosine", cosines, before[0]), ("IsoScore", scores, before[1]))
    ]
    return Figure("clusters", "Inside its clusters, the space is more isotropic", "", panels)


def draw_components() -> Figure:
    """Draw the partition isotropy by the number of removed principal components, globally and in each cluster."""
    X = _load_demo(5)[0]
    X = X / np.sqrt((X**2).sum(1).mean())
    removed = (0, 1, 2, 4, 8, 12, 20)
    labels = KMeans(10, n_init=3, random_state=_SEED).fit_predict(X)
    groups = {"one mean, one set of components": np.zeros(len(X), int), "in each of 10 clusters": labels}
    series = []
    for name, codes in groups.items():
        values = []
        for count in removed:
            Y = X.copy()
            for code in np.unique(codes):
                rows = Y[codes == code] - Y[codes == code].mean(0)
                V = np.linalg.svd(rows, full_matrices=False)[2][:count]
                Y[codes == code] = rows - rows @ V.T @ V
            values.append(float(isoscope.partition_isotropy(Y)))
        series.append(Series(name, removed, values))
    start = float(isoscope.partition_isotropy(X))
    series.append(Series("as stored", removed, [start] * len(removed), dashed=True))
    panel = Panel("Partition isotropy", series, "removed components", "min Z / max Z", zero=True)
    return Figure("components", "Subtracting the mean does most of the work", "", [panel])


def draw_barcodes() -> Figure:
    """Draw the bars of evenly spread points and of points in tight groups."""
    rng = np.random.default_rng(_SEED)
    even = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), -1).reshape(-1, 2) + 0.15 * rng.standard_normal(
        (64, 2)
    )
    centers = 3.0 * np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]])
    grouped = centers[np.arange(64) % 6] + 0.25 * rng.standard_normal((64, 2))
    series, ranks = [], np.arange(1, 64)
    for name, points in (("evenly spread", even), ("in 6 groups", grouped)):
        bars = isoscope.h0_barcode(points)
        entropy = float(isoscope.persistent_entropy(bars))
        series.append(Series(f"{name}: entropy {entropy:.2f}", ranks, bars))
    panel = Panel("Lengths of the 63 bars of 64 points", series, "bar, longest first", "length", zero=True)
    return Figure("barcodes", "Equal bars have the highest entropy", "", [panel])


FIGURES = (
    *(draw_cosines, draw_spectrum, draw_estimators, draw_conflict),
    *(draw_clusters, draw_components, draw_barcodes),
)


def _load_demo(layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the example vectors of a layer, and their labels."""
    store = isoscope.open_store(str(resources.files("isoscope") / "demo" / f"glosses-layer{layer}.parquet"))
    return np.concatenate([np.asarray(each, np.float64) for each in store]), np.asarray(store.labels)


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in FIGURES:
        figure = draw()
        (FOLDER / f"{figure.key}.svg").write_text(render_svg(figure, figure.title), "utf-8")


if __name__ == "__main__":
    main()
