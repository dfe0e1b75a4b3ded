import dataclasses

import numpy as np

from isoscope._report.cloud import CategoricalColoring, find_colorings, find_shared_colorings, render_legends
from tests.report.groupeds import layered
from tests.report.parsed import Parsed


def clouds():
    return [group.pictures for group in layered().groups.values()]


def ways_by_key(clouds):
    return [{way.key: way for way in ways} for ways in find_shared_colorings(clouds)]


def test_single_point_cloud_is_colored_as_on_its_own_page():
    own = {way.key: way for way in find_colorings(clouds()[0])}
    shared = ways_by_key(clouds()[:1])[0]
    assert set(shared) == set(own) - {"rows"}
    for key, way in shared.items():
        if isinstance(way, CategoricalColoring):
            np.testing.assert_array_equal(way.point_slots, own[key].point_slots)
        else:
            np.testing.assert_array_equal(way.shades, own[key].shades)


def test_name_has_one_style_in_all_point_clouds():
    first, second, third = clouds()
    other = dataclasses.replace(second, label_names=["third", "new", "first"])
    found = ways_by_key([first, other, third])
    for key in ("labels", "kinds"):
        looks = {}
        for ways in found:
            way = ways[key]
            for code, slot in zip(way.codes.tolist(), way.point_slots.tolist(), strict=True):
                assert looks.setdefault(way.names[code], slot) == slot
        assert len(set(looks.values())) == len(looks)
    assert [found[1]["labels"].names[c] for c in found[1]["labels"].codes[:3]] == [
        other.label_names[c] for c in other.labels[:3]
    ]


def test_frequency_has_one_shade_in_all_point_clouds():
    first, second = clouds()[:2]
    found = ways_by_key([first, dataclasses.replace(second, frequency=second.frequency * 100)])
    assert found[0]["frequency"].ends == found[1]["frequency"].ends


def test_every_available_coloring_is_explained():
    first, second = clouds()[:2]
    found = find_shared_colorings([dataclasses.replace(first, kinds=None, labels=None), second])
    explained = render_legends(found, "layer")
    assert list(explained) == [way.key for way in found[1]]
    assert "symbol" in Parsed(explained["kinds"][1]).text
    assert "longest vector of each layer" in explained["lengths"][1]
