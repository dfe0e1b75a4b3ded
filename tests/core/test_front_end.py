import sys
import types

import pytest

from isoscope._core.front_end import find_front_end


def fake_ipython(shell):
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell
    return module


@pytest.fixture(autouse=True)
def script(monkeypatch):
    for name in ("IPython", "marimo"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(sys, "ps1", raising=False)


def test_scripts_and_tests():
    assert find_front_end() == "script"


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        (None, "script"),  # IPython was only imported
        (types.SimpleNamespace(), "prompt"),
        (types.SimpleNamespace(kernel=object()), "jupyter"),
    ],
)
def test_ipython(monkeypatch, shell, expected):
    monkeypatch.setitem(sys.modules, "IPython", fake_ipython(shell))
    assert find_front_end() == expected


def test_python_prompt(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert find_front_end() == "prompt"


@pytest.mark.parametrize(("running", "expected"), [(True, "marimo"), (False, "script")])
def test_marimo(monkeypatch, running, expected):
    module = types.ModuleType("marimo")
    module.running_in_notebook = lambda: running
    monkeypatch.setitem(sys.modules, "marimo", module)
    assert find_front_end() == expected
