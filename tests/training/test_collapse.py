import json
import math
from pathlib import Path

import numpy as np
import pytest

from isoscope.training.history import History
from isoscope.training.layer_metrics import (
    MIN_ROWS,
    CollapseThresholds,
    collapse_reason,
    effective_dimensions,
    find_collapses,
    label_correlation,
    measure,
)

N, D = 32, 768


def row(states: np.ndarray, labels=None, step: int = 0, layer: str = "layer_6") -> dict:
    place = {"step": step, "epoch": 0.0, "order": 6, "layer": layer}
    return place | {"rows": len(states), "dimensions": states.shape[1]} | measure(states, labels)


def noise(rng: np.random.Generator, n: int = N, d: int = D) -> np.ndarray:
    return rng.standard_normal((n, d))


def shrunk(states: np.ndarray, share: float) -> np.ndarray:
    """Shrink all directions except the first."""
    return states * np.r_[1, np.full(states.shape[1] - 1, share)]


# the small-n correction


def test_noise_with_fewer_rows_than_dimensions_is_not_collapse(rng):
    first = row(noise(rng))
    for _ in range(50):
        assert collapse_reason(first, row(noise(rng))) is None


def test_collapsing_data_is_detected_at_the_same_size(rng):
    states, labels = noise(rng), np.arange(N) % 2
    first = row(states, labels)
    reasons = [collapse_reason(first, row(shrunk(states, share), labels)) for share in (1, 0.3, 0.01, 0.001)]
    assert reasons[:2] == [None, None]
    assert "effective dimensions fell from" in reasons[2]
    assert reasons[3].endswith("to 1 of 768")


def test_plug_in_score_misreads_noise_as_collapse_but_unbiased_does_not(rng):
    """A rule that requires a tenth of the dimensions flags noise every time if it uses the plug-in score."""
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
    assert collapse_reason(first, row(told)) is None, "without labels nobody can know"
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


# evidence of learning


def flat(rng, labels=None, **more) -> tuple[dict, dict]:
    """The first row of a layer, and a row with almost a single direction left."""
    states = noise(rng)
    return row(states, labels), row(shrunk(states, 0.001), labels, step=10) | more


def test_dimensions_alone_are_no_collapse_without_labels_and_loss(rng):
    first, now = flat(rng)
    assert collapse_reason(first, now) is None
    assert collapse_reason(first, now | {"loss": 0.3}) is None, "the first loss is unknown"
    assert collapse_reason(first, now, 0.7) is None, "the loss now is unknown"


@pytest.mark.parametrize(("loss", "collapsed"), [(0.62, False), (0.64, True), (0.7, True), (5.0, True)])
def test_loss_tells_a_collapse_from_learning_without_labels(rng, loss, collapsed):
    first, now = flat(rng, loss=loss)
    reason = collapse_reason(first, now, first_loss=0.7)
    assert bool(reason) == collapsed
    if collapsed:
        assert reason.endswith(f"and the loss went from 0.7 to {loss:.3g}")


@pytest.mark.parametrize(("silhouette", "collapsed"), [(0.24, True), (0.26, False), (0.29, False)])
def test_silhouette_of_a_quarter_is_evidence_of_learning(rng, silhouette, collapsed):
    first, now = flat(rng, np.arange(N) % 2)
    assert bool(collapse_reason(first, now | {"silhouette": silhouette})) == collapsed
    assert bool(collapse_reason(first, now | {"silhouette": silhouette, "label_correlation": 0.1})) == collapsed


@pytest.mark.parametrize(("correlation", "collapsed"), [(0.1, True), (0.29, True), (0.31, False), (0.9, False)])
def test_labels_along_the_leading_direction_are_evidence_of_learning(rng, correlation, collapsed):
    first, now = flat(rng, np.arange(N) % 2, label_correlation=correlation)
    assert bool(collapse_reason(first, now)) == collapsed
    assert bool(collapse_reason(first, now | {"loss": 0.1}, first_loss=0.7)) == collapsed, "labels are better evidence"


def test_regression_needs_one_direction(rng):
    first, now = flat(rng, label_correlation=0.1)
    assert collapse_reason(first, now) is None
    narrow = now | {"mean_cosine": 1 - 1e-5}
    assert "mean cosine rose" in collapse_reason(first, narrow)
    # A regression learns the mean of the grades first, so its loss falls even if it collapses.
    assert "mean cosine rose" in collapse_reason(first, narrow | {"loss": 2.0}, first_loss=6.0)
    assert collapse_reason(first, narrow | {"label_correlation": 0.31}) is None


@pytest.mark.parametrize(("spread", "collapsed"), [(0.0009, True), (0.0011, False), (0.5, False)])
def test_narrow_means_a_thousandth_of_the_first_spread(rng, spread, collapsed):
    first = row(noise(rng))
    now = first | {"mean_cosine": 1 - spread * (1 - first["mean_cosine"])}
    assert bool(collapse_reason(first, now)) == collapsed


