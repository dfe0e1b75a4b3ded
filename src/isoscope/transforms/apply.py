"""Applying a repair to whole stores: on all cores, in bounded memory, and gone on with after an interruption."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads
from isoscope._io.files import atomic_replace
from isoscope.engines.engine import LocalEngine
from isoscope.stores.columns import ColumnError
from isoscope.stores.databases.address import Address, parse_address
from isoscope.stores.databases.write import write_to_database
from isoscope.stores.open import open_store
from isoscope.stores.resuming import ResumableFile
from isoscope.stores.store import Store
from isoscope.stores.targets import Checkpoint, Flat
from isoscope.stores.write import can_drop_column, check_writable, is_folder, open_target, rows_to_write
from isoscope.transforms.maps import PlainRepair

if TYPE_CHECKING:
    from isoscope.stores.store import Batch
    from isoscope.stores.targets import Target
    from isoscope.transforms.repair import Repair

_TILE_BYTES = 2 * 2**20  # rows that are repaired at once: they and what is made of them stay in the cache
_MARK_BYTES, _MARK_SECONDS = 512 * 2**20, 10.0  # after which what was written is put on record


def repair_store(
    repair: Repair | PlainRepair,
    source: Any,
    path: str | os.PathLike[str] | Address,
    *,
    columns: bool = True,
    restart: bool = False,
    engine: Any = "local",
    progress: Callable[[str, int, float], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Write the repaired vectors of a store to a file, a folder of files or a database; gives the number of rows.

    In bounded memory, on all cores. The file is replaced when all is written. An interruption (Ctrl-C, a full disk, the
    end of the process) leaves it as it was, and what was done in a hidden folder beside it, from which the same call
    goes on to the same bytes. In a folder each part is written whole or not at all, and the same call writes what
    lacks. To a database only the rows that it lacks are repaired and written: the same call goes on after an
    interruption, and does what was added to the source since.

    Parameters
    ----------
    repair : Repair
        A fitted repair.
    source : store, path, array or whatever `open_store` opens
        Its rows stay in their order. Only a source in files can be gone on with.
    path : path
        A name that ends in `.npy`, `.safetensors` or `.parquet`; without an ending, or if it is one, a folder, which
        gets many files:
        Parquet for a table with its columns, `.npy` for anything else. Or the address of a database, see `open_store`:
        in PostgreSQL a table that exists gets another column, by its key, and one that does not is made.
    columns : bool
        Whether what stands beside the vectors is written too, to Parquet or a database; see `write_store`.
    restart : bool
        Throw away what an interrupted run left, what another run left in the folder, or what one wrote to the database.
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Who reads and writes; see `isoscope.audit`. Others than "local" write to a folder, which they all must see.
    progress : function, optional
        Told "repairing", the rows written so far, and the share of the source that they are.
    say : function, optional
        Told in a sentence from where it goes on, or why it cannot.

    Notes
    -----
    What was left is gone on with only if the source's files (their sizes and times), the repair, the format and the
    version of isoscope are the same.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> np.save("cone.npy", np.random.default_rng(0).standard_normal((1000, 32)).astype(np.float32) + 1)
    >>> repair = isoscope.Center().fit("cone.npy")
    >>> isoscope.repair_store(repair, "cone.npy", "centred.npy")
    1000
    >>> round(float(isoscope.mean_cosine(np.load("centred.npy"))), 2) + 0.0
    0.0
    """
    store = source if isinstance(source, Store) else open_store(source)
    alone = engine == "local" or isinstance(engine, LocalEngine)
    if (target := parse_address(path)) is not None:
        if not alone:
            raise InputError(
                f"{target} is a database, which is written to from here: leave the engine, or name a folder"
            )
        work = _BatchTransform(repair, store)
        about = {"repair": _digest(repair) or f"{secrets.token_hex(16)}, which cannot be saved"}
        options: dict[str, Any] = {"columns": columns, "restart": restart, "progress": progress, "say": say}
        return write_to_database(target, store, about=about, made=work, stage="repairing", **options)
    assert not isinstance(path, Address)
    if is_folder(Path(path).expanduser()):
        from isoscope.transforms.parts import repair_parts

        folder = Path(path).expanduser()
        if os.path.realpath(folder) in {os.path.realpath(file.parent) for file in store.files}:
            raise InputError(f"{folder} is what is read: give another folder to write to")
        return repair_parts(
            repair,
            store,
            folder,
            _resume_key(_BatchTransform(repair, store), "parts", columns),
            _write_part,
            columns=columns,
            restart=restart,
            engine=engine,
            progress=progress or _no_progress,
            say=say or _no_message,
        )
    if not alone:
        raise InputError(
            f"{path} is one file, which many processes cannot write: name a folder, for a file in each part"
        )
    path = check_writable(path)
    if os.path.realpath(path) in {os.path.realpath(file) for file in store.files}:
        raise InputError(f"{path} is what is read: give another file to write to")
    columns = columns and path.suffix.lower() == ".parquet"
    work = _BatchTransform(repair, store)
    try:
        return _write_repaired(work, path, columns, restart, progress or _no_progress, say or _no_message)
    except ColumnError as error:
        if not can_drop_column(error, store):
            raise
        work = _BatchTransform(repair, store.without(error.role))
        return _write_repaired(work, path, columns, restart, progress or _no_progress, say or _no_message)


