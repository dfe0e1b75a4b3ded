"""The top of the page: what was measured, the verdict in words, what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING

from isoscope._report.cards import DIRECTIONS, SYMBOLS, WORDS
from isoscope._report.html import joined, tag
from isoscope.auditing.compare import changes, differences_in_setting
from isoscope.auditing.finding import VERDICTS

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import Change, HeldOut

SUMMARY = {
    "ok": "Nothing stands out: this space is in good shape.",
    "look": "This space holds, with something worth a look.",
    "bad": "Something is wrong with this space.",
}


def heading(
    audits: Sequence[Audit], baseline: Audit | None, agreement: float | None, held_out: HeldOut | None = None
) -> Markup:
    """The verdict before anything else; of two spaces also how far they agree, and what a repair did."""
    if len(audits) == 1:
        return tag(
            "header",
            tag("p", "isoscope: the shape of an embedding space", class_="brand"),
            tag("h1", tag("bdi", audits[0].source)),
            _size(audits[0]),
            _verdict(audits[0]),
            _drift(audits[0], baseline) if baseline is not None else None,
        )
    return tag(
        "header",
        tag("p", f"isoscope: {_brand(audits, held_out)}", class_="brand"),
        tag("h1", *_titles([audit.source for audit in audits])),
        _repaired(audits[0], audits[1], held_out) if held_out is not None else None,
        tag("p", _agreement(agreement), class_="lede") if agreement is not None else None,
        tag(
            "div",
            *(
                tag("div", tag("h2", f"{letter}: ", tag("bdi", audit.source)), _size(audit), _verdict(audit, lost))
                for letter, audit, lost in zip(LETTERS, audits, _lost(audits, held_out), strict=False)
            ),
            class_="pair",
        ),
    )


def _lost(audits: Sequence[Audit], held_out: HeldOut | None) -> list[set[str]]:
    """For each space the findings that are ok and that the repair made worse all the same."""
    if held_out is None:
        return [set() for _ in audits]
    found = changes(*audits)
    return [set(), {c.name for c in found if c.after and c.after.verdict == "ok" and c.trend == "worse"}]


def _brand(audits: Sequence[Audit], held_out: HeldOut | None) -> str:
    if held_out is not None:
        return f"before and after {held_out.repair}"
    return f"{counted_in_words(len(audits))} spaces side by side"


def _repaired(before: Audit, after: Audit, held_out: HeldOut) -> Markup:
    """How a repair was compared, and which findings it made significantly worse or better."""
    found = changes(before, after)
    rows = (
        tag("li", tag("strong", DIRECTIONS[trend]), ": ", _step(change), class_=f"before {trend}")
        for trend in ("worse", "better")
        for change in found
        if change.trend == trend
    )
    return tag("section", tag("p", held_out.note), tag("ul", *rows), class_="drift")


def listed(names: Sequence[str]) -> list[str]:
    """Names and, at every second place, what goes between them.

    >>> "".join(listed(["one", "two", "three"]))
    'one, two and three'
    """
    between = [", "] * (len(names) - 2) + [" and "] * (len(names) > 1)
    return [part for pair in zip(names, [*between, ""], strict=False) for part in pair][:-1]


def counted_in_words(count: int) -> str:
    """A small number as a word.

    >>> counted_in_words(3), counted_in_words(31)
    ('three', '31')
    """
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[count] if count < len(words) else str(count)


def _titles(names: Sequence[str]) -> Iterator[Markup]:
    for i, part in enumerate(listed(names)):
        yield tag("span", part, class_="and") if i % 2 else tag("bdi", part)


def _size(audit: Audit) -> Markup:
    roles = [f"{role} from “{name}”" if name != role else role for role, name in audit.columns.items()]
    facts = [
        f"{audit.n:,} vectors × {audit.d:,} dimensions",
        audit.dtype,
        f"neighbours by {audit.settings.metric}",
        *roles,
    ]
    return tag("p", " · ".join(facts), class_="size")


def _verdict(audit: Audit, lost: Collection[str] = ()) -> Markup:
    tallies = []
    for verdict in reversed(VERDICTS):
        names = [finding for finding in audit.findings if finding.verdict == verdict and finding.name not in lost]
        if names:
            count = tag("b", tag("span", SYMBOLS[verdict], aria_hidden="true"), f" {len(names)} {WORDS[verdict]}")
            links = [joined(tag("a", finding.title, href=f"#finding-{finding.name}"), " ") for finding in names]
            tallies.append(tag("li", count, tag("span", *links) if verdict != "ok" else None, class_=verdict))
    if lost:
        links = [joined(tag("a", audit[name].title, href=f"#finding-{name}"), " ") for name in sorted(lost)]
        count = tag("b", tag("span", "▼", aria_hidden="true"), f" {len(lost)} worse, same verdict")
        tallies.insert(-1, tag("li", count, tag("span", *links), class_="look"))
    return tag(
        "div",
        tag("p", SUMMARY[audit.verdict], class_="lede"),
        tag("ul", *tallies, class_="tally"),
        class_=f"verdict {audit.verdict}",
    )


def _drift(audit: Audit, baseline: Audit) -> Markup:
    """What has changed since the baseline, in a line and a list."""
    found = changes(baseline, audit)
    counts = {name: sum(change.direction == name for change in found) for name in DIRECTIONS}
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    turned = [change for change in found if change.direction in ("better", "worse", "gone")]
    rows = (
        tag("li", tag("strong", DIRECTIONS[change.direction]), ": ", _turn(change), class_=f"before {change.direction}")
        for change in turned
    )
    caution = "; ".join(differences_in_setting(baseline, audit))
    return tag(
        "section",
        tag("h2", "Since the baseline"),
        tag("p", "The baseline is ", tag("bdi", baseline.source), f", {baseline.n:,} × {baseline.d:,}: {words}."),
        tag("p", f"Not like with like: {caution}.", class_="doubt") if caution else None,
        tag("ul", *rows) if turned else None,
        class_="drift",
    )


def _step(change: Change) -> str:
    """A change; its verdicts are named if they differ."""
    if change.before is None or change.after is None or change.before.verdict != change.after.verdict:
        return _turn(change)
    return f"{change.title}, {change.before.shown} → {change.after.shown}"


def _turn(change: Change) -> str:
    then = "–" if change.before is None else f"{change.before.shown} ({WORDS[change.before.verdict]})"
    now = "–" if change.after is None else f"{change.after.shown} ({WORDS[change.after.verdict]})"
    return f"{change.title}, {then} → {now}"


def _agreement(share: float) -> str:
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
