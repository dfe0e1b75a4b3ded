"""The page of `same`: valid, safe, and the same numbers as the result."""

import html

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope._report.same_page import render_notebook_page, render_same_page
from tests.comparing.spaces import topics
from tests.report.parsed import allows_itself_alone, in_order

X = topics(200)
EVIL = "</script><img src=x onerror=alert(1)>"
MIXED = topics(600, d=96)
MIXED[:60] = topics(600, d=96, model=1)[:60]

RESULTS = {
    "pairs": lambda: isoscope.same(X, X[:, ::-1], pair="rows"),
    "rows": lambda: isoscope.same(X[:100], X[100:]),
    "sketches": lambda: isoscope.same(isoscope.sketch(X[:100]), X[100:]),
    "dimensions": lambda: isoscope.same(X, X[:, :9]),
    "within": lambda: isoscope.same(
        isoscope.open_store(MIXED, ids=[EVIL] + [f"d{i}" for i in range(599)]), within=True
    ),
    "undecided": lambda: isoscope.same(X[:12], X[12:24]),
}


@pytest.fixture(params=RESULTS, scope="module")
def result(request):
    return RESULTS[request.param]()


def test_page_is_valid_and_its_headline_is_the_answer(result):
    text = render_same_page(result)
    in_order(text)
    assert allows_itself_alone(text).all("script") == [{}], "the script of the copy buttons, inline"
    assert result.headline in text.replace("&#x27;", "'").replace("&quot;", '"')
    assert "onerror=alert(1)>" not in text.replace("&gt;", "")
    assert "nan" not in text.lower().replace("nano", "")


def test_notebook_and_text_start_with_the_answer(result):
    assert result.headline.split()[0] in render_notebook_page(result)
    assert " ".join(str(result).split()).startswith(result.headline)
    assert max(map(len, str(result).splitlines())) <= 80


def test_page_repeats_the_command():
    page = render_same_page(isoscope.same(X, 2 * X, pair="rows", tolerance=0.1, seed=3))
    assert "isoscope.same(old, new, pair='rows', tolerance=0.1, seed=3)" in html.unescape(page)
    assert "In a shell" not in page  # arrays have no name


def test_page_repeats_the_command_for_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"vector": X.tolist(), "key": [f"d{i}" for i in range(len(X))]})
    pq.write_table(table, "old.parquet")
    page = html.unescape(render_same_page(isoscope.same("old.parquet", "old.parquet", ids="key", seed=3)))
    assert "isoscope same old.parquet old.parquet --ids key --seed 3 --html same.html" in page


def test_page_is_written(tmp_path):
    isoscope.same(X, np.float16(X), pair="rows").to_html(tmp_path / "page.html")
    assert "are the same space" in (tmp_path / "page.html").read_text(encoding="utf-8")
