import math
import warnings

import numpy as np
import pytest

import isoscope
from isoscope._core.errors import InputError
from isoscope.training.layer_metrics import MEASUREMENTS, measure
from tests.conftest import rotation


@pytest.fixture
def classes(rng) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(60) % 3
    return rng.standard_normal((60, 8)) + 4 * np.eye(8)[labels] + 1, labels


# identities


def test_rotation_and_scale_invariance(classes, rng):
    rows, labels = classes
    same = measure(3 * rows @ rotation(8, rng), labels)
    assert same == pytest.approx(measure(rows, labels), rel=1e-8)


def test_centered_shares_do_not_depend_on_the_mean(classes):
    rows, labels = classes
    here, there = measure(rows, labels), measure(rows + 100, labels)
    for name in ("anisotropy_1_centered", "anisotropy_3_centered", "isoscore", "isoscore_unbiased", "two_nn"):
        assert there[name] == pytest.approx(here[name], rel=1e-6)
    assert there["anisotropy_1"] > 0.99 > here["anisotropy_1"]


# each number is the public function's


def test_metrics_equal_public_functions(classes):
    rows, labels = classes
    raw, centered = isoscope.anisotropy(rows), isoscope.anisotropy(rows, center=True)
    expected = {f"anisotropy_{k + 1}": raw[k] for k in range(3)}
    expected |= {f"anisotropy_{k + 1}_centered": centered[k] for k in range(3)}
    expected |= {
        "isoscore": isoscope.isoscore(rows),
        "isoscore_unbiased": isoscope.isoscore(rows, unbiased=True),
        "mean_cosine": isoscope.mean_cosine(rows),
        "two_nn": isoscope.two_nn(rows),
        "silhouette": isoscope.silhouette(rows, labels),
    }
    found = measure(rows, labels)
    assert found == pytest.approx(expected)
    assert tuple(found) == MEASUREMENTS


def test_raw_shares_match_singular_values(classes):
    squares = np.linalg.svd(classes[0], compute_uv=False) ** 2
    found = measure(classes[0])
    assert [found[f"anisotropy_{k}"] for k in (1, 2, 3)] == pytest.approx((squares / squares.sum())[:3])


# what cannot be had is NaN


def known(found: dict[str, float]) -> set[str]:
    return {name for name, value in found.items() if not math.isnan(value)}


RAW = {"anisotropy_1", "anisotropy_2", "anisotropy_3"}


@pytest.mark.parametrize(
    ("rows", "labels", "expected"),
    [
        (np.ones((6, 4)), [0, 1] * 3, RAW | {"mean_cosine"}),
        (np.zeros((6, 4)), [0, 1] * 3, {"mean_cosine"}),
        (np.eye(4)[:1], [0], {"anisotropy_1"}),
        (np.zeros((0, 4)), None, set()),
        (np.arange(5.0)[:, None], None, {"mean_cosine", "two_nn"}),
    ],
    ids=["constant", "zero", "one row", "none", "one dimension"],
)
def test_only_undefined_metrics_are_missing(rows, labels, expected):
    assert known(measure(rows, labels)) == expected


def test_three_rows_have_no_unbiased_score_and_one_class_no_silhouette(rng):
    few = measure(rng.standard_normal((3, 4)), [0, 0, 0])
    assert math.isnan(few["isoscore_unbiased"])
    assert math.isnan(few["silhouette"])
    assert few["isoscore"] > 0


def test_duplicate_pairs_have_no_two_nn_and_do_not_warn(rng):
    rows = np.repeat(rng.standard_normal((5, 4)), 2, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measure(rows, np.arange(10) % 2)
    assert math.isnan(found["two_nn"])
    assert found["isoscore"] > 0


def test_states_equal_up_to_rounding_count_as_equal(rng):
    row = rng.standard_normal(16).astype(np.float32)
    rows = np.stack([row, np.nextafter(row, 9, dtype=np.float32), row, np.nextafter(row, -9, dtype=np.float32), row])
    assert known(measure(rows)) == RAW | {"mean_cosine"}
    assert "isoscore" in known(measure(np.stack([row, row, row, row * np.float32(1.001)])))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_states_raise_with_layer_and_step(bad):
    rows = np.ones((5, 4))
    rows[3, 1] = bad
    with pytest.raises(InputError, match=r"layer_3 at step 70: 1 of 5 rows .*, first in row 3: .*learning rate"):
        measure(rows, layer="layer_3", step=70)


def test_states_of_another_shape_raise():
    with pytest.raises(InputError, match=r"shape \(2, 3, 4\)"):
        measure(np.ones((2, 3, 4)))
