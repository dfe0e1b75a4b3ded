"""The top of the page: what was measured, the verdict in words, what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING

from isoscope._report.cards import CHANGE_LABELS, SYMBOLS, VERDICT_LABELS
from isoscope._report.html import join_markup, tag
from isoscope.auditing.compare import compare_findings, describe_setting_differences
from isoscope.auditing.finding import VERDICTS

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import Change, HeldOutComparison

SUMMARY = {
    "ok": "Nothing stands out: this space is in good shape.",
    "look": "This space holds, with something worth a look.",
    "bad": "Something is wrong with this space.",
}


def render_heading(
    audits: Sequence[Audit], baseline: Audit | None, agreement: float | None, held_out: HeldOutComparison | None = None
) -> Markup:
    """The verdict before anything else; of two spaces also how far they agree, and what a repair did."""
    if len(audits) == 1:
        return tag(
            "header",
            tag("p", "isoscope: the shape of an embedding space", class_="brand"),
            tag("h1", tag("bdi", audits[0].source)),
            _render_size(audits[0]),
            _render_verdict(audits[0]),
            _render_drift(audits[0], baseline) if baseline is not None else None,
        )
    return tag(
        "header",
        tag("p", f"isoscope: {_format_subtitle(audits, held_out)}", class_="brand"),
        tag("h1", *_render_titles([audit.source for audit in audits])),
        _render_repair_effect(audits[0], audits[1], held_out) if held_out is not None else None,
        tag("p", _describe_agreement(agreement), class_="lede") if agreement is not None else None,
        tag(
            "div",
            *(
                tag(
                    "div",
                    tag("h2", f"{letter}: ", tag("bdi", audit.source)),
                    _render_size(audit),
                    _render_verdict(audit, lost),
                )
                for letter, audit, lost in zip(LETTERS, audits, _find_regressions(audits, held_out), strict=False)
            ),
            class_="pair",
        ),
    )


def _find_regressions(audits: Sequence[Audit], held_out: HeldOutComparison | None) -> list[set[str]]:
    """For each space the findings that are ok and that the repair made worse all the same."""
    if held_out is None:
        return [set() for _ in audits]
    found = compare_findings(*audits)
    return [set(), {c.name for c in found if c.after and c.after.verdict == "ok" and c.trend == "worse"}]


def _format_subtitle(audits: Sequence[Audit], held_out: HeldOutComparison | None) -> str:
    if held_out is not None:
        return f"before and after {held_out.repair}"
    return f"{spell_number(len(audits))} spaces side by side"


def _render_repair_effect(before: Audit, after: Audit, held_out: HeldOutComparison) -> Markup:
    """How a repair was compared, and which findings it made significantly worse or better."""
    found = compare_findings(before, after)
    rows = (
        tag("li", tag("strong", CHANGE_LABELS[trend]), ": ", _format_change(change), class_=f"before {trend}")
        for trend in ("worse", "better")
        for change in found
        if change.trend == trend
    )
    return tag("section", tag("p", held_out.note), tag("ul", *rows), class_="drift")


def interleave_separators(names: Sequence[str]) -> list[str]:
    """Names and, at every second place, what goes between them.

    >>> "".join(interleave_separators(["one", "two", "three"]))
    'one, two and three'
    """
    between = [", "] * (len(names) - 2) + [" and "] * (len(names) > 1)
    return [part for pair in zip(names, [*between, ""], strict=False) for part in pair][:-1]


def spell_number(count: int) -> str:
    """A small number as a word.

    >>> spell_number(3), spell_number(31)
    ('three', '31')
    """
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[count] if count < len(words) else str(count)


def _render_titles(names: Sequence[str]) -> Iterator[Markup]:
    for i, part in enumerate(interleave_separators(names)):
        yield tag("span", part, class_="and") if i % 2 else tag("bdi", part)


def _render_size(audit: Audit) -> Markup:
    roles = [f"{role} from “{name}”" if name != role else role for role, name in audit.columns.items()]
    facts = [
        f"{audit.n:,} vectors × {audit.d:,} dimensions",
        audit.dtype,
        f"neighbours by {audit.settings.metric}",
        *roles,
    ]
    return tag("p", " · ".join(facts), class_="size")


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
    return tag(
        "div",
        tag("p", SUMMARY[audit.verdict], class_="lede"),
        tag("ul", *tallies, class_="tally"),
        class_=f"verdict {audit.verdict}",
    )


def _render_drift(audit: Audit, baseline: Audit) -> Markup:
    """What has changed since the baseline, in a line and a list."""
    found = compare_findings(baseline, audit)
    counts = {name: sum(change.direction == name for change in found) for name in CHANGE_LABELS}
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    turned = [change for change in found if change.direction in ("better", "worse", "gone")]
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
        tag("p", "The baseline is ", tag("bdi", baseline.source), f", {baseline.n:,} × {baseline.d:,}: {words}."),
        tag("p", f"Not like with like: {caution}.", class_="doubt") if caution else None,
        tag("ul", *rows) if turned else None,
        class_="drift",
    )


def _format_change(change: Change) -> str:
    """A change; its verdicts are named if they differ."""
    if change.before is None or change.after is None or change.before.verdict != change.after.verdict:
        return _format_verdict_change(change)
    return f"{change.title}, {change.before.shown} → {change.after.shown}"


def _format_verdict_change(change: Change) -> str:
    then = "–" if change.before is None else f"{change.before.shown} ({VERDICT_LABELS[change.before.verdict]})"
    now = "–" if change.after is None else f"{change.after.shown} ({VERDICT_LABELS[change.after.verdict]})"
    return f"{change.title}, {then} → {now}"


def _describe_agreement(share: float) -> str:
    kind = (
        "nearly the same"
        if share >= 0.9
        else "much the same"
        if share >= 0.6
        else "partly the same"
        if share >= 0.3
        else "largely different"
    )
    return (
        f"On average the two spaces agree on {10 * share:.1f} of a row's 10 nearest neighbours: a search in them finds "
        f"{kind} things."
    )
