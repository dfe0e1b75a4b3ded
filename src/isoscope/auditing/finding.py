"""A finding: one number of an audit, judged, with what it means and what to try."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from isoscope._io.json import jsonable

VERDICTS = ("ok", "look", "bad")
"""From best to worst."""


@dataclass(frozen=True)
class Range:
    """What a number is judged by, and where that comes from."""

    ok: tuple[float, float]
    """Inside, ends included, all is well."""
    bearable: tuple[float, float]
    """Inside, ends excluded, it is at worst worth a look; outside it is bad."""
    source: str
    """A null model, a published value or a convention: one phrase."""
    null: float | None = None
    """What a cloud of the same size without structure gives: an isotropic one, or one with shuffled labels."""

    @classmethod
    def lower_is_better(cls, look: float, bad: float, source: str, null: float | None = None) -> Range:
        """Small is good: from `look` on worth a look, from `bad` on bad."""
        return cls((-math.inf, math.nextafter(look, -math.inf)), (-math.inf, bad), source, null)

    @classmethod
    def higher_is_better(cls, look: float, bad: float, source: str, null: float | None = None) -> Range:
        """Large is good: below `look` worth a look, below `bad` bad."""
        return cls((look, math.inf), (math.nextafter(bad, -math.inf), math.inf), source, null)

    def verdict(self, value: float) -> str:
        """ok, look or bad."""
        if self.ok[0] <= value <= self.ok[1]:
            return "ok"
        return "look" if self.bearable[0] < value < self.bearable[1] else "bad"


@dataclass(frozen=True)
class Finding:
    """One judged number.

    `str(finding)` is its line in a terminal.
    """

    name: str
    """What scripts call it: `mean_cosine`."""
    title: str
    value: float
    low: float | None
    """Ends of the interval at the audit's confidence; None if the number is a plain count."""
    high: float | None
    judged: Range
    meaning: str
    advice: str
    rows: int
    """How many rows it was measured on."""
    form: str = "number"
    """How it is written: "number", "share" (per cent), "count" or "power" (of ten)."""
    sampled: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """More numbers, JSON-able, by name."""

    @property
    def verdict(self) -> str:
        """ok, look or bad."""
        return self.judged.verdict(self.value)

    @property
    def borderline(self) -> bool:
        """Whether another draw of the same rows could well have had another verdict."""
        ends = [end for end in (self.low, self.high) if end is not None and math.isfinite(end)]
        return any(self.judged.verdict(end) != self.verdict for end in ends)

    @property
    def shown(self) -> str:
        """The value as it is written."""
        return format_number(self.value, self.form)

    @property
    def interval(self) -> str:
        """The interval as it is written, or nothing."""
        if self.low is None or self.high is None or math.isinf(self.high - self.low):
            return ""
        return f"{format_number(self.low, self.form)} … {format_number(self.high, self.form)}"

    @property
    def range(self) -> str:
        """The range as it is written: "ok below 10%, bad from 50%"."""
        (low, high), (worst, most) = self.judged.ok, self.judged.bearable
        parts = []
        if math.isfinite(low) and math.isfinite(high):
            parts.append(f"ok from {format_number(low, self.form)} to {format_number(high, self.form)}")
        elif math.isfinite(high):
            parts.append("ok if 0" if high <= 0 else f"ok below {format_number(high, self.form)}")
        elif math.isfinite(low):
            parts.append(f"ok from {format_number(low, self.form)}")
        if math.isfinite(worst):
            parts.append(f"bad below {format_number(worst, self.form)}")
        if math.isfinite(most):
            parts.append(f"bad from {format_number(most, self.form)}")
        return ", ".join(parts) or "for information"

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: no infinity, no NaN."""
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
    def from_dict(cls, held: dict[str, Any]) -> Finding:
        """Read what `to_dict` gave."""

        def ends(pair: list[float | None]) -> tuple[float, float]:
            return (-math.inf if pair[0] is None else pair[0], math.inf if pair[1] is None else pair[1])

        numbers = [held["value"], held["low"], held["high"], held["null"], *held["ok"], *held["bearable"]]
        for number in numbers:
            if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
                raise TypeError(f"{held['name']} has {number!r} where a number belongs")
        same = ("name", "title", "low", "high", "form", "meaning", "advice", "rows", "sampled", "details")
        judged = Range(ends(held["ok"]), ends(held["bearable"]), held["source"], held["null"])
        value = math.nan if held["value"] is None else float(held["value"])
        return cls(value=value, judged=judged, **{name: held[name] for name in same})

    def __str__(self) -> str:
        interval = f"  [{self.interval}]" if self.interval else ""
        return f"{self.verdict:<4}  {self.title}  {self.shown}{interval}  ({self.range})"


def format_number(value: float | None, form: str = "number") -> str:
    """A number for people: three digits, thousands apart, a share in per cent."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if form == "power" and 0 < abs(value) < 0.001:
        return f"{value:.1e}".replace("e-0", "e-").replace("-", "−")
    if form == "count":
        text = f"{value:,.0f}"
    elif form == "share":
        per_cent = 100 * value
        digits = 0 if per_cent in (0, 100) else 2 if abs(per_cent) < 0.995 else 1
        text = f"{per_cent:.{digits}f}%"
    else:
        size = float(f"{abs(value):.3g}")  # rounding may add a digit before the point
        digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
        text = f"{value:,.{digits}f}"
    return text.replace("-", "−") if any(digit in text for digit in "123456789") else text.replace("-", "")


def format_percentage(value: float) -> str:
    """A percentile that never rounds to all or to none; page.js writes them alike.

    >>> [format_percentage(value) for value in (0, 0.001, 12.34, 99.934, 99.9999, 100)]
    ['0%', '< 0.01%', '12.3%', '99.93%', '> 99.99%', '100%']
    """
    if value <= 0 or value >= 100:
        return "0%" if value <= 0 else "100%"
    if value < 0.01 or value > 99.99:
        return "< 0.01%" if value < 0.01 else "> 99.99%"
    return f"{value:.{1 if 1 <= value < 99 else 2}f}%"


def worst_verdict(findings: list[Finding]) -> str:
    """The worst verdict among findings."""
    return max((finding.verdict for finding in findings), key=VERDICTS.index, default="ok")
