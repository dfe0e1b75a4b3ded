"""Where vectors are in a database: what was typed taken apart, and the form of it that may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from isoscope._core.errors import InputError

_POSTGRES = re.compile(r"postgres(?:ql)?(?:\+\w+)?://", re.IGNORECASE)
_MISTYPED_POSTGRES = re.compile(
    r"postgres(?:ql)?(?:\+\w+)?(?::|//.*@)", re.IGNORECASE
)  # a slash or the colon is missing
_OTHERS = re.compile(r"(qdrant|lancedb|chroma):", re.IGNORECASE)
_SERVER = re.compile(r"(?:.*@)?(?:\[[^\]]*\]|[^:]*)(?::\d*)?")  # user, host, port
_OWN = ("table", "column", "key", "missing", "type")  # the other options of a PostgreSQL URL are libpq's
_SECRET = re.compile(r"pass|secret|token|api.?key|credential|auth(?!enticator)|signature|^pwd$|^pw$", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/?#]*@")
_LOGIN = re.compile(r"(:/{1,2}[^\s/:@]*):[^\s@]*@")  # a path has one of the two slashes
_SECRET_OPTION = re.compile(r"([?&]\w*(?:pass|secret|token|api_?key|credential)\w*=)[^\s&#]*", re.IGNORECASE)
_SAFE = "/:,.-_~()*"
_FORMS = {
    "postgresql": "postgresql://user@host:5432/database?table=NAME&column=NAME",
    "qdrant": "qdrant:PATH#collection or qdrant:http://host:6333#collection",
    "lancedb": "lancedb:PATH#table",
    "chroma": "chroma:PATH#collection or chroma:http://host:8000#collection",
}


@dataclass(frozen=True, repr=False)
class Address:
    """Where vectors are in a database, as it was typed, and as it may be shown."""

    kind: str
    """postgresql, qdrant, lancedb or chroma."""
    place: str
    """URL or path, with the credentials: it is never printed."""
    collection: str
    """The table or collection; empty if it was not said."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What stands behind the "?" and is isoscope's to know: column, key, missing, …"""

    @property
    def shown(self) -> str:
        """The address without a password, a token or a key: the only form that is shown or written anywhere."""
        said = [(name, value) for name, value in self.options.items() if not _SECRET.search(name)]
        place, _, query = self.place.partition("?")
        place = _USER.sub(lambda found: _drop_password(found[0]), place)
        told = [each for each in query.split("&") if each and not _SECRET.search(unquote(each.partition("=")[0]))]
        if self.kind == "postgresql":
            own = [("table", self.collection)] if self.collection else []
            told += [f"{name}={quote(value, safe=_SAFE)}" for name, value in own + said]
            return place + ("?" + "&".join(told) if told else "")
        told += [f"{name}={value}" for name, value in said]
        collection = f"#{self.collection}" if self.collection else ""
        return f"{self.kind}:{place}{collection}" + ("?" + "&".join(told) if told else "")

    def redact(self, words: str) -> str:
        """Words of somebody else, an error of a driver for example, without what is secret here, on one line."""
        for secret in self._secrets():
            words = words.replace(secret, "…")
        if "://" in self.place:  # the name of a folder may be a part of any word
            words = words.replace(self.place, self.shown)
        return " ".join(words.split())

    def _secrets(self) -> list[str]:
        users = [found.rstrip("@").partition(":")[2] for found in _USER.findall(self.place)]
        pairs = [each.partition("=") for each in self.place.partition("?")[2].split("&")]
        pairs += [(name, "=", value) for name, value in self.options.items()]
        found = [*users, *(value for name, _, value in pairs if _SECRET.search(unquote(name)))]
        forms = {form for each in found for form in (each, unquote(each), quote(each, safe="")) if form}
        return sorted(forms, key=len, reverse=True)

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def parse_address(text: Any) -> Address | None:
    """The address of vectors in a database; None if the text is none, and the name of a file for example.

    An `InputError` if it is one that cannot be read. A path is none, whatever its name.

    Examples
    --------
    >>> where = parse_address("postgresql://me:secret@db.example:5432/library?table=docs&column=embedding")
    >>> where.collection, where.options["column"], where
    ('docs', 'embedding', Address(postgresql://me@db.example:5432/library?table=docs&column=embedding))
    >>> parse_address("lancedb:/data/library#docs?missing=drop").options
    {'missing': 'drop'}
    >>> parse_address("docs.parquet") is None
    True
    """
    if isinstance(text, Address) or not isinstance(text, str):
        return text if isinstance(text, Address) else None
    if found := _POSTGRES.match(text):
        return _parse_postgresql(text[found.end() :])
    if _MISTYPED_POSTGRES.match(text):
        raise InputError(f"postgres…: the address cannot be read: need {_FORMS['postgresql']}")
    if found := _OTHERS.match(text):
        return _parse_other(found[1].lower(), text[found.end() :])
    return None


def redact_source_name(name: str) -> str:
    """What may be shown of the name of a source: all of it, but what is secret in an address.

    Examples
    --------
    >>> redact_source_name("docs.parquet"), redact_source_name("qdrant:https://host#docs?api_key=secret")
    ('docs.parquet', 'qdrant:https://host#docs')
    """
    found = parse_address(name)
    return name if found is None else found.shown


def redact_passwords(words: str) -> str:
    """Any words without what looks like the password of an address: where one was typed in the place of a file.

    Examples
    --------
    >>> redact_passwords("postgresql:/me:secret@host/db?table=docs is not a file, nor is x?password=secret&table=docs")
    'postgresql:/me@host/db?table=docs is not a file, nor is x?password=…&table=docs'
    """
    return _SECRET_OPTION.sub(r"\1…", _LOGIN.sub(r"\1@", words))


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


def _parse_other(kind: str, rest: str) -> Address:
    place, _, collection = rest.rpartition("#") if "#" in rest else (rest, "", "")
    scheme, slashes, behind = place.partition("://")
    server = re.split("[/?#]", behind)[0]
    parted = "#" in behind or (scheme.startswith("http") and "@" in behind[len(server) :])
    if place.startswith("//") or (slashes and (parted or not _SERVER.fullmatch(server))):
        raise _parse_error(kind, ":")
    place, _, first = place.partition("?")
    collection, _, second = collection.partition("?")
    if not place:
        raise InputError(f"{kind}: says no place: need {_FORMS[kind]}")
    return Address(kind, place, collection, _parse_options(first, kind) | _parse_options(second, kind))


def _parse_error(kind: str, colon: str) -> InputError:
    """What cannot be taken apart is not shown: a part of it is the password."""
    return InputError(
        f"{kind}{colon}…: the address cannot be read; in a user name or password write %40 for @, %2F for /, %3F "
        f"for ?, %23 for # (need {_FORMS[kind]})"
    )


def _parse_options(query: str, kind: str) -> dict[str, str]:
    """What stands behind the "?"; a plus is a plus, as libpq has it."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else []:
        name, equals, value = pair.partition("=")
        name = unquote(name)
        if not equals or not name or "@" in name:
            raise InputError(f'{kind}: the options behind the "?" cannot be read: need NAME=VALUE, with & between them')
        if name in found:
            raise InputError(f"{kind}: {name}= is given twice: give it once")
        found[name] = unquote(value)
    if found.get("missing", "drop") not in ("drop", "raise"):
        raise InputError(f"missing={found['missing']}: need drop, which leaves rows without a vector out, or raise")
    return found


def _drop_password(userinfo: str) -> str:
    user = userinfo.rstrip("@").partition(":")[0]
    return f"{user}@" if user else ""
