"""Where the rows of an embedding run are written: a folder of parts, or one file made from such a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import OutputError
from isoscope._io.files import expand_user, remove_folder
from isoscope._io.json import jsonable
from isoscope.embedding.shards import compare_settings
from isoscope.stores.databases.address import Address, parse_target
from isoscope.stores.manifest import EMBEDDING_MANIFEST, describe_embedding, embedding_run
from isoscope.stores.open import open_store
from isoscope.stores.write import TABLE_ENDINGS, check_writable, write_store

if TYPE_CHECKING:
    from isoscope._io.progress import Progress

_REPLACE_HINT = "replace it with restart=True (CLI: --restart)"


@dataclass(frozen=True)
class OutputPath:
    """The output of a run: a folder that can be resumed, or a file and the hidden folder of its unfinished parts."""

    folder: Path
    file: Path | None = None

    @classmethod
    def parse(cls, output: str | os.PathLike[str]) -> OutputPath:
        """Return the output that a path denotes; raise an `OutputError` if it is neither a folder nor a file."""
        target = parse_target(os.fspath(output))
        if isinstance(target, Address):
            raise OutputError(
                f"{target} is a database, but embed writes only files and folders: write a .parquet file, then copy "
                "it with isoscope convert"
            )
        path = expand_user(target)
        if path.suffix.lower() not in TABLE_ENDINGS:
            if path.suffix and not path.is_dir():
                raise OutputError(
                    f"{path} has the extension {path.suffix}: need .parquet or .arrow for a file, or a name without "
                    "an extension for a folder"
                )
            return cls(path)
        if (path / EMBEDDING_MANIFEST).is_file():
            raise OutputError(
                f"{path} is a folder that an earlier version of isoscope wrote: rename it to a name without an "
                "extension, or choose another file"
            )
        return cls(path.with_name(f".{path.name}.parts"), check_writable(path))

    def check_not_input(self, *inputs: Any) -> None:
        """Raise an `OutputError` if the file is also an input."""
        for each in inputs:
            is_path = isinstance(each, str | os.PathLike)
            if self.file is not None and is_path and os.path.realpath(each) == os.path.realpath(self.file):
                raise OutputError(f"{self.file} is also an input: choose another output file")

    def check_replaceable(self, settings: Mapping[str, Any]) -> None:
        """Raise an `OutputError` if the file exists and is not the output of a run with these settings."""
        if self.file is None or not self.file.is_file() or not self.file.stat().st_size:
            return
        try:
            earlier = describe_embedding(self.file).get("settings")
        except (OSError, ValueError):  # pyarrow's error for a file that is damaged or has another format
            earlier = None
        if not isinstance(earlier, dict):
            raise OutputError(
                f"{self.file} exists and is not an output of isoscope embed: choose another file, or {_REPLACE_HINT}"
            )
        if found := compare_settings(earlier, jsonable(dict(settings))):
            raise OutputError(
                f"{self.file} holds vectors of a run with different settings: {'; '.join(found)}; choose another file, "
                f"or {_REPLACE_HINT}"
            )

    def finish(self, progress: Progress) -> None:
        """Write the file, if the output is one, and remove the folder of its parts."""
        if self.file is not None:
            write_store(open_store(self.folder), self.file, progress=progress)
            remove_folder(self.folder)

    def remove_empty_parts(self) -> None:
        """Remove the hidden folder of a file if no part is finished, so that a failed run leaves nothing behind."""
        if self.file is not None and self.folder.is_dir() and not embedding_run(self.folder).has_parts():
            remove_folder(self.folder)
