"""Parse the addresses of databases and remote files, and remove secrets before an address is shown."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from isoscope._core.errors import ParameterError
from isoscope._core.printable import is_secret_name

_POSTGRES = re.compile(r"postgres(?:ql)?(?:\+\w+)?://", re.IGNORECASE)
_MISTYPED_POSTGRES = re.compile(r"postgres(?:ql)?(?:\+\w+)?(?::|//.*@)", re.IGNORECASE)  # missing slash or colon
_OTHERS = re.compile(r"(qdrant|lancedb|chroma|milvus(?!://)):", re.IGNORECASE)
_DUCKDB = re.compile(r"duckdb:(?!//)", re.IGNORECASE)
_LANCE = ".lance"  # the extension of a Lance dataset, which is a table of LanceDB
_SERVER = re.compile(r"(?:.*@)?(?:\[[^\]]*\]|[^:]*)(?::\d*)?")  # user, host, port
_MISTYPED_SERVER = re.compile(r"https?(?::(?!//)|//)|[\w.-]+:\d+(?:/|$)", re.IGNORECASE)  # it would become a folder
_LOGIN = re.compile(r"(?:[a-z]:[\\/])?[^:]*:.*@", re.IGNORECASE)  # not a Windows drive
_SCHEME = re.compile(r"([a-z][\w+.-]+):", re.IGNORECASE)  # one letter is a Windows drive
_OWN = ("table", "column", "key", "missing", "type")  # all other options of a PostgreSQL URL belong to libpq
_OPTIONS = ("missing", "distance", "query")  # the options of the other databases
_USER = re.compile(r"(?<=://)[^/?#]*@")
_SAFE = "/:,.-_~()*"
_URL_SAFE = "%/:=&?~#+!$,;'@()*[]"  # a URL is quoted already, except spaces and letters outside ASCII
_FORMS = {
    "postgresql": "postgresql://user@host:5432/database?table=NAME&column=NAME",
    "qdrant": "qdrant:PATH#collection or qdrant:http://host:6333#collection",
    "lancedb": "lancedb:PATH#table",
    "chroma": "chroma:PATH#collection or chroma:http://host:8000#collection",
    "duckdb": "duckdb:FILE#table or duckdb:FILE?query=SELECT …",
    "milvus": "milvus:FILE.db#collection",
}
_ALIASES = {"pg": "postgresql", "pgvector": "postgresql", "psql": "postgresql", "postgres": "postgresql"}
_ALIASES |= {"supabase": "postgresql", "lance": "lancedb"}
_EXPORTS = {
    "pinecone": "read the vectors with index.list() and index.fetch()",
    "weaviate": "read the vectors with collection.iterator(include_vector=True)",
    "milvus": "read the vectors with client.query_iterator()",
    "zilliz": "read the vectors with client.query_iterator()",
    "elasticsearch": "read the vectors with helpers.scan()",
    "opensearch": "read the vectors with helpers.scan()",
    **dict.fromkeys(
        ("redis", "rediss"),
        "read the vectors with client.scan_iter() and np.frombuffer(client.hget(key, FIELD), np.float32)",
    ),
    "mongodb": 'read the vectors with collection.find({}, {"embedding": 1})',
    "vespa": "read the documents with the command: vespa visit",
    "turbopuffer": 'read the vectors page by page with namespace.query(rank_by=("id", "asc"), include_attributes=True)',
    "typesense": 'read the documents with client.collections["NAME"].documents.export()',
    "marqo": "read the vectors with index.get_documents(IDS, expose_facets=True)",
    "clickhouse": "read the vectors with SELECT … INTO OUTFILE 'docs.parquet' FORMAT Parquet",
    "bigquery": "export the table to Parquet with EXPORT DATA",
    "snowflake": "export the table to Parquet with COPY INTO",
    "faiss": "read the vectors with index.reconstruct_n(0, index.ntotal)",
    **dict.fromkeys(("mysql", "mariadb", "sqlite"), "read the vectors with SELECT and np.frombuffer()"),
}
"""How to export vectors from databases that isoscope cannot read."""
_DOWNLOADS = ("ftp", "sftp", "az", "abfs", "abfss", "hdfs")
_REMOTE = re.compile(r"(https?|s3|gs|gcs|hf|memory):(//)?", re.IGNORECASE)
_REMOTE_FORMS = {
    "https": "https://host/file.parquet",
    "s3": "s3://bucket/file.parquet",
    "gs": "gs://bucket/file.parquet",
    "hf": "hf://datasets/owner/name/file.parquet",
    "memory": "memory://file.parquet",
}
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1", re.IGNORECASE)
_UPLOADS = {
    "https": "upload it to the server",
    "s3": "upload it with: aws s3 cp FILE s3://…",
    "gs": "upload it with: gcloud storage cp FILE gs://…",
    "hf": "upload it with: hf upload",
    "memory": "copy it with fsspec",
}


@dataclass(frozen=True, repr=False)
class Address:
    """The address of vectors in a database; its string form contains no secrets."""

    kind: str
    """The kind of database: postgresql, qdrant, lancedb, chroma, duckdb or milvus."""
    place: str
    """The URL or path, with credentials; never printed."""
    collection: str
    """The table or collection; empty if not given."""
    options: Mapping[str, str] = field(default_factory=dict)
    """isoscope's own options after the "?": column, key, missing, …"""

    @property
    def redacted(self) -> str:
        """The address without passwords, tokens and keys: the only form that is printed or saved."""
        known = _OWN if self.kind == "postgresql" else _OPTIONS  # a mistyped name may belong to a secret
        own = [(name, value) for name, value in self.options.items() if name in known]
        place, _, query = self.place.partition("?")
        place = _USER.sub(lambda match: _drop_password(match[0]), place)
        pairs = [each for each in query.split("&") if each and not is_secret_name(each.partition("=")[0])]
        if self.kind == "postgresql":
            own = ([("table", self.collection)] if self.collection else []) + own
            pairs += [f"{name}={quote(value, safe=_SAFE)}" for name, value in own]
            return place + ("?" + "&".join(pairs) if pairs else "")
        pairs += [f"{name}={value}" for name, value in own]
        collection = f"#{self.collection}" if self.collection else ""
        return f"{self.kind}:{place}{collection}" + ("?" + "&".join(pairs) if pairs else "")

    def redact(self, message: str) -> str:
        """Return a message, such as a driver's error, as one line without the secrets of this address."""
        for secret in self._secrets():
            message = message.replace(secret, "…")
        if "://" in self.place:  # a folder name may be part of any word
            message = message.replace(self.place, self.redacted)
        return " ".join(message.split())

    def _secrets(self) -> list[str]:
        users = [user.rstrip("@").partition(":")[2] for user in _USER.findall(self.place)]
        pairs = [each.partition("=") for each in self.place.partition("?")[2].split("&")]
        pairs += [(name, "=", value) for name, value in self.options.items()]
        secrets = [*users, *(value for name, _, value in pairs if is_secret_name(name))]
        forms = {form for each in secrets for form in (each, unquote(each), quote(each, safe="")) if form}
        return sorted(forms, key=len, reverse=True)

    def __str__(self) -> str:
        return self.redacted

    def __repr__(self) -> str:
        return f"Address({self.redacted})"


