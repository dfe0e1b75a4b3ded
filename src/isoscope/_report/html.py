"""Functions that build HTML tags, documents, sections and tables."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from importlib.resources import files
from typing import Any

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all but tabs and line breaks
_VOID = {"meta", "link", "input", "br", "img"}
_SCRIPT_ESCAPES = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


class Section(Markup):
    """A section of a page: its id, its content, and its heading, which appears in the table of contents."""

    __slots__ = ("heading", "identity")

    identity: str
    heading: str


def _escape_text(text: str) -> str:
    """Escape text for HTML; control characters, which HTML does not allow, become visible escapes."""
    return html.escape(_CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text))


def escape(value: object) -> Markup:
    """Return text as HTML; markup is returned unchanged.

    >>> escape("a < b"), escape(Markup("<b>"))
    ('a &lt; b', '<b>')
    """
    return value if isinstance(value, Markup) else Markup(_escape_text(str(value)))


def join_markup(*parts: object) -> Markup:
    """Return the concatenated parts, skipping those that are None."""
    return Markup("".join(escape(part) for part in parts if part is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element; `class_` becomes ``class``, `aria_label` becomes ``aria-label``; None omits an attribute.

    >>> tag("a", "5 > 4", class_="sum", href=None)
    '<a class="sum">5 &gt; 4</a>'
    """
    pairs = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escape_text(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{pairs}>" + ("" if name in _VOID else f"{join_markup(*children)}</{name}>"))


def render_code(text: str) -> Markup:
    """Return text in which the parts in `backticks` are code elements.

    >>> render_code("Run `isoscope advise` first.")
    'Run <code>isoscope advise</code> first.'
    """
    parts = text.split("`")
    return join_markup(*(tag("code", part) if i % 2 else part for i, part in enumerate(parts)))


def json_script(identity: str, data: Any) -> Markup:
    """Return a script element with JSON data for the page's script, escaped so that no text can close the element.

    >>> json_script("a", "</script>")
    '<script type="application/json" id="a">"\\\\u003c/script\\\\u003e"</script>'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_SCRIPT_ESCAPES)
    return tag("script", Markup(text), type="application/json", id=identity)


def csp_hash(text: str) -> str:
    """Return the source expression that allows one inline style or script in a content security policy."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def read_resources(*names: str) -> str:
    """Return the concatenated text of files in `isoscope._report`."""
    return "".join(files("isoscope._report").joinpath(name).read_text("utf-8") for name in names)


def wrap_scripts(*names: str) -> str:
    """Return a JavaScript function that runs scripts on a document or a shadow root; its result holds the clouds."""
    return f"((root) => {{\nconst isoscope = {{}};\n{read_resources(*names)}\nreturn isoscope;\n}})"


def document(title: str, version: str, *content: Markup, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """Return a complete HTML document whose security policy allows only its own styles and scripts.

    `styles` and `scripts` are files in `isoscope._report`. Every document includes the styles for colors and charts.

    Examples
    --------
    >>> document("a < b", "1.0", tag("main", "Text."), styles=["page.css"])[:15]
    '<!doctype html>'
    """
    style, script = read_resources("colors.css", "chart.css", *styles), ""
    if scripts:
        # a class on the root element tells the styles that scripts run
        script = "document.documentElement.classList.add('scripted');\n"
        script += f"window.isoscope = {wrap_scripts(*scripts)}(document);\n"
    policy = (
        f"default-src 'none'; style-src {csp_hash(style)}; "
        + (f"script-src {csp_hash(script)}; " if script else "")
        + "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"isoscope {version}"),
        tag("title", f"{title}: isoscope"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(style)),
    )
    footer = f"Made by isoscope {version}. This page is a single file and loads nothing from the network."
    body = tag(
        "body",
        *content,
        tag("footer", tag("p", footer)),
        tag("script", Markup(script)) if script else None,
    )
    page = "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"
    # UTF-8 cannot encode half of a surrogate pair, which broken text may contain
    return page.encode("utf-8", "replace").decode("utf-8")


def section(identity: str, heading: str, *children: object) -> Section:
    """Return a section of the page with its heading."""
    made = Section(
        tag(
            "section",
            tag("h2", heading, id=f"{identity}-title"),
            *children,
            id=identity,
            aria_labelledby=f"{identity}-title",
        )
    )
    made.identity, made.heading = identity, heading
    return made


def render_main(*sections: Section | None) -> Markup:
    """Return the contents of a page, a link to each section, followed by the sections; None is skipped."""
    present = [each for each in sections if each is not None]
    links = (tag("li", tag("a", each.heading, href=f"#{each.identity}")) for each in present)
    contents = tag("nav", tag("ul", *links), aria_label="Contents", class_="contents")
    return join_markup(contents, tag("main", *present))


def render_date(made: date | None = None) -> Markup:
    """Return the date on which a page was made: by default today, or SOURCE_DATE_EPOCH for a reproducible page."""
    if made is None:
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        made = datetime.fromtimestamp(int(epoch), UTC).date() if epoch else date.today()
    return join_markup("Created ", tag("time", made.isoformat(), datetime=made.isoformat()))


def render_heading(brand: str, source: str, size: str, headline: str, *more: object) -> Markup:
    """Return the heading of a page: what it answers, the source, its size, the date, the answer, and further parts."""
    return tag(
        "header",
        tag("p", f"isoscope: {brand}", class_="brand"),
        tag("p", tag("bdi", source), class_="source") if source else None,
        tag("p", size, " · ", render_date(), class_="size"),
        tag("h1", headline),
        *more,
    )


def render_code_block(*lines: str) -> Markup:
    """Return lines of code, such as commands, with a button that copies them."""
    button = tag("button", "Copy", type="button", class_="copy live")
    return tag("div", tag("pre", tag("code", "\n".join(lines))), button, class_="command")


def render_definition_list(*rows: tuple[object, object]) -> Markup:
    """Return names and their descriptions as a definition list."""
    return tag("dl", *(join_markup(tag("dt", name), tag("dd", value)) for name, value in rows), class_="facts")


def render_scrollable(table: Markup, *, label: str | None = None, labeled_by: str | None = None) -> Markup:
    """Return a table that scrolls sideways on a narrow screen and can be reached with the keyboard.

    Its name for screen readers is the label, or the heading with the id `labeled_by` followed by "table".
    """
    names: dict[str, str | None] = {"aria_label": label}
    if labeled_by is not None:
        own = f"{labeled_by}-table"
        names = {"id": own, "aria_label": "table", "aria_labelledby": f"{labeled_by} {own}"}
    return tag("div", table, class_="scroll", tabindex="0", role="region", **names)


def render_table_head(*names: object) -> Markup:
    """Return the head of a table with one row of column names."""
    return tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))


