"""Describe a mistake on the command line as one line with a suggestion."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from isoscope.cli.help import read_examples

_QUOTED = re.compile(r"'([^']*)'")
_EXTRA_ARGUMENTS = re.compile(r"extra arguments?(?:\(s\))? \((.*)\)")
_PARAMETER = re.compile(r"(?:n_)?(\w+) (?=is |has |needs )")
_LEAST_SIMILARITY, _LEAST_OPTION_SIMILARITY = 0.6, 0.75  # all options have the dashes in common
_MIN_PREFIX = 3  # characters; shorter prefixes fit many options


def describe_usage_error(error: Any, parser: Any, arguments: Sequence[str]) -> str:
    """Return the message for an error of the parser of all commands, given the arguments of the command line.

    Newer versions of typer contain their own copy of click, so the classes of its errors are compared by name.
    """
    path, command = _find_command(parser, arguments)
    describe = {
        "NoSuchOption": _describe_unknown_option,
        "MissingParameter": _describe_missing_parameter,
        "BadParameter": _describe_bad_value,
        "BadOptionUsage": _describe_bad_option,
    }.get(type(error).__name__, _describe_words)
    return f"{describe(error, path, command, arguments)}; see {' '.join(['isoscope', *path])} --help"


def _find_command(parser: Any, arguments: Iterable[str]) -> tuple[list[str], Any]:
    """Return the names of the command in these arguments, and its parser."""
    path, command = [], parser
    for word in arguments:
        if word in getattr(command, "commands", {}):
            command = command.commands[word]
            path.append(word)
    return path, command


def _describe_words(error: Any, path: list[str], command: Any, arguments: Sequence[str]) -> str:
    """Describe an unknown command, a missing command or too many arguments."""
    message = str(error.format_message()).rstrip(".")
    known = getattr(command, "commands", None)
    if known is not None and (quoted := _QUOTED.search(message)) is not None:
        return f"{_name(path)} has no command {quoted[1]}{_suggest(quoted[1], known)}"
    if known is not None and not path:
        return "no command was given: start with isoscope demo, or with isoscope audit FILE"
    if known is not None:
        return f"{_name(path)} needs a command: choose {_join_choices(list(known))}"
    if (extra := _EXTRA_ARGUMENTS.search(message)) is not None:
        noun = "arguments" if " " in extra[1] else "argument"
        return f"{_name(path)} does not accept the extra {noun} {extra[1]}"
    return message


def _name(path: list[str]) -> str:
    return " ".join(path) or "isoscope"


def _join_choices(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def _suggest(word: str, names: Iterable[str]) -> str:
    """Return a question that suggests the most similar name, or nothing."""
    near = [name for name in names if name.startswith(word)] if len(word) >= _MIN_PREFIX else []
    least = _LEAST_OPTION_SIMILARITY if word.startswith("--") else _LEAST_SIMILARITY
    near = near or difflib.get_close_matches(word, list(names), n=1, cutoff=least)
    return f" (did you mean {near[0]}?)" if near else ""


def _describe_unknown_option(error: Any, path: list[str], command: Any, arguments: Sequence[str]) -> str:
    options = [name for each in command.params for name in each.opts if name.startswith("-")]
    return f"{_name(path)} has no option {error.option_name}{_suggest(error.option_name, options)}"


def _describe_missing_parameter(error: Any, path: list[str], command: Any, arguments: Sequence[str]) -> str:
    parameter = error.param
    option = f"{max(parameter.opts, key=len)} " if parameter.param_type_name == "option" else ""
    return f"{_name(path)} needs {option}{parameter.metavar}, as in {read_examples(command)[0]}"


def _describe_bad_option(error: Any, path: list[str], command: Any, arguments: Sequence[str]) -> str:
    """Describe an option with a missing value, or a flag with a value."""
    option = next((each for each in command.params if error.option_name in each.opts), None)
    if option is None or option.is_flag:
        return f"{error.option_name} takes no value"
    return f"{error.option_name} needs a value: {error.option_name} {option.metavar}"


def _describe_bad_value(error: Any, path: list[str], command: Any, arguments: Sequence[str]) -> str:
    """Describe a value that is not a number, or that is not one of the choices."""
    message, given = str(error.message), _find_value(error.param.opts, arguments)
    name = max(error.param.opts, key=len) + ("" if given is None else f" is {given}")
    if "is not one of" in message:
        return f"{name}: choose {_join_choices(_QUOTED.findall(message.split('is not one of')[1]))}"
    for word, needed in (("integer", "an integer"), ("number", "a number"), ("float", "a number")):
        if word in message:
            return f"{name}: need {needed}"
    return f"{name}: {message.rstrip('.')}"


def name_option(message: str, parser: Any, arguments: Sequence[str]) -> str:
    """Return a message that starts with the name of a parameter in Python with the option instead.

    The entries of a file are named by the file.
    """
    start = _PARAMETER.match(message)
    _, command = _find_command(parser, arguments)
    options = {each.name: each for each in command.params if each.param_type_name == "option"}
    if start is None or start[1] not in options:
        return message
    option, rest = options[start[1]], message[start.end() :]
    value = _find_value(option.opts, arguments)
    if value is not None and rest.startswith("has ") and Path(value).is_file():
        return f"{value} {rest}"
    return f"{max(option.opts, key=len)} {rest}"


def _find_value(names: Sequence[str], arguments: Sequence[str]) -> str | None:
    """Return the value of an option on the command line."""
    values = [after for word, after in itertools.pairwise(arguments) if word in names]
    values += [word.partition("=")[2] for word in arguments if word.partition("=")[0] in names and "=" in word]
    return values[-1] if values else None
