"""Files of plain text, one sentence or paragraph on each line, as they are or in gzip."""

from __future__ import annotations

from pathlib import Path

from isoscope._core.errors import InputError
from isoscope.stores.lines import read_lines


def read_text_lines(path: Path, *, latin: bool = False) -> list[str]:
    """The lines with a word in them, without the spaces around them.

    Text is in UTF-8; with `latin` a file that is not is taken to be in Latin-1, in which any bytes are text.
    """
    whole = b"\n".join(line for block in read_lines(path) for line in block.lines)
    if b"\0" in whole:
        raise InputError(f"{path} is not plain text: it has bytes of 0; save it in UTF-8, or copy it again")
    try:
        text = whole.decode("utf-8")
    except UnicodeDecodeError as error:
        if not latin:
            raise InputError(f"{path} is not text in UTF-8: {error}; save it so, or copy it again") from error
        text = whole.decode("latin-1")
    found = [line for line in map(str.strip, text.split("\n")) if line]
    if not found:
        raise InputError(f"{path} holds no text: need a sentence on each line; copy it again")
    return found
