"""Apply a repair to a store of any size, on all cores and in bounded memory."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError, MissingValueError, OutputError, ParameterError, ShapeError, plural
from isoscope._core.missing import DROP_HINT
from isoscope._core.threads import map_in_threads
from isoscope._io.files import atomic_replace, expand_user
from isoscope._io.progress import ignore_progress, show_progress
from isoscope.engines.engine import LocalEngine
from isoscope.stores.databases.address import Address, parse_target
from isoscope.stores.databases.write import write_to_database
from isoscope.stores.open import open_store
from isoscope.stores.remote import file_version
from isoscope.stores.store import Store
from isoscope.stores.write import (
    TABLE_ENDINGS,
    ArrayTarget,
    check_writable,
    is_folder,
    open_target,
    rows_to_write,
    write_without_guessed_columns,
)
from isoscope.transforms.folder import Written, repair_parts
from isoscope.transforms.maps import PlainRepair
from isoscope.transforms.persistence import CHAIN

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.stores.store import Batch
    from isoscope.stores.write import Target
    from isoscope.transforms.repair import Repair

_TILE_BYTES = 2 * 2**20  # bytes of rows repaired together, so that they stay in the CPU cache
_LARGE_SOURCE = 10 * 10**9  # size in bytes above which a run is long enough that resuming matters


def repair_store(
    source: Any,
    repair: Repair | PlainRepair,
    output: str | os.PathLike[str] | Address,
    *,
    columns: bool = True,
    restart: bool = False,
    engine: Any = "local",
    progress: bool | Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Write the repaired vectors of a store to a file, a folder or a database, and return the number of rows.

    The work uses all cores and bounded memory. A single file is written atomically: an interrupted call leaves the old
    file unchanged. A folder receives many files, each written atomically. After an interruption, the same call writes
    only the missing files. For a database, the same call writes only the missing rows, including rows added to the
    source since then.

    Parameters
    ----------
    source : store, path, array or anything that `open_store` accepts
        The vectors; their order is kept. A run that writes a folder can be resumed if the source consists of files.
    repair : Repair
        A fitted repair.
    output : path or database address
        The path of a `.npy`, `.safetensors`, `.parquet` or `.arrow` file, the path of a folder, or the address of a
        database (see `open_store`). A path denotes a folder if the folder exists or the path has no extension. In a
        folder, tables are written as Parquet files with their columns, and anything else as `.npy` files. In a
        database, an existing PostgreSQL table receives a new column, and a missing table is created.
    columns : bool
        Whether to write the other columns as well, if the output is a Parquet or Arrow file, a folder or a database;
        see `write_store`.
    restart : bool
        Whether to delete what an earlier run wrote to the folder or the database, and start from the beginning.
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        The engine that computes; see `isoscope.audit`. Engines other than "local" need a folder that all workers can
        reach.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt. A function is called
        with "repairing", the number of rows written, and the share of the source (0 to 1).
    say : function, optional
        A function that is called with a message when a run resumes, and with a hint for large sources.

    Notes
    -----
    A run in a folder is resumed only if the source, the repair, the format and the version of isoscope are the same.
    The source files are compared by size and modification time.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> np.save("cone.npy", np.random.default_rng(0).standard_normal((1000, 32)).astype(np.float32) + 1)
    >>> repair = isoscope.Center().fit("cone.npy")
    >>> isoscope.repair_store("cone.npy", repair, "centered.npy")
    1000
    >>> round(float(isoscope.mean_cosine(np.load("centered.npy"))), 2) + 0.0
    0.0
    """
    store = source if isinstance(source, Store) else open_store(source)
    local = engine == "local" or isinstance(engine, LocalEngine)
    say = say or _ignore_message
    with show_progress(progress) as report:
        target = parse_target(output)
        if isinstance(target, Address):
            if not local:
                raise ParameterError(f"{target} is a database, which only this process can write to: omit the engine")
            about = {"repair": _digest(repair) or f"{secrets.token_hex(16)}, which cannot be saved"}
            options: dict[str, Any] = {"columns": columns, "restart": restart, "progress": report, "say": say}
            transform = _BatchTransform(repair, store)
            rows = write_to_database(target, store, about=about, made=transform, stage="repairing", **options)
            _report_zeros(transform.zeros, say)
            return rows
        path = expand_user(target)
        if is_folder(path):
            folders = {os.path.realpath(file.parent) for file in store.files if isinstance(file, Path)}
            if os.path.realpath(path) in folders:
                raise OutputError(f"{path} contains the source: write to another folder")
            written = repair_parts(
                repair,
                store,
                path,
                _resume_key(_BatchTransform(repair, store), columns),
                _write_file,
                columns=columns,
                restart=restart,
                engine=engine,
                progress=report,
                say=say,
            )
            _report_zeros(written.zeros, say)
            return written.rows
        if not local:
            raise ParameterError(f"{path} is a single file, which only one process can write to: choose a folder")
        path = check_writable(path)
        if os.path.realpath(path) in {file_version(file)[0] for file in store.files}:
            raise OutputError(f"{path} is the source: write to another file")
        if sum(file_version(file)[1] for file in store.files) > _LARGE_SOURCE:
            say("if this run is interrupted, it cannot be resumed; write to a folder to be able to resume")
        columns = columns and path.suffix.lower() in TABLE_ENDINGS
        written = write_without_guessed_columns(store, lambda store: _write_file(repair, store, path, columns, report))
        _report_zeros(written.zeros, say)
        return written.rows


