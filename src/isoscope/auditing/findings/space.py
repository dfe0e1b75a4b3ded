"""Findings on the shape of the space: cosines, spectrum, coordinates and partition function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core import formulas
from isoscope._core.errors import TooFewRowsError
from isoscope.auditing import nulls
from isoscope.auditing.finding import Range, format_number
from isoscope.auditing.findings.evidence import (
    ABOUT_SHAPE,
    ALL_EQUAL,
    IF_CONFIRMED,
    SHARE_BAD,
    SHARE_LOOK,
    SHARE_SOURCE,
)
from isoscope.metrics.cosine import mean_cosine as cosine_of

if TYPE_CHECKING:
    from isoscope._core.types import Verdict
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence


_MIN_ISOSCORE_ROWS = 10  # fewer rows often give an unbiased IsoScore above 1 with an interval of no width
_NEARLY_ONE = 0.995  # a higher cosine is 1.00 with two decimals


def mean_cosine(e: Evidence) -> Iterator[Finding]:
    """Judge the mean cosine of random pairs."""
    value = e.sketch.mean_cosine()
    blocks = e.sketch.groups
    if blocks is None:
        low, high = e.around(value, nulls.mean_cosine_error(e.sketch, e.seen), len(e.seen))
    else:
        low, high = e.around(value, blocks.mean_cosine_error(), len(blocks))
    null = nulls.mean_cosine_std(e.n, e.d)
    centered = float(cosine_of(e.seen - e.sketch.mean))
    center = _centering_advice(e, value, centered)
    look = max(SHARE_LOOK, 4 * null)
    judged = Range.lower_is_better(
        look, max(SHARE_BAD, look), f"the value for isotropic data is 0 ± {null:.1g}; {SHARE_SOURCE}", 0.0
    )
    common = f"{100 * max(value, 0):.0f}% of each vector's squared length lies along one shared direction"
    meaning, advice = {
        "ok": ("Two random rows have a cosine near 0, so a high cosine means that two rows are related.", "Leave it."),
        "look": (f"Even unrelated rows look somewhat similar: {common}. {ABOUT_SHAPE}", center),
        "bad": (f"Every cosine is high, for unrelated rows too: {common}. {ABOUT_SHAPE}", center),
    }[judged.verdict(value)]
    yield e.finding(
        "mean_cosine",
        "Mean cosine",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        details={"null_spread": null, "after_centering": centered, "interval": e.assumption},
    )


def _centering_advice(e: Evidence, value: float, centered: float) -> str:
    """Return the advice for a shared direction."""
    if not np.trace(e.sketch.scatter) > 0:
        return ALL_EQUAL
    if abs(centered) < value / 2:
        fallen = format_number(abs(centered))
        return (
            "Subtract the mean from both the corpus and the queries (`isoscope fix center`; the mean cosine falls to "
            f"{fallen}) {IF_CONFIRMED}."
        )
    return (
        "A few long rows dominate the mean: after subtracting the mean, the mean cosine would be "
        f"{format_number(centered)}. Check the longest rows, fix or drop broken ones, and audit again."
    )


def isoscore(e: Evidence) -> Iterator[Finding]:
    """Judge the unbiased IsoScore: how evenly the variance fills the dimensions."""
    e.check_variance()
    if e.n < _MIN_ISOSCORE_ROWS:
        raise TooFewRowsError(
            f"{e.n} rows are too few for an interval of the unbiased IsoScore: need at least {_MIN_ISOSCORE_ROWS}"
        )
    value, published = e.sketch.isoscore(unbiased=True), e.sketch.isoscore()
    rows, blocks = e.n, e.sketch.groups
    if blocks is None:
        low, high = e.around(value, nulls.isoscore_error(e.sketch, e.seen), len(e.seen))
    else:
        low, high = e.sketch.isoscore_interval(confidence=e.m.settings.confidence)
        rows = blocks.groups  # at least this many independent terms
    judged = _capacity_range(e, lambda dimensions: (dimensions - 1) / (e.d - 1), 1.0)
    title, unbiased = "IsoScore (unbiased)", value
    used = min(1 + value * (e.d - 1), float(e.d))
    expected = 1 / (1 / max(used, 1.0) + 1 / rows)  # dimensions according to the published estimate
    meaning, advice = _describe_capacity(e, judged.verdict(value), used, "evenly", f"The estimate {e.assumption}.")
    if 1 + published * (e.d - 1) < expected / 2:  # n rows are too few to estimate the fourth moments
        title, value, used = "IsoScore (as published)", published, 1 + published * (e.d - 1)
        low, high = -math.inf, math.inf
        meaning = (
            f"A few long rows dominate the shape: the variance fills {used:.0f} of {e.d} dimensions, and these rows "
            "determine which dimensions."
        )
        advice = "Check the longest rows, fix or drop broken ones, and audit again."
    elif low <= 0 and high >= 1:
        raise TooFewRowsError(
            f"the interval of the unbiased IsoScore ({format_number(low)} … {format_number(high)}) contains all values "
            "from 0 to 1: need more rows"
        )
    yield e.finding(
        "isoscore",
        title,
        value,
        (low, high),
        judged,
        meaning,
        advice,
        details={
            "as_published": published,
            "unbiased": unbiased,
            "participation_ratio": used,
            "interval": e.assumption,
        },
    )


def effective_rank(e: Evidence) -> Iterator[Finding]:
    """Judge the effective rank: how many dimensions the variance fills in total."""
    values, squares, count = e.centered
    value = float(formulas.effective_rank(np, values))
    low, high = e.around(value, nulls.effective_rank_error(values, squares, count), len(squares))
    judged = _capacity_range(e, lambda dimensions: dimensions, nulls.effective_rank(e.n - 1, e.d))
    meaning, advice = _describe_capacity(e, judged.verdict(value), value, "in total")
    details = {"interval": e.assumption}
    yield e.finding("effective_rank", "Effective rank", value, (low, high), judged, meaning, advice, details=details)


def _capacity_range(e: Evidence, scale: Callable[[float], float], null: float) -> Range:
    """Return the thresholds for the number of dimensions in use, derived from the highest cosine by chance."""
    need = 2 * math.log(e.n)
    look, bad = min(scale(4 * need), scale(1 + SHARE_BAD * (e.d - 1))), scale(need)
    bad = min(bad, scale(1 + SHARE_LOOK * (e.d - 1)))
    reachable = min(1.0, 0.9 * null / look)  # few rows cannot fill many dimensions
    look, bad = look * reachable, bad * reachable
    source = (
        f"by chance, the highest cosine between a vector and {e.n:,} unrelated ones is about √(2·ln n/dimensions): "
        '"look" above ½, "bad" above 1; always "ok" if half of the dimensions are used, and never "bad" if a tenth are'
    )
    return Range.higher_is_better(look, bad, source, null)


def _describe_capacity(e: Evidence, verdict: Verdict, used: float, how: str, note: str = "") -> tuple[str, str]:
    """Return the meaning of the number of dimensions in use, and advice on it."""
    ceiling = min(nulls.max_chance_cosine(e.n, used), 1.0)
    fact = f"The variance fills {used:.0f} of {e.d} dimensions {how}"
    if verdict == "ok":
        meaning = (
            f"There are enough dimensions to tell {e.n:,} rows apart: after centering, the cosines of unrelated rows "
            f"stay below about {ceiling:.2f}. {fact}."
        )
        return " ".join(filter(None, (meaning, note))), "Leave it."
    reach = f"of {ceiling:.2f}" if ceiling < _NEARLY_ONE else "near 1, as if it were a copy"
    meaning = (
        f"Unrelated rows can look similar by chance: after centering, one of {e.n:,} unrelated rows may have a cosine "
        f"{reach}. {fact}."
    )
    return " ".join(filter(None, (meaning, note, ABOUT_SHAPE))), (
        "A low value is fine if clusters or classes cause it. Otherwise, remove the leading principal components "
        f"(`isoscope fix all-but-the-top`) or whiten (`isoscope fix whiten`) {IF_CONFIRMED}."
    )


def anisotropy(e: Evidence) -> Iterator[Finding]:
    """Judge what share of the total squared length lies along the dominant direction."""
    values, squares, count = e.raw
    value = float(values[0] / values.sum())
    low, high = e.around(value, nulls.spectrum_share_error(values, squares, 1, count), len(squares))
    null = nulls.top_share(e.n, e.d)
    look, bad = (null + share * (1 - null) for share in (SHARE_LOOK, SHARE_BAD))
    judged = Range.lower_is_better(
        look, bad, f"the share for isotropic data is {null:.2g}; the thresholds apply to the rest; {SHARE_SOURCE}", null
    )
    k = min(3, e.d)
    raw = formulas.anisotropy(np, values, k)
    spread_out = np.trace(e.sketch.scatter) > 0
    centered = formulas.anisotropy(np, e.centered[0], k) if spread_out else np.zeros(k)
    shares = " + ".join(f"{100 * share:.1f}%" for share in centered)
    rest = f"After centering, the first {k} principal components account for {shares} of the variance. "
    if not spread_out:
        rest = "After centering, no variance remains. "
    if judged.verdict(value) == "ok":
        meaning = (
            f"No single direction dominates. After centering, the first {k} principal components account for {shares} "
            "of the variance."
        )
        advice = "Leave it."
    elif centered[0] < look:
        meaning = (
            f"All rows share the direction of the mean, which accounts for {100 * value:.0f}% of all squared lengths. "
            f"{rest}{ABOUT_SHAPE}"
        )
        advice = (
            f"Subtract the mean (`isoscope fix center`) {IF_CONFIRMED}; removing more directions is not needed."
            if spread_out
            else ALL_EQUAL
        )
    else:
        meaning = (
            f"One direction dominates every comparison: it accounts for {100 * value:.0f}% of all squared lengths. "
            f"After centering, the first {k} principal components account for {shares} of the variance. {ABOUT_SHAPE}"
        )
        advice = (
            f"Remove the mean and the leading principal components (`isoscope fix all-but-the-top`) {IF_CONFIRMED}."
        )
        if centered[0] < value / 2:  # most of it is the mean, which other findings advise to subtract
            advice = (
                f"Subtract the mean (`isoscope fix center`): this lowers the share to {100 * centered[0]:.1f}%. Then "
                f"also remove the leading principal components (`isoscope fix all-but-the-top`) {IF_CONFIRMED}."
            )
    yield e.finding(
        "anisotropy",
        "Share of the leading axis (anisotropy)",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        form="share",
        details={"raw": raw.tolist(), "centered": centered.tolist(), "interval": e.assumption},
    )


def rogue_dimensions(e: Evidence) -> Iterator[Finding]:
    """Judge what share of the total squared length comes from the largest coordinates."""
    e.check_variance()
    shares = e.sketch.unit_squares / e.sketch.unit_squares.sum()
    order = np.argsort(-shares, kind="stable")
    top = order[: min(3, max(1, e.d // 4))]
    value = float(shares[top].sum())
    units = e.seen / np.maximum(np.linalg.norm(e.seen, axis=1, keepdims=True), 1e-300)
    spread = nulls.mean_error((units[:, top] ** 2).sum(axis=1)) * math.sqrt(len(units) / e.n)
    low, high = e.around(value, spread, len(units))
    null = len(top) / e.d
    largest = {1: "coordinate", 2: "two coordinates", 3: "three coordinates"}[len(top)]
    look, bad = (null + share * (1 - null) for share in (SHARE_LOOK, SHARE_BAD))
    judged = Range.lower_is_better(
        look, bad, f"if all {e.d} coordinates were equal, the share would be {null:.2g}; {SHARE_SOURCE}", null
    )
    contribution = e.sketch.cosine_contribution()
    rogue = order[: int(np.searchsorted(np.cumsum(shares[order]), SHARE_BAD)) + 1]
    listed_in_details = rogue[:10] if judged.verdict(value) != "ok" else top
    named = [index for index in top if shares[index] >= SHARE_LOOK / len(top)] or top[:1]
    listed = ", ".join(str(index) for index in named)
    if judged.verdict(value) == "ok":
        meaning, advice = "No single coordinate dominates the cosines.", "Leave it."
    else:
        share = f"{100 * shares[named].sum():.0f}%"
        subject = f"Coordinate {listed} alone makes" if len(named) == 1 else f"Coordinates {listed} alone make"
        few = "this one coordinate" if len(named) == 1 else f"these {len(named)} coordinates"
        meaning = (
            f"{subject} up {share} of a vector's squared length on average, so a cosine mostly compares {few} (rogue "
            f"dimensions). {ABOUT_SHAPE}"
        )
        advice = f"Standardize the coordinates (`isoscope fix standardize`) {IF_CONFIRMED}."
    yield e.finding(
        "rogue_dimensions",
        f"Largest {largest}",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        form="share",
        details={
            "dimensions": listed_in_details.tolist(),
            "shares": shares[listed_in_details].tolist(),
            "cosine_contribution": contribution[listed_in_details].tolist(),
        },
    )


def partition_isotropy(e: Evidence) -> Iterator[Finding]:
    """Judge the partition isotropy min Z/max Z of rows scaled to a root-mean-square length of 1."""
    logs = e.m.unit_partition
    log_ratio = _log_ratio(logs)
    without = [_log_ratio(np.delete(logs, group, axis=0)) for group in range(len(logs))]
    spread = nulls.jackknife_error(np.asarray(without)) if np.isfinite(without).all() else math.inf
    low, high = (math.exp(min(end, 0.0)) for end in e.around(log_ratio, spread, len(logs)))
    norms = np.linalg.norm(e.seen / e.sketch.greatest_norm, axis=1)
    log_null = nulls.partition_log_ratio(norms / math.sqrt(float(np.mean(norms**2))), e.n, e.d)
    look, bad = (math.exp(log_null - 2 * math.sqrt(share)) for share in (SHARE_LOOK, SHARE_BAD))
    source = (
        f"the value for random directions with these lengths is {math.exp(log_null):.2g}; a common direction with a "
        f"share s of all squared lengths multiplies it by exp(−2√s); {SHARE_SOURCE}"
    )
    judged = Range.higher_is_better(look, bad, source, math.exp(log_null))
    value = math.exp(log_ratio)
    spread_out = np.trace(e.sketch.scatter) > 0
    advice = f"Subtract the mean (`isoscope fix center`) {IF_CONFIRMED}." if spread_out else ALL_EQUAL
    meaning, advice = {
        "ok": ("The vectors point in all directions about equally.", "Leave it."),
        "look": (
            f"The vectors lean toward one direction: the partition function Z depends on the direction. {ABOUT_SHAPE}",
            advice,
        ),
        "bad": (
            f"Most vectors point the same way: the partition function Z is far larger in one direction. {ABOUT_SHAPE}",
            advice,
        ),
    }[judged.verdict(value)]
    yield e.finding(
        "partition_isotropy",
        "Partition isotropy",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        form="power",
        details={"log10": log_ratio / math.log(10), "log10_as_published": _log_ratio(e.m.partition) / math.log(10)},
    )


def _log_ratio(logs: np.ndarray) -> float:
    """Return log(min Z/max Z), given log Z for each jackknife group of rows and each direction."""
    total = np.logaddexp.reduce(logs, axis=0)
    return float(total.min() - total.max())
