"""Findings on individual rows: lengths, zero rows, copies, and queries far from the corpus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.arrays import tiles
from isoscope._core.errors import InputError, TooFewRowsError, plural
from isoscope.auditing import nulls
from isoscope.auditing.finding import Range
from isoscope.auditing.findings.evidence import (
    BROKEN_BAD,
    BROKEN_LOOK,
    BROKEN_SOURCE,
    SHARE_BAD,
    SHARE_LOOK,
    SHARE_SOURCE,
)
from isoscope.auditing.measure import LIST_LENGTH
from isoscope.auditing.mixed_spaces import CENTERED_PARTS, MIN_MIXED_DIMENSIONS, MIN_MIXED_ROWS
from isoscope.auditing.near_duplicates import CLOSE_SHARE, FALSE_DISCOVERY_RATE

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence

_SAME_COSINE = 1e-6  # cosines of equal rows differ from 1 by rounding
_MAX_LISTED = 20  # pairs of near-duplicates in the details
_NEAR_SOURCE = (
    f"closer than {CLOSE_SHARE:.0%} of the typical distance, and closer than the local density explains "
    f"(false discovery rate {FALSE_DISCOVERY_RATE:.0%})"
)
_METRIC_NAMES = {"cosine": "cosine", "inner_product": "inner product", "euclidean": "Euclidean distance"}


def norm_spread(e: Evidence) -> Iterator[Finding]:
    """Judge how well search results by cosine, inner product and Euclidean distance agree."""
    overlaps, metric = e.m.list_overlaps, e.m.settings.metric
    if not overlaps:
        raise TooFewRowsError(
            f"the sample has fewer than {LIST_LENGTH + 2} nonzero rows: too few to compare top-{LIST_LENGTH} lists"
        )
    vectors = e.m.sample.vectors
    norms = np.concatenate([np.linalg.norm(vectors[part].astype(np.float64), axis=1) for part in tiles(vectors)])
    shares = {pair: float(each.mean()) for pair, each in overlaps.items()}
    with_metric = {next(name for name in pair if name != metric): pair for pair in shares if metric in pair}
    other = min(with_metric, key=lambda name: shares[with_metric[name]])
    each = overlaps[with_metric[other]]
    value = shares[with_metric[other]]
    null = nulls.list_overlap(int((norms > 0).sum()), e.d, LIST_LENGTH, (metric, other), e.m.settings.seed)
    judged = Range.higher_is_better(
        1 - SHARE_LOOK, -math.inf, 'convention for shares: "look" if more than one result in ten differs', null
    )
    spread = np.quantile(norms, [0.01, 0.5, 0.99])
    agree = " and ".join(
        f"{LIST_LENGTH * shares[pair]:.1f} ({_METRIC_NAMES[name]})" for name, pair in with_metric.items()
    )
    fact = f"Of the top {LIST_LENGTH} results with {_METRIC_NAMES[metric]}, the other metrics find on average {agree}."
    if judged.verdict(value) == "ok":
        meaning, advice = f"The choice of metric hardly matters. {fact}", "Leave it."
    else:
        meaning = (
            f"The choice of metric changes the results. {fact} In Gaussian data of the same size, "
            f"{_METRIC_NAMES[other]} finds {LIST_LENGTH * null:.1f} of them. The lengths of the vectors range from "
            f"{e.sketch.least_norm:.3g} to {e.sketch.greatest_norm:.3g}; 98% are between {spread[0]:.3g} and "
            f"{spread[2]:.3g}."
        )
        advice = (
            "Search with the metric that your model was trained for. For vectors of unit length, all three metrics "
            "agree."
        )
    yield e.finding(
        "norm_spread",
        f"Top {LIST_LENGTH} shared with other metrics",
        value,
        None,  # lists share rows, so an interval that assumes independence would be too narrow
        judged,
        meaning,
        advice,
        rows=len(each),
        form="share",
        details={
            "standard_error": nulls.mean_error(each),
            "overlaps": {f"{a}_{b}": share for (a, b), share in shares.items()},
            "spread": float(norms.std() / norms.mean()),
            "gaussian_spread": nulls.norm_variation(e.d),
            "least": e.sketch.least_norm,
            "percentile_1": spread[0],
            "median": spread[1],
            "percentile_99": spread[2],
            "greatest": e.sketch.greatest_norm,
        },
    )


def broken_rows(e: Evidence) -> Iterator[Finding]:
    """Judge the share of zero and non-finite rows."""
    zeros, bad = e.sketch.zeros, e.sketch.nonfinite
    share = (zeros + bad) / (e.n + bad)
    tiny = math.nextafter(0.0, 1.0)
    judged = Range.lower_is_better(
        tiny, BROKEN_BAD, '"look" if there is one such row, "bad" at one row in ten or more', 0.0
    )
    if share == 0:
        meaning, advice = "Every row is finite and nonzero.", "Leave it."
    else:
        meaning = (
            f"A search can never find these rows: {zeros:,} are zero, and {bad:,} were dropped because they "
            f"{'are zero or ' if e.m.settings.zeros == 'drop' else ''}contain NaN, infinity or a missing value."
        )
        advice = "Find their inputs (often empty texts or failed calls) and embed them again."
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
    """Judge the share of rows that are copies of another row."""
    copies = max(e.sketch.duplicates, 0.0)
    expected = _count_type_copies(e)
    with_positions = not expected and e.m.layer == 0 and e.m.types is not None
    if with_positions:
        expected = round(copies)
    repeats = max(copies - expected, 0.0)
    share = min(repeats / e.n, 1.0)
    exact = e.sketch.rows.exact
    judged = Range.lower_is_better(BROKEN_LOOK, BROKEN_BAD, BROKEN_SOURCE, 0.0)
    if judged.verdict(share) == "ok":
        meaning, advice = "Few rows, if any, are copies of another row.", "Leave it."
    else:
        meaning = (
            f"Search results contain repeats: {'' if exact else 'about '}{plural(round(repeats), 'row')} "
            f"{'is a copy' if round(repeats) == 1 else 'are copies'} of an earlier row."
        )
        advice = "Remove copies before indexing, or merge identical results."
    if with_positions and expected:
        meaning += (
            f" In layer 0, a vector depends only on the token and its position; these {expected:,} copies are expected "
            "and are not counted."
        )
    elif expected:
        meaning += (
            f" All tokens of a type have the same vector, as in the embedding layer of a model; these {expected:,} "
            "copies are expected and are not counted."
        )
    yield e.finding(
        "duplicates",
        "Duplicate rows",
        share,
        None,
        judged,
        meaning,
        advice,
        form="share",
        details={"copies": copies, "copies_of_types": expected, "exact": exact},
    )


def _count_type_copies(e: Evidence) -> int:
    """Return the number of tokens that repeat their type, if all tokens of a type have the same direction; else 0."""
    types = e.m.types
    if types is None or e.m.n_dropped_types or types.rows != e.n or not len(types.each):
        return 0
    return e.n - len(types.names) if float(types.each.min()) > 1 - _SAME_COSINE else 0


def near_duplicates(e: Evidence) -> Iterator[Finding]:
    """Judge the share of rows that are almost equal to another row."""
    found = e.m.near_duplicates
    if found is None:
        return
    complete = e.m.complete
    share = found.rows / found.asked
    rows = found.rows if complete else share * e.n
    pairs = len(found.pairs) if complete else found.neighbors / found.asked * e.n / 2
    judged = Range.lower_is_better(BROKEN_LOOK, BROKEN_BAD, f"{_NEAR_SOURCE}; {BROKEN_SOURCE}", 0.0)
    advice = "Leave it."
    if not found.rows:
        meaning = "No row nearly repeats another."
    else:
        some = ", ".join(f"{a:,} and {b:,}" for a, b in found.pairs[:3].tolist())
        meaning = (
            f"{'' if complete else 'About '}{rows:,.0f} rows nearly repeat another row "
            f"({plural(round(pairs), 'pair')}), so search results may contain repeats. The "
            f"closest pairs are rows {some}, numbered from 0."
        )
    if judged.verdict(share) != "ok":
        advice = "Compare the content of the listed pairs. If it is the same, index only one row of each pair."
    yield e.finding(
        "near_duplicates",
        "Near-duplicate rows",
        share,
        None if complete else nulls.wilson_interval(share, found.asked),
        judged,
        meaning,
        advice,
        rows=found.asked,
        form="share",
        sampled=not complete,
        details={
            "rows": rows,
            "pairs": pairs,
            "exact": complete,
            "closest_rows": found.pairs[:_MAX_LISTED].tolist(),
            "closest_distances": found.distances[:_MAX_LISTED].tolist(),
        },
    )


def mixed_spaces(e: Evidence) -> Iterator[Finding]:
    """Judge the share of rows that come from another space, such as another model."""
    found = e.m.mixed
    if found is None:
        raise TooFewRowsError(
            f"need at least {MIN_MIXED_ROWS} nonzero rows and {MIN_MIXED_DIMENSIONS} dimensions to detect rows of "
            "another space"
        )
    if found.is_undecided:
        raise InputError(f"{CENTERED_PARTS}: audit the vectors before they are centered")
    share = found.share
    judged = Range.lower_is_better(
        math.nextafter(0.0, 1.0),
        math.nextafter(0.0, 1.0),
        "null: topics of one model vary along similar directions, and no gap separates them",
        0.0,
    )
    numbers = e.m.sample.rows[e.m.mixed_positions[found.other]]
    if not found.is_mixed:
        meaning, advice = "All rows seem to come from one space.", "Leave it."
    else:
        some = ", ".join(f"{row:,}" for row in numbers[:3].tolist())
        meaning = (
            f"The source holds vectors of two spaces: about {share * e.n:,.0f} rows come from the second one, such as "
            f"rows {some}, numbered from 0. Comparing them with the other rows gives meaningless results. They do not "
            "look like a topic of the same model."
        )
        advice = (
            "List these rows with `isoscope same --within`, and embed them again with the model of the other rows. "
            "Audit again before you act on other findings."
        )
    yield e.finding(
        "mixed_spaces",
        "Rows of another space",
        share,
        nulls.wilson_interval(share, found.rows) if found.is_mixed and found.rows < e.n else None,
        judged,
        meaning,
        advice,
        rows=found.rows,
        form="share",
        details={
            "rows": numbers[:_MAX_LISTED].tolist(),
            "sign": found.sign,
            **found.measurements,
        },
    )


def queries(e: Evidence) -> Iterator[Finding]:
    """Judge the share of queries that are far from the corpus."""
    asked, around = e.m.queries, e.m.around
    if asked is None or around is None:
        return
    k = min(
        around.distances.shape[1], asked.distances.shape[1]
    )  # not the nearest neighbor: a row may have copies in the corpus, but a query has none
    limit = float(np.quantile(around.distances[:, k - 1], 0.99))
    value = float((asked.distances[:, k - 1] > limit).mean())
    low, high = nulls.wilson_interval(value, len(asked.distances))
    judged = Range.lower_is_better(
        SHARE_LOOK, SHARE_BAD, f"by definition, the share for the corpus itself is 1%; {SHARE_SOURCE}", 0.01
    )
    mean_gap = _cosine(asked.sketch.unit_sum, e.sketch.unit_sum)
    found = np.bincount(np.unique(asked.indices, return_inverse=True)[1].ravel())
    hub = float(found.max() / len(asked.distances))
    meaning = (
        f"{100 * value:.0f}% of the queries are farther from the corpus than 99% of its own rows, so their results are "
        f"unreliable. The cosine between the mean query and the mean row is {mean_gap:.2f}."
        if judged.verdict(value) != "ok"
        else f"The queries lie within the corpus: only {100 * value:.0f}% are farther from it than 99% of its rows. "
        f"The cosine between the mean query and the mean row is {mean_gap:.2f}."
    )
    advice = (
        "Leave it."
        if judged.verdict(value) == "ok"
        else "Check that the queries and the corpus use the same model, prefix and repair, and cover the same topics."
    )
    yield e.finding(
        "queries",
        "Queries outside the corpus",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        rows=len(asked.distances),
        form="share",
        sampled=len(asked.distances) < asked.n,
        details={"limit": limit, "cosine_of_means": mean_gap, "most_found_row_share": hub, "k": LIST_LENGTH},
    )


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale > 0 else 0.0
