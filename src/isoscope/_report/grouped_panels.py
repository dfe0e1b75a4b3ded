"""The charts of an audit by groups: which findings share a chart, and what its caption says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouped import GroupedAudit

DetailPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Trace:
    """One measurement along the groups: a finding, or one of its details."""

    finding: str
    name: str
    path: DetailPath = ()
    null: bool = True
    """Whether what a cloud without structure has is worth drawing."""
    alone: tuple[str, str] = ("", "")
    """The title and the caption of a chart that has no other measurement."""

    def numbers(self, audit: GroupedAudit) -> np.ndarray:
        """Its values, NaN where a group has none."""
        return audit.detail(self.finding, *self.path) if self.path else audit.series(self.finding).estimates


@dataclass(frozen=True)
class Panel:
    """What is drawn in one chart, and what to see in it."""

    title: str
    caption: str
    traces: tuple[Trace, ...]
    """First what is judged, then its details, which are dashed."""
    form: str = "number"
    is_log10: bool = False
    """Whether the numbers are powers of ten."""

    @property
    def judged_traces(self) -> list[Trace]:
        """What is judged."""
        return [trace for trace in self.traces if not trace.path or self.is_log10]


_PANELS = (
    Panel(
        "S_intra and S_inter",
        "The mean cosine of tokens of one type and of different types. The gap between them is what a word keeps of "
        "itself across contexts.",
        (
            Trace(
                "intra_type",
                "one type (S_intra)",
                null=False,  # it is the other line
                alone=("S_intra", "The mean cosine of tokens of one type."),
            ),
            Trace(
                "inter_type",
                "different types (S_inter)",
                alone=("S_inter", "The mean cosine of tokens of different types: the lower, the wider apart."),
            ),
            Trace("intra_type", "one type, inside clusters", ("within_clusters",)),
            Trace("inter_type", "different types, inside clusters", ("within_clusters",)),
        ),
    ),
    Panel(
        "Mean cosine",
        "Of all pairs of vectors: near 1 they all point one way.",
        (Trace("mean_cosine", "as stored"), Trace("mean_cosine", "mean subtracted", ("after_centring",))),
    ),
    Panel(
        "Anisotropy",
        "The first direction's share of all squared lengths, and of the variance once the mean is subtracted.",
        (Trace("anisotropy", "as stored"), Trace("anisotropy", "mean subtracted", ("centred", 0))),
        "share",
    ),
    Panel(
        "IsoScore",
        "How evenly the variance fills the dimensions: 0 is a line, 1 a ball.",
        (Trace("isoscore", "unbiased"), Trace("isoscore", "as published", ("as_published",))),
    ),
    Panel(
        "Intrinsic dimension",
        "Along how many directions the neighbours of a vector spread, by many neighbours (LID) and by two (TwoNN).",
        (
            Trace(
                "intrinsic_dimension",
                "LID",
                alone=("Local dimension (LID)", "Along how many directions the neighbours of a vector spread."),
            ),
            Trace(
                "two_nn",
                "TwoNN",
                alone=("Dimension (TwoNN)", "In how many dimensions a vector moves, by its two nearest neighbours."),
            ),
        ),
    ),
    Panel(
        "Effective rank",
        "How many dimensions the variance fills in all.",
        (Trace("effective_rank", "effective rank"),),
    ),
    Panel(
        "Partition isotropy",
        "The least total weight that any direction sees by the greatest, on a scale of powers of ten.",
        (Trace("partition_isotropy", "partition isotropy", ("log10",)),),
        "power",
        is_log10=True,
    ),
    Panel(
        "Hubness",
        "The share of vectors that are in no other's list of nearest neighbours.",
        (Trace("hubness", "in no list"),),
        "share",
    ),
    Panel(
        "Silhouette",
        "How far apart groups of vectors are: 1 apart, 0 overlapping.",
        (
            Trace(
                "clusters",
                "of the best clusters",
                alone=("Silhouette of the best clusters", "How far apart they are: 1 apart, 0 overlapping."),
            ),
            Trace(
                "labels",
                "of the labels",
                alone=("Silhouette of the labels", "How far apart they are: 1 apart, 0 overlapping."),
            ),
        ),
    ),
    Panel(
        "Rogue dimensions",
        "The largest coordinates' share of every vector's squared length.",
        (Trace("rogue_dimensions", "largest coordinates"),),
        "share",
    ),
    Panel(
        "Frequency in the first directions",
        "The share of their variance, and of all variance, that a row's frequency explains.",
        (Trace("frequency", "first directions"), Trace("frequency", "all", ("of_all_variance",))),
        "share",
    ),
    Panel(
        "Labels in the first directions",
        "The share of their variance, and of all variance, that lies between the labels.",
        (Trace("label_conflict", "first directions"), Trace("label_conflict", "all", ("of_all_variance",))),
        "share",
    ),
    Panel(
        "Results by different metrics",
        "The share of a row's 10 nearest rows that another metric finds as well: 100% if all rows are equally long.",
        (Trace("norm_spread", "same top 10"),),
        "share",
    ),
    Panel(
        "Duplicate rows",
        "The share of rows that copy an earlier one.",
        (Trace("duplicates", "copies"),),
        "share",
    ),
    Panel(
        "Near-duplicate rows",
        "The share of rows that nearly repeat another row.",
        (Trace("near_duplicates", "near-duplicates"),),
        "share",
    ),
)


def choose_panels(audits: Sequence[GroupedAudit]) -> tuple[list[Panel], list[str]]:
    """The charts for which there are numbers, and the titles of findings that are 0 in all groups.

    With several audits a chart has one judged measurement, and a line for each audit.
    """
    known = {trace.finding for panel in _PANELS for trace in panel.traces}
    titles = _first_findings(audits)
    others = [
        Panel(finding.title, "", (Trace(name, finding.title),), finding.form)
        for name, finding in titles.items()
        if name not in known
    ]
    drawn, zero = [], []
    for panel in [*_PANELS, *others]:
        for part in _split_panel(panel) if len(audits) > 1 else [panel]:
            seen = _drop_unmeasured(part, audits)
            if seen is None:
                continue
            if all(np.nan_to_num(trace.numbers(audit)).any() == 0 for trace in seen.traces for audit in audits):
                zero += [titles[trace.finding].title for trace in seen.judged_traces]
            else:
                drawn.append(seen)
    return drawn, zero


def _first_findings(audits: Sequence[GroupedAudit]) -> dict[str, Finding]:
    """Each finding as the first group has it."""
    found: dict[str, Finding] = {}
    for audit in audits:
        for group in audit.groups.values():
            for finding in group.findings:
                found.setdefault(finding.name, finding)
    return found


def _split_panel(panel: Panel) -> Iterator[Panel]:
    """A panel for each judged measurement, with its own details."""
    if len(panel.judged_traces) == 1:
        yield panel
        return
    for trace in panel.judged_traces:
        yield replace(panel, traces=tuple(each for each in panel.traces if each.finding == trace.finding))


def _drop_unmeasured(panel: Panel, audits: Sequence[GroupedAudit]) -> Panel | None:
    """The panel with those measurements that there are."""
    there = tuple(t for t in panel.traces if any(np.isfinite(t.numbers(audit)).any() for audit in audits))
    seen = replace(panel, traces=there)
    if not seen.judged_traces:
        return None
    title, caption = seen.judged_traces[0].alone
    return replace(seen, title=title, caption=caption) if title and len(seen.judged_traces) == 1 else seen
