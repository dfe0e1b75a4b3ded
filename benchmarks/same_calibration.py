"""Measure the error rates of `isoscope same` and of the finding `mixed_spaces` on data where the answer is known.

    python benchmarks/same_calibration.py RUNS --data VECTORS [--new-data VECTORS] --page docs/same.md

VECTORS is a folder of files DATASET-MODEL.parquet with the vectors of the same texts by several models; the variants
MODEL-cls, MODEL-mean and MODEL-layer4 are another pooling and another layer. The limits of the finding were chosen on
the vectors of --data; those of --new-data are a test on other texts and models. Every result is appended to
RUNS/results.jsonl, so an interrupted run resumes. The same seed gives the same tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import isoscope
from isoscope.auditing.mixed_spaces import MIXED_ROWS, find_mixed_spaces
from isoscope.auditing.nulls import wilson_interval
from pages import write_table

ROWS = 500
CHANGES = ("reversed coordinates", "another model", "another pooling", "another layer")
SHARES = (0.3, 0.05)
UNRELATED = ("granite", "mpnet", "nomic")  # the other models here have ancestors in common


class Results:
    """Results by name, kept in a file; a result that is there is not computed again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.known = dict(json.loads(line) for line in lines)

    def get(self, name: str, compute: Callable[[], object]) -> object:
        """Return a result; compute and keep it if it is unknown."""
        if name not in self.known:
            self.known[name] = compute()
            with self.path.open("a") as file:
                file.write(json.dumps([name, self.known[name]]) + "\n")
        return self.known[name]


def read_vectors(folder: Path) -> dict[tuple[str, str], np.ndarray]:
    """Return the vectors by dataset and model; a variant is part of the name of its model."""
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        dataset, _, model = path.stem.rpartition("-")
        if model in ("cls", "mean") or model.startswith("layer"):
            dataset, _, base = dataset.rpartition("-")
            model = f"{base}-{model}"
        store = isoscope.open_store(path)
        found[dataset, model] = store.take(np.arange(len(store)))
    return found


def derive_seed(*parts: object) -> int:
    """Return a seed that depends on all parts, so that the splits of two datasets or models are independent."""
    return zlib.crc32(repr(parts).encode())


