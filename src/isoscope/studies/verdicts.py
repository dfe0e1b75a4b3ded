"""The rule that all studies use to judge claims, and confidence intervals for their cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from isoscope._core.errors import plural
from isoscope.studies.formatting import format_number
from isoscope.studies.study import Holds, Verdict

if TYPE_CHECKING:
    from isoscope.studies.study import Bounds, Case, Claim

BELOW_ZERO: Bounds = (-math.inf, 0.0)
ABOVE_ZERO: Bounds = (0.0, math.inf)

RULE = (
    "A case agrees with a claim if its entire 95% interval lies in the claimed range. It contradicts the claim if "
    "the entire interval lies outside this range. It is undecided if the interval extends across a limit of the "
    "range, or if there is no interval (a single seed). A claim holds (yes) if every case agrees. A claim is "
    "undecided if more than half of its cases are undecided. Otherwise, it holds partly if at least half of the "
    "decided cases agree, and it does not hold (no) if fewer than half agree."
)
"""The rule as text, for pages."""

_Z_95 = NormalDist().inv_cdf(0.975)


def judge(cases: Sequence[Case], most: float = 1.0) -> Holds:
    """Return the verdict on a claim, based on its cases.

    Parameters
    ----------
    cases : sequence of Case
        The cases, one for each task, model, dataset or layer.
    most : float
        The share of the cases that must agree for the verdict "yes".

    Examples
    --------
    >>> from isoscope.studies.study import Case
    >>> below = (float("-inf"), -0.8)
    >>> barely = Case("polarity", -0.8004, (-0.8021, -0.7987), below)
    >>> judge([barely]).value, judge([barely, Case.exact("cola", -0.88, below)]).value
    ('undecided', 'partly')
    """
    return judge_counts(*count_cases(cases), most=most)


def judge_counts(agree: int, against: int, unclear: int, *, most: float = 1.0) -> Holds:
    """Return the verdict on a claim, given how many cases agree with it, contradict it, or are undecided.

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
    verdicts = [each.holds for each in cases]
    return verdicts.count(Holds.yes), verdicts.count(Holds.no), verdicts.count(Holds.undecided)


def share_of(cases: Sequence[Case], unit: str = "") -> str:
    """Return, as text, how many of the cases agree with the claim.

    >>> from isoscope.studies.study import Case
    >>> share_of([Case.exact("", 1.0, ABOVE_ZERO), Case.exact("", -1.0, ABOVE_ZERO)], "layers")
    '1 of 2 layers'
    """
    return f"{count_cases(cases)[0]} of {len(cases)} {unit}".strip()


def direction(sign: int, limit: float = 0.0) -> Bounds:
    """Return the range (limit, ∞) for a positive sign, or (−∞, −limit) for a negative sign.

    >>> direction(-1, 0.9)
    (-inf, -0.9)
    """
    return (limit, math.inf) if sign > 0 else (-math.inf, 0.0 - limit)  # no negative zero


@dataclass(frozen=True)
class Evidence:
    """The evidence for or against a claim: what was published, our cases, and how to describe them."""

    published: str
    """The published evidence in a few words."""
    cases: Sequence[Case] = ()
    why: str = ""
    """The definition of a case, and other notes for the reader."""
    ours: str | None = None
    """Our evidence in a few words; by default each case with its interval."""
    untested: str = "not run"
    """The text that replaces our evidence if there is no case."""
    most: float = 1.0
    """The share of the cases that must agree for the verdict "yes"."""
    digits: int = 3
    """The number of decimals of the listed cases."""


def judge_claims(claims: Iterable[Claim], evidence: Mapping[str, Callable[[], Evidence]]) -> list[Verdict]:
    """Return the verdict on each claim; `evidence` maps claim keys to functions that return the evidence."""
    return [make_verdict(claim, evidence[claim.key]()) for claim in claims]


