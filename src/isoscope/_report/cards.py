"""Cards and tables of findings, each with a scale that shows its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from isoscope._report.html import (
    join_markup,
    render_code,
    render_code_block,
    render_definition_list,
    render_scrollable,
    tag,
)
from isoscope._report.narrate import capitalize, format_confidence
from isoscope._report.row_lists import render_list_links
from isoscope._report.suggestions import suggest_commands
from isoscope._report.svg import Scale, format_percent, format_tick
from isoscope.auditing.causes import remove_shape_note
from isoscope.auditing.finding import VERDICTS, format_number
from isoscope.auditing.findings.evidence import ABOUT_SHAPE

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.suggestions import Suggestion
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.causes import Cause
    from isoscope.auditing.compare import Change
    from isoscope.auditing.finding import Finding


_MARGIN = 0.14
_AT_MOST_ONE = {"mean_cosine", "isoscore", "inter_type", "intra_type", "clusters", "labels"}
"""Findings that are not shares, but are at most 1: cosines, IsoScores and silhouettes."""
_MIN_LABEL_WIDTH = 0.13  # share of the width that a region's name needs


def draw_meter(finding: Finding, beside: Sequence[Finding] = ()) -> Markup | None:
    """Draw the scale of a finding with its value, interval and thresholds; return None if it has no thresholds.

    If the findings `beside` it are passed, all of them have the same scale, with numbers.
    """
    drawn = beside or [finding]
    ends = [end for each in drawn for end in (*each.judged.ok, *each.judged.bearable)]
    if not any(map(math.isfinite, ends)) or math.isnan(finding.value):
        return None
    scale = _choose_scale(drawn)
    if scale is None:
        return None
    regions = [
        tag(
            "g",
            tag(
                "rect",
                x=format_percent(left),
                width=format_percent(right - left),
                y="11",
                height="10",
                class_=f"region {verdict}",
            ),
            tag("text", verdict, x=format_percent((left + right) / 2), y="35", class_="name")
            if right - left > _MIN_LABEL_WIDTH
            else None,
        )
        for left, right, verdict in _regions(finding, scale)
    ]
    marks = []
    if finding.judged.null is not None and math.isfinite(finding.judged.null):
        place = scale.percent(finding.judged.null)
        marks.append(
            tag("svg", tag("path", d="M0 9L4.5 1H-4.5Z"), x=place, y="0", overflow="visible", class_="null-mark")
        )
    place = scale.percent(finding.value)
    marks.append(tag("line", x1=place, x2=place, y1="7", y2="25", class_="halo"))
    if finding.low is not None and finding.high is not None:
        sides = {"x1": scale.percent(finding.low), "x2": scale.percent(finding.high)}
        marks.append(tag("line", y1="16", y2="16", class_="interval", **sides))
    marks.append(tag("line", x1=place, x2=place, y1="6", y2="26", class_="value"))
    if beside:
        marks += _draw_numbers(scale, finding.form)
    class_ = "meter numbered" if beside else "meter"
    return tag("svg", *regions, *marks, role="img", aria_label=_describe_meter(finding), class_=class_)


def _draw_numbers(scale: Scale, form: str) -> list[Markup]:
    """Draw the numbers of a scale below its regions."""
    numbers = []
    for value in next(ticks for ticks in map(scale.ticks, (4, 6, 9)) if len(ticks) > 1):
        place = scale(value)
        side = " first" if place < 0.06 else " last" if place > 0.94 else ""
        text = f"{100 * value:g}%" if form == "share" else format_tick(value)
        numbers.append(tag("line", x1=format_percent(place), x2=format_percent(place), y1="21", y2="25", class_="foot"))
        numbers.append(tag("text", text, x=format_percent(place), y="50", class_=f"number-mark{side}"))
    return numbers


def _describe_meter(finding: Finding) -> str:
    words = f"{finding.shown}; {finding.range}"
    if finding.judged.null is not None and math.isfinite(finding.judged.null):
        words += f"; random data of the same size: {format_number(finding.judged.null, finding.form)}"
    return words


def _choose_scale(findings: Sequence[Finding]) -> Scale | None:
    """Return a scale with all thresholds, values, intervals and references, and a margin; None if all are 0."""
    marks: list[float | None] = []
    for each in findings:
        marks += [*each.judged.ok, *each.judged.bearable, each.value, each.low, each.high, each.judged.null]
    known = [mark for mark in marks if mark is not None and math.isfinite(mark)]
    form = findings[0].form
    if form == "power":
        least = max(min(mark for mark in (*known, 1.0) if mark > 0), 1e-12)
        return Scale(least / 10, max(1.0, *known), log=True)
    low, high = min(known), max(known)
    span = max(high - low, 0.0) or abs(high)
    if span < 1e-300:  # all values are 0, and "ok if 0" has no threshold to show
        return None
    margin = _MARGIN * span
    first, last = low - margin, high + margin
    if low >= 0:
        first = max(first, 0.0)
    if form == "share" or findings[0].name in _AT_MOST_ONE:
        last = min(last, 1.0)
    return Scale(first, last)


def _regions(finding: Finding, scale: Scale) -> list[tuple[float, float, str]]:
    """Return (left, right, verdict) for each region, from left to right; positions are shares of the width."""
    edges = {0.0, 1.0}
    for end in (*finding.judged.ok, *finding.judged.bearable):
        if math.isfinite(end):
            edges.add(min(max(scale(end), 0.0), 1.0))
    regions: list[tuple[float, float, str]] = []
    for left, right in pairwise(sorted(edges)):
        if right - left < 1e-6:
            continue
        verdict = finding.judged.verdict(scale.value_at((left + right) / 2))
        if regions and regions[-1][2] == verdict:
            regions[-1] = (regions[-1][0], right, verdict)
        else:
            regions.append((left, right, verdict))
    return regions


SYMBOLS = {"ok": "✓", "look": "◐", "bad": "✕"}
VERDICT_LABELS = {"ok": "ok", "look": "worth a look", "bad": "bad"}
CHANGE_LABELS = {
    "better": "▲ better",
    "worse": "▼ worse",
    "moved": "moved, same verdict",
    "same": "same",
    "new": "new",
    "gone": "gone",
}


def badge(verdict: str, *, brief: bool = False) -> Markup:
    """Return a verdict as a colored badge with a symbol and a word."""
    words = verdict if brief else VERDICT_LABELS[verdict]
    return tag("span", tag("span", SYMBOLS[verdict], aria_hidden="true"), " ", words, class_=f"badge {verdict}")


def describe_verdicts(findings: Sequence[Finding]) -> str:
    """Return the number of findings with each verdict, such as "2 bad, 3 worth a look, 10 ok"."""
    counts = {verdict: sum(f.verdict == verdict for f in findings) for verdict in reversed(VERDICTS)}
    return (
        ", ".join(f"{count} {VERDICT_LABELS[verdict]}" for verdict, count in counts.items() if count) or "no findings"
    )


def render_cards(audit: Audit, since: Mapping[str, Change]) -> Markup:
    """Return all findings of one space: cards for those that need attention, by cause, and rows for the others."""
    fine = [finding for finding in audit.findings if finding.verdict == "ok"]
    return join_markup(
        *(
            _render_cause(cause, audit, since, commands, first=not i)
            for i, (cause, commands) in enumerate(zip(audit.causes, suggest_commands(audit), strict=True))
        ),
        tag("h3", "No action needed") if fine else None,
        tag("div", *(_render_row(finding, audit, since) for finding in fine), class_="lines") if fine else None,
    )


def _render_cause(
    cause: Cause, audit: Audit, since: Mapping[str, Change], commands: Sequence[Suggestion], *, first: bool
) -> Markup:
    """Return the findings with one cause, and the commands that follow; the headline already states the first."""
    number = len(cause.findings)
    title = f"Evidence: {number} findings with this cause" if number > 1 else "Evidence"
    return tag(
        "div",
        tag("h3", title if first else cause.sentence),
        None if first or not cause.is_about_shape else tag("p", ABOUT_SHAPE, class_="hint"),
        *(_render_card(finding, audit, since) for finding in cause.findings),
        _render_suggestions(commands),
        id=f"cause-{cause.name}",
        class_="cause",
    )


def _render_suggestions(suggestions: Sequence[Suggestion]) -> Markup | None:
    """Return commands with their purposes; None if there are none."""
    if not suggestions:
        return None
    rows = (join_markup(tag("p", each.purpose), render_code_block(each.command)) for each in suggestions)
    return tag("div", *rows, class_="suggestions")


def _render_card(finding: Finding, audit: Audit, since: Mapping[str, Change]) -> Markup:
    return tag(
        "article",
        tag(
            "div",
            tag("header", tag("h4", finding.title), badge(finding.verdict)),
            tag("p", render_code(remove_shape_note(finding.meaning)), class_="meaning"),
            tag("p", tag("strong", "Advice: "), render_code(finding.advice), class_="advice"),
            render_list_links(audit, finding.name),
            _render_caveats(finding, audit),
            class_="words",
        ),
        tag(
            "div",
            _render_value(finding),
            _render_baseline(finding, since),
            draw_meter(finding),
            _render_range(finding),
            class_="numbers",
        ),
        _render_details(finding),
        id=f"finding-{finding.name}",
        class_=f"card {finding.verdict}",
    )


def _render_row(finding: Finding, audit: Audit, since: Mapping[str, Change]) -> Markup:
    return tag(
        "details",
        tag(
            "summary",
            badge(finding.verdict),
            tag("span", finding.title, class_="title"),
            _render_value(finding, "span"),
            draw_meter(finding) or tag("span", class_="meter"),
        ),
        _render_baseline(finding, since),
        tag("p", render_code(finding.meaning), class_="meaning"),
        tag("p", render_code(finding.advice), class_="advice"),
        render_list_links(audit, finding.name),
        _render_caveats(finding, audit),
        _render_range(finding),
        _render_facts(finding),
        id=f"finding-{finding.name}",
        class_="fine",
    )


def _render_value(finding: Finding, element: str = "div") -> Markup:
    interval = tag("span", finding.interval, class_="range") if finding.interval else None
    return tag(element, tag("b", finding.shown), interval and join_markup(" ", interval), class_="number")


def _render_range(finding: Finding) -> Markup:
    words = finding.range
    null = finding.judged.null
    if null is not None and math.isfinite(null):
        words += f"; random data: {format_number(null, finding.form)}"
    return tag("p", capitalize(words), class_="bounds")


def _render_caveats(finding: Finding, audit: Audit) -> Markup | None:
    """Return the caveats of a number: it comes from a sample, or its interval extends into another verdict."""
    words = []
    if finding.sampled:
        words.append(f"Measured on a sample of {finding.rows:,} rows.")
    if finding.borderline:
        words.append(
            f"Borderline: the {format_confidence(audit.settings.confidence)} interval extends into the range of "
            "another verdict."
        )
    return tag("p", " ".join(words), class_="doubt") if words else None


def _render_baseline(finding: Finding, since: Mapping[str, Change]) -> Markup | None:
    """Return the value in the baseline and whether the new value is better, as text."""
    change = since.get(finding.name)
    if change is None:
        return None
    if change.before is None:
        return tag("p", "Not in the baseline", class_="before")
    same = ", same verdict" if change.trend != change.direction else ""
    words = tag("strong", CHANGE_LABELS[change.trend] + same)
    return tag(
        "p",
        f"Was {change.before.shown} ({VERDICT_LABELS[change.before.verdict]}): ",
        words,
        class_=f"before {change.trend}",
    )


def _render_details(finding: Finding) -> Markup:
    return tag("details", tag("summary", "Thresholds and details"), _render_facts(finding), class_="more")


def _render_facts(finding: Finding) -> Markup:
    rows = [
        ("Source of the thresholds", finding.judged.source),
        ("Rows", f"{finding.rows:,}{' (a sample)' if finding.sampled else ''}"),
    ]
    rows += [(name.replace("_", " ").capitalize(), _format_detail(value)) for name, value in finding.details.items()]
    rows.append(("Name in scripts", tag("code", finding.name)))
    return render_definition_list(*rows)


def _format_detail(value: Any) -> str:
    """Return a detail as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_format_detail(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_format_detail(each) for each in value) or "none"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}".replace("-", "−")
    return str(value)


