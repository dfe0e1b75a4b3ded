"""Measure how often the advisor recommends a repair when none can help, and how much it gains when one can.

python benchmarks/calibration.py RUNS [--data VECTORS] [--full] [--page docs/advisor.md]

RUNS is a folder for the results. It contains one line of JSON per run, so that an interrupted calibration can be
resumed. VECTORS is the output folder of benchmarks/advisor_data.py; without it, the cells with real data are skipped.
Every run is reproducible from its cell and its number.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, spearmanr

import isoscope
from pages import write_table

RUNS = 300
SPLITS = 8


@dataclass(frozen=True)
class Problem:
    """Arguments of `isoscope.advise`, and a function that scores its advice on examples that it has not seen."""

    arguments: dict[str, Any]
    score: Callable[[Any], float] | None = None
    """Returns the score of a fitted repair on unseen examples; None if nothing can be gained."""
    measure: str = ""


@dataclass(frozen=True)
class Cell:
    """A kind of data, and the number of runs on it."""

    task: str
    name: str
    make: Callable[[np.random.Generator, Path | None], Problem]
    helps: bool = False
    """Whether a repair can help."""
    runs: int = RUNS
    quick: bool = True
    """Whether the cell belongs to the short grid."""
    real: bool = False


def cloud(rng: np.random.Generator, n: int, d: int, spectrum: str) -> np.ndarray:
    """Return Gaussian rows: isotropic, or with a power-law spectrum."""
    scale = np.ones(d) if spectrum == "isotropic" else np.arange(1, d + 1) ** -0.7
    return rng.standard_normal((n, d)) * scale


# nothing to gain: vectors and judgments are independent


def noise_pairs(rng: np.random.Generator, n: int, d: int, spectrum: str, kind: str, metric: str = "cosine") -> Problem:
    X = cloud(rng, n, d, spectrum)
    if kind == "share rows":
        first, second = rng.integers(0, n, (2, 2 * n))
        first, second = (side[first != second] for side in (first, second))
    else:
        first, second = rng.permutation(n)[: 2 * (n // 2 if kind == "disjoint" else 60)].reshape(2, -1)
    latent = rng.standard_normal((n, 4))  # grades depend on the rows, so pairs that share a row are dependent
    grades = -np.linalg.norm(latent[first] - latent[second], axis=1)
    if kind == "repeated":
        first, second, grades = (np.tile(each, 6) for each in (first, second, grades))
    return Problem({"source": X, "pairs": (first, second, grades), "metric": metric})


def noise_queries(
    rng: np.random.Generator, n: int, d: int, spectrum: str, relevant: int, paraphrases: int = 1
) -> Problem:
    count = 100
    X, topics = cloud(rng, n, d, spectrum), cloud(rng, count // paraphrases, d, spectrum)
    of = np.arange(count) // paraphrases
    queries = topics[of] + (0.1 * cloud(rng, count, d, spectrum) if paraphrases > 1 else 0)
    answers = [rng.choice(n, relevant, replace=False) for _ in topics]
    return Problem({"source": X, "queries": queries, "qrels": _qrels([answers[i] for i in of])})


def noise_labels(rng: np.random.Generator, n: int, d: int, spectrum: str, classes: int) -> Problem:
    return Problem({"source": cloud(rng, n, d, spectrum), "labels": rng.integers(0, classes, n)})


def noise_alone(rng: np.random.Generator, n: int, d: int, spectrum: str) -> Problem:
    return Problem({"source": cloud(rng, n, d, spectrum)})


def shuffled_pairs(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    """Return the vectors and pairs of STS-B, with the grades in random order."""
    X, ids, _ = _table(data, f"stsb-dev-{model}")
    first, second, grades = _pairs(data, "stsb-dev")
    return Problem({"source": X, "ids": ids, "pairs": (first, second, rng.permutation(grades))})


def shuffled_queries(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    """Return the vectors of Cranfield, with the judgments of each query replaced by those of another."""
    X, ids, _ = _table(data, f"cranfield-docs-{model}")
    queries, names, _ = _table(data, f"cranfield-queries-{model}")
    qrels = _read_qrels(data, "cranfield")
    judged = [name for name in names if name in qrels]
    swapped = dict(zip(judged, (qrels[name] for name in rng.permutation(judged)), strict=True))
    return Problem({"source": X, "ids": ids, "queries": isoscope.open_store(queries, ids=names), "qrels": swapped})


def shuffled_labels(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    """Return 600 rows from 6 classes of BANKING77, with the labels in random order."""
    X, _, labels = _table(data, f"banking77-train-{model}")
    some = rng.permutation(np.flatnonzero(np.isin(labels, rng.choice(np.unique(labels), 6, replace=False))))[:600]
    return Problem({"source": X[some], "labels": rng.permutation(labels[some])})


# something to gain: one coordinate of pure noise hides the others


def hidden_meaning(rng: np.random.Generator, n: int, d: int, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Return meanings, and vectors in which a noise coordinate of this strength hides the meanings."""
    meaning = rng.standard_normal((n, d))
    X = meaning + 0.5 * rng.standard_normal((n, d))
    X[:, 0] = strength * rng.standard_normal(n)
    return meaning[:, 1:], X


