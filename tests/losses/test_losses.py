"""Regularizers: values and gradients match the metrics and the papers, and are finite for any batch."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from tests.metrics.test_topology import shared

torch = pytest.importorskip("torch", reason="torch is not installed")

from isoscope.losses import CosReg, IStar, PersistentEntropy, Regularizer, UnbiasedIsoScore  # noqa: E402

CLASSES = torch.arange(40) % 3


def cloud(n: int = 40, d: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul_(
        torch.arange(1, d + 1)
    )


def istar(weight: float = 1.0, zeta: float = 0.2, d: int = 6) -> IStar:
    loss = IStar(weight, zeta)
    loss.refresh(np.eye(d))
    return loss


ALL = {
    "istar": istar,
    "istar alone": lambda weight=1.0: IStar(weight, zeta=0),
    "unbiased": UnbiasedIsoScore,
    "cosreg": CosReg,
    "reference cosreg": lambda weight=1.0: CosReg(weight, reference=True),
    "selected": PersistentEntropy,
    "all bars": lambda weight=1.0: PersistentEntropy(weight, select=False),
    "with noise": lambda weight=1.0: PersistentEntropy(weight, noise_weight=0.5),
    "one cloud": lambda weight=1.0: PersistentEntropy(weight, per_class=False),
}
each = pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())


def gradient(loss: Regularizer, X: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
    X = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(X, labels), X)
    return found


# what must hold


def test_default_weights_are_those_that_do_not_harm_learning():
    found = {kind.__name__: kind().weight for kind in (PersistentEntropy, IStar, UnbiasedIsoScore, CosReg)}
    assert found == {"PersistentEntropy": 1, "IStar": 1, "UnbiasedIsoScore": 0.01, "CosReg": 0.1}


@each
def test_weight_scales_value_and_gradient_and_may_be_negative(make):
    X = cloud()
    one, minus = make(1.0), make(-2.5)
    torch.testing.assert_close(minus(X, CLASSES), -2.5 * one(X, CLASSES))
    torch.testing.assert_close(gradient(minus, X, CLASSES), -2.5 * gradient(one, X, CLASSES))


@each
def test_the_order_of_the_rows_does_not_matter(make):
    X, order = cloud(), torch.randperm(40, generator=torch.Generator().manual_seed(1))
    loss = make()
    torch.testing.assert_close(loss(X[order], CLASSES[order]), loss(X, CLASSES))
    torch.testing.assert_close(gradient(loss, X[order], CLASSES[order]), gradient(loss, X, CLASSES)[order])


@each
def test_gradient_step_reduces_the_term(make):
    X, loss = cloud(), make()
    step = gradient(loss, X, CLASSES)
    assert float(loss(X - 1e-3 * step / step.norm(), CLASSES)) < float(loss(X, CLASSES))


@each
def test_autocast_does_not_reduce_precision(make):
    X, loss = cloud().float(), make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(X, CLASSES)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(X, CLASSES), rtol=0, atol=0)


@each
def test_half_precision_states_are_measured_in_float32(make):
    X = cloud().bfloat16()
    loss = make()
    torch.testing.assert_close(loss(X, CLASSES), loss(X.float(), CLASSES), rtol=0, atol=0)
    assert gradient(loss, X, CLASSES).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (istar(0.5, 0.3), lambda X: 0.5 * (1 - isoscope.isoscore_star(X, np.eye(6), 0.3))),
        (UnbiasedIsoScore(0.5), lambda X: 0.5 * (1 - isoscope.isoscore(X, unbiased=True))),
        (CosReg(0.5), lambda X: 0.5 * isoscope.mean_cosine(X)),
        (CosReg(0.5, reference=True), lambda X: 0.5 * isoscope.mean_cosine(X) * 39 / 40),
        (
            PersistentEntropy(0.5, select=False, per_class=False),
            lambda X: -0.5 * isoscope.persistent_entropy(isoscope.h0_barcode(X)),
        ),
    ],
    ids=["istar", "unbiased", "cosreg", "reference cosreg", "entropy"],
)
def test_term_equals_the_metric(loss, expected):
    assert float(loss(cloud())) == pytest.approx(float(expected(cloud().numpy())), rel=1e-6)


def test_classes_are_measured_separately_and_missing_ones_excluded():
    X, loss = cloud(), PersistentEntropy()
    parts = sum(float(loss(X[label == CLASSES], CLASSES[label == CLASSES])) for label in (0, 1, 2))
    assert float(loss(X, CLASSES)) == pytest.approx(parts)
    labels = torch.where(CLASSES == 1, -100, CLASSES)
    assert float(loss(X, labels)) == pytest.approx(float(loss(X[labels >= 0], labels[labels >= 0])))
    assert bool((gradient(loss, X, labels)[labels < 0] == 0).all())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_integer_dtype_of_labels_does_not_matter(dtype):
    labels = torch.tensor([156] * 4 + [3] * 4)
    states = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    assert PersistentEntropy()(states, labels.to(dtype)) == PersistentEntropy()(states, labels)


def test_score_above_one_has_zero_loss_and_gradient():
    X = torch.eye(24, dtype=torch.float64)  # as even as 24 points can be: reads above 1
    assert float(isoscope.isoscore(X, unbiased=True)) > 1
    assert float(UnbiasedIsoScore()(X)) == 0
    assert bool((gradient(UnbiasedIsoScore(), X) == 0).all())


def test_positive_weights_raise_the_score_and_negative_ones_lower_it():
    for make in (istar, UnbiasedIsoScore):
        for weight in (1.0, -1.0):
            X, loss = cloud(), make(weight)
            for _ in range(30):
                X = X - 2.0 * gradient(loss, X)
            moved = float(isoscope.isoscore(X)) - float(isoscope.isoscore(cloud()))
            assert moved * weight > 0.01


# the papers' numbers


@pytest.mark.parametrize("zeta", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("case", ["n300_d24", "n10_d24", "n64_d4_exactlyiso_C0"])
def test_istar_has_the_published_values_and_gradients(vectors, case, zeta):
    arrays, scalars = vectors("isoscore_star")
    loss = IStar(weight=-3, zeta=zeta)
    loss.refresh(arrays[f"{case}_C0"])
    X = torch.tensor(arrays[f"{case}_X"])
    expected = scalars["cases"][case][f"zeta_{zeta}"]["istar_loss_lambda_-3"]
    assert float(loss(X)) == pytest.approx(expected, abs=1e-6)
    if zeta < 1:  # at 1 nothing of the batch is left, and theirs is the rounding of nothing
        found = gradient(loss, X).numpy()
        np.testing.assert_allclose(found, arrays[f"{case}_grad_lam-3_zeta{zeta}"], atol=1e-6)


@pytest.mark.parametrize("case", ["cosreg_n50_d8", "cosreg_n3_d2"])
def test_cosreg_gives_the_published_value_on_request(vectors, case):
    arrays, scalars = vectors("isoscore_star")
    X = torch.tensor(arrays[case])
    assert float(CosReg(1, reference=True)(X)) == pytest.approx(scalars["cases"][case]["cosreg"], abs=1e-6)
    assert float(CosReg(1)(X)) == pytest.approx(float(CosReg(1, reference=True)(X)) * len(X) / (len(X) - 1), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "key", "settings"),
    [
        ("sel_noL2", "loss_sel_noL2", {}),
        ("sel_l2_0.5", "loss_sel_l2_0.5(default)", {"noise_weight": 0.5}),
        ("sel_l2_0.05", "loss_sel_l2_0.05(notebook)", {"noise_weight": 0.05}),
        ("all", "loss_all", {"select": False}),
    ],
)
@pytest.mark.parametrize("case", ["gauss_30x3", "circle_24x2_noise", "line_geometric_10x1", "outlier_20x4", "n5_x3"])
def test_entropy_has_the_published_values_and_gradients(vectors, case, kind, key, settings):
    arrays, scalars = vectors("persistent_entropy")
    loss = PersistentEntropy(per_class=False, **settings)
    X = torch.tensor(arrays[case])
    expected = scalars["cases"][case][key]["value"]
    assert float(loss(X)) == pytest.approx(-expected, abs=1e-9)
    found = -gradient(loss, X).numpy()
    np.testing.assert_allclose(
        shared(found, arrays[case]), shared(arrays[f"{case}__grad_loss_{kind}"], arrays[case]), atol=1e-9
    )


# the edges


@each
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5])
def test_small_batches_have_finite_gradients_and_tiny_ones_add_nothing(make, n):
    loss, X = make(), cloud(n)
    value, found = loss(X, CLASSES[:n]), gradient(loss, X, CLASSES[:n])
    assert bool(value.isfinite())
    assert bool(found.isfinite().all())
    if n < 2:
        assert float(value) == 0
        assert loss.skipped == loss.seen


@each
@pytest.mark.parametrize(
    "X",
    [
        torch.zeros(12, 6),
        torch.ones(12, 6),
        torch.ones(12, 6) * 1e-20,
        torch.ones(12, 6) * 1e15,
        torch.cat([torch.ones(11, 6), torch.zeros(1, 6)]),
        torch.ones(12, 6) + 1e-7 * torch.eye(12, 6),
        torch.eye(6).repeat(2, 1),
        cloud(12).float() * 1e-18,
        cloud(12).float() * 1e12,
    ],
    ids=["zeros", "ones", "tiny", "huge", "all but one equal", "nearly equal", "twins", "small", "large"],
)
def test_equal_points_and_extreme_scales_have_finite_gradients(make, X):
    loss, labels = make(), torch.arange(12) % 2
    assert bool(loss(X, labels).isfinite())
    assert bool(gradient(loss, X, labels).isfinite().all())


def test_classes_too_small_for_two_bars_add_nothing_and_are_counted():
    X, labels = cloud(6), torch.tensor([0, 1, 1, 2, 2, 2])
    loss = PersistentEntropy()
    alone = PersistentEntropy()(X[3:], labels[3:])
    assert float(loss(X, labels)) == pytest.approx(float(alone))
    assert (loss.seen, loss.skipped) == (3, 2)
    assert bool((gradient(loss, X, labels)[:3] == 0).all())


@each
def test_nan_raises(make):
    X = cloud()
    X[7, 2] = float("nan")
    with pytest.raises(isoscope.InputError, match=r"1 of \d+ rows of X contain NaN"):
        make()(X, CLASSES)


def test_wrong_input_raises_one_line_errors():
    X = cloud()
    for call, message in [
        (lambda: PersistentEntropy()(X), r"needs labels.*per_class=False"),
        (
            lambda: PersistentEntropy()(X, CLASSES.double()),
            "labels have dtype torch.float64: need integer class labels",
        ),
        (lambda: PersistentEntropy()(X, CLASSES[:5]), r"labels has shape \(5,\) but the states have 40 rows"),
        (lambda: PersistentEntropy(select=False, noise_weight=0.5), "select=False leaves no unselected bars"),
        (lambda: IStar()(X), r"no shrinkage covariance yet: call attachment.follow\(trainer\)"),
        (lambda: IStar(zeta=2), r"zeta is 2: need a number in \[0, 1\]"),
        (lambda: istar(d=5)(X), r"shrinkage has shape \(5, 5\) but X has 6 columns"),
        (lambda: IStar().refresh(np.ones((3, 4))), r"the covariance has shape \(3, 4\)"),
        (lambda: CosReg(float("nan")), "weight is nan: need a finite number"),
        (lambda: CosReg("much"), "weight is 'much': need a number"),
        (lambda: CosReg()(X[None]), r"the states have shape \(1, 40, 6\): need a torch tensor of shape \(n, d\)"),
        (lambda: CosReg()(X.numpy()), "the states have type ndarray"),
        (lambda: CosReg()(X.long()), "the states have dtype torch.int64"),
    ]:
        with pytest.raises(isoscope.InputError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_sketch_gives_the_covariance():
    X = cloud(200)
    by_sketch, by_matrix = IStar(), IStar()
    by_sketch.refresh(isoscope.sketch(X))
    by_matrix.refresh(np.cov(X.numpy().T))
    torch.testing.assert_close(by_sketch(X[:20]), by_matrix(X[:20]))


def test_repr_shows_the_settings():
    assert repr(PersistentEntropy(2, noise_weight=0.05)) == (
        "PersistentEntropy(weight=2, select=True, per_class=True, noise_weight=0.05)"
    )
    assert repr(IStar(-1)) == "IStar(weight=-1, zeta=0.2)"
    assert repr(CosReg(reference=True)) == "CosReg(weight=0.1, reference=True)"


def token_batch(texts=12, tokens=10, d=8):
    """States in which the text explains most of the variance; the true score is 1."""
    generator = torch.Generator().manual_seed(0)
    text = torch.arange(texts).repeat_interleave(tokens)
    shared = torch.randn(texts, d, generator=generator)[text]
    return shared + 0.3 * torch.randn(texts * tokens, d, generator=generator), text


def test_unbiased_isoscore_compares_rows_of_different_groups():
    states, text = token_batch()
    states.requires_grad_()
    grouped, by_rows = UnbiasedIsoScore(1)(states, groups=text), UnbiasedIsoScore(1)(states)
    expected = isoscope.isoscore(states, unbiased=True, groups=text)
    assert grouped.item() == pytest.approx(max(0.0, 1 - expected.item()), abs=1e-6)
    assert grouped.item() < 0.3 < by_rows.item()
    (by_rows + grouped).backward()
    assert bool(states.grad.isfinite().all())


def test_fewer_than_four_groups_add_nothing_and_invalid_groups_raise():
    states, text = token_batch()
    loss = UnbiasedIsoScore()
    assert float(loss(states, groups=text % 3)) == 0
    assert (loss.seen, loss.skipped) == (1, 1)
    with pytest.raises(isoscope.InputError, match=r"groups has shape \(3,\)"):
        loss(states, groups=torch.arange(3))
    assert float(CosReg()(states, groups=text)) == float(CosReg()(states))  # ignored where they mean nothing
