"""Measure how often the candidate that `compress` recommends keeps less than the promised share.

Each run calls `compress` on a random source, saves the recommended quantizer, loads it, and scores it on examples that
`compress` did not see: a large set of fresh queries, or the other half of real judgments. Runs are kept in a folder, so
an interrupted measurement resumes. `make calibration-compress` prints the tables and writes them into docs/compress.md.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

import isoscope
from isoscope.auditing.nulls import wilson_interval
from isoscope.compressing.candidates import LIST_LENGTH
from isoscope.transforms.quantize import Quantizer
from pages import write_table

MODELS = ("minilm", "gte", "bge", "granite", "stories", "minilm-layer4")
CORPORA = ("banking77-test", "newsgroups", "scifact-corpus", "cranfield-docs")
BOUNDARY = 0.0
"""Instead of a share to keep: just above the share that plain int4 codes keep on the fresh queries of the run.

This is the hardest case: several candidates keep almost the promised share, and recommending one of them is an error.
"""
KEEPS = (BOUNDARY, 0.95, 0.99)
ROWS, FRESH = 1_000, 2_000
JUDGED_KEEPS = (0.95, 0.99)
RETRIEVAL = {
    "cranfield-docs": ("cranfield-queries", "cranfield-qrels.tsv"),
    "scifact-corpus": ("scifact-dev", "scifact-dev-qrels.tsv"),
}
PAIRS = {"stsb-test": "stsb-test-pairs.tsv"}
LABELED = ("banking77-test",)
_ABOVE = 0.0005
_RESAMPLES = 500


class Cell(NamedTuple):
    """One line of a table: how to draw a source, its task, and the share to keep."""

    kind: str
    name: str
    keep: float
    runs: int


# populations


def population(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n rows of a synthetic population with 48 dimensions; its parameters are the same for every draw."""
    fixed = np.random.default_rng(7)
    d = 48
    X = rng.standard_normal((n, d))
    if name == "isotropic":
        return X.astype(np.float32)
    spectrum = np.arange(1, d + 1) ** -0.5
    if name == "anisotropic":
        return (X * spectrum * 2 + 1.5 * fixed.standard_normal(d)).astype(np.float32)
    if name == "clusters":
        centers = fixed.standard_normal((30, d))
        return (centers[rng.integers(30, size=n)] + 0.5 * X * spectrum).astype(np.float32)
    if name == "outliers":  # 2% of the rows are far outside of the ranges of the others
        X *= np.where(rng.random((n, 1)) < 0.02, 20, 1) * spectrum
        return (X + 0.5).astype(np.float32)
    raise ValueError(name)


def read_vectors(data: Path, name: str) -> tuple[np.ndarray, list[Any], np.ndarray | None]:
    """Return the vectors, the ids and the labels of a file that the benchmarks of the advisor made."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / f"{name}.parquet")
    column = "embedding" if "embedding" in table.column_names else "vectors"
    vectors = np.asarray(table[column].to_pylist(), np.float32)
    ids = table["id"].to_pylist() if "id" in table.column_names else list(range(len(vectors)))
    label = next((each for each in ("label", "labels") if each in table.column_names), None)
    return vectors, ids, None if label is None else np.asarray(table[label].to_pylist())


# fresh scores


def fresh_recall(quantizer: Quantizer, rows: np.ndarray, queries: np.ndarray) -> float:
    """Return the recall@10 of decoded rows for queries, against exact search in the rows, by cosine."""
    exact = top(unit(queries), unit(rows))
    decoded = unit(quantizer.transform(rows))
    found = top(unit(quantizer.transform(queries)) if quantizer.compares_bits else unit(queries), decoded)
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]) / LIST_LENGTH)


def unit(X: np.ndarray) -> np.ndarray:
    """Return rows of length 1."""
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def top(queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the 10 rows with the largest inner product for each query."""
    return np.argpartition(-queries @ rows.T, LIST_LENGTH, axis=1)[:, :LIST_LENGTH]


