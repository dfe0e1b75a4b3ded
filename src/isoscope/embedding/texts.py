"""Texts to embed, with their labels, read from lists, text files, tables and datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from isoscope._io.lines import read_lines
from isoscope._io.tables import check_unique, format_names, open_table, parse_integer, table_format
from isoscope.stores.columns import ColumnSpec, choose_columns

SPLITS = ("line", "paragraph", "file")
"""The ways to split a plain text file into texts."""


class Text(NamedTuple):
    """A text and its label, which is None if there are no labels."""

    text: str
    label: Any = None


@dataclass(frozen=True)
class Texts:
    """Texts that are read one by one; they can be read again unless they come from an iterator."""

    name: str
    read: Callable[[], Iterator[Text]]


def open_texts(
    source: Any,
    *,
    text: str | None = None,
    labels: Any = None,
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
    text : str, optional
        The column of the texts in a table (default: a column with a common name).
    labels : str, or sequence with one entry per text, optional
        The column of the labels in a table (default: a column with a common name), or the labels themselves.
    split : {"line", "paragraph", "file"}
        How to split a plain text file into texts: at each line, at empty lines, or not at all.
    config, part : str, optional
        The configuration of a dataset on the Hugging Face Hub, and its split ("train", "validation", …).

    Examples
    --------
    >>> texts = open_texts(["a text", "another"], labels=[0, 1])
    >>> [*texts.read()]
    [Text(text='a text', label=0), Text(text='another', label=1)]
    """
    if split not in SPLITS:
        raise ParameterError(f'split is {split!r}: need "line", "paragraph" or "file"')
    columns = ColumnSpec(None, {"text": text, "labels": labels if isinstance(labels, str) else None})
    if isinstance(source, str | os.PathLike):
        texts = _open_path(os.fspath(source), columns, split, config, part)
    elif type(source).__module__.partition(".")[0] == "datasets":
        if config is not None:
            raise ParameterError(f"config is {config!r}, but the dataset is already loaded: omit config")
        texts = _open_dataset(source, "dataset", columns, part)
    else:
        _check_no_parts("a list of texts", config, part)
        if columns.names or split != "line":
            roles = sorted(role for role, column in columns.roles.items() if column is not None)
            what = "split" if split != "line" else " and ".join(roles)
            raise ParameterError(
                f"{what} can be set only for files and datasets, but texts is a {type(source).__name__}: omit {what}"
            )
        texts = _open_strings(source)
    return texts if labels is None or isinstance(labels, str) else _with_labels(texts, labels)


def _check_no_parts(name: str, config: str | None, part: str | None) -> None:
    for role, value in (("config", config), ("part", part)):
        if value is not None:
            raise ParameterError(f"{role} is {value!r}, but {name} is not a dataset: omit {role}")


def _open_path(name: str, columns: ColumnSpec, split: str, config: str | None, part: str | None) -> Texts:
    path = Path(name).expanduser()
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


def _with_labels(texts: Texts, labels: Any) -> Texts:
    values = labels.tolist() if hasattr(labels, "tolist") else labels
    if not isinstance(values, Iterable) or isinstance(values, bytes | Mapping):
        raise ParameterError(f"labels is a {type(labels).__name__}: need the name of a column, or one label per text")
    values = [*values]
    if values and isinstance(values[0], list | tuple | dict):
        raise ParameterError(f"labels contains a {type(values[0]).__name__} for each text: need one value per text")

    def read() -> Iterator[Text]:
        count = 0
        for count, each in enumerate(texts.read(), 1):
            if count > len(values):
                raise ShapeError(f"labels has {len(values)} entries but there are more texts; pass one label per text")
            yield each._replace(label=values[count - 1])
        if count < len(values):
            raise ShapeError(f"labels has {len(values)} entries but there are {count} texts; pass one label per text")

    return Texts(texts.name, read)


# files


def _open_file(path: Path, columns: ColumnSpec, split: str) -> Texts:
    kind = table_format(path)
    if kind is None:
        if columns.names:
            raise NotFoundError(
                f"{path} is read as plain text, which has no column {' or '.join(sorted(columns.names))}: need a .csv, "
                ".tsv, .jsonl or .parquet file"
            )
        return Texts(path.name, lambda: _read_plain_text(path, split))
    if split != "line":
        raise ParameterError(f"split is {split!r}, but {path} is a table, where each cell is one text: omit split")
    return _open_table(path, columns, parse_labels=kind in ("csv", "tsv"))


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


def _open_table(path: Path, columns: ColumnSpec, *, parse_labels: bool) -> Texts:
    table = open_table(path)
    text, label = _choose_text_columns(table.names, columns, path)

    def read() -> Iterator[Text]:
        for batch in table.batches([text] if label is None else [text, label]):
            labels = [None] * len(batch) if label is None else batch.columns[label]
            for i, (value, each) in enumerate(zip(batch.columns[text], labels, strict=True)):
                if parse_labels:
                    each = _parse_label(each, batch.where(i))
                yield Text(_as_text(value, f"{batch.where(i)}: {text}"), each)

    return Texts(path.name, read)


def _parse_label(cell: str | None, where: str) -> int | str | None:
    """Return the label in a CSV or TSV cell: an integer, a string such as 007, or None if the cell is empty."""
    stripped = (cell or "").strip()
    if stripped.removeprefix("-").isdecimal() and str(number := parse_integer(stripped, where)) == stripped:
        return number
    return stripped or None


def _choose_text_columns(names: Sequence[str], columns: ColumnSpec, where: object) -> tuple[str, str | None]:
    """Return the text and label columns: those requested, else those with common names, else the only column."""
    if not names:
        raise MissingValueError(f"{where} is empty: need at least one text")
    check_unique(names, where)
    chosen = choose_columns(names, columns, str(where))
    if "text" not in chosen and len(names) == 1:
        chosen["text"] = names[0]
    if "text" not in chosen:
        raise NotFoundError(
            f"{where} has the columns {format_names(names)}, but none has a common name for texts: choose one with "
            f'text="{names[0]}" (on the command line: --columns text={names[0]})'
        )
    return chosen["text"], chosen.get("labels")


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


def _open_dataset(dataset: Any, name: str, columns: ColumnSpec, part: str | None) -> Texts:
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
    text, label = _choose_text_columns(dataset.column_names or list(next(iter(dataset), {})), columns, name)
    names = getattr(dataset.features.get(label), "names", None) if label and dataset.features else None

    def read() -> Iterator[Text]:
        for number, row in enumerate(dataset.select_columns([text] if label is None else [text, label])):
            value = None if label is None else row[label]
            if names and isinstance(value, int):
                value = names[value] if 0 <= value < len(names) else None
            yield Text(_as_text(row[text], f"{name}, row {number}: {text}"), value)

    return Texts(name if name.startswith("dataset") else f"dataset {name}", read)
