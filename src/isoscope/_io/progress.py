"""Progress reporting: the callback protocol for long tasks, and a progress bar for terminals and notebooks."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from isoscope._core.front_end import find_front_end
from isoscope._core.printable import to_printable

if TYPE_CHECKING:
    from types import TracebackType

_SHOW_DELAY = 1.0  # seconds of work before a bar appears
_UPDATE_INTERVAL = 0.1  # seconds between two updates of a bar
_MIN_NOTE_WIDTH = 24


class Progress(Protocol):
    """A callback that long tasks call regularly to report their progress."""

    def __call__(self, stage: str, done: int, share: float, note: str = "") -> None:
        """Report the stage, the number of finished rows, steps or arms, the share of work done (0 to 1) and a note."""


def ignore_progress(stage: str, done: int, share: float, note: str = "") -> None:
    """Ignore the progress report."""


class ProgressBar:
    """A progress bar on standard error or in a notebook; it appears if the work takes more than a second.

    It shows the stage, the speed, the time left and the note. `unit` names what is counted. Rows that are already done
    when a stage begins come from an earlier run and do not count toward the speed.

    Examples
    --------
    >>> with ProgressBar("rows") as progress:
    ...     progress("reading", 500, 0.5)
    """

    def __init__(self, unit: str = "rows") -> None:
        self.unit = unit
        self.before = 0, 0.0  # `done` and `share` at the start of the stage
        self.began = time.monotonic()
        self.view: _View | None = None
        self.stage = ""
        self.stage_began = self.began
        self.updated = -_UPDATE_INTERVAL

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.view is not None:
            self.view.close()

    def __call__(self, stage: str, done: int, share: float, note: str = "") -> None:
        """Show the progress of a stage."""
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.stage_began = stage, now
            self.before = (done, share) if done and share else (0, 0.0)
            self.updated = -_UPDATE_INTERVAL
        if now - self.began < _SHOW_DELAY or now - self.updated < _UPDATE_INTERVAL:
            return
        self.updated = now
        if self.view is None:
            self.view = _open_view()
        if self.view is None:
            return
        spent = now - self.stage_began
        counted, covered = done - self.before[0], share - self.before[1]
        speed = f"{counted / spent:,.0f} {self.unit}/s" if counted >= spent > 0.2 else ""
        left = format_time_left(spent * (1 - share) / covered) if covered > 0.002 and share < 1 and spent > 2 else ""
        self.view.update(stage, share, [each for each in (left, speed, note) if each])  # the end may be truncated


@contextmanager
def show_progress(progress: bool | Progress | None, unit: str = "rows") -> Iterator[Progress]:
    """Yield the progress callback: a bar for True, a no-op for False, or the caller's own function.

    With None, there is a bar in notebooks and at a Python prompt, and none in scripts.

    >>> with show_progress(False) as progress:
    ...     progress("reading", 1, 0.1)
    """
    if progress is None:
        progress = find_front_end() != "script"
    if progress is True:
        with ProgressBar(unit) as bar:
            yield bar
    else:
        yield progress or ignore_progress


def format_time_left(seconds: float) -> str:
    """Return the remaining time as text, in the largest suitable unit.

    >>> format_time_left(42), format_time_left(600), format_time_left(7500)
    ('42 s left', '10 min left', '2 h 5 min left')
    """
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min left"
    return f"{minutes} min left" if seconds >= 120 else f"{seconds:,.0f} s left"


class _TerminalView:
    """A progress bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        text = "{task.description:<20}", "{task.fields[note]}"
        self.live = Progress(
            TextColumn(text[0], markup=False),
            BarColumn(),
            TextColumn(text[1], markup=False),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self.task = self.live.add_task("", total=None, note="")
        self.live.start()

    def update(self, stage: str, share: float, notes: list[str]) -> None:
        room = max(self.live.console.width - 64, _MIN_NOTE_WIDTH)
        note = to_printable("  ".join(notes))
        note = note if len(note) <= room else note[: room - 1] + "…"
        self.live.update(self.task, description=stage, completed=share, total=1.0 if share else None, note=note)

    def close(self) -> None:
        self.live.stop()


class _NotebookView:
    """A progress bar in the output of a notebook cell; it is updated in place, and empty in the end."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self.markup = HTML
        self.handle: Any = display(HTML(""), display_id=True)

    def update(self, stage: str, share: float, notes: list[str]) -> None:
        label = html.escape("  ".join([stage, *notes]))
        value = f' value="{share:.4f}"' if share else ""
        self.handle.update(self.markup(f'<progress max="1"{value}></progress> {label}'))

    def close(self) -> None:
        self.handle.update(self.markup(""))


class _MarimoView:
    """A progress bar in the output of a marimo cell; it is removed in the end."""

    _STEPS = 1_000  # marimo counts whole steps

    def __init__(self) -> None:
        from marimo import status

        self.context: Any = status.progress_bar(total=self._STEPS, show_rate=False, show_eta=False, remove_on_exit=True)
        self.bar = self.context.__enter__()
        self.steps = 0

    def update(self, stage: str, share: float, notes: list[str]) -> None:
        steps = round(share * self._STEPS)
        self.bar.update(steps - self.steps, title=stage, subtitle="  ".join(notes))
        self.steps = steps

    def close(self) -> None:
        self.context.__exit__(None, None, None)


_View = _TerminalView | _NotebookView | _MarimoView


def _open_view() -> _View | None:
    """Return a view for the current notebook cell or terminal, or None if there is neither."""
    front_end = find_front_end()
    if front_end == "jupyter":
        return _NotebookView()
    if front_end == "marimo":
        return _MarimoView()
    return _TerminalView() if sys.stderr.isatty() else None
