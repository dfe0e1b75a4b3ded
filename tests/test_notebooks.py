"""The notebooks of the documentation: they run, and their stored outputs are current."""

import pytest
from threadpoolctl import threadpool_limits
from tools.notebooks import FOLDER, code_cells, find_texts, read_notebook, run_cells

from isoscope._core.threads import thread_count

LARGEST = 10**6  # bytes
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run_and_compare(path):
    pytest.importorskip("matplotlib")
    notebook = read_notebook(path)
    with threadpool_limits(thread_count(), user_api="blas"):  # as outside the tests: last digits depend on it
        for cell, outputs in zip(code_cells(notebook), run_cells(notebook), strict=True):
            assert find_texts(outputs) == find_texts(cell["outputs"]), "".join(cell["source"])


@pytest.mark.parametrize("name", ["research", "scale", "search"])
def test_cells_print_what_is_stored(name):
    run_and_compare(FOLDER / f"{name}.ipynb")


@pytest.mark.heavy
def test_training_prints_what_is_stored():
    pytest.importorskip("torch")
    run_and_compare(FOLDER / "training.ipynb")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_can_be_published(path):
    notebook = read_notebook(path)
    assert path.stat().st_size < LARGEST
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output.get("data", {}) for cell in cells for output in cell["outputs"]]
    assert not [kind for data in shown for kind in data if "widget" in kind]  # their state is not stored
    markup = "".join("".join(data.get("text/html", "")) for data in shown)
    assert "<script" not in markup
    text = path.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert "/tmp/" not in text
