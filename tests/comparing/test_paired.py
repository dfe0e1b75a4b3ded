"""Matched rows: each transformation is recognized, and rounding is not a change."""

import numpy as np
import pytest
from scipy.spatial import procrustes

from isoscope import InputError
from isoscope.comparing.paired import compare_pairs, rounding_error
from tests.comparing.spaces import topics
from tests.conftest import rotation

X = topics(300)
TURN = rotation(48, np.random.default_rng(5))


def relation(old, new, **options):
    chosen = compare_pairs(old, new, **{"tolerance": 0.05, "seed": 0, **options}).chosen
    return None if chosen is None else chosen.relation


CHANGES = {
    "equal": (X, "same"),
    "half precision": (X.astype(np.float16), "same"),
    "small noise": (X + 0.002 * np.random.default_rng(0).standard_normal(X.shape), "same"),
    "1% longer": (1.01 * X, "rescaled"),
    "three times": (3 * X, "rescaled"),
    "a shift": (X + np.linspace(-0.2, 0.2, 48), "shifted"),
    "a factor and a shift": (2 * X + 0.1, "shifted"),
    "reversed": (X[:, ::-1], "rotated"),
    "a rotation": (X @ TURN, "rotated"),
    "a rotation, a factor and a shift": ((2 * X @ TURN + 1).astype(np.float16), "rotated"),
    "another order": (np.roll(X, 7, axis=0), None),
    "another model": (topics(300, model=1), None),
    "other scales": (X * np.linspace(0.3, 3, 48), None),
    "much noise": (X + 0.3 * np.random.default_rng(0).standard_normal(X.shape), None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_transformation_is_recognized(change):
    new, expected = CHANGES[change]
    assert relation(X, new) == expected


def test_order_and_units_do_not_matter():
    order = np.random.default_rng(1).permutation(len(X))
    for new, expected in CHANGES.values():
        assert relation(1e6 * X[order], 1e6 * new[order].astype(np.float64)) == expected


def test_parameters_are_those_of_the_transformation():
    found = compare_pairs(X, 2.5 * X + 0.3, tolerance=0.05, seed=0)
    spread = np.median(np.linalg.norm(2.5 * (X - np.median(X, axis=0)), axis=1))
    assert found.scale == pytest.approx(2.5, rel=1e-5)
    assert found.shift == pytest.approx(0.3 * np.sqrt(48) / spread, rel=1e-4)
    turned = compare_pairs(X, X @ TURN, tolerance=0.05, seed=0)
    a, b = X - X.mean(axis=0), (X - X.mean(axis=0)) @ TURN
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) ** 2
    assert turned.angle == pytest.approx(np.degrees(np.arccos(cosines)).mean(), rel=1e-4)
    assert turned.fitted < 1e-5


def test_residual_of_the_fitted_rotation_is_small_exactly_if_procrustes_says_so():
    assert procrustes(X, X @ TURN)[2] < 1e-10
    assert procrustes(X, topics(300, model=1))[2] > 0.1


def test_fewer_rows_than_dimensions_suffice_for_a_rotation():
    wide = topics(60, d=200)
    assert relation(wide, wide[:, ::-1]) == "rotated"
    assert relation(wide, topics(60, d=200, model=1)) is None


def test_a_few_changed_rows_are_listed():
    new = X.copy()
    new[[3, 77]] = X[[3, 77], ::-1]
    found = compare_pairs(X, new, tolerance=0.05, seed=0)
    assert found.chosen.relation == "same"
    assert found.changed.tolist() == [3, 77]
    new[:90] = X[:90, ::-1]
    found = compare_pairs(X, new, tolerance=0.05, seed=0)
    assert found.chosen is None
    assert len(found.changed) == 90


def test_too_few_pairs_are_not_decided():
    found = compare_pairs(X[:8], X[:8], tolerance=0.05, seed=0)
    assert not found.chosen.is_decided
    enough = found.chosen.needed
    assert compare_pairs(X[:enough], X[:enough], tolerance=0.05, seed=0).chosen.is_decided
    assert not compare_pairs(X[: enough - 1], X[: enough - 1], tolerance=0.05, seed=0).chosen.is_decided


def test_rounding_error_is_that_of_the_codes():
    codes = np.round(X * 127 / np.abs(X).max()).astype(np.int8)
    spread = np.sqrt(((codes - codes.mean(axis=0)) ** 2).sum(axis=1).mean())
    actual = np.sqrt(((codes - X * 127 / np.abs(X).max()) ** 2).sum(axis=1).mean()) / spread
    assert rounding_error(codes) == pytest.approx(actual, rel=0.1)
    assert rounding_error(X) == 0


def test_equal_rows_cannot_be_compared():
    with pytest.raises(InputError, match="equal"):
        compare_pairs(np.ones((30, 4)), X[:30, :4], tolerance=0.05, seed=0)


def test_clipped_codes_are_not_a_rotation():
    """Clipping moves many vectors by more than the tolerance, but it keeps distances and does not rotate."""
    rows = np.random.default_rng(0).standard_normal((400, 48)) * np.linspace(0.5, 1.5, 48)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    limit = np.quantile(np.abs(rows), 0.98)
    found = compare_pairs(rows, np.clip(rows, -limit, limit), tolerance=0.05, seed=0)
    assert found.fits[0].kept < 0.9
    assert found.chosen is None or found.chosen.relation != "rotated"
