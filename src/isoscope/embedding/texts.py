"""Texts to embed, with their labels and ids, read from lists, text files, tables and datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from isoscope._core.errors import (
    FileFormatError,
    MissingExtra,
    MissingValueError,
    NotFoundError,
    ParameterError,
    ShapeError,
)
from isoscope._io.files import expand_user
from isoscope._io.lines import read_lines
from isoscope._io.tables import check_unique, format_names, open_table, parse_integer, table_format
from isoscope.stores.columns import ColumnSpec, choose_columns

SPLITS = ("line", "paragraph", "file")
"""The ways to split a plain text file into texts."""
FIELDS = {"labels": "label", "ids": "id"}
"""The roles of the values that accompany a text, and their names in `Text`, which are also their default names."""


class Text(NamedTuple):
    """A text, its label and its id, which are None if there are no labels or ids."""

    text: str
    label: Any = None
    id: Any = None


@dataclass(frozen=True)
class Texts:
    """Texts that are read one by one; they can be read again unless they come from an iterator."""

    name: str
    read: Callable[[], Iterator[Text]]
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of a table that each role was read from; the text has none if it was joined from several columns."""


def open_texts(
    source: Any,
    *,
    text: str | Sequence[str] | None = None,
    labels: Any = None,
    ids: Any = None,
    split: str = "line",
    config: str | None = None,
    part: str | None = None,
) -> Texts:
    """Open a source of texts: a file, a dataset (its path, or its name on the Hugging Face Hub), or strings.

    Parameters
    ----------
    source : path, name, Dataset, or iterable of str
        A `.csv`, `.tsv`, `.jsonl` or `.parquet` file (all but the last may be compressed as `.gz`); any other file,
        which is read as plain text; a folder or name that `datasets` loads; or the strings themselves.
    text : str, or sequence of str, optional
        The column of the texts in a table (default: a column with a common name). The texts of several columns, such
        as a title and a body, are joined with a space.
    labels, ids : str, or sequence with one entry per text, optional
        The column of the labels or ids in a table (default: a column with a common name), or the values themselves.
    split : {"line", "paragraph", "file"}
        How to split a plain text file into texts: at each line, at empty lines, or not at all.
    config, part : str, optional
        The configuration of a dataset on the Hugging Face Hub, and its split ("train", "validation", …).

    Examples
    --------
    >>> texts = open_texts(["a text", "another"], labels=[0, 1])
    >>> [*texts.read()]
    [Text(text='a text', label=0, id=None), Text(text='another', label=1, id=None)]
    """
    if split not in SPLITS:
        raise ParameterError(f'split is {split!r}: need "line", "paragraph" or "file"')
    given = {"labels": labels, "ids": ids}
    columns = _TextColumns(_text_names(text), {role: v for role, v in given.items() if isinstance(v, str)})
    if isinstance(source, str | os.PathLike):
        texts = _open_path(os.fspath(source), columns, split, config, part)
    elif type(source).__module__.partition(".")[0] == "datasets":
        if config is not None:
            raise ParameterError(f"config is {config!r}, but the dataset is already loaded: omit config")
        texts = _open_dataset(source, "dataset", columns, part)
    else:
        _check_no_parts("a list of texts", config, part)
        if columns.requested or split != "line":
            what = "split" if split != "line" else " and ".join(columns.requested)
            raise ParameterError(
                f"{what} can be set only for files and datasets, but texts is a {type(source).__name__}: omit {what}"
            )
        texts = _open_strings(source)
    for role, values in given.items():
        if values is not None and not isinstance(values, str):
            texts = _with_values(texts, role, values)
    return texts


@dataclass(frozen=True)
class _TextColumns:
    """The columns of a table that the caller requested."""

    texts: Sequence[str]
    others: Mapping[str, str]
    """The columns of labels and ids."""

    @property
    def requested(self) -> dict[str, str]:
        """The names of the requested columns by role."""
        return {**({"text": " and ".join(self.texts)} if self.texts else {}), **self.others}


def _make_text(text: str, values: dict[str, Any]) -> Text:
    """Return a text with its label and id; an id of an unusual type becomes text."""
    value = values.get("id")
    if not isinstance(value, str | int | float | list | dict | None):
        values = {**values, "id": value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)}
    return Text(text, **values)


def _text_names(text: Any) -> list[str]:
    """Return the names of the requested text columns."""
    names = [] if text is None else [text] if isinstance(text, str) else text
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ParameterError(f"text is {text!r}: need the name of a column, or a list of names")
    return list(names)


