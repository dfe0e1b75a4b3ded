"""Sums over the rows of a chunk: float32 products are used only where they are precise enough."""

import numpy as np
import pytest

from isoscope.sketching import row_sums
from isoscope.sketching.row_sums import RowSums
from tests.conftest import rotation, tolerance

N, D = 3000, 24


def largest_relative_error(sums: RowSums, X: np.ndarray) -> float:
    """Return the largest relative error of the variance along any direction."""
    exact = np.cov(X.astype(np.longdouble).T, ddof=0).astype(np.float64) * len(X)
    mean = sums.total / len(X)
    found = sums.moment - len(X) * np.outer(mean, mean)
    scale = 1 / np.sqrt(np.diag(exact))  # relative errors do not depend on the scales of the columns
    values, vectors = np.linalg.eigh(exact * scale * scale[:, None])
    whiten = vectors / np.sqrt(values)
    return float(np.abs(np.linalg.eigvalsh(whiten.T @ ((found - exact) * scale * scale[:, None]) @ whiten)).max())


def product_types(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the dtypes of the products that are computed from now on."""
    seen: list[str] = []
    original = row_sums._add_products

    def record(moment, centered):
        seen.append(centered.dtype.name)
        original(moment, centered)

    monkeypatch.setattr(row_sums, "_add_products", record)
    return seen


def correlated(rng, least):
    """Return a matrix whose correlations have an eigenvalue of about `least`."""
    Q = rotation(D, rng)
    return Q * np.append(np.ones(D - 1), least**0.5) @ Q.T


CLOUDS = {
    "isotropic": (lambda rng: rng.standard_normal((N, D)), True),
    "columns of different scale": (lambda rng: rng.standard_normal((N, D)) * 10.0 ** np.linspace(-12, 12, D), True),
    "large mean": (lambda rng: rng.standard_normal((N, D)) + 1e3, True),
    "near the limit": (lambda rng: rng.standard_normal((N, D)) @ correlated(rng, 4e-3), True),
    "nearly dependent columns": (lambda rng: rng.standard_normal((N, D)) @ correlated(rng, 1e-5), False),
    "drift from the first rows": (lambda rng: rng.standard_normal((N, D)) + np.linspace(0, 1e3, N)[:, None], False),
    "one very long row": (lambda rng: rng.standard_normal((N, D)) * np.append(1e5, np.ones(N - 1))[:, None], False),
    "squares near the limit of float32": (lambda rng: rng.standard_normal((N, D)) * 1e20, False),
    "squares below the limit of float32": (lambda rng: rng.standard_normal((N, D)) * 1e-22, False),
    "few rows": (lambda rng: rng.standard_normal((2 * D, D)), False),
}


@pytest.mark.parametrize(("cloud", "narrow"), CLOUDS.values(), ids=CLOUDS.keys())
def test_variance_along_every_direction_is_within_tolerance(cloud, narrow, rng, monkeypatch):
    X = cloud(rng).astype(np.float32)
    seen = product_types(monkeypatch)
    assert largest_relative_error(RowSums.of(X), X) < (tolerance(np.float32) if narrow else 1e-6)
    assert ("float64" not in seen) == narrow


def test_bound_also_holds_for_many_dimensions(rng, monkeypatch):
    X = (rng.standard_normal((6000, 300)) @ (np.eye(300) + 0.02 * rng.standard_normal((300, 300)))).astype(np.float32)
    seen = product_types(monkeypatch)
    assert largest_relative_error(RowSums.of(X), X) < tolerance(np.float32)
    assert set(seen) == {"float32"}


def test_constant_columns_keep_float32_products_and_have_no_variance(rng, monkeypatch):
    X = rng.standard_normal((N, D)).astype(np.float32)
    X[:, [0, 7]] = 0.1, -3e4
    seen = product_types(monkeypatch)
    moment = RowSums.of(X).moment
    assert set(seen) == {"float32"}
    assert not moment[[0, 7]].any()
    assert not moment[:, [0, 7]].any()


def test_diagonal_is_exact(rng):
    X = rng.standard_normal((N, D)).astype(np.float32)
    sums = RowSums.of(X)
    np.testing.assert_allclose(np.diag(sums.moment), ((X - sums.pivot) ** 2).sum(axis=0), rtol=1e-13)


def test_float64_rows_use_float64_products(rng, monkeypatch):
    X = rng.standard_normal((N, D))
    seen = product_types(monkeypatch)
    assert largest_relative_error(RowSums.of(X), X) < tolerance(np.float64)
    assert set(seen) == {"float64"}


@pytest.mark.parametrize("dependent", [False, True])
def test_rows_that_are_not_finite_are_left_out(dependent, rng):
    X = rng.standard_normal((N, D)).astype(np.float32)
    if dependent:
        X[:, 1] = X[:, 0]
    bad = X.copy()
    bad[[3, 500], 2] = np.nan, -np.inf
    sums, rest = RowSums.of(bad), np.delete(X, [3, 500], axis=0) - RowSums.of(bad).pivot
    assert np.flatnonzero(np.isnan(sums.norms)).tolist() == np.flatnonzero(sums.hashes == 0).tolist() == [3, 500]
    np.testing.assert_allclose(sums.moment, rest.T @ rest, atol=1e-3)
    np.testing.assert_allclose(sums.total, rest.sum(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums.quartic, ((rest**2).sum(axis=1) ** 2).sum())
