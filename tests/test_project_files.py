"""The files around the code: the version is the same in all of them, and workflows run what the Makefile offers."""

import re
from pathlib import Path

import pytest

import isoscope

ROOT = Path(__file__).parents[1]
if not (ROOT / ".github").exists():
    pytest.skip(".github/ is not in this distribution", allow_module_level=True)
yaml = pytest.importorskip("yaml")


def test_the_citation_names_the_version_and_its_changes():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = isoscope.__version__.partition(".dev")[0]
    assert citation["version"] == version
    assert len(citation["references"]) == 5
    assert re.search(rf"^## ({re.escape(version)}|Unreleased)\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").iterdir()), ids=lambda path: path.stem)
def test_workflows_run_what_exists(path):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    used = {name for command in commands for name in re.findall(r"\bmake ([\w-]+)", command)}
    assert used <= set(targets)
    for name in re.findall(r"(?<![\w/])(?:tests|tools)/[\w/.]+", " ".join(commands)):
        assert (ROOT / name).exists(), name
    assert all("${{" not in command for command in commands)  # values reach scripts as environment variables
