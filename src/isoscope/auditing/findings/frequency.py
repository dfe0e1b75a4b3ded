"""The finding on frequency: whether the first directions tell how often a word occurs, and not what it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import InputError
from isoscope.auditing import spreads
from isoscope.auditing.finding import Range
from isoscope.auditing.findings.evidence import FOLDS, IF_CONFIRMED, SHARE_BAD, SHARE_LOOK, SHARE_SOURCE
from isoscope.stores.columns import INVERSE_RANK

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence

_SHUFFLES = 20
_RANK_NOTE = " Frequency is taken as 1/rank: such a file is sorted by it."


def frequency(e: Evidence) -> Iterator[Finding]:
    """How much of the first directions' variance is frequency."""
    given = e.m.sample.columns.get("frequency")
    if given is None:
        return
    if given.min() == given.max():
        raise InputError(f"all rows have the frequency {given[0]:g}: need different ones")
    e.check_variance()
    logs = np.log(replace_zeros(given))
    k = min(3, e.d)
    rows = e.m.sample.vectors - e.sketch.mean
    top = rows @ e.m.centred.vectors[:, :k]
    value, each = _explained_variance(top, logs), _squared_correlations(top, logs)
    overall = _explained_variance(rows, logs)
    rng = np.random.default_rng(e.m.settings.seed)
    null = float(np.mean([_explained_variance(top, rng.permutation(logs)) for _ in range(_SHUFFLES)]))
    folds = np.array_split(rng.permutation(len(top)), FOLDS)
    left = [_explained_variance(np.delete(top, fold, axis=0), np.delete(logs, fold)) for fold in folds]
    low, high = e.around(value, spreads.jackknife_error(np.asarray(left)), FOLDS)
    source = f"shuffled frequencies explain {abs(null):.1g}; {SHARE_SOURCE}"
    judged = Range.lower_is_better(SHARE_LOOK, SHARE_BAD, source, null)
    fact = f"Frequency explains {100 * value:.0f}% of the first {k} directions' variance ({100 * overall:.0f}% of all)"
    if judged.verdict(value) == "ok":
        meaning, advice = f"{fact}: what is far apart is not so for being rare.", "Leave it."
    else:
        meaning = f"{fact}: rows are near each other for being as frequent, besides what they mean."
        advice = (
            "Compare rows of similar frequency, or remove the first directions (`isoscope fix all-but-the-top`) "
            f"{IF_CONFIRMED}."
        )
    ranked = e.m.columns.get("frequency") == INVERSE_RANK
    yield e.finding(
        "frequency",
        "Frequency in the first directions",
        max(value, 0.0),
        (low, high),
        judged,
        meaning + (_RANK_NOTE if ranked else ""),
        advice,
        rows=len(top),
        form="share",
        sampled=not e.m.whole,
        details={"directions": each.tolist(), "of_all_variance": overall, "shuffled": null, "from_rank": ranked},
    )


def replace_zeros(frequencies: np.ndarray) -> np.ndarray:
    """Frequencies that have a logarithm: none at all counts as half of the least there is."""
    least = frequencies[frequencies > 0].min(initial=np.inf)
    return np.asarray(np.maximum(frequencies, least / 2 if np.isfinite(least) else 1.0))


def _squared_correlations(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of each column with some values; 0 for a column that does not vary."""
    columns, values = columns - columns.mean(axis=0), values - values.mean()
    size = (columns**2).sum(axis=0) * (values**2).sum()
    return np.asarray((values @ columns) ** 2 / np.where(size > 0, size, np.inf))


def _explained_variance(columns: np.ndarray, values: np.ndarray) -> float:
    """The share of the columns' variance that a linear fit on the values explains, less what chance would."""
    weights, m = columns.var(axis=0), len(values)
    share = float(weights @ _squared_correlations(columns, values) / max(weights.sum(), 1e-300))
    return 1 - (1 - share) * (m - 1) / (m - 2)
