"""Audits of collapsed spaces, in which all rows are equal or lie on a line or a plane."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("shape", [(60, 200), (200, 12), (4, 3)], ids=str)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_collapsed_space_is_audited(rng, tmp_path, rank, shape, metric):
    n, d = shape
    X = np.broadcast_to(rng.standard_normal(d) + rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)), shape)
    found = isoscope.audit(X.astype(np.float32), metric=metric)
    found.to_html(tmp_path / "page.html")
    assert found.verdict != "ok"
    assert str(found)


@pytest.mark.parametrize("shape", [(60, 200), (200, 12)], ids=str)
def test_equal_rows_get_no_advice_to_repair_them(rng, shape):
    found = isoscope.audit(np.tile(rng.standard_normal(shape[1]).astype(np.float32), (shape[0], 1)))
    assert found["mean_cosine"].value == pytest.approx(1)
    for name in ("mean_cosine", "anisotropy", "partition_isotropy"):
        assert "All vectors are equal" in found[name].advice
    assert "isoscore" in found.skipped


def test_dead_layers_do_not_stop_a_grouped_audit(rng, tmp_path):
    X = rng.standard_normal((300, 40)).astype(np.float32)
    layer = np.repeat([0, 1, 2], 100)
    X[layer == 1] = X[100]  # collapsed
    X[layer == 2] = 0  # dead
    found = isoscope.audit(X, by=layer)
    assert found["0"].n == found["1"].n == 100
    assert found["1"].verdict == "bad"
    with pytest.raises(KeyError, match="zero"):
        found["2"]
    found.to_html(tmp_path / "page.html")
    assert "100 of 100" in str(found)
