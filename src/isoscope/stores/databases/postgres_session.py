"""A connection to PostgreSQL that is made again when it is lost; what goes wrong is one line without a secret."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakSet

from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.databases.base import retry, suggest_names

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address

T = TypeVar("T")

_ERROR_MESSAGES = {
    "55P03": "the table is held by another transaction: end that, and run the same command again",
    "42501": "this user may not do that: {0}; grant it",
    "25006": "the server is read-only: write to the one that it follows",
    "53100": "the server's disk is full: make room, and run the same command again",
}
_CONFLICT_CODES = ("40001", "40P01")  # two transactions were in each other's way: one of them is to be made again
_SETTINGS = (
    "SET DateStyle = 'ISO, YMD'",  # values that go through text come back the same
    "SET IntervalStyle = 'postgres'",
    "SET TimeZone = 'UTC'",
    "SET extra_float_digits = 1",
    "SET idle_in_transaction_session_timeout = 0",
)


class Session:
    """A connection of its own, made when it is first needed.

    A session that reads keeps one snapshot of the database for all that it reads, until it rests or its connection is
    lost; `snapshot` counts them. One that writes has a transaction for each piece of work.
    """

    open_readers: ClassVar[WeakSet[Session]] = WeakSet()
    """Those of this process whose snapshots hold locks."""

    def __init__(self, address: Address, *, writes: bool = False) -> None:
        self.address, self._writes = address, writes
        self.snapshot = 0
        self._connection: Any = None
        self._lock = RLock()
        if not writes:
            Session.open_readers.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "_writes": self._writes, "snapshot": self.snapshot}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["address"], writes=state["_writes"])  # type: ignore[misc]
        self.snapshot = state["snapshot"]

    def __del__(self) -> None:
        self.close()

    def run(self, work: Callable[[Any], T], going_on: str = "run it again") -> T:
        """Do a piece of work, all of which can be done again, with the connection; if that is lost, with a new one.

        Parameters
        ----------
        work : function
            Gets an open psycopg connection. A session that writes commits behind it.
        going_on : str
            What to do if the connection is lost for good.
        """
        import psycopg

        with self._lock:
            if self._connection is None:
                self._connect()
            try:
                return retry(lambda: self._run_once(work), self._is_transient)
            except psycopg.Error as error:
                words = self.address.redact(_first_line(error))
                if not self._is_lost(error):
                    raise InputError(f"{self.address}: {_describe_error(error) or words}") from None
            raise InputError(f"{self.address}: the connection was lost and cannot be made again: {words}; {going_on}")

    def _run_once(self, work: Callable[[Any], T]) -> T:
        if self._connection is None:
            self._connection = self._connected(self.address.place)
            self.snapshot += 1
        found = work(self._connection)
        if self._writes:
            self._connection.commit()
        return found

    @classmethod
    def release_all_snapshots(cls) -> None:
        """Have those of this process that read rest: a table that is being read cannot be altered."""
        for session in list(cls.open_readers):
            session.rest()

    def rest(self) -> None:
        """End the snapshot, and with it the locks; the next work begins another."""
        with self._lock, suppress(Exception):
            if self._connection is not None:
                self.snapshot += 1
                self._connection.rollback()

    def close(self) -> None:
        """Let the connection go."""
        with self._lock, suppress(Exception):
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _is_transient(self, error: Exception) -> bool:
        return self._is_lost(error) or getattr(error, "sqlstate", None) in _CONFLICT_CODES

    def _is_lost(self, error: Exception) -> bool:
        """Whether the connection is gone, and not only a statement refused; what is left of either is cleared away."""
        import psycopg

        if not isinstance(error, psycopg.Error):
            return False
        connection = self._connection
        gone = connection is None or connection.closed or connection.broken
        gone = gone or str(getattr(error, "sqlstate", None) or "").startswith(("08", "57P"))
        if gone:
            self.close()
        else:
            with suppress(Exception):
                self.snapshot += 1
                connection.rollback()
        return gone

    def _connect(self) -> None:
        """The first connection: what is wrong with it is wrong with what was typed, or the server is down."""
        import psycopg

        try:
            self._connection = self._connected(self.address.place)
            self.snapshot += 1
        except psycopg.ProgrammingError as error:
            words = self.address.redact(_first_line(error)) if "URI query parameter" in str(error) else ""
            raise InputError(f"{self.address}: the address cannot be read{': ' + words if words else ''}") from None
        except psycopg.Error as error:
            raise self._connection_error(str(error)) from None

    def _connected(self, place: str) -> Any:
        import psycopg

        known = psycopg.conninfo.conninfo_to_dict(place)
        more = {"connect_timeout": 10, "client_encoding": "utf8", "fallback_application_name": "isoscope"}
        connection = psycopg.connect(
            **{**more, **known},  # type: ignore[arg-type]
            prepare_threshold=None,  # poolers give each transaction another server process
        )
        for each in _SETTINGS:
            connection.execute(each.encode())
        connection.commit()
        if not self._writes:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
        return connection

    def _connection_error(self, words: str) -> InputError:
        if "password" in words or "no pg_hba.conf entry" in words or "authentication failed" in words:
            return InputError(
                f"{self.address}: the server refuses this user or password: look at both; a password may also stand in "
                "PGPASSWORD or ~/.pgpass"
            )
        if "database" in words and "does not exist" in words:
            return InputError(f"{self.address}: there is no such database{self._like()}")
        words = self.address.redact(next((each for each in words.splitlines() if "failed:" in each), words))
        return InputError(f"{self.address}: no connection ({words}): is the server up, are host and port right?")

    def _like(self) -> str:
        """The databases with a name like this one."""
        import psycopg

        with suppress(psycopg.Error):
            name = str(psycopg.conninfo.conninfo_to_dict(self.address.place).get("dbname") or "")
            place = psycopg.conninfo.make_conninfo(self.address.place, dbname="postgres")
            with self._connected(place) as connection:
                names = [
                    row[0] for row in connection.execute("SELECT datname FROM pg_database WHERE NOT datistemplate")
                ]
            return f": {suggest_names(name, names)}"
        return ": look for a slip in its name"


def require_psycopg() -> None:
    """A `MissingExtra` if the driver is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            'PostgreSQL needs the package psycopg: pip install "isoscope[postgres]" brings it'
        ) from error


def _first_line(error: Exception) -> str:
    words = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return str(words).strip().partition("\n")[0] or type(error).__name__


def _describe_error(error: Exception) -> str | None:
    found = _ERROR_MESSAGES.get(str(getattr(error, "sqlstate", "")))
    return found and found.format(_first_line(error))
