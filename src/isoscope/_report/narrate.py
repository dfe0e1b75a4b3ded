"""The advice in plain English: what to do, the gain to expect, how stable it is, and what speaks against it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from isoscope.advising.task import PLURALS

if TYPE_CHECKING:
    from isoscope.advising.advise import Advice, Score, Trial

LABEL_FREE_WARNING = (
    "This evidence is weak: without a task, isoscope can only test whether two halves of the coordinates find the same "
    "neighbors, not whether these are the right ones. Give pairs, queries or labels before you re-index anything."
)
"""The caution on advice that was given without a task."""


def paragraph(advice: Advice) -> str:
    """Return what to do and why, in a few sentences."""
    sentences = [headline(advice)]
    sentences += _describe_no_repair(advice) if advice.leaves_vectors_unchanged else _describe_choice(advice)
    sentences += _describe_stability(advice)
    sentences += _describe_conflicts(advice)
    if is_label_free(advice):
        sentences.append(LABEL_FREE_WARNING)
    return " ".join(sentences)


def headline(advice: Advice) -> str:
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
