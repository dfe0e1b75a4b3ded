import dataclasses
import re

import numpy as np
import pytest

from isoscope._report.line_chart import (
    GroupAxis,
    GroupCurve,
    find_offscale_nulls,
    find_offscale_values,
    render_group_chart,
)
from isoscope._report.svg import Scale
from tests.report.parsed import Parsed

NAN = np.nan
AXIS = GroupAxis(Scale(0, 3), "layer", [(0, "0"), (3, "3")])
ROWS = GroupAxis(Scale(0, 3), "label", None, row_names=["a", "b", "c", "d < e"])


def course(estimates, spread=0.02, null=NAN, verdicts=("ok", "look", "bad", "ok"), **more):
    values = np.asarray(estimates, float)
    given = {"name": "it", "style": "hue-0", "letter": ""} | more
    return GroupCurve(
        positions=np.arange(4.0),
        group_names=[f"layer {i}" for i in range(4)],
        estimates=values,
        low=values - spread,
        high=values + spread,
        verdicts=list(verdicts),
        null=np.full(4, null),
        **given,
    )


def drawn(*courses, axis=AXIS, form="number", powers=False):
    return render_group_chart("Title", "What is told.", courses, axis, form, powers=powers)


@pytest.mark.parametrize("axis", [AXIS, ROWS], ids=["lines", "rows"])
@pytest.mark.parametrize("estimates", [[0.1, 0.2, 0.3, 0.4], [NAN, 0.2, NAN, 0.4], [0, 0, 0, 0], [-1, 5, NAN, NAN]])
def test_each_value_has_a_mark_and_a_position(axis, estimates):
    text = drawn(course(estimates), axis=axis)
    assert not re.search(r"nan|inf\b", re.sub(r">[^<]*<", "><", text))
    known = int(np.isfinite(estimates).sum())
    assert len(re.findall(r'class="at ', text)) == known
    assert len(re.findall(r"<title>layer", text)) == known
    assert "What is told." in next(a["aria-label"] for _, a in Parsed(text).elements if a.get("role") == "img")


def test_verdict_is_shown_by_shape_and_word_not_only_color():
    text = drawn(course([0.1, 0.2, 0.3, 0.4]))
    shapes = dict(re.findall(r'class="at (\w+) hue-0".*?<path d="([^"]+)"', text))
    assert len(set(shapes.values())) == 3
    assert "layer 1: 0.2 (0.18 … 0.22), worth a look" in text


def test_line_is_broken_at_missing_values():
    text = drawn(course([0.1, 0.2, NAN, 0.4]))
    assert len(re.findall(r'class="line hue-0"', text)) == 1
    assert len(re.findall(r'class="band hue-0"', text)) == 1
    assert len(re.findall(r'class="whisker hue-0"', text)) == 1, "a number alone has a whisker"


def test_unjudged_values_are_dashed_without_marks():
    text = drawn(
        course([0.1, 0.2, 0.3, 0.4]),
        course([0.1, 0.1, 0.1, 0.1], NAN, verdicts=[""] * 4, name="other", style="hue-0 dashed"),
    )
    assert 'class="line hue-0 dashed"' in text
    assert len(re.findall(r'class="at ', text)) == 4
    assert "other" in Parsed(text).text


def test_null_far_off_scale_is_mentioned_but_not_drawn():
    near, far = course([0.1, 0.2, 0.3, 0.4], null=0.6), course([0.1, 0.2, 0.3, 0.4], null=9.0)
    assert "line null" in drawn(near)
    assert find_offscale_nulls([near]) == []
    assert find_offscale_nulls([course([0.1, 0.2, 0.3, 0.4], null=0.0)]) == []  # the lower edge is on the scale
    assert "line null" not in drawn(far)
    assert find_offscale_nulls([far]) == [9.0] * 4


def test_letters_are_at_line_ends_without_overlap():
    text = drawn(*(course([0.1, 0.2, 0.3, 0.4], letter=letter, style=f"hue-{i}") for i, letter in enumerate("ABC")))
    places = sorted(float(y) for y in re.findall(r'y="([\d.]+)%"[^>]*class="note letter', text))
    assert len(places) == 3
    assert np.diff(places).min() > 5


def test_rows_have_group_names_and_a_scale_below():
    parsed = Parsed(drawn(course([0.1, 0.2, 0.3, 0.4]), axis=ROWS))
    assert all(name in parsed.text for name in ROWS.row_names)
    assert "0.2" in parsed.text


def test_powers_and_percentages_are_formatted():
    text = Parsed(drawn(course([-4, -3, -2, -1]), form="power", powers=True)).text
    assert "1.0e−4" in text
    assert "1e−4000" in Parsed(drawn(course([-4000, -3, -2, -1]), form="power", powers=True)).text
    assert "20%" in Parsed(drawn(course([0.1, 0.2, 0.3, 0.4]), form="share")).text


def test_many_groups_have_smaller_marks():
    many = dataclasses.replace(
        course([0.1] * 4),
        positions=np.arange(31.0),
        group_names=[""] * 31,
        verdicts=["ok"] * 31,
        **{name: np.full(31, 0.1) for name in ("estimates", "low", "high", "null")},
    )
    assert "scale(0.7)" in drawn(many, axis=GroupAxis(Scale(0, 30), "layer", None))
    assert "scale(0.7)" not in drawn(course([0.1] * 4))


@pytest.mark.parametrize("axis", [AXIS, ROWS], ids=["lines", "rows"])
def test_outlier_is_labeled_at_the_edge_and_does_not_flatten_the_rest(axis):
    flat = course([0.01, 0.02, 0.015, 0.02], 0.001)
    outlier = course([0.012, 0.018, 0.9, 0.02], 0.001, style="hue-1")
    text = drawn(flat, outlier, axis=axis)
    assert find_offscale_values([flat, outlier]) == [("layer 2", 0.9)]
    assert "0.9" in re.search(r'class="note aside"[^>]*>(.*?)<', text)[1]
    assert len(re.findall(r"<title>layer 2: 0.9", text)) == 1
    assert len(re.findall(r'class="at ', text)) == 8
    if axis is AXIS:
        heights = [float(y) for y in re.findall(r'<svg x="[\d.]+%" y="([\d.]+)%"', text)]
        assert min(heights) >= 0
        assert np.ptp(heights) > 40


def test_no_value_is_an_outlier_if_the_others_are_zero_or_there_are_few_values():
    assert find_offscale_values([course([0, 0, 0.9, 0]), course([0, 0, 0, 0])]) == []
    assert find_offscale_values([course([0.01, 0.02, 0.9, 0.01])]) == []
    assert find_offscale_values([course([0.1, 0.2, 0.3, 0.4]), course([0.1, 0.2, 0.3, 0.5])]) == []
