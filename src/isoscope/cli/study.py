"""The commands `study list`, `study show` and `study run`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoscope._core.errors import ParameterError, plural
from isoscope._io.files import expand_user
from isoscope.cli.help import INPUT, METHOD, MODELS, HelpfulGroup, command, write_examples
from isoscope.cli.options import RunFolderOption, parse_seeds
from isoscope.cli.session import InterruptibleProgressBar, Interruption, report_written, resume_command, show

if TYPE_CHECKING:
    from rich.console import Group, JustifyMethod, RenderableType
    from rich.table import Table

    from isoscope.studies.run import StudyRun
    from isoscope.studies.study import Number, Published, Study

commands = typer.Typer()
_COMMANDS = "Commands"
study_commands = typer.Typer(cls=HelpfulGroup, help="Rerun the experiments of a paper and compare the numbers.")
commands.add_typer(
    study_commands,
    name="study",
    rich_help_panel=MODELS,
    epilog=write_examples("isoscope study list", "isoscope study run shrink-the-longest -o study --quick"),
)

_STYLES = {"yes": "green", "partly": "yellow", "no": "red", "undecided": "blue", "untested": "dim"}
_LIST_WIDTH = 18  # width of a list of values in the table of parameters
_HEADING_WIDTH = 10  # width of a word in a heading, if the cells below it are narrower


def _complete_name() -> list[str]:
    """Return the names of all studies, for the completion of the shell."""
    from isoscope.studies.study import STUDIES

    return list(STUDIES)


_NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", autocompletion=_complete_name, help="Name of a study; isoscope study list shows all names."
    ),
]


@command(study_commands, _COMMANDS, "isoscope study list", name="list")
def list_studies() -> None:
    """List the studies and their papers."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from isoscope.studies.study import STUDIES, study

    parts: list[RenderableType] = []
    for name in STUDIES:
        paper = study(name).published.paper
        parts += [Text(name, "bold"), Padding(f"{paper.authors} ({paper.year}): {paper.title}", (0, 0, 0, 2))]
    parts += [Text("\nNext:", "bold"), Text("  isoscope study show NAME"), Text("  isoscope study run NAME -o DIR")]
    show(Group(*parts))


