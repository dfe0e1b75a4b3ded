"""Writing files that are larger than what else the memory holds, without pushing that out."""

from __future__ import annotations

import errno
import io
import mmap
import os
import zlib
from pathlib import Path
from typing import Any

_BUFFER = 4 * 2**20  # bytes that go to the disk at once
_SECTOR = 4_096  # bytes: a disk that is written to directly takes whole ones


class DirectFile(io.RawIOBase):
    """A file to be written from its beginning to its end, and the checksum of what was written.

    The system keeps a copy of what is written in memory, page by page, which costs more time than the disk does; where
    it can be told not to (O_DIRECT), it is.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._length, self._held = path, 0, 0
        self.checksum = 0
        self._buffer = mmap.mmap(-1, _BUFFER)  # begins where a page does, as it must
        self._handle = self._opened(getattr(os, "O_DIRECT", 0))

    def _opened(self, more: int) -> int:
        try:
            return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | more, 0o666)
        except OSError as error:
            if not more or error.errno != errno.EINVAL:  # what a file system says that cannot
                raise
            return self._opened(0)

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """How much was written."""
        return self._length

    def write(self, data: Any) -> int:
        """Take some bytes."""
        left = memoryview(data).cast("B")
        self.checksum, length = zlib.crc32(left, self.checksum), len(left)
        while left:
            some = min(len(left), _BUFFER - self._held)
            self._buffer[self._held : self._held + some] = left[:some]
            self._held, left = self._held + some, left[some:]
            if self._held == _BUFFER:
                self._flush_buffer(_BUFFER)
        self._length += length
        return length

    def _flush_buffer(self, length: int) -> None:
        left = memoryview(self._buffer)[:length]
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError as error:
            if error.errno != errno.EINVAL or self._length >= _BUFFER:
                raise
            os.close(self._handle)  # it could be opened so, and not written to
            self._handle = self._opened(0)
            self._flush_buffer(length)
        self._held = 0

    def close(self) -> None:
        """Write what is left, and no more than there was."""
        if self.closed:
            return
        try:
            if self._held:
                self._flush_buffer(-(-self._held // _SECTOR) * _SECTOR)
            os.ftruncate(self._handle, self._length)
        finally:
            os.close(self._handle)
            super().close()
