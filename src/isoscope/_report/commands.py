"""The commands that reproduce a result, in Python and in a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from isoscope._report.html import render_code_block, render_definition_list, tag
from isoscope.stores.columns import is_chosen_first
from isoscope.stores.databases.address import is_address

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.measure import Settings


class Placeholder(str):
    """A name that stands for data without a name, such as an array."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def is_file(source: str) -> bool:
    """Return whether the name of a source is that of a file, a remote file or a database, and not of an array."""
    return "." in source or is_address(source)


def changed_settings(settings: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    default = type(settings)()
    return {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(default, name)}


def given_inputs(given: Mapping[str, str], inputs: Iterable[str], optional: Iterable[str] = ()) -> dict[str, str]:
    """Return the inputs of a task by name; an input without a name, such as an array, becomes a placeholder."""
    found: dict[str, str] = {name: given.get(name, Placeholder(name.upper())) for name in inputs}
    return found | {name: given[name] for name in optional if name in given}


@dataclass(frozen=True)
class Call:
    """A call of a function that is also a command with the same options.

    Examples
    --------
    >>> call = Call("advise", ("x.parquet",), {"labels": "topic", "new_rows": True})
    >>> call.to_python()
    "isoscope.advise('x.parquet', labels='topic', new_rows=True)"
    >>> shlex.join(call.to_shell())
    'isoscope advise x.parquet --labels topic --new-rows'
    """

    function: str
    sources: tuple[str, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    option_names: dict[str, str] = field(default_factory=dict)
    """The names of options that differ from the names of their arguments."""

    def to_python(self) -> str:
        """Return the call in Python."""
        words = [repr(source) for source in self.sources]
        words += [
            f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in self.arguments.items()
        ]
        return f"isoscope.{self.function}({', '.join(words)})"

    def to_shell(self) -> list[str]:
        """Return the words of the command."""
        words = ["isoscope", self.function, *self.sources]
        for name, value in self.arguments.items():
            option = "--" + self.option_names.get(name, name).replace("_", "-")
            words += [option] if value is True else [option, _format_option(value)]
        return words


def _format_option(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def render_reproduction(call: Call, variable: str, title: str, *, page: str, save: str | None = None) -> list[Markup]:
    """Return the commands that reproduce a result and write its page; in a shell only if all sources are files.

    `save` is the folder in which the recommended transform is saved.
    """
    python, shell = [f"{variable} = {call.to_python()}"], call.to_shell()
    if save is not None:
        python.append(f"{variable}.save({save!r})")
        shell += ["-o", save]
    python.append(f"{variable}.to_html({page!r})")
    shell += ["--html", page]
    rows: list[tuple[object, object]] = [("In Python", render_code_block(*python))]
    if not any(isinstance(source, Placeholder) for source in call.sources):
        rows.append(("In a shell", render_code_block(shlex.join(shell))))
    parts = [tag("h3", title)]
    unknown = [value for value in call.arguments.values() if isinstance(value, Placeholder)]
    if unknown:
        parts.append(tag("p", f"Replace {' and '.join(unknown)} with your own data.", class_="hint"))
    return [*parts, render_definition_list(*rows)]


def name_source(source: str, placeholder: str = "vectors") -> str:
    """Return the name of a file or database, or a placeholder for an array."""
    return source if is_file(source) else Placeholder(placeholder)


def chosen_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a file to pass by name, by role: those that would not be chosen without being passed."""
    named = {role: name for role, name in columns.items() if name != role}  # arrays have the name of their role
    return {role: name for role, name in named.items() if role != "by" and not is_chosen_first(role, name)}


def column_options(columns: Mapping[str, str]) -> dict[str, str]:
    """Return columns as options of `isoscope audit`.

    >>> column_options({"labels": "topic", "text": "line", "ids": "no"})
    {'labels': 'topic', 'columns': 'text=line,ids=no'}
    """
    labels = {"labels": columns["labels"]} if "labels" in columns else {}
    others = ",".join(f"{role}={name}" for role, name in columns.items() if role != "labels")
    return {**labels, **({"columns": others} if others else {})}


def _split_layer(source: str) -> tuple[str, str]:
    """Return the file and the layer that a source is named after by `select_layer`; without a layer, an empty text."""
    found = re.fullmatch(r"(.+), layer (\d+)", source)
    return (found[1], found[2]) if found else (source, "")


_AUDIT_SETTINGS = ("metric", "sample", "seed", "missing", "zeros")


def format_audit_command(
    sources: Sequence[str],
    columns: Sequence[Mapping[str, str]],
    settings: Settings,
    *,
    by: str | None = None,
    queries: str | None = None,
    top: int | None = None,
) -> str:
    """Return the command that writes the page of an audit: for a shell, or in Python if a source is an array.

    Parameters
    ----------
    sources : sequence of str
        The names of the sources; several are on one page.
    columns : sequence of mappings
        The columns that the audit of each source read, by role.
    settings : Settings
        The settings of the audits.
    by : str, optional
        The column by which the rows were grouped.
    queries : str, optional
        The name of the queries.
    top : int, optional
        The length of the lists of the worst rows, if the page has them.

    Examples
    --------
    >>> from isoscope.auditing.measure import Settings
    >>> format_audit_command(["a.npy", "b.npy"], [{}, {}], Settings(seed=3))
    'isoscope audit a.npy b.npy --seed 3 --html report.html'
    >>> format_audit_command(["array"], [{}], Settings(), queries="array")
    "isoscope.audit(vectors, queries=queries).to_html('report.html')"
    """
    names = ["vectors"] if len(sources) == 1 else [f"vectors_{letter}" for letter in ascii_lowercase]
    named = tuple(name_source(source, name) for source, name in zip(sources, names, strict=False))
    files = all(map(is_file, sources))
    arguments: dict[str, Any] = {}
    if by is not None:
        arguments["by"] = by if files else Placeholder("groups")
    chosen = {role: name for each in columns for role, name in (chosen_columns(each) if files else each).items()}
    chosen.pop("by", None)
    if queries is not None:
        arguments["queries"] = name_source(queries, "queries")
    changed = changed_settings(settings, _AUDIT_SETTINGS)
    if files and (queries is None or is_file(queries)):
        layers = {layer for source in sources if (layer := _split_layer(source)[1])}
        if len(layers) == 1:  # the sources are layers of files
            named = tuple(_split_layer(source)[0] for source in sources)
            arguments["layer"] = layers.pop()
        lists = {} if top is None else {"top": top}
        words = Call("audit", named, {**column_options(chosen), **arguments, **changed, **lists}).to_shell()
        return shlex.join([*words, "--html", "report.html"])
    roles = chosen if files else {role: Placeholder(role) for role in chosen}
    lists = {} if top is None else {"rows": True, "top": top}
    return f"{Call('audit', named, {**roles, **arguments, **changed, **lists}).to_python()}.to_html('report.html')"
