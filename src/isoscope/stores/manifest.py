"""Manifests in the folders that `embed` and `apply` write; they record the settings and whether a run is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isoscope._core.errors import FileFormatError, InputError, warn_data
from isoscope._io.json import shorten
from isoscope._io.runs import RESTART_HINT, RunFolder
from isoscope.stores.table_schema import read_metadata

EMBEDDING_MANIFEST = "_embedding.json"
EMBEDDING_SCHEMA = "isoscope.embedding/1"
REPAIR_MANIFEST = "_repaired.json"
REPAIR_SCHEMA = "isoscope.repaired/1"


def embedding_run(folder: Path) -> RunFolder:
    """Return the `RunFolder` of an `embed` run."""
    return RunFolder(
        folder,
        EMBEDDING_MANIFEST,
        EMBEDDING_SCHEMA,
        parts=("layer-*.arrow",),
        settings_key="settings",
        can_restart=True,
    )


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest that `embed` wrote to a folder, or None if the folder has no manifest."""
    run = embedding_run(folder)
    if not run.manifest.exists():
        return None
    content = run.read()
    try:
        if type(content["blocks"]) is not int:
            raise ValueError('the field "blocks" is not a number')
        if not isinstance(content["written"], list):
            raise ValueError('the field "written" is not a list')
        files = [each for block in content["written"] for each in block.items()]
        if any(Path(name).name != name or not isinstance(checksum, str) for name, checksum in files):
            raise ValueError('the field "written" does not list files and checksums')
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"{run.manifest} is damaged ({shorten(str(error))}): choose another folder, or {RESTART_HINT}"
        ) from error
    return content


def describe_embedding(path: Path) -> dict[str, Any]:
    """Return what `embed` recorded about a folder or a file that it wrote: the model, the settings and the counts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_dir():
        return read_manifest(path) or {}
    if path.suffix.lower() == ".parquet":
        return read_metadata(pq.read_schema(path))
    with pa.memory_map(str(path)) as source:
        return read_metadata(pa.ipc.open_file(source).schema)


def warn_if_unfinished(folder: Path) -> None:
    """Warn if `embed` or `apply` has not finished writing a folder."""
    try:
        manifest = read_manifest(folder)
    except InputError as error:
        warn_data(str(error))
        return
    if manifest is not None and not manifest.get("finished"):
        done, total = len(manifest["written"]), manifest["blocks"]
        warn_data(f"{folder} is incomplete: {done} of {total} parts are written; rerun embed to resume")
    repaired = folder / REPAIR_MANIFEST
    if repaired.exists() and b'"finished": true' not in repaired.read_bytes():
        warn_data(f"{folder} is incomplete: some repaired vectors are missing; rerun apply to resume")
