"""The advice and its evidence as one self-contained HTML page, and as a small table for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._report.advice_table import MARKS, SHAPES
from isoscope._report.commands import commands
from isoscope._report.document import document, facts, section
from isoscope._report.evenness import evenness
from isoscope._report.forest_chart import VERDICT_WORDS, forest, key, name_of, scored
from isoscope._report.html import joined, tag
from isoscope._report.narrate import LABEL_FREE, headline, label_free, signed, span
from isoscope.advising.inference import TOLERANCE
from isoscope.advising.task import PLURALS
from isoscope.auditing.finding import written

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.advising.advise import Advice, Trial

_EXAMPLES = {"pair": "graded pairs", "query": "queries with judged documents", "row": "labeled rows"}
_FITTED = {
    "pair": "without the rows of the pairs they are scored on",
    "query": "without a random part of the documents, in turn",
    "row": "without the rows they are scored on",
}
_UNITS = {
    "pair": "Pairs that share a row, or have equal rows, count as one.",
    "query": "Queries that share a relevant document count as one.",
    "row": "Equal rows count as one.",
}


def advice_page(advice: Advice) -> str:
    """Return an advice and its evidence as a self-contained HTML document.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((200, 8))
    >>> advice = isoscope.advise(X, labels=X[:, 0] > 0, candidates=[isoscope.Center()])
    >>> advice_page(advice)[:15]
    '<!doctype html>'
    """
    return document(
        f"Advice for {advice.source}",
        advice.version,
        tag("a", "Skip to the evidence", href="#gains", class_="skip"),
        _heading(advice),
        tag("main", _gains(advice), _evenness(advice), _numbers(advice), _notes(advice), commands(advice)),
        styles=["page.css", "advice.css"],
    )


# the body


def _heading(advice: Advice) -> Markup:
    caution = tag("p", tag("strong", "Weak evidence. "), LABEL_FREE, role="note", class_="caution")
    return tag(
        "header",
        tag("p", "isoscope: does a repair help these vectors?", class_="brand"),
        tag("p", tag("bdi", advice.source), class_="source"),
        tag("p", f"{advice.n:,} vectors × {advice.d:,} dimensions · {_task(advice)}", class_="size"),
        tag("h1", headline(advice)),
        caution if label_free(advice) else None,
        tag("p", _reasons(advice), class_="reasons"),
    )


def _task(advice: Advice) -> str:
    """Return the examples and the measure that decided: 1,379 graded pairs, Spearman's correlation."""
    if label_free(advice):
        return f"no task given, {advice.measures[advice.measure]} on {advice.examples:,} rows"
    return f"{_examples(advice)}, {advice.measures[advice.measure]}"


def _examples(advice: Advice) -> str:
    return f"{advice.examples:,} {'rows' if label_free(advice) else _EXAMPLES[advice.example]}"


def _reasons(advice: Advice) -> str:
    """Return the paragraph without the headline and the caution, which the page shows elsewhere."""
    return advice.paragraph.removeprefix(headline(advice)).removesuffix(LABEL_FREE).strip()


def _gains(advice: Advice) -> Markup:
    others = [measure for measure in advice.measures if measure != advice.measure]
    figures = []
    for measure in (advice.measure, *others):
        drawn = forest(advice, measure)
        words = advice.measures[measure]
        decides = ", which decides" if others and measure == advice.measure else ""
        title = tag("h3", f"By {words}{decides}")
        figures.append(tag("figure", title, drawn.chart, tag("figcaption", drawn.caption)))
    lead = (
        "One line per candidate, simplest first: its score and its gain over the vectors as they are. A gain or loss "
        "is significant if its interval does not contain 0."
    )
    return section("gains", "What each repair gains", tag("p", lead, class_="hint"), key(advice), *figures)


_HEARD = (
    "A repair that loses significantly by any measure is excluded, and the first measure by which another gains "
    "significantly decides. "
)


