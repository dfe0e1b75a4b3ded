"""PostgreSQL sessions that reconnect after a lost connection and raise one-line errors without secrets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakSet

from isoscope._core.errors import DatabaseError, MissingExtra, NotFoundError, ParameterError
from isoscope.stores.databases.base import retry, suggest_names

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address

T = TypeVar("T")

_ERROR_MESSAGES = {
    "55P03": "another transaction has locked the table: end it, then rerun the same command",
    "42501": "this user lacks a permission ({0}): grant it",
    "25006": "the server is read-only: write to the primary server",
    "53100": "the server's disk is full: free some space, then rerun the same command",
}
_CONFLICT_CODES = ("40001", "40P01")  # conflicting transactions, which are repeated
_SETTINGS = (
    "SET DateStyle = 'ISO, YMD'",  # so that values survive the conversion to text
    "SET IntervalStyle = 'postgres'",
    "SET TimeZone = 'UTC'",
    "SET extra_float_digits = 1",
    "SET idle_in_transaction_session_timeout = 0",
)


class Session:
    """A PostgreSQL connection that opens on first use.

    A reading session sees one snapshot of the database until it releases the snapshot or loses its connection;
    `snapshot` counts the snapshots. A writing session runs each call of `run` in its own transaction.
    """

    open_readers: ClassVar[WeakSet[Session]] = WeakSet()
    """The reading sessions of this process, whose snapshots hold locks."""

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

    def run(self, work: Callable[[Any], T], advice: str = "rerun the command") -> T:
        """Call a function and return its result; if the connection is lost, reconnect and call it again.

        Parameters
        ----------
        work : function
            A repeatable function that takes an open psycopg connection. A writing session commits afterwards.
        advice : str
            What to do if the connection cannot be restored.
        """
        import psycopg

        with self._lock:
            if self._connection is None:
                self._connect()
            try:
                return retry(lambda: self._run_once(work), self._is_transient)
            except psycopg.Error as error:
                reason = self.address.redact(_first_line(error))
                if not self._is_lost(error):
                    raise DatabaseError(f"{self.address}: {_describe_error(error) or reason}") from None
            raise DatabaseError(
                f"{self.address}: the connection was lost and could not be restored ({reason}): {advice}"
            )

    def _run_once(self, work: Callable[[Any], T]) -> T:
        if self._connection is None:
            self._connection = self._open_connection(self.address.place)
            self.snapshot += 1
        result = work(self._connection)
        if self._writes:
            self._connection.commit()
        return result

    @classmethod
    def release_all_snapshots(cls) -> None:
        """End the snapshots of all reading sessions in this process, because they block changes to the tables."""
        for session in list(cls.open_readers):
            session.release_snapshot()

    def release_snapshot(self) -> None:
        """End the snapshot and release its locks; the next call of `run` begins a new snapshot."""
        with self._lock, suppress(Exception):
            if self._connection is not None:
                self.snapshot += 1
                self._connection.rollback()

    def close(self) -> None:
        """Close the connection."""
        with self._lock, suppress(Exception):
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _is_transient(self, error: Exception) -> bool:
        return self._is_lost(error) or getattr(error, "sqlstate", None) in _CONFLICT_CODES

    def _is_lost(self, error: Exception) -> bool:
        """Return whether the connection is lost, and close it in that case; otherwise roll back the transaction."""
        import psycopg

        if not isinstance(error, psycopg.Error):
            return False
        connection = self._connection
        is_lost = connection is None or connection.closed or connection.broken
        is_lost = is_lost or str(getattr(error, "sqlstate", None) or "").startswith(("08", "57P"))
        if is_lost:
            self.close()
        else:
            with suppress(Exception):
                self.snapshot += 1
                connection.rollback()
        return bool(is_lost)

    def _connect(self) -> None:
        """Open the first connection without retries; if it fails, the address is wrong or the server is down."""
        import psycopg

        try:
            self._connection = self._open_connection(self.address.place)
            self.snapshot += 1
        except psycopg.ProgrammingError as error:
            reason = self.address.redact(_first_line(error)) if "URI query parameter" in str(error) else ""
            raise ParameterError(f"{self.address}: cannot parse the address{': ' + reason if reason else ''}") from None
        except psycopg.Error as error:
            raise self._connection_error(str(error)) from None

    def _open_connection(self, place: str) -> Any:
        import psycopg

        defaults = {"connect_timeout": 10, "client_encoding": "utf8", "fallback_application_name": "isoscope"}
        connection = psycopg.connect(
            **{**defaults, **psycopg.conninfo.conninfo_to_dict(place)},  # type: ignore[arg-type]
            prepare_threshold=None,  # a pooler may run each transaction in another server process
        )
        for each in _SETTINGS:
            connection.execute(each.encode())
        connection.commit()
        if not self._writes:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
        return connection

    def _connection_error(self, message: str) -> DatabaseError | NotFoundError:
        if "password" in message or "no pg_hba.conf entry" in message or "authentication failed" in message:
            return DatabaseError(
                f"{self.address}: the server rejected the user name or password: check both; PGPASSWORD and ~/.pgpass "
                "can also provide the password"
            )
        if "database" in message and "does not exist" in message:
            return NotFoundError(f"{self.address}: this database does not exist: {self._suggest_database()}")
        reason = self.address.redact(next((each for each in message.splitlines() if "failed:" in each), message))
        return DatabaseError(
            f"{self.address}: cannot connect ({reason}): check the host and port, and that the server is running"
        )

    def _suggest_database(self) -> str:
        import psycopg

        with suppress(psycopg.Error):
            name = str(psycopg.conninfo.conninfo_to_dict(self.address.place).get("dbname") or "")
            place = psycopg.conninfo.make_conninfo(self.address.place, dbname="postgres")
            with self._open_connection(place) as connection:
                rows = connection.execute("SELECT datname FROM pg_database WHERE NOT datistemplate").fetchall()
            return suggest_names(name, [row[0] for row in rows])
        return "check the name"


def require_psycopg() -> None:
    """Raise a `MissingExtra` if the driver is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtra('psycopg is not installed: pip install "isoscope[postgres]"') from error


def _first_line(error: Exception) -> str:
    message = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return str(message).strip().partition("\n")[0] or type(error).__name__


def _describe_error(error: Exception) -> str | None:
    message = _ERROR_MESSAGES.get(str(getattr(error, "sqlstate", "")))
    return message and message.format(_first_line(error))
