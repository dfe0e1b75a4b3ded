"""Read fine-tuning tasks from GLUE files or your own: texts or text pairs, with classes or grades."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import MissingValueError, NotFoundError, ParameterError, TooFewRowsError, plural
from isoscope._io.files import expand_user
from isoscope._io.tables import read_table
from isoscope.finetuning.result import CLASS_MEASURES, GRADE_MEASURES
from isoscope.stores.columns import ColumnSpec, choose_columns

if TYPE_CHECKING:
    from isoscope._io.tables import TableBatch


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a task: texts or pairs of texts, and class numbers (int64) or grades (float64)."""

    texts: list[str]
    pairs: list[str] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, rows: np.ndarray) -> Split:
        """Return a split that contains only these rows."""
        pairs = None if self.pairs is None else [self.pairs[i] for i in rows]
        return Split([self.texts[i] for i in rows], pairs, self.labels[rows])


@dataclass(frozen=True, eq=False)
class Task:
    """A task to fine-tune a model for: its rows, its classes and its main score.

    Parameters
    ----------
    name : str
        The name of the task.
    train, dev : Split
        The training set and the dev set.
    labels : tuple of str
        The names of the classes, in the order of their numbers; empty if the labels are grades.
    measure : str
        The main score: "accuracy", "f1" or "matthews"; for grades, "pearson" or "spearman".

    Examples
    --------
    >>> import isoscope, numpy as np
    >>> rows = isoscope.finetuning.Split(["good", "bad"], None, np.array([1, 0]))
    >>> isoscope.finetuning.Task("mood", rows, rows, ("sad", "glad"), "accuracy").is_graded
    False
    """

    name: str
    train: Split
    dev: Split
    labels: tuple[str, ...]
    measure: str

    @property
    def is_graded(self) -> bool:
        """Whether the labels are grades rather than classes."""
        return not self.labels

    def fingerprint(self) -> str:
        """Return a hash of all rows of the task."""
        digest = hashlib.sha256(repr((self.labels, self.measure)).encode())
        for split in (self.train, self.dev):
            digest.update(repr((split.texts, split.pairs, split.labels.tolist())).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _FileLayout:
    """The file names and columns of a task."""

    train: str
    dev: str
    text: str
    label: str
    pair: str | None = None
    word: str | None = None  # a column to put before the text
    header: bool = True


@dataclass(frozen=True)
class _GlueTask:
    folders: tuple[str, ...]
    layouts: tuple[_FileLayout, ...]
    labels: tuple[str, ...]
    measure: str = "accuracy"


def _tsv_layout(text: str, pair: str | None = None, label: str = "label", **more: Any) -> _FileLayout:
    return _FileLayout("train.tsv", "dev.tsv", text, label, pair, **more)


_ENTAILMENT_LABELS = ("entailment", "not_entailment")
_GLUE = {
    "cola": _GlueTask(("cola", "CoLA"), (_tsv_layout("3", label="1", header=False),), ("0", "1"), "matthews"),
    "mrpc": _GlueTask(("mrpc", "MRPC"), (_tsv_layout("#1 String", "#2 String", "Quality"),), ("0", "1"), "f1"),
    "rte": _GlueTask(("rte", "RTE"), (_tsv_layout("sentence1", "sentence2"),), _ENTAILMENT_LABELS),
    "qnli": _GlueTask(("qnli", "QNLI"), (_tsv_layout("question", "sentence"),), _ENTAILMENT_LABELS),
    "sst2": _GlueTask(("sst2", "SST-2"), (_tsv_layout("sentence"),), ("0", "1")),
    "sst5": _GlueTask(("sst5", "SST-5"), (_tsv_layout("sentence"),), ("0", "1", "2", "3", "4")),
    "snli": _GlueTask(
        ("snli", "SNLI"), (_tsv_layout("sentence1", "sentence2"),), ("entailment", "neutral", "contradiction")
    ),
    "wic": _GlueTask(("wic", "WiC"), (_tsv_layout("example1", "example2", word="word"),), ("F", "T")),
    "stsb": _GlueTask(
        ("stsb", "STS-B"),
        (
            _FileLayout("sts-train.tsv", "sts-dev.tsv", "5", "4", "6", header=False),
            _tsv_layout("sentence1", "sentence2", "score"),
        ),
        (),
        "spearman",
    ),
}

GLUE_NAMES = tuple(_GLUE)
"""The names of the tasks that `read_glue` reads."""


def read_glue(name: str, data: str | os.PathLike[str]) -> Task:
    """Read a named task from the TSV files in its own folder, or in a folder that contains all tasks.

    Only the labeled splits are read: train and dev. In WiC, the word precedes the first sentence: "word: sentence".

    Parameters
    ----------
    name : str
        "cola", "mrpc", "rte", "qnli", "sst2", "sst5", "snli", "wic" or "stsb".
    data : path
        The folder that contains ``cola/train.tsv`` or ``CoLA/train.tsv``. Files may be gzipped (``train.tsv.gz``).
    """
    if name not in _GLUE:
        raise NotFoundError(
            f"there is no task {name}: need one of {', '.join(GLUE_NAMES)}, or a file of texts and labels"
        )
    glue = _GLUE[name]
    form, train, dev = _find_glue_files(name, glue, expand_user(data))
    splits = []
    for path in (train, dev):
        table = read_table(path, header=form.header, ragged=not form.header)
        texts = _read_texts(table, form.text)
        if form.word is not None:
            texts = [f"{word}: {text}" for word, text in zip(_read_texts(table, form.word), texts, strict=True)]
        pairs = None if form.pair is None else _read_texts(table, form.pair)
        labels = table.column(form.label, "labels")
        splits.append(
            Split(
                texts,
                pairs,
                _parse_grades(table, labels) if not glue.labels else _class_numbers(table, labels, glue.labels),
            )
        )
    return _check_task(Task(name, splits[0], splits[1], glue.labels, glue.measure), train)


def read_custom_task(
    train: str | os.PathLike[str],
    dev: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    dev_share: float = 0.1,
    seed: int = 0,
    measure: str | None = None,
) -> Task:
    """Read a task from your own files, each with a column of texts and a column of labels.

    The labels are classes, unless they are numbers with decimals, or `measure` is a score for grades.

    Parameters
    ----------
    train : path
        A .csv, .tsv, .jsonl or .parquet file.
    dev : path, optional
        The dev set, on which the model is scored. By default, a part of `train` is held out, stratified by class.
    text, text_pair, label : str, optional
        The names of the columns. By default, the text and the label are the columns with common names.
    dev_share : float
        The share of `train` to hold out.
    seed : int
        Random seed for the rows to hold out.
    measure : str, optional
        The main score: "accuracy" (default), "f1" or "matthews"; for grades, "spearman" (default) or "pearson".
    """
    if measure is not None and measure not in (*CLASS_MEASURES, *GRADE_MEASURES):
        raise ParameterError(f"measure is {measure!r}: need one of {', '.join((*CLASS_MEASURES, *GRADE_MEASURES))}")
    table = read_table(train)
    columns = _find_task_columns(table, text, label)
    tables = [table] if dev is None else [table, read_table(dev)]
    read = [_read_task_rows(each, *columns, text_pair) for each in tables]
    raw = [labels for *_, labels in read]
    graded = measure in GRADE_MEASURES or (
        measure is None and _has_decimals([value for labels in raw for value in labels])
    )
    classes = () if graded else _class_names(table, raw[0])
    splits = []
    for each, (texts, pairs, labels) in zip(tables, read, strict=True):
        splits.append(
            Split(texts, pairs, _parse_grades(each, labels) if graded else _class_numbers(each, labels, classes))
        )
    if dev is None:
        splits = list(_hold_out(splits[0], dev_share, seed, table))
    name = table.path.name.split(".")[0]
    return _check_task(
        Task(name, splits[0], splits[1], classes, measure or ("spearman" if graded else "accuracy")), table.path
    )


def stratified_sample(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the sorted indices of a random sample of `size` rows, stratified by class.

    If the labels are floats (grades), the sample is not stratified.

    >>> stratified_sample(np.array([0, 0, 0, 0, 1, 1]), 3, seed=0).size
    3
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    kinds = labels if labels.dtype.kind == "i" else np.zeros(len(labels), int)
    place = np.empty(len(labels))
    for kind in np.unique(kinds):
        members = order[kinds[order] == kind]
        place[members] = (np.arange(len(members)) + 0.5) / len(
            members
        )  # the first half of a class has places below 0.5
    return np.sort(order[np.argsort(place[order], kind="stable")[:size]])


def _hold_out(split: Split, share: float, seed: int, table: TableBatch) -> tuple[Split, Split]:
    """Return the rows for training and the held-out rows."""
    if not 0 < share < 1:
        raise ParameterError(f"dev_share is {share}: need a number in (0, 1), such as 0.1")
    size = round(share * len(split))
    if size < 2 or len(split) - size < 2:
        raise TooFewRowsError(
            f"{table.path} has {plural(len(split), 'row')}, too few to hold out a share of {share:g}: pass a dev file"
        )
    held_out = stratified_sample(split.labels, size, seed)
    return split.part(np.setdiff1d(np.arange(len(split)), held_out)), split.part(held_out)


def _find_glue_files(name: str, glue: _GlueTask, data: Path) -> tuple[_FileLayout, Path, Path]:
    if not data.is_dir():
        raise NotFoundError(
            f"{data} is not a folder: pass the folder with the files of {name}, such as {glue.layouts[0].train}"
        )
    folders = [data / each for each in glue.folders if (data / each).is_dir()]
    if data.name in glue.folders or not folders:
        folders.append(data)
    for folder in folders:
        for form in glue.layouts:
            train, dev = _find_plain_or_gzip(folder / form.train), _find_plain_or_gzip(folder / form.dev)
            if train and dev:
                return form, train, dev
    missing = [
        each for each in (glue.layouts[0].train, glue.layouts[0].dev) if not _find_plain_or_gzip(folders[0] / each)
    ]
    present = sorted(path.name for path in folders[0].iterdir() if path.is_file())[:8]
    raise NotFoundError(
        f"{name} needs {' and '.join(missing)} in {folders[0]}, which has {', '.join(present) or 'no files'}: pass "
        "another folder, or your own files of texts and labels"
    )


def _find_plain_or_gzip(path: Path) -> Path | None:
    return next((each for each in (path, path.with_name(path.name + ".gz")) if each.is_file()), None)


def _find_task_columns(table: TableBatch, text: str | None, label: str | None) -> tuple[str, str]:
    wanted = ColumnSpec(roles={"text": text, "labels": label})
    columns = choose_columns(list(table.columns), wanted, str(table.path))
    for role, option, what in (("text", "text", "texts"), ("labels", "label", "labels")):
        if role not in columns:
            raise NotFoundError(
                f"{table.path} has no column with a common name for {what}, only {table.names}: name the column with "
                f"{option}= (on the command line: --{option})"
            )
    return columns["text"], columns["labels"]


def _read_task_rows(
    table: TableBatch, text: str, label: str, pair: str | None
) -> tuple[list[str], list[str] | None, list[Any]]:
    pairs = None if pair is None else _read_texts(table, pair)
    return _read_texts(table, text), pairs, table.column(label, "labels")


def _read_texts(table: TableBatch, name: str) -> list[str]:
    texts = table.text(name, "text")
    empty = [i for i, text in enumerate(texts) if not text.strip()]
    if empty:
        raise MissingValueError(
            f"{table.path} has no text in {plural(len(empty), 'row')} of column {name}, first in {table.unit} "
            f"{table.lines[empty[0]]}: remove these rows"
        )
    return texts


def _class_numbers(table: TableBatch, labels: Sequence[Any], classes: Sequence[str]) -> np.ndarray:
    """Return the class number of each label."""
    numbers = {name: i for i, name in enumerate(classes)}
    names = [_format_label(value) for value in labels]
    _check_labels_present(table, names)
    for i, name in enumerate(names):
        if name not in numbers:
            some = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
            where = f"{table.path}, line {table.lines[i]}"
            raise ParameterError(f"{where} has the label {name!r}, which is not a class of the task: need {some}")
    return np.asarray([numbers[name] for name in names], np.int64)


def _parse_grades(table: TableBatch, labels: Sequence[Any]) -> np.ndarray:
    _check_labels_present(table, [_format_label(value) for value in labels])
    grades = np.empty(len(labels))
    for i, value in enumerate(labels):
        try:
            grades[i] = float(value)
        except (TypeError, ValueError):
            grades[i] = np.nan
        if not np.isfinite(grades[i]):
            raise ParameterError(f"{table.path}, line {table.lines[i]} has the grade {value!r}: need a finite number")
    return grades


def _class_names(table: TableBatch, labels: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the classes: integers sorted by value, other names alphabetically."""
    names = {_format_label(value) for value in labels} - {""}
    if len(names) > max(20, len(labels) // 2):
        raise ParameterError(
            f"{table.path} has {len(names)} different labels in {len(labels)} rows: need classes with several rows; "
            'choose another column, or set measure="spearman" (--measure spearman) if the labels are grades'
        )
    are_integers = all(name.removeprefix("-").isdecimal() for name in names)
    return tuple(sorted(names, key=int) if are_integers else sorted(names))


def _format_label(value: Any) -> str:
    """Return a label as text; 1.0 becomes "1", and a missing label becomes ""."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _has_decimals(labels: Sequence[Any]) -> bool:
    """Return whether all labels are numbers and at least one is not an integer."""
    try:
        numbers = [float(name) for name in (_format_label(value) for value in labels) if name]
    except ValueError:
        return False
    return any(not number.is_integer() for number in numbers)


def _check_labels_present(table: TableBatch, names: Sequence[str]) -> None:
    missing = [i for i, name in enumerate(names) if not name]
    if missing:
        raise MissingValueError(
            f"{table.path} has no label in {len(missing)} of {plural(len(names), 'row')}, first in line "
            f"{table.lines[missing[0]]}: need a label for each row; test sets without labels cannot be used"
        )


def _check_task(task: Task, path: Path) -> Task:
    for name, split in (("training", task.train), ("dev", task.dev)):
        if len(split) < 2:
            raise TooFewRowsError(f"the {name} set of {task.name} has {plural(len(split), 'row')}: need at least 2")
    if len(np.unique(task.train.labels)) < 2:
        only = task.labels[task.train.labels[0]] if task.labels else f"{task.train.labels[0]:g}"
        raise TooFewRowsError(f"{path} has only one label, {only}: need at least 2 different labels")
    return task
