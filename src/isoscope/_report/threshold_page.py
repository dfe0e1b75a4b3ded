"""Render a threshold as an HTML page, with its evidence and the commands that reproduce it, and as a notebook table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.commands import Call, changed_settings, given_inputs, name_source, render_reproduction
from isoscope._report.glossary import render_glossary
from isoscope._report.html import (
    document,
    join_markup,
    render_definition_list,
    render_heading,
    render_main,
    render_notebook_table,
    render_scrollable,
    render_table_head,
    section,
    tag,
)
from isoscope._report.narrate import capitalize, format_confidence
from isoscope._report.svg import Chart, Label, Line, Scale
from isoscope._report.svg_file import render_chart_image
from isoscope._report.threshold_text import (
    SCORE_NAMES,
    describe_population,
    format_cut,
    format_rate,
    format_share,
    threshold_headline,
)
from isoscope.advising.task import PLURALS
from isoscope.thresholding.cuts import LEAST_RECALL, STARTS
from isoscope.thresholding.tails import MIN_COUNT, MIN_PASSED, TESTS, TOLERANCE

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.thresholding.cuts import Share, Shares
    from isoscope.thresholding.threshold_result import Threshold

_INPUTS = {
    "pairs": ("pairs",),
    "queries": ("queries", "qrels"),
    "labels": ("labels",),
    "random pairs": (),
    "random results": ("queries",),
}
_IDS = ("ids", "query_ids")
_SETTINGS = (
    *("precision", "recall", "f1", "match_from", "false_matches"),
    *("folds", "sample", "seed", "missing", "zeros", "layer"),
)


def render_threshold_page(found: Threshold) -> str:
    """Return the threshold and its evidence as a self-contained HTML document.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1200, 8))
    >>> render_threshold_page(isoscope.threshold(X))[:15]
    '<!doctype html>'
    """
    return document(
        f"Threshold for {found.source}",
        found.version,
        tag("a", "Skip to the evidence", href="#evidence", class_="skip"),
        _render_heading(found),
        render_main(
            _render_evidence(found),
            _render_scores(found),
            _render_notes(found),
            _render_commands(found),
            render_glossary({"threshold", *(() if found.tail else ("precision",))}),
        ),
        styles=["page.css", "advice.css"],
        scripts=["copy.js"],
    )


def _render_heading(found: Threshold) -> Markup:
    layer = "" if found.settings.layer is None else f" · layer {found.settings.layer}"
    headline = threshold_headline(found)
    return render_heading(
        "which cosine means a match?",
        found.source,
        f"{found.n:,} vectors × {found.d:,} dimensions{layer} · {describe_population(found)}",
        headline,
        tag("p", found.paragraph.removeprefix(headline).strip(), class_="reasons"),
    )


# charts


def _render_evidence(found: Threshold) -> Section:
    figures = (
        tag("figure", tag("h3", chart.title), chart.legend(), chart.to_svg(), tag("figcaption", chart.description))
        for chart in _build_charts(found)
    )
    return section("evidence", "Evidence", tag("div", *figures, class_="figures"))


def _build_charts(found: Threshold) -> list[Chart]:
    return [_tail_chart(found)] if found.curve is None else [_cosine_chart(found), _share_chart(found)]


def _cosine_chart(found: Threshold) -> Chart:
    """Return a chart of the cosines of matches and of other pairs, each as a density."""
    curve = found.curve
    assert curve is not None
    width = np.diff(curve.edges)
    matches, others = (counts / max(counts.sum(), 1e-300) / width for counts in (curve.matches, curve.others))
    top = 1.15 * float(max(matches.max(), others.max(), 1e-300))
    middle = (curve.edges[1:] + curve.edges[:-1]) / 2
    median = float(np.interp(0.5, np.cumsum(curve.matches) / max(curve.matches.sum(), 1e-300), middle))
    above = float(curve.others[middle >= median].sum() / max(curve.others.sum(), 1e-300))
    count = f"{format_rate(above)} {'' if above <= 0.001 else 'of '}" if above > 0 else "None of "
    words = (
        f"Each area has the same size, although there are {found.pairs - (found.matches or 0):,} other pairs and "
        f"{found.matches:,} {'match' if found.matches == 1 else 'matches'}. Half of the matches have a cosine above "
        f"{median:.2f}; "
        f"{count.lower() if above <= 0 else count}{'the ' if above > 0.001 or above <= 0 else ''}other pairs "
        f"{'reaches' if 0 < above <= 0.001 else 'reach'} it."
    )
    lines = [
        Line(curve.edges, others, style="pairs", name="other pairs", form="area"),
        Line(curve.edges, matches, style="nearest", name="matches", form="steps"),
    ]
    labels = _mark_cut(found, lines, top)
    return Chart(
        "Cosines of matches and of other pairs",
        words,
        Scale(float(curve.edges[0]), float(curve.edges[-1])),
        Scale(0, top),
        lines,
        labels,
        x_name="cosine",
        y_name="density",
        format_y=None,
    )


def _share_chart(found: Threshold) -> Chart:
    """Return a chart of precision and recall for every threshold, with their intervals."""
    curve = found.curve
    assert curve is not None
    lines = [
        _share_line(curve.cuts, curve.precision, "hue-0", "precision"),
        _share_line(curve.cuts, curve.recall, "hue-1", "recall"),
    ]
    if found.goal == "f1":
        lines.append(_share_line(curve.cuts, curve.f1, "hue-2", "F1"))
    ends = np.asarray([float(curve.cuts[0]), float(curve.cuts[-1])])
    if found.level is not None:
        name = f"requested {SCORE_NAMES[found.goal]}"
        lines.append(Line(ends, np.full(2, found.level), style="gray dashed", name=name))
    labels = _mark_cut(found, lines, 1.0)
    confidence = format_confidence(found.settings.confidence)
    return Chart(
        "Precision and recall of every threshold",
        f"Measured on all {found.examples:,} {PLURALS[found.example]}, with {confidence} bands for each threshold "
        "alone. Precision is the share of matches among the pairs above the threshold; recall is the share of the "
        "matches above it.",
        Scale(*ends.tolist()),
        Scale(0, 1),
        lines,
        labels,
        x_name="threshold",
        y_name="share",
        format_y=lambda share: f"{share:g}",
    )


def _share_line(cuts: np.ndarray, shares: Shares, style: str, name: str) -> Line:
    return Line(cuts, shares.values, shares.low, shares.high, style, name)


def _mark_cut(found: Threshold, lines: list[Line], top: float) -> list[Label]:
    """Add a vertical line at the threshold, and return its label."""
    if found.cut is None:
        return []
    lines.append(Line(np.full(2, found.cut), np.asarray([0.0, top]), style="mean", name="the threshold"))
    return [Label(format_cut(found, found.cut), found.cut, top, "aside", 11)]


def _tail_chart(found: Threshold) -> Chart:
    """Return a chart of the share of pairs above each cosine, on a logarithmic scale."""
    tail = found.tail
    assert tail is not None
    assert found.level is not None
    cosines, rates = tail.curve
    least = min(float(rates.min()), found.level) / 1.5
    lines = [Line(cosines[::-1], rates[::-1], style="hue-0", name="counted pairs")]
    right = min(max(float(cosines.max()), found.cut or 0.0, found.high or 0.0) * 1.005, 1.0)
    across = Scale(float(cosines.min()), max(right, float(cosines.min()) + 1e-9))
    ends = np.asarray([across.low, across.high])
    lines.append(Line(ends, np.full(2, found.level), style="gray dashed", name="requested rate"))
    labels = []
    if found.cut is not None:
        highest = float(rates.max())
        lines.append(Line(np.full(2, found.cut), np.asarray([least, highest]), style="mean", name="the threshold"))
        labels.append(Label(format_cut(found, found.cut), found.cut, highest, "aside", 11))
    return Chart(
        "Random pairs above each cosine",
        f"The line shows the pairs with the highest cosines: {format_rate(float(rates.max()))} of {tail.pairs:,} "
        f"pairs. The requested rate is {format_rate(found.level)}."
        + ("" if tail.passed is None else f" Fewer than {MIN_COUNT} pairs reach the threshold, so it is extrapolated."),
        across,
        Scale(least, float(rates.max()), log=True),
        lines,
        labels,
        x_name="cosine",
        y_name="share of pairs at least this high",
        format_y=_format_power,
    )


def _format_power(value: float) -> str:
    exponent = round(math.log10(value))
    return f"{value:g}" if value >= 0.001 else f"{value / 10**exponent:.0f}e{exponent}".replace("-", "−")


# numbers


def _render_scores(found: Threshold) -> Section | None:
    rows = _score_rows(found)
    if not rows:
        return None
    head = render_table_head("threshold", *SCORE_NAMES.values())
    body = (
        tag("tr", tag("th", name, scope="row"), *(tag("td", format_share(scores[each])) for each in SCORE_NAMES))
        for name, scores in rows
    )
    lead = (
        f"Each fold of the {PLURALS[found.example]} was scored with a threshold that was chosen on the other folds. "
        f"The thresholds chosen without one fold were {_list_cuts(found)}."
    )
    return section(
        "scores",
        "Scores on held-out examples",
        tag("p", lead, class_="hint"),
        render_scrollable(tag("table", head, tag("tbody", *body), class_="trials"), labeled_by="scores-title"),
    )


def _list_cuts(found: Threshold) -> str:
    digits = max(len(format_cut(found, cut).partition(".")[2]) for cut in found.fold_cuts)
    return ", ".join("none" if cut is None else f"{cut:.{digits}f}".replace("-", "−") for cut in found.fold_cuts)


def _score_rows(found: Threshold) -> list[tuple[str, dict[str, Share]]]:
    rows = []
    if found.scores:
        rows.append((f"cosine of at least {format_cut(found, found.cut)}", found.scores))
    if found.relative is not None and found.relative.scores:
        rows.append((f"at most {found.relative.gap:.6g} below the best result", found.relative.scores))
    return rows


# notes

_UNITS = {
    "pair": "Pairs that share a row or contain equal rows count as dependent.",
    "query": "Queries that share a relevant document count as dependent.",
    "row": "All pairs of one row depend on each other: variances are those of a U-statistic over rows.",
}
_POPULATIONS = {
    "pairs": "A pair is a match if it has the higher of two grades, or at least the grade given by match_from.",
    "queries": "Each query is paired with every document. A document is a match if it is judged "
    "relevant for the query.",
    "labels": "Each row is paired with every other row. Two rows match if their labels are equal. A held-out pair has "
    "both rows in the held-out fold.",
}


def _describe_rule(found: Threshold) -> str:
    confidence = format_confidence(found.settings.confidence)
    if found.goal == "f1":
        return "The threshold with the highest F1. Its F1 is measured on held-out examples; there is no guarantee."
    if found.goal == "recall":
        return (
            f"The highest threshold whose recall is proven to be at least {found.level:g}. Thresholds are tested from "
            "the lowest upwards, and the tests stop at the first failure, so that the guarantee holds with "
            f"{confidence} confidence."
        )
    return (
        f"The lowest threshold whose precision is proven to be at least {found.level:g}. Thresholds are tested from "
        f"{STARTS} starting points downwards, and the tests stop at the first failure, so that the guarantee holds "
        f"with {confidence} confidence for the chosen threshold. If every threshold that finds at least "
        f"{100 * LEAST_RECALL:g}% of the matches is significantly below the goal, no threshold separates the pairs."
    )


def _render_notes(found: Threshold) -> Section:
    confidence = format_confidence(found.settings.confidence)
    rows: list[tuple[object, object]] = [("Pairs", f"{capitalize(describe_population(found))}.")]
    if found.matches is not None:
        rows += [
            ("Matches", _POPULATIONS[found.kind]),
            ("Rule", _describe_rule(found)),
            (
                "Intervals",
                f"{confidence} confidence, from exact binomial bounds with the effective number of independent pairs "
                f"(Korn and Graubard 1998). {_UNITS[found.example]}",
            ),
            ("Precision", "If matches are rarer among the pairs that you compare than here, precision is lower."),
        ]
    else:
        rows += [
            (
                "Rule",
                f"The cosine that a fraction {found.level:g} of random pairs reach or exceed. The rate is counted if "
                f"at least {MIN_COUNT} pairs are above the threshold. A lower rate is extrapolated with a generalized "
                "Pareto tail, if the same extrapolation from random parts of the rows predicts the rate within a "
                f"factor of {TOLERANCE:g} in {MIN_PASSED:.0%} of {TESTS} tests.",
            ),
            ("Interval", f"{confidence} confidence. {_UNITS['row']}"),
        ]
    rows.append(("Seed", found.settings.seed))
    rows += [("Note", note) for note in found.notes]
    return section("notes", "How this was measured", render_definition_list(*rows))


# commands


def _render_commands(found: Threshold) -> Section:
    arguments = given_inputs(found.given, _INPUTS[found.kind], _IDS) | changed_settings(found.settings, _SETTINGS)
    call = Call("threshold", (name_source(found.source),), arguments)
    parts = render_reproduction(call, "found", "Reproduce this result", page="threshold.html")
    return section("commands", "Commands", *parts)


# notebooks


def render_notebook_page(found: Threshold) -> str:
    """Return the threshold and its scores for a notebook."""
    headline = threshold_headline(found)
    lead = [
        join_markup(tag("strong", tag("bdi", found.source)), f", {found.n:,} × {found.d:,}."),
        join_markup(tag("strong", headline), " ", found.paragraph.removeprefix(headline).strip()),
    ]
    rows = [[name, *(format_share(scores[each]) for each in SCORE_NAMES)] for name, scores in _score_rows(found)]
    names = ["threshold (held-out scores)", *SCORE_NAMES.values()]
    images = map(render_chart_image, _build_charts(found))
    return render_notebook_table(lead, names, rows, images=images, notes=found.notes)
