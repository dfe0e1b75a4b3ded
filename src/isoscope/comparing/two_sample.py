"""Two-sample tests: whether two sets of rows, or two sketches, come from one distribution.

Rows are compared by permutation tests, whose error rate is exact for exchangeable rows: the difference of the means,
the difference of the second moments, and the AUC of a cross-validated classifier. Each statistic is a function of one
matrix of inner products, so all permutations together cost a few matrix products. Sketches are compared by
approximations for high dimensions, because they hold no rows to permute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from isoscope.sketching.sketch import Sketch

LEVEL = 0.01
"""The false-alarm rate of all tests together: how often two random parts of one set differ by chance."""
TEST_ROWS = 1_000
"""The largest number of rows of each side that are compared."""
MIN_ROWS = 8
"""The smallest number of rows, or of groups of dependent rows, on each side."""
CLEAR_AUC = 0.75
"""An AUC that a changed model exceeds; the tests must be able to detect it before they may answer "same"."""

_PERMUTATIONS = 999
_FOLDS = 5
_RIDGE = 0.1  # penalty of the classifier, relative to the mean diagonal of its kernel
_QUADRATIC = 8.0  # weight of squared inner products in the kernel of the classifier
_SLACK = 4.0  # the largest standard error of second moments on real data, relative to Gaussian rows
_CLEAR_DIFFERENCE = 0.5  # a relative squared difference of covariances that a changed model exceeds


@dataclass(frozen=True)
class Test:
    """One test of a comparison."""

    __test__ = False  # not a test of pytest

    name: str
    """The name for scripts, such as `means`."""
    title: str
    value: float
    limit: float
    """The value above which the test finds a difference."""
    p_value: float | None
    level: float
    """The false-alarm rate of this test alone."""

    @property
    def rejects(self) -> bool:
        """Whether the test finds a difference."""
        return self.value > self.limit if self.p_value is None else self.p_value <= self.level


@dataclass(frozen=True)
class Comparison:
    """The tests of two sets of rows, and the effect size."""

    tests: tuple[Test, ...]
    auc: float | None = None
    """How well a classifier tells held-out old rows from new ones: 0.5 is chance, 1 is perfect."""
    auc_low: float | None = None
    auc_high: float | None = None
    enough: int = 0
    """The number of rows on each side that the tests need to answer "same"."""

    @property
    def differs(self) -> bool:
        """Whether any test finds a difference."""
        return any(test.rejects for test in self.tests)

    def rejects(self, name: str) -> bool:
        """Return whether the test with this name finds a difference."""
        return any(test.rejects for test in self.tests if test.name == name)


def compare_rows(
    old: np.ndarray, new: np.ndarray, *, old_groups: np.ndarray | None, new_groups: np.ndarray | None, seed: int
) -> Comparison:
    """Compare two samples of rows by permutation tests; rows of one group stay together.

    The rows are centered on their common mean and divided by their root-mean-square length, which does not depend on
    the side of each row.
    """
    rng = np.random.default_rng(seed)
    rows = np.concatenate([old, new]).astype(np.float64)
    rows -= rows.mean(axis=0)
    rows /= math.sqrt(float(np.mean(np.einsum("ij,ij->i", rows, rows)))) or 1.0
    units, old_units = _number_units(old_groups, new_groups, len(old), len(new))
    signs = _permute_sides(units, old_units, rng)
    products = rows @ rows.T
    kernel = products + _QUADRATIC * products**2
    weights = np.where(signs > 0, 1 / (signs > 0).sum(axis=0), -1 / (signs < 0).sum(axis=0))
    level = LEVEL / 3
    aucs = _cross_validated_aucs(kernel, signs, _assign_folds(units, rng))
    np.fill_diagonal(products, 0.0)  # without pairs of a row with itself, the statistics are unbiased
    means = np.einsum("ij,ij->j", weights, products @ weights)
    moments = np.einsum("ij,ij->j", weights, products**2 @ weights)
    tests = (
        _permutation_test("means", "difference of the means", means, level),
        _permutation_test("second_moments", "difference of the second moments", moments, level),
        _permutation_test("classifier", "AUC of a classifier", aucs, level),
    )
    low, high = auc_interval(float(aucs[0]), old_units, int(units.max()) + 1 - old_units)
    n = min(len(old), len(new))
    noise = max(tests[2].limit - 0.5, 0.0)
    enough = max(math.ceil(n * (noise / (CLEAR_AUC - 0.5)) ** 2), MIN_ROWS)
    return Comparison(tests, float(aucs[0]), low, high, enough)


def _number_units(
    old_groups: np.ndarray | None, new_groups: np.ndarray | None, n_old: int, n_new: int
) -> tuple[np.ndarray, int]:
    """Return the number of each row's unit, those of the old rows first, and how many of them are old."""
    old = np.arange(n_old) if old_groups is None else np.unique(old_groups, return_inverse=True)[1]
    new = np.arange(n_new) if new_groups is None else np.unique(new_groups, return_inverse=True)[1]
    count = int(old.max()) + 1
    return np.concatenate([old, new + count]), count


def _permute_sides(units: np.ndarray, old_units: int, rng: np.random.Generator) -> np.ndarray:
    """Return the side of each row (1 is old, −1 is new): as it is in the first column, then for each permutation."""
    total = int(units.max()) + 1
    sides = np.ones((total, _PERMUTATIONS + 1))
    sides[old_units:, 0] = -1
    for column in range(1, _PERMUTATIONS + 1):
        sides[rng.permutation(total)[old_units:], column] = -1
    return np.asarray(sides[units])


