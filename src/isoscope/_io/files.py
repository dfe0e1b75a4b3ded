"""Writing files so that an interruption leaves the old one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from isoscope._core.errors import InputError

_REMOVED_SUFFIX = ".gone"  # how the name of a folder ends that is being removed


@contextmanager
def atomic_replace(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, put in its place when the block ends well and removed when it does not.

    A link stays one, and what it points to is replaced; the new file has the old one's permissions. A device or a pipe
    has no content to keep and is written to as it is.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        if path.is_file():
            shutil.copymode(path, temporary)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder and what is in it: a kill in the midst of it leaves no half under its name."""
    gone = folder if folder.suffix == _REMOVED_SUFFIX else folder.with_name(f"{folder.name}{_REMOVED_SUFFIX}")
    if folder != gone:
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def sync(path: Path) -> None:
    """Have the disk hold what was written; a folder cannot be synced everywhere, and then is not."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(lock: IO[bytes] | int) -> None:
    """Lock an open file or folder until it is closed, however the process ends; an `OSError` if another one has it."""
    with suppress(ImportError):  # where there is no such lock, two processes are the user's to keep apart
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Have a folder for oneself, for as long as the process lives."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # where a folder cannot be opened, two processes are the user's to keep apart
        yield
        return
    try:
        lock_file(handle)
        yield
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES) or error.filename is not None:
            raise
        raise InputError(f"{folder} is being written by another process: wait until it is done, or end it") from None
    finally:
        os.close(handle)
