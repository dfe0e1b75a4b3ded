import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope.training.history import History, Runs
from tests.training.histories import made


def test_one_history_is_its_own_mean():
    history = made()
    runs = Runs(history)
    assert runs.alone is history
    assert runs.layers == ["layer_0", "layer_1", "layer_2"]
    steps, values = runs.mean("", "layer_2", "anisotropy_1")
    assert (steps, values) == (pytest.approx(history.series("layer_2", "anisotropy_1")[0]), pytest.approx(values))


def test_arms_however_they_are_given():
    one, two = made(), made(seed=1)
    assert list(Runs([one, two]).arms) == [""]
    assert Runs({"none": one, "entropy": [one, two]}).arms == {"none": [one], "entropy": [one, two]}
    assert Runs({"none": one, "entropy": [one, two]}).alone is None


def test_the_mean_is_over_the_steps_that_all_have():
    short = made(steps=(0, 10), end=0.3)
    steps, values = Runs([made(), short]).mean("", "layer_2", "anisotropy_1")
    assert steps.tolist() == [0, 10]
    assert values == pytest.approx([0.2, 0.3], abs=1e-3)


def test_the_late_part_is_the_last_three_tenths():
    history = made(steps=tuple(range(0, 101, 10)))
    every = history.series("layer_2", "anisotropy_1")[1]
    assert Runs(history).late("", "layer_2", "anisotropy_1") == pytest.approx([every[7:].mean()])
    assert len(Runs([history] * 3).late("", "layer_2", "anisotropy_1")) == 3


def test_one_step_has_a_late_part():
    assert np.isfinite(Runs(made(steps=(0,))).late("", "layer_2", "anisotropy_1")).all()


def test_layers_are_those_that_all_have():
    assert Runs([made(layers=3), made(layers=2)]).layers == ["layer_0", "layer_1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "there is no history to draw"),
        ({}, "there is no history to draw"),
        ({"a": []}, "there is no history to draw"),
        (History(), "a history is empty: measure at least once"),
        ([made(), "history.parquet"], "a history is a str: need an isoscope.History"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Runs(given)


def test_histories_of_different_models_are_refused():
    other = History()
    other.append([next(iter(made())) | {"layer": "encoder"}])
    with pytest.raises(InputError, match="no layer in common"):
        _ = Runs([made(), other]).layers
