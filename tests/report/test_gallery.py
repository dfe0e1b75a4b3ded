import base64
import dataclasses
import re

import numpy as np

from isoscope._report.gallery import render_gallery
from tests.report.groupeds import layered, told
from tests.report.parsed import Parsed


def with_pictures(grouped, **changes):
    groups = {
        name: dataclasses.replace(group, pictures=dataclasses.replace(group.pictures, **changes))
        for name, group in grouped.groups.items()
    }
    return dataclasses.replace(grouped, groups=groups)


def test_every_group_has_an_image_with_its_points_and_number():
    found = layered()
    text = render_gallery([found])
    parsed = Parsed(text)
    stills = [a for a in parsed.all("svg") if "data-points" in a]
    assert len(stills) == len(parsed.all("figure")) == len(found.groups)
    for name, still in zip(found.groups, stills, strict=True):
        held = parsed.held(still["data-points"])
        assert held["name"] == f"layer {name}"
        points = np.frombuffer(base64.b64decode(held["points"]), "<i2").reshape(-1, 3)
        assert len(points) == 200
        assert f"layer {name}" in still["aria-label"]
    for figure in re.findall(r"<figure.*?</figure>", text):
        dots = [a["d"] for a in Parsed(figure).all("path") if "hole" not in a["class"].split()]
        assert "".join(dots).count("h0") == 200


def test_texts_are_stored_once():
    parsed = Parsed(render_gallery([layered()]))
    texts = parsed.held("gallery-texts")
    assert len(set(texts)) == len(texts)
    held = parsed.held("tile-2")
    assert [texts[i] for i in held["text"]] == layered().groups["1"].pictures.text


def test_view_covers_most_points_and_counts_those_outside():
    points = layered().groups["0"].pictures.points.copy()
    points[:3] = 1e4
    text = render_gallery([with_pictures(layered(), points=points)])
    assert 3 <= int(re.search(r"(\d+) outside", text)[1]) < 10
    x, y, scale = map(float, re.search(r'data-frame="([^"]+)"', text)[1].split())
    inside = points[3:] / np.abs(points).max()
    across, down = 200 + scale * (inside[:, 0] - x), 150 - scale * (inside[:, 1] - y)
    assert ((across >= 0) & (across <= 400) & (down >= 0) & (down <= 300)).mean() > 0.9


def test_identical_points_are_drawn():
    text = render_gallery([with_pictures(layered(), points=np.zeros((200, 3)))])
    assert not re.search(r"nan|inf\b", re.sub(r">[^<]*<", "><", text))


def test_more_groups_draw_fewer_points_with_a_note():
    m = 3000
    many = dataclasses.replace(
        layered().groups["0"].pictures,
        points=np.random.default_rng(0).standard_normal((m, 3)),
        rows=np.arange(m),
        lengths=np.ones(m),
        labels=np.zeros(m, int),
        frequency=np.arange(m) + 1,
        kinds=np.arange(m) % 5,
        clusters=None,
        text=["x" * 160] * m,
        neighbors=(np.arange(m)[:, None] + [1, 2]) % m,
        neighbor_scores=np.full((m, 2), 0.5),
    )
    group = dataclasses.replace(layered().groups["0"], pictures=many, n=100_000)
    found = dataclasses.replace(
        layered(), groups={str(i): group for i in range(31)}, values={str(i): i for i in range(31)}
    )
    parsed = Parsed(render_gallery([found]))
    assert "At most 967 random vectors per layer" in parsed.text
    assert "967 of 100,000" in parsed.text
    tile = parsed.held("tile-31")
    rows, neighbors = np.array(tile["rows"]), np.array(tile["neighbors"])
    assert len(rows) == 967
    for row, own in zip(rows, neighbors, strict=True):
        kept = [each for each in ((row + 1) % m, (row + 2) % m) if each in rows]
        assert rows[own[own >= 0]].tolist() == kept


def test_audits_without_pictures_have_no_gallery():
    assert render_gallery([told([0.1, 0.2])]) is None