def _evenness(advice: Advice) -> Markup | None:
    drawn = evenness(advice)
    if drawn is None:
        return None
    figure = tag("figure", drawn.chart, tag("figcaption", drawn.caption), class_="against")
    return section("evenness", "Does isotropy help here?", figure)


def _numbers(advice: Advice) -> Markup:
    return section(
        "numbers",
        "All numbers",
        tag("div", _table(advice), class_="scroll", tabindex="0", role="region", aria_labelledby="numbers-title"),
    )


def _table(advice: Advice) -> Markup:
    measures = [advice.measure, *(measure for measure in advice.measures if measure != advice.measure)]
    shapes = _shapes(advice)
    gain = f"gain, {_confidence(advice)} interval"
    over = tag(
        "tr",
        tag("th", "candidate", scope="col", rowspan=2),
        *(tag("th", advice.measures[measure], scope="colgroup", colspan=2) for measure in measures),
        *(tag("th", SHAPES[name], scope="col", rowspan=2) for name in shapes),
        tag("th", "numbers learned", scope="col", rowspan=2),
    )
    under = tag("tr", *(tag("th", name, scope="col") for _ in measures for name in ("score", gain)))
    rows = [
        tag(
            "tr",
            tag("th", name_of(trial, i == advice.chosen), scope="row"),
            *(cell for measure in measures for cell in _cells(trial, measure, first=not i)),
            *(tag("td", written(trial.shape.get(name))) for name in shapes),
            tag("td", f"{trial.numbers:,}"),
            class_="chosen" if i == advice.chosen else None,
        )
        for i, trial in enumerate(advice.trials)
    ]
    return tag("table", tag("thead", over, under), tag("tbody", *rows), class_="trials")


def _cells(trial: Trial, measure: str, *, first: bool) -> tuple[Markup, Markup]:
    score = trial[measure]
    value = tag("td", scored(score.value))
    if first:
        return value, tag("td", "–")
    sign = tag("span", MARKS[score.verdict], role="img", aria_label=VERDICT_WORDS[score.verdict])
    gained = tag("span", sign, f" {signed(score.gain)}", class_=f"gained {score.verdict}")
    return value, tag("td", gained, " ", tag("span", span(score), class_="range"))


def _shapes(advice: Advice) -> list[str]:
    return [name for name in SHAPES if any(name in trial.shape for trial in advice.trials)]


# how it was done


def _notes(advice: Advice) -> Markup:
    settings, others = advice.settings, len(advice.trials) - 1
    examples = PLURALS[advice.example]
    intervals = f"{_confidence(advice)}, of the paired difference to the vectors as they are. {_UNITS[advice.example]} "
    if others > 1:
        intervals += f"The intervals of all {others} repairs and all deciding measures hold at once (max-t)."
    fitted = (
        _FITTED[advice.example]
        if settings.new_rows
        else "to the whole source, as the saved repair; no judgments are used"
    )
    selected = ", ".join(f"{name} {count}" for name, count in advice.selections.items())
    shapes = ", ".join(SHAPES[name] for name in _shapes(advice))
    rows: list[tuple[object, object]] = [
        ("Task", f"{_examples(advice)}; vectors are compared by {settings.metric}"),
        ("Fitting", f"Repairs are fitted {fitted}."),
        ("Intervals", intervals),
        (
            "Rule",
            "Use the simplest repair that gains significantly and gives away at most "
            f"{100 * TOLERANCE:.0f}% of the best significant gain; if none gains, or most "
            "selections on parts of the examples choose none, leave the vectors as they are. "
            f"{_HEARD if len(advice.measures) > 1 and not advice.alone else ''}A repair is simpler if it learns fewer "
            "numbers from the corpus.",
        ),
        (
            "Expected gain",
            f"{signed(advice.promised_gain)}: the {examples} are split into {settings.folds} folds, several times; the "
            "rule selects a repair on all folds but one, and its choice is scored on that fold. No example is used "
            "both to select and to score.",
        ),
        ("Selected on parts", f"{selected}; {100 * advice.stability:.0f}% agree with the advice"),
    ]
    if shapes:
        rows.append(
            (
                "Shape",
                f"{shapes} of each candidate's space, measured on rows it was not fitted to. An IsoScore of 0 is a "
                "line, of 1 equal variance in all directions.",
            )
        )
    rows += [
        ("Rows", f"all {advice.n:,}" if advice.n <= settings.sample else _sampled(advice)),
        ("Seed", settings.seed),
    ]
    rows += [("Note", note) for note in advice.notes]
    rows += [(joined("Not tried: ", tag("bdi", name)), reason) for name, reason in advice.left_out.items()]
    return section("notes", "How this was measured", facts(*rows))


