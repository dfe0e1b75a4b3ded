import dataclasses

import numpy as np
import pytest

from isoscope.auditing.audit import Audit, audit
from isoscope.auditing.causes import Cause, find_causes
from isoscope.auditing.finding import Finding, Range


def finding(name: str, value: float, verdict: str = "bad", meaning: str = "", **details: object) -> Finding:
    judged = {
        "ok": Range((-np.inf, np.inf), (-np.inf, np.inf), "s"),
        "look": Range((2e9, np.inf), (-np.inf, np.inf), "s"),
        "bad": Range((2e9, np.inf), (1e9, np.inf), "s"),
    }[verdict]
    return Finding(
        name, "Largest three coordinates", value, None, None, judged, meaning, "", 9, "share", details=details
    )


def only(*findings: Finding) -> list[Cause]:
    return find_causes(findings, 384, "texts")


@pytest.fixture(scope="module")
def cone() -> Audit:
    generator = np.random.default_rng(0)
    return audit(generator.standard_normal((400, 24)) + 1.2, text=[f"t {i}" for i in range(400)])


def test_a_shared_mean_is_one_cause_with_its_cosine(cone):
    first = cone.causes[0]
    assert first.name == "shared_direction"
    assert {"mean_cosine", "anisotropy", "partition_isotropy"} <= {each.name for each in first.findings}
    assert first.sentence == (
        f"All vectors share one direction: even unrelated texts have a cosine near {cone['mean_cosine'].value:.2f}."
    )
    assert first.is_about_shape
    assert cone.headline == first.sentence


def test_every_finding_that_needs_attention_has_exactly_one_cause(cone):
    named = [each.name for cause in cone.causes for each in cause.findings]
    assert sorted(named) == sorted(each.name for each in cone.findings if each.verdict != "ok")


def test_headline_survives_json(cone, tmp_path):
    cone.to_json(tmp_path / "a.json")
    assert Audit.from_json(tmp_path / "a.json").headline == cone.headline


def test_isotropic_vectors_need_no_attention():
    found = audit(np.random.default_rng(0).standard_normal((2000, 16)), metric="euclidean")
    well = dataclasses.replace(found, findings=[each for each in found.findings if each.verdict == "ok"])
    assert well.causes == []
    assert well.headline == "No finding needs attention: two random rows have a cosine near 0.00."
    assert dataclasses.replace(found, findings=[]).headline == "Nothing could be measured."


def test_axis_is_the_shared_direction_only_if_centering_removes_it():
    cosine = finding("mean_cosine", 0.3, "look")
    of_mean = finding("anisotropy", 0.6, centered=[0.1])
    assert [cause.name for cause in only(cosine, of_mean)] == ["shared_direction"]
    names = [cause.name for cause in only(cosine, finding("anisotropy", 0.6, centered=[0.5]))]
    assert names == ["few_dimensions", "shared_direction"], "the worst cause comes first"
    alone = only(finding("mean_cosine", 0.0, "ok"), of_mean)[0]
    assert alone.sentence == "One direction dominates every comparison: it accounts for 60.0% of all squared lengths."


def test_large_coordinates_belong_to_the_mean_if_all_vectors_have_them():
    cosine = finding("mean_cosine", 0.6)
    of_mean = finding("rogue_dimensions", 0.44, shares=[0.3, 0.14], cosine_contribution=[0.29, 0.13])
    assert [cause.name for cause in only(cosine, of_mean)] == ["shared_direction"]
    varying = finding("rogue_dimensions", 0.44, shares=[0.3, 0.14], cosine_contribution=[0.05, 0.01])
    assert [cause.name for cause in only(cosine, varying)] == ["shared_direction", "large_coordinates"]
    assert only(varying)[0].sentence == (
        "The largest three coordinates dominate every cosine: they make up 44.0% of a vector's squared length."
    )


def test_faults_in_the_data_come_before_the_shape():
    names = [
        cause.name
        for cause in only(
            finding("mean_cosine", 0.6),
            finding("near_duplicates", 0.2),
            finding("broken_rows", 0.2),
            finding("mixed_spaces", 0.2),
        )
    ]
    assert names == ["mixed_spaces", "broken_rows", "repeats", "shared_direction"]


@pytest.mark.parametrize(
    ("findings", "sentence"),
    [
        ([finding("isoscore", 0.09, unbiased=0.09, as_published=0.08, participation_ratio=36.4)],
         "A few directions carry most of the variance: it fills as much as 36 evenly filled dimensions of 384."),
        ([finding("isoscore", 0.01, unbiased=0.4, as_published=0.01, participation_ratio=4.8)],
         "A few long rows dominate the shape: the variance fills 5 of 384 dimensions."),
        ([finding("effective_rank", 12.3)],
         "A few directions carry most of the variance: it fills 12 of 384 dimensions."),
        ([finding("duplicates", 0.02), finding("near_duplicates", 0.125)],
         "Search results contain repeats: 12.5% of the rows nearly repeat another row."),
        ([finding("labels", -0.1, "look", nearer_to_another=0.45)],
         "The labels overlap: 45.0% of the rows are nearer to another label than to their own."),
        ([finding("labels", -0.1)], "The labels fit the vectors no better than shuffled labels."),
        ([finding("norm_spread", 0.365, "look")],
         "The choice of metric changes the results: of the top 10, only 3.6 agree."),
        ([finding("mean_cosine", 0.21, "look")],
         "All vectors lean toward one direction: even unrelated texts have a cosine near 0.21."),
        ([finding("of another version", 1, meaning="Something.")], "Something."),
    ],
)  # fmt: skip
def test_each_cause_is_one_sentence(findings, sentence):
    causes = only(*findings)
    assert [cause.sentence for cause in causes] == [sentence]


def test_equal_vectors_are_one_cause():
    found = audit(np.ones((100, 8)))
    assert found.headline == "All vectors are equal: check how they were computed."
    assert [cause.name for cause in found.causes] == ["equal_rows"]
    assert not found.causes[0].is_about_shape
    assert "rogue_dimensions" in found.skipped, "no coordinate is ok in vectors that are all equal"


def test_every_finding_has_a_sentence():
    from isoscope.auditing.findings import FINDINGS

    informative = {"two_nn"}  # always ok
    for name in set(FINDINGS) - informative:
        cause = only(finding(name, 0.5, meaning="the fallback", n_clusters=2))[0]
        assert cause.sentence != "the fallback", name
        assert cause.sentence.endswith(".")
