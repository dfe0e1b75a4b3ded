"""The decision: which candidate is the smallest that keeps the share of the score, and how many examples decide it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from isoscope._core.errors import InputError
from isoscope.advising.inference import Scores, compare_candidates

if TYPE_CHECKING:
    from isoscope.advising.inference import Gains
    from isoscope.compressing.trials import Trials

KeptVerdict = Literal["keeps", "loses", "undecided"]
"""Whether a candidate keeps the share of the score, with simultaneous confidence."""
Outcome = Literal["smaller", "undecided", "none"]
"""Whether a smaller candidate keeps the share, this is undecided, or none keeps it."""

CONFIDENCE = 0.95
"""The confidence of all lower bounds together, and of all upper bounds together."""
MOST_EXAMPLES = 1_000_000
"""The largest number of needed examples that is computed."""

_UNSEEN = 3  # with 95% confidence, at most 3 of n examples are of a kind that none of n examples was
_LEAST_LOSS = 0.1  # the loss on such an example: one of ten results


@dataclass(frozen=True)
class Kept:
    """A candidate's score on one measure, and the share of the original score that it keeps."""

    value: float
    share: float
    low: float
    high: float
    """The bounds of the share; each is simultaneous over all candidates."""
    verdict: KeptVerdict
    examples: int
    """The number of examples that the candidate was scored on."""
    needed: int | None = None
    """If undecided: about how many examples would be enough; None if more than 1,000,000, or if decided."""


def compare_shares(trials: Trials, keep: float, measures: Sequence[str]) -> dict[str, list[Kept]]:
    """Return the share of the score that each candidate keeps on each measure, with simultaneous bounds.

    Candidates that were scored on the first examples only are compared on those, and the others on all examples.
    """
    full = [0, *(i + 1 for i, stopped in enumerate(trials.stopped) if not stopped)]
    found = _compare(trials.scores, keep, measures, full, None)
    if any(trials.stopped):
        first = np.flatnonzero(np.isfinite(trials.scores.values[measures[0]]).all(axis=1))
        early = _compare(trials.scores, keep, measures, list(range(len(trials.stopped) + 1)), first)
        found = {measure: early[measure] | found[measure] for measure in measures}
    shares = {measure: [of[i + 1] for i in range(len(trials.candidates))] for measure, of in found.items()}
    for of in shares.values():
        of[-1] = Kept(of[-1].value, 1.0, 1.0, 1.0, "keeps", of[-1].examples)  # the vectors themselves
    return shares


def compare_extended(trials: Trials, columns: Mapping[int, np.ndarray], keep: float, measure: str) -> dict[int, Kept]:
    """Return the share that each candidate keeps, given additional scores with one column per candidate position.

    The bounds are simultaneous over these columns and over all candidates that were scored on all examples.
    """
    values = trials.scores.values[measure]
    width = values.shape[1]
    scores = Scores({measure: np.column_stack([values, *columns.values()])}, {}, trials.scores.units)
    full = [0, *(i + 1 for i, stopped in enumerate(trials.stopped) if not stopped)]
    found = _compare(scores, keep, [measure], [*full, *range(width, width + len(columns))], None)[measure]
    return {position: found[width + i] for i, position in enumerate(columns)}


def _compare(
    scores: Scores, keep: float, measures: Sequence[str], columns: list[int], examples: np.ndarray | None
) -> dict[str, dict[int, Kept]]:
    """Return the shares of some columns of the scores on some examples."""
    chosen = np.arange(len(scores)) if examples is None else examples
    scaled = Scores(
        {measure: _scale_first(scores.values[measure][:, columns], keep) for measure in measures},
        {m: _scale_first(scores.repeats[m][:, columns], keep) for m in measures if m in scores.repeats},
        scores.units,
        scores.variance_factors,
    )
    gains = compare_candidates(scaled, 2 * CONFIDENCE - 1, measures, chosen)  # two bounds of 95% each
    count = scores.units.effective_count(chosen)
    found: dict[str, dict[int, Kept]] = {}
    for measure, of in gains.items():
        original = float(scores.values[measure][chosen, 0].mean())
        found[measure] = {
            column: _judge(of, i, original, keep, len(chosen), count)
            for i, column in enumerate(columns)
            if column  # the first one is only the reference
        }
    return found


def _scale_first(values: np.ndarray, keep: float) -> np.ndarray:
    """Return the scores with the first column, that of the original vectors, multiplied by the share to keep."""
    return np.column_stack([keep * values[:, 0], values[:, 1:]])


def _judge(gains: Gains, i: int, original: float, keep: float, examples: int, count: float) -> Kept:
    """Return the share that a candidate keeps, given its gain over the share of the original score."""
    gain, value = float(gains.gains[i]), float(gains.scores[i])
    # no fewer losses than the rule of three allows for, even if the sample contains none
    margin = max(gain - float(gains.low[i]), _UNSEEN * _LEAST_LOSS * original / count)
    low, high = keep + (gain - margin) / original, keep + (gain + margin) / original
    high = min(high, 1.0) if original == 1 else high  # recall cannot exceed 1
    verdict: KeptVerdict = "keeps" if low >= keep else "loses" if high < keep else "undecided"
    needed = None
    if verdict == "undecided":
        needed = needed_examples(examples, margin, gain)
    return Kept(value, value / original, low, high, verdict, examples, needed)


def needed_examples(examples: int, margin: float, gain: float) -> int | None:
    """Return about how many examples make a margin smaller than the gain, to two digits; None if more than a million.

    The margin shrinks with the square root of the number of examples.

    >>> needed_examples(225, 0.02, 0.01)
    900
    """
    ratio = margin / abs(gain) if gain else math.inf
    needed = examples * ratio**2 if ratio < MOST_EXAMPLES else math.inf
    if needed > MOST_EXAMPLES:
        return None
    unit = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return int(math.ceil(needed / unit) * unit)


def check_original(original: float, measure: str) -> None:
    """Raise an error if no share of the original score can be kept."""
    if not original > 0:
        raise InputError(
            f"the original vectors score {original:.3g} on {measure}: need a positive score to keep a share of it; "
            "check the judgments, or choose another measure"
        )


def is_kept(of: dict[str, Kept], measure: str) -> bool:
    """Return whether a candidate keeps the share on the deciding measure, and not significantly less on any other."""
    return of[measure].verdict == "keeps" and all(each.verdict != "loses" for each in of.values())


def is_lost(of: dict[str, Kept], measure: str) -> bool:
    """Return whether a candidate keeps significantly less than the share on some measure."""
    return any(each.verdict == "loses" for each in of.values())


def choose(
    sizes: Sequence[tuple[int, int]], kept: Sequence[dict[str, Kept]], allowed: Sequence[bool], measure: str
) -> tuple[Outcome, int | None]:
    """Return the outcome, and the position of the smallest allowed candidate that keeps the share, if any.

    `sizes` are the sizes of the candidates, which are sorted by them.
    """
    positions = [i for i, may in enumerate(allowed) if may]
    keeping = [i for i in positions if is_kept(kept[i], measure)]
    if keeping:
        return "smaller", min(keeping, key=lambda i: sizes[i])
    return ("none" if all(is_lost(kept[i], measure) for i in positions) else "undecided"), None
