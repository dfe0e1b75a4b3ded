"""The report as one HTML page that needs nothing else, and as a small table for notebooks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from isoscope._core.errors import InputError
from isoscope._report import audit_charts
from isoscope._report.cards import SYMBOLS, VERDICT_LABELS, describe_verdicts, render_cards, render_comparison_table
from isoscope._report.cloud import render_point_cloud
from isoscope._report.document import document, render_definition_list, section
from isoscope._report.heading import SUMMARY, interleave_separators, render_heading
from isoscope._report.html import join_markup, tag
from isoscope._report.worth import render_similarity
from isoscope.auditing.compare import compare_findings
from isoscope.auditing.settings import Settings
from isoscope.stores.columns import plural
from isoscope.stores.databases.address import parse_address

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.pictures import Pictures
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import HeldOutComparison

MAX_AUDITS = 26
"""Spaces on one page: each has a letter."""


def render_page(
    audits: Sequence[Audit],
    *,
    baseline: Audit | None = None,
    agreement: float | None = None,
    held_out: HeldOutComparison | None = None,
) -> str:
    """One audit, or several side by side, as a self-contained document.

    Parameters
    ----------
    audits : sequence of Audit
        One, or up to 26 to compare.
    baseline : Audit, optional
        An earlier audit of the same space: each finding says what it was.
    agreement : float, optional
        The share of their nearest neighbours that two spaces have in common.
    held_out : HeldOut, optional
        The repair between two audits of the same rows: the page names it and shows what it made better or worse.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> found = isoscope.audit(np.random.default_rng(0).standard_normal((200, 8)))
    >>> render_page([found])[:15]
    '<!doctype html>'
    """
    if not 1 <= len(audits) <= MAX_AUDITS:
        raise InputError(f"{len(audits)} audits were given: a page shows from 1 to {MAX_AUDITS}")
    if baseline is not None and len(audits) > 1:
        raise InputError(f"a baseline was given with {len(audits)} audits: it goes with one")
    if agreement is not None and len(audits) != 2:
        raise InputError(f"an agreement was given with {plural(len(audits), 'audit')}: it is that of two")
    if held_out is not None and len(audits) != 2:
        raise InputError(f"held_out was given with {plural(len(audits), 'audit')}: it goes with two, before and after")
    return document(
        "".join(interleave_separators([audit.source for audit in audits])),
        audits[0].version,
        tag("a", "Skip to the findings", href="#findings", class_="skip"),
        render_heading(audits, baseline, agreement, held_out),
        tag(
            "main",
            _render_findings(audits, baseline, held_out),
            render_similarity(audits),
            _render_pictures(audits),
            _render_notes(audits),
        ),
        styles=["page.css"],
        scripts=["cloud.js", "page.js"],
    )


# the body


def _render_findings(audits: Sequence[Audit], baseline: Audit | None, held_out: HeldOutComparison | None) -> Markup:
    confidence = f"{100 * audits[0].settings.confidence:g}%"
    lead = tag(
        "p",
        _render_sign("value", "M11 1V17"),
        "the value, ",
        _render_sign("interval", "M2 9H20"),
        f"its {confidence} interval, ",
        _render_sign("null-mark", "M11 14L16 4H6Z"),
        "what a cloud of as many rows and dimensions has that is without structure.",
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


def _render_pictures(audits: Sequence[Audit]) -> Markup | None:
    drawn = [(audit, audit.pictures) for audit in audits if audit.pictures is not None]
    if not drawn:
        return None
    among = [pictures for _, pictures in drawn]
    kinds: list[tuple[str, Callable[[Pictures, Sequence[Pictures]], audit_charts.CaptionedChart]]] = [
        ("The cosines", audit_charts.draw_cosines),
        ("The spectrum", audit_charts.draw_spectrum),
        ("The coordinates", audit_charts.draw_activations),
        ("The barcode", audit_charts.draw_barcode),
    ]
    figures = []
    for title, draw in kinds:
        panels = [(audit, draw(pictures, among)) for audit, pictures in drawn]
        figures.append(
            tag(
                "div",
                tag("h3", title),
                panels[0][1].key,
                tag(
                    "div",
                    *(_render_panel(audits, audit, one.chart, one.caption) for audit, one in panels),
                    class_="panels",
                ),
                class_="picture wide" if len(drawn) > 1 else "picture",
            )
        )
    clouds = []
    for i, (audit, pictures) in enumerate(drawn):
        content, caption = render_point_cloud(pictures, f"cloud-{i + 1}", audit.source, audit.n)
        clouds.append(_render_panel(audits, audit, content, caption))
    figures.insert(0, tag("div", tag("h3", "The cloud"), tag("div", *clouds, class_="panels"), class_="picture wide"))
    return section("pictures", "Pictures", tag("div", *figures, class_="figures"))


def _render_panel(audits: Sequence[Audit], audit: Audit, content: Markup, caption: str) -> Markup:
    """One space's part of a figure; figures of several spaces say whose it is."""
    whose = tag("h4", tag("bdi", audit.source)) if len(audits) > 1 else None
    return tag("figure", whose, content, tag("figcaption", caption))


