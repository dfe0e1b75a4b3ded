"""The one rule by which all studies decide claims, and intervals for correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from isoscope.studies.study import Holds, Verdict
from isoscope.studies.words import format_number

if TYPE_CHECKING:
    from isoscope.studies.study import Bounds, Case, Claim

BELOW_ZERO: Bounds = (-math.inf, 0.0)
ABOVE_ZERO: Bounds = (0.0, math.inf)

RULE = (
    "A case agrees with a claim if its whole 95% interval does, contradicts it if its whole interval lies on the other "
    "side, and is undecided if the interval contains both outcomes or is unknown (a single seed). A claim holds (yes) "
    "if every case agrees. It is undecided if more than half of the cases are. Otherwise it holds partly if at least "
    "half of the decided cases agree, and not (no) if fewer do."
)
"""The rule in words, for pages."""

_Z_95 = NormalDist().inv_cdf(0.975)


def judge(cases: Sequence[Case], most: float = 1.0) -> Holds:
    """Return whether a claim holds, from the cases that it speaks of.

    Parameters
    ----------
    cases : sequence of Case
        One for each task, model, set or layer.
    most : float
        The share of the cases that must agree for a plain yes.

    Examples
    --------
    >>> below = (float("-inf"), -0.8)
    >>> barely = Case("polarity", -0.8004, (-0.8021, -0.7987), below)
    >>> judge([barely]).value, judge([barely, Case.exact("cola", -0.88, below)]).value
    ('undecided', 'partly')
    """
    return judge_counts(*count_cases(cases), most=most)


def judge_counts(agree: int, against: int, unclear: int, *, most: float = 1.0) -> Holds:
    """Return whether a claim holds, from how many cases agree with it, contradict it, or are undecided.

    >>> judge_counts(147, 57, 0, most=0.9).value
    'partly'
    """
    total = agree + against + unclear
    if not total:
        return Holds.untested
    if agree >= most * total:
        return Holds.yes
    if 2 * unclear > total:
        return Holds.undecided
    return Holds.partly if agree >= against else Holds.no


def count_cases(cases: Sequence[Case]) -> tuple[int, int, int]:
    """Return how many cases agree with the claim, how many contradict it, and how many are undecided."""
    found = [each.holds for each in cases]
    return found.count(Holds.yes), found.count(Holds.no), found.count(Holds.undecided)


def make_verdict(
    claim: Claim,
    published: str,
    cases: Sequence[Case],
    why: str = "",
    *,
    ours: str | None = None,
    untested: str = "not run",
    most: float = 1.0,
    digits: int = 3,
) -> Verdict:
    """Return the verdict on a claim by the shared rule, with the count of cases before the reason.

    Parameters
    ----------
    claim : Claim
        What is tested.
    published : str
        The published evidence in a few words.
    cases : sequence of Case
        Our numbers.
    why : str
        What a case is, and anything else that a reader needs.
    ours : str, optional
        Our evidence in a few words; each case with its interval unless given.
    untested : str
        What to show in place of it if there is no case.
    most : float
        The share of the cases that must agree for a plain yes.
    digits : int
        Digits behind the point of the cases that are listed.
    """
    if not cases:
        return Verdict(claim, published, untested, Holds.untested, why, most=most)
    shown = "; ".join(f"{each.words}: {_format_estimate(each, digits)}" for each in cases) if ours is None else ours
    return Verdict(
        claim, published, shown, judge(cases, most), f"{format_counts(cases)} {why}".strip(), tuple(cases), most
    )


def format_counts(cases: Sequence[Case]) -> str:
    """Return how the cases are divided, in words.

    >>> format_counts([Case.exact("", 1.0, ABOVE_ZERO), Case("", 1.0, (-1.0, 3.0), ABOVE_ZERO)])
    '1 of 2 cases agree, 0 contradict, 1 undecided.'
    """
    agree, against, unclear = count_cases(cases)
    return f"{agree} of {len(cases)} cases agree, {against} contradict, {unclear} undecided."


def _format_estimate(case: Case, digits: int) -> str:
    low, high = case.interval
    if math.isnan(low):
        return f"{format_number(case.estimate, digits)} (no interval)"
    return format_number(case.estimate, digits) + (
        "" if low == high else f" ({format_number(low, digits)} to {format_number(high, digits)})"
    )


# correlations


def correlation_interval(r: float, n: int, *, ranks: bool = False) -> Bounds:
    """Return the 95% interval of a correlation of n pairs, by Fisher's z; NaN twice for fewer than four pairs.

    Spearman's ρ has the wider standard error of Bonett and Wright (2000).

    >>> low, high = correlation_interval(-0.74, 15, ranks=True)
    >>> round(low, 2), round(high, 2)
    (-0.92, -0.3)
    """
    if n < 4 or math.isnan(r):
        return math.nan, math.nan
    if abs(r) >= 1:  # a perfect order of n pairs: Fisher's z has no width there, chance has
        return (r, r) if n > 6 else (math.nan, math.nan)
    error = math.sqrt((1 + r * r / 2 if ranks else 1.0) / (n - 3))
    z = math.atanh(r)
    return math.tanh(z - _Z_95 * error), math.tanh(z + _Z_95 * error)


def difference_interval(first: tuple[float, Bounds], second: tuple[float, Bounds]) -> Bounds:
    """Return the 95% interval of first − second, from each one's estimate and interval (Zou, 2007).

    The two are taken as independent. For two scores on the same examples, which go together, that is too wide and
    never too narrow.

    >>> low, high = difference_interval((0.82, (0.80, 0.84)), (0.77, (0.74, 0.80)))
    >>> round(low, 3), round(high, 3)
    (0.014, 0.086)
    """
    (a, (a_low, a_high)), (b, (b_low, b_high)) = first, second
    return a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)


def share_interval(share: float, n: int) -> Bounds:
    """Return Wilson's 95% interval of a share of n examples, such as an accuracy.

    >>> low, high = share_interval(0.7695, 872)
    >>> round(low, 3), round(high, 3)
    (0.74, 0.796)
    """
    middle = share + _Z_95**2 / (2 * n)
    half = _Z_95 * math.sqrt(share * (1 - share) / n + _Z_95**2 / (4 * n * n))
    return (middle - half) / (1 + _Z_95**2 / n), (middle + half) / (1 + _Z_95**2 / n)
