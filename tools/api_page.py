"""Write docs/api.md, the reference page of all public names: `python tools/api_page.py`.

With `--check`, it writes nothing, and exits with 1 if the page differs from the code.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
_LINE = 88  # maximum length of a signature on one line; a longer one has one line per parameter

_GUIDES = {
    "isoscope._core.memory": "scale.md",
    "isoscope.sketching": "measurements.md",
    "isoscope.metrics": "measurements.md",
    "isoscope.stores": "audit.md",
    "isoscope.transforms": "repairs.md",
    "isoscope.auditing": "audit.md",
    "isoscope.advising": "advisor.md",
    "isoscope.thresholding": "threshold.md",
    "isoscope.comparing": "same.md",
    "isoscope.compressing": "compress.md",
    "isoscope.losses": "training.md",
    "isoscope.training": "training.md",
    "isoscope.embedding": "embedding.md",
    "isoscope.finetuning": "training.md",
    "isoscope.studies": "studies.md",
}
"""The guide page for the names that are defined in each package."""

_RESULTS = (
    "Advice",
    "Attachment",
    "Audit",
    "Batch",
    "ClusterChoice",
    "Estimate",
    "Finding",
    "FineTuning",
    "GroupedAudit",
    "History",
    "Hubness",
    "Store",
    "StudyRun",
)
"""Classes that functions return and that users do not construct; their entries have no signature."""

_INTRODUCTION = """# API reference

Each public name has its signature, its summary and a link to the guide. `help(isoscope.audit)` prints the parameters
and examples of a function. `tools/api_page.py` writes this page from the code.
"""


def public_modules() -> list[str]:
    """Return isoscope and its submodules that are available after `import isoscope`."""
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    isoscope = importlib.import_module("isoscope")
    listed = [name for name in dir(isoscope) if name not in isoscope.__all__]
    return ["isoscope", *(f"isoscope.{name}" for name in listed if isinstance(getattr(isoscope, name), ModuleType))]


def public_names() -> list[str]:
    """Return the dotted names in `__all__` of isoscope and of its public modules."""
    return [
        f"{module}.{name}"
        for module in public_modules()
        for name in importlib.import_module(module).__all__
        if not name.startswith("__")
    ]


def render_page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION]
    first: dict[int, str] = {}  # the name under which an object appears first
    for module in public_modules():
        package = importlib.import_module(module)
        parts.append(f"## `{module}`\n\n{_summary(package)}\n")
        values = {name: getattr(package, name) for name in package.__all__ if not name.startswith("__")}
        for name, value in sorted(values.items(), key=lambda item: (inspect.isclass(item[1]), item[0].lower())):
            shown = f"{module}.{name}"
            if first.setdefault(id(value), shown) != shown:
                link = first[id(value)]
                parts.append(f"### `{shown}`\n\nThe same as [`{link}`](#{_anchor(link)}).\n")
            else:
                parts.append(_render_entry(shown, value))
    return "\n".join(parts)


def _render_entry(shown: str, value: Any) -> str:
    lines = [f"### `{shown}`", ""]
    if not (inspect.isclass(value) and (issubclass(value, BaseException) or value.__name__ in _RESULTS)):
        lines += ["```python", _format_signature(shown, inspect.signature(value)), "```", ""]
    guide = next((page for prefix, page in _GUIDES.items() if value.__module__.startswith(prefix)), None)
    lines.append(_summary(value) + (f" [Guide]({guide})" if guide else ""))
    if inspect.isclass(value) and (members := _render_members(value)):
        lines += ["", *members]
    return "\n".join(lines) + "\n"


def _render_members(value: type) -> list[str]:
    """Return a list item for each public method and property that isoscope defines."""
    members: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if base.__module__.partition(".")[0] == "isoscope":
            members.update({name: member for name, member in vars(base).items() if not name.startswith("_")})
    lines = []
    for name, member in sorted(members.items()):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function):
            lines.append(f"- `{name}()`: {_summary(function)}")
        elif isinstance(member, property | cached_property):
            lines.append(f"- `{name}`: {_summary(member)}")
    return [line for line in lines if not line.endswith(": ")]


def _summary(value: Any) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _format_signature(shown: str, signature: inspect.Signature) -> str:
    parameters = [_format_parameter(each) for each in signature.parameters.values()]
    kinds = [each.kind for each in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returns = signature.return_annotation
    end = "" if returns in (inspect.Signature.empty, None, "None") else f" -> {_format_annotation(returns)}"
    line = f"{shown}({', '.join(parameters)}){end}"
    return line if len(line) <= _LINE else f"{shown}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){end}"


def _format_parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_format_annotation(parameter.annotation)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = getattr(parameter.default, "__name__", None) or repr(parameter.default).replace("<factory>", "...")
    return f"{text} = {default}" if ": " in text else f"{text}={default}"


def _format_annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _anchor(name: str) -> str:
    """Return the anchor that Markdown renderers give the heading of a name."""
    return name.replace(".", "").lower()


def main() -> int:
    """Write the page, or compare it with the code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page differs from the code")
    page = render_page()
    if parser.parse_args().check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
