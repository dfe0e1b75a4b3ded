"""The audit on a terminal: it is complete, bad findings come first, and plain text has no markup."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console
from threadpoolctl import threadpool_limits

import isoscope
from isoscope._report import terminal
from isoscope.auditing.causes import remove_shape_note
from isoscope.auditing.compare import Agreement, HeldOutComparison, compare_findings, describe_comparison
from isoscope.auditing.finding import format_percentage


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(3)
    with threadpool_limits(1):
        return isoscope.audit(rng.standard_normal((300, 16)) + 1, labels=[f"row {i}" for i in range(300)], sample=120)


def printed(renderable, width=120):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(renderable)
    return out.getvalue()


def flat(text):
    return " ".join(text.split())


def test_every_finding_is_listed_and_problems_are_explained(found):
    text = flat(str(found))
    for finding in found.findings:
        assert f"{finding.verdict} {flat(finding.title)} {finding.shown}" in text
        assert (flat(remove_shape_note(finding.meaning)) in text) == (finding.verdict != "ok")
        assert (flat(finding.advice) in text) == (finding.verdict != "ok") or finding.advice == "Leave it."
        if finding.sampled:
            assert f"on {finding.rows:,} rows" in text
    assert "300 × 16 float64, by cosine" in text
    assert "not measured: labels, 120 rows have 120 distinct labels" in text


def test_worst_findings_come_first_and_are_counted(found):
    text = str(found)
    assert text.splitlines()[0] == found.headline
    verdicts = [line.split()[1] for line in text.splitlines() if line[:1] in "✓!✗" and line.strip()]
    assert verdicts == sorted(verdicts, key=["bad", "look", "ok"].index)
    size = next(line for line in text.splitlines() if line.startswith(found.source))
    words = {"bad": "bad", "look": "worth a look", "ok": "ok"}
    for verdict in set(verdicts):
        assert f"{verdicts.count(verdict)} {words[verdict]}" in size


def test_plain_text_has_no_escapes_or_trailing_spaces_and_fits(found):
    text = str(found)
    assert "\x1b" not in text
    assert all(line == line.rstrip() and len(line) <= 100 for line in text.splitlines())


def test_narrow_terminal_shows_everything(found):
    wide, narrow = (printed(terminal.render_audit(found), width) for width in (200, 60))
    assert sorted(wide.split()) == sorted(narrow.split())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0%"),
        (0.444, "0.44%"),
        (48.26, "48.3%"),
        (99.5, "99.50%"),
        (99.991, "> 99.99%"),
        (99.9999, "> 99.99%"),
        (100, "100%"),
    ],
)
def test_percentile_is_never_rounded_to_100(value, text):
    assert format_percentage(value) == text


@pytest.mark.parametrize("value", [99.996, 99.9901, 98.999])
def test_percentage_below_100_is_not_printed_as_100(value):
    assert "100" not in format_percentage(value)


def test_cosine_percentiles_are_shown_as_table(found):
    text = flat(str(found))
    for cosine, pairs, nearest in found.similarity.table():
        if pairs > 0:
            assert f"{cosine:.2f} {format_percentage(pairs)} {format_percentage(nearest)}" in text


def test_names_with_brackets_are_shown_unchanged():
    with threadpool_limits(1):
        found = isoscope.audit(np.random.default_rng(0).standard_normal((40, 6)))
    found.source = "[bold]vectors[/bold].npy"
    assert "[bold]vectors[/bold].npy" in str(found)


def test_names_with_brackets_are_shown_unchanged_side_by_side(found):
    found = dataclasses.replace(found, source="[bold]vectors[/bold].npy")
    assert "[bold]vectors[/bold].npy" in printed(terminal.render_side_by_side([found, found], [None]))


def test_baseline_shows_changes(found):
    with threadpool_limits(1):
        before = isoscope.audit(np.random.default_rng(3).standard_normal((300, 16)))
    text = flat(printed(terminal.render_audit(found, before), 200))
    assert "Since array (300 × 16)" in text
    assert "the two audits differ: sample was 20,000, is 120" in text
    for change in compare_findings(before, found):
        assert (flat(str(change)) in text) == (change.direction != "same")
    assert "no finding has changed" in printed(terminal.render_audit(found, found))


def test_two_audits_are_shown_side_by_side(found):
    text = flat(printed(terminal.render_side_by_side([found, found], [0.375]), 200))
    for finding in found.findings:
        assert text.count(flat(finding.title)) >= 1
        assert text.count(finding.shown) >= 2
    assert text.startswith(flat(describe_comparison([found, found], 0.375)))
    assert "on average, 3.8 of the top 10 results agree" in text
    assert "top 10 results" not in printed(terminal.render_side_by_side([found, found], [None]))
    assert f" A: {found.source} B: {found.source} rows × dimensions" in text


def test_agreements_name_the_spaces_if_there_are_more_than_two(found):
    agreement = Agreement("cka", "CKA", 0.5, 0.4, 0.6, 300)
    two = flat(printed(terminal.render_side_by_side([found] * 2, [None], spaces=[[agreement]]), 200))
    assert "On 300 rows: CKA 0.500 [0.400 … 0.600]." in two
    three = flat(printed(terminal.render_side_by_side([found] * 3, [None] * 2, spaces=[[agreement]] * 2), 200))
    assert three.count(f"On 300 rows ({found.source} and {found.source}): CKA") == 2


def test_progress_bar_is_hidden_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("isoscope._io.progress._SHOW_DELAY", 0)
    with threadpool_limits(1):
        isoscope.audit(np.random.default_rng(0).standard_normal((40, 6)), progress=True)
    assert capsys.readouterr() == ("", "")


def test_a_sketch_names_the_estimator_of_isoscore(rng):
    text = printed(terminal.render_moments(isoscope.sketch(rng.standard_normal((50, 4))), "x"))
    assert "IsoScore (as published)" in text


def test_the_mark_of_a_finding_that_became_worse_is_explained(found):
    ok = next(each for each in found.findings if each.name == "effective_rank")
    assert ok.verdict == "ok"
    worse = dataclasses.replace(found, findings=[dataclasses.replace(ok, value=ok.value - 2, low=None, high=None)])
    before = dataclasses.replace(found, findings=[dataclasses.replace(ok, low=None, high=None)])
    held_out = HeldOutComparison("Center()", 5, 5, 10)
    text = printed(terminal.render_side_by_side([before, worse], [None], held_out))
    assert "✗ bad, ! worth a look, ✓ ok, ▼ worse, but still ok" in text
    assert "▼" not in printed(terminal.render_side_by_side([before, before], [None], held_out))
