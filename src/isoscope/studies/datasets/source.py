"""Sources of datasets: local files, or the Hugging Face Hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isoscope._core.errors import InputError, MissingExtra, NotFoundError, ParameterError

_PARQUET_REVISION = "refs/convert/parquet"


@dataclass(frozen=True)
class DataSet:
    """The location of a dataset: its files in a folder, and its name on the Hub."""

    name: str
    folders: tuple[str, ...]
    """Accepted names of its folder inside the folder passed with `--data`."""
    files: tuple[str, ...]
    """Required files; each may be compressed with gzip."""
    hub: str
    config: str | None = None
    link: str = ""
    """The link to download the files."""


@dataclass(frozen=True)
class DataSource:
    """The folder passed with `--data`, or the Hub if the folder is None."""

    folder: Path | None = None

    def files(self, wanted: DataSet) -> list[Path]:
        """Return the files of a dataset in the folder; the error for a missing file says where to get it."""
        if self.folder is None:
            raise ParameterError(
                f"{wanted.name} cannot be downloaded automatically; use --data to pass a folder that contains its files"
            )
        if not self.folder.is_dir():
            raise NotFoundError(
                f"{self.folder} is not a folder; use --data to pass a folder that contains {_format_files(wanted)}"
            )
        places = [self.folder / each for each in wanted.folders if (self.folder / each).is_dir()] or [self.folder]
        for place in places:
            paths = [_find_plain_or_gzip(place / each) for each in wanted.files]
            if all(paths):
                return [each for each in paths if each is not None]
        missing = [each for each in wanted.files if _find_plain_or_gzip(places[0] / each) is None]
        no_folder = "" if places[0] != self.folder else f", and it has no folder {' or '.join(wanted.folders)}"
        raise NotFoundError(
            f"{wanted.name} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not in "
            f"{places[0]}{no_folder}; {_describe_download(wanted)}"
        )

    def rows(self, wanted: DataSet, split: str) -> dict[str, list[Any]]:
        """Return the columns of a split on the Hub; labels that have names are returned as names."""
        _check_datasets_installed(wanted)
        try:
            table = _load_from_hub(wanted, split)
        except Exception as error:  # the package raises many kinds of errors
            why = " ".join(str(error).split())[:200]
            raise InputError(
                f"cannot load {wanted.name} from the Hugging Face Hub as "
                f"{wanted.hub}{'' if wanted.config is None else ' ' + wanted.config}, split {split}: {why}; "
                f"alternatively, use --data to pass a folder that contains {_format_files(wanted)}"
            ) from error
        label_names = {name: getattr(kind, "names", None) for name, kind in table.features.items()}
        columns = {}
        for name in table.column_names:
            values, names = list(table[name]), label_names[name]
            if names:
                values = [
                    names[value] if isinstance(value, int) and 0 <= value < len(names) else "" for value in values
                ]
            columns[name] = values
        return columns

    def fingerprint(self, wanted: DataSet) -> str:
        """Return a hash of the dataset's files; for a dataset on the Hub, return its name."""
        if self.folder is None:
            _check_datasets_installed(wanted)
            return f"{wanted.hub} {wanted.config or ''}".strip()
        digest = hashlib.sha256()
        for path in self.files(wanted):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


def _check_datasets_installed(wanted: DataSet) -> None:
    if find_spec("datasets") is None:
        raise MissingExtra(
            f"reading {wanted.name} from the Hugging Face Hub needs the package datasets: pip install datasets, or "
            "use --data to pass a folder that contains its files"
        )


def _load_from_hub(wanted: DataSet, split: str) -> Any:
    """Load a split; if `datasets` 4 rejects the dataset because it is script-based, load the Hub's Parquet copy."""
    import datasets

    try:
        return datasets.load_dataset(wanted.hub, wanted.config, split=split)
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        return datasets.load_dataset(wanted.hub, data_dir=wanted.config, split=split, revision=_PARQUET_REVISION)


def _format_files(wanted: DataSet) -> str:
    return ", ".join(f"{wanted.folders[0]}/{each}" for each in wanted.files)


def _describe_download(wanted: DataSet) -> str:
    ways = [f"download the files from {wanted.link}"] if wanted.link else []
    ways += [f"without --data, they are read from the Hugging Face Hub ({wanted.hub})"] if wanted.hub else []
    return f"use --data to pass a folder that contains {_format_files(wanted)}; {'; '.join(ways)}"


def _find_plain_or_gzip(path: Path) -> Path | None:
    return next((each for each in (path, path.with_name(path.name + ".gz")) if each.is_file()), None)
