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


class Clock:
    """A clock that the test sets, and a view that stores the last line."""

    def __init__(self, monkeypatch):
        self.now, self.notes = 1000.0, None
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(progress, "_open_view", lambda: self)
        self.bar = progress.ProgressBar("rows")

    def after(self, seconds, done, share, note=""):
        self.now += seconds
        self.bar("reading", done, share, note)
        return self.notes

    def update(self, stage, share, notes):
        self.notes = notes


def test_speed_and_time_left_count_from_the_start_of_the_stage(monkeypatch):
    clock = Clock(monkeypatch)
    clock.after(0, 0, 0.0)
    assert clock.after(10, 500, 0.25, "note") == ["30 s left", "50 rows/s", "note"]
    assert clock.after(10, 2000, 0.5) == ["20 s left", "100 rows/s"]
    assert clock.after(20, 4000, 1.0) == ["100 rows/s"]
    clock.bar("fitting", 0, 0.0)
    clock.now += 5
    clock.bar("fitting", 10, 0.5)
    assert clock.notes == ["5 s left", "2 rows/s"]


def test_rows_of_an_earlier_run_do_not_count_toward_the_speed(monkeypatch):
    clock = Clock(monkeypatch)
    clock.after(0, 600, 0.6)
    assert clock.after(10, 700, 0.7) == ["30 s left", "10 rows/s"]


def test_a_stage_that_begins_within_a_batch_counts_it(monkeypatch):
    clock = Clock(monkeypatch)
    clock.after(0, 600, 0.0)  # the share of all work is not known yet
    assert clock.after(10, 700, 0.5) == ["10 s left", "70 rows/s"]


@pytest.mark.parametrize(
    ("seconds", "done", "share", "notes"),
    [
        (10, 10, 0.5, ["10 s left", "1 rows/s"]),
        (10, 9, 0.5, ["10 s left"]),  # less than one row per second
        (2.1, 0, 0.0025, ["14 min left"]),
        (2.1, 0, 0.0015, []),  # too little is done to tell
        (2.0, 0, 0.5, []),  # too early to tell
        (2.5, 0, 0.5, ["2 s left"]),
    ],
)
def test_speed_and_time_left_are_shown_once_they_are_known(monkeypatch, seconds, done, share, notes):
    clock = Clock(monkeypatch)
    clock.after(0, 0, 0.0)
    assert clock.after(seconds, done, share) == notes


@pytest.mark.parametrize(("seconds", "shown"), [(0.25, ["400 rows/s"]), (0.15, [])])
def test_speed_is_shown_after_a_fifth_of_a_second(monkeypatch, seconds, shown):
    clock = Clock(monkeypatch)
    clock.bar.began -= 10
    clock.after(0, 0, 0.0)
    assert clock.after(seconds, 100, 0.5) == shown


def test_short_tasks_show_no_bar(monkeypatch):
    clock = Clock(monkeypatch)
    clock.after(0, 0, 0.0)
    assert clock.after(progress._SHOW_DELAY * 0.99, 100, 0.5) is None
    assert clock.after(progress._SHOW_DELAY * 0.02, 100, 0.5) is not None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (119.4, "119 s left"),
        (120, "2 min left"),
        (3569, "59 min left"),
        (3571, "1 h 0 min left"),
        (7140, "1 h 59 min left"),
        (7190, "2 h 0 min left"),
    ],
)
def test_time_left_is_in_seconds_below_two_minutes_and_in_hours_from_one_hour(seconds, text):
    assert progress.format_time_left(seconds) == text


@pytest.mark.parametrize(("front_end", "shows"), [("script", False), ("prompt", True), ("jupyter", True)])
def test_progress_is_shown_by_default_where_somebody_waits(monkeypatch, front_end, shows):
    monkeypatch.setattr(progress, "find_front_end", lambda: front_end)
    with progress.show_progress(None) as report:
        assert isinstance(report, progress.ProgressBar) is shows
    with progress.show_progress(False) as report:
        assert report is progress.ignore_progress


def test_a_stage_is_not_drawn_more_often_than_needed(monkeypatch):
    monkeypatch.setattr(progress, "_SHOW_DELAY", 0)
    monkeypatch.setattr(progress, "_UPDATE_INTERVAL", 1000)
    drawn = []
    bar = progress.ProgressBar()
    bar.view = type("View", (), {"update": lambda self, stage, share, notes: drawn.append((stage, share))})()
    for share in (0.1, 0.2, 0.3):
        bar("reading", 1, share)
    bar("sorting", 1, 0.5)
    assert drawn == [("reading", 0.1), ("sorting", 0.5)]


def test_marimo_gets_a_bar_that_is_removed(monkeypatch):
    seen = []

    class Context:
        def __enter__(self):
            return types.SimpleNamespace(update=lambda steps, title, subtitle: seen.append((steps, title, subtitle)))

        def __exit__(self, *error):
            seen.append("removed")

    fake = types.ModuleType("marimo")
    fake.status = types.SimpleNamespace(progress_bar=lambda **options: seen.append(options["total"]) or Context())
    monkeypatch.setitem(sys.modules, "marimo", fake)
    monkeypatch.setattr(progress, "find_front_end", lambda: "marimo")
    monkeypatch.setattr(progress, "_SHOW_DELAY", 0)
    with progress.ProgressBar() as bar:
        bar("reading", 5, 0.25, "a note")
        bar("writing", 5, 1.0)
    assert seen == [1000, (250, "reading", "a note"), (750, "writing", ""), "removed"]
