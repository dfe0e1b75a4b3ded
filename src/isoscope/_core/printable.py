"""Make text safe to print: escape control characters, and remove passwords and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

REMOVED = "…"
"""The text that replaces a secret."""

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""C0 and C1 controls except tabs and line feeds, marks that reverse or hide text, and lone surrogates."""

_SECRET_NAME = re.compile(
    r"pass(?![a-z])|passw|passphrase|secret|token(?!s|iz)|(?:api|access|account|private)[-_. ]?key|credential"
    r"|auth(?!or(?!i[sz])|enticator)|signature|^sig$|(?:^|[-_])pwd?$",
    re.IGNORECASE,
)
_NAME = re.compile(r"""(?<![\w%-])([\w%-]++)(["']?)(\s{0,3}[=:])(?!=)\s{0,3}""")
_QUOTED = r"""'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+\""""
_BEARER = r"(?:(?:bearer|basic|token)\s+)?"
_VALUE = re.compile(rf"{_QUOTED}|{_BEARER}(?:(?!&[\w%-]++=)\S)++", re.IGNORECASE)
_VALUE_IN_ARGUMENT = re.compile(r"(?:(?!(?:&|\s)[\w%-]++\s{0,3}=).)++", re.DOTALL)
_LOGIN_STARTS = ("://", "//", ":/", ":\\")
_PUNCTUATION = "'\"`:;,.)]}"


def to_printable(message: str) -> str:
    r"""Return a message with its control characters escaped and its passwords and keys removed.

    >>> to_printable("qdrant:http//me:secret@host does not exist, nor has a.csv a column \x1b[2J")
    'qdrant:http//me:…@host does not exist, nor has a.csv a column \\x1b[2J'
    """
    return escape_controls(redact_secrets(message))


def escape_controls(text: str) -> str:
    r"""Return a text with its control characters escaped, so that printing it cannot change the terminal.

    >>> escape_controls("a\x1b]0;title\x07b \u202egpj.exe")
    'a\\x1b]0;title\\x07b \\u202egpj.exe'
    """
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def escape_controls_in_json(text: str) -> str:
    r"""Return equivalent JSON with the control characters in its strings escaped.

    >>> escape_controls_in_json('{"name": "\u202egpj.exe"}')
    '{"name": "\\u202egpj.exe"}'
    """

    def escape(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))

    return _CONTROLS.sub(escape, text)


def redact_secrets(message: str) -> str:
    """Return a message without passwords and keys, also those in mistyped addresses.

    >>> redact_secrets("postgresql:/me:secret@host/db?table=docs is not a file, nor is x?password=secret&table=docs")
    'postgresql:/me:…@host/db?table=docs is not a file, nor is x?password=…&table=docs'
    """
    words = (_redact_login(word) if "@" in word else word for word in re.split(r"(\s+)", message))
    message = "".join(words)
    parts, end = [], 0
    for start, stop in _named_secrets(message, _VALUE):
        parts += [message[end:start], REMOVED]
        end = stop
    return "".join(parts) + message[end:]


def find_secrets(argument: str) -> list[str]:
    """Return the passwords and keys in a command-line argument, and each word of them, longest first.

    >>> find_secrets("host=db password=my secret user=me"), find_secrets("docs.parquet")
    (['my secret', 'secret', 'my'], [])
    """
    start, stop = _login(argument)
    found = {argument[start:stop], *(argument[i:j] for i, j in _named_secrets(argument, _VALUE_IN_ARGUMENT))}
    forms = {form for each in found for form in (each, unquote(each), each.strip("'\""), *each.split())}
    return sorted(forms - {""}, key=len, reverse=True)


def is_secret_name(name: str) -> bool:
    """Return whether an option of this name contains a password or a key.

    >>> [name for name in ("api_key", "PGPASSWORD", "max_tokens", "author", "key") if is_secret_name(name)]
    ['api_key', 'PGPASSWORD']
    """
    return _SECRET_NAME.search(unquote(name)) is not None


def _redact_login(word: str) -> str:
    start, stop = _login(word)
    return word[:start] + REMOVED + word[stop:] if start < stop else word


def _login(word: str) -> tuple[int, int]:
    """Return where the password of a login such as ``user:password@host`` starts and ends.

    A password may contain any character, so it ends at the last "@".
    """
    stop = word.rfind("@")
    starts = (word.find(each, 0, stop) + len(each) for each in _LOGIN_STARTS if word.find(each, 0, stop) >= 0)
    colon = word.find(":", next(starts, 0), stop) if stop >= 0 else -1
    return (colon + 1, stop) if colon >= 0 else (0, 0)


def _named_secrets(text: str, value: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where each value of a secret option, such as ``password=…``, starts and ends."""
    at = 0
    while name := _NAME.search(text, at):
        at = name.end()
        if not is_secret_name(name[1]) or not _is_assignment(name, text):
            continue
        if found := value.match(text, at):
            end = at + len(found[0].rstrip(_PUNCTUATION)) if found[0][0] not in "'\"" else found.end()
            yield at, max(end, at + 1)
            at = found.end()


def _is_assignment(name: re.Match[str], text: str) -> bool:
    """Return whether a value follows the name, and not the rest of a sentence (``the password: check it``)."""
    if name[3].endswith("=") or name[2]:
        return True
    is_header = not name[1].isalpha() or name[1].lower() == "authorization"
    has_space = text[name.end() - 1].isspace()
    return is_header or not has_space or text[name.end() : name.end() + 1] in ("'", '"')
