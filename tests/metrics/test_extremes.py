"""Values near the limits of their dtype give a correct result or an error, never NaN or infinity."""

from __future__ import annotations

import math

import numpy as np
import pytest

import isoscope
from isoscope import InputError
from isoscope.errors import ParameterError


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e150, 1e153, 1e200, 1e300, 1e307])
@pytest.mark.parametrize("center", [False, True])
def test_anisotropy_of_a_sketch_is_right_or_an_error(rng, scale, center):
    X = rng.standard_normal((60, 6))
    expected = isoscope.Sketch.of(X).anisotropy(2, center=center)
    if scale == 1e150:
        found = isoscope.Sketch.of(X * scale).anisotropy(2, center=center)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        with pytest.raises(InputError, match="rescale"):
            isoscope.Sketch.of(X * scale).anisotropy(2, center=center)


@pytest.mark.parametrize("scale", [1e-310, 1e150, 1e300, 1e307])
def test_silhouettes_do_not_depend_on_the_scale(rng, scale):
    X, labels = rng.standard_normal((60, 6)), np.arange(60) % 3
    assert isoscope.silhouette(X * scale, labels) == pytest.approx(float(isoscope.silhouette(X, labels)), rel=1e-6)


def test_bars_that_exceed_float32_are_an_error(rng):
    X = (np.sign(rng.standard_normal((40, 6))) * 3e38).astype(np.float32)
    with pytest.raises(InputError, match="exceeds the range of float32"):
        isoscope.h0_barcode(X)
    assert np.isfinite(isoscope.h0_barcode(X.astype(np.float64))).all()


@pytest.mark.parametrize(
    ("bars", "entropy"),
    [
        ([1e300, 1e-30], 0),
        ([1e-300, 1e-320, 5.0], 0),
        ([1e308] * 3, math.log(3)),
        ([1e308, 1e308, 1e-300], math.log(2)),
    ],
)
def test_persistent_entropy_of_bars_of_very_different_length(bars, entropy):
    assert isoscope.persistent_entropy(np.asarray(bars)) == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize("repair", [isoscope.Center(), isoscope.AllButTheTop(1)], ids=["Center", "AllButTheTop"])
def test_repairs_that_exceed_float16_are_an_error(rng, repair):
    X = np.where(rng.random((60, 6)) < 0.6, 65504, -65504).astype(np.float16)
    fitted = repair.fit(X.astype(np.float32))
    with pytest.raises(ParameterError, match="exceeds the range of float16"):
        fitted.transform(X)
    assert np.isfinite(fitted.transform(X.astype(np.float32))).all()