def _assign_folds(units: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the fold of each row; the rows of a unit are in the same fold."""
    total = int(units.max()) + 1
    return np.asarray((rng.permutation(total) % _FOLDS)[units])


def _cross_validated_aucs(kernel: np.ndarray, signs: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Return the mean AUC of kernel ridge classifiers on held-out folds, for each column of signs."""
    from scipy.linalg import cho_factor, cho_solve

    penalty = _RIDGE * float(np.mean(np.diag(kernel)))
    total = np.zeros(signs.shape[1])
    used = np.zeros(signs.shape[1])
    for fold in np.unique(folds):
        held, fit = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        factor = cho_factor(kernel[np.ix_(fit, fit)] + penalty * np.eye(len(fit)), overwrite_a=True)
        targets = signs[fit] - signs[fit].mean(axis=0)
        scores = kernel[np.ix_(held, fit)] @ cho_solve(factor, targets, overwrite_b=True)
        aucs = column_aucs(scores, signs[held] > 0)
        known = np.isfinite(aucs)
        total[known] += aucs[known]
        used[known] += 1
    return np.where(used > 0, total / np.maximum(used, 1), 0.5)


def column_aucs(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return the AUC of each column of scores; NaN for a column whose rows all belong to one side."""
    from scipy.stats import rankdata

    ranks = rankdata(scores, axis=0)
    first = positive.sum(axis=0)
    second = len(scores) - first
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(((ranks * positive).sum(axis=0) - first * (first + 1) / 2) / (first * second))


def _permutation_test(name: str, title: str, values: np.ndarray, level: float) -> Test:
    """Return the test that compares the first value with the others, which come from permutations."""
    reached = int((values[1:] >= values[0]).sum())
    limit = float(np.quantile(values[1:], 1 - level))
    return Test(name, title, float(values[0]), limit, (1 + reached) / len(values), level)


def auc_interval(auc: float, n_old: int, n_new: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95% interval of an AUC by the variance of Hanley and McNeil (1982)."""
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (n_old - 1) * (q1 - auc**2) + (n_new - 1) * (q2 - auc**2)
    reach = z * math.sqrt(max(variance, 0.25 / max(n_old, n_new)) / (n_old * n_new))
    return max(auc - reach, 0.0), min(auc + reach, 1.0)


@dataclass(frozen=True)
class SpaceMoments:
    """The mean and covariance of a set of rows, and an estimate of tr(Σ²), for standard errors."""

    n: int
    """The number of independent rows, at most `TEST_ROWS`: differences too small to detect with `TEST_ROWS` rows are
    ignored."""
    mean: np.ndarray
    covariance: np.ndarray
    square: float
    """An unbiased estimate of tr(Σ²)."""

    @classmethod
    def of(cls, sketch: Sketch) -> SpaceMoments:
        """Return the moments of a sketch."""
        covariance = sketch.covariance()
        ratio = sketch.participation_ratio(unbiased=True)
        n = sketch.n if sketch.groups is None else sketch.groups.groups
        return cls(min(n, TEST_ROWS), sketch.mean, covariance, float(np.trace(covariance)) ** 2 / ratio)

    @property
    def rms_length(self) -> float:
        """The root-mean-square length of the rows."""
        return math.sqrt(float(np.trace(self.covariance)) + float(self.mean @ self.mean))

    @property
    def spread(self) -> float:
        """The root-mean-square distance of the rows from their mean."""
        return math.sqrt(float(np.trace(self.covariance)))

    def scaled(self, factor: float) -> SpaceMoments:
        """Return the moments of the rows times a factor."""
        return SpaceMoments(self.n, self.mean * factor, self.covariance * factor**2, self.square * factor**4)

    def moved(self, mean: np.ndarray) -> SpaceMoments:
        """Return the moments of the rows, moved to another mean."""
        return SpaceMoments(self.n, mean, self.covariance, self.square)


def compare_moments(old: SpaceMoments, new: SpaceMoments) -> Comparison:
    """Compare two sketches by their means and covariances.

    The squared distance of the means is compared with a multiple of a chi-squared variable (Zhang et al. 2020). The
    squared difference of the covariances is estimated without bias as in Li and Chen (2012). Its standard error on real
    data is up to `_SLACK` times as large as for Gaussian rows, so that multiple is used.
    """
    from scipy.stats import chi2, norm

    level = LEVEL / 2
    inner = float(np.vdot(old.covariance, new.covariance))
    trace = float(np.trace(old.covariance)) / old.n + float(np.trace(new.covariance)) / new.n
    square = old.square / old.n**2 + 2 * inner / (old.n * new.n) + new.square / new.n**2
    freedom = trace**2 / square
    gap = float(np.sum((old.mean - new.mean) ** 2))
    distance = old.square + new.square - 2 * inner
    error = 2 * _SLACK * (old.square / old.n + new.square / new.n)
    size = old.square + new.square
    tests = (
        Test(
            "means",
            "distance of the means, relative to the spread",
            math.sqrt(gap) / old.spread,
            math.sqrt(trace / freedom * float(chi2.isf(level, freedom))) / old.spread,
            float(chi2.sf(gap * freedom / trace, freedom)),
            level,
        ),
        Test(
            "covariances",
            "relative squared difference of the covariances",
            2 * distance / size,
            2 * float(norm.isf(level)) * error / size,
            float(norm.sf(distance / error)),
            level,
        ),
    )
    enough = math.ceil(min(old.n, new.n) * tests[1].limit / _CLEAR_DIFFERENCE)
    return Comparison(tests, enough=max(enough, MIN_ROWS))
