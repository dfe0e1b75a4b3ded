"""Stores over .npy and .npz files, and over .npy data on standard input; pickled arrays are never loaded."""

from __future__ import annotations

import errno
import math
import struct
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from isoscope._core.errors import FileFormatError, InputError, NotFoundError, ParameterError
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.in_memory import FileArray, check_rows, check_size
from isoscope.stores.store import IndexedStore

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_COPY_BYTES = 2**20
_BAD_HEADER = (ValueError, TypeError, OverflowError, EOFError, SyntaxError, TokenError, RecursionError, MemoryError)
_BAD_ARCHIVE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, struct.error, ValueError)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    length: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def open_npy(path: Path, wanted: ColumnSpec) -> Store:
    """Open the array in an .npy file."""
    rows = read_npy(path, wanted)
    return IndexedStore(path.name, rows, choose_columns((), wanted, str(path)), {})


def read_npy(path: Path, wanted: ColumnSpec) -> FileArray:
    """Return the rows of the array in an .npy file; raise an error if it is not an array of vectors."""
    with path.open("rb") as file:
        header = _header(file, str(path))
    if wanted.vectors is not None:
        raise ParameterError(
            f"vectors is {wanted.vectors!r}, but {path} contains a single array without columns: omit vectors"
        )
    check_rows(header.shape, header.dtype, str(path))
    check_size(path, header.length, header.nbytes, header.shape)
    return _file_array(path, header, 0)


def open_stdin(wanted: ColumnSpec) -> Store:
    """Open .npy data from standard input, which is kept in a temporary file as long as the store exists."""
    where = "standard input"
    if sys.stdin is None or sys.stdin.isatty():
        raise NotFoundError(
            "standard input contains no data: pipe an .npy file into the command, as in: isoscope audit - < vectors.npy"
        )
    header = _header(sys.stdin.buffer, where)
    check_rows(header.shape, header.dtype, where)
    columns = choose_columns((), wanted, where)
    rows = _spool_array(sys.stdin.buffer, header, where)
    if sys.stdin.buffer.read(1):
        raise FileFormatError(f"{where} contains more data after its first array: pipe a single .npy file")
    return IndexedStore(where, rows, columns, {})


def open_npz(path: Path, wanted: ColumnSpec) -> Store:
    """Open a two-dimensional array in an .npz file, with its one-dimensional arrays as columns.

    An uncompressed array is read in place; a compressed one is extracted to a temporary file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {i.filename.removesuffix(".npy"): i for i in archive.infolist() if i.filename.endswith(".npy")}
            headers = {}
            for name, info in members.items():
                with archive.open(info) as file:
                    headers[name] = _header(file, f"{path}: {name}", pickled=True)
            flat = {name: h for name, h in headers.items() if len(h.shape) == 2 and h.dtype.kind in "fiu"}
            chosen = choose_vectors(list(flat), wanted, str(path), others=list(headers))
            header = flat[chosen]
            check_rows(header.shape, header.dtype, f"{path}: {chosen}")
            columns_here = {
                name: h for name, h in headers.items() if h.shape == header.shape[:1] and h.dtype.kind != "O"
            }
            for name in wanted.names & headers.keys():
                _check_not_pickled(headers[name].dtype, f"{path}: {name}")
            columns = choose_columns(list(columns_here), wanted, str(path))
            for name in (chosen, *columns.values()):
                if members[name].file_size < headers[name].length + headers[name].nbytes:
                    raise EOFError(f"the array {name} has fewer values than its shape {headers[name].shape} requires")
            table = {name: _load_member(archive, members[name]) for name in set(columns.values())}
            if members[chosen].compress_type == zipfile.ZIP_STORED:
                rows = _file_array(path, header, _member_offset(path, members[chosen]))
                check_size(path, rows.offset, header.nbytes, header.shape)
            else:
                with archive.open(members[chosen]) as file:
                    file.read(header.length)
                    rows = _spool_array(file, header, f"{path}: {chosen}")
    except InputError:
        raise
    except (*_BAD_ARCHIVE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL: a negative file position
            raise
        why = " ".join(str(error).split())[:200]
        raise FileFormatError(f"{path} is a damaged or truncated .npz file: {why}; copy or write it again") from error
    return IndexedStore(path.name, rows, columns, table)


def _header(file: IO[bytes], where: str, *, pickled: bool = False) -> _Header:
    """Read the header of an .npy stream, and stop before the first number."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        length = file.tell() if file.seekable() else 0
        if min(shape, default=0) < 0:
            raise ValueError(f"its header declares the shape {shape}")
    except _BAD_HEADER as error:
        why = str(error).partition("\n")[0][:200] or type(error).__name__
        raise FileFormatError(f"{where} is not a complete .npy file: {why}; write it with np.save") from error
    if not pickled:
        _check_not_pickled(dtype, where)
    return _Header(shape, fortran, dtype, length)


def _check_not_pickled(dtype: np.dtype, where: str) -> None:
    if dtype.hasobject:
        raise FileFormatError(
            f"{where} is a pickled array, which isoscope never loads because it can run code: save a plain float "
            "array with np.save"
        )


def _file_array(path: Path, header: _Header, start: int) -> FileArray:
    return FileArray(path, header.dtype, header.shape, start + header.length, header.fortran)


def _member_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Return the offset of an uncompressed member's data, which follows a local header of variable size."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        sizes = np.frombuffer(file.read(4), "<u2")
    return info.header_offset + 30 + int(sizes.sum())


def _load_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _spool_array(stream: IO[bytes], header: _Header, where: str) -> FileArray:
    """Copy the array in a stream to an unnamed temporary file, which is deleted with the array."""
    spool = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the array)
    left = header.nbytes
    while left and (block := stream.read(min(left, _COPY_BYTES))):
        spool.write(block)
        left -= len(block)
    if left:
        raise FileFormatError(f"{where} is truncated: {left} of {header.nbytes} bytes are missing; send it again")
    spool.flush()
    return FileArray(spool, header.dtype, header.shape, 0, header.fortran)
