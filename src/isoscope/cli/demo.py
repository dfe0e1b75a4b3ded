"""The command `demo`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import typer

from isoscope.cli.help import MEASURE, command
from isoscope.cli.options import RequiredHtmlOption, check_result_files
from isoscope.cli.session import InterruptibleProgressBar, report_written, show

commands = typer.Typer()

_FIRST = "glosses-layer5.parquet"
_SECOND = "glosses-layer6.parquet"
_ABOUT = (
    "1,750 definitions from WordNet, embedded by the sentence encoder all-MiniLM-L6-v2. Each vector is the mean of the "
    "hidden states of layer 5, the second-to-last layer."
)


@command(commands, MEASURE, "isoscope demo", "isoscope demo --html first.html")
def demo(
    html: RequiredHtmlOption = Path("isoscope-demo.html"),
) -> None:
    """Audit example vectors that come with isoscope.

    They represent definitions from WordNet and come from a hidden layer of a sentence encoder.
    """
    from importlib.resources import as_file, files

    from rich.text import Text

    from isoscope._report.terminal import render_audit
    from isoscope.auditing.audit import audit

    check_result_files(html)
    show(Text(f"{_ABOUT}\n"))
    with as_file(files("isoscope") / "demo" / _FIRST) as path:
        with InterruptibleProgressBar() as bar:
            result = audit(str(path), progress=bar)
        result.to_html(html)
        show(render_audit(result))
        report_written(html)
        command = "isoscope" if shutil.which("isoscope") else sys.argv[0]
        show(Text("\nNext:", "bold"))
        print(f"  open {html} in a browser; rotate the plot and hover over its points")
        first, second = str(path), str(path.with_name(_SECOND))
        if os.name != "nt":  # the shells of Windows set variables in different ways
            print(f"  demo={shlex.quote(str(path.parent))}")
            first, second = f'"$demo/{_FIRST}"', f'"$demo/{_SECOND}"'
        print(f"  {command} audit {first} {second}")
        print(f"  {command} advise {first} --labels label")
        print(f"  {command} audit YOUR_VECTORS.npy --html report.html")
