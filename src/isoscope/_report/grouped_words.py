"""How a measurement goes along groups, in sentences that hold whatever the numbers are."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.heading import interleave_separators
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope.auditing.grouped import GroupedAudit, Series

HEADLINE_PHRASES = {
    "mean_cosine": "Mean cosine",
    "isoscore": "IsoScore",
    "intra_type": "S_intra",
    "intrinsic_dimension": "The local dimension (LID)",
    "anisotropy": "The first direction's share",
    "effective_rank": "The effective rank",
    "labels": "The silhouette of the labels",
    "clusters": "The silhouette of the best clusters",
}
"""What is worth a sentence at the top of a page, the first before the others."""

_MAX_NAME_LENGTH = 60  # characters of a name
_MAX_LISTED = 3  # names that are listed; more are counted


def describe_groups(audit: GroupedAudit, count: int) -> list[str]:
    """What changes along the groups, in at most so many sentences."""
    found = []
    for name, words in HEADLINE_PHRASES.items():
        series = audit.series(name)
        if np.isfinite(series.estimates).any():
            form = next(group[name].form for group in audit.groups.values() if name in group)
            found.append(describe_series(words, series, audit, form))
    return found[:count]


def describe_series(words: str, series: Series, audit: GroupedAudit, form: str = "number") -> str:
    """How one measurement goes: rising or falling where groups have an order, else who has most and least.

    Nothing is called a difference whose intervals overlap, or that is not to be seen in three digits.
    """
    known = np.flatnonzero(np.isfinite(series.estimates)).tolist()
    if not known:
        return f"{words} could not be measured."
    values = [float(series.estimates[i]) for i in known]
    shown = [format_number(value, form) for value in values]
    names = [format_group_name(audit, series.names[i]) for i in known]
    only = "" if len(known) == len(series.names) else f" (measured in {len(known)} of {len(series.names)})"
    if len(known) == 1:
        return f"{words} is {shown[0]} in {names[0]}{only}."
    if len(set(shown)) == 1:
        return f"{words} is {shown[0]} in {_describe_all(len(known), audit)}{only}."
    least, most = int(np.argmin(values)), int(np.argmax(values))
    if not are_disjoint(series, known[least], known[most]):
        return (
            f"{words} does not differ beyond its interval: from {shown[least]} to {shown[most]} over "
            f"{_describe_all(len(known), audit)}{only}."
        )
    if not audit.ordered:
        return f"{words} {_describe_extremes(values, shown, names, audit)}{only}."
    turns = _extreme_segments(values, shown)
    if all(are_disjoint(series, known[a], known[b]) for a, b in turns) and _is_monotone(values, shown, turns):
        return f"{words} {_describe_trend(values, shown, names, turns)}{only}."
    return f"{words} {_describe_extremes(values, shown, names, audit, ends=True)}{only}."


def format_group_name(audit: GroupedAudit, name: str) -> str:
    """A group by what it is of: layer 3, label “sport”; a name that says so itself is left alone."""
    each = group_noun(audit.by)
    name = name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"
    if any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in name):
        name = f"\u2068{name}\u2069"  # written from right to left, it would turn what stands around it
    if name.lower().startswith(each.lower()):
        return name
    return f"{each} {name}" if audit.ordered else f"{each} “{name}”"


def has_numeric_groups(audit: GroupedAudit) -> bool:
    """Whether the groups are numbers, and neither names nor ranges of numbers."""
    return audit.ordered and all(_matches_value(name, audit.values[name]) for name in audit.groups)


def _matches_value(name: str, value: int | float | str) -> bool:
    try:
        return math.isclose(float(name.replace("−", "-")), float(value), rel_tol=1e-3)  # names have four digits
    except ValueError:
        return False


def group_noun(by: str) -> str:
    """What one group is called: the column's name, in the singular if it is known.

    >>> group_noun("layer"), group_noun("labels"), group_noun("groups"), group_noun("class")
    ('layer', 'label', 'group', 'class')
    """
    return by[:-1] if by in ("groups", "labels", "types", "layers", "clusters", "documents") else by


def are_disjoint(series: Series, i: int, j: int) -> bool:
    """Whether two groups' intervals do not meet; without intervals, whether the numbers differ."""
    ends = [float(each[k]) for each in (series.low, series.high) for k in (i, j)]
    if not all(map(math.isfinite, ends)):
        return bool(series.estimates[i] != series.estimates[j])
    return bool(series.high[i] < series.low[j] or series.high[j] < series.low[i])


def plural_group_noun(audit: GroupedAudit) -> str:
    """What several groups are called: layers, or ranges of frequency."""
    each = group_noun(audit.by)
    if audit.ordered and not has_numeric_groups(audit):
        return f"ranges of {each}"
    if each.endswith("y") and each[-2:-1] not in "aeiou":
        return each[:-1] + "ies"
    return each + ("es" if each.endswith(("s", "x", "ch")) else "s")


def _describe_all(count: int, audit: GroupedAudit) -> str:
    return f"both {plural_group_noun(audit)}" if count == 2 else f"all {count} {plural_group_noun(audit)}"


def _extreme_segments(values: Sequence[float], shown: Sequence[str]) -> list[tuple[int, int]]:
    """The legs from the first group over the least and the greatest to the last."""
    last = len(values) - 1
    turns = sorted({0, int(np.argmin(values)), int(np.argmax(values)), last})
    turns = [i for i in turns if i in (0, last) or (shown[i] != shown[0] and shown[i] != shown[last])]
    return list(itertools.pairwise(turns))


def _is_monotone(values: Sequence[float], shown: Sequence[str], legs: Sequence[tuple[int, int]]) -> bool:
    """Whether each leg goes up all the way, or down all the way, and is to be seen in three digits."""
    return all(
        shown[a] != shown[b] and bool(np.all(np.diff(values[a : b + 1]) * (values[b] - values[a]) >= 0))
        for a, b in legs
    )


def _describe_trend(
    values: Sequence[float], shown: Sequence[str], names: Sequence[str], legs: Sequence[tuple[int, int]]
) -> str:
    told = []
    for i, (a, b) in enumerate(legs):
        start = "" if i else f" from {shown[a]} in {names[a]}"
        told.append(f"{'rises' if values[b] > values[a] else 'falls'}{start} to {shown[b]} in {names[b]}")
    return "".join(interleave_separators(told))


def _describe_extremes(
    values: Sequence[float], shown: Sequence[str], names: Sequence[str], audit: GroupedAudit, *, ends: bool = False
) -> str:
    """Who has most and least, and what the first and the last have if they are to be told: one after the other."""
    told: dict[int, str] = {}
    for word, at in (("highest", int(np.argmax(values))), ("lowest", int(np.argmin(values)))):
        who = [i for i, each in enumerate(shown) if each == shown[at]]
        told[who[0]] = f"{word} in {_list_groups([names[i] for i in who], audit)} ({shown[at]})"
    for i in (0, len(values) - 1) if ends else ():
        if shown[i] not in (shown[int(np.argmax(values))], shown[int(np.argmin(values))]):
            told[i] = f"{shown[i]} in {names[i]}"
    return "is " + "".join(interleave_separators([told[i] for i in sorted(told)]))


def _list_groups(names: Sequence[str], audit: GroupedAudit) -> str:
    if len(names) > _MAX_LISTED:
        return f"{len(names)} {plural_group_noun(audit)}"
    return "".join(interleave_separators(names))
