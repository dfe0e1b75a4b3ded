"""A page as a widget in a notebook; the points that a reader selects are sent to Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from isoscope._core.errors import ParameterError
from isoscope._report.html import read_resources, wrap_scripts

if TYPE_CHECKING:
    from isoscope._report.pictures import PointCloud

_SCRIPTS = ("cloud.js", "gallery.js", "page.js", "copy.js")
_DARK = re.compile(r"@media screen and \(prefers-color-scheme: dark\) \{\s*:root \{([^}]*)\}\s*\}")
_NARROW = re.compile(r"@media \(max-width: ([\d.]+)(px|rem)\)")
_ROOT = re.compile(r"(?<![\w.#-])(?:html|body)(?=\s*[{,])")
_WIDGET_STYLE = """
:host { display: block; color-scheme: light; }
:host(.dark) { color-scheme: dark; }
.page.page { max-width: none; padding: 1rem 1.2rem 1.4rem; border: 1px solid var(--rule); border-radius: 8px; }
.page { container-type: inline-size; text-align: start; }
.page .skip, .page .contents, .page .glance figure:has(.small-cloud) { display: none; }
.page h1 { font-size: 1.6rem; }
.page header h1 { margin-top: 0.8rem; }
.page main > section { margin-top: 1.2rem; }
.page h2 { font-size: 1.15rem; margin-bottom: 0.5rem; }
.folded > summary { cursor: pointer; }
.folded > summary h2 { display: inline; }
.folded[open] > summary { margin-bottom: 0.8rem; }
"""


_OPEN = ["pictures", "courses", "clouds"]
"""The sections that are not folded: point clouds, and charts by group. If a page has none of them, its first one."""


class _Rows(traitlets.List[int]):
    """Distinct row numbers in ascending order; arrays and other sequences of integers are converted."""

    def validate(self, obj: Any, value: Any) -> Any:
        return super().validate(obj, sorted({int(each) for each in value}))


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A page in a notebook, and the points that the reader has selected in its clouds.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> result = isoscope.audit(np.random.default_rng(0).standard_normal((200, 8)))
    >>> result.widget.selected = [3, 14]  # or drag a lasso around points
    >>> result.widget.selected
    [3, 14]
    """

    _esm = f"const activate = {wrap_scripts(*_SCRIPTS)};\n{read_resources('widget.js')}"

    _content = traitlets.Unicode().tag(sync=True)
    _style = traitlets.Unicode().tag(sync=True)
    _open = traitlets.List(traitlets.Unicode()).tag(sync=True)
    _linked = traitlets.Bool(True).tag(sync=True)
    _sources = traitlets.List(traitlets.Unicode()).tag(sync=True)

    selected = _Rows(traitlets.Int(), help="The row numbers of the selected points, in ascending order.").tag(sync=True)
    pinned = _Rows(traitlets.Int(), help="The row numbers of the pinned points, in ascending order.").tag(sync=True)
    clicked = traitlets.Int(None, allow_none=True, help="The row number of the last clicked point, or None.").tag(
        sync=True
    )
    source = traitlets.Unicode(help="The name of the source whose rows are selected.").tag(sync=True)

    _ids: dict[str, dict[int, Any]]

    @property
    def selected_ids(self) -> list[Any]:
        """The ids of the selected points, in the order of `selected`."""
        ids = self._ids.get(self.source, {})
        if not ids:
            raise ParameterError(
                f"{self.source or 'this source'} has no ids: pass ids= to audit, or use selected, which contains row "
                "numbers"
            )
        return [ids[row] for row in self.selected if row in ids]


def build_widget(page: str, drawn: Sequence[tuple[str, Sequence[PointCloud]]], linked: bool) -> PageWidget:
    """Return the widget of a page.

    `drawn` contains the drawn points of each source. If the sources are `linked`, their rows are the same, and a
    selection in one cloud appears in all of them.
    """
    style, content = split_page(page)
    widget = PageWidget(
        _style=style,
        _content=content,
        _open=_OPEN,
        _linked=linked,
        _sources=[name for name, _ in drawn],
        source=drawn[0][0] if drawn else "",
    )
    widget._ids = {
        name: dict(
            pair for p in pictures if p.ids is not None for pair in zip(p.rows.tolist(), p.ids.tolist(), strict=True)
        )
        for name, pictures in drawn
    }
    return widget


def split_page(page: str) -> tuple[str, str]:
    """Return the style and the content of a page for a shadow root, where they affect nothing else.

    The colors follow the theme of the notebook, and the layout follows the width of the cell.
    """
    style, _, body = page.partition("<style>")[2].partition("</style>")
    content = body.partition("<body>")[2].rpartition("<footer>")[0]
    style = _DARK.sub(r":host(.dark) {\1}", style)
    style = _NARROW.sub(r"@container (max-width: \1\2)", style)
    style = _ROOT.sub(".page", style.replace(":root", ":host"))
    return style + _WIDGET_STYLE, content