def halves(X: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two random parts of X with `ROWS` rows each, or with half of the rows."""
    order = np.random.default_rng(seed).permutation(len(X))
    n = min(ROWS, len(X) // 2)
    return X[order[:n]], X[order[n : 2 * n]]


def answers(old: np.ndarray, new: np.ndarray, seed: int) -> list[str]:
    """Return the answers from rows and from sketches."""
    sketches = [isoscope.sketch(rows) for rows in (old, new)]
    return [isoscope.same(old, new, seed=seed).answer, isoscope.same(*sketches).answer]


def changed(vectors: dict[tuple[str, str], np.ndarray], change: str, dataset: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of models of which the second is a change of the first; "reversed" reverses the coordinates."""
    models = [model for own, model in vectors if own == dataset]
    plain = [model for model in models if "-" not in model]
    if change == "reversed coordinates":
        yield from ((model, "reversed") for model in plain)
    elif change == "another model":
        yield from itertools.permutations(plain, 2)  # all models of --data have equally many dimensions
    else:
        suffix = {"another pooling": "-cls", "another layer": "-layer4"}[change]
        yield from ((model.removesuffix(suffix), model) for model in models if model.endswith(suffix))


def false_alarms(vectors: dict[tuple[str, str], np.ndarray], results: Results, runs: int) -> str:
    """Return the table of answers for random halves of one set."""
    lines = ["| data | model | runs | rows: not same | sketches: not same |", "|---|---|---|---|---|"]
    total = np.zeros(3, int)
    for (dataset, model), X in vectors.items():
        counts = np.zeros(2, int)
        for seed in range(runs):
            own = derive_seed(dataset, model, seed)
            got = results.get(f"half {dataset} {model} {own}", lambda X=X, own=own: answers(*halves(X, own), own))
            counts += [answer != "same" for answer in got]
        total += [runs, *counts]
        lines.append(f"| {dataset} | {model} | {runs} | {counts[0]} | {counts[1]} |")
    low, high = wilson_interval(total[1] / total[0], int(total[0]))
    lines.append(f"| all | | {total[0]} | {total[1]} ({low:.1%} to {high:.1%}) | {total[2]} |")
    return "\n".join(lines)


def power(vectors: dict[tuple[str, str], np.ndarray], results: Results, runs: int) -> str:
    """Return the table of detected changes, with `ROWS` rows on each side."""
    lines = ["| change | runs | rows: detected | sketches: detected | called rotated |", "|---|---|---|---|---|"]
    datasets = sorted({dataset for dataset, _ in vectors})
    for change in CHANGES:
        got = []
        for dataset in datasets:
            for (old, new), seed in itertools.product(changed(vectors, change, dataset), range(runs)):
                before, after = halves(vectors[dataset, old], seed)
                after = after[:, ::-1] if new == "reversed" else halves(vectors[dataset, new], seed)[1]
                name = f"change {dataset} {old} {new} {seed}"
                got.append(results.get(name, lambda b=before, a=after, s=seed: answers(b, a, s)))
        seen = [[each[i] in ("different", "rescaled", "shifted") for each in got] for i in (0, 1)]
        rotated = sum("rotated" in each for each in got)
        lines.append(f"| {change} | {len(got)} | {sum(seen[0])} | {sum(seen[1])} | {rotated} |")
    return "\n".join(lines)


ROUND_CLUSTERS = ((2, 800, 64, 1.0), (5, 600, 32, 1.0), (20, 400, 12, 1.0), (20, 400, 12, 0.5), (50, 1000, 64, 0.5))
"""The number of clusters, the rows, the dimensions and the width of a cluster; its covariance has no direction."""


def mixed_false_alarms(vectors: dict[tuple[str, str], np.ndarray], results: Results, runs: int, clusters: int) -> str:
    """Return the table of false alarms of the finding on one or several corpora of one model, and on clusters."""
    lines = ["| rows | runs | false alarms |", "|---|---|---|"]
    counts: dict[str, list[bool]] = defaultdict(list)
    for model in sorted({model for _, model in vectors}):
        datasets = [dataset for dataset, own in vectors if own == model]
        for size in range(1, len(datasets) + 1):
            for chosen, seed in itertools.product(itertools.combinations(datasets, size), range(runs)):
                rng = np.random.default_rng(derive_seed(model, chosen, seed))
                X = np.concatenate([_some(vectors[own, model], rng) for own in chosen])
                name = f"pure {model} {'+'.join(chosen)} {seed}"
                alarm = results.get(name, lambda X=X, seed=seed: find(X, seed)[0])
                counts[f"{size} corpora of one model" if size > 1 else "one corpus"].append(bool(alarm))
    for seed in range(clusters):
        rng = np.random.default_rng(seed)
        k, d = int(rng.integers(2, 12)), 128
        spectrum = np.arange(1, d + 1) ** (-rng.uniform(0, 1) / 2)
        X = 3 * rng.standard_normal((k, d))[rng.integers(0, k, 1_500)] * spectrum
        X += rng.standard_normal(X.shape) * spectrum
        alarm = results.get(f"clusters {seed}", lambda X=X, seed=seed: find(X, seed)[0])
        counts["Gaussian clusters"].append(bool(alarm))
    for (k, n, d, spread), seed in itertools.product(ROUND_CLUSTERS, range(clusters)):
        rng = np.random.default_rng(derive_seed("round clusters", (k, n, d, spread), seed))
        X = 2 * rng.standard_normal((k, d))[rng.integers(0, k, n)] + spread * rng.standard_normal((n, d))
        alarm = results.get(f"round {k} {n} {d} {spread} {seed}", lambda X=X, seed=seed: find(X, seed)[0])
        counts[f"{k} round clusters of width {spread}, {n:,}×{d}"].append(bool(alarm))
    lines += [f"| {name} | {len(each)} | {sum(each)} |" for name, each in counts.items()]
    return "\n".join(lines)


def _some(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return between a tenth of the rows and all of them, at random."""
    return X[rng.permutation(len(X))[: int(len(X) * rng.uniform(0.1, 1))]]


def find(X: np.ndarray, seed: int, other: np.ndarray | None = None) -> tuple[bool, float]:
    """Return whether two spaces are found, and the share of the rows that are assigned correctly."""
    rows = np.random.default_rng(seed).permutation(len(X))[:MIXED_ROWS]
    found = find_mixed_spaces(X[rows], seed)
    if found is None or other is None or not found.is_mixed:
        return found is not None and found.is_mixed, 0.0
    assigned = np.zeros(len(rows), bool)
    assigned[found.other] = True
    return True, float((assigned == other[rows]).mean())


def mixed_power(vectors: dict[tuple[str, str], np.ndarray], results: Results, runs: int) -> str:
    """Return the table of detected mixtures."""
    got: dict[str, dict[float, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for dataset in sorted({dataset for dataset, _ in vectors}):
        models = [model for own, model in vectors if own == dataset]
        pairs = [*itertools.permutations(models, 2), *((model, "reversed") for model in models)]
        pairs = [(a, b) for a, b in pairs if b == "reversed" or _dimensions(vectors, dataset, a, b)]
        for (old, new), share, seed in itertools.product(pairs, SHARES, range(runs)):
            X = vectors[dataset, old]
            own = derive_seed(dataset, old, new, share, seed)
            other = np.random.default_rng(own).permutation(len(X)) < share * len(X)
            Y = X[:, ::-1] if new == "reversed" else vectors[dataset, new]
            mixture = np.where(other[:, None], Y, X)
            name = f"mixed {dataset} {old} {new} {share} {seed}"
            result = results.get(name, lambda X=mixture, s=seed, o=other: list(find(X, s, o)))
            got[_kind(old, new)][share].append(result)
    lines = ["| the other rows | 30%: found | 5%: found | rows assigned correctly |", "|---|---|---|---|"]
    for kind, by_share in sorted(got.items()):
        cells = [f"{sum(bool(each[0]) for each in by_share[share])} of {len(by_share[share])}" for share in SHARES]
        right = [each[1] for each in itertools.chain(*by_share.values()) if each[0]]
        lines.append(f"| {kind} | {' | '.join(cells)} | {f'{np.mean(right):.1%}' if right else '–'} |")
    return "\n".join(lines)


def _dimensions(vectors: dict[tuple[str, str], np.ndarray], dataset: str, old: str, new: str) -> bool:
    """Return whether the vectors of two models have equally many dimensions."""
    return vectors[dataset, old].shape[1] == vectors[dataset, new].shape[1]


def _kind(old: str, new: str) -> str:
    if new == "reversed":
        return "reversed coordinates"
    bases = {old.split("-")[0], new.split("-")[0]}
    if len(bases) == 1:
        return "another pooling or layer of the model"
    if any(model in UNRELATED for model in bases):
        return "an unrelated model"
    return "bge and gte, which share an ancestor" if bases == {"bge", "gte"} else "a related model"


def example(vectors: dict[tuple[str, str], np.ndarray], dataset: str = "cranfield-docs") -> str:
    """Return the table of answers on one dataset: known changes of MiniLM vectors."""
    X = vectors[dataset, "minilm"]
    n = len(X) // 2
    order = np.random.default_rng(0).permutation(len(X))
    a, b = X[order[:n]], X[order[n:]]
    unit = np.round(127 * X / np.abs(X).max())
    paired = {
        "the same vectors in float16": X.astype(np.float16),
        "the same vectors in int8": unit.astype(np.int8),
        "all vectors times 2": 2 * X,
        "a constant vector added": X + 0.02,
        "reversed coordinates": X[:, ::-1],
        "another pooling (cls)": vectors[dataset, "minilm-cls"],
        "another layer (4 of 6)": vectors[dataset, "minilm-layer4"],
        "another model (gte-small)": vectors[dataset, "gte"],
    }
    lines = ["| NEW | rows | answer | neighbors in common | AUC |", "|---|---|---|---|---|"]
    for name, Y in paired.items():
        found = isoscope.same(X, Y, pair="rows")
        lines.append(f"| {name} | {found.compared} matched | {found.answer} | {10 * found.neighbors:.1f} of 10 | |")
    for name, Y in {"the other half": b, "the other half, reversed coordinates": b[:, ::-1]}.items():
        found = isoscope.same(a, Y)
        lines.append(f"| {name} | {n} and {len(b)} | {found.answer} | | {found.auc:.2f} |")
    other = order < 0.05 * len(X)
    mixture = np.where(other[:, None], vectors[dataset, "gte"], X)
    found = isoscope.same(mixture, within=True)
    right = len(set(found.changed) & set(np.flatnonzero(other).tolist()))
    answer = f"{found.answer}, {right} of {other.sum()} rows listed"
    lines.append(f"| 5% of the rows by gte-small (`--within`) | {len(X)} | {answer} | | |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, and write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder for the results")
    parser.add_argument("--data", type=Path, required=True, help="folder of DATASET-MODEL.parquet files")
    parser.add_argument("--new-data", type=Path, help="the same for vectors on which no limit was chosen")
    parser.add_argument("--halves", type=int, default=100, help="random halves of each set")
    parser.add_argument("--changes", type=int, default=10, help="runs of each change of each set")
    parser.add_argument("--mixtures", type=int, default=3, help="runs of each mixture")
    parser.add_argument("--page", type=Path, help="documentation page to write the tables into")
    given = parser.parse_args()
    vectors, results = read_vectors(given.data), Results(given.runs)
    tables = {
        "example": lambda: example(vectors),
        "mixed-power": lambda: mixed_power(vectors, results, given.mixtures),
        "mixed-false-alarms": lambda: mixed_false_alarms(vectors, results, given.mixtures, 10 * given.mixtures),
        "power": lambda: power(vectors, results, given.changes),
        "false-alarms": lambda: false_alarms(vectors, results, given.halves),
    }
    if given.new_data is not None:
        new = read_vectors(given.new_data)
        tables |= {
            "mixed-power-new": lambda: mixed_power(new, results, given.mixtures),
            "mixed-false-alarms-new": lambda: mixed_false_alarms(new, results, given.mixtures, 0),
        }
    for name, build in tables.items():
        table = build()
        print(f"\n{name}\n{table}", flush=True)
        if given.page is not None:
            write_table(given.page, table, name)


if __name__ == "__main__":
    main()
