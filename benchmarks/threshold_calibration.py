"""Measure how often a threshold misses its goal, the verdicts on noise, and the errors of extrapolated rates.

python benchmarks/threshold_calibration.py RUNS [--data VECTORS] [--times 300] [--page docs/threshold.md]

RUNS is a folder for the results. It contains one line of JSON per run, so that an interrupted calibration can be
resumed. VECTORS is a folder with <dataset>-<model>.parquet files and judgments, as benchmarks/advisor_data.py writes
them; without it, the cells with real data and the examples of the guide are skipped. Every run is reproducible from its
cell and its number.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

import isoscope
from isoscope._core.errors import TooFewRowsError
from pages import write_table

SPLITS = 12
TAIL_RUNS = 10
LEVELS = {"precision": 0.9, "recall": 0.9}


@dataclass(frozen=True)
class Problem:
    """Arguments of `isoscope.threshold`, and a function that scores a threshold on examples that it has not seen."""

    arguments: dict[str, Any]
    score: Callable[[float], tuple[float, float]] | None = None
    """Returns precision and recall of a threshold on unseen examples; None if matches are independent of cosines."""
    relative: Callable[[float], tuple[float, float]] | None = None
    """The same for a threshold relative to the best result of each query."""


@dataclass(frozen=True)
class Cell:
    """A kind of data, a goal, and the number of runs."""

    table: str
    name: str
    make: Callable[[np.random.Generator, Path | None], Problem]
    goal: dict[str, Any]
    runs: int


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.maximum(np.linalg.norm(X, axis=-1, keepdims=True), 1e-300)


def scores_of(cosines: np.ndarray, is_match: np.ndarray, cut: float) -> tuple[float, float]:
    """Return the precision and the recall of a threshold; without predicted matches, the precision is 1."""
    above = cosines >= cut - 1e-6
    found = float((above & is_match).sum())
    return found / max(float(above.sum()), 1e-9) if above.any() else 1.0, found / float(is_match.sum())


# synthetic data; the noise of a pair, a query or a class is random, so that errors come in groups


def pairs_of_rows(rng: np.random.Generator, groups: int, size: int, share: float) -> tuple[np.ndarray, ...]:
    """Return rows and pairs: `size` pairs share the first row of their group, and groups differ in difficulty."""
    d = 16
    first = rng.standard_normal((groups, 1, d))
    noise = rng.uniform(0.1, 1.3, (groups, 1, 1))
    is_match = rng.random((groups, size)) < share
    related = first + noise * rng.standard_normal((groups, size, d))
    unrelated = 0.6 * first * rng.random((groups, 1, 1)) + rng.standard_normal((groups, size, d))
    second = np.where(is_match[..., None], related, unrelated)
    rows = np.concatenate([first, second], axis=1).reshape(-1, d)
    start = np.arange(groups)[:, None] * (size + 1)
    pairs = np.stack([np.broadcast_to(start, (groups, size)), start + 1 + np.arange(size)]).reshape(2, -1)
    return rows, pairs, is_match.ravel()


@cache
def unseen_pairs(size: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines and matches of 300,000 other pairs."""
    rows, pairs, is_match = pairs_of_rows(np.random.default_rng(99), 300_000 // size, size, share)
    U = unit(rows)
    return (U[pairs[0]] * U[pairs[1]]).sum(axis=1), is_match


def grouped_pairs(rng: np.random.Generator, groups: int, size: int, share: float) -> Problem:
    rows, pairs, is_match = pairs_of_rows(rng, groups, size, share)
    cosines, truth = unseen_pairs(size, share)
    return Problem(
        {"source": rows, "ids": np.arange(len(rows)), "pairs": (*pairs, is_match.astype(float))},
        lambda cut: scores_of(cosines, truth, cut),
    )


def draw_meanings(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return hidden meanings, and vectors that show them with a noise of random size."""
    meaning = rng.standard_normal((rows, 4))
    noise = rng.uniform(0.05, 0.25, (rows, 1)) * rng.standard_normal((rows, 4))
    return unit(meaning), unit(meaning + noise)


@cache
def unseen_meanings() -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines and matches of all pairs of 2,000 other rows."""
    meaning, X = draw_meanings(np.random.default_rng(99), 2_000)
    upper = np.triu_indices(2_000, 1)
    return (X @ X.T)[upper], (meaning @ meaning.T)[upper] > 0.7


def crossed_pairs(rng: np.random.Generator, rows: int, pairs: int) -> Problem:
    """Return random pairs among a few rows; a pair is a match if the hidden meanings are close."""
    meaning, X = draw_meanings(rng, rows)
    first, second = rng.integers(0, rows, (2, pairs))
    first, second = (side[first != second] for side in (first, second))
    close = (meaning[first] * meaning[second]).sum(axis=1) > 0.7
    cosines, truth = unseen_meanings()
    return Problem(
        {"source": X, "ids": np.arange(rows), "pairs": (first, second, close.astype(float))},
        lambda cut: scores_of(cosines, truth, cut),
    )


def topic_queries(rng: np.random.Generator, queries: int, documents: int, topics: int) -> Problem:
    """Return queries of random difficulty about topics; the documents of a topic are relevant."""
    d = 24
    centers = rng.standard_normal((topics, d))
    topic_of = rng.integers(0, topics, documents)
    corpus = unit(centers[topic_of] + 0.6 * rng.standard_normal((documents, d)))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        of = rng.choice(np.unique(topic_of), n)
        return of, unit(centers[of] + rng.uniform(0.1, 1.2, (n, 1)) * rng.standard_normal((n, d)))

    of, asked = draw(queries)
    later, unseen = draw(4_000)
    cosines, truth = unseen @ corpus.T, later[:, None] == topic_of
    gaps = cosines - cosines.max(axis=1, keepdims=True)
    qrels = {str(i): {str(row): 1 for row in np.flatnonzero(topic_of == topic)} for i, topic in enumerate(of)}
    return Problem(
        {
            "source": corpus,
            "ids": np.arange(documents),
            "queries": asked,
            "query_ids": np.arange(queries),
            "qrels": qrels,
        },
        lambda cut: scores_of(cosines, truth, cut),
        lambda gap: scores_of(gaps, truth, -gap),
    )


def labeled_rows(rng: np.random.Generator, rows: int, classes: int) -> Problem:
    """Return rows of classes that differ in their spread."""
    d = 24
    centers, spread = rng.standard_normal((classes, d)), rng.uniform(0.2, 1.0, classes)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        of = rng.integers(0, classes, n)
        return of, unit(centers[of] + spread[of, None] * rng.standard_normal((n, d)))

    labels, X = draw(rows)
    later, unseen = draw(2_000)
    upper = np.triu_indices(2_000, 1)
    cosines, truth = (unseen @ unseen.T)[upper], (later[:, None] == later)[upper]
    return Problem({"source": X, "labels": labels}, lambda cut: scores_of(cosines, truth, cut))


# noise: matches do not depend on the vectors


def noise_pairs(rng: np.random.Generator, pairs: int, share: float) -> Problem:
    X = rng.standard_normal((2 * pairs, 16))
    first, second = np.arange(2 * pairs).reshape(2, -1)
    grades = (rng.permutation(pairs) < share * pairs).astype(float)
    return Problem({"source": X, "ids": np.arange(2 * pairs), "pairs": (first, second, grades)})


def noise_queries(rng: np.random.Generator, queries: int, documents: int, relevant: int) -> Problem:
    qrels = {str(i): {str(row): 1 for row in rng.choice(documents, relevant, replace=False)} for i in range(queries)}
    return Problem(
        {
            "source": rng.standard_normal((documents, 16)),
            "ids": np.arange(documents),
            "queries": rng.standard_normal((queries, 16)),
            "query_ids": np.arange(queries),
            "qrels": qrels,
        }
    )


def noise_labels(rng: np.random.Generator, rows: int, classes: int) -> Problem:
    return Problem({"source": rng.standard_normal((rows, 16)), "labels": rng.integers(0, classes, rows)})


# real data: a threshold from one half, scored on the other half


def half_queries(rng: np.random.Generator, data: Path | None, collection: str, model: str) -> Problem:
    corpora = {"cranfield": ("cranfield-docs", "cranfield-queries"), "scifact": ("scifact-corpus", "scifact-dev")}
    files = {"cranfield": "cranfield", "scifact": "scifact-dev"}
    X, ids, _ = read(data, f"{corpora[collection][0]}-{model}")
    Q, names, _ = read(data, f"{corpora[collection][1]}-{model}")
    qrels = read_qrels(data, files[collection])
    place = {name: i for i, name in enumerate(ids)}
    judged = [i for i, name in enumerate(names) if name in qrels]
    seen, unseen = np.array_split(rng.permutation(judged), 2)
    X, Q = unit(X), unit(Q)
    truth = np.zeros((len(unseen), len(X)), bool)
    for row, i in enumerate(unseen):
        truth[row, [place[document] for document, grade in qrels[names[i]].items() if grade > 0]] = True
    cosines = Q[unseen] @ X.T
    gaps = cosines - cosines.max(axis=1, keepdims=True)
    return Problem(
        {
            "source": X,
            "ids": ids,
            "queries": Q,
            "query_ids": names,
            "qrels": {names[i]: qrels[names[i]] for i in seen},
        },
        lambda cut: scores_of(cosines, truth, cut),
        lambda gap: scores_of(gaps, truth, -gap),
    )


def half_labels(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    X, _, labels = read(data, f"banking77-test-{model}")
    X = unit(X)
    seen, unseen = np.array_split(rng.permutation(len(X)), 2)
    upper = np.triu_indices(len(unseen), 1)
    cosines, truth = (X[unseen] @ X[unseen].T)[upper], (labels[unseen][:, None] == labels[unseen])[upper]
    return Problem({"source": X[seen], "labels": labels[seen]}, lambda cut: scores_of(cosines, truth, cut))


def half_pairs(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    X, ids, _ = read(data, f"stsb-test-{model}")
    assert data is not None
    lines = [line.split("\t") for line in (data / "stsb-test-pairs.tsv").read_text().splitlines()[1:]]
    place = {name: i for i, name in enumerate(ids)}
    first, second = (np.asarray([place[line[side]] for line in lines]) for side in (0, 1))
    is_match = np.asarray([float(line[2]) >= 4 for line in lines])
    seen, unseen = np.array_split(rng.permutation(len(lines)), 2)
    X = unit(X)
    cosines = (X[first] * X[second]).sum(axis=1)
    return Problem(
        {"source": X, "ids": np.arange(len(X)), "pairs": (first[seen], second[seen], is_match[seen].astype(float))},
        lambda cut: scores_of(cosines[unseen], is_match[unseen], cut),
    )


def read(data: Path | None, name: str) -> tuple[np.ndarray, list[str], np.ndarray]:
    import pyarrow.parquet as pq

    assert data is not None
    table = pq.read_table(data / f"{name}.parquet")
    X = np.stack(table["embedding"].to_numpy())
    ids = [str(each) for each in table["id"].to_pylist()] if "id" in table.column_names else []
    labels = np.asarray(table["label"].to_pylist()) if "label" in table.column_names else np.empty(0)
    return X, ids, labels


def read_qrels(data: Path | None, name: str) -> dict[str, dict[str, float]]:
    assert data is not None
    found: dict[str, dict[str, float]] = {}
    for line in (data / f"{name}-qrels.tsv").read_text().splitlines()[1:]:
        query, document, relevance = line.split("\t")
        found.setdefault(query, {})[document] = float(relevance)
    return found


# the grid


def cells(times: int, data: Path | None) -> Iterator[Cell]:
    """Yield the cells of synthetic data and noise, and those with real data if `data` is given."""
    synthetic: list[tuple[str, Callable[..., Problem], tuple[Any, ...]]] = [
        ("300 independent pairs, 30% matches", grouped_pairs, (300, 1, 0.3)),
        ("1,500 independent pairs, 30% matches", grouped_pairs, (1500, 1, 0.3)),
        ("200 groups of 6 pairs with a shared row", grouped_pairs, (200, 6, 0.3)),
        ("4,000 pairs among 600 rows", crossed_pairs, (600, 4000)),
        ("100 queries, 400 documents, 40 topics", topic_queries, (100, 400, 40)),
        ("400 queries, 400 documents, 40 topics", topic_queries, (400, 400, 40)),
        ("400 rows of 20 classes", labeled_rows, (400, 20)),
    ]
    for name, make, values in synthetic:
        for measure, level in LEVELS.items():
            runs = times // 3 if make is crossed_pairs else times  # the links between these pairs take long
            yield Cell("guarantee", name, lambda rng, _, f=make, v=values: f(rng, *v), {measure: level}, runs)
    noise: list[tuple[str, Callable[..., Problem], tuple[Any, ...]]] = [
        ("300 pairs, 50% matches", noise_pairs, (300, 0.5)),
        ("2,000 pairs, 10% matches", noise_pairs, (2000, 0.1)),
        ("100 queries, 300 documents, 5 relevant", noise_queries, (100, 300, 5)),
        ("400 rows of 10 classes", noise_labels, (400, 10)),
    ]
    for name, make, values in noise:
        for goal in ({"precision": 0.9}, {"recall": 0.9}, {"f1": True}):
            yield Cell("noise", name, lambda rng, _, f=make, v=values: f(rng, *v), goal, times // 2)
    if data is None:
        return
    for model in ("minilm", "gte", "bge", "granite", "stories"):
        for collection, level in (("cranfield", 0.25), ("scifact", 0.5)):
            corpus = {"cranfield": "cranfield-docs", "scifact": "scifact-corpus"}[collection]
            queries = {"cranfield": "cranfield-queries", "scifact": "scifact-dev"}[collection]
            if all((data / f"{name}-{model}.parquet").exists() for name in (corpus, queries)):
                for goal in ({"precision": level}, {"recall": 0.8}):
                    make_half = lambda rng, d, c=collection, m=model: half_queries(rng, d, c, m)  # noqa: E731
                    yield Cell("halves", f"{collection}, {model}", make_half, goal, SPLITS)
        if (data / f"banking77-test-{model}.parquet").exists():
            for goal in ({"precision": 0.5}, {"recall": 0.8}):
                yield Cell("halves", f"banking77, {model}", lambda r, d, m=model: half_labels(r, d, m), goal, SPLITS)
        if (data / f"stsb-test-{model}.parquet").exists():
            for goal in ({"precision": 0.6}, {"recall": 0.8}):
                yield Cell("halves", f"STS-B, {model}", lambda r, d, m=model: half_pairs(r, d, m), goal, SPLITS)


def describe(goal: dict[str, Any]) -> str:
    measure, level = next(iter(goal.items()))
    return "best F1" if measure == "f1" else f"{measure} ≥ {level:g}"


def run(cell: Cell, number: int, data: Path | None) -> dict[str, Any]:
    """Find a threshold once, and score it on unseen examples."""
    warnings.simplefilter("ignore")
    seed = [int.from_bytes(f"{cell.table} {cell.name}".encode()[:40], "little") % 2**32, number]
    problem = cell.make(np.random.default_rng(seed), data)
    found = isoscope.threshold(**problem.arguments, **cell.goal, seed=number)
    result: dict[str, Any] = {"verdict": found.verdict, "cut": found.cut}
    result["held_out"] = {name: list(score) for name, score in found.scores.items()}
    if problem.score is not None and found.cut is not None:
        result["true"] = problem.score(found.cut)
    if found.relative is not None:
        result["relative"] = found.relative.verdict
        if problem.relative is not None and found.relative.gap is not None:
            result["relative_true"] = problem.relative(found.relative.gap)
    return result


def collect(folder: Path, times: int, data: Path | None) -> list[tuple[Cell, list[dict[str, Any]]]]:
    """Run what is missing, and return the results of every cell."""
    results = []
    for cell in cells(times, data):
        name = f"{cell.table}-{cell.name}-{describe(cell.goal)}"
        path = folder / ("".join(c if c.isalnum() or c in ".-" else "_" for c in name) + ".jsonl")
        done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        with path.open("a") as file:
            for number in range(len(done), cell.runs):
                done.append(run(cell, number, data))
                file.write(json.dumps(done[-1]) + "\n")
                file.flush()
        print(f"{name}: {len(done)}", file=sys.stderr, flush=True)
        results.append((cell, done[: cell.runs]))
    return results


# tails


def tail_clouds(data: Path | None) -> Iterator[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    yield "Gaussian, 5,000×64", rng.standard_normal((5_000, 64))
    yield "power law, 5,000×64", rng.standard_normal((5_000, 64)) * np.arange(1, 65) ** -0.7 + 0.2
    yield (
        "40 clusters, 5,000×64",
        rng.standard_normal((40, 64))[rng.integers(0, 40, 5_000)] + rng.standard_normal((5_000, 64)),
    )
    if data is None:
        return
    for path in sorted(data.glob("*.parquet")):
        if path.name.startswith(("banking77-test", "newsgroups", "scifact-corpus")):
            yield path.stem, read(data, path.stem)[0]


def tail_table(folder: Path, data: Path | None) -> str:
    """Return a table of extrapolated rates, compared with exact counts on all pairs, and of counted intervals."""
    lines = [
        "| rows | part | rate | extrapolated | refused | within a factor of 2 | median factor | interval covers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total = [0, 0, 0, 0]
    for name, X in tail_clouds(data):
        path = folder / f"tail-{name}.jsonl".replace(" ", "_").replace(",", "")
        done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        U = unit(X.astype(np.float64)).astype(np.float32)
        n, part = len(U), len(U) // 4
        cosines = None
        rate = 10 / (part * (part - 1) / 2)  # a fifth of the lowest rate that can be counted on the part
        if len(done) < TAIL_RUNS:
            cosines = np.sort((U @ U.T)[np.triu_indices(n, 1)])
        with path.open("a") as file:
            for number in range(len(done), TAIL_RUNS):
                rows = np.random.default_rng(number).permutation(n)[:part]
                assert cosines is not None
                result: dict[str, Any] = {}
                try:
                    found = isoscope.threshold(U[rows], false_matches=rate, seed=number)
                    assert found.cut is not None
                    above = len(cosines) - int(np.searchsorted(cosines, found.cut))
                    result["factor"] = above / len(cosines) / rate
                except TooFewRowsError:
                    result["factor"] = None
                counted = isoscope.threshold(U[rows], false_matches=20 * rate, seed=number)
                truth = float(cosines[int((1 - 20 * rate) * len(cosines))])
                result["covered"] = bool(counted.low <= truth <= counted.high)
                done.append(result)
                file.write(json.dumps(result) + "\n")
        factors = np.asarray([each["factor"] for each in done if each["factor"] is not None])
        within = int(((factors >= 0.5) & (factors <= 2)).sum())
        covered = sum(each["covered"] for each in done)
        middle = f"{np.median(np.maximum(factors, 1 / np.maximum(factors, 1e-9))):.2f}" if len(factors) else "–"
        share = f"{within} of {len(factors)}" if len(factors) else "–"
        lines.append(
            f"| {name} | {part:,} of {n:,} | {rate:.1e} | {len(factors)} | {len(done) - len(factors)} | {share} | "
            f"{middle} | {covered} of {len(done)} |"
        )
        for i, value in enumerate((len(factors), within, covered, len(done))):
            total[i] += value
        print(lines[-1], file=sys.stderr, flush=True)
    lines.append(
        f"| **all** | | | **{total[0]}** | **{total[3] - total[0]}** | **{total[1]} of {total[0]}** | | "
        f"**{total[2]} of {total[3]}** |"
    )
    return "\n".join(lines)


# tables


def interval(count: int, runs: int) -> str:
    """Return, as text, a share with its 95% Clopper-Pearson interval."""
    low = beta.ppf(0.025, count, runs - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, runs - count) if count < runs else 1.0
    return f"{100 * count / runs:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


def guarantee_table(results: list[tuple[Cell, list[dict[str, Any]]]]) -> str:
    """Return how often a threshold is found, and how often its true precision or recall is below the goal."""
    lines = [
        "| data | goal | runs | finds a threshold | misses the goal [95%] | held-out score | true score |",
        "|---|---|---|---|---|---|---|",
    ]
    pooled = [0, 0]
    for cell, runs in results:
        if cell.table != "guarantee":
            continue
        for kind, key in (("", "true"), (", relative threshold", "relative_true")):
            if kind and not any("relative" in each for each in runs):
                continue
            measure, level = next(iter(cell.goal.items()))
            at = 0 if measure == "precision" else 1
            true = [each[key][at] for each in runs if key in each]
            missed = sum(value < level for value in true)
            pooled[0] += missed
            pooled[1] += len(runs)
            held = [each["held_out"][measure][0] for each in runs if each["held_out"]] if not kind else []
            scores = (
                f"{np.mean(held):.3f} | {np.mean(true):.3f}"
                if held
                else f"– | {np.mean(true):.3f}"
                if true
                else "– | –"
            )
            lines.append(
                f"| {cell.name}{kind} | {describe(cell.goal)} | {len(runs)} | {100 * len(true) / len(runs):.0f}% | "
                f"{interval(missed, len(runs))} | {scores} |"
            )
    lines.append(f"| **all** | | {pooled[1]} | | **{interval(*pooled)}** | | |")
    return "\n".join(lines)


def noise_table(results: list[tuple[Cell, list[dict[str, Any]]]]) -> str:
    """Return the verdicts on matches that do not depend on the vectors."""
    lines = [
        "| data | goal | runs | no threshold separates | undecided | finds a threshold (an error) [95%] |",
        "|---|---|---|---|---|---|",
    ]
    pooled = [0, 0]
    for cell, runs in results:
        if cell.table == "noise":
            verdicts = [each["verdict"] for each in runs]
            wrong = verdicts.count("cut")
            pooled[0] += wrong
            pooled[1] += len(runs)
            shares = " | ".join(f"{100 * verdicts.count(v) / len(runs):.0f}%" for v in ("no cut", "undecided"))
            lines.append(
                f"| {cell.name} | {describe(cell.goal)} | {len(runs)} | {shares} | {interval(wrong, len(runs))} |"
            )
    lines.append(f"| **all** | | {pooled[1]} | | | **{interval(*pooled)}** |")
    return "\n".join(lines)


def halves_table(results: list[tuple[Cell, list[dict[str, Any]]]]) -> str:
    """Return the scores of thresholds from one half of real data on the other half."""
    lines = [
        "| data | goal | splits | finds a threshold | held-out score | score on the other half | "
        "other half below the goal |",
        "|---|---|---|---|---|---|---|",
    ]
    pooled = [0, 0]
    for cell, runs in results:
        if cell.table != "halves":
            continue
        measure, level = next(iter(cell.goal.items()))
        at = 0 if measure == "precision" else 1
        true = [each["true"][at] for each in runs if "true" in each]
        held = [each["held_out"][measure][0] for each in runs if each["held_out"]]
        below = sum(value < level for value in true)
        pooled[0] += below
        pooled[1] += len(true)
        scores = f"{np.mean(held):.3f} | {np.mean(true):.3f} | {below} of {len(true)}" if true else "– | – | –"
        lines.append(f"| {cell.name} | {describe(cell.goal)} | {len(runs)} | {len(true)} | {scores} |")
    lines.append(f"| **all** | | | {pooled[1]} | | | **{interval(*pooled)}** |")
    return "\n".join(lines)


# the examples of the guide


def examples(data: Path) -> str:
    """Return the terminal output of the commands in the guide."""
    scifact = {"queries": "scifact-dev-minilm.parquet", "qrels": "scifact-dev-qrels.tsv"}
    cranfield = {"queries": "cranfield-queries-minilm.parquet", "qrels": "cranfield-qrels.tsv"}
    commands: list[tuple[str, dict[str, Any]]] = [
        ("banking77-test-minilm.parquet", {"labels": "label"}),
        ("scifact-corpus-minilm.parquet", {**scifact, "f1": True}),
        ("cranfield-docs-minilm.parquet", cranfield),
        ("stsb-test-minilm.parquet", {"pairs": "stsb-test-pairs.tsv", "match_from": 4}),
        ("scifact-corpus-minilm.parquet", {"false_matches": 1e-6}),
    ]
    texts = []
    for source, options in commands:
        files = {key: str(data / options[key]) for key in ("pairs", "queries", "qrels") if key in options}
        found = isoscope.threshold(str(data / source), **(options | files))
        words = [
            f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}") for key, value in options.items()
        ]
        texts.append(f"```console\n$ isoscope threshold {source} {' '.join(words)}\n{found}\n```")
    return "\n\n".join(texts)


def main() -> None:
    """Run the grid and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    results = collect(arguments.runs, arguments.times, arguments.data)
    tables = {
        "guarantee": guarantee_table(results),
        "noise": noise_table(results),
        "tails": tail_table(arguments.runs, arguments.data),
    }
    if arguments.data is not None:
        tables |= {"halves": halves_table(results), "examples": examples(arguments.data)}
    for name, text in tables.items():
        print(f"\n## {name}\n\n{text}")
        if arguments.page is not None:
            write_table(arguments.page, text, name)


if __name__ == "__main__":
    main()
