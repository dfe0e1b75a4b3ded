"""Collect the sources of the site in one folder: docs/, the generated reference, notebooks and linked code."""

from __future__ import annotations

import json
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tools.docs_site import reference

from isoscope._report.html import read_resources

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_SITE_LINK = re.compile(r"([\w ]*\w)<!-- site: (\S+) -->")
"""A comment that makes the words before it a link to a generated page, which exists only on the site."""
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)


def stage(folder: Path) -> None:
    """Write the Markdown, the images and the configuration of the site into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "docs"
    shutil.copytree(DOCS, source)
    pages = {**reference.python_pages(), **reference.command_pages(), **reference.schema_pages()}
    for name, text in pages.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for name, change in (("api.md", reference.link_entries), ("findings.md", reference.illustrate_findings)):
        (source / name).write_text(change((source / name).read_text("utf-8")), "utf-8")
    for path in sorted(source.rglob("*.ipynb")):
        convert_notebook(path)
    for path in sorted(source.rglob("*.md")):
        if path.relative_to(source).as_posix() not in pages:
            path.write_text(_adapt(path.read_text("utf-8"), path.relative_to(source), source), "utf-8")
    (source / "assets").mkdir(exist_ok=True)
    (source / "assets" / "site.css").write_text(site_styles(), "utf-8")
    shutil.copy(Path(__file__).with_name("site.js"), source / "assets")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    config["nav"] = expand_navigation(config["nav"], source)
    config["docs_dir"], config["site_dir"] = "docs", "site"
    config["plugins"][-1]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT / "src")]
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def expand_navigation(entries: list[Any], source: Path) -> list[Any]:
    """Replace each folder in the navigation by its pages, `index.md` first; leave out folders that do not exist."""
    expanded: list[Any] = []
    for entry in entries:
        if isinstance(entry, str):
            expanded.append(entry)
            continue
        for title, target in entry.items():
            if isinstance(target, list):
                expanded.append({title: expand_navigation(target, source)})
            elif target.endswith("/"):
                found = sorted((source / target).glob("*.md"), key=lambda path: (path.name != "index.md", path.name))
                if found:
                    expanded.append({title: [path.relative_to(source).as_posix() for path in found]})
            else:
                expanded.append({title: target})
    return expanded


def list_pages(entries: list[Any]) -> Iterator[str]:
    """Yield the paths and folders in a navigation."""
    for entry in entries:
        for target in [entry] if isinstance(entry, str) else entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from list_pages(target)


def _adapt(text: str, page: Path, source: Path) -> str:
    """Point links that leave docs/ to copies of the files, and give images a variant for the dark mode."""
    fences: list[str] = []

    def keep(match: re.Match[str]) -> str:
        fences.append(match[0])
        return f"\x00{len(fences) - 1}\x00"

    text = _FENCE.sub(keep, text)
    text = _SITE_LINK.sub(r"[\1](\2)", text)
    text = _LINK.sub(lambda match: match[1] + _relocate(match[2], page, source) + match[3], text)
    text = re.sub(
        r"!\[([^\]]*(?:\[[^\]]*\][^\]]*)*)\]\(([^)\s]+\.svg)\)", lambda m: _two_schemes(m, page, source), text
    )
    return re.sub("\x00(\\d+)\x00", lambda match: fences[int(match[1])], text)


def _relocate(target: str, page: Path, source: Path) -> str:
    """Return the link to a file; a file outside docs/ gets a page with its text."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return target
    path = Path(os.path.normpath(DOCS / page.parent / target))
    if path.suffix == ".ipynb" and path.stem != page.stem:  # a notebook is a page; its own page links to the file
        return f"{target.removesuffix('.ipynb')}.md"
    if path.is_relative_to(DOCS) or not path.is_file():
        return target
    name = path.relative_to(ROOT).as_posix()
    copy = source / "source" / f"{name}.md"
    copy.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".md"):
        copy.write_text(path.read_text("utf-8"), "utf-8")
    else:
        copy.write_text(f"# {name}\n\n````{path.suffix[1:]}\n{path.read_text('utf-8')}````\n", "utf-8")
    return Path(os.path.relpath(copy, (source / page).parent)).as_posix()


