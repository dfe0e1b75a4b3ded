"""Figures of studies whose numbers are not all there, or whose names are not all letters."""

import math
import re
from xml.etree import ElementTree

import pytest

from isoscope.studies.drawing import figure, svg_file
from isoscope.studies.outcome import Cloud, Figure, Panel, Series, Value
from isoscope.studies.published import Number
from isoscope.studies.words import theirs

NAN, INF = math.nan, math.inf
PARTS = {
    "a band with a hole": Panel("", [Series("a", [1, 2, 3], [1, 2, 3], [NAN, 1, 2], [NAN, 3, 4])], "x", "y"),
    "a band of holes": Panel("", [Series("a", [1, 2], [1, 2], [NAN, NAN], [NAN, NAN])], "x", "y"),
    "nothing known": Panel("", [Series("a", [1, INF], [NAN, 1])], "x", "y"),
    "zero on a scale of powers": Panel("", [Series("a", [0, 1, 2], [-1, 0, 1])], "x", "y", log_x=True, log_y=True),
    "no series": Panel("", [], "x", "y"),
    "control characters": Panel("a\x0b\x00", [Series("<\x1f>&", [1, 2], [2, 3], dots=True)], "x", "y"),
    "a cloud with a hole": Cloud("", [[0, 0, 0], [NAN, 1, 1], [1, 1, 1]], {"g": [1.0, NAN, 2.0], "h": list("abc")}),
    "a cloud of one point": Cloud("", [[2.0, 2.0, 2.0]], {"g": ["a"]}),
    "a cloud of no point": Cloud("", [], {"g": [], "h": []}),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_every_figure_is_drawn_with_numbers_alone(part):
    drawn = Figure("key", "title", "caption", [part])
    for told in (svg_file(drawn, "title"), str(figure(drawn))):
        assert not re.search(r'"[^"]*\b(nan|inf)', told)
    ElementTree.fromstring(svg_file(drawn, "title").encode())


def test_equal_numbers_differ_by_nothing():
    one = Number("table", "row", "column", 0.1, None, "Table 1")
    assert theirs(one, Value.of(0.30000000000000004 - 0.2), 3) == "0.100 (+0.000)"
    assert theirs(one, Value.of(0.1 + 3e-5), 3) == "0.100 (+3.00e−5)"
