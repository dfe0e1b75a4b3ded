"""Numbers, times and verdicts of a study in words, the same on its page, in its summary and in the terminal."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import plural
from isoscope.studies.study import Holds

if TYPE_CHECKING:
    from isoscope.studies.study import Number, Value, Verdict

OBSERVATIONS = "Our own observations, which the paper does not claim"
"""The heading of what a study tests beside the paper's claims."""

_HUGE = 1e9
_LONGEST = 200  # bytes of a file's name, which may have 255, with room for endings


def format_number(value: float, digits: int) -> str:
    """A number with so many digits behind the point; far below them, or far above, as a power.

    >>> format_number(-0.8829, 3), format_number(1.35e-5, 3), format_number(7.97e22, 1), format_number(float("nan"), 3)
    ('−0.883', '1.35e−5', '7.97e22', '–')
    """
    if math.isnan(value):
        return "–"
    plain = not value or 0.5 * 10.0**-digits <= abs(value) < _HUGE
    text = f"{value:.{digits}f}" if plain else f"{value:.2e}".replace("e-0", "e-").replace("e+", "e")
    return text.replace("-", "−")


def format_published(published: Number | None, ours: Value | None, digits: int) -> str:
    """A published number with its uncertainty, and how far ours is from it."""
    if published is None:
        return ""
    spread = "" if published.uncertainty is None else f" ± {format_number(published.uncertainty, digits)}"
    apart = ""
    if ours is not None and not math.isnan(ours.mean):
        difference = round(ours.mean - published.value, 15)  # what is left of equal numbers is no difference
        apart = f" ({'+' if difference >= 0 else ''}{format_number(difference, digits)})"
    return f"{format_number(published.value, digits)}{spread}{apart}"


def format_claim_counts(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold."""
    held = {kind: sum(each.holds is kind for each in verdicts) for kind in Holds}
    words = {
        Holds.yes: "{} of {} claims hold here",
        Holds.partly: "{} in part",
        Holds.no: "{} not",
        Holds.undecided: "{} undecided",
        Holds.untested: "{} not tested",
    }
    parts = [words[kind].format(count, len(verdicts)) for kind, count in held.items() if count or kind is Holds.yes]
    return ", ".join(parts) + "."


def file_name(key: str) -> str:
    """An arm's key as a name of a file, on any system; keys that differ have names that differ.

    >>> file_name("cola/seed-0")
    'cola--seed-0-439fb5'
    """
    return f"{_sanitize_key(key)}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def figure_name(key: str) -> str:
    """A figure's key as a name of a file and of a place in a page: the key itself where it is fit for both.

    >>> figure_name("pearson"), figure_name("my model (2)")
    ('pearson', 'my--model--2---607f9d')
    """
    return key if _sanitize_key(key) == key else file_name(key)


def _sanitize_key(key: str) -> str:
    name = re.sub(r"[^\w.+-]+", "--", key)
    return name.encode()[:_LONGEST].decode(errors="ignore")


def format_run_time(facts: Mapping[str, Any]) -> str:
    """How long a run took, and for how many arms.

    >>> [format_run_time({"seconds": 42, "arms": 1, "arms_in_all": arms}) for arms in (1, 6)]
    ['42 s for 1 arm', '42 s for 1 of 6 arms']
    """
    arms, whole = facts["arms"], facts["arms_in_all"]
    return (
        f"{format_duration(facts['seconds'])} for {plural(arms, 'arm') if arms == whole else f'{arms} of {whole} arms'}"
    )


def format_duration(seconds: float) -> str:
    """A time as people say it.

    >>> format_duration(42), format_duration(4000), format_duration(90)
    ('42 s', '1 h 7 min', '2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