@dataclass(frozen=True, repr=False)
class RemoteUrl:
    """The address of remote files; its string form contains no secrets."""

    scheme: str
    """The kind of address: https, s3, gs, hf or memory."""
    url: str
    """The address with credentials; never printed."""

    @property
    def redacted(self) -> str:
        """The address without its query, user name and password: the only form that is printed or saved."""
        if self.scheme != "https":
            return self.url
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def redact(self, message: str) -> str:
        """Return a message, such as a driver's error, as one line without the secrets of this address."""
        if self.scheme == "https":
            parts = urlsplit(self.url)
            secrets = [parts.query, parts.netloc.rpartition("@")[0], parts.password or "", parts.username or ""]
            secrets += [each.partition("=")[2] for each in parts.query.split("&")]
            message = message.replace(self.url, self.redacted)
            forms = {form for each in secrets for form in (each, unquote(each)) if len(form) > 3}
            for secret in sorted(forms, key=len, reverse=True):
                message = message.replace(secret, "…")
        return " ".join(message.split())

    def __str__(self) -> str:
        return self.redacted

    def __repr__(self) -> str:
        return f"RemoteUrl({self.redacted})"


def parse_remote(text: Any) -> RemoteUrl | None:
    """Parse a string as the address of remote files; return None for anything else, such as a path.

    Raises a `ParameterError` for an address with a syntax error, and for http:// outside this machine.

    Examples
    --------
    >>> parse_remote("s3://bucket/docs.parquet"), parse_remote("https://me:secret@host/docs.parquet?token=secret")
    (RemoteUrl(s3://bucket/docs.parquet), RemoteUrl(https://host/docs.parquet))
    >>> parse_remote("docs.parquet") is None
    True
    """
    match = _REMOTE.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    scheme = {"http": "https", "gcs": "gs"}.get(match[1].lower(), match[1].lower())
    rest = text[match.end() :]
    if not match[2] or not rest.strip("/"):
        raise ParameterError(f"{match[1]}:… cannot be parsed as an address: need {_REMOTE_FORMS[scheme]}")
    if scheme != "https":
        if "@" in rest.partition("/")[0]:  # the revision of a dataset on Hugging Face comes later
            raise ParameterError(
                f"{match[1]}://…@… contains credentials: put them into environment variables or the configuration of "
                f"the service, and pass {_REMOTE_FORMS[scheme]}"
            )
        return RemoteUrl(scheme, f"{scheme}://{rest}")
    url = f"{match[1].lower()}://{quote(rest, safe=_URL_SAFE)}"
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    if not host:
        raise ParameterError(f"{match[1]}:… cannot be parsed as an address: need {_REMOTE_FORMS[scheme]}")
    if url.startswith("http:") and not is_loopback(host):
        raise ParameterError(f"http://{host}/… is not encrypted: use https://; http:// is only for this machine")
    return RemoteUrl(scheme, url)


