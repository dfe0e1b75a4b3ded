import itertools
import math
import re

import numpy as np
import pytest

from isoscope._report.narrate import (
    are_disjoint,
    describe_groups,
    describe_series,
    format_group_name,
    has_numeric_groups,
    plural_group_noun,
)
from tests.report.groupeds import layered, named, told

NAN = math.nan


def said(values, spread=0.001, **how):
    grouped = told(values, spread, **how)
    return describe_series("It", grouped.series("mean_cosine"), grouped, how.get("form", "number"))


# what holds of every sentence


@pytest.mark.parametrize("seed", range(40))
def test_every_number_and_claim_is_correct(seed):
    generator = np.random.default_rng(seed)
    values = generator.choice([0.1, 0.11, 0.5, 0.9, 0.3], generator.integers(2, 9)) + generator.choice([0, 0.0001])
    spread = generator.choice([0.0001, 0.02, 0.5])
    text = said(values.tolist(), spread)
    for number, layer in re.findall(r"(\d\.\d{3}) in layer (\d)", text):
        assert f"{values[int(layer)]:.3f}" == number
    for word, layer in re.findall(r"(highest|lowest) in layer (\d)", text):
        end = values.max() if word == "highest" else values.min()
        assert f"{values[int(layer)]:.3f}" == f"{end:.3f}"
    if "no clear difference" in text:
        assert values.max() - values.min() <= 2 * spread
    elif text.split()[1] != "is":
        turns = [int(layer) for layer in re.findall(r"in layer (\d)", text)]
        for verb, (a, b) in zip(re.findall("rises|falls", text), itertools.pairwise(turns), strict=True):
            assert abs(values[b] - values[a]) > 2 * spread, "what rises does so beyond its interval"
            steps = np.diff(values[a : b + 1])
            assert (steps >= 0).all() if verb == "rises" else (steps <= 0).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.12, 0.3, 0.61], "It rises from 0.120 in layer 0 to 0.610 in layer 2."),
        ([0.61, 0.3, 0.12], "It falls from 0.610 in layer 0 to 0.120 in layer 2."),
        (
            [0.12, 0.4, 0.61, 0.02],
            "It rises from 0.120 in layer 0 to 0.610 in layer 2 and falls to 0.020 in layer 3.",
        ),
        (
            [0.3, 0.1, 0.6, 0.2],
            "It falls from 0.300 in layer 0 to 0.100 in layer 1, rises to 0.600 in layer 2 and falls to 0.200 in "
            "layer 3.",
        ),
        (
            [0.3, 0.4, 0.35, 0.6, 0.1, 0.2],
            "It is 0.300 in layer 0, highest in layer 3 (0.600), lowest in layer 4 (0.100) and 0.200 in layer 5.",
        ),
        ([0.9, 0.5, 0.6, 0.2], "It is highest in layer 0 (0.900) and lowest in layer 3 (0.200)."),
        (
            [0.1, 0.9, 0.2, 0.9, 0.1],
            "It is lowest in layer 0 and layer 4 (0.100) and highest in layer 1 and layer 3 (0.900).",
        ),
        ([0.5, 0.5], "It is 0.500 in both layers."),
        ([0.5, 0.50001, 0.5], "It is 0.500 in all 3 layers."),
        ([0.5], "It is 0.500 in layer 0."),
        ([NAN], "It could not be measured."),
        ([NAN, 0.4], "It is 0.400 in layer 1 (measured in 1 of 2)."),
        ([0.1, NAN, 0.4], "It rises from 0.100 in layer 0 to 0.400 in layer 2 (measured in 2 of 3)."),
    ],
)
def test_ordered_groups_are_described_from_first_to_last(values, expected):
    assert said(values) == expected


def test_overlapping_intervals_show_no_clear_difference():
    assert said([0.1, 0.2, 0.12], 0.06) == (
        "It shows no clear difference: 0.100 to 0.200 in all 3 layers, with overlapping intervals."
    )
    assert said([0.1, 0.2, 0.12], 0.03).startswith("It rises from 0.100 in layer 0 to 0.200 in layer 1 and falls")
    assert said([0.1, 0.6, 0.59], 0.02) == (
        "It is lowest in layer 0 (0.100), highest in layer 1 (0.600) and 0.590 in layer 2."
    )
    assert said([0.1, 0.2, 0.12], None).startswith("It rises"), "a plain count has no interval"


def test_unordered_names_are_described_by_lowest_and_highest():
    assert said([0.1, 0.5, 0.3], names=["a", "b", "c"], by="label") == (
        "It is lowest in label “a” (0.100) and highest in label “b” (0.500)."
    )
    many = said([0.1, 0.5] * 5, names=list("abcdefghij"), by="category")
    assert many == "It is lowest in 5 categories (0.100) and highest in 5 categories (0.500)."


def test_shares_are_percentages():
    assert said([0.1, 0.5], form="share") == "It rises from 10.0% in layer 0 to 50.0% in layer 1."


def test_are_disjoint_compares_intervals():
    series = told([0.1, 0.2, NAN], 0.05).series("mean_cosine")
    assert are_disjoint(series, 0, 1) == (series.high[0] < series.low[1])
    assert are_disjoint(series, 1, 0) == are_disjoint(series, 0, 1)


def test_group_names_include_their_type():
    assert format_group_name(layered(), "2") == "layer 2"
    assert format_group_name(named(), "sport") == "label “sport”"
    assert format_group_name(told([1], names=["Layer 3"]), "Layer 3") == "Layer 3"
    assert format_group_name(named(), "x" * 200) == "label “" + "x" * 59 + "…”"
    assert format_group_name(named(), "مرحبا") == "label “\u2068مرحبا\u2069”", "it turns nothing around it"
    assert plural_group_noun(layered()) == "layers"
    ranges = told([0.1, 0.2])
    ranges.groups = dict(zip(["1–9", "10–99"], ranges.groups.values(), strict=True))
    ranges.values = {"1–9": 4, "10–99": 30}
    ranges.by = "frequency"
    assert not has_numeric_groups(ranges)
    assert plural_group_noun(ranges) == "ranges of frequency"
    assert format_group_name(ranges, "1–9") == "frequency 1–9"


def test_summary_has_a_few_sentences():
    found = describe_groups(layered(), 3)
    assert len(found) == 3
    assert found[0].startswith("Mean cosine rises from ")
    assert not describe_groups(told([NAN, NAN]), 3)
