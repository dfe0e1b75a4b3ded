"""The commands as tools of an MCP server: their JSON schemas, their arguments and their results."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from threading import Event, Lock
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from isoscope._core.errors import ParameterError
from isoscope._core.printable import to_printable
from isoscope.cli.advise import advise
from isoscope.cli.audit import audit, similarity
from isoscope.cli.compress import compress
from isoscope.cli.invoke import describe_error, run_command
from isoscope.cli.repair import apply, fit
from isoscope.cli.same import same
from isoscope.cli.session import (
    FAIL_ON_REACHED,
    begin_command,
    command_arguments,
    interrupted,
    progress_listeners,
    remove_secrets,
    report_warnings,
)
from isoscope.cli.threshold import threshold

if TYPE_CHECKING:
    from isoscope._report.summary import Summary
    from isoscope.cli.access import Access

COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (audit, advise, similarity, threshold, same, compress, fit, apply)
}
"""The commands that are tools, by name."""

INPUTS = frozenset(
    {"source", "sources", "queries", "pairs", "qrels", "labels", "types", "text", "frequency", "baseline", "ids"}
    | {"query_ids", "new_ids", "model", "folder"}
)
"""The arguments that name a source, a file or a folder to read; some may name a column instead."""
OUTPUTS = frozenset({"html", "rows", "output"})
"""The arguments that name a file or a folder to write."""
_OMITTED = frozenset(
    {"json", "schema", "engine", "scheduler", "workers", "context"}
)  # the result is returned; no other processes

MAX_CHARACTERS = 24_000
"""The largest size of a result in characters of JSON; agents have a limited context."""
_LIST_LIMITS = (100, 50, 25, 10, 5, 2)  # entries; the longest lists that fit are kept

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["summary", "next", "exit_code", "messages", "result"],
    "properties": {
        "summary": {
            "type": "object",
            "description": "The result in three sentences.",
            "required": ["found", "basis", "limits"],
            "properties": {
                "found": {"type": "string", "description": "The answer."},
                "basis": {"type": "string", "description": "What the answer is based on, and how certain it is."},
                "limits": {"type": "string", "description": "What the result does not show."},
            },
        },
        "next": {"type": "string", "description": "A command to run next, in the root folder of the server."},
        "exit_code": {
            "type": "integer",
            "description": "The exit code of the command: 0, or 1 if the answer is negative or undecided, or if the "
            "fail_on threshold was reached.",
        },
        "messages": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Warnings, written files, and whether the result was shortened.",
        },
        "result": {
            "type": "object",
            "description": "The JSON that the command writes with --json. Its field `schema` names the format; the "
            "resource isoscope://schemas/NAME describes each field.",
            "required": ["schema"],
            "properties": {"schema": {"type": "string", "description": "The format and its version."}},
        },
    },
}
"""The JSON schema of what each tool returns."""


@dataclass(frozen=True)
class _Argument:
    """An argument of a tool and the command-line words that set it."""

    name: str
    option: str | None
    """The long option, such as ``--fail-on``; None for a positional argument."""
    schema: dict[str, Any]
    required: bool

    def to_words(self, value: Any) -> list[str]:
        """Return the command-line words for a value that matches the schema."""
        values = value if isinstance(value, list) else [value]
        if self.option is None:
            return [str(each) for each in values]
        if self.schema["type"] == "boolean":
            return [self.option] if value else []
        return [f"{self.option}={each}" for each in values]


@dataclass(frozen=True)
class Tool:
    """A command as a tool."""

    name: str
    description: str
    arguments: tuple[_Argument, ...] = field(repr=False)

    @property
    def writes(self) -> bool:
        """Whether the tool always writes files."""
        return any(argument.required and argument.name in OUTPUTS for argument in self.arguments)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {argument.name: argument.schema for argument in self.arguments},
            "required": [argument.name for argument in self.arguments if argument.required],
            "additionalProperties": False,
        }

    def to_command_line(self, given: Mapping[str, Any], access: Access) -> list[str]:
        """Return the command line for the given arguments; reject wrong arguments and forbidden files."""
        known = {argument.name: argument for argument in self.arguments}
        for name in given.keys() - known.keys():
            raise ParameterError(f"{self.name} has no argument {name}: it takes {', '.join(known)}")
        options: list[str] = []
        positional: list[str] = []
        for name, argument in known.items():
            value = given.get(name)
            if value is None:
                if argument.required:
                    raise ParameterError(f"{self.name} needs the argument {name}: {argument.schema['description']}")
                continue
            _check_type(value, argument.schema, name)
            words = argument.to_words(value)
            (positional if argument.option is None else options).extend(words)
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str) and "\0" in each:
                    raise ParameterError(f"{name} contains a null character: remove it")
                if name in INPUTS:
                    access.check_input(each)
                elif name in OUTPUTS:
                    access.check_output(each)
        return [self.name, "--json=-", *options, "--", *positional]


def list_tools() -> dict[str, Tool]:
    """Return the tools by name."""
    return {name: _describe_command(name, command) for name, command in COMMANDS.items()}


def _describe_command(name: str, command: Callable[..., None]) -> Tool:
    """Return the tool for a command, from its signature, its options and its docstring."""
    hints = get_type_hints(command, include_extras=True)
    arguments = []
    for parameter in signature(command).parameters.values():
        if parameter.name not in _OMITTED:
            arguments += _describe_parameter(name, parameter, hints[parameter.name])
    return Tool(name, cleandoc(command.__doc__ or "").replace("--", ""), tuple(arguments))


def _describe_parameter(command: str, parameter: Parameter, hint: Any) -> list[_Argument]:
    kind, info = (get_args(hint)[0], get_args(hint)[1]) if get_origin(hint) is Annotated else (hint, None)
    declared = (info.default, *(info.param_decls or ())) if info is not None else ()  # typer's first one is `default`
    names = [each for each in declared if isinstance(each, str) and each.startswith("--")]
    is_positional = type(info).__name__ == "ArgumentInfo"
    if command == "similarity" and is_positional:  # [SOURCE] COSINE…: two kinds of words in one list
        return _SIMILARITY_ARGUMENTS
    option = None if is_positional else names[0] if names else f"--{parameter.name.replace('_', '-')}"
    name = parameter.name if option in (None, "--method") else option.removeprefix("--").replace("-", "_")
    is_required = parameter.default is Parameter.empty
    schema = _type_schema(kind)
    help_text = (info.help or "").replace("--", "") if info is not None else ""
    if name in OUTPUTS:
        help_text += " The server must have been started with --allow-write."
    schema["description"] = help_text
    default = getattr(info, "show_default", None) if parameter.default is None else parameter.default
    if not is_required and default not in (None, True, False):
        schema["default"] = default.value if isinstance(default, Enum) else default
    return [_Argument(name, option, schema, is_required)]


_SIMILARITY_ARGUMENTS = [
    _Argument(
        "source", None, {"type": "string", "description": "Vectors: a file, folder or glob. Omit it with model."}, False
    ),
    _Argument(
        "cosines",
        None,
        {
            "type": "array",
            "items": {"type": "number", "minimum": -1, "maximum": 1},
            "minItems": 1,
            "description": "The cosines to rank, from -1 to 1.",
        },
        True,
    ),
]


def _type_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a Python type in the signature of a command."""
    if isinstance(kind, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is list:
        return {"type": "array", "items": _type_schema(get_args(kind)[0]), "minItems": 1}
    if issubclass(kind, Enum):
        return {"type": "string", "enum": [each.value for each in kind]}
    types = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}
    return {"type": types[kind]}


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def _check_type(value: Any, schema: Mapping[str, Any], name: str) -> None:
    """Reject a value that does not have the type in the schema; the command checks everything else."""
    expected = schema["type"]
    is_number_for_flag = isinstance(value, bool) and expected != "boolean"
    if not isinstance(value, _PYTHON_TYPES[expected]) or is_number_for_flag:
        raise ParameterError(f"{name} is {json.dumps(value)[:60]}: need {_describe_type(schema)}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            raise ParameterError(f"{name} is empty: need {_describe_type(schema)}")
        for each in value:
            _check_type(each, schema["items"], name)
    if value not in schema.get("enum", [value]):
        raise ParameterError(f"{name} is {json.dumps(value)[:60]}: choose from {', '.join(schema['enum'])}")


def _describe_type(schema: Mapping[str, Any]) -> str:
    if schema["type"] == "array":
        return f"a list with at least one {schema['items']['type']}"
    return {"integer": "an integer"}.get(schema["type"], f"a {schema['type']}")


class ToolError(Exception):
    """A tool failed; the message is one line without secrets."""


class ToolCall:
    """One call of a tool; it runs in a worker thread and can be canceled from another one."""

    _lock = Lock()  # commands redirect standard output and use all cores, so they run one after the other

    def __init__(self, tool: Tool, given: Mapping[str, Any], access: Access, parser: Any) -> None:
        self.tool, self.given, self.access, self.parser = tool, dict(given), access, parser
        self.progress: tuple[float, str] | None = None
        """The share of the current stage that is done, and the name of the stage."""
        self._canceled = Event()

    def cancel(self) -> None:
        """End the command at its next progress report."""
        self._canceled.set()

    @classmethod
    def wait_until_idle(cls, seconds: float) -> bool:
        """Wait until no command is running; return whether that is so."""
        if is_idle := cls._lock.acquire(timeout=seconds):
            cls._lock.release()
        return is_idle

    def run(self) -> dict[str, Any]:
        """Run the command and return its result; raise a `ToolError` if it fails."""
        secrets = [each for value in self.given.values() for each in _strings(value)]
        try:
            words = self.tool.to_command_line(self.given, self.access)
            with self._lock:
                code, output, messages = self._run_command(words)
            return self._build_answer(json.loads(output), code, messages, secrets)
        except (Exception, KeyboardInterrupt) as error:
            message, _ = describe_error(error)
            raise ToolError(to_printable(remove_secrets(" ".join(message.split()), secrets))) from error

    def _run_command(self, words: list[str]) -> tuple[int, str, list[str]]:
        """Return the exit code, standard output and the lines of standard error of a command."""
        output, errors = io.StringIO(), io.StringIO()
        begin_command(words)
        progress_listeners.append(self._report_progress)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), report_warnings():
                self._report_progress("starting", 0, 0.0)
                code = run_command(self.parser, words)
        finally:
            progress_listeners.remove(self._report_progress)
            command_arguments.clear()
        lines = errors.getvalue().splitlines()
        return code, output.getvalue(), [line.removeprefix("isoscope: ") for line in lines if line.strip()]

    def _report_progress(self, stage: str, done: int, share: float, note: str = "") -> None:
        if self._canceled.is_set() or interrupted.is_set():
            raise KeyboardInterrupt
        self.progress = min(max(share, 0.0), 1.0), stage

    def _build_answer(
        self, content: dict[str, Any], code: int, messages: list[str], secrets: Sequence[str]
    ) -> dict[str, Any]:
        from isoscope._report.summary import summarize

        summary: Summary = summarize(content, self.given)
        if code == FAIL_ON_REACHED and self.given.get("fail_on") is not None:
            messages = [*messages, f"the fail_on threshold ({self.given['fail_on']}) was reached"]
        result, note = shorten_result(content)
        answer = {
            "summary": {"found": summary.found, "basis": summary.basis, "limits": summary.limits},
            "next": summary.next,
            "exit_code": code,
            "messages": [*messages, *([note] if note else [])],
            "result": result,
        }
        return _map_strings(answer, lambda text: remove_secrets(text, secrets)) if secrets else answer


