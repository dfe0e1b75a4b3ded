"""Write the documentation of the studies from their runs: a page, its figures and its numbers for each study.

make studies RUNS=folder

RUNS contains a folder for each study that was run, written by `isoscope study run NAME -o RUNS/NAME`. For each of them,
this script writes docs/studies/NAME.md, its figures, and docs/studies/NAME.results.json. The latter contains the
numbers of the run, from which verdicts can be recomputed if the rule changes. The table of all claims in
docs/studies.md is generated from these JSON files, so studies that are missing from RUNS stay unchanged.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from isoscope.studies.study import STUDIES
from pages import write_table

LONGEST = 64  # longer lists are the points of a figure


def keep_page(run: Path, docs: Path) -> None:
    """Copy a study's page and its figures to docs/studies."""
    name, figures = run.name, docs / "studies" / run.name
    text = (run / "summary.md").read_text(encoding="utf-8").replace("](figures/", f"]({name}/")
    shutil.rmtree(figures, ignore_errors=True)
    shutil.copytree(run / "figures", figures)
    (docs / "studies" / f"{name}.md").write_text(text, encoding="utf-8")


def keep_results(run: Path, docs: Path) -> None:
    """Write a study's results to docs/studies: verdicts with their cases, tables, and arms without long lists."""
    told = json.loads((run / "results.json").read_text(encoding="utf-8"))
    told["arms"] = {key: numbers(each) for key, each in told["arms"].items()}
    text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    (docs / "studies" / f"{run.name}.results.json").write_text(text, encoding="utf-8")


def numbers(value: Any) -> Any:
    """Return an arm's result with numbers rounded to six digits, and without long lists, which only figures use.

    >>> numbers({"score": 0.123456789, "cloud": [[0.0, 1.0]] * 500, "layers": [{"two_nn": 3.0}]})
    {'score': 0.123457, 'layers': [{'two_nn': 3.0}]}
    """
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if not (isinstance(each, list) and len(each) > LONGEST)}
        return {name: numbers(each) for name, each in kept.items()}
    if isinstance(value, list):
        return [numbers(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def rows(told: dict[str, Any]) -> list[str]:
    """Return the table rows for the claims of a study, followed by those for our own observations."""
    name, paper = told["study"], told["paper"]
    lead = f"**[{paper['title']}](studies/{name}.md)**"
    found = [f"| {lead} ({paper['authors']}, {paper['year']}) on {', '.join(told['facts']['models'])} | | | |"]
    observed = [each | {"published": "our observation"} for each in told["observations"]]
    for each in told["claims"] + observed:
        held = f"**{each['holds']}**{'' if each.get('recomputed', True) else ' (not recomputed)'}"
        cells = (each["words"], each["published"], each["ours"], held)
        found.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return found


def table(docs: Path) -> str:
    """Return the table of all claims, generated from the JSON files in docs/studies."""
    lines = ["| claim | published | ours | holds? |", "|---|---|---|---|"]
    for name in STUDIES:
        path = docs / "studies" / f"{name}.results.json"
        lines += rows(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder that contains the runs")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    (options.docs / "studies").mkdir(exist_ok=True)
    for name in STUDIES:
        run = options.runs / name
        if not (run / "results.json").is_file():
            print(f"{name}: no run found, page left unchanged")
            continue
        keep_page(run, options.docs)
        keep_results(run, options.docs)
        print(f"{name}: written")
    write_table(options.docs / "studies.md", table(options.docs), "claims")


if __name__ == "__main__":
    main()
