"""Write embeddings to a folder: a manifest, and an Arrow file for each layer and block, written atomically."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.threads import thread_count
from isoscope._io.files import sync
from isoscope._io.runs import differences
from isoscope.embedding.embedder import FULL_DIGEST
from isoscope.stores.manifest import embedding_run, read_manifest
from isoscope.stores.table_schema import VECTOR_COLUMN

if TYPE_CHECKING:
    from isoscope._io.progress import Progress

_BATCH_BYTES = 16 * 2**20  # bytes of vectors in a record batch
_READ_BYTES = 2**20
_SPOOL = "_texts"
_PHRASES = {
    "texts": "the texts or their tokens, labels or ids differ",
    "weights": "the configuration of the model or the weights differ",
    "columns": "the names of the columns differ",
}


class ShardWriter:
    """A writer that saves the blocks of an embedding run in a folder and resumes an interrupted run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run = embedding_run(folder)

    @property
    def blocks_done(self) -> int:
        """The number of complete blocks."""
        return len(self._run.content.get("written", ()))

    @contextmanager
    def open_folder(self) -> Iterator[Path]:
        """Lock the folder, and yield the path of a temporary folder inside it."""
        spool = self.folder / _SPOOL
        with self._run.open():
            self._run.check_empty_or_own()
            try:
                shutil.rmtree(spool, ignore_errors=True)
                spool.mkdir()
                yield spool
            finally:
                shutil.rmtree(spool, ignore_errors=True)

    def begin(
        self, settings: Mapping[str, Any], facts: Mapping[str, Any], blocks: int, progress: Progress, *, restart: bool
    ) -> str:
        """Start or resume a run with these settings; return a message about the earlier run, if any."""
        if not restart:
            read_manifest(self.folder)  # raises an error if the manifest is damaged
        earlier = self._run.check(settings, restart, compare=compare_settings)
        written = [] if earlier is None else earlier["written"][:blocks]
        intact = []
        for block, files in enumerate(written, 1):
            if not all(_checksum(self.folder / name) == checksum for name, checksum in files.items()):
                break
            intact.append(files)
            progress("checking finished parts", block, block / len(written))
        content = {"isoscope": isoscope.__version__, **facts, "blocks": blocks, "written": intact}
        self._run.begin(settings, facts={**content, "finished": len(intact) == blocks}, compare=compare_settings)
        if not written:
            return ""
        if self.blocks_done == blocks:
            return f"{self.folder} is already complete"
        damaged = "; a later part is damaged and is computed again" if self.blocks_done < len(written) else ""
        return f"resuming from part {self.blocks_done + 1} of {blocks}{damaged}"

    def write(self, block: int, columns: Any, vectors: Mapping[int, np.ndarray]) -> list[Part]:
        """Write the files of a block under temporary names, on all cores."""
        parts = [Part(self.folder / f"layer-{layer:02d}-{block:05d}.arrow", layer) for layer in vectors]

        def write(part: Part) -> Part:
            part.write(layer_table(columns, part.layer, vectors[part.layer]))
            return part

        try:
            with ThreadPoolExecutor(thread_count()) as pool:
                return list(pool.map(write, parts))
        except BaseException:
            for part in parts:
                part.temporary.unlink(missing_ok=True)
            raise

    def commit(self, parts: list[Part]) -> None:
        """Flush the files of a block to disk, rename them, and record them in the manifest."""
        for part in parts:
            sync(part.temporary)
            os.replace(part.temporary, part.path)
        self._note_written([*self._run.content["written"], {part.path.name: part.checksum for part in parts}])

    def _note_written(self, written: list[dict[str, str]]) -> None:
        content = self._run.content
        self._run.write({**content, "written": written, "finished": len(written) == content["blocks"]})


class Part:
    """A file of a block that is being written."""

    def __init__(self, path: Path, layer: int) -> None:
        self.path, self.layer, self.checksum = path, layer, ""
        self.temporary = path.with_name(f".{path.name}.part")

    def write(self, table: Any) -> None:
        """Write a table as an uncompressed Arrow file, and compute its checksum."""
        import pyarrow as pa

        vectors = table.schema.field(VECTOR_COLUMN).type
        rows = max(1, _BATCH_BYTES // (vectors.list_size * vectors.value_type.bit_width // 8))
        with _ChecksumFile(self.temporary, "wb") as file:
            with pa.ipc.new_file(file, table.schema) as into:
                into.write_table(table, max_chunksize=rows)
            self.checksum = f"{file.checksum:08x}"


class _ChecksumFile(FileIO):
    """An unbuffered file that computes the CRC-32 of its content while it is written."""

    checksum = 0

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        self.checksum, length = zlib.crc32(left, self.checksum), len(left)
        while left:
            left = left[super().write(left) :]
        return length


class MemoryWriter:
    """A writer that keeps the blocks of an embedding run in memory."""

    def __init__(self) -> None:
        self._tables: dict[int, list[Any]] = {}

    def write(self, block: int, columns: Any, vectors: Mapping[int, np.ndarray]) -> list[Part]:
        """Store a copy of a block."""
        for layer, rows in vectors.items():
            self._tables.setdefault(layer, []).append(layer_table(columns, layer, rows.copy()))
        return []

    def commit(self, parts: list[Part]) -> None:
        """Do nothing, because `write` has already stored the block."""

    def table(self) -> Any:
        """Return all rows as one table, ordered by layer."""
        import pyarrow as pa

        return pa.concat_tables(
            [part for layer in sorted(self._tables) for part in self._tables[layer]]
        ).unify_dictionaries()


def layer_table(columns: Any, layer: int, rows: np.ndarray) -> Any:
    """Return a table with the vectors of a layer and the columns that all layers share."""
    import pyarrow as pa

    kind = pa.list_(pa.field("element", pa.from_numpy_dtype(rows.dtype), nullable=False), rows.shape[1])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)
    layers = pa.array(np.full(len(rows), layer, np.int32))
    own = [pa.field(VECTOR_COLUMN, kind, nullable=False), pa.field("layer", layers.type, nullable=False)]
    schema = pa.schema([*own, *columns.schema], metadata=columns.schema.metadata)
    return pa.table([vectors, layers, *columns.columns], schema=schema)


def _checksum(path: Path) -> str | None:
    """Return the CRC-32 of a file, or None if it cannot be read."""
    checksum = 0
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_BYTES):
                checksum = zlib.crc32(part, checksum)
    except OSError:
        return None
    return f"{checksum:08x}"


def compare_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between the settings of two runs as phrases."""
    labels = {"labels": "label"} if "labels" in new["columns"] else {}
    earlier = {"truncate": False, "prompt": None, "columns": {"text": "text", **labels}}  # manifests of version 0.1
    phrases = _PHRASES
    if new["weights"].startswith(FULL_DIGEST) and not str(old.get("weights", FULL_DIGEST)).startswith(FULL_DIGEST):
        phrases = {**_PHRASES, "weights": "an earlier version of isoscope recorded only a part of the weights"}
    return differences({**earlier, **old}, new, phrases)
