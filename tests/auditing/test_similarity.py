"""Percentiles of a cosine: against all pairs, and from a few quantiles."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import InputError
from isoscope._core.cosine_histogram import CosineCounter
from isoscope._core.pairs import nearest_neighbors
from isoscope._report import audit_charts
from isoscope.auditing.audit import Audit
from isoscope.auditing.finding import format_percentage
from isoscope.auditing.similarity import Similarity
from isoscope.cli.main import main

COSINES = [-0.8, -0.2, 0.0, 0.13, 0.3, 0.5, 0.77, 0.9, 0.97]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    return rng.standard_normal((400, 6)) + 0.6


@pytest.fixture(scope="module")
def cosines(X):
    return 1 - pdist(X, "cosine")


@pytest.fixture(scope="module")
def found(X):
    with threadpool_limits(1):
        return isoscope.audit(X)


# outside oracle


@pytest.mark.parametrize("cosine", COSINES)
def test_a_percentile_is_the_share_of_pairs_below(found, cosines, cosine):
    assert found.percentile(cosine) == pytest.approx(100 * (cosines < cosine).mean(), abs=1e-3)


@pytest.mark.parametrize("cosine", COSINES)
def test_quantiles_approximate_the_percentiles(found, cosines, cosine):
    # between two of the 109 quantiles it is a straight line
    assert found.similarity.percentile(cosine) == pytest.approx(100 * (cosines < cosine).mean(), abs=0.2)


def test_percentiles_among_nearest_neighbors(found, X):
    table = squareform(1 - pdist(X, "cosine"))
    np.fill_diagonal(table, -2)
    nearest = table.max(axis=1)
    for cosine in (0.8, 0.9, 0.95, 0.99):
        assert found.similarity.nearest_percentile(cosine) == pytest.approx(100 * (nearest < cosine).mean(), abs=1)


def test_json_keeps_the_percentiles(found, tmp_path):
    found.to_json(tmp_path / "a.json")
    again = Audit.from_json(tmp_path / "a.json")
    for cosine in COSINES:
        assert again.percentile(cosine) == found.percentile(cosine)
        assert again.similarity.nearest_percentile(cosine) == found.similarity.nearest_percentile(cosine)


# one number in every place


def spelled(value):
    return format_percentage(value).replace("> ", "more than ").replace("< ", "less than ")


@pytest.mark.parametrize("sample", [20_000, 150])
def test_command_audit_and_json_agree(X, sample, tmp_path, capsys):
    path = tmp_path / "x.npy"
    np.save(path, X)
    found = isoscope.audit(path, sample=sample)
    found.to_json(tmp_path / "a.json")
    again = Audit.from_json(tmp_path / "a.json")
    text = " ".join(str(found).split())
    for cosine, pairs, nearest in found.similarity.table():
        assert main(["similarity", str(path), f"{cosine}", "--sample", f"{sample}"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"is above {spelled(pairs)} of the pairs" in said
        assert f"; for {spelled(nearest)} of the rows, even the nearest neighbor" in said
        assert f"{cosine:.2f} {format_percentage(pairs)} {format_percentage(nearest)}" in text
    for cosine in (-0.8, 0.13, 0.5, 0.8, 0.805, 0.9173, 0.97):
        assert main(["similarity", str(path), "--sample", f"{sample}", "--", f"{cosine}"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        values = found.percentile(cosine), found.similarity.nearest_percentile(cosine)
        assert f"is above {spelled(values[0])} of the pairs" in said
        assert f"; for {spelled(values[1])} of the rows, even the nearest neighbor" in said
        assert (again.percentile(cosine), again.similarity.nearest_percentile(cosine)) == values


def test_the_command_samples_with_seed_0(X, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", X)
    shown = []
    for seed in ([], ["--seed", "0"], ["--seed", "1"]):
        assert main(["similarity", str(tmp_path / "rows.npy"), "0.123", "--sample", "100", *seed]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_a_cosine_with_two_decimals_is_counted(found, cosines, X):
    table = squareform(1 - pdist(X, "cosine"))
    np.fill_diagonal(table, -2)
    nearest = table.max(axis=1)
    for cosine in np.arange(-100, 101, 7) / 100:
        assert found.percentile(cosine) == pytest.approx(100 * (cosines < cosine).mean(), abs=1e-3)
        exact = 100 * (nearest < cosine).mean()
        assert found.similarity.nearest_percentile(cosine) == pytest.approx(exact, abs=1e-9)


def test_mean_cosine_of_finding_equals_that_of_the_chart():
    # skewed cosines in few rows: 200 bins of a sample have another mean
    rng = np.random.default_rng(5)
    X = np.abs(rng.standard_normal((3000, 3))) ** 3
    with threadpool_limits(1):
        found = isoscope.audit(X, sample=150)
    shown = found["mean_cosine"].shown
    chart = audit_charts.cosine_chart(found.pictures, [found.pictures])
    assert f"have a cosine of {shown} on average" in chart.description
    assert f">mean {shown}<" in str(chart.to_svg())
    line = next(
        each for each in found.plot_cosines(Figure().add_subplot()).lines if each.get_label() == "mean of pairs"
    )
    assert line.get_xdata()[0] == found["mean_cosine"].value


# what must hold


def test_percentiles_increase_from_0_to_100(found):
    values = [found.percentile(cosine) for cosine in np.linspace(-1, 1, 101)]
    assert (np.diff(values) >= 0).all()
    assert (values[0], values[-1]) == (0, 100)
    quick = [found.similarity.percentile(cosine) for cosine in np.linspace(-1, 1, 101)]
    assert (np.diff(quick) >= 0).all()
    assert (quick[0], quick[-1]) == (0, 100)


def test_table_contains_round_cosines(found):
    rows = found.similarity.table()
    assert [cosine for cosine, _, _ in rows][:3] == [0.0, 0.1, 0.2]
    for cosine, pairs, nearest in rows:
        assert pairs == pytest.approx(found.percentile(cosine), abs=1e-9)
        assert nearest <= pairs  # the nearest neighbor is at least as near as a random row


def test_percentiles_of_constant_cosines():
    counter = CosineCounter()
    nearest_neighbors(np.eye(5), 1, cosines=counter)  # all cosines are 0
    found = Similarity.of(counter.histogram(), None)
    assert found.percentile(-0.1) == found.percentile(0) == 0
    assert found.percentile(0.01) == 100
    assert found.nearest_percentile(0.5) is None
    json.dumps({name: values.tolist() for name, values in found.to_dict().items()}, allow_nan=False)


def test_cosine_above_all_pairs_has_percentile_100():
    angles = np.linspace(0.5, 1.5, 50)
    counter = CosineCounter()
    nearest_neighbors(np.column_stack([np.cos(angles), np.sin(angles)]), 1, cosines=counter)
    found = Similarity.of(counter.histogram(), None)
    assert found.percentile(0.9999) == 100
    assert found.percentile(0.5) == 0


@pytest.mark.parametrize("spread", [0.03, 0.002])
def test_percentiles_in_a_narrow_space(rng, tmp_path, capsys, spread):
    X = (rng.standard_normal((1500, 48)) * spread + rng.standard_normal(48)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    cosines = 1 - pdist(X.astype(np.float64), "cosine")
    found = isoscope.audit(X)
    for share in (0.1, 0.4974, 0.5444, 0.9):
        cosine = float(np.quantile(cosines, share))
        assert found.percentile(cosine) == pytest.approx(100 * share, abs=0.02)
        assert main(["similarity", str(tmp_path / "x.npy"), f"{cosine}"]) == 0
        assert f"is above {format_percentage(100 * share)[:4]}" in capsys.readouterr().out


# edges


@pytest.mark.parametrize("cosine", [-1.01, 1.5, float("nan"), "0.5", None])
def test_invalid_cosines_raise_an_error(found, cosine):
    with pytest.raises(InputError, match="cosine is"):
        found.percentile(cosine)


def test_second_column_is_empty_without_cosine_neighbors(X):
    with threadpool_limits(1):
        found = isoscope.audit(X[:100], metric="euclidean")
    assert found.similarity.nearest_percentile(0.5) is None
    assert found.similarity.table()[0][2] is None
