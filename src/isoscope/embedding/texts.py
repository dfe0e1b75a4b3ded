"""The texts to embed, one after the other, with their labels: from lists, text files, tables and datasets."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.columns import ColumnSpec, choose_columns
from isoscope.stores.lines import read_lines

if TYPE_CHECKING:
    from isoscope.stores.lines import Lines

SPLITS = ("line", "paragraph", "file")
"""What one text of a plain text file is."""

_ROWS = 1_000  # of a Parquet file, held at once
_RECORDS = 100  # that say which columns there are


class Text(NamedTuple):
    """A text, and its label if there are labels."""

    text: str
    label: Any = None


@dataclass(frozen=True)
class Texts:
    """Texts that are read one by one; again too, unless they came from an iterator."""

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
    """Find out what holds the texts: a path, a name on the hub, a dataset, or strings. Little is read.

    Parameters
    ----------
    source : path, name, Dataset, or iterable of str
        A `.csv`, `.tsv`, `.jsonl` or `.parquet` file (each but the last also as `.gz`), any other file as plain text, a
        folder or name that `datasets` loads, or the strings themselves.
    text : str, optional
        The column that holds the texts, where there are columns; one with a usual name unless given.
    labels : str, or sequence with an entry for each text, optional
        The column that holds the labels, likewise; or the labels.
    split : {"line", "paragraph", "file"}
        What one text of a plain text file is: a line, the lines up to an empty one, or all.
    config, part : str, optional
        Of a dataset on the hub: its configuration, and its split ("train", "validation", …).

    Examples
    --------
    >>> found = open_texts(["a text", "another"], labels=[0, 1])
    >>> [*found.read()]
    [Text(text='a text', label=0), Text(text='another', label=1)]
    """
    if split not in SPLITS:
        raise InputError(f'split is {split!r}: need "line", "paragraph" or "file"')
    columns = ColumnSpec(None, {"text": text, "labels": labels if isinstance(labels, str) else None})
    if isinstance(source, str | os.PathLike):
        found = _open_path(os.fspath(source), columns, split, config, part)
    elif type(source).__module__.partition(".")[0] == "datasets":
        if config is not None:
            raise InputError(f"config is {config!r}: a dataset that is loaded has its configuration; leave it out")
        found = _dataset(source, "dataset", columns, part)
    else:
        _check_no_parts("list of texts", config, part)
        if columns.names or split != "line":
            what = "split" if split != "line" else " and ".join(sorted(columns.names))
            raise InputError(f"{what} is of a file or a dataset, and texts is a {type(source).__name__}: leave it out")
        found = _strings(source)
    return found if labels is None or isinstance(labels, str) else _with_labels(found, labels)


def _check_no_parts(name: str, config: str | None, part: str | None) -> None:
    for role, value in (("config", config), ("part", part)):
        if value is not None:
            raise InputError(f"{role} is {value!r}: only a dataset has one, and {name} is none")


def _open_path(name: str, columns: ColumnSpec, split: str, config: str | None, part: str | None) -> Texts:
    path = Path(name).expanduser()
    if not os.path.exists(path) and (len(name.split()) > 1 or len(name) > 200):
        raise InputError(f"{name[:60]!r} is no file that is here: need one; if it is a text itself, give it in a list")
    if path.is_file():
        _check_no_parts(path.name, config, part)
        return _open_file(path, columns, split)
    if path.is_dir():
        return _dataset(_load_dataset(str(path), config, part), f"dataset {path.name}", columns, part)
    if path.is_absolute() or name.startswith((".", "~")) or path.suffix or name.count("/") > 1:
        raise InputError(f"{name} is not there: need a file of texts, or the name of a dataset on the Hugging Face hub")
    return _dataset(_load_dataset(name, config, part), f"dataset {name}", columns, part)


def _strings(source: Any) -> Texts:
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise InputError(f"texts is a {type(source).__name__}: need a path, a dataset, or strings")
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        raise InputError(f"texts is a {type(source).__name__}, which has columns: give the one that holds the texts")

    def read() -> Iterator[Text]:
        for number, each in enumerate(source):
            yield Text(_string(each, f"text {number}"))

    return Texts("list of texts", read)


def _string(value: Any, where: str) -> str:
    """A text; a missing one is empty, and counted as such."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    raise InputError(f"{where} is a {type(value).__name__}: need a string")


