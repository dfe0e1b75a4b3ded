"""Open a source of vectors: detect its format and choose the reader."""

from __future__ import annotations

import difflib
import errno
import fnmatch
import glob
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from isoscope._core.errors import (
    FileFormatError,
    InputError,
    MissingValueError,
    NotFoundError,
    ParameterError,
    warn_data,
)
from isoscope._core.missing import check_missing, check_zeros
from isoscope._io.files import expand_user
from isoscope._io.tables import format_names
from isoscope.stores import arrow, fvecs, hdf5, numpy_files, safetensors, text_rows, word_vectors
from isoscope.stores.columns import ROLES, ColumnSpec
from isoscope.stores.databases.address import check_scheme, parse_address, parse_remote
from isoscope.stores.databases.base import open_database
from isoscope.stores.frames import is_frame, open_frame
from isoscope.stores.in_memory import open_array
from isoscope.stores.manifest import EMBEDDING_MANIFEST, REPAIR_MANIFEST, warn_if_unfinished
from isoscope.stores.remote import RemoteFile, find_remote_files
from isoscope.stores.selection import select_layer
from isoscope.stores.shards import ShardedStore, natural_sort_key
from isoscope.stores.store import Store

if TYPE_CHECKING:
    from isoscope._core.types import Missing, Zeros
    from isoscope.stores.databases.address import RemoteUrl

