"""Decide which files, databases and URLs a server may read and write."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isoscope._core.errors import OutputError, ParameterError
from isoscope._io.files import expand_user
from isoscope.stores.databases.address import parse_address

_SCHEME = re.compile(r"([a-z][\w+.-]+):", re.IGNORECASE)  # one letter is a Windows drive
_URLS = ("http", "https", "s3", "gs", "hf")
"""The schemes of remote URLs; others, such as file://, would bypass the root folder."""


@dataclass(frozen=True)
class Access:
    """The permissions of a server: everything below `root` may be read, everything else only where allowed.

    A symbolic link counts as the file that it leads to. These checks stop a misled client, but not another process that
    replaces files between the check and the use.
    """

    root: Path
    write: bool = False
    """Whether files below the root may be written."""
    remote: bool = False
    """Whether databases and URLs may be read, and databases written if `write` is set."""

    def check_input(self, name: str) -> None:
        """Reject an input that may not be read; it may also be the name of a column."""
        if name == "-":
            raise ParameterError("the source is -, but standard input belongs to the protocol: pass the name of a file")
        if (scheme := _SCHEME.match(name)) is not None:
            self._check_remote(name, scheme[1].lower())
            return
        path = expand_user(name)
        self._check_below(path, name)
        for each in _files_of(path):
            self._check_below(each, name)

    def check_output(self, name: str) -> None:
        """Reject an output that may not be written."""
        if not self.write:
            raise OutputError("this server may not write files: restart it with --allow-write")
        if (scheme := _SCHEME.match(name)) is not None:
            self._check_remote(name, scheme[1].lower())
        else:
            self._check_below(expand_user(name), name)

    def _check_remote(self, name: str, scheme: str) -> None:
        start = f"{scheme}:…"  # the rest may contain a password
        if not self.remote:
            raise ParameterError(
                f"{start} is a database or a URL, which this server may not read: restart it with --allow-remote, or "
                "pass a file (write ./ before a file name with a colon)"
            )
        address = parse_address(name)
        if address is None:
            if scheme not in _URLS or "::" in name:
                raise ParameterError(f"{start} is not a database or one of {', '.join(_URLS)}: pass a file name")
        elif address.kind != "postgresql" and "://" not in address.place:
            path = expand_user(address.place)
            self._check_below(path, address.place)
            for each in _files_of(path):
                self._check_below(each, address.place)

    def _check_below(self, path: Path, name: str) -> None:
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root)):
            raise ParameterError(
                f"{name} is outside the root folder of this server: pass a file below it, or restart the server with "
                "another --root"
            )


def _files_of(path: Path) -> Iterator[Path]:
    """Yield the matches of a glob pattern, or the symbolic links inside a folder."""
    folders = [path] if path.is_dir() else []
    if not path.exists() and glob.has_magic(str(path)):
        for match in glob.iglob(str(path), recursive=True):
            yield Path(match)
    for folder in folders:
        for parent, names, files in os.walk(folder):
            yield from (entry for name in (*names, *files) if (entry := Path(parent, name)).is_symlink())
