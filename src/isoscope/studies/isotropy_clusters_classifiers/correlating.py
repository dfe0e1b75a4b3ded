"""How two series of a run of isotropy-clusters-classifiers go together, and what was published of that."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.studies.outcome import Value
from isoscope.studies.reading.classified import GLUE

if TYPE_CHECKING:
    from isoscope.studies.published import Number, Published

RunResults = Mapping[tuple[str, str], Sequence[dict[str, Any]]]
"""What the seeds gave, for each task and model."""

CORRELATION_SYMBOLS = {"Pearson r": "r", "Spearman ρ": "ρ"}
"""The correlations as they are shown, and as the published columns have them."""

_TASK_COLUMNS = {"Pearson r": "r", "Spearman ρ": "ρ below"}
_FIRST_MODEL = "all-MiniLM-L6-v2"


def pearson(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's r; NaN of fewer than three pairs, and where a series does not change."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, a, b)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's ρ; NaN of fewer than three pairs, and where a series does not change."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, a, b)


def _correlation(kind: Callable[..., Any], a: Sequence[float], b: Sequence[float]) -> float:
    x, y = np.asarray(a, float), np.asarray(b, float)
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(kind(x, y)[0])


def score_correlation(kind: Callable[..., float], seeds: Sequence[dict[str, Any]]) -> Value:
    """A correlation of the two scores along a run, over its seeds."""
    return Value.of([kind(run["isoscore"], run["silhouette"]) for run in seeds])


def published_correlations(published: Published, task: str, model: str) -> tuple[dict[str, Number], str]:
    """The published correlations of a task, and whose they are if not of our model."""
    if task in GLUE:
        whose = model if f"{model} r" in published.columns("glue") else _FIRST_MODEL
        found = {name: published.number("glue", task, f"{whose} {sign}") for name, sign in CORRELATION_SYMBOLS.items()}
    else:
        whose = _FIRST_MODEL if task in ("polarity", "snli") else "word2vec"
        found = {name: published.number("correlations", task, _TASK_COLUMNS[name]) for name in CORRELATION_SYMBOLS}
    return {name: each for name, each in found.items() if each is not None}, "" if whose == model else whose


def series_at_moments(run: dict[str, Any], name: str) -> list[float]:
    """A score or an objective at the moments at which there are objectives."""
    if name not in ("silhouette", "IsoScore"):
        return list(run[name])
    scores = dict(zip(run["updates"], run[name.lower()], strict=True))
    known = sorted(scores)
    places = np.searchsorted(known, run["moments"]).clip(max=len(known) - 1)  # the first at or after the moment
    return [scores[known[place]] for place in places]


def has_several_models(runs: RunResults, task: str) -> bool:
    """Whether a task was run with more than one model."""
    return sum(each == task for each, _ in runs) > 1
