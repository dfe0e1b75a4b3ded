import io
import sys
import types

import pytest

from isoscope._io import progress


def test_the_bar_names_the_stage_on_a_terminal(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return True

    screen = Screen()
    monkeypatch.setattr(progress.sys, "stderr", screen)
    monkeypatch.setattr(progress, "_SHOW_DELAY", 0)
    monkeypatch.setenv("TERM", "xterm")
    with progress.ProgressBar() as bar:
        bar("summing up", 500, 0.5)
        bar("neighbours", 10, 1.0)  # it is drawn when it ends, in between now and then
    assert "neighbours" in screen.getvalue()


def test_bar_is_removed_when_the_work_fails(monkeypatch):
    monkeypatch.setattr(progress, "_SHOW_DELAY", 0)
    stopped = []
    bar = progress.ProgressBar()
    bar.view = type("View", (), {"close": lambda self: stopped.append(True)})()
    with pytest.raises(ZeroDivisionError), bar:
        raise ZeroDivisionError
    assert stopped == [True]


def test_a_notebook_gets_a_bar_in_its_cell(monkeypatch):
    shown = []

    class Handle:
        def update(self, content):
            shown.append(content)

    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    fake.display = types.ModuleType("IPython.display")
    fake.display.HTML = str
    fake.display.display = lambda content, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    monkeypatch.setattr(progress, "_SHOW_DELAY", 0)
    with progress.ProgressBar() as bar:
        bar("reading <b>", 5, 0.25, "a note")
    assert 'value="0.2500"' in shown[0]
    assert "reading &lt;b&gt;  a note" in shown[0]
    assert shown[-1] == ""


@pytest.mark.parametrize("given", [False, True])
def test_show_progress_accepts_booleans(given):
    with progress.show_progress(given) as report:
        report("stage", 1, 0.5)


def test_show_progress_passes_on_a_function():
    calls = []
    with progress.show_progress(lambda *arguments: calls.append(arguments)) as report:
        report("stage", 1, 0.5, "note")
    assert calls == [("stage", 1, 0.5, "note")]
