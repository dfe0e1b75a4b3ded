"""Models and data sets of a study: by their names on the Hugging Face hub, or in folders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isoscope._core.errors import InputError, MissingExtra

_PARQUET_REVISION = "refs/convert/parquet"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".npy", ".npz", ".txt", ".vec", ".gz")
_BLOCKS, _BLOCK = 64, 2**14


@dataclass(frozen=True)
class Model:
    """A model by its name on the hub or by its folder; or a folder or file of word vectors."""

    place: str

    @property
    def name(self) -> str:
        """What it is called in tables and files: the last part of its place.

        >>> Model("sentence-transformers/all-MiniLM-L6-v2").name
        'all-MiniLM-L6-v2'
        """
        return Path(self.place).name or self.place

    def fingerprint(self) -> str:
        """A word that is another if the model in the folder is another; its name where it is on the hub."""
        folder = Path(self.place).expanduser()
        if not folder.exists():
            return self.place
        seen = hashlib.sha256()
        for path in sorted(each for each in ([folder] if folder.is_file() else folder.rglob("*")) if each.is_file()):
            seen.update(f"{path.name} {path.stat().st_size}\n".encode())
            if path.name == "config.json":
                seen.update(path.read_bytes())
        return seen.hexdigest()[:16]

    def weights_fingerprint(self) -> str:
        """A word that is another if the numbers in the folder are, such as after fine-tuning; "" on the hub.

        Of each large file some blocks are read: other weights of the same shape differ nearly everywhere.
        """
        folder = Path(self.place).expanduser()
        if not folder.exists():
            return ""
        seen = hashlib.sha256()
        for path in sorted([folder] if folder.is_file() else folder.rglob("*")):
            if path.is_file() and path.suffix in _WEIGHTS:
                size = path.stat().st_size
                with path.open("rb") as file:
                    for i in range(_BLOCKS):
                        file.seek(i * max(0, size - _BLOCK) // (_BLOCKS - 1))
                        seen.update(file.read(_BLOCK))
        return seen.hexdigest()[:16]


@dataclass(frozen=True)
class DataSet:
    """Where the rows of a data set are: files in a folder, or a name on the hub."""

    name: str
    folders: tuple[str, ...]
    """What its folder may be called, inside the one that `--data` names."""
    files: tuple[str, ...]
    """Files that are needed, each maybe in gzip."""
    hub: str
    config: str | None = None
    link: str = ""
    """Where its files can be had."""


@dataclass(frozen=True)
class DataSource:
    """The folder that was named with `--data`, or the hub if none was."""

    folder: Path | None = None

    def files(self, wanted: DataSet) -> list[Path]:
        """The files of a data set in the folder; an `InputError` says what was looked for, where, and how to get it."""
        if self.folder is None:
            raise InputError(f"{wanted.name} is read from files: name their folder with --data")
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is not a folder: --data names the one that holds {_format_files(wanted)}")
        places = [self.folder / each for each in wanted.folders if (self.folder / each).is_dir()] or [self.folder]
        for place in places:
            found = [_find_plain_or_gzip(place / each) for each in wanted.files]
            if all(found):
                return [each for each in found if each is not None]
        lacking = [each for each in wanted.files if _find_plain_or_gzip(places[0] / each) is None]
        among = "" if places[0] != self.folder else f", nor is there a folder {' or '.join(wanted.folders)}"
        raise InputError(
            f"{wanted.name} needs {', '.join(lacking)}, which {'is' if len(lacking) == 1 else 'are'} not in "
            f"{places[0]}{among}; {_describe_download(wanted)}"
        )

    def rows(self, wanted: DataSet, split: str) -> dict[str, list[Any]]:
        """Columns of a data set on the hub, labels by their names where they have names."""
        _check_datasets_installed(wanted)
        try:
            found = _load_from_hub(wanted, split)
        except Exception as error:  # it raises what its many parts raise
            why = " ".join(str(error).split())[:200]
            raise InputError(
                f"{wanted.name} could not be had from the hub as {wanted.hub}"
                f"{'' if wanted.config is None else ' ' + wanted.config}, split {split}: {why}; "
                f"or name a folder with --data that holds {_format_files(wanted)}"
            ) from error
        named = {name: getattr(kind, "names", None) for name, kind in found.features.items()}
        columns = {}
        for name in found.column_names:
            values, names = list(found[name]), named[name]
            if names:
                values = [
                    names[value] if isinstance(value, int) and 0 <= value < len(names) else "" for value in values
                ]
            columns[name] = values
        return columns

    def fingerprint(self, wanted: DataSet) -> str:
        """A word that is another if a file of the data set is another; its name where it is on the hub."""
        if self.folder is None:
            _check_datasets_installed(wanted)
            return f"{wanted.hub} {wanted.config or ''}".strip()
        seen = hashlib.sha256()
        for path in self.files(wanted):
            seen.update(path.read_bytes())
        return seen.hexdigest()[:16]


def _check_datasets_installed(wanted: DataSet) -> None:
    if find_spec("datasets") is None:
        raise MissingExtra(
            f"{wanted.name} is read from the Hugging Face hub with the package datasets, which is not installed: "
            f"pip install datasets, or name a folder of its files with --data"
        )


def _load_from_hub(wanted: DataSet, split: str) -> Any:
    """A split; of a data set that is a script, which newer versions do not run, the hub's own copy as tables."""
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
    ways = [f"its data are at {wanted.link}"] if wanted.link else []
    ways += [f"without --data it is had from the hub ({wanted.hub})"] if wanted.hub else []
    return f"--data names the folder that holds {_format_files(wanted)}; {'; '.join(ways)}"


def _find_plain_or_gzip(path: Path) -> Path | None:
    return next((each for each in (path, path.with_name(path.name + ".gz")) if each.is_file()), None)
