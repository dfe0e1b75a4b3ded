"""How study list, show and run are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isoscope._core.errors import InputError

commands = typer.Typer()
study = typer.Typer(no_args_is_help=True, help="Run a paper on isotropy again: its published numbers beside ours.")
commands.add_typer(study, name="study")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="One of those that `isoscope study list` names.")]


@study.command("list")
def list_studies() -> None:
    """Name the studies."""
    from isoscope.cli.study import list_studies as run

    run()


@study.command()
def show(name: _Name) -> None:
    """Tell what a study does, what it needs and can be told, what the paper claims and what it published."""
    from isoscope.cli.study import show_study

    show_study(name)


@study.command()
def run(
    name: _Name,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="The folder of the run; the same again goes on.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="MODEL", help="A folder, or a name on the hub; again for more. [the paper's]"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the data sets' folders. [from the hub]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One of the study's own parameters; see study show."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="How many, or which: 0,1,2. [as in the paper]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, of a few minutes.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PATTERN", help="Only arms whose key fits, such as 'cola/*/seed-0'; again for more."
        ),
    ] = None,
) -> None:
    """Run a study; OUT gets results.json, page.html and summary.md. An interrupted run is gone on with."""
    from isoscope.cli.study import Request, run_study

    given: dict[str, str] = {}
    for each in [*(settings or []), *([] if seeds is None else [f"seeds={seeds}"])]:
        key, sign, value = (part.strip() for part in each.partition("="))
        if not sign or not key or not value:
            raise InputError(f"--set {each}: need NAME=VALUE, such as updates=250")
        if key in given:
            raise InputError(f"{key} is set twice, to {given[key]} and to {value}: set it once")
        given[key] = value
    run_study(Request(name, output.expanduser(), model or None, data, quick, tuple(only or ()), given))
