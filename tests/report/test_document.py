import re

from isoscope._report.html import Markup, document, render_definition_list, section, tag
from tests.report.parsed import Parsed, allows_itself_alone, in_order

EVIL = "</title></style><img src=x onerror=alert(1)>"


def made(*content: Markup, title: str = "a title", scripts: tuple[str, ...] = ()) -> str:
    return document(
        title,
        "1.2.3",
        tag("header", tag("h1", "Words")),
        tag("main", *content),
        styles=["page.css"],
        scripts=scripts,
    )


def test_document_is_valid_html_with_strict_csp():
    for scripts in ((), ("page.js",), ("cloud.js", "page.js")):
        text = made(section("part", "A part", tag("p", "Text.")), scripts=scripts)
        in_order(text)
        parsed = allows_itself_alone(text)
        assert len(parsed.all("script")) == bool(scripts)
        assert len(parsed.all("style")) == 1


def test_without_scripts_csp_allows_none():
    assert "script-src" not in made(), "so that the default holds: none"
    assert "script-src" in made(scripts=("page.js",))


def test_title_and_version_are_shown_and_escaped():
    parsed = Parsed(made(title=EVIL))
    assert f"{EVIL}: isoscope" in parsed.text
    assert not parsed.all("img")
    assert "Made by isoscope 1.2.3" in parsed.text


def test_lone_surrogate_can_be_written():
    assert "broken ?" in made(tag("p", "broken \ud800")).encode("utf-8").decode("utf-8")


def test_control_characters_are_shown_as_escapes():
    assert tag("p", "a\x00b\x1b[31m\tc\n", title="\x07") == '<p title="\\x07">a\\x00b\\x1b[31m\tc\n</p>'


def test_facts_are_escaped_pairs():
    drawn = render_definition_list(("a < b", "c"), ("d", tag("code", "e")))
    assert re.fullmatch(r'<dl class="facts"><dt>a &lt; b</dt><dd>c</dd><dt>d</dt><dd><code>e</code></dd></dl>', drawn)
