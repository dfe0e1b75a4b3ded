"""A finding: one number from an audit, with its verdict, meaning and advice."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from isoscope._io.json import check_type, jsonable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isoscope._core.types import Verdict

Form = Literal["number", "share", "count", "power"]
"""The format of a number: plain, a percentage, a count, or a power of ten."""

VERDICTS: tuple[Verdict, ...] = ("ok", "look", "bad")
"""The verdicts, from best to worst."""


@dataclass(frozen=True)
class Range:
    """The thresholds that determine the verdict on a number, and their source."""

    ok: tuple[float, float]
    """The range of ok values, including its ends."""
    bearable: tuple[float, float]
    """The range of values that are at worst a `look`, excluding its ends; other values are bad."""
    source: str
    """The source of the range: a null model, a published value or a convention."""
    null: float | None = None
    """The value for random data of the same size: isotropic vectors, or shuffled labels."""

    @classmethod
    def lower_is_better(cls, look: float, bad: float, source: str, null: float | None = None) -> Range:
        """Return a range in which low values are good: "look" at `look` or more, and "bad" above `bad`."""
        return cls((-math.inf, math.nextafter(look, -math.inf)), (-math.inf, bad), source, null)

    @classmethod
    def higher_is_better(cls, look: float, bad: float, source: str, null: float | None = None) -> Range:
        """Return a range in which high values are good: "look" below `look`, and "bad" below `bad`."""
        return cls((look, math.inf), (math.nextafter(bad, -math.inf), math.inf), source, null)

    def verdict(self, value: float) -> Verdict:
        """Return the verdict on a value: "ok", "look" or "bad"."""
        if self.ok[0] <= value <= self.ok[1]:
            return "ok"
        return "look" if self.bearable[0] < value < self.bearable[1] else "bad"


@dataclass(frozen=True, repr=False)
class Finding:
    """One number from an audit, with its verdict, meaning and advice.

    `str(finding)` is the line that the terminal shows.
    """

    name: str
    """The name for scripts, such as `mean_cosine`."""
    title: str
    value: float
    low: float | None
    """The ends of the 95% interval; None if the number has no interval."""
    high: float | None
    judged: Range
    meaning: str
    advice: str
    rows: int
    """The number of rows that were measured."""
    form: Form = "number"
    sampled: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """Additional values by name, JSON-compatible; `range` describes a verdict that needs more than thresholds."""

    @property
    def verdict(self) -> Verdict:
        """The verdict: "ok", "look" or "bad"."""
        return self.judged.verdict(self.value)

    @property
    def borderline(self) -> bool:
        """Whether the interval extends into the range of another verdict."""
        ends = [end for end in (self.low, self.high) if end is not None and math.isfinite(end)]
        return any(self.judged.verdict(end) != self.verdict for end in ends)

    @property
    def shown(self) -> str:
        """The value as text."""
        return format_number(self.value, self.form)

    @property
    def interval(self) -> str:
        """The interval as text; empty if there is none."""
        if self.low is None or self.high is None or math.isinf(self.high - self.low):
            return ""
        return f"{format_number(self.low, self.form)} … {format_number(self.high, self.form)}"

    @property
    def range(self) -> str:
        """The range as text, such as "ok below 10%, bad from 50%"."""
        if "range" in self.details:  # the value alone does not determine the verdict
            return str(self.details["range"])
        (low, high), (worst, most) = self.judged.ok, self.judged.bearable
        parts = []
        if math.isfinite(low) and math.isfinite(high):
            start = f"from {format_number(low, self.form)} to" if low != 0 else "up to"
            parts.append(f"ok {start} {format_number(high, self.form)}")
        elif math.isfinite(high):
            parts.append("ok if 0" if high <= 0 else f"ok below {format_number(high, self.form)}")
        elif math.isfinite(low):
            parts.append(f"ok from {format_number(low, self.form)}")
        if math.isfinite(worst):
            parts.append(f"bad below {format_number(worst, self.form)}")
        if math.isfinite(most):
            parts.append(
                "bad otherwise" if most == math.nextafter(0.0, 1.0) else f"bad from {format_number(most, self.form)}"
            )
        return ", ".join(parts) or "for information"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible values; infinity and NaN become None."""
        return {
            "name": self.name,
            "title": self.title,
            "verdict": self.verdict,
            "borderline": self.borderline,
            "value": jsonable(self.value),
            "low": jsonable(self.low),
            "high": jsonable(self.high),
            "form": self.form,
            "ok": [jsonable(end) for end in self.judged.ok],
            "bearable": [jsonable(end) for end in self.judged.bearable],
            "null": jsonable(self.judged.null),
            "source": self.judged.source,
            "meaning": self.meaning,
            "advice": self.advice,
            "rows": self.rows,
            "sampled": self.sampled,
            "details": jsonable(self.details),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Finding:
        """Create a finding from a dict returned by `to_dict`."""

        for name in ("name", "title", "form", "source", "meaning", "advice"):
            check_type(content[name], str, name)
        for name, kind in (("rows", int), ("sampled", bool), ("details", dict), ("ok", list), ("bearable", list)):
            check_type(content[name], kind, f"{content['name']}.{name}")

        def ends(pair: list[float | None]) -> tuple[float, float]:
            return (-math.inf if pair[0] is None else pair[0], math.inf if pair[1] is None else pair[1])

        numbers = [
            content["value"],
            content["low"],
            content["high"],
            content["null"],
            *content["ok"],
            *content["bearable"],
        ]
        for number in numbers:
            check_type(number, (int, float, type(None)), content["name"])
        same = ("name", "title", "low", "high", "form", "meaning", "advice", "rows", "sampled", "details")
        judged = Range(ends(content["ok"]), ends(content["bearable"]), content["source"], content["null"])
        value = math.nan if content["value"] is None else float(content["value"])
        return cls(value=value, judged=judged, **{name: content[name] for name in same})

    def __repr__(self) -> str:
        return f"Finding({self.name}: {self.shown}, {self.verdict})"

    def __str__(self) -> str:
        interval = f"  [{self.interval}]" if self.interval else ""
        return f"{self.verdict:<4}  {self.title}  {self.shown}{interval}  ({self.range})"


def format_number(value: float | None, form: str = "number") -> str:
    """Return a number as text, with three digits and thousands separators; shares become percentages."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if form == "power" and 0 < abs(value) < 0.001:
        return f"{value:.1e}".replace("e-0", "e-").replace("-", "−")
    if form == "count":
        text = f"{value:,.0f}"
    elif form == "share":
        percent = 100 * value
        digits = 0 if percent in (0, 100) else 2 if abs(percent) < 0.995 else 1
        text = f"{percent:.{digits}f}%"
    else:
        size = float(f"{abs(value):.3g}")  # rounding may add a digit before the decimal point
        digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
        text = f"{value:,.{digits}f}"
    return text.replace("-", "−") if any(digit in text for digit in "123456789") else text.replace("-", "")


def format_percentage(value: float) -> str:
    """Return a percentile as text, never rounded to 0% or 100%; page.js formats it in the same way.

    >>> [format_percentage(value) for value in (0, 0.001, 12.34, 99.934, 99.9999, 100)]
    ['0%', '< 0.01%', '12.3%', '99.93%', '> 99.99%', '100%']
    """
    if value <= 0 or value >= 100:
        return "0%" if value <= 0 else "100%"
    if value < 0.01 or value > 99.99:
        return "< 0.01%" if value < 0.01 else "> 99.99%"
    return f"{value:.{1 if 1 <= value < 99 else 2}f}%"


def count_verdicts(verdicts: Iterable[Verdict]) -> str:
    """Return the number of each verdict, the worst first.

    >>> count_verdicts(["ok", "bad", "ok"])
    '1 bad, 2 ok'
    """
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in reversed(VERDICTS) if counts[verdict])


def worst_verdict(findings: list[Finding]) -> Verdict:
    """Return the worst verdict of some findings; "ok" if there are none."""
    return max((finding.verdict for finding in findings), key=VERDICTS.index, default="ok")
