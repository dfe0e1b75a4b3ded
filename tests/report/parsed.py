"""Parse a page, and check what must hold for every page."""

from __future__ import annotations

import base64
import itertools
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from isoscope._report.html import csp_hash


class Parsed(HTMLParser):
    """The elements of a page, its text, and the content of its scripts and styles."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.raw: list[tuple[str, dict[str, str], str]] = []
        self.text = ""
        self.comments = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, {key: value or "" for key, value in attributes}))
        if name in ("script", "style"):
            self.raw.append((name, self.elements[-1][1], ""))

    def handle_data(self, text):
        if self.cdata_elem:
            name, attributes, before = self.raw[-1]
            self.raw[-1] = (name, attributes, before + text)
        else:
            self.text += text

    def handle_comment(self, text):
        self.comments += 1

    def all(self, name):
        return [attributes for element, attributes in self.elements if element == name]

    def held(self, identity):
        return next(json.loads(text) for _, attributes, text in self.raw if attributes.get("id") == identity)

    def foreign_images(self):
        """Return the images of a page that are not its own inline drawings."""
        return [each for each in self.all("img") if not each["src"].startswith("data:image/svg+xml;base64,")]

    def drawings(self):
        """Return the drawings in the images of a notebook output."""
        return [ElementTree.fromstring(base64.b64decode(each["src"].partition(",")[2])) for each in self.all("img")]

    @property
    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def in_order(text: str) -> Parsed:
    """Check that a document is valid and accessible to a screen reader."""
    parsed = Parsed(text)
    assert text.startswith("<!doctype html>")
    assert parsed.all("html") == [{"lang": "en"}]
    assert len(parsed.ids) == len(set(parsed.ids))
    levels = [int(name[1]) for name, _ in parsed.elements if re.fullmatch(r"h[1-6]", name)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    keys = ("aria-labelledby", "aria-describedby", "for")  # the first two take several ids
    named = [name for _, a in parsed.elements for key in keys for name in a.get(key, "").split()]
    named += [a["href"][1:] for a in parsed.all("a")]
    assert set(named) <= set(parsed.ids)
    assert all(a.get("aria-label") for _, a in parsed.elements if a.get("role") == "img")
    assert {"main", "header", "footer"} <= {name for name, _ in parsed.elements}
    return parsed


def allows_itself_alone(text: str) -> Parsed:
    """Check that a document's policy allows only its own styles and scripts, and that it makes no requests."""
    parsed = Parsed(text)
    policy = next(meta["content"] for meta in parsed.all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name, attributes, content in parsed.raw:
        if "type" not in attributes:
            assert f"{name}-src {csp_hash(content)}" in policy
    assert not [attributes for _, attributes in parsed.elements if "style" in attributes]
    told = re.sub(r'"points":"[^"]*"', "", text)  # base64 has slashes of its own
    assert not re.search(r"https?:|//[a-z]", told.replace("//#", ""))
    links = [
        attributes[key] for _, attributes in parsed.elements for key in ("href", "src", "action") if key in attributes
    ]
    assert {link for link in links if not link.startswith("#")} == {"data:,"}
    return parsed
