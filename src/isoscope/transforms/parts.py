"""Applying a repair to a store part by part, into a folder of shards: what many processes can do at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError
from isoscope._core.threads import single_threaded
from isoscope._io.files import atomic_replace, lock_folder
from isoscope.engines.engine import open_engine
from isoscope.stores.manifest import REPAIR_MANIFEST
from isoscope.stores.shards import spans
from isoscope.stores.store import Store

if TYPE_CHECKING:
    from isoscope.stores.shards import Span
    from isoscope.transforms.maps import PlainRepair
    from isoscope.transforms.repair import Repair

_SCHEMA = "isoscope.repaired/1"

Write = Callable[[Any, Store, Path, bool], int]


@dataclass(frozen=True)
class _PartJob:
    """What is done to each part; it is sent to the workers once."""

    write: Write
    repair: Repair | PlainRepair
    folder: Path
    ending: str
    columns: bool

    def path(self, number: int) -> Path:
        return self.folder / f"part-{number:05}{self.ending}"

    def __call__(self, item: tuple[int, Span]) -> int:
        number, part = item
        path = self.path(number)
        if path.exists():  # it was put there whole
            return len(part)
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is not there: all workers must see the folder that is written to")
        with single_threaded():
            return self.write(self.repair, part, path, self.columns)


def repair_parts(
    repair: Repair | PlainRepair,
    store: Store,
    folder: Path,
    about: dict[str, Any] | None,
    write: Write,
    *,
    columns: bool,
    restart: bool,
    engine: Any,
    progress: Callable[[str, int, float], None],
    say: Callable[[str], None],
) -> int:
    """Write the repaired vectors of a store to a folder, each part whole or not at all; gives the number of rows.

    A table with its columns is written as Parquet, anything else as .npy. The parts that an interrupted run finished
    are left as they are.
    """
    columns = columns and store.layout() is not None
    ending = ".parquet" if columns else ".npy"
    parts = spans(store, other_columns=columns)
    work = _PartJob(write, repair, folder.absolute(), ending, columns)
    wanted = {"about": about, "parts": [len(part) for part in parts], "ending": ending}
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: need a folder, or a name that ends in .npy, .safetensors or .parquet")
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder: make it first, or write elsewhere")
    folder.mkdir(exist_ok=True)
    with lock_folder(folder):
        kept = _begin(folder, wanted, restart, work)
        if kept:
            say(f"going on behind {kept:,} of {len(parts):,} parts, where an earlier run was interrupted")
        done = _write_parts(work, parts, about, engine, progress)
        for left in _leftover_files(folder):
            left.unlink(missing_ok=True)
        _write_manifest(folder, {**wanted, "finished": True})
    return done


def _write_parts(
    work: _PartJob, parts: list[Span], about: Any, engine: Any, progress: Callable[[str, int, float], None]
) -> int:
    """Write the parts that lack; where none was written, nothing is left."""
    done, n = 0, sum(map(len, parts))
    try:
        with open_engine(engine) as running:
            for rows in running.each(work, list(enumerate(parts))):
                done += rows
                progress("repairing", done, done / n)
    except BaseException as error:
        written = sum(work.path(i).exists() for i in range(len(parts)))
        if not written:
            with suppress(OSError):  # a worker may be at it still
                _clear(work.folder)
                work.folder.rmdir()
        elif about is not None:
            error.add_note(f"run the same command again to go on behind {written:,} of {len(parts):,} parts")
        raise
    return done


def _begin(folder: Path, wanted: dict[str, Any], restart: bool, work: _PartJob) -> int:
    """Begin a folder, or find what an interrupted run left; gives how many parts it finished."""
    held: dict[str, Any] | None = {}
    if {*folder.iterdir()} - {*_leftover_files(folder)}:
        held = _read_manifest(folder)
        if held is None:
            raise InputError(f"{folder} holds something else than repaired vectors: give another folder, or empty it")
        if restart:
            _clear(folder)
        elif wanted["about"] is None or any(held.get(key) != wanted[key] for key in wanted):
            raise InputError(
                f"{folder} holds what another source, repair or version gave: give another folder, or throw that away "
                "with restart=True, on the command line --restart"
            )
    kept = sum(work.path(i).exists() for i in range(len(wanted["parts"])))
    if kept == len(wanted["parts"]) and held and held["finished"]:
        return 0
    _write_manifest(folder, {**wanted, "finished": False})
    return kept


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        held = json.loads((folder / REPAIR_MANIFEST).read_text(encoding="utf-8"))
        return dict(held) if held["schema"] == _SCHEMA else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _write_manifest(folder: Path, told: dict[str, Any]) -> None:
    with atomic_replace(folder / REPAIR_MANIFEST) as temporary:
        temporary.write_text(json.dumps({"schema": _SCHEMA, **told}, indent=2) + "\n", encoding="utf-8")


def _leftover_files(folder: Path) -> list[Path]:
    """Files that processes that were killed had not finished."""
    return [*folder.glob(".part-*.part"), *folder.glob(f".{REPAIR_MANIFEST}.*.part")]


def _clear(folder: Path) -> None:
    """Remove what an earlier run wrote, its note last."""
    for path in (*folder.glob("part-*"), *_leftover_files(folder)):
        path.unlink(missing_ok=True)
    (folder / REPAIR_MANIFEST).unlink(missing_ok=True)
