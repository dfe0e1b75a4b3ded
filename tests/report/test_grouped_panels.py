import numpy as np
import pytest

from isoscope._report.grouped_panels import choose_panels
from tests.report.groupeds import layered, named, told


def findings(drawn):
    return [trace.finding for panel in drawn for trace in panel.judged_traces]


@pytest.mark.parametrize(
    "make",
    [
        lambda: (layered(),),
        lambda: (layered(), layered(seed=1)),
        lambda: (named(),),
        lambda: (layered(), layered(5)),
    ],
)
def test_every_finding_is_drawn_once_or_listed_as_zero(make):
    audits = make()
    drawn, zero = choose_panels(audits)
    there = {f.name: f.title for audit in audits for group in audit.groups.values() for f in group.findings}
    assert len(findings(drawn)) == len(set(findings(drawn)))
    assert {there[name] for name in findings(drawn)} | set(zero) == set(there.values())
    for panel in drawn:
        for trace in panel.traces:
            assert any(np.isfinite(trace.numbers(audit)).any() for audit in audits)


def test_several_audits_have_one_judged_measurement_per_chart():
    drawn, _ = choose_panels([layered(), layered(seed=1)])
    assert [len(panel.judged_traces) for panel in drawn] == [1] * len(drawn)
    assert len({panel.title for panel in drawn}) == len(drawn)
    alone, _ = choose_panels([layered()])
    assert (
        next(panel for panel in alone if panel.title == "S_intra and S_inter").judged_traces[1].finding == "inter_type"
    )


def test_chart_with_half_its_data_missing_is_titled_by_the_rest():
    drawn, zero = choose_panels([told([0.1, 0.2], finding="labels")])
    assert [panel.title for panel in drawn] == ["Silhouette of the labels"]
    assert not zero


def test_findings_that_are_zero_everywhere_are_not_drawn():
    drawn, zero = choose_panels([told([0.0, 0.0], finding="duplicates")])
    assert not drawn
    assert zero == ["duplicates"]
