"""Group the findings of an audit by their cause, and state each cause in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isoscope.auditing.finding import VERDICTS, Finding, format_number, worst_verdict
from isoscope.auditing.findings.evidence import ABOUT_SHAPE, ALL_EQUAL, SHARE_LOOK

if TYPE_CHECKING:
    from isoscope._core.types import Verdict

_Findings = Mapping[str, Finding]


@dataclass(frozen=True)
class Cause:
    """Findings that need attention and have the same cause."""

    name: str
    """The name for scripts, such as `shared_direction`."""
    sentence: str
    """The cause and its effect, in one sentence."""
    findings: list[Finding]
    """The findings, worst first."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst_verdict(self.findings)

    @property
    def is_about_shape(self) -> bool:
        """Whether the cause is the shape of the space, which does not show whether the vectors solve a task."""
        return self.name != "equal_rows" and any(ABOUT_SHAPE in finding.meaning for finding in self.findings)


def find_causes(findings: Sequence[Finding], dimensions: int, noun: str = "rows") -> list[Cause]:
    """Return the causes of the findings that need attention, worst first.

    `noun` is the word for the rows in a sentence, such as "texts".

    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((500, 32)) + 1
    >>> for cause in find_causes(isoscope.audit(X).findings, 32):
    ...     print(cause.verdict, cause.name, [finding.name for finding in cause.findings])
    bad shared_direction ['mean_cosine', 'anisotropy', 'partition_isotropy']
    look norm_spread ['norm_spread']
    """
    every = {finding.name: finding for finding in findings}
    members: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.verdict != "ok":
            members.setdefault(_find_cause(finding, every), []).append(finding)
    known = [*_SENTENCES, *(name for name in members if name not in _SENTENCES)]
    causes = []
    for name in filter(members.__contains__, known):
        own = {finding.name: finding for finding in members[name]}
        write = _SENTENCES.get(name)
        sentence = members[name][0].meaning if write is None else write(own, dimensions, noun)
        causes.append(Cause(name, sentence, members[name]))
    return sorted(causes, key=lambda cause: (-VERDICTS.index(cause.verdict), _is_as_in_random_data(cause)))


def describe_causes(findings: Sequence[Finding], causes: Sequence[Cause], noun: str = "rows") -> str:
    """Return the headline of an audit: its first cause, or that nothing needs attention."""
    cosine = next((finding for finding in findings if finding.name == "mean_cosine"), None)
    if causes and _is_as_in_random_data(causes[0]) and cosine is not None:
        return (
            f"Nothing stands out: two random {noun} have a cosine near {_format_cosine(cosine.value)}, and the choice "
            "of metric matters no more than in random data."
        )
    if causes:
        return causes[0].sentence
    if cosine is None:
        return "No finding needs attention." if findings else "Nothing could be measured."
    return f"No finding needs attention: two random {noun} have a cosine near {_format_cosine(cosine.value)}."


def _is_as_in_random_data(cause: Cause) -> bool:
    """Return whether the metrics find different rows only as often as in Gaussian data of the same size."""
    finding = cause.findings[0]
    null = finding.judged.null
    return cause.name == "norm_spread" and null is not None and finding.value >= (1 - SHARE_LOOK) * null


def remove_shape_note(meaning: str) -> str:
    """Return a meaning without its sentence about the shape, for a page that states this only once."""
    return meaning.replace(f" {ABOUT_SHAPE}", "")


def _find_cause(finding: Finding, every: _Findings) -> str:
    """Return the name of the cause of a finding, given all findings by name."""
    if "mean_cosine" in every and every["mean_cosine"].advice == ALL_EQUAL and finding.name in _EFFECTS_OF_EQUAL_ROWS:
        return "equal_rows"
    leaning = "mean_cosine" in every and every["mean_cosine"].verdict != "ok"
    details = finding.details
    match finding.name:
        case "mean_cosine":
            return "shared_direction"
        case "anisotropy":
            centered = _first(details.get("centered"))
            return "shared_direction" if leaning and centered < finding.value / 2 else "few_dimensions"
        case "partition_isotropy" | "inter_type":
            return "shared_direction" if leaning else "few_dimensions"
        case "rogue_dimensions":  # large because of the mean, or because they vary
            of_mean = sum(details.get("cosine_contribution", ())) >= sum(details.get("shares", ())) / 2
            return "shared_direction" if leaning and of_mean else "large_coordinates"
        case "isoscore" if "as_published" in details and finding.value != details.get("unbiased"):
            return "long_rows"
    return _CAUSES.get(finding.name, finding.name)


def _first(values: Any) -> float:
    return float(values[0]) if values else 0.0


_CAUSES = {
    "isoscore": "few_dimensions",
    "effective_rank": "few_dimensions",
    "duplicates": "repeats",
    "near_duplicates": "repeats",
}
"""The cause of each finding whose cause has a different name from the finding."""

