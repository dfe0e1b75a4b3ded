"""The folder that is made: an Arrow file for each layer and block, put there whole, and a note of what is done."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import InputError
from isoscope._core.threads import thread_count
from isoscope._io.files import atomic_replace, lock_folder, sync
from isoscope.embedding.direct import DirectFile
from isoscope.stores.manifest import EMBEDDING_MANIFEST, SCHEMA, read_manifest

if TYPE_CHECKING:
    from isoscope._io.progress import Progress

VECTOR_COLUMN = "embedding"
_BATCH_BYTES = 16 * 2**20  # of vectors in a record batch
_READ_BYTES = 2**20  # bytes
_SPOOL = "_texts"
_TEMPORARY_PREFIXES = f".{EMBEDDING_MANIFEST}.", ".layer-"
"""How the names begin under which `replacing` writes these files."""


class ShardWriter:
    """A store in the making; one process at a time has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._noted: dict[str, Any] = {"written": []}

    @property
    def blocks_done(self) -> int:
        """How many blocks are there."""
        return len(self._noted["written"])

    @contextmanager
    def open_folder(self) -> Iterator[Path]:
        """The folder for what is needed meanwhile; it is removed at the end, however that comes."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file: need the name of a folder")
        if not self.folder.absolute().parent.is_dir():
            raise InputError(f"{self.folder.parent} is not a folder: make it first, or write elsewhere")
        if self.folder.is_symlink() and not self.folder.exists():
            raise InputError(f"{self.folder} is a link to what is not there: make that folder, or write elsewhere")
        fresh = not self.folder.exists()
        self.folder.mkdir(exist_ok=True)
        others = [path.name for path in self.folder.iterdir() if not path.name.startswith(("_", *_TEMPORARY_PREFIXES))]
        if others and not (self.folder / EMBEDDING_MANIFEST).exists():
            raise InputError(f"{self.folder} holds other files, such as {sorted(others)[0]}: name a folder of its own")
        spool = self.folder / _SPOOL
        with lock_folder(self.folder):
            try:
                for path in [*self.folder.iterdir()]:  # of a run that was killed while it wrote
                    if path.name.startswith(_TEMPORARY_PREFIXES) and path.name.endswith(".part"):
                        path.unlink()
                shutil.rmtree(spool, ignore_errors=True)
                spool.mkdir()
                yield spool
            finally:
                shutil.rmtree(spool, ignore_errors=True)
                if fresh and not any(self.folder.iterdir()):  # bad input leaves nothing
                    self.folder.rmdir()

    def clear(self) -> None:
        """Throw away what an earlier run left."""
        for path in self.folder.glob("layer-*.arrow"):
            path.unlink()
        (self.folder / EMBEDDING_MANIFEST).unlink(missing_ok=True)

    def begin(self, about: Mapping[str, Any], facts: Mapping[str, Any], blocks: int, progress: Progress) -> str:
        """Go on from where an earlier run was interrupted, if it did the same; gives a word on what was found."""
        kept = read_manifest(self.folder)
        self._noted = {
            "schema": SCHEMA,
            "isoscope": isoscope.__version__,
            **facts,
            "settings": dict(about),
            "blocks": blocks,
            "written": [],
        }
        if kept is None or not kept["written"]:  # nothing was done that could be lost
            self._note()
            return ""
        _check_same_settings(self.folder, kept["settings"], about)
        written = kept["written"][:blocks]
        for block, files in enumerate(written, 1):
            if not all(_checksum(self.folder / name) == noted for name, noted in files.items()):
                break
            self._noted["written"].append(files)
            progress("checking what is there", block, block / len(written))
        self._note()
        if self.blocks_done == blocks:
            return f"{self.folder} is complete already"
        lost = "; it is damaged there, and made anew" if self.blocks_done < len(written) else ""
        return f"going on from part {self.blocks_done + 1} of {blocks}, where an earlier run was interrupted{lost}"

    def write(self, block: int, columns: Any, vectors: Mapping[int, np.ndarray]) -> list[Part]:
        """Write the files of a block, on all cores, under names that do not count yet."""
        parts = [Part(self.folder / f"layer-{layer:02d}-{block:05d}.arrow", layer) for layer in vectors]

        def written(part: Part) -> Part:
            part.write(layer_table(columns, part.layer, vectors[part.layer]))
            return part

        try:
            with ThreadPoolExecutor(thread_count()) as pool:
                return list(pool.map(written, parts))
        except BaseException:
            for part in parts:
                part.temporary.unlink(missing_ok=True)
            raise

    def put(self, parts: list[Part]) -> None:
        """Have the disk hold the files of a block, give them their names, and note it: else it does not count."""
        for part in parts:
            sync(part.temporary)
            os.replace(part.temporary, part.path)
        self._noted["written"].append({part.path.name: part.checksum for part in parts})
        self._note()

    def _note(self) -> None:
        noted = {**self._noted, "finished": self.blocks_done == self._noted["blocks"]}
        with atomic_replace(self.folder / EMBEDDING_MANIFEST) as temporary:
            temporary.write_text(json.dumps(noted, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        sync(self.folder)


class Part:
    """A file of a block, in the making."""

    def __init__(self, path: Path, layer: int) -> None:
        self.path, self.layer, self.checksum = path, layer, ""
        self.temporary = path.with_name(f".{path.name}.part")

    def write(self, table: Any) -> None:
        """Write a table; an Arrow file holds the vectors as the memory does, so that no time goes into packing them."""
        import pyarrow as pa

        kind = table.schema.field(VECTOR_COLUMN).type
        rows = max(1, _BATCH_BYTES // (kind.list_size * kind.value_type.bit_width // 8))
        with DirectFile(self.temporary) as file:
            with pa.ipc.new_file(file, table.schema) as into:
                into.write_table(table, max_chunksize=rows)
            self.checksum = f"{file.checksum:08x}"


class MemoryWriter:
    """The same in memory."""

    def __init__(self) -> None:
        self._tables: dict[int, list[Any]] = {}

    def write(self, block: int, columns: Any, vectors: Mapping[int, np.ndarray]) -> list[Part]:
        """Keep a block."""
        for layer, rows in vectors.items():
            self._tables.setdefault(layer, []).append(layer_table(columns, layer, rows.copy()))
        return []

    def put(self, parts: list[Part]) -> None:
        """Nothing is left to do."""

    def table(self) -> Any:
        """All rows, layer after layer."""
        import pyarrow as pa

        return pa.concat_tables(
            [part for layer in sorted(self._tables) for part in self._tables[layer]]
        ).unify_dictionaries()


def layer_table(columns: Any, layer: int, rows: np.ndarray) -> Any:
    """A layer's vectors, and beside them what is the same in every layer."""
    import pyarrow as pa

    kind = pa.list_(pa.field("element", pa.from_numpy_dtype(rows.dtype), nullable=False), rows.shape[1])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)
    layers = pa.array(np.full(len(rows), layer, np.int32))
    own = [pa.field(VECTOR_COLUMN, kind, nullable=False), pa.field("layer", layers.type, nullable=False)]
    return pa.table([vectors, layers, *columns.columns], schema=pa.schema([*own, *columns.schema]))


def _checksum(path: Path) -> str | None:
    """Of a whole file, as Arrow has none; None if it cannot be read."""
    found = 0
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_BYTES):
                found = zlib.crc32(part, found)
    except OSError:
        return None
    return f"{found:08x}"


def _check_same_settings(folder: Path, kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    other = [name for name in {**kept, **wanted} if kept.get(name) != wanted.get(name)]
    if not other:
        return
    words = []
    for name in other:
        if name in ("texts", "weights"):
            words.append(f"the {'texts or their tokens' if name == 'texts' else name} are others")
        else:
            words.append(
                f"{name.replace('_', ' ')} was {_format_setting(kept.get(name))}, is "
                f"{_format_setting(wanted.get(name))}"
            )
    raise InputError(
        f"{folder} holds a run with other settings: {'; '.join(words)}. Give another folder, or throw that run away: "
        "restart=True, on the command line --restart"
    )


def _format_setting(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else "not set" if value is None else str(value)
