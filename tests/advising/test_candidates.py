"""Candidates are ordered from the simplest, without those that need more rows."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope import AllButTheTop, Center, Chain, ClusterCenter, ClusterNull, InputError, Standardize, Whiten
from isoscope.advising.candidates import AS_IS, build_candidates, count_learned_numbers, describe_repair


@pytest.mark.parametrize(("d", "n"), [(2, 20), (2, 4), (3, 1000), (16, 64), (384, 4000), (768, 60)])
def test_every_candidate_can_be_fitted_and_simplest_comes_first(d, n, rng):
    found = build_candidates(d, n, 0)
    numbers = [each.numbers for each in found]
    assert found[0].name == AS_IS
    assert numbers == sorted(numbers)
    assert len({each.name for each in found}) == len(found)
    if d <= 16:
        X = rng.standard_normal((n, d))
        for each in found:
            assert np.isfinite(each.repair.fit(X).transform(X)).all()


def test_learned_numbers_are_counted():
    assert [count_learned_numbers(repair, 10) for repair in (Chain(), Center(), Standardize(), AllButTheTop(2))] == [
        0,
        10,
        20,
        30,
    ]
    assert [count_learned_numbers(repair, 10) for repair in (Whiten(), Whiten("pca", 3), ClusterCenter(3))] == [
        110,
        40,
        30,
    ]
    assert count_learned_numbers(ClusterNull(3, 2), 10) == 90
    assert count_learned_numbers(AllButTheTop("auto"), 300) == 300 * 4
    assert count_learned_numbers(Chain([Whiten("pca", 3), Standardize()]), 10) == 40 + 6


def test_given_candidates_are_tried_with_the_original_vectors():
    found = build_candidates(8, 100, 0, iter([Whiten(), Center(), Chain()]))
    assert [each.name for each in found] == [AS_IS, "Center", "Whiten"]
    assert [each.name for each in build_candidates(8, 100, 0, [])] == [AS_IS]


def test_names_show_the_settings():
    repairs = [
        Whiten(shrinkage=None),
        Whiten("pca", 3, shrinkage=0.5),
        ClusterCenter("auto", clusterer="gmm"),
        Chain([Center(), Whiten()]),
    ]
    assert [describe_repair(repair) for repair in repairs] == [
        "Whiten(shrinkage=None)",
        "Whiten(pca, 3, shrinkage=0.5)",
        "ClusterCenter(auto, gmm)",
        "Center → Whiten",
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([Whiten], "a candidate is a type"),
        ("Whiten", "candidates is a str"),
        ([None], "a candidate is a NoneType"),
        ([Whiten("svd")], "method is 'svd'"),
        ([Chain([Center(), AllButTheTop(-1)])], "n_components is -1"),
    ],
)
def test_candidates_that_are_not_repairs_raise_an_error(given, words):
    with pytest.raises(InputError, match=words):
        build_candidates(8, 100, 0, given)


def test_single_repair_outside_a_list():
    with pytest.raises(InputError):
        build_candidates(8, 100, 0, Whiten())


def test_duplicate_candidate_names_raise_an_error():
    with pytest.raises(InputError, match="two candidates are both named ClusterCenter\\(3\\)"):
        build_candidates(8, 100, 0, [ClusterCenter(3, random_state=0), ClusterCenter(3, random_state=1)])
