"""Findings on the rows themselves: their lengths, broken ones, copies, and whether queries lie among them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from isoscope.arrays import tiles
from isoscope.auditing import nulls, spreads
from isoscope.auditing.measuring import LIST
from isoscope.report.finding import Finding, Range
from isoscope.report.judging.evidence import (
    BROKEN_BAD,
    BROKEN_LOOK,
    BROKEN_SOURCE,
    SHARE_BAD,
    SHARE_LOOK,
    SHARE_SOURCE,
    Evidence,
)


def norm_spread(e: Evidence) -> Iterator[Finding]:
    """Whether vectors are about equally long."""
    vectors = e.m.sample.vectors
    norms = np.concatenate([np.linalg.norm(vectors[part].astype(np.float64), axis=1) for part in tiles(vectors)])
    value = float(norms.std() / norms.mean())
    low, high = e.around(value, spreads.variation(norms, len(norms)), len(norms))
    null = nulls.norm_variation(e.d)
    look = max(SHARE_LOOK, 2 * null)
    judged = Range.below(look, max(SHARE_BAD, look), f"Gaussian vectors vary by {null:.2g}; {SHARE_SOURCE}", null)
    spread = np.quantile(norms, [0.01, 0.5, 0.99])
    if judged.verdict(value) == "ok":
        meaning, advice = "All vectors are about equally long: cosine and inner product agree.", "Leave it."
    else:
        meaning = (
            f"Lengths run from {e.sketch.least_norm:.3g} to {e.sketch.greatest_norm:.3g}, 98% of them from "
            f"{spread[0]:.3g} to {spread[2]:.3g}: an inner product ranks long vectors first."
        )
        advice = "Search by cosine, or scale vectors to unit length; see whether length tells frequency or text size."
    yield e.finding(
        "norm_spread",
        "Spread of lengths",
        value,
        (max(low, 0.0), high),
        judged,
        meaning,
        advice,
        rows=len(norms),
        sampled=not e.m.whole,
        details={
            "least": e.sketch.least_norm,
            "percentile_1": spread[0],
            "median": spread[1],
            "percentile_99": spread[2],
            "greatest": e.sketch.greatest_norm,
        },
    )


def broken_rows(e: Evidence) -> Iterator[Finding]:
    """Rows without a direction."""
    zeros, bad = e.sketch.zeros, e.sketch.nonfinite
    share = (zeros + bad) / (e.n + bad)
    tiny = math.nextafter(0.0, 1.0)
    judged = Range.below(tiny, BROKEN_BAD, "none is right; one row in ten is bad", 0.0)
    if share == 0:
        meaning, advice = "Every row is a vector with a direction.", "Leave it."
    else:
        meaning = f"{zeros:,} rows are zero and {bad:,} were left out as not finite: they cannot be found by cosine."
        advice = "Find the inputs behind them (empty texts, failed calls), and embed those again."
    yield e.finding(
        "broken_rows",
        "Zero or non-finite rows",
        share,
        None,
        judged,
        meaning,
        advice,
        rows=e.n + bad,
        form="share",
        details={"zero": zeros, "nonfinite": bad},
    )


def duplicates(e: Evidence) -> Iterator[Finding]:
    """Rows that occur twice."""
    copies = max(e.sketch.duplicates, 0.0)
    share = min(copies / e.n, 1.0)
    exact = e.sketch.rows.exact
    judged = Range.below(BROKEN_LOOK, BROKEN_BAD, BROKEN_SOURCE, 0.0)
    if judged.verdict(share) == "ok":
        meaning, advice = "Hardly any vector occurs twice.", "Leave it."
    else:
        meaning = f"{'' if exact else 'About '}{copies:,.0f} rows copy an earlier one: result lists repeat themselves."
        advice = "Remove copies before indexing, or group results."
    yield e.finding(
        "duplicates",
        "Duplicate rows",
        share,
        None,
        judged,
        meaning,
        advice,
        form="share",
        details={"copies": copies, "exact": exact},
    )


def queries(e: Evidence) -> Iterator[Finding]:
    """Whether queries live where the corpus lives."""
    asked, around = e.m.queries, e.m.around
    if asked is None or around is None:
        return
    k = min(around.distances.shape[1], asked.distances.shape[1])  # not the nearest: rows may have copies, queries none
    limit = float(np.quantile(around.distances[:, k - 1], 0.99))
    value = float((asked.distances[:, k - 1] > limit).mean())
    low, high = spreads.share_interval(value, len(asked.distances))
    judged = Range.below(
        SHARE_LOOK, SHARE_BAD, f"one in a hundred rows of the corpus lies so far; {SHARE_SOURCE}", 0.01
    )
    mean_gap = _cosine(asked.sketch.unit_sum, e.sketch.unit_sum)
    found = np.bincount(np.unique(asked.indices, return_inverse=True)[1].ravel())
    hub = float(found.max() / len(asked.distances))
    fact = (
        f"{100 * value:.0f}% of queries lie farther from the corpus than 99% of its own rows do; "
        f"mean query and mean row have a cosine of {mean_gap:.2f}."
    )
    advice = (
        "Leave it."
        if judged.verdict(value) == "ok"
        else "Check that queries use the corpus's model, prefix and repair; then whether it covers their topics."
    )
    yield e.finding(
        "queries",
        "Queries outside the corpus",
        value,
        (low, high),
        judged,
        fact,
        advice,
        rows=len(asked.distances),
        form="share",
        sampled=len(asked.distances) < asked.n,
        details={"limit": limit, "cosine_of_means": mean_gap, "most_found_row_share": hub, "k": LIST},
    )


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale > 0 else 0.0