def _sampled(advice: Advice) -> str:
    words = f"a random sample of {advice.settings.sample:,} of {advice.n:,}"
    return words if advice.example == "row" else f"{words}, and those that the task names"


def _confidence(advice: Advice) -> str:
    return f"{100 * advice.settings.confidence:g}%"


# notebooks


def fragment(advice: Advice) -> str:
    """Return the advice as a table for a notebook, without scripts or ids and with inline colors."""
    cell = "padding:.25em .9em .25em 0;text-align:left;vertical-align:top;background:none;white-space:nowrap;"
    edge = "border:0;border-top:1px solid rgba(128,128,128,.35);font-variant-numeric:tabular-nums;"
    colors = {"gain": "#0b6b5d", "noise": "#6b6b6b", "loss": "#b3261e"}
    others = [measure for measure in advice.measures if measure != advice.measure]
    shapes = _shapes(advice)

    def gained(trial: Trial, measure: str, *words: object) -> Markup:
        verdict = trial[measure].verdict
        chip = f"background:{colors[verdict]};color:#fff;border-radius:.3em;padding:.05em .4em"
        sign = tag("span", MARKS[verdict], role="img", aria_label=VERDICT_WORDS[verdict], style=chip)
        return joined(sign, *words)

    rows = []
    for i, trial in enumerate(advice.trials):
        score, weight = trial[advice.measure], "font-weight:600;" if i == advice.chosen else ""
        cells: list[object] = [scored(score.value)]
        cells.append(gained(trial, advice.measure, f" {signed(score.gain)} {span(score)}") if i else "")
        for measure in others:
            value = f"{scored(trial[measure].value)} "
            cells.append(joined(value, gained(trial, measure)) if i else value)
        cells += [written(trial.shape.get(name)) for name in shapes]
        name = tag(
            "th", name_of(trial, i == advice.chosen), scope="row", style=cell + edge + (weight or "font-weight:400")
        )
        rows.append(
            tag("tr", name, *(tag("td", each, style=cell + edge + weight) for each in cells), style="background:none")
        )
    heads = ["", advice.measures[advice.measure], f"gain, {_confidence(advice)} interval"]
    heads += [advice.measures[measure] for measure in others] + [SHAPES[name] for name in shapes]
    head = tag("tr", *(tag("th", name, scope="col", style=cell + "border:0;font-weight:600") for name in heads))
    table = tag(
        "table",
        tag("thead", head),
        tag("tbody", *rows),
        style="border-collapse:collapse;border:0;color:inherit;margin:.5em 0",
    )
    notes = advice.notes + [f"Not tried: {name}: {reason}" for name, reason in advice.left_out.items()]
    lead = joined(tag("strong", tag("bdi", advice.source)), f", {advice.n:,} × {advice.d:,}. {_task(advice)}.")
    return tag(
        "div",
        tag("p", lead, style="margin:.3em 0"),
        tag("p", tag("strong", headline(advice)), " ", _reasons(advice), style="margin:.3em 0"),
        tag("p", tag("strong", "Weak evidence. "), LABEL_FREE, style="margin:.3em 0") if label_free(advice) else None,
        tag("div", table, style="overflow-x:auto"),
        *(tag("p", note, style="margin:.3em 0;opacity:.8") for note in notes),
        style="color:inherit;max-width:72em",
    )
