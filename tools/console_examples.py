"""Run the example commands of the README and of docs/start, and compare their outputs with the pages.

    python tools/console_examples.py            # write the current outputs into the pages

An example is a block of type `console` that starts with "$ isoscope" and shows an output. The commands run at 80
columns in a folder with the files of `isoscope demo`. A last line "…" stands for the rest of the output.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```console\n(\$ isoscope [^\n]*)\n(.+?)^```$", re.M | re.S)


def list_pages() -> list[Path]:
    """Return the pages whose examples run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]


def find_examples(page: str) -> Iterator[tuple[str, str]]:
    """Yield the command and the shown output of each example."""
    for match in _BLOCK.finditer(page):
        yield match[1].removeprefix("$ "), match[2]


def run(command: str, folder: Path) -> str:
    """Return the output of a command in a folder, without spaces at the ends of lines."""
    from isoscope.cli.main import main

    for path in (resources.files("isoscope") / "demo").iterdir():
        if path.name.endswith(".parquet") and not (folder / path.name).exists():
            shutil.copy(str(path), folder)
    output = io.StringIO()
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            main(command.split()[1:])
    finally:
        os.chdir(before)
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def shorten(output: str, shown: str) -> str:
    """Return as many lines of an output as the page shows, and "…" for the rest."""
    lines = shown.splitlines()
    if lines[-1] != "…":
        return output
    return "\n".join([*output.splitlines()[: len(lines) - 1], "…", ""])


def update(page: str, output_of: Callable[[str], str]) -> str:
    """Return the page with the current outputs."""

    def replace(match: re.Match[str]) -> str:
        output = output_of(match[1].removeprefix("$ "))
        return f"```console\n{match[1]}\n{shorten(output, match[2])}```"

    return _BLOCK.sub(replace, page)


def main() -> int:
    """Write the current outputs into the pages."""
    with tempfile.TemporaryDirectory() as folder:
        for path in list_pages():
            page = path.read_text("utf-8")
            path.write_text(update(page, lambda command: run(command, Path(folder))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
