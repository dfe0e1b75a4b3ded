"""What runs of the studies came to, as pages of the documentation: one for each study, and a table of all claims.

make studies RUNS=folder

RUNS holds a folder for each study that was run, by the study's name, as `isoscope study run NAME -o RUNS/NAME` writes
it. Nothing is typed by hand: pages, figures and the table are made of what the runs left. Of a study that RUNS does not
hold, what the documentation has stays.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from isoscope.studies.catalog import STUDIES
from pages import between, put


def keep_page(run: Path, docs: Path) -> None:
    """A study's page and its figures, in docs/studies."""
    name, figures = run.name, docs / "studies" / run.name
    text = (run / "summary.md").read_text(encoding="utf-8").replace("](figures/", f"]({name}/")
    shutil.rmtree(figures, ignore_errors=True)
    shutil.copytree(run / "figures", figures)
    (docs / "studies" / f"{name}.md").write_text(text, encoding="utf-8")


def rows(told: dict[str, Any]) -> list[str]:
    """The claims of a study as rows of the table."""
    name, paper = told["study"], told["paper"]
    lead = f"**[{paper['title']}](studies/{name}.md)**"
    found = [f"| {lead} ({paper['authors']}, {paper['year']}) on {', '.join(told['facts']['models'])} | | | |"]
    for each in told["claims"]:
        cells = (each["words"], each["published"], each["ours"], f"**{each['holds']}**")
        found.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return found


def told_before(page: Path) -> dict[str, list[str]]:
    """The rows of each study that the page has, by the study's name: its own row, then its claims."""
    found: dict[str, list[str]] = {}
    own: list[str] = []
    for row in between(page, "claims").splitlines():
        lead = re.match(r"\| \*\*\[.*?\]\(studies/([\w-]+)\.md\)\*\*", row)
        if lead:
            own = found.setdefault(lead[1], [])
        own.append(row)  # what stands before the first study, the table's head, is of no one
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    (options.docs / "studies").mkdir(exist_ok=True)
    page = options.docs / "studies.md"
    before = told_before(page)
    lines = ["| claim | published | ours | holds? |", "|---|---|---|---|"]
    for name in STUDIES:
        run = options.runs / name
        if not (run / "results.json").is_file():
            lines += before.get(name, [])
            print(f"{name}: not run, {'left as it was' if name in before else 'not in the table'}")
            continue
        keep_page(run, options.docs)
        told = json.loads((run / "results.json").read_text(encoding="utf-8"))
        lines += rows(told)
        print(f"{name}: {len(told['claims'])} claims")
    put(page, "\n".join(lines), "claims")


if __name__ == "__main__":
    main()