def _two_schemes(match: re.Match[str], page: Path, source: Path) -> str:
    """Show an SVG figure that follows the color scheme of the system in the scheme that the reader chose."""
    path = (source / page).parent / match[2]
    text = path.read_text("utf-8")
    media = re.compile(r"@media (?:screen and )?\(prefers-color-scheme: dark\)")
    if not media.search(text):
        return match[0]
    light, dark = path.with_suffix(".light.svg"), path.with_suffix(".dark.svg")
    light.write_text(media.sub("@media not all", text), "utf-8")
    dark.write_text(media.sub("@media all", text), "utf-8")
    folder = match[2].rpartition("/")[0]
    names = [f"{folder}/{each.name}" if folder else each.name for each in (light, dark)]
    return f"![{match[1]}]({names[0]}#only-light)![{match[1]}]({names[1]}#only-dark)"


# notebooks


def convert_notebook(path: Path) -> None:
    """Write an executed notebook as a Markdown page beside it; the notebook itself stays as a download."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = []
    for number, cell in enumerate(cells):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code" and text.strip():
            parts.append(f"```python\n{text}\n```")
            for index, output in enumerate(cell["outputs"]):
                parts += _convert_output(output, path.with_name(f"{path.stem}-{number}-{index}"))
    parts.insert(1, f"[Download this notebook]({path.name})")
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n", "utf-8")


def _convert_output(output: dict[str, Any], stem: Path) -> Iterator[str]:
    data = {kind: "".join(text) if isinstance(text, list) else text for kind, text in output.get("data", {}).items()}
    html = data.get("text/html", "")
    if html and not re.search(r"<(script|html|style)\b", html):
        lines = [line for line in html.splitlines() if line.strip()]  # an empty line would end the block
        yield "\n".join(['<div class="output">', *lines, "</div>"])
    elif html:
        page = stem.with_suffix(".html")
        page.write_text(_NOTEBOOK_OUTPUT.format(html), "utf-8")
        yield f'<iframe class="output" src="{page.name}" title="Output of the cell above" loading="lazy"></iframe>'
    elif "image/svg+xml" in data:
        stem.with_suffix(".svg").write_text(data["image/svg+xml"], "utf-8")
        yield f"![Output of the cell above]({stem.name}.svg)"
    elif "image/png" in data:
        stem.with_suffix(".png").write_bytes(b64decode(data["image/png"]))
        yield f"![Output of the cell above]({stem.name}.png)"
    else:
        text = data.get("text/plain") or "".join(output.get("text", ""))
        if text.strip():
            yield f"```text\n{text.rstrip()}\n```"


_NOTEBOOK_OUTPUT = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Output</title>
<meta name="color-scheme" content="light dark"><style>body {{ font: 14px system-ui, sans-serif; margin: 4px; }}</style>
</head><body><main>{}</main></body></html>
"""


# styles


def site_styles() -> str:
    """Return the styles of the site: ours, and those of the meters in both color schemes."""
    colors = read_resources("colors.css")
    light, dark = re.findall(r":root \{(.*?)\}", colors, re.S)[:2]
    light, dark = (text.replace("color-scheme: light dark;", "") for text in (light, dark))
    names = (".meter", ".value", ".halo", ".interval", ".null-mark")
    meters = [line for line in read_resources("page.css").splitlines(keepends=True) if line.startswith(names)]
    own = (Path(__file__).parent / "site.css").read_text("utf-8")
    return (
        f"[data-md-color-scheme] {{{light}}}\n[data-md-color-scheme=slate] {{{dark}}}\n" + "".join(meters) + "\n" + own
    )