def _check_no_parts(name: str, config: str | None, part: str | None) -> None:
    for role, value in (("config", config), ("part", part)):
        if value is not None:
            raise ParameterError(f"{role} is {value!r}, but {name} is not a dataset: omit {role}")


def _open_path(name: str, columns: _TextColumns, split: str, config: str | None, part: str | None) -> Texts:
    path = expand_user(name)
    if not os.path.exists(path) and (len(name.split()) > 1 or len(name) > 200):
        raise NotFoundError(f"{name[:60]!r} does not exist: need a file; to embed this text itself, pass it in a list")
    if path.is_file():
        _check_no_parts(path.name, config, part)
        return _open_file(path, columns, split)
    if path.is_dir():
        return _open_dataset(_load_dataset(str(path), config, part), f"dataset {path.name}", columns, part)
    if path.is_absolute() or name.startswith((".", "~")) or path.suffix or name.count("/") > 1:
        raise NotFoundError(
            f"{name} does not exist: need a file of texts, or the name of a dataset on the Hugging Face Hub"
        )
    return _open_dataset(_load_dataset(name, config, part), f"dataset {name}", columns, part)


def _open_strings(source: Any) -> Texts:
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise ParameterError(f"texts is a {type(source).__name__}: need a path, a dataset, or a list of strings")
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        raise ParameterError(
            f"texts is a {type(source).__name__}, which has several columns: pass only the text column"
        )

    def read() -> Iterator[Text]:
        for number, value in enumerate(source):
            yield Text(_as_text(value, f"text {number}"))

    return Texts("list of texts", read)