def reciprocal_ranks(quantizer: Quantizer | None, rows: np.ndarray, queries: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return nDCG@10 of queries with one relevant row each."""
    decoded = rows if quantizer is None else quantizer.transform(rows)
    asked = quantizer.transform(queries) if quantizer is not None and quantizer.compares_bits else queries
    similarity = unit(asked) @ unit(decoded).T
    own = similarity[np.arange(len(queries)), of]
    rank = (similarity > own[:, None]).sum(axis=1)
    return np.where(rank < LIST_LENGTH, 1 / np.log2(rank + 2), 0.0)


# runs


def run(cell: Cell, number: int, data: Path | None) -> dict[str, Any]:
    """Return whether a candidate was recommended, its size, and the share that it keeps on fresh queries."""
    rng = np.random.default_rng([number, *cell.name.encode(), round(1000 * cell.keep)])
    options: dict[str, Any] = {"keep": cell.keep, "seed": number}
    if cell.kind == "recall":
        rows, fresh = _draw_rows(cell, rng, data)
        if cell.keep == BOUNDARY:
            options["keep"] = min(fresh_recall(Quantizer("int4").fit(rows), rows, fresh) + _ABOVE, 1.0)
        result = isoscope.compress(rows, **options)
        share = None if result.chosen is None else fresh_recall(_reload(result), rows, fresh)
    elif cell.kind == "queries":
        rows = population(cell.name, ROWS, rng)
        of = rng.integers(ROWS, size=300 + 5 * FRESH)
        queries = rows[of] + 1.2 * rows.std(axis=0) * rng.standard_normal((len(of), rows.shape[1])).astype(np.float32)
        qrels = {str(i): {str(row): 1} for i, row in enumerate(of[:300])}
        names = [str(i) for i in range(ROWS)]
        before = float(reciprocal_ranks(None, rows, queries[300:], of[300:]).mean())
        if cell.keep == BOUNDARY:
            codes = Quantizer("int4").fit(rows)
            after = float(reciprocal_ranks(codes, rows, queries[300:], of[300:]).mean())
            options["keep"] = min(after / before + _ABOVE, 1.0)
        result = isoscope.compress(
            rows, ids=names, queries=queries[:300], query_ids=names[:300], qrels=qrels, measure="ndcg@10", **options
        )
        share = None
        if result.chosen is not None:
            share = float(reciprocal_ranks(_reload(result), rows, queries[300:], of[300:]).mean() / before)
    else:
        assert data is not None
        return JUDGED[cell.kind](cell, options, rng, data)
    return {**_describe(result, options["keep"]), "share": share}


def _describe(result: Any, keep: float) -> dict[str, Any]:
    times = None if result.chosen is None else result.original.bytes / result.choice.bytes
    return {"outcome": result.outcome, "keep": keep, "times": times}


def _draw_rows(cell: Cell, rng: np.random.Generator, data: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if "-" not in cell.name:
        return np.array_split(population(cell.name, ROWS + FRESH, rng), [ROWS])
    assert data is not None
    vectors, _, _ = read_vectors(data, cell.name)
    vectors = vectors[rng.permutation(len(vectors))]
    half = min(ROWS, len(vectors) // 2)
    return vectors[:half], vectors[half : half + FRESH]


def _reload(result: Any) -> Quantizer:
    """Return the quantizer after saving and loading it: what is promised is what the saved one delivers."""
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder, "quantizer"))
        return isoscope.load_transform(Path(folder, "quantizer"))


# real judgments: one half to recommend, the other half to check

Measure = Callable[[np.ndarray], float]
"""The score of some held-out examples, given their positions."""


def run_queries(cell: Cell, options: dict[str, Any], rng: np.random.Generator, data: Path) -> dict[str, Any]:
    """Recommend with half of the judged queries; return the share of nDCG@10 that the other half keeps."""
    corpus, _, model = cell.name.rpartition("-")
    queries, qrels = RETRIEVAL[corpus]
    vectors, ids, _ = read_vectors(data, cell.name)
    asked, names, _ = read_vectors(data, f"{queries}-{model}")
    judged: dict[str, dict[str, float]] = {}
    for query, document, score in _read_lines(data / qrels):
        if float(score) > 0 and query in names and document in ids:
            judged.setdefault(query, {})[document] = float(score)
    order = rng.permutation(sorted(judged)).tolist()
    seen, other = order[: len(order) // 2], order[len(order) // 2 :]
    position = {name: i for i, name in enumerate(names)}
    result = isoscope.compress(
        vectors,
        ids=ids,
        queries=asked[[position[name] for name in seen]],
        query_ids=seen,
        qrels={name: judged[name] for name in seen},
        measure="ndcg@10",
        **options,
    )
    held_out = asked[[position[name] for name in other]]
    relevant = [judged[name] for name in other]

    def scores(quantizer: Quantizer | None) -> Measure:
        rows = unit(vectors if quantizer is None else quantizer.transform(vectors))
        bits = quantizer is not None and quantizer.compares_bits
        best = np.argsort(-unit(quantizer.transform(held_out) if bits else held_out) @ rows.T, axis=1, kind="stable")
        found = [[ids[i] for i in of] for of in best[:, :LIST_LENGTH]]
        values = np.array([ndcg(of, to) for of, to in zip(found, relevant, strict=True)])
        return lambda chosen: float(values[chosen].mean())

    return _check(result, options["keep"], scores, len(other), rng)


def run_pairs(cell: Cell, options: dict[str, Any], rng: np.random.Generator, data: Path) -> dict[str, Any]:
    """Recommend with half of the graded pairs; return the share of Spearman's correlation that the other half keeps."""
    corpus, _, _ = cell.name.rpartition("-")
    vectors, ids, _ = read_vectors(data, cell.name)
    pairs = np.array(_read_lines(data / PAIRS[corpus]))
    seen, other = np.array_split(rng.permutation(len(pairs)), 2)
    graded = [(a, b, float(grade)) for a, b, grade in pairs[seen]]
    result = isoscope.compress(vectors, ids=ids, pairs=graded, **options)
    position = {name: i for i, name in enumerate(ids)}
    left, right = (np.array([position[name] for name in pairs[other, side]]) for side in (0, 1))
    grades = pairs[other, 2].astype(float)

    def scores(quantizer: Quantizer | None) -> Measure:
        rows = unit(vectors if quantizer is None else quantizer.transform(vectors))
        cosines = np.einsum("ij,ij->i", rows[left], rows[right])
        return lambda chosen: float(spearmanr(cosines[chosen], grades[chosen]).statistic)

    return _check(result, options["keep"], scores, len(other), rng)


def run_labels(cell: Cell, options: dict[str, Any], rng: np.random.Generator, data: Path) -> dict[str, Any]:
    """Recommend with half of the labeled rows; return the share of neighbor accuracy that the other half keeps."""
    vectors, _, labels = read_vectors(data, cell.name)
    assert labels is not None
    seen, other = np.array_split(rng.permutation(len(vectors)), 2)
    result = isoscope.compress(vectors[seen], labels=labels[seen], measure="knn", **options)

    def scores(quantizer: Quantizer | None) -> Measure:
        rows = unit(vectors if quantizer is None else quantizer.transform(vectors))
        votes = labels[seen][np.argsort(-rows[other] @ rows[seen].T, axis=1, kind="stable")[:, :LIST_LENGTH]]
        agreeing = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
        hits = votes[np.arange(len(votes)), agreeing.argmax(axis=1)] == labels[other]
        return lambda chosen: float(hits[chosen].mean())

    return _check(result, options["keep"], scores, len(other), rng)


JUDGED = {"judged queries": run_queries, "judged pairs": run_pairs, "judged labels": run_labels}


def _check(
    result: Any, keep: float, scores: Callable[[Quantizer | None], Measure], count: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Return the share that the held-out examples keep, and its one-sided 95% upper bound by the bootstrap."""
    found = {**_describe(result, keep), "share": None, "high": None}
    if result.chosen is not None:
        before, after = scores(None), scores(_reload(result))
        draws = rng.integers(count, size=(_RESAMPLES, count))
        found["share"] = after(np.arange(count)) / before(np.arange(count))
        found["high"] = float(np.quantile([after(draw) / before(draw) for draw in draws], 0.95))
    return found


def ndcg(found: list[Any], judged: dict[Any, float]) -> float:
    """Return nDCG@10 of a ranked list; a document's gain is its relevance."""
    discounts = 1 / np.log2(np.arange(2, LIST_LENGTH + 2))
    best = sorted(judged.values(), reverse=True)[:LIST_LENGTH]
    return float(np.dot([judged.get(name, 0.0) for name in found], discounts) / np.dot(best, discounts[: len(best)]))


def _read_lines(path: Path) -> list[list[str]]:
    """Return the rows of a TSV file without its header."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))[1:]


def cells(data: Path | None, runs: int) -> Iterator[Cell]:
    """Yield every line of the tables; those of real vectors only if their files exist."""

    def exists(name: str) -> bool:
        return data is not None and (data / f"{name}.parquet").exists()

    for keep in JUDGED_KEEPS:
        for corpus, model in itertools.product(RETRIEVAL, MODELS):
            if exists(f"{corpus}-{model}") and exists(f"{RETRIEVAL[corpus][0]}-{model}"):
                yield Cell("judged queries", f"{corpus}-{model}", keep, max(runs // 3, 1))
        for corpus, model in itertools.product(PAIRS, MODELS):
            if exists(f"{corpus}-{model}"):
                yield Cell("judged pairs", f"{corpus}-{model}", keep, max(runs // 3, 1))
    for keep in KEEPS:
        for corpus, model in itertools.product(CORPORA, MODELS):
            if exists(f"{corpus}-{model}"):
                yield Cell("recall", f"{corpus}-{model}", keep, runs if keep == BOUNDARY else max(runs // 5, 1))
        for name in ("isotropic", "anisotropic", "clusters"):
            yield Cell("queries", name, keep, runs if keep == BOUNDARY else max(runs // 4, 1))
        for name in ("isotropic", "anisotropic", "clusters", "outliers"):
            yield Cell("recall", name, keep, runs)
    for keep, corpus, model in itertools.product(JUDGED_KEEPS, LABELED, MODELS):
        if exists(f"{corpus}-{model}"):
            yield Cell("judged labels", f"{corpus}-{model}", keep, max(runs // 10, 1))


def collect(folder: Path, data: Path | None, runs: int) -> dict[Cell, list[dict[str, Any]]]:
    """Return all runs of all cells; finished runs are read from the folder, and the others are appended to it."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for cell in cells(data, runs):
        path = folder / f"{cell.kind.replace(' ', '-')}-{cell.name}-{cell.keep}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        done = [json.loads(line) for line in lines]
        with path.open("a", encoding="utf-8") as out:
            for number in range(len(done), cell.runs):
                done.append(run(cell, number, data))
                out.write(json.dumps(done[-1]) + "\n")
                out.flush()
        found[cell] = done[: cell.runs]
        print(table({cell: found[cell]}).splitlines()[-1], flush=True)
    return found


# tables

_TASKS = {
    "recall": "recall@10",
    "queries": "nDCG@10 of queries",
    "judged queries": "nDCG@10",
    "judged pairs": "Spearman's correlation",
    "judged labels": "accuracy of 10 neighbors",
}


def table(found: dict[Cell, list[dict[str, Any]]]) -> str:
    """Return a Markdown table with the share of runs that kept less than promised."""
    lines = [
        "| vectors | score | keep | runs | recommended | kept less than promised | lowest share | times smaller |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell, runs in found.items():
        chosen = [each for each in runs if each["share"] is not None]
        below = sum(each["share"] < each["keep"] for each in chosen)
        lowest = min((each["share"] for each in chosen), default=float("nan"))
        times = np.median([each["times"] for each in chosen]) if chosen else float("nan")
        lines.append(
            f"| {cell.name} | {_TASKS[cell.kind]} | {_format_keep(cell)} | {len(runs)} | {len(chosen)} | "
            f"{below} ({100 * below / len(runs):.1f}%) | {lowest:.3f} | {times:.1f} |"
        )
    return "\n".join(lines)


def judged_table(found: dict[Cell, list[dict[str, Any]]]) -> str:
    """Return a Markdown table of the runs with real judgments, checked on the other half of the judgments."""
    lines = [
        "| vectors | score | keep | splits | recommended | lower on the other half | 95% interval | "
        "significantly lower | median share | times smaller |",
        "|---" * 10 + "|",
    ]
    for cell, runs in found.items():
        chosen = [each for each in runs if each["share"] is not None]
        below, interval, significant = _count_lower(runs)
        share = np.median([each["share"] for each in chosen]) if chosen else float("nan")
        times = np.median([each["times"] for each in chosen]) if chosen else float("nan")
        lines.append(
            f"| {cell.name} | {_TASKS[cell.kind]} | {cell.keep:g} | {len(runs)} | {len(chosen)} | {below} | "
            f"{interval} | {significant} | {share:.3f} | {times:.1f} |"
        )
    everything = [each for runs in found.values() for each in runs]
    below, interval, significant = _count_lower(everything)
    chosen = sum(each["share"] is not None for each in everything)
    lines.append(f"| all | | | {len(everything)} | {chosen} | {below} | {interval} | {significant} | | |")
    return "\n".join(lines)


def _count_lower(runs: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Return how many runs kept less than promised, its interval, and how many kept significantly less."""
    chosen = [each for each in runs if each["share"] is not None]
    below = sum(each["share"] < each["keep"] for each in chosen)
    significant = sum(each["high"] < each["keep"] for each in chosen)
    low, high = wilson_interval(below / len(runs), len(runs))
    return f"{below} ({100 * below / len(runs):.1f}%)", f"{100 * low:.1f}% to {100 * high:.1f}%", str(significant)


def _format_keep(cell: Cell) -> str:
    return "share of int4" if cell.keep == BOUNDARY else f"{cell.keep:g}"


def summary(found: dict[Cell, list[dict[str, Any]]]) -> str:
    """Return the share of all runs of each kind that kept less than promised, with its interval."""
    lines = ["| runs | kept less than promised | 95% interval | nothing recommended |", "|---|---|---|---|"]
    kinds = {
        "synthetic, no task": lambda cell: cell.kind == "recall" and "-" not in cell.name,
        "synthetic queries": lambda cell: cell.kind == "queries",
        "real vectors, no task": lambda cell: cell.kind == "recall" and "-" in cell.name,
    }
    groups = {
        name + words: [cell for cell in found if belongs(cell) and (cell.keep == BOUNDARY) == hard]
        for name, belongs in kinds.items()
        for words, hard in (("", False), (", keep at the share of int4", True))
    }
    for name, members in groups.items():
        runs = [each for cell in members for each in found[cell]]
        if runs:
            below = sum(each["share"] is not None and each["share"] < each["keep"] for each in runs)
            low, high = wilson_interval(below / len(runs), len(runs))
            none = sum(each["share"] is None for each in runs)
            lines.append(
                f"| {len(runs)} {name} | {below} ({100 * below / len(runs):.1f}%) | {100 * low:.1f}% to "
                f"{100 * high:.1f}% | {none} |"
            )
    return "\n".join(lines)


# the example of the guide

CONTRAST = (
    "int4 with one range",
    "int4 with one range, centered",
    "int4 with one range, rotated",
    "int4 per coordinate",
    "int4 per vector, rotated",
)


def contrast(data: Path) -> str:
    """Return the recall@10 of int4 codes of an anisotropic and an isotropic space, with and without rotation."""
    names = [
        name for name in ("cranfield-docs-stories", "cranfield-docs-minilm") if (data / f"{name}.parquet").exists()
    ]
    results = {}
    for name in names:
        vectors = read_vectors(data, name)[0]
        results[name] = isoscope.compress(vectors, precisions=["int4"], dimensions=[]), isoscope.sketch(vectors)
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines.append("| mean cosine | " + " | ".join(f"{total.mean_cosine():.2f}" for _, total in results.values()) + " |")
    for name in CONTRAST:
        values = [result[name]["recall@10"].value for result, _ in results.values()]
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run all cells, print the tables and write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder for finished runs")
    parser.add_argument("--data", type=Path, help="folder with vectors made by make advisor")
    parser.add_argument("--count", type=int, default=200, help="runs for each synthetic line")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    tables = {}
    if arguments.data is not None:
        tables["contrast"] = contrast(arguments.data)
        print(tables["contrast"])
    found = collect(arguments.runs, arguments.data, arguments.count)
    judged = {cell: runs for cell, runs in found.items() if cell.kind in JUDGED}
    fresh = {cell: runs for cell, runs in found.items() if cell.kind not in JUDGED}
    tables |= {"summary": summary(fresh), "calibration": table(fresh)}
    if judged:
        tables["judgments"] = judged_table(judged)
    for name in ("summary", "judgments", "calibration"):
        print(tables.get(name, ""))
    if arguments.page is not None:
        for name, content in tables.items():
            write_table(arguments.page, content, name)


if __name__ == "__main__":
    main()
