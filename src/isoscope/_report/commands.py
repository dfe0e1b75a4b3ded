"""What to type to have an advice again, to have a better one, and to follow it."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

from isoscope._report.document import render_definition_list, section
from isoscope._report.html import tag
from isoscope._report.narrate import is_label_free
from isoscope.advising.settings import AdviceSettings
from isoscope.stores.databases.address import parse_address

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.advising.advise import Advice

_TASK_INPUTS = {"pair": ("pairs",), "query": ("queries", "qrels"), "row": ("labels",)}
_SETTINGS = ("metric", "folds", "sample", "seed", "missing", "new_rows")


def render_commands(advice: Advice) -> Markup:
    """The section; what was an array has no commands for a shell."""
    given = () if is_label_free(advice) else _TASK_INPUTS[advice.example]
    python, shell = [_format_python_call(advice, given)], _build_shell_command(advice, given)
    if not advice.leaves_vectors_unchanged:
        python.append("advice.save('repair')")
        shell += ["-o", "repair"]
    python.append("advice.to_html('advice.html')")
    shell += ["--html", "advice.html"]
    rows: list[tuple[object, object]] = [("In Python", _render_code(*python))]
    if _is_file(advice):
        rows.append(("In a shell", _render_code(shlex.join(shell))))
    unknown = tuple(name for name in given if name not in advice.given)
    parts = [tag("h3", "To do it again"), _render_placeholder_note(unknown), render_definition_list(*rows)]
    if is_label_free(advice):
        parts += _render_task_commands(advice)
    if not advice.leaves_vectors_unchanged:
        parts += _render_apply_command(advice)
    return section("commands", "What to type", *parts)


def _render_task_commands(advice: Advice) -> list[Markup]:
    lines = [
        shlex.join(_build_shell_command(advice, given)) if _is_file(advice) else _format_python_call(advice, given)
        for given in _TASK_INPUTS.values()
    ]
    return [tag("h3", "With a task"), tag("p", "Any of these is stronger evidence."), _render_code(*lines)]


def _render_apply_command(advice: Advice) -> list[Markup]:
    if _is_file(advice):
        out = "repaired" + (".parquet" if parse_address(advice.source) else PurePath(advice.source).suffix)
        line = shlex.join(["isoscope", "apply", "repair", advice.source, "-o", out])
    else:
        line = "repaired = advice.repair.transform(vectors)"
    words = "All that is compared must be repaired alike: the corpus, new vectors, and queries."
    return [tag("h3", "To use it"), tag("p", words), _render_code(line)]


def _is_file(advice: Advice) -> bool:
    return "." in advice.source or parse_address(advice.source) is not None


def _format_python_call(advice: Advice, given: tuple[str, ...]) -> str:
    words = [repr(advice.source) if _is_file(advice) else "vectors"]
    words += [f"{name}={advice.given[name]!r}" if name in advice.given else f"{name}={name.upper()}" for name in given]
    words += [f"{name}={value!r}" for name, value in _non_default_settings(advice).items()]
    return f"advice = isoscope.advise({', '.join(words)})"


def _build_shell_command(advice: Advice, given: tuple[str, ...]) -> list[str]:
    words = ["isoscope", "advise", advice.source]
    for name in given:
        words += [f"--{name}", advice.given.get(name, name.upper())]
    for name, value in _non_default_settings(advice).items():
        words += ["--new-rows"] if name == "new_rows" else [f"--{name}", str(value)]
    return words


def _non_default_settings(advice: Advice) -> dict[str, object]:
    """What was asked for besides the task, where it is not what would be done anyway."""
    asked: dict[str, object] = {}
    if advice.alone:
        asked["measure"] = advice.measure
    usual = AdviceSettings()
    asked |= {
        name: getattr(advice.settings, name)
        for name in _SETTINGS
        if getattr(advice.settings, name) != getattr(usual, name)
    }
    return asked


def _render_placeholder_note(names: tuple[str, ...]) -> Markup | None:
    """Which words are not to be typed as they are: what was an array has no name."""
    if not names:
        return None
    words = " and ".join(name.upper() for name in names)
    return tag("p", f"{words} {'stand' if len(names) > 1 else 'stands'} for your own.", class_="hint")


def _render_code(*lines: str) -> Markup:
    return tag("pre", tag("code", "\n".join(lines)))