def _report_zeros(zeros: int, say: Callable[[str], None]) -> None:
    if zeros:
        one = zeros == 1
        say(
            f"{plural(zeros, 'row')} of zeros {'stays' if one else 'stay'} zero: {'it has' if one else 'they have'} no "
            "direction to repair"
        )


def _ignore_message(words: str) -> None:
    """Ignore a message."""


def _write_file(
    repair: Repair | PlainRepair,
    store: Store,
    path: Path,
    columns: bool,
    progress: Progress = ignore_progress,
) -> Written:
    """Atomically write the repaired vectors of a store to one file; several processes may write it at once."""
    work = _BatchTransform(repair, store)
    with atomic_replace(path) as temporary:
        rows = _write_rows(work, temporary, path.suffix.lower(), columns, progress)
    return Written(rows, work.zeros)


def _write_rows(work: _BatchTransform, path: Path, ending: str, columns: bool, progress: Progress) -> int:
    first = next(rows_to_write(work.store, columns), None)
    if first is None:
        raise MissingValueError(f"{work.store.name} has no rows: there is nothing to repair")
    one = first._replace(vectors=np.zeros((1, work.dim), work.dtype))
    target = open_target(path, ending, one, work.store.layout() if columns else None)
    try:
        do, count = _choose_steps(work, target)
        with closing(map_in_threads(do, rows_to_write(work.store, columns), 2)) as batches:
            for batch in batches:
                count(batch)
                progress("repairing", batch.start + len(batch.vectors), batch.share)
        target.finish()
        return target.rows
    finally:
        target.close()


def _choose_steps(work: _BatchTransform, target: Target) -> tuple[Callable[[Batch], Batch], Callable[[Batch], None]]:
    """Return the function that threads apply to each batch, and the one that handles the results in order.

    If the position of a row in the file is known, the threads write each tile themselves, while it is in the cache.
    """
    if not isinstance(target, ArrayTarget):
        return work, target.write

    def write(batch: Batch) -> Batch:
        work.repair_tiles(batch, target.write_at)
        return batch

    def count(batch: Batch) -> None:
        target.rows += len(batch.vectors)

    return write, count


