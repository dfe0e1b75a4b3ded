"""The documented runs: their numbers are stored, and give the verdicts on the pages."""

import json
from pathlib import Path

import pytest

import isoscope
from isoscope.studies import run
from isoscope.studies.run import read_case
from isoscope.studies.study import STUDIES, Holds, read_published
from isoscope.studies.verdicts import judge, judge_counts
from tests.studies.counting import Counting

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture
def study_pages(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import study_pages

    return study_pages


def kept(name):
    return json.loads((DOCS / "studies" / f"{name}.results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STUDIES)
def test_every_claim_and_observation_has_a_verdict(name):
    told, paper = kept(name), read_published(name)
    assert [each["key"] for each in told["claims"]] == [each.key for each in paper.claims]
    assert [each["key"] for each in told["observations"]] == [each.key for each in paper.observations]
    assert [each["words"] for each in told["claims"]] == [each.words for each in paper.claims]


@pytest.mark.parametrize("name", STUDIES)
def test_the_results_reproduce_the_verdicts_of_the_page(name):
    told = kept(name)
    page = (DOCS / "studies" / f"{name}.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for each in told["claims"] + told["observations"]:
        cases = [read_case(case) for case in each["cases"]]
        if not each.get("recomputed", True):
            assert not cases
            assert each["why"].startswith("Not recomputed: ")
        elif cases:
            assert judge(cases, each["most"]).value == each["holds"], each["key"]
        else:
            agree, against, unclear = each["counts"]
            assert judge_counts(agree, against, unclear, most=each["most"]).value == each["holds"], each["key"]
        shown = next(row for row in rows if row.startswith(f"| {each['words']} ("))
        assert f"| **{each['holds']}**: {each['why']}".replace("|", "\\|")[1:] in shown


@pytest.mark.parametrize("name", STUDIES)
def test_every_table_of_the_page_is_in_the_results(name):
    page = (DOCS / "studies" / f"{name}.md").read_text(encoding="utf-8")
    titles = [each["title"] for each in kept(name)["tables"]]
    headings = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    assert len(titles) == len(headings)
    assert all(heading.startswith(title) for title, heading in zip(titles, headings, strict=True))


def test_shrink_the_longest_refutes_only_with_an_opposite_interval():
    for each in kept("shrink-the-longest")["claims"]:
        against = sum(read_case(case).holds is Holds.no for case in each["cases"])
        assert (each["holds"] == "no") <= (against > 0), each["key"]


def test_the_table_of_all_claims_matches_the_results(study_pages):
    page = (DOCS / "studies.md").read_text(encoding="utf-8")
    assert study_pages.table(DOCS) in page


def test_run_is_converted_to_page_numbers_and_figures(study_pages, tmp_path, monkeypatch):
    for room in (run, run):
        monkeypatch.setattr(room, "study_by_name", lambda name: Counting())
    isoscope.run_study("counting", output=tmp_path / "counting")
    (tmp_path / "docs" / "studies").mkdir(parents=True)
    study_pages.keep_page(tmp_path / "counting", tmp_path / "docs")
    study_pages.keep_results(tmp_path / "counting", tmp_path / "docs")
    told = json.loads((tmp_path / "docs" / "studies" / "counting.results.json").read_text(encoding="utf-8"))
    assert [each["holds"] for each in told["claims"]] == ["yes", "not tested"]
    assert set(told["arms"]) == set(json.loads((tmp_path / "counting" / "results.json").read_text())["arms"])
    page = (tmp_path / "docs" / "studies" / "counting.md").read_text(encoding="utf-8")
    assert "](counting/lines.svg)" in page
    assert (tmp_path / "docs" / "studies" / "counting" / "lines.svg").exists()
    monkeypatch.setattr(study_pages, "STUDIES", ("counting", "never-run"))
    assert "| **[On <counting>](studies/counting.md)**" in study_pages.table(tmp_path / "docs")


def test_results_omit_the_points_of_figures(study_pages):
    arm = {"score": 0.123456789, "cloud": [[0.0, 1.0]] * 500, "layers": [{"two_nn": 3.0, "line": list(range(65))}]}
    assert study_pages.numbers(arm) == {"score": 0.123457, "layers": [{"two_nn": 3.0}]}
