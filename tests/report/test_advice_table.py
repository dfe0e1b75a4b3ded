"""The advice on a terminal: one line per candidate, the choice is marked, nothing is truncated."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from isoscope._report.terminal import GAIN_MARKS, render_advice, render_advice_text
from tests.report.test_narrate import made


@pytest.fixture
def advice():
    return made(
        [0, 0.1, 0.004, -0.2],
        chosen=1,
        best=1,
        others=[0, -0.2, 0, 0.3],
        isoscores=[0.1, 0.2, 0.3, 0.9],
        notes=["A note."],
        left_out={"ClusterNull(10, 4)": "too few rows"},
    )


def line_of(text, name):
    return next(line for line in text.splitlines() if line.strip(" →").startswith(name))


def test_every_candidate_is_listed_with_its_scores(advice):
    text = render_advice_text(advice)
    for trial in advice.trials:
        line = line_of(text, trial.name)
        assert f"{trial['probe'].value:.3f}" in line
        assert f"{trial['v_measure'].value:.3f}" in line
        assert f"{trial.shape['isoscore']:.2f}" in line
    assert f"{GAIN_MARKS['gain']} +0.100 [+0.090, +0.110]" in line_of(text, "Center")
    assert f"0.300 {GAIN_MARKS['loss']}" in line_of(text, "Center")
    assert f"{GAIN_MARKS['noise']} +0.004" in line_of(text, "Standardize")
    assert f"{GAIN_MARKS['loss']} −0.200" in line_of(text, "Whiten")


def test_only_the_choice_is_marked(advice):
    assert [line for line in render_advice_text(advice).splitlines() if line.startswith("→")] == [
        line_of(render_advice_text(advice), "Center")
    ]
    alone = made([0, 0.001], chosen=0)
    assert line_of(render_advice_text(alone), "as it is").startswith("→ as it is")


def test_verdict_notes_and_candidates_not_tried_are_shown(advice):
    flat = " ".join(render_advice_text(advice).split())
    assert flat.startswith(advice.headline + " The 95% interval of the gain is +0.090 to +0.110.")
    reasons = advice.paragraph.removeprefix(advice.headline).strip()
    assert flat.index("array 1,000 × 8, by cosine") < flat.index("−0.200") < flat.index(reasons) < flat.index("Rule:")
    assert "A note." in flat
    assert "not tried: ClusterNull(10, 4): too few rows" in flat


def test_plain_text_has_no_escapes(advice):
    text = render_advice_text(advice)
    assert "\x1b" not in text
    assert all(line == line.rstrip() and len(line) <= 120 for line in text.splitlines())


def test_unmeasured_isotropy_is_a_dash(advice):
    advice.trials[2].shape.clear()
    assert line_of(render_advice_text(advice), "Standardize").endswith("–")


def test_terminal_output_matches_the_text(advice):
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(render_advice(advice))
    assert out.getvalue().split() == render_advice_text(advice).split()
