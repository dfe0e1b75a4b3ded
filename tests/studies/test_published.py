"""The published numbers of the papers, as data."""

import math
from pathlib import Path

import pytest

from isoscope.studies.datasets.source import DataSource
from isoscope.studies.models import Model
from isoscope.studies.study import STUDIES, Holds, Setting, read_published, study


@pytest.mark.parametrize("name", STUDIES)
def test_every_published_number_is_finite_and_has_a_source(name):
    found = read_published(name)
    assert found.paper.title
    assert found.tables
    for key, table in found.tables.items():
        assert found.titles[key]
        assert table
        for number in table.values():
            assert math.isfinite(number.value)
            assert number.where
            assert number.uncertainty is None or number.uncertainty >= 0


@pytest.mark.parametrize("name", STUDIES)
def test_claims_are_sentences_with_unique_keys(name):
    claims = read_published(name).claims
    assert len({each.key for each in claims}) == len(claims) >= 4
    assert all(each.words[0].isupper() and each.words.endswith(".") for each in claims)
    assert all(each.where for each in claims)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_describes_its_parameters(name):
    found = study(name)
    assert "seeds" in found.parameters
    assert found.parameters["seeds"].widens
    for key, each in found.parameters.items():
        assert each.words
        assert isinstance(each.quick, type(each.full)), key
    assert found.models
    assert found.quick_models


def test_numbers_match_the_papers():
    clusters = read_published("isotropy-clusters-classifiers")
    assert clusters.number("glue", "rte", "all-MiniLM-L6-v2 r").value == -0.92648
    assert read_published("clusters-and-manifolds").tables


@pytest.mark.parametrize("name", STUDIES)
def test_study_without_arms_reports_nothing_tested(name):
    found = study(name)
    values = {key: each.quick for key, each in found.parameters.items()}
    setting = Setting(tuple(map(Model, found.quick_models)), DataSource(), values, quick=True)
    outcome = found.outcome(setting, {})
    assert {each.claim.key for each in outcome.verdicts} == {each.key for each in found.published.claims}
    assert {each.holds for each in outcome.verdicts} == {Holds.untested}
    assert not outcome.figures


def test_notes_say_that_sick_on_the_hub_differs():
    found = study("isotropic-word-representation-in-bert")
    values = {key: each.full for key, each in found.parameters.items()}
    for data, told in ((DataSource(), True), (DataSource(Path()), False)):
        notes = found.outcome(Setting((Model("a"),), data, values, quick=False), {}).notes
        assert any("9,927 pairs" in note for note in notes) is told