def is_loopback(host: str) -> bool:
    """Return whether a host name is that of this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("db.example")
    (True, False)
    """
    return _LOOPBACK.fullmatch(host) is not None


def parse_address(text: Any) -> Address | None:
    """Parse a string as a database address; return None for anything else, such as a path.

    Raises a `ParameterError` for an address with a syntax error.

    Examples
    --------
    >>> address = parse_address("postgresql://me:secret@db.example:5432/library?table=docs&column=embedding")
    >>> address.collection, address.options["column"], address
    ('docs', 'embedding', Address(postgresql://me@db.example:5432/library?table=docs&column=embedding))
    >>> parse_address("lancedb:/data/library#docs?missing=drop").options
    {'missing': 'drop'}
    >>> parse_address("data/docs.lance"), parse_address("duckdb:docs.duckdb?query=SELECT * FROM docs").options
    (Address(lancedb:data#docs), {'query': 'SELECT * FROM docs'})
    >>> parse_address("docs.parquet") is None
    True
    """
    if isinstance(text, Path) and text.suffix.lower() == _LANCE:
        text = str(text)
    if isinstance(text, Address) or not isinstance(text, str):
        return text if isinstance(text, Address) else None
    if match := _POSTGRES.match(text):
        return _parse_postgresql(text[match.end() :])
    if _MISTYPED_POSTGRES.match(text):
        raise ParameterError(f"postgres…: cannot parse the address: need {_FORMS['postgresql']}")
    if match := _OTHERS.match(text):
        return _parse_other(match[1].lower(), text[match.end() :])
    if match := _DUCKDB.match(text):
        return _parse_duckdb(text[match.end() :])
    if text.rstrip("/").lower().endswith(_LANCE):
        folder, _, name = text.rstrip("/").rpartition("/")
        return Address("lancedb", folder or ("/" if text.startswith("/") else "."), name[: -len(_LANCE)])
    return None


def is_address(name: str) -> bool:
    """Return whether a name is the address of a database or of remote files, even one with a syntax error.

    >>> is_address("s3://bucket/docs"), is_address("qdrant:data#docs"), is_address("docs.parquet")
    (True, True, False)
    """
    try:
        return parse_address(name) is not None or parse_remote(name) is not None
    except ParameterError:
        return True


def parse_target(output: str | os.PathLike[str] | Address) -> Address | Path:
    """Parse an output: the address of a database, or a path.

    Raises a `ParameterError` for an address with a syntax error, for a database that isoscope does not support, and for
    a remote file.

    Examples
    --------
    >>> parse_target("lancedb:library#docs"), str(parse_target("docs.parquet"))
    (Address(lancedb:library#docs), 'docs.parquet')
    """
    address = parse_address(output)
    if address is not None:
        return address
    assert not isinstance(output, Address)
    if (remote := parse_remote(output)) is not None:
        raise ParameterError(
            f"{remote} is a remote address, which isoscope does not write: write to a file on this machine, and "
            f"{_UPLOADS[remote.scheme]}"
        )
    path = Path(output)
    if not path.exists():
        check_scheme(os.fspath(output))
    return path