_EFFECTS_OF_EQUAL_ROWS = {"mean_cosine", "anisotropy", "partition_isotropy", "duplicates", "near_duplicates"}
"""The findings that add no information if all rows are equal."""


def _format_cosine(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _describe_shared_direction(own: _Findings, d: int, noun: str) -> str:
    cosine = own["mean_cosine"]
    verb = "share" if cosine.verdict == "bad" else "lean toward"
    return f"All vectors {verb} one direction: even unrelated {noun} have a cosine near {_format_cosine(cosine.value)}."


def _describe_few_dimensions(own: _Findings, d: int, noun: str) -> str:
    if "anisotropy" in own:
        share = format_number(own["anisotropy"].value, "share")
        return f"One direction dominates every comparison: it accounts for {share} of all squared lengths."
    if "isoscore" in own or "effective_rank" in own:
        evenly = "isoscore" in own
        used = own["isoscore"].details.get("participation_ratio") if evenly else own["effective_rank"].value
        fills = f"as much as {used or 0:.0f} evenly filled dimensions of {d:,}"
        fills = fills if evenly else f"{used or 0:.0f} of {d:,} dimensions"
        return f"A few directions carry most of the variance: it fills {fills}."
    if "inter_type" in own:
        return f"Different words look similar: their tokens have a mean cosine of {own['inter_type'].value:.2f}."
    return "The vectors use some directions far more than others."


def _describe_long_rows(own: _Findings, d: int, noun: str) -> str:
    used = own["isoscore"].details.get("participation_ratio") or 0
    return f"A few long rows dominate the shape: the variance fills {used:.0f} of {d:,} dimensions."


def _describe_coordinates(own: _Findings, d: int, noun: str) -> str:
    finding = own["rogue_dimensions"]
    many = finding.title.endswith("s")
    subject = f"The {finding.title[:1].lower()}{finding.title[1:]} {'dominate' if many else 'dominates'} every cosine"
    return f"{subject}: {'they make' if many else 'it makes'} up {finding.shown} of a vector's squared length."


def _describe_repeats(own: _Findings, d: int, noun: str) -> str:
    worst = max(own.values(), key=lambda finding: finding.value)
    how = "are copies of" if worst.name == "duplicates" else "nearly repeat"
    return f"Search results contain repeats: {worst.shown} of the rows {how} another row."


def _describe_labels(own: _Findings, d: int, noun: str) -> str:
    if own["labels"].verdict == "bad":
        return "The labels fit the vectors no better than shuffled labels."
    share = format_number(own["labels"].details.get("nearer_to_another"), "share")
    return f"The labels overlap: {share} of the rows are nearer to another label than to their own."


def _describe_neighborhoods(own: _Findings, d: int, noun: str) -> str:
    finding = own["intrinsic_dimension"]
    if finding.value < finding.judged.ok[0]:
        return "Neighborhoods have little variety: many rows may be near-duplicates or templates."
    return "Neighbors are hardly nearer than other rows: a search returns nearly arbitrary rows."


_SENTENCES: dict[str, Callable[[_Findings, int, str], str]] = {
    "equal_rows": lambda own, d, noun: "All vectors are equal: check how they were computed.",
    "mixed_spaces": lambda own, d, noun: (
        f"The source mixes vectors of two spaces: about {own['mixed_spaces'].shown} of the rows come from the second "
        "one."
    ),
    "broken_rows": lambda own, d, noun: (
        f"A search can never find {own['broken_rows'].shown} of the rows: they are zero or not finite."
    ),
    "repeats": _describe_repeats,
    "long_rows": _describe_long_rows,
    "shared_direction": _describe_shared_direction,
    "few_dimensions": _describe_few_dimensions,
    "large_coordinates": _describe_coordinates,
    "queries": lambda own, d, noun: f"{own['queries'].shown} of the queries lie outside the corpus.",
    "hubness": lambda own, d, noun: (
        f"A search hardly ever finds {own['hubness'].shown} of the rows: they are nobody's nearest neighbor."
    ),
    "intrinsic_dimension": _describe_neighborhoods,
    "intra_type": lambda own, d, noun: (
        "Tokens of the same word are no more similar to each other than tokens of different words."
    ),
    "frequency": lambda own, d, noun: (
        f"Rows of similar frequency lie together: frequency explains {own['frequency'].shown} of the variance along "
        "the leading principal components."
    ),
    "labels": _describe_labels,
    "norm_spread": lambda own, d, noun: (
        f"The choice of metric changes the results: of the top 10, only {10 * own['norm_spread'].value:.1f} agree."
    ),
    "clusters": lambda own, d, noun: (
        f"The rows form {own['clusters'].details.get('n_clusters', 'several')} clusters: the space is more isotropic "
        "inside them."
    ),
    "label_conflict": lambda own, d, noun: (
        f"Some repairs would remove your labels: the labels explain {own['label_conflict'].shown} of the variance "
        "along the leading principal components."
    ),
}
"""How to state each cause, given its findings by name; faults in the data come first."""
