"""Compare audits of one space before and after a change, or of several spaces with the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isoscope._core.errors import InputError
from isoscope._core.formulas import jackknife_error, student_interval
from isoscope._io.json import jsonable
from isoscope.auditing.finding import VERDICTS
from isoscope.metrics.correspondence import cka, mutual_knn, procrustes_distance

if TYPE_CHECKING:
    from isoscope._core.types import Verdict
    from isoscope.auditing.audit_result import Audit
    from isoscope.auditing.finding import Finding

Direction = Literal["better", "worse", "moved", "same", "new", "gone"]
"""The direction in which a finding changed from one audit to the next."""

UNSEEN_CHANGES = (
    "An audit does not see changes that keep the shape, such as a rotation or another model of the same shape: use "
    "isoscope same OLD NEW."
)
"""What a comparison with a baseline cannot show."""


@dataclass(frozen=True)
class Change:
    """One finding in two audits; the finding is None for an audit that does not include it."""

    name: str
    title: str
    before: Finding | None
    after: Finding | None

    @property
    def direction(self) -> Direction:
        """The direction of the change; "moved" means that the verdict is the same but the intervals are disjoint."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        step = VERDICTS.index(self.after.verdict) - VERDICTS.index(self.before.verdict)
        if step:
            return "worse" if step > 0 else "better"
        return "moved" if _are_disjoint(self.before, self.after) else "same"

    @property
    def trend(self) -> Direction:
        """The direction, where "moved" becomes "better" or "worse" if only low or only high values are good.

        A change that the rounded values do not show becomes "same".
        """
        if self.direction != "moved" or self.before is None or self.after is None:
            return self.direction
        if self.before.shown == self.after.shown:
            return "same"
        low, high = self.after.judged.ok
        if math.isfinite(low) == math.isfinite(high):
            return "moved"
        rose = self.after.value > self.before.value
        return "better" if rose == math.isfinite(low) else "worse"

    @property
    def reason(self) -> str:
        """Why the verdict changed although both values are shown as the same number; empty if they differ."""
        if self.before is None or self.after is None or self.direction not in ("better", "worse"):
            return ""
        if self.before.shown != self.after.shown:
            return ""
        return f"the value is the same; before: {self.before.range}; after: {self.after.range}"

    def __str__(self) -> str:
        before = "–" if self.before is None else f"{self.before.shown} ({self.before.verdict})"
        after = "–" if self.after is None else f"{self.after.shown} ({self.after.verdict})"
        within = ", with the same verdict" if self.trend not in (self.direction, "same") else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.title}: {before} → {after}, {self.trend}{within}{reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON-compatible values."""
        sides = {"before": self.before, "after": self.after}
        values = {
            side: None if f is None else {"value": jsonable(f.value), "verdict": f.verdict} for side, f in sides.items()
        }
        return {"name": self.name, "direction": self.direction, **values}


@dataclass(frozen=True)
class HeldOutComparison:
    """The evaluation of a repair that was fitted on some rows and measured on others."""

    repair: str
    """The repair and its parameters."""
    fitted: int
    """The number of rows that the evaluated repair was fitted on."""
    measured: int
    """The number of other rows, which both audits measure."""
    n_final_fit_rows: int
    """The number of rows that the written repair was fitted on."""
    command: str = ""
    """The command that repeats the comparison; empty if it was not made by a command."""

    @property
    def name(self) -> str:
        """The repair, without parentheses if it has no parameters."""
        return self.repair.removesuffix("()")

    @property
    def note(self) -> str:
        """The evaluation, described in two sentences."""
        return (
            f"Both audits measure the same {self.measured:,} rows, before and after {self.repair} fitted on "
            f"{self.fitted:,} other rows. The vectors that were written come from {self.repair} fitted on all "
            f"{self.n_final_fit_rows:,} rows."
        )


def describe_repair(before: Audit, after: Audit, held_out: HeldOutComparison, agreement: float | None) -> str:
    """Return what a repair gained and lost, in one sentence.

    `agreement` is the share of nearest neighbors that both spaces have in common.
    """
    verdict: Verdict = "bad" if _count(before, "bad") or _count(after, "bad") else "look"
    name = "bad" if verdict == "bad" else "worth a look"
    parts = [f"{_count(before, verdict)} {name} → {_count(after, verdict)} {name}"]
    then, now = before.get("labels"), after.get("labels")
    if then is not None and now is not None:
        parts.append(f"class separation (silhouette) {then.shown} → {now.shown}")
    if agreement is not None:
        parts.append(f"{_format_of_ten(agreement)} of 10 neighbors kept")
    return f"{held_out.name}: {'; '.join(parts)}."


def describe_comparison(audits: Sequence[Audit], agreement: float | None) -> str:
    """Return how several spaces differ, in one sentence.

    `agreement` is the share of nearest neighbors that two spaces have in common.
    """
    if agreement is not None:
        degrees = ((0.9, "nearly the same"), (0.6, "mostly the same"), (0.3, "partly the same"))
        degree = next((words for least, words in degrees if agreement >= least), "mostly different")
        return (
            f"A search in the two spaces finds {degree} rows: on average, {_format_of_ten(agreement)} of the top 10 "
            "results agree."
        )
    counts = [_count(audit, "bad") for audit in audits]
    most = max(counts)
    if not most:
        return f"None of the {len(audits)} spaces has a bad finding."
    worst = [i for i, count in enumerate(counts) if count == most]
    if len(worst) > 1:
        return f"{', '.join(LETTERS[i] for i in worst)} have the most bad findings: {most} each."
    return f"{LETTERS[worst[0]]} has the most bad findings: {most}. {audits[worst[0]].headline}"


def _count(audit: Audit, verdict: Verdict) -> int:
    return sum(finding.verdict == verdict for finding in audit.findings)


def _format_of_ten(share: float) -> str:
    """Return ten times a share, with so many digits that it reads as 0 or 10 only if it is exactly 0 or 10."""
    texts = (f"{10 * share:.{digits}f}" for digits in range(1, 5))
    return next((text for text in texts if 0 < float(text) < 10), f"{10 * share:.1f}")


def name_sources(audits: Sequence[Audit], *, lettered: bool = False) -> list[str]:
    """Return the name of each source; with letters if `lettered` is set or two names are equal."""
    names = [audit.source for audit in audits]
    if not lettered and len(set(names)) == len(names):
        return names
    return [f"{letter}: {name}" for letter, name in zip(LETTERS, names, strict=False)]


def compare_findings(before: Audit, after: Audit) -> list[Change]:
    """Return the change of each finding that is in either audit, in the order of the second audit."""
    names = list(dict.fromkeys(finding.name for finding in [*after.findings, *before.findings]))
    then = {finding.name: finding for finding in before.findings}
    now = {finding.name: finding for finding in after.findings}
    return [Change(name, (now.get(name) or then[name]).title, then.get(name), now.get(name)) for name in names]


def align_findings(audits: Sequence[Audit]) -> list[tuple[str, list[Finding | None]]]:
    """Return the title of each finding and its value in each audit, in the order of the last audit."""
    names = dict.fromkeys(finding.name for audit in reversed(audits) for finding in audit.findings)
    rows = [[audit.get(name) for audit in audits] for name in names]
    return [(next(finding.title for finding in reversed(row) if finding is not None), row) for row in rows]


def neighbor_agreements(audits: Sequence[Audit]) -> list[float | None]:
    """Return the `neighbor_agreement` between the first audit and each later one."""
    return [neighbor_agreement(audits[0], other) for other in audits[1:]]


_COMPARED_ROWS = 1_000  # rows whose vectors in two spaces are compared
_JACKKNIFE_PARTS = 10


@dataclass(frozen=True)
class Agreement:
    """How well two spaces with the same rows agree: the value, and the ends of its 95% interval."""

    name: str
    title: str
    value: float
    low: float
    high: float
    rows: int

    def __str__(self) -> str:
        value, low, high = (_format_agreement(each) for each in (self.value, self.low, self.high))
        return f"{self.title} {value} [{low} … {high}]"


def _format_agreement(value: float) -> str:
    return f"{value:.3f}".replace("-0.000", "0.000").replace("-", "−")


def compare_spaces(a: Audit, b: Audit) -> list[Agreement]:
    """Return CKA, Procrustes distance and mutual nearest neighbors of two spaces; none if their rows differ.

    The intervals come from a jackknife over groups of rows.
    """
    if a.measured is None or b.measured is None or a.n != b.n:
        return []
    first, second = a.measured.sample, b.measured.sample
    if not np.array_equal(first.rows, second.rows):
        return []
    at = first.first(_COMPARED_ROWS)
    X, Y = (sample.vectors[at].astype(np.float64) for sample in (first, second))
    k = min(10, len(at) - 1 - -(-len(at) // _JACKKNIFE_PARTS))
    if k < 1 or len(at) < 2 * _JACKKNIFE_PARTS:
        return []
    measures: tuple[tuple[str, str, float, Callable[[np.ndarray, np.ndarray], float]], ...] = (
        ("cka", "CKA", -1.0, lambda x, y: float(cka(x, y))),  # the unbiased CKA varies around 0 for unrelated spaces
        ("procrustes", "Procrustes distance", 0.0, lambda x, y: float(procrustes_distance(x, y))),
        ("mutual_knn", f"mutual {k}-NN", 0.0, lambda x, y: float(mutual_knn(x, y, k, metric=a.settings.metric))),
    )
    parts = np.arange(len(at)) % _JACKKNIFE_PARTS
    found = []
    for name, title, least, measure in measures:
        try:
            value = measure(X, Y)
            left = [measure(X[parts != part], Y[parts != part]) for part in range(_JACKKNIFE_PARTS)]
        except InputError:  # all rows of one space are equal
            continue
        low, high = student_interval(value, jackknife_error(left), a.settings.confidence, _JACKKNIFE_PARTS - 1)
        found.append(Agreement(name, title, value, max(low, least), min(high, 1.0), len(at)))
    return found


def describe_setting_differences(before: Audit, after: Audit) -> list[str]:
    """Describe the differences in dimensions and settings that make two audits less comparable."""
    differences = []
    if before.d != after.d:
        differences.append(f"{before.d} dimensions before, {after.d} after")
    for name in ("metric", "sample"):
        then, now = getattr(before.settings, name), getattr(after.settings, name)
        if then != now:
            was, now = (f"{setting:,}" if name == "sample" else setting for setting in (then, now))
            differences.append(f"{name} was {was}, is {now}")
    return differences


def neighbor_agreement(a: Audit, b: Audit) -> float | None:
    """Return the mean share of nearest neighbors that two spaces have in common.

    Return None if the rows differ, or if there are so few that a list contains all other rows.
    """
    if a.measured is None or b.measured is None or a.n != b.n:
        return None
    if not np.array_equal(a.measured.sample.rows, b.measured.sample.rows):
        return None
    here, there = a.measured.lists, b.measured.lists
    if here is None or there is None:
        return None
    both, at_here, at_there = np.intersect1d(here.asked, there.asked, assume_unique=True, return_indices=True)
    if not len(both):
        return None
    k = min(here.indices.shape[1], there.indices.shape[1])
    if min(here.n_searched, there.n_searched) < k + 2:
        return None
    mine, theirs = here.indices[at_here][:, :k], there.indices[at_there][:, :k]
    return float((mine[:, :, None] == theirs[:, None, :]).sum() / (len(both) * k))


def _are_disjoint(a: Finding, b: Finding) -> bool:
    """Return whether the intervals are disjoint; if there are no intervals, whether the values differ."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return a.value != b.value
    return a.high < b.low or b.high < a.low
