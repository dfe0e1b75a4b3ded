"""The probe equals ridge regression with the penalty of the least leave-one-out error."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from isoscope.advising.labels import _PENALTIES, LinearProbe
from tests.advising.conftest import topics
from tests.conftest import rotation


def linear_probe(X, labels, Z):
    return LinearProbe(X, labels).predict(Z)


def left_out_error(X, wanted, penalty):
    """By fitting again without each row in turn."""
    total = 0.0
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        total += np.sum((Ridge(penalty).fit(X[rest], wanted[rest]).predict(X[[i]]) - wanted[i]) ** 2)
    return total


def by_hand(X, labels, Z):
    wanted = np.eye(labels.max() + 1)[labels]
    penalties = _PENALTIES * np.var(X, axis=0).sum() * len(X) / X.shape[1]
    best = min(penalties, key=lambda penalty: left_out_error(X, wanted, penalty))
    return Ridge(best).fit(X, wanted).predict(Z).argmax(axis=1)


@pytest.mark.parametrize(("n", "d", "noise"), [(24, 5, 0.3), (24, 5, 3.0), (12, 30, 0.3)])
def test_probe_equals_ridge_with_leave_one_out_penalty(rng, n, d, noise):
    X, labels = topics(rng, n, d, 3, noise)
    Z = rng.standard_normal((200, d))
    np.testing.assert_array_equal(linear_probe(X, labels, Z), by_hand(X, labels, Z))


@pytest.mark.parametrize(("n", "d", "noise"), [(24, 5, 0.5), (12, 30, 0.5)])
def test_leave_one_out_predictions_equal_refitting_without_each_row(rng, n, d, noise):
    X, labels = topics(rng, n, d, 3, noise)
    targets = np.eye(3)[labels]
    penalties = _PENALTIES * np.var(X, axis=0).sum() * len(X) / X.shape[1]
    best = min(penalties, key=lambda penalty: left_out_error(X, targets, penalty))
    centered, shares = X - X.mean(axis=0), targets.mean(axis=0)  # of all rows, or each row's own label would be rarer
    expected = []
    for i in range(n):
        rest = np.arange(n) != i
        fitted = Ridge(best, fit_intercept=False).fit(centered[rest], targets[rest] - shares)
        expected.append((fitted.predict(centered[[i]]) + shares).argmax())
    np.testing.assert_array_equal(LinearProbe(X, labels).leave_one_out(), expected)


def test_leave_one_out_accuracy_on_noise_is_at_chance():
    """A mean label without the row itself would make its own label the rarest, and be wrong nearly always."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 4
    hits = [(LinearProbe(rng.standard_normal((400, 3)), labels).leave_one_out() == labels).mean() for _ in range(20)]
    assert np.mean(hits) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("d", [5, 60])
def test_rotation_scale_and_translation_do_not_matter(rng, d):
    X, labels = topics(rng, 40, d, 3)
    Z, turn = rng.standard_normal((100, d)), rotation(d, rng)
    expected = linear_probe(X, labels, Z)
    for change in (lambda A: A @ turn, lambda A: 1e6 * A, lambda A: 1e-6 * A, lambda A: A + 7):
        np.testing.assert_array_equal(linear_probe(change(X), labels, change(Z)), expected)


def test_a_constant_coordinate_is_ignored(rng):
    X, labels = topics(rng, 20, 5, 3)
    Z = rng.standard_normal((50, 5))
    with_constant = [np.insert(A, 2, 9.0, axis=1) for A in (X, Z)]
    # the mean variance, and with it the grid of penalties, is that of one more coordinate
    np.testing.assert_array_equal(
        linear_probe(with_constant[0], labels, with_constant[1]), by_hand(with_constant[0], labels, with_constant[1])
    )


def test_class_seen_once_and_absent_class(rng):
    X, labels = topics(rng, 40, 5, 3, 0.05)
    labels = labels.copy()
    labels[0] = 4  # class 3 has no row
    found = linear_probe(X, labels, X)
    assert 3 not in found
    assert (found == labels)[1:].all()


def test_single_precision_is_enough(rng):
    X, labels = topics(rng, 100, 8, 4)
    np.testing.assert_array_equal(linear_probe(X.astype(np.float32), labels, X), linear_probe(X, labels, X))


def test_identical_vectors_get_the_most_frequent_label():
    labels = np.asarray([0, 1, 1, 1, 0, 1])
    assert linear_probe(np.ones((6, 3)), labels, np.ones((2, 3))).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_huge_vectors(rng):
    X, labels = topics(rng, 40, 5, 3)
    np.testing.assert_array_equal(linear_probe(X * 2.0**700, labels, X * 2.0**700), linear_probe(X, labels, X))


def test_leave_one_out_error_of_single_precision_is_bounded(rng):
    """Even with one coordinate a thousand times larger than the others, predictions differ by at most 1e-4."""
    X, labels = topics(rng, 400, 32, 4, 0.5)
    X[:, 7] *= 1000
    narrow = X.astype(np.float32)
    single, double = LinearProbe(narrow, labels), LinearProbe(narrow.astype(np.float64), labels)
    np.testing.assert_allclose(single.left_out, double.left_out, atol=1e-4)