def helpful_pairs(rng: np.random.Generator, strength: float) -> Problem:
    meaning, X = hidden_meaning(rng, 800, 16, strength)
    seen, unseen = np.split(rng.permutation(800).reshape(2, 400), [200], axis=1)

    def grades(pairs: np.ndarray) -> np.ndarray:
        return -np.linalg.norm(meaning[pairs[0]] - meaning[pairs[1]], axis=1)

    return Problem(
        {"source": X, "pairs": (*seen, grades(seen))},
        lambda repair: pair_score(repair, X, unseen, grades(unseen)),
        "spearman",
    )


def helpful_queries(rng: np.random.Generator, strength: float) -> Problem:
    meaning, X = hidden_meaning(rng, 400, 16, strength)
    answers = np.repeat(rng.permutation(400)[:300], 1)
    queries = np.hstack([np.zeros((300, 1)), meaning[answers]]) + 0.5 * rng.standard_normal((300, 16))
    queries[:, 0] = strength * rng.standard_normal(300)
    seen, unseen = np.arange(100), np.arange(100, 300)
    return Problem(
        {"source": X, "queries": queries[seen], "qrels": _qrels([[answers[i]] for i in seen])},
        lambda repair: query_score(repair, X, queries[unseen], [{int(answers[i]): 1.0} for i in unseen]),
        "ndcg@10",
    )


def helpful_labels(rng: np.random.Generator, strength: float) -> Problem:
    labels = rng.integers(0, 6, 900)
    X = 0.9 * np.eye(16)[labels + 1] + 0.5 * rng.standard_normal((900, 16))
    X[:, 0] = strength * rng.standard_normal(900)
    return Problem(
        {"source": X[:300], "labels": labels[:300], "measure": "knn", "new_rows": True},
        lambda repair: label_score(repair, X[:300], labels[:300], X[300:], labels[300:]),
        "knn",
    )


# predicted and actual gains on real collections: two thirds of the examples for the advice, one third to check it


