"""What isoscope notes of a collection that it makes, in the collection: what it is made of, and if it is whole."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping

from isoscope._core.errors import InputError, warn_data

NOTE = "isoscope"
"""The name of the note among the metadata of a collection."""


def format_note(about: Mapping[str, str], rows: int | None = None) -> str:
    """The note on a collection made of this; with the number of its rows once all are there.

    Examples
    --------
    >>> format_note({"source": "docs.npy"}, rows=100)
    '{"about": {"source": "docs.npy"}, "rows": 100}'
    """
    return json.dumps({"about": dict(about), "rows": rows}, sort_keys=True)


def can_resume(found: str | None, about: Mapping[str, str], where: str) -> bool:
    """Whether a collection is made of the same; an `InputError` if it is of something else, or not isoscope's."""
    check_ownership(found, where)
    earlier = _parse_note(found)[0]
    if earlier == dict(about):
        return True
    names = [name for name in {**earlier, **about} if earlier.get(name) != about.get(name)]
    raise InputError(
        f"{where} was written by isoscope with another {' and '.join(names)}: write elsewhere, or write it anew "
        "with restart=True, on the command line --restart"
    )


def check_ownership(found: str | None, where: str) -> None:
    """Refuse to touch what isoscope has not made."""
    if not found:
        raise InputError(f"{where} exists and was not made by isoscope: nothing was touched, write to another name")


def warn_if_unfinished(found: str | None, where: str) -> None:
    """Say that a collection was not written to its end."""
    if found and _parse_note(found)[1] is None:
        warn_data(f"{where} was not written to its end: run the command that writes it again")


def check_row_count(written: int, there: int, where: str) -> None:
    """Refuse to call a collection whole that has fewer rows than were written: some had the same id."""
    if there < written:
        raise InputError(
            f"{where} has {there} rows after {written} were written: ids must be different; name other ids, or leave "
            "them out and rows are numbered"
        )


def check_missing_vectors(
    lacking: int, total: int, first: object, drop: bool, where: str, why: str = "no vector"
) -> None:
    """Refuse rows without a vector, or say how many are left out."""
    if not lacking:
        return
    found = f"{where} has {why} in {lacking} of {total} rows, the first has the id {first}"
    if lacking == total:
        raise InputError(f"{found}: need at least one vector")
    if not drop:
        raise InputError(f"{found}: give them one, or leave them out with ?missing=drop behind the address")
    warn_data(f"{found}: they are left out")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """What was meant by a name that is not there: names like it, or those that are there."""
    names = sorted(names)
    if found := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        return f"is it {' or '.join(found)}?"
    if not names:
        return "it has none"
    return "it has " + ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def check_options(options: Mapping[str, str], known: Iterable[str], where: str) -> None:
    """Refuse an option that would be passed over."""
    known = list(known)
    for name in options:
        if name not in known:
            need = f" here: need {' or '.join(known)}" if known else ": there are none"
            raise InputError(f"{where}: {name}= is not an option{need}")


def _parse_note(found: str | None) -> tuple[dict[str, str], int | None]:
    """What a collection was made of, and its rows if it is whole."""
    try:
        kept = json.loads(found or "")
        return dict(kept["about"]), kept["rows"]
    except (ValueError, LookupError, TypeError):
        return {}, None
