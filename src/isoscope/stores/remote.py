"""Remote files: read ranges of bytes over the network, or download a file once into a bounded cache."""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from isoscope._core.errors import DatabaseError, FileFormatError, InputError, MissingExtra, NotFoundError, OutputError
from isoscope._core.memory import format_size, parse_size
from isoscope._io.files import expand_user, lock_file, sync
from isoscope.stores.databases.address import RemoteUrl, is_loopback
from isoscope.stores.databases.base import retry

T = TypeVar("T")

CACHE_FOLDER, CACHE_SIZE = "ISOSCOPE_CACHE", "ISOSCOPE_CACHE_SIZE"
"""The environment variables for the folder of downloaded files, and for its maximum size."""
_DEFAULT_CACHE_SIZE = "20GB"
_BLOCK_BYTES = 16 * 2**20  # bytes per request of a download
_CONNECT_SECONDS, _READ_SECONDS = 30, 60
_PACKAGES = {
    "https": ("aiohttp", "http"),
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gs"),
    "hf": ("huggingface_hub", "hf"),
    "memory": ("fsspec", "remote"),
}
"""The package that reads each kind of address, and the extra of isoscope that installs it."""
_LOGINS = {
    "https": "check the user name, the password or the signature in the address",
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE; for a public bucket, set "
    "FSSPEC_S3='{\"anon\": true}'",
    "gs": "log in with: gcloud auth application-default login; for a public bucket, set "
    'FSSPEC_GS=\'{"token": "anon"}\'',
    "hf": "log in with: hf auth login, or set HF_TOKEN",
    "memory": "check the permissions",
}
_DENIED = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError", "GatedRepoError")
_LOST = (
    *("ClientConnectionError", "ClientPayloadError", "EndpointConnectionError", "ConnectTimeoutError"),
    *("ReadTimeoutError", "ConnectionClosedError", "IncompleteReadError", "TransportError", "HTTPClientError"),
)
"""The errors of aiohttp, botocore and httpx for a connection that failed."""
_CHECKSUMS = ("ETag", "etag", "generation", "blob_id", "Content-MD5", "Digest")
_TIMES = ("Last-Modified", "LastModified", "updated", "mtime", "created")


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server; its string form contains no secrets."""

    url: RemoteUrl
    size: int | None
    """The size in bytes, or None if the server does not report it."""
    version: str
    """The ETag, checksum or modification time; empty if the server reports none."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        path = urlsplit(self.url.url).path if self.url.scheme == "https" else self.url.url
        return PurePosixPath(unquote(path)).name

    def __str__(self) -> str:
        return str(self.url)

    def open(self) -> io.RawIOBase:
        """Open the file for reading ranges of bytes; raise a `FileFormatError` if it changed since it was found."""
        if self.url.scheme != "hf":  # huggingface_hub keeps its own list of files
            self.check_unchanged()
        return _RangeReader(self)

    def check_unchanged(self) -> None:
        """Raise a `FileFormatError` if the file on the server is not the one that was found."""
        if _find_file(self.url) != self:
            raise FileFormatError(f"{self} changed while it was being read: run again when it no longer changes")

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`; a request that loses its connection is repeated."""
        options = {"cache_type": "none"} if self.url.scheme == "hf" else {}

        def attempt() -> bytes:
            data: bytes = _filesystem(self.url.scheme).cat_file(self.url.url, start=start, end=stop, **options)
            if len(data) != stop - start:
                raise ConnectionError(f"the server sent {len(data):,} of {stop - start:,} bytes")
            return data

        return _request(self.url, attempt, repeat=True)

    def supports_ranges(self) -> bool:
        """Return whether the server can send parts of the file."""
        if self.url.scheme != "https":
            return self.size is not None
        if not self.size:
            return False
        size, files = self.size, _filesystem(self.url.scheme)

        def ask() -> bool:
            try:
                with files.open(self.url.url, block_size=1, cache_type="none", size=size) as file:
                    file.seek(size - 1)
                    return len(file.read(1)) == 1
            except ValueError:  # the server sends the whole file
                return False

        return size > 1 and _request(self.url, ask)

    def download(self) -> Path:
        """Return the path of a copy in the cache; download the file unless the cache has this version of it.

        An interrupted download is resumed if the server can send parts of the file and reports its version.
        """
        content = f"{self.url.url}\0{self.version}\0{self.size}"
        folder = cache_folder() / hashlib.blake2b(content.encode(), digest_size=12).hexdigest()
        path, part = folder / (self.name or "file"), folder / ".part"
        try:
            if not (self.version and path.is_file() and path.stat().st_size == (self.size or path.stat().st_size)):
                _make_room(self.size or 0, str(self))
                folder.mkdir(parents=True, exist_ok=True)
                with part.open("ab") as file:
                    _lock_part(file, str(self))
                    self._download_rest(file)
                sync(part)
                os.replace(part, path)
            os.utime(path)  # the least recently used files are removed first
        except OSError as error:
            raise OutputError(
                f"{self} cannot be downloaded to {cache_folder()}: {error.strerror or error}; what was downloaded is "
                f"kept: {_advise_space(error)}, or set {CACHE_FOLDER} to a folder on another disk"
            ) from error
        _hold(path)
        return path

    def _download_rest(self, file: IO[bytes]) -> None:
        done = file.tell()
        has_ranges = self.supports_ranges()
        if not has_ranges or not self.version or done > (self.size or 0):
            file.truncate(0)
            done = 0
        try:
            for block in self._blocks(done) if has_ranges else self._stream():
                file.write(block)
                done += len(block)
        except DatabaseError as error:
            kept = "; the downloaded part is kept: rerun the same command to resume" if has_ranges else ""
            raise DatabaseError(f"{error}{kept}") from None
        if self.size is not None and done != self.size:
            file.truncate(0)
            raise DatabaseError(f"{self}: the server sent {done:,} of {self.size:,} bytes: run the command again")

    def _blocks(self, start: int) -> Iterator[bytes]:
        assert self.size is not None
        for at in range(start, self.size, _BLOCK_BYTES):
            yield self.read(at, min(at + _BLOCK_BYTES, self.size))

    def _stream(self) -> Iterator[bytes]:
        """Yield the file from its beginning, for a server that cannot send parts of it."""
        with _translate_errors(self.url), _filesystem(self.url.scheme).open(self.url.url, block_size=0) as file:
            while block := file.read(2**20):
                yield block


class _RangeReader(io.RawIOBase):
    """A remote file that reads exactly the requested bytes, without reading ahead."""

    def __init__(self, file: RemoteFile) -> None:
        assert file.size is not None
        self._file, self._size, self._at = file, file.size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = self._file.read(self._at, stop) if stop > self._at else b""
        self._at += len(data)
        return data


def file_version(file: Path | RemoteFile) -> tuple[str, int, int | str]:
    """Return the location, size and version of a file; they differ if it is another file or has changed."""
    if isinstance(file, RemoteFile):
        return str(file), file.size or 0, file.version
    stat = file.stat()
    return os.path.realpath(file), stat.st_size, stat.st_mtime_ns


def find_remote_files(url: RemoteUrl) -> tuple[list[RemoteFile], bool]:
    """Return the files at an address, and whether the address is a folder or a glob pattern."""
    files = _filesystem(url.scheme)
    is_pattern = glob.has_magic(urlsplit(url.url).path if url.scheme == "https" else url.url)
    if url.scheme == "https" and (is_pattern or urlsplit(url.url).path.endswith("/")):
        raise NotFoundError(f"{url} is not a file: servers cannot list folders over https; pass one file")
    if is_pattern:
        found = [*_request(url, lambda: files.glob(url.url, detail=True)).values()]
        if not found:
            raise NotFoundError(f"{url} matches no file: check the folder and the pattern")
    else:
        info = _request(url, lambda: files.info(url.url))
        if info["type"] != "directory":
            return [_describe_file(url, info)], False
        found = _request(url, lambda: files.ls(url.url, detail=True))
    members = []
    for each in found:
        if each["type"] == "file":
            own = RemoteUrl(url.scheme, f"{url.scheme}://{each['name'].lstrip('/')}")
            has_checksum = any(each.get(key) for key in _CHECKSUMS)  # a list may write times in another way
            members.append(_describe_file(own, each) if has_checksum else _find_file(own))
    return members, True


def _find_file(url: RemoteUrl) -> RemoteFile:
    return _describe_file(url, _request(url, lambda: _filesystem(url.scheme).info(url.url)))


def _describe_file(url: RemoteUrl, info: Mapping[str, Any]) -> RemoteFile:
    version = next((str(info[key]) for key in (*_CHECKSUMS, *_TIMES) if info.get(key)), "")
    return RemoteFile(url, info.get("size"), version)


@lru_cache
def _filesystem(scheme: str) -> Any:
    """Return the file system for a kind of address."""
    package, extra = _PACKAGES[scheme]
    try:
        import fsspec

        import_module(package)
    except ImportError as error:
        raise MissingExtra(f'{scheme}:// needs the package {package}: pip install "isoscope[{extra}]"') from error
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme == "https":
        options = {"client_kwargs": _http_options(), "encoded": True}
    elif scheme == "s3":
        timeouts = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _READ_SECONDS}
        options["config_kwargs"] = {**timeouts, "retries": {"max_attempts": 2}}
    elif scheme == "gs":
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it also logs the errors that it raises
    else:
        options = {}
    return fsspec.filesystem(scheme, skip_instance_cache=True, **options)


def _http_options() -> dict[str, Any]:
    import aiohttp

    async def check_redirect(session: Any, context: Any, request: Any) -> None:
        """Refuse a redirect to anything but https, and from another machine to this one."""
        target = urlsplit(urljoin(str(request.url), request.response.headers.get("Location", "")))
        is_local = is_loopback(request.url.host or "")
        if target.scheme == "https" and (is_local or not is_loopback(target.hostname or "")):
            return
        if not (target.scheme == "http" and is_local and is_loopback(target.hostname or "")):
            raise DatabaseError(
                f"{request.url.host} redirects to a {target.scheme}:// address, which is refused: pass the https:// "
                "address of the file itself"
            )

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(check_redirect)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
    return {"trust_env": True, "timeout": timeout, "trace_configs": [trace]}


def _request(url: RemoteUrl, attempt: Callable[[], T], *, repeat: bool = False) -> T:
    """Return the result of a request; a failure becomes a one-line error."""
    with _translate_errors(url):
        return retry(attempt, _is_transient) if repeat else attempt()


@contextmanager
def _translate_errors(url: RemoteUrl) -> Iterator[None]:
    """Convert the errors of the drivers into one-line errors without secrets."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        problem = _explain(error, url)
    else:
        return
    raise problem  # not chained: the driver's message may contain a password


def _explain(error: BaseException, url: RemoteUrl) -> InputError:
    error = _find_cause(error)
    if isinstance(error, InputError):
        return error
    status, reason = _status(error), url.redact(str(error))[:200] or type(error).__name__
    if status in (401, 403) or isinstance(error, PermissionError) or _is_named(error, _DENIED):
        return DatabaseError(f"{url}: access denied ({reason}): {_LOGINS[url.scheme]}")
    if status in (404, 410) or isinstance(error, FileNotFoundError):
        return NotFoundError(f"{url} does not exist: check the address; if it is private, {_LOGINS[url.scheme]}")
    if isinstance(error, TimeoutError):
        return DatabaseError(f"{url}: the server did not answer within {_READ_SECONDS} seconds: run the command again")
    if _is_transient(error):
        return DatabaseError(f"{url}: the connection failed ({reason}): check the address, or run the command again")
    return DatabaseError(f"{url}: {type(error).__name__}: {reason}; check the address")


def _find_cause(error: BaseException) -> BaseException:
    """Return the error behind a FileNotFoundError, which fsspec raises for every failed request."""
    while isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _status(error: BaseException) -> int | None:
    """Return the HTTP status code of an error, if it has one."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    codes = [getattr(error, "status", None), getattr(response, "status_code", response)]
    if type(error).__module__.startswith("gcsfs"):
        codes.append(getattr(error, "code", None))
    return next((code for code in codes if isinstance(code, int)), None)


def _is_transient(error: BaseException) -> bool:
    """Return whether a lost connection or a busy server caused the error, so that another attempt may succeed."""
    error = _find_cause(error)
    is_busy = _status(error) in (429, 500, 502, 503, 504)
    return is_busy or isinstance(error, ConnectionError | TimeoutError) or _is_named(error, _LOST)


def _is_named(error: BaseException, names: tuple[str, ...]) -> bool:
    return any(each.__name__ in names for each in type(error).__mro__)


# the cache of downloaded files


def cache_folder() -> Path:
    """Return the folder of downloaded files: ISOSCOPE_CACHE, or isoscope/remote in the user's cache folder."""
    if own := os.environ.get(CACHE_FOLDER):
        return expand_user(own)
    return expand_user(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "isoscope" / "remote"


_held: dict[Path, IO[bytes]] = {}  # files in use, locked so that no process removes them


def _hold(path: Path) -> None:
    """Keep a file from being removed from the cache until this process ends."""
    if path not in _held:
        _held[path] = path.open("rb")
        with suppress(OSError):  # the file system has no locks
            lock_file(_held[path], shared=True)


def _lock_part(file: IO[bytes], name: str) -> None:
    try:
        lock_file(file)
    except BlockingIOError:
        raise OutputError(f"{name} is being downloaded by another process: run again when that process ends") from None


def _make_room(size: int, name: str) -> None:
    """Remove the least recently used files from the cache so that a file of this size fits."""
    limit = parse_size(os.environ.get(CACHE_SIZE, _DEFAULT_CACHE_SIZE), CACHE_SIZE)
    if size > limit:
        raise OutputError(
            f"{name} has {format_size(size)}, but the cache for downloads is limited to {format_size(limit)}: raise "
            f"{CACHE_SIZE}, or save the vectors as Parquet, which is read without downloading the file"
        )
    folder = cache_folder()
    files = sorted((path for path in folder.glob("*/*") if path.is_file()), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if total + size <= limit:
            break
        length = path.stat().st_size
        with suppress(OSError), path.open("rb") as file:
            lock_file(file)
            path.unlink()
            path.parent.rmdir()
        total -= 0 if path.exists() else length
    nearest = next(each for each in (folder, *folder.parents) if each.is_dir())
    if size > (free := shutil.disk_usage(nearest).free):
        raise OSError(errno.ENOSPC, f"it needs {format_size(size)}, and {format_size(free)} are free")


def _advise_space(error: OSError) -> str:
    return "free some space and rerun the command" if error.errno == errno.ENOSPC else "check the folder"
