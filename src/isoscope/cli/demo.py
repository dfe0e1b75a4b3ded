"""What the command demo shows."""

from __future__ import annotations

import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.text import Text

from isoscope._report.terminal import render_audit
from isoscope.auditing.audit import audit
from isoscope.cli.audit import InterruptibleProgressBar, _check_output_folders, _report_written

_FIRST = "glosses-layer5.parquet"
_SECOND = "glosses-layer6.parquet"

_ABOUT = (
    "1,750 definitions from WordNet, embedded by the sentence encoder all-MiniLM-L6-v2: the mean of the hidden states "
    "of layer 5, as one gets by taking states out of a model without its last, trained layer."
)


def run_demo(html: Path) -> None:
    """Audit the vectors that come with isoscope, write the page, and say what to do next."""
    _check_output_folders(html)
    console = Console(highlight=False)
    console.print(Text(_ABOUT), Text())
    folder = files("isoscope") / "demo"
    with as_file(folder / _FIRST) as path, InterruptibleProgressBar() as bar:
        found = audit(str(path), progress=bar)
        found.to_html(html)
        console.print(render_audit(found))
        _report_written(html)
        second = path.with_name(_SECOND)
        command = "isoscope" if shutil.which("isoscope") else sys.argv[0]
        console.print(Text("\nNext:", "bold"))
        console.print(Text(f"  open {html} in a browser, turn the cloud, hover its points", no_wrap=True))
        console.print(
            Text(f"  {command} audit --compare {path} {second}", no_wrap=True, overflow="ignore"), soft_wrap=True
        )
        console.print(
            Text(f"  {command} advise {path} --labels label", no_wrap=True, overflow="ignore"), soft_wrap=True
        )
        console.print(Text(f"  {command} audit YOUR_VECTORS.npy --html page.html", no_wrap=True))
