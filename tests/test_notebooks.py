"""The notebooks of the documentation: they run, and their stored outputs are current."""

import pytest
from threadpoolctl import threadpool_limits
from tools.notebooks import FOLDER, are_alike, code_cells, find_texts, read_notebook, run_cells

from isoscope._core.threads import thread_count

LARGEST = 10**6  # bytes
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run_and_compare(path):
    pytest.importorskip("matplotlib")
    notebook = read_notebook(path)
    with threadpool_limits(thread_count(), user_api="blas"):  # as outside the tests: last digits depend on it
        for cell, outputs in zip(code_cells(notebook), run_cells(notebook), strict=True):
            printed, stored = find_texts(outputs), find_texts(cell["outputs"])
            assert are_alike(printed, stored), (printed, stored, "".join(cell["source"]))


def test_small_differences_between_numbers_are_accepted():
    assert are_alike(["1,031 rows, 103.1%"], ["1,031 rows, 102.5%"])
    assert not are_alike(["103.1%"], ["93.1%"])
    assert not are_alike(["103.1% kept"], ["103.1% lost"])
    assert not are_alike(["1", "2"], ["1"])


@pytest.mark.parametrize(
    "name", ["research", *(pytest.param(name, marks=pytest.mark.heavy) for name in ("scale", "search"))]
)
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
