"""Check and write files atomically, remove folders, flush them to disk and lock them."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from isoscope._core.errors import OutputError

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    fcntl = None

_NO_SPACE = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_OWN_RESULT = re.compile(
    rb'<meta name="generator" content="isoscope |"schema"\s*:\s*"isoscope\.|^.{8}\{.*"isoscope\.sketch"', re.DOTALL
)
"""A pattern that occurs only in pages, JSON results and sketches of isoscope."""
_OWN_TABLE = re.compile(rb'"schema"\s*:\s*"isoscope\.(rows|canary)/|\A"row",([^\n]*,)?"norm","cosine_to_mean",')
"""A pattern that occurs only in row tables and canary files of isoscope."""
_SEARCHED_BYTES = 2**20  # a tool that sorts the keys of JSON can move "schema" to the end
_LOCK_NAME = ".lock"
_REMOVED_SUFFIX = ".gone"  # suffix of folders that are being removed


@contextmanager
def atomic_replace(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same folder; the file replaces `path` on success and is removed if an error occurs.

    If `path` is a symbolic link, its target is replaced, not the link. The new file keeps the permissions of the old
    one. Devices and pipes are written to directly. Temporary files for `path` whose processes were killed are removed.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    _remove_leftovers(path)
    temporary, lock = _create_temporary(path)
    try:
        mode = temporary.stat().st_mode
        yield temporary
        wanted = path.stat().st_mode if path.is_file() else mode
        if temporary.stat().st_mode != wanted:  # safetensors creates files that only their owner can read
            temporary.chmod(stat.S_IMODE(wanted))
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        if error.errno in _NO_SPACE:  # an error of a write call has no file name
            error.filename = os.fspath(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


@contextmanager
def replace_result(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path like `atomic_replace`; an existing file must be a page, a JSON result or a sketch."""
    check_result(Path(path))
    with atomic_replace(path) as temporary:
        yield temporary


def check_result(path: Path) -> None:
    """Raise an `OutputError` for an existing file that is neither empty nor a page, a JSON result or a sketch."""
    if path.is_file() and not is_own_result(path):
        raise OutputError(f"{path} exists and is not a result of isoscope: choose another file, or remove it")


def check_regular(path: Path) -> None:
    """Raise an `OutputError` for an existing pipe, device or socket; writing to a pipe without a reader never ends."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OutputError(f"{path} is a pipe, a device or a socket: write to a regular file")


def is_own_result(path: Path) -> bool:
    """Return whether an existing file is empty, or is a page, a JSON result or a sketch that isoscope wrote."""
    with path.open("rb") as file:
        start = file.read(_SEARCHED_BYTES)
    return not start or _OWN_RESULT.search(start) is not None


def is_own_table(path: Path) -> bool:
    """Return whether an existing file is empty, or is a table of rows or a canary file that isoscope wrote."""
    with path.open("rb") as file:
        start = file.read(_SEARCHED_BYTES)
        file.seek(-min(path.stat().st_size, _SEARCHED_BYTES), os.SEEK_END)
        end = file.read()  # a Parquet file has its metadata at the end
    return not start or any(_OWN_TABLE.search(part) for part in (start, end))


def _create_temporary(path: Path) -> tuple[Path, int | None]:
    """Create a temporary file beside `path`; return it, and an open descriptor that keeps it locked, if possible."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            lock = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            if error.errno in _NO_SPACE or not path.parent.is_dir():
                raise
            raise OutputError(f"{path} cannot be written: {error.strerror}; choose another folder") from error
        if fcntl is None:
            os.close(lock)
            return temporary, None
        is_mine = True
        try:
            lock_file(lock)
        except BlockingIOError:
            is_mine = False
        except OSError:  # the file system has no locks; then no other process can lock the file and remove it
            pass
        if is_mine and os.fstat(lock).st_nlink:
            return temporary, lock
        os.close(lock)  # another process took the file for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files for `path` that no process has locked, because their processes were killed."""
    if fcntl is None:
        return
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.part")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), open(entry.path, "rb") as file:
                    lock_file(file)
                    os.unlink(entry.path)


def expand_user(path: str | os.PathLike[str]) -> Path:
    """Return a path with ~ replaced by a home folder; ~name stays as it is if there is no such user.

    `Path.expanduser` raises a RuntimeError in this case.
    """
    return Path(os.path.expanduser(path))


def remove_folder(folder: Path) -> None:
    """Remove a folder and its contents; rename it first, so that no half-deleted folder keeps the name."""
    renamed = folder if folder.suffix == _REMOVED_SUFFIX else folder.with_name(f"{folder.name}{_REMOVED_SUFFIX}")
    if folder != renamed:
        shutil.rmtree(renamed, ignore_errors=True)
        folder.rename(renamed)
    shutil.rmtree(renamed, ignore_errors=True)


def sync(path: Path) -> None:
    """Flush a file or folder to disk; do nothing on systems that cannot open a folder."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(lock: IO[bytes] | int, *, shared: bool = False) -> None:
    """Lock an open file or folder until it is closed or the process ends; raise `OSError` if it is already locked.

    Several processes can hold a shared lock at once.
    """
    if fcntl is not None:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    elif not shared:  # Windows has no shared locks, but does not remove a file that is open
        msvcrt.locking(lock if isinstance(lock, int) else lock.fileno(), msvcrt.LK_NBLCK, 1)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; raise an `OutputError` if another process has locked it.

    Windows cannot lock a folder, so a file in the folder is locked there and removed afterwards.
    """
    lock = folder if fcntl is not None else folder / _LOCK_NAME
    handle = os.open(lock, os.O_RDONLY if lock is folder else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        lock_file(handle)
        yield
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES) or error.filename is not None:
            raise
        raise OutputError(
            f"{folder} is being written by another process: wait until it finishes, or stop that process"
        ) from None
    finally:
        os.close(handle)
        if lock is not folder:
            with suppress(OSError):  # Windows does not remove a file that another process has opened
                lock.unlink()
