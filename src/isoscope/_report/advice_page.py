"""Render advice as an HTML page, with commands that reproduce and apply it, and as a notebook table."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

from isoscope._report.commands import Call, changed_settings, given_inputs, is_file, name_source, render_reproduction
from isoscope._report.forest_chart import (
    GAIN_LABELS,
    build_isotropy_scatter,
    draw_forest_plot,
    format_score,
    render_forest_image,
    render_mark_legend,
    render_trial_name,
)
from isoscope._report.glossary import render_glossary
from isoscope._report.html import (
    document,
    join_markup,
    render_chip,
    render_code_block,
    render_definition_list,
    render_heading,
    render_main,
    render_notebook_table,
    render_scrollable,
    section,
    tag,
)
from isoscope._report.narrate import (
    LABEL_FREE_WARNING,
    advice_headline,
    format_confidence,
    format_interval,
    format_signed,
    is_label_free,
)
from isoscope._report.svg_file import render_chart_image
from isoscope._report.terminal import GAIN_MARKS, SHAPE_NAMES
from isoscope.advising.inference import TOLERANCE
from isoscope.advising.task import PLURALS
from isoscope.auditing.finding import format_number
from isoscope.stores.databases.address import is_address

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.advising.advise import Advice, Trial


_TASK_INPUTS = {"pair": ("pairs",), "query": ("queries", "qrels"), "row": ("labels",)}
_IDS = ("ids", "query_ids")
_SETTINGS = ("metric", "folds", "sample", "seed", "missing", "zeros", "new_rows", "layer")


def render_commands(advice: Advice) -> Section:
    """Return the section with commands to reproduce and apply the advice, in Python and (for a file) in a shell."""
    call = _build_call(advice, () if is_label_free(advice) else _TASK_INPUTS[advice.example])
    save = None if advice.leaves_vectors_unchanged else "repair"
    parts = render_reproduction(call, "advice", "Reproduce this advice", page="advice.html", save=save)
    if is_label_free(advice):
        parts += _render_task_commands(advice)
    if not advice.leaves_vectors_unchanged:
        parts += _render_apply_command(advice)
    return section("commands", "Commands", *parts)


def _build_call(advice: Advice, inputs: tuple[str, ...]) -> Call:
    arguments = given_inputs(advice.given, inputs, _IDS)
    measure = {"measure": advice.measure} if advice.alone else {}
    settings = changed_settings(advice.settings, _SETTINGS)
    return Call("advise", (name_source(advice.source),), {**arguments, **measure, **settings})


def _render_task_commands(advice: Advice) -> list[Markup]:
    calls = [_build_call(advice, inputs) for inputs in _TASK_INPUTS.values()]
    lines = [
        shlex.join(call.to_shell()) if is_file(advice.source) else f"advice = {call.to_python()}" for call in calls
    ]
    return [
        tag("h3", "Get stronger evidence"),
        tag("p", "Each of these commands tests the repairs on a task."),
        render_code_block(*lines),
    ]


def _render_apply_command(advice: Advice) -> list[Markup]:
    if is_file(advice.source):
        out = "repaired" + (".parquet" if is_address(advice.source) else PurePath(advice.source).suffix)
        layer = [] if advice.settings.layer is None else ["--layer", str(advice.settings.layer)]
        line = shlex.join(["isoscope", "apply", "repair", advice.source, "-o", out, *layer])
    else:
        line = "repaired = advice.repair.transform(vectors)"
    words = "Apply the same repair to everything that you compare: the corpus, new vectors and queries."
    return [tag("h3", "Apply the repair"), tag("p", words), render_code_block(line)]


_EXAMPLES = {"pair": "graded pairs", "query": "queries with judged documents", "row": "labeled rows"}
_FITTING_NOTES = {
    "pair": "without the rows of the pairs they are scored on",
    "query": "several times, each time without a different random subset of the documents",
    "row": "without the rows they are scored on",
}
_INDEPENDENCE_NOTES = {
    "pair": "Pairs that share a row or contain equal rows count as one example.",
    "query": "Queries that share a relevant document count as one example.",
    "row": "Equal rows count as one example.",
}


def render_advice_page(advice: Advice) -> str:
    """Return the advice and its evidence as a self-contained HTML document.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((200, 8))
    >>> advice = isoscope.advise(X, labels=X[:, 0] > 0, candidates=[isoscope.Center()])
    >>> render_advice_page(advice)[:15]
    '<!doctype html>'
    """
    return document(
        f"Advice for {advice.source}",
        advice.version,
        tag("a", "Skip to the evidence", href="#gains", class_="skip"),
        _render_heading(advice),
        render_main(
            _render_gains(advice),
            _render_isotropy_section(advice),
            _render_numbers(advice),
            _render_notes(advice),
            render_commands(advice),
            render_glossary({"advice", *advice.measures}),
        ),
        styles=["page.css", "advice.css"],
        scripts=["copy.js"],
    )


# page


def _render_heading(advice: Advice) -> Markup:
    caution = tag("p", tag("strong", "Weak evidence. "), LABEL_FREE_WARNING, role="note", class_="caution")
    layer = "" if advice.settings.layer is None else f" · layer {advice.settings.layer}"
    return render_heading(
        "does a repair help these vectors?",
        advice.source,
        f"{advice.n:,} vectors × {advice.d:,} dimensions{layer} · {_describe_task(advice)}",
        advice_headline(advice),
        caution if is_label_free(advice) else None,
        tag("p", _describe_reasons(advice), class_="reasons"),
    )


def _describe_task(advice: Advice) -> str:
    """Describe the examples and the deciding measure, such as "1,379 graded pairs, Spearman's correlation"."""
    if is_label_free(advice):
        return f"no task given, {advice.measures[advice.measure]} on {advice.examples:,} rows"
    return f"{_format_examples(advice)}, {advice.measures[advice.measure]}"


def _format_examples(advice: Advice) -> str:
    return f"{advice.examples:,} {'rows' if is_label_free(advice) else _EXAMPLES[advice.example]}"


def _describe_reasons(advice: Advice) -> str:
    """Return the advice paragraph without its headline and warning, which the page shows elsewhere."""
    return advice.paragraph.removeprefix(advice_headline(advice)).removesuffix(LABEL_FREE_WARNING).strip()


def _render_gains(advice: Advice) -> Section:
    measures = _ordered_measures(advice)
    figures = []
    for measure in measures:
        chart, caption = draw_forest_plot(advice, measure)
        words = advice.measures[measure]
        decides = " (the deciding measure)" if len(measures) > 1 and measure == advice.measure else ""
        title = tag("h3", f"By {words}{decides}")
        figures.append(tag("figure", title, chart, tag("figcaption", caption)))
    lead = (
        "Each line shows the score of a candidate and its gain over the original vectors. The simplest candidate comes "
        "first. A gain or loss is significant if its interval does not contain 0."
    )
    return section("gains", "Gain of each repair", tag("p", lead, class_="hint"), render_mark_legend(advice), *figures)


_MEASURE_RULE = (
    "A repair that is significantly worse by any measure is excluded. The deciding measure is the first one by which "
    "another repair gains significantly. "
)


def _render_isotropy_section(advice: Advice) -> Section | None:
    chart = build_isotropy_scatter(advice)
    if chart is None:
        return None
    figure = tag(
        "figure",
        render_mark_legend(advice, interval=False),
        chart.to_svg(),
        tag("figcaption", chart.description),
        class_="against",
    )
    return section("evenness", "Does isotropy help here?", figure)


def _render_numbers(advice: Advice) -> Section:
    return section(
        "numbers",
        "All numbers",
        render_scrollable(_render_table(advice), labeled_by="numbers-title"),
    )


def _render_table(advice: Advice) -> Markup:
    measures, shapes = _ordered_measures(advice), _available_shapes(advice)
    gain = f"gain, {format_confidence(advice.settings.confidence)} interval"
    over = tag(
        "tr",
        tag("th", "candidate", scope="col", rowspan=2),
        *(tag("th", advice.measures[measure], scope="colgroup", colspan=2) for measure in measures),
        *(tag("th", SHAPE_NAMES[name], scope="col", rowspan=2) for name in shapes),
        tag("th", "learned parameters", scope="col", rowspan=2),
    )
    under = tag("tr", *(tag("th", name, scope="col") for _ in measures for name in ("score", gain)))
    rows = [
        tag(
            "tr",
            tag("th", render_trial_name(trial, i == advice.chosen), scope="row"),
            *(cell for measure in measures for cell in _render_cells(trial, measure, first=not i)),
            *(tag("td", format_number(trial.shape.get(name))) for name in shapes),
            tag("td", f"{trial.numbers:,}"),
            class_="chosen" if i == advice.chosen else None,
        )
        for i, trial in enumerate(advice.trials)
    ]
    return tag("table", tag("thead", over, under), tag("tbody", *rows), class_="trials")


def _render_cells(trial: Trial, measure: str, *, first: bool) -> tuple[Markup, Markup]:
    score = trial[measure]
    value = tag("td", format_score(score.value))
    if first:
        return value, tag("td", "–")
    sign = tag("span", GAIN_MARKS[score.verdict], role="img", aria_label=GAIN_LABELS[score.verdict])
    gained = tag("span", sign, f" {format_signed(score.gain)}", class_=f"gained {score.verdict}")
    return value, tag("td", gained, " ", tag("span", format_interval(score), class_="range"))


def _ordered_measures(advice: Advice) -> list[str]:
    """Return the measures with the deciding one first."""
    return [advice.measure, *(measure for measure in advice.measures if measure != advice.measure)]


def _available_shapes(advice: Advice) -> list[str]:
    return [name for name in SHAPE_NAMES if any(name in trial.shape for trial in advice.trials)]


# notes


def _render_notes(advice: Advice) -> Section:
    settings, others = advice.settings, len(advice.trials) - 1
    examples = PLURALS[advice.example]
    intervals = (
        f"{format_confidence(settings.confidence)} confidence, for the paired difference from the original vectors. "
        f"{_INDEPENDENCE_NOTES[advice.example]} "
    )
    if others > 1:
        intervals += f"The intervals of all {others} repairs and all deciding measures hold simultaneously (max-t)."
    fitted = (
        _FITTING_NOTES[advice.example]
        if settings.new_rows
        else "to all rows of the source, like the saved repair. They do not use the judgments"
    )
    selected = ", ".join(f"{name} {count}" for name, count in advice.selections.items())
    shapes = ", ".join(SHAPE_NAMES[name] for name in _available_shapes(advice))
    rows: list[tuple[object, object]] = [
        ("Task", f"{_format_examples(advice)}; vectors compared by {settings.metric}"),
        ("Fitting", f"Repairs are fitted {fitted}."),
        ("Intervals", intervals),
        (
            "Rule",
            "Use the simplest repair that gains significantly and whose gain is at most "
            f"{100 * TOLERANCE:.0f}% below the best significant gain. Leave the vectors unchanged if no repair gains "
            "significantly, or if most selections on subsets of the examples choose no repair. "
            f"{_MEASURE_RULE if len(advice.measures) > 1 and not advice.alone else ''}A repair is simpler if it learns "
            "fewer parameters from the corpus.",
        ),
        (
            "Expected gain",
            f"{format_signed(advice.promised_gain)}. The {examples} are split into {settings.folds} folds, several "
            "times. The rule selects a repair on all folds but one, and the repair is scored on the held-out fold. No "
            "example is used for both selection and scoring.",
        ),
        ("Selected on subsets", f"{selected}; {100 * advice.stability:.0f}% agree with the advice"),
    ]
    if shapes:
        rows.append(
            (
                "Shape",
                f"{shapes} of each candidate's space, measured on rows it was not fitted to. An IsoScore of 0 means "
                "that all variance lies along one direction; 1 means equal variance along all directions.",
            )
        )
    rows += [
        ("Rows", f"all {advice.n:,}" if advice.n <= settings.sample else _describe_sample(advice)),
        ("Seed", settings.seed),
    ]
    rows += [("Note", note) for note in advice.notes]
    rows += [(join_markup("Not tried: ", tag("bdi", name)), reason) for name, reason in advice.left_out.items()]
    return section("notes", "How this was measured", render_definition_list(*rows))


def _describe_sample(advice: Advice) -> str:
    words = f"a random sample of {advice.settings.sample:,} of {advice.n:,} rows"
    return words if advice.example == "row" else f"{words}, plus the rows that the task needs"


# notebooks


def render_notebook_page(advice: Advice) -> str:
    """Return the advice, its charts and its table for a notebook."""
    measures = _ordered_measures(advice)
    shapes = _available_shapes(advice)
    names = ["", advice.measures[advice.measure], f"gain, {format_confidence(advice.settings.confidence)} interval"]
    names += [advice.measures[measure] for measure in measures[1:]] + [SHAPE_NAMES[name] for name in shapes]
    task = f", {advice.n:,} × {advice.d:,}. {_describe_task(advice)}."
    lead = [
        join_markup(tag("strong", tag("bdi", advice.source)), task),
        join_markup(tag("strong", advice_headline(advice)), " ", _describe_reasons(advice)),
    ]
    if is_label_free(advice):
        lead.append(join_markup(tag("strong", "Weak evidence. "), LABEL_FREE_WARNING))
    images = [render_forest_image(advice, advice.measure)] if len(advice.trials) > 1 else []
    if scatter := build_isotropy_scatter(advice):
        images.append(render_chart_image(scatter))
    return render_notebook_table(
        lead,
        names,
        (_notebook_row(advice, i, measures, shapes) for i in range(len(advice.trials))),
        images=images,
        notes=[*advice.notes, *(f"Not tried: {name}: {reason}" for name, reason in advice.left_out.items())],
        bold_row=advice.chosen,
    )


def _notebook_row(advice: Advice, i: int, measures: list[str], shapes: list[str]) -> list[object]:
    trial, decisive = advice.trials[i], advice.trials[i][advice.measure]
    gain = f" {format_signed(decisive.gain)} {format_interval(decisive)}"
    cells: list[object] = [render_trial_name(trial, i == advice.chosen), format_score(decisive.value)]
    cells.append(join_markup(_render_gain_chip(decisive.verdict), gain) if i else "")
    for measure in measures[1:]:
        score = trial[measure]
        chip = _render_gain_chip(score.verdict) if i else None
        cells.append(join_markup(f"{format_score(score.value)} ", chip))
    return cells + [format_number(trial.shape.get(name)) for name in shapes]


def _render_gain_chip(verdict: str) -> Markup:
    return render_chip(verdict, GAIN_MARKS[verdict], role="img", aria_label=GAIN_LABELS[verdict])