@command(study_commands, _COMMANDS, "isoscope study show shrink-the-longest", name="show")
def show_study(name: _NameArgument) -> None:
    """Show the claims, parameters and published numbers of a study."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from isoscope.studies.study import study

    protocol = study(name)
    published, paper = protocol.published, protocol.published.paper
    models = f"{', '.join(protocol.models)}; with --quick: {', '.join(protocol.quick_models)}"
    parts: list[RenderableType] = [
        Text.assemble((paper.title, "bold"), f"\n{paper.authors}, {paper.venue} {paper.year}"),
        Text(f"\n{protocol.about}\n"),
        Text("Claims", "bold"),
        _make_table(("",), [(each.key, f"{each.words} ({each.where})") for each in published.claims], ("",)),
        Text("\nModels", "bold"),
        Padding(models, (0, 0, 0, 2)),
        Text("\nParameters, --set NAME=VALUE", "bold"),
        _render_parameters(protocol),
    ]
    for key in published.tables:
        parts += [Text(f"\nPublished: {published.titles[key]}", "bold"), _render_published_table(published, key)]
    show(Group(*parts))


def _render_parameters(protocol: Study) -> Table:
    from isoscope.studies.study import format_value

    rows = [
        (key, _wrap_at_commas(format_value(each.full)), _wrap_at_commas(format_value(each.quick)), each.words)
        for key, each in protocol.parameters.items()
    ]
    return _make_table(("", "full", "quick"), rows, ("",))


def _render_published_table(published: Published, key: str) -> Table:
    columns = published.columns(key)
    rows = [
        (row, *(_format_published(published.number(key, row, column)) for column in columns))
        for row in published.rows(key)
    ]
    return _make_table(("", *columns), rows, justify="right")


def _format_published(number: Number | None) -> str:
    if number is None:
        return ""
    return f"{number.value:,.10g}" + ("" if number.uncertainty is None else f" ± {number.uncertainty:g}")


def _make_table(
    fixed: Sequence[str], rows: Sequence[Sequence[str]], wrapped: Sequence[str] = (), justify: JustifyMethod = "left"
) -> Table:
    """Return a table whose cells are not truncated on a narrow terminal.

    In the `fixed` columns, only the headings wrap. In the `wrapped` columns, which follow, the cells wrap.
    """
    from rich.table import Table

    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim", show_header=any((*fixed, *wrapped)))
    for i, heading in enumerate(fixed):
        words = [min(len(word), _HEADING_WIDTH) for word in heading.split()]
        cells = [len(line) for row in rows for line in row[i].split("\n")]
        table.add_column(heading, overflow="fold", width=max([*words, *cells]), justify=justify if i else "left")
    for heading in wrapped:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _wrap_at_commas(text: str) -> str:
    """Return a list as text wrapped at commas."""
    lines = [""]
    for word in re.findall(r"[^,]*,?", text):
        if len(lines[-1]) + len(word) > _LIST_WIDTH and lines[-1]:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


@command(
    study_commands,
    _COMMANDS,
    "isoscope study run shrink-the-longest -o study --quick",
    "isoscope study run shrink-the-longest --model ./my-model -o study",
    name="run",
)
def run(
    name: _NameArgument,
    output: RunFolderOption,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            rich_help_panel=INPUT,
            metavar="MODEL",
            help="A model folder, or the name of a model on the Hugging Face Hub; repeat the option for more models.",
            show_default="those of the paper",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=INPUT,
            metavar="DIR",
            help="Folder that contains one folder per dataset.",
            show_default="download from the Hub",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            rich_help_panel=METHOD,
            metavar="NAME=VALUE",
            help="Set a parameter of the study; isoscope study show lists the parameters.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=METHOD,
            metavar="SEEDS",
            help="Number of seeds, or a list of seeds such as 0,1,2.",
            show_default="as published",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", rich_help_panel=METHOD, help="Run a smaller version of the study that takes a few minutes."
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            rich_help_panel=METHOD,
            metavar="PATTERN",
            help="Run only the arms whose key matches this pattern, such as 'cola/*/seed-0'; repeat the option for "
            "more.",
        ),
    ] = None,
) -> None:
    """Run a study and report which claims hold.

    The output folder receives results.json, page.html and summary.md. Rerun the same command to resume an interrupted
    run.
    """
    from isoscope.studies.run import run_study
    from isoscope.studies.study import study

    folder = expand_user(output)
    parameters: dict[str, Any] = _parse_settings([*(settings or []), *([] if seeds is None else [f"seeds={seeds}"])])
    if "seeds" in parameters and "seeds" in study(name).parameters:
        parameters["seeds"] = parse_seeds(parameters["seeds"])
    try:
        with InterruptibleProgressBar("arms") as bar:
            result = run_study(
                name,
                output=folder,
                models=model or None,
                data=data,
                quick=quick,
                only=tuple(only or ()),
                progress=bar,
                **parameters,
            )
    except KeyboardInterrupt as stop:
        finished = plural(len(list((folder / "arms").glob("*.json"))), "finished arm")
        raise Interruption(f"{folder} contains {finished}; to resume, run: {resume_command()}") from stop
    show(_render_run(result))
    for file in ("results.json", "page.html", "summary.md"):
        report_written(folder / file)


def _parse_settings(pairs: list[str]) -> dict[str, str]:
    """Parse NAME=VALUE pairs and return the parameters of a study."""
    parameters: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key or not value:
            raise ParameterError(f"--set {pair}: need NAME=VALUE, such as updates=250")
        if key in parameters:
            raise ParameterError(f"{key} is set twice, to {parameters[key]} and to {value}: set it once")
        parameters[key] = value
    return parameters


def _render_run(result: StudyRun) -> Group:
    """Return the verdict on each claim and the tables of a run."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from isoscope.studies.formatting import format_claim_counts, format_number, format_run_time

    verdicts = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("claim", "published", "ours", "holds?"):
        verdicts.add_column(heading, overflow="fold")
    for each in result.outcome.verdicts:
        holds = each.holds.value
        verdicts.add_row(each.claim.words, each.published, each.ours, Text(holds, _STYLES[each.holds.name]))
    parts: list[RenderableType] = [
        Text(result.study.published.paper.title, "bold"),
        Text(f"{format_claim_counts(result.outcome.verdicts)} {format_run_time(result.facts)}.\n"),
        verdicts,
    ]
    for table in result.outcome.tables:
        numbers = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        numbers.add_column(table.row_name, overflow="fold")
        for column in table.columns:
            numbers.add_column(column, justify="right", overflow="fold")
        for row in table.rows:
            ours = (row.ours.get(column) for column in table.columns)
            numbers.add_row(
                row.name, *("" if value is None else format_number(value.mean, table.digits) for value in ours)
            )
            if row.published:
                theirs = (row.published.get(column) for column in table.columns)
                cells = ("" if value is None else format_number(value.value, table.digits) for value in theirs)
                numbers.add_row(f"  published{f', {row.of}' if row.of else ''}", *cells, style="dim")
        parts += [Text(f"\n{table.title}", "bold"), numbers]
    return Group(*parts)