def is_missing(value: Any) -> bool:
    """Whether there is no value: None, NaN, or what pandas has for it."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def replace_surrogates(text: str) -> str:
    """Without half characters, which UTF-8 cannot hold and tokenizers do not take; as long as before."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _with_labels(texts: Texts, labels: Any) -> Texts:
    given = labels.tolist() if hasattr(labels, "tolist") else labels
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise InputError(f"labels is a {type(labels).__name__}: need a column's name, or one label for each text")
    given = [*given]
    if given and isinstance(given[0], list | tuple | dict):
        raise InputError(f"labels has a {type(given[0]).__name__} for each text: need one value")

    def read() -> Iterator[Text]:
        count = 0
        for count, each in enumerate(texts.read(), 1):
            if count > len(given):
                raise InputError(f"labels has {len(given)} entries, and there are more texts: need one for each")
            yield each._replace(label=given[count - 1])
        if count < len(given):
            raise InputError(f"labels has {len(given)} entries, and there are {count} texts: need one for each")

    return Texts(texts.name, read)


# files


def _open_file(path: Path, columns: ColumnSpec, split: str) -> Texts:
    kind = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    opener = _TABLES.get(kind)
    if opener is None:
        if columns.names:
            raise InputError(f"{path} is read as plain text, which has no column {' or '.join(sorted(columns.names))}")
        return Texts(path.name, lambda: _read_plain_text(path, split))
    if split != "line":
        raise InputError(f'split is {split!r}: {path} is a table, a text of which is a cell; leave it "line"')
    return opener(path, kind, columns)


def _read_plain_text(path: Path, split: str) -> Iterator[Text]:
    """Lines, empty ones too, as they are to be counted; or what stands between empty lines; or everything."""
    held: list[str] = []
    last = 0
    for number, line in _decode_lines(read_lines(path), path):
        if split == "line":
            yield from (Text("") for _ in range(number - last - 1))
            yield Text(line)
        elif split == "paragraph":
            if held and (not line.strip() or number > last + 1):
                yield Text("\n".join(held))
                held = []
            if line.strip():
                held.append(line)
        else:
            held.extend([""] * (number - last - 1))
            held.append(line)
        last = number
    if held:
        yield Text("\n".join(held))


def _decode_lines(blocks: Iterable[Lines], path: Path) -> Iterator[tuple[int, str]]:
    for block in blocks:
        for number, line in zip(block.numbers, block.lines, strict=True):
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"{path}, line {number} is not text in UTF-8: {error}") from error


def _cells(path: Path, kind: str, columns: ColumnSpec) -> Texts:
    quoted = kind == ".csv"

    def rows() -> Iterator[tuple[int, list[str]]]:
        for number, line in _decode_lines(read_lines(path, quoted=quoted), path):
            yield number, _split(line) if quoted else line.split("\t")

    head = next(rows(), (1, []))[1]
    names = [cell.strip() for cell in head]
    text, label = _choose_text_columns(names, columns, path)
    at = names.index(text), names.index(label) if label is not None else None

    def read() -> Iterator[Text]:
        lines = rows()
        next(lines)
        for number, row in lines:
            if len(row) != len(names):
                raise InputError(f"{path}, line {number} has {len(row)} cells, the first line has {len(names)}")
            yield Text(row[at[0]], None if at[1] is None else _number_or_text(row[at[1]]))

    return Texts(path.name, read)


def _split(line: str) -> list[str]:
    """The cells of a line, however long they are."""
    usual = csv.field_size_limit(max(len(line), 1))
    try:
        return next(csv.reader([line], strict=False))
    finally:
        csv.field_size_limit(usual)


def _number_or_text(cell: str) -> Any:
    """A label out of a cell: a whole number, a text, or None where there is none."""
    stripped = cell.strip()
    if stripped.removeprefix("-").isdecimal() and str(int(stripped)) == stripped:  # 007 is a name
        return int(stripped)
    return stripped or None


