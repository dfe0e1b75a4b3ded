"""Each entry of docs/errata.md, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope.metrics.partition import log_partition
from tests.conftest import tolerance

ERRATA = Path(__file__).parents[1] / "docs" / "errata.md"


def test_every_entry_has_its_test_and_every_test_its_entry():
    named = set(re.findall(r"`(test_\w+)`", ERRATA.read_text(encoding="utf-8")))
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_every_entry_has_its_test_and_every_test_its_entry"}


def test_isoscore_takes_rows_and_warns_of_columns(vectors, rng):
    arrays, scalars = vectors("isoscore")
    case = scalars["cases"]["ball_500x3"]
    assert isoscope.isoscore(arrays["ball_500x3"]) == pytest.approx(case["v1_repo"], abs=1e-10)
    assert case["v2_given_transposed"] < 0.01  # what the wrong orientation reads, without a word
    with pytest.warns(isoscope.DataWarning, match=r"300 rows and 2001 columns.*pass X\.T"):
        isoscope.isoscore(rng.standard_normal((300, 2001)))


def test_the_five_steps_are_one_fraction(vectors):
    arrays, scalars = vectors("isoscore")
    checked = 0
    for name, case in scalars["cases"].items():
        if case["v1_repo"] is not None and np.isfinite(case["v1_repo"]):
            # the steps in float32, where the data are: their own rounding is the difference
            within = 1e-6 if case["dtype"] == "float32" else 1e-10
            assert isoscope.isoscore(arrays[name]) == pytest.approx(case["v1_repo"], abs=within), name
            checked += 1
    assert checked == 7
    assert "n_components=50" in scalars["cases"]["n_lt_d_20x50"]["v1_error"]
    expected = scalars["cases"]["n_lt_d_20x50"]["v2_pypi"]
    assert isoscope.isoscore(arrays["n_lt_d_20x50"]) == pytest.approx(expected, abs=1e-6)


def test_version_two_rounds_to_single_precision(vectors):
    arrays, scalars = vectors("isoscore")
    off = [
        abs(float(isoscope.isoscore(arrays[name])) - case["v2_pypi"])
        for name, case in scalars["cases"].items()
        if case["dtype"] == "float64" and case["v2_pypi"] is not None and np.isfinite(case["v2_pypi"])
    ]
    assert 1e-9 < max(off) < 1e-6


def test_constant_cloud_is_an_error_and_not_nan(vectors):
    arrays, scalars = vectors("isoscore")
    assert np.isnan(scalars["cases"]["const_30x4"]["v1_repo"])
    with pytest.raises(isoscope.InputError, match="all 30 rows of X are equal"):
        isoscope.isoscore(arrays["const_30x4"])


def test_isoscore_star_is_far_off_on_small_batches(rng):
    X = rng.standard_normal((64, 768))
    assert isoscope.isoscore_star(X, np.eye(768), 0.2) == pytest.approx(0.11, abs=0.02)
    assert isoscope.isoscore(X, unbiased=True) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("name", ["cosreg_n50_d8", "cosreg_n3_d2"])
def test_cosreg_divides_by_all_pairs_with_themselves(vectors, name):
    arrays, scalars = vectors("isoscore_star")
    n = len(arrays[name])
    theirs = scalars["cases"][name]["cosreg"]
    assert isoscope.mean_cosine(arrays[name]) * (n - 1) / n == pytest.approx(theirs, abs=1e-12)


def test_selection_stops_where_the_code_stops(vectors):
    arrays, _ = vectors("persistent_entropy")
    printed_differs = 0
    for bars, (n, _, kept) in zip(arrays["barcodes_nanpadded"], arrays["barcodes_n_i_nsel"], strict=True):
        assert len(isoscope.metrics.select_bars(bars[:n])) == kept
        printed_differs += len(isoscope.metrics.select_bars(bars[:n], rule="printed")) != kept
    assert printed_differs > 0


def test_the_printed_rule_always_ends(rng):
    for n in range(1, 60):
        kept = isoscope.metrics.select_bars(rng.exponential(size=n), rule="printed")
        assert 1 <= len(kept) <= n


@pytest.mark.parametrize("name", ["n4_x3", "n3_x3", "n2_x3"])
def test_few_points_have_a_value(vectors, name):
    arrays, scalars = vectors("persistent_entropy")
    assert "Error" in scalars["cases"][name]["select_error"]
    bars = isoscope.h0_barcode(arrays[name])
    assert isoscope.metrics.select_bars(bars).tolist() == bars.tolist()


@pytest.mark.parametrize("name", ["ties_line_10x1", "ties_grid_4x4"])
def test_equal_bars_are_all_kept(vectors, name):
    arrays, scalars = vectors("persistent_entropy")
    bars = isoscope.h0_barcode(arrays[name])
    assert scalars["cases"][name]["n_selected"] < len(bars)
    assert len(isoscope.metrics.select_bars(bars)) == len(bars)


@pytest.mark.parametrize("weight", [0.5, 0.05])
@pytest.mark.parametrize("name", ["gauss_30x3", "circle_24x2_noise", "outlier_20x4", "line_geometric_10x1"])
def test_the_extra_term_is_the_mean_length_of_the_noise(vectors, name, weight):
    arrays, scalars = vectors("persistent_entropy")
    losses = scalars["cases"][name]
    theirs = next(v["value"] for k, v in losses.items() if k.startswith(f"loss_sel_l2_{weight}("))
    bars = isoscope.h0_barcode(arrays[name])
    selected = isoscope.metrics.select_bars(bars)
    noise = bars[len(selected) :]
    entropy = isoscope.persistent_entropy(selected)
    assert entropy == pytest.approx(losses["loss_sel_noL2"]["value"], abs=1e-9)
    assert entropy + weight * noise.mean() == pytest.approx(theirs, abs=1e-9)


def test_anisotropy_is_a_share_for_every_k(vectors):
    arrays, scalars = vectors("misc")
    X, cases = arrays["ani_X"], scalars["cases"]
    raw = np.array(cases["anisotropy_all(returns raw singular values, not ratios)"])
    np.testing.assert_allclose(isoscope.anisotropy(X, 3), cases["anisotropy_top3"], atol=1e-8)
    np.testing.assert_allclose(isoscope.anisotropy(X, 3, center=True), cases["anisotropy_centered_top3"], atol=1e-8)
    np.testing.assert_allclose(isoscope.spectrum(X, center=False)[: len(raw)], raw**2, rtol=1e-8)
    assert isoscope.anisotropy(X, 32).sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["lid_gauss_500x8", "lid_plane2_in_16_500"])
@pytest.mark.parametrize("k", [20, 100])
@pytest.mark.parametrize(("metric", "theirs"), [("euclidean", "l2"), ("cosine", "cos")])
def test_published_lid_is_half_the_textbook_one(vectors, name, k, metric, theirs):
    arrays, scalars = vectors("cai")
    value = isoscope.lid(arrays[name], k, metric=metric, convention="cai")
    assert value == pytest.approx(scalars["cases"][name][f"{theirs}_k{k}"]["mean"], abs=1e-4)
    unbiased = isoscope.lid(arrays[name], k, metric=metric)
    assert unbiased == pytest.approx(2 * value * (k - 2) / k, rel=1e-6)
    if (metric, k) == ("euclidean", 100):
        assert 2 * value == pytest.approx(scalars["cases"][name]["my_float64_plain_euclid_MLE_mean_k100"], abs=1e-4)


def test_inter_similarity_leaves_out_pairs_of_one_type(vectors):
    arrays, scalars = vectors("cai")
    y, types = arrays["y"], arrays["keys"]
    theirs = scalars["cases"]["inter_all_instances(maxl=1000)"]["value"]
    assert isoscope.mean_cosine(y) == pytest.approx(theirs, abs=1e-6)
    C = (y / np.linalg.norm(y, axis=1, keepdims=True)).astype(np.float64)
    different = types[:, None] != types[None, :]
    expected = (C @ C.T)[different].mean()
    assert isoscope.inter_similarity(y, types) == pytest.approx(expected, abs=tolerance(y.dtype))
    assert abs(expected - theirs) > 0.01
    drawn = arrays["inter_maxl1_y"]  # one instance a type: nothing to leave out
    one_each = scalars["cases"]["inter_one_instance_per_type(maxl=1, np.random.seed(0))"]["value"]
    assert isoscope.inter_similarity(drawn, np.arange(len(drawn))) == pytest.approx(one_each, abs=1e-6)


def test_average_over_types_is_what_the_draw_estimates(vectors):
    arrays, _ = vectors("cai")
    y, types = arrays["y"], arrays["keys"]
    draws = [float(isoscope.inter_similarity(y, types, per_type_cap=1, seed=seed)) for seed in range(200)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert isoscope.inter_similarity(y, types, average="types") == pytest.approx(np.mean(draws), abs=4 * error)
    assert np.std(draws) > 1e-4


def test_partition_isotropy_does_not_depend_on_signs(vectors, rng):
    arrays, scalars = vectors("rajaee")
    X, V = arrays["iso_gauss_1000x32"], arrays["iso_gauss_1000x32_eigvecs"]
    case = scalars["partition_isotropy"]["gauss_1000x32"]
    plus = log_partition(np, X, V, both=False)
    assert np.exp(plus.min() - plus.max()) == pytest.approx(case["code"], abs=1e-10)
    assert case["code"] != pytest.approx(case["same_formula_with_eigh_signs"], abs=1e-3)
    flipped = log_partition(np, X, V * rng.choice([-1, 1], 32), both=True)
    assert np.exp(flipped.min() - flipped.max()) == pytest.approx(case["plus_minus_both"], abs=1e-10)
    assert isoscope.partition_isotropy(X) == pytest.approx(case["plus_minus_both"], abs=1e-10)


def test_fewer_points_than_dimensions_stay_real(vectors):
    arrays, scalars = vectors("rajaee")
    case = scalars["partition_isotropy"]["n_lt_d_20x64"]
    assert case["complex"]
    assert isoscope.partition_isotropy(arrays["iso_n_lt_d_20x64"]) == pytest.approx(case["plus_minus_both"], abs=1e-10)


def test_long_vectors_do_not_overflow(vectors):
    arrays, scalars = vectors("rajaee")
    X = arrays["iso_big_norm_100x8"]
    assert scalars["partition_isotropy"]["big_norm_100x8(overflow)"]["code"] == 0
    # the definition, by an exponential that cannot overflow
    P = np.concatenate([X @ arrays["iso_big_norm_100x8_eigvecs"], -X @ arrays["iso_big_norm_100x8_eigvecs"]], axis=1)
    logs = np.logaddexp.reduce(P, axis=0)
    assert P.max() > 300
    assert isoscope.partition_isotropy(X, log=True) == pytest.approx(logs.min() - logs.max(), rel=1e-10)
    assert isoscope.partition_isotropy(10 * X, log=True) < -5000


@pytest.mark.parametrize("name", ["gauss_1000x32", "mean_shift_1000x32"])
def test_the_other_partition_score_is_wrong(vectors, name):
    arrays, scalars = vectors("rajaee")
    value = isoscope.partition_isotropy(arrays[f"iso_{name}"])
    assert value == pytest.approx(scalars["partition_isotropy"][name]["plus_minus_both"], abs=1e-10)
    assert scalars["isoscore_repo_partition_score(buggy)"][name] > value + 0.2


def test_the_sum_of_distances_is_not_the_cosine(rng):
    X = rng.standard_normal((200, 5))
    stretched = X * [3, 1, 1, 1, 1]
    assert isoscope.metrics.isotropy_objective(stretched) > isoscope.metrics.isotropy_objective(X)
    assert isoscope.metrics.isotropy_objective(stretched, cosine=True) < isoscope.metrics.isotropy_objective(
        X, cosine=True
    )
    variances = np.linalg.eigvalsh(np.cov(X.T))
    expected = variances.sum() / (np.sqrt(5) * np.linalg.norm(variances))
    assert isoscope.metrics.isotropy_objective(X, cosine=True) == pytest.approx(expected, rel=1e-12)


def test_the_angle_passes_a_quarter_pi(rng):
    line = rng.standard_normal((100, 1)) * np.eye(384)[:1] + 1e-6 * rng.standard_normal((100, 384))
    angle = np.arccos(float(isoscope.metrics.isotropy_objective(line, cosine=True)))
    assert angle == pytest.approx(np.arccos(1 / np.sqrt(384)), abs=1e-3)
    assert angle > np.pi / 4


def test_squares_do_not_keep_the_order_of_sums():
    labels = [0, 0, 1, 1]
    one, other = ([[float(x), 0.0] for x in line] for line in ((1, 4, 8, 2), (0, 5, 2, 2)))
    assert isoscope.metrics.triplet_objective(one, labels) > isoscope.metrics.triplet_objective(other, labels)
    assert isoscope.metrics.triplet_objective(one, labels, squared=False) < isoscope.metrics.triplet_objective(
        other, labels, squared=False
    )
