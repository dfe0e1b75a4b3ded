"""Write a threshold as a headline, a paragraph and text for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from isoscope._report.narrate import format_confidence
from isoscope._report.terminal import Paragraph, to_plain_text
from isoscope.advising.task import PLURALS
from isoscope.auditing.finding import format_number
from isoscope.thresholding.cuts import LEAST_RECALL, MOST_MORE
from isoscope.thresholding.tails import MIN_PASSED, NEARLY_ONE, TESTS, TOLERANCE

if TYPE_CHECKING:
    from rich.console import RenderableType

    from isoscope.thresholding.cuts import Share
    from isoscope.thresholding.threshold_result import Threshold

SCORE_NAMES = {"precision": "precision", "recall": "recall", "f1": "F1"}
"""The names of the measures in a sentence."""
VERDICT_COLORS = {"cut": "green", "no cut": "red", "undecided": "yellow"}
_WIDTH = 80
_OTHER_CUTS = {"precision": "Lower", "recall": "Higher"}
_FEW_FOUND = 0.5  # the headline states a lower recall, or a lower precision of a threshold for recall
_TIED = 0.9  # if equal cosines make the rate lower than this share of the requested one, it is "at most"
_FEW = 0.001  # smaller shares are written as "1 in 10,000"


def format_cut(found: Threshold, value: float | None) -> str:
    """Return a cosine with as many digits as its interval justifies; thresholds from judgments are round numbers."""
    if value is None:
        return "–"
    if found.tail is None:
        text = f"{value:.6g}"
    else:
        ends = [end for end in (found.low, found.high) if end is not None]
        width = max(ends) - min(ends) if len(ends) > 1 else 0.01
        digits = min(max(2 - math.floor(math.log10(max(width, 1e-9))) - 1, 2), 6)
        text = f"{value:.{digits}f}"
    return text.replace("-", "−")


def format_share(share: Share) -> str:
    """Return a share and its interval as text, such as 0.94 [0.90, 0.97]."""
    digits = 2 if share.value >= 0.1 else 3
    value, low, high = (f"{each:.{digits}f}" for each in share)
    return f"{value} [{low}, {high}]"


def format_rate(rate: float) -> str:
    """Return a rate as text.

    >>> format_rate(1e-4), format_rate(0.02)
    ('1 in 10,000', '2%')
    """
    return f"1 in {round(1 / rate):,}" if rate <= _FEW else f"{100 * rate:.3g}%"


def format_frequency(share: float) -> str:
    """Return the share of matches as a percentage with two digits."""
    return f"{100 * share:.2g}%" if share < 0.995 else format_number(share, "share")


def describe_population(found: Threshold) -> str:
    """Return the pairs that the threshold was chosen on, and the share of matches among them."""
    if found.matches is None:
        what = "pairs of a query and a row" if found.kind == "random results" else "pairs of rows"
        return f"{found.pairs:,} random {what}"
    left_out = found.n - found.examples  # rows whose label no other row has, and rows outside the sample
    examples = f"{found.examples:,} {f'of {found.n:,} ' if left_out > 0 else ''}rows"
    where = {
        "pairs": f"{found.pairs:,} judged pairs",
        "queries": f"{found.pairs:,} pairs of a query and a document, from {found.examples:,} queries",
        "labels": f"{found.pairs:,} pairs of rows, from {examples}",
    }[found.kind]
    are = "is a match" if found.matches == 1 else "are matches"
    return f"{where}; {found.matches:,} ({format_frequency(found.matches / found.pairs)}) {are}"


def threshold_headline(found: Threshold) -> str:
    """Return the answer in one sentence."""
    cut, examples = format_cut(found, found.cut), f"{found.examples:,} {PLURALS[found.example]}"
    confidence = format_confidence(found.settings.confidence)
    if found.goal == "false matches":
        assert found.level is not None
        what = "random pairs of a query and a row" if found.kind == "random results" else "random pairs"
        rate = format_rate(found.level) + ("" if found.level <= _FEW else " of")
        if found.cut is None:
            if _has_copies(found):
                return f"No threshold has this false-match rate: more than {rate} {what} are copies of each other."
            return f"No threshold has this false-match rate: more than {rate} {what} share the highest cosine."
        verb = "has" if found.level <= _FEW else "have"
        if found.tail is not None and found.tail.rate is not None and found.tail.rate.value < _TIED * found.level:
            rate = f"At most {rate}"
        return f"{rate} {what} {verb} a cosine of at least {cut}."
    if found.verdict == "undecided":
        question = f"{examples} are too few to decide whether any threshold reaches a {found.goal} of {found.level:g}"
        if found.needed is None:
            return f"{question}; more than {MOST_MORE:,} times as many would be needed."
        return f"{question}; about {found.needed:,} would be enough."
    if found.verdict == "no cut":
        if found.goal == "precision":
            return (
                "No threshold separates matches from other pairs: none that finds at least "
                f"{100 * LEAST_RECALL:g}% of the matches reaches a precision of {found.level:g}."
            )
        return (
            "No threshold separates matches from other pairs: above the best threshold, matches are not significantly "
            "more frequent than among all pairs."
        )
    if found.goal == "precision":
        return (
            f"A cosine of at least {cut} means a match: at least {100 * (found.level or 0):.3g}% of such pairs are "
            f"matches, with {confidence} confidence.{_describe_price(found, 'recall')}"
        )
    if found.goal == "recall":
        return (
            f"At least {100 * (found.level or 0):.3g}% of the matches have a cosine of at least {cut}, with "
            f"{confidence} confidence.{_describe_price(found, 'precision')}"
        )
    return f"A cosine of at least {cut} has the best F1: {found.scores['f1'].value:.2f} on held-out examples."


def _describe_price(found: Threshold, measure: str) -> str:
    """Return a sentence on the measure that is not the goal if it is low; empty otherwise."""
    share = found.scores[measure].value
    if share >= _FEW_FOUND:
        return ""
    if measure == "recall":
        return f" It finds only {format_frequency(share)} of all matches."
    return f" Only {format_frequency(share)} of such pairs are matches."


def threshold_paragraph(found: Threshold) -> str:
    """Return the answer and its evidence in a few sentences."""
    sentences = [threshold_headline(found)]
    sentences += _describe_tail(found) if found.goal == "false matches" else _describe_judged(found)
    return " ".join(sentences)


def _highest_cosine(found: Threshold) -> float:
    assert found.tail is not None
    return float(found.tail.curve[0].max())


def _has_copies(found: Threshold) -> bool:
    """Return whether the pairs with the highest cosine are copies."""
    return _highest_cosine(found) > NEARLY_ONE


def _describe_tail(found: Threshold) -> list[str]:
    tail, confidence = found.tail, format_confidence(found.settings.confidence)
    assert tail is not None
    if found.cut is None:
        have = "has" if tail.count == 1 else "have"
        if _has_copies(found):
            return [f"{tail.count:,} of {tail.pairs:,} pairs {have} a cosine of 1. Remove duplicate rows first."]
        highest = f"{_highest_cosine(found):.4g}".replace("-", "−")
        return [
            f"{tail.count:,} of {tail.pairs:,} pairs {have} a cosine of {highest}, and none has a higher one. Request "
            f"a rate of at least {tail.count / tail.pairs:.2g}."
        ]
    between = f"between {format_cut(found, found.low)} and {format_cut(found, found.high)}"
    if tail.passed is None:
        assert tail.rate is not None
        return [
            f"This is an exact count: {tail.count:,} of {tail.pairs:,} pairs {'is' if tail.count == 1 else 'are'} "
            "above the threshold. For other rows from "
            f"the same source, the threshold lies {between} ({confidence} interval over rows)."
        ]
    return [
        f"This is an extrapolation: the {tail.pairs:,} pairs are too few to count such a rate. The same extrapolation "
        f"from random parts of the rows predicted the rate within a factor of {TOLERANCE:g} in {tail.passed} of "
        f"{TESTS} tests, and within a factor of {tail.factor:.2g} in {MIN_PASSED:.0%} of all tests. With errors of "
        f"this size, the threshold would lie {between}."
    ]


def _describe_judged(found: Threshold) -> list[str]:
    examples = PLURALS[found.example]
    sentences = []
    if found.verdict == "cut":
        scores = found.scores
        sentences.append(
            f"On held-out {examples}, precision is {format_share(scores['precision'])}, recall "
            f"{format_share(scores['recall'])} and F1 {format_share(scores['f1'])}."
        )
        sentences.append(_describe_interval(found))
    elif found.best is not None and not (found.verdict == "no cut" and found.goal != "precision"):
        cut, share = found.best
        useful = f" that finds at least {100 * LEAST_RECALL:g}% of the matches" if found.goal == "precision" else ""
        sentences.append(
            f"The best threshold{useful} is {format_cut(found, cut)}: its {SCORE_NAMES[found.goal]} is "
            f"{format_share(share)}, and {found.level:g} is requested."
        )
        if found.level is not None and share.low >= found.level:
            sentences.append(
                "This interval is that of one threshold alone. Several thresholds are tested, so the guarantee needs "
                "more examples."
            )
    elif found.best is not None and found.lift is not None:
        sentences.append(
            f"At the best threshold, {format_cut(found, found.best[0])}, the precision on held-out {examples} exceeds "
            f"the share of matches by {found.lift.value:.3f} [{found.lift.low:.3f}, {found.lift.high:.3f}]."
        )
    frequency = format_frequency(found.share or 0.0)
    sentences.append(
        f"This holds for pairs like these, of which {frequency} are matches: if matches are rarer, precision is lower."
        if found.verdict == "cut"
        else f"Of the {found.pairs:,} pairs, {frequency} are matches."
    )
    if found.verdict == "cut" and found.goal == "precision" and found.lift is not None and not found.lift.low > 0:
        sentences.append("Without any threshold, precision would be as high: the cosine does not help to find matches.")
    sentences += _describe_relative(found)
    return sentences


def _describe_interval(found: Threshold) -> str:
    confidence = format_confidence(found.settings.confidence)
    low, high = format_cut(found, found.low), format_cut(found, found.high)
    if found.goal == "f1":
        return f"Thresholds from {low} to {high} have an F1 that is not significantly lower."
    exact = f"The threshold with a {found.goal} of exactly {found.level:g} lies"
    if found.low is None or found.high is None:
        bound = f"above {low}" if found.high is None else f"below {high}"
        return f"{exact} {bound} ({confidence} interval)."
    return f"{exact} between {low} and {high} ({confidence} interval)."


def _describe_relative(found: Threshold) -> list[str]:
    relative = found.relative
    if relative is None:
        return []
    if relative.gap is None:
        words = {
            "no cut": "A threshold relative to the best result of each query does not reach the goal either.",
            "undecided": "The queries are too few to decide whether a threshold relative to the best result of each "
            "query reaches the goal" + (f"; about {relative.needed:,} would be enough." if relative.needed else "."),
        }
        text = words[relative.verdict]
        return [text if found.verdict != "cut" else text.replace(" either", "")]
    scores = relative.scores
    return [
        f"Results whose cosine is at most {relative.gap:.6g} below the best result of their query have a precision of "
        f"{format_share(scores['precision'])}, a recall of {format_share(scores['recall'])} and an F1 of "
        f"{format_share(scores['f1'])} on held-out queries."
    ]


# terminal


def render_threshold_text(found: Threshold) -> str:
    """Return the threshold as plain text."""
    return to_plain_text(render_threshold(found), _WIDTH)


def render_threshold(found: Threshold) -> Group:
    """Return the threshold for rich's console: the verdict first, then the scores."""
    layer = "" if found.settings.layer is None else f", layer {found.settings.layer}"
    headline = threshold_headline(found)
    parts: list[RenderableType] = [
        Paragraph(headline, f"bold {VERDICT_COLORS[found.verdict]}"),
        Text(),
        Text.assemble((found.source, "bold"), f"  {found.n:,} × {found.d}{layer}"),
    ]
    table = _build_table(found)
    evidence = found.paragraph.removeprefix(headline).strip()
    if table is None:
        parts += [Text(), Paragraph(evidence)]
    else:
        parts += [Text(), Text(f"Scores on held-out {PLURALS[found.example]}:"), table]
    parts += [Text(), Paragraph(f"Pairs: {describe_population(found)}.", "dim")]
    if found.verdict == "cut" and found.matches is not None:
        parts.append(Paragraph("Precision depends on the share of matches: if matches are rarer, it is lower.", "dim"))
        if found.goal in _OTHER_CUTS:
            side, goal = _OTHER_CUTS[found.goal], f"{100 * (found.level or 0):.3g}%"
            parts.append(Paragraph(f"{side} thresholds may also reach {goal}, but this data cannot prove it.", "dim"))
    parts += [Paragraph(note, "dim") for note in found.notes]
    return Group(*parts)


def _build_table(found: Threshold) -> Table | None:
    """Return the held-out scores of the threshold and of the relative threshold; None if neither has scores."""
    rows = []
    if found.scores:
        interval = f"{format_cut(found, found.low)} … {format_cut(found, found.high)}"
        rows.append((f"cosine ≥ {format_cut(found, found.cut)}", interval, found.scores))
    if found.relative is not None and found.relative.scores:
        rows.append((f"within {found.relative.gap:.6g}\nof the best result", "", found.relative.scores))
    if not found.scores:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    confidence = format_confidence(found.settings.confidence)
    table.add_column("threshold", no_wrap=True)
    table.add_column(f"{confidence} interval\nof the threshold", no_wrap=True)
    for name in SCORE_NAMES.values():
        table.add_column(name, no_wrap=True)
    for name, interval, scores in rows:
        cells = []
        for measure in SCORE_NAMES:
            share = scores[measure]
            digits = 2 if share.value >= 0.1 else 3
            cells.append(
                Text.assemble(
                    (f"{share.value:.{digits}f}", "bold"), (f"\n{share.low:.{digits}f}–{share.high:.{digits}f}", "dim")
                )
            )
        table.add_row(Text(name), Text(interval), *cells)
    return table