def split_pairs(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    X, ids, _ = _table(data, f"stsb-dev-{model}")
    first, second, grades = _pairs(data, "stsb-dev")
    seen, unseen = _two_to_one(rng, len(grades))
    places = {name: i for i, name in enumerate(ids)}
    rows = np.asarray([[places[name] for name in side] for side in (first, second)])
    return Problem(
        {"source": X, "pairs": (*rows[:, seen], grades[seen])},
        lambda repair: pair_score(repair, X, rows[:, unseen], grades[unseen]),
        "spearman",
    )


def split_queries(rng: np.random.Generator, data: Path | None, model: str, collection: str) -> Problem:
    corpus, part = {"cranfield": ("docs", "queries"), "scifact": ("corpus", "train")}[collection]
    X, ids, _ = _table(data, f"{collection}-{corpus}-{model}")
    queries, names, _ = _table(data, f"{collection}-{part}-{model}")
    qrels = _read_qrels(data, "cranfield" if collection == "cranfield" else "scifact-train")
    places = {name: i for i, name in enumerate(ids)}
    judged = np.asarray([i for i, name in enumerate(names) if name in qrels])
    answers = {i: {places[d]: r for d, r in qrels[names[i]].items()} for i in judged}
    seen, unseen = (judged[part] for part in _two_to_one(rng, len(judged)))
    return Problem(
        {
            "source": X,
            "queries": queries[seen],
            "qrels": _qrels([list(answers[i]) for i in seen]),
            "measure": "ndcg@10",
        },
        lambda repair: query_score(repair, X, queries[unseen], [answers[i] for i in unseen]),
        "ndcg@10",
    )


def split_labels(rng: np.random.Generator, data: Path | None, model: str) -> Problem:
    """Return rows from 20 classes of BANKING77; the repair and the classifier are fitted to two thirds of them."""
    X, _, labels = _table(data, f"banking77-train-{model}")
    some = np.flatnonzero(np.isin(labels, rng.choice(np.unique(labels), 20, replace=False)))
    X, labels = X[some], labels[some]
    seen, unseen = _two_to_one(rng, len(labels))
    return Problem(
        {"source": X[seen], "labels": labels[seen], "measure": "knn", "new_rows": True},
        lambda repair: label_score(repair, X[seen], labels[seen], X[unseen], labels[unseen]),
        "knn",
    )


def _two_to_one(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    order = rng.permutation(count)
    return np.sort(order[: 2 * count // 3]), np.sort(order[2 * count // 3 :])


# scoring that shares no code with the advisor


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)


def pair_score(repair: Any, X: np.ndarray, pairs: np.ndarray, grades: np.ndarray) -> float:
    """Return Spearman's correlation of cosines and grades."""
    Y = _unit(repair.transform(X))
    return float(spearmanr((Y[pairs[0]] * Y[pairs[1]]).sum(axis=1), grades)[0])


def query_score(repair: Any, X: np.ndarray, queries: np.ndarray, answers: list[dict[int, float]]) -> float:
    """Return the mean nDCG@10 of a search by cosine."""
    lists = np.argsort(-(_unit(repair.transform(queries)) @ _unit(repair.transform(X)).T), axis=1)[:, :10]
    discount = 1 / np.log2(np.arange(2, 12))
    scores = []
    for found, judged in zip(lists, answers, strict=True):
        best = np.sort(list(judged.values()))[::-1][:10]
        scores.append(
            sum(judged.get(int(d), 0.0) * w for d, w in zip(found, discount, strict=True))
            / (best @ discount[: len(best)])
        )
    return float(np.mean(scores))


def label_score(repair: Any, X: np.ndarray, labels: np.ndarray, Z: np.ndarray, truth: np.ndarray) -> float:
    """Return the accuracy of scikit-learn's classifier with the 10 nearest neighbors by cosine."""
    from sklearn.neighbors import KNeighborsClassifier

    vote = KNeighborsClassifier(10, metric="cosine").fit(repair.transform(X), labels)
    return float((vote.predict(repair.transform(Z)) == truth).mean())


# reading the output of advisor_data.py


def _table(data: Path | None, name: str) -> tuple[np.ndarray, list[str], np.ndarray]:
    import pyarrow.parquet as pq

    assert data is not None
    table = pq.read_table(data / f"{name}.parquet")
    X = np.stack(table["embedding"].to_numpy())
    ids = table["id"].to_pylist() if "id" in table.column_names else []
    labels = np.asarray(table["label"].to_pylist()) if "label" in table.column_names else np.empty(0)
    return X, ids, labels


def _pairs(data: Path | None, name: str) -> tuple[list[str], list[str], np.ndarray]:
    assert data is not None
    rows = [line.split("\t") for line in (data / f"{name}-pairs.tsv").read_text().splitlines()[1:]]
    return [row[0] for row in rows], [row[1] for row in rows], np.asarray([float(row[2]) for row in rows])


def _read_qrels(data: Path | None, name: str) -> dict[str, dict[str, float]]:
    assert data is not None
    found: dict[str, dict[str, float]] = {}
    for line in (data / f"{name}-qrels.tsv").read_text().splitlines()[1:]:
        query, document, relevance = line.split("\t")
        found.setdefault(query, {})[document] = float(relevance)
    return found


def _qrels(answers: list[Any]) -> dict[str, dict[str, float]]:
    return {str(query): {str(document): 1.0 for document in of} for query, of in enumerate(answers)}


# the grid


def cells(full: bool, data: Path | None) -> Iterator[Cell]:
    """Yield the cells of the short or the full grid, and those with real data if `data` is given."""
    sizes = [(64, 64), (320, 32), (640, 32)] if full else [(64, 64), (320, 16)]
    for n, d in sizes:
        for spectrum in ("isotropic", "power law"):
            size = f"{n}×{d}, {spectrum}"
            for relevant in (1, 8):
                yield Cell(
                    "retrieval",
                    f"noise {size}, {relevant} relevant",
                    lambda rng, _, a=(n, d, spectrum, relevant): noise_queries(rng, *a),
                )
            for kind in ("disjoint", "share rows") if n > 64 else ("share rows",):
                yield Cell(
                    "pairs",
                    f"noise {size}, {kind}",
                    lambda rng, _, a=(n, d, spectrum, kind): noise_pairs(rng, *a),
                )
            if full or n > 64:
                yield Cell(
                    "labels", f"noise {size}, 4 classes", lambda rng, _, a=(n, d, spectrum, 4): noise_labels(rng, *a)
                )
                yield Cell("none", f"noise {size}", lambda rng, _, a=(n, d, spectrum): noise_alone(rng, *a))
    yield Cell(
        "retrieval",
        "noise 320×32, power law, 4 paraphrases of each query",
        lambda rng, _: noise_queries(rng, 320, 32, "power law", 2, 4),
    )
    yield Cell(
        "pairs",
        "noise 320×16, isotropic, each pair 6 times",
        lambda rng, _: noise_pairs(rng, 320, 16, "isotropic", "repeated"),
    )
    yield Cell(
        "pairs",
        "noise 500×16, isotropic, Euclidean distance",
        lambda rng, _: noise_pairs(rng, 500, 16, "isotropic", "share rows", "euclidean"),
    )
    for strength in (1.5, 3.0, 10.0):
        for task, make in (("pairs", helpful_pairs), ("retrieval", helpful_queries), ("labels", helpful_labels)):
            yield Cell(
                task,
                f"hidden by a coordinate of strength {strength:g}",
                lambda rng, _, make=make, strength=strength: make(rng, strength),
                helps=True,
                runs=RUNS if full else 60,
            )
    if data is None:
        return
    for model in ("encoder", "lm"):
        if (data / f"stsb-dev-{model}.parquet").exists():
            runs = RUNS if full else 60
            yield Cell("pairs", f"STS-B, {model}, shuffled", lambda r, d, m=model: shuffled_pairs(r, d, m), runs=runs)
            yield Cell("pairs", f"STS-B, {model}", lambda r, d, m=model: split_pairs(r, d, m), True, SPLITS, real=True)
        if (data / f"cranfield-queries-{model}.parquet").exists():
            yield Cell(
                "retrieval", f"Cranfield, {model}, shuffled", lambda r, d, m=model: shuffled_queries(r, d, m), runs=runs
            )
            yield Cell(
                "retrieval",
                f"Cranfield, {model}",
                lambda r, d, m=model: split_queries(r, d, m, "cranfield"),
                True,
                SPLITS,
                real=True,
            )
        if (data / f"banking77-train-{model}.parquet").exists():
            yield Cell(
                "labels", f"BANKING77, {model}, shuffled", lambda r, d, m=model: shuffled_labels(r, d, m), runs=runs
            )
            yield Cell(
                "labels", f"BANKING77, {model}", lambda r, d, m=model: split_labels(r, d, m), True, SPLITS, real=True
            )
        if (data / f"scifact-train-{model}.parquet").exists():
            yield Cell(
                "retrieval",
                f"SciFact, {model}",
                lambda r, d, m=model: split_queries(r, d, m, "scifact"),
                True,
                SPLITS,
                real=True,
            )


def _number_rows(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return row numbers as ids of arrays: without ids, row numbers of noise would be rejected as ambiguous."""
    names = {"ids": "source", "query_ids": "queries"}
    return {
        ids: range(len(arguments[source]))
        for ids, source in names.items()
        if ids not in arguments and isinstance(arguments.get(source), np.ndarray)
    }


def run(place: int, number: int, full: bool, data: Path | None) -> dict[str, Any]:
    """Run the advisor once; if a repair can help, score the advice on unseen examples."""
    warnings.simplefilter("ignore")
    cell = list(cells(full, data))[place]
    seed = [int.from_bytes(f"{cell.task} {cell.name}".encode()[:24], "little") % 2**32, number]
    problem = cell.make(np.random.default_rng(seed), data)
    arguments = problem.arguments | _number_rows(problem.arguments)
    advice = isoscope.advise(**arguments, seed=number)
    found: dict[str, Any] = {
        "number": number,
        "choice": advice.choice.name,
        "promised": advice.promised_gain,
        "in_sample": advice.choice[advice.measure].gain,
        "stability": advice.stability,
    }
    if problem.score is not None:
        scores = np.asarray([problem.score(trial.repair) for trial in advice.trials])
        found["delivered"] = float(scores[advice.chosen] - scores[0])
        found["best"] = float(scores.max() - scores[0])
    return found


def collect(folder: Path, full: bool, data: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Run the missing runs of every cell, with one process per core, and return all results by cell."""
    results: dict[str, list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for place, cell in enumerate(cells(full, data)):
            key = f"{cell.task}: {cell.name}"
            path = folder / f"{key.replace('/', '-')}.jsonl"
            lines = path.read_text().splitlines() if path.exists() else []
            done = {of["number"]: of for of in map(json.loads, lines)}
            missing = [number for number in range(cell.runs) if number not in done]
            with path.open("a", encoding="utf-8") as file:
                arguments = ([place] * len(missing), missing, [full] * len(missing), [data] * len(missing))
                for of in pool.map(run, *arguments, chunksize=4):
                    done[of["number"]] = of
                    file.write(json.dumps(of) + "\n")
                    file.flush()
            results[key] = [done[number] for number in range(cell.runs)]
            recommended = sum(of["choice"] != "as it is" for of in results[key])
            print(f"{key}: {recommended} of {cell.runs} runs recommend a repair", file=sys.stderr)
    return results


def interval(count: int, runs: int) -> str:
    """Return, as text, a share with its 95% Clopper-Pearson interval."""
    low = beta.ppf(0.025, count, runs - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, runs - count) if count < runs else 1.0
    return f"{100 * count / runs:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


def false_table(results: dict[str, list[dict[str, Any]]], grid: list[Cell]) -> str:
    """Return a table of how often a repair is recommended when nothing can be gained."""
    lines = ["| task | data | runs | recommends a repair [95%] |", "|---|---|---|---|"]
    for task in ("retrieval", "pairs", "labels", "none"):
        pooled = [0, 0]
        for cell in (cell for cell in grid if cell.task == task and not cell.helps):
            runs = results[f"{cell.task}: {cell.name}"]
            count = sum(of["choice"] != "as it is" for of in runs)
            pooled[0] += count
            pooled[1] += len(runs)
            lines.append(f"| {task} | {cell.name} | {len(runs)} | {interval(count, len(runs))} |")
        lines.append(f"| **{task}** | **all** | {pooled[1]} | **{interval(*pooled)}** |")
    return "\n".join(lines)


def power_table(results: dict[str, list[dict[str, Any]]], grid: list[Cell], *, real: bool) -> str:
    """Return a table of recommendations, predicted gains, actual gains and regret when a repair can help."""
    lines = [
        "| task | data | runs | recommended | predicted gain | actual gain | difference | best gain | regret |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in (cell for cell in grid if cell.helps and cell.real is real):
        runs = results[f"{cell.task}: {cell.name}"]
        promised, delivered, best = (
            np.asarray([of[name] for of in runs]) for name in ("promised", "delivered", "best")
        )
        count = sum(of["choice"] != "as it is" for of in runs)
        numbers = [promised.mean(), delivered.mean(), (promised - delivered).mean(), best.mean()]
        regret = (best - delivered).mean()
        cells = [f"{number:+.3f}".replace("-", "−") for number in [*numbers, regret]]
        share = f" ({100 * regret / best.mean():.0f}%)" if best.mean() > 0.01 else ""
        lines.append(f"| {cell.task} | {cell.name} | {len(runs)} | {count} | {' | '.join(cells)}{share} |")
    return "\n".join(lines)


def main() -> None:
    """Run the grid and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    grid = list(cells(arguments.full, arguments.data))
    results = collect(arguments.runs, arguments.full, arguments.data)
    tables = {
        "false-recommendations": false_table(results, grid),
        "power": power_table(results, grid, real=False),
        "delivery": power_table(results, grid, real=True),
    }
    for name, text in tables.items():
        if name == "delivery" and arguments.data is None:
            continue
        print(f"\n## {name}\n\n{text}")
        if arguments.page is not None:
            write_table(arguments.page, text, name)


if __name__ == "__main__":
    main()
