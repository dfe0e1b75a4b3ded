"""The document around a page's content: one file that needs nothing else and asks nothing of any network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from isoscope._report.html import Markup, csp_hash, join_markup, tag


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
