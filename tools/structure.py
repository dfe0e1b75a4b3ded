"""Print facts about the code: import cycles, import order, size, the path of one audit, shared and undocumented names.

`make structure` runs this script. With `--check`, it exits with 1 if there is an import cycle, an import against the
order of packages, a shared module name without a reason, or a difference between the public names and docs/api.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import api_page

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "isoscope"

ORDER = (
    "_core",
    "_io",
    "sketching",
    "metrics",
    "stores",
    "engines",
    "transforms",
    "auditing",
    "advising",
    "thresholding",
    "comparing",
    "compressing",
    "losses",
    "training",
    "embedding",
    "finetuning",
    "_report",
    "studies",
    "cli",
)
"""The packages in order; a module imports only from its own package and from those before it."""

EXEMPT = ("isoscope", "isoscope._lazy", "isoscope._render", "isoscope.errors", "isoscope.__main__")
"""Modules that may import from everywhere: the lists of public names and renderers, and the entry point."""

SHARED_NAMES = {
    "advise": "the function, and its command",
    "audit": "the function, and its command",
    "candidates": "the candidates of the advisor, and of compress",
    "claims": "the claims of each study",
    "compress": "the function, and its command",
    "embed": "the function, and its command",
    "errors": "the error classes, and the public module that exports them",
    "figures": "figures of results, and figures of studies",
    "finetune": "the function, and its command",
    "measure": "measurements of a store, and of the arms of each study",
    "outcome": "the tables and figures of each study",
    "registry": "the datasets of the studies, and the models with known cosines",
    "same": "the function, and its commands",
    "repair": "the base class of repairs, and the commands fit, apply and fix",
    "run": "a resumable run of embed, and of a study",
    "shards": "folders of shards: writing them, and reading them",
    "similarity": "percentiles of cosines: the result, and its table on the page",
    "study": "the protocol of each paper, the classes that all of them use, and the command",
    "threshold": "the function, and its command",
    "trials": "candidates, fitted and scored: repairs, and quantizers",
    "write": "writing a store: to files, and to databases",
}
"""Module names that occur in several packages, with the reason."""


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Return the path of each module of a package by its dotted name."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of isoscope that a file imports at run time, including imports inside functions."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else str(node.module))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components with more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == name:
                    break
            if len(component) > 1:
                components.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return components


def against_order(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports from a package that comes after the importing module's own package."""

    def rank(name: str) -> int:
        package = name.split(".")[1] if "." in name else name
        return ORDER.index(package) if package in ORDER else -1

    return [
        (name, other)
        for name in sorted(graph)
        for other in sorted(graph[name])
        if name not in EXEMPT and other not in EXEMPT and rank(other) > rank(name)
    ]


def shared_base_names(known: dict[str, Path]) -> dict[str, list[str]]:
    """Return the module names that occur in several packages, with these packages."""
    packages: dict[str, list[str]] = defaultdict(list)
    for name, path in known.items():
        if path.name != "__init__.py":
            package, _, base = name.rpartition(".")
            packages[base].append(package)
    return {base: places for base, places in sorted(packages.items()) if len(places) > 1}


def undocumented() -> list[str]:
    """Return the public names that are missing from docs/api.md, and the names in it that are not public."""
    headings = re.findall(r"^### `([\w.]+)", api_page.PAGE.read_text(encoding="utf-8"), flags=re.M)
    return sorted(set(headings) ^ set(api_page.public_names()))


WALK = """
import json, sys, threading
from isoscope.cli.main import main
import isoscope
source = {source!r}
files, first = set(), []
def profile(frame, event, argument):
    if event != "call":
        return
    if not frame.f_code.co_filename.startswith(source):
        return
    stack = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(source):
            stack.append(frame.f_code)
        frame = frame.f_back
    if any(code.co_name == "<module>" for code in stack):
        return  # an import
    files.add(stack[0].co_filename)
    if not first and stack[0].co_name == "_read":
        first.extend(stack)
threading.setprofile(profile)
sys.setprofile(profile)
try:
    main(["audit", {data!r}, "--html", {page!r}])
except SystemExit:
    pass
sys.setprofile(None)
threading.setprofile(None)
print(json.dumps([len(files), len(first)]), file=sys.stderr)
"""


def walk() -> tuple[int, int]:
    """Return the number of files that `isoscope audit FILE --html PAGE` runs, and the stack depth at its first read."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        data, page = Path(folder) / "vectors.parquet", Path(folder) / "page.html"
        rows = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 16)
        pq.write_table(pa.table({"vector": vectors}), data)
        script = WALK.format(source=str(SOURCE), data=str(data), page=str(page))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        files, frames = json.loads(done.stderr.splitlines()[-1])
    return files, frames


def main() -> int:
    """Print the facts; with `--check`, return 1 if a rule is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a rule is broken")
    parser.add_argument("--no-walk", action="store_true", help="do not run an audit")
    arguments = parser.parse_args()

    known = modules()
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    loops, wrong = cycles(graph), against_order(graph)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in known.values())
    shared = shared_base_names(known)
    missing = undocumented()
    unexplained = {base: places for base, places in shared.items() if base not in SHARED_NAMES}

    print(f"import cycles, lazy imports included   {len(loops)}")
    for loop in loops:
        print("    " + ", ".join(loop))
    print(f"imports against the order              {len(wrong)}")
    for name, other in wrong:
        print(f"    {name} -> {other}")
    print(f"lines / modules in src                 {lines:,} / {len(known)}")
    if not arguments.no_walk:
        files, frames = walk()
        print(f"audit --html: files / frames before the first batch   {files} / {frames}")
    print(f"base names in several packages         {len(shared)}")
    for base, places in shared.items():
        print(f"    {base}: {SHARED_NAMES.get(base, 'no reason given')} ({', '.join(places)})")
    print(f"public names / without a documented page   {len(api_page.public_names())} / {len(missing)}")
    for name in missing:
        print(f"    {name}")
    return int(arguments.check and bool(loops or wrong or unexplained or missing))


if __name__ == "__main__":
    sys.exit(main())
