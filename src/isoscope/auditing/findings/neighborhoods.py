"""Findings on neighborhoods: local dimension and hubs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import InputError, TooFewRowsError
from isoscope._core.formulas import student_interval as student
from isoscope.auditing import nulls
from isoscope.auditing.finding import Range
from isoscope.auditing.findings.evidence import ABOUT_SHAPE, IF_CONFIRMED, SHARE_BAD, SHARE_LOOK, SHARE_SOURCE
from isoscope.metrics.neighbors import local_dimensions, occurrence_statistics, two_nn_slope

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence

CONFIDENCE = 0.95
"""The confidence level of the limits for null samples."""


def intrinsic_dimension(e: Evidence) -> Iterator[Finding]:
    """Judge the local intrinsic dimension (LID)."""
    local, around = e.m.local, e.m.around
    if local is None or around is None:
        return
    estimates, known = _row_dimensions(e, local.distances)
    value, eps = float(estimates.mean()), _eps(e)
    null = local.null[np.isfinite(local.null)]
    if len(null) < 2:
        raise InputError(
            "the local dimension cannot be judged: it is undefined for random samples with the same spectrum"
        )
    center, reach = float(null.mean()), float(null.std(ddof=1)) * math.sqrt(1 + 1 / len(null))
    low, high = student(center, reach, CONFIDENCE, len(null) - 1)
    low, high = max(low, 0.0) * SHARE_BAD, high * (1 + SHARE_LOOK)
    source = (
        f"null: the mean over {len(null)} Gaussian samples of the same size, spectrum and lengths is {center:.3g}; "
        '"ok" from half of the lower limit of their 95% interval to 10% above its upper limit'
    )
    judged = Range((low, high), (min(1.0, low), math.inf), source, center)
    k = local.distances.shape[1]
    fact = (
        f"the {k} neighbors of a row spread along {value:.0f} directions, compared with {center:.0f} in Gaussian data "
        "with the same spectrum"
    )
    if value < low:
        meaning = f"Neighborhoods have little variety: {fact}. {ABOUT_SHAPE}"
        advice = "Look for near-duplicates and templated texts among the nearest neighbors."
    elif value > high:
        meaning = f"Neighbors are hardly nearer than other rows: {fact}. {ABOUT_SHAPE}"
        advice = "Check that all vectors come from the same model and are not noise."
    else:
        meaning, advice = f"Neighborhoods are as varied as those of random data: {fact}.", "Leave it."
    as_published, some = local_dimensions(np, local.distances, eps, unbiased=False)
    details = {
        "k": k,
        "metric": e.m.settings.metric,
        "cai_scale": float(as_published[some & known].mean()) / 2,
        "without_estimate": int((~known).sum()),
        "standard_error": nulls.mean_error(estimates),
        "null": local.null.tolist(),
    }
    if len(local.distances) < len(around.distances) or not e.m.complete:
        details["among_all_rows"] = float(_row_dimensions(e, around.distances)[0].mean())
    yield e.finding(
        "intrinsic_dimension",
        "Local dimension (LID)",
        value,
        None,
        judged,
        meaning,
        advice,
        rows=len(local.distances),
        sampled=not e.m.complete,
        details=details,
    )


def _row_dimensions(e: Evidence, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the LID of the rows for which it is defined (most neighbors are not copies), and a mask of these rows."""
    estimates, known = local_dimensions(np, distances, _eps(e))
    if not known.any():
        raise TooFewRowsError("no row has neighbors at different distances: the local dimension is undefined")
    known &= has_few_copies(distances)
    if not known.any():
        raise TooFewRowsError("most neighbors of every row are exact copies of it: the local dimension is undefined")
    return estimates[known], known


def has_few_copies(distances: np.ndarray) -> np.ndarray:
    """Return for which rows at least half of the neighbors are not copies, so that the local dimension is defined."""
    return np.asarray((distances > 0).mean(axis=1) >= 0.5)


def two_nn(e: Evidence) -> Iterator[Finding]:
    """Report the TwoNN dimension, for information only."""
    around = e.m.around
    if around is None or around.distances.shape[1] < 2:
        return
    pairs, eps = around.distances[:, :2], _eps(e)
    if not (pairs[:, 0] > 0).any():
        raise TooFewRowsError("every row has a duplicate: the dimension is undefined")
    value = float(two_nn_slope(np, pairs, eps, 0.1))
    if value > 10 * e.d:
        raise TooFewRowsError(
            "nearly every row has two nearest neighbors at the same distance: the dimension is undefined"
        )
    members = np.random.default_rng(e.m.settings.seed).permutation(len(pairs))
    folds = np.array_split(members, 20) if len(pairs) >= 200 else []
    left = [float(two_nn_slope(np, np.delete(pairs, fold, axis=0), eps, 0.1)) for fold in folds]
    interval = e.around(value, nulls.jackknife_error(np.asarray(left)), len(left)) if left else None
    judged = Range((0.0, float(e.d)), (-math.inf, math.inf), "at most the number of dimensions of the vectors")
    yield e.finding(
        "two_nn",
        "Dimension (TwoNN)",
        value,
        interval,
        judged,
        f"Judging by each row's two nearest neighbors, the data varies along about {value:.0f} of {e.d} dimensions.",
        "If this is far below the effective rank, the data lies on a curved surface that no linear map can flatten.",
        rows=len(pairs),
    )


def hubness(e: Evidence) -> Iterator[Finding]:
    """Judge the share of rows that are not among the nearest neighbors of any other row (anti-hubs)."""
    lists = e.m.lists
    if lists is None:
        return
    position = np.full(len(e.m.sample), -1)
    position[lists.asked] = np.arange(len(lists.asked))
    k = lists.indices.shape[1]
    check_ties(lists.distances)
    skewness, value, largest = occurrence_statistics(position[lists.indices], len(lists.asked))
    low, high = nulls.wilson_interval(value, len(lists.asked))
    judged = Range.lower_is_better(
        SHARE_LOOK, SHARE_BAD, f"if neighbors were random, the share would be e^−{k}; {SHARE_SOURCE}", math.exp(-k)
    )
    hub = f"The most frequent neighbor (hub) is in {100 * largest / len(lists.asked):.1f}% of all top-{k} lists"
    if judged.verdict(value) == "ok":
        meaning, advice = f"Nearly every row is among the {k} nearest neighbors of another row. {hub}.", "Leave it."
    else:
        meaning = (
            f"A search hardly ever finds {100 * value:.0f}% of the rows: they are not among the {k} nearest neighbors "
            f"of any other row (anti-hubs). {hub}."
        )
        advice = f"Subtract the mean (`isoscope fix center`) {IF_CONFIRMED}; then audit again."
    yield e.finding(
        "hubness",
        "Rows that are nobody's nearest neighbor (anti-hubs)",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        rows=len(lists.asked),
        form="share",
        sampled=not e.m.complete,
        details={"k": k, "skewness": skewness, "largest": largest, "largest_share": largest / len(lists.asked)},
    )


def check_ties(distances: np.ndarray) -> None:
    """Raise an `InputError` if the nearest neighbors of many rows are arbitrary, given their sorted distances."""
    tied = float(((distances[:, 0] <= 0) | (distances[:, 0] == distances[:, -1])).mean())
    if tied > SHARE_LOOK:
        raise InputError(
            f"{100 * tied:.0f}% of rows have duplicates or neighbors at the same distance, so their nearest "
            "neighbors are arbitrary"
        )


def _eps(e: Evidence) -> float:
    return float(np.finfo(e.m.sample.vectors.dtype).eps)
