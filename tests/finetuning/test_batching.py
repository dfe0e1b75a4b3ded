"""Batches of texts of like length: every row once, another order in each epoch, little padding."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

from isoscope.finetuning.train import LengthGroupedSampler

LENGTHS = np.random.default_rng(0).geometric(0.1, 1003) + 2


def padded(order, size):
    """Positions that a model reads, and tokens among them."""
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
