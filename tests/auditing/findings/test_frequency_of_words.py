"""The finding on frequency: 0 for random data, and 1 if the first principal component is the frequency."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope.auditing.findings.frequency import replace_zeros
from tests.conftest import rotation

GLOVE = Path(__file__).parents[2].parent / "shared" / "data" / "glove6B_100d_wink"


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture
def cloud(rng):
    """Rows whose first component is the log frequency, with half of the variance of the first three components."""
    counts = np.exp(rng.standard_normal(1200) * 2)
    X = rng.standard_normal((1200, 12)) * np.asarray([1, 2**0.5 * 2, 2**0.5 * 2, *[1] * 9])
    X[:, 0] = 4 * (np.log(counts) - np.log(counts).mean()) / np.log(counts).std()
    return X, counts


def test_finding_is_the_share_of_top_directions_explained_by_frequency(cloud):
    X, counts = cloud
    found = isoscope.audit(X, frequency=counts)["frequency"]
    assert found.value == pytest.approx(0.5, abs=0.02)
    assert found.low < found.value < found.high
    assert found.verdict in ("look", "bad")
    np.testing.assert_allclose(found.details["directions"], [1, 0, 0], atol=0.02)
    assert found.details["of_all_variance"] == pytest.approx(16 / 41, abs=0.02)
    assert not found.details["from_rank"]


def test_units_rotation_and_row_order_do_not_matter(cloud, rng):
    X, counts = cloud
    value = isoscope.audit(X, frequency=counts)["frequency"].value
    order = rng.permutation(1200)
    turned = X @ rotation(12, rng)
    for Y, other in ((X, counts * 1000), (turned, counts), (3 * X + 5, counts), (X[order], counts[order])):
        assert isoscope.audit(Y, frequency=other)["frequency"].value == pytest.approx(value, rel=1e-6)


def test_shuffled_frequencies_explain_nothing(cloud, rng):
    X, counts = cloud
    found = [isoscope.audit(X[:500], frequency=rng.permutation(counts[:500]))["frequency"] for _ in range(5)]
    assert all(each.value < 0.02 and each.verdict == "ok" for each in found)
    assert abs(found[0].judged.null) < 0.01


def test_few_rows_are_not_flagged_by_chance(rng):
    values = [
        isoscope.audit(rng.standard_normal((20, 6)), frequency=rng.random(20) + 0.1)["frequency"].details
        for _ in range(30)
    ]
    assert np.mean([each["shuffled"] for each in values]) == pytest.approx(0, abs=0.03)


def test_zero_frequency_counts_as_half_of_the_minimum():
    np.testing.assert_array_equal(replace_zeros(np.asarray([0.0, 4, 2, 0])), [1, 4, 2, 1])
    np.testing.assert_array_equal(replace_zeros(np.zeros(2)), [1, 1])


def test_a_constant_frequency_is_reported(rng):
    found = isoscope.audit(rng.standard_normal((50, 4)), frequency=np.full(50, 7))
    assert "frequency" not in found
    assert found.skipped["frequency"] == "all rows have the frequency 7: need at least two distinct frequencies"


def test_default_frequency_of_word_vectors_is_the_inverse_rank(tmp_path, rng):
    X = rng.standard_normal((300, 6))
    X[:, 0] += 5 * np.log(np.arange(1, 301))
    path = tmp_path / "words.txt"
    path.write_text("".join(f"w{i} " + " ".join(f"{v:.5f}" for v in row) + "\n" for i, row in enumerate(X)))
    found = isoscope.audit(path)
    assert found["frequency"].value > 0.5
    assert "1/rank" in found["frequency"].meaning
    np.testing.assert_allclose(found.pictures.frequency, 1 / (found.pictures.rows + 1))


def test_first_direction_of_glove_correlates_with_frequency(tmp_path):
    files = sorted(GLOVE.glob("*.txt.gz")) if GLOVE.is_dir() else []
    if not files:
        pytest.skip("the GloVe vectors are not beside the repository")
    with gzip.open(files[0], "rt", encoding="utf-8") as file:
        lines = list(file)[::8]
    (tmp_path / "glove.txt").write_text("".join(lines), encoding="utf-8")
    found = isoscope.audit(tmp_path / "glove.txt", sample=2000)["frequency"]
    assert found.verdict == "look"
    assert found.details["directions"][0] > 0.5


def test_frequency_advice_keeps_the_labels():
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((400, 16)), np.arange(400) % 2
    frequency = np.exp(2 * labels + 0.1 * rng.standard_normal(400))  # one label is frequent
    rows[:, 0] += 6 * labels
    free, bound = isoscope.audit(rows, frequency=frequency), isoscope.audit(rows, frequency=frequency, labels=labels)
    assert free["frequency"].verdict == bound["frequency"].verdict != "ok"
    assert "all-but-the-top" in free["frequency"].advice
    assert "if `isoscope advise` confirms it" in free["frequency"].advice
    assert "Do not remove the leading principal components" in bound["label_conflict"].advice
    assert "isoscope fix" not in bound["frequency"].advice
