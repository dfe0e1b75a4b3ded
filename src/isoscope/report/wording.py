"""The advice in plain words: what to do, what it gains, what it costs, how sure that is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isoscope.report.advice import Advice, Score, Trial

LABEL_FREE = (
    "Nothing was said of what the vectors are for, and this evidence is weak: it asks whether two halves of the "
    "coordinates find the same neighbours, not whether they are the right ones. Give pairs, queries or labels before "
    "you re-index anything."
)
"""How far to trust an advice that was given without a task."""


def paragraph(advice: Advice) -> str:
    """What to do and why, in a few sentences."""
    sentences = _leave_alone(advice) if advice.leaves_alone else _use(advice)
    sentences += _conflicts(advice)
    if label_free(advice):
        sentences.append(LABEL_FREE)
    return " ".join(sentences)


def headline(advice: Advice) -> str:
    """What to do, with which the paragraph begins."""
    if advice.leaves_alone:
        return "Leave the vectors as they are."
    return f"{advice.choice.name} may help." if label_free(advice) else f"Use {advice.choice.name}."


def label_free(advice: Advice) -> bool:
    """Whether nothing was known of what the vectors are for."""
    return advice.measure == "stability"


def _use(advice: Advice) -> list[str]:
    score, before = advice.choice[advice.measure], advice.trials[0][advice.measure]
    others = len(advice.trials) - 1
    said = [
        headline(advice),
        f"On {_examples(advice)}{_held_out(advice)}, {advice.measures[advice.measure]} rises from "
        f"{before.value:.3f} to {score.value:.3f}: a gain of {score.gain:.3f} {span(score)}, at "
        f"{_confidence(advice)} confidence, {_tried(others)}.",
    ]
    best = advice.trials[advice.best]
    if advice.best != advice.chosen and advice.choice.near_best:
        simple = ", and is less simple" if advice.best > advice.chosen else ""
        said.append(f"{best.name} scores highest ({best[advice.measure].value:.3f}), but not beyond the noise{simple}.")
    said.append(
        f"Choosing on some of the {_plural(advice)} and judging on the others, in turn, gained {advice.blind_gain:.3f}."
    )
    return said


def _held_out(advice: Advice) -> str:
    from isoscope.advising.task import FITTED_TO_ALL

    return "" if FITTED_TO_ALL in advice.notes else " that had no part in fitting it"


def _leave_alone(advice: Advice) -> list[str]:
    measure, before = advice.measure, advice.trials[0][advice.measure]
    others = advice.trials[1:]
    said = [headline(advice)]
    where = f"On {_examples(advice)} {advice.measures[measure]} is {before.value:.3f} as it is;"
    if not others:
        return [*said, f"{where} nothing else was tried."]
    count = f"of {len(others)} {'repair' if len(others) == 1 else 'repairs'}"
    if any(trial[measure].verdict == "gain" for trial in others):
        said.append(f"{where} {count} none surely gains that does not surely lose by another measure.")
    else:
        best = max(others, key=lambda trial: trial[measure].value)
        said.append(
            f"{where} {count} none surely gains (the best, {best.name}: {signed(best[measure].gain)} "
            f"{span(best[measure])}, at {_confidence(advice)} confidence, {_tried(len(others))})."
        )
    losing = [trial for trial in others if trial[measure].verdict == "loss"]
    if losing:
        worst = min(losing, key=lambda trial: trial[measure].gain)
        lose = "One surely loses" if len(losing) == 1 else f"{len(losing)} surely lose"
        said.append(f"{lose}, {worst.name} most: {signed(worst[measure].gain)} {span(worst[measure])}.")
    return said


def _conflicts(advice: Advice) -> list[str]:
    """Where another measure, or isotropy itself, points elsewhere."""
    said = _vetoed(advice)
    for name, words in advice.measures.items():
        if name == advice.measure:
            continue
        mine = advice.choice[name]
        if mine.verdict != "noise":
            so = "But by {} it loses" if mine.verdict == "loss" else "By {} it gains too"
            said.append(f"{so.format(words)}: {signed(mine.gain)} {span(mine)}.")
            continue
        best = max(advice.trials, key=lambda trial: trial[name].value)
        if best[name].verdict == "gain" and mine.verdict != "gain":
            said.append(
                f"By {words} {best.name} gains {best[name].gain:.3f} {span(best[name])}: if that is what you do, ask "
                f"for it (measure {name})."
            )
    even = _most_isotropic(advice)
    if even is not None and advice.leaves_alone and even[advice.measure].verdict == "loss":
        score = even[advice.measure]
        said.append(
            f"Isotropy for its own sake would cost: {even.name} has the most even space (IsoScore "
            f"{even.shape['isoscore']:.2f}, {advice.trials[0].shape['isoscore']:.2f} as it is) and loses "
            f"{-score.gain:.3f}."
        )
    return said


def _vetoed(advice: Advice) -> list[str]:
    """A repair that gains more than the choice by the measure that decides, and loses by another."""
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
        f"{best.name} gains {best[measure].gain:.3f} {span(best[measure])} by {advice.measures[measure]}, but loses "
        f"{-score.gain:.3f} by {advice.measures[name]}: if that does not matter to you, ask for it (measure {measure})."
    ]


def _most_isotropic(advice: Advice) -> Trial | None:
    """The candidate with the most even space; None if that of the vectors as they are was not measured."""
    measured = [trial for trial in advice.trials if math.isfinite(trial.shape.get("isoscore", math.nan))]
    if advice.trials[0] not in measured:
        return None
    return max(measured, key=lambda trial: trial.shape["isoscore"])


def span(score: Score) -> str:
    """The interval of a gain."""
    return f"[{signed(score.low)}, {signed(score.high)}]"


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(0.0312), signed(-0.5), signed(-0.0001), signed(0.00001)
    ('+0.031', '−0.500', '−0.0001', '0.000')
    """
    digits = 4 if 0.00005 <= abs(value) < 0.0005 else 3  # not a round 0 beside a verdict that says it is none
    text = f"{value:+.{digits}f}".replace("-", "−")
    return "0.000" if text in ("+0.000", "−0.000") else text


def _tried(count: int) -> str:
    return "with one repair tried" if count == 1 else f"corrected for having tried {count}"


def _confidence(advice: Advice) -> str:
    return f"{100 * advice.settings.confidence:g}%"


def _examples(advice: Advice) -> str:
    return f"{advice.examples:,} {_plural(advice)}"


def _plural(advice: Advice) -> str:
    return {"pair": "pairs", "query": "queries", "row": "rows"}[advice.example]