def _render_notes(audits: Sequence[Audit]) -> Markup:
    return section(
        "notes",
        "How this was measured",
        *(
            join_markup(tag("h3", tag("bdi", audit.source)) if len(audits) > 1 else None, _render_settings(audit))
            for audit in audits
        ),
        tag("p", "What each number means, and how each range is derived: ", tag("code", "docs/findings.md"), "."),
    )


def _render_settings(audit: Audit) -> Markup:
    settings = audit.settings
    sampled = [f"{finding.title} ({finding.rows:,} rows)" for finding in audit.findings if finding.sampled]
    rows: list[tuple[str, object]] = [
        ("Rows", "all" if not sampled else "all, but for: " + ", ".join(sampled)),
        (
            "Pairs of rows",
            f"all up to {settings.sample:,} rows, a random sample of so many above; seed {settings.seed}",
        ),
        ("Intervals", f"{100 * settings.confidence:g}% confidence"),
        ("Rows with NaN or infinity", "refused" if settings.nonfinite == "raise" else "left out and counted"),
    ]
    rows += [(f"Not measured: {name.replace('_', ' ')}", reason) for name, reason in audit.skipped.items()]
    rows.append(("To do it again", tag("code", _format_command(audit))))
    return render_definition_list(*rows)


def _format_command(audit: Audit) -> str:
    """What makes this page again: in a shell for a file or a database, in Python for an array."""
    settings = audit.settings
    if "." not in audit.source and parse_address(audit.source) is None:
        changed = (
            f", {name}={value!r}" for name, value in vars(settings).items() if value != getattr(Settings(), name)
        )
        return f"isoscope.audit(vectors{''.join(changed)}).to_html('report.html')"
    words = ["isoscope", "audit", audit.source]
    for role, name in audit.columns.items():
        words += ["--columns", f"{role}={name}"] if name != role else []
    for option in ("metric", "sample", "seed", "nonfinite"):
        value = getattr(settings, option)
        words += [f"--{option}", str(value)] if value != getattr(Settings(), option) else []
    return shlex.join([*words, "--html", "report.html"])


# notebooks


def render_notebook_table(audit: Audit) -> str:
    """The verdict and the findings as a table for a notebook: no script, no ids, its own colours."""
    cell = "padding:.25em .9em .25em 0;text-align:left;vertical-align:top;background:none;white-space:normal;"
    edge = "border:0;border-top:1px solid rgba(128,128,128,.35);"
    colours = {"ok": "#0b6b5d", "look": "#7d5200", "bad": "#b3261e"}

    def sign(verdict: str) -> Markup:
        chip = f"background:{colours[verdict]};color:#fff;border-radius:.3em;padding:.05em .5em;white-space:nowrap"
        return tag("span", f"{SYMBOLS[verdict]} {VERDICT_LABELS[verdict]}", style=chip)

    rows = [
        tag(
            "tr",
            tag("td", sign(finding.verdict), style=cell + edge),
            tag("td", finding.title, style=cell + edge),
            tag("td", finding.shown, style=cell + edge + "font-variant-numeric:tabular-nums;white-space:nowrap"),
            tag("td", finding.interval, style=cell + edge + "font-variant-numeric:tabular-nums;white-space:nowrap"),
            tag(
                "td",
                finding.meaning,
                *([] if finding.verdict == "ok" else [" ", tag("em", finding.advice)]),
                style=cell + edge,
            ),
            style="background:none",
        )
        for finding in audit.findings
    ]
    heads = ("verdict", "finding", "value", f"{100 * audit.settings.confidence:g}% interval", "what it means")
    head = tag("tr", *(tag("th", name, scope="col", style=cell + "border:0;font-weight:600") for name in heads))
    table = tag(
        "table",
        tag("thead", head),
        tag("tbody", *rows),
        style="border-collapse:collapse;border:0;color:inherit;margin:.5em 0",
    )
    lead = tag(
        "p",
        tag("strong", tag("bdi", audit.source)),
        f", {audit.n:,} × {audit.d:,}. {SUMMARY[audit.verdict]} Findings: {describe_verdicts(audit.findings)}.",
        style="margin:.3em 0",
    )
    skipped = "; ".join(f"{name}: {reason}" for name, reason in audit.skipped.items())
    return tag(
        "div",
        lead,
        tag("div", table, style="overflow-x:auto"),
        tag("p", f"Not measured: {skipped}", style="margin:.3em 0;opacity:.8") if skipped else None,
        style="color:inherit;max-width:72em",
    )
