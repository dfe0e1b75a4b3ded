"""Candidates: sizes, order, names, and what is rejected."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope.compressing.candidates import AS_IS, build_candidates, describe_quantizer
from isoscope.errors import ParameterError


def build(d=64, itemsize=4, **options):
    return build_candidates(d, itemsize, "cosine", 0, **{"rows": 1000, "rescored": True, **options})


def test_sizes_are_those_of_fitted_quantizers(rng):
    X = rng.standard_normal((300, 64)).astype(np.float32)
    for each in build()[:-1]:
        quantizer = each.quantizer.fit(X)
        assert each.bytes == quantizer.code_size == quantizer.encode(X).shape[1]


def test_candidates_are_sorted_by_size_and_smaller_than_the_vectors():
    candidates = build()
    sizes = [each.bytes for each in candidates]
    assert sizes == sorted(sizes)
    assert candidates[-1].name == AS_IS
    assert candidates[-1].bytes == 256 > sizes[-2]
    assert len({each.name for each in candidates}) == len(candidates)
    assert 40 <= len(candidates) <= 80


def test_candidates_cover_dimensions_precisions_and_preprocessing():
    quantizers = [each.quantizer for each in build()[:-1]]
    assert {each.precision for each in quantizers} >= {"float16", "int8", "int4", "bit"}
    assert {each.scale for each in quantizers} == {"coordinate", "vector", "shared"}
    assert {each.preprocess for each in quantizers} == {None, "center", "rotate", "whiten"}
    assert {(each.reduction, each.n_components) for each in quantizers} >= {("first", 32), ("pca", 32), ("pca", 8)}


def test_whitening_is_left_out_for_euclidean_distance():
    candidates = build_candidates(64, 4, "euclidean", 0, rows=1000, rescored=True)
    assert {each.quantizer.preprocess for each in candidates[:-1]} == {None, "center", "rotate"}


def test_rescored_bits_share_codes_and_state_the_stored_vectors():
    by_name = {each.name: each for each in build()}
    plain, rescored = by_name["1 bit"], by_name["1 bit, rescored ×4"]
    assert rescored.quantizer is plain.quantizer
    assert (plain.bytes, plain.stored, plain.depth) == (8, 0, 10)
    assert (rescored.bytes, rescored.stored, rescored.depth) == (8, 256, 40)
    assert not any(each.oversampling for each in build(rescored=False))


def test_half_precision_sources_get_no_larger_candidates():
    assert all(each.bytes < 128 for each in build(itemsize=2)[:-1])
    assert any(each.name == "float32" for each in build(itemsize=8))


def test_dimensions_and_precisions_can_be_chosen():
    candidates = build(precisions=["int8"], dimensions=[16, 64])
    assert {each.quantizer.precision for each in candidates[:-1]} == {"int8"}
    assert {each.quantizer.n_components for each in candidates[:-1]} == {None, 16}


def test_names_differ_by_every_parameter():
    names = {
        describe_quantizer(isoscope.Quantizer("int4", scale=scale)) for scale in ("coordinate", "vector", "shared")
    }
    assert len(names) == 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dimensions": [65]}, r"65.*64"),
        ({"dimensions": [0]}, "0"),
        ({"precisions": ["int3"]}, "int3"),
        ({"precisions": []}, "empty"),
        ({"precisions": ["float32"], "dimensions": []}, "256 bytes"),
    ],
)
def test_bad_input(options, match):
    with pytest.raises(ParameterError, match=match):
        build(**options)


def test_product_quantization_is_tried():
    found = {each.name: each.bytes for each in build() if each.quantizer and each.quantizer.precision == "pq"}
    assert found == {"PQ 16": 16, "PQ 8": 8}
    assert not any(each.quantizer and each.quantizer.precision == "pq" for each in build(rows=255))
    assert len(build(rows=255, precisions=["pq"])) > 1


def test_product_quantization_by_name_is_also_tried_after_a_rotation():
    found = {each.name: each.bytes for each in build(precisions=["pq"])[:-1]}
    assert found == {"PQ 16": 16, "PQ 16, rotated": 16, "PQ 8": 8, "PQ 8, rotated": 8}
