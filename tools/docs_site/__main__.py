"""Build the site in out/docs/site and check it: `python -m tools.docs_site`; `--serve` then serves it on port 8000.

Zensical reports links and anchors in Markdown that lead nowhere. This script also checks the finished pages: every
link, and that nothing is loaded from the network.
"""

from __future__ import annotations

import argparse
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.docs_site.staging import ROOT, stage

_FOLDER = ROOT / "out" / "docs"
_WORKER = "https://unpkg.com/iframe-worker/shim"
_NESTED_NAV = re.compile(
    r'(<nav class="md-nav"[^>]*?) aria-labelledby="[^"]+"'
    r'([^>]*>\s*<label class="md-nav__title"[^>]*>.*?</span>\s*)([^<\n]+)',
    re.S,
)
"""A nested navigation and its title; the theme names it after another label, which has no text."""

_HERE = Path(__file__).parent


def build(folder: Path) -> list[str]:
    """Build the site in `folder`/site; return the problems of the finished pages."""
    stage(folder)
    zensical = Path(sys.executable).with_name("zensical")
    run = subprocess.run(
        [zensical, "build", "--strict", "--clean", "--config-file", "mkdocs.yml"], cwd=folder, check=False
    )
    if run.returncode:
        return ["zensical did not build the site; see above"]
    site = folder / "site"
    shutil.copy(_HERE / "iframe-worker.js", site / "assets" / "javascripts")
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    (site / "404.html").unlink()  # its paths assume the root of a server
    for path in pages:
        up = "../" * (len(path.relative_to(site).parts) - 1)
        text = path.read_text("utf-8").replace(_WORKER, f"{up}assets/javascripts/iframe-worker.js")
        path.write_text(_NESTED_NAV.sub(r'\1 aria-label="\3 pages"\2\3', text), "utf-8")
    return list(find_problems(site, pages))


class _Page(HTMLParser):
    """The anchors of a page, its links, and the addresses that it loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses of one element."""
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        href, src = given.get("href"), given.get("src")
        if src:
            self.loaded.append(src)
        if href and tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(href)
        elif href and tag == "a":
            self.links.append(href)


def find_problems(site: Path, paths: list[Path]) -> Iterator[str]:
    """Yield each link of a page that leads nowhere, and each address that a page loads from the network."""
    pages = {path: _Page(path.read_text("utf-8")) for path in paths}
    for path, page in pages.items():
        where = path.relative_to(site)
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loaded and parts.scheme != "data":
                    yield f"{where} loads {address}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{where}: {address} does not exist"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where}: {address} has no such anchor"
    for path in site.rglob("*.css"):
        for address in re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]+)", path.read_text("utf-8")):
            yield f"{path.relative_to(site)} loads {address}"


def main() -> int:
    """Build the site; return 1 if a page has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve the site on http://localhost:8000 afterwards")
    serve = parser.parse_args().serve
    problems = build(_FOLDER)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problems; the site is {(_FOLDER / 'site' / 'index.html').relative_to(ROOT)}")
    if serve and not problems:
        handler = functools.partial(SimpleHTTPRequestHandler, directory=str(_FOLDER / "site"))
        ThreadingHTTPServer(("localhost", 8000), handler).serve_forever()
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
