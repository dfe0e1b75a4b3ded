"""The commands that follow from the findings of an audit."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from isoscope._report.commands import Call, Placeholder, chosen_columns, column_options, is_file, name_source
from isoscope.stores.databases.address import parse_address
from isoscope.stores.write import ENDINGS

if TYPE_CHECKING:
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.causes import Cause
    from isoscope.auditing.compare import HeldOutComparison

_REPAIR = re.compile(r"`isoscope fix ([a-z-]+)`")
_LISTED_CAUSES = ("broken_rows", "repeats", "long_rows", "hubness", "intrinsic_dimension", "labels")
_TOP = 20  # rows of each kind to list
_OTHER_METRICS = {"cosine": "euclidean", "euclidean": "cosine"}


@dataclass(frozen=True)
class Suggestion:
    """A command, and what it does."""

    purpose: str
    command: str
    """A line for the shell, or for Python if the vectors are an array."""


def suggest_commands(audit: Audit) -> list[list[Suggestion]]:
    """Return the commands that test or apply the advice on each cause; each command appears once.

    >>> import numpy as np, isoscope
    >>> audit = isoscope.audit(np.random.default_rng(0).standard_normal((500, 32)) + 1)
    >>> [each.command for each in suggest_commands(audit)[0]]
    ['isoscope.advise(vectors)', 'isoscope.Center().fit_transform(vectors)']
    """
    shown: set[str] = set()
    found = []
    for cause in audit.causes:
        own = [each for each in _suggest(audit, cause) if each.command not in shown]
        shown |= {each.command for each in own}
        found.append(own)
    return found


def _suggest(audit: Audit, cause: Cause) -> list[Suggestion]:
    advice = " ".join(finding.advice for finding in cause.findings)
    repairs = list(dict.fromkeys(_REPAIR.findall(advice)))
    found = []
    if repairs or "`isoscope advise" in advice:
        found.append(suggest_test(audit))
    found += [_suggest_repair(audit, repair) for repair in repairs]
    if cause.name in _LISTED_CAUSES and audit.worst is None:
        found.append(Suggestion("List the rows to check:", _format(audit, "audit", top=_TOP)))
    if cause.name == "mixed_spaces":
        found.append(Suggestion("List the rows of the other space:", _format(audit, "same", within=True)))
    if cause.name == "norm_spread":
        metric = _OTHER_METRICS[audit.settings.metric]
        found.append(Suggestion("Audit with another metric:", _format(audit, "audit", metric=metric)))
    return found


def suggest_test(audit: Audit) -> Suggestion:
    """Return the command that tests on a task whether a repair helps."""
    labels = audit.columns.get("labels")
    if labels is None:
        return Suggestion(
            "Test whether a repair helps; add your pairs, queries or labels for stronger evidence:",
            _format(audit, "advise"),
        )
    given = labels if is_file(audit.source) else Placeholder("labels")
    return Suggestion("Test with your labels whether a repair helps:", _format(audit, "advise", labels=given))


def _suggest_repair(audit: Audit, method: str) -> Suggestion:
    if is_file(audit.source):
        ending = PurePath(audit.source).suffix.lower()
        out = method + (ending if ending in ENDINGS and not parse_address(audit.source) else ".parquet")
        words = ["isoscope", "fix", method, audit.source, "-o", out, "--html", f"{method}.html"]
        return Suggestion(f"If the test confirms it, apply {method} and compare before and after:", shlex.join(words))
    name = "".join(word.capitalize() for word in method.split("-"))
    return Suggestion(
        f"If the test confirms it, apply {name}:", f"isoscope.{name}().fit_transform({name_source(audit.source)})"
    )


def _format(audit: Audit, function: str, **arguments: Any) -> str:
    """Return a call on the source of the audit, for the shell or for Python."""
    source = name_source(audit.source)
    if function == "audit":
        arguments = {**_chosen_columns(audit), **arguments}
    if is_file(audit.source):
        return shlex.join(Call(function, (source,), arguments).to_shell())
    if "top" in arguments:
        arguments = {"rows": True, **arguments}
    return Call(function, (source,), arguments).to_python()


def _chosen_columns(audit: Audit) -> dict[str, Any]:
    """Return the columns that must be named for an audit to read the same ones again: those it would not detect."""
    if not is_file(audit.source):
        return {"labels": Placeholder("labels")} if "labels" in audit.columns else {}
    return column_options(chosen_columns(audit.columns))


def suggest_repair_test(before: Audit, held_out: HeldOutComparison) -> Suggestion:
    """Return the command that tests on a task whether the repair of a comparison helps."""
    test = suggest_test(before)
    return Suggestion(f"This is not proof that {held_out.name} helps your task. {test.purpose}", test.command)
