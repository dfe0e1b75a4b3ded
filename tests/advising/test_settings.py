"""Invalid settings of the advisor raise an error."""

from __future__ import annotations

import pytest

from isoscope import InputError
from isoscope.advising.task import AdviceSettings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "dot"}, 'need "cosine" or'),
        ({"folds": 1}, "need a number from 2 to 50"),
        ({"folds": 51}, "need a number from 2 to 50"),
        ({"folds": 2.5}, "need an integer"),
        ({"sample": 99}, "need at least 100 rows"),
        ({"seed": -1}, "seed is -1"),
        ({"missing": "ignore"}, 'need "error" or'),
    ],
)
def test_invalid_settings_raise_an_error(options, words):
    with pytest.raises(InputError, match=words):
        AdviceSettings(**options)