@pytest.mark.parametrize(("dimensions", "before", "collapsed"), [(1.9, 77, True), (2.1, 77, False), (1.9, 8, False)])
def test_flat_means_fewer_than_two_dimensions_and_a_tenth_of_the_first_isoscore(rng, dimensions, before, collapsed):
    first, now = flat(rng, np.arange(N) % 2)
    scores = [{"isoscore_unbiased": (count - 1) / (D - 1)} for count in (before, dimensions)]
    assert bool(collapse_reason(first | scores[0], now | scores[1])) == collapsed


def test_equal_states_are_a_collapse_whatever_the_loss(rng):
    first, equal = row(noise(rng)), row(np.ones((N, D))) | {"loss": 0.1, "label_correlation": 0.9}
    assert collapse_reason(first, equal, first_loss=0.7) == "its 32 states are all equal"


def test_narrow_cone_is_a_collapse_without_labels_unless_the_loss_fell(rng):
    first, narrow = row(noise(rng, d=64)), row(noise(rng, d=64) * 0.01 + 1)
    assert "mean cosine rose" in collapse_reason(first, narrow)
    assert collapse_reason(first, narrow | {"loss": 0.3}, first_loss=0.7) is None


def test_correlation_with_grades_is_that_of_the_leading_direction(rng):
    grades = rng.standard_normal(40)
    states = np.outer(grades, np.eye(6)[2]) * 5 + noise(rng, 40, 6)
    assert label_correlation(states, grades) > 0.9
    assert label_correlation(states, -grades) == pytest.approx(label_correlation(states, grades))
    assert label_correlation(states, rng.standard_normal(40)) < 0.5
    assert math.isnan(label_correlation(np.ones((40, 6)), grades))
    assert math.isnan(label_correlation(states, np.ones(40)))


def test_correlation_with_two_classes_is_nearly_that_with_their_numbers(rng):
    classes = np.arange(200) % 2
    states = np.outer(classes * 2.0, np.eye(6)[2]) + 0.5 * noise(rng, 200, 6)
    expected = label_correlation(states, classes.astype(float))
    assert label_correlation(states, classes) == pytest.approx(expected, abs=0.005)
    assert label_correlation(states, np.array(["b", "a"])[classes]) == label_correlation(states, classes)


def test_correlation_with_random_classes_does_not_grow_with_their_number(rng):
    for count in (2, 10, 60):
        found = [label_correlation(noise(rng, 120, 8), rng.permutation(np.arange(120) % count)) for _ in range(200)]
        assert np.mean(np.square(found)) < 0.1, "without the adjustment, it is (count − 1) / 119"
    assert math.isnan(label_correlation(noise(rng, 20, 8), np.arange(20)))
    assert math.isnan(label_correlation(noise(rng, 20, 8), np.zeros(20, int)))


# along a history


def test_each_layer_is_reported_once_with_its_first_step(rng):
    history, states = History(), noise(rng, d=48)
    for step, share in ((0, 1), (10, 0.5), (20, 0.001), (30, 0.0001), (40, 1)):
        rows = [row(states, step=step, layer="layer_0"), row(shrunk(states, share), step=step)]
        history.append([each | {"loss": 0.7} for each in rows])
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


def test_first_loss_is_not_compared_with_itself(rng):
    history, states = History(), noise(rng, d=48)
    for step, share, loss in ((0, 1, math.nan), (10, 0.001, 0.7), (20, 0.001, 0.4)):
        history.append([row(shrunk(states, share), step=step) | {"loss": loss}])
    assert find_collapses(history) == []


def test_thresholds_can_be_chosen(rng):
    first, now = flat(rng, np.arange(N) % 2, label_correlation=0.35)
    assert find_collapses([first, now]) == []
    assert len(find_collapses([first, now], CollapseThresholds(label_correlation=0.4))) == 1


# histories of real trainings, from make collapse-calibration: the last layer


def recorded() -> dict[str, tuple[bool, list[dict]]]:
    content = json.loads(Path(__file__).with_name("recorded_histories.json").read_text())
    found = {}
    for run in content["runs"]:
        values = ([math.nan if value is None else value for value in row] for row in run["rows"])
        found[run["run"]] = run["collapsed"], [dict(zip(content["columns"], row, strict=True)) for row in values]
    return found


@pytest.mark.parametrize("run", recorded())
@pytest.mark.parametrize("known", ["labels", "loss only"])
def test_recorded_trainings_are_judged_rightly(run, known):
    collapsed, rows = recorded()[run]
    if known == "loss only":
        rows = [row | {"silhouette": math.nan, "label_correlation": math.nan} for row in rows]
    assert bool(find_collapses(rows)) == collapsed
