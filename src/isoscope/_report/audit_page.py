"""Render one audit, or several side by side, as an HTML page, and an audit as a notebook table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING

from isoscope._core.errors import ParameterError, plural
from isoscope._report.audit_charts import activation_chart, barcode_chart, cosine_chart, spectrum_chart
from isoscope._report.cards import (
    CHANGE_LABELS,
    SYMBOLS,
    VERDICT_LABELS,
    describe_verdicts,
    render_cards,
    render_comparison_table,
)
from isoscope._report.cloud import draw_small_cloud, find_colorings, render_point_cloud
from isoscope._report.commands import format_audit_command
from isoscope._report.glossary import render_glossary
from isoscope._report.html import (
    document,
    join_markup,
    render_chip,
    render_code,
    render_code_block,
    render_date,
    render_definition_list,
    render_main,
    render_notebook_table,
    section,
    tag,
)
from isoscope._report.narrate import format_confidence, interleave_separators, join_words, spell_number
from isoscope._report.row_lists import render_worst_rows
from isoscope._report.similarity import render_similarity
from isoscope._report.suggestions import suggest_repair_test
from isoscope._report.svg_file import render_chart_image, render_cloud_image
from isoscope.auditing.compare import (
    UNSEEN_CHANGES,
    align_findings,
    compare_findings,
    describe_comparison,
    describe_repair,
    describe_setting_differences,
)
from isoscope.auditing.finding import VERDICTS
from isoscope.auditing.findings.evidence import ABOUT_SHAPE

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope._report.pictures import Pictures
    from isoscope._report.svg import Chart
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import Agreement, Change, HeldOutComparison
    from isoscope.auditing.comparison import Comparison
    from isoscope.auditing.finding import Finding


def render_heading(
    audits: Sequence[Audit],
    baseline: Audit | None,
    agreement: float | None,
    held_out: HeldOutComparison | None = None,
    spaces: Sequence[Agreement] = (),
    *,
    made: Markup,
) -> Markup:
    """Return the top of the page: the answer in one sentence, its evidence at a glance, and the verdicts."""
    if len(audits) == 1:
        audit = audits[0]
        return tag(
            "header",
            tag("p", "isoscope: the shape of an embedding space", class_="brand"),
            tag(
                "div",
                tag(
                    "div",
                    tag("p", tag("bdi", audit.source), class_="source"),
                    _render_size(audit, made),
                    tag("h1", audit.headline),
                    _render_shape_note(audit),
                    _render_verdict(audit),
                    class_="answer",
                ),
                _render_glance(audit),
                class_="opening",
            ),
            _render_drift(audit, baseline) if baseline is not None else None,
        )
    names = [audit.source for audit in audits]
    return tag(
        "header",
        tag("p", f"isoscope: {_format_subtitle(audits, held_out)}", class_="brand"),
        tag("p", *_render_titles(names), class_="source"),
        tag("p", made, class_="size"),
        tag("h1", describe_comparison(audits, agreement))
        if held_out is None
        else tag("h1", describe_repair(audits[0], audits[1], held_out, agreement)),
        _render_repair_effect(audits[0], audits[1], held_out) if held_out is not None else None,
        tag("p", f"On {spaces[0].rows:,} rows: {'; '.join(map(str, spaces))}.", class_="hint") if spaces else None,
        tag(
            "div",
            *(
                tag(
                    "div",
                    tag("h2", f"{letter}: ", tag("bdi", audit.source)),
                    _render_size(audit),
                    tag("p", audit.headline, class_="lede"),
                    _render_verdict(audit, lost),
                )
                for letter, audit, lost in zip(LETTERS, audits, _find_regressions(audits, held_out), strict=False)
            ),
            class_="pair",
        ),
    )


def _render_shape_note(audit: Audit) -> Markup | None:
    """Return the note that the headline is about the shape, if it is, with the command that tests it on a task."""
    causes = audit.causes
    if not causes or not causes[0].is_about_shape:
        return None
    return tag("p", tag("strong", ABOUT_SHAPE), f" {_SHAPE_NOTE}", role="note", class_="caution")


_SHAPE_NOTE = "Only a test on your task shows whether a repair helps; the commands below run one."


def _render_glance(audit: Audit) -> Markup | None:
    """Return the cosines and a small view of the cloud, which stand beside the headline."""
    if audit.pictures is None:
        return None
    chart = replace(cosine_chart(audit.pictures, [audit.pictures]), size="small", labels=())
    colors = find_colorings(audit.pictures)[0].title.lower()
    return tag(
        "div",
        tag("figure", chart.legend(), chart.to_svg(), tag("figcaption", chart.description)),
        tag(
            "figure",
            draw_small_cloud(audit.pictures),
            tag(
                "figcaption",
                f"The vectors along two principal components, colored by {colors}. ",
                tag("a", "Explore", href="#pictures"),
            ),
        ),
        class_="glance",
    )


def _find_regressions(audits: Sequence[Audit], held_out: HeldOutComparison | None) -> list[set[str]]:
    """Return, for each space, the findings that the repair made worse but whose verdict is still "ok"."""
    if held_out is None:
        return [set() for _ in audits]
    changes = compare_findings(*audits)
    return [set(), {c.name for c in changes if c.after and c.after.verdict == "ok" and c.trend == "worse"}]


def _format_subtitle(audits: Sequence[Audit], held_out: HeldOutComparison | None) -> str:
    if held_out is not None:
        return f"before and after {held_out.name}"
    return f"{spell_number(len(audits))} spaces side by side"


def _render_repair_effect(before: Audit, after: Audit, held_out: HeldOutComparison) -> Markup:
    """Return how a repair was evaluated, what it made worse or better, and how to test it on a task."""
    changes = compare_findings(before, after)
    rows = [
        tag("li", tag("strong", CHANGE_LABELS[trend]), ": ", _format_change(change), class_=f"before {trend}")
        for trend in ("worse", "better")
        for change in changes
        if change.trend == trend
    ]
    test = suggest_repair_test(before, held_out)
    return tag(
        "section",
        tag("div", tag("p", test.purpose), render_code_block(test.command), role="note", class_="caution"),
        tag("p", held_out.note, class_="reasons"),
        tag("ul", *rows, class_="effects") if rows else None,
        aria_label="What the repair changed",
    )


def _render_titles(names: Sequence[str]) -> Iterator[Markup]:
    for i, part in enumerate(interleave_separators(names)):
        yield tag("span", part, class_="and") if i % 2 else tag("bdi", part)


def _render_size(audit: Audit, *more: Markup) -> Markup:
    used = {role: name for role, name in audit.columns.items() if role not in audit.skipped}
    roles = [f"{role} from “{name}”" if name != role else role for role, name in used.items()]
    facts = [
        f"{audit.n:,} vectors × {audit.d:,} dimensions",
        audit.dtype,
        f"neighbors by {audit.settings.metric}",
        *roles,
    ]
    return tag("p", " · ".join(facts), *(join_markup(" · ", each) for each in more), class_="size")


def _render_verdict(audit: Audit, lost: Collection[str] = ()) -> Markup:
    tallies = []
    for verdict in reversed(VERDICTS):
        names = [finding for finding in audit.findings if finding.verdict == verdict and finding.name not in lost]
        if names:
            count = tag(
                "b", tag("span", SYMBOLS[verdict], aria_hidden="true"), f" {len(names)} {VERDICT_LABELS[verdict]}"
            )
            links = [join_markup(tag("a", finding.title, href=f"#finding-{finding.name}"), " ") for finding in names]
            tallies.append(tag("li", count, tag("span", *links) if verdict != "ok" else None, class_=verdict))
    if lost:
        links = [join_markup(tag("a", audit[name].title, href=f"#finding-{name}"), " ") for name in sorted(lost)]
        count = tag("b", tag("span", "▼", aria_hidden="true"), f" {len(lost)} worse, same verdict")
        tallies.insert(-1, tag("li", count, tag("span", *links), class_="look"))
    return tag("ul", *tallies, class_="tally")


def _render_drift(audit: Audit, baseline: Audit) -> Markup:
    """Return the changes since the baseline: the counts, and the findings whose verdict changed."""
    changes = compare_findings(baseline, audit)
    counts = {name: sum(change.direction == name for change in changes) for name in CHANGE_LABELS}
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    turned = [change for change in changes if change.direction in ("better", "worse", "gone")]
    rows = (
        tag(
            "li",
            tag("strong", CHANGE_LABELS[change.direction]),
            ": ",
            _format_verdict_change(change),
            class_=f"before {change.direction}",
        )
        for change in turned
    )
    caution = "; ".join(describe_setting_differences(baseline, audit))
    return tag(
        "section",
        tag("h2", "Since the baseline"),
        tag(
            "p",
            "The baseline is ",
            tag("bdi", baseline.source),
            f" ({baseline.n:,} × {baseline.d:,}). Findings: {words}.",
        ),
        tag("p", f"The two audits differ in their settings: {caution}.", class_="doubt") if caution else None,
        tag("ul", *rows) if turned else None,
        tag("p", UNSEEN_CHANGES, class_="hint"),
        class_="drift",
    )


def _format_change(change: Change) -> str:
    """Return a change as text, with both verdicts if they differ."""
    if change.before is None or change.after is None or change.before.verdict != change.after.verdict:
        return _format_verdict_change(change)
    return f"{change.title}, {change.before.shown} → {change.after.shown}"


def _format_verdict_change(change: Change) -> str:
    then = "–" if change.before is None else f"{change.before.shown} ({VERDICT_LABELS[change.before.verdict]})"
    now = "–" if change.after is None else f"{change.after.shown} ({VERDICT_LABELS[change.after.verdict]})"
    return f"{change.title}, {then} → {now}" + (f": {change.reason}" if change.reason else "")


MAX_AUDITS = 26
"""The largest number of spaces on one page; each has a letter."""


def render_page(
    audits: Sequence[Audit],
    *,
    baseline: Audit | None = None,
    agreement: float | None = None,
    held_out: HeldOutComparison | None = None,
    spaces: Sequence[Agreement] = (),
    made: date | None = None,
) -> str:
    """Return one audit, or several side by side, as a self-contained HTML document.

    Parameters
    ----------
    audits : sequence of Audit
        One audit, or up to 26 to compare.
    baseline : Audit, optional
        An earlier audit of the same space; each finding then also shows its earlier value.
    agreement : float, optional
        The share of nearest neighbors that two spaces have in common.
    held_out : HeldOutComparison, optional
        The repair that was applied between two audits of the same rows; the page shows what it made better or worse.
    spaces : sequence of Agreement
        CKA, Procrustes distance and mutual nearest neighbors of two spaces.
    made : date, optional
        The date on the page; by default today, or SOURCE_DATE_EPOCH.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> audit = isoscope.audit(np.random.default_rng(0).standard_normal((200, 8)))
    >>> render_page([audit])[:15]
    '<!doctype html>'
    """
    if not 1 <= len(audits) <= MAX_AUDITS:
        raise ParameterError(f"{len(audits)} audits were passed: a page needs 1 to {MAX_AUDITS}")
    if baseline is not None and len(audits) > 1:
        raise ParameterError(f"baseline was passed with {len(audits)} audits; it can be used only with a single audit")
    if agreement is not None and len(audits) != 2:
        raise ParameterError(f"agreement was passed with {plural(len(audits), 'audit')}; it needs two audits")
    if held_out is not None and len(audits) != 2:
        raise ParameterError(
            f"held_out was passed with {plural(len(audits), 'audit')}; it needs two audits, before and after the repair"
        )
    return document(
        join_words([audit.source for audit in audits]),
        audits[0].version,
        tag("a", "Skip to the findings", href="#findings", class_="skip"),
        render_heading(audits, baseline, agreement, held_out, spaces, made=render_date(made)),
        render_main(
            _render_findings(audits, baseline, held_out),
            render_worst_rows(audits[0]) if len(audits) == 1 else None,
            render_similarity(audits),
            _render_pictures(audits),
            _render_notes(audits, held_out),
            render_glossary(
                {"audit", *(finding.name for audit in audits for finding in audit.findings)}
                | {agreement.name for agreement in spaces}
            ),
        ),
        styles=["page.css", "audit.css"],
        scripts=["cloud.js", "page.js", "copy.js"],
    )


def render_comparison_page(comparison: Comparison) -> str:
    """Return the audits of several sources side by side as a self-contained HTML document."""
    spaces = comparison.correspondence[0] if len(comparison) == 2 else ()
    return render_page(comparison.audits, agreement=comparison.agreement, spaces=spaces)


# the body


def _render_findings(audits: Sequence[Audit], baseline: Audit | None, held_out: HeldOutComparison | None) -> Section:
    confidence = format_confidence(audits[0].settings.confidence)
    lead = tag(
        "p",
        _render_sign("value", "M11 1V17"),
        "value, ",
        _render_sign("interval", "M2 9H20"),
        f"{confidence} interval, ",
        _render_sign("null-mark", "M11 14L16 4H6Z"),
        "random data of the same size. The findings describe the shape of the vectors, not how well they solve a task.",
        class_="hint",
    )
    if held_out is not None:
        since = {change.name: change for change in compare_findings(*audits)}
        return section("findings", "Findings", lead, render_comparison_table(audits, since))
    if len(audits) > 1:
        return section("findings", "Findings", lead, render_comparison_table(audits))
    since = {} if baseline is None else {change.name: change for change in compare_findings(baseline, audits[0])}
    return section("findings", "Findings", lead, render_cards(audits[0], since))


def _render_sign(class_: str, path: str) -> Markup:
    return tag("svg", tag("path", d=path, class_=class_), viewBox="0 0 22 18", class_="sign", aria_hidden="true")


def _render_pictures(audits: Sequence[Audit]) -> Section | None:
    drawn = [(audit, audit.pictures) for audit in audits if audit.pictures is not None]
    if not drawn:
        return None
    among = [pictures for _, pictures in drawn]
    kinds: list[tuple[str, Callable[[Pictures, Sequence[Pictures]], Chart]]] = [
        *([("Cosines", cosine_chart)] if len(audits) > 1 else []),  # of one space, they stand beside the headline
        ("Spectrum", spectrum_chart),
        ("Coordinates", activation_chart),
        ("Barcode", barcode_chart),
    ]
    figures = []
    for title, build in kinds:
        panels = [(audit, build(pictures, among)) for audit, pictures in drawn]
        figures.append(
            tag(
                "div",
                tag("h3", title),
                panels[0][1].legend(),
                tag(
                    "div",
                    *(_render_panel(audits, audit, chart.to_svg(), chart.description) for audit, chart in panels),
                    class_="panels",
                ),
                class_="picture wide" if len(drawn) > 1 else "picture",
            )
        )
    clouds = []
    for i, (audit, pictures) in enumerate(drawn):
        content, caption = render_point_cloud(pictures, f"cloud-{i + 1}", audit.source, audit.n)
        clouds.append(_render_panel(audits, audit, content, caption))
    figures.insert(
        0, tag("div", tag("h3", "Point cloud"), tag("div", *clouds, class_="panels"), class_="picture wide points")
    )
    return section("pictures", "Pictures", tag("div", *figures, class_="figures"))


def _render_panel(audits: Sequence[Audit], audit: Audit, content: Markup, caption: str) -> Markup:
    """Return the panel of one space in a figure, with its name if there are several spaces."""
    whose = tag("h4", tag("bdi", audit.source)) if len(audits) > 1 else None
    return tag("figure", whose, content, tag("figcaption", caption))


def _render_notes(audits: Sequence[Audit], held_out: HeldOutComparison | None) -> Section:
    command = _format_command(audits) if held_out is None else held_out.command
    which = "all" if held_out is None else "those that the repair was not fitted on"
    return section(
        "notes",
        "How this was measured",
        *(
            join_markup(
                tag("h3", tag("bdi", audit.source)) if len(audits) > 1 else None,
                render_definition_list(*_describe_settings(audit, which)),
            )
            for audit in audits
        ),
        join_markup(tag("h3", "To reproduce"), render_code_block(command)) if command else None,
    )


def _describe_settings(audit: Audit, which: str) -> list[tuple[str, object]]:
    settings = audit.settings
    sampled = [f"{finding.title} ({finding.rows:,} rows)" for finding in audit.findings if finding.sampled]
    rows: list[tuple[str, object]] = [
        ("Rows", which if not sampled else f"{which}; a sample for {', '.join(sampled)}"),
        (
            "Pairs of rows",
            f"all rows, or a random sample of {settings.sample:,} rows if there are more (seed {settings.seed})",
        ),
        ("Intervals", f"{format_confidence(settings.confidence)} confidence"),
        ("Rows with missing values", "not allowed" if settings.missing == "error" else "dropped and counted"),
    ]
    rows += [(f"Not measured: {name.replace('_', ' ')}", reason) for name, reason in audit.skipped.items()]
    return rows


def _format_command(audits: Sequence[Audit]) -> str:
    """Return the command that reproduces a page without a repair."""
    first = audits[0]
    return format_audit_command(
        [audit.source for audit in audits],
        [audit.columns for audit in audits],
        first.settings,
        queries=_name_queries(first),
        top=None if first.worst is None else first.worst.top,
    )


def _name_queries(audit: Audit) -> str | None:
    """Return the name of the queries; None if there are none."""
    if audit.measured is None:  # the JSON of an audit does not contain the name
        return "queries" if "queries" in audit else None
    return None if audit.measured.queries is None else audit.measured.queries.name


# notebooks


def render_notebook_page(audit: Audit) -> str:
    """Return the headline and a table of the findings for a notebook."""
    counts = describe_verdicts(audit.findings)
    size = f", {audit.n:,} × {audit.d:,}. {audit.headline} Findings: {counts}."
    rows = [
        (
            finding.title,
            render_chip(finding.verdict, f"{SYMBOLS[finding.verdict]} {VERDICT_LABELS[finding.verdict]}"),
            tag("span", finding.shown, style="white-space:nowrap"),
            tag("span", finding.interval, style="white-space:nowrap"),
            join_markup(render_code(finding.meaning), None if finding.verdict == "ok" else _render_advice(finding)),
        )
        for finding in audit.findings
    ]
    interval = f"{format_confidence(audit.settings.confidence)} interval"
    skipped = "; ".join(f"{name}: {reason}" for name, reason in audit.skipped.items())
    return render_notebook_table(
        [join_markup(tag("strong", tag("bdi", audit.source)), size)],
        ("finding", "verdict", "value", interval, "what it means"),
        rows,
        images=render_audit_images([audit]),
        notes=[f"Not measured: {skipped}"] if skipped else [],
        wrap=True,
    )


def render_comparison_notebook(comparison: Comparison) -> str:
    """Return the headline and a table of the findings of several sources for a notebook."""
    rows = [
        (title, *(_render_notebook_cell(finding) for finding in findings))
        for title, findings in align_findings(comparison.audits)
    ]
    names = [join_markup(f"{letter}: ", tag("bdi", a.source)) for letter, a in zip(LETTERS, comparison, strict=False)]
    notes = [f"{'; '.join(map(str, each))}." for each in comparison.correspondence if each]
    return render_notebook_table(
        [tag("strong", comparison.headline)],
        ("finding", *names),
        rows,
        images=render_audit_images(comparison.audits),
        notes=notes,
    )


def _render_notebook_cell(finding: Finding | None) -> Markup | str:
    if finding is None:
        return "–"
    chip = render_chip(
        finding.verdict, SYMBOLS[finding.verdict], role="img", aria_label=VERDICT_LABELS[finding.verdict]
    )
    return join_markup(chip, f" {finding.shown}")


def render_audit_images(audits: Sequence[Audit]) -> Iterator[Markup]:
    """Return the cosines and the points of each audit as images for a notebook."""
    among = [audit.pictures for audit in audits if audit.pictures is not None]
    for audit in audits:
        if audit.pictures is not None:
            chart = cosine_chart(audit.pictures, among)
            yield render_chart_image(replace(chart, title=f"{chart.title} of {audit.source}"))
            yield render_cloud_image(audit.pictures, audit.source)


def _render_advice(finding: Finding) -> Markup:
    return join_markup(" ", tag("em", render_code(finding.advice)))
