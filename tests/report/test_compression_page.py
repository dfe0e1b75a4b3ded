"""The page of compress: the verdict as heading, every number, valid drawings, commands that reproduce it."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

import isoscope
from isoscope._report.compression_page import build_frontier_chart, render_compression_page, render_notebook_page
from isoscope._report.compression_text import (
    compression_headline,
    format_bounds,
    format_goal,
    format_share,
    frontier,
)
from isoscope.compressing.decision import Kept
from tests.report.chromium import Chromium, require_browser
from tests.report.parsed import Parsed, allows_itself_alone, in_order

EVIL = "</script><img src=x onerror=alert(1)>.parquet"


def _compress(keep: float = 0.9, **options) -> isoscope.Compression:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((options.pop("rows", 300), 16)) * np.linspace(2, 0.4, 16) + 0.5).astype(np.float32)
    return isoscope.compress(X, keep=keep, **options)


KINDS = {
    "smaller": lambda: _compress(),
    "rescored": lambda: _compress(rescore=True, keep=0.7),
    "none": lambda: _compress(precisions=["bit"], dimensions=[], keep=0.99),
    "undecided": lambda: _compress(precisions=["float16"], dimensions=[], keep=0.9999),
    "confirmed": lambda: _compress(rows=1500, sample=300, keep=0.8),
    "labels": lambda: _compress(labels=[0, 1, 1] * 100, precisions=["int8"], keep=0.8),
}
_MADE: dict[str, isoscope.Compression] = {}


@pytest.fixture(params=KINDS)
def result(request) -> isoscope.Compression:
    if request.param not in _MADE:
        _MADE[request.param] = KINDS[request.param]()
    return _MADE[request.param]


def test_page_is_valid_and_allows_only_its_own_script(result):
    text = render_compression_page(result)
    in_order(text)
    assert allows_itself_alone(text).all("script") == [{}], "the script of the copy buttons, inline"


def test_verdict_is_the_heading_and_shown_once(result):
    text = render_compression_page(result)
    heading = html.unescape(re.search(r"<h1>(.*?)</h1>", text)[1])
    assert heading == compression_headline(result)
    words = {"smaller": "Store ", "none": "Nothing smaller", "undecided": " are too few to decide"}
    assert words[result.outcome] in heading
    assert Parsed(text).text.count(heading) == 1


def test_table_has_every_number(result):
    text = Parsed(render_compression_page(result)).text
    for trial in result.trials[:-1]:
        assert trial.name in text
        for kept in trial.scores.values():
            assert format_share(kept.share) in text
    if any(trial.whole for trial in result.trials):
        assert "kept on all rows" in text


def test_drawings_contain_no_nan(result):
    for drawing in re.findall(r"<svg.*?</svg>", render_compression_page(result)):
        assert not re.search(r"nan|inf\b", re.sub(r">[^<]*<", "><", re.sub(r'aria-label="[^"]*"', "", drawing)))


def test_databases_are_set_only_for_a_choice(result):
    has = "Database settings" in render_compression_page(result)
    assert has == (result.chosen is not None)


def test_chart_has_a_mark_for_each_candidate(result):
    chart = build_frontier_chart(result)
    assert len(chart.lines[1].x) == len(result.trials)
    assert sum("chosen" in mark for mark in chart.lines[1].marks) == (result.chosen is not None)


def test_frontier_grows_with_the_size(result):
    for rescored in (False, True):
        values = [
            trial[result.measure].value
            for trial in frontier(result)
            if bool(trial.oversampling) == rescored and trial not in (result.choice, result.original)
        ]
        assert values == sorted(values)
    assert result.original in frontier(result)


def test_notebook_shows_the_verdict(result):
    text = Parsed(render_notebook_page(result)).text
    assert compression_headline(result) in text
    assert "<script" not in result._repr_html_()


def test_commands_repeat_the_settings():
    result = _compress(keep=0.7, precisions=["int8", "float16"], dimensions=[4])
    result.source = "docs.parquet"
    text = html.unescape(render_compression_page(result))
    assert "isoscope compress docs.parquet --keep 0.7 --precision int8,float16 --dimensions 4 -o quantizer" in text
    assert "isoscope.compress('docs.parquet', keep=0.7, precisions=['int8', 'float16'], dimensions=[4])" in text
    assert "isoscope apply quantizer docs.parquet -o decoded.parquet" in text


def test_names_from_the_data_are_escaped():
    result = _compress(precisions=["int8"])
    result.source = EVIL
    in_order(render_compression_page(result))
    assert "<img" not in render_compression_page(result)


def test_bounds_that_look_like_the_goal_have_another_digit():
    assert format_bounds(Kept(0.5, 0.985, 0.9804, 0.98996, "loses", 100), 0.99) == "[98.04, 99.00]"
    assert format_bounds(Kept(0.5, 0.985, 0.9804, 0.9884, "loses", 100), 0.99) == "[98.0, 98.8]"


def test_shares_are_percentages():
    assert (format_share(0.99949), format_goal(0.999)) == ("99.9%", "99.9%")


def test_page_fits_every_screen(tmp_path):
    result = _compress()
    result.to_html(tmp_path / "page.html")
    with Chromium(require_browser()) as browser:
        tab = browser.open((tmp_path / "page.html").as_uri(), width=390, height=800, dark=False)
        for width in (320, 390, 768, 1280):
            tab.resize(width, 800)
            assert tab.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
