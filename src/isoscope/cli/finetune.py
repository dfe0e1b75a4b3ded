"""What the command finetune does."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from isoscope._core.errors import InputError, plural
from isoscope.cli.audit import _check_output_folders, _report_written, _write_json, show
from isoscope.cli.session import Interruption, command_arguments, interrupted
from isoscope.finetuning.finetune import finetune as train
from isoscope.finetuning.result import FineTuning, Spread

_STDOUT = Path("-")
_SHAPE_NAMES = {
    "anisotropy_1": "anisotropy₁",
    "anisotropy_1_centred": "anisotropy₁, centred",
    "isoscore_unbiased": "IsoScore, unbiased",
    "mean_cosine": "mean cosine",
    "silhouette": "silhouette of the classes",
}
_WIDTH = 24
_TIME_LEFT_WIDTH = len(" 100 h 59 min left ")


@dataclass(frozen=True)
class Request:
    """What was asked of `isoscope finetune`."""

    model: str
    task: str | Path
    output: Path
    seeds: str
    layer: str | None
    repair: str | None
    json: Path | None
    options: dict[str, Any]


def finetune(request: Request) -> None:
    """Fine-tune, show the table, write what was asked for."""
    _check_output_folders(request.json)
    seeds, layer = parse_seeds(request.seeds), _parse_layer(request.layer)
    try:
        with MessageProgressBar() as bar:
            found = train(
                request.model,
                request.task,
                output=request.output,
                seeds=seeds,
                layer=layer,
                repair=_parse_repair(request.repair),
                progress=lambda stage, step, share, note="": bar.show(
                    f"{stage}  step {step:,}  {note}".rstrip(), share
                ),
                **request.options,
            )
    except KeyboardInterrupt as stop:
        raise Interruption(_format_resume_hint(request.output)) from stop
    if request.json is not None:
        _write_json(found.to_dict(), request.json)
    if request.json != _STDOUT:
        show(render_outcome(found))
        for name in ("metrics.json", "page.html"):
            _report_written(request.output / name)


def render_outcome(found: FineTuning) -> Group:
    """The outcome for rich's console: what was done, then each number at the start, at the end and late."""
    settings, last = found.settings, found.layers[-1]
    name = Path(settings.model).name or settings.model
    seeds = "seed" if len(found.seeds) == 1 else "seeds"
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{name} on {settings.task}", "bold"),
            f"  regularizer {settings.arm}; {seeds} {', '.join(str(each.seed) for each in found.seeds)}; "
            f"{plural(settings.steps, 'step')}",
        ),
        Text(),
        _render_table(found, last),
        Text("± is the standard deviation over the seeds" if len(found.seeds) > 1 else "", "dim"),
    ]
    parts += [Text(note, "dim") for note in found.notes]
    return Group(*parts)


def _render_table(found: FineTuning, last: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for heading in ("at the start", "at the end", "mean of the last 30%"):
        table.add_column(heading, justify="right", no_wrap=True)
    start, final, late = _initial_values(found), found.final, found.late
    for score in found.scores:
        table.add_row(score, "", str(final[score]), str(late[score]), style="bold" if score == found.scores[0] else "")
    table.add_row(f"{last.replace('_', ' ')}:", style="dim")
    for measurement, words in _SHAPE_NAMES.items():
        key = f"{last}/{measurement}"
        if final[key].mean == final[key].mean:  # a silhouette of grades is NaN
            table.add_row(words, str(start[key]), str(final[key]), str(late[key]))
    return table


def _initial_values(found: FineTuning) -> dict[str, Spread]:
    """What the tracker measured before the first step."""
    rows = [row for seed in found.seeds for row in seed.layers if row["step"] == 0]
    keys = [(layer, name) for layer in found.layers for name in _SHAPE_NAMES]
    return {f"{layer}/{name}": Spread.of(row[name] for row in rows if row["layer"] == layer) for layer, name in keys}


class MessageProgressBar:
    """A progress bar on standard error: a few words, and the time left."""

    def __init__(self) -> None:
        self.live: Any = None
        self.began, self.first = time.monotonic(), -1.0

    def __enter__(self) -> MessageProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, words: str, share: float) -> None:
        """Show how much is done, or end."""
        if interrupted.is_set():
            raise KeyboardInterrupt
        if self.first < 0:  # what an earlier run did took no time of this one
            self.began, self.first = time.monotonic(), share
        if not sys.stderr.isatty():
            return
        if self.live is None:
            self._start()
        self.live.update(self.task, completed=share, description=self._fitting(words), left=self._left(share))

    def _fitting(self, words: str) -> str:
        """As many words as leave room for the bar and the time left."""
        room = max(self.live.console.width - _WIDTH - _TIME_LEFT_WIDTH, _WIDTH)
        return words if len(words) <= room else words[: room - 1] + "…"

    def _left(self, share: float) -> str:
        done = share - self.first
        if done <= 0 or share >= 1:
            return ""
        seconds = round((time.monotonic() - self.began) * (1 - share) / done)
        minutes, hours = seconds // 60, seconds // 3600
        return (
            f"{hours} h {minutes % 60} min left" if hours else f"{minutes} min left" if minutes else f"{seconds} s left"
        )

    def _start(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(_WIDTH), TextColumn("{task.fields[left]}"))
        self.live = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self.task = self.live.add_task("", total=1.0, left="")
        self.live.start()


def parse_seeds(words: str) -> int | list[int]:
    """How many seeds, or which: `3`, or `0,1,7`."""
    try:
        numbers = [int(word) for word in words.split(",") if word.strip()]
    except ValueError:
        raise InputError(f"--seeds {words}: need how many, such as 3, or which, such as 0,1,2") from None
    return numbers[0] if "," not in words and numbers else numbers


def _parse_layer(word: str | None) -> int | str | None:
    return int(word) if word is not None and word.removeprefix("-").isdecimal() else word


def _parse_repair(words: str | None) -> Any:
    """Clusters and directions of a repair inside the model: `3,1`."""
    if words is None:
        return None
    numbers = words.split(",")
    if len(numbers) != 2 or not all(each.strip().isdecimal() for each in numbers):
        raise InputError(f"--repair {words}: need two whole numbers, clusters and directions, such as 3,1")
    from isoscope.training.repair_layer import BatchRepair

    return BatchRepair(int(numbers[0]), int(numbers[1]))


def _format_resume_hint(folder: Path) -> str:
    kept = f"what is done is kept in {folder}" if (folder / "settings.json").exists() else "nothing was begun"
    return f"{kept}; go on with: {shlex.join(['isoscope', *command_arguments])}"