class _BatchTransform:
    """A function that repairs a batch, tile by tile, and checks that the results are finite; threads may share it."""

    def __init__(self, repair: Repair | PlainRepair, store: Store) -> None:
        self.repair, self.store = repair, store
        kind = store.dtype if store.dtype.kind == "f" else np.dtype(np.float32)
        sample = np.asarray(repair.transform(np.zeros((1, _check_dimensions(repair, store)), kind)))
        self.dim, self.dtype = sample.shape[1], sample.dtype
        self.tile = max(1, _TILE_BYTES // (4 * store.dim))
        self.zeros = 0
        self._lock = Lock()
        self.unchecked: Callable[[], Any] = nullcontext
        if not isinstance(repair, PlainRepair):
            import sklearn

            self.unchecked = partial(sklearn.config_context, assume_finite=True)

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with its vectors repaired."""
        repaired = np.empty((len(batch.vectors), self.dim), self.dtype)

        def place(row: int, rows: np.ndarray) -> None:
            repaired[row - batch.start :][: len(rows)] = rows

        self.repair_tiles(batch, place)
        return batch._replace(vectors=repaired)

    def repair_tiles(self, batch: Batch, place: Callable[[int, np.ndarray], None]) -> None:
        """Call `place` with the first row number and the repaired rows of each tile, in little-endian byte order."""
        order = self.dtype.newbyteorder("<")
        with self.unchecked(), np.errstate(all="ignore"):  # the results are checked instead
            for tile in blocks(len(batch.vectors), self.tile):
                given = batch.vectors[tile]
                wide = given.dtype.kind == "f" and given.dtype.itemsize >= 4
                repaired = self.repair.transform(given if wide else given.astype(np.float32))
                repaired = np.ascontiguousarray(repaired, order)
                if not _all_finite(repaired):
                    self._raise_nonfinite(given, repaired, batch.start + tile.start)
                place(batch.start + tile.start, repaired)
        zeros = len(batch.vectors) - int(np.count_nonzero(batch.vectors.any(axis=1)))
        with self._lock:
            self.zeros += zeros

    def _raise_nonfinite(self, given: np.ndarray, repaired: np.ndarray, start: int) -> None:
        at = int(np.argmin(np.isfinite(repaired).all(axis=1)))
        first = getattr(self.store, "first", 0)  # for a part: the number of its first row in the source
        row = f"row {first + start + at} of {self.store.name}"
        if not np.isfinite(given[at]).all():
            raise MissingValueError(f"{row} contains NaN or infinity: fix such rows, or {DROP_HINT}")
        wider = "float32" if self.dtype == np.float16 else "float64"
        raise ParameterError(f"{row} exceeds the range of {self.dtype} after the repair: pass the vectors as {wider}")


def _check_dimensions(repair: Repair | PlainRepair, store: Store) -> int:
    d = getattr(repair, "n_features_in_", store.dim)  # transform raises an error for an unfitted repair
    if d != store.dim:
        name = repair.name if isinstance(repair, PlainRepair) else type(repair).__name__
        name = "repair" if name == CHAIN else name
        raise ShapeError(
            f"{store.name} has {store.dim} dimensions but the {name} was fitted to vectors with {d}: need vectors from "
            "the same model"
        )
    return int(d)


def _all_finite(rows: np.ndarray) -> bool:
    """Return whether all numbers are finite; a finite sum of squares proves it, otherwise each number is checked."""
    flat = rows.reshape(-1)
    return bool((rows.dtype.itemsize >= 4 and np.isfinite(np.vdot(flat, flat))) or np.isfinite(flat).all())


def _resume_key(work: _BatchTransform, columns: bool) -> dict[str, Any] | None:
    """Return the values that must be unchanged to resume a run, or None if they cannot be determined."""
    store = work.store
    digest = _digest(work.repair)
    if digest is None or not store.files or store.given_columns:
        return None
    files = [[*file_version(file)] for file in store.files]
    layout = store.layout() if columns else None
    rows = {} if store.layer is None else {"layer": store.layer}
    return {
        "source": files,
        **rows,
        "vectors": [store.chosen, store.dim, store.dtype.str],
        "repair": digest,
        "format": "parts",
        "columns": None if not columns else dict(store.columns) if layout is None else layout.schema.names,
        "version": isoscope.__version__,
    }


def _digest(repair: Repair | PlainRepair) -> str | None:
    """Return a checksum of a repair's saved files, or None if it cannot be saved."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "repair")
        try:
            repair.save(saved)
        except InputError:
            return None
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(path for path in saved.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(saved)).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()
