"""Sketches with groups of dependent rows."""

import numpy as np
import pytest

import isoscope
from isoscope import InputError, Sketch, sketch
from isoscope.sketching.group_blocks import GroupBlocks, hash_names, max_blocks


def texts(count, rng, d=6):
    text = np.repeat(np.arange(count), rng.integers(2, 9, count))
    return rng.standard_normal((count, d))[text] * [3, 2, 1, 1, 1, 0.5] + rng.standard_normal((len(text), d)), text


def assert_alike(a: Sketch, b: Sketch) -> None:
    """Check that two sets of blocks are equal up to rounding."""
    assert (a.groups.keys.tolist(), a.groups.bits) == (b.groups.keys.tolist(), b.groups.bits)
    assert a.groups.counts.tolist() == b.groups.counts.tolist()
    assert a.groups.groups == b.groups.groups
    for name in ("means", "scatters", "unit_sums", "unit_squares"):
        np.testing.assert_allclose(getattr(a.groups, name), getattr(b.groups, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [5, 12, 20])
def test_up_to_20_groups_equal_the_result_from_rows(count, rng):
    X, text = texts(count, rng)
    found = sketch(X + 100, groups=text)
    value, low, high = isoscope.isoscore_interval(X, groups=text)
    assert found.isoscore(unbiased=True) == pytest.approx(value, rel=1e-9)
    assert found.isoscore_interval() == pytest.approx((low, high), rel=1e-8)
    assert found.participation_ratio(unbiased=True) == pytest.approx(1 + 5 * value, rel=1e-9)
    assert found.isoscore() == pytest.approx(isoscope.isoscore(X), rel=1e-9)


@pytest.mark.parametrize("count", [5, 300])
def test_any_split_and_merge_order_equals_the_total(count, rng):
    X, text = texts(count, rng)
    whole = Sketch.of(X, groups=text)
    a, b, c = (Sketch.of(X[i::3], groups=text[i::3]) for i in range(3))  # each group is in several of them
    assert_alike((a + b) + c, whole)
    assert_alike(a + (b + c), whole)
    assert_alike(c + b + a, whole)
    assert whole.groups.groups == count
    assert len(whole.groups) == (5 if count == 5 else 16)


def test_many_groups_approximate_the_result_from_rows(rng):
    X, text = texts(400, rng)
    found = sketch(X, groups=[f"text {t}" for t in text])
    value, low, high = isoscope.isoscore_interval(X, groups=text)
    assert abs(found.isoscore(unbiased=True) - value) < (high - low) / 10
    ends = found.isoscore_interval()
    assert 0.5 < (ends[1] - ends[0]) / (high - low) < 2


def test_intervals_from_blocks_cover_the_truth():
    rng, truth, held, runs = np.random.default_rng(5), (9 / 4.5 - 1) / 2, 0, 120
    for _ in range(runs):
        text = np.repeat(np.arange(60), 4)
        X = (rng.standard_normal((60, 3))[text] + 0.5 * rng.standard_normal((240, 3))) * np.sqrt([2, 0.5, 0.5])
        low, high = Sketch.of(X, groups=text).isoscore_interval()
        held += low <= truth <= high
    assert held / runs > 0.89  # 95% less three standard errors


def test_sketch_without_groups_is_bit_identical(rng):
    X, text = texts(12, rng)
    plain, with_groups = sketch(X), sketch(X, groups=text)
    with_groups.groups = None
    assert with_groups == plain


def test_chunks_can_include_their_groups(rng):
    X, text = texts(30, rng)
    half = len(X) // 2
    assert_alike(sketch([(X[:half], None, text[:half]), (X[half:], None, text[half:])]), Sketch.of(X, groups=text))
    with pytest.raises(InputError, match="groups cannot be passed separately"):
        sketch([X], groups=text)


def test_nonfinite_rows_are_removed_from_their_group(rng):
    X, text = texts(10, rng)
    broken = np.concatenate([X, [[np.nan] * 6]])
    assert_alike(sketch(broken, groups=[*text, 3], missing="drop"), sketch(X, groups=text))


def test_saved_sketch_loads_and_ungrouped_one_uses_the_first_version(rng, tmp_path):
    from safetensors import safe_open

    X, text = texts(30, rng)
    for groups, version in ((text, 2), (None, 1)):
        found = sketch(X, groups=groups)
        found.save(tmp_path / "a.sketch")
        assert Sketch.load(tmp_path / "a.sketch") == found
        with safe_open(tmp_path / "a.sketch", framework="np") as file:
            assert f'"version": {version}' in file.metadata()["isoscope.sketch"]


def test_store_provides_its_groups(rng, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, text = texts(30, rng)
    pq.write_table(pa.table({"embedding": X.tolist(), "page": text}), tmp_path / "a.parquet")
    assert_alike(sketch(tmp_path / "a.parquet", groups="page"), Sketch.of(X, groups=text))


def test_group_name_hashes_differ_by_value_and_type():
    assert hash_names(np.asarray([3, 4]))[0] == hash_names(np.asarray([3.0]))[0]
    assert len(set(hash_names(np.asarray([3, 4])).tolist()) | set(hash_names(np.asarray(["3", "4"])).tolist())) == 4
    assert hash_names(np.asarray(["a"]))[0] == 16860193610431497119  # pinned: saved sketches must agree


def test_memory_bounds_the_number_of_blocks():
    assert [max_blocks(d) for d in (2, 768, 1024, 2048, 8192)] == [20, 20, 20, 8, 8]
    assert max_blocks(768, 13) == 8


def test_few_groups_and_missing_groups_raise(rng):
    X, text = texts(9, rng)
    with pytest.raises(InputError, match="has 3 groups: need at least 4"):
        sketch(X, groups=text % 3).isoscore(unbiased=True)
    with pytest.raises(InputError, match="has 4 groups: need at least 5"):
        sketch(X, groups=text % 4).isoscore_interval()
    with pytest.raises(InputError, match="has no groups"):
        sketch(X).isoscore_interval()
    with pytest.raises(InputError, match="one sketch has groups and the other has none"):
        sketch(X) + sketch(X, groups=text)
    assert isinstance(sketch(X, groups=text).groups, GroupBlocks)
