"""Read classification tasks for fine-tuning from GLUE's files or from the Hugging Face Hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import FileFormatError
from isoscope.finetuning.task_data import Split, Task, read_glue
from isoscope.studies.datasets.source import DataSet

if TYPE_CHECKING:
    from isoscope.studies.datasets.source import DataSource

_GLUE = "nyu-mll/glue"
_LINK = "gluebenchmark.com/tasks"
_SST5 = "nlp.stanford.edu/sentiment (convert to tables with the columns sentence and label; labels are 0 to 4)"
_WIC = "pilehvar.github.io/wic (convert to tables with the columns label, word, example1, example2; labels are T or F)"


@dataclass(frozen=True)
class _HubColumns:
    """The column and label names of a task on the Hub."""

    text: str
    pair: str | None
    label: str
    labels: dict[str, str]
    """Maps the label names on the Hub to the labels in the files."""
    dev: str = "validation"
    word: str | None = None


_ENTAILMENT_LABELS = {"entailment": "entailment", "not_entailment": "not_entailment"}
_HUB_COLUMNS = {
    "cola": _HubColumns("sentence", None, "label", {"unacceptable": "0", "acceptable": "1"}),
    "mrpc": _HubColumns("sentence1", "sentence2", "label", {"not_equivalent": "0", "equivalent": "1"}),
    "rte": _HubColumns("sentence1", "sentence2", "label", _ENTAILMENT_LABELS),
    "qnli": _HubColumns("question", "sentence", "label", _ENTAILMENT_LABELS),
    "sst2": _HubColumns("sentence", None, "label", {"negative": "0", "positive": "1"}),
    "sst5": _HubColumns("text", None, "label", {str(i): str(i) for i in range(5)}),
    "wic": _HubColumns("sentence1", "sentence2", "label", {"False": "F", "True": "T"}, word="word"),
}
SETS = (
    *(
        DataSet(name, (name, folder), ("train.tsv", "dev.tsv"), _GLUE, name, _LINK)
        for name, folder in (("cola", "CoLA"), ("mrpc", "MRPC"), ("rte", "RTE"), ("qnli", "QNLI"), ("sst2", "SST-2"))
    ),
    DataSet("sst5", ("sst5", "SST-5"), ("train.tsv", "dev.tsv"), "SetFit/sst5", None, _SST5),
    DataSet("wic", ("wic", "WiC"), ("train.tsv", "dev.tsv"), "aps/super_glue", "wic", _WIC),
)
TASK_NAMES = tuple(each.name for each in SETS)


def read_task(name: str, data: DataSource) -> Task:
    """Return a task with its labeled train and dev rows."""
    wanted = next(each for each in SETS if each.name == name)
    if data.folder is not None:
        data.files(wanted)  # the error says where to get missing files
        return read_glue(name, data.folder)
    how = _HUB_COLUMNS[name]
    classes = tuple(how.labels.values())
    train, dev = (_make_split(name, how, data.rows(wanted, split), classes) for split in ("train", how.dev))
    measure = {"cola": "matthews", "mrpc": "f1"}.get(name, "accuracy")
    return Task(name, train, dev, classes, measure)


def _make_split(name: str, how: _HubColumns, rows: dict[str, list[object]], classes: tuple[str, ...]) -> Split:
    texts = [str(text) for text in rows[how.text]]
    if how.word is not None:
        texts = [f"{word}: {text}" for word, text in zip(rows[how.word], texts, strict=True)]
    try:
        labels = np.array([classes.index(how.labels[str(label)]) for label in rows[how.label]], np.int64)
    except KeyError as error:
        raise FileFormatError(
            f"{name} on the Hugging Face Hub has the label {error}: need one of {', '.join(how.labels)}"
        ) from error
    return Split(texts, None if how.pair is None else [str(text) for text in rows[how.pair]], labels)
