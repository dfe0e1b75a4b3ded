"""HTML and SVG from values: whatever is not markup already is escaped, so that nobody can forget to."""

from __future__ import annotations

import hashlib
import html
import json
from base64 import b64encode
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
