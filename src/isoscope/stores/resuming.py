"""What an interrupted run leaves beside the file that it was to write, and how the next run finds it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace, lock_file, sync
from isoscope.stores.targets import Checkpoint

_PROGRESS = "progress.json"


class ResumableFile:
    """A folder beside a file, with its rows so far and with what they were made of; one process at a time has it.

    What is kept counts only if `about`, which says what is being made of what, is the same. Without one nothing is
    kept.
    """

    def __init__(self, path: Path, about: dict[str, Any] | None) -> None:
        self.path, self.about = Path(os.path.realpath(path)), about
        self.folder = self.path.with_name(f".{self.path.name}.unfinished")
        self.rows = self.folder / f"rows{self.path.suffix.lower()}"
        self._lock: IO[bytes] | None = None
        self._footers = 0

    def __enter__(self) -> ResumableFile:
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"{self.path} is not a file: need the name of one")
        while self._lock is None:
            self.folder.mkdir(exist_ok=True)
            self._lock = self._acquire_lock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        self._lock.close()

    def _acquire_lock(self) -> IO[bytes] | None:
        """The lock that the one who works here holds until it ends, however it ends; None if the folder went away."""
        path = self.folder / "lock"
        try:
            lock = path.open("ab")
        except FileNotFoundError:
            return None
        try:
            lock_file(lock)
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        except OSError as error:
            lock.close()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise InputError(
                    f"{self.path} is being written by another process: wait until it is done, or end it"
                ) from None
            raise
        lock.close()
        return None

    def found(self) -> tuple[Checkpoint, str]:
        """From where to go on, and why that is the beginning if there was something else; what is no use is removed."""
        held = self._held()
        if isinstance(held, Checkpoint):
            return held, ""
        self.clear()
        return Checkpoint(), held

    def _held(self) -> Checkpoint | str:
        path = self.folder / _PROGRESS
        if not path.exists():
            return "it had kept nothing" if self.rows.exists() else ""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            rows, size, about = int(kept["rows"]), int(kept["size"]), dict(kept["about"])
            footers = tuple(self._footer(i).read_bytes() for i in range(int(kept["footers"])))
            if self.rows.stat().st_size < size:
                return "it is cut"
        except (OSError, ValueError, LookupError, TypeError):
            return "it is damaged"
        wanted = self.about or {}
        other = [key for key in {**about, **wanted} if about.get(key) != wanted.get(key)]
        if other:
            return f"its {' and '.join(other)} differed"
        self._footers = len(footers)
        return Checkpoint(rows, size, footers)

    def keep(self, mark: Checkpoint) -> None:
        """Note what was done; the rows are on the disk already."""
        for i in range(self._footers, len(mark.footers)):
            with atomic_replace(self._footer(i)) as temporary:
                temporary.write_bytes(mark.footers[i])
        self._footers = len(mark.footers)
        kept = {"rows": mark.rows, "size": mark.size, "footers": len(mark.footers), "about": self.about}
        with atomic_replace(self.folder / _PROGRESS) as temporary:
            temporary.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")

    def put(self) -> None:
        """Put the whole file into its place; nothing else is left."""
        if self.path.is_file():
            shutil.copymode(self.path, self.rows)
        sync(self.rows)
        os.replace(self.rows, self.path)
        sync(self.path.parent)
        self.drop()

    def clear(self) -> None:
        """Remove what was kept; the folder stays, as its lock is in it."""
        for path in self.folder.iterdir():
            if path.name != "lock":
                path.unlink()

    def drop(self) -> None:
        """Remove it all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _footer(self, number: int) -> Path:
        return self.folder / f"footer-{number}"
