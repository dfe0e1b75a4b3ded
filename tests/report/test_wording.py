"""The advice in words says what the numbers say."""

from __future__ import annotations

import pytest

from isoscope.advising.settings import AdviceSettings
from isoscope.advising.task import FITTED_TO_ALL
from isoscope.report.advice import Advice, Score, Trial
from isoscope.report.wording import paragraph, signed, span


def score(value, gain=0.0, half=0.01):
    verdict = "gain" if gain > half else "loss" if gain < -half else "noise"
    return Score(value, gain, gain - half, gain + half, verdict)


def made(gains, *, chosen, best, half=0.01, near=None, others=None, isoscores=None, **more):
    """An advice with these gains over 0.5, the second measure's in `others`."""
    halves = half if isinstance(half, list) else [half] * len(gains)
    names = ["as it is", "Center", "Standardize", "Whiten"][: len(gains)]
    trials = []
    for i, (name, gain) in enumerate(zip(names, gains, strict=True)):
        scores = {"probe": score(0.5 + gain, gain, halves[i])}
        if others:
            scores["v_measure"] = score(0.5 + others[i], others[i])
        shape = {"isoscore": isoscores[i]} if isoscores else {}
        trials.append(Trial(name, 10 * i, scores, True if near is None else near[i], shape))
    measures = {"probe": "linear probe"} | ({"v_measure": "V-measure"} if others else {})
    given = {
        "source": "array",
        "n": 1000,
        "d": 8,
        "example": "row",
        "examples": 1000,
        "measure": "probe",
        "measures": measures,
        "settings": AdviceSettings(),
        "blind_gain": 0.04,
        "repair": None,
    }
    return Advice(trials=trials, chosen=chosen, best=best, **(given | more))


def test_a_repair_to_use():
    said = paragraph(made([0, 0.1, 0.12, 0.02], chosen=1, best=2))
    assert said.startswith("Use Center. On 1,000 rows that had no part in fitting it, linear probe rises from 0.500 to")
    assert "0.600: a gain of 0.100 [+0.090, +0.110], at 95% confidence, corrected for having tried 3." in said
    assert "Standardize scores highest (0.620), but not beyond the noise, and is less simple." in said
    assert "gained 0.040" in said


def test_the_best_itself_is_not_compared_with_itself():
    assert "scores highest" not in paragraph(made([0, 0.1], chosen=1, best=1))
    assert "with one repair tried" in paragraph(made([0, 0.1], chosen=1, best=1))


def test_leaving_alone():
    said = paragraph(made([0, 0.005, -0.1, -0.2], chosen=0, best=1))
    assert said.startswith(
        "Leave the vectors as they are. On 1,000 rows linear probe is 0.500 as it is; of 3 repairs none"
    )
    assert "(the best, Center: +0.005 [−0.005, +0.015]" in said
    assert "2 surely lose, Whiten most: −0.200 [−0.210, −0.190]." in said
    assert "One surely loses, Center most" in paragraph(made([0, -0.1], chosen=0, best=0))
    assert "nothing else was tried" in paragraph(made([0], chosen=0, best=0))


def test_other_measures_are_heard():
    said = paragraph(made([0, 0.1, 0.1], chosen=1, best=1, others=[0, -0.2, 0.3]))
    assert "But by V-measure it loses: −0.200 [−0.210, −0.190]." in said
    said = paragraph(made([0, 0.1, 0.1], chosen=1, best=1, others=[0, 0, 0.3]))
    assert "By V-measure Standardize gains 0.300 [+0.290, +0.310]: if that is what you do, ask for it" in said
    said = paragraph(made([0, 0.1, 0.1], chosen=1, best=1, others=[0, 0.2, 0.3]))
    assert "By V-measure it gains too: +0.200 [+0.190, +0.210]." in said


def test_isotropy_that_costs_is_said():
    said = paragraph(made([0, -0.1], chosen=0, best=0, isoscores=[0.1, 0.9]))
    assert "Isotropy for its own sake would cost: Center has the most even space (IsoScore 0.90, 0.10 as it is)" in said
    assert "loses 0.100" in said
    assert "Isotropy" not in paragraph(made([0, 0.1], chosen=1, best=1, isoscores=[0.1, 0.9]))


def test_without_a_task_it_is_weak():
    said = paragraph(made([0, 0.1], chosen=1, best=1, measures={"probe": "linear probe"}))
    assert "weak" not in said
    trials = [Trial("as it is", 0, {"stability": score(0.5)}, True, {})]
    alone = made([0], chosen=0, best=0, measure="stability", measures={"stability": "split-half stability"})
    alone.trials = trials
    assert "this evidence is weak" in paragraph(alone)


@pytest.mark.parametrize(("example", "word"), [("pair", "pairs"), ("query", "queries"), ("row", "rows")])
def test_examples_have_their_plural(example, word):
    assert f"1,000 {word}" in paragraph(made([0, 0.1], chosen=1, best=1, example=example))


@pytest.mark.parametrize(
    ("value", "text"), [(0.0006, "+0.001"), (-0.0004, "−0.0004"), (1e-6, "0.000"), (0.0, "0.000"), (1, "+1.000")]
)
def test_a_difference_has_its_sign(value, text):
    assert signed(value) == text


def test_a_span_is_its_two_ends():
    assert span(Score(0.5, 0.1, -0.05, 0.25, "noise")) == "[−0.050, +0.250]"


def test_a_simpler_one_is_not_called_less_simple():
    said = paragraph(made([0, 0.2, 0.1], half=[0.01, 0.5, 0.01], chosen=2, best=1))
    assert "Center scores highest" in said
    assert "less simple" not in said


def test_examples_that_had_a_part_in_fitting_are_not_said_to_have_had_none():
    assert "had no part in fitting" not in paragraph(made([0, 0.1], chosen=1, best=1, notes=[FITTED_TO_ALL]))


def test_a_sure_gain_does_not_look_unsure():
    assert span(Score(0.5, 0.006, 0.0004, 0.011, "gain")) == "[+0.0004, +0.011]"


def test_what_was_out_of_the_question_is_said():
    said = paragraph(made([0, 0.1, 0.2], chosen=1, best=1, others=[0, 0, -0.3]))
    assert "Standardize gains 0.200 [+0.190, +0.210] by linear probe, but loses 0.300 by V-measure" in said
    said = paragraph(made([0, 0.1], chosen=0, best=0, others=[0, -0.3]))
    assert "none surely gains that does not surely lose by another measure" in said
