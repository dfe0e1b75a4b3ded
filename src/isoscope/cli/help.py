"""Format the help of commands: titled groups of commands and options, examples and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

COMMAND_GROUPS = MEASURE, DECIDE, REPAIR, MODELS, FILES, AGENTS = (
    "Measure",
    "Decide",
    "Repair",
    "Models",
    "Files",
    "Agents",
)
"""The titles of the groups of commands, in the order of the help."""

INPUT, TASK_DATA, METHOD, OUTPUT, LIMITS = "Input", "Task data", "Method", "Output", "Sampling and limits"
"""The titles of the groups of options that several commands have."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_EXAMPLES = "Examples:\n"
_WIDEST_TERM = 26  # characters; the description of a longer option starts on the next line
_INDENT = 2


def write_examples(*commands: str, notes: str = "") -> str:
    """Return the last part of a command's help: example command lines, and notes such as exit codes.

    >>> print(write_examples("isoscope demo"))
    Examples:
      isoscope demo
    """
    return _EXAMPLES + "\n".join(f"  {command}" for command in commands) + (f"\n\n{notes}" if notes else "")


def read_examples(command: Any) -> list[str]:
    """Return the example command lines in the help of a command."""
    epilog = command.epilog or ""
    lines = epilog.removeprefix(_EXAMPLES).split("\n\n")[0].splitlines() if epilog.startswith(_EXAMPLES) else []
    return [line.strip() for line in lines]


def command(
    app: typer.Typer, group: str, *examples: str, notes: str = "", **settings: Any
) -> Callable[[FunctionT], FunctionT]:
    """Return the decorator that adds a function to `app` as a command of a group, with examples in its help."""
    return app.command(
        cls=HelpfulCommand, rich_help_panel=group, epilog=write_examples(*examples, notes=notes), **settings
    )


class HelpfulCommand(TyperCommand):
    """A command whose help shows its options in groups and its examples line by line."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the name of the command."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        names = [each.metavar or each.name.upper() for each in arguments]
        return [
            "[OPTIONS]",
            *(name if each.required else f"[{name}]" for name, each in zip(names, arguments, strict=True)),
        ]

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first line of the help, which is also shown by the completion of a shell."""
        return summarize_command(self)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the groups of options."""
        _write_parameters(self.get_params(ctx), formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples and notes as they are."""
        _write_epilog(self.epilog, formatter)


class HelpfulGroup(TyperGroup):
    """A command with subcommands, whose help shows these in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of commands, then the options."""
        self.format_commands(ctx, formatter)
        _write_parameters(self.get_params(ctx), formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of commands, with the first sentence of the help of each."""
        commands = [command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name)) is not None]
        width = max((len(command.name or "") for command in commands), default=0)
        groups = _group(commands, "Commands")
        for title in sorted(groups, key=[*COMMAND_GROUPS, "Commands"].index):
            rows = [(f"{command.name or '':<{width}}", summarize_command(command)) for command in groups[title]]
            with formatter.section(title):
                formatter.write_dl(rows, col_spacing=_INDENT)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples and exit codes as they are."""
        _write_epilog(self.epilog, formatter)


def summarize_command(command: Any) -> str:
    """Return the first line of a command's help."""
    return (command.help or "").strip().split("\n")[0]


def _group(members: Iterable[Any], otherwise: str) -> dict[str, list[Any]]:
    """Return commands or options by the titles of their groups, in the order of their first members."""
    groups: dict[str, list[Any]] = {}
    for each in members:
        groups.setdefault(getattr(each, "rich_help_panel", None) or otherwise, []).append(each)
    if otherwise in groups:
        groups[otherwise] = groups.pop(otherwise)  # at the end
    return groups


def _write_parameters(parameters: Iterable[Any], formatter: Any) -> None:
    shown = [each for each in parameters if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    if arguments:
        _write_section("Arguments", arguments, formatter)
    for title, members in _group(options, "General" if arguments else "Options").items():
        _write_section(title, members, formatter)


def _write_section(title: str, parameters: list[Any], formatter: Any) -> None:
    rows = [(_format_names(each), _describe(each)) for each in parameters]
    with formatter.section(title):
        formatter.write_dl(rows, col_max=_WIDEST_TERM, col_spacing=_INDENT)


def _format_names(parameter: Any) -> str:
    """Return the names of an option, the short one first, and the placeholder of its value."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join(sorted(parameter.opts, key=len))
    return names if parameter.is_flag else f"{names} {parameter.metavar}"


def _describe(parameter: Any) -> str:
    """Return the help text of a parameter with its default value."""
    default = _format_default(parameter)
    if parameter.param_type_name == "option" and parameter.required:
        note = "required"
    else:
        note = f"default: {default}" if default else ""
    text = parameter.help or ""
    if not note:
        return text
    return f"{text.removesuffix('.')} ({note})."


def _format_default(parameter: Any) -> str:
    shown = parameter.show_default
    if isinstance(shown, str):
        return shown
    if not shown or parameter.default is None or getattr(parameter, "is_flag", False) or parameter.required:
        return ""
    return str(parameter.default.value if isinstance(parameter.default, Enum) else parameter.default)


def _write_epilog(epilog: str | None, formatter: Any) -> None:
    """Write titles with indented lines as they are, and wrap other paragraphs."""
    for paragraph in (epilog or "").split("\n\n"):
        formatter.write_paragraph()
        if "\n  " in paragraph:
            formatter.write(f"{paragraph}\n")
        elif paragraph:
            formatter.write_text(paragraph)
