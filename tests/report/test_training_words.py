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
def test_a_change_in_words(before, after, words):
    assert str(LineChange(before, after)) == words


def test_the_first_sentence_says_where_the_last_layer_went():
    assert training_headline(Runs(made())) == "anisotropy_1 of layer 2, the last, rose from 0.200 to 0.500."
    assert training_headline(Runs(made(end=0.2))) == "anisotropy_1 of layer 2, the last, stayed at 0.200."


def test_the_rest_is_said_of_one_run():
    said = training_paragraph(Runs(made(isoscore_unbiased=0.1)))
    assert said.startswith("With the mean taken out, it stayed at 0.100; ")
    assert "its effective dimensions fell from 62.3 to 39.3 of 384" in said
    assert "its mean cosine stayed at 0.600; the silhouette of the classes stayed at 0.100." in said


def test_arms_are_compared():
    runs = Runs({"none": [made(end=0.7), made(end=0.72)], "entropy": made(end=0.4), "cosreg": made(end=0.5)})
    said = training_headline(runs)
    assert said.startswith("anisotropy_1 of layer 2, the last, ends between 0.400 (entropy) and 0.71")
    assert said.endswith("(none).")
    assert "Of 384 dimensions the states fill 62.3 (none), 62.3 (entropy), 62.3 (cosreg)." in training_paragraph(runs)


def test_what_could_not_be_measured_is_not_said():
    nothing = dict.fromkeys(("silhouette", "isoscore_unbiased", "anisotropy_1_centred"), math.nan)
    said = training_paragraph(Runs(made(layers=1, steps=(0,), **nothing)))
    assert said == "Its mean cosine stayed at 0.600."
    assert "could not be measured" in training_headline(Runs(made(layers=1, steps=(0,), anisotropy_1=math.nan)))
    apart = [made(layers=1, steps=steps) for steps in ((0, 5), (3, 7))]
    assert training_headline(Runs(apart)) == "The runs were measured at no step in common."
