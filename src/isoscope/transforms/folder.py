"""Apply a repair to a store in parts, and write them to a folder that many processes can share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isoscope._core.errors import OutputError
from isoscope._core.threads import single_threaded
from isoscope._io.runs import RunFolder, differences
from isoscope.engines.engine import open_engine
from isoscope.stores.manifest import REPAIR_MANIFEST, REPAIR_SCHEMA
from isoscope.stores.open import open_store
from isoscope.stores.shards import spans

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.stores.shards import Span
    from isoscope.stores.store import Store
    from isoscope.transforms.maps import PlainRepair
    from isoscope.transforms.repair import Repair


class Written(NamedTuple):
    """The number of rows that were written, and how many of them are rows of zeros."""

    rows: int
    zeros: int


WriteFile = Callable[[Any, "Store", Path, bool], Written]

_PHRASES = {
    "source": "the source's files changed",
    "vectors": "the vectors' column, dimensions or dtype changed",
    "repair": "the repair is different",
    "parts": "the source is split into different parts",
    "columns": "the columns differ",
}


@dataclass(frozen=True)
class _PartJob:
    """A function that writes one part; an engine sends it to its workers only once."""

    write: WriteFile
    repair: Repair | PlainRepair
    run: RunFolder
    ending: str
    columns: bool

    def name(self, number: int) -> str:
        return f"part-{number:05}{self.ending}"

    def __call__(self, item: tuple[int, Span]) -> Written:
        number, part = item
        if self.run.is_done(self.name(number)):
            return Written(len(open_store(self.run.path / self.name(number))) if part.drops_rows else len(part), 0)
        if not self.run.path.is_dir():
            raise OutputError(f"{self.run.path} is missing: all workers need access to the output folder")
        with single_threaded():
            return self.write(self.repair, part, self.run.path / self.name(number), self.columns)


def repair_parts(
    repair: Repair | PlainRepair,
    store: Store,
    folder: Path,
    key: dict[str, Any] | None,
    write: WriteFile,
    *,
    columns: bool,
    restart: bool,
    engine: Any,
    progress: Progress,
    say: Callable[[str], None],
) -> Written:
    """Write the repaired vectors of a store to a folder, each part atomically.

    A table with its columns is written as Parquet, anything else as .npy. Parts that an interrupted run finished are
    kept if `key`, which identifies the source and the repair, is the same. If `key` is None, no part is kept. Rows of
    zeros are counted only in the parts that this run writes.
    """
    columns = columns and store.layout() is not None
    ending = ".parquet" if columns else ".npy"
    parts = spans(store, other_columns=columns)
    run = RunFolder(folder.absolute(), REPAIR_MANIFEST, REPAIR_SCHEMA, parts=("part-*",), can_restart=True)
    job = _PartJob(write, repair, run, ending, columns)
    settings = {"about": key, "parts": [len(part) for part in parts], "ending": ending}
    with run.open():
        earlier = run.begin(settings, restart, facts={"finished": False}, compare=_compare)
        done = sum(run.is_done(job.name(i)) for i in range(len(parts)))
        if done and not (done == len(parts) and earlier and earlier["finished"]):
            say(f"resuming after {done:,} of {len(parts):,} parts")
        written = _write_parts(job, parts, key, engine, progress)
        run.finish()
    return written


def _write_parts(
    job: _PartJob, parts: list[Span], key: dict[str, Any] | None, engine: Any, progress: Progress
) -> Written:
    """Write the missing parts; if an error occurs before any part is written, remove the folder."""
    done, zeros, read, n = 0, 0, 0, sum(map(len, parts))
    try:
        with open_engine(engine) as running:
            for part, written in zip(parts, running.each(job, list(enumerate(parts))), strict=True):
                done, zeros, read = done + written.rows, zeros + written.zeros, read + len(part)
                progress("repairing", read, read / n)
    except BaseException as error:
        finished = sum(job.run.is_done(job.name(i)) for i in range(len(parts)))
        if not finished:
            with suppress(OSError):  # a worker may still be writing
                job.run.clear()
        elif key is not None:
            error.add_note(f"run the same command again to resume after {finished:,} of {len(parts):,} parts")
        raise
    return Written(done, zeros)


def _compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    if old["about"] is None or new["about"] is None:
        return ["the source does not consist of files, or the repair cannot be saved, so the run cannot be resumed"]
    return differences({**old, **old["about"]}, {**new, **new["about"], "about": old["about"]}, _PHRASES)
