"""A collection of Chroma that questions are put to: in a folder or on a server, in one line if it fails."""

from __future__ import annotations

import os
import sqlite3
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.databases.notes import suggest_names
from isoscope.stores.databases.patience import retry

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address

_WAIT = 5.0  # seconds for a folder that another process is just writing to


@dataclass
class ChromaCollection:
    """The client of an address, made when it is first needed."""

    address: Address
    _client: Any = field(default=None, repr=False)
    _collection: Any = field(default=None, repr=False)
    _has_answered: bool = field(default=False, repr=False)  # who never answered is not waited for

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_collection": None}

    @property
    def is_remote(self) -> bool:
        """Whether it is on a server."""
        return "://" in self.address.place

    def ask(self, question: str, **said: Any) -> Any:
        """The answer of the client's method of this name."""
        return self._retry(lambda: getattr(self._connected(), question)(**said))

    def collection(self, question: str, **said: Any) -> Any:
        """The answer of the collection's method of this name."""
        return self._retry(lambda: getattr(self._opened(), question)(**said))

    def found(self) -> Any:
        """The collection; None if there is none of the name."""
        if not self.address.collection:
            known = ", ".join(self.names()[:12])
            has = f"; it has {known}" if known else ""
            raise InputError(f"{self.address.shown} says no collection: need {self.address.shown}#NAME{has}")
        return self._retry(self._opened) if self.address.collection in self.names() else None

    def names(self) -> list[str]:
        """The collections that are there."""
        found: list[str] = []
        while page := self.ask("list_collections", limit=1000, offset=len(found)):
            found += [each.name for each in page]
        return found

    def made(self, **said: Any) -> None:
        """Make the collection."""
        self.ask("create_collection", name=self.address.collection, embedding_function=None, **said)

    def delete_collection(self) -> None:
        """Delete the collection."""
        self.ask("delete_collection", name=self.address.collection)
        self._collection = None

    def check_folder(self, *, reading: bool) -> None:
        """Refuse a path that is not Chroma's, which its client would make one of."""
        import_chromadb()
        if self.is_remote:
            return
        path = Path(self.address.place).expanduser()
        file = path / "chroma.sqlite3"
        right = not reading and (not path.exists() or (path.is_dir() and not any(path.iterdir())))
        if file.is_file():
            right = self._is_chroma_database(file)
        if not right:
            there = "is not a folder of Chroma's" if path.exists() else "does not exist"
            raise InputError(f"{self.address.shown}: {path} {there}: need one, or chroma:http://host:8000#collection")

    def _is_chroma_database(self, file: Path) -> bool:
        """Whether a file has the table of collections; one that is locked is said, as Chroma would wait for ever."""
        try:
            with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", timeout=_WAIT, uri=True)) as connection:
                connection.execute("SELECT count(*) FROM collections").fetchone()
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise InputError(
                    f"{self.address.shown} is locked by another process: end that, or run Chroma as a server"
                ) from error
            return False
        return True

    def require_collection(self) -> Any:
        """The collection, or an `InputError` with the names that it may be."""
        found = self.found()
        if found is None:
            raise InputError(
                f"{self.address.shown} does not exist: {suggest_names(self.address.collection, self.names())}"
            )
        return found

    def close(self) -> None:
        """Let go of it."""
        self._client = self._collection = None

    def _connected(self) -> Any:
        if self._client is None:
            self._client = _connect_server(self.address) if self.is_remote else _open_folder(self.address)
        return self._client

    def _opened(self) -> Any:
        if self._collection is None:
            client = self._connected()
            self._collection = client.get_collection(self.address.collection, embedding_function=None)
        return self._collection

    def _retry(self, attempt: Any) -> Any:
        import httpx
        from chromadb.errors import ChromaError

        def passes(error: Exception) -> bool:
            return self._has_answered and (isinstance(error, httpx.TransportError) or _is_unreachable(error))

        try:
            answer = retry(attempt, passes)
            self._has_answered = True
            return answer
        except (ChromaError, httpx.HTTPError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(self._failure(error)) from error

    def _failure(self, error: Exception) -> str:
        where, why = self.address.shown, self.address.redact(str(error))[:200] or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or type(error).__name__ == "ChromaAuthError":
            return f"{where}: the server does not let you in: give user and password, http://user:password@host:8000"
        if "different settings" in why:
            return f"{where} is open in this program with other settings: open it here first, or with Chroma's own"
        if _is_unreachable(error):
            return f"{where} cannot be reached: is the server up? The same command goes on when it is"
        if self.is_remote and (status is None or status >= 500) and not hasattr(error, "code"):
            return f"{where} cannot be reached: {why}; is the server up? The same command goes on when it is"
        return f"{where}: {why}; look at the address and the collection"


def import_chromadb() -> Any:
    """Chroma's package."""
    try:
        import chromadb
    except ImportError as error:
        raise MissingExtra('chromadb is not installed: pip install "isoscope[chroma]"') from error
    return chromadb


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, ValueError) and "Could not connect" in str(error)


def _connect_server(address: Address) -> Any:
    from chromadb.config import Settings

    url = urlsplit(address.place)
    headers = {}
    if url.username:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Authorization"] = "Basic " + b64encode(pair.encode()).decode()
    return import_chromadb().HttpClient(
        host=url.hostname or "localhost",
        port=url.port or (443 if url.scheme == "https" else 8000),
        ssl=url.scheme == "https",
        headers=headers,
        settings=Settings(anonymized_telemetry=False),
    )


def _open_folder(address: Address) -> Any:
    from chromadb.config import Settings

    path = os.fspath(Path(address.place).expanduser())
    try:
        return import_chromadb().PersistentClient(path, settings=Settings(anonymized_telemetry=False))
    except ValueError as error:
        if "different settings" not in str(error):
            raise
        return import_chromadb().PersistentClient(path)  # the program has it open already, as it chose to
