"""Groups measured in the same passes have results bit-identical to those of separate stores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from isoscope import InputError
from isoscope.auditing import by_group, passes
from isoscope.auditing.by_group import GroupTally, measure_groups, split_by_group
from isoscope.auditing.grouping import Grouping, group_rows
from isoscope.auditing.measure import Settings, measure
from isoscope.engines.engine import LocalEngine, SketchTally
from isoscope.sketching.sketch import Sketch
from isoscope.stores.open import open_store


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def silent(*_):
    pass


def same(a, b):
    """Return whether two results contain bit-identical numbers."""
    if dataclasses.is_dataclass(a) and not isinstance(a, Sketch):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.fixture
def X(rng):
    return (rng.standard_normal((1500, 8)) / np.sqrt(np.arange(1, 9)) + 0.4).astype(np.float32)


def cuts(groups, rng):
    """Orders of grouped rows: one group after the other, mixed, and mixed with unequal sizes."""
    n = 1500
    return {
        "contiguous": np.arange(n) * groups // n,
        "mixed": rng.integers(0, groups, n),
        "uneven": np.minimum(rng.geometric(0.5, n) - 1, groups - 1),
    }


@pytest.mark.parametrize("sample", [200, 5000])
@pytest.mark.parametrize("how", ["contiguous", "mixed", "uneven"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_each_group_is_identical_to_a_separate_store(X, rng, monkeypatch, sample, how, metric):
    codes = cuts(3, rng)[how]
    monkeypatch.setattr(by_group, "default_rows", lambda d: 170)  # so that groups are cut into several batches
    monkeypatch.setattr("isoscope.stores.store.default_rows", lambda d: 170)
    columns = {"labels": rng.integers(0, 3, 1500), "types": rng.integers(0, 90, 1500), "frequency": rng.random(1500)}
    settings = Settings(sample=sample, metric=metric)
    found = measure_groups(
        open_store(X, **columns), group_rows(codes), "cut", settings=settings, progress=silent, engine=LocalEngine()
    )
    assert list(found.groups) == ["0", "1", "2"]
    for code, (name, group) in enumerate(found.groups.items()):
        own = codes == code
        store = open_store(X[own], **{role: values[own] for role, values in columns.items()})
        alone = measure(store, queries=None, settings=settings, progress=silent, engine=LocalEngine())
        assert group.name == f"array, cut {name}"
        assert same(dataclasses.replace(group, name=alone.name), alone)


def test_nonfinite_rows_keep_their_numbers(X, rng):
    codes = rng.integers(0, 2, 1500)
    X[::50] = np.nan
    settings = Settings(sample=200, missing="drop")
    found = measure_groups(
        open_store(X), group_rows(codes), "cut", settings=settings, progress=silent, engine=LocalEngine()
    )
    alone = measure(open_store(X[codes == 1]), queries=None, settings=settings, progress=silent, engine=LocalEngine())
    assert same(dataclasses.replace(found.groups["1"], name="array"), alone)
    with pytest.raises(InputError, match=r"array, cut [01]: .*NaN"):
        measure_groups(
            open_store(X), group_rows(codes), "cut", settings=Settings(), progress=silent, engine=LocalEngine()
        )


def test_store_is_read_twice_or_once_if_it_fits_the_samples(X, rng):
    codes = rng.integers(0, 3, 1500)
    for sample, expected in ((200, 2), (1000, 1)):
        store, reads = open_store(X, types=codes), []
        plain = store.batches
        store.batches = lambda columns=(), plain=plain, reads=reads: (reads.append(tuple(columns)), plain(columns))[1]
        measure_groups(
            store, group_rows(codes), "cut", settings=Settings(sample=sample), progress=silent, engine=LocalEngine()
        )
        assert len(reads) == expected
        assert reads[0] == ("types",)
        assert not any(reads[1:])


# how batches are parted


@pytest.mark.parametrize("rows", [1, 7, 64, 5000])
@pytest.mark.parametrize("read", [5, 64, 333])
def test_batches_of_a_group_equal_those_of_a_separate_store(X, rng, rows, read):
    codes = cuts(4, rng)["mixed"].astype(np.int16)
    codes[codes == 2] = -1
    counts = np.bincount(codes[codes >= 0], minlength=4)
    counts[1] = 0  # nobody asks for it
    store = open_store(X, text=[str(i) for i in range(1500)])
    got = {}
    for code, batch in split_by_group(store.batches(["text"], rows=read), codes, counts, rows):
        got.setdefault(code, []).append(batch)
    assert sorted(got) == [0, 3]
    for code, batches in got.items():
        alone = list(open_store(X[codes == code]).batches(rows=rows))
        assert [(b.start, len(b.vectors)) for b in batches] == [(b.start, len(b.vectors)) for b in alone]
        np.testing.assert_array_equal(np.concatenate([b.vectors for b in batches]), X[codes == code])
        texts = np.concatenate([b.columns["text"] for b in batches])
        assert texts.tolist() == [str(i) for i in np.flatnonzero(codes == code)]


def test_a_batch_of_one_group_is_not_copied(X):
    store = open_store(X)
    batches = list(store.batches(rows=500))
    found = [batch for _, batch in split_by_group(batches, np.zeros(1500, np.int16), np.asarray([1500]), 500)]
    assert all(np.shares_memory(a.vectors, b.vectors) for a, b in zip(found, batches, strict=True))


# bounds


def test_many_groups_have_smaller_samples(X, rng, monkeypatch):
    monkeypatch.setattr(by_group, "_MIN_SAMPLE", 100)
    monkeypatch.setattr(by_group, "_SAMPLE_BYTES", 3 * 8 * 4 * 150)
    found = measure_groups(
        open_store(X),
        group_rows(rng.integers(0, 3, 1500)),
        "cut",
        settings=Settings(),
        progress=silent,
        engine=LocalEngine(),
    )
    assert found.settings.sample == 150
    assert all(len(group.sample) == 150 and group.settings.sample == 150 for group in found.groups.values())


def test_the_memory_limit_for_types_covers_all_groups(X, monkeypatch):
    monkeypatch.setattr(passes, "_TYPE_BYTES", 600 * 8 * 16)
    monkeypatch.setattr(by_group, "default_rows", lambda d: 100)
    monkeypatch.setattr("isoscope.stores.store.default_rows", lambda d: 60)  # else one group is done before the next
    codes, types = np.arange(1500) % 3, np.arange(1500)
    types[codes == 0] %= 30  # ten types in one group, five hundred in each of the others
    found = measure_groups(
        open_store(X, types=types), group_rows(codes), "cut", settings=Settings(), progress=silent, engine=LocalEngine()
    )
    given_up = [group.n_dropped_types for group in found.groups.values()]
    assert given_up[0] == 0
    assert sum(number > 0 for number in given_up) == 1  # one of the two makes room for the other


# what cannot be measured


def test_a_group_that_cannot_be_measured_is_skipped_with_the_reason(X):
    codes = np.zeros(1500, np.int64)
    codes[:3], codes[3:9] = 1, 2
    X[3:9] = 0
    found = measure_groups(
        open_store(X), group_rows(codes), "cut", settings=Settings(sample=100), progress=silent, engine=LocalEngine()
    )
    assert list(found.groups) == ["0"]
    assert list(found.skipped) == ["1", "2"]
    assert "array, cut 1 has 3 vectors with 8 dimensions: an audit needs at least 4" in found.skipped["1"]
    assert "6 of 6 vectors in array, cut 2 are zero" in found.skipped["2"]


def test_shares_do_not_depend_on_the_order_of_requests():
    codes = np.random.default_rng(0).integers(-1, 3, 1000)
    grouping = Grouping(["a", "b", "c"], ["a", "b", "c"], codes, False)
    for firsts in ([0, 300, 700], [700, 0, 300], [300, 300, 0]):
        tally = GroupTally({0: SketchTally(), 2: SketchTally()}, ["a", "b", "c"], grouping, 100)
        for first in firsts:
            own, at, before = tally.share(first, 300)
            assert at == first
            np.testing.assert_array_equal(own, codes[first : first + 300])
            assert before.tolist() == [int((codes[:first] == code).sum()) for code in range(3)]
