"""Sentences that summarize an advice, an audit by groups and a training run."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isoscope._report.audit_page import interleave_separators
from isoscope._report.profile import format_layer_name
from isoscope.advising.task import PLURALS
from isoscope.auditing.finding import format_number
from isoscope.training.layer_metrics import effective_dimensions

if TYPE_CHECKING:
    from isoscope.advising.advise import Advice, Score, Trial
    from isoscope.auditing.grouped import GroupedAudit, Series
    from isoscope.training.history import Runs, StepSeries


LABEL_FREE_WARNING = (
    "This evidence is weak: without a task, isoscope can only test whether two halves of the coordinates find the same "
    "neighbors, not whether these are the right ones. Give pairs, queries or labels before you re-index anything."
)
"""The caution on advice that was given without a task."""


def advice_paragraph(advice: Advice) -> str:
    """Return what to do and why, in a few sentences."""
    sentences = [advice_headline(advice)]
    sentences += _describe_no_repair(advice) if advice.leaves_vectors_unchanged else _describe_choice(advice)
    sentences += _describe_stability(advice)
    sentences += _describe_conflicts(advice)
    if is_label_free(advice):
        sentences.append(LABEL_FREE_WARNING)
    return " ".join(sentences)


def advice_headline(advice: Advice) -> str:
    """Return the advice in one sentence, with the measure that decided and the gain to expect."""
    if advice.leaves_vectors_unchanged and advice.best:
        best = advice.trials[advice.best].name
        return (
            f"Leave the vectors as they are: the gain of {best} in {advice.measures[advice.measure]} is not reliable."
        )
    if advice.leaves_vectors_unchanged:
        return f"Leave the vectors as they are: no repair improves {_list_measures(advice)} significantly."
    measure, gain = advice.measures[advice.measure], advice.promised_gain
    verb = f"{advice.choice.name} may help" if is_label_free(advice) else f"Use {advice.choice.name}"
    if gain < 0.0005:
        return f"{verb}: {measure} improves significantly, but selection on parts of the examples gained nothing."
    return f"{verb}: expect {measure} to rise by about {gain:.3f}."


def is_label_free(advice: Advice) -> bool:
    """Return whether the advice was given without a task."""
    return advice.measure == "stability"


def _list_measures(advice: Advice) -> str:
    """Return the measures that had a say, as a list with "or"."""
    words = [advice.measures[advice.measure]] if advice.alone else list(advice.measures.values())
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _describe_choice(advice: Advice) -> list[str]:
    score, before = advice.choice[advice.measure], advice.trials[0][advice.measure]
    said = [
        f"That is the mean gain on {PLURALS[advice.example]} that took no part in selecting the repair.",
        f"On all {_format_examples(advice)} it rises from {before.value:.3f} to {score.value:.3f}, by "
        f"{format_signed(score.gain)} "
        f"({_format_confidence(advice)} interval {format_interval(score)}, "
        f"{_describe_correction(len(advice.trials) - 1)}).",
    ]
    best = advice.trials[advice.best]
    if advice.best != advice.chosen:
        said.append(
            f"{best.name} gains most ({format_signed(best[advice.measure].gain)}); {advice.choice.name} "
            "is simpler and within "
            "a tenth of that."
        )
    return said


def _describe_no_repair(advice: Advice) -> list[str]:
    measure, before = advice.measure, advice.trials[0][advice.measure]
    others = advice.trials[1:]
    where = f"On {_format_examples(advice)}, {advice.measures[measure]} is {before.value:.3f}"
    if not others:
        return [f"{where}; no repair was tried."]
    if advice.best:
        best = advice.trials[advice.best]
        said = [
            f"{where}; {best.name} raises it by {format_signed(best[measure].gain)} "
            f"({_format_confidence(advice)} interval "
            f"{format_interval(best[measure])}), but most selections on parts of the "
            f"{PLURALS[advice.example]} leave them alone."
        ]
    elif any(trial[measure].verdict == "gain" for trial in others):
        said = [f"{where}; every repair that improves it significantly loses significantly by another measure."]
    else:
        best = max(others, key=lambda trial: trial[measure].value)
        said = [
            f"{where}; the best of {len(others)} {'repair' if len(others) == 1 else 'repairs'}, {best.name}, changes "
            f"it by {format_signed(best[measure].gain)} ({_format_confidence(advice)} interval "
            f"{format_interval(best[measure])}, "
            f"{_describe_correction(len(others))})."
        ]
    losing = [trial for trial in others if trial[measure].verdict == "loss"]
    if losing:
        worst = min(losing, key=lambda trial: trial[measure].gain)
        lose = "One repair loses" if len(losing) == 1 else f"{len(losing)} repairs lose"
        said.append(
            f"{lose} significantly, {worst.name} most: {format_signed(worst[measure].gain)} "
            f"{format_interval(worst[measure])}."
        )
    return said


def _describe_stability(advice: Advice) -> list[str]:
    """Return how often parts of the examples give the same advice."""
    total = sum(advice.selections.values())
    if not total or len(advice.trials) < 2:
        return []
    same = advice.selections.get(advice.choice.name, 0)
    words = f"{same} of {total} selections on parts of the {PLURALS[advice.example]} agree"
    others = sorted(((count, name) for name, count in advice.selections.items() if name != advice.choice.name))[::-1]
    if others:
        listed = ", ".join(f"{name} {count} times" if count > 1 else f"{name} once" for count, name in others[:3])
        words += f" (others: {listed})"
    if advice.is_stable:
        return [f"{words}."]
    if not advice.leaves_vectors_unchanged and advice.trials[0].name not in advice.selections:
        return [f"Which repair is best is unstable: only {words}; all of them prescribe a repair."]
    return [f"This advice is unstable: only {words}. More {PLURALS[advice.example]} would settle it."]


def _describe_conflicts(advice: Advice) -> list[str]:
    """Return where another measure, or isotropy itself, points elsewhere."""
    said = _describe_excluded(advice)
    for name, words in advice.measures.items():
        if name == advice.measure:
            continue
        mine = advice.choice[name]
        if mine.verdict != "noise":
            so = "However, {} falls" if mine.verdict == "loss" else "{} rises too"
            text = so.format(words)
            said.append(f"{text[0].upper()}{text[1:]}: {format_signed(mine.gain)} {format_interval(mine)}.")
            continue
        best = max(advice.trials, key=lambda trial: trial[name].value)
        if best[name].verdict == "gain":
            said.append(
                f"By {words}, {best.name} gains {best[name].gain:.3f} {format_interval(best[name])}: "
                "request this measure "
                f"({name}) if it matches your use."
            )
    even = _find_most_isotropic(advice)
    if even is not None and advice.leaves_vectors_unchanged and even[advice.measure].verdict == "loss":
        score = even[advice.measure]
        said.append(
            f"The most isotropic space, {even.name} (IsoScore {even.shape['isoscore']:.2f}, before "
            f"{advice.trials[0].shape['isoscore']:.2f}), loses {-score.gain:.3f}."
        )
    return said


def _describe_excluded(advice: Advice) -> list[str]:
    """Return the repair that gains more than the choice by the deciding measure but loses by another."""
    measure = advice.measure
    better = [
        trial
        for trial in advice.trials
        if trial[measure].verdict == "gain" and any(score.verdict == "loss" for score in trial.scores.values())
    ]
    best = max(better, key=lambda trial: trial[measure].value, default=None)
    if best is None or best[measure].value <= advice.choice[measure].value:
        return []
    name, score = min(best.scores.items(), key=lambda item: item[1].gain)
    return [
        f"{best.name} gains {best[measure].gain:.3f} {format_interval(best[measure])} by "
        f"{advice.measures[measure]} but loses "
        f"{-score.gain:.3f} by {advice.measures[name]}: request the measure {measure} if that loss does not matter."
    ]


def _find_most_isotropic(advice: Advice) -> Trial | None:
    """Return the candidate with the highest IsoScore; None if that of the original vectors is unknown."""
    measured = [trial for trial in advice.trials if math.isfinite(trial.shape.get("isoscore", math.nan))]
    if advice.trials[0] not in measured:
        return None
    return max(measured, key=lambda trial: trial.shape["isoscore"])


def format_interval(score: Score) -> str:
    """Return the interval of a gain as text."""
    return f"[{format_signed(score.low)}, {format_signed(score.high)}]"


def format_signed(value: float) -> str:
    """Return a difference as text with its sign.

    >>> format_signed(0.0312), format_signed(-0.5), format_signed(-0.0001), format_signed(0.00001)
    ('+0.031', '−0.500', '−0.0001', '0.000')
    """
    digits = 4 if 0.00005 <= abs(value) < 0.0005 else 3  # a significant difference is not shown as 0
    text = f"{value:+.{digits}f}".replace("-", "−")
    return "0.000" if text in ("+0.000", "−0.000") else text


def _describe_correction(count: int) -> str:
    return "one repair tried" if count == 1 else f"corrected for {count} repairs tried"


def _format_confidence(advice: Advice) -> str:
    return f"{100 * advice.settings.confidence:g}%"


def _format_examples(advice: Advice) -> str:
    return f"{advice.examples:,} {PLURALS[advice.example]}"


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


MEASUREMENT_LABELS = {
    **{f"anisotropy_{k}": f"anisotropy_{k}" for k in (1, 2, 3)},
    **{f"anisotropy_{k}_centred": f"anisotropy_{k}, centred" for k in (1, 2, 3)},
    "isoscore_unbiased": "IsoScore, unbiased",
    "isoscore": "IsoScore, plug-in",
    "mean_cosine": "mean cosine",
    "two_nn": "TwoNN dimension",
    "silhouette": "silhouette of the classes",
}
"""The measurements in the words of the page, in its order."""

_MIN_RELATIVE_CHANGE = 0.03  # of the larger end: less is no change to speak of
_MIN_CHANGE = 0.005  # nor is this, however small the ends are


class LineChange(NamedTuple):
    """From the first number that could be had to the last."""

    before: float
    after: float

    @property
    def verb(self) -> str:
        """Rose, fell or stayed."""
        if not self.is_known or abs(self.after - self.before) <= max(
            _MIN_RELATIVE_CHANGE * max(abs(self.after), abs(self.before)), _MIN_CHANGE
        ):
            return "stayed"
        return "rose" if self.after > self.before else "fell"

    @property
    def is_known(self) -> bool:
        """Whether there is a number at all."""
        return math.isfinite(self.before) and math.isfinite(self.after)

    def __str__(self) -> str:
        if self.verb == "stayed":
            return f"stayed at {format_number(self.after)}"
        return f"{self.verb} from {format_number(self.before)} to {format_number(self.after)}"


def measure_change(line: StepSeries) -> LineChange:
    """How a line went, from its first number to its last."""
    known = line.values[np.isfinite(line.values)]
    return LineChange(float(known[0]), float(known[-1])) if len(known) else LineChange(math.nan, math.nan)


def training_headline(runs: Runs) -> str:
    """What happened, in one sentence."""
    layer = runs.layers[-1]
    if len(runs.arms) == 1:
        arm = next(iter(runs.arms))
        moved = measure_change(runs.mean(arm, layer, "anisotropy_1"))
        if not moved.is_known and not len(runs.mean(arm, layer, "anisotropy_1").steps):
            return "The runs were measured at no step in common."
        if not moved.is_known:
            return f"anisotropy_1 of {format_last_layer(layer)} could not be measured: its states are zero, or too few."
        return f"anisotropy_1 of {format_last_layer(layer)} {moved}."
    ends = {arm: float(np.mean(runs.late(arm, layer, "anisotropy_1"))) for arm in runs.arms}
    ends = {arm: value for arm, value in ends.items() if math.isfinite(value)}
    if len(ends) < 2:
        return f"anisotropy_1 of {format_last_layer(layer)} could not be measured in most arms."
    low, high = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return (
        f"anisotropy_1 of {format_last_layer(layer)} ends between {format_number(ends[low])} ({low}) and "
        f"{format_number(ends[high])} ({high})."
    )


def training_paragraph(runs: Runs) -> str:
    """More of the last layer: how it went, or where each arm ends."""
    if len(runs.arms) == 1:
        return _describe_arm(runs, next(iter(runs.arms)))
    sentences = []
    layer, d = runs.layers[-1], _count_dimensions(runs)
    for name, words in (
        ("anisotropy_1_centred", "Centred, it ends at"),
        ("isoscore_unbiased", f"Of {d:,} dimensions the states fill"),
        ("silhouette", "The silhouette of the classes ends at"),
    ):
        ends = {arm: float(np.mean(runs.late(arm, layer, name))) for arm in runs.arms}
        if name == "isoscore_unbiased":
            ends = {arm: effective_dimensions(max(score, 0.0), d) for arm, score in ends.items()}
        known = [f"{format_number(value)} ({arm})" for arm, value in ends.items() if math.isfinite(value)]
        if known:
            sentences.append(f"{words} {', '.join(known)}.")
    return " ".join(sentences)


def _describe_arm(runs: Runs, arm: str) -> str:
    layer = runs.layers[-1]
    moves = {name: measure_change(runs.mean(arm, layer, name)) for name in MEASUREMENT_LABELS}
    score, d = moves["isoscore_unbiased"], _count_dimensions(runs)
    dimensions = LineChange(*(effective_dimensions(max(each, 0.0), d) for each in score))
    told = [
        (moves["anisotropy_1_centred"], "with the mean taken out, it", ""),
        (dimensions, "its effective dimensions", f" of {d:,}"),
        (moves["mean_cosine"], "its mean cosine", ""),
        (moves["silhouette"], "the silhouette of the classes", ""),
    ]
    parts = [f"{words} {moved}{rest}" for moved, words, rest in told if moved.is_known]
    return _capitalize("; ".join(parts)) + "." if parts else ""


def _count_dimensions(runs: Runs) -> int:
    """How many the states of the last layer have."""
    return next(int(row["dimensions"]) for row in runs.all[0] if row["layer"] == runs.layers[-1])


def format_last_layer(layer: str) -> str:
    """The last layer by its name.

    >>> format_last_layer("layer_6")
    'layer 6, the last,'
    """
    return f"{format_layer_name(layer)}, the last,"


def _capitalize(words: str) -> str:
    return words[:1].upper() + words[1:]