def make_verdict(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim according to `RULE`; its reason begins with the numbers of cases."""
    cases, ours, why, most = evidence.cases, evidence.ours, evidence.why, evidence.most
    if not cases:
        return Verdict(claim, evidence.published, evidence.untested, Holds.untested, why, most=most)
    if ours is None:
        ours = "; ".join(f"{each.words}: {_format_estimate(each, evidence.digits)}" for each in cases)
    why = f"{format_counts(cases)} {why}".strip()
    return Verdict(claim, evidence.published, ours, judge(cases, most), why, tuple(cases), most)


def format_counts(cases: Sequence[Case]) -> str:
    """Return, as text, how many cases agree with the claim, contradict it, or are undecided.

    >>> from isoscope.studies.study import Case
    >>> format_counts([Case.exact("", 1.0, ABOVE_ZERO), Case("", 1.0, (-1.0, 3.0), ABOVE_ZERO)])
    '1 of 2 cases agrees, 0 contradict, 1 is undecided.'
    """
    agree, against, unclear = count_cases(cases)
    verb = "agrees" if 1 in (agree, len(cases)) else "agree"
    return (
        f"{agree} of {plural(len(cases), 'case')} {verb}, {against} {'contradicts' if against == 1 else 'contradict'}, "
        f"{unclear} {'is' if unclear == 1 else 'are'} undecided."
    )


def _format_estimate(case: Case, digits: int) -> str:
    low, high = case.interval
    if math.isnan(low):
        return f"{format_number(case.estimate, digits)} (no interval)"
    return format_number(case.estimate, digits) + (
        "" if low == high else f" ({format_number(low, digits)} to {format_number(high, digits)})"
    )


# correlations and intervals


def correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool = False) -> float:
    """Return Pearson's r, or Spearman's ρ if `ranks` is set; NaN for fewer than three pairs or a constant series.

    >>> correlation([1, 2, 4], [1, 3, 9], ranks=True), correlation([1, 2, 3], [5, 5, 5])
    (1.0, nan)
    """
    from scipy.stats import pearsonr, spearmanr

    if len(x) < 3 or min(x) == max(x) or min(y) == max(y) or not all(map(math.isfinite, (*x, *y))):
        return math.nan
    return float((spearmanr if ranks else pearsonr)(x, y).statistic)


def correlation_interval(r: float, n: int, *, ranks: bool = False) -> Bounds:
    """Return the 95% interval of a correlation of n pairs (Fisher's z); NaN for fewer than four pairs.

    For Spearman's ρ, the standard error is that of Bonett and Wright (2000), which is larger.

    >>> low, high = correlation_interval(-0.74, 15, ranks=True)
    >>> round(low, 2), round(high, 2)
    (-0.92, -0.3)
    """
    if n < 4 or math.isnan(r):
        return math.nan, math.nan
    if abs(r) >= 1:  # Fisher's z has no width at ±1, but a perfect order of few pairs may be chance
        return (r, r) if n > 6 else (math.nan, math.nan)
    error = math.sqrt((1 + r * r / 2 if ranks else 1.0) / (n - 3))
    z = math.atanh(r)
    return math.tanh(z - _Z_95 * error), math.tanh(z + _Z_95 * error)


def difference_interval(first: tuple[float, Bounds], second: tuple[float, Bounds]) -> Bounds:
    """Return the 95% interval of first − second, given the estimate and interval of each (Zou, 2007).

    The two estimates are treated as independent. For positively correlated scores, such as two scores on the same
    examples, the interval is conservative: too wide, never too narrow.

    >>> low, high = difference_interval((0.82, (0.80, 0.84)), (0.77, (0.74, 0.80)))
    >>> round(low, 3), round(high, 3)
    (0.014, 0.086)
    """
    (a, (a_low, a_high)), (b, (b_low, b_high)) = first, second
    return a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)


def share_interval(share: float, n: int) -> Bounds:
    """Return Wilson's 95% interval for a proportion of n examples, such as an accuracy.

    >>> low, high = share_interval(0.7695, 872)
    >>> round(low, 3), round(high, 3)
    (0.74, 0.796)
    """
    middle = share + _Z_95**2 / (2 * n)
    half = _Z_95 * math.sqrt(share * (1 - share) / n + _Z_95**2 / (4 * n * n))
    return (middle - half) / (1 + _Z_95**2 / n), (middle + half) / (1 + _Z_95**2 / n)
