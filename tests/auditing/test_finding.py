"""Findings: verdicts at the thresholds, text, and JSON round trips."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoscope._io.json import jsonable
from isoscope.auditing.finding import VERDICTS, Finding, Range, format_number, worst_verdict

FINDING = Finding(
    "mean_cosine", "Mean cosine", 0.3, 0.2, 0.4, Range.lower_is_better(0.1, 0.5, "a source", 0.0), "m", "a", 100
)

numbers = st.floats(-1e6, 1e6)


# ranges


@given(numbers, numbers, numbers)
def test_lower_and_higher_is_better_are_mirror_images(a, b, value):
    low, high = sorted((a, b))
    below, above = Range.lower_is_better(low, high, ""), Range.higher_is_better(high, low, "")
    assert below.verdict(value) == ("ok" if value < low else "look" if value < high else "bad")
    assert above.verdict(value) == ("ok" if value >= high else "look" if value >= low else "bad")


@given(st.tuples(numbers, numbers, numbers, numbers), numbers)
def test_a_range_with_two_ends_is_ok_inside_and_bad_outside(ends, value):
    worst, low, high, most = sorted(ends)
    found = Range((low, high), (worst, most), "").verdict(value)
    assert found == ("ok" if low <= value <= high else "look" if worst < value < most else "bad")


@pytest.mark.parametrize(
    ("judged", "value", "verdict"),
    [
        (Range.lower_is_better(0.1, 0.5, ""), 0.1, "look"),
        (Range.lower_is_better(0.1, 0.5, ""), math.nextafter(0.1, 0), "ok"),
        (Range.lower_is_better(0.1, 0.5, ""), 0.5, "bad"),
        (Range.lower_is_better(0.1, 0.5, ""), math.nextafter(0.5, 0), "look"),
        (Range.lower_is_better(0.5, 0.5, ""), math.nextafter(0.5, 0), "ok"),
        (Range.lower_is_better(0.5, math.inf, ""), 1e300, "look"),
        (Range.higher_is_better(0.46, 8e-4, ""), 0.46, "ok"),
        (Range.higher_is_better(0.46, 8e-4, ""), math.nextafter(0.46, 0), "look"),
        (Range.higher_is_better(0.46, 8e-4, ""), 8e-4, "look"),
        (Range.higher_is_better(0.46, 8e-4, ""), math.nextafter(8e-4, 0), "bad"),
        (Range.higher_is_better(0.0, 0.0, ""), 0.0, "ok"),
        (Range.higher_is_better(0.0, 0.0, ""), -5e-324, "bad"),
        (Range((1, 2), (1, math.inf), ""), 1, "ok"),
        (Range((1, 2), (1, math.inf), ""), math.nextafter(1, 0), "bad"),
        (Range.lower_is_better(0.1, 0.5, ""), math.nan, "bad"),
    ],
)
def test_verdicts_at_the_thresholds(judged, value, verdict):
    assert judged.verdict(value) == verdict


def test_zero_is_ok_and_positive_is_not():
    judged = Range.lower_is_better(math.nextafter(0.0, 1.0), 0.1, "none is right")
    assert [judged.verdict(value) for value in (0.0, 1e-300, 0.1)] == ["ok", "look", "bad"]


# findings


@pytest.mark.parametrize(
    ("low", "high", "borderline"),
    [
        (0.2, 0.4, False),
        (0.05, 0.4, True),
        (0.2, 0.5, True),
        (None, None, False),
        (-math.inf, math.inf, False),
        (-math.inf, 0.7, True),
    ],
)
def test_a_finding_is_borderline_if_its_interval_reaches_another_verdict(low, high, borderline):
    assert replace(FINDING, low=low, high=high).borderline is borderline


def test_worst_verdict_determines_the_result():
    found = {verdict: replace(FINDING, value=value) for verdict, value in [("ok", 0.0), ("look", 0.2), ("bad", 0.9)]}
    assert [finding.verdict for finding in found.values()] == list(VERDICTS)
    assert worst_verdict([]) == "ok"
    assert worst_verdict([found["ok"], found["look"]]) == "look"
    assert worst_verdict([found["bad"], found["look"], found["ok"]]) == "bad"


# how it is written


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (None, "number", "–"),
        (math.nan, "share", "–"),
        (math.inf, "number", "∞"),
        (-math.inf, "count", "−∞"),
        (0.0, "number", "0.000"),
        (-0.12345, "number", "−0.123"),
        (1.234, "number", "1.23"),
        (-12.34, "number", "−12.3"),
        (1234.5, "number", "1,234"),
        (1234567, "count", "1,234,567"),
        (0, "share", "0%"),
        (1, "share", "100%"),
        (0.00123, "share", "0.12%"),
        (0.1, "share", "10.0%"),
        (0.999, "share", "99.9%"),
        (-0.05, "share", "−5.0%"),
        (0.46, "power", "0.460"),
        (8.26e-4, "power", "8.3e−4"),
        (0.00101, "power", "0.001"),
        (1.5e-242, "power", "1.5e−242"),
        (np.float64(0.5), "number", "0.500"),
    ],
)
def test_format_number(value, form, text):
    assert format_number(value, form) == text


@pytest.mark.parametrize("value", [-0.0, -1e-9])
def test_zero_is_printed_without_sign(value):
    assert format_number(value) == "0.000"


def test_number_that_rounds_up_to_another_digit():
    assert format_number(99.96) == format_number(100.0) == "100"


@pytest.mark.parametrize(
    ("judged", "form", "text"),
    [
        (Range.lower_is_better(0.1, 0.5, ""), "share", "ok below 10.0%, bad from 50.0%"),
        (Range.higher_is_better(0.46, 8.26e-4, ""), "power", "ok from 0.460, bad below 8.3e−4"),
        (Range((11.2, 52.2), (1, math.inf), ""), "number", "ok from 11.2 to 52.2, bad below 1.00"),
        (Range((0.0, 384.0), (-math.inf, math.inf), ""), "number", "ok up to 384"),
        (Range((-0.5, 0.5), (-math.inf, math.inf), ""), "number", "ok from −0.500 to 0.500"),
        (Range.lower_is_better(math.nextafter(0.0, 1.0), 0.1, ""), "share", "ok if 0, bad from 10.0%"),
        (
            Range.lower_is_better(math.nextafter(0.0, 1.0), math.nextafter(0.0, 1.0), ""),
            "share",
            "ok if 0, bad otherwise",
        ),
        (Range((-math.inf, math.inf), (-math.inf, math.inf), ""), "number", "for information"),
    ],
)
def test_format_range(judged, form, text):
    assert replace(FINDING, judged=judged, form=form).range == text


def test_format_finding():
    assert str(FINDING) == "look  Mean cosine  0.300  [0.200 … 0.400]  (ok below 0.100, bad from 0.500)"
    assert str(replace(FINDING, low=None, high=None)) == "look  Mean cosine  0.300  (ok below 0.100, bad from 0.500)"


# JSON


@pytest.mark.parametrize(
    "finding",
    [
        FINDING,
        replace(FINDING, low=None, high=None, form="share", sampled=True),
        replace(FINDING, judged=Range((-math.inf, math.inf), (-math.inf, math.inf), "s")),
        replace(FINDING, judged=Range((11.2, 52.2), (1.0, math.inf), "s", 0.5)),
        replace(FINDING, details={"a": [1, 2.5], "b": {"c": None}, "d": "text"}),
    ],
)
def test_json_round_trip(finding):
    held = json.loads(json.dumps(finding.to_dict(), allow_nan=False))
    assert Finding.from_dict(held) == finding
    assert held["verdict"] == finding.verdict
    assert held["borderline"] == finding.borderline


def test_json_writes_open_range_as_null():
    finding = replace(FINDING, low=-math.inf, high=math.inf, details={"spread": math.nan, "all": np.array([1, np.inf])})
    held = json.loads(json.dumps(finding.to_dict(), allow_nan=False))
    assert (held["low"], held["high"], held["details"]) == (None, None, {"spread": None, "all": [1.0, None]})
    assert Finding.from_dict(held).to_dict() == held


leaves = st.none() | st.floats() | st.integers() | st.text(max_size=3)


@given(st.recursive(leaves, lambda item: st.lists(item, max_size=3) | st.dictionaries(st.integers(), item, max_size=3)))
def test_plain_values_are_unchanged(value):
    json.dumps(jsonable(value), allow_nan=False)


def test_numpy_numbers_become_python_numbers():
    found = jsonable(
        {"a": np.float32(0.5), "b": np.arange(2), "c": (np.int64(3), np.bool_(True)), 4: np.float64("nan")}
    )
    assert found == {"a": 0.5, "b": [0, 1], "c": [3, True], "4": None}
    assert type(found["a"]) is float
    assert type(found["c"][1]) is bool
