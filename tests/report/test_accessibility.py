"""Every kind of page has no axe violation of any level, and one browser opens them all."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope._report.advice_page import render_advice_page
from isoscope._report.audit_page import render_page
from isoscope._report.compression_page import render_compression_page
from isoscope._report.finetuning_page import render_finetuning_page
from isoscope._report.grouped_page import render_grouped_page
from isoscope._report.same_page import render_same_page
from isoscope._report.threshold_page import render_threshold_page
from isoscope._report.training_page import render_training_page
from isoscope.auditing.compare import HeldOutComparison
from isoscope.studies import run as running
from tests.report import advices, groupeds, test_finetuning_page
from tests.report.chromium import Chromium, require_browser
from tests.services import lack
from tests.studies.counting import Counting
from tests.training.histories import made

RUN_AXE = """
axe.run(document, { runOnly: { type: "tag", values: [
  "wcag2a", "wcag2aa", "wcag2aaa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"] } })
.then(({ violations }) => violations.map(({ id, impact, nodes }) => `${impact}: ${id}: ${nodes[0].html.slice(0, 200)}`))
"""


def vectors(rows: int = 240) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.standard_normal((rows, 8)) + 3 * np.repeat(generator.standard_normal((3, 8)), rows // 3, axis=0)


def audit(**options: object) -> isoscope.Audit:
    kinds = np.repeat(["first", "second", "third"], 80)
    return isoscope.audit(vectors(), labels=kinds, text=[f"text {i}" for i in range(240)], **options)


def render_repair(folder: Path) -> str:
    before = audit()
    after = dataclasses.replace(before, source="centered")
    return render_page([before, after], agreement=0.4, held_out=HeldOutComparison("Center()", 120, 120, 240))


def render_finetuning(folder: Path) -> str:
    return render_finetuning_page(test_finetuning_page.result(folder, (0.85, 0.52), term=True))


def render_study(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "study_by_name", lambda name: Counting())
        isoscope.run_study("counting", output=folder / "study")
    return (folder / "study" / "page.html").read_text(encoding="utf-8")


def render_similar(folder: Path) -> str:
    return render_page([dataclasses.replace(audit(), source="a name " * 9) for _ in range(3)])


PAGES = {
    "audit": lambda folder: render_page([audit()]),
    "rows": lambda folder: render_page([audit(rows=True, top=3)]),
    "baseline": lambda folder: render_page([audit()], baseline=isoscope.audit(vectors() + 2)),
    "repair": render_repair,
    "three spaces": render_similar,
    "layers": lambda folder: render_grouped_page([groupeds.layered()]),
    "labels": lambda folder: render_grouped_page([groupeds.named()]),
    "advice": lambda folder: render_advice_page(advices.made(task="labels")),
    "threshold": lambda folder: render_threshold_page(isoscope.threshold(vectors(), labels=np.arange(240) // 80)),
    "same": lambda folder: render_same_page(isoscope.same(vectors(), vectors()[:, ::-1], pair="rows")),
    "compress": lambda folder: render_compression_page(isoscope.compress(vectors(), precisions=["int8"], keep=0.9)),
    "training": lambda folder: render_training_page(made()),
    "finetuning": render_finetuning,
    "study": render_study,
}


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core."""
    found = find_spec("axe_core_python")
    if found is None or found.origin is None:
        lack("axe-core-python is not installed")
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser():
    with Chromium(require_browser()) as running:
        yield running


@pytest.mark.parametrize("kind", PAGES)
def test_page_has_no_axe_violation(browser, axe, tmp_path, kind):
    path = tmp_path / "page.html"
    path.write_text(PAGES[kind](tmp_path), encoding="utf-8")
    tab = browser.open(path.as_uri())
    tab.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    tab.run(f"{axe}; 1")
    for scheme in ("light", "dark"):
        tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.finish()
        assert tab.run(RUN_AXE) == [], scheme
    tab.close()


def test_axe_finds_a_violation(browser, axe, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_page([audit()]).replace("<canvas ", '<img src="data:,"><canvas ', 1), encoding="utf-8")
    tab = browser.open(path.as_uri())
    tab.run(f"{axe}; 1")
    assert any("image-alt" in each for each in tab.run(RUN_AXE))
    tab.close()


def test_every_page_has_date_contents_and_a_title_for_each_section(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    for kind, render in PAGES.items():
        page = render(tmp_path)
        assert "Created <time" in page, kind
        assert ">1970-01-02</time>" in page, kind
        sections = [part.split('"')[0] for part in page.split('<section id="')[1:]]
        links = page.split('aria-label="Contents"')[1].split("</nav>")[0].split('href="#')[1:]
        assert [each.split('"')[0] for each in links] == sections, kind
