"""Generate the reference pages of the site: Python names, commands, findings and JSON schemas.

Each function returns Markdown by its path inside the site. The pages are never written into docs/.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import typer
from tools.api_page import public_modules

import isoscope
from isoscope._report.cards import draw_meter
from isoscope.auditing.finding import Finding
from isoscope.auditing.findings import FINDINGS
from isoscope.cli.main import app

PACKAGES = {
    "auditing": "Audits",
    "advising": "The advisor",
    "thresholding": "Thresholds",
    "comparing": "Comparing spaces",
    "compressing": "Compression",
    "metrics": "Measurements",
    "sketching": "Sketches",
    "transforms": "Repairs",
    "stores": "Sources and stores",
    "losses": "Losses",
    "training": "Training",
    "finetuning": "Fine-tuning",
    "embedding": "Embedding",
    "studies": "Studies",
    "errors": "Errors and warnings",
}
"""The title of the page with the names that each package defines."""

_OTHER_HOMES = {"_core": "stores", "engines": "sketching"}

GUIDES = {
    **{"demo": "start/first-audit.md", "audit": "audit.md", "similarity": "audit.md", "convert": "audit.md"},
    **{"sketch": "scale.md", "fit": "repairs.md", "apply": "repairs.md", "fix": "repairs.md", "advise": "advisor.md"},
    **{"threshold": "threshold.md", "same": "same.md", "canary": "same.md", "compress": "compress.md"},
    **{"embed": "embedding.md", "finetune": "training.md", "study": "studies.md", "mcp": "agents.md"},
}
"""The guide of each command."""


# Python


def python_pages() -> dict[str, str]:
    """Return one page for each package, with the docstrings of the public names that it defines."""
    homes = find_homes()
    pages = {}
    for package, title in PACKAGES.items():
        names = [name for name, home in homes.items() if home == package]
        entries = "\n\n".join(f"::: {name}" for name in names)
        pages[f"reference/python/{package}.md"] = f"# {title}\n\n{entries}\n"
    return pages


@cache
def find_homes() -> Mapping[str, str]:
    """Return the package that defines each public name, without names that are the same object as an earlier one.

    The source is parsed instead of imported, because some packages need torch.
    """
    homes: dict[str, str] = {}
    seen = set()
    for module in public_modules():
        package = importlib.import_module(module)
        sources = _find_sources(package)
        names = [name for name in package.__all__ if not name.startswith("__")]
        for name in sorted(names, key=lambda name: (name[0].isupper(), name.lower())):
            if (sources[name], name) not in seen:
                seen.add((sources[name], name))
                home = "errors" if sources[name].endswith("errors") else sources[name].split(".")[1]
                homes[f"{module}.{name}"] = _OTHER_HOMES.get(home, home)
    return homes


def _find_sources(package: ModuleType) -> dict[str, str]:
    """Return the module from which a package imports each name."""
    nodes = ast.walk(ast.parse(inspect.getsource(package)))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom) and node.module)
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def link_entries(page: str) -> str:
    """Add a link to the full entry of each name to the page docs/api.md."""

    def link(match: re.Match[str]) -> str:
        home = find_homes().get(match[1])
        more = f"\n\n[Parameters and examples](reference/python/{home}.md#{match[1]})" if home else ""
        return match[0] + more

    return re.sub(r"^### `([\w.]+)`$", link, page, flags=re.M)


# commands


def command_pages() -> dict[str, str]:
    """Return one page for each command, with its arguments, options, examples and exit codes."""
    group: Any = typer.main.get_command(app)
    top = typer.Context(group, info_name="isoscope")
    pages = {}
    rows = []
    for name, command in group.commands.items():
        pages[f"reference/commands/{name}.md"] = "\n".join(_render_command(command, name, top, 1))
        rows.append(f"| [`isoscope {name}`]({name}.md) | {_first_line(command.help)} |")
    pages["reference/commands/index.md"] = "\n".join(
        [
            "# Commands",
            "",
            "| command | purpose |",
            "|---|---|",
            *rows,
            "",
            *_render_options(group.params, top, "Options of every command"),
            *_render_epilog(group.epilog),
            "",
        ]
    )
    return pages


def _render_command(command: Any, name: str, parent: Any, level: int) -> Iterator[str]:
    context = typer.Context(command, parent=parent, info_name=name)
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    yield f"{'#' * level} isoscope {name}" if level == 1 else f"{'#' * level} {context.command_path}"
    yield ""
    yield from _clean(command.help).splitlines()
    if level == 1 and name in GUIDES:
        yield f"\nGuide: [{_read_title(GUIDES[name])}](../../{GUIDES[name]})"
    yield f"\n```console\n{usage}\n```\n"
    for each_name, each in getattr(command, "commands", {}).items():
        yield from _render_command(each, each_name, context, level + 1)
    if not getattr(command, "commands", None):
        yield from _render_options(command.get_params(context), context, "Options", level + 1)
    yield from _render_epilog(command.epilog)
    yield ""


def _render_options(parameters: Iterable[Any], context: Any, title: str, level: int = 2) -> Iterator[str]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for each in parameters:
        record = each.get_help_record(context)
        if record is None or each.name == "help":
            continue
        is_argument = each.param_type_name == "argument"
        heading = "Arguments" if is_argument else getattr(each, "rich_help_panel", None) or title
        groups.setdefault(heading, []).append(record)
    for heading, records in groups.items():
        kind = "argument" if heading == "Arguments" else "option"
        yield f"{'#' * level} {heading}\n\n| {kind} | meaning |\n|---|---|"
        for term, text in records:
            yield f"| `{re.sub(r' <list.*', '', term)}` | {_escape_text(text)} |"
        yield ""


def _render_epilog(epilog: str | None) -> Iterator[str]:
    """Render the text after the options; indented lines are commands."""
    is_code = False
    for line in (epilog or "").splitlines():
        if line.startswith("  ") != is_code:
            yield "\n```console" if not is_code else "```\n"
            is_code = not is_code
        yield line.strip() if is_code else _escape_text(line)
    if is_code:
        yield "```"


def _clean(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("\f", "")


def _first_line(text: str | None) -> str:
    return _escape_text(_clean(text).split("\n")[0])


def _escape_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"([|<*_\[\]])", r"\\\1", text)


def _read_title(page: str) -> str:
    path = Path(__file__).parents[2] / "docs" / page
    return next(line for line in path.read_text("utf-8").splitlines() if line.startswith("# ")).removeprefix("# ")


# findings


def illustrate_findings(page: str) -> str:
    """Add an example with its meter, range and source to each finding in docs/findings.md."""
    examples = example_findings()

    def add(match: re.Match[str]) -> str:
        pictures = "\n\n".join(_render_example(*examples[name]) for name in re.findall(r"`(\w+)`", match[0]))
        return f"{match[0]}\n\n{pictures}"

    return re.sub(r"^### .*$", lambda m: add(m) if re.search(r"`(\w+)`", m[0]) else m[0], page, flags=re.M)


def _render_example(finding: Finding, data: str) -> str:
    meter = draw_meter(finding)
    assert meter is not None
    value = f"<strong>{finding.shown}</strong> {f'[{finding.interval}]' if finding.interval else ''}"
    caption = (
        f"Example: {value} · {finding.verdict} · {finding.range}. Source of the range: {finding.judged.source}. {data}"
    )
    return f'<figure class="finding">{meter}<figcaption>{caption}</figcaption></figure>'


@cache
def example_findings() -> Mapping[str, tuple[Finding, str]]:
    """Return an example of each finding that has a meter, and a note on its data."""
    demo = resources.files("isoscope") / "demo" / "glosses-layer5.parquet"
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 48)) * np.linspace(2, 0.4, 48) + 0.4
    X[:4], X[10:30], X[30:60] = 0, X[40:60], X[60:90] + 1e-4
    extras = {"labels": np.arange(900) % 5, "types": np.arange(900) // 3, "frequency": np.exp(X[:, 0])}
    generated = isoscope.audit(X, queries=X[:50] + 6, **extras)
    basis = [np.linalg.qr(rng.standard_normal((48, 48)))[0][:12] for _ in range(2)]
    spaces = [rng.standard_normal((300, 12)) @ each + 2 * each[0] for each in basis]
    mixed = isoscope.audit(np.concatenate(spaces))
    examples: dict[str, tuple[Finding, str]] = {}
    for audit, data in (
        (isoscope.audit(str(demo)), "The example vectors of <code>isoscope demo</code>."),
        (generated, "Generated data."),
        (mixed, "Generated data: two spaces in one file."),
    ):
        for finding in audit.findings:
            if finding.name not in examples and draw_meter(finding) is not None:
                examples[finding.name] = (finding, data)
    return {name: examples[name] for name in FINDINGS}


# JSON schemas


def schema_pages() -> dict[str, str]:
    """Return one page for each JSON schema, with the path, type and meaning of every field."""
    pages, rows = {}, []
    for path in sorted(Path(str(resources.files("isoscope") / "schemas")).glob("*.schema.json")):
        schema = json.loads(path.read_text("utf-8"))
        name = path.name.removesuffix(".schema.json")
        page = [f"# {schema['title']}\n\n{_escape_text(schema['description'])}\n"]
        page.append(f"The file [`{path.name}`]({path.name}) is the complete schema (JSON Schema 2020-12).\n")
        page += _render_fields("Fields", schema)
        for key, definition in schema.get("$defs", {}).items():
            page += _render_fields(f"{key}", definition)
        pages[f"reference/schemas/{name}.md"] = "\n".join(page)
        pages[f"reference/schemas/{path.name}"] = path.read_text("utf-8")
        rows.append(f"| [`{schema['title']}`]({name}.md) | {_escape_text(schema['description'])} |")
    head = "# JSON schemas\n\n`isoscope COMMAND --schema` prints the schema of the JSON that `--json` writes.\n"
    pages["reference/schemas/index.md"] = "\n".join([head, "| schema | content |", "|---|---|", *rows, ""])
    return pages


def _render_fields(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title}\n"
    if title != "Fields" and "description" in schema:
        yield f"{_escape_text(schema['description'])}\n"
    rows = list(_list_fields(schema, ""))
    if rows:
        yield "| field | type | meaning |\n|---|---|---|"
        yield from rows
        yield ""
    elif "oneOf" in schema or "anyOf" in schema or "enum" in schema or "type" in schema:
        yield f"Type: {_describe_type(schema)}\n"


def _list_fields(schema: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        meaning = _escape_text(field.get("description", ""))
        choices = [each for each in field.get("oneOf", ()) if "const" in each and "description" in each]
        if choices:
            parts = [f"`{each['const']}`: {_escape_text(each['description'])}" for each in choices]
            meaning = " <br> ".join([meaning, *parts])
        yield f"| `{path}` | {_describe_type(field)} | {meaning} |"
        inner = field.get("items", field) if isinstance(field.get("items", field), dict) else {}
        yield from _list_fields(inner, f"{path}[]." if "items" in field else f"{path}.")


def _describe_type(field: Mapping[str, Any]) -> str:
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(each)}`" for each in field["enum"])
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if field["$ref"].startswith("#/$defs/") else f"`{field['$ref']}`"
    if "type" in field:
        kinds = [field["type"]] if isinstance(field["type"], str) else field["type"]
        items = field.get("items")
        if isinstance(items, dict) and ("$ref" in items or "type" in items):
            kinds = [f"array of {_describe_type(items)}" if kind == "array" else kind for kind in kinds]
        return " or ".join(kinds)
    options = field.get("oneOf") or field.get("anyOf")
    if options and not all("const" in each for each in options):
        return " or ".join(dict.fromkeys(_describe_type(each) for each in options))
    return "string" if options else ""
