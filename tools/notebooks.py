"""Run the notebooks in docs/notebooks, and store what their cells print and show.

python tools/notebooks.py [--check] NOTEBOOK…

The cells run in this process, in order, in an empty folder. The outputs are what Jupyter would store: the printed
text, the last value of the cell, and open matplotlib figures. Widgets are stored as tables and images. With --check,
the notebooks stay unchanged; the exit code is 1 if a cell prints or returns another text than the stored one. Numbers
may differ by 2%: the BLAS of another processor rounds differently, which changes codes of 1 bit.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")
_DIFFERENCE = 0.02  # between numbers, relative


def read_notebook(path: Path) -> dict[str, Any]:
    """Return the content of a notebook."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(notebook: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Run the code cells in an empty folder, and yield the outputs of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory(prefix="isoscope-notebook-") as folder, contextlib.chdir(folder):
        for number, cell in enumerate(code_cells(notebook), 1):
            yield _run_cell("".join(cell["source"]), names, number)


def _run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if last is not None and not source.rstrip().endswith(";"):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _split(printed.getvalue())})
    if value is not None:
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append({**result, "data": _render(value)})
    outputs += [{"output_type": "display_data", "metadata": {}, "data": each} for each in _close_figures()]
    return outputs


def _render(value: Any) -> dict[str, Any]:
    """Return the representations of a value by type of content."""
    content = {"text/plain": _split(_ADDRESS.sub("", repr(value)))}
    if hasattr(value, "_repr_html_") and (markup := value._repr_html_()):
        content["text/html"] = _split(markup)
    return content


def _close_figures() -> list[dict[str, Any]]:
    """Return the open matplotlib figures as PNG, and close them."""
    plt = sys.modules.get("matplotlib.pyplot")
    figures = [] if plt is None else [plt.figure(each) for each in plt.get_fignums()]
    contents = []
    for figure in figures:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)
        contents.append({"image/png": base64.b64encode(file.getvalue()).decode() + "\n", "text/plain": ["<Figure>"]})
    return contents


def _split(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def find_texts(outputs: list[dict[str, Any]]) -> list[str]:
    """Return the texts of the outputs of a cell."""
    texts = [each["text"] if each["output_type"] == "stream" else each["data"]["text/plain"] for each in outputs]
    return ["".join(text) for text in texts]


def are_alike(texts: list[str], others: list[str]) -> bool:
    """Return whether texts are equal except for small differences between their numbers."""
    if [_NUMBER.sub("#", text) for text in texts] != [_NUMBER.sub("#", text) for text in others]:
        return False
    pairs = zip(_NUMBER.findall("".join(texts)), _NUMBER.findall("".join(others)), strict=True)
    return all(math.isclose(*(float(each.replace(",", "")) for each in pair), rel_tol=_DIFFERENCE) for pair in pairs)


def main() -> None:
    """Run the notebooks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    parser.add_argument("--check", action="store_true", help="compare the texts instead of storing the outputs")
    arguments = parser.parse_args()
    os.environ["MPLBACKEND"] = "agg"
    changed = 0
    for path in arguments.notebooks:
        notebook = read_notebook(path)
        for number, (cell, outputs) in enumerate(zip(code_cells(notebook), run_cells(notebook), strict=True), 1):
            was, now = find_texts(cell["outputs"]), find_texts(outputs)
            if not are_alike(was, now):
                changed += 1
                print(f"{path.name}, cell {number}:", *was, "is now:", *now, sep="\n")
            cell.update(outputs=outputs, execution_count=number)
        if not arguments.check:
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{path.name}: {path.stat().st_size / 1e3:,.0f} kB")
    raise SystemExit(1 if arguments.check and changed else 0)


if __name__ == "__main__":
    main()
