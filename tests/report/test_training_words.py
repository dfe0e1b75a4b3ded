import math

import pytest

from isoscope._report.narrate import LineChange, training_headline, training_paragraph
from isoscope.training.history import Runs
from tests.training.histories import made


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (0.2, 0.5, "rose from 0.200 to 0.500"),
        (0.5, 0.2, "fell from 0.500 to 0.200"),
        (0.5, 0.505, "stayed at 0.505"),
        (0.020, 0.016, "stayed at 0.016"),
        (-0.2, 0.1, "rose from −0.200 to 0.100"),
        (0.0, 0.0, "stayed at 0.000"),
    ],
)
def test_line_change_as_text(before, after, words):
    assert str(LineChange(before, after)) == words


def test_first_sentence_describes_the_last_layer():
    share = "the share of its leading direction (anisotropy_1)"
    assert training_headline(Runs(made())) == (
        f"The last layer (layer 2) became less isotropic: {share} rose from 0.200 to 0.500."
    )
    assert training_headline(Runs(made(end=0.2))) == (
        f"The last layer (layer 2) kept its shape: {share} stayed at 0.200."
    )
    assert "became more isotropic" in training_headline(Runs(made(end=0.1)))


def test_single_run_describes_other_measurements():
    said = training_paragraph(Runs(made(isoscore_unbiased=0.1)))
    assert said.startswith("With the mean subtracted, that share stayed at 0.100. ")
    assert "The number of effective dimensions fell from 62.3 to 39.3 of 384." in said
    assert "The mean cosine stayed at 0.600. The silhouette of the classes stayed at 0.100." in said


def test_arms_are_compared():
    runs = Runs({"none": [made(end=0.7), made(end=0.72)], "entropy": made(end=0.4), "cosreg": made(end=0.5)})
    said = training_headline(runs)
    assert said.startswith("The last layer (layer 2) ends most isotropic with “entropy” (anisotropy_1 0.400)")
    assert said.endswith("and least isotropic with “none” (0.710).")
    fill = "The number of effective dimensions ends at 62.3 (none), 62.3 (entropy) and 62.3 (cosreg) of 384."
    assert fill in training_paragraph(runs)


def test_unmeasured_values_are_omitted():
    nothing = dict.fromkeys(("silhouette", "isoscore_unbiased", "anisotropy_1_centered"), math.nan)
    said = training_paragraph(Runs(made(layers=1, steps=(0,), **nothing)))
    assert said == "The mean cosine stayed at 0.600."
    assert "could not be measured" in training_headline(Runs(made(layers=1, steps=(0,), anisotropy_1=math.nan)))
    apart = [made(layers=1, steps=steps) for steps in ((0, 5), (3, 7))]
    assert training_headline(Runs(apart)) == "The runs have no measured step in common."
