"""The page of a threshold: every verdict, valid HTML, and names from the data escaped."""

from __future__ import annotations

import dataclasses
import html
import re

import numpy as np
import pytest

import isoscope
from isoscope._report.threshold_page import render_notebook_page, render_threshold_page
from isoscope._report.threshold_text import (
    describe_population,
    format_cut,
    format_share,
    render_threshold_text,
    threshold_headline,
    threshold_paragraph,
)
from isoscope.thresholding.cuts import Share
from isoscope.thresholding.threshold_result import RelativeCut, Threshold
from tests.report.parsed import Parsed, allows_itself_alone, in_order

EVIL = "</script><img src=x onerror=alert(1)>\u2028<!--\"'&amp;"


def make_kinds() -> dict[str, Threshold]:
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 20, 400)
    X = rng.standard_normal((20, 16))[topic] + 0.4 * rng.standard_normal((400, 16))
    of = rng.integers(0, 20, 60)
    queries = X[[int(np.flatnonzero(topic == each)[0]) for each in of]] + 0.3 * rng.standard_normal((60, 16))
    qrels = {str(i): {str(row): 1 for row in np.flatnonzero(topic == each)} for i, each in enumerate(of)}
    asked = {"queries": queries, "qrels": qrels, "ids": np.arange(400), "query_ids": np.arange(60)}
    noise = rng.permutation(topic)
    kinds = {
        "precision": isoscope.threshold(X, labels=topic, precision=0.8),
        "recall": isoscope.threshold(X, **asked, recall=0.7),
        "f1": isoscope.threshold(X, **asked, f1=True),
        "no cut": isoscope.threshold(X, labels=noise),
        "no cut, recall": isoscope.threshold(X, labels=noise, recall=0.8),
        "undecided": isoscope.threshold(X, **asked, precision=0.99),
        "counted": isoscope.threshold(X, false_matches=1e-2),
        "results": isoscope.threshold(X, queries=queries, false_matches=1e-2),
        "extrapolated": isoscope.threshold(rng.standard_normal((700, 16)), false_matches=1e-4),
        "copies": isoscope.threshold(np.concatenate([X, np.repeat(X[:1], 60, axis=0)]), false_matches=1e-3),
    }
    kinds["far"] = dataclasses.replace(kinds["undecided"], verdict="undecided", needed=None)
    kinds["relative undecided"] = dataclasses.replace(
        kinds["recall"], relative=RelativeCut("undecided", None, {}, 1200)
    )
    return kinds


KINDS = make_kinds()


@pytest.fixture(params=KINDS)
def found(request) -> Threshold:
    return KINDS[request.param]


def test_the_kinds_have_the_intended_verdicts():
    verdicts = {name: found.verdict for name, found in KINDS.items()}
    assert {name for name, verdict in verdicts.items() if verdict == "no cut"} == {"no cut", "no cut, recall", "copies"}
    assert {name for name, verdict in verdicts.items() if verdict == "undecided"} == {"undecided", "far"}
    assert KINDS["extrapolated"].tail.passed is not None


def test_pages_are_valid_html_with_strict_csp(found):
    text = render_threshold_page(found)
    in_order(text)
    assert allows_itself_alone(text).all("script") == [{}], "the script of the copy buttons, inline"


def test_drawings_contain_no_nan_or_inf(found):
    for drawing in re.findall(r"<svg.*?</svg>", render_threshold_page(found), re.S):
        assert not re.search(r"nan|inf\b", re.sub(r'aria-label="[^"]*"|>[^<]*<', "", drawing))


def test_the_verdict_is_the_heading_and_the_evidence_follows(found):
    page = render_threshold_page(found)
    heading = html.unescape(re.search(r"<h1>(.*?)</h1>", page)[1])
    assert heading == threshold_headline(found)
    text = Parsed(page).text
    assert threshold_paragraph(found).removeprefix(heading).strip() in text
    for note in found.notes:
        assert note in text
    for score in found.scores.values():
        assert format_share(score) in text


def test_texts_have_no_missing_values_and_end_with_a_period(found):
    for text in (threshold_paragraph(found), render_threshold_text(found), Parsed(render_threshold_page(found)).text):
        assert not re.search(r"\bnan\b|\bNone\b(?! of)|None\.", text)
    assert threshold_headline(found).endswith(".")
    assert "  " not in threshold_paragraph(found)


