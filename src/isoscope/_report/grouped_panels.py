"""The charts of a grouped audit: the findings that share a chart, and the captions."""

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
    """One measurement across the groups: a finding, or one of its details."""

    finding: str
    name: str
    path: DetailPath = ()
    null: bool = True
    """Whether to draw the value for random data."""
    alone: tuple[str, str] = ("", "")
    """The title and the caption of a chart with this measurement alone."""

    def numbers(self, audit: GroupedAudit) -> np.ndarray:
        """Return the value for each group; NaN if it was not measured."""
        return audit.detail(self.finding, *self.path) if self.path else audit.series(self.finding).estimates


@dataclass(frozen=True)
class Panel:
    """The measurements of one chart, with its title and caption."""

    title: str
    caption: str
    traces: tuple[Trace, ...]
    """The findings, followed by their details, which are drawn as dashed lines."""
    form: str = "number"
    is_log10: bool = False
    """Whether the numbers are logarithms to base 10."""

    @property
    def judged_traces(self) -> list[Trace]:
        """The measurements that have a verdict."""
        return [trace for trace in self.traces if not trace.path or self.is_log10]


CLUSTER_VERDICT = (
    "A high silhouette of the best clusters is ok if random data without clusters has as high a silhouette, or if the "
    "space inside the clusters is no more isotropic."
)
"""Why clusters with about the same silhouette can have different verdicts."""

