"""Progress reporting: the callback protocol for long tasks, and a progress bar for terminals and notebooks."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from isoscope._core.printable import to_printable

if TYPE_CHECKING:
    from types import TracebackType

_SHOW_DELAY = 1.0  # seconds of work before a bar appears
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
        self.view: _TerminalView | _NotebookView | None = None
        self.stage = ""
        self.stage_began = self.began

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
        if now - self.began < _SHOW_DELAY:
            return
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
def show_progress(progress: bool | Progress, unit: str = "rows") -> Iterator[Progress]:
    """Yield the progress callback: a bar for True, a no-op for False, or the caller's own function.

    >>> with show_progress(False) as progress:
    ...     progress("reading", 1, 0.1)
    """
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
    """A progress bar in the output of a notebook cell."""

    def __init__(self, display: Callable[..., Any]) -> None:
        from IPython.display import HTML

        self.markup = HTML
        self.handle = display(HTML(""), display_id=True)

    def update(self, stage: str, share: float, notes: list[str]) -> None:
        label = html.escape("  ".join([stage, *notes]))
        self.handle.update(self.markup(f'<progress max="1" value="{share:.4f}"></progress> {label}'))

    def close(self) -> None:
        self.handle.update(self.markup(""))


def _open_view() -> _TerminalView | _NotebookView | None:
    """Return a view for the current notebook cell or terminal, or None if there is neither."""
    if "IPython" in sys.modules:
        from IPython import get_ipython
        from IPython.display import display

        if getattr(get_ipython(), "kernel", None) is not None:
            return _NotebookView(display)
    return _TerminalView() if sys.stderr.isatty() else None