def test_notebooks_have_the_headline_and_no_scripts(found):
    parsed = Parsed(render_notebook_page(found))
    assert not parsed.all("script")
    assert not parsed.ids
    assert threshold_headline(found) in parsed.text


def test_headlines_state_the_goal():
    assert "at least 80% of such pairs are matches" in threshold_headline(KINDS["precision"])
    assert "At least 70% of the matches have a cosine of at least" in threshold_headline(KINDS["recall"])
    assert "best F1" in threshold_headline(KINDS["f1"])
    assert "none that finds at least 5% of the matches reaches a precision of 0.9" in threshold_headline(
        KINDS["no cut"]
    )
    assert "matches are not significantly more frequent than among all pairs" in threshold_headline(
        KINDS["no cut, recall"]
    )
    assert "60 queries are too few to decide whether any threshold reaches" in threshold_headline(KINDS["undecided"])
    assert "1% of random pairs have a cosine of at least" in threshold_headline(KINDS["counted"])
    assert "1 in 10,000 random pairs has" in threshold_headline(KINDS["extrapolated"])
    assert "more than 1 in 1,000 random pairs are copies of each other" in threshold_headline(KINDS["copies"])
    frequent = dataclasses.replace(KINDS["copies"], level=0.02)
    assert "more than 2% of random pairs are copies of each other" in threshold_headline(frequent)
    far = dataclasses.replace(KINDS["undecided"], needed=None)
    assert "more than 1,000 times as many would be needed" in threshold_headline(far)


def test_headline_states_a_low_recall_or_precision():
    def lowered(kind, measure):
        scores = KINDS[kind].scores | {measure: Share(0.037, 0.03, 0.04)}
        return threshold_headline(dataclasses.replace(KINDS[kind], scores=scores))

    assert lowered("precision", "recall").endswith("confidence. It finds only 3.7% of all matches.")
    assert lowered("recall", "precision").endswith("confidence. Only 3.7% of such pairs are matches.")
    assert KINDS["precision"].scores["recall"].value > 0.5
    assert "finds only" not in threshold_headline(KINDS["precision"])


def test_rows_that_take_no_part_are_counted():
    found = KINDS["precision"]
    assert "from 400 rows;" in describe_population(found)
    assert "from 400 of 401 rows;" in describe_population(dataclasses.replace(found, n=401))


def test_terminal_table_names_its_columns_and_fits():
    text = render_threshold_text(KINDS["precision"])
    assert "Scores on held-out" in text
    assert "95% interval" in text
    assert "Lower thresholds may also reach 80%, but this data cannot prove it." in text
    for found in KINDS.values():
        assert max(map(len, render_threshold_text(found).splitlines())) <= 80


def test_digits_follow_the_interval():
    found = KINDS["counted"]
    assert format_cut(dataclasses.replace(found, low=0.51, high=0.55), 0.531234) == "0.531"
    assert format_cut(dataclasses.replace(found, low=0.99990, high=0.99994), 0.999921) == "0.999921"
    assert format_cut(KINDS["precision"], -0.25) == "−0.25"
    assert format_share(Share(0.05, 0.01, 0.09)) == "0.050 [0.010, 0.090]"


def test_data_text_is_escaped():
    hostile = dataclasses.replace(
        KINDS["precision"], source=f"{EVIL}.npy", notes=[EVIL], given={"labels": EVIL, "ids": EVIL}
    )
    for text in (render_threshold_page(hostile), render_notebook_page(hostile)):
        parsed = Parsed(text)
        assert not parsed.foreign_images()
        assert parsed.all("script") == [{}] * text.startswith("<!doctype")  # the page's own script
        assert not parsed.comments
        assert parsed.text.count(EVIL) >= 2


def test_thresholds_of_the_folds_have_equally_many_digits():
    found = dataclasses.replace(KINDS["precision"], fold_cuts=[0.81, None, 0.815, 0.82])
    assert "without one fold were 0.810, none, 0.815, 0.820." in Parsed(render_threshold_page(found)).text


def test_glossary_explains_precision_only_on_pages_with_judgments():
    glossary = {name: render_threshold_page(KINDS[name]).split('id="glossary"')[1] for name in ("precision", "counted")}
    assert ["Recall" in each for each in glossary.values()] == [True, False]
