"""Read plain text files with one sentence or paragraph per line, optionally compressed with gzip."""

from __future__ import annotations

from pathlib import Path

from isoscope._core.errors import FileFormatError, MissingValueError
from isoscope._io.lines import read_lines


def read_text_lines(path: Path, *, latin: bool = False) -> list[str]:
    """Return the non-blank lines of a UTF-8 file, without leading and trailing spaces.

    With `latin`, a file that is not UTF-8 is decoded as Latin-1, in which all bytes are valid.
    """
    content = b"\n".join(line for block in read_lines(path) for line in block.lines)
    if b"\0" in content:
        raise FileFormatError(f"{path} is not plain text: it contains null bytes; save it as UTF-8, or copy it again")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        if not latin:
            raise FileFormatError(f"{path} is not valid UTF-8: {error}; save it as UTF-8, or copy it again") from error
        text = content.decode("latin-1")
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    if not lines:
        raise MissingValueError(f"{path} contains no text: need one sentence or paragraph per line; copy it again")
    return lines