_RANGES: dict[str, Callable[[Path | RemoteFile, ColumnSpec], Store]] = {
    **dict.fromkeys((".parquet", ".pq"), arrow.open_parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), arrow.open_ipc),
}
"""The formats of which a server can send only the parts that are needed."""
_BINARY: dict[str, Callable[[Path, ColumnSpec], Store]] = {
    **{".npy": numpy_files.open_npy, ".npz": numpy_files.open_npz, ".safetensors": safetensors.open_safetensors},
    **_RANGES,
    **dict.fromkeys((".h5", ".hdf5"), hdf5.open_hdf5),
    **dict.fromkeys((".fvecs", ".bvecs", ".ivecs"), fvecs.open_records),
    ".bin": word_vectors.open_word_binary,
}
_TEXT: dict[str, Callable[[Path, ColumnSpec], Store]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), text_rows.open_json_lines),
    **dict.fromkeys((".csv", ".tsv"), text_rows.open_text_table),
    **dict.fromkeys((".vec", ".glove", ".txt"), word_vectors.open_words),
}
_OPENERS = _BINARY | _TEXT
F = TypeVar("F", Path, RemoteFile)
_MAGIC = {
    **{b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x89HDF\r\n": ".h5", b"PK\x03\x04": ".npz"},
}


def open_store(
    source: Any,
    *,
    vectors: str | None = None,
    labels: Any = None,
    types: Any = None,
    text: Any = None,
    ids: Any = None,
    frequency: Any = None,
    groups: Any = None,
    by: Any = None,
    layer: int | None = None,
    missing: Missing = "error",
    zeros: Zeros = "keep",
) -> Store:
    """Open a source of vectors: a file, a folder of shards, a database, a table or an array.

    Only the beginning of a file is read; the rows of a database are counted.

    Parameters
    ----------
    source : path, or object
        The vectors, in one of these forms:

        - a binary file: `.npy`, `.npz`, `.safetensors`, `.parquet`, `.arrow`, `.feather`, `.h5`, `.fvecs`, `.bvecs`,
          `.ivecs` or word2vec `.bin`;
        - a text file, optionally compressed as `.gz`: GloVe, word2vec or fastText `.txt` and `.vec`, `.jsonl`, `.csv`
          or `.tsv`;
        - a folder of such files, or a glob pattern;
        - a folder with word vectors: the array `vectors.npy`, and `words.txt` with one word per line;
        - the address of such a file, or of a folder or glob pattern: ``"https://…"``, ``"s3://bucket/…"``,
          ``"gs://bucket/…"`` or ``"hf://datasets/owner/name/…"``;
        - ``"-"`` for `.npy` data on standard input;
        - the address of a database: ``"postgresql://user@host/db?table=docs"``, ``"qdrant:PATH#collection"``,
          ``"lancedb:PATH#table"``, ``"chroma:PATH#collection"``, ``"duckdb:FILE#table"``,
          ``"duckdb:FILE?query=SELECT …"``, or ``"milvus:FILE.db#collection"``;
        - a Lance dataset: a folder whose name ends in `.lance`;
        - an (n, d) array from any library, or a list of lists;
        - a data frame of pandas, polars, DuckDB, Modin or another library that narwhals supports, a pyarrow Table, or
          a `datasets.Dataset`;
        - a store.
    vectors : str, optional
        The name of the column, dataset or array that contains the vectors, if there are several.
    labels, types, text, ids, frequency : str, or sequence with one entry per row, optional
        A column name, or the values: the class of each row, its type (the word or token it is an instance of), its
        text, its id, and the frequency of its word or text. By default, columns with common names (``label``,
        ``token``, ``text``, ``id``, ``frequency``, …) are used. Word vector files are sorted by decreasing frequency,
        so 1/rank is used as the frequency.
    groups : str, or sequence with one entry per row, optional
        A column name, or the values: the group of each row. Rows in the same group are not independent, such as the
        tokens of a text or the passages of a document. The default is the column `document`, which `isoscope embed`
        writes.
    by : str, or sequence with one entry per row, optional
        The groups to audit separately: a column name, one of the roles above (such as "labels"), or the values.
    layer : int, optional
        The layer to read from hidden states that `isoscope embed` wrote; −1 is the last one. The default is all layers.
    missing : {"error", "drop"}
        Whether rows with a missing value raise an error when they are read, or are dropped. A value is missing if it is
        null, NaN, infinite or an empty cell, in the vector or in a column that is passed here. In a batch, a row to
        drop has NaN in all dimensions, so that all rows keep their numbers.
    zeros : {"keep", "drop"}
        Whether rows of zeros are kept, or dropped in the same way.

    Returns
    -------
    Store
        `len(store)`, `store.dim`, `store.batches()`, `store.take(rows)`, `store.labels`, …

    Notes
    -----
    Numbers keep the precision of the source, with two exceptions: bfloat16 and word vectors in text files become
    float32, and CSV and JSON numbers become float64. A compressed `.npz` array and standard input are extracted to a
    temporary file. isoscope reads only the necessary parts of a remote Parquet or Arrow file, and downloads other
    remote files once into a cache. In a folder of binary files, text files (`.txt`, `.csv`, `.json`, …) are not read as
    shards. The levels of a pandas MultiIndex are joined by underscores to the names of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store
    >>> np.save("cloud.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    >>> store = open_store("cloud.npy", labels=["a", "b", "a", "b", "a", "b"])
    >>> len(store), store.dim, store.dtype
    (6, 2, dtype('float32'))
    >>> for batch in store.batches(["labels"], rows=4):
    ...     print(batch.start, batch.vectors.shape, batch.columns["labels"].tolist())
    0 (4, 2) ['a', 'b', 'a', 'b']
    4 (2, 2) ['a', 'b']
    >>> store.take([5, 0, 5])
    array([[10., 11.],
           [ 0.,  1.],
           [10., 11.]], dtype=float32)
    """
    roles = {"labels": labels, "types": types, "text": text, "ids": ids, "frequency": frequency}
    roles |= {"groups": groups, "by": by}
    wanted = ColumnSpec(vectors, roles)
    if isinstance(source, Store):
        store = _check_open_store(source, wanted)
    elif (where := parse_address(source)) is not None:
        if missing == "drop":
            where = replace(where, options={"missing": "drop", **where.options})
        store = open_database(where, wanted)
    elif (remote := parse_remote(source)) is not None:
        store = _open_remote(remote, wanted)
    elif isinstance(source, str | os.PathLike):
        store = _open_path(os.fsdecode(source), wanted)
    elif is_frame(source):
        store = open_frame(source, wanted)
    else:
        store = open_array(source, wanted)
    if not isinstance(source, Store):
        store.chosen = vectors
        store.guessed = frozenset(role for role in store.columns if wanted.roles[role] is None)
        if store.guessed_dimensions:
            warn_data(
                f"{store.name} has no column of vectors, so its {len(store.guessed_dimensions)} numeric columns are "
                f"read as dimensions ({format_names(store.guessed_dimensions)}): remove columns that are not "
                "dimensions, or name the dimensions e0, e1, …"
            )
    if "drop" in (missing, zeros):
        store = store.dropping(missing=missing, zeros=zeros)
    else:
        check_missing(missing)
        check_zeros(zeros)
    if layer is not None:
        store = select_layer(store, layer)
    for role in ROLES:
        values = wanted.roles[role]
        if values is not None and not isinstance(values, str):
            store = store.with_column(role, values)
    return store.group_by(by) if isinstance(by, str) else store


def _check_open_store(store: Store, wanted: ColumnSpec) -> Store:
    if wanted.vectors or any(isinstance(name, str) for role, name in wanted.roles.items() if role != "by"):
        raise ParameterError(f"{store.name} is already open: specify its columns when you open it")
    return store


def _open_path(name: str, wanted: ColumnSpec) -> Store:
    if not name:
        raise ParameterError(
            'the source is an empty string: pass a file, a folder ("." is the current one), a glob or a database'
        )
    if name == "-":
        return numpy_files.open_stdin(wanted)
    path = expand_user(name)
    try:
        if path.is_dir():
            if word_vectors.word_folder_files(path) is not None:
                return _open_word_folder(path, wanted)
            warn_if_unfinished(path)
            return _open_shards(path.name or str(path), _shards_in(path), wanted)
        if path.exists():
            return _open_file(path, wanted)
        if glob.has_magic(name) and "://" not in name:
            return _open_shards(name, _match_files(path), wanted)
    except PermissionError as error:
        raise NotFoundError(f"{error.filename or path} cannot be read: permission denied") from error
    check_scheme(name)
    raise NotFoundError(_describe_missing(path))


def _open_remote(url: RemoteUrl, wanted: ColumnSpec) -> Store:
    files, is_folder = find_remote_files(url)
    if not is_folder:
        return _open_file(files[0], wanted)
    names = {file.name: file for file in files}
    if names.keys() >= set(word_vectors.FOLDER_FILES) and not glob.has_magic(url.url):
        vectors, words = (names[name].download() for name in word_vectors.FOLDER_FILES)
        store = word_vectors.open_word_folder(str(url), vectors, words, wanted)
        store.files = (vectors, words)
        return store
    return _open_shards(str(url), _choose_shards(files, str(url)), wanted)


def _open_remote_file(file: RemoteFile, wanted: ColumnSpec) -> Store:
    """Open a remote file: read the parts that are needed, or download it if its format or server requires that."""
    if file.size == 0:
        raise MissingValueError(f"{file} is empty: need at least one vector")
    suffix = _suffix(file)
    if suffix in _RANGES and file.supports_ranges() and not (_RANGES[suffix] is arrow.open_ipc and _is_stream(file)):
        store = _RANGES[suffix](file, wanted)
        store.files = (file,)
    else:
        store = _open_file(file.download(), wanted)
    store.name = str(file)
    store.reopen_with(_reopen_remote_file, file, wanted.without_values())
    return store


def _reopen_remote_file(file: RemoteFile, wanted: ColumnSpec) -> Store:
    """Open a remote file again in another process; raise an error if it has changed."""
    file.check_unchanged()
    return _open_remote_file(file, wanted)


def _is_stream(file: RemoteFile) -> bool:
    """Return whether an Arrow file has the stream format, whose rows can only be counted by reading all of it."""
    return file.read(0, min(6, file.size or 0)) != b"ARROW1"


def _open_file(path: Path | RemoteFile, wanted: ColumnSpec) -> Store:
    if isinstance(path, RemoteFile):
        return _open_remote_file(path, wanted)
    if not path.is_file():
        raise FileFormatError(
            f'{path} is not a regular file: pass "-" to read an .npy file from standard input, or save it to a file '
            "first"
        )
    with path.open("rb") as file:
        start = file.read(8)
    if not start:
        raise MissingValueError(f"{path} is empty: need at least one vector")
    store = _OPENERS[_format(path, start)](path, wanted)
    store.files = (path,)
    store.reopen_with(_reopen_file, path.absolute(), wanted.without_values(), path.stat().st_size)
    return store


def _reopen_file(path: Path, wanted: ColumnSpec, size: int) -> Store:
    """Open a file again in another process; raise an error if it has changed."""
    store = _open_file(path, wanted)
    if path.stat().st_size != size:
        raise FileFormatError(f"{path} changed while it was being read: run again when it no longer changes")
    return store


def _open_word_folder(folder: Path, wanted: ColumnSpec) -> Store:
    files = word_vectors.word_folder_files(folder)
    if files is None:
        raise FileFormatError(f"{folder} changed while it was being read: run again when it no longer changes")
    store = word_vectors.open_word_folder(folder.name or str(folder), *files, wanted)
    store.files = files
    store.reopen_with(_open_word_folder, folder.absolute(), wanted.without_values())
    return store


def _format(path: Path, start: bytes) -> str:
    """Return the format indicated by the file extension, or by the first bytes if the extension is unknown."""
    by_name = _suffix(path)
    by_magic = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), None)
    if by_name in _OPENERS:
        if by_name in _TEXT and by_magic:
            raise FileFormatError(
                f"{path} is not text: it starts like a {by_magic} file; change its extension to {by_magic}"
            )
        return by_name
    if by_magic:
        return by_magic
    if start.startswith(b"\x1f\x8b"):
        raise FileFormatError(
            f"{path} is compressed with gzip, which is supported only for {', '.join(_TEXT)}: rename or decompress it"
        )
    if by_name == ".sketch":
        raise FileFormatError(
            f"{path} is a sketch, which contains no rows: compare it with isoscope same, fit a repair to it in "
            "Python, or pass the vectors themselves"
        )
    known = ", ".join(_OPENERS)
    ending = f"the unknown extension {by_name}" if by_name else "no extension"
    raise FileFormatError(f"{path} has {ending}, and its first bytes match no known format: need one of {known}")


