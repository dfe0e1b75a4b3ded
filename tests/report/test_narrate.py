"""The sentences of the advice agree with its numbers."""

from __future__ import annotations

import pytest

from isoscope._report.narrate import advice_headline, advice_paragraph, format_interval, format_signed
from isoscope.advising.advise import Advice, Score, Trial
from isoscope.advising.task import AdviceSettings


def score(value, gain=0.0, half=0.01):
    verdict = "gain" if gain > half else "loss" if gain < -half else "noise"
    return Score(value, gain, gain - half, gain + half, verdict)


def made(gains, *, chosen, best=None, half=0.01, others=None, isoscores=None, selections=None, **more):
    """Return an advice with these gains over 0.5; those of the second measure are in `others`."""
    halves = half if isinstance(half, list) else [half] * len(gains)
    names = ["as it is", "Center", "Standardize", "Whiten"][: len(gains)]
    trials = []
    for i, (name, gain) in enumerate(zip(names, gains, strict=True)):
        scores = {"probe": score(0.5 + gain, gain, halves[i])}
        if others:
            scores["v_measure"] = score(0.5 + others[i], others[i])
        shape = {"isoscore": isoscores[i]} if isoscores else {}
        trials.append(Trial(name, 10 * i, scores, shape))
    measures = {"probe": "linear probe accuracy"} | ({"v_measure": "V-measure"} if others else {})
    given = {
        "source": "array",
        "n": 1000,
        "d": 8,
        "example": "row",
        "examples": 1000,
        "measure": "probe",
        "measures": measures,
        "settings": AdviceSettings(),
        "promised_gain": 0.04 if chosen else 0.0,
        "selections": selections or {names[chosen]: 20},
    }
    return Advice(trials=trials, chosen=chosen, best=chosen if best is None else best, **(given | more))


def test_recommended_repair():
    said = advice_paragraph(made([0, 0.115, 0.12, 0.02], chosen=1, best=2))
    assert said.startswith(
        "Use Center: expect linear probe accuracy to rise by about 0.040. This is the mean gain on rows"
    )
    assert "On all 1,000 rows, it rises from 0.500 to 0.615: a gain of +0.115 (95% interval [+0.105, +0.125]" in said
    assert "corrected for testing 3 repairs" in said
    assert "Standardize has the largest gain (+0.120). Center is simpler" in said


def test_headline_has_expected_gain_not_in_sample_gain():
    assert advice_headline(made([0, 0.3], chosen=1, promised_gain=0.1)).endswith("by about 0.100.")
    none = advice_headline(made([0, 0.3], chosen=1, promised_gain=-0.01))
    assert none.endswith("no gain.")
    assert "mean gain" not in advice_paragraph(made([0, 0.3], chosen=1, promised_gain=-0.01))


def test_best_candidate_is_not_compared_with_itself():
    assert "largest gain" not in advice_paragraph(made([0, 0.1], chosen=1))
    assert "one repair tested" in advice_paragraph(made([0, 0.1], chosen=1))


def test_advice_to_keep_the_original_vectors():
    said = advice_paragraph(made([0, 0.005, -0.1, -0.2], chosen=0))
    assert said.startswith("Leave the vectors as they are: no repair improves linear probe accuracy significantly.")
    assert "On 1,000 rows, linear probe accuracy is 0.500. The best of 3 repairs, Center, changes it by +0.005" in said
    assert "2 repairs lower it significantly; the worst is Whiten (−0.200 [−0.210, −0.190])." in said
    assert "One repair lowers it significantly: Center (−0.100 [" in advice_paragraph(made([0, -0.1, 0], chosen=0))
    said = advice_paragraph(made([0, -0.1], chosen=0))
    assert "The only repair tested, Center, changes it by −0.100" in said
    assert "loss is significant" in said
    assert "No repair was tested" in advice_paragraph(made([0], chosen=0))


def test_the_best_repair_without_a_gain_is_said_to_change_nothing():
    said = advice_paragraph(made([0, 0.0001, -0.1], chosen=0))
    assert "The best of 2 repairs, Center, does not change it: the gain is +0.0001 (95% interval" in said
    assert "changes it by" not in said


def test_the_best_repair_is_said_to_make_other_measures_worse():
    gains = [0, 0.005, -0.1]
    worse = "Center, changes it by +0.005 (95% interval [−0.005, +0.015], corrected for testing 2 repairs). It makes "
    assert f"{worse}V-measure significantly worse." in advice_paragraph(made(gains, chosen=0, others=[0, -0.1, 0]))
    assert "It makes" not in advice_paragraph(made(gains, chosen=0, others=[0, 0, -0.1]))