def _no_progress(stage: str, rows: int, share: float) -> None:
    """Show nothing."""


def _no_message(words: str) -> None:
    """Nobody listens."""


def _write_repaired(
    work: _BatchTransform,
    path: Path,
    columns: bool,
    restart: bool,
    progress: Callable[[str, int, float], None],
    say: Callable[[str], None],
) -> int:
    about = _resume_key(work, path.suffix.lower(), columns)
    with ResumableFile(path, about) as left:
        if restart:
            left.clear()
        mark, lost = left.found()
        if mark.rows:
            say(f"going on from row {mark.rows:,}, where an earlier run was interrupted")
        elif lost:
            say(f"what an earlier, interrupted run left cannot be gone on with, as {lost}: beginning anew")
        try:
            keep = left.keep if about is not None else None
            rows = _write_rows(work, left.rows, path.suffix.lower(), mark, columns, progress, keep)
        except BaseException as error:
            if isinstance(error, InputError):
                left.clear()
            if not (left.folder / "progress.json").exists():
                left.drop()
            raise
        left.put()
    return rows


def _write_part(repair: Repair | PlainRepair, part: Store, path: Path, columns: bool) -> int:
    """Write the repaired vectors of a part, whole or not at all; it does no harm if two processes do."""
    with atomic_replace(path) as temporary:
        return _write_rows(
            _BatchTransform(repair, part), temporary, path.suffix, Checkpoint(), columns, _no_progress, None
        )


def _write_rows(
    work: _BatchTransform,
    path: Path,
    ending: str,
    mark: Checkpoint,
    columns: bool,
    progress: Callable[[str, int, float], None],
    keep: Callable[[Checkpoint], None] | None,
) -> int:
    """Write the rows behind the mark; where marks are kept, an interruption leaves one."""
    first = next(rows_to_write(work.store, columns), None)
    if first is None:
        raise InputError(f"{work.store.name} has no rows: there is nothing to repair")
    layout = work.store.layout() if columns else None
    target = open_target(path, ending, work(first), layout, mark)
    try:
        marked, since = time.monotonic(), 0
        do, note = _choose_steps(work, target)
        with closing(map_in_threads(do, rows_to_write(work.store, columns, mark.rows), 2)) as batches:
            for batch in batches:
                note(batch)
                since += batch.vectors.nbytes
                progress("repairing", batch.start + len(batch.vectors), batch.share)
                if keep is not None and (since > _MARK_BYTES or time.monotonic() - marked > _MARK_SECONDS):
                    keep(mark := target.mark())
                    marked, since = time.monotonic(), 0
        target.finish()
        return target.rows
    except BaseException as error:
        if keep is not None and not isinstance(error, InputError):
            with suppress(OSError):  # of a full disk: then the mark before counts
                keep(mark := target.mark())
            if mark.rows:
                error.add_note(f"run the same command again to go on from row {mark.rows:,}")
        raise
    finally:
        target.close()


def _choose_steps(work: _BatchTransform, target: Target) -> tuple[Callable[[Batch], Batch], Callable[[Batch], None]]:
    """What the threads do with each batch, and what is done with it then, in order.

    Where a row's place in the file is known, the threads write a tile as soon as it is made: it is still in the cache.
    """
    if not isinstance(target, Flat):
        return work, target.write

    def write(batch: Batch) -> Batch:
        work.repair_tiles(batch, target.put)
        return batch

    def count(batch: Batch) -> None:
        target.rows += len(batch.vectors)

    return write, count