def _suffix(path: Path | RemoteFile) -> str:
    """Return the file extension that determines the format; a final .gz is ignored for text files."""
    name = PurePosixPath(path.name)
    suffix = name.suffix.lower()
    inner = PurePosixPath(name.stem).suffix.lower()
    return inner if suffix == ".gz" and inner in _TEXT else suffix


def _open_shards(name: str, paths: Sequence[Path | RemoteFile], wanted: ColumnSpec) -> Store:
    stores = [_open_file(path, wanted) for path in paths]
    if len(stores) == 1:
        stores[0].name = name
        return stores[0]
    store = ShardedStore(name, paths, stores)
    store.files = tuple(paths)
    return store


def _shards_in(folder: Path) -> list[Path]:
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    hint = f"; did you mean {below[0]}?" if below else ""
    return _choose_shards([path for path in folder.iterdir() if path.is_file()], str(folder), hint)


def _choose_shards(files: Sequence[F], folder: str, hint: str = "") -> list[F]:
    """Return the vector files of a folder, all of one format; binary files take precedence over text files."""
    files = [path for path in files if not path.name.startswith((".", "_"))]
    for formats in (_BINARY, _TEXT):
        kinds = Counter(formats[_suffix(path)] for path in files if _suffix(path) in formats)
        paths = sorted((path for path in files if _suffix(path) in formats), key=natural_sort_key)
        if len(kinds) > 1:
            endings = sorted({_suffix(path) for path in paths})
            raise ParameterError(
                f"{folder} has files of several formats, {', '.join(endings)}: choose one with a glob, such as "
                f'"{folder}/*{endings[0]}"'
            )
        if paths:
            return paths
    raise NotFoundError(
        f"{folder} is a folder without vectors: need files with one of the extensions {', '.join(_OPENERS)}{hint}"
    )


