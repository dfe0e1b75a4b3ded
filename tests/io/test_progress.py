import io

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


def test_the_bar_ends_when_the_work_fails(monkeypatch):
    monkeypatch.setattr(progress, "_SHOW_DELAY", 0)
    stopped = []
    bar = progress.ProgressBar()
    bar.view = type("View", (), {"close": lambda self: stopped.append(True)})()
    with pytest.raises(ZeroDivisionError), bar:
        raise ZeroDivisionError
    assert stopped == [True]