def check_scheme(text: str) -> None:
    """Raise a `ParameterError` for the address of a database or service that isoscope does not support.

    Examples
    --------
    >>> check_scheme("docs.parquet")
    >>> check_scheme("qdrnt:library#docs")
    Traceback (most recent call last):
    ...
    isoscope.errors.ParameterError: qdrnt:… is not a known database: did you mean qdrant:PATH#collection or ...
    """
    match = _SCHEME.match(text)
    if match is None:
        return
    scheme = match[1].lower()
    product = scheme.partition("+")[0]  # mongodb+srv
    known = _ALIASES.get(product) or next(iter(difflib.get_close_matches(product, _FORMS, n=1, cutoff=0.75)), None)
    start = f"{match[1]}:{'//' if text[match.end() :].startswith('//') else ''}…"  # the rest may contain a password
    if known and product not in _EXPORTS:
        raise ParameterError(f"{start} is not a known database: did you mean {_FORMS[known]}?")
    supported = "supported databases are postgresql://…, qdrant:…, lancedb:…, chroma:…, duckdb:… and milvus:FILE.db…"
    if product in _DOWNLOADS:
        raise ParameterError(
            f"{start} is not supported: copy the files to or from this machine yourself; supported remote addresses "
            "are https://…, s3://…, gs://… and hf://…"
        )
    if product in _EXPORTS or start.endswith("//…"):
        advice = _EXPORTS.get(product, "export the vectors")
        raise ParameterError(
            f"{start} is not supported: {advice}, save them as a .parquet, .jsonl or .npy file, and pass that file; "
            f"{supported}"
        )


def redact_source_name(name: str) -> str:
    """Return the name of a source, without secrets if it is an address.

    Examples
    --------
    >>> redact_source_name("docs.parquet"), redact_source_name("qdrant:https://host#docs?api_key=secret")
    ('docs.parquet', 'qdrant:https://host#docs')
    """
    address = parse_address(name) or parse_remote(name)
    return name if address is None else address.redacted


def _parse_postgresql(rest: str) -> Address:
    base, _, query = rest.partition("?")
    user, _, _ = base.rpartition("@")
    if "@" in user or "/" in user or "?" in query or "#" in base:
        raise _parse_error("postgresql", "://")
    options = _parse_options(query, "postgresql")
    own = {name: value for name, value in options.items() if name in _OWN}
    collection = own.pop("table", "")
    others = "&".join(f"{name}={quote(value, safe=_SAFE)}" for name, value in options.items() if name not in _OWN)
    return Address("postgresql", f"postgresql://{base}" + ("?" + others if others else ""), collection, own)


def _parse_duckdb(rest: str) -> Address:
    """Parse the rest of a DuckDB address; a query is the last option, and everything after "query=" belongs to it."""
    before, *query = re.split("[?&]query=", rest, maxsplit=1)
    address = _parse_other("duckdb", before)
    if not query:
        return address
    if address.collection:
        raise ParameterError("duckdb:… has a table and a query: pass only one of them")
    return Address("duckdb", address.place, "", {**address.options, "query": query[0]})


def _parse_other(kind: str, rest: str) -> Address:
    place, _, collection = rest.rpartition("#") if "#" in rest else (rest, "", "")
    scheme, slashes, behind = place.partition("://")
    server = re.split("[/?#]", behind)[0]
    is_ambiguous = "#" in behind or (scheme.startswith("http") and "@" in behind[len(server) :])
    if place.startswith("//") or (slashes and (is_ambiguous or not _SERVER.fullmatch(server))):
        raise _parse_error(kind, ":")
    if not slashes and (_MISTYPED_SERVER.match(place) or _LOGIN.match(place)):
        raise _parse_error(kind, ":")
    place, _, first = place.partition("?")
    collection, _, second = collection.partition("?")
    if not place:
        raise ParameterError(f'the address "{kind}:" has no path or URL: need {_FORMS[kind]}')
    return Address(kind, place, collection, _parse_options(first, kind) | _parse_options(second, kind))


def _parse_error(kind: str, colon: str) -> ParameterError:
    """Return the error for an address that cannot be parsed; it omits the address, which may contain a password."""
    return ParameterError(
        f"{kind}{colon}…: cannot parse the address; in a user name or password, write %40 for @, %2F for /, %3F "
        f"for ?, %23 for # (need {_FORMS[kind]})"
    )


def _parse_options(query: str, kind: str) -> dict[str, str]:
    """Return the options after the "?"; a plus sign is kept as it is, as in libpq."""
    options: dict[str, str] = {}
    for pair in query.split("&") if query else []:
        name, equals, value = pair.partition("=")
        name = unquote(name)
        if not equals or not name or "@" in name:
            raise ParameterError(f'{kind}: cannot parse the options after "?": need NAME=VALUE, separated by &')
        if name in options:
            raise ParameterError(f"{kind}: the option {name}= appears twice: use it once")
        options[name] = unquote(value)
    if options.get("missing", "drop") not in ("drop", "error"):
        raise ParameterError(
            f"missing={options['missing']}: need missing=drop (skip rows without a vector) or missing=error"
        )
    return options


def _drop_password(userinfo: str) -> str:
    user = userinfo.rstrip("@").partition(":")[0]
    return f"{user}@" if user else ""