def _objects(path: Path, kind: str, columns: ColumnSpec) -> Texts:
    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in _decode_lines(read_lines(path), path):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise InputError(f"{path}, line {number} is a JSON {type(record).__name__}: need an object")
            yield number, record

    names = dict.fromkeys(name for _, record in islice(rows(), _RECORDS) for name in record)
    text, label = _choose_text_columns([*names], columns, path)

    def read() -> Iterator[Text]:
        for number, record in rows():
            yield Text(
                _string(record.get(text), f"{path}, line {number}: {text}"), record.get(label) if label else None
            )

    return Texts(path.name, read)


def _parquet(path: Path, kind: str, columns: ColumnSpec) -> Texts:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())}") from error
    text, label = _choose_text_columns(names, columns, path)

    def read() -> Iterator[Text]:
        wanted = [text] if label is None else [text, label]
        number = 0
        with pq.ParquetFile(path) as file:
            try:
                for batch in file.iter_batches(_ROWS, columns=wanted):
                    values = batch.column(text).to_pylist()
                    labels = [None] * len(values) if label is None else batch.column(label).to_pylist()
                    for value, each in zip(values, labels, strict=True):
                        yield Text(_string(value, f"{path}, row {number}: {text}"), each)
                        number += 1
            except (OSError, pa.ArrowException) as error:
                raise InputError(f"{path} is damaged behind row {number}: {' '.join(str(error).split())}") from error

    return Texts(path.name, read)


_TABLES = {
    ".csv": _cells,
    ".tsv": _cells,
    ".jsonl": _objects,
    ".ndjson": _objects,
    ".parquet": _parquet,
    ".pq": _parquet,
}


def _choose_text_columns(names: Sequence[str], columns: ColumnSpec, where: object) -> tuple[str, str | None]:
    """The columns of the texts and of the labels: as said, or with a usual name; a lone column holds the texts."""
    if not names:
        raise InputError(f"{where} is empty: need texts in it")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where} has two columns named {twice!r}: rename one")
    found = choose_columns(names, columns, str(where))
    if "text" not in found and len(names) == 1:
        found["text"] = names[0]
    if "text" not in found:
        raise InputError(
            f"{where} has the columns {', '.join(names[:12])}, and none has a usual name for texts: name one, "
            f'text="{names[0]}", on the command line --columns text={names[0]}'
        )
    return found["text"], found.get("labels")


# datasets


def _load_dataset(name: str, config: str | None, part: str | None) -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{name} needs the package datasets, which is not installed: pip install datasets"
        ) from error
    folder = Path(name)
    try:
        if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, config, split=part)
    except Exception as error:  # it raises what its many parts raise
        why = " ".join(str(error).split())[:240]
        if folder.is_dir():
            raise InputError(f"{name} is a folder that datasets cannot load: {why}") from error
        raise InputError(
            f"{name} is no file here, and no dataset of this name could be had from the Hugging Face hub: {why}; check "
            "the name and the network, or name a file"
        ) from error


def _dataset(dataset: Any, name: str, columns: ColumnSpec, part: str | None) -> Texts:
    if hasattr(dataset, "keys"):  # a DatasetDict
        parts = list(dataset)
        wanted = part if part is not None else parts[0] if len(parts) == 1 else None
        if wanted not in parts:
            given = "" if part is None else f" and no {part}"
            raise InputError(f"{name} has the splits {', '.join(parts)}{given}: choose one, --part {parts[0]}")
        dataset = dataset[wanted]
    elif part is not None and str(getattr(dataset, "split", None)) != part:
        raise InputError(f"part is {part!r}: {name} has no splits; leave it out")
    text, label = _choose_text_columns(dataset.column_names or list(next(iter(dataset), {})), columns, name)
    names = getattr(dataset.features.get(label), "names", None) if label and dataset.features else None

    def read() -> Iterator[Text]:
        for number, row in enumerate(dataset.select_columns([text] if label is None else [text, label])):
            value = None if label is None else row[label]
            if names and isinstance(value, int):
                value = names[value] if 0 <= value < len(names) else None
            yield Text(_string(row[text], f"{name}, row {number}: {text}"), value)

    return Texts(name if name.startswith("dataset") else f"dataset {name}", read)
