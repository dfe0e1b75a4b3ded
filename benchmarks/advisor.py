"""Run the advisor on real models and tasks, and write the tables of docs/advisor.md.

python benchmarks/advisor.py VECTORS --page docs/advisor.md

VECTORS is the output folder of benchmarks/advisor_data.py. Each table is the result of the command shown above it. The
recommended repair is then scored on a part of the dataset that the advisor has not seen.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import isoscope
from isoscope._report.narrate import format_signed
from isoscope.advising.judgments import read_pairs, read_qrels
from isoscope.advising.retrieval import ndcg, prepare, similarity, top_k
from isoscope.advising.task import find_rows
from pages import write_table

MODELS = {"encoder": "all-MiniLM-L6-v2, trained sentence vectors", "lm": "SmolLM2-135M, raw states"}


@dataclass(frozen=True)
class Run:
    """A command, its result, and the repair that it saved."""

    words: list[str]
    found: dict[str, Any]
    repair: Path

    @property
    def measure(self) -> str:
        return str(self.found["task"]["measure"])

    def column(self, what: str) -> np.ndarray:
        """Return one number per candidate: the score with this name, or the measurement of its shape."""
        return np.asarray(
            [
                trial["shape"][what] if what in trial["shape"] else trial["scores"][what]["value"]
                for trial in self.found["trials"]
            ]
        )


def advised(vectors: Path, *words: str) -> Run:
    """Run `isoscope advise` in the folder of the vectors."""
    repair = vectors / ("repair-" + Path(words[0]).stem + ("-" + words[1].strip("-") if len(words) > 1 else ""))
    command = ["isoscope", "advise", *words]
    said = [sys.executable, "-m", *command, "-o", str(repair), "--json", "advice.json"]
    print(shlex.join(command), file=sys.stderr)
    subprocess.run(said, cwd=vectors, check=True, stdout=subprocess.DEVNULL)
    return Run(command, json.loads((vectors / "advice.json").read_text(encoding="utf-8")), repair)


def table(run: Run) -> str:
    """Return the command, a table of all candidates, and the summary as Markdown."""
    task = run.found["task"]
    others = [name for name in task["measures"] if name != run.measure]
    shapes = [name for name in ("isoscore", "mean_cosine", "silhouette") if name in run.found["trials"][0]["shape"]]
    if others and "silhouette" in shapes:
        shapes.remove("mean_cosine")
    head = ["", task["measures"][run.measure], "gain [95%]", *(task["measures"][name] for name in others)]
    lines = [_row(head + [name.replace("_", " ") for name in shapes]), "|---" * (len(head) + len(shapes)) + "|"]
    for i, trial in enumerate(run.found["trials"]):
        score = trial["scores"][run.measure]
        chosen = trial["name"] == run.found["choice"]
        gain = (
            f"{format_signed(score['gain'])} [{format_signed(score['low'])}, "
            f"{format_signed(score['high'])}]{_mark(score)}"
            if i
            else ""
        )
        cells = [f"**{trial['name']}**" if chosen else trial["name"], f"{score['value']:.3f}", gain]
        cells += [
            f"{trial['scores'][name]['value']:.3f}" + (_mark(trial["scores"][name]) if i else "") for name in others
        ]
        cells += [f"{trial['shape'][name]:.2f}" for name in shapes]
        lines.append(_row(cells))
    command = shlex.join(run.words)
    return f"```console\n$ {command}\n```\n\n" + "\n".join(lines) + f"\n\n> {run.found['paragraph']}\n"


def _mark(score: dict[str, Any]) -> str:
    return {"gain": " ▲", "loss": " ▼", "noise": ""}[score["verdict"]]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def on_pairs(repair: Any, vectors: Path, model: str) -> float:
    """Return Spearman's correlation of a repair on pairs that the advisor has not seen."""
    store = isoscope.open_store(vectors / f"stsb-test-{model}.parquet")
    pairs = read_pairs(vectors / "stsb-test-pairs.tsv")
    X = prepare(repair.transform(store.take(np.arange(len(store)))), "cosine")
    a, b = (X[find_rows(store, side)[0]] for side in (pairs.first, pairs.second))
    return float(spearmanr(similarity(a, b, "cosine"), pairs.scores)[0])


