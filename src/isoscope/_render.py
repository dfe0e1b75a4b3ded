"""Render a result as text, a page or a figure with the functions in `_report`.

Result classes import nothing from `_report`. Their methods (`__str__`, `_repr_html_`, `to_html`, `plot_*`) call
`render`; a class that derives from `Result` inherits them.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from isoscope._io.files import atomic_replace
from isoscope._io.json import write_json

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
    "History": {
        "page": "training_page.render_training_page",
        "figure": "figures.save_profile",
    },
    "FineTuning": {
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


class Result:
    """What results share: the answer in words, text for the terminal, a table for notebooks, JSON and an HTML page."""

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
        write_json(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the result as one self-contained HTML page, atomically."""
        with atomic_replace(path) as temporary:
            temporary.write_text(render(type(self).__name__, "page", self), encoding="utf-8")

    def __str__(self) -> str:
        return str(render(type(self).__name__, "text", self))

    def _repr_html_(self) -> str:
        return str(render(type(self).__name__, "notebook", self))