def test_gain_not_confirmed_by_splits_is_withheld():
    advice = made([0, 0.1], chosen=0, best=1, selections={"as it is": 12, "Center": 8})
    assert advice_headline(advice).endswith("the gain from Center in linear probe accuracy is not reliable.")
    said = advice_paragraph(advice)
    assert "Center raises it by +0.100 (95% interval [+0.090, +0.110]), but" in said
    assert "This advice is unstable" in said
    assert "on 20 subsets of the rows gave the same advice only 12 times" in said


def test_all_deciding_measures_are_named():
    said = advice_headline(made([0, 0.0], chosen=0, others=[0, 0]))
    assert said.endswith("no repair improves linear probe accuracy or V-measure significantly.")
    assert "V-measure" not in advice_headline(made([0, 0.0], chosen=0, others=[0, 0], alone=True))


def test_stable_and_unstable_advice():
    said = advice_paragraph(made([0, 0.1], chosen=1, selections={"Center": 18, "as it is": 2}))
    assert "on 20 subsets of the rows gave the same advice 18 of 20 times (other results: as it is 2 times)." in said
    assert "unstable" not in said
    said = advice_paragraph(made([0, 0.1], chosen=1, selections={"Center": 15, "as it is": 4, "Whiten": 1}))
    assert "This advice is unstable" in said
    assert "only 15 times (other results: as it is 4 times, Whiten once)" in said
    assert "gave the same advice all 20 times." in advice_paragraph(made([0, 0.1], chosen=1))


def test_splits_that_choose_among_repairs():
    said = advice_paragraph(made([0, 0.1], chosen=1, selections={"Center": 13, "Whiten": 7}))
    assert "The choice of repair is unstable" in said
    assert "gave the same repair only 13 times (other results: Whiten 7 times). A repair was selected on every" in said


@pytest.mark.parametrize(("agree", "stable"), [(16, True), (15, False)])
def test_four_of_five_selections_are_stable(agree, stable):
    assert made([0, 0.1], chosen=1, selections={"Center": agree, "as it is": 20 - agree}).is_stable is stable


def test_other_measures_are_reported():
    said = advice_paragraph(made([0, 0.1, 0.1], chosen=1, others=[0, -0.2, 0.3]))
    assert "However, V-measure falls: −0.200 [−0.210, −0.190]." in said
    said = advice_paragraph(made([0, 0.1, 0.1], chosen=1, others=[0, 0, 0.3]))
    assert "Standardize improves V-measure by 0.300 [+0.290, +0.310]." in said
    assert "set the measure to v_measure" in said
    said = advice_paragraph(made([0, 0.1, 0.1], chosen=1, others=[0, 0.2, 0.3]))
    assert "V-measure rises too: +0.200 [+0.190, +0.210]." in said


def test_isotropy_with_a_score_loss_is_reported():
    said = advice_paragraph(made([0, -0.1], chosen=0, isoscores=[0.1, 0.9]))
    assert "Center makes the space most isotropic (unbiased IsoScore 0.90, up from 0.10), but" in said
    assert said.endswith("lowers linear probe accuracy by 0.100.")
    assert "isotropic" not in advice_paragraph(made([0, 0.1], chosen=1, isoscores=[0.1, 0.9]))


def test_without_a_task_the_evidence_is_weak():
    assert "weak" not in advice_paragraph(made([0, 0.1], chosen=1))
    alone = made([0], chosen=0, measure="stability", measures={"stability": "split-half stability"})
    alone.trials = [Trial("as it is", 0, {"stability": score(0.5)}, {})]
    assert "This evidence is weak" in advice_paragraph(alone)


@pytest.mark.parametrize(("example", "word"), [("pair", "pairs"), ("query", "queries"), ("row", "rows")])
def test_examples_are_pluralized(example, word):
    assert f"1,000 {word}" in advice_paragraph(made([0, 0.1], chosen=1, example=example))


@pytest.mark.parametrize(
    ("value", "text"), [(0.0006, "+0.001"), (-0.0004, "−0.0004"), (1e-6, "0.000"), (0.0, "0.000"), (1, "+1.000")]
)
def test_difference_is_signed(value, text):
    assert format_signed(value) == text


def test_range_shows_both_ends():
    assert format_interval(Score(0.5, 0.1, -0.05, 0.25, "noise")) == "[−0.050, +0.250]"
    assert format_interval(Score(0.5, 0.006, 0.0004, 0.011, "gain")) == "[+0.0004, +0.011]"


def test_excluded_repairs_are_reported():
    said = advice_paragraph(made([0, 0.1, 0.2], chosen=1, others=[0, 0, -0.3]))
    assert "Standardize raises linear probe accuracy by 0.200 [+0.190, +0.210] but lowers V-measure by 0.300." in said
    said = advice_paragraph(made([0, 0.1], chosen=0, others=[0, -0.3]))
    assert "significantly without making another measure worse." in said
    assert "Every repair that improves it significantly makes another measure significantly worse." in said
