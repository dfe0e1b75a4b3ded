"""Find the places of a module where one operator or number can change, for tools/mutants.py.

Docstrings, messages, annotations, `__repr__` and code for type checkers do not change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

EXCLUDED = {
    r"BYTES|MEMORY|BLOCK|BUFFER|CHUNK|TILE|^_PAGE|PIECE|PREALLOCATION|_PER_|AT_ONCE": "how much to process at a time",
    r"WAIT|TIMEOUT|POLL|DELAY|PAUSES": "how long to wait",
    r"WIDTH|HEIGHT|SPACING": "the layout of pictures and tables",
}
"""Names of module-level constants that are not mutated, with what they set: another value is no fault."""

SWAPS = {"<": "<=", ">": ">=", "==": "!=", "and": "or", "+": "-", "*": "//", "+=": "-=", "*=": "//="}
SWAPS |= {after: before for before, after in SWAPS.items()}

RETURNED = {"bool": "True", "int": "1", "float": "1.0", "str": "''"}
"""The constant that a function returns instead of its value, by its annotation (None for all others)."""


class Mutant(NamedTuple):
    """A module in which the bytes from `start` to `stop` are replaced."""

    path: str
    start: int
    stop: int
    text: str
    original: bytes

    @property
    def source(self) -> bytes:
        """The mutated module."""
        return self.original[: self.start] + self.text.encode() + self.original[self.stop :]

    @property
    def line(self) -> int:
        """The number of the line that changes."""
        return self.original.count(b"\n", 0, self.start) + 1

    @property
    def change(self) -> str:
        """The line before and after."""
        begin = self.original.rfind(b"\n", 0, self.start) + 1
        end = self.original.find(b"\n", self.stop) % (len(self.original) + 1)
        before, after = self.original[begin:end], self.original[begin : self.start] + self.text.encode()
        after += self.original[self.stop : end]
        return " → ".join(text.decode().strip().split("\n")[0] for text in (before, after))


class Finder:
    """Finds the mutants of one module."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.line_starts = [0, *(match.end() for match in re.finditer(b"\n", source))]

    def find(self) -> list[Mutant]:
        """Return the mutants, in the order of the code."""
        return sorted(mutant for node in ast.parse(self.source).body for mutant in self._visit(node, ""))

    def _span(self, node: Any) -> tuple[int, int]:
        first, last = self.line_starts[node.lineno - 1], self.line_starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset

    def _replace(self, start: int, stop: int, text: str) -> Iterator[Mutant]:
        yield Mutant(self.path, start, stop, text, self.source)

    def _swap(self, left: ast.expr, right: ast.expr) -> Iterator[Mutant]:
        """Swap the operator between two operands."""
        start, stop = self._span(left)[1], self._span(right)[0]
        match = re.search(rb"[^\s()\\]+", self.source[start:stop])
        if match and match[0].decode() in SWAPS:
            yield from self._replace(start + match.start(), start + match.end(), SWAPS[match[0].decode()])

    def _own(self, node: ast.AST, returns: str) -> Iterator[Mutant]:
        """Yield the mutants of one node, without those of its children."""
        match node:
            case ast.Compare():
                for left, right in pairwise([node.left, *node.comparators]):
                    yield from self._swap(left, right)
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    yield from self._swap(left, right)
            case ast.BinOp() if not (is_text(node.left) or is_text(node.right)):
                yield from self._swap(node.left, node.right)
            case ast.AugAssign() if not is_text(node.value):
                yield from self._swap(node.target, node.value)
            case ast.UnaryOp(op=ast.Not()):
                start, _ = self._span(node)
                yield from self._replace(start, start + len("not"), "")
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                larger = number + 1 if isinstance(number, int) or number == 0 else float(f"{1.2 * number:.12g}")
                yield from self._replace(*self._span(node), repr(larger))
            case ast.Return(value=ast.Constant(value=bool() as value)):
                yield from self._replace(*self._span(node.value), repr(not value))
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield from self._replace(*self._span(value), RETURNED.get(returns, "None"))
            case ast.IfExp(test=test) | ast.If(test=test, orelse=[_, *_]):
                start, stop = self._span(test)
                yield from self._replace(start, stop, f"not ({self.source[start:stop].decode()})")

    def _visit(self, node: ast.AST, returns: str) -> Iterator[Mutant]:
        children = ast.iter_child_nodes(node)
        match node:
            case ast.Raise() | ast.JoinedStr() | ast.arg() | ast.FunctionDef(name="__repr__"):
                return  # messages and annotations
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if "warn" in name:
                return
            case ast.Assign(targets=[target]) if is_excluded(target):
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                children = iter(node.orelse)
            case ast.AnnAssign():
                children = iter([node.value] if node.value else [])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                children = iter([node.args, *node.body])
                returns = ast.unparse(node.returns) if node.returns else ""
            case _:
                yield from self._own(node, returns)
        for child in children:
            yield from self._visit(child, returns)


def is_text(node: ast.AST) -> bool:
    """Return whether an expression is a string."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_excluded(target: ast.AST) -> bool:
    """Return whether an assignment sets a constant that `EXCLUDED` names."""
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name) and node.id.isupper()]
    return any(re.search(pattern, name) for name in names for pattern in EXCLUDED)


def code_lines(source: bytes) -> int:
    """Return the number of lines with code; comments and lines with only a string do not count."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr | ast.stmt))
    return len({node.lineno for node in nodes if not is_text(node.value if isinstance(node, ast.Expr) else node)})
