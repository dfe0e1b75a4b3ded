"""Measure the bias, error and coverage of IsoScore estimators on generated data and on the token states of a model.

    python benchmarks/estimators.py --page docs/estimators.md --model MODEL --data DATA

There are three tables:

- measured: independent rows with known covariance. "plug-in" is `isoscore(X)`. "IsoScore*" is `isoscore_star` at
  ζ = 0.2, with the true covariance as its shrinkage covariance. "unbiased" is `isoscore(X, unbiased=True)`, with the
  coverage of its 95% intervals.
- grouped: dependent rows. Complete texts are sampled from a known distribution, and from the token states of each layer
  of a model.
- peer: comparison with the package `dimensionality` (Chun et al., 2026), which can correct for rows and columns.

MODEL is a folder with a Hugging Face encoder. DATA is a folder that contains 20newsgroups/train.jsonl.gz. `--only`
makes one table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import isoscope
from isoscope.studies.stable_anisotropic_regularization.estimators import DISTRIBUTIONS, true_isoscore
from pages import write_table

ROWS = (16, 64, 256, 1024, 4096)
DIMENSIONS = (64, 384, 768)


def row(name: str, d: int, n: int, draws: int) -> str:
    draw, covariance = DISTRIBUTIONS[name](d)
    truth = true_isoscore(covariance)
    rng = np.random.default_rng([n, d, *name.encode()])
    errors, inside = [], 0
    for _ in range(draws):
        X = draw(rng, n)
        unbiased = isoscope.isoscore_interval(X)
        star = isoscope.isoscore_star(X, covariance, zeta=0.2)
        errors.append([float(isoscope.isoscore(X)) - truth, float(star) - truth, float(unbiased.value) - truth])
        inside += unbiased.low <= truth <= unbiased.high
    bias, rmse = np.mean(errors, axis=0), np.sqrt(np.mean(np.square(errors), axis=0))
    cells = [f"{b:+.4f} / {r:.4f}" for b, r in zip(bias, rmse, strict=True)]
    best = int(np.argmin(rmse))
    cells[best] = f"**{cells[best]}**"
    return f"| {name} | {d} | {n} | {truth:.4f} | " + " | ".join(cells) + f" | {inside / draws:.0%} | {draws} |"


Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
"""A function that draws a number of complete texts; it returns their rows, and the text index of each row."""


def grouped_row(name: str, d: int, texts: int, truth: float, draw: Draw, draws: int) -> str:
    """Return a table row with the bias, RMSE and coverage of each estimator on complete texts."""
    rng = np.random.default_rng([texts, d, *name.encode()])
    values, inside, tokens = [], np.zeros(2), []
    for _ in range(draws):
        X, text = draw(rng, texts)
        rows = isoscope.isoscore_interval(X)
        grouped = isoscope.isoscore_interval(X, groups=text)
        values.append([float(isoscope.isoscore(X)), float(rows.value), float(grouped.value)])
        inside += [rows.low <= truth <= rows.high, grouped.low <= truth <= grouped.high]
        tokens.append(len(X))
    plug_in, by_rows, by_groups = np.mean(values, axis=0) - truth
    rmse = np.sqrt(np.mean((np.asarray(values) - truth) ** 2, axis=0))
    return (
        f"| {name} | {d} | {texts} | {np.mean(tokens):.0f} | {truth:.3f} | {plug_in:+.3f} / {rmse[0]:.3f} "
        f"| {by_rows:+.3f} / {rmse[1]:.3f} | {inside[0] / draws:.0%} "
        f"| **{by_groups:+.3f} / {rmse[2]:.3f}** | {inside[1] / draws:.0%} | {draws} |"
    )


def synthetic_texts(shared: float, power: float, d: int) -> tuple[float, Draw]:
    """Return the true IsoScore, and a sampler of texts of 5 to 100 tokens that share this part of their variance."""
    variances = np.arange(1, d + 1.0) ** -power

    def draw(rng: np.random.Generator, texts: int) -> tuple[np.ndarray, np.ndarray]:
        text = np.repeat(np.arange(texts), rng.integers(5, 101, texts))
        common = rng.standard_normal((texts, d))[text] * np.sqrt(shared)
        own = rng.standard_normal((len(text), d)) * np.sqrt(1 - shared)
        return (common + own) * np.sqrt(variances), text

    return true_isoscore(np.diag(variances)), draw


def token_states(model: Path, data: Path, texts: int, length: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the token states of each layer, and the text index of each token."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    with gzip.open(data / "20newsgroups" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        found = [json.loads(line)["text"] for line in file]
    chosen = np.random.default_rng(0).permutation(len(found))[:texts]
    layers: list[list[np.ndarray]] = []
    text: list[np.ndarray] = []
    for start in range(0, texts, 16):
        some = [found[i] for i in chosen[start : start + 16]]
        batch = tokenizer(some, truncation=True, max_length=length, padding=True, return_tensors="pt")
        mask = batch["attention_mask"].numpy() > 0
        with torch.no_grad():
            states = encoder(**batch, output_hidden_states=True).hidden_states
        layers.append([layer.numpy()[mask] for layer in states])
        text.append(start + np.nonzero(mask)[0])
    return [np.concatenate(parts) for parts in zip(*layers, strict=True)], np.concatenate(text)


def drawn_texts(states: np.ndarray, text: np.ndarray) -> tuple[float, Draw]:
    """Return the IsoScore of all states, and a sampler that draws texts from them with replacement."""
    starts = np.searchsorted(text, np.arange(text.max() + 2))

    def draw(rng: np.random.Generator, texts: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(0, text.max() + 1, texts)
        parts = [states[starts[i] : starts[i + 1]] for i in chosen]
        return np.concatenate(parts), np.repeat(np.arange(texts), [len(part) for part in parts])

    return true_isoscore(np.cov(states.T, bias=True)), draw


def grouped_table(arguments: argparse.Namespace) -> list[str]:
    lines = [
        "| data | d | texts | tokens | true value | plug-in: bias / RMSE | unbiased, row-level | in 95% interval "
        "| unbiased, group-level | in 95% interval | draws |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for power, spectrum in ((0.0, "isotropic"), (1.0, "power law")):
        for shared in (0.0, 0.2, 0.6):
            truth, draw = synthetic_texts(shared, power, 32)
            for texts in (6, 16):
                name = f"{spectrum}, {shared:.0%} shared"
                lines.append(grouped_row(name, 32, texts, truth, draw, arguments.draws))
                print(lines[-1], flush=True)
    if arguments.model and arguments.data:
        layers, text = token_states(arguments.model, arguments.data, arguments.texts, 128)
        print(f"{len(text)} token states of {arguments.texts} texts")
        ends = {0, len(layers) // 2, len(layers) - 1}
        for texts, chosen in ((8, range(len(layers))), (32, sorted(ends))):
            for number in chosen:
                truth, draw = drawn_texts(layers[number], text)
                name = f"{arguments.model.name}, layer {number}"
                d, draws = layers[number].shape[1], arguments.draws if texts == 8 else arguments.draws // 2
                lines.append(grouped_row(name, d, texts, truth, draw, draws))
                print(lines[-1], flush=True)
    return lines


def peer_table(draws: int) -> list[str]:
    """Return a table that compares the participation ratio and its time with the package `dimensionality`."""
    import dimensionality

    kinds = ("naive", "row", "col", "both")
    lines = [
        "| distribution | d | n | true value | plug-in | isoscope, unbiased | `row` | `col` | `both` "
        "| difference between isoscope and `row` | time, isoscope | time, `dimensionality` (all four) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in ("isotropic", "power law"):
        for d, n in ((64, 64), (384, 64), (384, 1024)):
            draw, covariance = DISTRIBUTIONS[name](d)
            truth = 1 + true_isoscore(covariance) * (d - 1)
            rng = np.random.default_rng([n, d])
            values, times, apart = [], np.zeros(2), 0.0
            isoscope.participation_ratio(draw(rng, n), unbiased=True)  # compile before timing
            for _ in range(max(5, draws // 10)):
                X = draw(rng, n)
                start = time.perf_counter()
                ours = float(isoscope.participation_ratio(X, unbiased=True))
                middle = time.perf_counter()
                theirs = dimensionality.participation_ratio(X, return_all=True)
                times += [middle - start, time.perf_counter() - middle]
                apart = max(apart, abs(ours / theirs["row"] - 1))
                values.append([theirs["naive"], ours, *(theirs[kind] for kind in kinds[1:])])
            cells = " | ".join(f"{value:.1f}" for value in np.mean(values, axis=0))
            mine, other = 1000 * times / len(values)
            lines.append(
                f"| {name} | {d} | {n} | {truth:.1f} | {cells} | {apart:.0e} | {mine:.1f} ms | {other:.1f} ms |"
            )
            print(lines[-1], flush=True)
    return lines


def independent_table(draws: int) -> list[str]:
    lines = [
        "| distribution | d | n | true value | plug-in: bias / RMSE | IsoScore*, true Σ | unbiased | in 95% interval "
        "| draws |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in DISTRIBUTIONS:
        for d in DIMENSIONS:
            for n in ROWS:
                lines.append(row(name, d, n, max(5, draws // {1024: 4, 4096: 10}.get(n, 1))))
                print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--draws", type=int, default=200, help="number of samples per table row; fewer for large n and for token states"
    )
    parser.add_argument("--page", type=Path, help="write the tables into this page, between their markers")
    parser.add_argument("--model", type=Path, help="a folder with a Hugging Face encoder")
    parser.add_argument("--data", type=Path, help="a folder that contains 20newsgroups/train.jsonl.gz")
    parser.add_argument("--texts", type=int, default=600, help="number of texts to embed with the model")
    parser.add_argument("--only", choices=("measured", "grouped", "peer"), help="make only this table")
    arguments = parser.parse_args()
    tables = {
        "measured": lambda: independent_table(arguments.draws),
        "grouped": lambda: grouped_table(arguments),
        "peer": lambda: peer_table(arguments.draws),
    }
    for name, make in tables.items():
        if arguments.only in (None, name):
            lines = make()
            if arguments.page:
                write_table(arguments.page, "\n".join(lines), name)


if __name__ == "__main__":
    main()
