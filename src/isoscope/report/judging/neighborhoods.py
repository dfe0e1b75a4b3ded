"""Findings on neighbourhoods: their dimension, and whether a few rows are everybody's neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from isoscope.auditing import spreads
from isoscope.errors import InputError
from isoscope.metrics.neighbors import local_dimensions, occurrence, two_nn_slope
from isoscope.report.finding import Finding, Range
from isoscope.report.judging.evidence import SHARE_BAD, SHARE_LOOK, SHARE_SOURCE, Evidence

PUBLISHED_LID = (11.2, 52.2)
"""Twice the least and the largest of Table 3 of Cai et al., whose scale is half the textbook's."""


def intrinsic_dimension(e: Evidence) -> Iterator[Finding]:
    """Along how many directions neighbours spread."""
    around = e.m.around
    if around is None:
        return
    estimates, known = local_dimensions(np, around.distances, _eps(e))
    if not known.any():
        raise InputError("no row has neighbours at different distances: there is no local dimension")
    known &= (around.distances > 0).mean(axis=1) >= 0.5  # what is left beside copies tells nothing
    if not known.any():
        raise InputError("most neighbours of every row are copies of it: there is no local dimension")
    estimates = estimates[known]
    value = float(estimates.mean())
    low, high = e.around(value, spreads.of_mean(estimates), len(estimates))
    look = (min(PUBLISHED_LID[0], e.d / 2), PUBLISHED_LID[1])
    source = "published: 11 to 18 contextual, 36 to 52 static (Cai et al. 2021, ×2); half of d where that is less"
    judged = Range(look, (min(1.0, look[0]), math.inf), source)
    k = around.distances.shape[1]
    if value < look[0]:
        meaning = (
            f"Around a vector its {k} neighbours spread along only {value:.0f} directions: the space is thin there."
        )
        advice = "Expect near-duplicates and templates; a smaller dimension would hold these vectors as well."
    elif value > look[1]:
        meaning = f"Around a vector its {k} neighbours spread along {value:.0f} directions: nearest is hardly nearer."
        advice = "Neighbours are weak evidence here; check that the vectors are of one model and not noise."
    else:
        meaning, advice = f"Around a vector its {k} neighbours spread along {value:.0f} directions.", "Leave it."
    yield e.finding(
        "intrinsic_dimension",
        "Local dimension (LID)",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        rows=len(around.asked),
        details={
            "k": k,
            "metric": e.m.settings.metric,
            "cai_scale": value / 2,
            "without_estimate": int((~known).sum()),
        },
    )


def two_nn(e: Evidence) -> Iterator[Finding]:
    """The dimension by two neighbours."""
    around = e.m.around
    if around is None or around.distances.shape[1] < 2:
        return
    pairs, eps = around.distances[:, :2], _eps(e)
    value = float(two_nn_slope(np, pairs, eps, 0.1))
    if value > 10 * e.d:
        raise InputError("nearly all rows have their two neighbours at one distance: there is no dimension in it")
    members = np.random.default_rng(e.m.settings.seed).permutation(len(pairs))
    folds = np.array_split(members, 20) if len(pairs) >= 200 else []
    left = [float(two_nn_slope(np, np.delete(pairs, fold, axis=0), eps, 0.1)) for fold in folds]
    interval = e.around(value, spreads.of_groups(np.asarray(left)), len(left)) if left else None
    judged = Range((0.0, float(e.d)), (-math.inf, math.inf), "no more than the vectors have dimensions")
    yield e.finding(
        "two_nn",
        "Dimension (TwoNN)",
        value,
        interval,
        judged,
        f"By its two nearest neighbours a vector moves in {value:.0f} dimensions: how many the data needs, of {e.d}.",
        "Compare it with the effective rank: far below it, the cloud is a bent sheet that no linear map flattens.",
        rows=len(pairs),
    )


def hubness(e: Evidence) -> Iterator[Finding]:
    """Whether some rows are never found and others always."""
    lists = e.m.lists
    if lists is None:
        return
    position = np.full(len(e.m.sample), -1)
    position[lists.asked] = np.arange(len(lists.asked))
    k = lists.indices.shape[1]
    tied = float(((lists.distances[:, 0] <= 0) | (lists.distances[:, 0] == lists.distances[:, -1])).mean())
    if tied > SHARE_LOOK:
        raise InputError(f"{100 * tied:.0f}% of rows have copies or equally near rows: a list is chance there")
    skewness, value, largest = occurrence(position[lists.indices], len(lists.asked))
    low, high = spreads.share_interval(value, len(lists.asked))
    judged = Range.below(
        SHARE_LOOK, SHARE_BAD, f"with no hubs e^−{k} of rows are in no list; {SHARE_SOURCE}", math.exp(-k)
    )
    hub = f"the greatest hub is in {100 * largest / len(lists.asked):.1f}% of all lists"
    if judged.verdict(value) == "ok":
        meaning, advice = f"Nearly every row is in some row's {k} nearest; {hub}.", "Leave it."
    else:
        meaning = f"{100 * value:.0f}% of rows are in nobody's {k} nearest: a search hardly ever finds them; {hub}."
        advice = "Centre the vectors; if hubs stay, re-rank by mutual neighbours or local scaling."
    yield e.finding(
        "hubness",
        "Rows in no list (hubness)",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        rows=len(lists.asked),
        form="share",
        sampled=not e.m.whole,
        details={"k": k, "skewness": skewness, "largest": largest, "largest_share": largest / len(lists.asked)},
    )


def _eps(e: Evidence) -> float:
    return float(np.finfo(e.m.sample.vectors.dtype).eps)