def render_comparison_table(audits: Sequence[Audit], since: Mapping[str, Change] | None = None) -> Markup:
    """Return a table with a column for each space and, if `since` is set, a column for the changes."""
    names = list(dict.fromkeys(finding.name for audit in audits for finding in audit.findings))
    worst = {name: max(VERDICTS.index(a[name].verdict) for a in audits if name in a) for name in names}
    if since is not None:
        worst = {name: worst[name] + len(VERDICTS) * (since[name].trend == "worse") for name in names}
    rows = []
    for name in sorted(names, key=lambda name: -worst[name]):
        title = next(audit[name].title for audit in audits if name in audit)
        change = None if since is None else since[name]
        beside = [audit[name] for audit in audits if name in audit]
        cells = [
            _render_cell(audit, name, chr(ord("A") + i), change if i == len(audits) - 1 else None, beside)
            for i, audit in enumerate(audits)
        ]
        if change is not None:
            cells.append(tag("td", _render_change(change), data_space="Change"))
        rows.append(tag("tr", tag("th", title, scope="row"), *cells, id=f"finding-{name}"))
    head = tag(
        "tr",
        tag("th", "Finding", scope="col"),
        *(tag("th", f"{chr(ord('A') + i)}: ", tag("bdi", audit.source), scope="col") for i, audit in enumerate(audits)),
        tag("th", "Change", scope="col") if since is not None else None,
    )
    if len(audits) == 2:
        return tag("table", tag("thead", head), tag("tbody", *rows), class_="beside")
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="beside many")
    return render_scrollable(table, label="Table of findings")


def _render_change(change: Change) -> Markup:
    reason = f": {change.reason}" if change.reason else None
    return tag("p", tag("strong", CHANGE_LABELS[change.trend]), reason, class_=f"before {change.trend}")


def _render_cell(audit: Audit, name: str, letter: str, change: Change | None, beside: Sequence[Finding]) -> Markup:
    if name not in audit:
        return tag("td", tag("p", f"Not measured: {audit.skipped.get(name, 'it does not apply')}"), data_space=letter)
    finding = audit[name]
    lost = change is not None and change.trend == "worse" and finding.verdict == "ok"
    verdict = tag("span", CHANGE_LABELS["worse"], class_="badge look") if lost else badge(finding.verdict, brief=True)
    return tag(
        "td",
        tag("div", _render_value(finding), verdict, class_="read"),
        draw_meter(finding, beside),
        tag(
            "details",
            tag("summary", "What it means"),
            tag("p", render_code(finding.meaning)),
            tag("p", render_code(finding.advice)),
            _render_caveats(finding, audit),
            _render_range(finding),
            tag("p", "Source of the thresholds: ", finding.judged.source, class_="bounds"),
        ),
        data_space=letter,
    )
