"""Handmade advice of every kind that a page can show."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from isoscope.advising.advise import Advice, Score, Trial
from isoscope.advising.task import AdviceSettings
from isoscope.transforms.chain import Chain

TASKS = {
    "pairs": ("pair", {"spearman": "Spearman's correlation"}),
    "queries": ("query", {"ndcg@10": "nDCG@10", "recall@100": "recall@100"}),
    "labels": ("row", {"probe": "linear probe", "knn": "10 nearest", "v_measure": "V-measure"}),
    "nothing": ("row", {"stability": "split-half stability"}),
}
GAINS = [("Center", 0.004), ("Standardize → AllButTheTop(6)", 0.212), ("ClusterCenter(3)", -0.05), ("Whiten", 0.2)]


def score(gain: float, half: float = 0.01, base: float = 0.5) -> Score:
    """A gain with its interval, and the verdict derived from it."""
    low, high = gain - half, gain + half
    return Score(base + gain, gain, low, high, "gain" if low > 0 else "loss" if high < 0 else "noise")


def made(
    gains: Sequence[tuple[str, float]] = GAINS,
    *,
    task: str = "pairs",
    chosen: int = 0,
    half: float = 0.01,
    isoscores: Sequence[float] | None = None,
    source: str = "vectors.parquet",
    settings: AdviceSettings | None = None,
    **more: object,
) -> Advice:
    """Advice whose candidates have these gains on the first measure, and slightly less on each other measure."""
    example, measures = TASKS[task]
    isoscores = isoscores or [0.02 + 0.9 * i / max(len(gains), 1) for i in range(len(gains) + 1)]
    trials = []
    for i, (name, gain) in enumerate([("as it is", 0.0), *gains]):
        scores = {measure: score(gain * 0.5**k if i else 0.0, half if i else 0.0) for k, measure in enumerate(measures)}
        shape = {"isoscore": isoscores[i], "mean_cosine": 0.7 - 0.1 * i}
        shape |= {"silhouette": -0.03} if task == "labels" else {}
        trials.append(Trial(name, 576 * i, scores, shape, Chain()))
    measure = next(iter(measures))
    best = max(range(len(trials)), key=lambda i: trials[i][measure].value)
    advice = Advice(
        source=source,
        n=2552,
        d=576,
        example=example,
        examples=1379,
        measure=measure,
        measures=measures,
        settings=settings or AdviceSettings(),
        trials=trials,
        chosen=chosen,
        best=best,
        promised_gain=0.1234 if chosen else 0.0,
        selections={trials[chosen].name: 18, trials[-1 if chosen != len(trials) - 1 else 0].name: 2},
        version="1.2.3",
    )
    return dataclasses.replace(advice, **more)


KINDS = {
    "leave": made(),
    "use": made(chosen=2),
    "queries": made(task="queries", chosen=2),
    "labels": made(task="labels", chosen=2),
    "label free": made(task="nothing", chosen=2),
    "alone": made([]),
    "one": made([("Center", 0.02)], chosen=1),
    "forty": made([(f"AllButTheTop({i})", 0.01 * (i - 20)) for i in range(1, 41)], chosen=30),
    "far off": made(
        [*((f"AllButTheTop({i})", 0.002 * (i - 8)) for i in range(1, 11)), ("ClusterNull", -0.4)], chosen=10
    ),
    "equal": made([("Center", 0.0), ("Standardize", 0.0)], half=0.0, isoscores=[0.3, 0.3, 0.3]),
    "long": made(
        [("Whiten" * 40, 0.1), (" → ".join(["AllButTheTop(6)"] * 12), -0.1)], chosen=1, source="s" * 300 + ".npy"
    ),
    "an array": made(chosen=2, source="array of float32"),
    "odd": made(isoscores=[float("nan"), 0.1, -0.01, 1.02, 0.5]),
}