def on_queries(repair: Any, vectors: Path, model: str) -> float:
    """Return nDCG@10 of a repair on queries that the advisor has not seen."""
    corpus = isoscope.open_store(vectors / f"scifact-corpus-{model}.parquet")
    queries = isoscope.open_store(vectors / f"scifact-dev-{model}.parquet")
    qrels = read_qrels(vectors / "scifact-dev-qrels.tsv")
    documents = prepare(repair.transform(corpus.take(np.arange(len(corpus)))), "cosine")
    rows, _ = find_rows(queries, list(qrels))
    found = top_k(prepare(repair.transform(queries.take(rows)), "cosine"), documents, 10, "cosine")
    scores = []
    for near, judged in zip(found, qrels.values(), strict=True):
        places = find_rows(corpus, list(judged))[0]
        scores.append(ndcg(near, dict(zip(places.tolist(), judged.values(), strict=True))))
    return float(np.mean(scores))


def afresh(run: Run, judge: Any, vectors: Path, model: str, what: str) -> str:
    """Return a sentence that compares the score on unseen data before and after the recommended repair."""
    before = judge(isoscope.Chain().fit(np.zeros((2, run.found["source"]["dimensions"]))), vectors, model)
    after = judge(isoscope.load_transform(run.repair), vectors, model)
    if run.found["choice"] == "as it is":
        return f"{what} the score remains {before:.3f}.\n"
    return f"{what} the saved repair changes the score from {before:.3f} to {after:.3f}.\n"


def weak_evidence(runs: dict[str, tuple[Run, Run]]) -> str:
    """Return a table of the rank correlations of two label-free measures with the task score over the candidates."""
    lines = [_row(["rank correlation with the task score, over all candidates", "IsoScore", "split-half stability"])]
    lines += ["|---|---|---|"]
    for model, (told, blind) in runs.items():
        names = {trial["name"]: i for i, trial in enumerate(blind.found["trials"])}
        order = [names[trial["name"]] for trial in told.found["trials"]]
        iso = spearmanr(told.column("isoscore"), told.column("spearman"))[0]
        stable = spearmanr(blind.column("stability")[order], told.column("spearman"))[0]
        chosen = blind.found["choice"]
        lines.append(
            _row([f"{MODELS[model]} (recommended without labels: {chosen})", format_signed(iso), format_signed(stable)])
        )
    return "\n".join(lines)


def main() -> None:
    """Run all commands and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    vectors = arguments.vectors.resolve()
    parts: dict[str, str] = {}
    both: dict[str, tuple[Run, Run]] = {}
    for model in MODELS:
        pairs = advised(vectors, f"stsb-dev-{model}.parquet", "--pairs", "stsb-dev-pairs.tsv")
        unseen = afresh(pairs, on_pairs, vectors, model, "On the 1,379 pairs of STS-B's test split,")
        parts[f"stsb-{model}"] = f"{table(pairs)}\n{unseen}"
        both[model] = pairs, advised(vectors, f"stsb-dev-{model}.parquet")
        corpus, queries = f"cranfield-docs-{model}.parquet", f"cranfield-queries-{model}.parquet"
        asked = ("--queries", queries, "--qrels", "cranfield-qrels.tsv")
        parts[f"cranfield-{model}"] = table(advised(vectors, corpus, *asked))
        if (vectors / f"scifact-corpus-{model}.parquet").exists():
            corpus, claims = f"scifact-corpus-{model}.parquet", f"scifact-train-{model}.parquet"
            found = advised(vectors, corpus, "--queries", claims, "--qrels", "scifact-train-qrels.tsv")
            unseen = afresh(
                found, on_queries, vectors, model, "On the 300 claims of SciFact's dev split (BEIR's test split),"
            )
            parts[f"scifact-{model}"] = f"{table(found)}\n{unseen}"
        if (vectors / f"banking77-train-{model}.parquet").exists():
            found = advised(vectors, f"banking77-train-{model}.parquet", "--labels", "label")
            parts[f"banking77-{model}"] = table(found)
    parts["weak"] = weak_evidence(both)
    for name, text in parts.items():
        print(f"\n## {name}\n\n{text}")
        if arguments.page is not None:
            write_table(arguments.page, text, name)


if __name__ == "__main__":
    main()
