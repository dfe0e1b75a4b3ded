"""The answer of a grouped audit as a headline: which groups need attention, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._core.errors import plural
from isoscope._report.narrate import capitalize, format_group_name, group_noun, join_words, plural_group_noun
from isoscope.auditing.finding import VERDICTS, format_number

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouped import GroupedAudit


def rank_group(audit: GroupedAudit, name: str) -> tuple[int, ...]:
    """Return the number of findings of a group with each verdict, the worst verdict first."""
    found = [finding.verdict for finding in audit.groups[name].findings]
    return tuple(found.count(verdict) for verdict in reversed(VERDICTS[1:]))


def sort_groups(audit: GroupedAudit) -> tuple[list[str], Finding | None]:
    """Return the groups from the worst to the best, and the worst finding of the worst group; None if all are ok.

    Groups with equal numbers of bad and look findings are ordered by how far that finding lies outside its ok range.
    """
    first = audit.groups[max(audit.groups, key=lambda name: rank_group(audit, name))]
    found = next((each for each in first.findings if each.verdict == first.verdict != "ok"), None)

    def severity(name: str) -> tuple[tuple[int, ...], float]:
        own = None if found is None else audit.groups[name].get(found.name)
        outside = 0.0 if own is None else max(own.judged.ok[0] - own.value, own.value - own.judged.ok[1])
        return rank_group(audit, name), outside

    names = sorted(audit.groups, key=severity, reverse=True)
    return names, None if found is None else audit.groups[names[0]].get(found.name)


def describe_worst_group(audit: GroupedAudit, *, with_source: bool = False) -> tuple[str, str]:
    """Return a headline on the worst finding and the groups that have it, and the numbers as evidence.

    Only a group that is alone with this finding is called the worst because of it.
    """
    names, finding = sort_groups(audit)
    count, worst = len(names), format_group_name(audit, names[0])
    nouns = plural_group_noun(audit) if count > 1 else group_noun(audit.by)
    source = f" of {audit.source}" if with_source else ""
    if finding is None:
        return f"No finding needs attention in {f'any of the {count} {nouns}' if count > 1 else worst}{source}.", ""
    consequence = finding.meaning.split(". ")[0].split(": ")[0].rstrip(".")
    consequence = consequence[:1].lower() + consequence[1:]
    shared = [own for name in names if (own := audit.groups[name].get(finding.name)) and own.verdict == finding.verdict]
    alone = rank_group(audit, names[0]) > rank_group(audit, names[1]) if count > 1 else True
    if len(shared) == 1:
        numbers = f"{finding.title} in {worst} is {finding.shown} ({finding.range})."
        if count == 1:
            return f"{capitalize(worst)}{source}: {consequence}.", numbers
        place = f"is the worst of {count} {nouns}" if alone else f"is one of several {nouns} that need attention"
        return f"{capitalize(worst)} {place}{source}: {consequence}.", numbers
    every = "both" if count == 2 else f"all {count}"
    where = every if len(shared) == count else f"{len(shared)} of {count}"
    low, high = (format_number(end([own.value for own in shared]), finding.form) for end in (min, max))
    numbers = f"{finding.title} {f'is {low}' if low == high else f'ranges from {low} to {high}'} there"
    numbers += f" ({finding.range})." if len({own.range for own in shared}) == 1 else "."
    if alone:
        numbers += f" {capitalize(worst)} needs the most attention, also because of {_list_further(audit, names)}."
    return f"In {where} {nouns}{source}, {consequence}.", numbers


def describe_left_out(audit: GroupedAudit) -> str:
    """Return, as text, how many rows were not measured, including the rows of skipped groups; empty if already said."""
    rows = plural(audit.left_out, "row")
    if not audit.left_out or any(why.startswith(f"{rows} in ") for why in audit.skipped.values()):
        return ""
    if audit.skipped:
        return f"{rows} in total, including those of the groups that were not measured"
    return f"{rows} that belong{'s' if audit.left_out == 1 else ''} to none of these groups"


def _list_further(audit: GroupedAudit, names: list[str]) -> str:
    """Return the titles of at most three findings that are worse in the worst group than in most others.

    At least one is worse than in the second worst group, because that group has fewer findings.
    """

    def severity(name: str, finding: Finding) -> int:
        own = audit.groups[name].get(finding.name)
        return 0 if own is None else VERDICTS.index(own.verdict)

    further = []
    for finding in audit.groups[names[0]].findings:
        own = VERDICTS.index(finding.verdict)
        milder = sum(severity(name, finding) < own for name in names[1:])
        if severity(names[1], finding) < own or milder > len(names[1:]) / 2:
            keeps_case = finding.title.startswith("IsoScore")
            further.append(finding.title if keeps_case else finding.title[:1].lower() + finding.title[1:])
    return join_words(further[:3])
