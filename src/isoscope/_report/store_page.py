"""Render a store of vectors for notebooks: its size and columns and, if it is cheap to read, its point cloud."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import isoscope
from isoscope._core.errors import InputError, plural
from isoscope._report.cloud import render_point_cloud
from isoscope._report.html import (
    document,
    render_code_block,
    render_definition_list,
    render_heading,
    render_notebook_table,
    section,
    tag,
)
from isoscope._report.pictures import sample_points
from isoscope._report.svg_file import render_cloud_image
from isoscope.stores.databases.address import is_address
from isoscope.stores.selection import list_layers, select_layer

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.pictures import PointCloud
    from isoscope.stores.store import Store

_MAX_BYTES = 250e6  # of the vectors of a store that is drawn


def sample_store(store: Store) -> tuple[Store, PointCloud] | None:
    """Return the store that is drawn, which is the last layer of hidden states, and a sample of its points.

    Return None if the store is large, remote or a database, has fewer than three rows, or cannot be read.
    """
    length = store.known_length()
    is_local = all(isinstance(file, Path) for file in store.files) and not is_address(store.name)
    if length is None or length * store.dim * store.dtype.itemsize > _MAX_BYTES or not is_local:
        return None
    try:
        drawn = select_layer(store, -1) if len(list_layers(store)) > 1 else store
        cloud = sample_points(drawn.dropping(missing="drop"))
    except InputError:
        return None
    return drawn, cloud


def render_store_page(store: Store, drawn: tuple[Store, PointCloud] | None) -> str:
    """Return the size, the columns and the point cloud of a store as a self-contained HTML document."""
    sections: list[Markup] = []
    if drawn is not None:
        content, caption = render_point_cloud(drawn[1], "cloud-1", drawn[0].name, len(drawn[0]))
        figure = tag("figure", content, tag("figcaption", caption))
        sections.append(section("pictures", f"Point cloud{_name_layer(drawn[0])}", figure))
    sections.append(section("next", "Next", render_code_block(*_list_calls(store))))
    return document(
        store.name,
        isoscope.__version__,
        render_heading("a store of vectors", store.name, _format_size(store), _format_headline(store)),
        tag("main", *_render_columns(store), *sections),
        styles=["page.css", "audit.css"],
        scripts=["cloud.js", "page.js", "copy.js"],
    )


def render_store_notebook(store: Store, drawn: tuple[Store, PointCloud] | None) -> str:
    """Return the size, the columns and an image of the points of a store for a notebook."""
    return render_notebook_table(
        [tag("strong", tag("bdi", store.name)), f"{_format_headline(store)} {_format_size(store)}"],
        ("role", "column"),
        [(role, tag("bdi", name)) for role, name in store.columns.items()],
        images=[] if drawn is None else [render_cloud_image(drawn[1], drawn[0].name)],
        notes=[tag("code", line) for line in _list_calls(store)],
    )


def _format_headline(store: Store) -> str:
    length = store.known_length()
    return f"{'Vectors' if length is None else f'{length:,} vectors'} of {plural(store.dim, 'dimension')}."


def _format_size(store: Store) -> str:
    layers = list_layers(store) if store.known_length() is not None and not is_address(store.name) else []
    return f"{store.dtype}" + (f" · layers {layers[0]} to {layers[-1]}" if len(layers) > 1 else "")


def _name_layer(store: Store) -> str:
    return "" if store.layer is None else f" of layer {store.layer}"


def _render_columns(store: Store) -> Sequence[Markup]:
    if not store.columns:
        return []
    return [section("columns", "Columns", render_definition_list(*store.columns.items()))]


def _list_calls(store: Store) -> list[str]:
    by = ', by="layer"' if "document" in store.columns.values() and store.has_column("layer") else ""
    return [f"isoscope.audit(store{by})  # measure the shape of the space"]