def _as_text(value: Any, where: str) -> str:
    """Return a value as text; a missing value becomes an empty string."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    raise ParameterError(f"{where} is a {type(value).__name__}: need a string")


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, or pandas' NA."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode and tokenizers reject; the length stays the same."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _with_values(texts: Texts, role: str, given: Any) -> Texts:
    """Return the texts with these labels or ids."""
    values, name = given.tolist() if hasattr(given, "tolist") else given, FIELDS[role]
    if not isinstance(values, Iterable) or isinstance(values, bytes | Mapping):
        raise ParameterError(f"{role} is a {type(given).__name__}: need the name of a column, or one {name} per text")
    values = [*values]
    if values and isinstance(values[0], list | tuple | dict):
        raise ParameterError(f"{role} contains a {type(values[0]).__name__} for each text: need one value per text")

    def read() -> Iterator[Text]:
        count = 0
        for count, each in enumerate(texts.read(), 1):
            if count > len(values):
                raise ShapeError(f"{role} has {len(values)} entries but there are more texts; pass one {name} per text")
            yield each._replace(**{name: values[count - 1]})
        if count < len(values):
            raise ShapeError(f"{role} has {len(values)} entries but there are {count} texts; pass one {name} per text")

    return Texts(texts.name, read, {each: column for each, column in texts.columns.items() if each != role})


# files


def _open_file(path: Path, columns: _TextColumns, split: str) -> Texts:
    kind = table_format(path)
    if kind is None:
        if columns.requested:
            raise NotFoundError(
                f"{path} is read as plain text, which has no column {' or '.join(columns.requested.values())}: need a "
                ".csv, .tsv, .jsonl or .parquet file"
            )
        return Texts(path.name, lambda: _read_plain_text(path, split))
    if split != "line":
        raise ParameterError(f"split is {split!r}, but {path} is a table, where each cell is one text: omit split")
    return _open_table(path, columns, parse_cells=kind in ("csv", "tsv"))


def _read_plain_text(path: Path, split: str) -> Iterator[Text]:
    """Yield lines (including empty lines between others), paragraphs between empty lines, or the entire file."""
    pending: list[str] = []
    last = 0
    for block in read_lines(path):
        for number, line in zip(block.numbers, block.decode(path), strict=True):
            if split == "line":
                yield from (Text("") for _ in range(number - last - 1))
                yield Text(line)
            elif split == "paragraph":
                if pending and (not line.strip() or number > last + 1):
                    yield Text("\n".join(pending))
                    pending = []
                if line.strip():
                    pending.append(line)
            else:
                pending.extend([""] * (number - last - 1))
                pending.append(line)
            last = number
    if pending:
        yield Text("\n".join(pending))


def _open_table(path: Path, columns: _TextColumns, *, parse_cells: bool) -> Texts:
    table = open_table(path)
    texts, others = _choose_text_columns(table.names, columns, path)

    def read() -> Iterator[Text]:
        for batch in table.batches(list(dict.fromkeys([*texts, *others.values()]))):
            for i in range(len(batch)):
                where = batch.where(i)
                text = _join(_as_text(batch.columns[name][i], f"{where}: {name}") for name in texts)
                values = {FIELDS[role]: batch.columns[name][i] for role, name in others.items()}
                if parse_cells:
                    values = {name: _parse_cell(cell, where) for name, cell in values.items()}
                yield _make_text(text, values)

    return Texts(path.name, read, _column_names(texts, others))


def _join(parts: Iterable[str]) -> str:
    """Return the texts of several columns as one, separated by a space; empty texts add nothing."""
    return " ".join(part for part in parts if part)


def _parse_cell(cell: str | None, where: str) -> int | str | None:
    """Return the value in a CSV or TSV cell: an integer, a string such as 007, or None if the cell is empty."""
    stripped = (cell or "").strip()
    if stripped.removeprefix("-").isdecimal() and str(number := parse_integer(stripped, where)) == stripped:
        return number if -(2**63) <= number < 2**63 else stripped
    return stripped or None


def _column_names(texts: Sequence[str], others: Mapping[str, str]) -> dict[str, str]:
    return {**({"text": texts[0]} if len(texts) == 1 else {}), **others}


def _choose_text_columns(
    names: Sequence[str], columns: _TextColumns, where: object
) -> tuple[list[str], dict[str, str]]:
    """Return the text columns, and the columns of labels and ids: those requested, else those with common names.

    The only column of a table contains the texts. A column of texts becomes labels or ids only if it is requested.
    """
    if not names:
        raise MissingValueError(f"{where} is empty: need at least one text")
    check_unique(names, where)
    roles: dict[str, str | None] = {"text": columns.texts[0] if columns.texts else None, **columns.others}
    chosen = choose_columns(names, ColumnSpec(None, roles), str(where))
    for name in columns.texts[1:]:
        choose_columns(names, ColumnSpec(None, {"text": name}), str(where))
    if "text" not in chosen and len(names) == 1:
        chosen["text"] = names[0]
    if "text" not in chosen:
        raise NotFoundError(
            f"{where} has the columns {format_names(names)}, but none has a common name for texts: choose one with "
            f'text="{names[0]}" (on the command line: --columns text={names[0]})'
        )
    texts = list(columns.texts) or [chosen["text"]]
    others = {role: chosen[role] for role in FIELDS if role in chosen}
    return texts, {role: name for role, name in others.items() if role in columns.others or name not in texts}


# datasets


def _load_dataset(name: str, config: str | None, part: str | None) -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"loading {name} needs the package datasets, which is not installed: pip install datasets"
        ) from error
    folder = Path(name)
    try:
        if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, config, split=part)
    except Exception as error:  # datasets raises errors from many libraries
        why = " ".join(str(error).split())[:240]
        if folder.is_dir():
            raise FileFormatError(f"{name} is a folder that datasets cannot load: {why}") from error
        raise NotFoundError(
            f"{name} is not a file, and no dataset of this name could be loaded from the Hugging Face Hub: {why}; "
            "check the name and the network, or pass a file"
        ) from error


def _open_dataset(dataset: Any, name: str, columns: _TextColumns, part: str | None) -> Texts:
    if hasattr(dataset, "keys"):  # a DatasetDict
        parts = list(dataset)
        wanted = part if part is not None else parts[0] if len(parts) == 1 else None
        if wanted not in parts:
            given = f"part is {part!r}, but " if part is not None else ""
            raise ParameterError(
                f'{given}{name} has the splits {", ".join(parts)}: choose one, such as part="{parts[0]}" '
                f"(on the command line: --part {parts[0]})"
            )
        dataset = dataset[wanted]
    elif part is not None and str(getattr(dataset, "split", None)) != part:
        raise ParameterError(f"part is {part!r}, but {name} has no splits: omit part")
    texts, others = _choose_text_columns(dataset.column_names or list(next(iter(dataset), {})), columns, name)
    features = dataset.features or {}
    names = getattr(features.get(others.get("labels")), "names", None)

    def read() -> Iterator[Text]:
        for number, row in enumerate(dataset.select_columns(list(dict.fromkeys([*texts, *others.values()])))):
            values = {FIELDS[role]: row[column] for role, column in others.items()}
            if names and isinstance(label := values["label"], int):
                values["label"] = names[label] if 0 <= label < len(names) else None
            text = _join(_as_text(row[column], f"{name}, row {number}: {column}") for column in texts)
            yield _make_text(text, values)

    return Texts(name if name.startswith("dataset") else f"dataset {name}", read, _column_names(texts, others))
