"""What the papers published, as data: numbers by table, row and column with where they stand, and claims to test.

A file of `published/` for each study; nothing in a comparison is typed by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Number:
    """A published number, its uncertainty (as the paper gives it, mostly ± a standard deviation), and where it is."""

    table: str
    row: str
    column: str
    value: float
    uncertainty: float | None
    where: str
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """Something that a paper says, in a sentence that can turn out false."""

    key: str
    words: str
    where: str


@dataclass(frozen=True)
class Paper:
    """What is cited."""

    title: str
    authors: str
    year: int
    venue: str


@dataclass(frozen=True)
class Published:
    """All that a study compares with."""

    paper: Paper
    claims: tuple[Claim, ...]
    """What the paper says."""
    tables: dict[str, dict[tuple[str, str], Number]]
    """Numbers by row and column, for each table by its key."""
    titles: dict[str, str]
    """What each table is, by its key."""
    observations: tuple[Claim, ...] = ()
    """Statements of ours that the study tests beside the paper's claims; `where` says what led to them."""

    def number(self, table: str, row: str, column: str) -> Number | None:
        """A published number; None if the paper has none there, a `KeyError` if there is no such table."""
        return self.tables[table].get((row, column))

    def rows(self, table: str) -> list[str]:
        """The rows of a table, in the paper's order."""
        return list(dict.fromkeys(row for row, _ in self.tables[table]))

    def columns(self, table: str) -> list[str]:
        """The columns of a table, in the paper's order."""
        return list(dict.fromkeys(column for _, column in self.tables[table]))

    def claim(self, key: str) -> Claim:
        """Return a claim or an observation by its key."""
        return next(each for each in (*self.claims, *self.observations) if each.key == key)


@cache
def read_published(study: str) -> Published:
    """What was published for a study.

    >>> read_published("isotropy-clusters-classifiers").number("glue", "cola", "all-MiniLM-L6-v2 r").value
    -0.88291
    """
    told = json.loads(files("isoscope.studies").joinpath("published", f"{study}.json").read_text("utf-8"))
    tables = {key: _parse_numbers(key, table) for key, table in told["tables"].items()}
    return Published(
        Paper(**told["paper"]),
        tuple(Claim(**each) for each in told["claims"]),
        tables,
        {key: table["title"] for key, table in told["tables"].items()},
        tuple(Claim(**each) for each in told.get("observations", ())),
    )


def _parse_numbers(key: str, table: dict[str, Any]) -> dict[tuple[str, str], Number]:
    """A table's numbers: for each row its values in the order of the columns, null where the paper has none."""
    found = {}
    for name, values in table["rows"].items():
        for column, value in zip(table["columns"], values, strict=True):
            if value is not None:
                one, spread = value if isinstance(value, list) else (value, None)
                found[name, column] = Number(key, name, column, one, spread, table["where"], table.get("note", ""))
    return found
