"""The probe equals ridge regression with the penalty that minimizes the leave-one-out error."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from isoscope import AllButTheTop, Center, Chain, ClusterCenter, Standardize, Whiten, open_store
from isoscope.advising import labels as labels_module
from isoscope.advising.candidates import build_candidates
from isoscope.advising.labels import Labels
from isoscope.advising.linear_probe import _PENALTIES, LinearProbe, _LabeledRows, predict_with_shared_probes
from isoscope.advising.trials import try_candidates
from tests.advising.conftest import rows_of, silent, topics
from tests.conftest import rotation, tolerance


def linear_probe(X, labels, Z):
    return LinearProbe(X, labels).predict(Z)


def left_out_error(X, wanted, penalty):
    """Compute the leave-one-out error by refitting without each row in turn."""
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
    """Subtracting the mean label of the other rows would make a row's own label the least likely one."""
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


SHARING = [
    Chain(),
    Center(),
    AllButTheTop(1),
    AllButTheTop(3),
    Whiten(),
    Whiten(shrinkage=0.5),
    Whiten(shrinkage=None),
    Whiten("pca", 9),
    Whiten("pca", 4),
    Standardize(),
    Chain([Standardize(), AllButTheTop(2)]),
    Chain([Standardize(), Whiten("pca", 5)]),
]


def cloud(rng, dtype):
    """Return rows with a mean, coordinates of different scales, and labels that no probe predicts perfectly."""
    X, labels = topics(rng, 700, 24, 5, 0.8)
    return ((X + 0.7) * np.linspace(0.5, 2, 24)).astype(dtype), labels


@pytest.mark.parametrize(("dtype", "least"), [(np.float64, 1.0), (np.float32, 0.998)])
def test_shared_predictions_equal_those_of_each_repaired_space(rng, dtype, least):
    X, labels = cloud(rng, dtype)
    repairs = [repair.fit(X) for repair in SHARING]
    found = predict_with_shared_probes(X, labels, repairs)
    assert sorted(found) == list(range(len(repairs)))
    for i, predicted in found.items():
        direct = LinearProbe(repairs[i].transform(X), labels).leave_one_out()
        assert (predicted == direct).mean() >= least, repairs[i]
    assert 0.3 < (found[0] == labels).mean() < 0.99


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("repair", [AllButTheTop(3), Whiten(), Whiten("pca", 9)])
def test_shared_scores_equal_the_direct_ones(rng, dtype, repair):
    X, labels = cloud(rng, dtype)
    repair.fit(X)
    rows = _LabeledRows(X, labels, repair.sketch_.scatter)
    matrix = repair.as_affine()[0]
    weights = rows.component_weights(matrix)
    rows.rotate()
    _, left_out = rows.fit(weights, float(weights @ rows.variances) / matrix.shape[1])
    direct = LinearProbe(repair.transform(X), labels).left_out
    np.testing.assert_allclose(left_out, direct, atol=tolerance(dtype) / 10)


def test_repairs_that_would_lose_digits_do_not_share_a_probe(rng):
    """Rounding in the matrix of a repair that removes a coordinate a million times larger than the others."""
    X, labels = cloud(rng, np.float64)
    X[:, 7] *= 1e6
    repairs = [repair.fit(X) for repair in (Chain(), Center(), AllButTheTop(3), Whiten(), Standardize())]
    found = predict_with_shared_probes(X, labels, repairs)
    assert sorted(found) == [0, 1]
    for i, predicted in found.items():
        direct = LinearProbe(repairs[i].transform(X), labels).leave_one_out()
        np.testing.assert_array_equal(predicted, direct)


def test_shared_probe_of_ill_conditioned_single_precision_is_as_good_as_the_direct_one(rng):
    X, labels = cloud(rng, np.float64)
    X[:, 7] *= 1000
    narrow = X.astype(np.float32)
    X = narrow.astype(np.float64)
    repairs = [Chain(), AllButTheTop(1), Whiten()]
    found = predict_with_shared_probes(narrow, labels, [repair.fit(narrow) for repair in repairs])
    assert sorted(found) == [0, 1, 2]
    for i, predicted in found.items():
        direct = LinearProbe(repairs[i].fit(X).transform(X), labels).leave_one_out()
        assert (predicted == direct).mean() >= 0.998


def test_repairs_of_other_rows_do_not_share_a_probe(rng):
    X, labels = cloud(rng, np.float64)
    others = [repair.fit(X[:400]) for repair in (AllButTheTop(1), Whiten(), Whiten("pca", 4))]
    assert predict_with_shared_probes(X, labels, others) == {}


@pytest.mark.parametrize(
    "repairs",
    [
        [Chain()],
        [Chain(), Standardize()],
        [Whiten(), ClusterCenter(3, random_state=0)],
        [Standardize(), Chain([Standardize(), ClusterCenter(3, random_state=0)])],
    ],
)
def test_repairs_without_a_common_basis_do_not_share_a_probe(rng, repairs):
    X, labels = cloud(rng, np.float64)
    assert predict_with_shared_probes(X, labels, [repair.fit(X) for repair in repairs]) == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_rows_do_not_share_a_probe(rng):
    X, labels = cloud(rng, np.float64)
    repairs = [Chain().fit(X), Center().fit(X)]
    with_zeros = X.copy()
    with_zeros[3] = 0
    assert predict_with_shared_probes(with_zeros, labels, repairs) == {}
    assert predict_with_shared_probes(X.astype(np.float16), labels, repairs) == {}
    assert predict_with_shared_probes(np.ones_like(X), labels, repairs) == {}


def test_trials_use_the_shared_probe(rng, monkeypatch):
    X, of = topics(rng, 120, noise=0.8)
    task = Labels(rows_of(X), of, "cosine", 4, 0)
    candidates = build_candidates(8, 120, 0, [Center(), Whiten(), Standardize()])
    fitted = []

    def count(*arguments):
        fitted.append(arguments)
        return LinearProbe(*arguments)

    monkeypatch.setattr(labels_module, "LinearProbe", count)
    try_candidates(task, open_store(X), candidates, 0, silent)
    assert len(fitted) == 1  # only Standardize has no partner
