import math

import numpy as np
import pytest

from isoscope.training.history import History
from isoscope.training.layer_metrics import MIN_ROWS, collapse_reason, effective_dimensions, find_collapses, measure

N, D = 32, 768


def row(states: np.ndarray, labels=None, step: int = 0, layer: str = "layer_6") -> dict:
    place = {"step": step, "epoch": 0.0, "order": 6, "layer": layer}
    return place | {"rows": len(states), "dimensions": states.shape[1]} | measure(states, labels)


def noise(rng: np.random.Generator, n: int = N, d: int = D) -> np.ndarray:
    return rng.standard_normal((n, d))


def shrunk(states: np.ndarray, share: float) -> np.ndarray:
    """All but the first direction shrunk."""
    return states * np.r_[1, np.full(states.shape[1] - 1, share)]


# the small-n correction


def test_noise_with_fewer_rows_than_dimensions_is_not_collapse(rng):
    first = row(noise(rng))
    for _ in range(50):
        assert collapse_reason(first, row(noise(rng))) is None


def test_collapsing_data_is_detected_at_the_same_size(rng):
    states = noise(rng)
    first = row(states)
    reasons = [collapse_reason(first, row(shrunk(states, share))) for share in (1, 0.3, 0.01, 0.001)]
    assert reasons[:2] == [None, None]
    assert "effective dimensions fell from" in reasons[2]
    assert reasons[3].endswith("to 1 of 768")


def test_plug_in_score_misreads_noise_as_collapse_but_unbiased_does_not(rng):
    """A judge that asks for a tenth of the dimensions, as one may of noise, is wrong by the plug-in every time."""
    for _ in range(20):
        found = row(noise(rng))
        assert effective_dimensions(found["isoscore"], D) < 0.1 * D
        assert effective_dimensions(found["isoscore_unbiased"], D) > 0.8 * D


@pytest.mark.parametrize("dimensions", [5, 20, 60])
def test_constant_low_dimension_is_not_collapse(rng, dimensions):
    def draw() -> dict:
        return row(np.pad(noise(rng, MIN_ROWS, dimensions), ((0, 0), (0, 300))))

    first = draw()
    assert not any(collapse_reason(first, draw()) for _ in range(50))


# what counts


def test_layer_is_compared_with_its_own_start(rng):
    cone = noise(rng, d=64) * 0.01 + 1
    narrow = row(cone)
    assert narrow["mean_cosine"] > 0.999
    assert collapse_reason(narrow, row(noise(rng, d=64) * 0.01 + 1)) is None
    assert "mean cosine rose" in collapse_reason(row(noise(rng, d=64)), narrow)


def test_states_that_become_equal_collapse_but_initially_equal_do_not(rng):
    first, equal = row(noise(rng)), row(np.ones((N, D)))
    assert collapse_reason(first, equal) == "its 32 states are all equal"
    assert collapse_reason(first, row(np.zeros((N, D)))) == "its 32 states are all equal"
    assert collapse_reason(equal, equal) is None
    assert collapse_reason(equal, first) is None


def test_layer_that_separates_classes_has_not_collapsed(rng):
    labels = np.arange(N) % 2
    states = noise(rng)
    line = shrunk(states, 0.001)
    told = line + 20 * (labels[:, None] - 0.5) * np.eye(D)[0]
    first = row(states, labels)
    assert collapse_reason(first, row(told)), "without labels nobody can know"
    assert collapse_reason(first, row(told, labels)) is None
    assert collapse_reason(first, row(line, labels))


def test_one_dimensional_data_cannot_collapse_further(rng):
    line = np.outer(rng.standard_normal(N), np.eye(48)[0]) + 1e-4 * noise(rng, d=48)
    assert row(line)["isoscore_unbiased"] < 1e-4
    assert not any(collapse_reason(row(line), row(line * scale)) for scale in (1, 2))


def test_too_few_rows_are_not_judged(rng):
    states = noise(rng, MIN_ROWS)
    for n, judged in ((MIN_ROWS, True), (MIN_ROWS - 1, False), (3, False), (1, False)):
        assert bool(collapse_reason(row(states[:n]), row(np.ones((n, D))))) == judged


# along a history


def test_each_layer_is_reported_once_with_its_first_step(rng):
    history, states = History(), noise(rng, d=48)
    for step, share in ((0, 1), (10, 0.5), (20, 0.001), (30, 0.0001), (40, 1)):
        history.append([row(states, step=step, layer="layer_0"), row(shrunk(states, share), step=step)])
    (found,) = find_collapses(history)
    assert (found.layer, found.step) == ("layer_6", 20)
    assert found.message.startswith("layer_6 has collapsed by step 20: its effective dimensions fell from ")
    assert "\n" not in found.message
    assert "lower learning rate" in found.message


def test_effective_dimensions_are_the_participation_ratio():
    spectrum = np.array([4.0, 2.0, 1.0, 1.0])
    ratio = spectrum.sum() ** 2 / (spectrum**2).sum()
    assert effective_dimensions((ratio - 1) / 3, 4) == pytest.approx(ratio)
    assert math.isnan(effective_dimensions(math.nan, 4))