class _BatchTransform:
    """What is done to a batch, in a thread: its vectors repaired, tile by tile, and seen to be finite."""

    def __init__(self, repair: Repair | PlainRepair, store: Store) -> None:
        self.repair, self.store = repair, store
        kind = store.dtype if store.dtype.kind == "f" else np.dtype(np.float32)
        sample = np.asarray(repair.transform(np.zeros((1, _check_dimensions(repair, store)), kind)))
        self.dim, self.dtype = sample.shape[1], sample.dtype
        self.tile = max(1, _TILE_BYTES // (4 * store.dim))
        self.unchecked: Callable[[], Any] = nullcontext
        if not isinstance(repair, PlainRepair):
            import sklearn

            self.unchecked = partial(sklearn.config_context, assume_finite=True)

    def __call__(self, batch: Batch) -> Batch:
        """The batch with its vectors repaired."""
        made = np.empty((len(batch.vectors), self.dim), self.dtype)

        def place(row: int, rows: np.ndarray) -> None:
            made[row - batch.start :][: len(rows)] = rows

        self.repair_tiles(batch, place)
        return batch._replace(vectors=made)

    def repair_tiles(self, batch: Batch, place: Callable[[int, np.ndarray], None]) -> None:
        """Have each repaired tile put in its place, by the number of its first row, in the byte order of files."""
        order = self.dtype.newbyteorder("<")
        with self.unchecked(), np.errstate(all="ignore"):  # what is made is looked at instead
            for tile in blocks(len(batch.vectors), self.tile):
                given = batch.vectors[tile]
                made = self.repair.transform(given if given.dtype.kind == "f" else given.astype(np.float32))
                made = np.ascontiguousarray(made, order)
                if not _all_finite(made):
                    self._raise_nonfinite(given, made, batch.start + tile.start)
                place(batch.start + tile.start, made)

    def _raise_nonfinite(self, given: np.ndarray, made: np.ndarray, start: int) -> None:
        at = int(np.argmin(np.isfinite(made).all(axis=1)))
        first = getattr(self.store, "first", 0)  # of a part, where the whole store has it
        row = f"row {first + start + at} of {self.store.name}"
        if not np.isfinite(given[at]).all():
            raise InputError(f"{row} holds NaN or infinity: drop or mend such rows first")
        wider = "float32" if self.dtype == np.float16 else "float64"
        raise InputError(f"{row} leaves the range of {self.dtype} when it is repaired: give the vectors as {wider}")


def _check_dimensions(repair: Repair | PlainRepair, store: Store) -> int:
    d = getattr(repair, "n_features_in_", store.dim)  # an unfitted one says so itself
    if d != store.dim:
        name = repair.name if isinstance(repair, PlainRepair) else type(repair).__name__
        raise InputError(
            f"{store.name} has {store.dim} dimensions, the {name} was fitted to {d}: need vectors of the same model"
        )
    return int(d)


def _all_finite(rows: np.ndarray) -> bool:
    """Whether no number is NaN or infinite: a sum of squares tells quickly; if it cannot, each is looked at."""
    flat = rows.reshape(-1)
    return bool((rows.dtype.itemsize >= 4 and np.isfinite(np.vdot(flat, flat))) or np.isfinite(flat).all())


def _resume_key(work: _BatchTransform, ending: str, columns: bool) -> dict[str, Any] | None:
    """What must be the same for a run to be gone on with; None if that cannot be known."""
    store = work.store
    digest = _digest(work.repair)
    if digest is None or not store.files or store.given_columns:
        return None
    stats = [file.stat() for file in store.files]
    files = [
        [os.path.realpath(file), stat.st_size, stat.st_mtime_ns] for file, stat in zip(store.files, stats, strict=True)
    ]
    layout = store.layout() if columns else None
    return {
        "source": files,
        "vectors": [store.chosen, store.dim, store.dtype.str],
        "repair": digest,
        "format": ending,
        "columns": None if not columns else dict(store.columns) if layout is None else layout.schema.names,
        "version": isoscope.__version__,
    }


def _digest(repair: Repair | PlainRepair) -> str | None:
    """A checksum of everything that a repair knows, as it is saved; None if it cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "repair")
        try:
            repair.save(kept)
        except InputError:
            return None
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(path for path in kept.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(kept)).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()
