"""The point clouds of many groups: small pictures with shared colors that open as interactive clouds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._report.cloud import (
    draw_points,
    encode_cloud,
    find_shared_colorings,
    format_caption,
    render_button_group,
    render_interactive_cloud,
    render_legends,
)
from isoscope._report.html import join_markup, json_script, tag
from isoscope._report.narrate import format_group_name, group_noun
from isoscope._report.pictures import subsample_points
from isoscope.auditing.finding import format_number

if TYPE_CHECKING:
    from isoscope._report.cloud import CategoricalColoring, ContinuousColoring
    from isoscope._report.html import Markup
    from isoscope._report.pictures import Pictures
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.grouped import GroupedAudit

_MAX_PAGE_POINTS = 30_000  # points on the page
_MAX_CLOUD_POINTS, _MIN_CLOUD_POINTS = 1_500, 400  # points in one cloud
_MAX_TEXT_LENGTH = 80  # characters of a point's text
_WIDTH, _HEIGHT = 400, 300
_FRAME_QUANTILES = (0.02, 0.98)  # the frame shows the points between these quantiles


@dataclass(frozen=True)
class _Tile:
    identity: str
    store: int
    name: str
    full_name: str
    """The name, with the name of its store if there are several."""
    audit: Audit
    pictures: Pictures


def render_gallery(audits: Sequence[GroupedAudit]) -> Markup | None:
    """Return the pictures of all groups, with shared controls, legends and a dialog; None if there are no pictures."""
    tiles = list(_make_tiles(audits))
    if not tiles:
        return None
    ways = find_shared_colorings([tile.pictures for tile in tiles])
    each = group_noun(audits[0].by)
    legends = render_legends(ways, each)
    choices = [(key, title) for key, (title, _) in legends.items()]
    pictures = [
        join_markup(
            tag("h3", tag("bdi", audit.source)) if len(audits) > 1 else None,
            tag(
                "div",
                *(_draw_tile(tile, way) for tile, way in zip(tiles, ways, strict=True) if tile.store == store),
                class_="tiles",
            ),
        )
        for store, audit in enumerate(audits)
    ]
    texts: dict[str, int] = {}
    kept = [json_script(tile.identity, _encode_tile(tile, way, texts)) for tile, way in zip(tiles, ways, strict=True)]
    return tag(
        "div",
        tag("p", _format_lead(tiles, each), class_="hint"),
        tag(
            "div",
            tag("div", render_button_group("Color by", "color", choices), class_="controls live"),
            *(
                tag("div", words, _render_cluster_note(key, each), data_legend=key, hidden=bool(i))
                for i, (key, (_, words)) in enumerate(legends.items())
            ),
            class_="shared",
        ),
        *pictures,
        _render_dialog(choices),
        *kept,
        json_script("gallery-texts", list(texts)),
        data_gallery=True,
    )


def _make_tiles(audits: Sequence[GroupedAudit]) -> Iterator[_Tile]:
    drawn = [
        (i, audit, name, group, group.pictures)
        for i, audit in enumerate(audits)
        for name, group in audit.groups.items()
        if group.pictures is not None
    ]
    count = min(max(_MAX_PAGE_POINTS // max(len(drawn), 1), _MIN_CLOUD_POINTS), _MAX_CLOUD_POINTS)
    for n, (i, audit, name, group, pictures) in enumerate(drawn):
        words = format_group_name(audit, name)
        full_name = f"{audit.source}, {words}" if len(audits) > 1 else words
        yield _Tile(f"tile-{n + 1}", i, words, full_name, group, subsample_points(pictures, count))


def _format_lead(tiles: Sequence[_Tile], each: str) -> str:
    most = max(len(tile.pictures.points) for tile in tiles)
    complete = all(len(tile.pictures.points) >= tile.audit.n for tile in tiles)
    which = "All vectors are" if complete else f"At most {most:,} random vectors per {each} are"
    return (
        f"{which} projected onto the two leading principal components of their {each}. Each picture has its own scale: "
        "compare shapes, not positions. Points that are close here may be far apart in the full space."
    )


def _render_cluster_note(key: str, each: str) -> Markup | None:
    if key != "clusters":
        return None
    words = (
        f"Each {each} has its own clusters, numbered by size from the largest. A {each} with a single cluster is drawn "
        "in one color."
    )
    return tag("p", words, class_="hint")


def _draw_tile(tile: _Tile, ways: Sequence[CategoricalColoring | ContinuousColoring]) -> Markup:
    p = tile.pictures
    x, y, scale = _fit_frame(p)
    across, down = _WIDTH / 2 + scale * (p.points[:, 0] - x), _HEIGHT / 2 - scale * (p.points[:, 1] - y)
    outside = int(((across < 0) | (across > _WIDTH) | (down < 0) | (down > _HEIGHT)).sum())
    share = format_number(min(float(p.explained_variance[:2].sum()), 1.0), "share")
    facts = f"{len(p.points):,} of {tile.audit.n:,}" if len(p.points) < tile.audit.n else f"all {tile.audit.n:,}"
    facts += f" · {share} of the variance" + (f" · {outside:,} outside the frame" if outside else "")
    greatest = float(np.abs(p.points).max(initial=0)) or 1.0
    return tag(
        "figure",
        tag(
            "svg",
            *draw_points(across, down, ways[0]),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            aria_label=f"Point cloud of {tile.full_name}: {facts}",
            data_points=tile.identity,
            data_frame=f"{x / greatest:.6g} {y / greatest:.6g} {scale * greatest:.6g}",
        ),
        tag(
            "figcaption",
            tag("b", tag("bdi", tile.name)),
            tag("button", "Rotate", type="button", aria_label=f"Rotate the cloud of {tile.full_name}", class_="live"),
            tag("span", facts),
        ),
        class_="tile",
    )


def _fit_frame(p: Pictures) -> tuple[float, float, float]:
    """Return a center and a scale that fit most points, so that a few distant points do not shrink the picture."""
    if not len(p.points):
        return 0.0, 0.0, 1.0
    low, high = np.quantile(p.points[:, :2], _FRAME_QUANTILES, axis=0)
    margin = 0.15 * (high - low)
    low, high = (
        np.maximum(low - margin, p.points[:, :2].min(axis=0)),
        np.minimum(high + margin, p.points[:, :2].max(axis=0)),
    )
    wide, tall = (high - low).tolist()
    scale = min((_WIDTH - 16) / max(wide, 1e-300), (_HEIGHT - 16) / max(tall, 1e-300))
    x, y = ((high + low) / 2).tolist()
    return x, y, scale if max(wide, tall) > 0 else 0.0


def _encode_tile(
    tile: _Tile, ways: Sequence[CategoricalColoring | ContinuousColoring], texts: dict[str, int]
) -> dict[str, Any]:
    """Return the data of a cloud for the script; texts are indices into a list that all clouds share."""
    p = tile.pictures
    text = None
    if p.text is not None:
        text = [texts.setdefault(entry[:_MAX_TEXT_LENGTH], len(texts)) for entry in p.text]
    words = {"name": tile.full_name, "caption": format_caption(p, tile.audit.n)}
    return encode_cloud(p, ways) | {"text": text} | words


def _render_dialog(choices: Sequence[tuple[str, str]]) -> Markup:
    """Return the dialog that shows one interactive cloud at a time."""
    return tag(
        "dialog",
        tag(
            "header",
            tag("h3", id="stage-title"),
            tag("button", "Close", type="button", data_close=True),
        ),
        render_interactive_cloud("stage", "", choices, three=True, later=True),
        tag("p", class_="hint", id="stage-caption"),
        aria_labelledby="stage-title",
        aria_describedby="stage-caption",
        class_="stage-room",
    )
