"""Render a result as text, a page or a figure with the functions in `_report`.

Result classes import nothing from `_report`. Their methods (`__str__`, `_repr_html_`, `to_html`, `plot_*`) call
`render`; a class that derives from `Result` inherits them. What a notebook shows is defined in `Displayed`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import MissingExtra
from isoscope._core.front_end import find_front_end
from isoscope._io.files import replace_result
from isoscope._io.json import write_result

if TYPE_CHECKING:
    from isoscope._report.pictures import PointCloud
    from isoscope._report.widget import PageWidget

_RENDERERS = {
    "Audit": {
        "text": "terminal.render_text",
        "notebook": "audit_page.render_notebook_page",
        "page": "audit_page.render_page",
        "pictures": "pictures.build_pictures",
        "spectrum": "figures.draw_spectrum",
        "cosines": "figures.draw_cosines",
        "activations": "figures.draw_activations",
        "points": "figures.draw_points",
        "barcode": "figures.draw_barcode",
    },
    "Comparison": {
        "text": "terminal.render_comparison_text",
        "notebook": "audit_page.render_comparison_notebook",
        "page": "audit_page.render_comparison_page",
    },
    "GroupedAudit": {
        "text": "terminal.render_grouped_text",
        "notebook": "grouped_page.render_notebook_page",
        "page": "grouped_page.render_grouped_page",
        "series": "figures.draw_series",
    },
    "Advice": {
        "text": "terminal.render_advice_text",
        "notebook": "advice_page.render_notebook_page",
        "page": "advice_page.render_advice_page",
        "headline": "narrate.advice_headline",
        "paragraph": "narrate.advice_paragraph",
    },
    "Threshold": {
        "text": "threshold_text.render_threshold_text",
        "notebook": "threshold_page.render_notebook_page",
        "page": "threshold_page.render_threshold_page",
        "headline": "threshold_text.threshold_headline",
        "paragraph": "threshold_text.threshold_paragraph",
    },
    "Compression": {
        "text": "compression_text.render_compression_text",
        "notebook": "compression_page.render_notebook_page",
        "page": "compression_page.render_compression_page",
        "headline": "compression_text.compression_headline",
        "paragraph": "compression_text.compression_paragraph",
    },
    "Sameness": {
        "text": "same_terminal.render_same_text",
        "notebook": "same_page.render_notebook_page",
        "page": "same_page.render_same_page",
        "headline": "same_words.same_headline",
        "paragraph": "same_words.same_paragraph",
    },
    "Store": {
        "sample": "store_page.sample_store",
        "notebook": "store_page.render_store_notebook",
        "page": "store_page.render_store_page",
    },
    "History": {
        "notebook": "training_page.render_history_notebook",
        "page": "training_page.render_training_page",
        "figure": "figures.save_profile",
    },
    "FineTuning": {
        "text": "finetuning_text.render_finetuning_text",
        "notebook": "finetuning_text.render_finetuning_notebook",
        "page": "finetuning_page.render_finetuning_page",
        "headline": "narrate.finetuning_headline",
        "term": "narrate.describe_term",
    },
}
"""The renderers, by result class and kind of output."""


def render(result_class: str, kind: str, *arguments: Any, **options: Any) -> Any:
    """Render a result: `kind` is "text", "notebook", "page" or the name of a figure.

    >>> import isoscope
    >>> cone = [[1.0, 2.0], [2.0, 1.0], [1.5, 1.5], [1.0, 1.0]] * 30
    >>> render("Audit", "text", isoscope.audit(cone)).startswith("Search results contain repeats")
    True
    """
    module, function = _RENDERERS[result_class][kind].split(".")
    return getattr(import_module(f"isoscope._report.{module}"), function)(*arguments, **options)


class Displayed:
    """Base class for notebook output: a page if anywidget is installed, otherwise a table and images."""

    def _render_page(self) -> str:
        """Return the page as HTML."""
        return str(render(type(self).__name__, "page", self))

    def _drawn_sources(self) -> list[tuple[str, Sequence[PointCloud]]]:
        """Return the sources whose points are drawn on the page, with their drawn points."""
        return []

    def _is_linked(self) -> bool:
        """Return whether all drawn points are rows of one source, or of sources with the same rows."""
        return True

    @property
    def widget(self) -> PageWidget:
        """The page as a notebook widget; its `selected`, `pinned` and `clicked` are the points that you marked.

        Every use returns the same widget, so `result.widget.selected` also contains the points that you selected in the
        notebook output of the result. Needs the extra ``isoscope[notebook]``.
        """
        made: PageWidget | None = self.__dict__.get("_widget")
        if made is None:
            try:
                from isoscope._report.widget import build_widget
            except ModuleNotFoundError as error:
                raise MissingExtra(f'widgets need {error.name}: pip install "isoscope[notebook]"') from error
            made = build_widget(self._render_page(), self._drawn_sources(), self._is_linked())
            self.__dict__["_widget"] = made
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_widget"}

    def _repr_html_(self) -> str:
        return str(render(type(self).__name__, "notebook", self))

    def _repr_mimebundle_(self, **_: Any) -> Any:
        content = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if find_front_end() != "jupyter":
            return content
        try:
            view: Any = self.widget._repr_mimebundle_()
        except MissingExtra:
            return content
        return {**view[0], **content}, view[1]

    def _display_(self) -> Any:
        """Return what marimo shows."""
        try:
            return self.widget
        except MissingExtra:
            return _Html(self._repr_html_())


class _Html:
    """HTML that marimo shows."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text


class Result(Displayed):
    """Base class of results: a headline, text for the terminal, a table for notebooks, JSON and an HTML page."""

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return str(render(type(self).__name__, "headline", self))

    @property
    def paragraph(self) -> str:
        """The answer and its evidence in a few sentences."""
        return str(render(type(self).__name__, "paragraph", self))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible values."""
        raise NotImplementedError

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the result as JSON, atomically."""
        write_result(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the result as one self-contained HTML page, atomically."""
        with replace_result(path) as temporary:
            temporary.write_text(self._render_page(), encoding="utf-8")

    def __str__(self) -> str:
        return str(render(type(self).__name__, "text", self))