_PANELS = (
    Panel(
        "S_intra and S_inter",
        "The mean cosine between tokens of the same type, and between tokens of different types. A larger gap means "
        "that words keep more of their meaning across contexts.",
        (
            Trace(
                "intra_type",
                "same type (S_intra)",
                null=False,  # the other line is its reference
                alone=("S_intra", "The mean cosine between tokens of the same type."),
            ),
            Trace(
                "inter_type",
                "different types (S_inter)",
                alone=(
                    "S_inter",
                    "The mean cosine between tokens of different types. Lower values mean that types are "
                    "further apart.",
                ),
            ),
            Trace("intra_type", "same type, inside clusters", ("within_clusters",)),
            Trace("inter_type", "different types, inside clusters", ("within_clusters",)),
        ),
    ),
    Panel(
        "Mean cosine",
        "The mean over all pairs of vectors. Near 1, all vectors point in the same direction.",
        (Trace("mean_cosine", "as stored"), Trace("mean_cosine", "mean subtracted", ("after_centering",))),
    ),
    Panel(
        "Anisotropy",
        "The leading direction's share of the squared lengths as stored, and of the variance with the mean subtracted.",
        (Trace("anisotropy", "as stored"), Trace("anisotropy", "mean subtracted", ("centered", 0))),
        "share",
    ),
    Panel(
        "IsoScore",
        "How evenly the variance is spread over the dimensions. 0 means that it lies along one direction; 1 means that "
        "it is equal along all directions.",
        (Trace("isoscore", "unbiased"), Trace("isoscore", "as published", ("as_published",))),
    ),
    Panel(
        "Intrinsic dimension",
        "The number of directions in which the neighbors of a vector spread, estimated from many neighbors (LID) and "
        "from two neighbors (TwoNN).",
        (
            Trace(
                "intrinsic_dimension",
                "LID",
                alone=("Local dimension (LID)", "The number of directions in which the neighbors of a vector spread."),
            ),
            Trace(
                "two_nn",
                "TwoNN",
                alone=(
                    "Dimension (TwoNN)",
                    "The number of dimensions, estimated from each vector's two nearest neighbors.",
                ),
            ),
        ),
    ),
    Panel(
        "Effective rank",
        "The number of dimensions over which the variance is spread.",
        (Trace("effective_rank", "effective rank"),),
    ),
    Panel(
        "Partition isotropy",
        "The smallest value of the partition function in any direction, divided by the largest, on a logarithmic "
        "scale. 1 means isotropic.",
        (Trace("partition_isotropy", "partition isotropy", ("log10",)),),
        "power",
        is_log10=True,
    ),
    Panel(
        "Hubness",
        "The share of vectors that are nobody's nearest neighbor (anti-hubs).",
        (Trace("hubness", "anti-hubs"),),
        "share",
    ),
    Panel(
        "Silhouette",
        f"How well groups of vectors are separated: 1 means far apart, 0 means overlapping. {CLUSTER_VERDICT}",
        (
            Trace(
                "clusters",
                "of the best clusters",
                alone=("Silhouette of the best clusters", f"1 means far apart, 0 means overlapping. {CLUSTER_VERDICT}"),
            ),
            Trace(
                "labels",
                "of the labels",
                alone=("Silhouette of the labels", "1 means far apart, 0 means overlapping."),
            ),
        ),
    ),
    Panel(
        "Rogue dimensions",
        "The share of the squared lengths that lies in the largest coordinates.",
        (Trace("rogue_dimensions", "largest coordinates"),),
        "share",
    ),
    Panel(
        "Frequency in the leading components",
        "The share of the variance that a row's frequency explains, in the leading principal components and in all.",
        (Trace("frequency", "leading components"), Trace("frequency", "all components", ("of_all_variance",))),
        "share",
    ),
    Panel(
        "Labels in the leading components",
        "The share of the variance that lies between labels, in the leading principal components and in all.",
        (
            Trace("label_conflict", "leading components"),
            Trace("label_conflict", "all components", ("of_all_variance",)),
        ),
        "share",
    ),
    Panel(
        "Results by different metrics",
        "The share of a row's top 10 results that another metric also finds. It is 100% if all rows have the "
        "same length.",
        (Trace("norm_spread", "same top 10"),),
        "share",
    ),
    Panel(
        "Duplicate rows",
        "The share of rows that are copies of an earlier row.",
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
    """Return the charts that have data, and the titles of findings that are 0 in every measured group.

    With several audits, a chart shows one finding with a line for each audit.
    """
    known = {trace.finding for panel in _PANELS for trace in panel.traces}
    titles = _first_findings(audits)
    others = [
        Panel(finding.title, "", (Trace(name, finding.title),), finding.form)
        for name, finding in titles.items()
        if name not in known
    ]
    chosen, zero = [], []
    for panel in [*_PANELS, *others]:
        for part in _split_panel(panel) if len(audits) > 1 else [panel]:
            measured = _drop_unmeasured(part, audits)
            if measured is None:
                continue
            if any(np.nan_to_num(trace.numbers(audit)).any() for trace in measured.traces for audit in audits):
                chosen.append(measured)
            else:
                zero += [titles[trace.finding].title for trace in measured.judged_traces]
    return chosen, zero


def _first_findings(audits: Sequence[GroupedAudit]) -> dict[str, Finding]:
    """Return the findings by name; each one comes from the first group that includes it."""
    first: dict[str, Finding] = {}
    for audit in audits:
        for group in audit.groups.values():
            for finding in group.findings:
                first.setdefault(finding.name, finding)
    return first


def _split_panel(panel: Panel) -> Iterator[Panel]:
    """Yield a panel for each finding, with its own details."""
    if len(panel.judged_traces) == 1:
        yield panel
        return
    for trace in panel.judged_traces:
        yield replace(panel, traces=tuple(each for each in panel.traces if each.finding == trace.finding))


def _drop_unmeasured(panel: Panel, audits: Sequence[GroupedAudit]) -> Panel | None:
    """Return the panel without unmeasured values; None if no finding is left."""
    known = tuple(t for t in panel.traces if any(np.isfinite(t.numbers(audit)).any() for audit in audits))
    measured = replace(panel, traces=known)
    if not measured.judged_traces:
        return None
    title, caption = measured.judged_traces[0].alone
    alone = title and len(measured.judged_traces) == 1
    return replace(measured, title=title, caption=caption) if alone else measured
