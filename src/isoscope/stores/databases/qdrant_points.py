"""A collection of Qdrant that questions are put to: in a folder or on a server, in one line if it fails."""

from __future__ import annotations

import atexit
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.databases.patience import retry

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address

_folders: WeakValueDictionary[str, Any] = WeakValueDictionary()  # a folder can be opened once, by the whole process


@atexit.register
def _close_clients() -> None:
    """Close what is open while that is possible: the client's own end, later, fails with a traceback."""
    for client in list(_folders.values()):
        client.close()


@contextmanager
def _silence_local_mode_warning() -> Iterator[None]:
    """Let the client not warn of many points in a folder: where that is too slow is said in `open_qdrant`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Local mode is not recommended")
        yield


@dataclass
class QdrantCollection:
    """A collection that questions are put to: tried again if the server is away, failures said in one line."""

    address: Address
    _client: Any = field(default=None, repr=False)
    _has_answered: bool = field(default=False, repr=False)  # who never answered is not waited for

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @property
    def is_remote(self) -> bool:
        """Whether it is on a server."""
        return "://" in self.address.place

    def ask(self, question: str, **said: Any) -> Any:
        """The answer of the client's method of this name."""
        errors = import_qdrant_errors()

        def attempt() -> Any:
            if self._client is None:
                self._client = _connect(self.address, self.is_remote)
            return getattr(self._client, question)(**said)

        def passes(error: Exception) -> bool:
            if isinstance(error, errors.UnexpectedResponse):
                return self._has_answered and (error.status_code or 0) >= 500
            return self._has_answered and isinstance(error, errors.ResponseHandlingException)

        try:
            answer = retry(attempt, passes)
            self._has_answered = True
            return answer
        except (
            errors.ResponseHandlingException,
            errors.UnexpectedResponse,
            OSError,
            ValueError,
            RuntimeError,
        ) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(self._failure(error)) from error

    def collection(self, question: str, **said: Any) -> Any:
        """The answer of the client's method of this name about the collection."""
        return self.ask(question, collection_name=self.address.collection, **said)

    def names(self) -> list[str]:
        """The collections that are there."""
        return [each.name for each in self.ask("get_collections").collections]

    @contextmanager
    def defer_sync(self) -> Iterator[None]:
        """Have a folder's file synced when all points are in it: the client syncs it for each, a hundred times slower.

        The file stays whole whenever the process or the machine ends: what is written goes through SQLite's log.
        """
        local = getattr(self._client, "_client", None)
        collection = getattr(local, "collections", {}).get(self.address.collection)
        connection = getattr(getattr(collection, "storage", None), "storage", None)
        if not isinstance(connection, sqlite3.Connection):
            yield
            return
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        try:
            with _silence_local_mode_warning():
                yield
        finally:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA journal_mode=DELETE")

    def close(self) -> None:
        """Let go of it; a folder is free once nobody has it any more."""
        if self._client is not None and self.is_remote:
            self._client.close()
        self._client = None

    def _failure(self, error: Exception) -> str:
        where, why = self.address.shown, self.address.redact(str(error))[:200] or type(error).__name__
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return f"{where}: the server does not let you in ({status}): set QDRANT_API_KEY to its key"
        if "already accessed" in why:
            return f"{where} is open in another process or client: close that, or run Qdrant as a server"
        if self.is_remote and status is None and not isinstance(error, ValueError):
            return f"{where} cannot be reached: {why}; is the server up? The same command goes on when it is"
        return f"{where}: {why}; look at the address and the collection"


def import_qdrant_errors() -> Any:
    """What Qdrant's client raises; an `InputError` if it is not installed."""
    try:
        from qdrant_client.http import exceptions
    except ImportError as error:
        raise MissingExtra('qdrant-client is not installed: pip install "isoscope[qdrant]"') from error
    return exceptions


def _connect(address: Address, remote: bool) -> Any:
    from qdrant_client import QdrantClient

    if remote:
        key = os.environ.get("QDRANT_API_KEY")
        return QdrantClient(url=address.place, api_key=key, timeout=60, check_compatibility=False)
    path = os.path.realpath(Path(address.place).expanduser())
    client = _folders.get(path)
    if client is None:
        with _silence_local_mode_warning():
            _folders[path] = client = QdrantClient(path=path)
    return client


def check_folder(address: Address, *, reading: bool) -> None:
    """Refuse a path that is not Qdrant's, which its client would make one of."""
    path = Path(address.place).expanduser()
    try:
        kept = json.loads((path / "meta.json").read_text())
        right = isinstance(kept, dict) and "collections" in kept
    except FileNotFoundError:
        right = not reading and (not path.exists() or (path.is_dir() and not any(path.iterdir())))
    except (OSError, ValueError):
        right = False
    if not right:
        there = "is not a folder of Qdrant's local mode" if path.exists() else "does not exist"
        raise InputError(f"{address.shown}: {path} {there}: need one, or a server, qdrant:http://host:6333#collection")


def check_collection_named(address: Address, names: Callable[[], list[str]]) -> None:
    """Refuse an address without a collection."""
    if not address.collection:
        known = ", ".join(names()[:12])
        has = f"; it has {known}" if known else ""
        raise InputError(f"{address.shown} says no collection: need {address.shown}#NAME{has}")
