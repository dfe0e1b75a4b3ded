"""Format a study's numbers, times and verdicts for its page, its summary and the terminal."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import plural
from isoscope.studies.study import Holds

if TYPE_CHECKING:
    from isoscope.studies.study import Number, Value, Verdict

OBSERVATIONS = "Our own observations, which the paper does not claim"
"""The heading of the observations on a page."""

_MAX_PLAIN = 1e9
_MAX_NAME_BYTES = 200  # file systems allow 255; the remainder is for suffixes


def format_number(value: float, digits: int, *, signed: bool = False) -> str:
    """Return a number as text with `digits` decimals; very small or large numbers use scientific notation.

    With `signed`, nonnegative numbers get a plus sign.

    >>> format_number(-0.8829, 3), format_number(1.35e-5, 3), format_number(7.97e22, 1), format_number(float("nan"), 3)
    ('−0.883', '1.35e−5', '7.97e22', '–')
    >>> format_number(759938, 0)
    '759,938'
    """
    if math.isnan(value):
        return "–"
    plain = not value or 0.5 * 10.0**-digits <= abs(value) < _MAX_PLAIN
    text = f"{value:,.{digits}f}" if plain else f"{value:.2e}".replace("e-0", "e-").replace("e+", "e")
    return ("+" if signed and value >= 0 else "") + text.replace("-", "−")


_SUPERSCRIPTS = str.maketrans("−0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def write_powers(text: str) -> str:
    """Rewrite numbers in scientific notation in a text as powers of ten.

    >>> write_powers("1.35e−5, but 0.02")
    '1.35×10⁻⁵, but 0.02'
    """
    return re.sub(r"(?<=\d)e(−\d+)", lambda match: f"×10{match[1].translate(_SUPERSCRIPTS)}", text)


def format_range(values: Iterable[float], digits: int, *, signed: bool = False) -> str:
    """Return the smallest and the largest value as text, or one number if both look the same.

    >>> format_range([0.25, -1, 3], 1), format_range([2.0, 2.0], 0), format_range([], 3)
    ('−1.0 to 3.0', '2', '–')
    """
    known = list(values)
    if not known:
        return "–"
    low, high = (format_number(each, digits, signed=signed) for each in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def format_published(published: Number | None, ours: Value | None, digits: int) -> str:
    """Return a published number with its uncertainty and, in parentheses, our number minus the published one."""
    if published is None:
        return ""
    spread = "" if published.uncertainty is None else f" ± {format_number(published.uncertainty, digits)}"
    difference = ""
    if ours is not None and not math.isnan(ours.mean):
        gap = round(ours.mean - published.value, 15)  # equal numbers may differ by rounding errors
        difference = f" ({format_number(gap, digits, signed=True)})"
    return f"{format_number(published.value, digits)}{spread}{difference}"


def format_claim_counts(verdicts: Sequence[Verdict]) -> str:
    """Return, as text, how many claims hold, hold partly, do not hold, are undecided, and were not tested."""
    counts = {kind: sum(each.holds is kind for each in verdicts) for kind in Holds}
    words = {
        Holds.partly: ("holds partly", "hold partly"),
        Holds.no: ("does not hold", "do not hold"),
        Holds.undecided: ("is undecided", "are undecided"),
        Holds.untested: ("was not tested", "were not tested"),
    }
    parts = [f"{counts[Holds.yes]} of {len(verdicts)} claims hold here"]
    parts += [f"{counts[kind]} {words[kind][counts[kind] > 1]}" for kind in words if counts[kind]]
    return ", ".join(parts) + "."


def file_name(key: str) -> str:
    """Return a file name for an arm's key; it is valid on any system, and distinct keys have distinct names.

    >>> file_name("cola/seed-0")
    'cola--seed-0-439fb5'
    """
    return f"{_sanitize_key(key)}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def figure_name(key: str) -> str:
    """Return a name for a figure's file and page anchor: its key if the key is a valid name, else its `file_name`.

    >>> figure_name("pearson"), figure_name("my model (2)")
    ('pearson', 'my--model--2---607f9d')
    """
    return key if _sanitize_key(key) == key else file_name(key)


def _sanitize_key(key: str) -> str:
    name = re.sub(r"[^\w.+-]+", "--", key)
    return name.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")


def format_run_time(facts: Mapping[str, Any]) -> str:
    """Return the run time and the number of arms, as text.

    >>> [format_run_time({"seconds": 42, "arms": 1, "arms_in_all": arms}) for arms in (1, 6)]
    ['42 s for 1 arm', '42 s for 1 of 6 arms']
    """
    arms, whole = facts["arms"], facts["arms_in_all"]
    return (
        f"{format_duration(facts['seconds'])} for {plural(arms, 'arm') if arms == whole else f'{arms} of {whole} arms'}"
    )


def format_duration(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes or hours.

    >>> format_duration(42), format_duration(4000), format_duration(90)
    ('42 s', '1 h 7 min', '2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
