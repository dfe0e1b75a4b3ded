"""Batches of texts of similar length or of few classes: each row once, in a different order in each epoch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

from isoscope.finetuning.samplers import ClassGroupedSampler, LengthGroupedSampler

LENGTHS = np.random.default_rng(0).geometric(0.1, 1003) + 2


def padded(order, size):
    """Return the number of positions that a model reads, and the number of tokens among them."""
    batches = [LENGTHS[order[start : start + size]] for start in range(0, len(order), size)]
    return sum(len(each) * each.max() for each in batches), LENGTHS.sum()


@pytest.mark.parametrize("size", [1, 16, 32, 1003, 2000])
def test_each_row_is_read_once_and_the_smallest_batch_is_last(size):
    order = np.array(list(LengthGroupedSampler(LENGTHS, size, seed=3)))
    assert sorted(order) == list(range(1003))
    assert len(LengthGroupedSampler(LENGTHS, size, seed=3)) == 1003


def test_order_depends_on_seed_and_epoch():
    sampler, same, other = (
        LengthGroupedSampler(LENGTHS, 16, 0),
        LengthGroupedSampler(LENGTHS, 16, 0),
        LengthGroupedSampler(LENGTHS, 16, 1),
    )
    first = list(sampler)
    assert first == list(sampler) == list(same) != list(other)
    sampler.set_epoch(1)
    same.set_epoch(1)
    assert list(sampler) == list(same) != first
    batches = {frozenset(first[start : start + 16]) for start in range(0, 992, 16)}
    again = list(sampler)
    assert not batches & {frozenset(again[start : start + 16]) for start in range(0, 992, 16)}


def test_length_sorting_reduces_padding_to_a_tenth():
    random = np.random.default_rng(1).permutation(1003)
    read, tokens = padded(random, 32)
    assert read > 2 * tokens
    read, tokens = padded(np.array(list(LengthGroupedSampler(LENGTHS, 32, seed=0))), 32)
    assert read < 1.2 * tokens


# batches with several rows of each class


def used_share(order, labels, size, least=3):
    """The share of rows whose class has at least `least` rows in the batch."""
    used = 0
    for start in range(0, len(order), size):
        counts = np.unique(labels[order[start : start + size]], return_counts=True)[1]
        used += counts[counts >= least].sum()
    return used / len(order)


@pytest.mark.parametrize(("classes", "rows", "size"), [(77, 5000, 32), (77, 1000, 30), (150, 3000, 16), (2, 500, 64)])
def test_each_class_of_a_batch_has_several_rows(classes, rows, size):
    labels = np.random.default_rng(0).integers(classes, size=rows)
    order = np.array(list(ClassGroupedSampler(labels.tolist(), size, seed=0)))
    assert sorted(order) == list(range(rows))
    assert used_share(order, labels, size) > 0.97
    if classes > 2:
        assert used_share(np.random.default_rng(1).permutation(rows), labels, size) < 0.1


def test_class_groups_depend_on_seed_and_epoch():
    labels = (np.arange(200) % 20).tolist()
    sampler, same, other = (ClassGroupedSampler(labels, 16, seed) for seed in (0, 0, 1))
    first = list(sampler)
    assert first == list(sampler) == list(same) != list(other)
    sampler.set_epoch(1)
    assert list(sampler) != first


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 0, 1, 1, 1], list(range(9))])
def test_few_rows_and_single_rows_of_a_class_are_kept(labels):
    assert sorted(ClassGroupedSampler(labels, 4, seed=0)) == list(range(len(labels)))
