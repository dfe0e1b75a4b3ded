"""The findings of an audit: each number with its interval, range, meaning and advice.

A range comes from one of four sources. docs/findings.md derives each range.

- A null model: the value for random data with the same number of rows and dimensions (`auditing.nulls`).
- A published value.
- The convention for shares: `look` from one in ten, `bad` from one in two.
- The convention for broken rows: `look` from one in a hundred, `bad` from one in ten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from isoscope._core.errors import InputError
from isoscope._core.threads import run_together
from isoscope.auditing.findings import frequency, groups, neighborhoods, rows, space
from isoscope.auditing.findings.evidence import Evidence

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.measure import Measurements

_JUDGES: dict[str, Callable[[Evidence], Iterator[Finding]]] = {
    "mean_cosine": space.mean_cosine,
    "isoscore": space.isoscore,
    "anisotropy": space.anisotropy,
    "effective_rank": space.effective_rank,
    "rogue_dimensions": space.rogue_dimensions,
    "partition_isotropy": space.partition_isotropy,
    "norm_spread": rows.norm_spread,
    "broken_rows": rows.broken_rows,
    "duplicates": rows.duplicates,
    "near_duplicates": rows.near_duplicates,
    "mixed_spaces": rows.mixed_spaces,
    "intrinsic_dimension": neighborhoods.intrinsic_dimension,
    "two_nn": neighborhoods.two_nn,
    "hubness": neighborhoods.hubness,
    "clusters": groups.clusters,
    "labels": groups.labels,
    "label_conflict": groups.label_conflict,
    "types": groups.types,
    "frequency": frequency.frequency,
    "queries": rows.queries,
}


FINDINGS = (*(name for name in _JUDGES if name != "types"), "inter_type", "intra_type")
"""The names of all findings."""

FINDING_ROLES = {
    **{"labels": "labels", "label_conflict": "labels", "frequency": "frequency"},
    **{"inter_type": "types", "intra_type": "types"},
}
"""The role of the column that a finding rests on; the other findings are about the vectors."""


def judge(measured: Measurements) -> tuple[list[Finding], dict[str, str]]:
    """Return all findings that apply, and the reasons why the others were skipped."""
    evidence = Evidence(measured)
    findings: list[Finding] = []
    skipped = dict(measured.skipped)
    judged = run_together(*(partial(_apply_rule, find, evidence) for find in _JUDGES.values()))
    for name, found in zip(_JUDGES, judged, strict=True):
        if isinstance(found, InputError):
            skipped[name] = str(found)
        else:
            findings.extend(found)
    return _remove_conflicting_advice(findings), skipped


def _apply_rule(find: Callable[[Evidence], Iterator[Finding]], evidence: Evidence) -> list[Finding] | InputError:
    """Return the findings of one rule, or the reason why the rule does not apply."""
    try:
        return list(find(evidence))
    except InputError as error:
        return error


_FIX_COMMAND = re.compile(r"isoscope fix ([a-z-]+)")
_LABEL_REMOVING_REPAIRS = {"all-but-the-top", "whiten", "cluster-center", "cluster-null"}
_LABEL_ADVICE = "Leave it: a repair would remove the leading principal components, which separate your labels."
_LABEL_ADVICE_ON_THE_MEAN = (
    "Subtracting the mean (`isoscope fix center`) also lowers this; do not remove further components, because they "
    "separate your labels."
)


def _remove_conflicting_advice(findings: list[Finding]) -> list[Finding]:
    """Remove advice to use repairs that would remove the labels, if the finding `label_conflict` warns about them."""
    if all(finding.verdict == "ok" for finding in findings if finding.name == "label_conflict"):
        return findings
    return [
        replace(finding, advice=_LABEL_ADVICE_ON_THE_MEAN if "isoscope fix center" in finding.advice else _LABEL_ADVICE)
        if _LABEL_REMOVING_REPAIRS & set(_FIX_COMMAND.findall(finding.advice))
        else finding
        for finding in findings
    ]
