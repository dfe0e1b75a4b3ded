"""Run folders: a long run writes its results part by part, under a lock, and the same call resumes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from isoscope._core.errors import FileFormatError, OutputError
from isoscope._io.files import lock_folder, sync
from isoscope._io.json import jsonable, parse_json, shorten, write_json

Settings = Mapping[str, Any]

RESTART_HINT = "delete that run with restart=True (on the command line: --restart)"


class RunFolder:
    """A folder with one file for each finished part of a run, and a manifest that contains the run's settings.

    Parameters
    ----------
    path : Path
        The folder.
    manifest : str
        The file name of the manifest.
    schema : str
        The schema of the manifest, such as ``"isoscope.embedding/1"``.
    parts : tuple of str
        File name patterns of the finished parts, such as ``"part-*"``.
    settings_key : str, optional
        The manifest key under which the settings are stored; by default they are at the top level.
    can_restart : bool
        Whether the user can request to delete an earlier run; error messages then explain how.

    Examples
    --------
    >>> folder = RunFolder(Path("run"), "run.json", "example/1", parts=("part-*",))
    >>> with folder.open():
    ...     _ = folder.begin({"rows": 3})
    ...     folder.record("part-0", {"sum": 6})
    ...     folder.is_done("part-0"), folder.is_done("part-1")
    (True, False)
    >>> with folder.open():
    ...     folder.begin({"rows": 4})
    Traceback (most recent call last):
    ...
    isoscope.errors.OutputError: run contains a run with different settings: rows was 3, is 4; choose another folder
    """

    def __init__(
        self,
        path: Path,
        manifest: str,
        schema: str,
        *,
        parts: tuple[str, ...],
        settings_key: str = "",
        can_restart: bool = False,
    ) -> None:
        self.path, self.manifest, self.schema, self.parts = path, path / manifest, schema, parts
        self.settings_key, self.can_restart = settings_key, can_restart
        self.content: dict[str, Any] = {}
        """The content of the manifest."""

    @contextmanager
    def open(self, *, parents: bool = False) -> Iterator[Path]:
        """Create the folder and lock it for the duration of a `with` block; remove the folder if it stays empty.

        Raises an `OutputError` if the path is not a folder, or if another process is writing to it. Also raises it if
        the parent folder does not exist, unless `parents` is set to create it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file: pass the name of a folder")
        if not parents and not self.path.absolute().parent.is_dir():
            raise OutputError(f"{self.path.parent} is not a folder: create it first, or choose another location")
        if self.path.is_symlink() and not self.path.exists():
            raise OutputError(
                f"{self.path} is a broken link: create the folder it points to, or choose another location"
            )
        is_new = not self.path.exists()
        self.path.mkdir(parents=parents, exist_ok=True)
        try:
            with lock_folder(self.path):
                yield self.path
        finally:
            if is_new:
                with suppress(OSError):  # it is not empty
                    self.path.rmdir()

    def begin(
        self,
        settings: Settings,
        restart: bool = False,
        *,
        facts: Settings | None = None,
        compare: Callable[[Settings, Settings], list[str]] | None = None,
    ) -> dict[str, Any] | None:
        """Write the manifest of a new or resumed run; return the manifest of the earlier run, or None for a new run.

        Parameters
        ----------
        settings : mapping
            The settings that determine the results. If the folder contains parts of a run with other settings, an
            `OutputError` lists the differences.
        restart : bool
            Whether to delete an earlier run first.
        facts : mapping, optional
            Other content of the manifest, which is not compared.
        compare : function, optional
            A function that returns the differences between two settings as phrases (default: `differences`).
        """
        earlier = self.check(settings, restart, compare=compare)
        self.remove_leftovers()
        own = jsonable(dict(settings))
        self.write({**(facts or {}), **({self.settings_key: own} if self.settings_key else own)})
        return earlier

    def check(
        self,
        settings: Settings,
        restart: bool = False,
        *,
        compare: Callable[[Settings, Settings], list[str]] | None = None,
    ) -> dict[str, Any] | None:
        """Return the manifest of a run that can be resumed, or None for a new run; see `begin` for the errors."""
        self.check_empty_or_own()
        if not self.manifest.exists():
            return None
        if restart:
            self.clear()
            return None
        earlier = self.read()
        before = earlier[self.settings_key] if self.settings_key else earlier
        try:
            found = (compare or differences)(before, jsonable(dict(settings)))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._damage(f"{type(error).__name__} {error}") from error
        if found and self.has_parts():
            raise OutputError(f"{self.path} contains a run with different settings: {'; '.join(found)}; {self._advice}")
        return None if found else earlier

    def check_empty_or_own(self) -> None:
        """Raise an `OutputError` if the folder has files but no manifest; ignore names that start with "." or "_"."""
        others = sorted(path.name for path in self.path.iterdir() if not path.name.startswith((".", "_")))
        if others and not self.manifest.exists():
            raise OutputError(f"{self.path} contains other files, such as {others[0]}: choose another folder")

    def read(self) -> dict[str, Any]:
        """Return the content of the manifest; raise a `FileFormatError` if it is damaged or has another schema."""
        try:
            content = parse_json(self.manifest.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or "schema" not in content:
                raise ValueError("isoscope did not write it")
            if content["schema"] != self.schema:
                raise ValueError(f"its schema is {shorten(repr(content['schema']))}, not {self.schema!r}")
            if self.settings_key and not isinstance(content[self.settings_key], dict):
                raise ValueError(f'the field "{self.settings_key}" is missing')
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise self._damage(str(error)) from error
        return dict(content)

    def _damage(self, why: str) -> FileFormatError:
        return FileFormatError(f"{self.manifest} cannot be read ({shorten(why, 200)}): {self._advice}")

    def write(self, content: Settings) -> None:
        """Atomically replace the content of the manifest."""
        self.content = {"schema": self.schema, **content}
        write_json(jsonable(self.content), self.manifest)

    def has_parts(self) -> bool:
        """Return whether an earlier run finished any part."""
        return any(True for pattern in self.parts for _ in self.path.glob(pattern))

    def is_done(self, part: str) -> bool:
        """Return whether the file of a part exists; parts are written atomically."""
        return (self.path / part).exists()

    def record(self, part: str, content: Any) -> None:
        """Atomically write the result of a part as JSON; the part then counts as done."""
        write_json(jsonable(content), self.path / part)
        sync((self.path / part).parent)

    def finish(self) -> None:
        """Record in the manifest that all parts are done, and remove temporary files."""
        self.remove_leftovers()
        self.write({**self.content, "finished": True})

    def clear(self) -> None:
        """Delete all parts, then the manifest."""
        for pattern in self.parts:
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
        self.remove_leftovers()
        self.manifest.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Delete temporary files left by processes that were killed."""
        names = (self.manifest.name, *(pattern for pattern in self.parts if "/" not in pattern))
        for path in [*self.path.glob(".*.part")]:
            if any(fnmatchcase(path.name, f".{name}*.part") for name in names):
                path.unlink(missing_ok=True)

    @property
    def _advice(self) -> str:
        return f"choose another folder, or {RESTART_HINT}" if self.can_restart else "choose another folder"


def differences(old: Settings, new: Settings, phrases: Mapping[str, str] | None = None) -> list[str]:
    """Return a phrase for each setting whose old and new values differ; ignore settings that only one side has.

    Parameters
    ----------
    old, new : mapping
        The settings.
    phrases : mapping, optional
        Phrases for settings whose values are not meaningful to a reader, such as checksums.

    >>> differences({"pool": "mean", "layers": [1, 2], "texts": "a1"}, {"pool": "cls", "layers": [1, 2], "texts": "b2"})
    ['pool was mean, is cls', 'texts was a1, is b2']
    >>> differences({"texts": "a1"}, {"texts": "b2"}, {"texts": "the texts differ"})
    ['the texts differ']
    """
    phrases = phrases or {}
    found = [
        phrases.get(name, f"{name.replace('_', ' ')} was {_format_setting(old[name])}, is {_format_setting(value)}")
        for name, value in new.items()
        if name in old and old[name] != value
    ]
    return list(dict.fromkeys(found))


def _format_setting(value: Any) -> str:
    if value is None:
        return "not set"
    return shorten(",".join(map(str, value)) if isinstance(value, list) else str(value), 100)
