"""The lists of the worst rows on the page and in the terminal: escaped texts, links from findings, and widths."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope._report.audit_page import render_page
from isoscope._report.row_lists import format_value, render_worst_rows, render_worst_text
from isoscope._report.terminal import to_plain_text
from tests.report.parsed import allows_itself_alone, in_order


@pytest.fixture(scope="module")
def audit():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 30)) + 1
    X[0], X[1], X[2] = X.mean(axis=0), X[3], 0
    texts = [f"<script>alert({i})</script> {'word ' * 40}" for i in range(300)]
    labels = np.where(X[:, 0] + X[:, 1] > 2, "<i>high</i>", "low")
    return isoscope.audit(X, text=texts, labels=labels, rows=True, top=4)


def test_the_page_lists_the_rows_and_escapes_their_texts(audit):
    page = render_page([audit])
    assert "<script>alert(" not in page
    assert "&lt;script&gt;alert(1)" in page
    section = render_worst_rows(audit)
    for each in audit.worst.nonempty:
        assert f'id="rows-{each.name}"' in section
        assert section.count(each.meaning.replace("'", "&#x27;")) == 1
    empty = [each for each in audit.worst.lists if not each.count]
    assert all(f'id="rows-{each.name}"' not in section for each in empty)
    assert ("Not found: " in section) == bool(empty)
    in_order(page)
    allows_itself_alone(page)


def test_findings_link_to_their_rows(audit):
    page = render_page([audit])
    assert 'href="#rows-zero_rows"' in page
    assert 'href="#rows-hubs"' in page
    assert "rows=True, top=4" in page


def test_an_audit_without_rows_has_no_section():
    page = render_page([isoscope.audit(np.random.default_rng(0).standard_normal((100, 4)))])
    assert 'id="rows"' not in page
    assert "See the rows" not in page


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_each_list_within_its_width(audit, width):
    text = to_plain_text(render_worst_text(audit.worst), width)
    assert max(map(len, text.splitlines())) <= width
    for each in audit.worst.nonempty:
        assert f"{each.title}  {each.count:,}" in text
    assert "…" in text  # long texts are truncated to one line
    assert str(audit).count("Rows to check") == 1


def test_lists_that_were_not_measured_are_not_called_empty():
    audit = isoscope.audit(np.random.default_rng(0).standard_normal((40, 4)), rows=True)
    text = " ".join(to_plain_text(render_worst_text(audit.worst), 80).split())
    empty = text[text.index("Not found: ") :].split(".")[0]
    assert "outliers" not in empty
    assert "zero and dropped rows" in empty
    assert "Outlier scores were not measured: at least 100 rows are needed" in text
    assert "Outlier scores were not measured" in render_worst_rows(audit)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cosine", 0.5, "0.500"),
        ("cosine", 1.0, "1.00000"),
        ("nearest_cosine", -0.25, "−0.250"),
        ("share", 0.7, "70%"),
        ("label", 1000, "1000"),
        ("label", 1.5, "1.5"),
        ("p", 0.00012, "0.00012"),
        ("is_zero", False, "no"),
        ("cosine", None, "–"),
    ],
)
def test_values_are_formatted_by_name(name, value, expected):
    assert format_value(name, value) == expected
