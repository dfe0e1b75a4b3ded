"""What a cosine is worth: percentiles against every pair, and the same from a few quantiles."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import InputError
from isoscope.report.audit import Audit
from isoscope.report.similarity import Similarity

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
    assert found.percentile(cosine) == pytest.approx(100 * (cosines < cosine).mean(), abs=0.05)


@pytest.mark.parametrize("cosine", COSINES)
def test_quantiles_tell_nearly_the_same(found, cosines, cosine):
    # between two of the 109 quantiles it is a straight line
    assert found.similarity.percentile(cosine) == pytest.approx(100 * (cosines < cosine).mean(), abs=0.2)


def test_percentiles_among_nearest_neighbours(found, X):
    table = squareform(1 - pdist(X, "cosine"))
    np.fill_diagonal(table, -2)
    nearest = table.max(axis=1)
    for cosine in (0.8, 0.9, 0.95, 0.99):
        assert found.similarity.nearest_percentile(cosine) == pytest.approx(100 * (nearest < cosine).mean(), abs=1)


def test_json_keeps_the_percentiles(found, tmp_path):
    found.to_json(tmp_path / "a.json")
    again = Audit.from_json(tmp_path / "a.json")
    for cosine in COSINES:
        assert again.percentile(cosine) == pytest.approx(found.percentile(cosine), abs=0.2)
        assert again.similarity.nearest_percentile(cosine) == found.similarity.nearest_percentile(cosine)


# what must hold


def test_percentiles_rise_from_nothing_to_all(found):
    values = [found.percentile(cosine) for cosine in np.linspace(-1, 1, 101)]
    assert (np.diff(values) >= 0).all()
    assert (values[0], values[-1]) == (0, 100)
    quick = [found.similarity.percentile(cosine) for cosine in np.linspace(-1, 1, 101)]
    assert (np.diff(quick) >= 0).all()
    assert (quick[0], quick[-1]) == (0, 100)


def test_the_table_holds_round_cosines(found):
    rows = found.similarity.table()
    assert [cosine for cosine, _, _ in rows][:3] == [0.0, 0.1, 0.2]
    for cosine, pairs, nearest in rows:
        assert pairs == pytest.approx(found.percentile(cosine), abs=1e-9)
        assert nearest <= pairs  # the nearest neighbour is at least as near as a random row


def test_cosines_that_are_all_one_are_below_what_is_above():
    counts = np.zeros(1000, int)
    counts[700] = 5  # from 0.4 to 0.402
    found = Similarity.of(counts, None)
    assert found.percentile(0.3) == 0
    assert found.percentile(0.5) > 99.99
    assert found.percentile(0.401) == pytest.approx(50, abs=1)
    assert found.nearest_percentile(0.5) is None
    json.dumps({name: values.tolist() for name, values in found.to_dict().items()}, allow_nan=False)


def test_every_pair_is_below_a_cosine_above_them_all(rng):
    counts = np.bincount(rng.integers(400, 700, 5000), minlength=1000)
    assert Similarity.of(counts, None).percentile(0.5) == 100


# edges


@pytest.mark.parametrize("cosine", [-1.01, 1.5, float("nan"), "0.5", None])
def test_what_is_no_cosine_is_refused(found, cosine):
    with pytest.raises(InputError, match="cosine is"):
        found.percentile(cosine)


def test_without_neighbours_by_cosine_there_is_no_second_column(X):
    with threadpool_limits(1):
        found = isoscope.audit(X[:100], metric="euclidean")
    assert found.similarity.nearest_percentile(0.5) is None
    assert found.similarity.table()[0][2] is None