# notebooks

_CELL = "padding:.25em .9em .25em 0;vertical-align:top;background:none;"
_EDGE = "border:0;border-top:1px solid rgba(128,128,128,.35);font-variant-numeric:tabular-nums;"
_CHIP = "color:#fff;border-radius:.3em;padding:.05em .5em;white-space:nowrap;"
_CHIP_COLORS = {
    "ok": "#0b6b5d",
    "look": "#7d5200",
    "bad": "#b3261e",
    "gain": "#0b6b5d",
    "noise": "#6b6b6b",
    "loss": "#b3261e",
}


def render_chip(verdict: str, *words: object, **attributes: object) -> Markup:
    """Return words on a background in the color of a verdict, for use in a notebook."""
    return tag("span", *words, style=f"background:{_CHIP_COLORS[verdict]};{_CHIP}", **attributes)


def render_notebook_table(
    lead: Iterable[object],
    names: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    images: Iterable[Markup] = (),
    notes: Iterable[object] = (),
    align: str = "left",
    wrap: bool = False,
    bold_row: int | None = None,
) -> str:
    """Return paragraphs, images, a table and notes for a notebook; they use inline styles and no scripts or ids.

    The first cell of each row is its heading. If `wrap` is set, long cells are broken into lines.
    """
    base = f"{_CELL}text-align:{align};white-space:{'normal' if wrap else 'nowrap'};"
    head = tag("tr", *(tag("th", name, scope="col", style=f"{base}border:0;font-weight:600") for name in names))
    body = []
    for i, (first, *cells) in enumerate(rows):
        style = base + _EDGE + f"font-weight:{600 if i == bold_row else 400}"
        row = [tag("th", first, scope="row", style=style), *(tag("td", cell, style=style) for cell in cells)]
        body.append(tag("tr", *row, style="background:none"))
    table = tag(
        "table",
        tag("thead", head),
        tag("tbody", *body),
        style="border-collapse:collapse;border:0;color:inherit;margin:.5em 0",
    )
    drawn = list(images)
    return tag(
        "div",
        *(tag("p", words, style="margin:.3em 0") for words in lead),
        tag("div", *drawn) if drawn else None,
        tag("div", table, style="overflow-x:auto"),
        *(tag("p", note, style="margin:.3em 0;opacity:.8") for note in notes),
        style="color:inherit;max-width:72em",
    )
