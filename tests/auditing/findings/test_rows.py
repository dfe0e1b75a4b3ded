"""Findings on rows: near-duplicates are reported by row number, and the lists of the metrics are judged."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
import pyarrow as pa
import pytest
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

import isoscope


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def ball(n=400, d=32, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) / np.sqrt(d)


def with_noisy_copies(n, noise, dtype="float64", seed=0):
    """Rows whose first fifth copies the second fifth with relative noise."""
    rng, k = np.random.default_rng(seed), n // 5
    X = ball(n, seed=seed)
    X[:k] = X[k : 2 * k] * (1 + noise * rng.standard_normal((k, X.shape[1])))
    return X.astype(dtype)


# near-duplicates


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("noise", [1e-4, 1e-2])
def test_near_duplicates_are_counted_and_listed(noise, metric, dtype):
    found = isoscope.audit(with_noisy_copies(400, noise, dtype), metric=metric)["near_duplicates"]
    assert (found.verdict, found.value, found.interval) == ("bad", 0.4, "")
    assert (found.details["rows"], found.details["pairs"], found.details["exact"]) == (160, 80, True)
    assert all(b - a == 80 for a, b in found.details["closest_rows"])
    assert len(found.details["closest_rows"]) == len(found.details["closest_distances"]) == 20
    first, second = found.details["closest_rows"][0]
    assert f"rows {first} and {second}" in found.meaning


def test_estimate_beyond_the_sample_has_interval_covering_the_truth():
    shares = []
    for seed in range(8):
        found = isoscope.audit(with_noisy_copies(2000, 1e-4, seed=seed), sample=300, seed=seed)["near_duplicates"]
        assert found.sampled
        assert not found.details["exact"]
        assert found.details["rows"] == pytest.approx(found.value * 2000)
        assert found.details["pairs"] == pytest.approx(found.details["rows"] / 2)
        assert "About " in found.meaning
        assert all(b - a == 400 for a, b in found.details["closest_rows"])
        shares.append((found.low, found.value, found.high))
    low, value, high = np.transpose(shares)
    assert ((low <= 0.4) & (high >= 0.4)).sum() >= 7
    assert value.mean() == pytest.approx(0.4, abs=0.04)


def test_exact_copies_are_not_near_duplicates():
    for sample in (20_000, 150):
        found = isoscope.audit(with_noisy_copies(400, 0.0).astype("float32"), sample=sample)
        assert found["duplicates"].value == 0.2
        assert (found["near_duplicates"].value, found["near_duplicates"].verdict) == (0, "ok")


def test_copies_of_token_types_are_expected_in_an_embedding_layer():
    generator = np.random.default_rng(0)
    types = np.arange(300) % 60
    table = generator.standard_normal((60, 16)).astype(np.float32)
    found = isoscope.audit(table[types], types=types)["duplicates"]
    assert (found.value, found.verdict, found.details["copies_of_types"]) == (0, "ok", 240)
    assert "240 copies are expected" in found.meaning
    table[1] = table[0]  # two types with the same vector
    found = isoscope.audit(table[types], types=types)["duplicates"]
    assert found.details["copies"] - found.details["copies_of_types"] == 1
    contextual = table[types] + 0.1 * generator.standard_normal((300, 16)).astype(np.float32)
    contextual[:60] = contextual[60:120]  # copies in a layer in which tokens of a type differ
    found = isoscope.audit(contextual, types=types)["duplicates"]
    assert (found.value, found.verdict, found.details["copies_of_types"]) == (0.2, "bad", 0)


def test_copies_of_tokens_at_the_same_position_are_expected_in_layer_0():
    generator = np.random.default_rng(0)
    types, position = np.arange(300) % 60, np.arange(300) // 120
    first = generator.standard_normal((60, 16))[types] + 0.1 * generator.standard_normal((3, 16))[position]
    second = np.repeat(generator.standard_normal((150, 16)), 2, axis=0)
    columns = {
        "embedding": [*first.astype(np.float32), *second.astype(np.float32)],
        "token": [f"token {each}" for each in np.tile(types, 2)],
        "layer": np.repeat([0, 1], 300),
    }
    source = pa.table(columns)
    found = isoscope.audit(source, types="token", by="layer")
    copies = found["0"]["duplicates"]
    assert (copies.value, copies.verdict, copies.details["copies_of_types"]) == (0, "ok", 120)
    assert "120 copies are expected" in copies.meaning
    assert (found["1"]["duplicates"].value, found["1"]["duplicates"].verdict) == (0.5, "bad")
    alone = isoscope.audit(source.drop_columns("token"), by="layer")["0"]["duplicates"]
    assert (alone.value, alone.verdict) == (0.4, "bad")


def test_a_space_without_near_duplicates_is_ok():
    found = isoscope.audit(ball())["near_duplicates"]
    assert (found.verdict, found.value, found.meaning) == ("ok", 0, "No row nearly repeats another.")


# the lists of three metrics


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_lowest_agreement_with_the_audit_metric_is_judged(metric):
    found = isoscope.audit(ball(), metric=metric)["norm_spread"]
    overlaps = found.details["overlaps"]
    own = [share for names, share in overlaps.items() if metric in names]
    assert (len(overlaps), len(own)) == (3, 2)
    assert found.value == min(own)
    assert found.interval == ""
    X = ball()
    assert found.details["spread"] == pytest.approx(np.linalg.norm(X, axis=1).std() / np.linalg.norm(X, axis=1).mean())


def test_varying_lengths_are_look_and_unit_lengths_are_ok():
    X = ball()
    X[::2] *= 4
    found = isoscope.audit(X)["norm_spread"]
    assert found.verdict == "look"
    assert "The choice of metric changes the results" in found.meaning
    found = isoscope.audit(X / np.linalg.norm(X, axis=1, keepdims=True))["norm_spread"]
    assert (found.verdict, found.value) == ("ok", 1)
    assert "hardly matters" in found.meaning


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("n", "d"), [(400, 32), (1000, 128), (60, 4)])
def test_random_data_of_the_report_has_the_overlap_of_gaussian_data(n, d, metric):
    found = [isoscope.audit(ball(n, d, seed), metric=metric)["norm_spread"] for seed in range(8)]
    assert found[0].judged.null == pytest.approx(np.mean([each.value for each in found]), abs=0.03)


def test_metrics_that_differ_as_in_gaussian_data_are_not_the_headline():
    plain = isoscope.audit(ball())
    assert [cause.name for cause in plain.causes] == ["norm_spread"]
    assert plain.headline == (
        "Nothing stands out: two random rows have a cosine near 0.00, and the choice of metric matters no more than in "
        "random data."
    )
    assert "In Gaussian data of the same size, " in plain["norm_spread"].meaning
    longer = ball()
    longer[::2] *= 4
    found = isoscope.audit(longer)
    assert found["norm_spread"].value < 0.9 * found["norm_spread"].judged.null
    assert found.headline.startswith("The choice of metric changes the results: of the top 10, only ")


def test_cosine_and_inner_product_differ_in_the_demo():
    with as_file(files("isoscope") / "demo" / "glosses-layer5.parquet") as path:
        found = isoscope.audit(path)["norm_spread"]
        X = isoscope.open_store(path).take(range(1750)).astype(np.float64)
    by_cosine = NearestNeighbors(n_neighbors=11, metric="cosine").fit(X).kneighbors(X, return_distance=False)[:, 1:]
    products = X @ X.T
    np.fill_diagonal(products, -np.inf)
    by_product = np.argsort(-products, axis=1)[:, :10]
    shared = np.mean([len({*a} & {*b}) / 10 for a, b in zip(by_cosine, by_product, strict=True)])
    assert found.details["overlaps"]["cosine_inner_product"] == pytest.approx(shared, abs=1e-4)
    assert found.shown == "36.5%"
    assert found.verdict == "look"
    assert "agree" not in found.meaning
