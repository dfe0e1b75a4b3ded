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


def test_accepted_forms_of_arms():
    one, two = made(), made(seed=1)
    assert list(Runs([one, two]).arms) == [""]
    assert Runs({"none": one, "entropy": [one, two]}).arms == {"none": [one], "entropy": [one, two]}
    assert Runs({"none": one, "entropy": [one, two]}).alone is None


def test_mean_uses_steps_common_to_all_runs():
    short = made(steps=(0, 10), end=0.3)
    steps, values = Runs([made(), short]).mean("", "layer_2", "anisotropy_1")
    assert steps.tolist() == [0, 10]
    assert values == pytest.approx([0.2, 0.3], abs=1e-3)


def test_late_part_is_the_last_30_percent():
    history = made(steps=tuple(range(0, 101, 10)))
    every = history.series("layer_2", "anisotropy_1")[1]
    assert Runs(history).late("", "layer_2", "anisotropy_1") == pytest.approx([every[7:].mean()])
    assert len(Runs([history] * 3).late("", "layer_2", "anisotropy_1")) == 3


def test_one_step_has_a_late_part():
    assert np.isfinite(Runs(made(steps=(0,))).late("", "layer_2", "anisotropy_1")).all()


def test_layers_are_those_common_to_all_runs():
    assert Runs([made(layers=3), made(layers=2)]).layers == ["layer_0", "layer_1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "there is no history to plot"),
        ({}, "there is no history to plot"),
        ({"a": []}, "there is no history to plot"),
        (History(), "the history is empty: record at least one measurement"),
        ([made(), "history.parquet"], "one of the histories is a str: need an isoscope.History"),
    ],
)
def test_invalid_runs_raise(given, message):
    with pytest.raises(InputError, match=message):
        Runs(given)


def test_histories_of_different_models_raise():
    other = History()
    other.append([next(iter(made())) | {"layer": "encoder"}])
    with pytest.raises(InputError, match="no layer in common"):
        _ = Runs([made(), other]).layers
