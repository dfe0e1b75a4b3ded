"""Measure the error rates of the row table: outliers, near-duplicates, hubs and label conflicts.

python benchmarks/rows_calibration.py RUNS [--data VECTORS] [--model MODEL] [--runs 100] [--page docs/rows.md]

RUNS is a folder for the results: one line of JSON per run, so that an interrupted calibration can be resumed. VECTORS
is a folder of Parquet files (see REAL); without it, only synthetic data is used. MODEL is the folder
of the sentence encoder whose vectors end in -minilm; without it, no failed texts are embedded. Every run is
reproducible from its cell and its number. With --data, the script also prints the examples in docs/rows.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import isoscope
from isoscope._core.pairs import nearest_neighbors
from isoscope.auditing.measure import LIST_LENGTH, count_lid_neighbors
from isoscope.auditing.near_duplicates import CLOSE_SHARE, near_duplicates, typical_distance
from isoscope.auditing.nulls import wilson_interval
from isoscope.auditing.outliers import find_outliers, fit_outliers
from isoscope.auditing.row_neighbors import CONFLICT_SHARE, HUB_FACTOR
from pages import write_table

SIZES = ((300, 32), (1_000, 128), (1_000, 384))
KINDS = ("isotropic", "power law", "steep power law", "cone", "20 clusters", "a small topic", "t, 5 degrees")
REAL_ROWS, FEW, MANY = 1_000, 5, 20  # rows of a subset, and planted rows
REAL = (
    *("banking77-test-minilm", "banking77-test-stories", "cranfield-docs-gte", "cranfield-docs-minilm"),
    *("cranfield-docs-stories", "newsgroups-minilm", "scifact-corpus-minilm", "scifact-dev-minilm", "stsb-test-minilm"),
)
FAILED_TEXTS = {"empty text": [""], "placeholders": [".", "n/a", "null", "undefined", "404 not found", "-", "?", "..."]}

Result = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """A kind of data, and a function that measures one run."""

    table: str
    name: str
    run: Callable[[np.random.Generator], Result]


def unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows at unit length, in float32."""
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def cloud(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Return data without near-duplicates; only the t distribution has outliers."""
    X = rng.standard_normal((n, d))
    fading = np.arange(1, d + 1) ** -0.5
    if kind == "power law":
        X *= fading
    elif kind == "steep power law":
        X *= fading**2
    elif kind == "cone":
        X = X * fading + 3 * np.linalg.norm(fading) / np.sqrt(d)
    elif kind == "20 clusters":
        code = rng.integers(20, size=n)
        X = X * rng.uniform(0.5, 1.5, 20)[code][:, None] + 2 * rng.standard_normal((20, d))[code]
    elif kind == "a small topic":
        X *= fading
        X[: max(n // 50, 12)] += 4 * unit(rng.standard_normal((1, d)))
    elif kind == "t, 5 degrees":
        return (X * np.sqrt(5 / rng.chisquare(5, (n, 1)))).astype(np.float32)
    return unit(X)


@dataclass(frozen=True)
class Rows:
    """The marks of each row, measured as in `isoscope audit --rows`."""

    outlier: np.ndarray
    near_duplicate: np.ndarray
    occurrences: np.ndarray
    lists: np.ndarray


def measure(X: np.ndarray) -> Rows:
    """Search the neighbors of all rows, and mark outliers and near-duplicates."""
    n, d = X.shape
    distances, indices = nearest_neighbors(X, count_lid_neighbors(n))
    typical = typical_distance(X, 0)
    pairs = near_duplicates(np.arange(n), distances, indices, typical=typical, n=n, d=d).pairs
    fitted = fit_outliers(X, distances, indices, CLOSE_SHARE * typical)
    outlier = np.zeros(n, bool) if fitted is None else find_outliers(fitted[1])
    lists = indices[:, :LIST_LENGTH]
    return Rows(outlier, np.isin(np.arange(n), pairs), np.bincount(lists.ravel(), minlength=n), lists)


def clean(X: np.ndarray) -> Result:
    """Return the shares of marked rows in data without planted rows."""
    rows = measure(X)
    hubs = rows.occurrences > HUB_FACTOR * LIST_LENGTH
    return {"outliers": rows.outlier.mean(), "near": rows.near_duplicate.mean(), "hubs": hubs.mean()}


def plant(X: np.ndarray, planted: np.ndarray, rng: np.random.Generator, count: int = FEW) -> Result:
    """Replace some rows by planted ones; return the share of them that is found, and of false discoveries."""
    X = X.copy()
    at = rng.choice(len(X), count, replace=False)
    X[at] = unit(planted[rng.choice(len(planted), len(at), replace=len(planted) < len(at))])
    rows = measure(X)
    found, copies = rows.outlier, np.unique(X, axis=0, return_inverse=True, return_counts=True)[1:]
    repeated = copies[1][copies[0].ravel()] > 1
    false = int(found.sum() - found[at].sum())
    return {
        "found": found[at].mean(),
        "false": false / max(int(found.sum()), 1),
        "duplicates": (repeated | rows.near_duplicate)[at].mean(),
    }


@cache
def read(path: Path) -> tuple[np.ndarray, list[str], np.ndarray | None]:
    """Return the unit vectors, texts and labels of a file."""
    store = isoscope.open_store(path)
    assert store.text is not None
    return unit(store.take(np.arange(len(store)))), store.text.tolist(), store.labels


@cache
def encoder(model: Path) -> Any:
    """Return a sentence encoder."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(model), device="cpu")


@cache
def embed(model: Path, texts: tuple[str, ...]) -> np.ndarray:
    """Return the vectors of texts, also of empty ones."""
    return np.asarray(encoder(model).encode(list(texts)), np.float32)


def some(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random subset of the rows."""
    return rng.choice(len(X), min(REAL_ROWS, len(X)), replace=False)


def synthetic_cells() -> Iterator[Cell]:
    for kind in KINDS:
        for n, d in SIZES:
            name = f"{kind}, {n:,}×{d}"
            yield Cell("clean", name, lambda rng, kind=kind, n=n, d=d: clean(cloud(kind, n, d, rng)))
    for n in (300, 1_000):
        yield Cell("hubs", f"random, {n:,} rows", lambda rng, n=n: random_lists(n, rng))


def random_lists(n: int, rng: np.random.Generator) -> Result:
    """Return the share of hubs if the neighbors of each row are random."""
    lists = np.stack([rng.choice(n, LIST_LENGTH, replace=False) for _ in range(n)])
    return {"hubs": float((np.bincount(lists.ravel(), minlength=n) > HUB_FACTOR * LIST_LENGTH).mean())}


def real_cells(folder: Path, model: Path | None) -> Iterator[Cell]:
    files = {name: path for name in REAL if (path := folder / f"{name}.parquet").exists()}
    for name, path in files.items():
        yield Cell("clean", name, lambda rng, path=path: clean(read(path)[0][some(read(path)[0], rng)]))
    for name, path in files.items():

        def noise(rng: np.random.Generator, path: Path = path) -> Result:
            X = read(path)[0]
            return plant(X[some(X, rng)], rng.standard_normal((100, X.shape[1])), rng)

        def shuffled(rng: np.random.Generator, path: Path = path) -> Result:
            X = read(path)[0]
            return plant(X[some(X, rng)], X[rng.choice(len(X), 100)][:, rng.permutation(X.shape[1])], rng)

        yield Cell("planted", f"{name}: noise", noise)
        yield Cell("planted", f"{name}: shuffled coordinates", shuffled)
        for other in ("gte", "bge", "granite", "minilm"):
            dataset, _, own = name.rpartition("-")
            peer = files.get(f"{dataset}-{other}")
            if peer is None or other == own or read(peer)[0].shape[1] != read(path)[0].shape[1]:
                continue

            for count in (FEW, MANY):

                def foreign(
                    rng: np.random.Generator, path: Path = path, peer: Path = peer, count: int = count
                ) -> Result:
                    X = read(path)[0]
                    return plant(X[some(X, rng)], read(peer)[0], rng, count)

                yield Cell("planted", f"{name}: {count} vectors of {other}", foreign)
            break
        if model is not None and name.endswith("-minilm"):
            for kind, texts in FAILED_TEXTS.items():

                def failed(
                    rng: np.random.Generator, path: Path = path, texts: tuple[str, ...] = tuple(texts)
                ) -> Result:
                    X = read(path)[0]
                    return plant(X[some(X, rng)], embed(model, texts), rng)

                yield Cell("planted", f"{name}: {kind}", failed)

            def cut(rng: np.random.Generator, path: Path = path) -> Result:
                X, texts, _ = read(path)
                starts = tuple(" ".join(text.split()[:3]) for text in texts[:200])
                return plant(X[some(X, rng)], embed(model, starts), rng)

            yield Cell("planted", f"{name}: the first three words of texts", cut)
        if read(path)[2] is not None:
            yield Cell("labels", f"{name}: 2% of labels changed", lambda rng, path=path: relabel(path, rng))
            yield Cell("labels", f"{name}: all labels shuffled", lambda rng, path=path: relabel(path, rng, every=True))


def relabel(path: Path, rng: np.random.Generator, *, every: bool = False) -> Result:
    """Change labels, and return the shares of changed and of other rows that have a label conflict."""
    labels = read(path)[2]
    assert labels is not None
    codes = np.unique(labels, return_inverse=True)[1].ravel()
    lists, n = _lists(path), len(codes)
    changed = np.zeros(n, bool)
    changed[rng.choice(n, n if every else n // 50, replace=False)] = True
    codes = np.where(changed, rng.permutation(codes) if every else rng.integers(codes.max() + 1, size=n), codes)
    near = codes[lists]
    votes = (near[:, :, None] == near[:, None, :]).sum(axis=2).max(axis=1) / near.shape[1]
    conflict = ~(near == codes[:, None]).any(axis=1) & (votes >= CONFLICT_SHARE)
    return {"found": conflict[changed].mean(), "others": 0.0 if every else conflict[~changed].mean()}


@cache
def _lists(path: Path) -> np.ndarray:
    return nearest_neighbors(read(path)[0], LIST_LENGTH)[1]


def results(cell: Cell, folder: Path, runs: int) -> list[Result]:
    """Return the results of all runs of a cell; runs in the folder are not repeated."""
    path = folder / f"{cell.table}-{cell.name.replace('/', '-')}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    done = [json.loads(line) for line in lines][:runs]
    with path.open("a", encoding="utf-8") as file:
        for number in range(len(done), runs):
            key = [number, *cell.name.encode()]
            done.append({name: float(value) for name, value in cell.run(np.random.default_rng(key)).items()})
            file.write(json.dumps(done[-1]) + "\n")
            file.flush()
    return done


def mean(found: list[Result], name: str) -> float:
    return float(np.mean([each[name] for each in found]))


def line(cell: Cell, found: list[Result]) -> str:
    """Return the table row of a cell."""
    if cell.table == "clean":
        cells = []
        for name in ("outliers", "near"):
            share = float(np.mean([each[name] > 0 for each in found]))
            low, high = wilson_interval(share, len(found))
            cells += [f"{share:.0%} ({low:.0%} … {high:.0%})", f"{mean(found, name):.3%}"]
        return f"| {cell.name} | {' | '.join(cells)} | {mean(found, 'hubs'):.2%} |"
    if cell.table == "hubs":
        return f"| {cell.name} | {mean(found, 'hubs'):.3%} |"
    if cell.table == "labels":
        return f"| {cell.name} | {mean(found, 'found'):.1%} | {mean(found, 'others'):.2%} |"
    return (
        f"| {cell.name} | {mean(found, 'found'):.0%} | {mean(found, 'false'):.1%} | {mean(found, 'duplicates'):.0%} |"
    )


HEADS = {
    "clean": "| data | runs with outliers | outliers | runs with near-duplicates | near-duplicates | hubs |\n"
    "|---|---|---|---|---|---|",
    "planted": "| data and planted rows | outliers | false discoveries | in duplicate groups |\n|---|---|---|---|",
    "hubs": "| nearest neighbors | hubs |\n|---|---|",
    "labels": "| data | changed rows with a conflict | other rows with a conflict |\n|---|---|---|",
}


def example(path: Path, top: int) -> str:
    """Return the worst rows of a file without their texts, as the terminal shows them."""
    from isoscope._report.row_lists import render_worst_text
    from isoscope._report.terminal import to_plain_text

    worst = isoscope.audit(path, rows=True, top=top).without_texts().worst
    return f"```text\n{to_plain_text(render_worst_text(worst), 100)}\n```"


EXAMPLES = {"cranfield": ("cranfield-docs-minilm", 3), "banking": ("banking77-test-minilm", 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="RUNS")
    parser.add_argument("--data", type=Path, metavar="VECTORS")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--runs", type=int, default=100, help="runs on synthetic data; a fifth of them on real data")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[str]] = {name: [head] for name, head in HEADS.items()}
    cells: list[tuple[Cell, int]] = [(cell, options.runs) for cell in synthetic_cells()]
    if options.data is not None:
        cells += [(cell, max(options.runs // 5, 1)) for cell in real_cells(options.data, options.model)]
    for cell, runs in cells:
        tables[cell.table].append(line(cell, results(cell, options.folder, runs)))
        print(f"{cell.table}  {tables[cell.table][-1]}", flush=True)
    texts: dict[str, Any] = {name: "\n".join(lines) for name, lines in tables.items() if len(lines) > 1}
    if options.data is not None:
        for name, (stem, top) in EXAMPLES.items():
            texts[name] = example(options.data / f"{stem}.parquet", top)
            print(texts[name], flush=True)
    if options.page is not None:
        for name, text in texts.items():
            write_table(options.page, text, name)


if __name__ == "__main__":
    main()
