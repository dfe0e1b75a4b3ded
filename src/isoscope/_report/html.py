"""HTML tags, documents and sections."""

from __future__ import annotations

import hashlib
import html
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

_VOID = {"meta", "link", "input", "br"}
_SCRIPT_ESCAPES = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Text as HTML shows it.

    >>> escape("a < b"), escape(Markup("<b>"))
    ('a &lt; b', '<b>')
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def join_markup(*parts: object) -> Markup:
    """Parts one after the other; None is nothing."""
    return Markup("".join(escape(part) for part in parts if part is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element; `class_` and `aria_label` are written without and with a dash, None leaves an attribute out.

    >>> tag("a", "5 > 4", class_="sum", href=None)
    '<a class="sum">5 &gt; 4</a>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>" + ("" if name in _VOID else f"{join_markup(*children)}</{name}>"))


def json_script(identity: str, held: Any) -> Markup:
    """JSON for the page's script to read: no text in it can end the element.

    >>> json_script("a", "</script>")
    '<script type="application/json" id="a">"\\\\u003c/script\\\\u003e"</script>'
    """
    text = json.dumps(held, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_SCRIPT_ESCAPES)
    return tag("script", Markup(text), type="application/json", id=identity)


def csp_hash(text: str) -> str:
    """The source expression that allows one inline style or script in a content security policy."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def document(title: str, version: str, *content: Markup, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """Content as a whole document; styles and scripts are files of `isoscope._report`, and no others may be used.

    Examples
    --------
    >>> document("a < b", "1.0", tag("main", "Text."), styles=["page.css"])[:15]
    '<!doctype html>'
    """
    style, script = _read_resources(styles), _read_resources(scripts)
    if script:
        # a class on the root tells the style that scripts run
        script = "document.documentElement.classList.add('scripted');\n" + script
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
    body = tag(
        "body",
        *content,
        tag("footer", tag("p", f"Made by isoscope {version}. This page is one file and asks nothing of any network.")),
        tag("script", Markup(script)) if script else None,
    )
    whole = "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"
    # half of a surrogate pair, as broken text may hold, has no UTF-8
    return whole.encode("utf-8", "replace").decode("utf-8")


def section(identity: str, title: str, *children: object) -> Markup:
    """A part of the page with a heading that names it."""
    return tag(
        "section", tag("h2", title, id=f"{identity}-title"), *children, id=identity, aria_labelledby=f"{identity}-title"
    )


def render_definition_list(*rows: tuple[object, object]) -> Markup:
    """Names and what is to be said of each."""
    return tag("dl", *(join_markup(tag("dt", name), tag("dd", value)) for name, value in rows), class_="facts")


def _read_resources(names: Sequence[str]) -> str:
    return "".join(files("isoscope._report").joinpath(name).read_text("utf-8") for name in names)
