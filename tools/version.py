"""Print the version of isoscope without importing it."""

from __future__ import annotations

import ast
from pathlib import Path


def read_version() -> str:
    """Return the value of `__version__` in src/isoscope/__init__.py."""
    tree = ast.parse((Path(__file__).resolve().parent.parent / "src" / "isoscope" / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__version__":
            return str(ast.literal_eval(node.value))
    raise SystemExit("src/isoscope/__init__.py does not set __version__")


if __name__ == "__main__":
    print(read_version())