def _match_files(pattern: Path) -> list[Path]:
    paths = sorted(
        (Path(p) for p in glob.glob(str(pattern), recursive=True) if os.path.isfile(p)), key=natural_sort_key
    )
    if not paths:
        raise NotFoundError(f"{pattern} matches no file: check the folder and the pattern")
    return paths


def reads_file(source: str | os.PathLike[str], path: Path) -> bool:
    """Return whether a source reads a file, or would read it if the file existed.

    The file may be a member of a folder or glob, a link to one, or a part of a database in a folder.
    """
    name = os.fspath(source)
    try:
        address = parse_address(name)
        if parse_remote(name) is not None:
            return False
    except InputError:
        return False
    if address is not None:
        return "://" not in address.place and _is_below(path, expand_user(address.place))
    own = expand_user(name)
    if own.is_dir():
        return _folder_reads(own, path)
    if not own.exists() and glob.has_magic(name):
        members = (Path(member) for member in glob.iglob(str(own), recursive=True))
        return _matches(path, own) or any(_is_same_file(path, member) for member in members)
    return _is_same_file(path, own)


def _folder_reads(folder: Path, path: Path) -> bool:
    try:
        members = _shards_in(folder)
    except InputError:
        members = [member for member in folder.iterdir() if _suffix(member) in _OPENERS]
    companions = [folder / name for name in (EMBEDDING_MANIFEST, REPAIR_MANIFEST, "words.txt")]
    if any(_is_same_file(path, member) for member in [*members, *companions]):
        return True
    formats = _BINARY if any(_suffix(member) in _BINARY for member in members) else _OPENERS
    is_inside = os.path.realpath(path.absolute().parent) == os.path.realpath(folder)
    return is_inside and _suffix(path) in formats and not path.name.startswith((".", "_"))


def _matches(path: Path, pattern: Path) -> bool:
    """Return whether a glob pattern matches a path; `**` matches any number of folders."""
    parts, wanted = path.absolute().parts, pattern.absolute().parts
    if "**" in wanted:
        return fnmatch.fnmatch(str(path.absolute()), str(pattern.absolute()).replace("**/", "*"))
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatch, parts, wanted))


def _is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths are the same file, also through symbolic and hard links."""
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):  # one of them does not exist
        return os.path.realpath(path) == os.path.realpath(other)


def _is_below(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _describe_missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"{path} does not exist, and neither does its folder: check the spelling"
    if path.is_symlink():
        return _describe_broken_link(path)
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=3, cutoff=0.6)
    return f"{path} does not exist" + (f": did you mean {' or '.join(near)}?" if near else ": check the spelling")


def _describe_broken_link(path: Path) -> str:
    link = f"{path} is a symbolic link to {os.readlink(path)}"
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"{link}, which leads back to it: remove the link"
    return f"{link}, which does not exist: restore that file, or remove the link"