def _strings(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            yield each


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def format_answer(answer: Mapping[str, Any]) -> str:
    """Return an answer as text: the sentences, the messages, the next command and the JSON in one line."""
    summary = answer["summary"]
    lines = [summary["found"], summary["basis"], summary["limits"], *answer["messages"], f"Next: {answer['next']}"]
    return "\n".join([*(line for line in lines if line), _to_json(answer["result"])])


def shorten_result(content: dict[str, Any], most: int = MAX_CHARACTERS) -> tuple[dict[str, Any], str]:
    """Return a result that fits into `most` characters of JSON, and a sentence on what was shortened.

    Lists of numbers keep evenly spaced entries, and other lists keep their first ones.

    >>> content = {"schema": "isoscope.same/1", "changed": [f"id-{i}" for i in range(1000)]}
    >>> shortened, note = shorten_result(content, most=300)
    >>> shortened["changed"][-1], note[:56]
    ('id-24', 'the result was shortened: lists have at most 25 entries,')
    """
    if len(_to_json(content)) <= most:
        return content, ""
    for limit in _LIST_LIMITS:
        shortened = _shorten(content, limit)
        if len(_to_json(shortened)) <= most:
            break
    else:
        shortened = {name: value for name, value in shortened.items() if not isinstance(value, dict | list)}
        return shortened, "the result was too large: only its plain values are here; run the command with --json FILE"
    return shortened, (
        f"the result was shortened: lists have at most {limit} entries, and lists of numbers keep evenly spaced ones; "
        "run the command with --json FILE for the complete result"
    )


def _shorten(value: Any, limit: int) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(item, limit) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > limit:
        if all(isinstance(each, int | float) for each in value):
            value = [value[i * (len(value) - 1) // (limit - 1)] for i in range(limit)]
        else:
            value = value[:limit]
    return [_shorten(item, limit) for item in value]


def _to_json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
