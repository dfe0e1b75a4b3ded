"""Render the answer of `compress` as an HTML page, with commands to reproduce and apply it, and as a notebook table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from isoscope._report.commands import Call, changed_settings, given_inputs, is_file, name_source, render_reproduction
from isoscope._report.compression_text import (
    KEPT_MARKS,
    compression_headline,
    format_bounds,
    format_bytes,
    format_goal,
    format_share,
    frontier,
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
from isoscope._report.narrate import format_confidence
from isoscope._report.svg import Chart, Line, Scale, draw_mark, format_tick
from isoscope._report.svg_file import render_chart_image
from isoscope.advising.task import PLURALS
from isoscope.compressing.recall import FIRST_QUERIES
from isoscope.stores.databases.address import is_address

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.compressing.compression import Compression, CompressionTrial
    from isoscope.compressing.decision import Kept

_CLASSES = {"keeps": "gain", "undecided": "noise", "loses": "loss"}
_LABELS = {"keeps": "keeps the share", "undecided": "undecided", "loses": "loses more"}
_TASK_INPUTS = ("pairs", "queries", "qrels", "labels", "ids", "query_ids")
_SETTINGS = ("keep", "metric", "rescore", "precisions", "dimensions", "sample", "seed", "missing", "zeros", "layer")
_OPTIONS = {"precisions": "precision"}


def render_compression_page(result: Compression) -> str:
    """Return the answer and its evidence as a self-contained HTML document.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((200, 8))
    >>> render_compression_page(isoscope.compress(X, precisions=["float16", "int8"]))[:15]
    '<!doctype html>'
    """
    return document(
        f"Compression of {result.source}",
        result.version,
        tag("a", "Skip to the evidence", href="#frontier", class_="skip"),
        _render_heading(result),
        render_main(
            _render_frontier(result),
            _render_databases(result),
            _render_numbers(result),
            _render_notes(result),
            _render_commands(result),
            render_glossary({"compress", *result.measures}),
        ),
        styles=["page.css", "advice.css", "compression.css"],
        scripts=["copy.js"],
    )


def _render_heading(result: Compression) -> Markup:
    layer = "" if result.settings.layer is None else f" · layer {result.settings.layer}"
    return render_heading(
        "how many bits and dimensions can be dropped?",
        result.source,
        f"{result.n:,} vectors × {result.d:,} dimensions{layer} · {_format_examples(result)}, "
        f"{result.measures[result.measure]}",
        compression_headline(result),
        tag("p", result.paragraph.removeprefix(compression_headline(result)).strip(), class_="reasons"),
    )


def _format_examples(result: Compression) -> str:
    return f"{result.examples:,} {PLURALS[result.example]}"


# frontier


def _render_frontier(result: Compression) -> Section:
    chart = build_frontier_chart(result)
    lead = (
        f"Each mark is a candidate: its bytes per vector and its {result.measures[result.measure]}. The line is the "
        f"score to keep. A candidate keeps it if its whole interval is on or above the line. Intervals are drawn for "
        "the best candidate of each size."
    )
    figure = tag("figure", _render_legend(), chart.to_svg(), tag("figcaption", chart.description))
    return section("frontier", "Size and score", tag("p", lead, class_="hint"), figure)


def _render_legend() -> Markup:
    names = {"as-is": "as it is", "gain": "keeps", "noise": "undecided", "loss": "loses more", "noise chosen": "chosen"}
    return tag(
        "ul",
        *(
            tag("li", tag("svg", draw_mark(mark, "50%", "50%"), class_="sign", aria_hidden="true"), name)
            for mark, name in names.items()
        ),
        class_="key",
    )


def build_frontier_chart(result: Compression) -> Chart:
    """Return a chart of the scores of all candidates against their bytes per vector."""
    measure = result.measure
    trials = sorted(result.trials, key=lambda trial: trial is result.choice)  # the choice is drawn on top
    original = result.original[measure].value
    best = frontier(result)
    bounds = [
        (original * trial[measure].low, original * trial[measure].high) if trial in best else (np.nan, np.nan)
        for trial in trials
    ]
    sizes = np.array([trial.bytes for trial in trials], float)
    goal = result.settings.keep * original
    top = max(original, *(trial[measure].value for trial in trials))
    lowest = max(0.0, min([goal, *(trial[measure].value for trial in best)]))
    margin = 0.06 * (top - lowest) or 0.01
    up = Scale(max(lowest - margin, min(0.0, lowest)), top + margin)
    return Chart(
        "Size and score",
        _describe_frontier(result),
        Scale(float(sizes.min()) / 1.3, float(sizes.max()) * 1.3, log=True),
        up,
        [
            Line(
                np.array([float(sizes.min()) / 1.3, float(sizes.max()) * 1.3]),
                np.array([goal, goal]),
                style="other dashed",
            ),
            Line(
                sizes,
                np.array([max(trial[measure].value, up.low) for trial in trials]),
                np.clip([low for low, _ in bounds], up.low, up.high),
                np.clip([high for _, high in bounds], up.low, up.high),
                style="other",
                form="dots",
                marks=[_mark(result, trial, up) for trial in trials],
                titles=[_describe_trial(result, trial) for trial in trials],
            ),
        ],
        x_name="bytes per vector (logarithmic scale)",
        y_name=result.measures[measure],
        x_ticks=[(size, f"{int(size):,}") for size in _choose_ticks([trial.bytes for trial in best])],
        format_y=format_tick,
    )


def _choose_ticks(sizes: Sequence[int]) -> list[float]:
    """Return sizes at least a factor of 1.6 apart, the largest first."""
    ticks: list[float] = []
    for size in sorted(map(float, set(sizes)), reverse=True):
        if not ticks or ticks[-1] / size >= 1.6:
            ticks.append(size)
    return ticks


def _mark(result: Compression, trial: CompressionTrial, up: Scale) -> str:
    kept = trial[result.measure]
    kind = "as-is" if trial is result.original else _CLASSES[(trial.whole or kept).verdict]
    words = [kind]
    words += ["chosen"] * (result.chosen is not None and trial is result.choice)
    return " ".join(words + ["hollow"] * (kept.value < up.low))


def _describe_trial(result: Compression, trial: CompressionTrial) -> str:
    kept = trial[result.measure]
    return f"{trial.name}: {format_bytes(trial.bytes)}, {result.measures[result.measure]} {kept.value:.3f}"


def _describe_frontier(result: Compression) -> str:
    keeping = [trial for trial in result.trials[:-1] if (trial.whole or trial[result.measure]).verdict == "keeps"]
    others = len(result.trials) - 1
    verb = "keeps" if len(keeping) == 1 else "keep"
    words = f"{len(keeping)} of {others} candidates {verb} {format_goal(result.settings.keep)}."
    if any(trial.oversampling for trial in result.trials):
        words += " Candidates with rescoring also need the original vectors."
    if any(trial[result.measure].value < frontier(result)[0][result.measure].value for trial in result.trials):
        words += " A hollow mark is below the lower edge."
    return words


# databases


def _render_databases(result: Compression) -> Section | None:
    settings = result.database_settings
    if not settings:
        return None
    rows: list[object] = []
    for setting in settings:
        rows += [
            tag("h3", setting.database),
            tag("p", setting.difference, class_="hint") if setting.difference else None,
            render_code_block(*setting.lines),
        ]
    lead = "These settings are the closest that each database offers. The text above the code names the differences."
    return section("databases", "Database settings", tag("p", lead, class_="hint"), *rows)


# numbers


def _render_numbers(result: Compression) -> Section:
    return section("numbers", "All numbers", render_scrollable(_render_table(result), labeled_by="numbers-title"))


def _render_table(result: Compression) -> Markup:
    measures = _ordered_measures(result)
    whole = any(trial.whole for trial in result.trials)
    kept = f"kept, {format_confidence(result.settings.confidence)} bounds"
    over = tag(
        "tr",
        tag("th", "candidate", scope="col", rowspan=2),
        tag("th", "bytes", scope="col", rowspan=2),
        *(tag("th", result.measures[measure], scope="colgroup", colspan=2) for measure in measures),
        tag("th", "kept on all rows", scope="col", rowspan=2) if whole else None,
    )
    under = tag("tr", *(tag("th", name, scope="col") for _ in measures for name in ("score", kept)))
    rows = []
    for trial in result.trials:
        chosen = result.chosen is not None and trial is result.choice
        size = f"{trial.bytes:,}" + (f" + {trial.stored:,} stored" if trial.stored else "")
        rows.append(
            tag(
                "tr",
                tag("th", _render_name(trial, chosen), scope="row"),
                tag("td", size),
                *(cell for measure in measures for cell in _render_cells(result, trial, measure)),
                tag("td", "–" if trial.whole is None else _render_kept(trial.whole, result.settings.keep))
                if whole
                else None,
                class_="chosen" if chosen else None,
            )
        )
    return tag("table", tag("thead", over, under), tag("tbody", *rows), class_="trials")


def _render_name(trial: CompressionTrial, chosen: bool) -> Markup:
    return join_markup(tag("bdi", trial.name), join_markup(" ", tag("small", "chosen")) if chosen else None)


def _render_cells(result: Compression, trial: CompressionTrial, measure: str) -> tuple[Markup, Markup]:
    kept = trial[measure]
    value = tag("td", f"{kept.value:.3f}".replace("-", "−"))
    return value, tag("td", "–" if trial is result.original else _render_kept(kept, result.settings.keep))


def _render_kept(kept: Kept, keep: float) -> Markup:
    sign = tag("span", KEPT_MARKS[kept.verdict], role="img", aria_label=_LABELS[kept.verdict])
    share = tag("span", sign, f" {format_share(kept.share)}", class_=f"gained {_CLASSES[kept.verdict]}")
    return join_markup(share, " ", tag("span", format_bounds(kept, keep), class_="range"))


def _ordered_measures(result: Compression) -> list[str]:
    return [result.measure, *(measure for measure in result.measures if measure != result.measure)]


# notes


def _render_notes(result: Compression) -> Section:
    settings = result.settings
    goal, measure = format_goal(settings.keep), result.measures[result.measure]
    rows: list[tuple[object, object]] = [("Score", _describe_score(result))]
    rows += [
        (
            "Codes",
            "Quantizers learn from the corpus, never from queries or judgments. Vectors are stored as codes; "
            + (
                "all rows of the task are stored as codes."
                if result.example != "query"
                else "queries stay floats, except that bits are compared with bits."
            ),
        ),
        (
            "Bounds",
            f"All lower bounds hold together with {format_confidence(settings.confidence)} confidence, and so do all "
            "upper bounds (max-t). They are bounds of the paired difference between the candidate's score and "
            f"{goal} of the original score. They allow for at least three examples that lose a tenth of their score, "
            "even if no example does.",
        ),
        (
            "Rule",
            f"Store the smallest candidate whose lower bound is at least {goal} of {measure}. "
            + (
                ""
                if result.alone or len(result.measures) == 1
                else f"A candidate that keeps significantly less than {goal} on another measure is excluded. "
            )
            + (
                "The original vectors stay stored, so the size is that of the index."
                if settings.rescore
                else "Candidates that need the original vectors for rescoring are shown but not chosen."
            ),
        ),
        ("Seed", settings.seed),
    ]
    rows += [("Note", note) for note in result.notes]
    rows += [
        (join_markup("Could not be fitted: ", tag("bdi", name)), reason) for name, reason in result.left_out.items()
    ]
    return section("notes", "How this was measured", render_definition_list(*rows))


def _describe_score(result: Compression) -> str:
    settings = result.settings
    if result.task:
        return (
            f"{result.measures[result.measure]} on {_format_examples(result)}; vectors compared by {settings.metric}."
        )
    words = (
        f"Recall@10: the share of the 10 nearest rows by {settings.metric} in the original vectors that a search in "
        f"the codes finds. {result.examples:,} random rows are the queries. For each query, all other rows are "
        f"searched. A candidate far below the share is scored on the first {min(FIRST_QUERIES, result.examples)} "
        "queries only."
    )
    if any(trial.whole for trial in result.trials):
        words += (
            f" The corpus is a sample of {settings.sample:,} of {result.n:,} rows. Among more rows, neighbors are "
            "closer and recall is lower, so the smallest candidates that keep the share are searched in all rows, and "
            "only those are chosen."
        )
    return words


# commands


def _render_commands(result: Compression) -> Section:
    measure = {"measure": result.measure} if result.alone else {}
    settings = changed_settings(result.settings, _SETTINGS)
    arguments = {**given_inputs(result.given, (), _TASK_INPUTS), **measure, **settings}
    call = Call("compress", (name_source(result.source),), arguments, _OPTIONS)
    save = None if result.chosen is None else "quantizer"
    parts = render_reproduction(call, "compression", "Reproduce this answer", page="compression.html", save=save)
    if result.chosen is not None:
        parts += _render_apply(result)
    return section("commands", "Commands", *parts)


def _render_apply(result: Compression) -> list[Markup]:
    lengths = ", scaled to length 1" if result.settings.metric == "cosine" else ""
    encode = [
        'quantizer = isoscope.load_transform("quantizer")',
        "codes = quantizer.encode(vectors)      # bytes, shape (n, code_size)",
        f"decoded = quantizer.decode(codes)      # floats in the original space{lengths}",
    ]
    if is_file(result.source):
        out = "decoded" + (".parquet" if is_address(result.source) else PurePath(result.source).suffix)
        layer = [] if result.settings.layer is None else ["--layer", str(result.settings.layer)]
        encode.append(
            "# in a shell: " + shlex.join(["isoscope", "apply", "quantizer", result.source, "-o", out, *layer])
        )
    return [
        tag("h3", "Use the codes"),
        tag("p", "The saved quantizer is the one that was scored."),
        render_code_block(*encode),
    ]


# notebooks


def render_notebook_page(result: Compression) -> str:
    """Return the answer and its frontier for a notebook."""
    measure = result.measure
    trials = frontier(result)
    names = ["", "bytes", result.measures[measure], "kept, bounds"]
    lead = [
        join_markup(tag("strong", tag("bdi", result.source)), f", {result.n:,} × {result.d:,}."),
        join_markup(
            tag("strong", compression_headline(result)),
            " ",
            result.paragraph.removeprefix(compression_headline(result)).strip(),
        ),
    ]
    rows = []
    for trial in trials:
        kept = trial[measure]
        chip = render_chip(
            _CLASSES[kept.verdict], KEPT_MARKS[kept.verdict], role="img", aria_label=_LABELS[kept.verdict]
        )
        cells: list[object] = [
            _render_name(trial, result.chosen is not None and trial is result.choice),
            f"{trial.bytes:,}",
            f"{kept.value:.3f}",
            ""
            if trial is result.original
            else join_markup(chip, f" {format_share(kept.share)} {format_bounds(kept, result.settings.keep)}"),
        ]
        rows.append(cells)
    bold = trials.index(result.choice) if result.chosen is not None else None
    images = [render_chart_image(build_frontier_chart(result))]
    return render_notebook_table(lead, names, rows, images=images, notes=result.notes, bold_row=bold)
