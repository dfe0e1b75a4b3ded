"""Figures of studies with missing numbers, or with names that contain special characters."""

import math
import re
from xml.etree import ElementTree

import pytest

from isoscope.studies.figures import render_figure, render_svg
from isoscope.studies.formatting import format_published
from isoscope.studies.study import Figure, Number, Panel, Scatter, Series, Value

NAN, INF = math.nan, math.inf
PARTS = {
    "a band with a hole": Panel("", [Series("a", [1, 2, 3], [1, 2, 3], [NAN, 1, 2], [NAN, 3, 4])], "x", "y"),
    "a band of holes": Panel("", [Series("a", [1, 2], [1, 2], [NAN, NAN], [NAN, NAN])], "x", "y"),
    "nothing known": Panel("", [Series("a", [1, INF], [NAN, 1])], "x", "y"),
    "zero on a scale of powers": Panel("", [Series("a", [0, 1, 2], [-1, 0, 1])], "x", "y", log_x=True, log_y=True),
    "no series": Panel("", [], "x", "y"),
    "control characters": Panel("a\x0b\x00", [Series("<\x1f>&", [1, 2], [2, 3], dots=True)], "x", "y"),
    "a cloud with a hole": Scatter("", [[0, 0, 0], [NAN, 1, 1], [1, 1, 1]], {"g": [1.0, NAN, 2.0], "h": list("abc")}),
    "a cloud of one point": Scatter("", [[2.0, 2.0, 2.0]], {"g": ["a"]}),
    "a cloud of no point": Scatter("", [], {"g": [], "h": []}),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_figures_contain_no_nan_or_inf(part):
    drawn = Figure("key", "title", "caption", [part])
    for told in (render_svg(drawn, "title"), str(render_figure(drawn))):
        assert not re.search(r'"[^"]*\b(nan|inf)', told)
    ElementTree.fromstring(render_svg(drawn, "title").encode())


def test_equal_numbers_have_zero_difference():
    one = Number("table", "row", "column", 0.1, None, "Table 1")
    assert format_published(one, Value.of(0.30000000000000004 - 0.2), 3) == "0.100 (+0.000)"
    assert format_published(one, Value.of(0.1 + 3e-5), 3) == "0.100 (+3.00e−5)"


def test_point_clouds_of_one_coloring_are_adjacent_and_groups_counted():
    points = [[float(i), float(i % 7)] for i in range(60)]
    clouds = [Scatter(f"model {i}", points, {"cluster": [f"{j % 30:02d}" for j in range(60)]}) for i in range(4)]
    drawn = Figure("key", "title", "caption", clouds)
    for told in (render_svg(drawn, "title"), str(render_figure(drawn))):
        assert told.count("by cluster (30 groups)") == 4
        assert "29 (2)" not in told
    tree = ElementTree.fromstring(render_svg(drawn, "title").encode())
    places = {(each.get("x"), each.get("y")) for each in tree.iter() if (each.text or "").startswith("model ")}
    assert len({x for x, _ in places}) == 4
    assert len({y for _, y in places}) == 1


def test_legend_names_do_not_overlap():
    names = [f"a-model-with-a-name-that-is-long-{i}" for i in range(5)]
    panels = [Panel(word, [Series(name, [0, 1], [0, 1]) for name in names], "x", "y") for word in ("one", "two")]
    tree = ElementTree.fromstring(render_svg(Figure("key", "title", "", panels), "title").encode())
    places = [
        (float(each.get("y")), float(each.get("x"))) for each in tree.iter() if each.text in names and each.get("x")
    ]
    for (row, x), (next_row, next_x) in zip(sorted(set(places)), sorted(set(places))[1:], strict=False):
        assert next_row > row or next_x - x > 7 * len(names[0])
